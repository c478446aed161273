//! The quota ledger: the limits of all accounts. It decides if and on which account a request may
//! be sent now, and settles its answer.
//!
//! Each account has a primary window for each resource (`limits::primary`, SPECIFICATION D4),
//! secondary limits (`limits::secondary`, D5) and a cooldown after an upstream limit
//! (`limits::cooldown`, D6). An admission takes a place in all of them at once, and a settlement
//! frees it in all of them. `candidates` and `ranking` find the best account without checking each.
//! `view` holds the figures for clients and operators, and [`crate::decision::scheduler`] the
//! waiting requests.
//!
//! Two kinds of answers need care:
//! - **401** comes before the upstream knows the account: its rate headers describe the address and
//!   are ignored.
//! - **Cost 0** (`GET /rate_limit`) touches no primary window by its headers: such an answer can
//!   show a fresh window while the real one is nearly spent (SPECIFICATION, "Limits in practice").
//!   `asks` has what its body is good for.

mod account;
mod account_choice;
mod accounts;
mod asks;
mod audit;
mod candidates;
mod client_budgets;
mod denial;
pub(super) mod limits;
mod parts;
mod ranking;
mod saved;
mod shadow;
mod slow_readers;
mod spent;
mod synced;
mod view;

use std::num::NonZeroU32;

use http::StatusCode;
use smallvec::SmallVec;

use crate::api::{EndpointId, RateHeaders, ResourceName};
use crate::clock::Timestamp;

use super::types::id_map::IdMap;
use super::types::invariants::{Broken, Invariant};
use super::types::{
    AccountId, AccountLayout, ClientId, ClientSettings, Demand, Grant, HashMap, LeaseId, LimitKind,
    Priority, SecondaryLimits, Settings, Settlement, Shadow, Until,
};
use account_choice::{is_about_as_good, share_of};
use accounts::place;
use limits::elapsed::{ELAPSED_MILLIS_MAX, Elapsed};
use limits::primary::{Charge, Mark, Terms, WOBBLE, WindowDemand};
use limits::secondary::{Secondary, Sent, Spacing, Weight};

pub use account::units_spent;
use account::{Account, WindowIndex};
use asks::Asks;
pub use asks::{Question, Stated};
use candidates::{Candidates, Closed};
pub(super) use candidates::{Component, ListId, Union};
use client_budgets::{BudgetId, ClientBudgets};
pub use client_budgets::{ClientBudgetSnapshot, SpentBudget};
pub(super) use denial::{Blocked, Scope};
use denial::{Blocks, no_account};
pub use saved::SavedLedger;
use slow_readers::SlowReaders;
pub use spent::{SpendingMark, Spent};
pub use view::{AccountSnapshot, BudgetView, SecondarySnapshot, WindowSnapshot};

/// Name of the shared window for further resources; no header can spell it.
const OVERFLOW: &str = "(others)";

/// Longest list whose accounts are all checked when none can send. The earliest time is then exact.
/// Ours: it takes a microsecond.
const CHECKED_EACH_MAX: usize = 16;

/// Ranking key of requests that need no window; no window has this name.
const FREE: &str = "(free)";

/// Ledger of all accounts.
#[derive(Debug)]
pub struct QuotaLedger {
    /// Ordered by [`AccountLayout`].
    accounts: Vec<Account>,
    layout: AccountLayout,
    /// Of new accounts; each has its own reserve.
    terms: Terms,
    limits: SecondaryLimits,
    spacing: Spacing,
    clients: Vec<ClientSettings>,
    client_budgets: ClientBudgets,
    pub(super) candidates: Candidates,
    leases: IdMap<Lease>,
    /// Of the accounts that have any.
    slow_readers: HashMap<AccountId, SlowReaders>,
    asks: Asks,
    /// Resources that answers named, by endpoint, where they differ from the table's. Bounded by
    /// the table.
    learned: HashMap<EndpointId, ResourceName>,
    elapsed: Elapsed,
    /// Most replicas that use the accounts.
    replicas_max: Option<NonZeroU32>,
    shadow: Shadow,
    /// Accounts on which a request waits for more than the parts of this replica.
    short: Vec<AccountId>,
    free: ResourceName,
    /// Expected milliseconds for an endpoint without answers: REST, GraphQL.
    elapsed_unknown: [u32; 2],
    pub(super) broken: Broken,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    account: AccountId,
    /// True if its answer was found to wait for a slow reader.
    is_slow: bool,
    /// Primary window; `None` for a free request.
    window: Option<WindowIndex>,
    cost: u32,
    mark: Option<Mark>,
    /// Account that pays too, and its window.
    also: Option<(AccountId, WindowIndex)>,
    /// Own budget of the client, until it is charged.
    own_budget: Option<BudgetId>,
    weight: Weight,
    admitted_at: Timestamp,
    /// Milliseconds until the answer's head, once it has come.
    head_took: Option<u32>,
}

impl Lease {
    /// Sender, and the account that pays too.
    fn accounts(&self) -> [Option<AccountId>; 2] {
        [Some(self.account), self.also.map(|(payer, _)| payer)]
    }

    fn touched(&self) -> Touched {
        Touched {
            accounts: self.accounts(),
            endpoint: self.weight.endpoint,
            client: self.own_budget.map(|_| self.weight.client),
            is_undone: false,
            measured: None,
        }
    }
}

/// State that the end of a lease may change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touched {
    /// Sender, and the account that pays too.
    pub(super) accounts: [Option<AccountId>; 2],
    pub(super) endpoint: EndpointId,
    /// Client whose own budget changes, on whichever account its requests wait.
    pub(super) client: Option<ClientId>,
    /// True when the lease left no trace, so earlier times may no longer hold.
    pub(super) is_undone: bool,
    /// Units that the request spent, where the rate headers show them (`limits/primary/measure`).
    pub(super) measured: Option<u32>,
}

impl QuotaLedger {
    /// Creates a ledger without knowledge about any window.
    pub fn new(settings: Settings) -> Self {
        let first = u32::try_from(settings.accounts.len()).unwrap_or(u32::MAX);
        let mut ledger = Self {
            accounts: Vec::new(),
            layout: AccountLayout { first, dynamic: settings.dynamic_accounts },
            terms: Terms::default(),
            limits: SecondaryLimits::default(),
            spacing: Spacing::default(),
            clients: Vec::new(),
            client_budgets: ClientBudgets::default(),
            candidates: Candidates::default(),
            leases: IdMap::default(),
            slow_readers: HashMap::default(),
            asks: Asks::default(),
            learned: HashMap::default(),
            free: ResourceName::new(FREE),
            elapsed: Elapsed::default(),
            replicas_max: None,
            shadow: Shadow::default(),
            short: Vec::new(),
            elapsed_unknown: [0; 2],
            broken: Broken::default(),
        };
        ledger.reconfigure(Timestamp::EPOCH, settings);
        ledger
    }

    /// Admits `demand` on the best account of `list`, or returns the limit that denies it. An open
    /// lease is granted again unchanged. Rules in shadow mode deny nothing, and the grant names
    /// the first that would have.
    pub(super) fn admit(
        &mut self,
        now: Timestamp,
        lease: LeaseId,
        demand: &Demand,
        list: ListId,
        deadline: Timestamp,
    ) -> Result<Grant, Blocked> {
        if let Some(open) = self.leases.get(lease.0) {
            return Ok(Grant { lease, account: open.account, shadowed: None });
        }
        let own = self.beyond_own_budget(now, demand);
        if let Some(blocked) = &own
            && !self.shadow.client_budgets
        {
            return Err(blocked.clone());
        }
        let mut shadowed = own.as_ref().map(|blocked| blocked.shadowed(deadline));
        let weight = Weight::new(demand, self.expected_millis(demand));
        let mut in_question = SmallVec::new();
        let account = match self.choose(now, demand, weight, list, &mut in_question) {
            Ok(account) => account,
            Err(mut blocked) => {
                let Some(account) = self.choose_in_shadow(now, demand, &blocked) else {
                    self.want_questions(now, &in_question);
                    self.add_soft_budget(now, demand, &mut blocked);
                    return Err(blocked);
                };
                shadowed = shadowed.or_else(|| Some(blocked.shadowed(deadline)));
                account
            }
        };
        // Without the shadow, a request beyond the budget would have spent nothing.
        let own_budget = if own.is_none() { self.reserve_own(demand) } else { None };
        self.open(now, lease, account, demand, weight, own_budget);
        Ok(Grant { lease, account, shadowed })
    }

    /// Checks an admission without taking anything.
    #[cfg(test)]
    pub(super) fn could_admit(
        &mut self,
        now: Timestamp,
        demand: &Demand,
        list: ListId,
    ) -> Result<Grant, Blocked> {
        if let Some(blocked) = self.denied_by_own_budget(now, demand) {
            return Err(blocked);
        }
        let weight = Weight::new(demand, self.expected_millis(demand));
        self.choose(now, demand, weight, list, &mut SmallVec::new()).map(|account| Grant {
            lease: LeaseId(u64::MAX),
            account,
            shadowed: None,
        })
    }

    /// Settles the budget by the head of a long answer, so that waiting requests need not wait for
    /// its body. The slots of the secondary limits stay held until [`QuotaLedger::settle`].
    pub(super) fn answer_begun(
        &mut self,
        now: Timestamp,
        lease: LeaseId,
        status: StatusCode,
        rate: Option<&RateHeaders>,
    ) -> Option<Touched> {
        let open = self.leases.get_mut(lease.0)?;
        let begun = *open;
        (open.window, open.cost, open.mark, open.also) = (None, 0, None, None);
        open.own_budget = None;
        open.head_took = Some(millis_since(now, begun.admitted_at));
        let rate = rate.filter(|_| status != StatusCode::UNAUTHORIZED && begun.cost > 0);
        let mut measured = None;
        if let Some(account) = self.accounts.get_mut(place(begun.account)) {
            account.answered(now, &begun);
            if begun.head_took.is_none() {
                account.heard(&begun);
            }
            measured = account.settle_primary(now, lease, &begun, status, rate, false);
        }
        let also = if status == StatusCode::NOT_MODIFIED { Charge::Free } else { Charge::Spent };
        self.settle_also(now, lease, &begun, also);
        self.settle_own(&begun, measured.unwrap_or(units_spent(status, false, begun.cost)));
        if let Some(named) = rate.and_then(|rate| rate.resource.as_ref()) {
            self.learn(&begun, named);
        }
        let account = self.accounts.get(place(begun.account));
        let is_within = |account: &Account| account.secondary.is_within(begun.weight);
        let windows_are_within = account.is_none_or(is_within);
        self.check(&begun, windows_are_within);
        self.want_questions_after(now, &begun);
        self.changed(now, &begun);
        Some(Touched { measured, ..begun.touched() })
    }

    /// Ends a lease. `jitter` is a random number from 0 to 1. A settled lease changes nothing.
    pub(super) fn settle(
        &mut self,
        now: Timestamp,
        lease: LeaseId,
        settlement: Settlement<'_>,
        jitter: f64,
    ) -> Option<Touched> {
        let ended = self.leases.remove(lease.0)?;
        self.forget_slow_reader(&ended);
        let account = self.accounts.get_mut(place(ended.account))?;
        let took = ended.head_took.unwrap_or_else(|| millis_since(now, ended.admitted_at));
        let sent = match settlement {
            Settlement::NeverSent => Sent::No,
            Settlement::CutOff => Sent::CutOff(took),
            Settlement::Yielded => Sent::Yielded(took),
            Settlement::Unknown | Settlement::Answered { .. } => Sent::For(took),
        };
        if ended.head_took.is_none() {
            if matches!(settlement, Settlement::Unknown | Settlement::CutOff) {
                account.lost(now, &ended);
            }
            account.heard(&ended);
        }
        let windows_are_within = account.secondary.leave(now, ended.weight, sent);
        let mut measured = None;
        let mut charged = ended.cost;
        let also = match settlement {
            Settlement::NeverSent => {
                charged = 0;
                if let Some(window) = account.window_of(&ended) {
                    window.refund(lease, ended.cost);
                }
                Charge::Free
            }
            Settlement::Unknown | Settlement::CutOff | Settlement::Yielded => {
                if let Some(window) = account.window_of(&ended) {
                    window.charge(now, lease, ended.cost, Charge::Lost);
                }
                Charge::Lost
            }
            Settlement::Answered { status, rate, refusal } => {
                account.answered(now, &ended);
                let rate = rate.filter(|_| status != StatusCode::UNAUTHORIZED && ended.cost > 0);
                measured =
                    account.settle_primary(now, lease, &ended, status, rate, refusal.is_some());
                account.apply_limit(now, &ended, rate, refusal, jitter);
                if refusal.is_some() && account.parts.is_some() {
                    // The others must not send either.
                    self.short.push(ended.account);
                }
                if refusal.is_none() {
                    self.elapsed.took(ended.weight.endpoint, took);
                }
                if refusal.is_none() && status.as_u16() < 400 {
                    account.cooldown.served(ended.admitted_at);
                }
                if let Some(named) = rate.and_then(|rate| rate.resource.as_ref()) {
                    self.learn(&ended, named);
                }
                charged = measured.unwrap_or(units_spent(status, refusal.is_some(), ended.cost));
                if refusal.is_some() || status == StatusCode::NOT_MODIFIED {
                    Charge::Free
                } else {
                    Charge::Spent
                }
            }
        };
        self.settle_also(now, lease, &ended, also);
        self.settle_own(&ended, charged);
        self.check(&ended, windows_are_within);
        self.want_questions_after(now, &ended);
        self.changed(now, &ended);
        let is_undone = matches!(settlement, Settlement::NeverSent);
        Some(Touched { is_undone, measured, ..ended.touched() })
    }

    /// Returns the resource that an endpoint counts against: the one its answers named, else
    /// `guess`.
    pub fn resource_for(&self, endpoint: EndpointId, guess: &ResourceName) -> ResourceName {
        self.learned.get(&endpoint).unwrap_or(guess).clone()
    }

    /// Secondary limits of an account.
    pub(super) fn secondary(&self, account: AccountId) -> Option<&Secondary> {
        self.accounts.get(place(account)).map(|account| &account.secondary)
    }

    /// Notes that the upstream takes the body of a request: it is not silent.
    pub(super) fn body_taken(&mut self, now: Timestamp, lease: LeaseId) {
        if let Some(open) = self.leases.get(lease.0)
            && let Some(account) = self.accounts.get_mut(place(open.account))
        {
            account.answered(now, open);
        }
    }

    /// Number of open leases.
    pub fn open_leases(&self) -> usize {
        self.leases.len()
    }

    /// Number of breaches of each invariant; all must stay 0 (`weir_invariant_broken_total`).
    pub fn broken(&self) -> impl Iterator<Item = (Invariant, u64)> + '_ {
        self.broken.counts()
    }

    pub(super) fn client(&self, client: ClientId) -> ClientSettings {
        client_of(&self.clients, client)
    }

    fn expected_millis(&self, demand: &Demand) -> u32 {
        self.elapsed
            .estimate(demand.endpoint)
            .unwrap_or(self.elapsed_unknown[usize::from(demand.graphql)])
    }

    fn choose(
        &mut self,
        now: Timestamp,
        demand: &Demand,
        weight: Weight,
        list: ListId,
        in_question: &mut SmallVec<[AccountId; 1]>,
    ) -> Result<AccountId, Blocked> {
        let priority = self.priority(now, demand);
        let Self { accounts, candidates, learned, free, short, .. } = self;
        let resource = learned.get(&demand.endpoint).unwrap_or(&demand.resource);
        let wanted = WindowDemand { cost: demand.cost, unproven: demand.unproven, priority };
        let is_listed = |id: &AccountId| candidates.lists_of(*id).any(|other| other == list);
        let prefer = demand.prefer.filter(is_listed);
        let ranked_by = if demand.cost == 0 { &*free } else { resource };
        let Some(ranking) = candidates.ranking(now, list, ranked_by, accounts) else {
            return Err(no_account(resource.clone()));
        };
        // The second payer is charged as far as possible and never checked: otherwise an app's
        // budget beyond the user's own would be useless.
        let mut offer_by = |id: AccountId| {
            let account = accounts.get_mut(place(id))?;
            let was_short = account.is_short();
            let offer = account.offer(now, weight, wanted, resource);
            if account.is_short() && !was_short {
                short.push(id);
            }
            Some(offer)
        };
        let is_short = demand.candidates.len() <= CHECKED_EACH_MAX;
        let mut blocks = Blocks::new(demand.cost);
        if let (Some(prefer), Some(best)) = (prefer, ranking.best())
            && let Some(Ok(offer)) = offer_by(prefer)
            && is_about_as_good(offer.share, share_of(ranking.rank_of(best)))
        {
            return Ok(prefer);
        }
        let best = ranking.best();
        // The ranking does not know narrow limits, such as the points of an endpoint.
        for at in best.into_iter().chain(
            best.into_iter().flat_map(|best| ranking.best_first().filter(move |at| *at != best)),
        ) {
            match demand.candidates.get(at).and_then(|id| Some((*id, offer_by(*id)?))) {
                Some((id, Ok(_))) => return Ok(id),
                Some((id, Err(block))) => blocks.add(id, block),
                None => {}
            }
            if !is_short
                && let Some((_, block)) = &mut blocks.nearest
                && block.limit == LimitKind::BatchFloor
            {
                // The other accounts have less; one of them may have more first.
                if let Until::Time(until) = &mut block.until {
                    *until = (*until).min(ranking.all().sums.reset + WOBBLE);
                }
                break;
            }
        }
        if is_short {
            let closed =
                demand.candidates.iter().enumerate().filter(|(at, _)| ranking.rank_of(*at) == 0);
            for (_, id) in closed {
                if let Some(Err(block)) = offer_by(*id) {
                    blocks.add(*id, block);
                }
            }
        } else if let Some(id) = ranking.nearest().and_then(|at| demand.candidates.get(at).copied())
            && let Some(Err(block)) = accounts
                .get(place(id))
                .map(|account| account.closure(now, account.budget(ranked_by)))
        {
            // Of long lists only general closures are known; other limits may end earlier
            // elsewhere.
            blocks.add(id, block);
        }
        let closed = Closed::of(ranking, ranked_by, !is_short);
        // No account is checked again while the list is closed, whatever else changes.
        let wake = Some(ranking.all().wake)
            .filter(|wake| (!is_short || closed.is_some()) && *wake < Timestamp::FAR_FUTURE);
        *in_question = std::mem::take(&mut blocks.in_question);
        Err(Blocked { closed, ..blocks.blocked(wake, resource.clone()) })
    }

    fn open(
        &mut self,
        now: Timestamp,
        lease: LeaseId,
        id: AccountId,
        demand: &Demand,
        weight: Weight,
        own_budget: Option<BudgetId>,
    ) {
        let Some(account) = self.accounts.get_mut(place(id)) else { return };
        let resource = self.learned.get(&demand.endpoint).unwrap_or(&demand.resource);
        let overlaps = account.secondary.would_overlap(weight) && !self.shadow.limits;
        self.broken.check(Invariant::OneWriteAtATime, !overlaps);
        if let Some(parts) = &mut account.parts {
            parts.took(now, weight, demand.cost, resource, &mut account.secondary);
        }
        let windows_are_within = account.secondary.enter(now, weight);
        account.silence.sent(now);
        let terms = account.terms;
        let window = (demand.cost > 0).then(|| account.window_index(resource));
        let mut mark = None;
        if let Some(window) = window.and_then(|place| account.window_at(place)) {
            self.broken.check(
                Invariant::AdmittedWithinBudget,
                window.covers(now, [demand.cost, demand.unproven], terms.reserve),
            );
            window.silence.sent(now);
            mark = Some(window.lease(now, lease, demand.cost, terms));
        }
        let payer = account.settings.also_spends.filter(|payer| demand.cost > 0 && *payer != id);
        let also = payer.and_then(|payer| {
            let account = self.accounts.get_mut(place(payer))?;
            let at = account.window_index(resource);
            account.window_at(at)?.encumber(now, demand.cost);
            Some((payer, at))
        });
        let open = Lease {
            account: id,
            is_slow: false,
            window,
            cost: demand.cost,
            mark,
            also,
            own_budget,
            weight,
            admitted_at: now,
            head_took: None,
        };
        self.check(&open, windows_are_within);
        self.changed(now, &open);
        self.leases.insert(lease.0, open);
    }

    fn settle_also(&mut self, now: Timestamp, lease: LeaseId, ended: &Lease, charge: Charge) {
        let Some((payer, at)) = ended.also else { return };
        let account = self.accounts.get_mut(place(payer));
        if let Some(window) = account.and_then(|account| account.window_at(at)) {
            window.charge(now, lease, ended.cost, charge);
        }
    }

    /// Asks later about a budget that this request used up, even if nobody wants more of it yet.
    fn want_questions_after(&mut self, now: Timestamp, ended: &Lease) {
        let account = self.accounts.get(place(ended.account));
        if account.is_some_and(|account| account.is_used_up(now)) {
            self.want_questions(now, &[ended.account]);
        }
    }

    fn changed(&mut self, now: Timestamp, touched: &Lease) {
        for id in touched.accounts().into_iter().flatten() {
            if let Some(account) = self.accounts.get(place(id)) {
                self.candidates.changed(now, id, account);
            }
        }
    }

    /// Remembers the resource that an answer named, for the whole route template and until another
    /// answer (SPECIFICATION D4).
    fn learn(&mut self, ended: &Lease, named: &ResourceName) {
        let account = self.accounts.get(place(ended.account));
        let reserved = ended.window.and_then(|window| account?.resource_at(window));
        if reserved != Some(named) {
            self.learned.insert(ended.weight.endpoint, named.clone());
        }
    }
}

/// Whole milliseconds between two times, up to the maximum that is believed.
fn millis_since(now: Timestamp, then: Timestamp) -> u32 {
    u32::try_from(now.since(then).as_millis()).unwrap_or(u32::MAX).min(ELAPSED_MILLIS_MAX)
}

fn client_of(clients: &[ClientSettings], client: ClientId) -> ClientSettings {
    let known = clients.get(usize::try_from(client.0).unwrap_or(usize::MAX)).copied();
    let priority =
        if client == ClientId::BACKGROUND { Priority::Batch } else { Priority::default() };
    known.unwrap_or(ClientSettings { priority, ..ClientSettings::default() })
}

#[cfg(test)]
pub(super) mod upstream_model;

#[cfg(test)]
mod tests;

#[cfg(test)]
mod properties;
