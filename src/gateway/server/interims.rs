//! Interim answers on their way to the client of a session, and the detection that it has left.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use http::Version;

use crate::gateway::http::interim::{Interim, Interims};
use crate::gateway::response::{pacing::Broken, write};
use crate::gateway::server::{handler::Handler, request::Request};
use crate::gateway::session::Session;
use crate::gateway::url_rewrite::map::Origin;

impl Handler {
    pub fn put_interim(&self, interim: &Interim, origin: &Origin, into: &mut Vec<u8>) {
        write::encode_interim(
            interim.status,
            &self.gateway.responder.headers_of_interim(interim, origin),
            into,
        );
    }

    /// Writes the remaining interim answers to a session, before the final one.
    pub async fn pass_on_interims(
        &self,
        session: &mut Session,
        request: &Request,
    ) -> Result<(), Broken> {
        while let Some(interim) = request.interims.as_ref().and_then(|interims| interims.take()) {
            self.pass_on_interim(session, &request.origin, &interim).await?;
        }
        Ok(())
    }

    async fn pass_on_interim(
        &self,
        session: &mut Session,
        origin: &Origin,
        interim: &Interim,
    ) -> Result<(), Broken> {
        let headers = self.gateway.responder.headers_of_interim(interim, origin);
        write::write_interim(session, interim.status, headers, self.pacing()).await
    }

    /// Runs `work` and passes interim answers to a session meanwhile. `None` if the client left. A
    /// client that takes nothing does not delay the work, because others may wait for it.
    pub async fn while_connected<T>(
        &self,
        session: &mut Session,
        request: &Request,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut work = pin!(work);
        let next = || async {
            match &request.interims {
                Some(interims) => interims.next().await,
                None => std::future::pending().await,
            }
        };
        loop {
            let interim = tokio::select! {
                done = &mut work => return Some(done),
                () = session.left() => return None,
                interim = next() => interim,
            };
            let mut write = pin!(self.pass_on_interim(session, &request.origin, &interim));
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

/// True if the client of a session can receive interim answers.
pub fn takes_interims(session: &Session) -> bool {
    session.head().version == Version::HTTP_11
}

impl Request {
    /// Collects interim answers for the client from now on.
    pub fn take_interims(&mut self) -> Arc<Interims> {
        Arc::clone(self.interims.get_or_insert_default())
    }
}
