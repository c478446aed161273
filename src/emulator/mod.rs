//! The emulated upstream: the reference of all tests, the backend of `weir demo`, and a target for
//! client authors.
//!
//! [`Emulator`] is pure: it owns all state, takes the time and the peer's address as arguments, and
//! has no randomness but the seed. [`Server`] puts it behind a socket. A request passes, in reading
//! order:
//!
//! `http` (path and query) → `control` (requests about the emulator) → `auth` (credential) →
//! `pipeline` (route and cost) → `limits` → `resources`, `generic` or `graphql` (the answer) →
//! `pipeline` (conditions and headers) → `state` (transcript). `faults` holds what a test wants to
//! go wrong, or to wait.
//!
//! Rooms from the top down; a room imports only from rooms below it:
//!
//! | room | content |
//! |---|---|
//! | `server` | the socket: listener, connections, idle time-out |
//! | `pipeline` | a request from arrival to answer; `Emulator` |
//! | `control` | `/_emulator`: requests about the emulator itself |
//! | `graphql` | one schema over the same world as REST |
//! | `resources` | routes by kind of resource, and the functions that answer them |
//! | `generic` | routes of the endpoint table without a model of their own |
//! | `state` | all that an emulator is; reset and transcript |
//! | `replay` | answers from recorded exchanges |
//! | `faults` | injected faults and gates |
//! | `seed` | the seed world |
//! | `migrations` | export of user migrations |
//! | `events` | webhook events, notifications and deliveries |
//! | `render` | JSON of what exists |
//! | `auth` | credentials, roles and permissions |
//! | `routing` | routes, their needs and the call |
//! | `world` | data and look-ups |
//! | `http` | paths, fields, errors, validators and replies |
//! | `limits` | primary and secondary limits, and their settings |
//! | `accounts` | accounts, tokens and permissions |
//!
//! It follows the upstream's documentation alone. It shares names and the endpoint table with the
//! gateway (`crate::api`), but no rules: a shared misreading would pass every test. A second
//! reading (`src/api/endpoint/matrix_tests.rs`) and `tests/specification` check the table.

mod accounts;
mod auth;
mod control;
mod events;
mod faults;
mod generic;
mod graphql;
mod http;
mod limits;
mod migrations;
mod pipeline;
mod render;
mod replay;
mod resources;
mod routing;
mod seed;
mod server;
mod state;
mod world;

#[cfg(test)]
mod tests;

pub use self::events::delivery::queue::Outgoing;
pub use self::events::delivery::sender::WebhookSender;
pub use self::faults::gates::GateId;
pub use self::faults::wire::{Departure, Framing, Wire};
pub use self::faults::{FaultId, FaultSpec, WrongMember};
pub use self::http::path::UploadBytes;
pub use self::limits::RequestId;
pub use self::limits::settings::WrongLimit;
pub use self::pipeline::arrival::Arrival;
pub use self::pipeline::emulator::Emulator;
pub use self::pipeline::inspection::BudgetWindow;
pub use self::replay::{LoadError, Recording};
pub use self::seed::options::Options;
pub use self::server::{Handle, Server};
pub use self::state::reset::Conditions;
pub use self::state::transcript::Entry;
pub use self::world::webhooks::queue::OutgoingId;
pub use self::world::{Certificate, Failure, Receipt, TokenView};
