//! The pure core: what may be asked, by whom, when, on which account, and what its answer teaches.
//!
//! No I/O, no clock, no source of randomness, no locks: time and random numbers are arguments, so
//! that every decision can be tested and simulated without a socket. In the order in which a
//! request meets them:
//!
//! | module | decides |
//! |---|---|
//! | [`access`] | may this client call this route |
//! | [`cache_key`] | which stored view answers it (DESIGN D2) |
//! | [`freshness`] | serve it, confirm it, fetch it; 304 or whole (D1–D3) |
//! | [`rights`] | which of the accounts are likely to be served, and who takes a second look at a denial |
//! | [`lanes`] | whose turn it is to write to a resource (D7) |
//! | [`dispatch`] | which queued writes are under way (D7) |
//! | [`admission`] | now, later or not at all: the books with a waiting line |
//! | [`books`] | on which account: `budget` (D4), `secondary` (D5), `cooldown` (D6), `account_choice` |
//! | [`retry`] | what follows a failure (D7) |
//! | [`invariants`] | what must always hold, id_map |
//!
//! Left out on purpose: what the upstream's answers look like (that is [`crate::api`]), and
//! everything that waits or sends.

pub mod access;
pub mod cache;
pub mod permissions;
mod quota;
pub mod retry;
pub mod scheduler;
pub mod types;
pub mod writes;

pub use quota::{AccountSnapshot, BudgetView, QuotaLedger, SecondarySnapshot, WindowSnapshot};
pub use scheduler::{Admission, Decision};
pub use types::invariants::Invariant;
pub use types::{
    AccountId, AccountLayout, AccountSettings, ClientId, ClientSettings, Demand, Grant, LeaseId,
    LimitDenied, LimitKind, Pace, Priority, SecondaryLimits, Settings, Settlement, Ticket,
    TokenKey, Until, WriteSpacing,
};
