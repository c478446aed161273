//! The frames of an HTTP/2 client on their way to the codec and back: marked trailers, the end of a
//! connection that floods, and one write for the frames of a turn.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Connection;
pub use super::floods::Flood;
use super::floods::{FrameBudget, STREAMS_MAX};
use super::trailers::TrailerMarker;
use crate::clock::timer_now;
use crate::gateway::connections::slot::Slot;
use crate::gateway::request::validate::HEAD_BYTES_MAX;

/// GOAWAY with `ENHANCE_YOUR_CALM` (RFC 9113 §6.8, §7): head of 9 bytes, last stream, code.
const GOAWAY: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xb];
/// The place of the last stream in it.
const LAST_STREAM: std::ops::Range<usize> = 9..13;

/// Bytes of frames that wait for a write. Chosen here: as much as one record of TLS holds
/// (RFC 8446 §5.1).
const UNSENT_BYTES_MAX: usize = 16 * 1024;

/// The facts about a connection that its session needs.
#[derive(Default)]
pub struct Http2State {
    /// True while the client takes no bytes.
    is_blocked: AtomicBool,
    /// Bytes that the client has taken.
    sent: AtomicUsize,
    flood: OnceLock<Flood>,
}

/// The stream below the codec, shared with the task that gives the codec its turns.
///
/// The codec writes and flushes each frame, and each would be a record of TLS and a write of the
/// system. Here the frames of a turn are collected, and the task sends them after it.
#[derive(Clone)]
pub struct Frames {
    state: Arc<Http2State>,
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    connection: Box<Connection>,
    marker: TrailerMarker,
    ready: BytesMut,
    /// Frames of the codec; without memory between turns.
    unsent: Vec<u8>,
    budget: FrameBudget,
    slot: Arc<Slot>,
    state: Arc<Http2State>,
}

impl Http2State {
    pub fn is_blocked(&self) -> bool {
        self.is_blocked.load(Ordering::Relaxed)
    }

    /// Bytes that the client has taken.
    pub fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    /// The flood that ended the connection.
    pub fn flood(&self) -> Option<Flood> {
        self.flood.get().copied()
    }
}

impl Frames {
    /// The frames of a connection before its preface.
    pub(in crate::gateway::server) fn new(connection: Box<Connection>) -> Self {
        let (slot, state) = (Arc::clone(connection.turn.slot()), Arc::default());
        let shared = Shared {
            connection,
            marker: TrailerMarker::default(),
            ready: BytesMut::new(),
            unsent: Vec::new(),
            budget: FrameBudget::new(timer_now()),
            slot,
            state: Arc::clone(&state),
        };
        Self { state, shared: Arc::new(Mutex::new(shared)) }
    }

    pub fn state(&self) -> &Arc<Http2State> {
        &self.state
    }

    /// Drops what was read and not sent yet, and the memory of it.
    pub fn forget(&self) {
        let shared = &mut *self.shared.lock();
        shared.connection.forget();
        (shared.ready, shared.unsent) = (BytesMut::new(), Vec::new());
    }

    /// Sends the client what the codec has written.
    pub fn poll_send(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shared = &mut *self.shared.lock();
        ready!(shared.poll_unsent(context))?;
        let sent = Pin::new(&mut *shared.connection).poll_flush(context);
        shared.noted(sent.is_pending());
        sent
    }
}

impl Shared {
    /// Notes whether the client took the bytes of a write.
    fn noted(&self, is_blocked: bool) {
        self.state.is_blocked.store(is_blocked, Ordering::Relaxed);
    }

    /// Writes the collected frames.
    fn poll_unsent(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut sent = 0;
        let written = loop {
            if sent == self.unsent.len() {
                break Poll::Ready(Ok(()));
            }
            let stream = Pin::new(&mut self.connection.stream);
            match stream.poll_write(context, &self.unsent[sent..]) {
                Poll::Ready(Ok(0)) => break Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(bytes)) => sent += bytes,
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                Poll::Pending => break Poll::Pending,
            }
        };
        self.noted(written.is_pending());
        self.budget.sent(sent);
        self.state.sent.fetch_add(sent, Ordering::Relaxed);
        if sent == self.unsent.len() {
            self.unsent = Vec::new();
        } else {
            self.unsent.drain(..sent);
        }
        written
    }

    /// Collects bytes of the codec, and makes room for them first.
    fn poll_collect(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.unsent.len() == UNSENT_BYTES_MAX {
            ready!(self.poll_unsent(context))?;
        }
        if self.unsent.is_empty() {
            self.unsent.reserve_exact(UNSENT_BYTES_MAX);
        }
        let room = UNSENT_BYTES_MAX - self.unsent.len();
        let bytes = &bytes[..bytes.len().min(room)];
        self.unsent.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    /// Reads frames for the codec.
    fn poll_frames(
        &mut self,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.pass(into) {
                Ok(true) => return Poll::Ready(Ok(())),
                Ok(false) => {}
                Err(goaway) => {
                    if let Some(goaway) = goaway {
                        self.unsent.extend_from_slice(&goaway);
                        // The connection ends, with or without it.
                        if self.poll_unsent(context).is_ready() {
                            let _ = Pin::new(&mut *self.connection).poll_flush(context);
                        }
                    }
                    return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                }
            }
            if ready!(self.connection.poll_more(context, HEAD_BYTES_MAX))? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Passes bytes on. Returns false if there are none for the codec yet. In a flood, returns the
    /// frame to say so, if it may be written now.
    fn pass(&mut self, into: &mut ReadBuf<'_>) -> Result<bool, Option<[u8; GOAWAY.len()]>> {
        let Self { connection, marker, ready, budget, slot, state, .. } = self;
        let passed = marker.pass(&mut connection.ahead, ready, |frame| {
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
            // Frames are written whole unless the client took no more.
            return Err((!state.is_blocked()).then_some(goaway));
        }
        let length = ready.len().min(into.remaining());
        into.put_slice(&ready[..length]);
        ready.advance(length);
        Ok(length > 0)
    }
}

impl AsyncRead for Frames {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.shared.lock().poll_frames(context, into)
    }
}

impl AsyncWrite for Frames {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.shared.lock().poll_collect(context, bytes)
    }

    /// Left to [`Frames::poll_send`].
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shared = &mut *self.shared.lock();
        ready!(shared.poll_unsent(context))?;
        Pin::new(&mut shared.connection.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let shared = &mut *self.shared.lock();
        let mut collected = 0;
        for slice in slices {
            match shared.poll_collect(context, slice) {
                Poll::Ready(Ok(bytes)) => {
                    collected += bytes;
                    if bytes < slice.len() {
                        break;
                    }
                }
                _ if collected > 0 => break,
                ended => return ended,
            }
        }
        Poll::Ready(Ok(collected))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}
