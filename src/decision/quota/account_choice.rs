//! Which of the accounts that may carry a request carries it.
//!
//! The one with the most left of its budget, as a share of its limit after leases and reserve, so
//! that a pool empties evenly. A budget of which nothing is known counts as whole: the request
//! finds it out at no extra price, and cold accounts are probed side by side, one request each,
//! instead of all askers waiting behind one probe. A known budget is better than an unknown one
//! only when it is as whole, or when its account is the preferred one.
//!
//! The preferred account, owner of an `ETag`, turns a fetch into a free 304; it is taken when it is
//! about as good as the best: while more than a quarter of its budget is left, or less than a tenth
//! of the limit lies between the two.

use super::limits::primary::WHOLE;

/// A share of this and more is good enough for the preferred account. Ours: a free 304 is worth
/// more than an even pool, until the account is needed for what only it can do.
const PREFERRED_FROM: u32 = WHOLE / 4;
/// A smaller difference of shares counts as none. Ours.
const ABOUT_EQUAL: u32 = WHOLE / 10;
/// More requests in flight than this make no difference: no documented account may have a tenth of
/// it (Document 1, Secondary rate limits).
const IN_FLIGHT_MAX: u32 = (1 << IN_FLIGHT_BITS) - 1;
const IN_FLIGHT_BITS: u32 = 12;

/// What an account that could carry the request now has to offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    /// What is left of its budget, in ten-thousandths.
    pub(super) share: u32,
    /// Requests it carries already.
    pub(super) in_flight: u32,
}

impl Offer {
    /// A number by which offers are compared, never 0: the larger share is better, then the less
    /// busy account. Of equals the first in the list is taken.
    pub(super) fn rank(self) -> u32 {
        ((self.share + 1) << IN_FLIGHT_BITS) | (IN_FLIGHT_MAX - self.in_flight.min(IN_FLIGHT_MAX))
    }
}

/// The share of an offer of this rank.
pub(super) const fn share_of(rank: u32) -> u32 {
    (rank >> IN_FLIGHT_BITS).saturating_sub(1)
}

/// Whether the preferred account's share is about as good as the best one.
pub(super) fn is_about_as_good(preferred: u32, best: u32) -> bool {
    preferred > PREFERRED_FROM || best.saturating_sub(preferred) < ABOUT_EQUAL
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(share: u32, in_flight: u32) -> u32 {
        Offer { share, in_flight }.rank()
    }

    #[test]
    fn the_fullest_budget_is_better_then_the_least_busy() {
        assert!(rank(20, 9) > rank(10, 0));
        assert!(rank(20, 1) > rank(20, 2));
        assert!(rank(0, u32::MAX) > 0 && rank(WHOLE, 0) > rank(WHOLE, 5_000));
        assert_eq!([0, 17, WHOLE].map(|share| share_of(rank(share, 3))), [0, 17, WHOLE]);
    }

    #[test]
    fn the_preferred_account_is_taken_when_it_is_about_as_good() {
        assert!(is_about_as_good(2_501, 10_000));
        assert!(!is_about_as_good(2_500, 10_000));
        assert!(is_about_as_good(100, 1_000));
        assert!(!is_about_as_good(100, 1_100));
    }
}
