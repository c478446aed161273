//! The upstream, as an emulator: what tests trust, what `weir demo` fronts, and what a bot's author can develop against.
//!
//! [`Emulator`] is pure: all state is inside, time and the peer's address are arguments, and nothing is random but the seed.
//! [`Server`] puts it behind a socket. The way of a request, in reading order:
//!
//! `intake` (which shape of path) → `control` (requests about the emulator itself) → `credentials` (who asks) → `route` (what is asked) →
//! `limits`, `primary`, `secondary` (may it be asked now) → `resources`, `inventory` (the answer) → `validators` (304?) → `reply` (headers) → `transcript`.
//!
//! It is written from the specification alone and shares only names and the endpoint table with the gateway (`crate::api`), never rules: a
//! misreading shared by both would pass every test. The table is held to the documents by a second reading (`api/matrix_tests.rs`). What it leaves out so far: team membership, custom properties, issue fields, migrations, the
//! app webhook, real webhook deliveries and faults.

mod access;
mod accounts;
mod arrival;
mod call;
mod control;
mod credentials;
mod events;
mod exchange;
mod fault;
mod fields;
mod gates;
mod graphql;
mod intake;
mod inventory;
mod limits;
mod pagination;
mod primary;
mod render;
mod replay;
mod reply;
mod resources;
mod route;
mod secondary;
mod seed;
mod server;
mod timestamps;
mod transcript;
mod urls;
mod validators;
mod world;

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use bytes::Bytes;
use http::{Request, Response};

use crate::api::Dialect;
use crate::clock::Timestamp;

pub use arrival::{Arrival, RequestId};
pub use exchange::UploadBytes;
pub use gates::GateId;
pub use replay::{LoadError, Recording};
pub use server::{Handle, Server};
pub use transcript::Entry;
pub use world::TokenView;

/// What an emulator is made from; the same options and the same first `now` make the same world.
#[derive(Clone, Debug)]
pub struct Options {
    /// The names it speaks.
    pub dialect: Dialect,
    /// Chooses the details of the seed world.
    pub seed: u64,
    /// How many repositories the seed world has; the first six always exist.
    pub repositories: u32,
    /// The address that `url` fields and `Link` name, such as `http://127.0.0.1:8090`; when empty, the request's own Host.
    pub base_url: String,
}

impl Default for Options {
    fn default() -> Self {
        Self { dialect: Dialect::Service, seed: 1, repositories: 20, base_url: String::new() }
    }
}

/// The whole upstream: accounts, budgets, resources and the record of every request.
#[derive(Debug)]
pub struct Emulator {
    state: exchange::State,
}

impl Emulator {
    /// A fresh upstream with its seed world; everything in it happened before `now`.
    #[must_use]
    pub fn new(options: Options, now: Timestamp) -> Self {
        Self { state: exchange::State::new(options, None, now) }
    }

    /// An upstream that answers from recorded exchanges instead of the seed world. Budgets, gates, the transcript and the control plane
    /// work as ever; any credential is accepted, each with a budget of its own.
    #[must_use]
    pub fn replaying(options: Options, recording: Recording, now: Timestamp) -> Self {
        Self { state: exchange::State::new(options, Some(recording), now) }
    }

    /// Answers one request that arrives and completes at `now`.
    pub fn respond(&mut self, now: Timestamp, request: &Request<Bytes>, peer: IpAddr) -> Response<Bytes> {
        let arrival = self.arrive(now, request, peer);
        self.finish(now, arrival.id);
        arrival.response
    }

    /// A request arrives: it is judged against the limits, executed and its answer made. It stays in flight until [`Emulator::finish`].
    pub fn arrive(&mut self, now: Timestamp, request: &Request<Bytes>, peer: IpAddr) -> Arrival {
        self.state.arrive(now, request, peer)
    }

    /// The answer of request `id` is on its way: its place among the concurrent ones is free, and what it counts for in the
    /// sliding windows ends a window's length from `now`. Unknown ids are ignored.
    pub fn finish(&mut self, now: Timestamp, id: RequestId) {
        self.state.finish(now, id);
    }

    /// Whether requests held by `gate` may go on: it was deleted, or never existed.
    #[must_use]
    pub fn gate_is_open(&self, gate: GateId) -> bool {
        self.state.gates.is_open(gate)
    }

    /// How many requests `gate` holds now.
    #[must_use]
    pub fn held(&self, gate: GateId) -> usize {
        self.state.gates.held(gate)
    }

    /// The tokens of the seed world, in the order of their positions in the transcript.
    #[must_use]
    pub fn tokens(&self) -> Vec<TokenView> {
        self.state.world.token_views()
    }

    /// How many recorded exchanges it answers from; none when it has a world instead.
    #[must_use]
    pub fn recorded_exchanges(&self) -> Option<usize> {
        self.state.replayer.as_ref().map(|replayer| replayer.recording().len())
    }

    /// Every request with a sequence number above `since`; the oldest are dropped when there are very many.
    #[must_use]
    pub fn transcript(&self, since: u64) -> Vec<Entry> {
        self.state.transcript.since(since).cloned().collect()
    }
}
