//! Knowing when nothing is in flight any more: SIGTERM finishes what was begun (CONTRACT §1).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts the requests that are being answered, and the connections that may still be sending what
/// was answered.
#[derive(Default)]
pub struct Active {
    requests: AtomicUsize,
    connections: AtomicUsize,
    draining: AtomicBool,
    changed: Notify,
    /// Told when the drain begins.
    begun: Notify,
}

/// One more of what is counted, until it is dropped.
pub struct Entered {
    active: Arc<Active>,
    counter: fn(&Active) -> &AtomicUsize,
}

impl Active {
    /// Counts one more request, until the value is dropped.
    pub fn enter(self: &Arc<Self>) -> Entered {
        self.count_one(|active| &active.requests)
    }

    /// Counts one more connection whose answers are sent after their requests have ended: HTTP/2
    /// queues them.
    pub fn connect(self: &Arc<Self>) -> Entered {
        self.count_one(|active| &active.connections)
    }

    /// From now on new requests are refused.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.begun.notify_waiters();
    }

    /// Until [`Active::drain`] is called.
    pub async fn drain_begun(&self) {
        let mut begun = std::pin::pin!(self.begun.notified());
        // Listening before looking, so that it is not missed between the two.
        begun.as_mut().enable();
        if !self.is_draining() {
            begun.await;
        }
    }

    /// Whether [`Active::drain`] was called.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// How many requests there are.
    pub fn count(&self) -> usize {
        self.requests.load(Ordering::Acquire)
    }

    /// Until there are no requests, and no connections that have still something to send.
    pub async fn idle(&self) {
        loop {
            let changed = self.changed.notified();
            if self.count() == 0 && self.connections.load(Ordering::Acquire) == 0 {
                return;
            }
            changed.await;
        }
    }

    fn count_one(self: &Arc<Self>, counter: fn(&Self) -> &AtomicUsize) -> Entered {
        counter(self).fetch_add(1, Ordering::AcqRel);
        Entered { active: Arc::clone(self), counter }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if (self.counter)(&self.active).fetch_sub(1, Ordering::AcqRel) == 1 {
            self.active.changed.notify_waiters();
        }
    }
}
