//! The upstream, as an emulator: what tests trust, what `weir demo` fronts, and what a bot's author
//! can develop against.
//!
//! [`Emulator`] is pure: all state is inside, time and the peer's address are arguments, and
//! nothing is random but the seed. [`Server`] puts it behind a socket. The way of a request, in
//! reading order:
//!
//! `intake` (which shape of path) → `control` (requests about the emulator itself) → `credentials`
//! (who asks) → `route` (what is asked) → `limits`, `primary`, `secondary` (may it be asked now) →
//! `resources`, `inventory` (the answer) → `validators` (304?) → `reply` (headers) → `transcript`.
//! Beside it stand `faults` and `gates`: what a test wants to go wrong, or to wait.
//!
//! What a request changes is told to people (`events`) and to webhooks (`happenings`); their
//! deliveries wait in the `outbox` until the shell's `courier` takes them to their receivers.
//!
//! It is written from the specification alone and shares only names and the endpoint table with the
//! gateway (`crate::api`), never rules: a misreading shared by both would pass every test. The
//! table is held to the documents by a second reading (`api/matrix_tests.rs`) and by
//! `tests/specification`.

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
