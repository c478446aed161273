//! Detects idle connections: no request is in flight, whatever the protocol.
//!
//! A partial request head counts as idle, so that a slow sender of headers times out.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

#[derive(Debug, Default)]
pub struct Activity {
    under_way: AtomicUsize,
    changed: Notify,
}

/// Guard of a request in flight; dropping it ends the request.
#[derive(Debug)]
pub struct ActiveRequest(Arc<Activity>);

impl Activity {
    pub fn begin(self: &Arc<Self>) -> ActiveRequest {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_one();
        ActiveRequest(Arc::clone(self))
    }

    /// Returns once no request was in flight for this long.
    pub async fn idle_for(&self, length: Duration) {
        loop {
            let changed = tokio::time::timeout(length, self.changed.notified()).await.is_ok();
            if !changed && self.under_way.load(Ordering::Relaxed) == 0 {
                return;
            }
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_only_without_a_request_in_flight() {
        let activity = Arc::new(Activity::default());
        let request = activity.begin();
        assert!(
            tokio::time::timeout(LENGTH * 4, activity.idle_for(LENGTH)).await.is_err(),
            "a request that takes long is not idle"
        );
        drop(request);
        activity.idle_for(LENGTH).await;
    }
}
