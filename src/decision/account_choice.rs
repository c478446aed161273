//! Which of the accounts that may carry a request carries it.
//!
//! The one with the most left of its budget, as a share of its limit after leases and reserve, so that a pool empties evenly. A budget of
//! which nothing is known counts as whole: the request finds it out at no extra price, and cold accounts are probed side by side, one
//! request each, instead of all askers waiting behind one probe. A known budget is better than an unknown one only when it is as whole, or
//! when its account is the preferred one.
//!
//! The preferred account, owner of an `ETag`, turns a fetch into a free 304; it is taken when it is about as good as the best: while more
//! than a quarter of its budget is left, or less than a tenth of the limit lies between the two.

use super::budget::WHOLE;
use super::demand::AccountId;

/// A share of this and more is good enough for the preferred account. Ours: a free 304 is worth more than an even pool, until the
/// account is needed for what only it can do.
const PREFERRED_FROM: u32 = WHOLE / 4;
/// A smaller difference of shares counts as none. Ours.
const ABOUT_EQUAL: u32 = WHOLE / 10;

/// An account that could carry the request now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) account: AccountId,
    /// What is left of its budget, in ten-thousandths.
    pub(super) share: u32,
    /// Requests it carries already.
    pub(super) in_flight: u32,
}

/// The better of two offers: the larger share, then the less busy, then the first in the config.
pub(super) fn better(one: Offer, other: Offer) -> Offer {
    let rank = |offer: &Offer| (offer.share, std::cmp::Reverse(offer.in_flight), std::cmp::Reverse(offer.account));
    if rank(&other) > rank(&one) { other } else { one }
}

/// Whether the preferred account's offer is about as good as the best one.
pub(super) fn is_about_as_good(preferred: Offer, best: Offer) -> bool {
    preferred.share > PREFERRED_FROM || best.share.saturating_sub(preferred.share) < ABOUT_EQUAL
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(account: u32, share: u32, in_flight: u32) -> Offer {
        Offer { account: AccountId(account), share, in_flight }
    }

    #[test]
    fn the_fullest_budget_is_taken_then_the_least_busy_then_the_first() {
        assert_eq!(better(offer(0, 10, 0), offer(1, 20, 9)).account, AccountId(1));
        assert_eq!(better(offer(0, 20, 2), offer(1, 20, 1)).account, AccountId(1));
        assert_eq!(better(offer(1, 20, 1), offer(0, 20, 1)).account, AccountId(0));
    }

    #[test]
    fn the_preferred_account_is_taken_when_it_is_about_as_good() {
        assert!(is_about_as_good(offer(0, 2_501, 0), offer(1, 10_000, 0)));
        assert!(!is_about_as_good(offer(0, 2_500, 0), offer(1, 10_000, 0)));
        assert!(is_about_as_good(offer(0, 100, 0), offer(1, 1_000, 0)));
        assert!(!is_about_as_good(offer(0, 100, 0), offer(1, 1_100, 0)));
    }
}
