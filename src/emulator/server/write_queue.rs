//! A connection with fault controls: it can be cut at once, cleanly or with a reset. It reports
//! when written bytes have really been sent. A refusal by the HTTP implementation itself leaves as
//! a response of the API (`refusal`).

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};

use super::{Shared, refusal};
use crate::emulator::limits::RequestId;

/// The bytes of a refused request that are read and dropped, so that the response is not lost in a
/// connection reset.
const DRAINED_MAX: usize = 4 * 1024 * 1024;

/// The stream that the HTTP implementation drives.
pub struct WriteQueue {
    stream: TcpStream,
    peer: IpAddr,
    controls: Arc<ConnectionControls>,
    shared: Arc<Shared>,
    /// The rest of the response that replaces a refusal, from its first byte on.
    replacement: Option<Bytes>,
    /// After a refusal: the bytes that may still be drained.
    drain: usize,
}

/// The controls of a connection, for the handlers of its requests.
#[derive(Debug, Default)]
pub struct ConnectionControls {
    state: Mutex<QueueState>,
    cut: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    sent: u64,
    pending: Vec<(u64, OnSent)>,
    close_mode: CloseMode,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CloseMode {
    /// FIN.
    #[default]
    Close,
    /// RST.
    Reset,
}

#[derive(Debug)]
enum OnSent {
    Notify(oneshot::Sender<()>),
    /// Reports to the emulator that the response has left.
    Departed(RequestId),
}

impl ConnectionControls {
    /// Ends the connection now and drops unsent bytes.
    pub fn cut(&self, close_mode: CloseMode) {
        self.state.lock().close_mode = close_mode;
        self.cut.notify_one();
    }

    /// Resolves when the connection must end.
    pub async fn wait_for_cut(&self) {
        self.cut.notified().await;
    }

    /// Counts from now: a body of that length and its headers.
    pub fn sent(&self, bytes: u64) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.after(bytes, OnSent::Notify(sender));
        receiver
    }

    /// Reports to the emulator when the next response, with a body of this length, has been sent.
    pub fn departs(&self, id: RequestId, bytes: u64) {
        self.after(bytes, OnSent::Departed(id));
    }

    fn after(&self, bytes: u64, on_sent: OnSent) {
        let mut state = self.state.lock();
        let at = state.sent.saturating_add(bytes);
        state.pending.push((at, on_sent));
    }
}

impl WriteQueue {
    pub fn new(
        stream: TcpStream,
        peer: IpAddr,
        controls: Arc<ConnectionControls>,
        shared: Arc<Shared>,
    ) -> Self {
        Self { stream, peer, controls, shared, replacement: None, drain: 0 }
    }

    /// Sends the response of the API in place of the refusal, and nothing else.
    fn poll_replacement(
        &mut self,
        cx: &mut Context<'_>,
        refused: refusal::Refusal,
    ) -> Poll<io::Result<()>> {
        let mut rest = self.replacement.take().unwrap_or_else(|| {
            refusal::on_wire(&self.shared.refuse_unreadable(self.peer, refused.error()))
        });
        while !rest.is_empty() {
            match Pin::new(&mut self.stream).poll_write(cx, &rest) {
                Poll::Ready(Ok(written)) if written > 0 => rest.advance(written),
                Poll::Ready(Ok(_)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.replacement = Some(rest);
                    return Poll::Pending;
                }
            }
        }
        self.drain = DRAINED_MAX;
        Poll::Ready(Ok(()))
    }

    fn sent(&self, bytes: usize) {
        self.controls.state.lock().sent += bytes as u64;
    }

    /// Handles the events that become due once all written bytes are sent.
    fn flushed(&self) {
        let due: Vec<OnSent> = {
            let mut state = self.controls.state.lock();
            if state.pending.is_empty() {
                return;
            }
            let sent = state.sent;
            state.pending.extract_if(.., |(at, _)| *at < sent).map(|(_, on_sent)| on_sent).collect()
        };
        for on_sent in due {
            match on_sent {
                // The receiver may have been dropped with its stream.
                OnSent::Notify(sender) => drop(sender.send(())),
                OnSent::Departed(id) => {
                    self.shared.emulator.lock().departed(id);
                    self.shared.changed.notify_waiters();
                }
            }
        }
    }
}

impl Drop for WriteQueue {
    fn drop(&mut self) {
        if self.controls.state.lock().close_mode == CloseMode::Reset {
            // Without this option the socket is closed cleanly, which ends the connection too.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for WriteQueue {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for WriteQueue {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let own = match refusal::find(bytes) {
            Some((0, refused)) => {
                ready!(self.poll_replacement(cx, refused))?;
                self.sent(bytes.len());
                return Poll::Ready(Ok(bytes.len()));
            }
            // The next write begins with the refusal.
            Some((at, _)) => &bytes[..at],
            None => bytes,
        };
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, own))?;
        self.sent(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        let mut space = [std::mem::MaybeUninit::uninit(); 8 * 1024];
        while self.drain > 0 {
            let mut buffer = ReadBuf::uninit(&mut space);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
            let read = buffer.filled().len();
            self.drain = if read == 0 { 0 } else { self.drain.saturating_sub(read) };
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if pieces.iter().any(|piece| refusal::find(piece).is_some()) {
            let first = pieces.iter().find(|piece| !piece.is_empty());
            return self.poll_write(cx, first.map_or(&[][..], |piece| &piece[..]));
        }
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, pieces))?;
        self.sent(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
