//! How room is shared that anybody may fill: nobody holds more of it than is free.
//!
//! One client alone can have half of the room, the next one half of the rest, and who holds nothing finds room as long as there is any: whoever holds most is refused
//! first. Left out: what the room is made of.

/// Whether somebody who holds so much may take more, where this much is free.
#[must_use]
pub const fn may_take(held: u64, wanted: u64, free: u64) -> bool {
    held.saturating_add(wanted) <= free
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_alone_has_half_and_the_next_half_of_the_rest() {
        let mut free = 100;
        let mut shares = Vec::new();
        for _ in 0..4 {
            let mut held = 0;
            while may_take(held, 1, free) {
                held += 1;
                free -= 1;
            }
            shares.push(held);
        }
        assert_eq!(shares, [50, 25, 13, 6]);
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
                prop_assert!(held.iter().all(|held| *held <= room.div_ceil(2)));
                prop_assert!(free == 0 || may_take(0, 1, free));
            }
        }
    }
}
