//! The emulator as a run uses it: its accounts and their credentials, its limits, and the clock of
//! its faults.

use std::net::{IpAddr, Ipv4Addr};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, header};
use ring::rand::SystemRandom;
use ring::signature::RSA_PKCS1_SHA256;
use serde_json::{Value, json};

use super::Unplayable;
use super::plan::{Demanded, Duty, Plan};
use crate::clock::Timestamp;
use crate::config::rsa_key;
use crate::decision::cache::freshness::Validators;
use crate::emulator::{Conditions, Emulator, FaultSpec, Options};

/// Source address of all requests.
pub(super) const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Lifetime of an app's JWT: `exp` at most 10 min ahead (SPECIFICATION, "Apps").
const JWT_SECS: u64 = 540;
/// Seconds for which a JWT is reused.
const JWT_KEPT_SECS: u64 = 300;

/// The emulator with the callers of a plan.
#[derive(Debug)]
pub(super) struct Upstream {
    pub emulator: Emulator,
    /// By account: our credential, and another consumer's.
    credentials: Vec<[Option<HeaderValue>; 2]>,
    app: App,
    accept: HeaderValue,
}

/// The seed world's first app.
#[derive(Debug)]
struct App {
    id: u64,
    private_key: String,
    installation: u64,
    jwt: Option<(u64, HeaderValue)>,
}

impl Upstream {
    /// Creates the world of the plan's seed, with the plan's accounts.
    pub fn new(plan: &Plan, now: Timestamp) -> Result<Self, Unplayable> {
        let options = Options {
            seed: plan.seed,
            base_url: "http://upstream.test".to_owned(),
            // A log is of another world.
            invents_reads: matches!(plan.demand, Demanded::Trace(_)),
            ..Options::default()
        };
        let mut emulator = Emulator::new(options, now);
        let app = App::of(&mut emulator, now);
        let mut conditions = Conditions::default();
        let mut limit = |name: &str, value: u64| {
            conditions.limit(name, value).map_err(|_| Unplayable(format!("no limit `{name}`")))
        };
        for (place, account) in plan.upstream.accounts.iter().enumerate() {
            limit(&format!("core@{}", login(place)), account.core_limit.into())?;
        }
        for (name, value) in &plan.upstream.limits {
            limit(name, *value)?;
            // A limit of one account overrides that of all.
            if name == "core" {
                for place in 0..plan.upstream.accounts.len() {
                    limit(&format!("core@{}", login(place)), *value)?;
                }
            }
        }
        emulator.impose(conditions);
        emulator.keep_transcript(1);
        let mut credentials = Vec::new();
        for (place, account) in plan.upstream.accounts.iter().enumerate() {
            let mut tokens = match account.duty {
                Duty::App => Vec::new(),
                Duty::User => emulator.enrol(&login(place), 2, now),
            };
            let mut bearer = || HeaderValue::from_str(&format!("Bearer {}", tokens.pop()?)).ok();
            credentials.push([bearer(), bearer()]);
        }
        Ok(Self {
            emulator,
            credentials,
            app,
            accept: HeaderValue::from_static("application/json"),
        })
    }

    pub fn installation(&self) -> u64 {
        self.app.installation
    }

    /// Builds a request of ours, or of another consumer with the same account.
    pub fn request(
        &mut self,
        now: Timestamp,
        (account, sender): (usize, Sender),
        (method, path, body): (&Method, &str, &Bytes),
        validators: Option<&Validators>,
    ) -> Result<Request<Bytes>, Unplayable> {
        let credential = match self.credentials.get(account).map(|both| &both[sender as usize]) {
            Some(Some(bearer)) => bearer.clone(),
            _ => self.app.authorization(now)?,
        };
        let mut request = Request::new(body.clone());
        *request.method_mut() = method.clone();
        *request.uri_mut() =
            path.parse().map_err(|_| Unplayable(format!("`{path}` is no path")))?;
        let headers = request.headers_mut();
        headers.insert(header::AUTHORIZATION, credential);
        headers.insert(header::ACCEPT, self.accept.clone());
        if let Some(validators) = validators {
            let Validators { if_none_match, if_modified_since } = validators.clone();
            headers.extend(if_none_match.map(|value| (header::IF_NONE_MATCH, value)));
            headers.extend(if_modified_since.map(|value| (header::IF_MODIFIED_SINCE, value)));
        }
        Ok(request)
    }

    /// Makes the next request of this account hit a secondary limit.
    pub fn refuse_next_of(&mut self, account: usize, retry_after_secs: u64) {
        let fault = json!({ "fault": "secondary", "retry_after": retry_after_secs, "match": { "account": login(account), "nth": 1 } });
        if let Some(fault) = fault.as_object().and_then(|fault| FaultSpec::read(fault).ok()) {
            let _ = self.emulator.arm(fault);
        }
    }

    /// Returns the emulator's counts at the end: `sent_while_limited`, and banned accounts.
    pub fn final_counts(&mut self, now: Timestamp) -> (u64, u64) {
        let counts = control(&mut self.emulator, now, "/_emulator/books");
        let sent = counts.get("sent_while_limited").and_then(Value::as_u64).unwrap_or(0);
        let banned = counts.get("banned").map_or(0, |banned| match banned {
            Value::Array(list) => list.len() as u64,
            other => other.as_u64().unwrap_or(0),
        });
        (sent, banned)
    }
}

/// The sender of a request on an account's budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    Ours = 0,
    Others = 1,
}

impl App {
    fn of(emulator: &mut Emulator, now: Timestamp) -> Self {
        let world = control(emulator, now, "/_emulator/world");
        let text =
            |name: &str| world.pointer(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let number = |name: &str| world.pointer(name).and_then(Value::as_u64).unwrap_or_default();
        Self {
            id: number("/apps/0/app_id"),
            private_key: text("/apps/0/private_key"),
            installation: number("/apps/0/installations/0/id"),
            jwt: None,
        }
    }

    /// Returns a JWT with time left (SPECIFICATION, "Apps").
    fn authorization(&mut self, now: Timestamp) -> Result<HeaderValue, Unplayable> {
        if let Some((made, value)) = &self.jwt
            && now.as_secs() < made + JWT_KEPT_SECS
        {
            return Ok(value.clone());
        }
        let failed = || Unplayable("the app of the emulator's world cannot sign".to_owned());
        let key = rsa_key(&self.private_key).map_err(|_| failed())?;
        let claims = json!({ "iss": self.id, "iat": now.as_secs().saturating_sub(60), "exp": now.as_secs() + JWT_SECS });
        let text = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode("{\"alg\":\"RS256\"}"),
            URL_SAFE_NO_PAD.encode(claims.to_string())
        );
        let mut signature = vec![0; key.public().modulus_len()];
        key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
            .map_err(|_| failed())?;
        let value =
            HeaderValue::from_str(&format!("Bearer {text}.{}", URL_SAFE_NO_PAD.encode(signature)))
                .map_err(|_| failed())?;
        self.jwt = Some((now.as_secs(), value.clone()));
        Ok(value)
    }
}

/// Returns an account's name at the emulator. Names of the config may be names of the seed world
/// too.
fn login(place: usize) -> String {
    format!("simulated-{place}")
}

fn control(emulator: &mut Emulator, now: Timestamp, path: &'static str) -> Value {
    let mut request = Request::new(Bytes::new());
    *request.uri_mut() = http::Uri::from_static(path);
    let answer = emulator.respond(now, &request, PEER);
    serde_json::from_slice(answer.body()).unwrap_or_default()
}
