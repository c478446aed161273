//! Writes of a client that waits for the answer, GraphQL included. A GraphQL query becomes a read.

use std::sync::Arc;

use http::Method;
use tokio::task::JoinHandle;

use crate::api::{GraphqlEffect, GraphqlRequest};
use crate::decision::WriteSpacing;
use crate::decision::cache::request_directives::RequestDirectives;
use crate::gateway::address::Service;
use crate::gateway::assembly::Gateway;
use crate::gateway::cache::lookup::{CacheRequest, ReadAnswer};
use crate::gateway::dispatch::answer::UpstreamAnswer;
use crate::gateway::dispatch::job::{Job, Unconditional};
use crate::gateway::dispatch::progress::CancelOutcome;
use crate::gateway::error::GatewayError;
use crate::gateway::request::body::{BegunBody, BodyFault, BodyRead, HeldBody};
use crate::gateway::response::{render::Content, render::Selection, reply::Reply};
use crate::gateway::server::credentials::carries_credential;
use crate::gateway::server::handler::Handler;
use crate::gateway::server::request::{Body, ClientRequest, Request, RoutedRequest, Stop};
use crate::gateway::session::Session;
use crate::gateway::upstream::outgoing::OutgoingBody;
use crate::gateway::write::upload::{NotSpooled, SpooledBody};
use crate::telemetry::CacheOutcome;

/// Uploads up to this size are held like other writes, which can be retried. Larger ones go through
/// a file.
const UPLOAD_HELD_BYTES_MAX: usize = 256 * 1024;

impl Handler {
    pub(super) async fn graphql(
        &self,
        session: &mut Session,
        request: &mut Request,
        from: &ClientRequest,
    ) -> Result<Content, Stop> {
        let ClientRequest { valid, client } = from;
        let is_bodiless = matches!(valid.method, Method::GET | Method::HEAD);
        let body = if is_bodiless {
            self.discard_body(session, request, valid).await?;
            None
        } else {
            let bytes_max = self.gateway.env.write_body_max();
            Some(self.whole_body(session, request, valid, bytes_max).await?)
        };
        let (query, bytes) =
            (valid.query.as_deref(), body.as_ref().map(|body| &*body.bytes).unwrap_or_default());
        let graphql = GraphqlRequest::read(&valid.method, query, &request.headers, bytes);
        let credential = request.identity.client_credential.as_deref();
        let route = self.gateway.router.graphql_route(client, &graphql, credential)?;
        request.routed(&route);
        let (outgoing, memory) = match body {
            Some(HeldBody { bytes, memory }) => (OutgoingBody::Whole(bytes), Some(memory)),
            None => (OutgoingBody::Absent, None),
        };
        let job = Job { memory, ..self.job(request, from, route, outgoing) };
        // An answer with a secret that cannot be blanked is neither stored nor shared.
        if graphql.effect == GraphqlEffect::Query && !graphql.hides_secret {
            return self.query(session, request, job, &graphql).await;
        }
        self.queue_or_perform(session, request, from, job, Some(graphql)).await.map(Content::Made)
    }

    /// Answers a GraphQL query like a read: equal queries share a fetch.
    async fn query(
        &self,
        session: &mut Session,
        request: &mut Request,
        job: Job,
        graphql: &GraphqlRequest,
    ) -> Result<Content, Stop> {
        let Gateway { cache, responder, env, .. } = &*self.gateway;
        let body = if let OutgoingBody::Whole(body) = &job.request.body { &**body } else { &[] };
        let query = cache.query(graphql, body, &job.request.headers);
        let mut directives = RequestDirectives::of(&request.headers, env.mode);
        if query.ttl.is_none() {
            // Nothing is stored but a long answer in a file.
            let no_store = directives.no_store;
            directives = RequestDirectives { no_store, ..RequestDirectives::default() };
        }
        let (scope, query) = (job.route.scope, Some(query));
        let cache_request = Arc::new(CacheRequest { job, scope, directives, query, range: None });
        let mut progress = request.progress.clone();
        let read = Box::pin(cache.read(cache_request, None, &mut progress));
        let answered = self.while_connected(session, request, read).await;
        Ok(match request.fetched(progress, answered)? {
            // A client's conditions and ranges are about addresses, not about queries.
            ReadAnswer::Entry(entry, _) => Content::Stored(entry, Selection::Whole),
            ReadAnswer::Streamed(reader, _) => {
                Content::Made(responder.reply_from_reader(reader, &request.origin))
            }
        })
    }

    pub(super) async fn write_request(
        &self,
        session: &mut Session,
        request: &mut Request,
        RoutedRequest { from, route }: RoutedRequest,
    ) -> Result<Reply, Stop> {
        let valid = &from.valid;
        let held_max =
            if valid.service == Service::Uploads { UPLOAD_HELD_BYTES_MAX } else { usize::MAX };
        let body_max = self.gateway.env.write_body_max().min(held_max);
        let body = match self.read_body(session, request, valid, body_max).await? {
            BodyRead::Whole(body) => {
                let outgoing = OutgoingBody::Whole(body.bytes);
                let memory = Some(body.memory);
                let job = Job { memory, ..self.job(request, &from, route, outgoing) };
                return self.queue_or_perform(session, request, &from, job, None).await;
            }
            BodyRead::TooLarge(body) => body,
        };
        // An upload is not queued.
        if Self::terms(request, &from, &route, None)?.is_some_and(|terms| terms.key.is_some()) {
            return Err(GatewayError::BodyTooLarge.into());
        }
        // No credential goes to a file.
        let (path, query) = (&valid.path, valid.query.as_deref());
        if carries_credential(route.endpoint, path, &request.headers, query) {
            return Err(GatewayError::BodyTooLarge.into());
        }
        let body = self.spooled(session, request, body).await?;
        let job = self.job(request, &from, route, OutgoingBody::Streamed(body.len()));
        let in_order = self.gateway.writes.queue().in_order(job.client);
        let in_order = self.while_connected(session, request, in_order).await;
        in_order.ok_or(Stop::ClientGone)??;
        let turn = self.gateway.writes.take_turn(job.client, &job)?;
        let writes = Arc::clone(&self.gateway.writes);
        let held = self.gateway.env.active.hold();
        let upload = writes.upload(turn, job, request.progress.clone(), body);
        let task = tokio::spawn(async move {
            let _held = held;
            upload.await
        });
        let answer = self.outlive(session, request, task).await?;
        Ok(self.gateway.responder.reply_from_answer(answer, &request.origin))
    }

    /// Receives a body that is too large for memory.
    async fn spooled(
        &self,
        session: &mut Session,
        request: &mut Request,
        body: BegunBody,
    ) -> Result<SpooledBody, GatewayError> {
        let space = self.gateway.downstream.uploads();
        let holder = self.holder(request);
        let spooled = SpooledBody::receive(session, body, space, holder).await;
        match spooled {
            Err(NotSpooled::Body(BodyFault::NoRoom)) => {
                session.close_after_answer();
                Err(self.no_room(&request.identity))
            }
            Err(NotSpooled::File(error)) => {
                session.close_after_answer();
                tracing::error!(%error, "the temporary file of an upload failed");
                Err(GatewayError::NotKept)
            }
            Err(NotSpooled::Body(fault)) => {
                request.body = Body::Settled;
                Err(fault.of_reader())
            }
            Ok(body) => {
                request.body = Body::Settled;
                request.outcome.bytes_in = body.len();
                Ok(body)
            }
        }
    }

    /// Queues a job with a held body or performs it, as its client requests.
    async fn queue_or_perform(
        &self,
        session: &mut Session,
        request: &mut Request,
        from: &ClientRequest,
        job: Job,
        graphql: Option<GraphqlRequest>,
    ) -> Result<Reply, Stop> {
        if let Some(terms) = Self::terms(request, from, &job.route, graphql.as_ref())? {
            return self.enqueue(session, request, from, job, terms).await;
        }
        let answer = self.perform_write(session, request, job).await?;
        Ok(self.gateway.responder.reply_from_answer(answer, &request.origin))
    }

    /// Runs a write or an unstored read as a task, which outlives the client once it is sent.
    async fn perform_write(
        &self,
        session: &mut Session,
        request: &mut Request,
        job: Job,
    ) -> Result<UpstreamAnswer, Stop> {
        let progress = request.progress.clone();
        let held = self.gateway.env.active.hold();
        let task = if job.route.spacing == WriteSpacing::None {
            let dispatcher = Arc::clone(&self.gateway.dispatcher);
            tokio::spawn(async move {
                let _held = held;
                dispatcher.perform(&job, &progress, &Unconditional).await
            })
        } else {
            let in_order = self.gateway.writes.queue().in_order(job.client);
            let in_order = self.while_connected(session, request, in_order).await;
            in_order.ok_or(Stop::ClientGone)??;
            let turn = self.gateway.writes.take_turn(job.client, &job)?;
            let write = Arc::clone(&self.gateway.writes).write(turn, job, progress);
            tokio::spawn(async move {
                let _held = held;
                write.await
            })
        };
        self.outlive(session, request, task).await
    }

    /// Awaits a task that goes on without its client once its request is sent.
    async fn outlive(
        &self,
        session: &mut Session,
        request: &mut Request,
        mut task: JoinHandle<Result<UpstreamAnswer, GatewayError>>,
    ) -> Result<UpstreamAnswer, Stop> {
        request.outcome.cache = CacheOutcome::Bypass;
        let Some(answer) = self.while_connected(session, request, &mut task).await else {
            if request.progress.cancel() == CancelOutcome::Stopped {
                task.abort();
            }
            return Err(Stop::ClientGone);
        };
        // A task that panicked has dropped its lease, which counts as sent.
        Ok(answer.unwrap_or(Err(GatewayError::OutcomeUnknown))?)
    }
}
