//! One installation's token: whether it has one, when the next is to be minted, and who waits for
//! it.
//!
//! Pure but for the locks: time, randomness and the answers of the upstream are arguments; sending
//! is done in `gateway/mint.rs`. The rules:
//!
//! - One mint at a time: [`Installation::begin`] gives the right to it once, and its drop gives it
//!   back.
//! - A token that was used since it was minted is renewed while at least five minutes are left, and
//!   serves until its end whatever becomes of the renewal. One that nobody used is left to end: an
//!   hour's idleness is cheaper than a request of the app's budget for each of thousands of
//!   installations, and the next request waits for one mint.
//! - A token that the upstream refuses is minted anew once; the second refusal in a row benches the
//!   installation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::HeaderValue;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::bench::{BenchState, PAUSE_MAX, PAUSE_MIN, Permit, SharedBench, longer, take};
use super::health::HealthState;
use super::{Rejection, SlotId, TokenId};
use crate::clock::Timestamp;
use crate::decision::AccountId;

/// A renewal is due with this much left. UPSTREAM.md, Apps: "at least 5 min"; the rest is for
/// waiting in line and for failures.
const RENEW_LEFT: Duration = Duration::from_mins(10);
/// Up to so much earlier, so that installations minted together are not renewed together. Ours.
const RENEW_SPREAD: Duration = Duration::from_mins(2);
/// A token that ends sooner is not sent any more. Ours: the request may take a while to arrive.
pub(super) const END_MARGIN: Duration = Duration::from_secs(5);
/// The first wait after a failed mint, and the longest. Ours: half a dozen tries fit between the
/// renewal and the token's end.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// One installation of an app.
#[derive(Debug)]
pub struct Installation {
    /// Its id at the upstream.
    pub id: u64,
    /// Its place among the credentials.
    pub slot: SlotId,
    /// Whose budget its tokens spend.
    pub account: AccountId,
    /// The id of the app that mints for it.
    pub app: u64,
    /// Whether its tokens are refused.
    pub bench: SharedBench,
    state: Mutex<MintState>,
    signals: Arc<Signals>,
}

/// What those who mint and those who wait for a token are told by.
#[derive(Debug, Default)]
pub struct Signals {
    /// A mint may be due earlier than thought.
    pub due: Arc<Notify>,
    /// A mint has ended.
    pub ended: Notify,
    /// Mints under way.
    pub under_way: AtomicUsize,
}

/// How much a token is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Want {
    /// There is one, or nobody misses it.
    #[default]
    Nothing,
    /// It is to be there when somebody asks.
    Background,
    /// A request waits for it.
    Asked,
}

#[derive(Debug, Default)]
struct MintState {
    current: Option<Minted>,
    want: Want,
    minting: bool,
    failures: u32,
    /// How long the last refusal of the upstream to mint was taken seriously.
    pause: Option<Duration>,
    not_before: Timestamp,
    /// When a refused token was last replaced.
    replaced_at: Option<Timestamp>,
    /// Why the last mint failed.
    problem: Option<String>,
}

#[derive(Debug)]
struct Minted {
    token: TokenId,
    authorization: HeaderValue,
    /// On our clock.
    expires: Timestamp,
    renew_at: Timestamp,
    used: bool,
}

/// Why a mint of_client no token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MintFailure {
    /// Nobody knows; the next try may with_config.
    Passing(String),
    /// The upstream does not mint for this installation: it was removed or suspended.
    Refused(String),
    /// Not before this time: the app's own budget or limits, or its key is not accepted.
    Later(Timestamp, String),
}

impl Installation {
    /// Without a token, and wanting one: minted in the background, so that the first request does
    /// not wait.
    pub fn new(id: u64, slot: SlotId, account: AccountId, app: u64, signals: Arc<Signals>) -> Self {
        let state = MintState { want: Want::Background, ..MintState::default() };
        Self { id, slot, account, app, bench: Arc::default(), state: Mutex::new(state), signals }
    }

    /// Whether a request may have its token now.
    pub fn is_usable(&self, now: Timestamp) -> bool {
        let is_open = self.bench.lock().is_open(now);
        is_open && self.state.lock().usable(now).is_some()
    }

    /// When its token cannot be used any more, if nothing happens to it; `None` when it has none.
    pub fn usable_until(&self) -> Option<Timestamp> {
        self.state.lock().current.as_ref().map(|current| current.expires - END_MARGIN)
    }

    /// Its token for one request.
    pub fn take(&self, now: Timestamp) -> Option<(TokenId, HeaderValue, Permit)> {
        let mut state = self.state.lock();
        state.usable(now)?;
        let permit = take(&self.bench, now)?;
        let current = state.current.as_mut()?;
        // The first use makes its renewal due one day, of which nobody has been told yet.
        if !std::mem::replace(&mut current.used, true) {
            self.signals.due.notify_one();
        }
        Some((current.token, current.authorization.clone(), permit))
    }

    /// Whether `token` is the one in use.
    pub fn owns(&self, token: TokenId) -> bool {
        self.state.lock().current.as_ref().is_some_and(|current| current.token == token)
    }

    /// A request would wait for a token until `deadline`; whether one can come by then. From here
    /// on one is to be minted.
    pub fn want(&self, now: Timestamp, deadline: Timestamp, app: BenchState) -> bool {
        let comes = self.comes(now, deadline, app);
        if comes {
            self.state.lock().want = Want::Asked;
            // Each time: whoever mints may have looked while the app was being probe_ended.
            self.signals.due.notify_one();
        }
        comes
    }

    /// Whether a token that is asked for now can come by `deadline`.
    pub fn comes(&self, now: Timestamp, deadline: Timestamp, app: BenchState) -> bool {
        let bench = self.bench.lock().bench_state(now);
        let state = self.state.lock();
        let is_under_way =
            state.minting && matches!(bench, BenchState::Healthy | BenchState::Due(_));
        is_under_way
            || earliest(state.not_before, bench, app).is_some_and(|at| at.max(now) <= deadline)
    }

    /// A request had to do without its token and could not wait for one; whether the next request
    /// may find one. From here on it is minted, if nobody has missed it before.
    pub fn missed(&self, now: Timestamp) -> bool {
        let is_healthy = self.bench.lock().bench_state(now) == BenchState::Healthy;
        let mut state = self.state.lock();
        let comes = is_healthy && state.usable(now).is_none();
        if comes && !state.minting && state.want == Want::Nothing {
            state.want = Want::Background;
            self.signals.due.notify_one();
        }
        comes
    }

    /// When a token can come at the earliest; `None` when only an event tells.
    pub fn earliest(&self, now: Timestamp, app: BenchState) -> Option<Timestamp> {
        let bench = self.bench.lock().bench_state(now);
        earliest(self.state.lock().not_before, bench, app)
    }

    /// When the next mint is due, and for whom; `None` when none is, or one is under way.
    pub fn due(&self, now: Timestamp, app: BenchState) -> Option<(Timestamp, Want)> {
        let bench = self.bench.lock().bench_state(now);
        let state = self.state.lock();
        if state.minting {
            return None;
        }
        let at = match &state.current {
            _ if state.want > Want::Nothing => state.not_before,
            Some(current) if current.used && current.expires > now => {
                current.renew_at.max(state.not_before)
            }
            _ => return None,
        };
        earliest(at, bench, app).map(|at| (at, state.want))
    }

    /// The right to mint, once until it is given back.
    pub fn begin(self: &Arc<Self>) -> Option<Minting> {
        let mut state = self.state.lock();
        if state.minting {
            return None;
        }
        state.minting = true;
        self.signals.under_way.fetch_add(1, Ordering::Relaxed);
        Some(Minting { installation: Arc::clone(self) })
    }

    /// The upstream refused `token` at `now`. A second refusal soon after it was replaced is about
    /// the installation.
    pub fn refused(
        &self,
        token: TokenId,
        permit: &Permit,
        now: Timestamp,
        said: &str,
    ) -> Rejection {
        let mut state = self.state.lock();
        let Some(current) = state.current.as_ref().filter(|current| current.token == token) else {
            return Rejection::Old;
        };
        let ended = current.expires <= now + END_MARGIN;
        let replaced_before = state.replaced_at.is_some_and(|at| now.since(at) < PAUSE_MIN);
        state.current = None;
        if !ended && (replaced_before || matches!(permit, Permit::Probe(_))) {
            self.bench.lock().refused(now, permit, said);
            return Rejection::Benched;
        }
        // That it came too late for its token says nothing about the next one.
        if !ended {
            state.replaced_at = Some(now);
        }
        state.want = state.want.max(Want::Background);
        self.signals.due.notify_one();
        Rejection::Replaced
    }

    /// How it is, with the problem if there is one.
    pub fn health(&self, now: Timestamp, app: BenchState) -> (HealthState, Option<String>) {
        let (bench, said) = {
            let bench = self.bench.lock();
            (bench.bench_state(now), bench.said().map(str::to_owned))
        };
        let state = self.state.lock();
        match (bench, app) {
            (
                BenchState::Benched(until) | BenchState::Due(until) | BenchState::Probed(until),
                _,
            ) => {
                return (HealthState::Benched { until }, said);
            }
            (BenchState::Healthy, _) if state.usable(now).is_some() => {
                return (HealthState::Healthy, state.problem.clone());
            }
            (
                BenchState::Healthy,
                BenchState::Benched(until) | BenchState::Due(until) | BenchState::Probed(until),
            ) => {
                return (HealthState::Benched { until }, Some("its app is not accepted".into()));
            }
            (BenchState::Healthy, BenchState::Healthy) => {}
        }
        match state.pause {
            Some(_) => (HealthState::Benched { until: state.not_before }, state.problem.clone()),
            None if state.want > Want::Nothing || state.minting || state.failures > 0 => {
                (HealthState::Minting, state.problem.clone())
            }
            None => (HealthState::Expired, None),
        }
    }
}

/// When something due at `at` may be done, with what stands in the way; `None` when only an event
/// tells.
fn earliest(at: Timestamp, bench: BenchState, app: BenchState) -> Option<Timestamp> {
    [bench, app].into_iter().try_fold(at, |at, bench_state| match bench_state {
        BenchState::Healthy | BenchState::Due(_) => Some(at),
        BenchState::Benched(until) => Some(at.max(until)),
        BenchState::Probed(_) => None,
    })
}

impl MintState {
    fn usable(&self, now: Timestamp) -> Option<&Minted> {
        self.current.as_ref().filter(|current| current.expires > now + END_MARGIN)
    }
}

/// The right to mint one token for one installation.
#[derive(Debug)]
pub struct Minting {
    installation: Arc<Installation>,
}

impl Minting {
    /// For which installation.
    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// The token that it of_client, which ends at `expires` on our clock. `chance` is between 0 and
    /// 1.
    pub fn succeeded(
        self,
        token: TokenId,
        authorization: HeaderValue,
        expires: Timestamp,
        now: Timestamp,
        chance: f64,
    ) {
        let mut state = self.installation.state.lock();
        // One that lives shortly would else be due for its renewal from the start, and be renewed
        // all the time.
        let left =
            (RENEW_LEFT + RENEW_SPREAD.mul_f64(chance.clamp(0.0, 1.0))).min(expires.since(now) / 2);
        let renew_at = expires - left;
        state.current = Some(Minted { token, authorization, expires, renew_at, used: false });
        (state.want, state.failures, state.pause, state.problem) = (Want::Nothing, 0, None, None);
        state.not_before = Timestamp::EPOCH;
    }

    /// It of_client none. `chance` is between 0 and 1.
    pub fn failed(self, now: Timestamp, failure: MintFailure, chance: f64) {
        let mut state = self.installation.state.lock();
        let (not_before, problem) = match failure {
            MintFailure::Passing(problem) => {
                state.pause = None;
                (now + backoff(state.failures, chance), problem)
            }
            MintFailure::Refused(problem) => {
                let pause = longer(state.pause);
                state.pause = Some(pause);
                (now + pause, problem)
            }
            // "Never" comes from the books too, which may learn better.
            MintFailure::Later(at, problem) => {
                (at.clamp(now + backoff(0, chance), now + PAUSE_MAX), problem)
            }
        };
        state.failures = state.failures.saturating_add(1);
        state.not_before = not_before;
        state.problem = Some(problem);
    }
}

impl Drop for Minting {
    fn drop(&mut self) {
        self.installation.state.lock().minting = false;
        let signals = &self.installation.signals;
        signals.under_way.fetch_sub(1, Ordering::Relaxed);
        signals.due.notify_one();
        signals.ended.notify_waiters();
    }
}

/// The wait after `failures` earlier failures: doubling, with a jitter of half of it (UPSTREAM.md,
/// Limits: "doubling, bounded").
fn backoff(failures: u32, chance: f64) -> Duration {
    let full = RETRY_MIN.saturating_mul(2_u32.saturating_pow(failures.min(16))).min(RETRY_MAX);
    full.mul_f64(0.5 + 0.5 * chance.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests;
