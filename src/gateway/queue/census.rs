//! How many writes are in each state, and since when those wait that have not come to their end.
//!
//! Kept as states change, because a scrape must not walk a million finished writes. Left out: which writes these are.

use std::collections::BTreeSet;

use crate::clock::Timestamp;
use crate::writes::State;

/// The figures of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Census {
    /// In the order of [`State::ALL`].
    counts: [u64; State::ALL.len()],
    unfinished: BTreeSet<(Timestamp, u64)>,
}

impl Census {
    /// A write is there, since this time.
    pub(super) fn add(&mut self, number: u64, since: Timestamp, state: State) {
        self.count_of(state, |count| count.saturating_add(1));
        if !state.is_final() {
            self.unfinished.insert((since, number));
        }
    }

    /// It is no more.
    pub(super) fn remove(&mut self, number: u64, since: Timestamp, state: State) {
        self.count_of(state, |count| count.saturating_sub(1));
        self.unfinished.remove(&(since, number));
    }

    /// It is in another state.
    pub(super) fn change(&mut self, number: u64, since: Timestamp, from: State, to: State) {
        if from != to {
            self.remove(number, since, from);
            self.add(number, since, to);
        }
    }

    /// One of the past, whose time does not matter any more, is no more.
    pub(super) fn forget(&mut self, state: State) {
        self.count_of(state, |count| count.saturating_sub(1));
    }

    /// How many are in each state.
    pub(super) fn counts(&self) -> [(State, u64); State::ALL.len()] {
        let mut counts = State::ALL.map(|state| (state, 0));
        for ((_, told), count) in counts.iter_mut().zip(self.counts) {
            *told = count;
        }
        counts
    }

    /// Since when the oldest waits that has not come to its end.
    pub(super) fn oldest(&self) -> Option<Timestamp> {
        self.unfinished.first().map(|(since, _)| *since)
    }

    fn count_of(&mut self, state: State, change: impl FnOnce(u64) -> u64) {
        let place = State::ALL.iter().position(|other| *other == state);
        if let Some(count) = place.and_then(|place| self.counts.get_mut(place)) {
            *count = change(*count);
        }
    }
}
