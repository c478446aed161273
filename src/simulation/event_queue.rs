//! Events in the order of their virtual time; events of one moment keep the order of their
//! insertion.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::clock::Timestamp;

#[derive(Debug)]
pub struct EventQueue<E> {
    heap: BinaryHeap<Reverse<Scheduled<E>>>,
    next: u64,
}

#[derive(Debug)]
struct Scheduled<E> {
    at: Timestamp,
    sequence: u64,
    event: E,
}

impl<E> EventQueue<E> {
    pub fn new() -> Self {
        Self { heap: BinaryHeap::new(), next: 0 }
    }

    pub fn put(&mut self, at: Timestamp, event: E) {
        self.heap.push(Reverse(Scheduled { at, sequence: self.next, event }));
        self.next += 1;
    }

    /// Takes the next event, unless it comes at `end` or later.
    pub fn take_before(&mut self, end: Timestamp) -> Option<(Timestamp, E)> {
        if self.heap.peek().is_none_or(|Reverse(slot)| slot.at >= end) {
            return None;
        }
        self.heap.pop().map(|Reverse(slot)| (slot.at, slot.event))
    }
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}

impl<E> Eq for Scheduled<E> {}

impl<E> PartialOrd for Scheduled<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Scheduled<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_those_of_one_moment_as_they_were_put_down() {
        let mut event_queue = EventQueue::new();
        for (at, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (3, 'b'), (9, 'e')] {
            event_queue.put(Timestamp::from_secs(at), event);
        }
        let taken: String = std::iter::from_fn(|| event_queue.take_before(Timestamp::from_secs(9)))
            .map(|(_, event)| event)
            .collect();
        assert_eq!(taken, "abcd");
    }
}
