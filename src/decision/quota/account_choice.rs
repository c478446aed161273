//! The choice among the accounts that may send a request.
//!
//! The account with the largest remaining share of its limit, after leases and reserve, sends the
//! request, so a pool empties evenly. An unknown budget counts as whole: the request reveals it at
//! no extra cost. Unknown accounts are probed side by side, one request each. A known budget beats
//! an unknown one only when it is whole too, or when its account is preferred.
//!
//! The preferred account owns an `ETag` and turns a fetch into a free 304. It is chosen when it is
//! about as good as the best: more than a quarter of its budget is left, or the shares differ by
//! less than a tenth.

use super::limits::primary::WHOLE;

/// Share from which the preferred account is good enough. Ours: a free 304 is worth more than an
/// even pool, until the account is needed for requests that only it can send.
const PREFERRED_FROM: u32 = WHOLE / 4;
/// Difference of shares that counts as none. Ours.
const ABOUT_EQUAL: u32 = WHOLE / 10;
/// More requests in flight make no difference: no documented account may have a tenth of it
/// (SPECIFICATION, "Secondary rate limits").
const IN_FLIGHT_MAX: u32 = (1 << IN_FLIGHT_BITS) - 1;
const IN_FLIGHT_BITS: u32 = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Remaining part of its budget, in ten-thousandths.
    pub share: u32,
    pub in_flight: u32,
}

impl Offer {
    /// Rank for comparisons, never 0: the larger share first, then the less busy account. Among
    /// equals the first in the list is chosen.
    pub fn rank(self) -> u32 {
        ((self.share + 1) << IN_FLIGHT_BITS) | (IN_FLIGHT_MAX - self.in_flight.min(IN_FLIGHT_MAX))
    }
}

pub const fn share_of(rank: u32) -> u32 {
    (rank >> IN_FLIGHT_BITS).saturating_sub(1)
}

/// Returns true when the preferred account's share is about as good as the best.
pub fn is_about_as_good(preferred: u32, best: u32) -> bool {
    preferred > PREFERRED_FROM || best.saturating_sub(preferred) < ABOUT_EQUAL
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(share: u32, in_flight: u32) -> u32 {
        Offer { share, in_flight }.rank()
    }

    #[test]
    fn the_fullest_budget_ranks_first_then_the_least_busy() {
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
