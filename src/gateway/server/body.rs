//! The body of a request on a session: read whole, begun, or left unread.

use http::header::EXPECT;
use pingora::protocols::http::ServerSession;

use crate::api::ResourceName;
use crate::gateway::error::GatewayError;
use crate::gateway::request::body::{BodyFault, BodyRead, HeldBody};
use crate::gateway::request::validate::ValidRequest;
use crate::gateway::server::connection::Connection;
use crate::gateway::server::request::{Body, Identity, Request, Stop};
use crate::gateway::server::{handler::Handler, unread::UnreadBody};

/// The longest body of a request that has no use for one.
pub(super) const IDLE_BODY_BYTES_MAX: usize = 64 * 1024;

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

/// True if the next request on the connection can be found after this one. A body that is answered
/// without being read must be short, and sure to come.
pub(super) fn can_go_on(session: &ServerSession, request: &Request) -> bool {
    let ServerSession::H1(session) = session else { return true };
    let connection = session.stream().as_any().downcast_ref::<Connection>();
    let is_untouched = request.body == Body::Unread && !request.headers.contains_key(EXPECT);
    connection.map(Connection::unread).is_some_and(|unread| {
        let is_short = match &unread.body {
            UnreadBody::Bytes(left) => *left <= IDLE_BODY_BYTES_MAX as u64,
            // Its length is unknown; at worst the connection ends after this answer.
            UnreadBody::Chunks(_) => true,
            UnreadBody::Endless => false,
        };
        unread.is_over() || is_untouched && is_short
    })
}
