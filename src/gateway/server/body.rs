//! The body of a request on a session: read whole, begun, or left unread.

use std::sync::Arc;

use http::header::EXPECT;

use crate::api::ResourceName;
use crate::decision::ClientId;
use crate::decision::scheduler::shared_capacity::Holder;
use crate::gateway::error::GatewayError;
use crate::gateway::request::body::{
    BodyBounds, BodyFault, BodyRead, Discarded, HeldBody, discard,
};
use crate::gateway::request::validate::ValidRequest;
use crate::gateway::response::long_texts::Reading;
use crate::gateway::server::connection::{Connection, unread::UnreadBody};
use crate::gateway::server::handler::Handler;
use crate::gateway::server::request::{Body, Identity, Request, Stop};
use crate::gateway::session::Session;

/// The longest body of a request that has no use for one.
const IDLE_BODY_BYTES_MAX: usize = 64 * 1024;

impl Handler {
    /// Reads a body that must be held; a longer one is an error.
    pub(super) async fn whole_body(
        &self,
        session: &mut Session,
        request: &mut Request,
        valid: &ValidRequest,
        bytes_max: usize,
    ) -> Result<HeldBody, Stop> {
        Ok(self.read_body(session, request, valid, bytes_max).await?.whole()?)
    }

    pub(super) async fn read_body(
        &self,
        session: &mut Session,
        request: &mut Request,
        valid: &ValidRequest,
        bytes_max: usize,
    ) -> Result<BodyRead, Stop> {
        let gateway = &self.gateway;
        let bounds = self.bounds(valid, bytes_max);
        let read = gateway.downstream.bodies().read(session, bounds, self.holder(request)).await;
        Ok(request.body_read(read, |identity| {
            // The rest of the body is still on its way.
            session.close_after_answer();
            self.no_room(identity)
        })?)
    }

    /// The holder of a body's share of memory and files.
    pub(super) fn holder(&self, request: &Request) -> Holder {
        Holder { client: index_of(request), connection: self.connection }
    }

    /// Begins to send a body with this text; `None` if it is short.
    pub(super) fn reading(&self, request: &Request, text: &[u8]) -> Option<Reading> {
        self.gateway.responder.reading(text, index_of(request))
    }

    pub(super) fn no_room(&self, identity: &Identity) -> GatewayError {
        let (router, dispatcher) = (&self.gateway.router, &self.gateway.dispatcher);
        let credential = identity.client_credential.as_deref();
        let client = identity.client.as_deref();
        let view = |client| router.view_for(client, credential, false);
        let accounts = client.map(view).unwrap_or_default();
        let client = client.map_or(ClientId::BACKGROUND, |client| ClientId(client.index));
        dispatcher.queue_full(client, &accounts, ResourceName::core())
    }

    /// Reads the body of a request that has no use for one. It must leave the connection.
    pub(super) async fn discard_body(
        &self,
        session: &mut Session,
        request: &mut Request,
        valid: &ValidRequest,
    ) -> Result<(), GatewayError> {
        let discarded = discard(session, self.bounds(valid, IDLE_BODY_BYTES_MAX)).await;
        if discarded == Ok(Discarded::TooLarge) {
            return Err(GatewayError::BodyTooLarge);
        }
        request.body = Body::Settled;
        if let Discarded::Whole(bytes) = discarded.map_err(BodyFault::of_reader)? {
            request.outcome.bytes_in = bytes;
        }
        Ok(())
    }

    pub(super) fn bounds(&self, valid: &ValidRequest, bytes_max: usize) -> BodyBounds {
        let listen = &self.gateway.env.config.listen;
        let slot = Arc::clone(&self.slot);
        BodyBounds { framing: valid.body, bytes_max, pace: listen.body_pace(), slot }
    }
}

/// The index of the client in the config; the largest one without a client.
fn index_of(request: &Request) -> u32 {
    request.identity.client.as_deref().map_or(u32::MAX, |client| client.index)
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
            Err(fault) => Err(fault.of_reader()),
        };
        self.body = Body::Settled;
        read
    }
}

/// True if the next request on the connection can be found after this one. A body that is answered
/// without being read must be short, and sure to come.
pub(super) fn can_go_on(session: &Session, request: &Request) -> bool {
    if session.is_http2() {
        return true;
    }
    let connection = connection_below(session);
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

/// True if the client has sent bytes of its next request, and all of this one has been read.
pub(super) fn is_followed(session: &Session) -> bool {
    connection_below(session)
        .is_some_and(|connection| connection.unread().is_over() && !connection.ahead().is_empty())
}

/// Sends the client what comes of the answer at once.
pub(super) fn write_promptly(session: &Session) {
    if let Some(connection) = connection_below(session) {
        connection.write_promptly();
    }
}

fn connection_below(session: &Session) -> Option<&Connection> {
    session.http1()?.stream().as_any().downcast_ref()
}
