//! The waiting line in the running program: wakes each asker when the pure [`Admission`] has
//! decided about it, and gives back whatever an asker leaves behind.
//!
//! Every decision is made in `decision/`; here are only the lock, the timer and the drop guards. A
//! client that goes away drops its future, and with it its place in the line or its lease (CONTRACT
//! §4, 7).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::api::{RateHeaders, ResourceName, UpstreamLimit};
use crate::clock::{Clock, Timestamp};
use crate::decision::Invariant;
use crate::decision::{
    AccountId, AccountSnapshot, Admission, BudgetView, Decision, Demand, Grant, LeaseId,
    LimitDenied, QuotaLedger, Settings, Settlement, Ticket,
};

use crate::gateway::random::unit_random;

/// The books and the line before them, shared by all requests.
pub struct Admissions {
    inner: Mutex<Inner>,
    clock: Clock,
    /// Told when the next wake-up is earlier than what the timer sleeps until. Telling it of each
    /// event would cost a task's turn for each request.
    moved: Notify,
}

struct Inner {
    admission: Admission,
    waiters: HashMap<Ticket, oneshot::Sender<Result<Grant, LimitDenied>>>,
    /// What the timer sleeps until; `None`: until it is told.
    armed: Option<Timestamp>,
}

impl Inner {
    /// Whether the timer sleeps too long. One that wakes too early only looks and sleeps again.
    fn is_late(&self) -> bool {
        self.admission.next_wakeup().is_some_and(|next| self.armed.is_none_or(|armed| next < armed))
    }
}

/// The right to send one request upstream for an account. Dropped before anything was sent it costs
/// nothing; dropped afterwards it counts as spent.
pub struct Lease {
    admissions: Arc<Admissions>,
    id: LeaseId,
    account: AccountId,
    /// 0: nothing sent; 1: may have been sent; 2: settled.
    state: AtomicU8,
}

const UNSENT: u8 = 0;
const SENDING: u8 = 1;
const SETTLED: u8 = 2;

impl Admissions {
    /// With empty books.
    pub fn new(settings: Settings, clock: Clock) -> Arc<Self> {
        let inner =
            Inner { admission: Admission::new(settings), waiters: HashMap::new(), armed: None };
        Arc::new(Self { inner: Mutex::new(inner), clock, moved: Notify::new() })
    }

    /// Waits until `demand` is admitted, or until it is clear that it will not be before
    /// `deadline`. When it has to wait, `held` is told at once which limit stands in the way.
    pub async fn acquire(
        self: &Arc<Self>,
        demand: Demand,
        deadline: Timestamp,
        held: impl FnOnce(Timestamp, &LimitDenied),
    ) -> Result<Lease, LimitDenied> {
        let waiting = {
            let mut inner = self.inner.lock();
            let now = self.clock.now();
            let waiting = match inner.admission.request(now, demand, deadline) {
                Decision::Granted(grant) => Ok(Ok(self.lease(grant))),
                Decision::Refused(refusal) => Ok(Err(refusal)),
                Decision::Waiting { ticket, by } => {
                    held(now, &by);
                    let (sender, receiver) = oneshot::channel();
                    inner.waiters.insert(ticket, sender);
                    Err(Place { admissions: Arc::clone(self), ticket, receiver })
                }
            };
            // The request may have decided about others before itself.
            self.deliver(&mut inner);
            self.arm(&inner);
            waiting
        };
        let waiting = match waiting {
            Ok(decided) => return decided,
            Err(waiting) => waiting,
        };
        waiting.decided().await.map(|grant| self.lease(grant))
    }

    /// Reads the books.
    pub fn with_ledger<R>(&self, read: impl FnOnce(&QuotaLedger, Timestamp) -> R) -> R {
        let inner = self.inner.lock();
        read(inner.admission.ledger(), self.clock.now())
    }

    /// What a client that may use `accounts` sees of a resource now, and when that is.
    pub fn view(
        &self,
        accounts: &Arc<[AccountId]>,
        resource: &ResourceName,
    ) -> (BudgetView, Timestamp) {
        let now = self.clock.now();
        (self.inner.lock().admission.view(now, accounts, resource), now)
    }

    /// Frees a guest's place in the books; whether it could. See [`QuotaLedger::vacate`].
    pub fn vacate(&self, guest: AccountId) -> bool {
        self.inner.lock().admission.vacate(self.clock.now(), guest)
    }

    /// Other settings from now on; see [`Admission::reconfigure`].
    pub fn reconfigure(&self, settings: Settings) {
        let mut inner = self.inner.lock();
        inner.admission.reconfigure(self.clock.now(), settings);
        self.deliver(&mut inner);
        self.arm(&inner);
    }

    /// Every account of the config for an operator, with the time at which the picture was taken.
    pub fn snapshot(&self) -> (Timestamp, Vec<AccountSnapshot>) {
        self.with_ledger(|books, now| (now, books.snapshot(now)))
    }

    /// Checks books and line as a whole, and returns what is broken; see [`Admission::audit`].
    pub fn audit(&self) -> Vec<Invariant> {
        self.inner.lock().admission.audit()
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.inner.lock().admission.waiting()
    }

    /// Drives deadlines and windows; runs as long as the gateway does.
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
                // A wake-up that is due already must not spin: decisions move at millisecond steps.
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
            state: AtomicU8::new(UNSENT),
        }
    }

    fn settle(&self, id: LeaseId, settlement: Settlement<'_>) {
        let mut inner = self.inner.lock();
        inner.admission.settle(self.clock.now(), id, settlement, unit_random());
        self.deliver(&mut inner);
        self.arm(&inner);
    }

    /// Has the timer sleep no longer than it may. To be called after every change of the line.
    fn arm(&self, inner: &Inner) {
        if inner.is_late() {
            self.moved.notify_one();
        }
    }

    /// Hands out what has been decided. A grant whose asker has left goes back, which may decide
    /// the next.
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

/// A place in the line; leaving it frees it.
struct Place {
    admissions: Arc<Admissions>,
    ticket: Ticket,
    receiver: oneshot::Receiver<Result<Grant, LimitDenied>>,
}

impl Place {
    async fn decided(mut self) -> Result<Grant, LimitDenied> {
        match (&mut self.receiver).await {
            Ok(decision) => decision,
            // The sender lives in the books as long as the ticket does.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.admissions.inner.lock();
        if inner.waiters.remove(&self.ticket).is_some() {
            inner.admission.abandon(self.admissions.clock.now(), self.ticket);
        } else if let Ok(Ok(grant)) = self.receiver.try_recv() {
            // Granted while leaving.
            inner.admission.settle(
                self.admissions.clock.now(),
                grant.lease,
                Settlement::NeverSent,
                0.0,
            );
        } else {
            return;
        }
        self.admissions.deliver(&mut inner);
        self.admissions.arm(&inner);
    }
}

impl Lease {
    /// Whose budget this spends.
    pub fn account(&self) -> AccountId {
        self.account
    }

    /// To be called right before the first byte leaves: from here on a lost answer counts as spent.
    pub fn sending(&self) {
        self.state.store(SENDING, Ordering::Relaxed);
    }

    /// Nothing reached the upstream, although it was tried.
    pub fn never_sent(self) {
        self.state.store(SETTLED, Ordering::Relaxed);
        self.admissions.settle(self.id, Settlement::NeverSent);
    }

    /// The head of an answer has come whose body is passed on piece by piece; the lease goes on
    /// holding its slot.
    pub fn answer_begun(&self, status: StatusCode, rate: Option<&RateHeaders>) {
        let mut inner = self.admissions.inner.lock();
        inner.admission.answer_begun(self.admissions.clock.now(), self.id, status, rate);
        self.admissions.deliver(&mut inner);
        self.admissions.arm(&inner);
    }

    /// The upstream has answered.
    pub fn answered(
        self,
        status: StatusCode,
        rate: Option<&RateHeaders>,
        refusal: Option<&UpstreamLimit>,
    ) {
        self.state.store(SETTLED, Ordering::Relaxed);
        self.admissions.settle(self.id, Settlement::Answered { status, rate, refusal });
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        match self.state.load(Ordering::Relaxed) {
            UNSENT => self.admissions.settle(self.id, Settlement::NeverSent),
            SENDING => self.admissions.settle(self.id, Settlement::Unknown),
            _ => {}
        }
    }
}
