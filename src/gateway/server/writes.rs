//! Writes of a client that waits for the answer, GraphQL included.

use std::sync::Arc;

use http::Method;
use pingora::protocols::http::ServerSession;

use crate::api::GraphqlRequest;
use crate::decision::WriteSpacing;
use crate::gateway::address::Service;
use crate::gateway::dispatch::answer::{AnswerBody, UpstreamAnswer};
use crate::gateway::dispatch::job::{Job, Unconditional};
use crate::gateway::dispatch::progress::CancelOutcome;
use crate::gateway::error::GatewayError;
use crate::gateway::request::{body::BodyRead, validate::BodyFraming};
use crate::gateway::response::reply::Reply;
use crate::gateway::server::handler::Handler;
use crate::gateway::server::request::{Body, ClientRequest, Request, RoutedRequest, Stop};
use crate::gateway::upstream::outgoing::OutgoingBody;
use crate::telemetry::CacheOutcome;

/// Uploads up to this size are held like other writes: the gateway then notices a client that
/// leaves and can retry. Larger ones are streamed.
const UPLOAD_HELD_BYTES_MAX: usize = 256 * 1024;

impl Handler {
    pub(super) async fn graphql(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        from: &ClientRequest,
    ) -> Result<Reply, Stop> {
        let ClientRequest { valid, client } = from;
        let body =
            self.whole_body(session, request, valid, self.gateway.env.write_body_max()).await?;
        let query = valid.query.as_deref();
        let graphql = GraphqlRequest::read(&valid.method, query, &request.headers, &body.bytes);
        let credential = request.identity.client_credential.as_deref();
        let route = self.gateway.router.graphql_route(client, &graphql, credential)?;
        request.routed(&route);
        let is_bodiless = matches!(valid.method, Method::GET | Method::HEAD);
        let outgoing =
            if is_bodiless { OutgoingBody::Absent } else { OutgoingBody::Whole(body.bytes) };
        let job = Job { memory: body.memory, ..self.job(request, from, route, outgoing) };
        self.queue_or_perform(session, request, from, job, Some(graphql)).await
    }

    pub(super) async fn write_request(
        &self,
        session: &mut ServerSession,
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
                let job = Job { memory: body.memory, ..self.job(request, &from, route, outgoing) };
                return self.queue_or_perform(session, request, &from, job, None).await;
            }
            BodyRead::TooLarge(body) => body,
        };
        // A streamed body can be neither repeated nor compared with a repetition.
        if Self::terms(request, &from, &route, None)?.is_some_and(|terms| terms.key.is_some()) {
            return Err(GatewayError::BodyTooLarge.into());
        }
        let length = if let BodyFraming::Length(length) = valid.body { Some(length) } else { None };
        request.outcome.bytes_in = length.unwrap_or_default();
        let job = self.job(request, &from, route, OutgoingBody::Streamed(length));
        let turn = self.gateway.writes.take_turn(job.client, &job)?;
        let progress = request.progress.clone();
        let answer = self.gateway.writes.upload(session, turn, &job, &progress, body).await;
        let was_read = matches!(
            answer,
            Ok(_)
                | Err(GatewayError::BrokenBody
                    | GatewayError::BodyTimeout
                    | GatewayError::OutcomeUnknown)
        );
        if was_read && session.is_body_done() {
            request.body = Body::Settled;
        }
        request.outcome.cache = CacheOutcome::Bypass;
        Ok(self.gateway.responder.reply_from_answer(answer?, &request.origin))
    }

    /// Queues a job with a held body or performs it, as its client requests.
    async fn queue_or_perform(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        from: &ClientRequest,
        job: Job,
        graphql: Option<GraphqlRequest>,
    ) -> Result<Reply, Stop> {
        if let Some(terms) = Self::terms(request, from, &job.route, graphql.as_ref())? {
            return self.enqueue(session, request, from, job, terms).await;
        }
        let answer = self.perform_write(session, request, job).await?;
        let priced = graphql.and_then(|graphql| graphql.priced);
        if let (Some(operation), AnswerBody::Whole(body)) = (priced, &answer.body) {
            self.gateway.router.observe_price(operation, body);
        }
        Ok(self.gateway.responder.reply_from_answer(answer, &request.origin))
    }

    /// Runs a write or an unstored read as a task, which outlives the client once it is sent.
    async fn perform_write(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        job: Job,
    ) -> Result<UpstreamAnswer, Stop> {
        request.outcome.cache = CacheOutcome::Bypass;
        let progress = request.progress.clone();
        let mut task = if job.route.spacing == WriteSpacing::None {
            let dispatcher = Arc::clone(&self.gateway.dispatcher);
            tokio::spawn(async move { dispatcher.perform(&job, &progress, &Unconditional).await })
        } else {
            let turn = self.gateway.writes.take_turn(job.client, &job)?;
            tokio::spawn(Arc::clone(&self.gateway.writes).write(turn, job, progress))
        };
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
