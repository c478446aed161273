//! The queued writes in progress: a number of each group at once, the oldest first (SPECIFICATION
//! D7).
//!
//! A group shares its obstacles: one client's writes against one budget. Writes in progress wait in
//! the scheduler, with its shares and limits. The others wait here, where a write costs one number
//! in a set. [`super::lanes`] keeps the order within a lane: only its head comes here.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::num::NonZeroUsize;

/// Queued writes at the head of their lanes.
#[derive(Debug)]
pub struct Dispatch<G> {
    at_once: NonZeroUsize,
    groups: HashMap<G, GroupQueue>,
    /// Writes that may start and that [`Dispatch::take_next`] has not returned yet.
    starting: VecDeque<(G, u64)>,
}

#[derive(Debug, Default)]
struct GroupQueue {
    ready: BTreeSet<u64>,
    under_way: usize,
}

impl<G: Clone + Eq + Hash> Dispatch<G> {
    /// Creates an empty dispatcher; `at_once` writes of each group may be in progress.
    pub fn new(at_once: NonZeroUsize) -> Self {
        Self { at_once, groups: HashMap::new(), starting: VecDeque::new() }
    }

    /// Adds a write that may start. Returns true when it starts at once.
    pub fn ready(&mut self, group: &G, number: u64) -> bool {
        self.groups.entry(group.clone()).or_default().ready.insert(number);
        self.start(group);
        self.groups.get(group).is_none_or(|entry| !entry.ready.contains(&number))
    }

    /// Returns the next write to start, with its group. It is in progress until
    /// [`Dispatch::ended`], even when the caller has nothing to start.
    pub fn take_next(&mut self) -> Option<(G, u64)> {
        self.starting.pop_front()
    }

    /// Ends a write of this group that was in progress.
    pub fn ended(&mut self, group: &G) {
        if let Some(entry) = self.groups.get_mut(group) {
            entry.under_way = entry.under_way.saturating_sub(1);
        }
        self.start(group);
    }

    /// Withdraws a ready write. Returns false when it has started, or was never ready.
    pub fn withdraw(&mut self, group: &G, number: u64) -> bool {
        // A write that is about to start has a place already.
        if let Some(place) = self.starting.iter().position(|(_, starting)| *starting == number) {
            self.starting.remove(place);
            self.ended(group);
            return true;
        }
        let is_here = self.groups.get_mut(group).is_some_and(|entry| entry.ready.remove(&number));
        self.start(group);
        is_here
    }

    fn start(&mut self, group: &G) {
        let Some(entry) = self.groups.get_mut(group) else { return };
        while entry.under_way < self.at_once.get()
            && let Some(number) = entry.ready.pop_first()
        {
            entry.under_way += 1;
            self.starting.push_back((group.clone(), number));
        }
        // Clients and budgets come and go.
        if entry.under_way == 0 && entry.ready.is_empty() {
            self.groups.remove(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn two_at_once() -> Dispatch<&'static str> {
        Dispatch::new(NonZeroUsize::new(2).unwrap())
    }

    #[test]
    fn the_oldest_ready_write_of_a_group_starts_next() {
        let mut dispatch = two_at_once();
        assert_eq!(
            [1, 2, 5, 4].map(|number| dispatch.ready(&"ci", number)),
            [true, true, false, false]
        );
        assert_eq!(
            [(); 3].map(|()| dispatch.take_next()),
            [Some(("ci", 1)), Some(("ci", 2)), None]
        );
        dispatch.ended(&"ci");
        assert_eq!((dispatch.take_next(), dispatch.take_next()), (Some(("ci", 4)), None));
    }

    #[test]
    fn groups_do_not_wait_for_each_other() {
        let mut dispatch = two_at_once();
        (1..=3).for_each(|number| assert_eq!(dispatch.ready(&"ci", number), number <= 2));
        assert!(dispatch.ready(&"other", 4));
        assert_eq!(
            [(); 4].map(|()| dispatch.take_next()),
            [Some(("ci", 1)), Some(("ci", 2)), Some(("other", 4)), None]
        );
    }

    #[test]
    fn a_withdrawn_write_is_not_started() {
        let mut dispatch = two_at_once();
        (1..=3).for_each(|number| assert_eq!(dispatch.ready(&"ci", number), number <= 2));
        dispatch.take_next();
        dispatch.take_next();
        assert!(
            dispatch.withdraw(&"ci", 3)
                && !dispatch.withdraw(&"ci", 1)
                && !dispatch.withdraw(&"ci", 9)
        );
        dispatch.ended(&"ci");
        assert_eq!(dispatch.take_next(), None);
        dispatch.ended(&"ci");
        assert!(dispatch.groups.is_empty());
    }

    #[test]
    fn a_write_withdrawn_before_its_start_frees_its_slot() {
        let mut dispatch = two_at_once();
        (1..=4).for_each(|number| assert_eq!(dispatch.ready(&"ci", number), number <= 2));
        assert!(dispatch.withdraw(&"ci", 1));
        assert_eq!(
            [(); 3].map(|()| dispatch.take_next()),
            [Some(("ci", 2)), Some(("ci", 3)), None]
        );
        dispatch.ended(&"ci");
        dispatch.ended(&"ci");
        assert!(dispatch.withdraw(&"ci", 4));
        assert!(dispatch.groups.is_empty() && dispatch.starting.is_empty());
    }

    proptest! {
        /// Compares with plain lists. 0: a write becomes ready; 1: a write in progress ends; 2: a
        /// ready write is withdrawn.
        #[test]
        fn the_dispatcher_runs_as_many_writes_as_permitted(steps in prop::collection::vec((0_u8..3, 0_u8..3), 1..200)) {
            let mut dispatch = Dispatch::new(NonZeroUsize::new(2).unwrap());
            let mut ready = vec![Vec::new(); 3];
            let mut under_way = [0_usize; 3];
            let mut group_of = HashMap::new();
            for (number, (step, group)) in (0_u64..).zip(steps) {
                let place = usize::from(group);
                match step {
                    0 => {
                        ready[place].push(number);
                        group_of.insert(number, place);
                        let _ = dispatch.ready(&group, number);
                    }
                    1 if under_way[place] > 0 => {
                        under_way[place] -= 1;
                        dispatch.ended(&group);
                    }
                    2 if !ready[place].is_empty() => {
                        let last = ready[place].pop().unwrap();
                        prop_assert!(dispatch.withdraw(&group, last));
                    }
                    _ => {}
                }
                while let Some((_, started)) = dispatch.take_next() {
                    let place = group_of[&started];
                    prop_assert_eq!(ready[place].remove(0), started);
                    under_way[place] += 1;
                }
                for place in 0..3 {
                    prop_assert!(under_way[place] <= 2 && (ready[place].is_empty() || under_way[place] == 2));
                }
            }
        }
    }
}
