//! A primary window as a file keeps it, across a restart of the gateway.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::evidence::Evidence;
use super::stated::StatementTrust;
use super::{PrimaryWindow, Seen, WOBBLE, WindowState};
use crate::api::ResourceName;
use crate::clock::Timestamp;
use crate::decision::fleet::Sight;
use crate::decision::types::Recovered;

/// Longest time until the end of a window that is believed. Ours: that of a closure.
const END_MAX: Duration = Duration::from_hours(24);

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedWindow {
    seen: Option<Seen>,
    is_unmetered: bool,
    trust: StatementTrust,
    closed_until: Timestamp,
    closed_at: Timestamp,
    next_at: Timestamp,
    /// Units that no count includes, and the times when their requests are certainly over.
    unseen: Vec<(Timestamp, u32)>,
    /// Units per second that others spend.
    rate_of_others: f64,
}

impl PrimaryWindow {
    pub fn saved(&self, now: Timestamp) -> SavedWindow {
        SavedWindow {
            seen: if let WindowState::Seen(seen) = self.state { Some(seen) } else { None },
            is_unmetered: self.state == WindowState::Unmetered,
            trust: self.trust,
            closed_until: self.closed_until,
            closed_at: self.closed_at,
            next_at: self.next_at,
            unseen: self.evidence.saved(now, self.leased_units()),
            rate_of_others: self.evidence.rate_of_others(now),
        }
    }

    /// Adds what a predecessor has spent beside this process. Its requests in flight are taken as
    /// counted: too few units until the end of the window are better than too many.
    pub fn add_spent(&mut self, now: Timestamp, spent: &SavedWindow) {
        let unseen = spent.unseen.iter().map(|(_, units)| *units).fold(0, u32::saturating_add);
        if let Some(seen) = spent.seen.filter(|seen| seen.reset <= now + END_MAX) {
            let remaining = seen.remaining.min(seen.limit).saturating_sub(unseen);
            self.reported(now, Sight { limit: seen.limit, remaining, reset: seen.reset });
        } else if spent.is_unmetered {
            self.reported_unmetered();
        }
        self.reported_closed(spent.closed_until.min(now + END_MAX));
    }

    /// Returns the window that a file kept. A window that was counted before later requests
    /// ([`Recovered::Earlier`]) keeps what denies: a budget that was used up is so until its end.
    pub fn restored(
        resource: &ResourceName,
        saved: &SavedWindow,
        recovered: Recovered,
        now: Timestamp,
    ) -> Self {
        let last = recovered == Recovered::Last;
        let mut window = Self::new(resource);
        window.evidence = Evidence::restored(now, &saved.unseen, saved.rate_of_others);
        let seen = saved.seen.filter(|seen| seen.reset <= now + END_MAX);
        window.state = match seen {
            Some(seen) => {
                let remaining = seen.remaining.min(seen.limit);
                let is_used_up = remaining <= window.evidence.unseen_units;
                // Its end in the past makes it unknown, and its limit stays known.
                let over = now - WOBBLE - WOBBLE;
                let reset = if last || is_used_up { seen.reset } else { seen.reset.min(over) };
                WindowState::Seen(Seen { remaining, reset, ..seen })
            }
            None if saved.is_unmetered && last => WindowState::Unmetered,
            None => WindowState::Unknown,
        };
        window.closed_until = saved.closed_until.min(now + END_MAX);
        window.closed_at = saved.closed_at.min(now);
        if last {
            window.trust = saved.trust;
            window.next_at = saved.next_at.min(now + END_MAX);
        }
        window
    }
}
