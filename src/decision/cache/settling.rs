//! Trust after a change: the upstream's replicas lag, so the first answers after a write or an
//! event may be outdated (SPECIFICATION, "Conditional requests in practice").
//!
//! No timer sends requests. An answer that was requested soon after a change is served only for a
//! short time. The next request revalidates it: once after [`FIRST_RECHECK`], and once more after
//! [`SECOND_RECHECK`]. The time of its last request and the latest change count. An earlier change
//! has settled by then, or the later one causes the same rechecks.

use std::time::Duration;

use crate::clock::Timestamp;

/// Time after a change until the first recheck (SPECIFICATION, "Conditional requests in practice":
/// ask again after 2 s and 10 s).
pub const FIRST_RECHECK: Duration = Duration::from_secs(2);
/// Time after a change from which an answer is trusted (same source).
pub const SECOND_RECHECK: Duration = Duration::from_secs(10);

/// Trust in an answer after the latest change of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Requested before the change, or in the same instant: it may be outdated.
    Invalidated,
    /// Requested soon after the change: to be revalidated from this time on.
    Until(Timestamp),
    /// Trusted as far as its ttl, its poll interval and the mode allow.
    Settled,
}

impl Trust {
    /// Returns the trust in an answer that was requested at `requested_at` and changed at
    /// `changed_at` (`None`: no known change).
    pub fn after(changed_at: Option<Timestamp>, requested_at: Timestamp) -> Self {
        let Some(changed_at) = changed_at else { return Self::Settled };
        let (first, second) = (changed_at + FIRST_RECHECK, changed_at + SECOND_RECHECK);
        if requested_at <= changed_at {
            Self::Invalidated
        } else if requested_at < first {
            Self::Until(first)
        } else if requested_at < second {
            Self::Until(second)
        } else {
            Self::Settled
        }
    }

    pub fn holds(self, now: Timestamp) -> bool {
        match self {
            Self::Invalidated => false,
            Self::Until(end) => now < end,
            Self::Settled => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGE: Timestamp = Timestamp::from_secs(1_000);

    fn after(millis: u64) -> Timestamp {
        CHANGE + Duration::from_millis(millis)
    }

    fn trust(requested_after_millis: u64) -> Trust {
        Trust::after(Some(CHANGE), after(requested_after_millis))
    }

    #[test]
    fn an_answer_requested_before_a_change_is_invalidated() {
        assert_eq!(
            Trust::after(Some(CHANGE), CHANGE - Duration::from_millis(1)),
            Trust::Invalidated
        );
        assert_eq!(trust(0), Trust::Invalidated);
        assert!(!Trust::Invalidated.holds(CHANGE) && !Trust::Invalidated.holds(Timestamp::EPOCH));
    }

    #[test]
    fn an_answer_requested_soon_after_a_change_is_rechecked() {
        for (requested, end) in [(1, 2_000), (1_999, 2_000), (2_000, 10_000), (9_999, 10_000)] {
            assert_eq!(trust(requested), Trust::Until(after(end)), "{requested}");
            assert!(
                trust(requested).holds(after(end - 1)) && !trust(requested).holds(after(end)),
                "{requested}"
            );
        }
    }

    #[test]
    fn an_answer_requested_ten_seconds_later_is_trusted() {
        assert_eq!(trust(10_000), Trust::Settled);
        assert!(Trust::Settled.holds(Timestamp::FAR_FUTURE));
        assert_eq!(Trust::after(None, Timestamp::EPOCH), Trust::Settled);
    }

    #[test]
    fn a_popular_answer_is_fetched_three_times_after_a_change() {
        // Requests every 100 ms for a minute, answered at once.
        let (mut requested_at, mut fetches) = (CHANGE - FIRST_RECHECK, Vec::new());
        for millis in (1..60_000).step_by(100) {
            if !Trust::after(Some(CHANGE), requested_at).holds(after(millis)) {
                requested_at = after(millis);
                fetches.push(millis);
            }
        }
        assert_eq!(fetches, [1, 2_001, 10_001]);
    }
}
