//! Informational answers on their way to the client of a session, and the watch for its leaving.

use crate::gateway::http::interim::{Interim, Interims};
use crate::gateway::response::write::{self, Broken};
use crate::gateway::server::handler::Handler;
use crate::gateway::server::request::Request;
use crate::gateway::url_rewrite::map::Origin;
use http::Version;
use pingora::ErrorType;
use pingora::protocols::http::ServerSession;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

impl Handler {
    /// Puts one into a buffer, in HTTP/1.1.
    pub fn put_interim(&self, interim: &Interim, origin: &Origin, into: &mut Vec<u8>) {
        write::encode_interim(
            interim.status,
            &self.gateway.responder.headers_of_interim(interim, origin),
            into,
        );
    }

    /// Gives those that are left to the client of a session: what comes next is the answer.
    pub async fn pass_on_interims(
        &self,
        session: &mut ServerSession,
        request: &Request,
    ) -> Result<(), Broken> {
        let Some(interims) = &request.interims else { return Ok(()) };
        while let Some(interim) = interims.take() {
            self.pass_on_interim(session, &request.origin, &interim).await?;
        }
        Ok(())
    }

    async fn pass_on_interim(
        &self,
        session: &mut ServerSession,
        origin: &Origin,
        interim: &Interim,
    ) -> Result<(), Broken> {
        let headers = self.gateway.responder.headers_of_interim(interim, origin);
        write::write_interim(session, interim.status, headers, self.body_timeout()).await
    }

    fn body_timeout(&self) -> Duration {
        self.gateway.env.config.listen.body_timeout
    }

    /// Does what an answer is made by, and passes on to a session what comes before it; `None`: the
    /// client has left. A client that takes nothing does not hold up the work, which others may
    /// wait for.
    pub async fn while_there<T>(
        &self,
        session: &mut ServerSession,
        origin: &Origin,
        interims: Option<Arc<Interims>>,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut work = pin!(work);
        let next = || async {
            match &interims {
                Some(interims) => interims.next().await,
                None => std::future::pending().await,
            }
        };
        loop {
            let interim = tokio::select! {
                done = &mut work => return Some(done),
                () = gone(session) => return None,
                interim = next() => interim,
            };
            let mut write = pin!(self.pass_on_interim(session, origin, &interim));
            let written = tokio::select! {
                written = &mut write => written,
                done = &mut work => {
                    write.await.ok()?;
                    return Some(done);
                }
            };
            written.ok()?;
        }
    }
}

/// Whether the client of a session can be given any.
pub fn takes_interims(session: &ServerSession) -> bool {
    !session.is_http2() && session.req_header().version == Version::HTTP_11
}

impl Request {
    /// From now on they are kept for its client; where they come in.
    pub fn take_interims(&mut self) -> Arc<Interims> {
        Arc::clone(self.interims.get_or_insert_default())
    }
}

/// Until the client goes away. Only after its whole body was read: on HTTP/1.1 this reads ahead.
///
/// A client that sends its next request before it has this answer (pipelining) is not gone, but the
/// byte that told so is lost to the framework, and what follows it would be read as another request
/// than was sent. Its connection ends after this answer, as RFC 9112 §9.3.2 lets a server do: the
/// client sends the rest again.
pub(super) async fn gone(session: &mut ServerSession) {
    loop {
        match session.read_body_or_idle(true).await {
            Ok(_) => {}
            Err(error) if *error.etype() == ErrorType::ConnectError => {
                session.set_keepalive(None);
                std::future::pending::<()>().await;
            }
            Err(_) => return,
        }
    }
}
