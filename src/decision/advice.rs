//! Advice on the rules of a cache: what each rule would have saved of the requests that were sent
//! upstream, and how often it would have served an outdated answer.
//!
//! Each request is judged under every rule by the functions that serve stored answers. A rule has
//! its own time of the last request for each key, because it asks less often. So the advice is the
//! result of a replay, not of an average. Left out: the config, which may have some of the rules.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::cache::freshness::{Mode, Stored};
use super::cache::settling::Trust;
use crate::api::events_of;
use crate::clock::Timestamp;

/// Seeded, because clients choose the keys.
type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

/// Lifetimes that are tried, ascending. Ours: the values that people write.
const TTLS: [Duration; 6] = [
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_mins(1),
    Duration::from_mins(5),
    Duration::from_mins(10),
    Duration::from_hours(1),
];
/// Longest lifetime for a query: no write tells of all that it shows.
const QUERY_TTL_MAX: Duration = Duration::from_mins(1);
/// The value of `cache.revalidate_at_most` that is tried.
const AT_MOST: Duration = Duration::from_secs(1);
/// The value of `webhook_ttl` that is tried: that of the guide.
const WEBHOOK_TTL: Duration = Duration::from_hours(6);
/// The rules that are tried.
const RULES: [Rule; TTLS.len() + 2] = [
    Rule::AtMost,
    Rule::Webhook,
    Rule::Ttl(TTLS[0]),
    Rule::Ttl(TTLS[1]),
    Rule::Ttl(TTLS[2]),
    Rule::Ttl(TTLS[3]),
    Rule::Ttl(TTLS[4]),
    Rule::Ttl(TTLS[5]),
];
/// Most keys of a generation; two are kept. Ours: two megabytes.
const KEYS_MAX: usize = 4_096;
/// Most subjects: routes are those of the endpoint table, names of operations are the clients'.
const SUBJECTS_MAX: usize = 1_024;
/// Fewest requests that a rule saves to be worth a line. Ours.
const SAVED_MIN: u64 = 10;
/// Least part of its subject's requests that it saves, as a divisor. Ours.
const SAVED_PART: u64 = 10;
/// A lifetime may serve one outdated answer in so many. Ours.
const OUTDATED_ONE_IN: u64 = 100;

/// A rule of the config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// `cache.revalidate_at_most`, for all routes.
    AtMost,
    /// `webhook_ttl` of a route.
    Webhook,
    /// `ttl` of a route or a query.
    Ttl(Duration),
}

/// The subject of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// A route template of the endpoint table.
    Route(&'static str),
    /// The name of a GraphQL operation; `None`: queries without one.
    Query(Option<Arc<str>>),
}

/// Result of a request that was sent upstream for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing was stored.
    New,
    /// The answer before was still right.
    Unchanged,
    /// Another one than before.
    Changed,
    /// An answer with this hash of its content; those of queries have no validator.
    Content(u64),
}

/// A request that was sent upstream for an answer.
#[derive(Clone, Debug)]
pub struct UpstreamRead {
    /// Route or query.
    pub subject: Subject,
    /// Number that stands for the key of the answer.
    pub key: u64,
    /// Time of the request.
    pub at: Timestamp,
    /// Units of the budget that it spent.
    pub cost: u32,
    /// The answer.
    pub found: Found,
    /// The client accepts no stored answer, whatever the rules.
    pub is_forced: bool,
    /// Time for which a confirmation of the answer would count at most; `None`: not at all.
    pub lifetime: Option<Duration>,
}

/// A rule worth having.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advised {
    pub rule: Rule,
    /// `None`: all of them.
    pub subject: Option<Subject>,
    /// Requests of the subject that were sent upstream.
    pub requests: u64,
    /// Units that they spent.
    pub units: u64,
    pub saved_requests: u64,
    pub saved_units: u64,
    /// Answers among the saved ones that would have been outdated.
    pub outdated: u64,
}

/// Replays requests under all rules.
#[derive(Debug)]
pub struct Advisor {
    first_at: Option<Timestamp>,
    last_at: Timestamp,
    keys: Keys,
    subjects: HashMap<Subject, Tally>,
    /// Stored answers with the lifetimes of the rules.
    models: [Stored; RULES.len()],
}

/// States of keys, bounded: a full generation replaces the one before.
#[derive(Debug, Default)]
struct Keys {
    late: HashMap<u64, Key>,
    before: HashMap<u64, Key>,
}

/// A stored answer under each rule.
#[derive(Clone, Copy, Debug, Default)]
struct Key {
    shadows: [Shadow; RULES.len()],
    /// The last time that the answer had changed.
    changed_at: Option<Timestamp>,
    content: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Shadow {
    /// The last request that the rule would have sent.
    requested_at: Timestamp,
    /// Price of the next one, because the answer has changed since.
    owed: u32,
}

#[derive(Clone, Debug, Default)]
struct Tally {
    requests: u64,
    units: u64,
    effects: [Effect; RULES.len()],
}

/// Totals of a rule.
#[derive(Clone, Copy, Debug, Default)]
struct Effect {
    saved_requests: u64,
    spent: u64,
    outdated: u64,
}

impl Default for Advisor {
    fn default() -> Self {
        let model = |rule: Rule| {
            let ttl = if let Rule::Ttl(ttl) = rule { Some(ttl) } else { None };
            let control = HeaderValue::from_static("private, max-age=31536000");
            let headers = HeaderMap::from_iter([(header::CACHE_CONTROL, control)]);
            let (mode, at) = (Mode::Revalidate, Timestamp::EPOCH);
            Stored::new(mode, at, StatusCode::OK, &headers, None, ttl)
        };
        Self {
            first_at: None,
            last_at: Timestamp::EPOCH,
            keys: Keys::default(),
            subjects: HashMap::default(),
            models: RULES.map(model),
        }
    }
}

impl Rule {
    /// Time for which an answer is served without asking, at most.
    pub fn span(self) -> Duration {
        match self {
            Self::AtMost => AT_MOST,
            Self::Webhook => WEBHOOK_TTL,
            Self::Ttl(ttl) => ttl,
        }
    }
}

impl Advisor {
    /// Judges a request under each rule. `last_change` returns the last write or event since that
    /// time that invalidates the answer.
    pub fn note(
        &mut self,
        read: &UpstreamRead,
        last_change: impl FnOnce(Timestamp) -> Option<Timestamp>,
    ) {
        self.first_at = self.first_at.or(Some(read.at));
        self.last_at = self.last_at.max(read.at);
        if !self.subjects.contains_key(&read.subject) && self.subjects.len() >= SUBJECTS_MAX {
            return;
        }
        let (is_known, key) = self.keys.of(read.key);
        let is_changed = match read.found {
            Found::New | Found::Unchanged => false,
            Found::Changed => true,
            Found::Content(content) => key.content.replace(content) != Some(content),
        };
        if is_changed {
            // A change is older than the request that finds it.
            key.changed_at = Some(Timestamp::from_millis(read.at.as_millis().saturating_sub(1)));
        }
        let must_ask = !is_known || read.is_forced || read.found == Found::New;
        let oldest = key.shadows.iter().map(|shadow| shadow.requested_at).min();
        let last_change = oldest.filter(|_| !must_ask).and_then(last_change);
        let tally = self.subjects.entry(read.subject.clone()).or_default();
        tally.requests += 1;
        tally.units += u64::from(read.cost);
        let shadows = key.shadows.iter_mut().zip(&mut tally.effects);
        for ((rule, model), (shadow, effect)) in RULES.iter().zip(&self.models).zip(shadows) {
            let learned = key.changed_at.filter(|_| *rule == Rule::Webhook);
            let trust = || Trust::after(last_change.max(learned), shadow.requested_at);
            let granted = match rule {
                Rule::AtMost => read.lifetime.map(|lifetime| lifetime.min(AT_MOST)),
                Rule::Webhook => Some(WEBHOOK_TTL),
                Rule::Ttl(_) => None,
            };
            let stored = model.validated(shadow.requested_at, shadow.requested_at);
            let asks =
                must_ask || !stored.is_fresh_after(read.at, Mode::Revalidate, trust, granted);
            if asks {
                effect.spent += u64::from(read.cost.max(shadow.owed));
                *shadow = Shadow { requested_at: read.at, owed: 0 };
            } else {
                effect.saved_requests += 1;
                shadow.owed = if is_changed { read.cost } else { shadow.owed };
                effect.outdated += u64::from(shadow.owed > 0);
            }
        }
    }

    /// Time from the first request to the last one.
    pub fn span(&self) -> Duration {
        self.first_at.map_or(Duration::ZERO, |first| self.last_at.since(first))
    }

    /// All requests, and the units that they spent.
    pub fn totals(&self) -> (u64, u64) {
        let tallies = self.subjects.values();
        tallies.fold((0, 0), |(requests, units), tally| {
            (requests + tally.requests, units + tally.units)
        })
    }

    /// Returns the subjects with their requests and units, the dearest first.
    pub fn paid(&self) -> Vec<(&Subject, u64, u64)> {
        let mut paid: Vec<_> = self
            .subjects
            .iter()
            .map(|(subject, tally)| (subject, tally.requests, tally.units))
            .collect();
        paid.sort_by(|one, other| (other.2, other.1, one.0).cmp(&(one.2, one.1, other.0)));
        paid
    }

    /// Returns the rules worth having, the most useful first.
    pub fn advise(&self) -> Vec<Advised> {
        let mut advised: Vec<Advised> = self
            .subjects
            .iter()
            .flat_map(|(subject, tally)| {
                let of = |place| tally.advised(place, Some(subject.clone()));
                let webhook =
                    matches!(subject, Subject::Route(route) if events_of(route).next().is_some());
                [tally.best_ttl(subject).map(of), webhook.then(|| of(1))]
            })
            .flatten()
            .collect();
        let mut all = Tally::default();
        self.subjects.values().for_each(|tally| all.add(tally));
        advised.push(all.advised(0, None));
        advised.retain(Advised::is_worth_having);
        advised.sort_by(|one, other| {
            let rank = |one: &Advised| (one.saved_units, one.saved_requests);
            rank(other).cmp(&rank(one)).then_with(|| one.subject.cmp(&other.subject))
        });
        advised
    }
}

impl Keys {
    /// Returns the state of a key, and true if it was known.
    fn of(&mut self, number: u64) -> (bool, &mut Key) {
        if self.late.len() >= KEYS_MAX && !self.late.contains_key(&number) {
            self.before = std::mem::take(&mut self.late);
        }
        let before = &mut self.before;
        let mut is_known = true;
        let key = self.late.entry(number).or_insert_with(|| {
            let kept = before.remove(&number);
            is_known = kept.is_some();
            kept.unwrap_or_default()
        });
        (is_known, key)
    }
}

impl Advised {
    fn is_worth_having(&self) -> bool {
        self.saved_requests >= SAVED_MIN
            && self.saved_requests.saturating_mul(SAVED_PART) >= self.requests
    }
}

impl Tally {
    fn advised(&self, place: usize, subject: Option<Subject>) -> Advised {
        let effect = self.effects[place];
        Advised {
            rule: RULES[place],
            subject,
            requests: self.requests,
            units: self.units,
            saved_requests: effect.saved_requests,
            saved_units: self.units.saturating_sub(effect.spent),
            outdated: effect.outdated,
        }
    }

    /// Returns the place of the shortest lifetime that saves nine tenths of the most, among those
    /// that seldom serve an outdated answer.
    fn best_ttl(&self, subject: &Subject) -> Option<usize> {
        let saved = |place: &usize| self.effects[*place].saved_requests;
        let may_be_taken = |place: &usize| {
            let Rule::Ttl(ttl) = RULES[*place] else { return false };
            (matches!(subject, Subject::Route(_)) || ttl <= QUERY_TTL_MAX)
                && self.effects[*place].outdated * OUTDATED_ONE_IN <= saved(place)
        };
        let places = || (0..RULES.len()).filter(may_be_taken);
        let most = places().map(|place| saved(&place)).max()?;
        places().find(|place| saved(place) * 10 >= most * 9)
    }

    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.units += other.units;
        for (mine, other) in self.effects.iter_mut().zip(&other.effects) {
            mine.saved_requests += other.saved_requests;
            mine.spent += other.spent;
            mine.outdated += other.outdated;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUES: &str = "/repos/{owner}/{repo}/issues";
    const COMMIT: &str = "/repos/{owner}/{repo}/commits/{ref}";

    fn read(route: &'static str, millis: u64, found: Found) -> UpstreamRead {
        UpstreamRead {
            subject: Subject::Route(route),
            key: 1,
            at: Timestamp::from_secs(1_000) + Duration::from_millis(millis),
            cost: u32::from(found != Found::Unchanged),
            found,
            is_forced: false,
            lifetime: Some(Duration::from_mins(1)),
        }
    }

    /// A poll of one answer each `every_millis`, of which some find a change.
    fn polled(route: &'static str, every_millis: u64, changed: impl Fn(u64) -> bool) -> Advisor {
        let mut advisor = Advisor::default();
        for number in 0..1_000 {
            let found = match number {
                0 => Found::New,
                number if changed(number) => Found::Changed,
                _ => Found::Unchanged,
            };
            advisor.note(&read(route, number * every_millis, found), |_| None);
        }
        advisor
    }

    fn advised(advisor: &Advisor) -> Vec<(Rule, u64, u64, u64)> {
        let rows = advisor.advise().into_iter();
        rows.map(|row| (row.rule, row.saved_requests, row.saved_units, row.outdated)).collect()
    }

    #[test]
    fn a_poll_within_a_second_makes_confirmations_worth_having() {
        // Ten polls a second: nine of ten are within a second of the last request.
        let advisor = polled(COMMIT, 100, |number| number % 10 == 5);
        // Each lifetime would serve outdated answers.
        // The last change is never asked for.
        assert_eq!(advised(&advisor), [(Rule::AtMost, 900, 1, 500)]);
    }

    #[test]
    fn a_lifetime_is_the_shortest_that_saves_nearly_the_most() {
        let advisor = polled(COMMIT, 2_000, |_| false);
        let ttl = Duration::from_secs(30);
        assert_eq!(advised(&advisor), [(Rule::Ttl(ttl), 933, 0, 0)]);
        let row = &advisor.advise()[0];
        assert_eq!((row.requests, row.units), (1_000, 1));
        assert_eq!(row.subject, Some(Subject::Route(COMMIT)));
    }

    #[test]
    fn a_webhook_asks_again_at_each_change_alone() {
        let advisor = polled("/repos/{owner}/{repo}/issues/{issue_number}", 20_000, |number| {
            number % 10 == 0
        });
        let rows = advised(&advisor);
        // 100 versions, each asked for once, and all but the first once more for late replicas.
        assert_eq!(rows[0], (Rule::Webhook, 801, 0, 0));
    }

    #[test]
    fn changes_unseen_for_long_save_their_units() {
        let mut advisor = Advisor::default();
        for number in 0..100 {
            let found = if number == 0 { Found::New } else { Found::Changed };
            advisor.note(&read(COMMIT, number * 1_000, found), |_| None);
        }
        // A lifetime of five seconds asks at 0, 5, 10 …, and pays each time.
        let tally = &advisor.subjects[&Subject::Route(COMMIT)];
        let of_five = tally.advised(2, None);
        assert_eq!((of_five.rule, of_five.saved_requests), (Rule::Ttl(TTLS[0]), 80));
        assert_eq!((of_five.saved_units, of_five.outdated), (80, 80));
        assert_eq!(advised(&advisor), [], "all are outdated");
    }

    #[test]
    fn an_invalidated_answer_is_asked_for_under_every_rule() {
        let mut advisor = Advisor::default();
        for number in 0..100 {
            let found = if number == 0 { Found::New } else { Found::Unchanged };
            let read = read(ISSUES, number * 10, found);
            advisor.note(&read, |_| Some(read.at));
        }
        assert_eq!(advised(&advisor), []);
    }

    #[test]
    fn requests_that_accept_nothing_stored_are_not_saved() {
        let mut advisor = Advisor::default();
        for number in 0..100 {
            let read = read(COMMIT, number * 10, Found::Unchanged);
            advisor.note(&UpstreamRead { is_forced: true, ..read }, |_| None);
        }
        assert_eq!(advised(&advisor), []);
    }

    #[test]
    fn a_query_is_advised_by_its_content() {
        let named = |name: &str| Subject::Query(Some(name.into()));
        let mut advisor = Advisor::default();
        for number in 0..200 {
            let read = read(ISSUES, number * 10_000, Found::New);
            let steady = UpstreamRead {
                subject: named("Steady"),
                found: Found::Content(7),
                cost: 3,
                lifetime: None,
                ..read.clone()
            };
            let restless = UpstreamRead {
                subject: named("Restless"),
                key: 2,
                found: Found::Content(number),
                ..steady.clone()
            };
            advisor.note(&steady, |_| None);
            advisor.note(&restless, |_| None);
        }
        let rows = advisor.advise();
        let [row] = rows.as_slice() else { panic!("{rows:?}") };
        assert_eq!(row.subject, Some(named("Steady")));
        assert_eq!((row.rule, row.saved_requests), (Rule::Ttl(QUERY_TTL_MAX), 166));
        assert_eq!(row.saved_units, 3 * 166);
    }

    #[test]
    fn keys_and_subjects_are_bounded() {
        let mut advisor = Advisor::default();
        for number in 0..20_000 {
            let read = read(COMMIT, number, Found::New);
            let subject = Subject::Query(Some(format!("Q{number}").into()));
            advisor.note(&UpstreamRead { key: number, subject, ..read }, |_| None);
        }
        let Keys { late, before } = &advisor.keys;
        assert!(late.len() <= KEYS_MAX && before.len() <= KEYS_MAX);
        assert_eq!(advisor.subjects.len(), SUBJECTS_MAX);
    }
}
