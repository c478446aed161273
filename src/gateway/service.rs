//! The path of a request, from the first byte of its head to the last of its answer, in the order of `lib.rs`.
//!
//! pingora's `ProxyHttp` is not used: its phases begin after the head was read without a total deadline, and every request here is answered by the
//! gateway itself through the connector. This is an application on pingora's listener and sessions instead.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use pingora::ErrorType;
use pingora::apps::{HttpPersistentSettings, HttpServerApp, HttpServerOptions, ReusedHttpStream, ServerApp};
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::H2Options;
use pingora::server::ShutdownWatch;
use tokio::time::timeout;
use tracing::Instrument;

use crate::api::ResourceName;
use crate::decision::access::permitted;
use crate::telemetry::{CacheOutcome, LogText, MethodName, Outcome, log, spans};

use super::Gateway;
use super::attempt::{Effort, Job};
use super::auth::Client;
use super::body::{BodyRead, read_body};
use super::fetch::OutgoingBody;
use super::headers;
use super::intake::{self, BodyFraming, HEAD_BYTES_MAX, Intake, Malformed, Root, Service, Wire};
use super::random;
use super::read::{Question, ReadAnswer};
use super::refuse::{RateView, Refused};
use super::reply::Reply;
use super::respond::{self, Broken, Form};
use super::rewrite::Origin;
use super::route::{GraphqlKind, Route, graphql_kind};

/// How long an unread request body is drained so that its connection can be used again.
const DRAIN_BODY: Duration = Duration::from_secs(5);
/// The longest body of a request that has no use for one.
const IDLE_BODY_BYTES_MAX: usize = 64 * 1024;
/// How HTTP/2's connection preface begins, and no request of HTTP/1.1 that is served here (RFC 9113 §3.4).
const PREFACE_BEGINS: &[u8; 4] = b"PRI ";
/// The length of the whole preface.
const PREFACE_BYTES: usize = 24;

/// A listener's application: bounds the time before the first bytes, tells HTTP/2 from HTTP/1.1, and hands the connection to a [`Door`].
///
/// The framework would look for the whole preface without a deadline, and so never answer a request shorter than that.
pub struct FrontDoor {
    http1: Arc<Door>,
    http2: Arc<Door>,
    header_timeout: Duration,
}

/// The HTTP side of a listener.
pub struct Door {
    gateway: Arc<Gateway>,
    scheme: &'static str,
    options: HttpServerOptions,
}

impl FrontDoor {
    /// For a listener of this scheme, `http` or `https`.
    pub fn new(gateway: &Arc<Gateway>, scheme: &'static str) -> Self {
        let header_timeout = gateway.config.listen.header_timeout;
        let door = |h2c| {
            let mut options = HttpServerOptions::default();
            options.h2c = h2c;
            options.h2_idle_timeout = Some(gateway.config.listen.idle_timeout);
            Arc::new(Door { gateway: Arc::clone(gateway), scheme, options })
        };
        Self { http1: door(false), http2: door(true), header_timeout }
    }
}

#[async_trait]
impl ServerApp for FrontDoor {
    async fn process_new(self: &Arc<Self>, mut session: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let mut beginning = [0; PREFACE_BEGINS.len()];
        timeout(self.header_timeout, session.try_peek(&mut beginning)).await.ok()?.ok()?;
        if beginning != *PREFACE_BEGINS {
            return self.http1.process_new(session, shutdown).await;
        }
        timeout(self.header_timeout, session.try_peek(&mut [0; PREFACE_BYTES])).await.ok()?.ok()?;
        self.http2.process_new(session, shutdown).await
    }
}

#[async_trait]
impl HttpServerApp for Door {
    async fn process_new_http(self: &Arc<Self>, mut session: ServerSession, shutdown: &ShutdownWatch) -> Option<ReusedHttpStream> {
        let listen = &self.gateway.config.listen;
        let is_reused = session.take_connection_user_context().is_some();
        session.set_pipelining_enabled(true);
        session.set_read_timeout(Some(listen.body_timeout));
        session.set_write_timeout(Some(listen.body_timeout));
        session.set_total_drain_timeout(Some(DRAIN_BODY));
        session.set_keepalive(if *shutdown.borrow() { None } else { Some(listen.idle_timeout.as_secs().max(1)) });
        // pingora counts the pause before a reused connection's next request into the same read.
        let head_deadline = listen.header_timeout + if is_reused { listen.idle_timeout } else { Duration::ZERO };
        let mut stopping = shutdown.clone();
        let read = tokio::select! {
            biased;
            read = timeout(head_deadline, session.read_request()) => read,
            _ = stopping.wait_for(|stopping| *stopping) => return None,
        };
        match read {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return None,
            Ok(Err(error)) => {
                if *error.etype() == ErrorType::InvalidHTTPHeader {
                    self.refuse_unread(&mut session, Refused::Malformed(Malformed::Bad("the head is not well-formed HTTP"))).await;
                }
                return None;
            }
            Err(_) => {
                if !is_reused {
                    self.refuse_unread(&mut session, Refused::HeadTimeout).await;
                }
                return None;
            }
        }
        let _active = self.gateway.active.enter();
        self.serve(&mut session).await.ok()?;
        if *shutdown.borrow() {
            session.set_keepalive(None);
        }
        let mut settings = HttpPersistentSettings::for_session(&session);
        settings.set_user_context(Box::new(()));
        let stream = session.finish().await.ok().flatten()?;
        Some(ReusedHttpStream::from_reusable_stream(stream, settings))
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.options)
    }

    fn h2_options(&self) -> Option<H2Options> {
        let mut options = H2Options::default();
        options.max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX));
        options.max_concurrent_streams(250);
        Some(options)
    }
}

/// A request as its stages learn about it; becomes its outcome.
struct Request {
    method: Method,
    asked: HeaderMap,
    origin: Origin,
    id: String,
    arrived: crate::clock::Timestamp,
    outcome: Outcome,
    effort: Effort,
    client: Option<Arc<Client>>,
    route: Option<Route>,
    span: tracing::Span,
}

/// Why a request ends without a reply.
enum Stop {
    Refused(Refused),
    ClientGone,
}

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl Door {
    /// One request, whose head has been read, to the end of its answer.
    async fn serve(&self, session: &mut ServerSession) -> Result<(), Broken> {
        let mut request = self.begin(session);
        let span = request.span.clone();
        let answered = self.answer(session, &mut request).instrument(span).await;
        let (reply, closes) = match answered {
            Ok(reply) => (Some(reply), false),
            Err(Stop::Refused(refused)) => {
                request.outcome.refusal = Some(refused.reason());
                (Some(refused.answer(&request.origin, self.gateway.clock.now())), refused.closes_connection())
            }
            Err(Stop::ClientGone) => (None, true),
        };
        if closes {
            session.set_keepalive(None);
        }
        let written = match reply {
            Some(reply) => self.write(session, &mut request, reply).await,
            None => Err(Broken),
        };
        self.conclude(request, written.as_ref().ok().copied());
        written.map(drop)
    }

    fn begin(&self, session: &ServerSession) -> Request {
        let head = session.req_header();
        let (method, asked) = (head.method.clone(), head.headers.clone());
        let id = headers::request_id(&asked).map_or_else(random::request_id, str::to_owned);
        let outcome = Outcome::new(&method, head.uri.path(), &id);
        let span = spans::server_span(&asked, MethodName::from(&method), &self.gateway.server_address);
        let origin = Origin { base: self.gateway.public_base.clone().unwrap_or_default(), root: Root::Plain };
        let arrived = self.gateway.clock.now();
        Request { method, asked, origin, id, arrived, outcome, effort: Effort::default(), client: None, route: None, span }
    }

    /// Every stage in order; each may end it.
    async fn answer(&self, session: &mut ServerSession, request: &mut Request) -> Result<Reply, Stop> {
        let gateway = &self.gateway;
        // Is it one well-formed request, and what does it address?
        let intake = {
            let head = session.req_header();
            let raw = session.as_http1().map(pingora::protocols::http::v1::server::HttpSession::get_headers_raw_bytes);
            let wire = raw.as_deref().map_or(Wire::Http2, Wire::Http1);
            intake::check(&head.method, &head.uri, &head.headers, wire).map_err(Refused::Malformed)?
        };
        request.origin = gateway.origin(self.scheme, &intake);
        if gateway.is_draining() {
            return Err(Refused::Draining.into());
        }
        // What anyone may ask.
        if intake.method == Method::OPTIONS {
            return Ok(Reply { headers: headers::preflight(), ..Reply::empty(StatusCode::NO_CONTENT) });
        }
        if let Some(page) = (intake.service == Service::Weir).then(|| Gateway::public_page(&intake.path)).flatten() {
            return Ok(page);
        }
        // Who asks, and may they?
        let client = Arc::clone(gateway.clients.identify(&request.asked).map_err(Refused::Unauthenticated)?);
        request.outcome.client = Some(Arc::clone(&client.name));
        request.client = Some(Arc::clone(&client));
        if intake.service == Service::Weir {
            return Err(Refused::NoSuchResource.into());
        }
        if !permitted(&client.allow, &intake.method, &intake.path) {
            return Err(Refused::NotAllowed.into());
        }
        let is_read = matches!(intake.method, Method::GET | Method::HEAD);
        if is_read && intake.path == "/rate_limit" {
            request.outcome.endpoint = "/rate_limit";
            return Ok(gateway.rate_limit(&client));
        }
        if intake.service == Service::Graphql && intake.method == Method::POST {
            return self.graphql(session, request, &client, &intake).await;
        }
        let route = gateway.route(&intake, &client)?;
        request.routed(&route);
        if is_read {
            self.read(session, request, &client, &intake, route).await
        } else {
            self.write_request(session, request, &client, &intake, route).await
        }
    }

    async fn read(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        client: &Client,
        intake: &Intake,
        route: Route,
    ) -> Result<Reply, Stop> {
        // Some libraries send a body with a GET; it means nothing and must be out of the way.
        self.whole_body(session, request, intake, IDLE_BODY_BYTES_MAX).await?;
        let mut job = self.job(request, client, intake, &route, OutgoingBody::Absent);
        job.method = Method::GET;
        let question = Arc::new(Question { job, scope: route.scope, asked: request.asked.clone() });
        let (answered, effort) = tokio::select! {
            answered = self.gateway.read(question) => answered,
            () = gone(session) => return Err(Stop::ClientGone),
        };
        request.effort = effort;
        let form = Form { asked: &request.asked, origin: &request.origin };
        match answered? {
            ReadAnswer::Entry(entry, cache) => {
                request.outcome.cache = cache;
                Ok(self.gateway.reply_from_entry(&entry, cache, &form, self.gateway.clock.now()))
            }
            ReadAnswer::Streamed(answer) => {
                request.outcome.cache = CacheOutcome::Bypass;
                Ok(self.gateway.reply_from_answer(*answer, &request.origin))
            }
        }
    }

    async fn graphql(&self, session: &mut ServerSession, request: &mut Request, client: &Client, intake: &Intake) -> Result<Reply, Stop> {
        let body = self.whole_body(session, request, intake, self.gateway.write_body_max()).await?;
        // What cannot be read is for the upstream to refuse.
        let kind = graphql_kind(&body).unwrap_or(GraphqlKind::Query);
        let route = self.gateway.graphql_route(client, kind)?;
        request.routed(&route);
        let job = self.job(request, client, intake, &route, OutgoingBody::Whole(body));
        self.perform_write(session, request, client, &route, job).await
    }

    async fn write_request(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        client: &Client,
        intake: &Intake,
        route: Route,
    ) -> Result<Reply, Stop> {
        let body_max = if intake.service == Service::Uploads { 0 } else { self.gateway.write_body_max() };
        self.continue_if_expected(session, request).await;
        match read_body(session, intake.body, body_max, self.gateway.config.listen.body_timeout).await.map_err(Refused::from)? {
            BodyRead::Whole(body) => {
                request.outcome.bytes_in = body.len() as u64;
                let job = self.job(request, client, intake, &route, OutgoingBody::Whole(body));
                self.perform_write(session, request, client, &route, job).await
            }
            BodyRead::TooLarge(first) => {
                let length = if let BodyFraming::Length(length) = intake.body { Some(length) } else { None };
                request.outcome.bytes_in = length.unwrap_or_default();
                let job = self.job(request, client, intake, &route, OutgoingBody::Streamed(length));
                let turn = self.gateway.take_turn(client.index, &route.lane, &job)?;
                let effort = request.effort.clone();
                let answer = self.gateway.upload(session, turn, &job, &effort, first).await;
                if answer.is_err() {
                    // Part of the body may still be on its way to us.
                    session.set_keepalive(None);
                }
                request.outcome.cache = CacheOutcome::Bypass;
                Ok(self.gateway.reply_from_answer(answer?, &request.origin))
            }
        }
    }

    /// Runs a write, or a read that is not kept, as a task that outlives the client once something was sent.
    async fn perform_write(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        client: &Client,
        route: &Route,
        job: Job,
    ) -> Result<Reply, Stop> {
        use crate::decision::WriteSpacing;
        request.outcome.cache = CacheOutcome::Bypass;
        let gateway = Arc::clone(&self.gateway);
        let effort = request.effort.clone();
        let mut task = if route.spacing == WriteSpacing::None {
            tokio::spawn(async move { gateway.perform(&job, &effort, &super::attempt::Unconditional).await })
        } else {
            let turn = gateway.take_turn(client.index, &route.lane, &job)?;
            tokio::spawn(gateway.write(turn, job, effort))
        };
        let answer = tokio::select! {
            answer = &mut task => answer,
            () = gone(session) => {
                if !request.effort.is_sent() {
                    task.abort();
                }
                return Err(Stop::ClientGone);
            }
        };
        // A task that died has dropped its lease, which counts as sent.
        let answer = answer.unwrap_or(Err(Refused::OutcomeUnknown))?;
        Ok(self.gateway.reply_from_answer(answer, &request.origin))
    }

    fn job(&self, request: &Request, client: &Client, intake: &Intake, route: &Route, body: OutgoingBody) -> Job {
        let mut headers = headers::to_upstream(&request.asked);
        headers::complete(&mut headers, self.gateway.config.upstream.dialect);
        let wait = headers::prefer_wait(&request.asked).map_or(client.max_wait, |wait| wait.min(client.max_wait));
        Job {
            endpoint: route.endpoint,
            service: intake.service,
            method: intake.method.clone(),
            target: intake.target(),
            headers,
            body,
            points: route.points,
            spacing: route.spacing,
            candidates: Arc::clone(&route.candidates),
            deadline: request.arrived + wait,
            hold_max: self.gateway.hold_max(),
            view: Arc::clone(&route.view),
            span: request.span.clone(),
        }
    }

    async fn continue_if_expected(&self, session: &mut ServerSession, request: &Request) {
        let expects = request.asked.get(http::header::EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        if expects {
            // A client that is gone is noticed by the next read.
            let _ = session.write_continue_response().await;
        }
    }

    async fn whole_body(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        intake: &Intake,
        bytes_max: usize,
    ) -> Result<Bytes, Stop> {
        self.continue_if_expected(session, request).await;
        match read_body(session, intake.body, bytes_max, self.gateway.config.listen.body_timeout).await.map_err(Refused::from)? {
            BodyRead::Whole(body) => {
                request.outcome.bytes_in = body.len() as u64;
                Ok(body)
            }
            BodyRead::TooLarge(_) => Err(Refused::BodyTooLarge.into()),
        }
    }

    async fn write(&self, session: &mut ServerSession, request: &mut Request, mut reply: Reply) -> Result<u64, Broken> {
        let figures = request.effort.figures();
        let resource = figures.resource.clone().or_else(|| request.route.as_ref().map(|route| route.endpoint.resource.clone()));
        let view = request.client.as_ref().map(|client| {
            let resource = resource.unwrap_or(ResourceName::core());
            let accounts = request.route.as_ref().map_or_else(|| self.gateway.view_of(client, true), |route| Arc::clone(&route.view));
            let view = self.gateway.admissions.with_books(|books, now| RateView::served(&books.view(now, &accounts, &resource), now));
            (view, resource)
        });
        self.gateway.dress(&mut reply, request.outcome.cache, &figures, view.as_ref().map(|(view, resource)| (*view, resource)));
        if let Ok(id) = http::HeaderValue::from_str(&request.id) {
            reply.headers.insert(headers::own("x-request-id"), id);
        }
        request.outcome.status = reply.status.as_u16();
        respond::write(session, &request.method, reply).await
    }

    /// The one place where a request ends: log, metrics, span (DESIGN D11).
    fn conclude(&self, mut request: Request, bytes_out: Option<u64>) {
        let figures = request.effort.figures();
        let outcome = &mut request.outcome;
        outcome.bytes_out = bytes_out.unwrap_or_default();
        outcome.total = self.gateway.clock.now().since(request.arrived);
        outcome.upstream_attempts = figures.attempts;
        outcome.upstream = figures.upstream;
        outcome.queue = figures.queue;
        outcome.account = figures.account.map(|account| Arc::clone(&self.gateway.config.accounts[account.0 as usize].name));
        outcome.resource = figures.resource.map(|resource| resource.as_str().into());
        outcome.error = figures.error.as_deref().map(LogText::error);
        self.gateway.metrics.record(outcome);
        log::emit(outcome);
        spans::finish(&request.span, outcome);
    }

    /// Refuses what has no readable head; the connection is closed afterwards.
    async fn refuse_unread(&self, session: &mut ServerSession, refused: Refused) {
        session.set_keepalive(None);
        let origin = Origin { base: self.gateway.public_base.clone().unwrap_or_default(), root: Root::Plain };
        let reply = refused.answer(&origin, self.gateway.clock.now());
        self.gateway.metrics.refused(None, refused.reason());
        tracing::info!(refusal = refused.reason(), "a connection without a readable request was closed");
        // It is being closed in any case.
        let _ = respond::write(session, &Method::GET, reply).await;
        session.shutdown().await;
    }
}

impl Request {
    fn routed(&mut self, route: &Route) {
        self.outcome.endpoint = &route.endpoint.template;
        self.route = Some(route.clone());
    }
}

/// Until the client goes away. Only after its whole body was read: on HTTP/1.1 this reads ahead.
async fn gone(session: &mut ServerSession) {
    // Ends only with an error: the connection was closed or reset.
    while session.read_body_or_idle(true).await.is_ok() {}
}
