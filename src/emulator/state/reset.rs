//! Reset: back to the seed, or to another one.
//!
//! Requests from before may still be in flight, so their numbers are never reused. A late
//! completion then frees no new request's slot, and a new gate holds no old request. A reader of
//! the transcript sees no gap.

use std::collections::BTreeMap;

use super::State;
use crate::clock::Timestamp;
use crate::emulator::faults::gates::Gates;
use crate::emulator::faults::{FaultSpec, Faults};
use crate::emulator::limits::Limits;
use crate::emulator::limits::settings::WrongLimit;
use crate::emulator::seed::options::Options;

/// Limits and faults in force from the start and after every reset, as a configuration file gives
/// them.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    limits: BTreeMap<String, u64>,
    faults: Vec<FaultSpec>,
}

impl Conditions {
    /// Replaces the documented limit of this name by `value`; the names are those of `GET
    /// /_emulator/limits`.
    ///
    /// # Errors
    /// When the name is unknown or the value out of its bounds.
    pub fn limit(&mut self, name: &str, value: u64) -> Result<(), WrongLimit> {
        Limits::default().set(name, value)?;
        self.limits.insert(name.to_owned(), value);
        Ok(())
    }

    /// Adds an armed fault.
    pub fn fault(&mut self, fault: FaultSpec) {
        self.faults.push(fault);
    }
}

impl State {
    /// Restores world, budgets, limits, gates, faults and transcript.
    pub fn reset(&mut self, now: Timestamp) {
        self.begin_again(self.options.clone(), now);
    }

    pub fn begin_again(&mut self, options: Options, now: Timestamp) {
        let recording = self.replayer.take().map(|replayer| replayer.recording);
        let before = std::mem::replace(self, Self::new(options, recording, now));
        self.next_request = before.next_request;
        self.pace = before.pace;
        self.world.delivery_queue = before.world.delivery_queue.succeeding();
        self.gates = Gates::after(&before.gates);
        self.faults = Faults::new(self.options.seed, before.faults.last_id());
        self.impose(before.conditions);
    }

    /// Applies these conditions now and after every reset, and drops all other limits and faults.
    pub fn impose(&mut self, conditions: Conditions) {
        self.limits = Limits::default();
        self.faults = Faults::new(self.options.seed, self.faults.last_id());
        // The more specific names follow `core`, because a prefix sorts before longer names.
        for (name, value) in &conditions.limits {
            // The names were checked when they were given.
            let _ = self.limits.set(name, *value);
        }
        for fault in &conditions.faults {
            let _ = self.faults.arm(fault.clone());
        }
        self.conditions = conditions;
    }
}
