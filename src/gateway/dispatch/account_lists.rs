//! The lists of accounts that a config makes: its pools, and each account alone.

use crate::config::Config;
use crate::decision::AccountId;
use crate::gateway::dispatch::candidates::{Accounts, Candidates};
use std::sync::Arc;

/// The lists of accounts that requests choose from, by one config.
pub struct AccountLists {
    pub candidates: Candidates,
    pools: Vec<Accounts>,
    alone: Vec<Accounts>,
}

impl AccountLists {
    pub fn new(config: &Config) -> Self {
        let candidates = Candidates::new(config);
        let pools = config.pools.iter().map(|pool| {
            candidates.list(pool.accounts.iter().map(|account| config.account_id(*account)))
        });
        let pools = pools.collect();
        // Dynamic accounts included.
        let places = config.accounts.len() + config.places.dynamic as usize;
        let alone = (0..places)
            .map(|number| candidates.list([AccountId(u32::try_from(number).unwrap_or(u32::MAX))]))
            .collect();
        Self { candidates, pools, alone }
    }

    /// The accounts of a pool; none when there is no such pool.
    pub fn pool(&self, pool: usize) -> Accounts {
        self.pools.get(pool).map(Arc::clone).unwrap_or_default()
    }

    /// A list of one account.
    pub fn alone(&self, account: AccountId) -> Accounts {
        self.alone.get(account.0 as usize).map(Arc::clone).unwrap_or_default()
    }
}
