//! How room is shared that anybody may fill: who holds fifteen times what is free takes no more.
//!
//! One client alone can have fifteen sixteenths of the room, or all of a small one, the next one as
//! much of the rest, and who holds nothing finds room as long as there is any: whoever holds most
//! is refused first. Removed out: what the room is made of.

/// Ours: nearly all that the config promises for a client that is alone, and hundreds of places for
/// others beside one that floods the queue.
const TIMES_FREE: u64 = 15;

/// Whether somebody who holds so much may take more, where this much is free.
#[must_use]
pub const fn may_take(held: u64, wanted: u64, free: u64) -> bool {
    wanted <= free && held <= free.saturating_mul(TIMES_FREE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_alone_has_nearly_all_and_the_next_nearly_all_of_the_rest() {
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
    fn a_small_room_can_be_filled_by_one() {
        for room in 1..=16 {
            assert!((0..room).all(|held| may_take(held, 1, room - held)) && !may_take(room, 1, 0));
        }
    }

    proptest! {
        #[test]
        fn whoever_holds_nothing_finds_room_as_long_as_there_is_any(takers in prop::collection::vec(0_usize..5, 0..300), room in 1_u64..100) {
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
