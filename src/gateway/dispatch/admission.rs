//! The I/O shell of the pure [`Admission`]: wakes each waiter on its decision, and returns the
//! leases and places of waiters that leave.
//!
//! `decision/` makes every decision; this file has the lock, the timer and the drop guards. A
//! client that leaves drops its future, and with it its place in the wait queue or its lease
//! (SPECIFICATION, "Promises" 7).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use http::StatusCode;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, oneshot};

use crate::api::{EndpointId, RateHeaders, ResourceName, UpstreamLimit};
use crate::clock::{Clock, Timestamp};
use crate::decision::Invariant;
use crate::decision::fleet::{Answer, Report};
use crate::decision::{
    AccountId, AccountSnapshot, Admission, BudgetView, ClientBudgetSnapshot, ClientId, Decision,
    Demand, Grant, HeldRequests, LeaseId, LimitDenied, Question, QuotaLedger, Recovered,
    SavedLedger, Settings, Settlement, Shadowed, SpendingMark, Spent, SpentBudget, Stated, Ticket,
    WriteSpacing,
};

use crate::gateway::dispatch::graphql_prices::GraphqlPrices;
use crate::gateway::random::unit_random;
use crate::telemetry::Chosen;

/// Accounts that an operator's look reads at once, during which no request is admitted. Ours: a few
/// dozen microseconds.
const SHOWN_AT_ONCE: usize = 64;

/// The quota ledger and its wait queue, shared by all requests.
pub struct Admissions {
    inner: Mutex<Inner>,
    clock: Clock,
    /// Notified when the next wake-up moves forward. Notifying each event would cost a task switch.
    moved: Notify,
    /// The same for questions of an account's state.
    question_moved: Notify,
    /// Notified when an account is to be reported on to other replicas at once.
    short: Notify,
    /// The units that GraphQL operations reserve.
    pub graphql_prices: GraphqlPrices,
}

/// Guard: a question of an account's state under way. Dropped, it got no answer.
pub struct OpenQuestion {
    admissions: Arc<Admissions>,
    question: Option<Question>,
}

impl OpenQuestion {
    pub fn account(&self) -> Option<AccountId> {
        self.question.as_ref().map(|question| question.account)
    }

    /// The same by order of an operator.
    pub fn by_operator(mut self) -> Self {
        self.question = self.question.take().map(Question::by_operator);
        self
    }

    /// Ends the question, and decides the requests that its answer frees.
    pub fn ended(mut self, stated: &Stated) {
        self.end(stated);
    }

    fn end(&mut self, stated: &Stated) {
        if let Some(question) = self.question.take() {
            self.admissions.change(|inner, now| inner.admission.stated(now, &question, stated));
        }
    }
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        self.end(&Stated::Nothing { is_unknown_route: false });
    }
}

struct Inner {
    admission: Admission,
    waiters: HashMap<Ticket, oneshot::Sender<Result<Grant, LimitDenied>>>,
    /// The timer's wake-up; `None`: on notification only.
    armed: Option<Timestamp>,
}

impl Inner {
    /// True if the timer would wake too late. An early wake-up only costs a check.
    fn is_late(&self) -> bool {
        self.admission.next_wakeup().is_some_and(|next| self.armed.is_none_or(|armed| next < armed))
    }
}

/// The right to send one request upstream for an account. Dropped before the request is sent, it
/// costs nothing. Dropped before the end of the answer, it counts as spent and keeps its slot for a
/// grace period, because the upstream may go on with the request.
pub struct Lease {
    admissions: Arc<Admissions>,
    id: LeaseId,
    account: AccountId,
    shadowed: Option<Shadowed>,
    chosen: Chosen,
    /// 0: nothing sent; 1: may have been sent; 2: settled.
    state: AtomicU8,
}

const UNSENT: u8 = 0;
const SENDING: u8 = 1;
const SETTLED: u8 = 2;

impl Admissions {
    pub fn new(settings: Settings, clock: Clock) -> Arc<Self> {
        let inner =
            Inner { admission: Admission::new(settings), waiters: HashMap::new(), armed: None };
        Arc::new(Self {
            inner: Mutex::new(inner),
            clock,
            moved: Notify::new(),
            question_moved: Notify::new(),
            short: Notify::new(),
            graphql_prices: GraphqlPrices::default(),
        })
    }

    /// Waits until `demand` is admitted, or until its admission before `deadline` is impossible.
    /// `held` receives the limit as soon as a wait begins.
    pub async fn acquire(
        self: &Arc<Self>,
        demand: Demand,
        deadline: Timestamp,
        held: impl FnOnce(&LimitDenied),
    ) -> Result<Lease, LimitDenied> {
        let waiting =
            self.change(|inner, now| match inner.admission.request(now, demand, deadline) {
                Decision::Granted(grant) => Ok(Ok(self.lease(grant))),
                Decision::Refused(denied) => Ok(Err(denied)),
                Decision::Waiting { ticket, by } => {
                    held(&by);
                    let (sender, receiver) = oneshot::channel();
                    inner.waiters.insert(ticket, sender);
                    Err(WaitingPlace { admissions: Arc::clone(self), ticket, receiver })
                }
            });
        match waiting {
            Ok(decided) => decided,
            Err(place) => place.decided().await.map(|grant| self.lease(grant)),
        }
    }

    /// Notified when a question of an account's state is due earlier.
    pub fn question_moved(&self) -> Notified<'_> {
        self.question_moved.notified()
    }

    /// Time of the next [`Admissions::due_question`].
    pub fn next_question(&self) -> Option<Timestamp> {
        self.inner.lock().admission.next_question()
    }

    /// Begins the next due question of an account's state.
    pub fn due_question(self: &Arc<Self>) -> Option<OpenQuestion> {
        let question = self.inner.lock().admission.due_question(self.clock.now())?;
        Some(OpenQuestion { admissions: Arc::clone(self), question: Some(question) })
    }

    /// Begins a question of this account's state, due or not.
    pub fn begin_question(self: &Arc<Self>, account: AccountId) -> OpenQuestion {
        let question = self.inner.lock().admission.begin_question(self.clock.now(), account);
        OpenQuestion { admissions: Arc::clone(self), question: Some(question) }
    }

    /// Notified when [`Admissions::take_short`] has something.
    pub fn has_short(&self) -> Notified<'_> {
        self.short.notified()
    }

    /// Drains the accounts to be reported on at once; see [`Admission::take_short`].
    pub fn take_short(&self) -> Vec<AccountId> {
        self.inner.lock().admission.take_short()
    }

    /// The accounts of which this replica holds parts, at its end; see [`Admission::give_back`].
    pub fn give_back(&self) -> Vec<AccountId> {
        self.inner.lock().admission.give_back()
    }

    /// The accounts with something to report; see [`Admission::to_report`].
    pub fn to_report(&self) -> Vec<AccountId> {
        self.inner.lock().admission.to_report(self.clock.now())
    }

    /// A report to other replicas, with its time; see [`Admission::report`].
    pub fn report(
        &self,
        account: AccountId,
        name: &dyn Fn(EndpointId) -> String,
    ) -> Option<(Timestamp, Report)> {
        let now = self.clock.now();
        Some((now, self.inner.lock().admission.report(now, account, name)?))
    }

    /// Takes over the answer to a report of this time; see [`Admission::reported`].
    pub fn reported(&self, sent_at: Timestamp, account: AccountId, answer: Option<&Answer>) {
        self.change(|inner, now| inner.admission.reported(now, sent_at, account, answer));
    }

    /// Closes an account that the upstream has closed for another replica; see
    /// [`Admission::closed_elsewhere`].
    pub fn closed_elsewhere(
        &self,
        account: AccountId,
        whole_for: Duration,
        resources_for: &[(ResourceName, Duration)],
    ) {
        self.change(|inner, now| {
            inner.admission.closed_elsewhere(now, account, whole_for, resources_for);
        });
    }

    pub fn with_ledger<R>(&self, read: impl FnOnce(&QuotaLedger, Timestamp) -> R) -> R {
        let inner = self.inner.lock();
        read(inner.admission.ledger(), self.clock.now())
    }

    /// The client's view of a resource through `accounts`, and its time.
    pub fn view(
        &self,
        client: Option<ClientId>,
        accounts: &Arc<[AccountId]>,
        resource: &ResourceName,
    ) -> (BudgetView, Timestamp) {
        let now = self.clock.now();
        (self.inner.lock().admission.view(now, client, accounts, resource), now)
    }

    /// Time by which a write may expect its turn; see [`Admission::next_turn`].
    pub fn next_turn(&self, accounts: &[AccountId], write: WriteSpacing) -> Timestamp {
        self.inner.lock().admission.next_turn(self.clock.now(), accounts, write)
    }

    /// Frees the place of a dynamic account in the quota ledger; returns true if it could. See
    /// [`QuotaLedger::vacate`].
    pub fn vacate(&self, account: AccountId) -> bool {
        self.inner.lock().admission.vacate(self.clock.now(), account)
    }

    /// Applies new settings; see [`Admission::reconfigure`].
    pub fn reconfigure(&self, settings: Settings) {
        self.change(|inner, now| inner.admission.reconfigure(now, settings));
    }

    /// Every configured account for an operator, with the time of the snapshot. Requests are
    /// admitted meanwhile, so that two accounts may be shown at different times.
    pub fn snapshot(&self) -> (Timestamp, Vec<AccountSnapshot>) {
        let mut all = Vec::new();
        for from in (0..).step_by(SHOWN_AT_ONCE) {
            let inner = self.inner.lock();
            let now = self.clock.now();
            let part = inner.admission.ledger().snapshot_part(now, from, SHOWN_AT_ONCE);
            // Requests that wait for the lock come first.
            MutexGuard::unlock_fair(inner);
            let Some(part) = part else { break };
            all.extend(part);
        }
        (self.clock.now(), all)
    }

    /// The state of the ledger for a file; see [`Admission::saved`].
    pub fn saved(&self, name: &dyn Fn(EndpointId) -> String) -> SavedLedger {
        self.inner.lock().admission.saved(self.clock.now(), name)
    }

    /// Takes over the state of an earlier process; see [`Admission::restore`].
    pub fn restore(
        &self,
        saved: &SavedLedger,
        recovered: Recovered,
        endpoint: &dyn Fn(&str) -> Option<EndpointId>,
    ) {
        self.change(|inner, now| inner.admission.restore(now, saved, recovered, endpoint));
    }

    /// The own budgets of all clients, with the time of the snapshot.
    pub fn client_budgets(&self) -> (Timestamp, Vec<ClientBudgetSnapshot>) {
        let now = self.clock.now();
        (now, self.inner.lock().admission.client_budgets(now))
    }

    /// See [`Admission::own_news`].
    pub fn own_news(&self) -> Vec<SpentBudget> {
        self.inner.lock().admission.own_news()
    }

    /// See [`Admission::add_own_spent`].
    pub fn add_own_spent(&self, spent: &[SpentBudget]) {
        self.inner.lock().admission.add_own_spent(self.clock.now(), spent);
    }

    /// A mark for a successor; see [`Admission::spending_mark`].
    pub fn spending_mark(&self) -> SpendingMark {
        self.inner.lock().admission.spending_mark(self.clock.now())
    }

    /// The spending since the last message, for a successor; see [`Admission::spent_since`].
    pub fn spent_since(
        &self,
        mark: &mut SpendingMark,
        name: &dyn Fn(EndpointId) -> String,
    ) -> Spent {
        self.inner.lock().admission.spent_since(self.clock.now(), mark, name)
    }

    /// Adds what a predecessor has spent; see [`Admission::add_spent`].
    pub fn add_spent(&self, spent: &Spent, endpoint: &dyn Fn(&str) -> Option<EndpointId>) {
        self.change(|inner, now| inner.admission.add_spent(now, spent, endpoint));
    }

    /// Audits ledger and wait queue; returns the broken invariants. See [`Admission::audit`].
    pub fn audit(&self) -> Vec<Invariant> {
        self.inner.lock().admission.audit()
    }

    /// The waiting requests by the limit that holds them; see [`Admission::held_requests`].
    pub fn held_requests(&self) -> Vec<HeldRequests> {
        self.inner.lock().admission.held_requests()
    }

    pub fn waiting(&self) -> usize {
        self.inner.lock().admission.waiting()
    }

    /// Drives deadlines and windows for the life of the gateway.
    pub async fn run(self: Arc<Self>) {
        loop {
            let now = self.clock.now();
            let next = {
                let mut inner = self.inner.lock();
                inner.admission.tick(now);
                self.deliver(&mut inner);
                inner.armed = inner.admission.next_wakeup();
                inner.armed
            };
            match next {
                // Avoids a busy loop on an overdue wake-up: decisions move in milliseconds.
                Some(at) => {
                    let at = at.max(now + Duration::from_millis(1));
                    tokio::select! {
                        () = self.clock.reach(at) => {}
                        () = self.moved.notified() => {}
                    }
                }
                None => self.moved.notified().await,
            }
        }
    }

    fn lease(self: &Arc<Self>, grant: Grant) -> Lease {
        Lease {
            admissions: Arc::clone(self),
            id: grant.lease,
            account: grant.account,
            shadowed: grant.shadowed,
            chosen: Chosen::Only,
            state: AtomicU8::new(UNSENT),
        }
    }

    fn settle(&self, id: LeaseId, settlement: Settlement<'_>) -> Option<u32> {
        self.change(|inner, now| inner.admission.settle(now, id, settlement, unit_random()))
    }

    /// Changes the wait queue, delivers the decisions that follow, also about other requests, and
    /// moves the timer forward if needed.
    fn change<R>(&self, change: impl FnOnce(&mut Inner, Timestamp) -> R) -> R {
        let inner = &mut *self.inner.lock();
        let question_before = inner.admission.next_question();
        let changed = change(inner, self.clock.now());
        self.deliver(inner);
        if let Some(next) = inner.admission.next_question()
            && question_before.is_none_or(|before| next < before)
        {
            self.question_moved.notify_one();
        }
        if inner.is_late() {
            self.moved.notify_one();
        }
        if inner.admission.has_short() {
            self.short.notify_one();
        }
        changed
    }

    /// Delivers decisions. A grant without a waiter goes back, which may decide the next request.
    fn deliver(&self, inner: &mut Inner) {
        while let Some((ticket, decision)) = inner.admission.next_decided() {
            let undelivered = match inner.waiters.remove(&ticket) {
                Some(waiter) => waiter.send(decision).err(),
                None => Some(decision),
            };
            if let Some(Ok(grant)) = undelivered {
                inner.admission.settle(self.clock.now(), grant.lease, Settlement::NeverSent, 0.0);
            }
        }
    }
}

/// Guard: a place in the wait queue.
struct WaitingPlace {
    admissions: Arc<Admissions>,
    ticket: Ticket,
    receiver: oneshot::Receiver<Result<Grant, LimitDenied>>,
}

impl WaitingPlace {
    async fn decided(mut self) -> Result<Grant, LimitDenied> {
        match (&mut self.receiver).await {
            Ok(decision) => decision,
            // The sender lives as long as the ticket.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        let Self { admissions, ticket, receiver } = self;
        admissions.change(|inner, now| {
            if inner.waiters.remove(ticket).is_some() {
                inner.admission.abandon(now, *ticket);
            } else if let Ok(Ok(grant)) = receiver.try_recv() {
                // Granted during the drop.
                inner.admission.settle(now, grant.lease, Settlement::NeverSent, 0.0);
            }
        });
    }
}

impl Lease {
    pub fn account(&self) -> AccountId {
        self.account
    }

    /// The reason for its account.
    pub fn chosen(&self) -> Chosen {
        self.chosen
    }

    /// Sets the reason for its account among so many, of which one may own a validator.
    pub fn chosen_among(&mut self, accounts: usize, owner: Option<AccountId>) {
        self.chosen = if owner == Some(self.account) {
            Chosen::Validator
        } else if accounts <= 1 {
            Chosen::Only
        } else {
            Chosen::MostLeft(u32::try_from(accounts).unwrap_or(u32::MAX))
        };
    }

    /// The rule in shadow mode that would have denied or held the request.
    pub fn shadowed(&self) -> Option<Shadowed> {
        self.shadowed
    }

    /// Call it right before the first byte: from here on a lost answer counts as spent.
    pub fn sending(&self) {
        self.state.store(SENDING, Ordering::Relaxed);
    }

    /// Returns true after [`Lease::sending`].
    pub fn was_sent(&self) -> bool {
        self.state.load(Ordering::Relaxed) != UNSENT
    }

    pub fn never_sent(self) {
        self.state.store(SETTLED, Ordering::Relaxed);
        self.admissions.settle(self.id, Settlement::NeverSent);
    }

    /// The upstream ended the request without an answer.
    pub fn lost(self) {
        self.state.store(SETTLED, Ordering::Relaxed);
        self.admissions.settle(self.id, Settlement::Unknown);
    }

    /// The upstream has taken a piece of a long body.
    pub fn body_taken(&self) {
        let now = self.admissions.clock.now();
        self.admissions.inner.lock().admission.body_taken(now, self.id);
    }

    /// Settles the head of a streamed answer; the lease keeps its slot. Returns the measured price
    /// as [`Lease::answered`] does.
    pub fn answer_begun(&self, status: StatusCode, rate: Option<&RateHeaders>) -> Option<u32> {
        self.admissions
            .change(|inner, now| inner.admission.answer_begun(now, self.id, status, rate))
    }

    /// Ends the lease if others wait for the slot that its answer holds for a slow reader; see
    /// [`Admission::yield_slot`].
    pub fn yields(&self) -> bool {
        let yields = self.admissions.change(|inner, now| inner.admission.yield_slot(now, self.id));
        if yields {
            self.state.store(SETTLED, Ordering::Relaxed);
        }
        yields
    }

    /// Settles an answer. Returns its price by the rate headers, where they show it: see
    /// [`Admission::settle`].
    pub fn answered(
        self,
        status: StatusCode,
        rate: Option<&RateHeaders>,
        refusal: Option<&UpstreamLimit>,
    ) -> Option<u32> {
        self.state.store(SETTLED, Ordering::Relaxed);
        self.admissions.settle(self.id, Settlement::Answered { status, rate, refusal })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        match self.state.load(Ordering::Relaxed) {
            UNSENT => _ = self.admissions.settle(self.id, Settlement::NeverSent),
            SENDING => _ = self.admissions.settle(self.id, Settlement::CutOff),
            _ => {}
        }
    }
}
