//! The secondary limits of an account as a file keeps them, across a restart of the gateway.

use std::borrow::BorrowMut;
use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::sliding_window::{Limit, Tally};
use super::{Secondary, SlidingWindow};
use crate::api::EndpointId;
use crate::clock::Timestamp;

/// The amounts that still count, with their moments.
type Entries = Vec<(Timestamp, u32)>;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedSecondary {
    /// Ends of the slots of requests that the upstream may still execute.
    slots: Vec<Timestamp>,
    /// By the name of the endpoint.
    points: Vec<(String, Entries)>,
    /// CPU time, in the order of the windows.
    windows: Vec<Entries>,
    /// Last write, and last write that notifies.
    writes: [Option<Timestamp>; 2],
}

impl Secondary {
    pub fn saved(&self, now: Timestamp, name: &dyn Fn(EndpointId) -> String) -> SavedSecondary {
        let limit = self.rest_points.limit;
        let points = self.rest_points.each();
        let points = points.map(|(endpoint, tally)| (name(endpoint), tally.saved(limit, now)));
        SavedSecondary {
            // A request in flight is given up by the end of the process.
            slots: self.slots.saved(now),
            points: points.filter(|(_, entries)| !entries.is_empty()).collect(),
            windows: self.windows().map(|window| window.saved(now)).collect(),
            writes: self.special.writes.last(),
        }
    }

    /// Takes over what a file kept. The limits are those of the config.
    pub fn restore(
        &mut self,
        saved: &SavedSecondary,
        endpoint: &dyn Fn(&str) -> Option<EndpointId>,
        now: Timestamp,
    ) {
        self.slots.restore(now, &saved.slots);
        for (name, entries) in &saved.points {
            if let Some(endpoint) = endpoint(name) {
                self.rest_points
                    .with_tally(now, endpoint, |limit, tally| tally.restore(limit, now, entries));
            }
        }
        for (window, entries) in self.windows_mut().zip(&saved.windows) {
            let limit = window.limit;
            window.tally.restore(limit, now, entries);
        }
        let writes = saved.writes.map(|last| last.map(|last| last.min(now)));
        self.special.writes.restore(writes);
        self.adjust();
    }

    /// In the order of [`Secondary::windows_mut`].
    pub(super) fn windows(&self) -> impl Iterator<Item = &SlidingWindow> {
        let special = &*self.special;
        [&self.cpu, &self.cpu_burst, &special.graphql_cpu].into_iter().chain(&special.windows)
    }
}

impl SlidingWindow {
    fn saved(&self, now: Timestamp) -> Entries {
        self.tally.saved(self.limit, now)
    }
}

impl<L: BorrowMut<VecDeque<(u32, u32)>> + Default> Tally<L> {
    /// The amounts that count at `now`. A request in flight counts as answered.
    fn saved(&self, limit: Limit, now: Timestamp) -> Entries {
        let counting = self.entries().filter(|(last, _)| *last >= now);
        let in_flight = self.in_flight();
        counting.chain((in_flight > 0).then(|| (limit.end(now), in_flight))).collect()
    }

    /// Adds what a file kept to an empty tally. No entry counts for longer than a window.
    fn restore(&mut self, limit: Limit, now: Timestamp, entries: &[(Timestamp, u32)]) {
        let entries = entries.iter().map(|(last, amount)| ((*last).min(limit.end(now)), *amount));
        let mut entries: Vec<_> = entries.filter(|(last, _)| *last >= now).collect();
        entries.sort_unstable();
        for (last, amount) in entries {
            self.count(limit, last, amount);
        }
    }
}
