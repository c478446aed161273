//! The addresses of names, as long as their records say. The last known ones stay in use while no
//! name server answers (RFC 8767).

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::timeout;

use crate::clock::{Clock, Timestamp};
use crate::gateway::upstream::dns::{Dns, Found, Unresolved};

/// The least time between two questions about a name, and the least age of its addresses. Chosen
/// here: a record of age 0 costs one question a second.
pub const PAUSE: Duration = Duration::from_secs(1);
/// The time until the next question when one failed and the last known addresses serve (RFC 8767
/// §5, "failure recheck timer").
const RECHECK: Duration = Duration::from_secs(30);
/// The time beyond their age for which the last known addresses serve (RFC 8767 §5: one to three
/// days).
const LAST_KNOWN: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest wait for an answer when the last known addresses could serve (RFC 8767 §5, "client
/// response timer").
const PATIENCE: Duration = Duration::from_millis(1800);

/// The addresses of a name.
#[derive(Clone, Debug)]
pub struct Records {
    /// Never empty.
    pub addresses: Arc<[IpAddr]>,
    /// The time of the next question.
    pub until: Timestamp,
}

/// Remembers the addresses of the few names that the config has.
pub struct Resolver {
    clock: Clock,
    dns: Dns,
    names: Mutex<HashMap<Box<str>, Arc<Name>>>,
}

#[derive(Default)]
struct Name {
    known: Mutex<Known>,
    /// Held during a question, so that all who need the answer share it.
    turn: tokio::sync::Mutex<()>,
}

/// The state of a name.
#[derive(Debug, Default)]
struct Known {
    records: Option<Records>,
    /// The end of the last known addresses.
    last: Timestamp,
    /// The time of the last answer or failure.
    asked: Option<Timestamp>,
    problem: String,
}

enum Step {
    Use(Records),
    Fail(String),
    Ask,
}

impl Known {
    fn is_recent(&self, now: Timestamp) -> bool {
        self.asked.is_some_and(|asked| now.since(asked) < PAUSE)
    }

    fn step(&self, now: Timestamp) -> Step {
        match &self.records {
            Some(records) if now < records.until => Step::Use(records.clone()),
            None if self.is_recent(now) => Step::Fail(self.problem.clone()),
            _ => Step::Ask,
        }
    }

    /// Makes the next question due, because there was no connection to any of the addresses.
    fn recheck(&mut self, now: Timestamp) {
        if !self.is_recent(now)
            && let Some(records) = &mut self.records
        {
            records.until = now;
        }
    }

    /// Takes an answer; true if the last known addresses serve in its place.
    fn answered(&mut self, now: Timestamp, host: &str, answer: Result<Found, Unresolved>) -> bool {
        self.asked = Some(now);
        match answer {
            Ok(Found { addresses, age }) => {
                let until = now + age.max(PAUSE);
                self.last = until + LAST_KNOWN;
                self.records = Some(Records { addresses: addresses.into(), until });
                return false;
            }
            Err(Unresolved::Absent(problem)) => {
                self.problem = format!("the name {host} {problem}");
                self.records = None;
            }
            Err(Unresolved::Failed(problem)) => {
                self.problem = format!("the name {host} cannot be resolved: {problem}");
                let is_over = now >= self.last;
                if let Some(records) = self.records.as_mut().filter(|_| !is_over) {
                    records.until = self.last.min(now + RECHECK);
                    return true;
                }
                self.records = None;
            }
        }
        false
    }
}

impl Resolver {
    pub fn new(clock: Clock, servers: &[SocketAddr]) -> Self {
        Self { clock, dns: Dns::new(servers), names: Mutex::default() }
    }

    /// True if it asks these name servers.
    pub fn asks(&self, servers: &[SocketAddr]) -> bool {
        self.dns.asks(servers)
    }

    /// Returns the addresses of a host, by a question if the known ones are too old. An error says
    /// what failed.
    pub async fn lookup(&self, host: &str) -> Result<Records, String> {
        if let Ok(address) = host.parse() {
            return Ok(Records { addresses: Arc::new([address]), until: Timestamp::FAR_FUTURE });
        }
        let name = Arc::clone(self.names.lock().entry(host.into()).or_default());
        if let Some(known) = self.known(&name) {
            return known;
        }
        let _turn = name.turn.lock().await;
        if let Some(known) = self.known(&name) {
            return known;
        }
        let answer = if name.known.lock().records.is_none() {
            self.dns.ask(host).await
        } else {
            let late = |_| Err(Unresolved::Failed("no answer in time".to_owned()));
            timeout(PATIENCE, self.dns.ask(host)).await.unwrap_or_else(late)
        };
        let now = self.clock.now();
        let mut known = name.known.lock();
        if known.answered(now, host, answer) {
            tracing::warn!(
                until = known.last.rfc3339(),
                "{}; its last known addresses are used",
                known.problem
            );
        }
        known.records.clone().ok_or_else(|| known.problem.clone())
    }

    fn known(&self, name: &Name) -> Option<Result<Records, String>> {
        match name.known.lock().step(self.clock.now()) {
            Step::Use(records) => Some(Ok(records)),
            Step::Fail(problem) => Some(Err(problem)),
            Step::Ask => None,
        }
    }

    /// Lets the next lookup ask, unless the addresses came just now.
    pub fn recheck(&self, host: &str) {
        let name = self.names.lock().get(host).map(Arc::clone);
        if let Some(name) = name {
            name.known.lock().recheck(self.clock.now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_secs(1_800_000_000 + seconds)
    }

    fn found(age: u64) -> Found {
        let addresses = vec!["192.0.2.1".parse().unwrap()];
        Found { addresses, age: Duration::from_secs(age) }
    }

    fn failed() -> Result<Found, Unresolved> {
        Err(Unresolved::Failed("no answer".to_owned()))
    }

    fn asks(known: &Known, seconds: u64) -> bool {
        matches!(known.step(at(seconds)), Step::Ask)
    }

    fn uses(known: &Known, seconds: u64) -> bool {
        matches!(known.step(at(seconds)), Step::Use(_))
    }

    #[test]
    fn a_name_is_asked_again_at_the_age_of_its_records() {
        let mut known = Known::default();
        assert!(asks(&known, 0));
        assert!(!known.answered(at(0), "api.corp", Ok(found(60))));
        assert!(uses(&known, 59) && asks(&known, 60));
    }

    #[test]
    fn an_age_of_zero_asks_once_a_second() {
        let mut known = Known::default();
        known.answered(at(0), "api.corp", Ok(found(0)));
        assert!(uses(&known, 0) && asks(&known, 1));
    }

    #[test]
    fn a_failed_connection_asks_again_unless_the_answer_is_new() {
        let mut known = Known::default();
        known.answered(at(0), "api.corp", Ok(found(60)));
        known.recheck(at(0));
        assert!(uses(&known, 0));
        known.recheck(at(1));
        assert!(asks(&known, 1));
    }

    #[test]
    fn the_last_known_addresses_serve_for_a_day_of_failures() {
        let mut known = Known::default();
        known.answered(at(0), "api.corp", Ok(found(60)));
        assert!(known.answered(at(60), "api.corp", failed()));
        assert!(uses(&known, 89) && asks(&known, 90));
        let day = 24 * 60 * 60;
        assert!(known.answered(at(day + 59), "api.corp", failed()));
        assert!(asks(&known, day + 60));
        assert!(!known.answered(at(day + 60), "api.corp", failed()));
        let Step::Fail(problem) = known.step(at(day + 60)) else { panic!("no address is left") };
        assert_eq!(problem, "the name api.corp cannot be resolved: no answer");
        assert!(asks(&known, day + 61));
    }

    #[test]
    fn a_name_that_is_gone_has_no_last_known_address() {
        let mut known = Known::default();
        known.answered(at(0), "api.corp", Ok(found(60)));
        assert!(!known.answered(at(60), "api.corp", Err(Unresolved::Absent("has no address"))));
        let Step::Fail(problem) = known.step(at(60)) else { panic!("an address is left") };
        assert_eq!(problem, "the name api.corp has no address");
    }
}
