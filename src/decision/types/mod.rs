//! Types that every part of the decision core uses: identifiers, settings, demands and grants.
//!
//! Data only, no rules.

mod demand;
pub(super) mod id_map;
pub mod invariants;
mod settings;

pub use demand::{
    AccountId, ClientId, Demand, Grant, LeaseId, LimitDenied, LimitKind, Settlement, Shadowed,
    Ticket, TokenKey, Until, WriteSpacing,
};
pub use settings::{
    AccountLayout, AccountSettings, BudgetAmount, ClientBudget, ClientSettings, Pace, Priority,
    Recovered, SecondaryLimits, Settings, Shadow,
};

/// Map with keys that no client chooses: a fast hash without a seed, so that a simulation repeats
/// exactly.
pub(super) type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::FixedState>;
