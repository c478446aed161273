//! Reading a request's body: bounded in bytes, in the pause between two reads, and in what all held
//! bodies take together (DESIGN D10).

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use pingora::protocols::http::ServerSession;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::gateway::dispatch::body_limits::HELD_BYTES_MAX;
use crate::gateway::http::chunks::{BadChunk, ChunkReader};
use crate::gateway::request::validate::BodyFraming;

/// The unit in which that is counted.
const UNIT_BYTES: usize = 1024;

/// The length that a raw body is given: more than ever comes, for its end is where the last chunk
/// says.
const RAW_BYTES: usize = usize::MAX / 2;

/// The memory for bodies, shared by all requests of clients; deliveries, whose senders nobody knows
/// yet, have one of their own, and so have queued writes that come from a store to be sent.
pub struct BodyMemory {
    units: Arc<Semaphore>,
    /// Whether a body has all the room that it says it needs before it comes: then none that was
    /// let in fails halfway.
    is_ahead: bool,
}

/// A body as far as it was read.
pub enum BodyRead {
    /// All of it.
    Whole(HeldBody),
    /// It is, or says it is, longer than the bound.
    TooLarge(BegunBody),
}

/// A body of which only the beginning was read.
pub struct BegunBody {
    /// What was read.
    pub first: Bytes,
    /// For the rest.
    pub reader: BodyReader,
}

/// Reads a body piece by piece. A chunked one of HTTP/1.1 is taken apart here ([`ChunkReader`]):
/// the session is made to hand over its bytes as they are, and its connection can carry no further
/// request.
pub struct BodyReader {
    chunks: Option<ChunkReader>,
    pause_max: Duration,
}

/// A body in memory, with its part of [`BodyMemory`].
pub struct HeldBody {
    /// The body.
    pub bytes: Bytes,
    /// To be kept as long as the body is.
    pub memory: Option<OwnedSemaphorePermit>,
}

/// What a client waits for before it sends its body (RFC 9110 §10.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expects {
    /// Nothing.
    Nothing,
    /// `100 Continue`.
    Continue,
}

/// Why a body could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFault {
    /// It broke off, or its chunks are malformed.
    Broken,
    /// Nothing came for too long.
    Timeout,
    /// The bodies of other requests take all the memory there is for them.
    NoRoom,
}

impl Default for BodyMemory {
    /// All of it free.
    fn default() -> Self {
        Self { units: Arc::new(Semaphore::new(HELD_BYTES_MAX / UNIT_BYTES)), is_ahead: true }
    }
}

impl BodyMemory {
    /// So many bytes, of which a body takes those that have come.
    pub fn as_it_comes(bytes: usize) -> Self {
        Self { units: Arc::new(Semaphore::new(bytes / UNIT_BYTES)), is_ahead: false }
    }

    /// Room for a body that is here already, or comes from a store: waited for. What is larger than
    /// all of it takes all of it.
    pub async fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = bytes.div_ceil(UNIT_BYTES).min(HELD_BYTES_MAX / UNIT_BYTES);
        // It is never closed.
        Arc::clone(&self.units).acquire_many_owned(u32::try_from(units).ok()?).await.ok()
    }

    /// Adds room for further bytes to what a body has.
    fn grow(
        &self,
        memory: &mut Option<OwnedSemaphorePermit>,
        bytes: usize,
    ) -> Result<(), BodyFault> {
        let have = memory.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let want = bytes.div_ceil(UNIT_BYTES);
        let Some(more) = want.checked_sub(have).filter(|more| *more > 0) else { return Ok(()) };
        let more = u32::try_from(more).map_err(|_| BodyFault::NoRoom)?;
        let permit =
            Arc::clone(&self.units).try_acquire_many_owned(more).map_err(|_| BodyFault::NoRoom)?;
        match memory {
            Some(memory) => memory.merge(permit),
            None => *memory = Some(permit),
        }
        Ok(())
    }

    /// Reads up to `bytes_max`. A client that expects it is told first to go on.
    pub async fn read(
        &self,
        session: &mut ServerSession,
        framing: BodyFraming,
        expects: Expects,
        bytes_max: usize,
        pause_max: Duration,
    ) -> Result<BodyRead, BodyFault> {
        let mut memory = None;
        // Before anything is written: the framework makes its own reader ready then.
        let mut reader = BodyReader::new(session, framing, pause_max);
        if expects == Expects::Continue && framing != BodyFraming::None {
            // A client that is gone is noticed by the next read.
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
                self.grow(&mut memory, usize::try_from(length).unwrap_or(usize::MAX))?
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

impl BodyReader {
    /// To be made before anything of the body is read.
    fn new(session: &mut ServerSession, framing: BodyFraming, pause_max: Duration) -> Self {
        let is_raw = framing == BodyFraming::Chunked && !session.is_http2();
        if is_raw {
            let head = session.req_header_mut();
            head.remove_header(&http::header::TRANSFER_ENCODING);
            // A number always makes a header.
            let _ = head.insert_header(http::header::CONTENT_LENGTH, RAW_BYTES);
            session.set_keepalive(None);
        }
        Self { chunks: is_raw.then(ChunkReader::default), pause_max }
    }

    /// The next piece of the body's data, possibly empty; `None` at its end.
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
    fn all_bodies_together_have_a_bound_and_give_their_room_back() {
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
