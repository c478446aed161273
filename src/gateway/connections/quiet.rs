//! A log line that cannot flood: one in ten seconds, with the number of events since the last one.

use std::sync::atomic::{AtomicU64, Ordering};
use tokio::time::Instant;

/// The least time between two lines in milliseconds. Chosen here: an operator sees the begin at
/// once, and a day of it is some thousand lines.
const BETWEEN_MS: u64 = 10_000;

pub struct Quiet {
    origin: Instant,
    /// Milliseconds since `origin` at which the next line is due.
    due_at: AtomicU64,
    events: AtomicU64,
}

impl Quiet {
    pub fn new(now: Instant) -> Self {
        Self { origin: now, due_at: AtomicU64::new(0), events: AtomicU64::new(0) }
    }

    /// Counts an event. Returns the number since the last line, if a line is due.
    pub fn event(&self, now: Instant) -> Option<u64> {
        self.events.fetch_add(1, Ordering::Relaxed);
        let now = super::slot::millis(self.origin, now);
        let due_at = self.due_at.load(Ordering::Relaxed);
        let next = now + BETWEEN_MS;
        let is_due = now >= due_at
            && self
                .due_at
                .compare_exchange(due_at, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        is_due.then(|| self.events.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::timer_now;

    #[test]
    fn a_flood_of_events_is_one_line_in_ten_seconds() {
        const BETWEEN: Duration = Duration::from_millis(BETWEEN_MS);
        let now = timer_now();
        let quiet = Quiet::new(now);
        assert_eq!(quiet.event(now), Some(1));
        let silent = (0..1_000).all(|_| quiet.event(now + BETWEEN / 2).is_none());
        assert!(silent);
        assert_eq!(quiet.event(now + BETWEEN), Some(1_001));
    }
}
