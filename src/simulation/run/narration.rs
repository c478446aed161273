//! What led to the first refusal by the upstream, in words: the last events before it and some
//! after it. Nothing is made unless it is asked for.

use std::collections::VecDeque;

use crate::clock::Timestamp;
use crate::simulation::plan::{BEGINNING, Narration};

/// Lines before the refusal.
const BEFORE: usize = 120;
/// Lines after it.
const AFTER: usize = 40;

/// The events remembered.
#[derive(Debug)]
pub(super) struct EventLog {
    lines: VecDeque<String>,
    narration: Narration,
    /// Lines still to come after the climax.
    left: Option<usize>,
}

impl EventLog {
    pub fn new(narration: Narration) -> Self {
        Self { lines: VecDeque::new(), narration, left: None }
    }

    /// A line, made only when it is wanted.
    pub fn tell(&mut self, now: Timestamp, line: impl FnOnce() -> String) {
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

    /// What it was all about has happened.
    pub fn climax(&mut self) {
        self.left.get_or_insert(AFTER);
    }

    /// The narration; empty when nothing happened that is worth one.
    pub fn into_lines(self) -> Vec<String> {
        if self.left.is_some() { self.lines.into() } else { Vec::new() }
    }
}

/// The time since the beginning of the run, as hours, minutes, seconds and milliseconds.
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
