//! The counts of writes by state, and the age of the oldest unfinished write.
//!
//! Updated on each change, because a scrape must not walk a million finished writes.

use std::collections::BTreeSet;

use crate::clock::Timestamp;
use crate::writes::WriteState;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// In the order of [`WriteState::ALL`].
    counts: [u64; WriteState::ALL.len()],
    unfinished: BTreeSet<(Timestamp, u64)>,
}

impl Counts {
    pub fn add(&mut self, number: u64, since: Timestamp, state: WriteState) {
        self.count_of(state, |count| count.saturating_add(1));
        if !state.is_final() {
            self.unfinished.insert((since, number));
        }
    }

    pub fn remove(&mut self, number: u64, since: Timestamp, state: WriteState) {
        self.count_of(state, |count| count.saturating_sub(1));
        self.unfinished.remove(&(since, number));
    }

    pub fn change(&mut self, number: u64, since: Timestamp, from: WriteState, to: WriteState) {
        if from != to {
            self.remove(number, since, from);
            self.add(number, since, to);
        }
    }

    /// Removes a finished write, which has no time here.
    pub fn forget(&mut self, state: WriteState) {
        self.count_of(state, |count| count.saturating_sub(1));
    }

    pub fn counts(&self) -> [(WriteState, u64); WriteState::ALL.len()] {
        let mut counts = WriteState::ALL.map(|state| (state, 0));
        for ((_, told), count) in counts.iter_mut().zip(self.counts) {
            *told = count;
        }
        counts
    }

    /// The acceptance time of the oldest unfinished write.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.unfinished.first().map(|(since, _)| *since)
    }

    fn count_of(&mut self, state: WriteState, change: impl FnOnce(u64) -> u64) {
        let place = WriteState::ALL.iter().position(|other| *other == state);
        if let Some(count) = place.and_then(|place| self.counts.get_mut(place)) {
            *count = change(*count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn the_oldest_is_the_one_that_has_waited_longest_whatever_its_number() {
        let mut counts = Counts::default();
        for (number, since) in [(7, 300), (8, 200), (9, 400)] {
            counts.add(number, at(since), WriteState::Queued);
        }
        assert_eq!(counts.oldest(), Some(at(200)));
        counts.change(8, at(200), WriteState::Queued, WriteState::Sending);
        assert_eq!(
            counts.oldest(),
            Some(at(200)),
            "one that is being sent has not come to its end"
        );
        counts.change(8, at(200), WriteState::Sending, WriteState::Unknown);
        assert_eq!(counts.oldest(), Some(at(300)));
        counts.remove(7, at(300), WriteState::Queued);
        counts.remove(9, at(400), WriteState::Queued);
        assert_eq!(counts.oldest(), None);
        assert_eq!(counts.counts().map(|(_, count)| count), [0, 0, 0, 0, 1, 0]);
        counts.forget(WriteState::Unknown);
        assert_eq!(counts, Counts::default());
    }

    #[test]
    fn no_change_is_no_change() {
        let mut counts = Counts::default();
        counts.add(1, at(5), WriteState::Sending);
        let before = counts.clone();
        counts.change(1, at(5), WriteState::Sending, WriteState::Sending);
        assert_eq!(counts, before);
    }
}
