//! HTTP/2 connections: the turns of the codec, and the hits that are answered within one.
//!
//! A turn takes the requests that have arrived. Hits are answered at once, and all of a turn leave
//! in one write; any other request gets a task. Left out: frames (`connection/http2.rs`).

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use h2::server::{Builder, Connection as Codec, SendResponse};
use h2::{Reason, RecvStream};
use http::{Method, Request as HttpRequest, Version};
use pingora::server::ShutdownWatch;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

use crate::clock::timer_now;
use crate::decision::floor_rate::FloorRate;
use crate::gateway::active::Awaited;
use crate::gateway::connections::slot::Busy;
use crate::gateway::error::{GatewayError, SLOW_CLIENT};
use crate::gateway::request::validate::{BodyFraming, HEAD_BYTES_MAX, Wire, check_target};
use crate::gateway::response::pacing::Streams;
use crate::gateway::response::render::{Compression, Content};
use crate::gateway::response::write::FRAME_BYTES;
use crate::gateway::server::connection::http2::{Flood, Frames, Http2State};
use crate::gateway::server::connection::{Connection, LAST_REQUEST_WAIT, STREAMS_MAX, Watch};
use crate::gateway::server::handler::{Frontend, Handler};
use crate::gateway::server::header_memo::StreamMemo;
use crate::gateway::server::request::{Classification, Known, Request, Transport};
use crate::gateway::session::Session;
use crate::gateway::session::http2::StreamSession;

/// Requests of one turn. Chosen here: their hits take less than half a millisecond, and then other
/// connections have theirs.
const TURN_MAX: usize = 32;
/// Bytes of one stream between the gateway and the socket. Chosen here: two frames, so that one is
/// made while the other is sent.
const STREAM_BYTES_MAX: usize = 2 * FRAME_BYTES;
/// A connection ends during a drain once it had no stream and nothing to send this many times in a
/// row, `LAST_REQUEST_WAIT` apart. Chosen here: a second for the client's answer.
const QUIET_CHECKS: usize = 4;
/// The time for which a connection that flooded stays open, unread. Chosen here: some thousand
/// floods a second, each of a new connection, would take a core.
const FLOOD_PAUSE: Duration = Duration::from_millis(500);
/// The rest of a body that is read after its answer, in bytes and time: as much as for HTTP/1.1.
const SKIPPED_BYTES_MAX: usize = 64 * 1024;
const SKIPPED_WITHIN: Duration = Duration::from_secs(5);
/// The reason of a flood that the codec found, such as one of empty DATA frames.
const FLOOD_OF_CODEC: &str = "http2_other_frames";

/// An HTTP/2 connection of a listener.
pub(super) struct Http2Connection<'c> {
    front: &'c Frontend,
    /// Under the current config.
    handler: Arc<Handler>,
    memo: Option<StreamMemo>,
    client_address: Option<IpAddr>,
    frames: Frames,
    watch: &'c mut Watch,
    /// The requests of this turn.
    arrived: Vec<(HttpRequest<RecvStream>, SendResponse<Bytes>)>,
    /// Held while answers of earlier turns are on their way.
    busy: Option<Busy>,
    last_turn: Instant,
    is_stopping: bool,
    pace: Pace,
    /// Set once the codec has no more turns.
    ended: Option<Result<(), h2::Error>>,
}

/// The pace at which the client takes what waits for it.
struct Pace {
    rate: FloorRate,
    /// The time since which it takes nothing, and the bytes that it had taken by then.
    blocked: Option<(Instant, usize)>,
}

/// The end of a turn.
enum Turn {
    /// Requests have arrived.
    Requests,
    /// The gateway stops.
    Stopping,
    /// No request came for the time of `idle_timeout`.
    Idle,
    /// The connection has ended, or an error has ended it.
    Over(Result<(), h2::Error>),
}

/// A request that is not answered within its turn.
enum Later {
    /// With the result of the lookup, if there was one.
    Serve(StreamSession, Option<Known>),
    /// There is no room for the body yet.
    Body(StreamSession, Request, Bytes),
}

impl<'c> Http2Connection<'c> {
    /// A connection before its preface.
    pub(super) fn new(
        front: &'c Frontend,
        handler: Handler,
        connection: Box<Connection>,
        watch: &'c mut Watch,
    ) -> Self {
        let (client_address, rate) = (connection.client_address(), handler.floor_rate());
        let handler = Handler { streams: Some(Arc::<Streams>::default()), ..handler };
        Self {
            front,
            handler: Arc::new(handler),
            memo: None,
            client_address,
            frames: Frames::new(connection),
            watch,
            arrived: Vec::new(),
            busy: None,
            last_turn: timer_now(),
            is_stopping: false,
            pace: Pace { rate, blocked: None },
            ended: None,
        }
    }

    /// Serves the connection to its end. During a drain, its client has to end it, which many do
    /// not.
    pub(super) async fn serve(mut self, shutdown: &ShutdownWatch) {
        let (state, slot) = (Arc::clone(self.frames.state()), Arc::clone(&self.handler.slot));
        let (front, address) = (self.front, self.client_address);
        let mut stopping = shutdown.clone();
        let abandoned = async {
            // A closed channel means shutdown too.
            let _ = stopping.wait_for(|stopping| *stopping).await;
            // Streams that the client has begun before it hears of the stop.
            let begun = Awaited::new(&front.gateway().env.active);
            let (mut checks, mut quiet_checks) = (0, 0);
            while quiet_checks < QUIET_CHECKS {
                sleep(LAST_REQUEST_WAIT).await;
                checks += 1;
                if checks == QUIET_CHECKS {
                    begun.end();
                }
                let is_quiet = slot.requests() == 0 && !state.is_blocked();
                quiet_checks = if is_quiet { quiet_checks + 1 } else { 0 };
            }
        };
        let ended = tokio::select! {
            ended = self.turns() => ended,
            () = abandoned => Ok(()),
        };
        let is_flood = |error: &h2::Error| {
            error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM)
        };
        let found = ended.err().filter(is_flood).map(|_| FLOOD_OF_CODEC);
        let Some(reason) = state.flood().map(Flood::reason).or(found) else { return };
        front.gateway().env.connections.flooded(reason, address);
        let Self { frames, watch, .. } = self;
        frames.forget();
        // By then the client has the frame that says so, which unread bytes would take from it.
        let until = timer_now() + FLOOD_PAUSE;
        poll_fn(|context| match watch.poll_stopping(context) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => watch.poll_late(until, context),
        })
        .await;
    }

    async fn turns(&mut self) -> Result<(), h2::Error> {
        let mut builder = Builder::new();
        builder
            .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX))
            .max_concurrent_streams(STREAMS_MAX)
            // The budgets of `floods.rs` bound them.
            .max_pending_accept_reset_streams(STREAMS_MAX as usize)
            .max_send_buffer_size(STREAM_BYTES_MAX);
        let frames = self.frames.clone();
        let mut handshake = pin!(builder.handshake(frames.clone()));
        let mut codec = poll_fn(|context| {
            let made = handshake.poll_unpin(context);
            // A failure is that of the next read too.
            let _ = frames.poll_send(context);
            made
        })
        .await?;
        loop {
            match poll_fn(|context| self.poll_turn(&mut codec, context)).await {
                Turn::Requests => {
                    self.renew();
                    let is_full = self.arrived.len() == TURN_MAX;
                    self.answer();
                    if is_full {
                        yield_now().await;
                    }
                }
                Turn::Stopping => codec.graceful_shutdown(),
                Turn::Idle => {
                    codec.abrupt_shutdown(Reason::NO_ERROR);
                    let closed = poll_fn(|context| {
                        let closed = codec.poll_closed(context);
                        let _ = self.frames.poll_send(context);
                        closed
                    });
                    // A client that takes no farewell gets none.
                    let _ = timeout(LAST_REQUEST_WAIT, closed).await;
                    return Ok(());
                }
                Turn::Over(ended) => return ended,
            }
        }
    }

    /// Reads requests and writes answers, as far as both go now.
    fn poll_turn(
        &mut self,
        codec: &mut Codec<Frames, Bytes>,
        context: &mut Context<'_>,
    ) -> Poll<Turn> {
        while self.ended.is_none() && self.arrived.len() < TURN_MAX {
            match codec.poll_accept(context) {
                Poll::Ready(Some(Ok(arrived))) => self.arrived.push(arrived),
                Poll::Ready(Some(Err(error))) => self.ended = Some(Err(error)),
                Poll::Ready(None) => self.ended = Some(Ok(())),
                Poll::Pending => break,
            }
        }
        match self.frames.poll_send(context) {
            Poll::Ready(sent) => {
                (self.busy, self.pace.blocked) = (None, None);
                if sent.is_err() {
                    self.ended.get_or_insert(Ok(()));
                }
            }
            Poll::Pending
                if self.pace.poll_too_slow(self.frames.state(), self.watch, context).is_ready() =>
            {
                self.front.gateway().env.metrics.connection_ended(SLOW_CLIENT);
                return Poll::Ready(Turn::Over(Ok(())));
            }
            Poll::Pending => {}
        }
        if !self.arrived.is_empty() {
            return Poll::Ready(Turn::Requests);
        }
        if let Some(ended) = self.ended.take() {
            return Poll::Ready(Turn::Over(ended));
        }
        if !self.is_stopping && self.watch.poll_stopping(context).is_ready() {
            self.is_stopping = true;
            return Poll::Ready(Turn::Stopping);
        }
        self.poll_idle(context)
    }

    /// Ready once no request has been under way for the time of `idle_timeout`.
    fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<Turn> {
        let (slot, state) = (&self.handler.slot, self.frames.state());
        let idle_timeout = self.handler.gateway.env.config.listen.idle_timeout;
        loop {
            let until = self.last_turn.max(slot.last_end()) + idle_timeout;
            ready!(self.watch.poll_late(until, context));
            let now = timer_now();
            if slot.requests() > 0 || state.is_blocked() {
                self.last_turn = now;
            } else if self.last_turn.max(slot.last_end()) + idle_timeout <= now {
                return Poll::Ready(Turn::Idle);
            }
        }
    }

    /// Moves the connection to the current config.
    fn renew(&mut self) {
        if let Some(handler) = self.front.renewed(&self.handler) {
            self.handler = Arc::new(handler);
            // Under the new config the same key may be unknown.
            self.memo = None;
        }
    }

    /// Answers the requests of a turn, or gives them a task.
    fn answer(&mut self) {
        let Some(busy) = Busy::begin(&self.handler.slot) else {
            // The connection was evicted, and ends.
            self.arrived.clear();
            return;
        };
        self.last_turn = timer_now();
        for (request, answer) in self.arrived.drain(..) {
            let session = StreamSession::new(request, answer, self.client_address);
            let Some(later) = self.handler.answer_at_once(session, &mut self.memo) else {
                continue;
            };
            let Some(busy) = Busy::begin(&self.handler.slot) else { continue };
            let handler = Arc::clone(&self.handler);
            tokio::spawn(async move {
                let answered = handler.answer_later(later).await;
                // No request is under way any more.
                drop(busy);
                if let Session::Http2(mut stream) = answered {
                    let _ = timeout(SKIPPED_WITHIN, stream.skip_body(SKIPPED_BYTES_MAX)).await;
                }
            });
        }
        self.busy = Some(busy);
    }
}

impl Pace {
    /// Ready once the client takes less than the floor rate.
    fn poll_too_slow(
        &mut self,
        state: &Http2State,
        watch: &mut Watch,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let (now, sent) = (timer_now(), state.sent());
        let (since, sent_then) = self.blocked.get_or_insert((now, sent));
        if sent > *sent_then {
            self.rate.took(sent - *sent_then, now - *since);
            (*since, *sent_then) = (now, sent);
        }
        watch.poll_late(*since + self.rate.patience(), context)
    }
}

impl Handler {
    async fn answer_later(&self, later: Later) -> Session {
        match later {
            Later::Serve(session, known) => {
                let mut session = Session::Http2(Box::new(session));
                // The answer is over in any case.
                let _ = self.serve(&mut session, known).await;
                session
            }
            Later::Body(session, mut request, body) => {
                let mut session = Session::Http2(Box::new(session));
                let (bytes, mut pacing) = (body.len(), self.pacing());
                let written = pacing.write(bytes, session.write_body(body, true)).await;
                if written.is_ok() {
                    request.outcome.bytes_out = bytes as u64;
                }
                Self::end(&mut session, request, written);
                session
            }
        }
    }

    /// Answers a hit that fits into one frame. Returns any other request.
    fn answer_at_once(
        &self,
        mut session: StreamSession,
        memo: &mut Option<StreamMemo>,
    ) -> Option<Later> {
        let head = session.head();
        let is_read = matches!(*head.method, Method::GET | Method::HEAD);
        if !is_read || !session.ended_with_head() {
            return Some(Later::Serve(session, None));
        }
        let known = memo.as_ref().filter(|memo| memo.is_of(&head));
        let valid = match known {
            Some(memo) => check_target(head.method, head.target, &memo.known.host, memo.is_https),
            None => self.check(head.method, head.target, head.headers, Wire::Http2),
        };
        let headers = known.map_or(&session.headers, |memo| &memo.headers);
        let transport = Transport {
            scheme: self.scheme,
            version: Version::HTTP_2,
            client_address: session.client_address,
        };
        let (method, headers) = (head.method.clone(), Arc::clone(headers));
        let mut request = Request::new(&self.gateway, transport, method, head.target, headers);
        request.identity.known = known.map(|memo| Arc::clone(&memo.known));
        let span = request.span.as_tracing().clone();
        let _inside = span.enter();
        // Nothing waits up to the answer's last byte: one clock reading is enough.
        let now = request.arrival.at;
        let classified = valid.map_err(GatewayError::Malformed).and_then(|mut valid| {
            valid.body = BodyFraming::None;
            self.classify(&mut request, valid)
        });
        let Ok(Classification::Read(routed)) = classified else {
            return Some(Later::Serve(session, Some(Known { request, classified })));
        };
        if let Some(identified) = &request.identity.identified {
            *memo = StreamMemo::new(&session, &routed.from.valid, identified);
        }
        let later = |session, request, classification| {
            Some(Later::Serve(session, Some(Known { request, classified: Ok(classification) })))
        };
        let Ok(entry) = self.stored(&mut request, &routed, now) else {
            return later(session, request, Classification::Read(routed));
        };
        let responder = &self.gateway.responder;
        let selection = responder.select(&entry, &request.form(), Compression::AtOnce);
        let Some(selection) = selection.filter(|_| entry.body.file().is_none()) else {
            return later(session, request, Classification::Read(routed));
        };
        if entry.body.text().len() > FRAME_BYTES {
            let content = Content::Stored(entry, selection);
            return later(session, request, Classification::Answered(Box::new(content)));
        }
        let added = self.gateway_headers(&request);
        let (head, body) = responder.render_short(entry, selection, &request.form(), added, now);
        request.outcome.status = head.status.as_u16();
        let (bytes, is_whole) = (body.len() as u64, body.is_empty());
        // A client that has reset the stream gets nothing.
        let begun = session.write_head(head.status, head.fields, is_whole);
        if begun.is_ok() && !is_whole {
            if let Err(body) = session.try_write_all(body) {
                return Some(Later::Body(session, request, body));
            }
            request.outcome.bytes_out = bytes;
        }
        request.finish();
        None
    }
}
