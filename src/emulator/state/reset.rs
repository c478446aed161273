//! Beginning anew: back to the seed, or to another one.
//!
//! Requests of before may still be under way. So nothing gets their numbers again: a request that
//! ends late cannot free another one's place, a gate shut now cannot hold what an old one held, and
//! who reads the transcript from a sequence number on sees no gap.

use std::collections::BTreeMap;

use super::State;
use crate::clock::Timestamp;
use crate::emulator::faults::gates::Gates;
use crate::emulator::faults::{FaultSpec, Faults};
use crate::emulator::limits::Limits;
use crate::emulator::limits::settings::UnknownLimit;
use crate::emulator::replay::Replayer;
use crate::emulator::seed::options::Options;

/// What is in force from the beginning on, and again after a reset, beside the seed: what a config
/// file says.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    limits: BTreeMap<String, u64>,
    faults: Vec<FaultSpec>,
}

impl Conditions {
    /// The limit of this name is `value` instead of the documented one; the names are those of `GET
    /// /_emulator/limits`.
    ///
    /// # Errors
    /// When nothing has that name.
    pub fn limit(&mut self, name: &str, value: u64) -> Result<(), UnknownLimit> {
        Limits::default().set(name, value)?;
        self.limits.insert(name.to_owned(), value);
        Ok(())
    }

    /// This fault is armed.
    pub fn fault(&mut self, fault: FaultSpec) {
        self.faults.push(fault);
    }
}

impl State {
    /// Back to the seed and the conditions of the beginning: world, budgets, limits, gates, faults
    /// and transcript.
    pub fn reset(&mut self, now: Timestamp) {
        self.begin_again(self.options.clone(), now);
    }

    /// The same with another world.
    pub fn begin_again(&mut self, options: Options, now: Timestamp) {
        let recording = self.replayer.take().map(Replayer::into_recording);
        let before = std::mem::replace(self, Self::new(options, recording, now));
        self.next_request = before.next_request;
        self.world.delivery_queue = before.world.delivery_queue.succeeding();
        self.gates = Gates::after(&before.gates);
        self.faults = Faults::new(self.options.seed, before.faults.last_id());
        self.impose(before.conditions);
    }

    /// From now on these conditions are in force, and no limits and faults but theirs.
    pub fn impose(&mut self, conditions: Conditions) {
        self.limits = Limits::default();
        self.faults = Faults::new(self.options.seed, self.faults.last_id());
        // `core` sets every kind of account; what is said of one kind comes after it, for a name
        // sorts before the longer ones it begins.
        for (name, value) in &conditions.limits {
            // The names were looked up when they were given.
            let _ = self.limits.set(name, *value);
        }
        for fault in &conditions.faults {
            let _ = self.faults.arm(fault.clone());
        }
        self.conditions = conditions;
    }
}
