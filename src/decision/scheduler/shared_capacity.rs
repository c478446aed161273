//! A capacity that clients share, and each client's connections within it ([`fair_share`]).
//!
//! A holder takes units as it needs them. Nothing is reserved ahead, so that an announcement keeps
//! nobody out.
//!
//! [`fair_share`]: super::fair_share

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use super::fair_share::{TIMES_FREE, may_take, may_take_within, open_within};

/// A client and its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// Index of the client in the config.
    pub client: u32,
    /// Number of the connection.
    pub connection: u64,
}

/// A capacity, and the units that each holder has of it.
#[derive(Debug)]
pub struct SharedCapacity {
    units: u64,
    /// A client may have this many times what is free.
    times_free: u64,
    taken: u64,
    by_client: HashMap<u32, u64>,
    by_connection: HashMap<Holder, u64>,
}

impl SharedCapacity {
    /// A capacity of `units`, all of them free.
    pub fn new(units: u64) -> Self {
        let (by_client, by_connection) = (HashMap::new(), HashMap::new());
        Self { units, times_free: TIMES_FREE, taken: 0, by_client, by_connection }
    }

    /// A capacity for clients that anybody may be: one of them holds half of it at most.
    pub fn halved(units: u64) -> Self {
        Self { times_free: 1, ..Self::new(units) }
    }

    /// Changes the capacity. Holders keep what they have, perhaps more than is left.
    pub fn resize(&mut self, units: u64) {
        self.units = units;
    }

    /// Takes units for a holder, or none: the rest belongs to other clients or connections.
    pub fn take(&mut self, holder: Holder, wanted: u64) -> bool {
        let free = self.units.saturating_sub(self.taken);
        let held = |held: Option<&u64>| held.copied().unwrap_or_default();
        let by_client = held(self.by_client.get(&holder.client));
        let by_connection = held(self.by_connection.get(&holder));
        let open = open_within(self.times_free, by_client, free);
        let is_fair = may_take_within(self.times_free, by_client, wanted, free)
            && may_take(by_connection, wanted, open);
        if is_fair {
            self.taken += wanted;
            *self.by_client.entry(holder.client).or_default() += wanted;
            *self.by_connection.entry(holder).or_default() += wanted;
        }
        is_fair
    }

    /// The units that all holders have.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Gives units of a holder back.
    pub fn give_back(&mut self, holder: Holder, units: u64) {
        self.taken = self.taken.saturating_sub(units);
        reduce(&mut self.by_client, holder.client, units);
        reduce(&mut self.by_connection, holder, units);
    }
}

fn reduce<K: Eq + Hash>(held: &mut HashMap<K, u64>, key: K, units: u64) {
    if let Entry::Occupied(mut held) = held.entry(key) {
        *held.get_mut() = held.get().saturating_sub(units);
        if *held.get() == 0 {
            held.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn holder(client: u32, connection: u64) -> Holder {
        Holder { client, connection }
    }

    /// Takes single units as long as it may, and counts them.
    fn fill(capacity: &mut SharedCapacity, holder: Holder) -> u64 {
        (0..capacity.units).take_while(|_| capacity.take(holder, 1)).count() as u64
    }

    #[test]
    fn a_connection_gets_most_of_what_its_client_may_have() {
        let mut capacity = SharedCapacity::new(256 * 1024);
        let shares: Vec<_> =
            (0..3).map(|connection| fill(&mut capacity, holder(1, connection))).collect();
        assert_eq!(shares, [230_401, 14_401, 900]);
        assert_eq!(fill(&mut capacity, holder(2, 9)), 14_452, "beside a client at its share");
    }

    #[test]
    fn a_client_of_a_halved_capacity_leaves_half_of_the_rest() {
        let mut capacity = SharedCapacity::halved(128 * 1024);
        let flood = (0..100).map(|connection| fill(&mut capacity, holder(1, connection)));
        assert_eq!(flood.sum::<u64>(), 65_537);
        assert_eq!(fill(&mut capacity, holder(2, 200)), 30_721);
    }

    #[test]
    fn one_connection_can_fill_a_small_capacity() {
        for units in 1..=15 {
            assert_eq!(fill(&mut SharedCapacity::new(units), holder(1, 1)), units);
        }
    }

    #[test]
    fn units_given_back_are_free_again() {
        let mut capacity = SharedCapacity::new(100);
        assert!(capacity.take(holder(1, 1), 80));
        assert!(!capacity.take(holder(2, 2), 30));
        capacity.give_back(holder(1, 1), 80);
        assert!(capacity.take(holder(2, 2), 30));
        capacity.give_back(holder(2, 2), 30);
        assert!(capacity.by_client.is_empty() && capacity.by_connection.is_empty());
    }

    #[test]
    fn a_smaller_capacity_waits_for_its_holders() {
        let mut capacity = SharedCapacity::new(100);
        assert!(capacity.take(holder(1, 1), 60));
        capacity.resize(50);
        assert!(!capacity.take(holder(2, 2), 1));
        capacity.give_back(holder(1, 1), 60);
        assert!(capacity.take(holder(2, 2), 40));
    }

    proptest! {
        #[test]
        fn a_new_client_always_gets_a_free_unit(takers in prop::collection::vec((0_u32..4, 0_u64..4, 1_u64..5), 0..300), units in 1_u64..200) {
            let mut capacity = SharedCapacity::new(units);
            for (client, connection, wanted) in takers {
                capacity.take(holder(client, connection), wanted);
                prop_assert!(capacity.taken <= units);
                if capacity.taken < units {
                    prop_assert!(capacity.take(holder(9, 9), 1));
                    capacity.give_back(holder(9, 9), 1);
                }
            }
        }
    }
}
