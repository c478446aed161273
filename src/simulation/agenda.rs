//! What happens next: events in the order of their virtual time, those of one moment in the order
//! in which they were put down.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::clock::Timestamp;

/// The events to come.
#[derive(Debug)]
pub struct Agenda<E> {
    slots: BinaryHeap<Reverse<Slot<E>>>,
    next: u64,
}

#[derive(Debug)]
struct Slot<E> {
    at: Timestamp,
    place: u64,
    event: E,
}

impl<E> Agenda<E> {
    /// Nothing is to come.
    pub fn new() -> Self {
        Self { slots: BinaryHeap::new(), next: 0 }
    }

    /// Puts an event down.
    pub fn put(&mut self, at: Timestamp, event: E) {
        self.slots.push(Reverse(Slot { at, place: self.next, event }));
        self.next += 1;
    }

    /// Takes the next event, unless it comes at `end` or later.
    pub fn take_before(&mut self, end: Timestamp) -> Option<(Timestamp, E)> {
        if self.slots.peek().is_none_or(|Reverse(slot)| slot.at >= end) {
            return None;
        }
        self.slots.pop().map(|Reverse(slot)| (slot.at, slot.event))
    }
}

impl<E> PartialEq for Slot<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.place) == (other.at, other.place)
    }
}

impl<E> Eq for Slot<E> {}

impl<E> PartialOrd for Slot<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Slot<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.place).cmp(&(other.at, other.place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_those_of_one_moment_as_they_were_put_down() {
        let mut agenda = Agenda::new();
        for (at, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (3, 'b'), (9, 'e')] {
            agenda.put(Timestamp::from_secs(at), event);
        }
        let taken: String = std::iter::from_fn(|| agenda.take_before(Timestamp::from_secs(9)))
            .map(|(_, event)| event)
            .collect();
        assert_eq!(taken, "abcd");
    }
}
