//! The path of a request, from its head to the last byte of its answer, stage by stage in the order
//! of `lib.rs`.
//!
//! Each stage is a module of its own; here is only the order, what ends a request early, and the
//! one place where it is concluded.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method};
use pingora::protocols::http::ServerSession;
use tokio::time::timeout;
use tracing::Instrument;

use crate::api::{GraphqlRequest, ResourceName};
use crate::decision::cache::request_directives::RequestDirectives;
use crate::decision::permissions::AccessQuery;
use crate::telemetry::CacheOutcome;

use crate::decision::WriteSpacing;
use crate::gateway::address::Service;
use crate::gateway::cache::cache_request::Question;
use crate::gateway::cache::lookup::{ReadAnswer, Sought};
use crate::gateway::dispatch::answer::{Answer, AnswerBody};
use crate::gateway::dispatch::job::Job;
use crate::gateway::dispatch::job::Unconditional;
use crate::gateway::dispatch::progress::{Effort, Fate};
use crate::gateway::dispatch::route::Route;
use crate::gateway::error::Refused;
use crate::gateway::http::headers;
use crate::gateway::request::body::{BodyFault, BodyRead, Expects, HeldBody};
use crate::gateway::request::clients::Client;
use crate::gateway::request::validate::{self, BodyFraming, Intake, Wire};
use crate::gateway::response::render::{self, Broken};
use crate::gateway::response::reply::Reply;
use crate::gateway::server::asynchronous::Terms;
use crate::gateway::server::interims::takes_interims;
use crate::gateway::server::request::{Allowed, Body, Request, Sorted, Task};
use crate::gateway::server::session::Door;
use crate::gateway::upstream::outgoing::OutgoingBody;
use crate::gateway::upstream::outgoing::OutgoingRequest;

/// The longest body of a request that has no use for one.
pub(super) const IDLE_BODY_BYTES_MAX: usize = 64 * 1024;
/// How long a refused body is still taken in. Ours: long enough for tens of megabytes from nearby,
/// short enough to cost nothing.
const LINGER: Duration = Duration::from_secs(5);
/// Uploads up to this size are held like other writes, so that a client that leaves is noticed and
/// a failure can be mended; larger ones are streamed.
const UPLOAD_HELD_BYTES_MAX: usize = 256 * 1024;

/// What was found out about a request before the framework's session had read it.
pub(super) struct Known {
    /// It has no body, and either nothing stored answers it or its answer is known.
    pub(super) request: Request,
    /// What became of it so far.
    pub(super) sorted: Result<Sorted, Refused>,
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
    /// One request, whose head has been read, to the end of its answer. `known` is what is known of
    /// it already.
    pub(super) async fn serve(
        &self,
        session: &mut ServerSession,
        known: Option<Known>,
    ) -> Result<(), Broken> {
        let (mut request, sorted) = if let Some(Known { request, sorted }) = known {
            (request, Some(sorted))
        } else {
            let head = session.req_header();
            (
                Request::new(
                    &self.gateway,
                    head.method.clone(),
                    head.uri.path(),
                    Arc::new(head.headers.clone()),
                ),
                None,
            )
        };
        let span = request.span.clone();
        let answered = self.answer(session, &mut request, sorted).instrument(span).await;
        let (reply, closes) = match answered {
            Ok(reply) => (Some(reply), false),
            Err(Stop::Refused(refused)) => {
                (Some(self.refusal(&mut request, &refused)), refused.closes_connection())
            }
            Err(Stop::ClientGone) => (None, true),
        };
        if closes {
            session.set_keepalive(None);
        }
        let written = match reply {
            Some(mut reply) => {
                self.dress(&mut request, &mut reply);
                if self.gateway.env.is_draining() {
                    session.set_keepalive(None);
                }
                match self.pass_on_interims(session, &request).await {
                    Ok(()) => {
                        render::write(
                            session,
                            &request.method,
                            reply,
                            self.gateway.env.config.listen.body_timeout,
                        )
                        .await
                    }
                    Err(broken) => Err(broken),
                }
            }
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

    /// Every stage in order; each may end it. What asks the upstream is boxed: kept in line, its
    /// state would be moved about for every hit.
    async fn answer(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        known: Option<Result<Sorted, Refused>>,
    ) -> Result<Reply, Stop> {
        let is_looked_for = known.is_some();
        let sorted = if let Some(sorted) = known {
            sorted?
        } else {
            let intake = self.take_in(session, request)?;
            self.sort(request, intake)?
        };
        let allowed = match sorted {
            Sorted::Answered(reply) => return Ok(*reply),
            Sorted::Delivery(intake) => {
                return Box::pin(self.delivery(session, request, &intake)).await;
            }
            Sorted::Allowed(allowed) => allowed,
        };
        let Allowed { intake, client, task } = *allowed;
        if takes_interims(session) {
            request.take_interims();
        }
        match task {
            Task::Graphql => Box::pin(self.graphql(session, request, &client, &intake)).await,
            Task::Read(route) => {
                // Some libraries send a body with a GET; it means nothing and must be out of the
                // way.
                self.whole_body(session, request, &intake, IDLE_BODY_BYTES_MAX).await?;
                let now = self.gateway.env.clock.now();
                let sought = match if is_looked_for {
                    None
                } else {
                    Some(self.stored(request, &intake, &route, now))
                } {
                    Some(Ok(entry)) => {
                        return Ok(self
                            .reply(request, ReadAnswer::Entry(entry, CacheOutcome::Hit))
                            .await);
                    }
                    Some(Err(sought)) => Some(sought),
                    None => None,
                };
                Box::pin(self.ask_for_session(session, request, &client, &intake, route, sought))
                    .await
            }
            Task::Own(id) => Box::pin(self.own_write(session, request, &client, &intake, id)).await,
            Task::Write(route) => {
                Box::pin(self.write_request(session, request, &client, &intake, route)).await
            }
        }
    }

    /// Is it one well-formed request, and what does it address?
    fn take_in(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
    ) -> Result<Intake, Refused> {
        let intake = {
            let head = session.req_header();
            let raw = session
                .as_http1()
                .map(pingora::protocols::http::v1::server::HttpSession::get_headers_raw_bytes);
            let wire = raw.as_deref().map_or(Wire::Http2, Wire::Http1);
            validate::check(
                &head.method,
                self.gateway.router.methods(),
                &head.uri,
                &head.headers,
                wire,
            )
            .map_err(Refused::Malformed)?
        };
        if intake.body == BodyFraming::Chunked && !session.is_http2() {
            // Also when the body is never read: the framework would skip it by its own, more
            // forgiving reading (PINGORA.md, Pitfalls).
            session.set_keepalive(None);
        }
        if intake.body != BodyFraming::None {
            request.body = Body::Unread;
        }
        Ok(intake)
    }

    async fn ask_for_session(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        client: &Client,
        intake: &Intake,
        route: Route,
        sought: Option<Sought>,
    ) -> Result<Reply, Stop> {
        let mut effort = request.effort.clone();
        let asked = self.ask(request, &mut effort, client, intake, route, sought);
        let answered =
            self.while_there(session, &request.origin, request.interims.clone(), asked).await;
        request.effort = effort;
        let answered = answered.ok_or(Stop::ClientGone)??;
        request.outcome.cache = answered.outcome();
        Ok(self.reply(request, answered).await)
    }

    /// A read that needs the upstream, or another request's fetch, whose effort becomes its own.
    /// Dropped, it is left.
    pub(super) async fn ask(
        &self,
        request: &Request,
        effort: &mut Effort,
        client: &Client,
        intake: &Intake,
        route: Route,
        sought: Option<Sought>,
    ) -> Result<ReadAnswer, Refused> {
        let scope = route.scope;
        let mut job = self.job(request, client, intake, route, OutgoingBody::Absent);
        job.request.method = Method::GET;
        let wishes = RequestDirectives::of(&request.asked, self.gateway.env.mode);
        let question = Arc::new(Question { job, scope, asked: Arc::clone(&request.asked), wishes });
        self.gateway.cache.read(question, sought, effort).await
    }

    /// The answer to a read.
    pub(super) async fn reply(&self, request: &Request, answered: ReadAnswer) -> Reply {
        match answered {
            ReadAnswer::Entry(entry, cache) => {
                let gzip = self.gateway.responder.gzipped(&entry, &request.form()).await;
                self.gateway.responder.reply_from_entry(
                    &entry,
                    cache,
                    &request.form(),
                    gzip,
                    self.gateway.env.clock.now(),
                )
            }
            ReadAnswer::Streamed(reader, _) => {
                self.gateway.responder.reply_from_large(reader, &request.form())
            }
        }
    }

    async fn graphql(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        client: &Client,
        intake: &Intake,
    ) -> Result<Reply, Stop> {
        let body =
            self.whole_body(session, request, intake, self.gateway.env.write_body_max()).await?;
        let asked = GraphqlRequest::read(
            &intake.method,
            intake.query.as_deref(),
            &request.asked,
            &body.bytes,
        );
        let route =
            self.gateway.router.graphql_route(client, &asked, request.brought.as_deref())?;
        request.routed(&route);
        let is_bodiless = matches!(intake.method, Method::GET | Method::HEAD);
        let mut job = self.job(
            request,
            client,
            intake,
            route,
            if is_bodiless { OutgoingBody::Absent } else { OutgoingBody::Whole(body.bytes) },
        );
        job.memory = body.memory;
        if let Some(terms) =
            Terms::of(request, &job.route, intake.query.as_deref(), &self.gateway.router.clients())?
        {
            return self.hand_over(session, request, client, intake, job, terms).await;
        }
        let answer = self.perform_write(session, request, client, job).await?;
        if let (Some(operation), AnswerBody::Whole(body)) = (asked.priced, &answer.body) {
            self.gateway.router.observe_price(operation, body);
        }
        Ok(self.gateway.responder.reply_from_answer(answer, &request.origin))
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
            self.gateway.env.write_body_max().min(if intake.service == Service::Uploads {
                UPLOAD_HELD_BYTES_MAX
            } else {
                usize::MAX
            });
        match self.read_body(session, request, intake, body_max).await? {
            BodyRead::Whole(body) => {
                let mut job =
                    self.job(request, client, intake, route, OutgoingBody::Whole(body.bytes));
                job.memory = body.memory;
                if let Some(terms) = Terms::of(
                    request,
                    &job.route,
                    intake.query.as_deref(),
                    &self.gateway.router.clients(),
                )? {
                    return self.hand_over(session, request, client, intake, job, terms).await;
                }
                let answer = self.perform_write(session, request, client, job).await?;
                Ok(self.gateway.responder.reply_from_answer(answer, &request.origin))
            }
            BodyRead::TooLarge(_)
                if Terms::of(
                    request,
                    &route,
                    intake.query.as_deref(),
                    &self.gateway.router.clients(),
                )?
                .is_some_and(|terms| terms.key.is_some()) =>
            {
                // It would be streamed, which cannot be repeated nor compared with a repetition.
                Err(Refused::BodyTooLarge.into())
            }
            BodyRead::TooLarge(body) => {
                let length =
                    if let BodyFraming::Length(length) = intake.body { Some(length) } else { None };
                request.outcome.bytes_in = length.unwrap_or_default();
                let job = self.job(request, client, intake, route, OutgoingBody::Streamed(length));
                let turn = self.gateway.writes.take_turn(client.index, &job)?;
                let effort = request.effort.clone();
                let answer = self.gateway.writes.upload(session, turn, &job, &effort, body).await;
                let was_read = matches!(
                    answer,
                    Ok(_)
                        | Err(Refused::BrokenBody | Refused::BodyTimeout | Refused::OutcomeUnknown)
                );
                if was_read && session.is_body_done() {
                    request.body = Body::Settled;
                }
                request.outcome.cache = CacheOutcome::Bypass;
                Ok(self.gateway.responder.reply_from_answer(answer?, &request.origin))
            }
        }
    }

    /// Runs a write, or a read that is not kept, as a task that outlives the client once something
    /// was sent.
    async fn perform_write(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        client: &Client,
        job: Job,
    ) -> Result<Answer, Stop> {
        request.outcome.cache = CacheOutcome::Bypass;
        let effort = request.effort.clone();
        let mut task = if job.route.spacing == WriteSpacing::None {
            let dispatcher = Arc::clone(&self.gateway.dispatcher);
            tokio::spawn(async move { dispatcher.perform(&job, &effort, &Unconditional).await })
        } else {
            let turn = self.gateway.writes.take_turn(client.index, &job)?;
            tokio::spawn(Arc::clone(&self.gateway.writes).write(turn, job, effort))
        };
        let Some(answer) =
            self.while_there(session, &request.origin, request.interims.clone(), &mut task).await
        else {
            if request.effort.desert() == Fate::CalledBack {
                task.abort();
            }
            return Err(Stop::ClientGone);
        };
        // A task that died has dropped its lease, which counts as sent.
        Ok(answer.unwrap_or(Err(Refused::OutcomeUnknown))?)
    }

    /// What is asked of the upstream for a request.
    pub(super) fn job(
        &self,
        request: &Request,
        client: &Client,
        intake: &Intake,
        route: Route,
        body: OutgoingBody,
    ) -> Job {
        let wait = headers::prefer_wait(&request.asked)
            .map_or(client.max_wait, |wait| wait.min(client.max_wait));
        Job {
            asked: AccessQuery::of(route.endpoint, &intake.path),
            route: Arc::new(route),
            request: OutgoingRequest {
                service: intake.service,
                method: intake.method.clone(),
                target: intake.target(),
                headers: request.to_upstream(self.gateway.env.config.upstream.dialect),
                body,
            },
            client: client.index,
            deadline: request.arrived + wait,
            hold_max: self.gateway.env.hold_max(),
            span: request.span.clone(),
            memory: None,
            brought: request.brought.clone(),
            journal: None,
            interims: request.interims.clone(),
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
        match gateway
            .downstream
            .bodies()
            .read(session, intake.body, expects, bytes_max, gateway.env.config.listen.body_timeout)
            .await
        {
            Ok(body) => {
                if let BodyRead::Whole(held) = &body {
                    request.body = Body::Settled;
                    request.outcome.bytes_in = held.bytes.len() as u64;
                }
                Ok(body)
            }
            Err(fault @ (BodyFault::Broken | BodyFault::Timeout)) => {
                request.body = Body::Settled;
                Err(if fault == BodyFault::Broken {
                    Refused::BrokenBody.into()
                } else {
                    Refused::BodyTimeout.into()
                })
            }
            Err(BodyFault::NoRoom) => {
                // The rest of the body is still on its way.
                session.set_keepalive(None);
                let accounts = request
                    .client
                    .as_ref()
                    .map(|client| {
                        gateway.router.view_for(client, request.brought.as_deref(), false)
                    })
                    .unwrap_or_default();
                Err(gateway.dispatcher.queue_full(&accounts, ResourceName::core()).into())
            }
        }
    }
}

/// Not from HTTP/1.0, which knows no interim answers.
pub(super) fn expects(asked: &HeaderMap, version: http::Version) -> Expects {
    let said = asked
        .get(http::header::EXPECT)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    if said && version != http::Version::HTTP_10 { Expects::Continue } else { Expects::Nothing }
}

/// Takes what is left of a refused body off the connection, for a while: closed with unread bytes
/// on it, it would be reset, and the client might lose the answer.
async fn linger(session: &mut ServerSession) {
    let rest = async { while let Ok(Some(_)) = session.read_request_body().await {} };
    // Then it is the client's loss.
    let _ = timeout(LINGER, rest).await;
}
