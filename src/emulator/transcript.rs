//! The record of every request, for tests that ask what really arrived.

use std::collections::VecDeque;

use serde::Serialize;

/// The oldest entries go when there are more.
const ENTRIES_MAX: usize = 200_000;

/// One request. Times and costs are the emulator's truth, whatever the answer's headers said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Sequence number, from 1.
    pub sequence: u64,
    /// Arrival, in milliseconds since the epoch.
    pub at_millis: u64,
    /// Arrival, ISO 8601.
    pub time: String,
    /// As sent.
    pub method: String,
    /// Path and query as sent.
    pub path: String,
    /// The route's template, or what stood in for one.
    pub endpoint: String,
    /// The name of the account that pays.
    pub account: String,
    /// Position in `/_emulator/world`'s `tokens`.
    pub token: Option<usize>,
    /// What the budget was for.
    pub resource: &'static str,
    /// Requests taken from the primary budget.
    pub cost: u32,
    /// Points taken from the secondary limit.
    pub points: u32,
    /// Status of the answer.
    pub status: u16,
    /// The validators sent: `none`, `etag`, `last-modified` or `both`.
    pub conditional: &'static str,
    /// Whether it was carried out: false when a limit refused it.
    pub executed: bool,
    /// Requests of this account in flight at arrival, this one not counted.
    pub concurrency: u32,
    /// Which limit refused it: `primary`, `concurrency`, `points`, `content`, `waiting` or `banned`.
    pub refused: Option<&'static str>,
}

/// The entries, oldest first.
#[derive(Debug, Default)]
pub struct Transcript {
    entries: VecDeque<Entry>,
}

impl Transcript {
    pub fn push(&mut self, entry: Entry) {
        if self.entries.len() >= ENTRIES_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    /// The newest.
    #[cfg(test)]
    pub fn last(&self) -> Option<&Entry> {
        self.entries.back()
    }

    /// Those with a higher sequence number.
    pub fn since(&self, sequence: u64) -> impl Iterator<Item = &Entry> {
        let from = self.entries.partition_point(|entry| entry.sequence <= sequence);
        self.entries.range(from..)
    }
}
