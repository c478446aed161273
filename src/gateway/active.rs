//! Graceful shutdown: counts running requests and waits for them (SPECIFICATION, "Commands").
//!
//! A guard belongs to the request, not to the stage that serves it, so no handover loses it. The
//! guard of its connection covers what comes before a request's head and after its outcome.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

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
    /// Requests that connections may still send.
    awaited: AtomicUsize,
    /// The end of the wait for those; set in a hand-over alone.
    awaited_until: OnceLock<Instant>,
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

/// The next request of a connection, as a hand-over to a successor awaits it: the first one, and
/// one whose head has begun. Counted until its end, or that of the connection.
pub struct Awaited {
    active: Arc<Active>,
    is_awaited: AtomicBool,
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

    /// Makes the drain a hand-over to a successor, which awaits requests until this time.
    pub fn hand_over(&self, until: Instant) {
        // A process is handed over once.
        let _ = self.awaited_until.set(until);
    }

    pub fn is_handed_over(&self) -> bool {
        self.awaited_until.get().is_some()
    }

    /// Waits in a hand-over until every awaited request has come, or the time for them is over.
    pub async fn all_arrived(&self) {
        let Some(until) = self.awaited_until.get() else { return };
        let arrived = async {
            loop {
                let changed = self.changed.notified();
                if self.awaited.load(Ordering::SeqCst) == 0 {
                    return;
                }
                changed.await;
            }
        };
        let _ = timeout_at(*until, arrived).await;
    }

    /// From now on new requests get 503, apart from reads in a hand-over.
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

impl Awaited {
    /// Awaits a request.
    pub fn new(active: &Arc<Active>) -> Arc<Self> {
        let awaited = Self { active: Arc::clone(active), is_awaited: AtomicBool::new(false) };
        awaited.begin();
        Arc::new(awaited)
    }

    /// Awaits a request whose head has begun, unless one is awaited already.
    pub fn begin(&self) {
        if !self.is_awaited.swap(true, Ordering::SeqCst) {
            self.active.awaited.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Notes that the request has come, or comes no more.
    pub fn end(&self) {
        // Most requests of a connection are not awaited, and change nothing here.
        let is_last = self.is_awaited.load(Ordering::SeqCst)
            && self.is_awaited.swap(false, Ordering::SeqCst)
            && self.active.awaited.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last {
            self.active.changed.notify_waiters();
        }
    }

    /// The end of the wait for bytes after the gateway's stop: the usual one, or a later one in a
    /// hand-over that awaits a request.
    pub fn wait_end(&self, usual: Instant) -> Instant {
        let until = self.active.awaited_until.get();
        let until = until.filter(|_| self.is_awaited.load(Ordering::SeqCst));
        until.map_or(usual, |until| usual.max(*until))
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

impl Drop for Awaited {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::clock::timer_now;

    /// True if every awaited request has come within so many seconds.
    async fn have_arrived(active: &Active, seconds: u64) -> bool {
        timeout(Duration::from_secs(seconds), active.all_arrived()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_hand_over_awaits_requests_for_a_while() {
        let active = Arc::<Active>::default();
        let [asking, silent] = [(); 2].map(|()| Awaited::new(&active));
        let (now, until) = (timer_now(), timer_now() + Duration::from_secs(5));
        assert!(have_arrived(&active, 0).await, "another drain awaits none");
        assert_eq!(silent.wait_end(now), now);
        active.hand_over(until);
        asking.end();
        assert_eq!([&asking, &silent].map(|one| one.wait_end(now)), [now, until]);
        assert!(!have_arrived(&active, 4).await);
        assert!(have_arrived(&active, 2).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hand_over_goes_on_after_the_last_awaited_request() {
        let active = Arc::<Active>::default();
        let [asking, leaving] = [(); 2].map(|()| Awaited::new(&active));
        active.hand_over(timer_now() + Duration::from_secs(60));
        asking.end();
        asking.begin();
        drop(leaving);
        assert!(!have_arrived(&active, 1).await);
        asking.end();
        asking.end();
        assert!(have_arrived(&active, 1).await);
    }
}
