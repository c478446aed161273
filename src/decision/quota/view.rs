//! The ledger's figures: a pool's sums for clients, everything for operators (SPECIFICATION D9).
//!
//! Nothing here decides or changes anything. Unknown figures are presumed from the documented
//! limits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::api::{ResourceName, window};
use crate::clock::Timestamp;

use super::account::Account;
use super::limits::primary::{Figures, PrimaryWindow, presumed_limit};
use super::ranking::Sums;
use super::{QuotaLedger, place};
use crate::decision::types::{AccountId, LimitKind};

/// The time after the begin of a window from which its pace says something. Ours: a burst at the
/// begin is no pace.
const PACE_KNOWN_AFTER: Duration = Duration::from_secs(60);

/// Budget of a pool as a client sees it: the sums over the pool's accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetView {
    /// Units per window.
    pub limit: u32,
    /// Units that can still be admitted, after leases and reserves.
    pub remaining: u32,
    /// `limit - remaining`.
    pub used: u32,
    /// Earliest reset; always later than now.
    pub reset: Timestamp,
}

/// One account for an operator.
#[derive(Clone, Debug)]
pub struct AccountSnapshot {
    /// Index in the config.
    pub account: AccountId,
    /// Name in the config.
    pub name: Arc<str>,
    /// End of the cooldown after a secondary limit, which closes the account for all requests.
    pub cooldown_until: Option<Timestamp>,
    /// Primary windows by resource.
    pub windows: Vec<WindowSnapshot>,
    /// Secondary limits in a fixed order, concurrency first.
    pub secondary: Vec<SecondarySnapshot>,
    /// Parts of the limits that this replica holds, by the name of the limit, or `budget` and its
    /// resource; empty without other replicas.
    pub parts: BTreeMap<String, u32>,
}

/// One primary window for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowSnapshot {
    /// Resource by the upstream's name, such as `core`.
    pub resource: ResourceName,
    /// Units per window.
    pub limit: u32,
    /// Units left, before leases and reserve.
    pub remaining: u32,
    /// Units leased to requests in flight.
    pub reserved: u32,
    /// `limit - remaining`.
    pub used: u32,
    /// End of the window; when it is unknown, the latest possible.
    pub reset: Timestamp,
    /// True when the upstream reported it in this window; else the figures are presumed.
    pub known: bool,
    /// The time at which all but the reserve will be spent, if it is spent on as in this window so
    /// far; `None` if it lasts until the reset.
    pub gone_at: Option<Timestamp>,
}

/// One secondary limit for an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecondarySnapshot {
    /// Limit; of the points per endpoint the fullest.
    pub limit: LimitKind,
    /// Amount in use, in flight or still counting.
    pub in_use: u32,
    /// Maximum, in the unit of `in_use`.
    pub max: u32,
}

impl QuotaLedger {
    /// Returns the budget of a resource for a client of `accounts`. An unknown budget counts with
    /// the documented limit. The time does not depend on the length of a list that requests have
    /// used.
    pub fn view(
        &mut self,
        now: Timestamp,
        accounts: &Arc<[AccountId]>,
        resource: &ResourceName,
    ) -> BudgetView {
        let sums =
            self.candidates.sums(now, accounts, resource, &self.accounts).unwrap_or_else(|| {
                let accounts = accounts.iter().filter_map(|id| self.accounts.get(place(*id)));
                accounts.fold(Sums::NONE, |sums, account| {
                    sums.and(account.sums(now, account.window(resource), resource))
                })
            });
        let units = |sum: u64| u32::try_from(sum).unwrap_or(u32::MAX);
        let (limit, remaining) = (units(sums.limit), units(sums.free));
        // A window that ends this second, or has ended within the wobble, shows the next second:
        // clients misread a reset in the past.
        let earliest = Some(sums.reset).filter(|reset| *reset < Timestamp::FAR_FUTURE);
        let reset = earliest.map_or(now + window(resource), |reset| {
            reset.max(Timestamp::from_secs(now.as_secs() + 1))
        });
        BudgetView { limit, remaining, used: limit.saturating_sub(remaining), reset }
    }

    /// All accounts of the config, for an operator.
    pub fn snapshot(&self, now: Timestamp) -> Vec<AccountSnapshot> {
        self.snapshot_part(now, 0, usize::MAX).unwrap_or_default()
    }

    /// The same of at most `count` accounts from a place on; `None` behind the last. Those of the
    /// config among them are shown.
    pub fn snapshot_part(
        &self,
        now: Timestamp,
        from: usize,
        count: usize,
    ) -> Option<Vec<AccountSnapshot>> {
        let rest = self.accounts.get(from..).filter(|rest| !rest.is_empty())?;
        let ids = (0..).map(AccountId).skip(from);
        let part = ids.zip(rest).take(count).filter(|(id, _)| !self.layout.is_dynamic(*id));
        Some(part.map(|(id, account)| account.snapshot(now, id)).collect())
    }

    /// Resources with windows of these accounts, sorted.
    pub fn resources_seen(&self, accounts: &[AccountId]) -> Vec<ResourceName> {
        let accounts = accounts.iter().filter_map(|id| self.accounts.get(place(*id)));
        let mut names: Vec<ResourceName> =
            accounts.flat_map(|account| &account.windows).map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl Account {
    pub(super) fn figures(
        &self,
        now: Timestamp,
        window: Option<&PrimaryWindow>,
        resource: &ResourceName,
    ) -> Figures {
        let presumed = || presumed_limit(self.settings.kind, resource);
        match window {
            Some(window) => window.figures(now, presumed),
            None => Figures { limit: presumed(), remaining: presumed(), leased: 0, reset: None },
        }
    }

    fn snapshot(&self, now: Timestamp, id: AccountId) -> AccountSnapshot {
        let window_snapshot = |(resource, known): &(ResourceName, PrimaryWindow)| {
            let Figures { limit, remaining, leased, reset } =
                self.figures(now, Some(known), resource);
            let left = remaining.saturating_sub(self.settings.reserve);
            let used = limit.saturating_sub(remaining);
            let gone_at = reset.and_then(|reset| gone_at(now, reset, window(resource), used, left));
            WindowSnapshot {
                resource: resource.clone(),
                limit,
                remaining,
                reserved: leased,
                used,
                reset: reset.unwrap_or(now + window(resource)),
                known: reset.is_some(),
                gone_at,
            }
        };
        let mut windows: Vec<WindowSnapshot> = self.windows.iter().map(window_snapshot).collect();
        windows.sort_unstable_by(|one, other| one.resource.cmp(&other.resource));
        AccountSnapshot {
            account: id,
            name: self.settings.name.clone(),
            cooldown_until: self.cooldown.until(now),
            windows,
            secondary: self
                .secondary
                .usage(now)
                .map(|(limit, in_use, max)| SecondarySnapshot { limit, in_use, max })
                .collect(),
            parts: self.parts.as_ref().map(|parts| parts.amounts_held(now)).unwrap_or_default(),
        }
    }
}

/// The time at which `left` is spent at the average pace of the window so far, before its end.
fn gone_at(
    now: Timestamp,
    reset: Timestamp,
    length: Duration,
    used: u32,
    left: u32,
) -> Option<Timestamp> {
    let elapsed = now.since(reset - length);
    if used == 0 || elapsed < PACE_KNOWN_AFTER {
        return None;
    }
    let lasts = u128::from(left) * elapsed.as_millis() / u128::from(used);
    let gone_at = now + Duration::from_millis(u64::try_from(lasts).unwrap_or(u64::MAX));
    Some(gone_at).filter(|gone_at| *gone_at < reset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_does_not_last_says_when_it_is_gone() {
        let (hour, begin) = (Duration::from_hours(1), Timestamp::from_secs(1_000_000));
        let after = |minutes| begin + Duration::from_mins(minutes);
        let at = |now, used, left| gone_at(now, begin + hour, hour, used, left);
        assert_eq!(at(after(10), 1_000, 4_000), Some(after(50)));
        assert_eq!(at(after(10), 1_000, 0), Some(after(10)), "it is gone already");
        assert_eq!(at(after(10), 800, 4_200), None, "it lasts until the reset");
        assert_eq!(at(after(10), 0, 5_000), None);
        assert_eq!(at(begin + Duration::from_secs(20), 1_000, 4_000), None, "too early to say");
    }
}
