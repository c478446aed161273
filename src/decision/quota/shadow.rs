//! Limits in shadow mode: a request that a limit of the gateway would hold is sent all the same
//! (SPECIFICATION, "Shadow mode").
//!
//! The upstream's own words still hold: a spent budget, an unknown one whose state is being asked
//! for, and a pause after a refusal.

use super::denial::Blocked;
use super::limits::primary::WindowDemand;
use super::{QuotaLedger, client_of, place};
use crate::clock::Timestamp;
use crate::decision::types::{AccountId, Demand, LimitKind, Priority};

/// Accounts of a longer list that are looked at. Ours: as many as a denial looks at.
const LOOKED_AT: usize = 16;

impl QuotaLedger {
    /// Returns the account of a request that only limits in shadow mode block.
    pub(super) fn choose_in_shadow(
        &mut self,
        now: Timestamp,
        demand: &Demand,
        blocked: &Blocked,
    ) -> Option<AccountId> {
        if !self.shadow.limits || !is_own_limit(blocked.refusal.limit) {
            return None;
        }
        let resource = self.learned.get(&demand.endpoint).unwrap_or(&demand.resource);
        let wanted = WindowDemand {
            cost: demand.cost,
            unproven: demand.unproven,
            // The floor of `batch` is one of the rules in shadow mode.
            priority: client_of(&self.clients, demand.client).priority.max(Priority::Normal),
        };
        let nearest = blocked.refusal.account.into_iter();
        let mut looked_at = nearest.chain(demand.candidates.iter().copied().take(LOOKED_AT));
        looked_at.find(|id| {
            self.accounts
                .get(place(*id))
                .is_some_and(|account| account.has_budget(now, wanted, resource))
        })
    }
}

/// True for the limits by which the gateway keeps the upstream from refusing.
fn is_own_limit(limit: LimitKind) -> bool {
    match limit {
        LimitKind::Concurrency
        | LimitKind::ClientShare
        | LimitKind::Points
        | LimitKind::GraphqlPoints
        | LimitKind::ContentPerMinute
        | LimitKind::ContentPerHour
        | LimitKind::Cpu
        | LimitKind::GraphqlCpu
        | LimitKind::OauthTokens
        | LimitKind::Spacing
        | LimitKind::Pace
        | LimitKind::BatchFloor => true,
        LimitKind::Primary
        | LimitKind::Probe
        | LimitKind::Cooldown
        | LimitKind::ClientBudget
        | LimitKind::QueueFull
        | LimitKind::NoAccount => false,
    }
}
