//! A connection with fault controls: it can be cut at once, cleanly or with a reset. It reports
//! when written bytes have really been sent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};

use super::Shared;
use crate::emulator::limits::RequestId;

/// The stream that the HTTP implementation drives.
pub struct WriteQueue {
    pub(super) stream: TcpStream,
    pub(super) controls: Arc<ConnectionControls>,
    pub(super) shared: Arc<Shared>,
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
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.sent(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, pieces))?;
        self.sent(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
