//! Graceful shutdown: counts running requests and waits for them (SPECIFICATION, "Commands").
//!
//! A guard belongs to the request, not to the stage that serves it, so no handover loses it. The
//! guard of its connection covers what comes before a request's head and after its outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::telemetry::RecentRequests;

/// Counts the running requests, and the connections and tasks that may outlast them.
#[derive(Default)]
pub struct Active {
    requests: AtomicUsize,
    others: AtomicUsize,
    leaving: AtomicBool,
    draining: AtomicBool,
    refusing: AtomicBool,
    cutting_off: AtomicBool,
    changed: Notify,
    begun: Notify,
    cut: Notify,
    /// The last requests that have ended.
    pub ended: RecentRequests,
}

/// Guard: counts one request, connection or task until it is dropped.
pub struct ActiveGuard {
    active: Arc<Active>,
    counter: fn(&Active) -> &AtomicUsize,
}

impl Active {
    pub fn enter(self: &Arc<Self>) -> ActiveGuard {
        self.count_one(|active| &active.requests)
    }

    /// Delays the end of a drain without counting as a request: for a connection, which reads heads
    /// and flushes answers, and for a write that outlives its client.
    pub fn hold(self: &Arc<Self>) -> ActiveGuard {
        self.count_one(|active| &active.others)
    }

    /// Ends readiness. Everything else goes on until [`Active::drain`].
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
    }

    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::SeqCst) || self.is_draining()
    }

    /// Begins the drain: no write of the queue begins, and readiness ends.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
        self.begun.notify_waiters();
    }

    pub async fn drain_begun(&self) {
        noted(&self.begun, &self.draining).await;
    }

    /// Ends the drain: requests without a byte of an answer get an error instead.
    pub fn cut_off(&self) {
        self.cutting_off.store(true, Ordering::SeqCst);
        self.cut.notify_waiters();
    }

    /// Waits until requests are cut off.
    pub async fn is_cut_off(&self) {
        noted(&self.cut, &self.cutting_off).await;
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// From now on new requests get 503.
    pub fn refuse(&self) {
        self.refusing.store(true, Ordering::SeqCst);
    }

    pub fn refuses(&self) -> bool {
        self.refusing.load(Ordering::SeqCst)
    }

    pub fn count(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// Waits until no request runs, no connection is open and no task holds the drain up.
    pub async fn idle(&self) {
        loop {
            let changed = self.changed.notified();
            if self.count() == 0 && self.others.load(Ordering::SeqCst) == 0 {
                return;
            }
            changed.await;
        }
    }

    fn count_one(self: &Arc<Self>, counter: fn(&Self) -> &AtomicUsize) -> ActiveGuard {
        // With `drain` in one order for all threads: work that counts itself first and then sees no
        // drain is seen by the drain.
        counter(self).fetch_add(1, Ordering::SeqCst);
        ActiveGuard { active: Arc::clone(self), counter }
    }
}

/// Waits until `flag` is set, which precedes a notification.
async fn noted(notify: &Notify, flag: &AtomicBool) {
    let mut noted = std::pin::pin!(notify.notified());
    // Registered before the check, so that no notification is lost in between.
    noted.as_mut().enable();
    if !flag.load(Ordering::SeqCst) {
        noted.await;
    }
}

impl Drop for ActiveGuard {
    fn drop(&mut self) {
        if (self.counter)(&self.active).fetch_sub(1, Ordering::SeqCst) == 1 {
            self.active.changed.notify_waiters();
        }
    }
}
