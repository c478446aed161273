//! The deadlines of a number of waiting requests, the earliest first. Those that have left are dropped when they come to the front, or when they are the most.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::clock::Timestamp;
use crate::decision::demand::Ticket;

/// Ours: below this, what has left is not worth a pass over all.
const TIDY_FROM: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Deadlines(BinaryHeap<Reverse<(Timestamp, Ticket)>>);

impl Deadlines {
    pub(super) fn push(&mut self, deadline: Timestamp, ticket: Ticket) {
        self.0.push(Reverse((deadline, ticket)));
    }

    /// The earliest of those who wait still.
    pub(super) fn first(&mut self, waits: impl Fn(Ticket) -> bool) -> Option<(Timestamp, Ticket)> {
        while let Some(Reverse((deadline, ticket))) = self.0.peek().copied() {
            if waits(ticket) {
                return Some((deadline, ticket));
            }
            self.0.pop();
        }
        None
    }

    /// The first entry, which waits still if [`Deadlines::first`] was called after the last change.
    pub(super) fn peek(&self) -> Option<(Timestamp, Ticket)> {
        self.0.peek().map(|Reverse(first)| *first)
    }

    /// Somebody has left, and so many wait still.
    pub(super) fn tidy(&mut self, waiting: usize, waits: impl Fn(Ticket) -> bool) {
        if self.0.len() > 2 * waiting + TIDY_FROM {
            self.0.retain(|Reverse((_, ticket))| waits(*ticket));
        }
    }

    /// How many of these wait still.
    pub(super) fn count(&self, waits: impl Fn(Ticket) -> bool) -> usize {
        self.0.iter().filter(|Reverse((_, ticket))| waits(*ticket)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_of_those_who_wait_comes_first_and_the_others_take_no_room() {
        let mut deadlines = Deadlines::default();
        for number in 0..1_000 {
            deadlines.push(Timestamp::from_secs(1_000 - number), Ticket(number));
        }
        let waits = |ticket: Ticket| ticket.0 < 10;
        assert_eq!(deadlines.first(waits), Some((Timestamp::from_secs(991), Ticket(9))));
        deadlines.tidy(10, waits);
        assert_eq!(deadlines.0.len(), 10);
        assert_eq!(deadlines.first(|_| false), None);
    }
}
