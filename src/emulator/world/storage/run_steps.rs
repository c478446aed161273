//! Steps of workflow runs that are still to come, in the order of their times.

use std::collections::BTreeMap;

use crate::clock::Timestamp;
use crate::emulator::http::Urls;

/// The most steps to come, which bounds the memory.
const STEPS_MAX: usize = 10_000;

#[derive(Clone, Debug)]
pub struct RunStep {
    pub repository: u64,
    pub run: u64,
    /// A rerun makes the steps of earlier attempts void.
    pub attempt: u64,
    pub actor: u64,
    /// The addresses that the run's payloads show.
    pub urls: Urls,
    pub kind: StepKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    Start,
    End,
}

#[derive(Debug, Default)]
pub struct RunSteps {
    added: u64,
    due: BTreeMap<(Timestamp, u64), RunStep>,
}

impl RunSteps {
    pub fn is_full(&self) -> bool {
        self.due.len() >= STEPS_MAX
    }

    pub fn add(&mut self, at: Timestamp, step: RunStep) {
        self.added += 1;
        self.due.insert((at, self.added), step);
    }

    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.keys().next().map(|(at, _)| *at)
    }

    pub fn take_due(&mut self, now: Timestamp) -> Option<(Timestamp, RunStep)> {
        let first = self.due.first_entry().filter(|first| first.key().0 <= now)?;
        let ((at, _), step) = first.remove_entry();
        Some((at, step))
    }

    /// Drops the steps of a run that was cancelled.
    pub fn forget(&mut self, repository: u64, run: u64) {
        self.due.retain(|_, step| (step.repository, step.run) != (repository, run));
    }
}
