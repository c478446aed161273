//! Lanes: the writes of one client to one resource run one after the other, in order of arrival
//! (SPECIFICATION D7; "Promises" 4).
//!
//! A lane only knows the order. The secondary limits keep the distance between the writes of an
//! account, and [`crate::decision::retry`] decides after a failure.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use crate::decision::scheduler::fair_share::may_take;
use crate::decision::silence::Silence;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LaneKey {
    /// Index of the client in the config.
    pub client: u32,
    pub resource: String,
}

/// Place in a lane; ends with [`Lanes::leave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneTicket(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LanePosition {
    Head,
    /// Behind other writes; [`Lanes::leave`] of the one before returns its ticket.
    Behind,
}

/// The lanes are full, or the client's part is ([`crate::decision::scheduler::fair_share`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many writes wait for their turn")]
pub struct LanesFull;

#[derive(Debug, Default)]
struct Lane {
    tickets: BTreeSet<LaneTicket>,
    /// Its writes that are performed.
    silence: Silence,
}

/// All lanes. A lane exists while it has a write.
#[derive(Debug)]
pub struct Lanes {
    tickets_max: usize,
    next_ticket: u64,
    by_key: HashMap<Arc<LaneKey>, Lane>,
    tickets: HashMap<LaneTicket, Arc<LaneKey>>,
    by_client: HashMap<u32, usize>,
}

impl Lanes {
    pub fn new(tickets_max: usize) -> Self {
        Self {
            tickets_max,
            next_ticket: 0,
            by_key: HashMap::new(),
            tickets: HashMap::new(),
            by_client: HashMap::new(),
        }
    }

    /// Joins the end of a lane.
    pub fn enter(&mut self, key: LaneKey) -> Result<(LaneTicket, LanePosition), LanesFull> {
        let held = self.by_client.get(&key.client).copied().unwrap_or_default();
        let free = self.tickets_max.saturating_sub(self.tickets.len());
        if !may_take(held as u64, 1, free as u64) {
            return Err(LanesFull);
        }
        Ok(self.readmit(key))
    }

    /// Joins a lane with a write that was accepted earlier, beyond the capacity if need be.
    pub fn readmit(&mut self, key: LaneKey) -> (LaneTicket, LanePosition) {
        let ticket = LaneTicket(self.next_ticket);
        self.next_ticket += 1;
        *self.by_client.entry(key.client).or_default() += 1;
        let key = self
            .by_key
            .get_key_value(&key)
            .map_or_else(|| Arc::new(key), |(shared, _)| Arc::clone(shared));
        let lane = self.by_key.entry(Arc::clone(&key)).or_default();
        lane.tickets.insert(ticket);
        let place = if lane.tickets.len() == 1 { LanePosition::Head } else { LanePosition::Behind };
        self.tickets.insert(ticket, key);
        (ticket, place)
    }

    /// Leaves a lane from any position. Returns the new head, if the head has changed.
    pub fn leave(&mut self, ticket: LaneTicket) -> Option<LaneTicket> {
        let key = self.tickets.remove(&ticket)?;
        if let Entry::Occupied(mut held) = self.by_client.entry(key.client) {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
        let lane = self.by_key.get_mut(&key)?;
        let was_head = lane.tickets.first() == Some(&ticket);
        lane.tickets.remove(&ticket);
        let head = lane.tickets.first().copied();
        if head.is_none() {
            self.by_key.remove(&key);
        }
        head.filter(|_| was_head)
    }

    /// The answers to the writes of this lane.
    pub fn silence(&self, key: &LaneKey) -> Option<&Silence> {
        Some(&self.by_key.get(key)?.silence)
    }

    /// The same, to note what is performed.
    pub fn silence_mut(&mut self, key: &LaneKey) -> Option<&mut Silence> {
        Some(&mut self.by_key.get_mut(key)?.silence)
    }

    /// Number of writes before this one in its lane.
    pub fn ahead(&self, ticket: LaneTicket) -> usize {
        self.lane_of(ticket).map_or(0, |lane| lane.tickets.range(..ticket).count())
    }

    /// The writes behind this one in its lane.
    pub fn behind(&self, ticket: LaneTicket) -> impl Iterator<Item = LaneTicket> {
        let lane = self.lane_of(ticket).into_iter();
        let after = (Bound::Excluded(ticket), Bound::Unbounded);
        lane.flat_map(move |lane| lane.tickets.range(after).copied())
    }

    /// The clients with writes.
    pub fn clients(&self) -> impl Iterator<Item = u32> {
        self.by_client.keys().copied()
    }

    fn lane_of(&self, ticket: LaneTicket) -> Option<&Lane> {
        self.by_key.get(self.tickets.get(&ticket)?)
    }

    /// Number of writes in all lanes, heads included.
    pub fn len(&self) -> usize {
        self.tickets.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    impl Lanes {
        fn is_head(&self, ticket: LaneTicket) -> bool {
            self.lane_of(ticket).is_some_and(|lane| lane.tickets.first() == Some(&ticket))
        }
    }

    fn key(client: u32, resource: &str) -> LaneKey {
        LaneKey { client, resource: resource.to_owned() }
    }

    #[test]
    fn writes_of_one_client_to_one_resource_take_turns() {
        let mut lanes = Lanes::new(10);
        let (first, place) = lanes.enter(key(1, "/a")).unwrap();
        assert_eq!(place, LanePosition::Head);
        let (second, place) = lanes.enter(key(1, "/a")).unwrap();
        assert_eq!(place, LanePosition::Behind);
        assert_eq!((lanes.ahead(first), lanes.ahead(second)), (0, 1));
        assert_eq!(lanes.leave(first), Some(second));
        assert_eq!((lanes.ahead(first), lanes.ahead(second)), (0, 0));
        assert_eq!(lanes.leave(second), None);
        assert_eq!(lanes.len(), 0);
    }

    #[test]
    fn writes_of_other_clients_or_resources_do_not_wait() {
        let mut lanes = Lanes::new(10);
        assert_eq!(lanes.enter(key(1, "/a")).unwrap().1, LanePosition::Head);
        assert_eq!(lanes.enter(key(2, "/a")).unwrap().1, LanePosition::Head);
        assert_eq!(lanes.enter(key(1, "/b")).unwrap().1, LanePosition::Head);
    }

    #[test]
    fn a_write_that_leaves_the_middle_starts_no_other() {
        let mut lanes = Lanes::new(10);
        let (first, _) = lanes.enter(key(1, "/a")).unwrap();
        let (gone, _) = lanes.enter(key(1, "/a")).unwrap();
        let (third, _) = lanes.enter(key(1, "/a")).unwrap();
        assert_eq!(lanes.leave(gone), None);
        assert!(!lanes.is_head(third));
        assert_eq!(lanes.leave(first), Some(third));
        assert!(lanes.is_head(third));
    }

    #[test]
    fn a_second_leave_changes_nothing() {
        let mut lanes = Lanes::new(10);
        let (first, _) = lanes.enter(key(1, "/a")).unwrap();
        let (second, _) = lanes.enter(key(1, "/a")).unwrap();
        assert_eq!(lanes.leave(first), Some(second));
        assert_eq!(lanes.leave(first), None);
        assert!(lanes.is_head(second));
    }

    #[test]
    fn the_number_of_waiting_writes_is_bounded() {
        let mut lanes = Lanes::new(2);
        let (first, _) = lanes.enter(key(1, "/a")).unwrap();
        lanes.enter(key(2, "/b")).unwrap();
        assert_eq!(lanes.enter(key(3, "/c")), Err(LanesFull));
        lanes.leave(first);
        assert!(lanes.enter(key(3, "/c")).is_ok());
    }

    #[test]
    fn a_client_with_15_times_the_free_capacity_gets_no_more() {
        let mut lanes = Lanes::new(32);
        let tickets = [(); 31].map(|()| lanes.enter(key(1, "/a")).unwrap().0);
        assert_eq!(lanes.enter(key(1, "/b")), Err(LanesFull));
        assert!(lanes.enter(key(2, "/a")).is_ok());
        assert_eq!(lanes.enter(key(2, "/c")), Err(LanesFull), "there is no room");
        lanes.leave(tickets[0]);
        assert_eq!(
            lanes.enter(key(1, "/a")),
            Err(LanesFull),
            "the others want their part of what becomes free"
        );
        // Accepted earlier, with more capacity.
        lanes.readmit(key(1, "/a"));
        assert_eq!(lanes.len(), 32);
    }

    proptest! {
        /// Compares with a list per lane. True enters the lane of that number; false removes the
        /// entry at that position.
        #[test]
        fn every_lane_keeps_the_order_of_arrival(steps in prop::collection::vec((any::<bool>(), 0u32..4, any::<prop::sample::Index>()), 1..200)) {
            let mut lanes = Lanes::new(50);
            let mut model: BTreeMap<u32, Vec<LaneTicket>> = BTreeMap::new();
            for (enters, lane, place) in steps {
                let list = model.entry(lane).or_default();
                if enters {
                    if let Ok((ticket, place)) = lanes.enter(key(lane, "/a")) {
                        prop_assert_eq!(place == LanePosition::Head, list.is_empty());
                        list.push(ticket);
                    }
                } else if !list.is_empty() {
                    let place = place.index(list.len());
                    let expected = if place == 0 { list.get(1).copied() } else { None };
                    prop_assert_eq!(lanes.leave(list.remove(place)), expected);
                }
                prop_assert!(model.values().all(|list| list.iter().enumerate().all(|(place, ticket)| lanes.is_head(*ticket) == (place == 0))));
                prop_assert_eq!(lanes.len(), model.values().map(Vec::len).sum::<usize>());
            }
        }
    }
}
