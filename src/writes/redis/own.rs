//! The writes and the places of this replica, as far as the store itself needs them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct OwnWrites {
    /// Numbers that only this replica uses.
    pub numbers: Range<u64>,
    own: HashMap<u64, Own>,
    /// The lanes of places to be left.
    leaving: BTreeMap<u64, String>,
    /// Writes to be removed.
    pub removing: BTreeSet<u64>,
    /// Replicas whose writes cannot be read here.
    pub unreadable: BTreeSet<String>,
    /// Redis has a write of this replica that is not here.
    pub has_forgotten: bool,
    /// The replica takes no more writes.
    pub has_ended: bool,
}

/// A write that has not ended, or a place in a lane.
#[derive(Debug)]
pub(super) struct Own {
    lane: String,
    /// The changes of its progress so far; `None`: a place.
    changes: Option<u64>,
    /// Redis may have it.
    is_tried: bool,
    /// Redis has it.
    is_placed: bool,
    /// Its turn has come.
    is_called: bool,
}

impl Own {
    /// A write after so many changes.
    pub fn write(lane: String, changes: u64) -> Self {
        Self {
            lane,
            changes: Some(changes),
            is_tried: true,
            is_placed: changes > 0,
            is_called: false,
        }
    }

    /// A place that is not taken yet.
    pub fn place(lane: String) -> Self {
        Self { lane, changes: None, is_tried: false, is_placed: false, is_called: false }
    }
}

impl OwnWrites {
    pub fn add(&mut self, number: u64, own: Own) {
        self.own.insert(number, own);
    }

    /// Adds a write of another replica.
    pub fn adopt(&mut self, number: u64, lane: String, changes: u64) {
        self.own.insert(number, Own { is_placed: true, ..Own::write(lane, changes) });
    }

    pub fn take(&mut self, number: u64) {
        self.own.remove(&number);
    }

    pub fn has(&self, number: u64) -> bool {
        self.own.contains_key(&number)
    }

    pub fn placed(&mut self, number: u64) {
        if let Some(own) = self.own.get_mut(&number) {
            own.is_placed = true;
        }
    }

    pub fn called(&mut self, number: u64) {
        if let Some(own) = self.own.get_mut(&number) {
            own.is_called = true;
        }
    }

    /// The lane of a place to be taken.
    pub fn try_place(&mut self, number: u64) -> Option<String> {
        let own = self.own.get_mut(&number)?;
        own.is_tried = true;
        Some(own.lane.clone())
    }

    /// Gives a place up. True if Redis may have it.
    pub fn leave(&mut self, number: u64) -> bool {
        let Some(own) = self.own.remove(&number) else { return false };
        if own.is_tried {
            self.leaving.insert(number, own.lane);
        }
        own.is_tried
    }

    pub fn left_lane(&self, number: u64) -> Option<String> {
        self.leaving.get(&number).cloned()
    }

    pub fn has_left(&mut self, number: u64) {
        self.leaving.remove(&number);
    }

    pub fn leaving(&self) -> Vec<u64> {
        self.leaving.keys().copied().collect()
    }

    /// Gives up those of these writes that have not ended.
    pub fn remove(&mut self, numbers: &[u64]) -> Vec<u64> {
        let own = numbers.iter().copied().filter(|number| self.own.remove(number).is_some());
        let own: Vec<u64> = own.collect();
        self.removing.extend(&own);
        own
    }

    /// Notes the end of a removal; `is_kept`: the write stays.
    pub fn removed(&mut self, number: u64, is_kept: bool) {
        self.removing.remove(&number);
        self.has_forgotten |= is_kept;
    }

    /// The number of a write's next change.
    pub fn next_change(&mut self, number: u64) -> Option<u64> {
        let changes = self.own.get_mut(&number)?.changes.as_mut()?;
        *changes += 1;
        Some(*changes)
    }

    /// The lanes in which something waits.
    pub fn waiting_lanes(&self) -> BTreeSet<String> {
        let waiting = self.own.values().filter(|own| own.is_placed && !own.is_called);
        waiting.filter(|own| !own.lane.is_empty()).map(|own| own.lane.clone()).collect()
    }

    /// The writes that Redis has.
    pub fn kept_writes(&self) -> Vec<u64> {
        let kept = self.own.iter().filter(|(_, own)| own.changes.is_some() && own.is_placed);
        kept.map(|(number, _)| *number).collect()
    }

    /// The places that Redis lacks, or may lack if `was_away`.
    pub fn missing_places(&self, was_away: bool) -> Vec<u64> {
        let missing = self.own.iter().filter(|(_, own)| {
            own.changes.is_none() && (!own.is_placed || was_away && !own.is_called)
        });
        missing.map(|(number, _)| *number).collect()
    }
}
