//! The frames of an HTTP/2 client on their way to the codec and back: marked trailers, the end of a
//! connection that floods, and one write for the frames of a turn.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Connection;
use super::floods::{Flood, FrameBudget, STREAMS_MAX};
use super::trailers::TrailerMarker;
use crate::clock::timer_now;
use crate::gateway::connections::slot::Slot;
use crate::gateway::request::validate::HEAD_BYTES_MAX;

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

/// The stream below the codec, shared with the task that gives the codec its turns.
///
/// The codec flushes after each frame, and each flush would be a write of the system. Here the
/// task flushes, after each turn.
#[derive(Clone)]
pub struct Frames {
    state: Arc<Http2State>,
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    connection: Box<Connection>,
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

impl Frames {
    /// The frames of a connection before its preface.
    pub(in crate::gateway::server) fn new(connection: Box<Connection>) -> Self {
        let (slot, state) = (Arc::clone(connection.turn.slot()), Arc::default());
        let shared = Shared {
            connection,
            marker: TrailerMarker::default(),
            ready: BytesMut::new(),
            budget: FrameBudget::new(timer_now()),
            slot,
            state: Arc::clone(&state),
        };
        Self { state, shared: Arc::new(Mutex::new(shared)) }
    }

    pub fn state(&self) -> &Arc<Http2State> {
        &self.state
    }

    /// Sends the client what the codec has written.
    pub fn poll_send(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shared = &mut *self.shared.lock();
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

    fn written(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.noted(written.is_pending());
        if let Poll::Ready(Ok(bytes)) = written {
            self.budget.sent(bytes);
        }
        written
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
                        // The connection ends, with or without it.
                        let _ = self.connection.poll_write_out(&mut &goaway[..], context);
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
        let Self { connection, marker, ready, budget, slot, state } = self;
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
            // The codec has written whole frames unless the client took no more.
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
        let shared = &mut *self.shared.lock();
        let written = Pin::new(&mut shared.connection.stream).poll_write(context, bytes);
        shared.written(written)
    }

    /// Left to [`Frames::poll_send`].
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shared = &mut *self.shared.lock();
        Pin::new(&mut shared.connection.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let shared = &mut *self.shared.lock();
        let stream = Pin::new(&mut shared.connection.stream);
        let written = stream.poll_write_vectored(context, slices);
        shared.written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.shared.lock().connection.stream.is_write_vectored()
    }
}
