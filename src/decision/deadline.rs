//! The deadline of a request over all its attempts, and the pace of an answer's body beyond it
//! (SPECIFICATION, "Waiting").

use std::time::Duration;

use crate::clock::Timestamp;

/// The longest pause of a body beyond the deadline. Ours: a body under way seldom pauses longer.
const STALL: Duration = Duration::from_secs(1);
/// The slowest body beyond the deadline: the slowest upload too.
const BYTES_PER_SECOND_MIN: u32 = 8 * 1024;

/// The time by which a request is answered that began at `began` and was `queued` for so long.
/// A request that a limit held for most of `total` still gets the time of one answer.
pub fn answer_by(
    began: Timestamp,
    queued: Duration,
    total: Duration,
    one_answer: Duration,
) -> Timestamp {
    began + total.max(queued.saturating_add(one_answer.min(total)))
}

/// The pace of a body that is held until it is complete. Beyond the deadline it has to go on.
#[derive(Clone, Copy, Debug)]
pub struct BodyPace {
    due: Timestamp,
}

impl BodyPace {
    /// Begins with the head of the answer.
    pub fn new(answer_by: Timestamp, now: Timestamp) -> Self {
        Self { due: answer_by.max(now + STALL) }
    }

    /// The longest wait for the next bytes.
    pub fn left(self, now: Timestamp) -> Duration {
        self.due.since(now)
    }

    pub fn received(&mut self, bytes: usize, now: Timestamp) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let earned = Duration::from_secs(1) * bytes / BYTES_PER_SECOND_MIN;
        self.due = self.due.max((self.due + earned).min(now + STALL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);
    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn a_deadline_counts_the_queue_and_leaves_time_for_an_answer() {
        let due = |queued, total| answer_by(NOW, secs(queued), secs(total), secs(30));
        assert_eq!(due(0, 60), NOW + secs(60));
        assert_eq!(due(30, 60), NOW + secs(60));
        assert_eq!(due(600, 60), NOW + secs(630));
        assert_eq!(due(0, 5), NOW + secs(5));
        assert_eq!(due(9, 5), NOW + secs(14));
    }

    #[test]
    fn a_body_under_way_is_not_cut() {
        let mut pace = BodyPace::new(NOW, NOW);
        for tenths in (0..6_000).step_by(9) {
            let now = NOW + Duration::from_millis(100 * tenths);
            assert!(pace.left(now) > Duration::ZERO, "after {tenths} tenths of a second");
            pace.received(8 * 1024, now);
        }
    }

    #[test]
    fn a_stalled_or_dripping_body_ends_soon_after_the_deadline() {
        let mut pace = BodyPace::new(NOW + secs(60), NOW);
        pace.received(1_000_000, NOW + secs(1));
        assert_eq!(pace.left(NOW + secs(59)), secs(1));
        assert_eq!(pace.left(NOW + secs(60)), Duration::ZERO);
        for tenth in 0..20 {
            pace.received(1, NOW + secs(59) + Duration::from_millis(100 * tenth));
        }
        assert_eq!(pace.left(NOW + secs(61)), Duration::ZERO);
    }
}
