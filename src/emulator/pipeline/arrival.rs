//! What the emulator says about one request when it arrives.

use bytes::Bytes;
use http::Response;

use crate::emulator::faults::gates::GateId;
use crate::emulator::faults::wire::{Departure, Wire};
use crate::emulator::limits::RequestId;

/// The answer to a request, and whether it has to wait.
#[derive(Debug)]
pub struct Arrival {
    /// To be handed to [`finish`](super::Emulator::finish) when the answer leaves, or to
    /// [`abandon`](super::Emulator::abandon) when its client is gone.
    pub id: RequestId,
    /// The whole answer. A `HEAD` has the headers of its `GET` and no body.
    pub response: Response<Bytes>,
    /// The gate that holds the answer back, if a test has shut one for it.
    pub gate: Option<GateId>,
    /// How the answer leaves, once the gate is open.
    pub wire: Wire,
    /// Whether [`departed`](super::Emulator::departed) is to be called.
    pub departure: Departure,
}
