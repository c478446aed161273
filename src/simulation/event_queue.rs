//! Events in the order of their virtual time; events of one moment keep the order of their
//! insertion.

use std::collections::BTreeMap;

use crate::clock::Timestamp;

#[derive(Debug)]
pub struct EventQueue<E> {
    /// By time and by number of insertion.
    events: BTreeMap<(Timestamp, u64), E>,
    next: u64,
}

impl<E> EventQueue<E> {
    pub fn new() -> Self {
        Self { events: BTreeMap::new(), next: 0 }
    }

    pub fn put(&mut self, at: Timestamp, event: E) {
        self.events.insert((at, self.next), event);
        self.next += 1;
    }

    /// Takes the next event, unless it comes at `end` or later.
    pub fn take_before(&mut self, end: Timestamp) -> Option<(Timestamp, E)> {
        let first = self.events.first_entry().filter(|first| first.key().0 < end)?;
        let ((at, _), event) = first.remove_entry();
        Some((at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_by_insertion() {
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
