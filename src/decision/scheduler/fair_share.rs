//! The share of one client in a common capacity: a client may grow only while it holds at most 15
//! times the free capacity.
//!
//! A single client can hold fifteen sixteenths of the capacity, or all of a small one; the next
//! client as much of the rest. A client that holds nothing gets a place while one is free, and the
//! largest holder is denied first.

/// Ours: nearly all that the config promises to a single client, and hundreds of places for others
/// beside a client that floods the queue.
pub(super) const TIMES_FREE: u64 = 15;

/// Returns true when a holder of `held` units may take `wanted` of the `free` units.
#[must_use]
pub const fn may_take(held: u64, wanted: u64, free: u64) -> bool {
    may_take_within(TIMES_FREE, held, wanted, free)
}

/// The same while the holder has at most `times` the free units.
#[must_use]
pub(super) const fn may_take_within(times: u64, held: u64, wanted: u64, free: u64) -> bool {
    wanted <= free && held <= free.saturating_mul(times)
}

/// Number of the `free` units that a holder of `held` may still take one by one.
#[must_use]
pub(super) const fn open_within(times: u64, held: u64, free: u64) -> u64 {
    match free.saturating_mul(times).checked_sub(held) {
        Some(left) if left / (times + 1) < free => left / (times + 1) + 1,
        Some(_) => free,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_client_gets_nearly_all_of_the_remaining_capacity() {
        let mut free = 10_000;
        let mut shares = Vec::new();
        for _ in 0..4 {
            let mut held = 0;
            while may_take(held, 1, free) {
                held += 1;
                free -= 1;
            }
            shares.push(held);
        }
        assert_eq!(shares, [9_376, 586, 36, 2]);
    }

    #[test]
    fn one_client_can_fill_a_small_capacity() {
        for room in 1..=16 {
            assert!((0..room).all(|held| may_take(held, 1, room - held)) && !may_take(room, 1, 0));
        }
    }

    proptest! {
        #[test]
        fn the_units_open_to_a_holder_are_those_that_it_gets(times in 1_u64..20, held in 0_u64..2_000, free in 0_u64..2_000) {
            let gets = (0..free).take_while(|taken| may_take_within(times, held + taken, 1, free - taken));
            prop_assert_eq!(open_within(times, held, free), gets.count() as u64);
        }

        #[test]
        fn a_client_without_units_always_gets_a_free_one(takers in prop::collection::vec(0_usize..5, 0..300), room in 1_u64..100) {
            let (mut held, mut free) = ([0_u64; 5], room);
            for taker in takers {
                if may_take(held[taker], 1, free) {
                    held[taker] += 1;
                    free -= 1;
                }
                prop_assert!(free == 0 || may_take(0, 1, free));
            }
        }
    }
}
