//! A queue of which only the first entry is read. Stale entries are dropped when they come to the
//! front, or when they are the majority.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// Ours: below this, stale entries are not worth a pass over all.
pub const TIDY_FROM: usize = 64;
/// Entries kept per valid entry before stale ones are dropped: a pass then drops three of four.
/// Ours.
pub const KEPT: usize = 4;

/// The first entry is stored inline: most queues have no other.
#[derive(Debug)]
pub struct RankQueue<T> {
    first: Option<T>,
    behind: BinaryHeap<Reverse<T>>,
}

impl<T: Copy + Ord> RankQueue<T> {
    pub fn empty() -> Self {
        Self { first: None, behind: BinaryHeap::new() }
    }

    /// First entry, valid if [`RankQueue::clean`] was called after the last change.
    pub fn first(&self) -> Option<T> {
        self.first
    }

    pub fn push(&mut self, one: T) {
        match &mut self.first {
            None => self.first = Some(one),
            Some(first) if one < *first => self.behind.push(Reverse(std::mem::replace(first, one))),
            Some(_) => self.behind.push(Reverse(one)),
        }
    }

    pub fn replace_first(&mut self, by: Option<T>) {
        let Some(one) = by else {
            self.first = self.behind.pop().map(|Reverse(next)| next);
            return;
        };
        self.first = Some(match self.behind.peek_mut() {
            Some(mut next) if next.0 < one => std::mem::replace(&mut *next, Reverse(one)).0,
            _ => one,
        });
    }

    pub fn clean(&mut self, is_in: impl Fn(T) -> bool) {
        while self.first.is_some_and(|first| !is_in(first)) {
            self.first = self.behind.peek_mut().map(|next| PeekMut::pop(next).0);
        }
    }

    /// Drops stale and duplicate entries when they are the majority; `count` entries are valid.
    pub fn tidy(&mut self, count: usize, is_in: impl Fn(T) -> bool) {
        if self.behind.len() > KEPT * count + TIDY_FROM {
            let mut all = std::mem::take(&mut self.behind).into_vec();
            all.retain(|Reverse(one)| is_in(*one));
            all.sort_unstable();
            all.dedup();
            self.behind = all.into();
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = T> {
        self.first.iter().chain(self.behind.iter().map(|Reverse(one)| one)).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares with a `BTreeSet`. 0: insert; 1: the first leaves; 2: the first leaves and
        /// another comes; 3: any leaves.
        #[test]
        fn the_first_valid_entry_is_found(steps in prop::collection::vec((0_u8..4, 0_u32..50), 1..300)) {
            let (mut queue, mut plain) = (RankQueue::empty(), BTreeSet::new());
            for (step, number) in steps {
                match (step, plain.first().copied()) {
                    (1, Some(first)) => {
                        plain.remove(&first);
                        queue.replace_first(None);
                    }
                    (2, Some(first)) => {
                        plain.remove(&first);
                        plain.insert(number);
                        queue.replace_first(Some(number));
                    }
                    (3, _) => {
                        plain.remove(&number);
                    }
                    _ if plain.insert(number) => queue.push(number),
                    _ => {}
                }
                queue.clean(|one| plain.contains(&one));
                queue.tidy(plain.len(), |one| plain.contains(&one));
                prop_assert_eq!(queue.first(), plain.first().copied());
                prop_assert!(queue.iter().count() <= KEPT * plain.len() + TIDY_FROM + 1);
            }
        }
    }
}
