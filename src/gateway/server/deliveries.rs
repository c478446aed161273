//! `POST /_weir/webhooks`: webhook deliveries from the upstream. They carry no client key; a
//! signature authenticates them (SPECIFICATION, "Webhook deliveries").
//!
//! `webhooks/` checks the signature and derives the changes. The invalidation comes before the
//! answer, so that the end of a delivery implies an up-to-date cache.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;

use crate::gateway::error::GatewayError;
use crate::gateway::request::body::{BodyFault, HeldBody};
use crate::gateway::request::{validate::ValidRequest, webhooks};
use crate::gateway::response::reply::Reply;
use crate::gateway::server::request::{Request, Stop};
use crate::gateway::server::{classify::WEBHOOKS_PATH, handler::Handler};
use crate::gateway::session::Session;
use crate::state::{Change, Delivered};
use crate::webhooks::{BODY_BYTES_MAX, Effect, Received, Rejected, Signature};

/// The metric's event label of an unverified delivery.
const UNVERIFIED: &str = "unverified";

/// The time to receive a whole delivery. The upstream waits no longer for the answer
/// (SPECIFICATION, "Webhooks in practice").
const WHOLE_WITHIN: Duration = Duration::from_secs(10);

impl Handler {
    /// Answers a delivery. Without a signature header, the body is not read.
    pub(super) async fn delivery(
        &self,
        session: &mut Session,
        request: &mut Request,
        valid: &ValidRequest,
    ) -> Result<Reply, Stop> {
        let gateway = &self.gateway;
        request.outcome.endpoint = WEBHOOKS_PATH;
        let Some(receiver) = gateway.webhooks.receiver() else {
            return Err(GatewayError::NoSuchResource.into());
        };
        let reject = |error: GatewayError| {
            gateway.env.metrics.webhook(UNVERIFIED, error.reason());
            Stop::from(error)
        };
        let signature = Signature::of(&request.headers).ok_or(GatewayError::WrongSignature);
        let signature = signature.map_err(reject)?;
        let body = self.delivered(session, request, valid).await.map_err(reject)?;
        let now = gateway.env.clock.now();
        match receiver.receive(&request.headers, &signature, &body.bytes, now, |stale, mark| {
            gateway.cache.invalidate_paths(stale, now);
            let (Some(replica), Some(mark)) = (&gateway.env.replica, mark) else { return };
            replica.changes.note(Change::Delivered(Delivered {
                guid: mark.guid.clone(),
                event: mark.event.clone(),
                signature: *signature.bytes(),
            }));
        }) {
            Ok(Received { event, effect }) => {
                // The signature is worth as much as a client's key.
                self.slot.know();
                gateway.cache.all_noted().await;
                let outcome = match effect {
                    Effect::Applied => "accepted",
                    Effect::Duplicate => "duplicate",
                };
                gateway.env.metrics.webhook(&event, outcome);
                Ok(Reply::json(StatusCode::ACCEPTED, &json!({ "message": outcome })))
            }
            Err(Rejected::Signature) => Err(reject(GatewayError::WrongSignature)),
            Err(Rejected::Malformed) => Err(reject(GatewayError::MalformedDelivery)),
        }
    }

    async fn delivered(
        &self,
        session: &mut Session,
        request: &mut Request,
        valid: &ValidRequest,
    ) -> Result<HeldBody, GatewayError> {
        let gateway = &self.gateway;
        let deadline = gateway.env.clock.now() + WHOLE_WITHIN;
        let bodies = gateway.webhooks.bodies();
        let holder = webhooks::holder(request.outcome.client_address, self.connection);
        let bounds = self.bounds(valid, BODY_BYTES_MAX);
        let read = tokio::select! {
            read = bodies.read(session, bounds, holder) => read,
            () = gateway.env.clock.reach(deadline) => Err(BodyFault::Timeout),
        };
        request.body_read(read, |_| GatewayError::DeliveriesFull)?.whole()
    }
}
