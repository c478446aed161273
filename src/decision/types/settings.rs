//! The settings of the quota ledger and the scheduler.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::demand::{AccountId, ClientId};
use crate::api::{AccountKind, ResourceName};

/// Order of the [`AccountId`]s: the accounts of the first config, then the dynamic accounts, then
/// the accounts that later configs added. So no id changes while the ledger exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountLayout {
    /// Number of accounts in the first config.
    pub first: u32,
    /// Number of dynamic accounts, which no config names.
    pub dynamic: u32,
}

impl AccountLayout {
    /// Returns the id of the account at this index of the config's list.
    pub fn id(self, index: usize) -> AccountId {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        AccountId(if index < self.first { index } else { index.saturating_add(self.dynamic) })
    }

    /// Returns an account's index in the config's list; `None` for a dynamic account.
    pub fn index(self, account: AccountId) -> Option<usize> {
        let beyond = account.0.checked_sub(self.first);
        let index = beyond
            .map_or(Some(account.0), |beyond| Some(beyond.checked_sub(self.dynamic)? + self.first));
        index.and_then(|index| usize::try_from(index).ok())
    }

    /// Returns true for a dynamic account.
    pub fn is_dynamic(self, account: AccountId) -> bool {
        self.index(account).is_none()
    }
}

/// Order of service among waiting requests; the greater goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Stops while less than [`Settings::batch_floor`] of a budget is left.
    Batch,
    /// Default priority.
    #[default]
    Normal,
    /// A person waits for the answer.
    Interactive,
}

/// The events between the file and the end of the process that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// Nothing: the process stopped in order, and the file holds its last state.
    Last,
    /// Perhaps requests. What denies is taken over, and no budget.
    Earlier,
}

/// Distribution of a budget over its window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// First come, first served.
    #[default]
    Burst,
    /// Evenly until the reset.
    Even,
}

/// Settings that follow from the config.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Accounts, with ids by [`AccountLayout`].
    pub accounts: Vec<AccountSettings>,
    /// Places for the accounts behind credentials that clients present.
    pub dynamic_accounts: u32,
    /// Clients; a `ClientId` is an index in this list. Others have the default share and
    /// priority.
    pub clients: Vec<ClientSettings>,
    /// Own budgets of clients, at most one for a client and a resource.
    pub client_budgets: Vec<ClientBudget>,
    /// Rules that only count what they would deny or hold.
    pub shadow: Shadow,
    /// Distribution of a primary budget over its window.
    pub pace: Pace,
    /// Part of a budget, 0 to 1, below which requests of priority [`Priority::Batch`] stop.
    pub batch_floor: f64,
    /// Most requests that may wait at once.
    pub waiting_max: usize,
    /// Most bytes that all waiting requests may hold together
    /// ([`Demand::held_bytes`](crate::decision::Demand::held_bytes)).
    pub waiting_bytes_max: u64,
    /// Secondary limits of every account.
    pub limits: SecondaryLimits,
    /// Least time between two writes of one account; zero lets them run side by side.
    pub spacing: Duration,
    /// The same for two writes with notifications.
    pub notify_spacing: Duration,
    /// Most replicas that use the accounts: a request needs a part of each limit. `None`: this
    /// gateway is alone.
    pub replicas_max: Option<NonZeroU32>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            accounts: Vec::new(),
            dynamic_accounts: 0,
            clients: Vec::new(),
            client_budgets: Vec::new(),
            shadow: Shadow::default(),
            pace: Pace::Burst,
            batch_floor: 0.0,
            waiting_max: usize::MAX,
            waiting_bytes_max: u64::MAX,
            limits: SecondaryLimits::default(),
            spacing: Duration::ZERO,
            notify_spacing: Duration::ZERO,
            replicas_max: None,
        }
    }
}

/// One client, as the wait queue sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// Share of the client while requests wait, relative to the other clients' weights.
    pub weight: NonZeroU32,
    /// Priority of its waiting requests.
    pub priority: Priority,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self { weight: NonZeroU32::MIN, priority: Priority::Normal }
    }
}

/// A client's own budget of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientBudget {
    /// Client that has it.
    pub client: ClientId,
    /// Name of the client in the config, by which a window outlasts the process.
    pub name: Arc<str>,
    /// Resource, such as `core`.
    pub resource: ResourceName,
    /// Units that it may spend.
    pub amount: BudgetAmount,
    /// Accounts of whose limits a share is taken.
    pub accounts: Arc<[AccountId]>,
    /// True if requests beyond it are denied; else they go after those of all others.
    pub is_hard: bool,
}

/// Size of a client's own budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetAmount {
    /// So many units in each window of this length.
    Units {
        /// Units of a window, at least 1.
        units: u32,
        /// Length of a window.
        per: Duration,
    },
    /// A share of the accounts' limits in each of their windows, without their reserves.
    Share {
        /// 1 to 1,000,000.
        millionths: u32,
    },
}

/// Rules in shadow mode, which only count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shadow {
    /// Secondary limits, `pace` and `batch_floor`.
    pub limits: bool,
    /// Own budgets of clients.
    pub client_budgets: bool,
}

/// One account, as the ledger sees it.
#[derive(Clone, Debug)]
pub struct AccountSettings {
    /// Name in the config.
    pub name: Arc<str>,
    /// Kind of account at the upstream.
    pub kind: AccountKind,
    /// True if several clients may use it. One of them leaves slots to the others (SPECIFICATION
    /// D5).
    pub is_shared: bool,
    /// Units of each window that are left to others.
    pub reserve: u32,
    /// Second account whose budgets its requests also consume: an app that acts for a user
    /// (SPECIFICATION, "Primary rate limits").
    pub also_spends: Option<AccountId>,
}

/// The upstream's secondary limits, per account. The defaults are the documented ones
/// (SPECIFICATION, "Secondary rate limits"). A limit of 0 counts as 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecondaryLimits {
    /// Requests at once, REST and GraphQL together.
    pub concurrency: u32,
    /// REST points per endpoint and minute.
    pub rest_points_per_minute: u32,
    /// GraphQL points per minute.
    pub graphql_points_per_minute: u32,
    /// Seconds of upstream CPU time per minute, REST and GraphQL together.
    pub cpu_seconds_per_minute: u32,
    /// The same in ten seconds; `None`: half of the minute's.
    pub cpu_seconds_per_ten_seconds: Option<u32>,
    /// Seconds of upstream CPU time per minute that GraphQL may take.
    pub graphql_cpu_seconds_per_minute: u32,
    /// Content-generating requests per minute.
    pub content_per_minute: u32,
    /// Content-generating requests per hour.
    pub content_per_hour: u32,
    /// OAuth token requests per hour.
    pub oauth_tokens_per_hour: u32,
}

impl SecondaryLimits {
    /// Seconds of upstream CPU time in ten seconds. The upstream names no figure; half of the
    /// minute's is ours.
    pub fn cpu_burst_seconds(self) -> u32 {
        self.cpu_seconds_per_ten_seconds.unwrap_or(self.cpu_seconds_per_minute.div_ceil(2))
    }
}

impl Default for SecondaryLimits {
    fn default() -> Self {
        Self {
            concurrency: 100,
            rest_points_per_minute: 900,
            graphql_points_per_minute: 2_000,
            cpu_seconds_per_minute: 90,
            cpu_seconds_per_ten_seconds: None,
            graphql_cpu_seconds_per_minute: 60,
            content_per_minute: 80,
            content_per_hour: 500,
            oauth_tokens_per_hour: 2_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::decision::types::*;

    #[test]
    fn the_defaults_are_the_documented_limits() {
        let limits = SecondaryLimits::default();
        assert_eq!(
            (limits.concurrency, limits.rest_points_per_minute, limits.graphql_points_per_minute),
            (100, 900, 2_000)
        );
        assert_eq!(
            (limits.cpu_seconds_per_minute, limits.graphql_cpu_seconds_per_minute),
            (90, 60)
        );
        assert_eq!(limits.cpu_burst_seconds(), 45);
        assert_eq!(
            (limits.content_per_minute, limits.content_per_hour, limits.oauth_tokens_per_hour),
            (80, 500, 2_000)
        );
    }
}
