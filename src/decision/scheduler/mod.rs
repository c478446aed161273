//! Admission: the quota ledger with a wait queue before it. A request goes now, waits, or is
//! denied.
//!
//! The caller drives it by events and by time: a request comes, a lease ends, a client leaves, a
//! wake-up is due. After every call the caller drains [`Admission::take_decided`]; at
//! [`Admission::next_wakeup`] it calls [`Admission::tick`].
//!
//! A request that cannot be admitted before its deadline is denied at once, even when that becomes
//! clear only while it waits (SPECIFICATION D4, D10). Waiting requests are served by priority, then
//! share (`shares`), then age. Requests behind a blocked one are not even tried (`wait_queue`), so
//! the cost of an event does not grow with the number of waiting requests. In a full queue the
//! newest request of the largest client makes room.

pub mod fair_share;
mod handover;
mod held_requests;
mod replicas;
pub mod shared_capacity;
mod wait_queue;

use std::cmp::Reverse;
use std::collections::vec_deque::Drain;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use http::StatusCode;

use crate::api::{RateHeaders, ResourceName};
use crate::clock::Timestamp;

use super::quota::{
    Blocked, BudgetView, ClientBudgetSnapshot, Question, QuotaLedger, Scope, Stated, Touched,
};
use super::types::invariants::Invariant;
use super::types::{
    AccountId, ClientId, ClientSettings, Demand, Grant, LeaseId, LimitDenied, LimitKind, Settings,
    Settlement, Ticket, Until, WriteSpacing,
};

pub use held_requests::HeldRequests;
use wait_queue::shares::Shares;
use wait_queue::{GroupId, QueueId, QueueKey, Rank, Removed, WaitQueue, Waiter};

/// Held groups of a list that an event releases beside its own. Ours: with several accounts any of
/// them may have become admissible, but seldom.
const RELEASED_BESIDE: usize = 16;

/// Admission of requests.
#[derive(Debug)]
pub struct Admission {
    ledger: QuotaLedger,
    queue: WaitQueue,
    shares: Shares,
    waiting_max: usize,
    waiting_bytes_max: u64,
    next_lease: u64,
    next_ticket: u64,
    decided: VecDeque<(Ticket, Result<Grant, LimitDenied>)>,
    /// Scratch memory: queues to try, and their heads. Empty between events.
    touched: Vec<QueueId>,
    heads: BinaryHeap<Reverse<(Rank, QueueId, GroupId)>>,
}

/// Immediate outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Admitted now.
    Granted(Grant),
    /// Cannot be admitted before its deadline.
    Refused(LimitDenied),
    /// Waits; [`Admission::take_decided`] returns the decision, perhaps at once.
    Waiting {
        /// Place in the queue.
        ticket: Ticket,
        /// Limit that blocks it now.
        by: LimitDenied,
    },
}

impl Admission {
    /// Creates an empty queue before a ledger without knowledge.
    pub fn new(settings: Settings) -> Self {
        let (waiting_max, waiting_bytes_max) = (settings.waiting_max, settings.waiting_bytes_max);
        Self {
            ledger: QuotaLedger::new(settings),
            queue: WaitQueue::default(),
            shares: Shares::default(),
            waiting_max,
            waiting_bytes_max,
            next_lease: 0,
            next_ticket: 0,
            decided: VecDeque::new(),
            touched: Vec::new(),
            heads: BinaryHeap::new(),
        }
    }

    /// Admits the demand now, queues it until `deadline`, or denies it because no admission is
    /// possible by then. With a deadline that is not after `now` it never waits.
    pub fn request(&mut self, now: Timestamp, demand: Demand, deadline: Timestamp) -> Decision {
        self.tick(now);
        let list = self.ledger.candidates.find(&demand.candidates);
        for union in self.ledger.candidates.take_unions() {
            self.shares.unite(union);
        }
        let priority = self.ledger.priority(now, &demand);
        let client = ClientSettings { priority, ..self.ledger.client(demand.client) };
        let key = QueueKey::new(
            &demand,
            list,
            priority,
            self.ledger.resource_for(demand.endpoint, &demand.resource),
        );
        let key = self.queue.key_for(key, demand.client);
        let component = self.ledger.candidates.component_of(list);
        // Behind waiting requests with the same block, it is blocked alike.
        let held = self.queue.blocked(&key, &demand).cloned();
        let lease = LeaseId(self.next_lease);
        let blocked = match self.ledger.denied_by_own_budget(now, &demand).or(held) {
            Some(blocked) => blocked,
            None => match self.ledger.admit(now, lease, &demand, list, deadline) {
                Ok(grant) => {
                    self.next_lease += 1;
                    self.shares.serve_at_once(component, demand.client, client);
                    return Decision::Granted(grant);
                }
                Err(blocked) => blocked,
            },
        };
        if deadline <= now || ends_after_deadline(&blocked.refusal, deadline) {
            let mut refusal = blocked.refusal;
            self.tell_cause(now, now, &mut refusal, &demand);
            return Decision::Refused(refusal);
        }
        if !self.make_room(&demand, &blocked) {
            return Decision::Refused(queue_full(&blocked.refusal));
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let tag = self.shares.take(component, demand.client, client);
        self.ledger.candidates.hold(list);
        let by = blocked.refusal.clone();
        let key = if blocked.is_by_share { key.of_client(demand.client) } else { key };
        self.queue.push(ticket, key, tag, Waiter { demand, since: now, deadline }, blocked);
        self.reconsider(now, None);
        Decision::Waiting { ticket, by }
    }

    /// Ends a lease (see `QuotaLedger::settle`), and decides the requests that this frees.
    pub fn settle(
        &mut self,
        now: Timestamp,
        lease: LeaseId,
        settlement: Settlement<'_>,
        jitter: f64,
    ) -> Option<u32> {
        let ended = self.ledger.settle(now, lease, settlement, jitter);
        self.reconsider(now, ended);
        ended?.measured
    }

    /// Settles a lease whose answer waits for a slow reader, if requests of other clients wait for
    /// its slot and such answers of its client hold more than their share
    /// (`quota::slow_readers`). Returns true if it did: the answer is to be broken off.
    pub fn yield_slot(&mut self, now: Timestamp, lease: LeaseId) -> bool {
        // A request that gets a slot which has become free needs no other one.
        self.tick(now);
        let Some((limits, id, client)) = self.ledger.slow_reader(lease) else { return false };
        let free_soon = limits.slots.free_soon(now);
        let is_full = limits.slots.block(now).is_some();
        let is_needed = self.queue.others_for_slots(id, is_full, client).nth(free_soon).is_some();
        if is_needed {
            self.settle(now, lease, Settlement::Yielded, 0.0);
        }
        is_needed
    }

    /// Notes that the upstream has taken a piece of a long body.
    pub fn body_taken(&mut self, now: Timestamp, lease: LeaseId) {
        self.ledger.body_taken(now, lease);
    }

    /// Settles the head of a long answer (see `QuotaLedger::answer_begun`), and decides the
    /// requests that waited for it.
    pub fn answer_begun(
        &mut self,
        now: Timestamp,
        lease: LeaseId,
        status: StatusCode,
        rate: Option<&RateHeaders>,
    ) -> Option<u32> {
        let begun = self.ledger.answer_begun(now, lease, status, rate);
        self.reconsider(now, begun);
        begun?.measured
    }

    /// Decides after a change of the lease's accounts.
    fn reconsider(&mut self, now: Timestamp, changed: Option<Touched>) {
        let is_due = !self.touched.is_empty() || self.queue.is_due(now);
        if self.queue.is_empty() || changed.is_none() && !is_due {
            return;
        }
        let mut queues = std::mem::take(&mut self.touched);
        self.queue.take_due(now, &mut queues);
        if let Some(Touched { accounts, endpoint, client, is_undone, .. }) = changed {
            let candidates = &self.ledger.candidates;
            for list in accounts.into_iter().flatten().flat_map(|id| candidates.lists_of(id)) {
                self.queue.release_of(list, endpoint, RELEASED_BESIDE);
                queues.extend(self.queue.queues_of(list));
            }
            if is_undone {
                self.queue.invalidate_blocks(&queues);
            }
            if let Some(client) = client {
                self.queue.release_of_client(client, &mut queues);
            }
        }
        // A denied request may have stood before one that needs less.
        loop {
            self.admit_waiting(now, &mut queues);
            queues.clear();
            if !self.queue.is_due(now) {
                break;
            }
            while let Some((ticket, denial)) = self.queue.first_overdue(now) {
                self.deny(now, ticket, denial);
            }
            self.queue.take_due(now, &mut queues);
            if queues.is_empty() {
                break;
            }
        }
        self.touched = queues;
    }

    /// Decides all waiting requests again.
    fn retry_all(&mut self, now: Timestamp) {
        self.touched = self.queue.retry_all();
        self.reconsider(now, None);
    }

    /// Applies new settings ([`QuotaLedger`]), and decides the requests that they free. Waiting
    /// requests keep their priority.
    pub fn reconfigure(&mut self, now: Timestamp, settings: Settings) {
        (self.waiting_max, self.waiting_bytes_max) =
            (settings.waiting_max, settings.waiting_bytes_max);
        self.ledger.reconfigure(now, settings);
        self.retry_all(now);
    }

    /// Removes the ticket of a client that has left. A decided ticket is not affected: its grant,
    /// once drained, is to be settled as never sent.
    pub fn abandon(&mut self, now: Timestamp, ticket: Ticket) {
        self.leave(ticket, false);
        self.tick(now);
    }

    /// Decides what depends on time alone: ended limits and deadlines.
    pub fn tick(&mut self, now: Timestamp) {
        self.reconsider(now, None);
    }

    /// Time of the next [`Admission::due_question`]; `None` when no account's state is in question.
    pub(crate) fn next_question(&self) -> Option<Timestamp> {
        self.ledger.next_question()
    }

    /// Begins the next question of an account's state, to be sent as `GET /rate_limit`.
    /// [`Admission::stated`] ends it.
    pub(crate) fn due_question(&mut self, now: Timestamp) -> Option<Question> {
        self.ledger.due_question(now)
    }

    /// Begins a question of this account's state, due or not.
    pub(crate) fn begin_question(&mut self, now: Timestamp, account: AccountId) -> Question {
        self.ledger.begin_question(now, account)
    }

    /// Ends a question, and decides the requests that its answer frees.
    pub(crate) fn stated(&mut self, now: Timestamp, question: &Question, stated: &Stated) {
        if self.ledger.stated(now, question, stated) {
            self.retry_all(now);
        }
        self.reconsider(now, None);
    }

    /// Time of the next [`Admission::tick`]; `None` when no request waits for time.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        self.queue.next_wakeup()
    }

    /// Drains the decided tickets in order; each ticket comes once. A grant without a client is to
    /// be settled as never sent.
    pub fn take_decided(&mut self) -> Drain<'_, (Ticket, Result<Grant, LimitDenied>)> {
        self.decided.drain(..)
    }

    /// Takes the first decided ticket alone.
    pub fn next_decided(&mut self) -> Option<(Ticket, Result<Grant, LimitDenied>)> {
        self.decided.pop_front()
    }

    /// The ledger, read-only.
    pub fn ledger(&self) -> &QuotaLedger {
        &self.ledger
    }

    /// Returns the budget of a resource for a client of `accounts`; see [`QuotaLedger::view`]. A
    /// client with a budget of its own sees what both leave.
    pub fn view(
        &mut self,
        now: Timestamp,
        client: Option<ClientId>,
        accounts: &std::sync::Arc<[AccountId]>,
        resource: &ResourceName,
    ) -> BudgetView {
        let pool = self.ledger.view(now, accounts, resource);
        match client {
            Some(client) => self.ledger.own_view(now, client, accounts, resource, pool),
            None => pool,
        }
    }

    /// The own budgets of all clients; see [`QuotaLedger::client_budgets`].
    pub fn client_budgets(&mut self, now: Timestamp) -> Vec<ClientBudgetSnapshot> {
        self.ledger.client_budgets(now)
    }

    /// Time by which a write may expect its turn on the first free of these accounts: after the one
    /// under way and all that wait, at their distances.
    pub fn next_turn(
        &self,
        now: Timestamp,
        accounts: &[AccountId],
        write: WriteSpacing,
    ) -> Timestamp {
        let turn = |account: &AccountId| {
            let limits = self.ledger.secondary(*account)?;
            let lists = self.ledger.candidates.lists_of(*account);
            let waiting = lists.flat_map(|list| self.queue.waiting_writes(list));
            let ahead = waiting.fold(Duration::ZERO, |ahead, (write, number)| {
                ahead.saturating_add(limits.distance(write).saturating_mul(number))
            });
            Some(limits.next_turn(now, write) + ahead)
        };
        accounts.iter().filter_map(turn).min().unwrap_or(now)
    }

    /// Frees the place of a dynamic account; see [`QuotaLedger::vacate`].
    pub fn vacate(&mut self, now: Timestamp, id: AccountId) -> bool {
        self.ledger.vacate(now, id)
    }

    /// Number of waiting requests.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Audits ledger and queue, and returns the broken invariants; see [`QuotaLedger::audit`].
    pub fn audit(&self) -> Vec<Invariant> {
        let mut broken = self.ledger.audit();
        broken.extend((!self.queue.adds_up()).then_some(Invariant::QueueAddsUp));
        broken
    }

    /// Admits from these queues in the order of service, each queue until its first denial.
    fn admit_waiting(&mut self, now: Timestamp, queues: &mut Vec<QueueId>) {
        if let [queue] = queues[..] {
            while let Some((_, group)) = self.queue.head(queue)
                && self.admit_first(now, queue, group)
            {}
            return;
        }
        queues.sort_unstable();
        queues.dedup();
        let head = |all: &WaitQueue, queue| {
            all.head(queue).map(|(rank, group)| Reverse((rank, queue, group)))
        };
        let mut heads = std::mem::take(&mut self.heads);
        heads.extend(queues.iter().filter_map(|queue| head(&self.queue, *queue)));
        while let Some(Reverse((_, queue, group))) = heads.pop() {
            if self.admit_first(now, queue, group) {
                heads.extend(head(&self.queue, queue));
            }
        }
        self.heads = heads;
    }

    /// Tries to admit the head of a queue, which is the first of this group. Returns true when the
    /// next one is to be tried.
    fn admit_first(&mut self, now: Timestamp, queue: QueueId, group: GroupId) -> bool {
        let Some((ticket, waiter, key, blocked)) = self.queue.first(group) else { return false };
        let Waiter { demand, deadline, .. } = waiter;
        let is_still_closed = |closed| self.ledger.candidates.is_closed_as(key.list, closed, now);
        if blocked.and_then(|blocked| blocked.closed.as_ref()).is_some_and(is_still_closed) {
            return false;
        }
        let lease = LeaseId(self.next_lease);
        match self.ledger.admit(now, lease, demand, key.list, *deadline) {
            Ok(grant) => {
                self.next_lease += 1;
                self.decide(ticket, Ok(grant));
                true
            }
            Err(blocked)
                if blocked.is_by_share && ends_after_deadline(&blocked.refusal, *deadline) =>
            {
                self.deny(now, ticket, blocked.refusal);
                true
            }
            // The others of the queue need not wait for this client's slots or budget.
            Err(blocked) if blocked.is_by_share && key.client.is_none() => {
                let client = demand.client;
                let resource = self.ledger.resource_for(demand.endpoint, &key.resource);
                let key = key.clone().of_client(client).against(resource);
                self.queue.move_to(ticket, key, blocked);
                true
            }
            // Others of the queue use other endpoints, or count against another resource.
            Err(blocked)
                if blocked.scope == Scope::Endpoint || blocked.refusal.resource != key.resource =>
            {
                let denial = blocked.refusal.clone();
                self.queue.hold(group, blocked);
                self.deny_before(now, &denial, |all, until| {
                    all.group_deadline_before(group, until)
                });
                true
            }
            Err(blocked) => {
                let denial = blocked.refusal.clone();
                self.queue.block(queue, blocked);
                self.deny_before(now, &denial, |all, until| {
                    all.queue_deadline_before(queue, until)
                });
                false
            }
        }
    }

    /// Denies the requests of `next` that cannot wait until the denial ends.
    fn deny_before(
        &mut self,
        now: Timestamp,
        denial: &LimitDenied,
        next: impl Fn(&mut WaitQueue, Timestamp) -> Option<Ticket>,
    ) {
        let Until::Time(until) = denial.until else { return };
        while let Some(ticket) = next(&mut self.queue, until) {
            self.deny(now, ticket, denial.clone());
        }
    }

    /// Denies a request that has waited, with the cause of its wait.
    fn deny(&mut self, now: Timestamp, ticket: Ticket, mut denial: LimitDenied) {
        if let Some(Waiter { demand, since, .. }) = self.queue.waiter(ticket) {
            self.tell_cause(now, *since, &mut denial, demand);
        }
        self.decide(ticket, Err(denial));
    }

    /// Completes the denial of a request that has waited since then.
    fn tell_cause(
        &self,
        now: Timestamp,
        since: Timestamp,
        denial: &mut LimitDenied,
        demand: &Demand,
    ) {
        let Demand { candidates, client, write, .. } = demand;
        denial.is_unanswered |=
            self.ledger.is_unanswered(now, since, denial, candidates, *client, *write);
    }

    /// Returns true when a new request may wait; another request may have to make room.
    fn make_room(&mut self, demand: &Demand, blocked: &Blocked) -> bool {
        if self.queue.bytes.saturating_add(demand.held_bytes) > self.waiting_bytes_max
            || self.waiting_max == 0
        {
            return false;
        }
        if self.queue.len() < self.waiting_max {
            return true;
        }
        let priority = self.ledger.client(demand.client).priority;
        let Some(ticket) = self.queue.displaced_by(demand.client, priority) else { return false };
        self.decide(ticket, Err(queue_full(&blocked.refusal)));
        true
    }

    fn decide(&mut self, ticket: Ticket, decision: Result<Grant, LimitDenied>) {
        let has_waited = self.leave(ticket, decision.is_ok());
        self.ledger.broken.check(Invariant::TicketsDecidedOnce, has_waited);
        self.decided.push_back((ticket, decision));
    }

    /// Removes a ticket, with or without service. Returns true if it was waiting.
    fn leave(&mut self, ticket: Ticket, is_served: bool) -> bool {
        let Some(Removed { client, list, priority, tag }) = self.queue.remove(ticket) else {
            return false;
        };
        let component = self.ledger.candidates.component_of(list);
        if is_served {
            self.shares.serve(component, client, priority, tag);
        } else {
            let client_settings = ClientSettings { priority, ..self.ledger.client(client) };
            self.shares.give_back(component, client, client_settings, tag);
        }
        self.ledger.candidates.release(list);
        true
    }
}

fn queue_full(blocked: &LimitDenied) -> LimitDenied {
    LimitDenied {
        limit: LimitKind::QueueFull,
        account: None,
        until: Until::Event,
        is_unanswered: false,
        ..blocked.clone()
    }
}

fn ends_after_deadline(refusal: &LimitDenied, deadline: Timestamp) -> bool {
    matches!(refusal.until, Until::Time(until) if until > deadline)
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod held_up;

#[cfg(test)]
mod overlooked;

#[cfg(test)]
mod own_budgets;

#[cfg(test)]
mod reconfigured;

#[cfg(test)]
mod slot_shares;

#[cfg(test)]
mod properties;
