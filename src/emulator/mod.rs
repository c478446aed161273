//! The emulated upstream: the reference of all tests, the backend of `weir demo`, and a target for
//! client authors.
//!
//! [`Emulator`] is pure: it owns all state, takes the time and the peer's address as arguments, and
//! has no randomness but the seed. [`Server`] puts it behind a socket. A request passes, in reading
//! order:
//!
//! - `intake`: base address and path
//! - `control`: the control plane
//! - `credentials`: authentication
//! - `route`: the endpoint
//! - `limits`, `primary`, `secondary`: rate limits
//! - `resources`, `inventory`: the response
//! - `validators`: conditional requests
//! - `reply`: headers
//! - `transcript`: the record for tests
//!
//! Beside them, `faults` and `gates` let a test break or hold requests. A change causes
//! notifications (`events`) and webhook events (`happenings`). Deliveries wait in the `outbox`
//! until the server's `courier` sends them.
//!
//! It follows the upstream's documentation alone. It shares names and the endpoint table with the
//! gateway (`crate::api`), but no rules: a shared misreading would pass every test. A second
//! reading (`api/matrix_tests.rs`) and `tests/specification` check the table.

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
pub use self::limits::request_id::RequestId;
pub use self::limits::settings::UnknownLimit;
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
