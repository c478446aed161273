//! What came of a run, or of many: figures to be added up, shown and compared.

use std::collections::BTreeMap;

use serde::Serialize;

use super::waits::Waits;
use crate::decision::LimitKind;

/// What came of a run, or of many together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// How many runs these are.
    pub runs: u64,
    /// Virtual hours of each.
    pub hours: f64,
    /// The accounts, in the order of the plan.
    pub accounts: Vec<AccountReport>,
    /// The clients, in the order of the plan.
    pub clients: Vec<ClientReport>,
    /// Requests of ours that were sent although an answer we had read said to wait: must be 0.
    pub sent_while_told: u64,
    /// While an account was to be silent after a secondary refusal that we had read: our requests
    /// that others carried.
    pub sent_elsewhere_meanwhile: u64,
    /// What the emulator counts alike; requests that were under way when the refusal came are among
    /// them, and other consumers'.
    pub sent_while_limited: u64,
    /// Accounts that the emulator has banned.
    pub banned: u64,
    /// Exchanges that brought no answer.
    pub lost: u64,
    /// What was sent, and what it cost.
    pub tally: Tally,
    /// Somebody else's requests, and how many of them were refused.
    pub outside: OutsideReport,
    /// How often each invariant was found broken.
    pub broken: BTreeMap<String, u64>,
    /// What led to the first refusal by the upstream, when the run was to remember it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub story: Vec<String>,
}

/// All that was sent, by the emulator's books.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Tally {
    /// Our requests that arrived.
    pub sent: u64,
    /// Those that were answered by a 304.
    pub not_modified: u64,
    /// Units of primary budgets that they cost.
    pub spent: u64,
    /// Of resources that the run itself changes: how often that was.
    pub changes: u64,
    /// Of these: answers that showed what was no longer so when the fetch began that brought them,
    /// or when they were served without one. Must be 0.
    pub stale: u64,
}

/// An account by the upstream's own books.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AccountReport {
    /// Its name.
    pub name: String,
    /// Our requests that arrived.
    pub sent: u64,
    /// Its primary budgets, over the windows that lie wholly within the run.
    pub budgets: Vec<BudgetReport>,
    /// Its secondary limits.
    pub limits: Vec<LimitReport>,
    /// Our requests that were refused, by the limit's name at the emulator.
    pub refusals: BTreeMap<String, u64>,
}

/// A primary budget over all its full windows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BudgetReport {
    /// What it is for.
    pub resource: String,
    /// How many windows.
    pub windows: u64,
    /// Units used in them.
    pub used: u64,
    /// Units they allowed.
    pub limit: u64,
}

/// A secondary limit over a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LimitReport {
    /// Its name.
    pub limit: String,
    /// The most that may be within its window.
    pub max: u64,
    /// The most that was.
    pub most: u64,
    /// All that was.
    pub total: u64,
    /// The window's length.
    pub seconds: u64,
    /// The length of the runs together.
    pub run_seconds: u64,
}

/// A client.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClientReport {
    /// Its name.
    pub name: String,
    /// What its bots asked for.
    pub asked: u64,
    /// What was answered by the upstream or for it.
    pub served: u64,
    /// What we refused, by the limit's name.
    pub refused: BTreeMap<&'static str, u64>,
    /// Reads that brought no answer after all attempts.
    pub failed: u64,
    /// Writes of which nobody knows whether they were executed.
    pub unknown: u64,
    /// Bots that went away while they waited.
    pub gave_up: u64,
    /// Served from the store without asking.
    pub hits: u64,
    /// Served after a 304, which costs nothing.
    pub not_modified: u64,
    /// Answered by another one's fetch.
    pub collapsed: u64,
    /// How long those that were served were held by us.
    #[serde(serialize_with = "as_percentiles")]
    pub waits: Waits,
}

/// Somebody else's requests.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct OutsideReport {
    /// All of them.
    pub sent: u64,
    /// Those that the upstream refused.
    pub refused: u64,
}

impl Report {
    /// Adds what came of another run of the same plan.
    pub fn merge(&mut self, other: &Self) {
        if self.runs == 0 {
            *self = other.clone();
            return;
        }
        self.runs += other.runs;
        self.sent_while_told += other.sent_while_told;
        self.sent_elsewhere_meanwhile += other.sent_elsewhere_meanwhile;
        self.sent_while_limited += other.sent_while_limited;
        self.banned += other.banned;
        self.lost += other.lost;
        self.tally.add(other.tally);
        self.outside.sent += other.outside.sent;
        self.outside.refused += other.outside.refused;
        add(&mut self.broken, &other.broken);
        for (mine, theirs) in self.accounts.iter_mut().zip(&other.accounts) {
            mine.merge(theirs);
        }
        for (mine, theirs) in self.clients.iter_mut().zip(&other.clients) {
            mine.merge(theirs);
        }
    }

    /// Our requests that the upstream refused for a limit; those of an armed fault are not counted.
    pub fn refusals(&self) -> u64 {
        let of = |account: &AccountReport| {
            account
                .refusals
                .iter()
                .filter(|(limit, _)| *limit != "fault")
                .map(|(_, count)| *count)
                .sum::<u64>()
        };
        self.accounts.iter().map(of).sum()
    }

    /// Full windows of one resource, all accounts together.
    pub fn windows(&self, resource: &str) -> u64 {
        self.budgets(resource).map(|budget| budget.windows).sum()
    }

    /// The part of one resource's budgets that was used in full windows, 0 to 1; `None` without
    /// any.
    pub fn used(&self, resource: &str) -> Option<f64> {
        let (used, limit) = self
            .budgets(resource)
            .fold((0, 0), |(used, limit), budget| (used + budget.used, limit + budget.limit));
        (limit > 0).then(|| ratio(used, limit))
    }

    /// The most that any account had of a secondary limit at once.
    pub fn most(&self, limit: &str) -> u64 {
        self.limits(limit).map(|limit| limit.most).max().unwrap_or(0)
    }

    /// The part of a secondary limit that was used on average, 0 to 1, of the account that used
    /// least of it.
    pub fn used_of_limit(&self, limit: &str) -> Option<f64> {
        self.limits(limit).map(LimitReport::used).min_by(f64::total_cmp)
    }

    /// All invariants that were found broken, together.
    pub fn broken(&self) -> u64 {
        self.broken.values().sum()
    }

    /// Of all that was asked, the part that was refused by us or not answered in time.
    pub fn refused_share(&self) -> f64 {
        let asked = self.clients.iter().map(|client| client.asked).sum();
        ratio(self.clients.iter().map(ClientReport::turned_away).sum(), asked)
    }

    /// The same without what was refused for this reason.
    pub fn refused_share_but(&self, limit: LimitKind) -> f64 {
        let refused = |client: &ClientReport| {
            client.turned_away() - client.refused.get(limit.name()).copied().unwrap_or(0)
        };
        ratio(
            self.clients.iter().map(refused).sum(),
            self.clients.iter().map(|client| client.asked).sum(),
        )
    }

    fn budgets<'r>(&'r self, resource: &'r str) -> impl Iterator<Item = &'r BudgetReport> {
        self.accounts
            .iter()
            .flat_map(|account| &account.budgets)
            .filter(move |budget| budget.resource == resource)
    }

    fn limits<'r>(&'r self, name: &'r str) -> impl Iterator<Item = &'r LimitReport> {
        self.accounts
            .iter()
            .flat_map(|account| &account.limits)
            .filter(move |limit| limit.limit == name)
    }
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.not_modified += other.not_modified;
        self.spent += other.spent;
        self.changes += other.changes;
        self.stale += other.stale;
    }
}

impl BudgetReport {
    /// The part that was used, 0 to 1.
    pub fn share(&self) -> f64 {
        ratio(self.used, self.limit)
    }
}

impl LimitReport {
    /// The part of what the whole run allowed that was used, 0 to 1.
    pub fn used(&self) -> f64 {
        ratio(self.total.saturating_mul(self.seconds), self.max.saturating_mul(self.run_seconds))
    }
}

impl ClientReport {
    /// What was refused by us, for whatever limit.
    pub fn turned_away(&self) -> u64 {
        self.refused.values().sum()
    }

    /// What was answered without spending anything.
    pub fn saved(&self) -> u64 {
        self.hits + self.not_modified + self.collapsed
    }

    fn merge(&mut self, other: &Self) {
        self.asked += other.asked;
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

/// A part of a whole; 0 of nothing.
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
