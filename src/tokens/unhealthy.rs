//! Accounts with an unusable credential, known without a scan of all accounts for each request.
//!
//! An event (a rejection, a probe) marks an account for a recheck. A minted token that ends by
//! itself has its end recorded when the account is found healthy. Left out: the check itself
//! (`slot`).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::clock::Timestamp;
use crate::decision::AccountId;

/// State of one credential, or of an account's credentials as a whole: the least of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Usability {
    Unusable,
    /// Usable until this time.
    Until(Timestamp),
    /// Usable until the next event.
    Lasting,
}

#[derive(Debug, Default)]
pub struct UnhealthyAccounts {
    state: Mutex<Accounts>,
    /// Before this time, in milliseconds, all accounts are healthy and the lock is not taken.
    quiet_until: AtomicU64,
}

#[derive(Debug, Default)]
struct Accounts {
    unhealthy: BTreeSet<AccountId>,
    /// Times at which healthy accounts are checked again. An account that was marked meanwhile may
    /// appear twice, which costs one superfluous check.
    ends: BTreeSet<(Timestamp, AccountId)>,
}

impl UnhealthyAccounts {
    /// Creates the set; `accounts` are checked first.
    pub fn new(accounts: impl IntoIterator<Item = AccountId>) -> Self {
        let state = Accounts { unhealthy: accounts.into_iter().collect(), ends: BTreeSet::new() };
        let quiet_until = AtomicU64::new(state.quiet_until());
        Self { state: Mutex::new(state), quiet_until }
    }

    /// Marks an account whose credential has changed. Call it after the change.
    pub fn recheck(&self, account: AccountId) {
        let mut state = self.state.lock();
        state.unhealthy.insert(account);
        self.quiet_until.store(0, Ordering::Release);
    }

    /// Returns true if all accounts are healthy. Takes no lock.
    pub fn is_empty(&self, now: Timestamp) -> bool {
        now.as_millis() < self.quiet_until.load(Ordering::Acquire)
    }

    /// Returns all unhealthy accounts in ascending order; `usability` checks one account.
    pub fn now(
        &self,
        now: Timestamp,
        usability: impl Fn(AccountId) -> Usability,
    ) -> Vec<AccountId> {
        if self.is_empty(now) {
            return Vec::new();
        }
        let mut state = self.state.lock();
        let Accounts { unhealthy, ends } = &mut *state;
        while let Some((at, account)) = ends.first().copied().filter(|(at, _)| *at <= now) {
            ends.remove(&(at, account));
            unhealthy.insert(account);
        }
        unhealthy.retain(|account| match usability(*account) {
            Usability::Unusable => true,
            Usability::Until(end) => {
                ends.insert((end, *account));
                false
            }
            Usability::Lasting => false,
        });
        let unhealthy = unhealthy.iter().copied().collect();
        self.quiet_until.store(state.quiet_until(), Ordering::Release);
        unhealthy
    }
}

impl Accounts {
    fn quiet_until(&self) -> u64 {
        if self.unhealthy.is_empty() {
            self.ends.first().map_or(u64::MAX, |(at, _)| at.as_millis())
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);
    const A: AccountId = AccountId(1);
    const B: AccountId = AccountId(2);

    #[test]
    fn no_account_is_checked_while_all_are_healthy() {
        let unhealthy = UnhealthyAccounts::new([A, B]);
        assert!(unhealthy.now(NOW, |_| Usability::Lasting).is_empty());
        assert!(unhealthy.now(NOW, |_| panic!("looked at")).is_empty());
        unhealthy.recheck(B);
        assert_eq!(unhealthy.now(NOW, |_| Usability::Unusable), [B]);
    }

    #[test]
    fn an_account_is_checked_when_its_token_ends() {
        let unhealthy = UnhealthyAccounts::new([B, A]);
        let end = NOW + Duration::from_secs(60);
        let looked = Cell::new(0);
        let until = |account| {
            looked.set(looked.get() + 1);
            if account == A { Usability::Until(end) } else { Usability::Lasting }
        };
        assert!(unhealthy.now(NOW, until).is_empty());
        assert!(unhealthy.now(end - Duration::from_millis(1), until).is_empty());
        assert_eq!(looked.get(), 2);
        assert_eq!(unhealthy.now(end, |_| Usability::Unusable), [A]);
        assert_eq!(
            unhealthy.now(end, |_| Usability::Unusable),
            [A],
            "until it is found to be whole"
        );
    }
}
