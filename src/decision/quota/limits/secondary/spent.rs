//! The secondary limits of an account that two processes spend, one of which drains.

use serde::{Deserialize, Serialize};

use super::sliding_window::{Limit, Tally};
use super::{CUT_OFF_GRACE, Secondary};
use crate::api::EndpointId;
use crate::clock::Timestamp;
use crate::decision::types::HashMap;

/// The amounts admitted since the last message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpentSecondary {
    /// Ends of the slots in use.
    slots: Vec<Timestamp>,
    /// By the name of the endpoint.
    points: Vec<(String, u32)>,
    /// In the order of the windows.
    windows: Vec<u32>,
    /// Last write, and last write that notifies.
    writes: [Option<Timestamp>; 2],
}

/// The amounts that a successor knows already and that the next message would count again: those
/// in flight at the last message, and those of an earlier process, which count from a later time.
#[derive(Debug, Default)]
pub struct Known {
    points: HashMap<EndpointId, u32>,
    windows: Vec<u32>,
}

impl SpentSecondary {
    /// True if nothing was admitted or is in flight.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
            && self.points.is_empty()
            && self.windows.iter().all(|amount| *amount == 0)
    }
}

impl Secondary {
    /// Returns the amounts that a successor with the state of this time knows.
    pub fn known(&self, now: Timestamp) -> Known {
        let limit = self.rest_points.limit;
        let points = self.rest_points.each();
        let points = points.map(|(endpoint, tally)| (endpoint, tally.counted_from(limit, now)));
        Known {
            points: points.filter(|(_, amount)| *amount > 0).collect(),
            windows: self
                .windows()
                .map(|window| window.tally.counted_from(window.limit, now))
                .collect(),
        }
    }

    /// Returns what was admitted since a time, for a successor.
    pub fn spent_since(
        &self,
        now: Timestamp,
        since: Timestamp,
        known: &mut Known,
        name: &dyn Fn(EndpointId) -> String,
    ) -> SpentSecondary {
        let limit = self.rest_points.limit;
        let mut points = Vec::new();
        for (endpoint, tally) in self.rest_points.each() {
            let before = known.points.get(&endpoint).copied().unwrap_or_default();
            let amount = tally.counted_from(limit, since).saturating_sub(before);
            if amount > 0 {
                points.push((name(endpoint), amount));
            }
        }
        let mut before = std::mem::take(&mut known.windows).into_iter();
        let windows = self.windows().map(|window| {
            let before = before.next().unwrap_or_default();
            window.tally.counted_from(window.limit, since).saturating_sub(before)
        });
        let windows = windows.collect();
        *known = self.known(now);
        let writes = self.special.writes.last();
        SpentSecondary { slots: self.slots.saved(now), points, windows, writes }
    }

    /// Adds what a predecessor has admitted beside this process. It counts as if it ended as late
    /// as a request may.
    pub fn add_spent(
        &mut self,
        spent: &SpentSecondary,
        endpoint: &dyn Fn(&str) -> Option<EndpointId>,
        now: Timestamp,
    ) {
        let over = now + CUT_OFF_GRACE;
        self.slots.restore(now, &spent.slots);
        for (name, amount) in &spent.points {
            if let Some(endpoint) = endpoint(name) {
                self.rest_points.with_tally(now, endpoint, |limit, tally| {
                    tally.count(limit, limit.end(over), *amount);
                });
            }
        }
        for (window, amount) in self.windows_mut().zip(&spent.windows) {
            if *amount > 0 {
                let last = window.limit.end(over);
                window.tally.count(window.limit, last, *amount);
            }
        }
        let writes = spent.writes.map(|last| last.map(|last| last.min(now)));
        self.special.writes.reported(writes);
        self.adjust();
    }

    /// True if requests of an earlier process have slots.
    pub fn has_slots_of_earlier(&self) -> bool {
        self.slots.has_earlier()
    }

    /// Frees the slots of an earlier process, whose requests have ended.
    pub fn forget_slots_of_earlier(&mut self, now: Timestamp) {
        self.slots.restore(now, &[]);
        self.adjust();
    }
}

impl<L> Tally<L>
where
    L: std::borrow::BorrowMut<std::collections::VecDeque<(u32, u32)>> + Default,
{
    /// The amount in flight, or that ended at this time or later.
    fn counted_from(&self, limit: Limit, time: Timestamp) -> u32 {
        let first = limit.end(time);
        let ended = self.entries().filter(|(last, _)| *last >= first).map(|(_, amount)| amount);
        ended.fold(self.in_flight(), u32::saturating_add)
    }
}
