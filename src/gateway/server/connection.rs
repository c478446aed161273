//! A client connection with a read-ahead buffer, to inspect its first bytes.
//!
//! To the framework it is an ordinary stream. Deadlines use the machine's time, because a slow
//! client has nothing to do with the gateway's clock. Parsing is left out.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Buf, BytesMut};
use pingora::protocols::l4::socket::SocketAddr;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::tls::{SslDigest, TlsRef};
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    Stream, TimingDigest, UniqueID, UniqueIDType,
};
use pingora::server::ShutdownWatch;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::clock::timer_now;
use crate::gateway::request::validate::HEAD_BYTES_MAX;

/// Size of one read; nearly all request heads are shorter.
const READ_BYTES: usize = 4 * 1024;
/// Buffer space while no bytes are expected; mostly the rest of the request's buffer is enough.
const WATCHED_BYTES: usize = 256;
/// Size of one write; the write timeout counts for each.
const SLICE_BYTES: usize = 64 * 1024;

/// The IP address of a peer, if it has one.
pub(super) fn ip_of(peer: &SocketAddr) -> Option<IpAddr> {
    peer.as_inet().map(|address| address.ip().to_canonical())
}

pub(super) struct Connection {
    stream: Stream,
    ahead: BytesMut,
    client_address: Option<IpAddr>,
}

/// The timer and shutdown signal of a connection, made once: they cost more than a request.
pub(super) struct Watch {
    timer: Pin<Box<Sleep>>,
    stopping: Pin<Box<dyn Future<Output = ()> + Send>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    Bytes,
    TimedOut,
    /// The client left, or the gateway shuts down.
    Closed,
}

impl Watch {
    pub(super) fn new(shutdown: &ShutdownWatch) -> Self {
        let mut shutdown = shutdown.clone();
        let stopping = async move {
            // A closed channel means shutdown too.
            let _ = shutdown.wait_for(|stopping| *stopping).await;
        };
        Self { timer: Box::pin(sleep(Duration::ZERO)), stopping: Box::pin(stopping) }
    }

    /// Ready once `deadline` has passed. The timer is reset only when it would fire too late. For
    /// an earlier deadline it fires once in vain, which is cheaper than a reset per request.
    fn poll_late(&mut self, deadline: Instant, context: &mut Context<'_>) -> Poll<()> {
        if self.timer.deadline() > deadline {
            self.timer.as_mut().reset(deadline);
        }
        loop {
            ready!(self.timer.as_mut().poll(context));
            if self.timer.deadline() >= deadline || timer_now() >= deadline {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(deadline);
        }
    }
}

impl Connection {
    pub(super) fn new(stream: Stream) -> Self {
        let digest = stream.get_socket_digest();
        let client_address = digest.as_ref().and_then(|digest| ip_of(digest.peer_addr()?));
        Self { stream, ahead: BytesMut::new(), client_address }
    }

    /// The address of the other end; `None` on a Unix socket.
    pub(super) fn client_address(&self) -> Option<IpAddr> {
        self.client_address
    }

    /// Recovers the connection from a stream that was made of one.
    pub(super) fn of(stream: Stream) -> Option<Box<Self>> {
        stream.into_any().downcast().ok()
    }

    pub(super) fn ahead(&self) -> &[u8] {
        &self.ahead
    }

    pub(super) fn used(&mut self, bytes: usize) {
        self.ahead.advance(bytes.min(self.ahead.len()));
    }

    /// Reads once, until `deadline` at the latest.
    pub(super) async fn more(&mut self, watch: &mut Watch, deadline: Instant) -> Received {
        poll_fn(|context| {
            match self.poll_more(context, READ_BYTES) {
                Poll::Ready(Ok(1..)) => return Poll::Ready(Received::Bytes),
                Poll::Ready(_) => return Poll::Ready(Received::Closed),
                Poll::Pending => {}
            }
            if watch.stopping.as_mut().poll(context).is_ready() {
                return Poll::Ready(Received::Closed);
            }
            watch.poll_late(deadline, context).map(|()| Received::TimedOut)
        })
        .await
    }

    /// Reads until a line is buffered; false if none comes in time or within a head's size.
    pub(super) async fn has_line(&mut self, watch: &mut Watch, deadline: Instant) -> bool {
        let mut seen = 0;
        while seen <= HEAD_BYTES_MAX {
            if memchr::memchr(b'\n', self.ahead.get(seen..).unwrap_or_default()).is_some() {
                return true;
            }
            seen = self.ahead.len();
            if self.more(watch, deadline).await != Received::Bytes {
                return false;
            }
        }
        false
    }

    /// Writes `unsent` as far as the client takes it, and returns when the client leaves. A
    /// half-closed connection counts as left.
    ///
    /// Bytes that the client sends are kept. Beyond a head or two, reading stops, and only the
    /// write of the answer notices that the client left.
    pub(super) async fn left(&mut self, unsent: &mut Vec<u8>) {
        poll_fn(|context| {
            if !unsent.is_empty() {
                let mut rest = unsent.as_slice();
                let written = self.poll_write_out(&mut rest, true, context);
                let taken = unsent.len() - rest.len();
                unsent.drain(..taken);
                if matches!(written, Poll::Ready(Err(_))) {
                    return Poll::Ready(());
                }
            }
            while self.ahead.len() < READ_BYTES {
                match ready!(self.poll_more(context, WATCHED_BYTES)) {
                    Ok(1..) => {}
                    _ => return Poll::Ready(()),
                }
            }
            Poll::Pending
        })
        .await;
    }

    fn poll_more(&mut self, context: &mut Context<'_>, bytes: usize) -> Poll<io::Result<usize>> {
        self.ahead.reserve(bytes);
        std::pin::pin!(self.stream.read_buf(&mut self.ahead)).poll(context)
    }

    /// Writes all of `bytes`. Returns false if the client left or took nothing for `pause_max`.
    pub(super) async fn write(
        &mut self,
        watch: &mut Watch,
        bytes: &[u8],
        pause_max: Duration,
    ) -> bool {
        let mut slices = bytes.chunks(SLICE_BYTES).peekable();
        while let Some(mut slice) = slices.next() {
            let mut deadline = None;
            let is_last = slices.peek().is_none();
            let written = poll_fn(|context| {
                match self.poll_write_out(&mut slice, is_last, context) {
                    Poll::Ready(done) => return Poll::Ready(done.is_ok()),
                    Poll::Pending => {}
                }
                let deadline = *deadline.get_or_insert_with(|| timer_now() + pause_max);
                watch.poll_late(deadline, context).map(|()| false)
            });
            if !written.await {
                return false;
            }
        }
        true
    }

    fn poll_write_out(
        &mut self,
        rest: &mut &[u8],
        is_last: bool,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !rest.is_empty() {
            match ready!(Pin::new(&mut self.stream).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => rest.advance(written),
            }
        }
        if is_last { Pin::new(&mut self.stream).poll_flush(context) } else { Poll::Ready(Ok(())) }
    }
}

impl fmt::Debug for Connection {
    /// Leaves out the buffered bytes, which may hold a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("stream", &self.stream)
            .field("ahead", &self.ahead.len())
            .field("client_address", &self.client_address)
            .finish()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, into);
        }
        let length = self.ahead.len().min(into.remaining());
        into.put_slice(&self.ahead[..length]);
        self.ahead.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[async_trait]
impl Peek for Connection {
    async fn try_peek(&mut self, beginning: &mut [u8]) -> io::Result<bool> {
        while self.ahead.len() < beginning.len() {
            if self.stream.read_buf(&mut self.ahead).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        beginning.copy_from_slice(&self.ahead[..beginning.len()]);
        Ok(true)
    }
}

#[async_trait]
impl Shutdown for Connection {
    async fn shutdown(&mut self) {
        self.stream.shutdown().await;
    }
}

impl UniqueID for Connection {
    fn id(&self) -> UniqueIDType {
        self.stream.id()
    }
}

impl Ssl for Connection {
    fn get_ssl(&self) -> Option<&TlsRef> {
        self.stream.get_ssl()
    }

    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.stream.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.stream.selected_alpn_proto()
    }
}

impl GetTimingDigest for Connection {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.stream.get_timing_digest()
    }
}

impl GetProxyDigest for Connection {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.stream.get_proxy_digest()
    }
}

impl GetSocketDigest for Connection {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.stream.get_socket_digest()
    }
}
