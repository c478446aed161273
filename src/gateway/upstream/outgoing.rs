//! A request on its way to the upstream.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};

use crate::gateway::address::Service;

/// A request for the upstream, before the additions of an attempt.
pub struct OutgoingRequest {
    pub service: Service,
    pub method: Method,
    /// Path and query, below the upstream's address.
    pub target: String,
    pub headers: Arc<HeaderMap>,
    pub body: OutgoingBody,
}

#[derive(Clone)]
pub enum OutgoingBody {
    /// None at all (GET, HEAD).
    Absent,
    /// In memory, possibly empty; sent with its length.
    Whole(Bytes),
    /// Sent in pieces by `Exchange::send_body`, with this length in all.
    Streamed(u64),
}

impl OutgoingBody {
    pub fn held_bytes(&self) -> u64 {
        match self {
            Self::Whole(body) => body.len() as u64,
            Self::Absent | Self::Streamed(_) => 0,
        }
    }
}
