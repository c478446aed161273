//! Faults on request: a test arms one, and the matching requests fail in that way (SPECIFICATION,
//! "Emulator": `/_emulator/faults`).
//!
//! This module records the armed faults, the requests they strike and the responses they hold.
//! `exchange/faulty` applies them to an exchange, `server` to a connection.

pub mod gates;
mod holds;
mod kind;
mod members;
mod read;
mod replica;
pub mod wire;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use http::{Method, Request};
use serde_json::{Map, Value, json};

use self::gates::matches_pattern;
use self::replica::Replica;
use crate::clock::Timestamp;
use crate::emulator::accounts::{AccountId, Caller};
use crate::emulator::auth::credentials::BadCredentials;
use crate::emulator::http::Reply;
use crate::emulator::limits::Primary;
use crate::random::Rng;

pub use self::holds::Holds;
pub use self::kind::{
    Canned, Distortion, Ending, Execution, Kind, Lag, LimitDenial, Pattern, Remaining,
};
pub use self::members::{Members, WrongMember};

/// The most faults; further ones are refused, so that a test notices leaked faults.
const FAULTS_MAX: usize = 1_000;
/// The most revoked credentials; the seed world has a few dozen.
const REVOKED_MAX: usize = 10_000;

/// Identifies an armed fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FaultId(pub u64);

/// A fault as it was specified.
#[derive(Clone, Debug)]
pub struct FaultSpec {
    given: Map<String, Value>,
    condition: Condition,
    kind: Kind,
}

#[derive(Clone, Debug)]
struct Condition {
    method: Option<Method>,
    /// A pattern like a gate's: without the base and the query, `*` for any run of characters.
    path: String,
    /// The name of the account that pays.
    account: Option<String>,
    /// The secret itself.
    token: Option<String>,
    /// The first matching request that is struck, from 1.
    nth: u64,
    /// The number of struck requests; without it, all from then on.
    times: Option<u64>,
}

impl FaultSpec {
    /// The account and the token that it names, if any.
    pub fn named(&self) -> (Option<&str>, Option<&str>) {
        (self.condition.account.as_deref(), self.condition.token.as_deref())
    }
}

#[derive(Debug)]
struct Armed {
    spec: FaultSpec,
    /// Matching requests so far.
    matched: u64,
    struck: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct FaultCandidate<'a> {
    pub method: &'a Method,
    pub path: &'a str,
    pub caller: &'a Caller,
    pub account: &'a str,
}

#[derive(Debug, Default)]
pub struct Strike {
    pub ending: Option<(FaultId, Ending)>,
    pub distortion: Distorted,
    /// The kinds that struck, in the order they were armed.
    pub names: Vec<&'static str>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Distorted {
    pub reset_shift: i64,
    pub date_shift: i64,
    pub budgets: Budgets,
    lag: Option<(FaultId, Lag)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Budgets {
    #[default]
    Real,
    Pristine,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Bearer {
    Token(String),
    /// A caller without a token in the world: an app, an OAuth app, a recorded credential.
    Account(AccountId),
}

#[derive(Debug)]
pub struct Faults {
    next: u64,
    armed: BTreeMap<FaultId, Armed>,
    pub holds: Holds,
    revoked: BTreeSet<Bearer>,
    replica: Replica,
    dice: Rng,
    pub distortion: Distorted,
    pristine: Primary,
}

impl Faults {
    /// `seed` drives the pseudo-random kinds; ids up to `after` are never reused.
    pub fn new(seed: u64, after: u64) -> Self {
        Self {
            next: after,
            armed: BTreeMap::new(),
            holds: Holds::default(),
            revoked: BTreeSet::new(),
            replica: Replica::default(),
            dice: Rng::new(seed ^ 0x0FA0_17ED),
            distortion: Distorted::default(),
            pristine: Primary::default(),
        }
    }

    pub fn last_id(&self) -> u64 {
        self.next
    }

    pub fn is_idle(&self) -> bool {
        self.armed.is_empty() && self.holds.is_empty()
    }

    /// Arms a fault; `None` when there are too many.
    pub fn arm(&mut self, spec: FaultSpec) -> Option<FaultId> {
        if self.armed.len() >= FAULTS_MAX {
            return None;
        }
        self.next += 1;
        let id = FaultId(self.next);
        self.armed.insert(id, Armed { spec, matched: 0, struck: 0 });
        Some(id)
    }

    /// Returns the numbers of strikes and of released responses. Revoked credentials stay revoked.
    pub fn disarm(&mut self, id: FaultId) -> Option<(u64, usize)> {
        let armed = self.armed.remove(&id)?;
        self.replica.forget(id);
        Some((armed.struck, self.holds.release_all_of(id)))
    }

    pub fn ids(&self) -> Vec<FaultId> {
        self.armed.keys().copied().collect()
    }

    pub fn struck(&self, id: FaultId) -> Option<u64> {
        self.armed.get(&id).map(|armed| armed.struck)
    }

    /// Shows a fault as specified, with its state.
    pub fn show(&self, id: FaultId) -> Option<Value> {
        let armed = self.armed.get(&id)?;
        let mut shown = armed.spec.given.clone();
        let more = [
            ("id", json!(id.0)),
            ("seen", json!(armed.matched)),
            ("struck", json!(armed.struck)),
            ("holding", json!(self.holds.count(id))),
            ("spent", json!(armed.is_spent())),
        ];
        shown.extend(more.map(|(name, value)| (name.to_owned(), value)));
        Some(Value::Object(shown))
    }

    /// Every due distortion strikes, and of the due endings the first armed. Later endings do not
    /// see the request at all.
    pub fn strike(&mut self, candidate: &FaultCandidate<'_>) -> Strike {
        let mut strike = Strike::default();
        for (id, armed) in &mut self.armed {
            let is_ended = strike.ending.is_some() && matches!(armed.spec.kind, Kind::Ending(_));
            if is_ended || !armed.spec.concerns(candidate) {
                continue;
            }
            armed.matched += 1;
            if armed.matched < armed.spec.condition.nth || armed.is_spent() {
                continue;
            }
            armed.struck += 1;
            strike.names.push(armed.spec.kind.name());
            match &armed.spec.kind {
                Kind::Ending(ending) => strike.ending = Some((*id, ending.clone())),
                Kind::Distortion(distortion) => {
                    strike.distortion.add(*id, *distortion, armed.struck, &mut self.dice);
                }
            }
        }
        strike
    }

    pub fn revoke(&mut self, caller: &Caller) {
        if self.revoked.len() < REVOKED_MAX {
            self.revoked.extend(bearer(caller));
        }
    }

    pub fn unless_revoked(
        &self,
        caller: Result<Caller, BadCredentials>,
    ) -> Result<Caller, BadCredentials> {
        let caller = caller?;
        let is_revoked = !self.revoked.is_empty()
            && bearer(&caller).is_some_and(|bearer| self.revoked.contains(&bearer));
        if is_revoked { Err(BadCredentials) } else { Ok(caller) }
    }

    pub fn budgets<'a>(&'a self, real: &'a Primary) -> &'a Primary {
        match self.distortion.budgets {
            Budgets::Real => real,
            Budgets::Pristine => &self.pristine,
        }
    }

    /// Returns the response under way as a lagging replica gives it; `fresh` is the truth.
    pub fn replicated(&mut self, now: Timestamp, request: &Request<Bytes>, fresh: Reply) -> Reply {
        match self.distortion.lag {
            Some(lag) => self.replica.read(lag, now, request, fresh),
            None => fresh,
        }
    }
}

impl FaultSpec {
    fn concerns(&self, candidate: &FaultCandidate<'_>) -> bool {
        let condition = &self.condition;
        let is_read = matches!(*candidate.method, Method::GET | Method::HEAD);
        let can_strike = match &self.kind {
            Kind::Ending(Ending::Revoke) => bearer(candidate.caller).is_some(),
            Kind::Distortion(Distortion::PristineRateLimit) => {
                is_read && candidate.path == "/rate_limit"
            }
            Kind::Distortion(Distortion::StaleRead(_)) => is_read,
            Kind::Ending(_) | Kind::Distortion(_) => true,
        };
        let token = candidate.caller.token().map(|token| &token.value);
        can_strike
            && condition.method.as_ref().is_none_or(|method| method == candidate.method)
            && condition.account.as_ref().is_none_or(|account| account == candidate.account)
            && condition.token.as_ref().is_none_or(|wanted| token == Some(wanted))
            && matches_pattern(&condition.path, candidate.path)
    }
}

impl Armed {
    fn is_spent(&self) -> bool {
        self.spec.condition.times.is_some_and(|times| self.struck >= times)
    }
}

impl Distorted {
    fn add(&mut self, fault: FaultId, distortion: Distortion, turn: u64, dice: &mut Rng) {
        match distortion {
            Distortion::Wobble { seconds, pattern: Pattern::Alternating } => {
                let sign = if turn.is_multiple_of(2) { -1 } else { 1 };
                self.reset_shift += sign * i64::from(seconds);
            }
            Distortion::Wobble { seconds, pattern: Pattern::Random } => {
                let shift = dice.below(2 * u64::from(seconds) + 1);
                self.reset_shift += i64::try_from(shift).unwrap_or(0) - i64::from(seconds);
            }
            Distortion::ClockOffset { seconds } => {
                self.reset_shift += seconds;
                self.date_shift += seconds;
            }
            Distortion::PristineRateLimit => self.budgets = Budgets::Pristine,
            Distortion::StaleRead(lag) => self.lag = Some((fault, lag)),
        }
    }
}

fn bearer(caller: &Caller) -> Option<Bearer> {
    match (caller.token(), caller.account) {
        (Some(token), _) => Some(Bearer::Token(token.value.clone())),
        (None, AccountId::Anonymous(_)) => None,
        (None, account) => Some(Bearer::Account(account)),
    }
}
