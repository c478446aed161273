//! The body of a request on a session: read whole, begun, or drained.

use std::time::Duration;

use pingora::protocols::http::ServerSession;
use tokio::time::timeout;

use crate::api::ResourceName;
use crate::gateway::error::GatewayError;
use crate::gateway::request::body::{BodyFault, BodyRead, HeldBody};
use crate::gateway::request::validate::ValidRequest;
use crate::gateway::server::handler::Handler;
use crate::gateway::server::request::{Body, Identity, Request, Stop};

/// The longest body of a request that has no use for one.
pub(super) const IDLE_BODY_BYTES_MAX: usize = 64 * 1024;

/// The time for which a rejected body is read. Chosen here: tens of megabytes from nearby.
const LINGER: Duration = Duration::from_secs(5);

impl Handler {
    /// Reads a body that must be held; a longer one is an error.
    pub(super) async fn whole_body(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        valid: &ValidRequest,
        bytes_max: usize,
    ) -> Result<HeldBody, Stop> {
        Ok(self.read_body(session, request, valid, bytes_max).await?.whole()?)
    }

    pub(super) async fn read_body(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        valid: &ValidRequest,
        bytes_max: usize,
    ) -> Result<BodyRead, Stop> {
        let gateway = &self.gateway;
        let pause_max = gateway.env.config.listen.body_timeout;
        let read =
            gateway.downstream.bodies().read(session, valid.body, bytes_max, pause_max).await;
        Ok(request.body_read(read, |identity| {
            // The rest of the body is still on its way.
            session.set_keepalive(None);
            let credential = identity.client_credential.as_deref();
            let view = |client| gateway.router.view_for(client, credential, false);
            let accounts = identity.client.as_deref().map(view).unwrap_or_default();
            gateway.dispatcher.queue_full(&accounts, ResourceName::core())
        })?)
    }
}

impl Request {
    /// Records the end of reading its body. `no_room` makes the error where memory is exhausted.
    pub(super) fn body_read(
        &mut self,
        read: Result<BodyRead, BodyFault>,
        no_room: impl FnOnce(&Identity) -> GatewayError,
    ) -> Result<BodyRead, GatewayError> {
        let read = match read {
            Ok(BodyRead::TooLarge(begun)) => return Ok(BodyRead::TooLarge(begun)),
            Err(BodyFault::NoRoom) => return Err(no_room(&self.identity)),
            Ok(BodyRead::Whole(held)) => {
                self.outcome.bytes_in = held.bytes.len() as u64;
                Ok(BodyRead::Whole(held))
            }
            Err(BodyFault::Timeout) => Err(GatewayError::BodyTimeout),
            Err(BodyFault::Broken) => Err(GatewayError::BrokenBody),
        };
        self.body = Body::Settled;
        read
    }
}

/// Drains the rest of a rejected body for a while. Closing with unread bytes would reset the
/// connection, and the client might lose the answer.
pub(super) async fn linger(session: &mut ServerSession) {
    let rest = async { while let Ok(Some(_)) = session.read_request_body().await {} };
    // After that, the client may lose the answer.
    let _ = timeout(LINGER, rest).await;
}
