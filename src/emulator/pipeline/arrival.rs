//! The emulator's result for one arriving request.

use bytes::Bytes;
use http::Response;

use crate::emulator::faults::gates::GateId;
use crate::emulator::faults::wire::{Departure, Wire};
use crate::emulator::limits::RequestId;

/// The response to a request, with its delays.
#[derive(Debug)]
pub struct Arrival {
    /// Pass it to [`finish`](super::Emulator::finish) when the response leaves, or to
    /// [`abandon`](super::Emulator::abandon) when the client disconnects.
    pub id: RequestId,
    /// The complete response. A `HEAD` has the headers of its `GET` and no body.
    pub response: Response<Bytes>,
    /// The gate that holds the response, if a test has shut one for it.
    pub gate: Option<GateId>,
    /// Transport faults to apply once the gate is open.
    pub wire: Wire,
    /// Says if [`departed`](super::Emulator::departed) must be called.
    pub departure: Departure,
}
