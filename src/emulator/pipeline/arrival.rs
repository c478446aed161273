//! A request that arrives, and the emulator's result for it.

use std::net::IpAddr;

use bytes::Bytes;
use http::{Request, Response};

use crate::clock::Timestamp;
use crate::emulator::faults::gates::GateId;
use crate::emulator::faults::wire::{Departure, Wire};
use crate::emulator::http::Canonical;
use crate::emulator::limits::RequestId;

/// An admitted request, which is in flight from now on.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    pub id: RequestId,
    pub now: Timestamp,
    pub request: &'a Request<Bytes>,
    pub canonical: Canonical<'a>,
    pub peer: IpAddr,
}

impl<'a> Incoming<'a> {
    /// Path and query as sent.
    pub fn address(&self) -> &'a str {
        self.request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str)
    }
}

/// The response to a request, with its delays.
#[derive(Debug)]
pub struct Arrival {
    /// Pass it to `Emulator::finish` when the response leaves, or to
    /// `Emulator::abandon` when the client disconnects.
    pub id: RequestId,
    /// The complete response. A `HEAD` has the headers of its `GET` and no body.
    pub response: Response<Bytes>,
    /// The gate that holds the response, if a test has shut one for it.
    pub gate: Option<GateId>,
    /// Transport faults to apply once the gate is open.
    pub wire: Wire,
    /// Says if `Emulator::departed` must be called.
    pub departure: Departure,
}
