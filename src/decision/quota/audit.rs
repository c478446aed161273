//! The audit of the windows against the open leases, for simulations and tests (invariants 1, 3, 4,
//! 6).

use super::account::WindowIndex;
use super::limits::secondary::Secondary;
use super::{Lease, QuotaLedger, place};
use crate::decision::types::invariants::Invariant;
use crate::decision::types::{AccountId, HashMap};

impl QuotaLedger {
    /// Checks every window against the sums over the open leases, and returns the broken
    /// invariants. The time grows with accounts and leases.
    pub fn audit(&self) -> Vec<Invariant> {
        let mut leased: HashMap<(AccountId, WindowIndex), u64> = HashMap::default();
        let mut in_flight: HashMap<AccountId, u32> = HashMap::default();
        for lease in self.leases.values() {
            *in_flight.entry(lease.account).or_default() += 1;
            if let Some(window) = lease.window {
                *leased.entry((lease.account, window)).or_default() += u64::from(lease.cost);
            }
            if let Some(also) = lease.also {
                *leased.entry(also).or_default() += u64::from(lease.cost);
            }
        }
        let add_up = (0..).map(AccountId).zip(&self.accounts).all(|(id, account)| {
            let windows = account.windows.iter().enumerate();
            account.secondary.slots.in_flight() == in_flight.get(&id).copied().unwrap_or_default()
                && account.secondary.slots.add_up()
                && windows.into_iter().all(|(place, (_, window))| {
                    window.leased
                        == leased.get(&(id, WindowIndex::of(place))).copied().unwrap_or_default()
                })
        });
        let mut windows = self.accounts.iter().flat_map(|account| &account.windows);
        let secondaries = || self.accounts.iter().map(|account| &account.secondary);
        let checks = [
            (Invariant::LeasesAddUp, add_up),
            (Invariant::RemainingWithinLimit, windows.all(|(_, window)| window.is_sane())),
            (
                Invariant::ConcurrencyWithinLimit,
                secondaries().all(Secondary::is_within_concurrency),
            ),
            (Invariant::WindowsWithinLimits, secondaries().all(Secondary::is_within_windows)),
        ];
        checks.into_iter().filter(|(_, holds)| !holds).map(|(invariant, _)| invariant).collect()
    }

    /// Checks the windows of one lease, in constant time.
    pub(super) fn check(&mut self, touched: &Lease, windows_are_within: bool) {
        let Some(account) = self.accounts.get(place(touched.account)) else { return };
        let sane = touched
            .window
            .and_then(|place| account.windows.get(place.index()))
            .is_none_or(|(_, window)| window.is_sane());
        self.broken.check(Invariant::RemainingWithinLimit, sane);
        let is_within = account.secondary.is_within_concurrency() || self.shadow.limits;
        self.broken.check(Invariant::ConcurrencyWithinLimit, is_within);
        let windows_are_within = windows_are_within || self.shadow.limits;
        self.broken.check(Invariant::WindowsWithinLimits, windows_are_within);
    }
}
