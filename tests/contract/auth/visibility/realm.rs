//! An upstream of accounts with different permissions. Each response names the account that fetched
//! it, and the upstream records every response.
//!
//! Permissions, valid tokens and content change during the run. The limits are too high to matter.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use serde_json::json;
use weir::clock::{Clock, Timestamp};
use weir::config::digest_hex;
use weir::random::Rng;

use crate::support::origin::{header, token};

/// The number of repositories; the first is public.
pub const REPOSITORIES: usize = 5;
/// Units of a window, few enough that accounts differ in what remains.
const LIMIT: u64 = 100_000;
/// The last change of every resource at the start; each later change is a minute later.
const CHANGED: u64 = 1_750_000_000;
const START: Timestamp = Timestamp::from_secs(1_800_000_000);

/// The index of an account or of a client's own credential.
pub type Holder = usize;

/// The upstream.
pub struct Realm {
    state: Mutex<State>,
    clock: OnceLock<Clock>,
}

struct State {
    /// The valid tokens and their accounts.
    tokens: HashMap<String, Holder>,
    /// The tokens that are invalid at the moment.
    revoked: Vec<(String, Holder)>,
    sees: Vec<[bool; REPOSITORIES]>,
    versions: [u64; REPOSITORIES],
    used: Vec<u64>,
    /// The account with minted tokens.
    installation: Option<Holder>,
    minted: u64,
    round: u64,
    answered: Vec<Answered>,
    dice: Rng,
}

/// A response to an account.
#[derive(Clone, Debug)]
pub struct Answered {
    pub round: u64,
    pub holder: Holder,
    pub path: String,
    /// The status of the full response, also where a 304 revalidated it.
    pub status: StatusCode,
}

/// The prefix of minted tokens.
const MINTED: &str = "minted-";

impl Realm {
    /// Creates the upstream with these tokens; each account sees some of the repositories.
    pub fn new(
        tokens: Vec<(String, Holder)>,
        holders: usize,
        installation: Option<Holder>,
        mut dice: Rng,
    ) -> Arc<Self> {
        let mut sees = || std::array::from_fn(|repository| repository == 0 || dice.percent(45.0));
        let sees: Vec<_> = (0..holders).map(|_| sees()).collect();
        let state = State {
            tokens: tokens.into_iter().collect(),
            revoked: Vec::new(),
            sees,
            versions: [0; REPOSITORIES],
            used: vec![0; holders],
            installation,
            minted: 0,
            round: 0,
            answered: Vec::new(),
            dice,
        };
        Arc::new(Self { state: Mutex::new(state), clock: OnceLock::new() })
    }

    /// Uses the gateway's clock from now on.
    pub fn set_clock(&self, clock: &Clock) {
        let _ = self.clock.set(clock.clone());
    }

    /// The response to a request, after a random delay.
    pub async fn answer(self: Arc<Self>, request: Request<()>) -> Response<Bytes> {
        self.delay().await;
        let response =
            self.state.lock().respond(&request, self.clock.get().map_or(START, Clock::now));
        self.delay().await;
        response
    }

    /// All responses so far, to every account.
    pub fn answered(&self) -> Vec<Answered> {
        self.state.lock().answered.clone()
    }

    /// Begins another round; all requests of the previous one have been answered.
    pub fn next_round(&self) -> u64 {
        let mut state = self.state.lock();
        state.round += 1;
        state.round
    }

    /// Makes one change: an account gains or loses access, a token is revoked or restored, or a
    /// resource is written.
    pub fn change(&self, dice: &mut Rng) {
        self.state.lock().change(dice);
    }

    /// Makes changes while requests are in flight.
    pub async fn change_meanwhile(&self, mut dice: Rng) {
        for _ in 0..dice.below(6) {
            for _ in 0..dice.below(200) {
                tokio::task::yield_now().await;
            }
            self.change(&mut dice);
        }
    }

    async fn delay(&self) {
        let pauses = self.state.lock().dice.below(40);
        for _ in 0..pauses {
            tokio::task::yield_now().await;
        }
    }
}

impl State {
    fn change(&mut self, dice: &mut Rng) {
        match dice.below(10) {
            0..7 => {
                let (holder, repository) =
                    (pick(dice, self.sees.len()), 1 + pick(dice, REPOSITORIES - 1));
                self.sees[holder][repository] ^= true;
            }
            7 => self.versions[pick(dice, REPOSITORIES)] += 1,
            8 => {
                // Sorted, so that the seed alone decides which token is drawn.
                let mut good: Vec<_> = self.tokens.keys().cloned().collect();
                good.sort_unstable();
                let drawn = good.get(pick(dice, good.len())).cloned();
                if let Some((secret, holder)) =
                    drawn.and_then(|secret| self.tokens.remove_entry(&secret))
                {
                    // A minted token is never restored.
                    self.revoked.extend((!secret.starts_with(MINTED)).then_some((secret, holder)));
                }
            }
            _ => self.tokens.extend(self.revoked.drain(..)),
        }
    }

    fn respond(&mut self, request: &Request<()>, now: Timestamp) -> Response<Bytes> {
        let path = request.uri().to_string();
        if let (&Method::POST, Some(installation)) = (request.method(), self.installation) {
            self.minted += 1;
            let secret = format!("{MINTED}{}", self.minted);
            self.tokens.insert(secret.clone(), installation);
            let body =
                json!({ "token": secret, "expires_at": (now + Duration::from_hours(1)).rfc3339() });
            return begun(StatusCode::CREATED, now).body(body.to_string().into()).unwrap();
        }
        let Some(holder) = self.tokens.get(token(request.headers())).copied() else {
            return begun(StatusCode::UNAUTHORIZED, now)
                .body(json!({ "message": "Bad credentials" }).to_string().into())
                .unwrap();
        };
        let (status, shown, version) = self.shown(holder, &path);
        let body = json!({ "path": path, "by": holder, "shown": shown }).to_string();
        let etag = etag(request, &body);
        // A view of one account has no date, and neither has a missing resource.
        let date = version
            .filter(|_| status == StatusCode::OK)
            .map(|version| http_date(CHANGED + 60 * version));
        self.answered.push(Answered { round: self.round, holder, path, status });
        self.used[holder] = (self.used[holder] + self.dice.below(1_500)).min(LIMIT * 9 / 10);
        let condition = (
            header(request.headers(), "if-none-match"),
            header(request.headers(), "if-modified-since"),
        );
        let is_known = if condition.0.is_empty() {
            date.as_deref() == Some(condition.1)
        } else {
            condition.0 == etag
        };
        let mut response = begun(if is_known { StatusCode::NOT_MODIFIED } else { status }, now)
            .header("etag", etag)
            // A shared cache would guess a lifetime for an answer that is not private.
            .header("cache-control", "private")
            .header("x-fetched-by", holder)
            .header("x-ratelimit-limit", LIMIT)
            .header("x-ratelimit-used", self.used[holder])
            .header("x-ratelimit-remaining", LIMIT - self.used[holder])
            .header("x-ratelimit-reset", now.as_secs() / 3_600 * 3_600 + 3_600)
            .header("x-ratelimit-resource", "core");
        if let Some(date) = date {
            response = response.header("last-modified", date);
        }
        response.body(if is_known { Bytes::new() } else { body.into() }).unwrap()
    }

    /// The response of a path to an account, and its number of changes where it carries a date.
    fn shown(&self, holder: Holder, path: &str) -> (StatusCode, String, Option<u64>) {
        let Some(below) = path.strip_prefix("/repos/acme/r") else {
            let visible = (0..REPOSITORIES)
                .filter(|repository| self.sees[holder][*repository])
                .map(|repository| format!("r{repository}"));
            return (StatusCode::OK, visible.collect::<Vec<_>>().join(" "), None);
        };
        let (number, below) = below.split_once('/').unwrap_or((below, ""));
        let repository: usize = number.parse().unwrap();
        if !self.sees[holder][repository] {
            return (StatusCode::NOT_FOUND, "Not Found".into(), None);
        }
        let version = self.versions[repository];
        (StatusCode::OK, format!("version {version}"), below.is_empty().then_some(version))
    }
}

/// A random index below `end`.
pub fn pick(dice: &mut Rng, end: usize) -> usize {
    usize::try_from(dice.below(end as u64)).unwrap()
}

fn begun(status: StatusCode, now: Timestamp) -> http::response::Builder {
    Response::builder()
        .status(status)
        .header("date", http_date(now.as_secs()))
        .header("content-type", "application/json")
}

/// An `ETag` of the form that `predicted_etags` expects.
fn etag(request: &Request<()>, body: &str) -> String {
    let [accept, authorization] =
        ["accept", "authorization"].map(|name| header(request.headers(), name));
    format!("\"{}\"", digest_hex(format!("{accept}:{authorization}:{body}").as_bytes()))
}

fn http_date(seconds: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds))
}
