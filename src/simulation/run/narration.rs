//! A log of the events around the first denial by the upstream, made only when it is requested.

use std::collections::VecDeque;

use crate::clock::Timestamp;
use crate::simulation::plan::{BEGINNING, Narration};

/// Lines before the denial.
const BEFORE: usize = 120;
/// Lines after it.
const AFTER: usize = 40;

#[derive(Debug)]
pub(super) struct EventLog {
    lines: VecDeque<String>,
    narration: Narration,
    /// Lines left after the denial.
    left: Option<usize>,
}

impl EventLog {
    pub fn new(narration: Narration) -> Self {
        Self { lines: VecDeque::new(), narration, left: None }
    }

    /// Adds a line, formatted only if it is kept.
    pub fn log(&mut self, now: Timestamp, line: impl FnOnce() -> String) {
        if self.narration == Narration::Silent || self.left == Some(0) {
            return;
        }
        match &mut self.left {
            Some(left) => *left -= 1,
            None if self.lines.len() >= BEFORE => drop(self.lines.pop_front()),
            None => {}
        }
        self.lines.push_back(format!("{} {}", clock(now), line()));
    }

    /// Keeps the lines so far and [`AFTER`] more. Later calls change nothing.
    pub fn mark_denial(&mut self) {
        self.left.get_or_insert(AFTER);
    }

    /// Returns the lines; none without a denial.
    pub fn into_lines(self) -> Vec<String> {
        if self.left.is_some() { self.lines.into() } else { Vec::new() }
    }
}

/// Formats the time since the beginning of the run.
pub(super) fn clock(at: Timestamp) -> String {
    let (sign, millis) = match at.as_millis().checked_sub(BEGINNING.as_millis()) {
        Some(millis) => ("", millis),
        None => ("-", BEGINNING.since(at).as_millis().try_into().unwrap_or(0)),
    };
    let seconds = millis / 1_000;
    format!(
        "{sign}{:02}:{:02}:{:02}.{:03}",
        seconds / 3_600,
        seconds / 60 % 60,
        seconds % 60,
        millis % 1_000
    )
}
