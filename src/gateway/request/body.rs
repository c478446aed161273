//! Reads request bodies within bounds: the bytes, the pace, and the memory of all held bodies.
//! Each client has a fair share of that memory (SPECIFICATION D20).
//!
//! A body takes memory as it arrives. Its declared length takes nothing, because a client can
//! declare anything.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Version;
use http::header::EXPECT;

use crate::clock::timer_now;
use crate::decision::body_pace::BodyPace;
use crate::decision::scheduler::shared_capacity::Holder;
use crate::gateway::connections::slot::Slot;
use crate::gateway::error::GatewayError;
use crate::gateway::http::chunks::{BadChunk, ChunkReader};
use crate::gateway::request::validate::BodyFraming;
use crate::gateway::session::Session;
use crate::gateway::shared_space::{Share, SharedSpace};

/// Unit of the memory for bodies.
const UNIT_BYTES: u64 = 1024;

/// The declared length of a raw body: more than can arrive, because the last chunk ends it.
const RAW_BYTES: usize = usize::MAX / 2;

/// The memory for bodies of all clients' requests. Webhook deliveries, which are unauthenticated,
/// and queued writes from a store have their own.
pub struct BodyMemory(Arc<SharedSpace>);

/// The bounds of one body.
pub struct BodyBounds {
    pub framing: BodyFraming,
    pub bytes_max: usize,
    pub pace: BodyPace,
    /// Its connection.
    pub slot: Arc<Slot>,
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
    pub first: HeldBody,
    pub reader: BodyReader,
}

/// Reads a body piece by piece. It decodes chunked bodies of HTTP/1.1 itself ([`ChunkReader`]) from
/// the session's raw bytes; the connection yields none beyond them.
pub struct BodyReader {
    chunks: Option<ChunkReader>,
    pace: BodyPace,
    slot: Arc<Slot>,
    received: u64,
    /// The time spent in reading; that of the gateway's own waits does not count.
    taken: Duration,
    /// The bytes still to come of a declared length.
    left: Option<u64>,
    is_done: bool,
}

/// A body in memory with its share of [`BodyMemory`].
pub struct HeldBody {
    pub bytes: Bytes,
    /// Kept as long as the body.
    pub memory: Share,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFault {
    /// It broke off, or its chunks are malformed.
    Broken,
    Timeout,
    NoRoom,
}

impl BodyFault {
    /// The error of a body that takes no memory.
    pub const fn of_reader(self) -> GatewayError {
        match self {
            Self::Timeout => GatewayError::BodyTimeout,
            Self::Broken | Self::NoRoom => GatewayError::BrokenBody,
        }
    }
}

impl BodyMemory {
    pub fn new(bytes: u64) -> Self {
        Self(SharedSpace::new(bytes, UNIT_BYTES))
    }

    /// Memory for the bodies of unauthenticated requests: an address holds half of it at most.
    pub fn of_strangers(bytes: u64) -> Self {
        Self(SharedSpace::halved(bytes, UNIT_BYTES))
    }

    /// The same memory with another size.
    pub fn resized(&self, bytes: u64) -> Self {
        Self(SharedSpace::resized(&self.0, bytes))
    }

    /// The memory of all bodies at present, in KiB.
    pub fn taken(&self) -> u64 {
        self.0.taken()
    }

    /// Reads up to the most bytes. Sends `100 Continue` first if the client expects it.
    pub async fn read(
        &self,
        session: &mut Session,
        BodyBounds { framing, bytes_max, pace, slot }: BodyBounds,
        holder: Holder,
    ) -> Result<BodyRead, BodyFault> {
        let mut memory = self.0.share(holder);
        let mut reader = BodyReader::begin(session, framing, pace, slot).await;
        let is_too_long = reader.left.is_some_and(|left| left > bytes_max as u64);
        let mut body = BytesMut::new();
        while !is_too_long && let Some(piece) = reader.next(session).await? {
            body.extend_from_slice(&piece);
            if !memory.grow(body.len() as u64) {
                return Err(BodyFault::NoRoom);
            }
            if body.len() > bytes_max {
                break;
            }
        }
        let is_too_long = is_too_long || body.len() > bytes_max;
        let held = HeldBody { bytes: body.freeze(), memory };
        Ok(if is_too_long {
            BodyRead::TooLarge(BegunBody { first: held, reader })
        } else {
            BodyRead::Whole(held)
        })
    }
}

/// Reads a body that the request has no use for, and keeps nothing of it.
pub async fn discard(
    session: &mut Session,
    BodyBounds { framing, bytes_max, pace, slot }: BodyBounds,
) -> Result<Discarded, BodyFault> {
    let mut reader = BodyReader::begin(session, framing, pace, slot).await;
    if reader.left.is_some_and(|left| left > bytes_max as u64) {
        return Ok(Discarded::TooLarge);
    }
    while reader.next(session).await?.is_some() {
        if reader.received > bytes_max as u64 {
            return Ok(Discarded::TooLarge);
        }
    }
    Ok(Discarded::Whole(reader.received))
}

/// The result of [`discard`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discarded {
    /// All of it, with its length.
    Whole(u64),
    TooLarge,
}

/// RFC 9110 §10.1.1. HTTP/1.0 knows no interim answers.
fn expects_continue(session: &Session) -> bool {
    let head = session.head();
    head.version != Version::HTTP_10
        && head
            .headers
            .get(EXPECT)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

impl BodyReader {
    /// Must precede any read of the body. Sends `100 Continue` if the client expects it.
    async fn begin(
        session: &mut Session,
        framing: BodyFraming,
        pace: BodyPace,
        slot: Arc<Slot>,
    ) -> Self {
        // First, because the framework prepares its own reader on the first write.
        let is_raw = framing == BodyFraming::Chunked && !session.is_http2();
        if is_raw {
            session.read_as_length(RAW_BYTES);
        }
        if framing != BodyFraming::None && expects_continue(session) {
            session.write_continue().await;
        }
        let left = match framing {
            BodyFraming::None => Some(0),
            BodyFraming::Length(length) => Some(length),
            BodyFraming::Chunked => None,
        };
        Self {
            chunks: is_raw.then(ChunkReader::default),
            pace,
            slot,
            received: 0,
            taken: Duration::ZERO,
            left,
            is_done: framing == BodyFraming::None,
        }
    }

    /// Returns the next piece, possibly empty; `None` at the end.
    pub async fn next(&mut self, session: &mut Session) -> Result<Option<Bytes>, BodyFault> {
        if self.is_done || self.chunks.as_ref().is_some_and(ChunkReader::is_done) {
            return Ok(None);
        }
        let within = self.pace.next_within(self.received, self.taken);
        if within.is_zero() {
            return Err(BodyFault::Timeout);
        }
        let began = timer_now();
        let late = self.pace.pause_max.saturating_sub(within);
        let read = self.slot.awaits_client(late, within, session.read_body()).await;
        self.taken += timer_now().saturating_duration_since(began);
        let piece = match read {
            Ok(Ok(piece)) => piece,
            Ok(Err(_)) => return Err(BodyFault::Broken),
            Err(_) => return Err(BodyFault::Timeout),
        };
        let piece = match (&mut self.chunks, piece) {
            // The connection ended before the last chunk.
            (Some(_), None) => return Err(BodyFault::Broken),
            (Some(chunks), Some(piece)) => {
                Some(chunks.push(piece).map_err(|BadChunk| BodyFault::Broken)?.0)
            }
            (None, piece) => piece,
        };
        let bytes = piece.as_ref().map_or(0, Bytes::len) as u64;
        self.received += bytes;
        if let Some(left) = &mut self.left {
            // Too many bytes, or the end before all of them.
            let after = left.checked_sub(bytes).filter(|left| piece.is_some() || *left == 0);
            *left = after.ok_or(BodyFault::Broken)?;
        }
        self.is_done = piece.is_none();
        Ok(piece)
    }
}
