//! Reads that ask the upstream, answered on the connection they came on: what `hit.rs` has parsed
//! and found nothing fresh for is carried on here, with one write and no session.
//!
//! How a read is asked, and what becomes of a fetch whose asker leaves, is the same for both ways
//! (`service.rs`, `flight.rs`); here is only how the client's leaving is noticed, and the answer
//! written. Left to the session: answers that are passed on piece by piece, refusals, and answers
//! that end their connection.

use pingora::server::ShutdownWatch;
use tracing::Instrument;

use crate::gateway::cache::lookup::{CacheLookup, ReadAnswer};
use crate::gateway::server::connection::Connection;
use crate::gateway::server::handler::Handler;
use crate::gateway::server::request::Known;
use crate::gateway::server::request::{Allowed, Classification, Request, Task};

/// A read that nothing stored answers.
pub(super) struct Asking {
    pub(super) request: Request,
    pub(super) allowed: Box<Allowed>,
    pub(super) lookup: CacheLookup,
}

/// What came of asking.
pub(super) enum Asked {
    /// The answer is in the buffer; with the bytes of its body.
    Answered(Request, u64),
    /// The client has left.
    Gone(Request),
    /// The session is to write what came of it.
    Known(Box<Known>),
}

impl Handler {
    /// Asks, as long as the client is there. Nothing that it sends meanwhile is lost. Informational
    /// answers are written as the client takes them; what is left of them in the buffer, in which
    /// there is nothing else by then, goes before the answer.
    pub(super) async fn ask_here(
        &self,
        connection: &mut Connection,
        asking: Asking,
        shutdown: &ShutdownWatch,
        buffer: &mut Vec<u8>,
    ) -> Asked {
        let Asking { mut request, allowed, lookup } = asking;
        let Allowed { valid, client, task } = *allowed;
        let Task::Read(route) = task else {
            let sorted = Ok(Classification::Allowed(Box::new(Allowed { valid, client, task })));
            return Asked::Known(Box::new(Known { request, sorted }));
        };
        let span = request.span.clone();
        let interims = request.take_interims();
        let mut progress = request.progress.clone();
        // Boxed before anything is put around it, which would move all of its large state each
        // time.
        let mut asked =
            Box::pin(self.ask(&request, &mut progress, &client, &valid, route, Some(lookup)))
                .instrument(span);
        let answered = loop {
            tokio::select! {
                biased;
                answered = &mut asked => break Some(answered),
                interim = interims.next() => self.put_interim(&interim, &request.origin, buffer),
                () = connection.left(buffer) => break None,
            }
        };
        drop(asked);
        request.progress = progress;
        if let Some(Ok(answered)) = &answered {
            request.outcome.cache = answered.outcome();
        }
        while let Some(interim) = interims.take() {
            self.put_interim(&interim, &request.origin, buffer);
        }
        let sorted = match answered {
            None => return Asked::Gone(request),
            Some(Err(refused)) => Err(refused),
            Some(Ok(ReadAnswer::Entry(entry, cache)))
                if !(self.gateway.env.is_draining() || *shutdown.borrow()) =>
            {
                match self.put(entry, &mut request, self.gateway.env.clock.now(), buffer) {
                    Ok(body_bytes) => return Asked::Answered(request, body_bytes),
                    Err(entry) => Ok(ReadAnswer::Entry(entry, cache)),
                }
            }
            Some(Ok(answered)) => Ok(answered),
        };
        let sorted = match sorted {
            Ok(answered) => {
                Ok(Classification::Answered(Box::new(self.content(&request, answered).await)))
            }
            Err(refused) => Err(refused),
        };
        Asked::Known(Box::new(Known { request, sorted }))
    }
}
