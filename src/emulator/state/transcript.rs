//! The transcript: a record of every request that arrived, for tests.

use std::collections::VecDeque;

use serde::Serialize;

/// The maximum; beyond it the oldest entries are dropped.
const ENTRIES_MAX: usize = 200_000;
/// Longer than any real method.
const METHOD_BYTES_MAX: usize = 32;
/// A longer path is truncated.
const PATH_BYTES_MAX: usize = 2_048;

/// One request. Times and costs are the emulator's own, whatever the response's headers said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Sequence number, from 1.
    pub sequence: u64,
    /// Arrival, in milliseconds since the epoch.
    pub at_millis: u64,
    /// Arrival, ISO 8601.
    pub time: String,
    /// Method as sent.
    pub method: String,
    /// Path and query as sent; very long ones are truncated.
    pub path: String,
    /// The route's template, or a substitute without a route.
    pub endpoint: String,
    /// The name of the account that pays.
    pub account: String,
    /// Position in `/_emulator/world`'s `tokens`.
    pub token: Option<usize>,
    /// The resource of the budget.
    pub resource: &'static str,
    /// Units charged to the primary budget.
    pub cost: u32,
    /// Points charged to the secondary limit.
    pub points: u32,
    /// Simulated CPU time in microseconds.
    pub cpu_micros: u64,
    /// Status of the response, even when it never reached its caller; 0 when none was made.
    pub status: u16,
    /// The validators sent: `none`, `etag`, `last-modified` or `both`.
    pub conditional: &'static str,
    /// Set when the request was executed: false when a limit refused it or a fault came before.
    pub executed: bool,
    /// Requests of this account in flight at arrival, excluding this one.
    pub concurrency: u32,
    /// The limit that refused it: `primary`, `concurrency`, `points`, `content`, `cpu`,
    /// `oauth-tokens`, `waiting` or `banned`; `fault` for a simulated refusal.
    pub refused: Option<&'static str>,
    /// The kinds of faults that struck it, joined by `+`.
    pub fault: Option<String>,
}

#[derive(Debug)]
pub struct Transcript {
    entries: VecDeque<Entry>,
    entries_max: usize,
    dropped: u64,
}

impl Default for Transcript {
    fn default() -> Self {
        Self { entries: VecDeque::new(), entries_max: ENTRIES_MAX, dropped: 0 }
    }
}

impl Transcript {
    /// Limits the transcript to this many entries, at least one.
    pub fn keep(&mut self, entries: usize) {
        self.entries_max = entries.clamp(1, ENTRIES_MAX);
    }

    pub fn push(&mut self, mut entry: Entry) {
        while self.entries.len() >= self.entries_max {
            self.entries.pop_front();
            self.dropped += 1;
        }
        if entry.path.len() > PATH_BYTES_MAX {
            let end = (0..=PATH_BYTES_MAX)
                .rev()
                .find(|end| entry.path.is_char_boundary(*end))
                .unwrap_or(0);
            // A copy, because truncation would keep the original capacity.
            entry.path = String::from(&entry.path[..end]);
        }
        if entry.method.len() > METHOD_BYTES_MAX {
            entry.method = entry.method.chars().take(METHOD_BYTES_MAX).collect();
        }
        self.entries.push_back(entry);
    }

    pub fn last_mut(&mut self) -> Option<&mut Entry> {
        self.entries.back_mut()
    }

    pub fn bounds(&self) -> Option<(u64, u64)> {
        Some((self.entries.front()?.sequence, self.entries.back()?.sequence))
    }

    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    pub fn last(&self) -> Option<&Entry> {
        self.entries.back()
    }

    pub fn since(&self, sequence: u64) -> impl Iterator<Item = &Entry> {
        let from = self.entries.partition_point(|entry| entry.sequence <= sequence);
        self.entries.range(from..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(sequence: u64, path: &str) -> Entry {
        Entry {
            sequence,
            at_millis: 0,
            time: String::new(),
            method: String::new(),
            path: path.to_owned(),
            endpoint: String::new(),
            account: String::new(),
            token: None,
            resource: "core",
            cost: 0,
            points: 0,
            cpu_micros: 0,
            status: 200,
            conditional: "none",
            executed: true,
            concurrency: 0,
            refused: None,
            fault: None,
        }
    }

    #[test]
    fn the_oldest_entries_are_dropped_and_counted() {
        let mut transcript = Transcript::default();
        for sequence in 1..=ENTRIES_MAX as u64 + 3 {
            transcript.push(entry(sequence, "/"));
        }
        assert_eq!(transcript.dropped(), 3);
        assert_eq!(transcript.bounds(), Some((4, ENTRIES_MAX as u64 + 3)));
        assert_eq!(transcript.since(0).count(), ENTRIES_MAX);
    }

    #[test]
    fn a_very_long_path_is_truncated_between_two_characters() {
        let mut transcript = Transcript::default();
        transcript.push(entry(1, &"é".repeat(2_000)));
        assert_eq!(transcript.since(0).next().map(|entry| entry.path.len()), Some(PATH_BYTES_MAX));
    }
}
