//! The budgets of single clients: one that has a budget spends only so many units of a resource,
//! whatever its accounts have left (SPECIFICATION, "Budgets of clients").
//!
//! A window begins with the first request after the end of the one before. A share of the accounts'
//! limits ends with the window of the first account, so that all shares of one pool begin together.
//! A request reserves its units, and its settlement shows how many it spent. Beyond a hard budget a
//! request waits for the next window or is denied; beyond a soft one it goes after all others.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use slab::Slab;
use smallvec::SmallVec;

use super::account::Account;
use super::denial::{Blocked, Scope};
use super::view::BudgetView;
use super::{Lease, QuotaLedger, place};
use crate::api::{ResourceName, window};
use crate::clock::Timestamp;
use crate::decision::types::{
    AccountId, BudgetAmount, ClientBudget, ClientId, Demand, HashMap, LimitDenied, LimitKind,
    Priority, Until,
};

/// Longest list whose limits are added up for each request. Ours: it takes a microsecond.
const ADDED_EACH_MAX: usize = 16;
/// Age of the sum of a longer list. Ours: limits change seldom, and never by much.
const SUM_AGE_MAX: Duration = Duration::from_secs(1);
/// Pause before the next attempt of a request that other requests of its client hold up. Ours: most
/// of them are answered by then.
const IN_FLIGHT_PAUSE: Duration = Duration::from_secs(1);

/// Number of a budget; kept while it has requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BudgetId(u32);

impl BudgetId {
    fn of(at: usize) -> Self {
        Self(u32::try_from(at).unwrap_or(u32::MAX))
    }
}

/// The budgets of all clients.
#[derive(Debug, Default)]
pub struct ClientBudgets {
    all: Slab<OwnBudget>,
    /// Those that the config has.
    of_client: HashMap<ClientId, SmallVec<[BudgetId; 1]>>,
}

/// One budget and its window.
#[derive(Debug)]
struct OwnBudget {
    settings: ClientBudget,
    /// False once the config has it no longer.
    is_configured: bool,
    /// End of the window; a time in the past before the first one.
    ends: Timestamp,
    used: u64,
    /// Units of requests in flight.
    reserved: u64,
    /// Units spent since the process began.
    total: u64,
    /// The part of the total that the other replicas know.
    published: u64,
    /// Limits of the accounts together, and the time of the sum.
    sum: Option<(Timestamp, u64)>,
}

/// One client's budget for an operator and for the client itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientBudgetSnapshot {
    /// Client name in the config.
    pub client: Arc<str>,
    /// Resource, such as `core`.
    pub resource: ResourceName,
    /// True if requests beyond it are denied.
    pub is_hard: bool,
    /// Units per window.
    pub limit: u32,
    /// Units spent in this window, or in flight.
    pub used: u32,
    /// End of the window; before the first request the earliest possible.
    pub reset: Timestamp,
}

/// The window of one budget, as a file keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedBudget {
    client: String,
    resource: String,
    ends: Timestamp,
    used: u64,
}

/// Units that a client has spent since the last message of a predecessor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpentBudget {
    client: String,
    resource: String,
    units: u64,
}

/// A request's own budget at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    limit: u64,
    used: u64,
    reserved: u64,
    ends: Timestamp,
}

impl State {
    fn has_room(self, cost: u32) -> bool {
        self.used.saturating_add(self.reserved).saturating_add(cost.into()) <= self.limit
    }
}

impl ClientBudgets {
    /// Takes over the budgets of a config. A window goes on with a changed amount.
    pub fn reconfigure(&mut self, budgets: Vec<ClientBudget>) {
        for (_, budget) in &mut self.all {
            budget.is_configured = false;
        }
        self.of_client.clear();
        for settings in budgets {
            let is_it = |budget: &OwnBudget| {
                budget.settings.client == settings.client
                    && budget.settings.resource == settings.resource
            };
            let client = settings.client;
            let known = self.all.iter().find(|(_, budget)| is_it(budget)).map(|(at, _)| at);
            let at = if let Some(at) = known {
                let budget = &mut self.all[at];
                (budget.settings, budget.is_configured, budget.sum) = (settings, true, None);
                at
            } else {
                self.all.insert(OwnBudget::new(settings))
            };
            self.of_client.entry(client).or_default().push(BudgetId::of(at));
        }
        self.all.retain(|_, budget| budget.is_configured || budget.reserved > 0);
    }

    fn find(&self, client: ClientId, resource: &ResourceName) -> Option<BudgetId> {
        let of_client = self.of_client.get(&client)?;
        let is_it = |id: &&BudgetId| {
            self.get(**id).is_some_and(|budget| budget.settings.resource == *resource)
        };
        of_client.iter().find(is_it).copied()
    }

    fn get(&self, id: BudgetId) -> Option<&OwnBudget> {
        self.all.get(id.0 as usize)
    }

    fn get_mut(&mut self, id: BudgetId) -> Option<&mut OwnBudget> {
        self.all.get_mut(id.0 as usize)
    }

    /// Reserves the units of an admitted request.
    fn reserve(&mut self, id: BudgetId, cost: u32) {
        if let Some(budget) = self.get_mut(id) {
            budget.reserved += u64::from(cost);
        }
    }

    /// Ends the reservation of a request that spent so many units.
    pub fn settle(&mut self, id: BudgetId, cost: u32, spent: u32) {
        let Some(budget) = self.get_mut(id) else { return };
        budget.reserved = budget.reserved.saturating_sub(cost.into());
        budget.add(spent.into());
        if !budget.is_configured && budget.reserved == 0 {
            self.all.remove(id.0 as usize);
        }
    }

    fn by_name(&mut self, client: &str, resource: &str) -> Option<&mut OwnBudget> {
        let is_it = |budget: &OwnBudget| {
            *budget.settings.name == *client && budget.settings.resource.as_str() == resource
        };
        let configured = self.all.iter_mut().map(|(_, budget)| budget);
        configured.filter(|budget| budget.is_configured).find(|budget| is_it(budget))
    }

    /// Returns the windows that are not over, for a file.
    pub fn saved(&self, now: Timestamp) -> Vec<SavedBudget> {
        let open = self.all.iter().map(|(_, budget)| budget).filter(|budget| budget.ends > now);
        let saved = |budget: &OwnBudget| SavedBudget {
            client: budget.settings.name.to_string(),
            resource: budget.settings.resource.as_str().to_owned(),
            ends: budget.ends,
            // Requests in flight may still be executed.
            used: budget.used + budget.reserved,
        };
        open.map(saved).collect()
    }

    /// Takes over the windows of an earlier process.
    pub fn restore(&mut self, now: Timestamp, saved: &[SavedBudget]) {
        for SavedBudget { client, resource, ends, used } in saved {
            if let Some(budget) = self.by_name(client, resource)
                && *ends > now
            {
                (budget.ends, budget.used) = (*ends, *used);
            }
        }
    }

    /// Returns the totals of this time, to which [`ClientBudgets::spent_since`] compares.
    pub fn mark(&self) -> HashMap<BudgetId, u64> {
        let total =
            |(at, budget): (usize, &OwnBudget)| (BudgetId::of(at), budget.total + budget.reserved);
        self.all.iter().map(total).collect()
    }

    /// Returns what was spent since the last call, or since the mark.
    pub fn spent_since(&self, mark: &mut HashMap<BudgetId, u64>) -> Vec<SpentBudget> {
        let mut spent = Vec::new();
        for (at, budget) in &self.all {
            let id = BudgetId::of(at);
            // Without a mark the other process knows nothing of this window.
            let before = mark.entry(id).or_insert(budget.total.saturating_sub(budget.used));
            spent.extend(budget.beyond(before));
        }
        spent
    }

    /// Returns what was spent since the last call, for the other replicas.
    pub fn news(&mut self) -> Vec<SpentBudget> {
        let news = |(_, budget): (usize, &mut OwnBudget)| {
            let mut published = budget.published;
            let news = budget.beyond(&mut published);
            budget.published = published;
            news
        };
        self.all.iter_mut().filter_map(news).collect()
    }

    /// Adds what another process has spent in the windows of this time.
    fn add_spent(&mut self, now: Timestamp, spent: &[SpentBudget], accounts: &[Account]) {
        for SpentBudget { client, resource, units } in spent {
            if let Some(budget) = self.by_name(client, resource) {
                budget.state(now, accounts);
                // Not to the total: the other process says it itself.
                budget.used = budget.used.saturating_add(*units);
            }
        }
    }
}

impl OwnBudget {
    fn new(settings: ClientBudget) -> Self {
        Self {
            settings,
            is_configured: true,
            ends: Timestamp::EPOCH,
            used: 0,
            reserved: 0,
            total: 0,
            published: 0,
            sum: None,
        }
    }

    /// Units spent or in flight beyond those that were said before. A request in flight may yet
    /// spend nothing; then the next ones are not said until they are more.
    fn beyond(&self, said: &mut u64) -> Option<SpentBudget> {
        let total = self.total + self.reserved;
        let units = total.checked_sub(*said).filter(|units| *units > 0)?;
        *said = total;
        Some(SpentBudget {
            client: self.settings.name.to_string(),
            resource: self.settings.resource.as_str().to_owned(),
            units,
        })
    }

    fn add(&mut self, units: u64) {
        self.used = self.used.saturating_add(units);
        self.total = self.total.saturating_add(units);
    }

    /// Brings the window up to date.
    fn state(&mut self, now: Timestamp, accounts: &[Account]) -> State {
        let resource = &self.settings.resource;
        let (limit, length, named) = match self.settings.amount {
            BudgetAmount::Units { units, per } => (units.into(), per, None),
            BudgetAmount::Share { millionths } => {
                let all = self.settings.accounts.iter();
                let mut all = all.filter_map(|id| accounts.get(place(*id)));
                let first = all.clone().next();
                let is_fresh = self.sum.is_some_and(|(at, _)| {
                    self.settings.accounts.len() > ADDED_EACH_MAX && now.since(at) < SUM_AGE_MAX
                });
                let sum = self.sum.filter(|_| is_fresh).unwrap_or_else(|| {
                    let given = |account: &Account| {
                        let limit = account.figures(now, account.window(resource), resource).limit;
                        u64::from(limit.saturating_sub(account.settings.reserve))
                    };
                    (now, all.by_ref().map(given).sum())
                });
                self.sum = Some(sum);
                let reset = first.and_then(|account| {
                    account.figures(now, account.window(resource), resource).reset
                });
                let share = sum.1.saturating_mul(millionths.into()) / 1_000_000;
                (share.max(1), window(resource), reset.filter(|reset| *reset > now))
            }
        };
        if self.ends <= now {
            (self.used, self.ends) = (0, now + length);
        }
        self.ends = named.unwrap_or(self.ends);
        State { limit, used: self.used, reserved: self.reserved, ends: self.ends }
    }
}

impl QuotaLedger {
    /// Budget of the request's client for its resource, if it has one.
    fn own_budget(&self, demand: &Demand) -> Option<BudgetId> {
        if self.client_budgets.of_client.is_empty() || demand.cost == 0 {
            return None;
        }
        // A client's own credential spends a budget of its own.
        if demand.candidates.first().is_some_and(|id| self.layout.is_dynamic(*id)) {
            return None;
        }
        let resource = self.learned.get(&demand.endpoint).unwrap_or(&demand.resource);
        self.client_budgets.find(demand.client, resource)
    }

    fn own_state(&mut self, now: Timestamp, id: BudgetId) -> Option<State> {
        Some(self.client_budgets.get_mut(id)?.state(now, &self.accounts))
    }

    /// Returns the block of a request beyond its client's hard budget.
    pub(in crate::decision) fn beyond_own_budget(
        &mut self,
        now: Timestamp,
        demand: &Demand,
    ) -> Option<Blocked> {
        let id = self.own_budget(demand)?;
        let state = self.own_state(now, id)?;
        let budget = self.client_budgets.get(id)?;
        if !budget.settings.is_hard || state.has_room(demand.cost) {
            return None;
        }
        let is_held_up = State { reserved: 0, ..state }.has_room(demand.cost);
        let (until, wake) = if is_held_up {
            (Until::Event, state.ends.min(now + IN_FLIGHT_PAUSE))
        } else {
            (Until::Time(state.ends), state.ends)
        };
        let refusal = LimitDenied {
            limit: LimitKind::ClientBudget,
            account: None,
            resource: budget.settings.resource.clone(),
            until,
            is_unanswered: false,
        };
        let scope = if demand.cost > 1 { Scope::Endpoint } else { Scope::All };
        Some(Blocked { refusal, scope, is_by_share: true, closed: None, wake: Some(wake) })
    }

    /// The same, unless such budgets are in shadow mode.
    pub(in crate::decision) fn denied_by_own_budget(
        &mut self,
        now: Timestamp,
        demand: &Demand,
    ) -> Option<Blocked> {
        if self.shadow.client_budgets { None } else { self.beyond_own_budget(now, demand) }
    }

    /// Priority of a request: that of its client, or the lowest beyond a soft budget.
    pub(in crate::decision) fn priority(&mut self, now: Timestamp, demand: &Demand) -> Priority {
        let is_beyond = self.beyond_soft_budget(now, demand).is_some();
        if is_beyond { Priority::Batch } else { self.client(demand.client).priority }
    }

    /// Adds to a block that the request has a lower priority than its client, by a spent soft
    /// budget. Others that wait in the queue of that priority are not beyond theirs.
    pub(super) fn add_soft_budget(
        &mut self,
        now: Timestamp,
        demand: &Demand,
        blocked: &mut Blocked,
    ) {
        if self.client(demand.client).priority == Priority::Batch {
            return;
        }
        if let Some(ends) = self.beyond_soft_budget(now, demand) {
            blocked.is_by_share = true;
            blocked.wake = Some(blocked.wake.map_or(ends, |wake| wake.min(ends)));
        }
    }

    /// End of the soft budget beyond which the request is, unless such budgets are in shadow mode.
    fn beyond_soft_budget(&mut self, now: Timestamp, demand: &Demand) -> Option<Timestamp> {
        let id = self.own_budget(demand)?;
        if self.shadow.client_budgets || self.client_budgets.get(id)?.settings.is_hard {
            return None;
        }
        let state = self.own_state(now, id)?;
        (!state.has_room(demand.cost)).then_some(state.ends)
    }

    /// Reserves the units of an admitted request in its client's budget.
    pub(super) fn reserve_own(&mut self, demand: &Demand) -> Option<BudgetId> {
        let id = self.own_budget(demand)?;
        self.client_budgets.reserve(id, demand.cost);
        Some(id)
    }

    /// Charges the client's own budget.
    pub(super) fn settle_own(&mut self, ended: &Lease, spent: u32) {
        if let Some(id) = ended.own_budget {
            self.client_budgets.settle(id, ended.cost, spent);
        }
    }

    /// Units that this replica's clients have spent since the last call, for the other replicas.
    pub(in crate::decision) fn own_news(&mut self) -> Vec<SpentBudget> {
        self.client_budgets.news()
    }

    /// Adds what another replica's clients have spent.
    pub(in crate::decision) fn add_own_spent(&mut self, now: Timestamp, spent: &[SpentBudget]) {
        self.client_budgets.add_spent(now, spent, &self.accounts);
    }

    /// The budgets of the config's clients, by client and resource.
    pub fn client_budgets(&mut self, now: Timestamp) -> Vec<ClientBudgetSnapshot> {
        let Self { client_budgets, accounts, .. } = self;
        let all = client_budgets.all.iter_mut().map(|(_, budget)| budget);
        let snapshot = |budget: &mut OwnBudget| {
            let state = budget.state(now, accounts);
            ClientBudgetSnapshot {
                client: Arc::clone(&budget.settings.name),
                resource: budget.settings.resource.clone(),
                is_hard: budget.settings.is_hard,
                limit: units(state.limit),
                used: units(state.used + state.reserved),
                reset: state.ends,
            }
        };
        let mut all: Vec<_> = all.filter(|budget| budget.is_configured).map(snapshot).collect();
        all.sort_by(|a, b| (&a.client, &a.resource).cmp(&(&b.client, &b.resource)));
        all
    }

    /// The view of a client on a resource: what its own budget and its accounts both leave.
    pub(in crate::decision) fn own_view(
        &mut self,
        now: Timestamp,
        client: ClientId,
        accounts: &[AccountId],
        resource: &ResourceName,
        pool: BudgetView,
    ) -> BudgetView {
        let is_own_account = accounts.first().is_some_and(|id| self.layout.is_dynamic(*id));
        if is_own_account || self.shadow.client_budgets {
            return pool;
        }
        let Some(id) = self.client_budgets.find(client, resource) else { return pool };
        let Some(state) = self.own_state(now, id) else { return pool };
        let (limit, used) = (units(state.limit), units(state.used + state.reserved));
        let left = limit.saturating_sub(used);
        let remaining = left.min(pool.remaining);
        let reset = if pool.remaining < left { pool.reset } else { state.ends };
        BudgetView {
            limit,
            remaining,
            used: limit - remaining,
            reset: reset.max(Timestamp::from_secs(now.as_secs() + 1)),
        }
    }
}

fn units(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}
