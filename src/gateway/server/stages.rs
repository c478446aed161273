//! The stages of a request in order, from its head to the last byte of its answer.
//!
//! Each stage is a module of its own. This file holds only their order, the early ends, and the one
//! place where a request ends.

use std::sync::Arc;

use http::{HeaderMap, Method, Uri};
use pingora::protocols::http::v1::server::HttpSession;
use tracing::Instrument;

use crate::gateway::cache::lookup::ReadAnswer;
use crate::gateway::error::{GatewayError, Malformed};
use crate::gateway::request::validate::{self, BodyFraming, ValidRequest, Wire};
use crate::gateway::response::{pacing::Broken, render::Content, reply::ReplyBody, write};
use crate::gateway::server::body::{can_go_on, is_followed, write_promptly};
use crate::gateway::server::request::{Body, Classification, Known, Request, Stop, Transport};
use crate::gateway::server::{handler::Handler, interims::takes_interims};
use crate::gateway::session::Session;
use crate::telemetry::CacheOutcome;

impl Handler {
    /// Serves one request with its head read. `known` carries the result of the fast path.
    pub(super) async fn serve(
        &self,
        session: &mut Session,
        known: Option<Known>,
    ) -> Result<(), Broken> {
        let (mut request, classified) = match known {
            Some(Known { request, classified }) => (request, Some(classified)),
            None => (self.begin(session), None),
        };
        let span = request.span.as_tracing().clone();
        let answered = tokio::select! {
            biased;
            answered = self.answer(session, &mut request, classified).instrument(span) => answered,
            () = self.gateway.env.active.is_cut_off() => Err(Stop::Error(request.cut_short())),
        };
        // A request that never was classified has come, too.
        self.awaited.end();
        let written = match answered {
            Ok(content) => self.write(session, &mut request, content).await,
            Err(Stop::Error(error)) => {
                let reply = self.error_reply(&mut request, &error);
                if error.closes_connection() {
                    session.close_after_answer();
                }
                self.write(session, &mut request, Content::Made(reply)).await
            }
            Err(Stop::ClientGone) => {
                session.close_after_answer();
                Err(Broken::Lost)
            }
        };
        Self::end(session, request, written);
        written
    }

    /// Ends a request whose answer was written or broken off.
    pub(super) fn end(session: &mut Session, mut request: Request, written: Result<(), Broken>) {
        if let Some(reason) = written.err().and_then(Broken::reason) {
            request.cut_off(reason);
            session.give_up();
        }
        request.finish();
    }

    fn begin(&self, session: &Session) -> Request {
        let head = session.head();
        let headers = Arc::new(head.headers.clone());
        let transport = Transport {
            scheme: self.scheme,
            version: head.version,
            client_address: session.client_address(),
        };
        Request::new(&self.gateway, transport, head.method.clone(), head.target, headers)
    }

    /// Writes the answer, after the interim ones.
    async fn write(
        &self,
        session: &mut Session,
        request: &mut Request,
        content: Content,
    ) -> Result<(), Broken> {
        let (head, body) = self.render(request, content);
        // The answer says so: a client must not send another request into the end of a connection.
        // In a drain, the last of several requests that were sent at once gets that answer.
        let is_last = self.gateway.env.is_draining() && !is_followed(session);
        if is_last || !can_go_on(session, request) {
            session.close_after_answer();
        }
        self.pass_on_interims(session, request).await?;
        if matches!(body, ReplyBody::Streamed { .. }) {
            write_promptly(session);
        }
        let (_, sends_body) = write::body_of(&request.method, head.status);
        let reading = if sends_body { self.reading(request, body.text()) } else { None };
        let (pacing, Request { method, outcome, .. }) = (self.pacing().of(reading), request);
        write::write(session, method, head, body, pacing, &mut outcome.bytes_out).await
    }

    /// Runs every stage in order; each may end the request. The upstream stages are boxed: inline,
    /// each hit would pay for moving their state.
    async fn answer(
        &self,
        session: &mut Session,
        request: &mut Request,
        known: Option<Result<Classification, GatewayError>>,
    ) -> Result<Content, Stop> {
        let mut was_looked_up = known.is_some();
        let mut classified = known.unwrap_or_else(|| {
            let valid = self.validate(session, request)?;
            self.classify(request, valid)
        });
        let issuer = self.issuer_to_ask(request, &classified);
        if let Some(issuer) = issuer {
            issuer.fetched(&self.gateway.env.clock).await;
            was_looked_up = false;
            let valid = self.validate(session, request)?;
            classified = self.classify(request, valid);
        }
        let classified = classified?;
        if self.slot.is_evicted() {
            // Another connection got the place before this request had a client.
            return Err(Stop::ClientGone);
        }
        if takes_interims(session) {
            request.take_interims();
        }
        let reply = match classified {
            Classification::Answered(content) => return Ok(*content),
            Classification::Read(read) => {
                // Some libraries send a body with a GET.
                self.discard_body(session, request, &read.from.valid).await?;
                let lookup = if was_looked_up {
                    None
                } else {
                    match self.stored(request, &read, self.gateway.env.clock.now()) {
                        Ok(entry) => {
                            let hit = ReadAnswer::Entry(entry, CacheOutcome::Hit);
                            return Ok(self.content(request, hit).await);
                        }
                        Err(lookup) => Some(lookup),
                    }
                };
                return Box::pin(self.read_for_session(session, request, *read, lookup)).await;
            }
            Classification::Delivery(valid) => {
                Box::pin(self.delivery(session, request, &valid)).await
            }
            Classification::Graphql(from) => {
                return Box::pin(self.graphql(session, request, &from)).await;
            }
            Classification::OwnWrite(from, id) => {
                Box::pin(self.own_write(session, request, &from, id)).await
            }
            Classification::Write(write) => {
                Box::pin(self.write_request(session, request, *write)).await
            }
        };
        reply.map(Content::Made)
    }

    fn validate(
        &self,
        session: &mut Session,
        request: &mut Request,
    ) -> Result<ValidRequest, GatewayError> {
        let head = session.head();
        let raw = session.http1().map(HttpSession::get_headers_raw_bytes);
        let wire = raw.as_deref().map_or(Wire::Http2, Wire::Http1);
        let mut valid = self
            .check(head.method, head.target, head.headers, wire)
            .map_err(GatewayError::Malformed)?;
        if session.ended_with_head() {
            valid.body = BodyFraming::None;
        }
        if valid.body != BodyFraming::None {
            request.body = Body::Unread;
        }
        Ok(valid)
    }

    /// Validates a head by the methods that this gateway serves.
    pub(super) fn check(
        &self,
        method: &Method,
        target: &Uri,
        headers: &HeaderMap,
        wire: Wire<'_>,
    ) -> Result<ValidRequest, Malformed> {
        validate::check(method, self.gateway.router.methods(), target, headers, wire)
    }
}
