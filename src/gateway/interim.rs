//! Informational answers of the upstream (1xx) on their way to the client whose request brings
//! them, before its answer (RFC 9110 §15.2).
//!
//! Only that client gets them: who waits for another one's fetch gets its answer alone, so does who
//! waits for a queued write, and nothing of them is stored. Left out: 100, which answers an
//! `Expect` that is answered here, and 101, which nobody asks for; clients of HTTP/1.0, which knows
//! no such answers; and those of HTTP/2, to which the framework cannot send any.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode, Version};
use parking_lot::Mutex;
use pingora::protocols::http::ServerSession;
use tokio::sync::Notify;

use super::Gateway;
use super::door::Door;
use super::headers::to_client;
use super::request::Request;
use super::respond::{self, Broken};
use super::rewrite::Origin;
use super::service::gone;

/// How many wait for a client that does not take them; further ones are left out. Ours: as many as
/// one answer may have before it.
const UNSENT_MAX: usize = 32;

/// One of them.
pub struct Interim {
    /// The status, 102 to 199.
    pub status: StatusCode,
    /// The headers as received.
    pub headers: HeaderMap,
}

/// Those of one request that the client has not been given yet.
#[derive(Default)]
pub struct Interims {
    unsent: Mutex<VecDeque<Interim>>,
    came: Notify,
}

impl Interims {
    /// One has come.
    pub fn push(&self, interim: Interim) {
        let mut unsent = self.unsent.lock();
        if unsent.len() < UNSENT_MAX {
            unsent.push_back(interim);
            self.came.notify_one();
        }
    }

    /// The next one, if there is one.
    pub fn take(&self) -> Option<Interim> {
        self.unsent.lock().pop_front()
    }

    /// The next one.
    pub async fn next(&self) -> Interim {
        loop {
            if let Some(interim) = self.take() {
                return interim;
            }
            self.came.notified().await;
        }
    }
}

impl Gateway {
    /// Its headers as the client gets them: nothing in them that an answer would not say, and no
    /// length, for there is no body.
    pub(super) fn headers_of_interim(&self, interim: &Interim, origin: &Origin) -> HeaderMap {
        let mut headers = to_client(&interim.headers, self.mode);
        self.rewrite_addresses(&mut headers, origin);
        headers
    }
}

impl Door {
    /// Puts one into a buffer, in HTTP/1.1.
    pub(super) fn put_interim(&self, interim: &Interim, origin: &Origin, into: &mut Vec<u8>) {
        respond::encode_interim(
            interim.status,
            &self.gateway.headers_of_interim(interim, origin),
            into,
        );
    }

    /// Gives those that are left to the client of a session: what comes next is the answer.
    pub(super) async fn pass_on_interims(
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
        let headers = self.gateway.headers_of_interim(interim, origin);
        respond::write_interim(session, interim.status, headers, self.body_timeout()).await
    }

    fn body_timeout(&self) -> Duration {
        self.gateway.config.listen.body_timeout
    }

    /// Does what an answer is made by, and passes on to a session what comes before it; `None`: the
    /// client has left. A client that takes nothing does not hold up the work, which others may
    /// wait for.
    pub(super) async fn while_there<T>(
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
pub(super) fn takes_interims(session: &ServerSession) -> bool {
    !session.is_http2() && session.req_header().version == Version::HTTP_11
}

impl Request {
    /// From now on they are kept for its client; where they come in.
    pub(super) fn take_interims(&mut self) -> Arc<Interims> {
        Arc::clone(self.interims.get_or_insert_default())
    }
}
