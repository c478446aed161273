//! Knowing when nothing is in flight any more: SIGTERM finishes what was begun (CONTRACT §1).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts the requests that are being answered.
#[derive(Default)]
pub struct Active {
    count: AtomicUsize,
    draining: AtomicBool,
    changed: Notify,
}

/// One request that is being answered.
pub struct ActiveRequest(Arc<Active>);

impl Active {
    /// Counts one more, until the value is dropped.
    pub fn enter(self: &Arc<Self>) -> ActiveRequest {
        self.count.fetch_add(1, Ordering::AcqRel);
        ActiveRequest(Arc::clone(self))
    }

    /// From now on new requests are refused.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Whether [`Active::drain`] was called.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Until there are none.
    pub async fn idle(&self) {
        loop {
            let changed = self.changed.notified();
            if self.count() == 0 {
                return;
            }
            changed.await;
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.changed.notify_waiters();
        }
    }
}
