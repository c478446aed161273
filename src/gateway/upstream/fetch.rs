//! The upstream client: one attempt of one request, and the classification of its failures.
//! `connect.rs` opens connections, `http1/mod.rs` has the wire format.
//!
//! Left out: limits, tokens, retries and caching. The caller holds the lease, adds the credential
//! and draws the conclusions (SPECIFICATION D7).

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::clock::{Clock, Timestamp};
use crate::config::{Upstream as UpstreamConfig, UpstreamUrl};
use crate::decision::cache::freshness::Mode;
use crate::decision::deadline::BodyPace;
use crate::gateway::address::Service;
use crate::gateway::counted::grow;
use crate::gateway::http::decoding::{Decoded, Decoder, Undecodable};
use crate::gateway::http::interim::Interims;
use crate::gateway::upstream::connect::{Connector, Target};
use crate::gateway::upstream::http1::{AnswerHead, Broken, Connection};
use crate::gateway::upstream::outgoing::{OutgoingBody, OutgoingRequest};
use crate::gateway::upstream::{idle::IdleConnections, resolve::Resolver};

/// Memory for bodies of unknown length of one address, until it is clear that they can be held.
/// Chosen here: assembling takes it twice for a moment; all large bodies together have 32 MiB.
const UNMEASURED_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The part of each that needs no permit: more than most answers, and four times one read.
const UNMEASURED_BYTES_FREE: usize = 256 * 1024;
const UNIT_BYTES: usize = 64 * 1024;

pub struct Upstream {
    connector: Connector,
    rest: Arc<Address>,
    graphql: Arc<Address>,
    uploads: Arc<Address>,
    response_timeout: Duration,
    mode: Mode,
}

struct Address {
    target: Target,
    resolver: Arc<Resolver>,
    timeouts: Clock,
    idle: IdleConnections,
    /// Permits for bodies that may turn out too large to hold.
    unmeasured: Arc<Semaphore>,
}

impl Address {
    /// Asks about the name, whose records are too old. Without an address open connections stay,
    /// and the name is asked about again.
    async fn renew(self: Arc<Self>) {
        match self.resolver.lookup(self.target.host()).await {
            Ok(records) => self.idle.follow(&records),
            Err(_) => self.idle.ask_again(),
        }
    }
}

/// The choice between an idle and a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    Idle,
    Never,
}

impl Reuse {
    /// Only methods that RFC 9110 §9.2.2 calls idempotent may use an idle connection, which the
    /// upstream may be closing: they can be sent again.
    pub fn of(method: &Method) -> Self {
        if method.is_idempotent() { Self::Idle } else { Self::Never }
    }
}

/// A request with the additions of one attempt.
pub struct UpstreamRequest<'r> {
    pub request: &'r OutgoingRequest,
    /// Headers of this attempt, which replace those of the request.
    pub added: HeaderMap,
    /// The receiver of interim answers; `None`: they are dropped.
    pub interims: Option<&'r Interims>,
}

/// The reason why there is no answer, in the terms of SPECIFICATION D7.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No connection: the upstream has seen nothing of the request.
    #[error("no connection to the upstream: {0}")]
    Connect(String),
    /// The upstream may have executed the request.
    #[error("the upstream's answer was lost: {0}")]
    Lost(String),
    /// A reused connection broke, most likely closed before the request; the outcome is unknown.
    #[error("an idle connection to the upstream died: {0}")]
    Stale(String),
    #[error("the client left before anything was sent")]
    Cancelled,
    /// Nothing was sent, because other replicas may count on that by now, or could not hear of it.
    #[error(
        "the connection came too late after the permission of the replicas, or Redis is out of reach"
    )]
    TooLate,
    /// No answer within `response_timeout`; the upstream may have executed the request.
    #[error("no answer from the upstream in time")]
    Timeout,
    #[error("the request cannot be sent: {0}")]
    Unsendable(String),
    /// The circuit breaker opened: the request was not sent, or its read was given up.
    #[error("the upstream is down")]
    Down,
    /// The answer came, in a content coding that cannot be undone.
    #[error("the upstream's answer cannot be decoded: {0}")]
    Undecodable(Undecodable),
}

impl FetchError {
    pub fn may_have_run(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Stale(_) | Self::Timeout | Self::Undecodable(_))
    }
}

/// An answer with an unread body, on its connection.
pub struct Exchange {
    connection: Connection,
    address: Arc<Address>,
    body_timeout: Duration,
    status: StatusCode,
    headers: HeaderMap,
    /// Undoes the content coding of the body; `None`: it has none.
    decoder: Option<Decoder>,
    /// The pace of a body that is being collected.
    pace: Option<BodyPace>,
    mode: Mode,
    /// The pieces read of a body that turned out too large to hold.
    pending: VecDeque<Bytes>,
    /// Its permits of [`Address::unmeasured`].
    memory: Option<OwnedSemaphorePermit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// The next piece, or the end, is due.
    GoesOn,
    /// The upstream has answered; no more is sent.
    Answered,
}

pub enum Collected {
    /// All of it; the connection went back to the pool.
    Whole(Bytes),
    /// More than the limit: the bytes so far, and the exchange with the rest.
    TooLarge(Bytes, Box<Exchange>),
}

impl Upstream {
    /// Connects at the first request. What `before` knows of names stays known.
    pub fn new(
        config: &UpstreamConfig,
        mode: Mode,
        clock: &Clock,
        timeouts: &Clock,
        before: Option<&Self>,
    ) -> Self {
        let servers = &config.name_servers;
        let resolver = before.map(|before| before.connector.resolver());
        let resolver = resolver
            .filter(|resolver| resolver.asks(servers))
            .map_or_else(|| Arc::new(Resolver::new(clock.clone(), servers)), Arc::clone);
        let address = |url: &UpstreamUrl| {
            let unmeasured = Arc::new(Semaphore::new(UNMEASURED_BYTES_MAX / UNIT_BYTES));
            Arc::new(Address {
                target: Target::new(url.clone(), config.proxies.of(url).cloned()),
                resolver: Arc::clone(&resolver),
                timeouts: timeouts.clone(),
                idle: IdleConnections::new(clock.clone()),
                unmeasured,
            })
        };
        Self {
            rest: address(&config.url),
            graphql: address(&config.graphql_url),
            uploads: address(&config.uploads_url),
            connector: Connector::new(config, resolver),
            response_timeout: config.response_timeout,
            mode,
        }
    }

    pub fn host(&self, service: Service) -> &str {
        self.address(service).target.url().host()
    }

    fn address(&self, service: Service) -> &Arc<Address> {
        match service {
            Service::Graphql => &self.graphql,
            Service::Uploads => &self.uploads,
            Service::Rest | Service::Weir => &self.rest,
        }
    }

    /// Sends one request once and reads its answer's head. `may_send` is called right before the
    /// first byte.
    ///
    /// POST and PATCH need a new connection ([`Reuse::of`]): if an old one breaks, their outcome is
    /// unknown.
    pub async fn send(
        self: &Arc<Self>,
        request: &UpstreamRequest<'_>,
        reuse: Reuse,
        may_send: impl FnOnce() -> Result<(), FetchError>,
    ) -> Result<Box<Exchange>, FetchError> {
        let to = self.address(request.request.service);
        let head = head_of(to.target.url(), request)?;
        let idle = if reuse == Reuse::Idle { to.idle.take() } else { None };
        let is_reused = idle.is_some();
        let mut connection = match idle {
            Some(connection) => connection,
            None => Box::pin(self.connect_anew(to)).await?,
        };
        may_send()?;
        match self.exchange_head(&mut connection, &head, request).await {
            Ok((status, mut headers)) => Ok(Box::new(Exchange {
                connection,
                address: Arc::clone(to),
                body_timeout: self.response_timeout,
                status,
                decoder: Decoder::of(&mut headers, self.mode),
                pace: None,
                mode: self.mode,
                headers,
                pending: VecDeque::new(),
                memory: None,
            })),
            Err(FetchError::Lost(error) | FetchError::Connect(error)) if is_reused => {
                Err(FetchError::Stale(error))
            }
            Err(error) => Err(error),
        }
    }

    /// The end of a request whose time is over, by the fact that its first byte was due or not.
    pub fn overdue(&self, service: Service, was_sent: bool) -> FetchError {
        if was_sent {
            FetchError::Timeout
        } else {
            FetchError::Connect(self.address(service).target.overdue())
        }
    }

    async fn connect_anew(&self, to: &Address) -> Result<Connection, FetchError> {
        let opened = self.connector.open(&to.target).await.map_err(FetchError::Connect)?;
        to.idle.follow(&opened.records);
        Ok(Connection::new(opened.stream).with_peer(opened.peer))
    }

    async fn exchange_head(
        &self,
        connection: &mut Connection,
        head: &[u8],
        request: &UpstreamRequest<'_>,
    ) -> Result<AnswerHead, FetchError> {
        let (body, outgoing): (&[u8], _) = match &request.request.body {
            OutgoingBody::Absent => (&[], 0),
            OutgoingBody::Whole(body) => (body, body.len() as u64),
            OutgoingBody::Streamed(length) => (&[], *length),
        };
        let (limit, interims, method) =
            (self.response_timeout, request.interims, &request.request.method);
        if matches!(request.request.body, OutgoingBody::Absent) {
            let both = async {
                connection.send(method, head, body, outgoing, interims).await?;
                connection.read_head(interims).await
            };
            return head_in_time(limit, both).await;
        }
        let sent = connection.send(method, head, body, outgoing, interims);
        match head_in_time(limit, sent).await? {
            Some(early) => Ok(early),
            // The caller drives both directions.
            None if matches!(request.request.body, OutgoingBody::Streamed(_)) => {
                Ok((StatusCode::CONTINUE, HeaderMap::new()))
            }
            None => head_in_time(limit, connection.read_head(interims)).await,
        }
    }
}

fn head_of(
    url: &UpstreamUrl,
    UpstreamRequest { request, added, .. }: &UpstreamRequest<'_>,
) -> Result<BytesMut, FetchError> {
    let mut head = BytesMut::with_capacity(1024);
    // The GraphQL address is complete in itself.
    let target = if request.service == Service::Graphql {
        request.target.strip_prefix("/graphql").unwrap_or_default()
    } else {
        &request.target
    };
    // Validation ensures this; an embedded line break would start another request.
    if target.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return Err(FetchError::Unsendable("the path has a space or a control character".into()));
    }
    for part in [
        request.method.as_str(),
        " ",
        url.path_prefix(),
        target,
        " HTTP/1.1\r\nhost: ",
        url.authority(),
        "\r\n",
    ] {
        head.extend_from_slice(part.as_bytes());
    }
    let kept = request.headers.iter().filter(|(name, _)| !added.contains_key(*name));
    for (name, value) in kept.chain(added) {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    let framing = match &request.body {
        OutgoingBody::Absent => String::new(),
        OutgoingBody::Whole(body) => format!("content-length: {}\r\n", body.len()),
        OutgoingBody::Streamed(length) => format!("content-length: {length}\r\n"),
    };
    head.extend_from_slice(framing.as_bytes());
    head.extend_from_slice(b"\r\n");
    Ok(head)
}

/// Runs a step with a timeout. A broken step may have been executed.
async fn in_time<T>(
    limit: Duration,
    step: impl Future<Output = Result<T, Broken>>,
) -> Result<T, FetchError> {
    match timeout(limit, step).await {
        Ok(done) => done.map_err(|broken| FetchError::Lost(broken.into_text())),
        Err(_) => Err(FetchError::Timeout),
    }
}

/// Runs a step before the first byte of the answer, with a timeout. The upstream may yet refuse the
/// connection.
async fn head_in_time<T>(
    limit: Duration,
    step: impl Future<Output = Result<T, Broken>>,
) -> Result<T, FetchError> {
    match timeout(limit, step).await {
        Ok(Err(Broken::Refused(why))) => Err(FetchError::Connect(why)),
        Ok(done) => done.map_err(|broken| FetchError::Lost(broken.into_text())),
        Err(_) => Err(FetchError::Timeout),
    }
}

impl Exchange {
    pub fn take_head(&mut self) -> AnswerHead {
        (self.status, std::mem::take(&mut self.headers))
    }

    /// Sends a piece of a streamed body, unless it is empty. The upstream may answer early.
    pub async fn send_body(
        &mut self,
        piece: &[u8],
        interims: Option<&Interims>,
    ) -> Result<Sending, FetchError> {
        let early = in_time(self.body_timeout, self.connection.send_body(piece, interims)).await?;
        Ok(early.map_or(Sending::GoesOn, |head| self.answered(head)))
    }

    /// Reads the head of the answer after a streamed body.
    pub async fn finish_streamed(&mut self, interims: Option<&Interims>) -> Result<(), FetchError> {
        let head = in_time(self.body_timeout, self.connection.read_head(interims)).await?;
        self.answered(head);
        Ok(())
    }

    fn answered(&mut self, head: AnswerHead) -> Sending {
        (self.status, self.headers) = head;
        self.decoder = Decoder::of(&mut self.headers, self.mode);
        Sending::Answered
    }

    /// Returns the next piece of the answer's body; `None` at its end. Earlier reads come first.
    pub async fn read_body(&mut self) -> Result<Option<Bytes>, FetchError> {
        if let Some(piece) = self.pending.pop_front() {
            return Ok(Some(piece));
        }
        self.memory = None;
        self.next_piece().await
    }

    /// True if a body of known length was read completely.
    pub fn is_over(&self) -> bool {
        let is_read = self.pending.is_empty() && self.decoder.is_none();
        is_read && self.connection.body_bytes_left() == Some(0)
    }

    async fn next_piece(&mut self) -> Result<Option<Bytes>, FetchError> {
        loop {
            if let Some(decoder) = &mut self.decoder {
                // A short body may become a long one: other tasks go on meanwhile. Nothing is
                // awaited after a piece, because a reader that is dropped then would lose it.
                yield_now().await;
                match decoder.pull().map_err(FetchError::Undecodable)? {
                    Decoded::Piece(piece) => return Ok(Some(piece)),
                    Decoded::End => return Ok(None),
                    Decoded::NeedsInput => {}
                }
            }
            let now = || self.address.timeouts.now();
            let limit =
                self.pace.map_or(self.body_timeout, |pace| pace.left(now()).min(self.body_timeout));
            let piece = in_time(limit, self.connection.read_body()).await?;
            if let (Some(pace), Some(piece)) = (&mut self.pace, &piece) {
                pace.received(piece.len(), now());
            }
            let Some(decoder) = &mut self.decoder else { return Ok(piece) };
            decoder.push(piece);
        }
    }

    /// True if this much of a body of unknown length may be held.
    fn may_hold(&mut self, bytes: usize) -> bool {
        let units = bytes.saturating_sub(UNMEASURED_BYTES_FREE).div_ceil(UNIT_BYTES);
        grow(&mut self.memory, &self.address.unmeasured, units)
    }

    /// Reads the body up to `bytes_max`. A longer one is returned with the bytes so far; so is one
    /// of unknown length if too many such bodies are being read. With `answer_by`, a body that
    /// stalls ends with that time; one under way goes on.
    pub async fn collect(
        mut self: Box<Self>,
        bytes_max: usize,
        answer_by: Option<Timestamp>,
    ) -> Result<Collected, FetchError> {
        self.pace =
            answer_by.map(|answer_by| BodyPace::new(answer_by, self.address.timeouts.now()));
        let mut collected = self.collect_in_pace(bytes_max).await?;
        if let Collected::TooLarge(_, exchange) = &mut collected {
            exchange.pace = None;
        }
        Ok(collected)
    }

    async fn collect_in_pace(
        mut self: Box<Self>,
        bytes_max: usize,
    ) -> Result<Collected, FetchError> {
        let left = self.connection.body_bytes_left();
        if left.is_some_and(|left| left > bytes_max as u64) {
            return Ok(Collected::TooLarge(Bytes::new(), self));
        }
        let Some(first) = self.next_piece().await? else { return Ok(self.whole(Bytes::new())) };
        if first.len() > bytes_max {
            return Ok(Collected::TooLarge(first, self));
        }
        let Some(second) = self.next_piece().await? else { return Ok(self.whole(first)) };
        // The length is that of the encoded body.
        let left = left.filter(|_| self.decoder.is_none());
        let Some(left) = left.and_then(|left| usize::try_from(left).ok()) else {
            return self.collect_unmeasured(VecDeque::from([first, second]), bytes_max).await;
        };
        // No longer than declared, and that is within the limit.
        let mut body = BytesMut::with_capacity(left);
        body.extend_from_slice(&first);
        body.extend_from_slice(&second);
        while let Some(piece) = self.next_piece().await? {
            body.extend_from_slice(&piece);
        }
        Ok(self.whole(body.freeze()))
    }

    fn whole(self: Box<Self>, body: Bytes) -> Collected {
        self.release();
        Collected::Whole(body)
    }

    /// Collects a body of unknown length as pieces: a growing buffer would triple the memory.
    async fn collect_unmeasured(
        mut self: Box<Self>,
        mut pieces: VecDeque<Bytes>,
        bytes_max: usize,
    ) -> Result<Collected, FetchError> {
        let mut length = pieces.iter().map(Bytes::len).sum();
        loop {
            if length > bytes_max || !self.may_hold(length) {
                self.pending = pieces;
                return Ok(Collected::TooLarge(Bytes::new(), self));
            }
            let Some(piece) = self.next_piece().await? else { break };
            length += piece.len();
            pieces.push_back(piece);
        }
        let mut body = BytesMut::with_capacity(length);
        for piece in pieces {
            body.extend_from_slice(&piece);
        }
        Ok(self.whole(body.freeze()))
    }

    /// Returns the connection to the pool if the answer was read completely.
    pub fn release(self) {
        if self.connection.is_reusable()
            && self.address.idle.put(self.connection)
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(self.address.renew());
        }
    }
}
