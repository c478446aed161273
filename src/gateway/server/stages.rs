//! The stages of a request in order, from its head to the last byte of its answer.
//!
//! Each stage is a module of its own. This file holds only their order, the early ends, and the one
//! place where a request ends.

use std::sync::Arc;

use pingora::protocols::http::ServerSession;
use tracing::Instrument;

use crate::gateway::cache::lookup::ReadAnswer;
use crate::gateway::error::GatewayError;
use crate::gateway::request::validate::{self, BodyFraming, ValidRequest, Wire};
use crate::gateway::response::render::Content;
use crate::gateway::response::write::{self, Broken};
use crate::gateway::server::body::{IDLE_BODY_BYTES_MAX, linger};
use crate::gateway::server::request::{Allowed, Body, Classification, Known, Request, Stop, Task};
use crate::gateway::server::{handler::Handler, interims::takes_interims};
use crate::telemetry::CacheOutcome;

impl Handler {
    /// Serves one request with its head read. `known` carries the result of the fast path.
    pub(super) async fn serve(
        &self,
        session: &mut ServerSession,
        known: Option<Known>,
    ) -> Result<(), Broken> {
        let (mut request, classified) = if let Some(Known { request, classified }) = known {
            (request, Some(classified))
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
        let answered = self.answer(session, &mut request, classified).instrument(span).await;
        let (reply, closes) = match answered {
            Ok(reply) => (Some(reply), false),
            Err(Stop::Error(refused)) => (
                Some(Content::Made(self.refusal(&mut request, &refused))),
                refused.closes_connection(),
            ),
            Err(Stop::ClientGone) => (None, true),
        };
        if closes {
            session.set_keepalive(None);
        }
        let written = match reply {
            Some(content) => {
                let (head, body) = self.render(&mut request, content);
                if self.gateway.env.is_draining() {
                    session.set_keepalive(None);
                }
                match self.pass_on_interims(session, &request).await {
                    Ok(()) => {
                        write::write(
                            session,
                            &request.method,
                            head,
                            body,
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
        self.finish(request, written.as_ref().ok().copied());
        if body == Body::Unread && written.is_ok() && !session.is_http2() {
            session.set_keepalive(None);
            Box::pin(linger(session)).await;
        }
        written.map(drop)
    }

    /// Runs every stage in order; each may end the request. The upstream stages are boxed: inline,
    /// each hit would pay for moving their state.
    async fn answer(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        known: Option<Result<Classification, GatewayError>>,
    ) -> Result<Content, Stop> {
        let is_looked_for = known.is_some();
        let classified = if let Some(classified) = known {
            classified?
        } else {
            let valid = self.validate(session, request)?;
            self.classify(request, valid)?
        };
        let allowed = match classified {
            Classification::Answered(content) => return Ok(*content),
            Classification::Delivery(valid) => {
                return Box::pin(self.delivery(session, request, &valid)).await.map(Content::Made);
            }
            Classification::Allowed(allowed) => allowed,
        };
        let Allowed { valid, client, task } = *allowed;
        if takes_interims(session) {
            request.take_interims();
        }
        match task {
            Task::Graphql => {
                Box::pin(self.graphql(session, request, &client, &valid)).await.map(Content::Made)
            }
            Task::Read(route) => {
                // Some libraries send a body with a GET. It must leave the connection.
                self.whole_body(session, request, &valid, IDLE_BODY_BYTES_MAX).await?;
                let now = self.gateway.env.clock.now();
                let lookup = match if is_looked_for {
                    None
                } else {
                    Some(self.stored(request, &valid, &route, now))
                } {
                    Some(Ok(entry)) => {
                        let hit = ReadAnswer::Entry(entry, CacheOutcome::Hit);
                        return Ok(self.content(request, hit).await);
                    }
                    Some(Err(lookup)) => Some(lookup),
                    None => None,
                };
                Box::pin(self.read_for_session(session, request, &client, &valid, route, lookup))
                    .await
            }
            Task::Own(id) => {
                let answered =
                    Box::pin(self.own_write(session, request, &client, &valid, id)).await;
                answered.map(Content::Made)
            }
            Task::Write(route) => {
                let answered =
                    Box::pin(self.write_request(session, request, &client, &valid, route)).await;
                answered.map(Content::Made)
            }
        }
    }

    fn validate(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
    ) -> Result<ValidRequest, GatewayError> {
        let valid = {
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
            .map_err(GatewayError::Malformed)?
        };
        if valid.body == BodyFraming::Chunked && !session.is_http2() {
            // Also for a body that is never read: the framework's own reader is more forgiving
            // (src/gateway/README.md, "The framework").
            session.set_keepalive(None);
        }
        if valid.body != BodyFraming::None {
            request.body = Body::Unread;
        }
        Ok(valid)
    }
}
