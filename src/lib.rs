//! Weir: a shared gateway between many bots and a code-hosting service's REST and GraphQL API.
//!
//! # The modules, in reading order
//!
//! [`clock`] (time) · [`random`] (seeded numbers) · [`api`] (facts about the upstream) · [`config`]
//! · [`decision`] (every policy, pure) · [`tokens`] · [`webhooks`] · [`writes`] · [`state`] (what
//! replicas share) · [`gateway`] (the I/O shell) · [`telemetry`] · `cross_site` (marks of browsers)
//! · [`admin`] · `emulator` (the upstream for tests and demos; shares no rule with `decision`) ·
//! `simulation` (all of it in virtual time) · [`cli`].
//!
//! Dependencies point one way: `gateway → decision → api`, `emulator → api`, `simulation →
//! decision, emulator`. ARCHITECTURE.md follows a request through them.
//!
//! # Words
//!
//! - *account*: the owner of a budget.
//! - *token*: a credential of an account.
//! - *pool*: accounts that fetch for the same clients.
//! - *client*: a bot, known by its key.
//! - *resource*: the subject of an upstream budget (`core`, `search`).
//! - *quota ledger*: the knowledge of all budgets.
//! - *lease*: the right to spend one unit.
//! - *scope*: the view that a stored answer shows.
//! - *validator*: an `ETag` or date for conditional requests.
//! - *lane*: the order of writes to one thing.
//! - *denial*: a decision, not an error: the limit, and its end.
//! - *outcome*: the end of a request, as log, metrics and traces show it.

#![warn(missing_docs)]

pub mod admin;
pub mod api;
#[cfg(test)]
#[path = "../tests/support/cases.rs"]
mod cases;
pub mod cli;
pub mod clock;
pub mod config;
mod cross_site;
pub mod decision;
#[cfg(feature = "emulator")]
pub mod emulator;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod gateway;
pub mod random;
#[cfg(feature = "emulator")]
pub mod simulation;
pub mod state;
pub mod telemetry;
pub mod tokens;
pub mod webhooks;
pub mod writes;
