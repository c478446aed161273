//! Requests to a window in an unknown state. The first one is the probe: its answer shows the
//! window. While it is slow, a few more may go, because nobody should wait for one slow answer.
//!
//! The number is bounded by what a window certainly has: a tenth of its limit, and ten requests.

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
/// The same for a window that was never seen.
const UNSEEN_MAX: usize = 4;

#[derive(Debug, Default)]
pub struct Probes {
    leases: SmallVec<[LeaseId; 1]>,
    /// Admission of the newest.
    newest_at: Timestamp,
    /// Requests that may go beside the first, by an answer of `GET /rate_limit` or for lack of one.
    beside: usize,
    /// Limit of the window, where one is known.
    limit: Option<u32>,
}

impl Probes {
    /// Denial of one more request; `None` when it may go.
    pub fn block(&self, now: Timestamp, limit_before: Option<u32>) -> Option<Block> {
        let most = match self.limit.or(limit_before) {
            Some(limit) => usize::try_from(limit / CERTAIN_PART).unwrap_or(CERTAIN_MAX),
            None => UNSEEN_MAX,
        };
        let most = most.clamp(2, CERTAIN_MAX);
        let slow_at = self.newest_at + SLOW;
        if self.leases.len() < (1 + self.beside).min(most) {
            return None;
        }
        if self.leases.len() >= most {
            return Some(Block::event(LimitKind::Probe));
        }
        (now < slow_at).then(|| Block { wake: Some(slow_at), ..Block::event(LimitKind::Probe) })
    }

    /// Time since which the newest waits for its answer; `None` without one.
    pub fn waiting_since(&self) -> Option<Timestamp> {
        (!self.leases.is_empty()).then_some(self.newest_at)
    }

    pub fn admitted(&mut self, now: Timestamp, lease: LeaseId) {
        self.leases.push(lease);
        self.newest_at = now;
    }

    /// Ends a lease. Returns true if it was a probe.
    pub fn ended(&mut self, lease: LeaseId) -> bool {
        let found = self.leases.iter().position(|probe| *probe == lease);
        found.map(|at| self.leases.swap_remove(at)).is_some()
    }

    /// Lets one more request go at once: the state could not be asked.
    pub fn allow_another(&mut self) {
        self.beside = (self.leases.len()).min(CERTAIN_MAX);
    }

    /// Lets a few requests go side by side: the window seems to be untouched.
    pub fn allow_some(&mut self, limit: u32) {
        self.limit = Some(limit);
        self.beside = CERTAIN_MAX;
    }

    /// The state is known.
    pub fn learned(&mut self) {
        (self.beside, self.limit) = (0, None);
    }
}
