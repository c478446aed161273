//! The pure core: every policy about access, caching, quotas, scheduling, permissions and writes.
//!
//! No I/O, clock, source of randomness, locks or async: time and random numbers are arguments, so
//! tests and simulations need no socket. In the order in which a request meets them:
//!
//! | module | decides |
//! |---|---|
//! | `access` | the routes that a client may call |
//! | `cache` | the key of a stored answer (D2), and whether to serve, revalidate or fetch it (D1 to D3) |
//! | `permissions` | the accounts that are likely to be served, and the retry of a denial |
//! | `writes` | the order of writes to one resource, and the writes in progress (D7) |
//! | `body_pace` | the time that a request body may take (D20) |
//! | [`scheduler`] | admission: now, later or never (D10) |
//! | `quota` | the account: primary budgets (D4), secondary limits (D5), cooldowns (D6) |
//! | `fleet` | the parts of the limits that each replica may use |
//! | `breaker` | sending at all: the circuit breaker of an upstream address (D22) |
//! | `deadline` | the time by which a request is answered |
//! | `attempts` | the step after each attempt of a request (D6, D7) |
//! | `retry` | the step after a failure (D7) |
//! | `silence` | the cause of a wait that ended: a limit, or requests without an answer |
//! | `floor_rate` | how long a slow client may take an answer |
//! | `advice` | nothing: what other rules of the cache would have saved |
//! | [`types`] | nothing: identifiers, settings, requests and grants, and the numbered invariants |
//!
//! [`crate::api`] knows the upstream's answers. Waiting and sending belong to the gateway.

pub(crate) mod access;
pub(crate) mod advice;
pub(crate) mod attempts;
pub(crate) mod body_pace;
pub mod breaker;
pub(crate) mod cache;
pub(crate) mod deadline;
pub mod fleet;
pub(crate) mod floor_rate;
pub(crate) mod permissions;
mod quota;
pub(crate) mod retry;
pub mod scheduler;
pub(crate) mod silence;
pub mod types;
pub(crate) mod writes;

pub use cache::freshness::Mode;
pub use quota::{
    AccountSnapshot, BudgetView, ClientBudgetSnapshot, QuotaLedger, SecondarySnapshot,
    WindowSnapshot, units_spent,
};
pub(crate) use quota::{Question, SavedLedger, SpendingMark, Spent, SpentBudget, Stated};
pub use scheduler::{Admission, Decision, HeldRequests};
pub use types::invariants::Invariant;
pub use types::{
    AccountId, AccountLayout, AccountSettings, BudgetAmount, ClientBudget, ClientId,
    ClientSettings, Demand, Grant, LeaseId, LimitDenied, LimitKind, Pace, Priority, Recovered,
    SecondaryLimits, Settings, Settlement, Shadow, Shadowed, Ticket, TokenKey, Until, WriteSpacing,
};
