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

mod access;
mod accounts;
mod arrival;
mod call;
mod clone_secrets;
mod compute;
mod control;
mod courier;
mod credentials;
mod dated;
mod envelope;
mod events;
mod exchange;
mod fault;
mod faults;
mod feed;
mod fields;
mod gates;
mod git_objects;
mod graphql;
mod happenings;
mod intake;
mod inventory;
mod limits;
mod migrations;
mod notices;
mod observed;
mod occasions;
mod outbox;
mod pagination;
mod permissions;
mod polling;
mod primary;
mod reach;
mod render;
mod replay;
mod reply;
mod resources;
mod route;
mod secondary;
mod seed;
mod server;
mod sweeper;
mod timestamps;
mod transcript;
mod urls;
mod validators;
mod wire;
mod world;

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::ops::RangeInclusive;

use bytes::Bytes;
use http::{Request, Response};

use crate::api::Dialect;
use crate::clock::Timestamp;

pub use arrival::{Arrival, RequestId};
pub use courier::Courier;
pub use exchange::{Conditions, UploadBytes};
pub use faults::{FaultId, FaultSpec, WrongMember};
pub use gates::GateId;
pub use limits::UnknownLimit;
pub use observed::BudgetWindow;
pub use outbox::{Outgoing, OutgoingId};
pub use replay::{LoadError, Recording};
pub use server::{Handle, Server};
pub use transcript::Entry;
pub use wire::{Departure, Framing, Wire};
pub use world::{Certificate, Failure, Receipt, TokenView};

/// What an emulator is made from; the same options and the same first `now` make the same world.
#[derive(Clone, Debug)]
pub struct Options {
    /// The names it speaks.
    pub dialect: Dialect,
    /// Chooses the details of the seed world.
    pub seed: u64,
    /// How many repositories the seed world has, beside the few on the enterprise cloud; the first
    /// six always exist.
    pub repositories: u32,
    /// The address that `url` fields and `Link` name, such as `http://127.0.0.1:8090`; when empty,
    /// the request's own Host.
    pub base_url: String,
}

impl Options {
    /// How many repositories a seed world can have: those that always exist, and no more than a
    /// machine can hold.
    pub const REPOSITORIES: RangeInclusive<u32> = 6..=1_000_000;
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

    /// An upstream that answers from recorded exchanges instead of the seed world. Budgets, gates,
    /// the transcript and the control plane work as ever; any credential is accepted, each with a
    /// budget of its own.
    #[must_use]
    pub fn replaying(options: Options, recording: Recording, now: Timestamp) -> Self {
        Self { state: exchange::State::new(options, Some(recording), now) }
    }

    /// From now on these conditions are in force, and again after every reset. Faults armed and
    /// limits set so far are forgotten.
    pub fn impose(&mut self, conditions: Conditions) {
        self.state.impose(conditions);
    }

    /// Answers one request that arrives and completes at `now`. A [`Wire`] among the answer's
    /// extensions tells how a fault lets it leave.
    pub fn respond(
        &mut self,
        now: Timestamp,
        request: &Request<Bytes>,
        peer: IpAddr,
    ) -> Response<Bytes> {
        let arrival = self.arrive(now, request, peer);
        self.finish(now, arrival.id);
        self.departed(arrival.id);
        arrival.response
    }

    /// A request arrives: it is judged against the limits, executed and its answer made. It stays
    /// in flight until [`Emulator::finish`].
    pub fn arrive(&mut self, now: Timestamp, request: &Request<Bytes>, peer: IpAddr) -> Arrival {
        self.state.arrive(now, request, peer)
    }

    /// The answer of request `id` is on its way: its place among the concurrent ones is free, and
    /// what it counts for in the sliding windows ends a window's length from `now`. Unknown ids are
    /// ignored.
    pub fn finish(&mut self, now: Timestamp, id: RequestId) {
        self.state.finish(now, id);
    }

    /// The webhook deliveries that are to be sent now, by whoever puts the emulator on a network.
    /// Each is to be answered with [`Emulator::delivered`]; only then its webhook's next one is
    /// handed out. They wait, within bounds, when nobody takes them.
    pub fn take_outgoing(&mut self, now: Timestamp) -> Vec<Outgoing> {
        outbox::take(&mut self.state.world, self.state.options.dialect, now)
    }

    /// What became of a delivery. Unknown ids are ignored: the webhook was deleted or the emulator
    /// reset meanwhile.
    pub fn delivered(&mut self, id: OutgoingId, receipt: Receipt) {
        outbox::settle(&mut self.state.world, id, receipt);
    }

    /// Whether [`Emulator::take_outgoing`] would have something.
    #[must_use]
    pub fn has_outgoing(&self) -> bool {
        self.state.world.outbox.has_outgoing()
    }

    /// Whether every delivery has been sent and answered for.
    #[must_use]
    pub fn is_all_delivered(&self) -> bool {
        self.state.world.outbox.is_empty()
    }

    /// The client of request `id` is gone before its answer left: its place is free, and it has
    /// learnt nothing from the answer.
    pub fn abandon(&mut self, now: Timestamp, id: RequestId) {
        self.state.withhold(id);
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

    /// Whether a fault still holds back the answer of request `id`.
    #[must_use]
    pub fn is_held_back(&self, now: Timestamp, id: RequestId) -> bool {
        self.state.faults.holds.is_held(id, now)
    }

    /// The last of the answer of request `id` is on its way; to be called after
    /// [`Emulator::finish`] when the arrival asked for it.
    pub fn departed(&mut self, id: RequestId) {
        self.state.faults.holds.departed(id);
    }

    /// Arms a fault, as `POST /_emulator/faults` does; `None` when there are too many.
    pub fn arm(&mut self, fault: FaultSpec) -> Option<FaultId> {
        self.state.faults.arm(fault)
    }

    /// How often a fault has struck; `None` when it was deleted.
    #[must_use]
    pub fn struck(&self, fault: FaultId) -> Option<u64> {
        self.state.faults.struck(fault)
    }

    /// The tokens of the seed world, in the order of their positions in the transcript.
    #[must_use]
    pub fn tokens(&self) -> Vec<TokenView> {
        self.state.world.token_views()
    }

    /// The ids of the seed world's apps, in the order of `/_emulator/world`.
    #[must_use]
    pub fn app_ids(&self) -> Vec<u64> {
        self.state.world.apps.iter().map(|app| app.id).collect()
    }

    /// How many recorded exchanges it answers from; none when it has a world instead.
    #[must_use]
    pub fn recorded_exchanges(&self) -> Option<usize> {
        self.state.replayer.as_ref().map(|replayer| replayer.recording().len())
    }

    /// Every request with a sequence number above `since`; the oldest are dropped when there are
    /// very many.
    #[must_use]
    pub fn transcript(&self, since: u64) -> Vec<Entry> {
        self.state.transcript.since(since).cloned().collect()
    }
}
