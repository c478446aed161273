//! The deadlines of a number of waiting requests, the earliest first. Those that have left are dropped when they come to the front, or when they are the most.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::clock::Timestamp;
use crate::decision::demand::Ticket;

/// Ours: below this, what has left is not worth a pass over all.
const TIDY_FROM: usize = 64;
/// So many times as many as wait are kept before those that have left are looked for: a pass over all then finds three of four to drop. Ours.
const KEPT: usize = 4;

/// Most requests may wait equally long, so that deadlines come in the order in which they end: those need no heap.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    in_order: VecDeque<(Timestamp, Ticket)>,
    /// Those that were earlier than one before them.
    others: BinaryHeap<Reverse<(Timestamp, Ticket)>>,
}

impl Deadlines {
    pub(super) fn push(&mut self, deadline: Timestamp, ticket: Ticket) {
        if self.in_order.back().is_some_and(|(last, _)| deadline < *last) {
            self.others.push(Reverse((deadline, ticket)));
        } else {
            self.in_order.push_back((deadline, ticket));
        }
    }

    /// The earliest of those who wait still.
    pub(super) fn first(&mut self, waits: impl Fn(Ticket) -> bool) -> Option<(Timestamp, Ticket)> {
        while self.in_order.pop_front_if(|(_, ticket)| !waits(*ticket)).is_some() {}
        while let Some(Reverse((_, ticket))) = self.others.peek()
            && !waits(*ticket)
        {
            self.others.pop();
        }
        self.peek()
    }

    /// The first entry, which waits still if [`Deadlines::first`] was called after the last change.
    pub(super) fn peek(&self) -> Option<(Timestamp, Ticket)> {
        let first = self.in_order.front().copied();
        match self.others.peek() {
            None => first,
            Some(Reverse(other)) => Some(first.map_or(*other, |first| first.min(*other))),
        }
    }

    /// A ticket has left: dropped at once where that is cheap.
    pub(super) fn remove(&mut self, ticket: Ticket) {
        self.in_order.pop_front_if(|(_, first)| *first == ticket);
    }

    /// Somebody has left, and so many wait still.
    pub(super) fn tidy(&mut self, waiting: usize, waits: impl Fn(Ticket) -> bool) {
        if self.in_order.len() + self.others.len() > KEPT * waiting + TIDY_FROM {
            self.in_order.retain(|(_, ticket)| waits(*ticket));
            self.others.retain(|Reverse((_, ticket))| waits(*ticket));
        }
    }

    /// How many of these wait still.
    pub(super) fn count(&self, waits: impl Fn(Ticket) -> bool) -> usize {
        let others = self.others.iter().map(|Reverse((_, ticket))| ticket);
        self.in_order.iter().map(|(_, ticket)| ticket).chain(others).filter(|ticket| waits(**ticket)).count()
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
        for number in 1_000..2_000 {
            deadlines.push(Timestamp::from_secs(1_000 + number), Ticket(number));
        }
        let waits = |ticket: Ticket| ticket.0 < 10 || ticket.0 == 1_500;
        assert_eq!(deadlines.first(waits), Some((Timestamp::from_secs(991), Ticket(9))));
        deadlines.tidy(11, waits);
        assert_eq!((deadlines.in_order.len() + deadlines.others.len(), deadlines.count(waits)), (11, 11));
        assert_eq!(deadlines.first(|ticket| ticket.0 == 1_500), Some((Timestamp::from_secs(2_500), Ticket(1_500))));
        deadlines.remove(Ticket(1_500));
        assert_eq!(deadlines.first(|_| true), None);
    }
}
