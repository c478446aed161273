//! The body of a request on a session: read whole, begun, or drained.

use std::time::Duration;

use http::HeaderMap;
use pingora::protocols::http::ServerSession;
use tokio::time::timeout;

use crate::api::ResourceName;
use crate::gateway::error::GatewayError;
use crate::gateway::request::body::{BodyFault, BodyRead, Expects, HeldBody};
use crate::gateway::request::validate::ValidRequest;
use crate::gateway::server::handler::Handler;
use crate::gateway::server::request::{Body, Request, Stop};

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
        match self.read_body(session, request, valid, bytes_max).await? {
            BodyRead::Whole(body) => Ok(body),
            BodyRead::TooLarge(_) => Err(GatewayError::BodyTooLarge.into()),
        }
    }

    pub(super) async fn read_body(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        valid: &ValidRequest,
        bytes_max: usize,
    ) -> Result<BodyRead, Stop> {
        let gateway = &self.gateway;
        let expects = expects(&request.asked, session.req_header().version);
        match gateway
            .downstream
            .bodies()
            .read(session, valid.body, expects, bytes_max, gateway.env.config.listen.body_timeout)
            .await
        {
            Ok(body) => {
                if let BodyRead::Whole(held) = &body {
                    request.body = Body::Settled;
                    request.outcome.bytes_in = held.bytes.len() as u64;
                }
                Ok(body)
            }
            Err(fault @ (BodyFault::Broken | BodyFault::Timeout)) => {
                request.body = Body::Settled;
                Err(if fault == BodyFault::Broken {
                    GatewayError::BrokenBody.into()
                } else {
                    GatewayError::BodyTimeout.into()
                })
            }
            Err(BodyFault::NoRoom) => {
                // The rest of the body is still on its way.
                session.set_keepalive(None);
                let accounts = request
                    .identity
                    .client
                    .as_ref()
                    .map(|client| {
                        gateway.router.view_for(
                            client,
                            request.identity.client_credential.as_deref(),
                            false,
                        )
                    })
                    .unwrap_or_default();
                Err(gateway.dispatcher.queue_full(&accounts, ResourceName::core()).into())
            }
        }
    }
}

/// HTTP/1.0 knows no interim answers.
pub(super) fn expects(asked: &HeaderMap, version: http::Version) -> Expects {
    let said = asked
        .get(http::header::EXPECT)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    if said && version != http::Version::HTTP_10 { Expects::Continue } else { Expects::Nothing }
}

/// Drains the rest of a rejected body for a while. Closing with unread bytes would reset the
/// connection, and the client might lose the answer.
pub(super) async fn linger(session: &mut ServerSession) {
    let rest = async { while let Ok(Some(_)) = session.read_request_body().await {} };
    // After that, the client may lose the answer.
    let _ = timeout(LINGER, rest).await;
}
