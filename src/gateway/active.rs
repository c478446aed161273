//! Graceful shutdown: counts running requests and waits for them (SPECIFICATION, "Commands").

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts the running requests, and the connections that may still be sending answers.
#[derive(Default)]
pub struct Active {
    requests: AtomicUsize,
    connections: AtomicUsize,
    draining: AtomicBool,
    changed: Notify,
    begun: Notify,
}

/// Guard: counts one request or connection until it is dropped.
pub struct ActiveGuard {
    active: Arc<Active>,
    counter: fn(&Active) -> &AtomicUsize,
}

impl Active {
    pub fn enter(self: &Arc<Self>) -> ActiveGuard {
        self.count_one(|active| &active.requests)
    }

    /// Counts one more connection that sends after its requests have ended: HTTP/2 queues answers.
    pub fn connect(self: &Arc<Self>) -> ActiveGuard {
        self.count_one(|active| &active.connections)
    }

    /// Begins the drain: new requests get 503.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.begun.notify_waiters();
    }

    pub async fn drain_begun(&self) {
        let mut begun = std::pin::pin!(self.begun.notified());
        // Registered before the check, so that no notification is lost in between.
        begun.as_mut().enable();
        if !self.is_draining() {
            begun.await;
        }
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    pub fn count(&self) -> usize {
        self.requests.load(Ordering::Acquire)
    }

    /// Waits until no request runs and no connection has anything left to send.
    pub async fn idle(&self) {
        loop {
            let changed = self.changed.notified();
            if self.count() == 0 && self.connections.load(Ordering::Acquire) == 0 {
                return;
            }
            changed.await;
        }
    }

    fn count_one(self: &Arc<Self>, counter: fn(&Self) -> &AtomicUsize) -> ActiveGuard {
        counter(self).fetch_add(1, Ordering::AcqRel);
        ActiveGuard { active: Arc::clone(self), counter }
    }
}

impl Drop for ActiveGuard {
    fn drop(&mut self) {
        if (self.counter)(&self.active).fetch_sub(1, Ordering::AcqRel) == 1 {
            self.active.changed.notify_waiters();
        }
    }
}
