//! Weir: a shared gateway between many bots and a code-hosting service's REST and GraphQL API.
//!
//! # The path of a request
//!
//! ```text
//! listener ─ intake ─ client ─ endpoint ─ access
//!   ├ GET, HEAD → cache ─ one fetch for all askers ┐
//!   └ write     → lane (order) ────────────────────┤
//!                                       admission: account, budget, secondary slots
//!                                                  └ upstream ─ settle ─ limited? wait, or another account
//!                                                       └ store / invalidate ─ rewrite ─ client
//! every step → outcome → log line, metrics, span
//! ```
//!
//! # The modules, in reading order
//!
//! [`clock`] (time) · [`api`] (facts about the upstream) · [`config`] · [`decision`] (every policy,
//! pure) · [`tokens`] · [`webhooks`] · [`gateway`] (the I/O shell) · [`telemetry`] · [`admin`] ·
//! [`emulator`] (the upstream for tests and demos; never shares a rule with `decision`) ·
//! [`simulation`] (all of it in virtual time) · [`cli`].
//!
//! Dependencies point one way: `gateway → decision → api`, `emulator → api`, `simulation →
//! decision, emulator`.
//!
//! # Words
//!
//! *account*: who a budget belongs to. *token*: a credential of an account. *pool*: accounts that
//! fetch for the same clients. *client*: a bot, known by its key. *resource*: what an upstream
//! budget is for (`core`, `search`). *book*: what is known of one budget. *lease*: the right to
//! spend one unit. *scope*: whose view a stored answer shows. *validator*: an `ETag` or date to ask
//! conditionally with. *lane*: the order of writes to one thing. *refusal*: a decision, not an
//! error: which limit, and until when. *outcome*: how a request ended.

#![warn(missing_docs)]

pub mod admin;
pub mod api;
pub mod cli;
pub mod clock;
pub mod config;
pub mod decision;
#[cfg(feature = "emulator")]
pub mod emulator;
pub mod gateway;
pub mod random;
#[cfg(feature = "emulator")]
pub mod simulation;
pub mod telemetry;
pub mod tokens;
pub mod webhooks;
pub mod writes;
