//! Writes of a client that waits for the answer, GraphQL included.

use std::sync::Arc;

use http::Method;
use pingora::protocols::http::ServerSession;

use crate::api::GraphqlRequest;
use crate::decision::WriteSpacing;
use crate::gateway::address::Service;
use crate::gateway::dispatch::answer::{Answer, AnswerBody};
use crate::gateway::dispatch::job::{Job, Unconditional};
use crate::gateway::dispatch::{progress::CancelOutcome, route::Route};
use crate::gateway::error::GatewayError;
use crate::gateway::request::validate::{BodyFraming, ValidRequest};
use crate::gateway::request::{body::BodyRead, clients::Client};
use crate::gateway::response::reply::Reply;
use crate::gateway::server::request::{Body, Request, Stop};
use crate::gateway::server::{asynchronous::Terms, handler::Handler};
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
        client: &Client,
        valid: &ValidRequest,
    ) -> Result<Reply, Stop> {
        let body =
            self.whole_body(session, request, valid, self.gateway.env.write_body_max()).await?;
        let asked = GraphqlRequest::read(
            &valid.method,
            valid.query.as_deref(),
            &request.asked,
            &body.bytes,
        );
        let route = self.gateway.router.graphql_route(
            client,
            &asked,
            request.identity.client_credential.as_deref(),
        )?;
        request.routed(&route);
        let is_bodiless = matches!(valid.method, Method::GET | Method::HEAD);
        let mut job = self.job(
            request,
            client,
            valid,
            route,
            if is_bodiless { OutgoingBody::Absent } else { OutgoingBody::Whole(body.bytes) },
        );
        job.memory = body.memory;
        if let Some(terms) =
            Terms::of(request, &job.route, valid.query.as_deref(), self.gateway.router.clients())?
        {
            return self.enqueue(session, request, client, valid, job, terms).await;
        }
        let answer = self.perform_write(session, request, client, job).await?;
        if let (Some(operation), AnswerBody::Whole(body)) = (asked.priced, &answer.body) {
            self.gateway.router.observe_price(operation, body);
        }
        Ok(self.gateway.responder.reply_from_answer(answer, &request.origin))
    }

    pub(super) async fn write_request(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        client: &Client,
        valid: &ValidRequest,
        route: Route,
    ) -> Result<Reply, Stop> {
        let body_max =
            self.gateway.env.write_body_max().min(if valid.service == Service::Uploads {
                UPLOAD_HELD_BYTES_MAX
            } else {
                usize::MAX
            });
        match self.read_body(session, request, valid, body_max).await? {
            BodyRead::Whole(body) => {
                let mut job =
                    self.job(request, client, valid, route, OutgoingBody::Whole(body.bytes));
                job.memory = body.memory;
                if let Some(terms) = Terms::of(
                    request,
                    &job.route,
                    valid.query.as_deref(),
                    self.gateway.router.clients(),
                )? {
                    return self.enqueue(session, request, client, valid, job, terms).await;
                }
                let answer = self.perform_write(session, request, client, job).await?;
                Ok(self.gateway.responder.reply_from_answer(answer, &request.origin))
            }
            BodyRead::TooLarge(_)
                if Terms::of(
                    request,
                    &route,
                    valid.query.as_deref(),
                    self.gateway.router.clients(),
                )?
                .is_some_and(|terms| terms.key.is_some()) =>
            {
                // A streamed body can be neither repeated nor compared with a repetition.
                Err(GatewayError::BodyTooLarge.into())
            }
            BodyRead::TooLarge(body) => {
                let length =
                    if let BodyFraming::Length(length) = valid.body { Some(length) } else { None };
                request.outcome.bytes_in = length.unwrap_or_default();
                let job = self.job(request, client, valid, route, OutgoingBody::Streamed(length));
                let turn = self.gateway.writes.take_turn(client.index, &job)?;
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
        }
    }

    /// Runs a write or an unstored read as a task, which outlives the client once it is sent.
    pub(super) async fn perform_write(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        client: &Client,
        job: Job,
    ) -> Result<Answer, Stop> {
        request.outcome.cache = CacheOutcome::Bypass;
        let progress = request.progress.clone();
        let mut task = if job.route.spacing == WriteSpacing::None {
            let dispatcher = Arc::clone(&self.gateway.dispatcher);
            tokio::spawn(async move { dispatcher.perform(&job, &progress, &Unconditional).await })
        } else {
            let turn = self.gateway.writes.take_turn(client.index, &job)?;
            tokio::spawn(Arc::clone(&self.gateway.writes).write(turn, job, progress))
        };
        let Some(answer) =
            self.while_there(session, &request.origin, request.interims.clone(), &mut task).await
        else {
            if request.progress.cancel() == CancelOutcome::Stopped {
                task.abort();
            }
            return Err(Stop::ClientGone);
        };
        // A task that panicked has dropped its lease, which counts as sent.
        Ok(answer.unwrap_or(Err(GatewayError::OutcomeUnknown))?)
    }
}
