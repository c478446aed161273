//! The emulator as its users call it.

use std::net::IpAddr;

use bytes::Bytes;
use http::{Request, Response};

use super::arrival::Arrival;
use crate::clock::Timestamp;
use crate::emulator::events::delivery::queue::{self, Outgoing};
use crate::emulator::faults::gates::GateId;
use crate::emulator::faults::{FaultId, FaultSpec};
use crate::emulator::limits::RequestId;
use crate::emulator::replay::Recording;
use crate::emulator::seed::options::Options;
use crate::emulator::state::State;
use crate::emulator::state::reset::Conditions;
use crate::emulator::state::transcript::Entry;
use crate::emulator::world::{OutgoingId, Receipt, TokenView};

/// The whole upstream: accounts, budgets, resources and the record of every request.
#[derive(Debug)]
pub struct Emulator {
    pub(in crate::emulator) state: State,
}

impl Emulator {
    /// A fresh upstream with its seed world; everything in it happened before `now`.
    #[must_use]
    pub fn new(options: Options, now: Timestamp) -> Self {
        Self { state: State::new(options, None, now) }
    }

    /// An upstream that answers from recorded exchanges instead of the seed world. Budgets, gates,
    /// the transcript and the control plane work as ever; any credential is accepted, each with a
    /// budget of its own.
    #[must_use]
    pub fn replaying(options: Options, recording: Recording, now: Timestamp) -> Self {
        Self { state: State::new(options, Some(recording), now) }
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
        queue::take(&mut self.state.world, self.state.options.dialect, now)
    }

    /// What became of a delivery. Unknown ids are ignored: the webhook was deleted or the emulator
    /// reset meanwhile.
    pub fn delivered(&mut self, id: OutgoingId, receipt: Receipt) {
        queue::settle(&mut self.state.world, id, receipt);
    }

    /// Whether [`Emulator::take_outgoing`] would have something.
    #[must_use]
    pub fn has_outgoing(&self) -> bool {
        self.state.world.delivery_queue.has_outgoing()
    }

    /// Whether every delivery has been sent and answered for.
    #[must_use]
    pub fn is_all_delivered(&self) -> bool {
        self.state.world.delivery_queue.is_empty()
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
