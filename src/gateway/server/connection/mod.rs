//! A client connection with a read-ahead buffer, to find the end of a request's head.
//!
//! To the framework it is a stream of one request: no byte after that leaves the buffer. Deadlines
//! use the machine's time, because a slow client has nothing to do with the gateway's clock.
//! Parsing is left out.

pub mod accept;
mod floods;
mod half_closed;
mod held;
pub mod http2;
pub mod proxy_header;
#[cfg(test)]
mod tests;
pub mod trailers;
pub mod unread;

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Buf, BytesMut};
use memchr::memmem;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::tls::{SslDigest, TlsRef};
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    Stream, TimingDigest, UniqueID, UniqueIDType,
};
use pingora::server::ShutdownWatch;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout_at};

pub(super) use self::floods::STREAMS_MAX;
use self::half_closed::HalfClosed;
use self::held::Held;
use self::unread::{Unread, UnreadBody};
use crate::clock::timer_now;
use crate::decision::floor_rate::FloorRate;
use crate::gateway::active::Awaited;
use crate::gateway::connections::slot::{SLOW_AFTER, Turn};
use crate::gateway::request::validate::{BodyFraming, HEAD_BYTES_MAX};
use crate::gateway::response::pacing::Broken;
use crate::gateway::session::ip_of;

pub(super) const HEAD_ENDS: &[u8; 4] = b"\r\n\r\n";
/// Size of one read; nearly all request heads are shorter.
const READ_BYTES: usize = 4 * 1024;
/// Size of one read that continues a long head, or is dropped. Chosen here: a refused request costs
/// few reads, and none of them holds up other connections.
const LONG_READ_BYTES: usize = 16 * 1024;
/// Reads of a refused request before another one has its turn.
const READS_OF_A_TURN: usize = 16;
/// The time between two turns. Chosen here: all refused requests together cost a tenth of a
/// processor, and the rest of 1,000 of them passes within seconds.
const BETWEEN_TURNS: Duration = Duration::from_millis(1);
/// An idle connection stays open for this long once the gateway stops, for a request that is on its
/// way. Chosen here: a round trip and the client's next request.
pub(super) const LAST_REQUEST_WAIT: Duration = Duration::from_millis(250);

/// The IP address of the other end; `None` on a Unix socket.
pub(super) fn client_address(stream: &Stream) -> Option<IpAddr> {
    address_of(&**stream)
}

/// The same of a stream of any kind.
pub(super) fn address_of(stream: &(impl GetSocketDigest + ?Sized)) -> Option<IpAddr> {
    ip_of(stream.get_socket_digest()?.peer_addr()?)
}

pub(super) struct Connection {
    stream: Stream,
    /// Small or absent while nothing comes: there may be thousands of connections.
    ahead: BytesMut,
    client_address: Option<IpAddr>,
    unread: Unread,
    held: Held,
    /// Set once its client has said `close_notify` while a request is under way.
    half_closed: Option<Box<HalfClosed>>,
    /// The requests of HTTP/1.1.
    pub(super) turn: Turn,
}

/// The timer and shutdown signal of a connection, made once: they cost more than a request.
pub(super) struct Watch {
    timer: Pin<Box<Sleep>>,
    stopping: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// The end of an idle connection; set once the gateway stops.
    closes_at: Option<Instant>,
    /// The next request, which a hand-over gives more time.
    awaited: Arc<Awaited>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    Bytes,
    TimedOut,
    /// The client left.
    Closed,
    /// The gateway shuts down.
    Stopped,
}

impl Watch {
    /// `first`: the first deadline. A timer for an earlier one would fire for each connection in
    /// vain.
    pub(super) fn new(shutdown: &ShutdownWatch, awaited: &Arc<Awaited>, first: Instant) -> Self {
        let mut shutdown = shutdown.clone();
        let stopping = async move {
            // A closed channel means shutdown too.
            let _ = shutdown.wait_for(|stopping| *stopping).await;
        };
        let timer = Box::pin(sleep_until(first));
        let awaited = Arc::clone(awaited);
        Self { timer, stopping: Box::pin(stopping), closes_at: None, awaited }
    }

    /// Ready once `deadline` has passed, or a while after the gateway began to stop.
    fn poll_end(&mut self, deadline: Instant, context: &mut Context<'_>) -> Poll<Received> {
        let _ = self.poll_stopping(context);
        let closes_at = self.closes_at.map(|usual| self.awaited.wait_end(usual));
        match closes_at.filter(|closes_at| *closes_at < deadline) {
            Some(closes_at) => self.poll_late(closes_at, context).map(|()| Received::Stopped),
            None => self.poll_late(deadline, context).map(|()| Received::TimedOut),
        }
    }

    /// Ready once the gateway stops.
    pub(super) fn poll_stopping(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.closes_at.is_none() {
            ready!(self.stopping.as_mut().poll(context));
            self.closes_at = Some(timer_now() + LAST_REQUEST_WAIT);
        }
        Poll::Ready(())
    }

    /// Ready once `deadline` has passed. The timer is reset only when it would fire too late. For
    /// an earlier deadline it fires once in vain, which is cheaper than a reset per request.
    pub(super) fn poll_late(&mut self, deadline: Instant, context: &mut Context<'_>) -> Poll<()> {
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
    pub(super) fn new(stream: Stream, turn: Turn) -> Self {
        let client_address = client_address(&stream);
        let (ahead, unread, held) = (BytesMut::new(), Unread::ALL, Held::default());
        Self { stream, ahead, client_address, unread, held, half_closed: None, turn }
    }

    /// The address of the other end; `None` on a Unix socket.
    pub(super) fn client_address(&self) -> Option<IpAddr> {
        self.client_address
    }

    /// Limits a session to one request, whose whole head is in the buffer. Without a framing, it is
    /// the last request.
    pub(super) fn begin(&mut self, head_bytes: usize, framing: Option<BodyFraming>) {
        self.held.hold(true);
        self.unread = Unread::of(head_bytes, framing);
    }

    /// Drops the buffer; whatever comes is to be discarded.
    pub(super) fn forget(&mut self) {
        (self.ahead, self.unread) = (BytesMut::new(), Unread::ALL);
    }

    /// The bytes of the request that the session has not read.
    pub(super) fn unread(&self) -> &Unread {
        &self.unread
    }

    /// Writes the answer of this session as it comes, and holds no part of it for a later write.
    pub(super) fn write_promptly(&self) {
        self.held.hold(false);
    }

    /// Recovers the connection from a stream that was made of one.
    pub(super) fn of(stream: Stream) -> Option<Box<Self>> {
        stream.into_any().downcast().ok()
    }

    pub(super) fn ahead(&self) -> &[u8] {
        &self.ahead
    }

    /// True if nothing follows the head at the beginning of the buffer. Bodies are not expected.
    pub(super) fn ends_with_head(&self) -> bool {
        let end = memmem::find(&self.ahead, HEAD_ENDS);
        end.is_none_or(|end| end + HEAD_ENDS.len() == self.ahead.len())
    }

    /// Replaces the first `length` bytes of the buffer. Returns their new length.
    pub(super) fn replace(&mut self, length: usize, by: &[u8]) -> usize {
        let rest = self.ahead.split_off(length);
        self.ahead.clear();
        self.ahead.extend_from_slice(by);
        self.ahead.unsplit(rest);
        by.len()
    }

    pub(super) fn used(&mut self, bytes: usize) {
        self.ahead.advance(bytes.min(self.ahead.len()));
    }

    /// Reads once, never beyond the size of a head. Waits until `deadline`, or until a while after
    /// the gateway began to stop.
    pub(super) async fn more(&mut self, watch: &mut Watch, deadline: Instant) -> Received {
        let received = poll_fn(|context| match self.poll_received(context) {
            Poll::Pending => watch.poll_end(deadline, context),
            received @ Poll::Ready(_) => received,
        })
        .await;
        if !matches!(received, Received::TimedOut | Received::Stopped) {
            return received;
        }
        // A busy machine notices bytes late. After this, the system has been asked about them.
        yield_now().await;
        poll_fn(|context| match self.poll_received(context) {
            Poll::Pending => Poll::Ready(received),
            late @ Poll::Ready(_) => late,
        })
        .await
    }

    fn poll_received(&mut self, context: &mut Context<'_>) -> Poll<Received> {
        match self.poll_more(context, HEAD_BYTES_MAX) {
            Poll::Ready(Ok(1..)) => return Poll::Ready(Received::Bytes),
            Poll::Ready(_) => return Poll::Ready(Received::Closed),
            Poll::Pending if self.ahead.is_empty() => self.ahead = BytesMut::new(),
            Poll::Pending => {}
        }
        Poll::Pending
    }

    /// Reads and drops the rest of the request. Returns true at its end, false if it does not come
    /// by `deadline`.
    pub(super) async fn discard(&mut self, watch: &mut Watch, deadline: Instant) -> bool {
        // Thousands of refused connections would else take turns before each served request.
        static TURN: Semaphore = Semaphore::const_new(1);
        while !self.unread.is_over() {
            if self.ahead.is_empty() && !self.has_more(watch, deadline).await {
                return false;
            }
            let Ok(Ok(_turn)) = timeout_at(deadline, TURN.acquire()).await else { return false };
            if !self.drop_some().await {
                return false;
            }
            if !self.unread.is_over() {
                sleep(BETWEEN_TURNS).await;
            }
        }
        true
    }

    /// Waits for bytes. Not ended by a stop: a reset would take the answer away from the client.
    async fn has_more(&mut self, watch: &mut Watch, deadline: Instant) -> bool {
        poll_fn(|context| match self.poll_more(context, READ_BYTES) {
            Poll::Ready(read) => Poll::Ready(matches!(read, Ok(1..))),
            Poll::Pending => watch.poll_late(deadline, context).map(|()| false),
        })
        .await
    }

    /// Drops the bytes that are there, up to those of one turn. Returns false if the client left.
    async fn drop_some(&mut self) -> bool {
        poll_fn(|context| {
            for _ in 0..READS_OF_A_TURN {
                let dropped = self.unread.take(&self.ahead);
                self.ahead.advance(dropped);
                if self.unread.is_over() {
                    break;
                }
                let read = match self.unread.rest_bytes_min() {
                    0 => self.poll_more(context, READ_BYTES),
                    bytes => self.poll_drop(context, bytes),
                };
                match read {
                    Poll::Ready(Ok(1..)) => {}
                    Poll::Ready(_) => return Poll::Ready(false),
                    Poll::Pending => break,
                }
            }
            Poll::Ready(true)
        })
        .await
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
                let written = self.poll_write_out(&mut rest, context);
                let taken = unsent.len() - rest.len();
                unsent.drain(..taken);
                if matches!(written, Poll::Ready(Err(_))) {
                    return Poll::Ready(());
                }
            }
            self.poll_left(context).map(|_| ())
        })
        .await;
    }

    /// Ready when the client leaves; its bytes are kept, up to a head or two. `close_notify` of TLS
    /// alone ends only them.
    fn poll_left(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.ahead.len() < READ_BYTES && self.half_closed.is_none() {
            if ready!(self.poll_more(context, READ_BYTES))? > 0 {
                continue;
            }
            // Without `close_notify`, the end of TLS would be an error.
            let socket = self.stream.get_ssl().and_then(|_| self.stream.get_socket_digest());
            let Some(socket) = socket else { return Poll::Ready(Ok(())) };
            self.half_closed = Some(Box::new(HalfClosed::new(socket)));
        }
        match &mut self.half_closed {
            Some(half_closed) => half_closed.poll_left(context).map(Ok),
            None => Poll::Pending,
        }
    }

    /// Reads once, into a buffer that then holds at most `bytes_max`. While nothing comes, the read
    /// takes no memory.
    fn poll_more(
        &mut self,
        context: &mut Context<'_>,
        bytes_max: usize,
    ) -> Poll<io::Result<usize>> {
        let mut space = [MaybeUninit::uninit(); LONG_READ_BYTES];
        let usual = if self.ahead.is_empty() { READ_BYTES } else { LONG_READ_BYTES };
        let room = bytes_max.saturating_sub(self.ahead.len()).min(usual);
        let mut read = ReadBuf::uninit(&mut space[..room]);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
        self.ahead.extend_from_slice(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    }

    /// Reads once, and drops at most `bytes_max` of the rest of the request.
    fn poll_drop(
        &mut self,
        context: &mut Context<'_>,
        bytes_max: usize,
    ) -> Poll<io::Result<usize>> {
        let mut space = [MaybeUninit::uninit(); LONG_READ_BYTES];
        let mut read = ReadBuf::uninit(&mut space[..bytes_max.min(LONG_READ_BYTES)]);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
        Poll::Ready(Ok(self.unread.take(read.filled())))
    }

    /// Writes all of `bytes`, while the client takes at least the floor rate.
    pub(super) async fn write(
        &mut self,
        watch: &mut Watch,
        rate: &mut FloorRate,
        bytes: &[u8],
    ) -> Result<(), Broken> {
        let mut rest = bytes;
        let (mut blocked_since, mut slow) = (None, None);
        poll_fn(|context| {
            let before = rest.len();
            let written = self.poll_write_out(&mut rest, context);
            let taken = before - rest.len();
            if let Poll::Ready(done) = written {
                // Most writes are never blocked, and read no clock.
                rate.took(taken, blocked_since.map_or(Duration::ZERO, |since| timer_now() - since));
                return Poll::Ready(done.map_err(|_| Broken::Lost));
            }
            let now = timer_now();
            let since = blocked_since.get_or_insert(now);
            if taken > 0 {
                rate.took(taken, now - *since);
                (*since, slow) = (now, None);
            }
            let late_at = *since + rate.patience();
            if slow.is_none() {
                let slow_at = *since + SLOW_AFTER.saturating_sub(rate.late());
                ready!(watch.poll_late(late_at.min(slow_at), context));
                slow = Some(self.turn.slot().waits_slow());
            }
            watch.poll_late(late_at, context).map(|()| Err(Broken::TooSlow))
        })
        .await
    }

    fn poll_write_out(
        &mut self,
        rest: &mut &[u8],
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !rest.is_empty() {
            match ready!(Pin::new(&mut self.stream).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => rest.advance(written),
            }
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }
}

impl fmt::Debug for Connection {
    /// Leaves out the buffered bytes, which may hold a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("stream", &self.stream)
            .field("ahead", &self.ahead.len())
            .field("client_address", &self.client_address)
            .field("unread", &self.unread)
            .finish_non_exhaustive()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.unread.is_over() {
            // The framework reads on to notice that the client leaves.
            return this.poll_left(context);
        }
        if this.ahead.is_empty() {
            match &mut this.unread.body {
                UnreadBody::Endless => return Pin::new(&mut this.stream).poll_read(context, into),
                UnreadBody::Bytes(left) => {
                    let before = into.filled().len();
                    ready!(Pin::new(&mut (&mut this.stream).take(*left)).poll_read(context, into))?;
                    *left -= (into.filled().len() - before) as u64;
                    return Poll::Ready(Ok(()));
                }
                UnreadBody::Chunks(_) => {
                    if ready!(this.poll_more(context, READ_BYTES))? == 0 {
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
        let room = this.ahead.len().min(into.remaining());
        let length = this.unread.take(&this.ahead[..room]);
        into.put_slice(&this.ahead[..length]);
        this.ahead.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.held.take(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        ready!(this.held.poll_write_out(&mut this.stream, context))?;
        Pin::new(&mut this.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.held.poll_write_out(&mut this.stream, context))?;
        Pin::new(&mut this.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.held.poll_write_out(&mut this.stream, context))?;
        Pin::new(&mut this.stream).poll_shutdown(context)
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
