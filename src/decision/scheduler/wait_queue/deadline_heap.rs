//! A heap of times, the earliest first. Stale entries are dropped when they come to the front, or
//! when they are the majority.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::rank_queue::{KEPT, TIDY_FROM};
use crate::clock::Timestamp;

/// Most requests may wait equally long, so their times come in order and need no heap.
#[derive(Debug)]
pub struct DeadlineHeap<T> {
    in_order: VecDeque<(Timestamp, T)>,
    /// Times earlier than one before them.
    others: BinaryHeap<Reverse<(Timestamp, T)>>,
}

impl<T: Ord> Default for DeadlineHeap<T> {
    fn default() -> Self {
        Self { in_order: VecDeque::new(), others: BinaryHeap::new() }
    }
}

impl<T: Copy + Ord> DeadlineHeap<T> {
    pub fn of(mut entries: Vec<(Timestamp, T)>) -> Self {
        entries.sort_unstable();
        entries.dedup();
        Self { in_order: entries.into(), others: BinaryHeap::new() }
    }

    pub fn push(&mut self, at: Timestamp, item: T) {
        if self.in_order.back().is_some_and(|(last, _)| at < *last) {
            self.others.push(Reverse((at, item)));
        } else {
            self.in_order.push_back((at, item));
        }
    }

    /// Drops stale entries from the front, so that [`DeadlineHeap::first`] is valid.
    pub fn clean(&mut self, waits: impl Fn(Timestamp, T) -> bool) {
        while self.in_order.pop_front_if(|(at, item)| !waits(*at, *item)).is_some() {}
        while let Some(Reverse((at, item))) = self.others.peek()
            && !waits(*at, *item)
        {
            self.others.pop();
        }
    }

    /// First entry, valid if [`DeadlineHeap::clean`] was called after the last change.
    pub fn first(&self) -> Option<(Timestamp, T)> {
        let first = self.in_order.front().copied();
        match self.others.peek() {
            None => first,
            Some(Reverse(other)) => Some(first.map_or(*other, |first| first.min(*other))),
        }
    }

    pub fn is_due(&self, now: Timestamp) -> bool {
        self.in_order.front().is_some_and(|(at, _)| *at <= now)
            || self.others.peek().is_some_and(|Reverse((at, _))| *at <= now)
    }

    /// Drops stale and duplicate entries when they are the majority; `waiting` entries are valid.
    pub fn tidy(&mut self, waiting: usize, waits: impl Fn(Timestamp, T) -> bool) {
        if self.in_order.len() + self.others.len() > KEPT * waiting + TIDY_FROM {
            *self = Self::of(self.iter().filter(|(at, item)| waits(*at, *item)).collect());
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (Timestamp, T)> {
        self.in_order.iter().copied().chain(self.others.iter().map(|Reverse(one)| *one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::types::Ticket;

    #[test]
    fn the_earliest_valid_deadline_comes_first() {
        let mut due = DeadlineHeap::default();
        for number in 0..1_000 {
            due.push(Timestamp::from_secs(1_000 - number), Ticket(number));
        }
        for number in 1_000..2_000 {
            due.push(Timestamp::from_secs(1_000 + number), Ticket(number));
        }
        let waits = |_, ticket: Ticket| ticket.0 < 10 || ticket.0 == 1_500;
        due.clean(waits);
        assert_eq!(due.first(), Some((Timestamp::from_secs(991), Ticket(9))));
        due.tidy(11, waits);
        assert_eq!(due.iter().count(), 11);
        due.clean(|_, ticket| ticket.0 == 1_500);
        assert_eq!(due.first(), Some((Timestamp::from_secs(2_500), Ticket(1_500))));
        due.clean(|_, _| false);
        assert_eq!(due.first(), None);
    }
}
