//! The price of a request by the upstream's counts before and after it.
//!
//! Only a request that nothing else of ours overlaps can be measured, and only soon after a count:
//! otherwise the difference is also the price of others.

use std::time::Duration;

use crate::api::RateHeaders;
use crate::clock::Timestamp;

use super::{Mark, PrimaryWindow, Seen, WOBBLE, WindowState};

/// Longest time between the count before a request and its admission. Ours: what others spend on
/// the same budget meanwhile counts as its price.
const COUNT_AGE_MAX: Duration = Duration::from_mins(1);

/// Count of a window before a request that had it to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alone {
    seen: Seen,
    admitted: u64,
}

impl PrimaryWindow {
    /// Returns the count before a request that is about to be leased. `None` if every price is
    /// known, if others are on their way, or if the count is not exact.
    pub(super) fn alone(&self, now: Timestamp) -> Option<Alone> {
        let WindowState::Seen(seen) = self.current(now) else { return None };
        let is_exact = self.leased == 0
            && self.evidence.unseen_units == 0
            && now.since(self.counted_at) <= COUNT_AGE_MAX;
        (!self.costs_are_known && is_exact).then_some(Alone { seen, admitted: self.admitted })
    }

    /// Returns the units between the count before a request with this mark and the count in its
    /// answer. `None` unless both are of one window and no request came between.
    pub fn measured(&self, mark: Mark, after: &RateHeaders) -> Option<u32> {
        let Alone { seen, admitted } = mark.alone?;
        let is_same_window = after.limit == seen.limit
            && after.reset <= seen.reset + WOBBLE
            && after.reset + WOBBLE >= seen.reset;
        let was_alone = self.admitted == admitted.wrapping_add(1);
        let units = seen.remaining.checked_sub(after.remaining);
        units.filter(|_| is_same_window && was_alone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ResourceName;
    use crate::decision::quota::limits::primary::{Mark, ObservedAnswer, Terms};
    use crate::decision::types::LeaseId;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn rate(remaining: u32) -> RateHeaders {
        RateHeaders {
            limit: 100,
            remaining,
            used: None,
            reset: Timestamp::from_secs(2_000),
            resource: None,
        }
    }

    /// A window whose last count left 50 units.
    fn window(resource: &ResourceName) -> PrimaryWindow {
        let mut window = PrimaryWindow::new(resource);
        let rate = rate(50);
        let mark = Some(Mark::before_all(NOW));
        window.observe(NOW, ObservedAnswer { rate: &rate, cost: 1, mark });
        window
    }

    #[test]
    fn a_request_alone_costs_the_difference_of_the_counts() {
        let mut window = window(&ResourceName::graphql());
        let mark = window.lease(NOW, LeaseId(1), 1, Terms::default());
        assert_eq!(window.measured(mark, &rate(43)), Some(7));
        assert_eq!(window.measured(mark, &rate(51)), None, "an older count");
        let later = RateHeaders { reset: Timestamp::from_secs(5_600), ..rate(43) };
        assert_eq!(window.measured(mark, &later), None, "the next window");
    }

    #[test]
    fn overlapping_requests_are_not_measured() {
        let mut window = window(&ResourceName::graphql());
        let marks = [1, 2].map(|id| window.lease(NOW, LeaseId(id), 1, Terms::default()));
        assert_eq!(marks.map(|mark| window.measured(mark, &rate(43))), [None, None]);
        window.refund(LeaseId(1), 1);
        let third = window.lease(NOW, LeaseId(3), 1, Terms::default());
        assert_eq!(window.measured(third, &rate(43)), None, "the second one is on its way");
    }

    #[test]
    fn a_known_price_and_an_old_count_measure_nothing() {
        assert!(window(&ResourceName::core()).alone(NOW).is_none());
        let graphql = window(&ResourceName::graphql());
        assert!(graphql.alone(NOW + COUNT_AGE_MAX).is_some());
        assert!(graphql.alone(NOW + COUNT_AGE_MAX + Duration::from_secs(1)).is_none());
    }
}
