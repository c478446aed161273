//! The counts of writes by state, the age of the oldest unfinished write, and the store usage of
//! each client.
//!
//! Updated on each change, because a scrape must not walk a million finished writes. Left out:
//! places in lanes, which are counted there.

use std::collections::{BTreeSet, HashMap};

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
        WriteState::ALL.map(|state| (state, self.counts[state as usize]))
    }

    /// The acceptance time of the oldest unfinished write.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.unfinished.first().map(|(since, _)| *since)
    }

    fn count_of(&mut self, state: WriteState, change: impl FnOnce(u64) -> u64) {
        let count = &mut self.counts[state as usize];
        *count = change(*count);
    }
}

/// The store usage by client, finished writes that are still kept included. A write counts with its
/// size at acceptance and at its end, without the small growth between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    by_client: HashMap<u32, UsageTotals>,
    all: UsageTotals,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageTotals {
    pub writes: u64,
    pub bytes: u64,
}

impl Usage {
    pub fn add(&mut self, client: u32, bytes: u32) {
        for totals in [&mut self.all, self.by_client.entry(client).or_default()] {
            totals.writes += 1;
            totals.bytes += u64::from(bytes);
        }
    }

    pub fn remove(&mut self, client: u32, bytes: u32) {
        let Some(own) = self.by_client.get_mut(&client) else { return };
        for totals in [&mut self.all, &mut *own] {
            totals.writes = totals.writes.saturating_sub(1);
            totals.bytes = totals.bytes.saturating_sub(u64::from(bytes));
        }
        // Clients come and go.
        if own.writes == 0 {
            self.by_client.remove(&client);
        }
    }

    pub fn of(&self, client: u32) -> UsageTotals {
        self.by_client.get(&client).copied().unwrap_or_default()
    }

    pub fn all(&self) -> UsageTotals {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn the_oldest_write_is_found_by_time_and_not_by_number() {
        let mut counts = Counts::default();
        for (number, since) in [(7, 300), (8, 200), (9, 400)] {
            counts.add(number, at(since), WriteState::Queued);
        }
        assert_eq!(counts.oldest(), Some(at(200)));
        counts.change(8, at(200), WriteState::Queued, WriteState::Sending);
        assert_eq!(counts.oldest(), Some(at(200)), "a write that is being sent is unfinished");
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
    fn a_change_to_the_same_state_changes_no_count() {
        let mut counts = Counts::default();
        counts.add(1, at(5), WriteState::Sending);
        let before = counts.clone();
        counts.change(1, at(5), WriteState::Sending, WriteState::Sending);
        assert_eq!(counts, before);
    }

    #[test]
    fn removed_writes_leave_no_usage() {
        let mut usage = Usage::default();
        for (client, bytes) in [(1, 10), (1, 20), (2, 5)] {
            usage.add(client, bytes);
        }
        assert_eq!(
            (usage.of(1), usage.all()),
            (UsageTotals { writes: 2, bytes: 30 }, UsageTotals { writes: 3, bytes: 35 })
        );
        usage.remove(1, 20);
        usage.remove(1, 10);
        assert_eq!(
            (usage.of(1), usage.of(2)),
            (UsageTotals::default(), UsageTotals { writes: 1, bytes: 5 })
        );
        usage.remove(2, 5);
        usage.remove(3, 5);
        assert_eq!(usage, Usage::default());
    }
}
