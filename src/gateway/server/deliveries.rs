//! `POST /_weir/webhooks`: a delivery of the upstream's, which has no client key and is known by
//! its signature (CONTRACT §3).
//!
//! Whether it is genuine and what it changed is decided in `webhooks/`; the store is told before
//! the answer, so that whoever hears of the delivery's end finds the cache told.

use std::time::Duration;

use http::StatusCode;
use pingora::protocols::http::ServerSession;
use serde_json::json;

use crate::webhooks::{BODY_BYTES_MAX, Effect, Received, Rejected, Signature};

use crate::gateway::error::Refused;
use crate::gateway::request::body::{BodyFault, BodyRead, HeldBody};
use crate::gateway::request::validate::Intake;
use crate::gateway::response::reply::Reply;
use crate::gateway::server::request::{Body, Request};
use crate::gateway::server::session::Door;
use crate::gateway::server::stages::{Stop, expects};

/// Where the upstream delivers to.
pub const WEBHOOKS_PATH: &str = "/_weir/webhooks";

/// The event of a delivery whose word cannot be taken for it.
const UNVERIFIED: &str = "unverified";

/// By when a delivery is to be there as a whole: the upstream waits no longer for the answer
/// (UPSTREAM.md, Webhooks).
const WHOLE_WITHIN: Duration = Duration::from_secs(10);

impl Door {
    /// Answers a delivery. Nothing of one that is not signed is looked at but its size.
    pub(super) async fn delivery(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        intake: &Intake,
    ) -> Result<Reply, Stop> {
        let gateway = &self.gateway;
        request.outcome.endpoint = WEBHOOKS_PATH;
        let Some(receiver) = &gateway.webhooks.receiver() else {
            return Err(Refused::NoSuchResource.into());
        };
        let refuse = |refused: Refused| {
            gateway.env.metrics.webhook(UNVERIFIED, refused.reason());
            Err(refused.into())
        };
        let Some(signature) = Signature::of(&request.asked) else {
            return refuse(Refused::WrongSignature);
        };
        let body = match self.delivered(session, request, intake).await {
            Ok(body) => body,
            Err(refused) => return refuse(refused),
        };
        let now = gateway.env.clock.now();
        match receiver.receive(&request.asked, &signature, &body.bytes, now, |stale| {
            gateway.cache.make_doubtful(stale, now)
        }) {
            Ok(Received { event, effect }) => {
                let outcome = match effect {
                    Effect::Applied => "accepted",
                    Effect::Duplicate => "duplicate",
                };
                gateway.env.metrics.webhook(&event, outcome);
                Ok(Reply::json(StatusCode::ACCEPTED, &json!({ "message": outcome })))
            }
            Err(Rejected::Signature) => refuse(Refused::WrongSignature),
            Err(Rejected::Malformed) => refuse(Refused::MalformedDelivery),
        }
    }

    /// The body, if it comes in time and there is room for it.
    async fn delivered(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        intake: &Intake,
    ) -> Result<HeldBody, Refused> {
        let gateway = &self.gateway;
        let deadline = gateway.env.clock.now() + WHOLE_WITHIN;
        let Ok(_place) = gateway.webhooks.deliveries().places.try_acquire() else {
            return Err(Refused::DeliveriesFull);
        };
        let expects = expects(&request.asked, session.req_header().version);
        let pause_max = gateway.env.config.listen.body_timeout;
        let read = tokio::select! {
            read = gateway.webhooks.deliveries().bodies.read(session, intake.body, expects, BODY_BYTES_MAX, pause_max) => read,
            () = gateway.env.clock.reach(deadline) => Err(BodyFault::Timeout),
        };
        let refused = match read {
            Ok(BodyRead::Whole(body)) => {
                request.body = Body::Settled;
                request.outcome.bytes_in = body.bytes.len() as u64;
                return Ok(body);
            }
            Ok(BodyRead::TooLarge(_)) => return Err(Refused::BodyTooLarge),
            Err(BodyFault::NoRoom) => return Err(Refused::DeliveriesFull),
            Err(BodyFault::Timeout) => Refused::BodyTimeout,
            Err(BodyFault::Broken) => Refused::BrokenBody,
        };
        request.body = Body::Settled;
        Err(refused)
    }
}

/// Whether a request is a delivery of a webhook.
pub(super) fn is_delivery(intake: &Intake) -> bool {
    intake.method == http::Method::POST && intake.path == WEBHOOKS_PATH
}
