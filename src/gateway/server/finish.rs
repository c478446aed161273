//! The last stages: the error as an answer, the gateway's own headers, and the record of the
//! outcome.

use std::sync::Arc;

use crate::api::ResourceName;
use crate::decision::ClientId;
use crate::gateway::error::GatewayError;
use crate::gateway::http::head_writer::MapHead;
use crate::gateway::response::{
    budget_headers::RateView, error::render_error, gateway_headers::GatewayHeaders,
    render::Content, reply::Reply, reply::ReplyBody,
};
use crate::gateway::server::{handler::Handler, request::Request};
use crate::telemetry::{LogText, Outcome, log, spans};

/// The error of a request that ended without the gateway's will.
const CUT_OFF: &str = "the request was cut off in the gateway";

impl Handler {
    pub(super) fn error_reply(&self, request: &mut Request, error: &GatewayError) -> Reply {
        request.outcome.refusal = Some(error.reason());
        if let GatewayError::Limited { limit, until, .. } = error {
            request.progress.denied_somewhere(*limit, *until);
        }
        render_error(error, &request.origin, self.gateway.env.clock.now())
    }

    pub(super) fn render(&self, request: &mut Request, content: Content) -> (MapHead, ReplyBody) {
        let now = self.gateway.env.clock.now();
        let added = Some(self.gateway_headers(request));
        let responder = &self.gateway.responder;
        let (head, body) = responder.render_for_session(content, &request.form(), added, now);
        request.outcome.status = head.status.as_u16();
        (head, body)
    }

    pub(super) fn gateway_headers<'r>(&self, request: &'r Request) -> GatewayHeaders<'r> {
        let figures = request.progress.figures(self.gateway.env.clock.moment());
        let view = request.identity.client.as_ref().map(|client| {
            let resource = figures
                .resource
                .as_ref()
                .or_else(|| request.routed.as_ref().map(|routed| &routed.endpoint.resource));
            let resource = resource.cloned().unwrap_or(ResourceName::core());
            let accounts = if let Some(routed) = &request.routed {
                Arc::clone(&routed.view)
            } else {
                let credential = request.identity.client_credential.as_deref();
                self.gateway.router.view_for(client, credential, true)
            };
            let (view, now) = self.gateway.dispatcher.admissions().view(
                Some(ClientId(client.index)),
                &accounts,
                &resource,
            );
            (RateView::served(&view, now), resource)
        });
        GatewayHeaders { cache: request.outcome.cache, figures, view, id: &request.id }
    }
}

impl Request {
    pub(super) fn finish(mut self) {
        self.arrival.is_recorded = true;
        self.record();
    }

    /// Records the outcome: log line, metrics and span (SPECIFICATION D11). This is the only such
    /// place.
    fn record(&mut self) {
        let env = &self.arrival.env;
        let now = env.clock.moment();
        let figures = self.progress.figures(now);
        let outcome = &mut self.outcome;
        outcome.total = now.since(self.arrival.moment);
        outcome.upstream_attempts = figures.attempts;
        outcome.cost = figures.cost;
        outcome.upstream_request_id = figures.upstream_request_id;
        if let Some(asked_for) = figures.asked_for {
            (outcome.cache_key, outcome.operation) = (Some(asked_for.key), asked_for.operation);
        }
        outcome.upstream = figures.upstream;
        outcome.queue = figures.queue;
        outcome.account = figures.account.map(|account| Arc::clone(env.shared_name(account)));
        outcome.shadowed = outcome.shadowed.or(figures.shadowed);
        outcome.held = figures.held.map(|hold| hold.for_log(env));
        // A request that ended while it waited reached no account, but waited for one resource.
        let waited_for = || {
            let routed = outcome.held.as_ref().and(self.routed.as_ref());
            routed.map(|routed| routed.endpoint.resource.clone())
        };
        outcome.resource =
            figures.resource.or_else(waited_for).map(|resource| resource.as_str().into());
        let error = figures.error.as_deref().map(LogText::error);
        outcome.error = error.or_else(|| outcome.error.take());
        env.metrics.record(outcome);
        env.metrics.keep_refusal(outcome, env.clock.now());
        spans::finish(&self.span, outcome);
        let steps = self.progress.story(self.arrival.moment, env);
        let ended = std::mem::replace(outcome, Outcome::ended());
        log::emit(&env.active.ended.add(env.clock.now(), ended, steps));
    }
}

/// A request that its task drops is recorded too: at the end of a drain, or after a panic.
impl Drop for Request {
    fn drop(&mut self) {
        if !self.arrival.is_recorded {
            self.outcome.error = Some(LogText::error(CUT_OFF));
            self.record();
        }
    }
}
