//! Which accounts have a credential out of use, known without looking at all of them for each
//! request.
//!
//! What goes out of use by an event (a refusal, a trial) is told here; what does so by itself (a
//! minted token that ends) is noted with its time when it is found in use. Left unhealthy: whether a
//! credential can be used, which is asked of the slots.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::clock::Timestamp;
use crate::decision::AccountId;

/// How an account's credentials are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usability {
    /// Some credential is out of use.
    Unusable,
    /// All are in use, and stay so by themselves until this time.
    Until(Timestamp),
    /// All are in use until somebody tells otherwise.
    Lasting,
}

/// The accounts with a credential out of use.
#[derive(Debug, Default)]
pub struct UnhealthyAccounts {
    state: Mutex<Accounts>,
    /// Before this time, in milliseconds, there is nobody to tell of; spares the healthy the lock.
    quiet_until: AtomicU64,
}

#[derive(Debug, Default)]
struct Accounts {
    unhealthy: BTreeSet<AccountId>,
    /// When accounts that are whole are to be looked at again. One that is suspected in between may
    /// be in it twice: it is looked at once too often.
    ends: BTreeSet<(Timestamp, AccountId)>,
}

impl UnhealthyAccounts {
    /// With accounts that are to be looked at first.
    pub fn new(accounts: impl IntoIterator<Item = AccountId>) -> Self {
        let state = Accounts { unhealthy: accounts.into_iter().collect(), ends: BTreeSet::new() };
        let quiet_until = AtomicU64::new(state.quiet_until());
        Self { state: Mutex::new(state), quiet_until }
    }

    /// Something happened to a credential of this account. To be told after it has happened.
    pub fn recheck(&self, account: AccountId) {
        let mut state = self.state.lock();
        state.unhealthy.insert(account);
        self.quiet_until.store(0, Ordering::Release);
    }

    /// Whether nobody is unhealthy now. Free of locks.
    pub fn is_empty(&self, now: Timestamp) -> bool {
        now.as_millis() < self.quiet_until.load(Ordering::Acquire)
    }

    /// All that are unhealthy now, in ascending order; `usability` looks at one account.
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
    fn while_all_are_whole_nobody_is_looked_at() {
        let unhealthy = UnhealthyAccounts::new([A, B]);
        assert!(unhealthy.now(NOW, |_| Usability::Lasting).is_empty());
        assert!(unhealthy.now(NOW, |_| panic!("looked at")).is_empty());
        unhealthy.recheck(B);
        assert_eq!(unhealthy.now(NOW, |_| Usability::Unusable), [B]);
    }

    #[test]
    fn one_that_ends_by_itself_is_looked_at_when_it_does() {
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
