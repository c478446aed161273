//! Figures of one or many runs.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::course::Course;
use super::waits::Waits;
use crate::decision::LimitKind;

/// Figures of one or many runs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Number of runs.
    pub runs: u64,
    /// Virtual hours of each.
    pub hours: f64,
    /// The accounts in the order of the plan.
    pub accounts: Vec<AccountReport>,
    /// The clients in the order of the plan.
    pub clients: Vec<ClientReport>,
    /// Our requests sent before the retry time of an answer: must be 0.
    #[serde(rename = "sent_while_told")]
    pub sent_too_early: u64,
    /// Our requests on other accounts while one had to be silent after a secondary limit.
    pub sent_elsewhere_meanwhile: u64,
    /// The emulator's count of requests during a limit, which includes those already under way and
    /// those of other consumers.
    pub sent_while_limited: u64,
    /// Accounts that the emulator banned.
    pub banned: u64,
    /// Exchanges without an answer.
    pub lost: u64,
    /// Reports of replicas to each other.
    pub reports: u64,
    /// Requests sent, and their cost.
    pub tally: Tally,
    /// Requests of another consumer.
    pub outside: OutsideReport,
    /// The same over the time of the run.
    pub course: Course,
    /// Violations by invariant.
    pub broken: BTreeMap<String, u64>,
    /// Events that led to the first denial by the upstream, if the run recorded them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub story: Vec<String>,
}

/// Totals by the emulator's counts.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Tally {
    /// Our requests that arrived.
    pub sent: u64,
    /// Requests answered with 304.
    pub not_modified: u64,
    /// Units of primary budgets spent.
    pub spent: u64,
    /// Changes made by the run itself.
    pub changes: u64,
    /// Answers that showed a version outdated at the start of their fetch, or for longer than a
    /// confirmation counts when they were served without one. Must be 0.
    pub stale: u64,
    /// Longest time for which an answer served without a fetch had been outdated.
    pub outdated_millis: u64,
}

/// An account by the upstream's counts.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AccountReport {
    /// Name in the plan.
    pub name: String,
    /// Our requests that arrived.
    pub sent: u64,
    /// Primary budgets over the complete windows of the run.
    pub budgets: Vec<BudgetReport>,
    /// Secondary limits.
    pub limits: Vec<LimitReport>,
    /// Our denied requests by the limit's name at the emulator.
    pub refusals: BTreeMap<String, u64>,
}

/// A primary budget over its complete windows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BudgetReport {
    /// Resource by the upstream's name, such as `core`.
    pub resource: String,
    /// Complete windows.
    pub windows: u64,
    /// Units used in them.
    pub used: u64,
    /// Units available in them.
    pub limit: u64,
    /// Units used in the fullest of them, and available in it.
    pub fullest: (u64, u64),
}

/// A secondary limit over a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LimitReport {
    /// Name as in the printed table.
    pub limit: String,
    /// The limit within its window.
    pub max: u64,
    /// The peak within a window.
    pub most: u64,
    /// Sum over the run.
    pub total: u64,
    /// Length of the window, in seconds.
    pub seconds: u64,
    /// Length of the runs together, in seconds.
    pub run_seconds: u64,
}

/// Figures of one client.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClientReport {
    /// Name in the plan.
    pub name: String,
    /// Requests of its bots.
    #[serde(rename = "asked")]
    pub requests: u64,
    /// Requests answered by the upstream or from the store.
    pub served: u64,
    /// Requests denied by the gateway, by limit.
    pub refused: BTreeMap<&'static str, u64>,
    /// Reads without an answer after all attempts.
    pub failed: u64,
    /// Writes that may or may not have been executed.
    pub unknown: u64,
    /// Bots that gave up waiting.
    pub gave_up: u64,
    /// Answers from the store without a request upstream.
    pub hits: u64,
    /// Answers after a 304, which costs nothing.
    pub not_modified: u64,
    /// Answers of another request's fetch.
    pub collapsed: u64,
    /// Waits of answered requests in the gateway.
    #[serde(serialize_with = "as_percentiles")]
    pub waits: Waits,
}

/// Requests of another consumer.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct OutsideReport {
    /// All requests.
    pub sent: u64,
    /// Requests that the upstream denied.
    pub refused: u64,
}

impl Report {
    /// Adds another run of the same plan.
    pub fn merge(&mut self, other: &Self) {
        if self.runs == 0 {
            *self = other.clone();
            return;
        }
        self.runs += other.runs;
        self.sent_too_early += other.sent_too_early;
        self.sent_elsewhere_meanwhile += other.sent_elsewhere_meanwhile;
        self.sent_while_limited += other.sent_while_limited;
        self.banned += other.banned;
        self.lost += other.lost;
        self.reports += other.reports;
        self.tally.add(other.tally);
        self.course.merge(&other.course);
        self.outside.sent += other.outside.sent;
        self.outside.refused += other.outside.refused;
        add(&mut self.broken, &other.broken);
        self.accounts.iter_mut().zip(&other.accounts).for_each(|(mine, one)| mine.merge(one));
        self.clients.iter_mut().zip(&other.clients).for_each(|(mine, one)| mine.merge(one));
    }

    /// Counts our requests that the upstream denied for a limit, without injected ones.
    pub fn refusals(&self) -> u64 {
        let refusals = self.accounts.iter().flat_map(|account| &account.refusals);
        refusals.filter(|(limit, _)| *limit != "fault").map(|(_, count)| count).sum()
    }

    /// Counts the requests of all bots.
    pub fn requests(&self) -> u64 {
        self.clients.iter().map(|client| client.requests).sum()
    }

    /// Counts the requests that we denied.
    pub fn denied(&self) -> u64 {
        self.clients.iter().map(ClientReport::denied).sum()
    }

    /// Counts the complete windows of one resource over all accounts.
    pub fn windows(&self, resource: &str) -> u64 {
        self.budgets(resource).map(|budget| budget.windows).sum()
    }

    /// Returns the fraction of a resource's budgets used in complete windows, 0 to 1; `None`
    /// without any.
    pub fn used(&self, resource: &str) -> Option<f64> {
        let limit = self.budgets(resource).map(|budget| budget.limit).sum();
        let used = self.budgets(resource).map(|budget| budget.used).sum();
        (limit > 0).then(|| ratio(used, limit))
    }

    /// Returns the highest peak of a secondary limit over all accounts.
    pub fn most(&self, limit: &str) -> u64 {
        self.limits(limit).map(|limit| limit.most).max().unwrap_or(0)
    }

    /// Returns the average use of a secondary limit, 0 to 1, of the account that used least of it.
    pub fn used_of_limit(&self, limit: &str) -> Option<f64> {
        self.limits(limit).map(LimitReport::used).min_by(f64::total_cmp)
    }

    /// Returns the limit that is nearest to its end: its account, its name, and the used fraction
    /// of its fullest window, 0 to 1. `None` if nothing was used.
    pub fn nearest(&self) -> Option<(&str, &str, f64)> {
        let all = self.accounts.iter().flat_map(|account| {
            let budgets = account.budgets.iter().map(|budget| {
                (budget.resource.as_str(), ratio(budget.fullest.0, budget.fullest.1))
            });
            let limits = account.limits.iter();
            let limits = limits.map(|limit| (limit.limit.as_str(), ratio(limit.most, limit.max)));
            budgets.chain(limits).map(|(name, used)| (account.name.as_str(), name, used))
        });
        all.filter(|(_, _, used)| *used > 0.0)
            .max_by(|(_, _, one), (_, _, other)| one.total_cmp(other))
    }

    /// Returns the waits of all clients together.
    pub fn waits(&self) -> Waits {
        let mut all = Waits::default();
        self.clients.iter().for_each(|client| all.merge(&client.waits));
        all
    }

    /// Counts all violations of invariants.
    pub fn broken(&self) -> u64 {
        self.broken.values().sum()
    }

    /// Returns the fraction of requests that we denied or did not answer in time.
    pub fn refused_share(&self) -> f64 {
        ratio(self.denied(), self.requests())
    }

    /// Like [`Report::refused_share`], without denials for this reason.
    pub fn refused_share_but(&self, limit: LimitKind) -> f64 {
        let refused = |client: &ClientReport| {
            client.denied() - client.refused.get(limit.name()).copied().unwrap_or(0)
        };
        ratio(self.clients.iter().map(refused).sum(), self.requests())
    }

    fn budgets<'r>(&'r self, resource: &'r str) -> impl Iterator<Item = &'r BudgetReport> {
        let budgets = self.accounts.iter().flat_map(|account| &account.budgets);
        budgets.filter(move |budget| budget.resource == resource)
    }

    fn limits<'r>(&'r self, name: &'r str) -> impl Iterator<Item = &'r LimitReport> {
        let limits = self.accounts.iter().flat_map(|account| &account.limits);
        limits.filter(move |limit| limit.limit == name)
    }
}

impl Tally {
    /// Counts an answer that was served without a fetch, after it had been outdated for `outdated`.
    pub(super) fn add_hit(&mut self, outdated: Option<Duration>, allowed: Duration) {
        let Some(outdated) = outdated else { return };
        self.stale += u64::from(outdated >= allowed);
        let millis = u64::try_from(outdated.as_millis()).unwrap_or(u64::MAX);
        self.outdated_millis = self.outdated_millis.max(millis);
    }

    fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.not_modified += other.not_modified;
        self.spent += other.spent;
        self.changes += other.changes;
        self.stale += other.stale;
        self.outdated_millis = self.outdated_millis.max(other.outdated_millis);
    }
}

impl BudgetReport {
    /// Returns the used fraction, 0 to 1.
    pub fn share(&self) -> f64 {
        ratio(self.used, self.limit)
    }
}

impl LimitReport {
    /// Returns the used fraction of what the whole run permitted, 0 to 1.
    pub fn used(&self) -> f64 {
        ratio(self.total.saturating_mul(self.seconds), self.max.saturating_mul(self.run_seconds))
    }
}

impl ClientReport {
    /// Counts the requests that we denied for any limit.
    pub fn denied(&self) -> u64 {
        self.refused.values().sum()
    }

    /// Counts the answers that spent nothing.
    pub fn saved(&self) -> u64 {
        self.hits + self.not_modified + self.collapsed
    }

    fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.served += other.served;
        self.failed += other.failed;
        self.unknown += other.unknown;
        self.gave_up += other.gave_up;
        self.hits += other.hits;
        self.not_modified += other.not_modified;
        self.collapsed += other.collapsed;
        add(&mut self.refused, &other.refused);
        self.waits.merge(&other.waits);
    }
}

impl AccountReport {
    fn merge(&mut self, other: &Self) {
        self.sent += other.sent;
        add(&mut self.refusals, &other.refusals);
        for theirs in &other.budgets {
            match self.budgets.iter_mut().find(|mine| mine.resource == theirs.resource) {
                Some(mine) => {
                    mine.windows += theirs.windows;
                    mine.used += theirs.used;
                    mine.limit += theirs.limit;
                    mine.fullest = fuller(mine.fullest, theirs.fullest);
                }
                None => self.budgets.push(theirs.clone()),
            }
        }
        for theirs in &other.limits {
            match self.limits.iter_mut().find(|mine| mine.limit == theirs.limit) {
                Some(mine) => {
                    mine.most = mine.most.max(theirs.most);
                    mine.total += theirs.total;
                    mine.run_seconds += theirs.run_seconds;
                }
                None => self.limits.push(theirs.clone()),
            }
        }
    }
}

fn add<K: Ord + Clone>(mine: &mut BTreeMap<K, u64>, theirs: &BTreeMap<K, u64>) {
    for (key, count) in theirs {
        *mine.entry(key.clone()).or_default() += count;
    }
}

/// Returns the fuller of two windows, each with its use and its size.
pub(super) fn fuller(one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
    if ratio(other.0, other.1) > ratio(one.0, one.1) { other } else { one }
}

/// Returns `part / whole`; 0 for an empty whole.
#[expect(clippy::cast_precision_loss, reason = "counts of requests are exact in an f64")]
pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn as_percentiles<S: serde::Serializer>(waits: &Waits, serializer: S) -> Result<S::Ok, S::Error> {
    use serde::ser::SerializeMap;
    let mut map = serializer.serialize_map(Some(3))?;
    map.serialize_entry("p50_millis", &waits.percentile(50))?;
    map.serialize_entry("p99_millis", &waits.percentile(99))?;
    map.serialize_entry("max_millis", &waits.max())?;
    map.end()
}
