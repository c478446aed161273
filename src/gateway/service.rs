//! The path of a request, from its head to the last byte of its answer, stage by stage in the order of `lib.rs`.
//!
//! Each stage is a module of its own; here is only the order, what ends a request early, and the one place where it is concluded.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, StatusCode};
use pingora::ErrorType;
use pingora::protocols::http::ServerSession;
use tokio::time::timeout;
use tracing::Instrument;

use crate::api::{GraphqlRequest, ResourceName};
use crate::decision::access::permitted;
use crate::decision::rights::Asked;
use crate::telemetry::{CacheOutcome, LogText, MethodName, Outcome, log, spans};

use super::Gateway;
use super::attempt::{Answer, AnswerBody, Job};
use super::auth::Client;
use super::body::{BodyFault, BodyRead, Expects, HeldBody};
use super::door::Door;
use super::effort::{Effort, Fate};
use super::fetch::OutgoingBody;
use super::headers;
use super::intake::{self, BodyFraming, Intake, Root, Service, Wire, decode_unreserved};
use super::passthrough::Brought;
use super::random;
use super::read::{Question, ReadAnswer};
use super::refuse::{RateView, Refused};
use super::reply::Reply;
use super::respond::{self, Broken, Form};
use super::rewrite::Origin;
use super::route::Route;

/// The longest body of a request that has no use for one.
const IDLE_BODY_BYTES_MAX: usize = 64 * 1024;
/// How long a refused body is still taken in. Ours: long enough for tens of megabytes from nearby, short enough to cost nothing.
const LINGER: Duration = Duration::from_secs(5);
/// Uploads up to this size are held like other writes, so that a client that leaves is noticed and a failure can be mended; larger ones are streamed.
const UPLOAD_HELD_BYTES_MAX: usize = 256 * 1024;

/// A request as its stages learn about it; becomes its outcome.
pub(super) struct Request {
    method: Method,
    pub(super) asked: HeaderMap,
    origin: Origin,
    id: String,
    arrived: crate::clock::Timestamp,
    pub(super) outcome: Outcome,
    effort: Effort,
    client: Option<Arc<Client>>,
    /// The client's own upstream credential; what of it is under way keeps its place in the books.
    brought: Option<Arc<Brought>>,
    route: Option<Route>,
    span: tracing::Span,
    body: Body,
}

/// What has become of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    /// There is none, or it was read, or it broke off.
    Settled,
    /// A well-formed request was answered without it.
    Unread,
}

/// Why a request ends without a reply.
pub(super) enum Stop {
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
    pub(super) async fn serve(&self, session: &mut ServerSession) -> Result<(), Broken> {
        let mut request = self.begin(session);
        let span = request.span.clone();
        let answered = self.answer(session, &mut request).instrument(span).await;
        let (reply, closes) = match answered {
            Ok(reply) => (Some(reply), false),
            Err(Stop::Refused(refused)) => {
                request.outcome.refusal = Some(refused.reason());
                if let Refused::Limited { limit, until, .. } = &refused {
                    request.effort.refused_somewhere(*limit, *until);
                }
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
        let body = request.body;
        self.conclude(request, written.as_ref().ok().copied());
        if body == Body::Unread && written.is_ok() && !session.is_http2() {
            session.set_keepalive(None);
            Box::pin(linger(session)).await;
        }
        written.map(drop)
    }

    fn begin(&self, session: &ServerSession) -> Request {
        let head = session.req_header();
        let (method, asked) = (head.method.clone(), head.headers.clone());
        let id = headers::request_id(&asked).map_or_else(random::request_id, str::to_owned);
        // Decoded first: an encoded key must look like one to what keeps keys out of the log.
        let outcome = Outcome::new(&method, &decode_unreserved(head.uri.path()), &id);
        let span = spans::server_span(&asked, MethodName::from(&method), &self.gateway.server_address);
        let origin = Origin { base: self.gateway.public_base.clone().unwrap_or_default(), root: Root::Plain };
        let arrived = self.gateway.clock.now();
        Request {
            method,
            asked,
            origin,
            id,
            arrived,
            outcome,
            effort: Effort::default(),
            client: None,
            brought: None,
            route: None,
            span,
            body: Body::Settled,
        }
    }

    /// Every stage in order; each may end it. What asks the upstream is boxed: kept in line, its state would be moved about for every hit.
    async fn answer(&self, session: &mut ServerSession, request: &mut Request) -> Result<Reply, Stop> {
        let gateway = &self.gateway;
        // Is it one well-formed request, and what does it address?
        let intake = {
            let head = session.req_header();
            let raw = session.as_http1().map(pingora::protocols::http::v1::server::HttpSession::get_headers_raw_bytes);
            let wire = raw.as_deref().map_or(Wire::Http2, Wire::Http1);
            intake::check(&head.method, gateway.methods(), &head.uri, &head.headers, wire).map_err(Refused::Malformed)?
        };
        if intake.body == BodyFraming::Chunked && !session.is_http2() {
            // Also when the body is never read: the framework would skip it by its own, more forgiving reading (PINGORA.md, Pitfalls).
            session.set_keepalive(None);
        }
        if intake.body != BodyFraming::None {
            request.body = Body::Unread;
        }
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
        // The upstream itself, which has no key.
        if intake.service == Service::Weir && Gateway::is_delivery(&intake) {
            return Box::pin(self.delivery(session, request, &intake)).await;
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
        request.brought = gateway.brought(&client, &request.asked, is_read)?;
        if is_read && intake.path == "/rate_limit" {
            request.outcome.endpoint = "/rate_limit";
            return Ok(gateway.rate_limit(&gateway.view_for(&client, request.brought.as_deref(), true)));
        }
        // Without a query, a GET is for the schema: a read like any other.
        if intake.service == Service::Graphql && !(is_read && intake.query.as_deref().is_none_or(str::is_empty)) {
            return Box::pin(self.graphql(session, request, &client, &intake)).await;
        }
        request.outcome.endpoint = gateway.template_of(&intake);
        let route = gateway.route(&intake, &client, request.brought.as_deref())?;
        request.routed(&route);
        if is_read {
            self.read(session, request, &client, &intake, route).await
        } else {
            Box::pin(self.write_request(session, request, &client, &intake, route)).await
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
        if let Some(entry) = self.gateway.fresh(route.scope, intake, &intake.target(), &request.asked, &request.span) {
            request.outcome.cache = CacheOutcome::Hit;
            let form = Form { method: &request.method, asked: &request.asked, origin: &request.origin };
            return Ok(self.gateway.reply_from_entry(&entry, CacheOutcome::Hit, &form, self.gateway.clock.now()));
        }
        Box::pin(self.ask(session, request, client, intake, route)).await
    }

    /// A read that needs the upstream, or another request's fetch.
    async fn ask(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        client: &Client,
        intake: &Intake,
        route: Route,
    ) -> Result<Reply, Stop> {
        let mut job = self.job(request, client, intake, &route, OutgoingBody::Absent);
        job.method = Method::GET;
        let question = Arc::new(Question { job, scope: route.scope, asked: request.asked.clone() });
        let answered = tokio::select! {
            answered = self.gateway.read(question, &mut request.effort) => answered,
            () = gone(session) => return Err(Stop::ClientGone),
        };
        let form = Form { method: &request.method, asked: &request.asked, origin: &request.origin };
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
        let asked = GraphqlRequest::read(&intake.method, intake.query.as_deref(), &request.asked, &body.bytes);
        let route = self.gateway.graphql_route(client, &asked, request.brought.as_deref())?;
        request.routed(&route);
        let is_bodiless = matches!(intake.method, Method::GET | Method::HEAD);
        let mut job =
            self.job(request, client, intake, &route, if is_bodiless { OutgoingBody::Absent } else { OutgoingBody::Whole(body.bytes) });
        job.memory = body.memory;
        let answer = self.perform_write(session, request, client, &route, job).await?;
        if let (Some(operation), AnswerBody::Whole(body)) = (asked.priced, &answer.body) {
            self.gateway.graphql_prices.learn(operation, body);
        }
        Ok(self.gateway.reply_from_answer(answer, &request.origin))
    }

    async fn write_request(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        client: &Client,
        intake: &Intake,
        route: Route,
    ) -> Result<Reply, Stop> {
        let body_max =
            self.gateway.write_body_max().min(if intake.service == Service::Uploads { UPLOAD_HELD_BYTES_MAX } else { usize::MAX });
        match self.read_body(session, request, intake, body_max).await? {
            BodyRead::Whole(body) => {
                let mut job = self.job(request, client, intake, &route, OutgoingBody::Whole(body.bytes));
                job.memory = body.memory;
                let answer = self.perform_write(session, request, client, &route, job).await?;
                Ok(self.gateway.reply_from_answer(answer, &request.origin))
            }
            BodyRead::TooLarge(body) => {
                let length = if let BodyFraming::Length(length) = intake.body { Some(length) } else { None };
                request.outcome.bytes_in = length.unwrap_or_default();
                let job = self.job(request, client, intake, &route, OutgoingBody::Streamed(length));
                let turn = self.gateway.take_turn(client.index, &route.lane, &job)?;
                let effort = request.effort.clone();
                let answer = self.gateway.upload(session, turn, &job, &effort, body).await;
                if matches!(answer, Ok(_) | Err(Refused::BrokenBody | Refused::BodyTimeout)) && session.is_body_done() {
                    request.body = Body::Settled;
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
    ) -> Result<Answer, Stop> {
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
                if request.effort.desert() == Fate::CalledBack {
                    task.abort();
                }
                return Err(Stop::ClientGone);
            }
        };
        // A task that died has dropped its lease, which counts as sent.
        Ok(answer.unwrap_or(Err(Refused::OutcomeUnknown))?)
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
            client: client.index,
            cost: route.cost,
            points: route.points,
            content: route.content,
            spacing: route.spacing,
            candidates: Arc::clone(&route.candidates),
            asked: Asked::of(route.endpoint, &intake.path),
            deadline: request.arrived + wait,
            hold_max: self.gateway.hold_max(),
            view: Arc::clone(&route.view),
            span: request.span.clone(),
            memory: None,
            brought: request.brought.clone(),
        }
    }

    /// A body that has to be held; a longer one is refused.
    pub(super) async fn whole_body(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        intake: &Intake,
        bytes_max: usize,
    ) -> Result<HeldBody, Stop> {
        match self.read_body(session, request, intake, bytes_max).await? {
            BodyRead::Whole(body) => Ok(body),
            BodyRead::TooLarge(_) => Err(Refused::BodyTooLarge.into()),
        }
    }

    async fn read_body(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        intake: &Intake,
        bytes_max: usize,
    ) -> Result<BodyRead, Stop> {
        let gateway = &self.gateway;
        let expects = expects(&request.asked, session.req_header().version);
        match gateway.bodies.read(session, intake.body, expects, bytes_max, gateway.config.listen.body_timeout).await {
            Ok(body) => {
                if let BodyRead::Whole(held) = &body {
                    request.body = Body::Settled;
                    request.outcome.bytes_in = held.bytes.len() as u64;
                }
                Ok(body)
            }
            Err(fault @ (BodyFault::Broken | BodyFault::Timeout)) => {
                request.body = Body::Settled;
                Err(if fault == BodyFault::Broken { Refused::BrokenBody.into() } else { Refused::BodyTimeout.into() })
            }
            Err(BodyFault::NoRoom) => {
                // The rest of the body is still on its way.
                session.set_keepalive(None);
                let accounts =
                    request.client.as_ref().map(|client| gateway.view_for(client, request.brought.as_deref(), false)).unwrap_or_default();
                Err(gateway.queue_full(&accounts, ResourceName::core()).into())
            }
        }
    }

    async fn write(&self, session: &mut ServerSession, request: &mut Request, mut reply: Reply) -> Result<u64, Broken> {
        let figures = request.effort.figures(self.gateway.clock.now());
        let resource = figures.resource.clone().or_else(|| request.route.as_ref().map(|route| route.endpoint.resource.clone()));
        let view = request.client.as_ref().map(|client| {
            let resource = resource.unwrap_or(ResourceName::core());
            let of_client = || self.gateway.view_for(client, request.brought.as_deref(), true);
            let accounts = request.route.as_ref().map_or_else(of_client, |route| Arc::clone(&route.view));
            let view = {
                let (view, now) = self.gateway.admissions.view(&accounts, &resource);
                RateView::served(&view, now)
            };
            (view, resource)
        });
        self.gateway.dress(&mut reply, request.outcome.cache, &figures, view.as_ref().map(|(view, resource)| (*view, resource)));
        if let Ok(id) = http::HeaderValue::from_str(&request.id) {
            reply.headers.insert(headers::own("x-request-id"), id);
        }
        request.outcome.status = reply.status.as_u16();
        if self.gateway.is_draining() {
            session.set_keepalive(None);
        }
        respond::write(session, &request.method, reply, self.gateway.config.listen.body_timeout).await
    }

    /// The one place where a request ends: log, metrics, span (DESIGN D11).
    fn conclude(&self, mut request: Request, bytes_out: Option<u64>) {
        let figures = request.effort.figures(self.gateway.clock.now());
        let outcome = &mut request.outcome;
        outcome.bytes_out = bytes_out.unwrap_or_default();
        outcome.total = self.gateway.clock.now().since(request.arrived);
        outcome.upstream_attempts = figures.attempts;
        outcome.upstream = figures.upstream;
        outcome.queue = figures.queue;
        outcome.account = figures.account.map(|account| Arc::clone(self.gateway.shared_name(account)));
        outcome.held = figures.held.map(|hold| self.gateway.held(hold));
        // A request that was refused or left while it waited was asked of no account, but of a budget.
        let asked_of = || outcome.held.as_ref().and(request.route.as_ref()).map(|route| route.endpoint.resource.clone());
        outcome.resource = figures.resource.or_else(asked_of).map(|resource| resource.as_str().into());
        outcome.error = figures.error.as_deref().map(LogText::error);
        self.gateway.metrics.record(outcome);
        log::emit(outcome);
        spans::finish(&request.span, outcome);
    }
}

impl Request {
    fn routed(&mut self, route: &Route) {
        self.outcome.endpoint = &route.endpoint.template;
        self.route = Some(route.clone());
    }
}

/// Not from HTTP/1.0, which knows no interim answers.
fn expects(asked: &HeaderMap, version: http::Version) -> Expects {
    let said = asked.get(http::header::EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    if said && version != http::Version::HTTP_10 { Expects::Continue } else { Expects::Nothing }
}

/// Takes what is left of a refused body off the connection, for a while: closed with unread bytes on it, it would be reset, and the client might lose the answer.
async fn linger(session: &mut ServerSession) {
    let rest = async { while let Ok(Some(_)) = session.read_request_body().await {} };
    // Then it is the client's loss.
    let _ = timeout(LINGER, rest).await;
}

/// Until the client goes away. Only after its whole body was read: on HTTP/1.1 this reads ahead.
///
/// A client that sends its next request before it has this answer (pipelining) is not gone, but the byte that told so is lost to the framework, and what
/// follows it would be read as another request than was sent. Its connection ends after this answer, as RFC 9112 §9.3.2 lets a server do: the client sends the
/// rest again.
async fn gone(session: &mut ServerSession) {
    loop {
        match session.read_body_or_idle(true).await {
            Ok(_) => {}
            Err(error) if *error.etype() == ErrorType::ConnectError => {
                session.set_keepalive(None);
                std::future::pending::<()>().await;
            }
            Err(_) => return,
        }
    }
}
