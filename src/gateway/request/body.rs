//! Reads request bodies within bounds: the bytes, the pause between two reads, and the memory of
//! all held bodies (SPECIFICATION D10).

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Version;
use http::header::{CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING};
use pingora::protocols::http::ServerSession;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::gateway::counted::grow;
use crate::gateway::dispatch::dispatcher::HELD_BYTES_MAX;
use crate::gateway::error::GatewayError;
use crate::gateway::http::chunks::{BadChunk, ChunkReader};
use crate::gateway::request::validate::BodyFraming;

const UNIT_BYTES: usize = 1024;

/// The declared length of a raw body: more than can arrive, because the last chunk ends it.
const RAW_BYTES: usize = usize::MAX / 2;

/// The memory for bodies of all clients' requests. Webhook deliveries, which are unauthenticated,
/// and queued writes from a store have their own.
pub struct BodyMemory {
    units: Arc<Semaphore>,
    /// True if a body reserves its declared length at once, so that none fails halfway.
    is_ahead: bool,
}

pub enum BodyRead {
    Whole(HeldBody),
    /// Its length or declared length exceeds the limit.
    TooLarge(BegunBody),
}

impl BodyRead {
    pub fn whole(self) -> Result<HeldBody, GatewayError> {
        match self {
            Self::Whole(body) => Ok(body),
            Self::TooLarge(_) => Err(GatewayError::BodyTooLarge),
        }
    }
}

/// A body of which only the beginning was read.
pub struct BegunBody {
    pub first: Bytes,
    pub reader: BodyReader,
}

/// Reads a body piece by piece. It decodes chunked bodies of HTTP/1.1 itself ([`ChunkReader`]) from
/// the session's raw bytes; the connection yields none beyond them.
pub struct BodyReader {
    chunks: Option<ChunkReader>,
    pause_max: Duration,
}

/// A body in memory with its share of [`BodyMemory`].
pub struct HeldBody {
    pub bytes: Bytes,
    /// Kept as long as the body.
    pub memory: Option<OwnedSemaphorePermit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFault {
    /// It broke off, or its chunks are malformed.
    Broken,
    Timeout,
    NoRoom,
}

impl Default for BodyMemory {
    fn default() -> Self {
        Self { units: Arc::new(Semaphore::new(HELD_BYTES_MAX / UNIT_BYTES)), is_ahead: true }
    }
}

impl BodyMemory {
    /// Creates memory of this size; a body takes its share as it arrives.
    pub fn as_it_comes(bytes: usize) -> Self {
        Self { units: Arc::new(Semaphore::new(bytes / UNIT_BYTES)), is_ahead: false }
    }

    /// Waits for memory for a complete or stored body; at most, it takes the whole memory.
    pub async fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = bytes.div_ceil(UNIT_BYTES).min(HELD_BYTES_MAX / UNIT_BYTES);
        // The semaphore is never closed.
        Arc::clone(&self.units).acquire_many_owned(u32::try_from(units).ok()?).await.ok()
    }

    fn grow(
        &self,
        memory: &mut Option<OwnedSemaphorePermit>,
        bytes: usize,
    ) -> Result<(), BodyFault> {
        let has_room = grow(memory, &self.units, bytes.div_ceil(UNIT_BYTES));
        if has_room { Ok(()) } else { Err(BodyFault::NoRoom) }
    }

    /// Reads up to `bytes_max`. Sends `100 Continue` first if the client expects it.
    pub async fn read(
        &self,
        session: &mut ServerSession,
        framing: BodyFraming,
        bytes_max: usize,
        pause_max: Duration,
    ) -> Result<BodyRead, BodyFault> {
        let mut memory = None;
        // First, because the framework prepares its own reader on the first write.
        let mut reader = BodyReader::new(session, framing, pause_max);
        if framing != BodyFraming::None && expects_continue(session) {
            // The next read notices a client that left.
            let _ = session.write_continue_response().await;
        }
        match framing {
            BodyFraming::None => {
                return Ok(BodyRead::Whole(HeldBody { bytes: Bytes::new(), memory }));
            }
            BodyFraming::Length(length) if length > bytes_max as u64 => {
                return Ok(BodyRead::TooLarge(BegunBody { first: Bytes::new(), reader }));
            }
            BodyFraming::Length(length) if self.is_ahead => {
                self.grow(&mut memory, usize::try_from(length).unwrap_or(usize::MAX))?;
            }
            BodyFraming::Length(_) | BodyFraming::Chunked => {}
        }
        let mut body = BytesMut::new();
        while let Some(piece) = reader.next(session).await? {
            body.extend_from_slice(&piece);
            if body.len() > bytes_max {
                return Ok(BodyRead::TooLarge(BegunBody { first: body.freeze(), reader }));
            }
            self.grow(&mut memory, body.len())?;
        }
        if let BodyFraming::Length(length) = framing
            && body.len() as u64 != length
        {
            return Err(BodyFault::Broken);
        }
        Ok(BodyRead::Whole(HeldBody { bytes: body.freeze(), memory }))
    }
}

/// RFC 9110 §10.1.1. HTTP/1.0 knows no interim answers.
fn expects_continue(session: &ServerSession) -> bool {
    let head = session.req_header();
    head.version != Version::HTTP_10
        && head
            .headers
            .get(EXPECT)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

impl BodyReader {
    /// Must precede any read of the body.
    fn new(session: &mut ServerSession, framing: BodyFraming, pause_max: Duration) -> Self {
        let is_raw = framing == BodyFraming::Chunked && !session.is_http2();
        if is_raw {
            let head = session.req_header_mut();
            head.remove_header(&TRANSFER_ENCODING);
            let _ = head.insert_header(CONTENT_LENGTH, RAW_BYTES);
        }
        Self { chunks: is_raw.then(ChunkReader::default), pause_max }
    }

    /// Returns the next piece, possibly empty; `None` at the end.
    pub async fn next(&mut self, session: &mut ServerSession) -> Result<Option<Bytes>, BodyFault> {
        if self.chunks.as_ref().is_some_and(ChunkReader::is_done) {
            return Ok(None);
        }
        let piece = match timeout(self.pause_max, session.read_request_body()).await {
            Ok(Ok(piece)) => piece,
            Ok(Err(_)) => return Err(BodyFault::Broken),
            Err(_) => return Err(BodyFault::Timeout),
        };
        match (&mut self.chunks, piece) {
            (None, piece) => Ok(piece),
            (Some(chunks), Some(piece)) => {
                chunks.push(piece).map(|(data, _)| Some(data)).map_err(|BadChunk| BodyFault::Broken)
            }
            // The connection ended before the last chunk.
            (Some(_), None) => Err(BodyFault::Broken),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_for_bodies_is_bounded_and_returned() {
        let memory = BodyMemory::default();
        let mut held = Vec::new();
        loop {
            let mut permit = None;
            if memory.grow(&mut permit, 10 * 1024 * 1024).is_err() {
                break;
            }
            held.push(permit);
        }
        assert_eq!(held.len(), 25);
        held.pop();
        let mut permit = None;
        assert_eq!(memory.grow(&mut permit, 10 * 1024 * 1024), Ok(()));
        assert_eq!(
            memory.grow(&mut permit, 10 * 1024 * 1024),
            Ok(()),
            "what it has already is not taken twice"
        );
    }
}
