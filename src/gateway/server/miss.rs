//! The fast path of a miss: a read that `fast_path.rs` has parsed asks the upstream. The answer
//! goes out on its connection with one write, without a session.
//!
//! Fetches and their end after a client leaves are the same as for sessions (`stages.rs`,
//! `single_flight.rs`). This file only notices that the client leaves and writes the answer.
//! Sessions serve streamed bodies, gateway errors, and answers that end their connection.

use pingora::server::ShutdownWatch;
use tracing::Instrument;

use crate::gateway::cache::lookup::{CacheLookup, ReadAnswer};
use crate::gateway::server::request::{Allowed, Classification, Known, Request, Task};
use crate::gateway::server::{connection::Connection, handler::Handler};

/// A read without a fresh stored answer.
pub(super) struct Asking {
    pub(super) request: Request,
    pub(super) allowed: Box<Allowed>,
    pub(super) lookup: CacheLookup,
}

/// The result of a miss.
pub(super) enum Asked {
    /// The answer is in the buffer; the number is the length of its body.
    Answered(Request, u64),
    Gone(Request),
    /// A session must write the result.
    Known(Box<Known>),
}

impl Handler {
    /// Fetches the answer while the client stays; bytes that the client sends meanwhile are kept.
    /// Interim answers are written as the client takes them. Those left in the buffer, which then
    /// holds nothing else, go before the answer.
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
            let classified = Ok(Classification::Allowed(Box::new(Allowed { valid, client, task })));
            return Asked::Known(Box::new(Known { request, classified }));
        };
        let span = request.span.clone();
        let interims = request.take_interims();
        let mut progress = request.progress.clone();
        // Boxed before it is wrapped, because each wrapper would move its large state.
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
        let classified = match answered {
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
        let classified = match classified {
            Ok(answered) => {
                Ok(Classification::Answered(Box::new(self.content(&request, answered).await)))
            }
            Err(refused) => Err(refused),
        };
        Asked::Known(Box::new(Known { request, classified }))
    }
}
