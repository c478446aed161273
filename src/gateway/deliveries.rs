//! `POST /_weir/webhooks`: a delivery of the upstream's, which has no client key and is known by its signature (CONTRACT §3).
//!
//! Whether it is genuine and what it changed is decided in `webhooks/`; the store is told before the answer, so that whoever hears of the delivery's end finds
//! the cache told.

use http::StatusCode;
use pingora::protocols::http::ServerSession;
use serde_json::json;

use crate::webhooks::{BODY_BYTES_MAX, Effect, Keys, Received, Receiver, Rejected, Signature};

use super::Gateway;
use super::door::Door;
use super::intake::Intake;
use super::refuse::Refused;
use super::reply::Reply;
use super::request::Request;
use super::service::Stop;

/// Where the upstream delivers to.
pub const WEBHOOKS_PATH: &str = "/_weir/webhooks";

/// The event of a delivery whose word cannot be taken for it.
const UNVERIFIED: &str = "unverified";

impl Door {
    /// Answers a delivery. Nothing of one that is not signed is looked at but its size.
    pub(super) async fn delivery(&self, session: &mut ServerSession, request: &mut Request, intake: &Intake) -> Result<Reply, Stop> {
        let gateway = &self.gateway;
        request.outcome.endpoint = WEBHOOKS_PATH;
        let Some(receiver) = &gateway.webhooks else { return Err(Refused::NoSuchResource.into()) };
        let refuse = |refused: Refused| {
            gateway.metrics.webhook(UNVERIFIED, refused.reason());
            Err(refused.into())
        };
        let Some(signature) = Signature::of(&request.asked) else { return refuse(Refused::WrongSignature) };
        let body = self.whole_body(session, request, intake, BODY_BYTES_MAX).await?;
        let now = gateway.clock.now();
        match receiver.receive(&request.asked, &signature, &body.bytes, now, |stale| gateway.make_doubtful(stale, now)) {
            Ok(Received { event, effect }) => {
                let outcome = match effect {
                    Effect::Applied => "accepted",
                    Effect::Duplicate => "duplicate",
                };
                gateway.metrics.webhook(&event, outcome);
                Ok(Reply::json(StatusCode::ACCEPTED, &json!({ "message": outcome })))
            }
            Err(Rejected::Signature) => refuse(Refused::WrongSignature),
            Err(Rejected::Malformed) => refuse(Refused::MalformedDelivery),
        }
    }
}

/// What takes deliveries; `None` where the config has no secret for them.
pub fn receiver(config: &crate::config::Config) -> Option<Receiver> {
    use secrecy::ExposeSecret;
    let webhooks = config.webhooks.as_ref()?;
    let secrets = [Some(&webhooks.secret), webhooks.previous_secret.as_ref()];
    let keys = Keys::new(secrets.into_iter().flatten().map(|secret| secret.expose_secret().as_bytes()));
    Some(Receiver::new(keys, config.upstream.dialect))
}

impl Gateway {
    /// Whether a request to this path is a delivery.
    pub fn is_delivery(intake: &Intake) -> bool {
        intake.method == http::Method::POST && intake.path == WEBHOOKS_PATH
    }
}
