//! The frames of an HTTP/2 client on their way to the framework: marked trailers, and the end of a
//! connection that floods.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::{Buf, BytesMut};
use tokio::io::ReadBuf;

use super::floods::{Flood, FrameBudget, STREAMS_MAX};
use super::trailers::TrailerMarker;
use crate::clock::timer_now;
use crate::gateway::connections::slot::Slot;

/// GOAWAY with `ENHANCE_YOUR_CALM` (RFC 9113 §6.8, §7): head of 9 bytes, last stream, code.
const GOAWAY: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xb];
/// The place of the last stream in it.
const LAST_STREAM: std::ops::Range<usize> = 9..13;

/// The facts about a connection that its session needs.
#[derive(Default)]
pub struct Http2State {
    /// True while the client takes no bytes.
    is_blocked: AtomicBool,
    flood: OnceLock<Flood>,
}

pub struct Http2 {
    marker: TrailerMarker,
    ready: BytesMut,
    budget: FrameBudget,
    slot: Arc<Slot>,
    state: Arc<Http2State>,
}

impl Http2State {
    pub fn is_blocked(&self) -> bool {
        self.is_blocked.load(Ordering::Relaxed)
    }

    /// The flood that ended the connection.
    pub fn flood(&self) -> Option<Flood> {
        self.flood.get().copied()
    }
}

impl Http2 {
    /// A connection before its preface.
    pub fn new(slot: Arc<Slot>) -> Self {
        Self {
            marker: TrailerMarker::default(),
            ready: BytesMut::new(),
            budget: FrameBudget::new(timer_now()),
            slot,
            state: Arc::default(),
        }
    }

    pub fn state(&self) -> &Arc<Http2State> {
        &self.state
    }

    /// Notes whether the client took the bytes of a write.
    pub fn noted(&self, is_blocked: bool) {
        self.state.is_blocked.store(is_blocked, Ordering::Relaxed);
    }

    /// Notes bytes that the client took.
    pub fn sent(&mut self, bytes: usize) {
        self.budget.sent(bytes);
    }

    /// Passes bytes on. Returns false if there are none for the framework yet. In a flood, returns
    /// the frame to say so, if it may be written now.
    pub fn pass(
        &mut self,
        ahead: &mut BytesMut,
        into: &mut ReadBuf<'_>,
    ) -> Result<bool, Option<[u8; GOAWAY.len()]>> {
        let Self { marker, ready, budget, slot, state } = self;
        let passed = marker.pass(ahead, ready, |frame| {
            if frame.opens_stream {
                slot.head_came(timer_now());
            }
            budget.take(frame, slot.requests() >= STREAMS_MAX, timer_now)
        });
        if let Err(flood) = passed {
            // There is one for each connection.
            let _ = state.flood.set(flood);
            let mut goaway = GOAWAY;
            goaway[LAST_STREAM].copy_from_slice(&marker.last_stream().to_be_bytes());
            // The framework has written whole frames unless the client took no more.
            return Err((!state.is_blocked()).then_some(goaway));
        }
        let length = ready.len().min(into.remaining());
        into.put_slice(&ready[..length]);
        ready.advance(length);
        Ok(length > 0)
    }
}
