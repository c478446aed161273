//! The emulator as its users call it.

use std::net::IpAddr;

use bytes::Bytes;
use http::{Request, Response};

use super::arrival::{Arrival, Incoming};
use super::demand::Target;
use crate::clock::Timestamp;
use crate::emulator::accounts::Caller;
use crate::emulator::auth::pace::Pace;
use crate::emulator::events::delivery::queue::{self, Outgoing};
use crate::emulator::faults::gates::GateId;
use crate::emulator::faults::wire::{Departure, Wire};
use crate::emulator::faults::{FaultId, FaultSpec};
use crate::emulator::generic::models::runs;
use crate::emulator::http::{ApiArea, ApiError, path};
use crate::emulator::limits::{RequestId, Resource};
use crate::emulator::replay::Recording;
use crate::emulator::resources::issues::auto_merge;
use crate::emulator::seed::options::Options;
use crate::emulator::state::State;
use crate::emulator::state::reset::Conditions;
use crate::emulator::state::transcript::Entry;
use crate::emulator::world::{OutgoingId, Receipt, TokenView};
use crate::emulator::{control, migrations, resources};

/// The whole upstream: accounts, budgets, resources and the transcript.
#[derive(Debug)]
pub struct Emulator {
    pub(in crate::emulator) state: State,
}

impl Emulator {
    /// Creates an upstream with its seed world; everything in it happened before `now`.
    #[must_use]
    pub fn new(options: Options, now: Timestamp) -> Self {
        Self { state: State::new(options, None, now) }
    }

    /// Creates an upstream that answers from recorded exchanges instead of the seed world. Budgets,
    /// gates, transcript and control plane work as usual. It accepts any credential, each with a
    /// budget of its own.
    #[must_use]
    pub fn replaying(options: Options, recording: Recording, now: Timestamp) -> Self {
        Self { state: State::new(options, Some(recording), now) }
    }

    /// Says that the emulator's clock runs `factor` times as fast as its clients', from `now` on.
    /// The times in a JWT may then be by either clock.
    pub fn paced(&mut self, factor: f64, now: Timestamp) {
        self.state.pace = Pace { started: now, factor };
    }

    /// Applies these conditions now and after every reset. Faults and limits set so far are
    /// dropped.
    pub fn impose(&mut self, conditions: Conditions) {
        self.state.impose(conditions);
    }

    /// Answers one request that arrives and completes at `now`. A [`Wire`] extension of the
    /// response holds its transport faults.
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

    /// Admits a request: checks its limits, executes it and builds its response. It stays in flight
    /// until [`Emulator::finish`].
    pub fn arrive(&mut self, now: Timestamp, request: &Request<Bytes>, peer: IpAddr) -> Arrival {
        let state = &mut self.state;
        let canonical = path::canonical(request.uri().path());
        migrations::advance(&mut state.world, &state.limits, now);
        runs::advance(&mut state.world, &state.limits, now);
        auto_merge::advance(&mut state.world, now);
        if canonical.area == ApiArea::Control {
            let response = control::respond(state, now, request, canonical.path);
            let (wire, departure) = (Wire::Whole, Departure::Unwatched);
            return Arrival { id: RequestId(0), response, gate: None, wire, departure };
        }
        resources::notifications::finish_due_reads(&mut state.world, now);
        state.world.clone_secrets.turn(now);
        state.next_request += 1;
        let id = RequestId(state.next_request);
        let incoming = Incoming { id, now, request, canonical, peer };
        let (response, departure) = state.exchange_under_faults(&incoming);
        auto_merge::advance(&mut state.world, now);
        let gate = state.gates.hold(id, request.method(), canonical.path);
        let wire = response.extensions().get().copied().unwrap_or_default();
        Arrival { id, response, gate, wire, departure }
    }

    /// Answers a request that could not be read: it has neither a route nor a caller, costs nothing
    /// and is not in the transcript. Its headers are those of an anonymous caller.
    pub(in crate::emulator) fn refuse_unreadable(
        &mut self,
        now: Timestamp,
        peer: IpAddr,
        error: ApiError,
    ) -> Response<Bytes> {
        let state = &mut self.state;
        state.next_request += 1;
        let (id, request) = (RequestId(state.next_request), Request::new(Bytes::new()));
        let canonical = path::canonical(request.uri().path());
        let incoming = Incoming { id, now, request: &request, canonical, peer };
        let caller = Caller::anonymous(peer);
        let context = state.context(&incoming, &caller, &Target::Unknown);
        let mut response = error.into_reply().into_response(&context);
        let headers = response.headers_mut();
        state.write_rate_headers(now, caller.account, Resource::CORE, headers);
        response
    }

    /// Marks the response of request `id` as sent: it frees its concurrency slot. Its share of the
    /// sliding windows ends a window's length from `now`. Unknown ids are ignored.
    pub fn finish(&mut self, now: Timestamp, id: RequestId) {
        let state = &mut self.state;
        state.gates.release(id);
        state.faults.holds.release(id);
        state.secondary.finish(now, id, &state.limits);
        if let Some((account, resource, until)) = state.announcing.remove(&id) {
            state.announced.retain(|_, until| *until > now);
            state.announced.insert((account, resource), until);
        }
    }

    /// Takes the webhook deliveries that are due, for the code that sends them. Report each with
    /// [`Emulator::delivered`]; only then its webhook's next one is due. Untaken deliveries wait,
    /// within bounds.
    pub fn take_outgoing(&mut self, now: Timestamp) -> Vec<Outgoing> {
        runs::advance(&mut self.state.world, &self.state.limits, now);
        auto_merge::advance(&mut self.state.world, now);
        queue::take(&mut self.state.world, self.state.options.dialect, now)
    }

    /// Records the result of a delivery. An unknown id is ignored: its webhook was deleted or the
    /// emulator reset.
    pub fn delivered(&mut self, id: OutgoingId, receipt: Receipt) {
        queue::settle(&mut self.state.world, id, receipt);
    }

    /// Returns true when [`Emulator::take_outgoing`] would return a delivery.
    #[must_use]
    pub fn has_outgoing(&self) -> bool {
        self.state.world.delivery_queue.has_outgoing()
    }

    /// Returns the time of the next change that comes without a request, which may raise
    /// deliveries: [`Emulator::take_outgoing`] makes it.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.state.world.run_steps.next_due()
    }

    /// Returns true when every delivery has been sent and reported.
    #[must_use]
    pub fn is_all_delivered(&self) -> bool {
        self.state.world.delivery_queue.is_empty()
    }

    /// Frees the slot of request `id`, the client of which disconnected before its response left.
    /// The client has learnt nothing from the response.
    pub fn abandon(&mut self, now: Timestamp, id: RequestId) {
        self.state.withhold(id);
        self.finish(now, id);
    }

    /// Returns true when requests held by `gate` may go on: it was deleted, or never existed.
    #[must_use]
    pub fn gate_is_open(&self, gate: GateId) -> bool {
        self.state.gates.is_open(gate)
    }

    /// Returns the number of requests that `gate` holds now.
    #[must_use]
    pub fn held(&self, gate: GateId) -> usize {
        self.state.gates.held(gate)
    }

    /// Returns true while a fault holds back the response of request `id`.
    #[must_use]
    pub fn is_held_back(&self, now: Timestamp, id: RequestId) -> bool {
        self.state.faults.holds.is_held(id, now)
    }

    /// Marks the end of the response of request `id`. Call it after [`Emulator::finish`] when the
    /// arrival asks for it.
    pub fn departed(&mut self, id: RequestId) {
        self.state.faults.holds.departed(id);
    }

    /// Arms a fault, as `POST /_emulator/faults` does; `None` when there are too many.
    pub fn arm(&mut self, fault: FaultSpec) -> Option<FaultId> {
        self.state.faults.arm(fault)
    }

    /// Returns the number of times a fault has struck; `None` when it was deleted.
    #[must_use]
    pub fn struck(&self, fault: FaultId) -> Option<u64> {
        self.state.faults.struck(fault)
    }

    /// Lists the tokens of the seed world, in the order of their positions in the transcript.
    #[must_use]
    pub fn tokens(&self) -> Vec<TokenView> {
        self.state.world.token_views()
    }

    /// Lists the ids of the seed world's apps, in the order of `/_emulator/world`.
    #[must_use]
    pub fn app_ids(&self) -> Vec<u64> {
        self.state.world.apps.iter().map(|app| app.id).collect()
    }

    /// Returns the number of recorded exchanges; `None` when it has a world instead.
    #[must_use]
    pub fn recorded_exchanges(&self) -> Option<usize> {
        self.state.replayer.as_ref().map(|replayer| replayer.recording.len())
    }

    /// Lists every request with a sequence number above `since`; a full transcript drops the
    /// oldest.
    #[must_use]
    pub fn transcript(&self, since: u64) -> Vec<Entry> {
        self.state.transcript.since(since).cloned().collect()
    }
}
