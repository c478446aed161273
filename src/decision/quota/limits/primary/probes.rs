//! Requests to a window in an unknown state. The first one is the probe: its answer shows the
//! window. While it is slow, a few more may go, because nobody should wait for one slow answer.
//!
//! The number is bounded by what a window certainly has: a tenth of its limit, and ten requests.
//!
//! An untouched window that `GET /rate_limit` states has its whole limit, if that is true
//! (SPECIFICATION, "Limits in practice": it can be wrong). The upstream refuses at once, before it
//! executes anything. So a request that has waited for a second was not refused, and shows that its
//! unit was there. Such requests hold no others, up to the limit that was stated.

use std::time::Duration;

use smallvec::SmallVec;

use super::super::block::Block;
use crate::clock::Timestamp;
use crate::decision::types::{LeaseId, LimitKind};

/// Time without an answer after which another request may go. Ours: twice the time after which
/// the account's state is asked, so that the answer of `GET /rate_limit` usually comes first.
const SLOW: Duration = Duration::from_secs(2);
/// Part of a known limit that a new window certainly has. Ours: others may spend the rest.
const CERTAIN_PART: u32 = 10;
/// Most requests without an answer. Ours: they cost little if the budget is spent after all.
const CERTAIN_MAX: usize = 10;
/// Age from which a request without an answer was not refused. Ours: a refusal takes no longer than
/// the usual answers.
const ACCEPTED_AFTER: Duration = Duration::from_secs(1);
/// The same for a window that was never seen.
const UNSEEN_MAX: usize = 4;

#[derive(Debug, Default)]
pub struct Probes {
    /// In flight, with their admission.
    leases: SmallVec<[(LeaseId, Timestamp); 1]>,
    /// Admission of the newest.
    newest_at: Timestamp,
    /// Requests that may go beside the first, because the state could not be asked.
    beside: usize,
    /// Limit of the untouched window that `GET /rate_limit` stated.
    stated: Option<u32>,
    /// Units of the requests in flight at that statement, and of those since.
    units: u32,
}

impl Probes {
    /// Denial of one more request of this cost; `None` when it may go.
    pub fn block(&self, now: Timestamp, cost: u32, limit_before: Option<u32>) -> Option<Block> {
        if let Some(limit) = self.stated {
            return self.stated_block(now, cost, limit);
        }
        let most = limit_before.map_or(UNSEEN_MAX, certain);
        let slow_at = self.newest_at + SLOW;
        if self.leases.len() < (1 + self.beside).min(most) {
            return None;
        }
        if self.leases.len() >= most {
            return Some(Block::event(LimitKind::Probe));
        }
        (now < slow_at).then(|| Block { wake: Some(slow_at), ..Block::event(LimitKind::Probe) })
    }

    fn stated_block(&self, now: Timestamp, cost: u32, limit: u32) -> Option<Block> {
        if self.units.saturating_add(cost.min(limit)) > limit {
            return Some(Block::event(LimitKind::Probe));
        }
        let accepted_at = self.leases.iter().map(|(_, admitted)| *admitted + ACCEPTED_AFTER);
        let fresh = accepted_at.filter(|accepted| *accepted > now);
        if fresh.clone().count() < certain(limit) {
            return None;
        }
        Some(Block { wake: fresh.min(), ..Block::event(LimitKind::Probe) })
    }

    /// Time since which the newest waits for its answer; `None` without one.
    pub fn waiting_since(&self) -> Option<Timestamp> {
        (!self.leases.is_empty()).then_some(self.newest_at)
    }

    pub fn admitted(&mut self, now: Timestamp, lease: LeaseId, cost: u32) {
        self.leases.push((lease, now));
        self.newest_at = now;
        self.units = self.units.saturating_add(cost);
    }

    /// Ends a lease. Returns true if it was a probe.
    pub fn ended(&mut self, lease: LeaseId) -> bool {
        let found = self.leases.iter().position(|(probe, _)| *probe == lease);
        found.map(|at| self.leases.swap_remove(at)).is_some()
    }

    /// Lets one more request go at once: the state could not be asked.
    pub fn allow_another(&mut self) {
        self.beside = (self.leases.len()).min(CERTAIN_MAX);
    }

    /// Lets requests go side by side: the window seems to be untouched, apart from these units.
    pub fn allow_some(&mut self, limit: u32, units: u32) {
        (self.stated, self.units) = (Some(limit), units);
    }

    /// The state is known.
    pub fn learned(&mut self) {
        (self.beside, self.stated, self.units) = (0, None, 0);
    }
}

/// Requests that a window of this limit certainly has room for.
fn certain(limit: u32) -> usize {
    usize::try_from(limit / CERTAIN_PART).unwrap_or(CERTAIN_MAX).clamp(2, CERTAIN_MAX)
}
