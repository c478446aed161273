//! The fast path of a miss: a read that `fast_path.rs` has parsed asks the upstream. The answer
//! goes out on its connection with one write, without a session.
//!
//! Fetches and their end after a client leaves are the same as for sessions (`stages.rs`,
//! `single_flight.rs`). This file only notices that the client leaves and writes the answer.
//! Sessions serve streamed bodies, gateway errors, and answers that end their connection.

use pingora::server::ShutdownWatch;
use tracing::Instrument;

use crate::gateway::cache::lookup::{CacheLookup, ReadAnswer};
use crate::gateway::error::GatewayError;
use crate::gateway::server::request::{Classification, Known, Request, RoutedRequest, Stop};
use crate::gateway::server::{connection::Connection, handler::Handler};

/// A read without a fresh stored answer.
pub(super) struct Miss {
    pub(super) request: Request,
    pub(super) read: Box<RoutedRequest>,
    pub(super) lookup: CacheLookup,
}

/// The result of a read on the fast path.
pub(super) enum Served {
    /// The answer is in the buffer; the number is the length of its body.
    Buffered(Request, u64),
    ClientGone(Request),
    /// A session must go on.
    Known(Box<Known>),
}

impl Served {
    pub(super) fn known(
        request: Request,
        classified: Result<Classification, GatewayError>,
    ) -> Self {
        Self::Known(Box::new(Known { request, classified }))
    }
}

impl Handler {
    /// Fetches the answer while the client stays; bytes that the client sends meanwhile are kept.
    /// Interim answers are written as the client takes them. Those left in the buffer, which then
    /// holds nothing else, go before the answer.
    pub(super) async fn ask_here(
        &self,
        connection: &mut Connection,
        Miss { mut request, read, lookup }: Miss,
        shutdown: &ShutdownWatch,
        buffer: &mut Vec<u8>,
    ) -> Served {
        let interims = request.take_interims();
        let mut progress = request.progress.clone();
        // Boxed before it is wrapped, because each wrapper would move its large state.
        let mut fetch = Box::pin(self.ask(&request, &mut progress, *read, Some(lookup)))
            .instrument(request.span.clone());
        let answered = loop {
            tokio::select! {
                biased;
                answered = &mut fetch => break Some(answered),
                interim = interims.next() => self.put_interim(&interim, &request.origin, buffer),
                () = connection.left(buffer) => break None,
            }
        };
        drop(fetch);
        while let Some(interim) = interims.take() {
            self.put_interim(&interim, &request.origin, buffer);
        }
        let answered = match request.fetched(progress, answered) {
            Ok(answered) => answered,
            Err(Stop::ClientGone) => return Served::ClientGone(request),
            Err(Stop::Error(error)) => return Served::known(request, Err(error)),
        };
        let keeps_connection = !(self.gateway.env.is_draining() || *shutdown.borrow());
        let answered = match answered {
            ReadAnswer::Entry(entry, cache) if keeps_connection => {
                match self.put(entry, &mut request, self.gateway.env.clock.now(), buffer) {
                    Ok(body_bytes) => return Served::Buffered(request, body_bytes),
                    Err(entry) => ReadAnswer::Entry(entry, cache),
                }
            }
            answered => answered,
        };
        let content = self.content(&request, answered).await;
        Served::known(request, Ok(Classification::Answered(Box::new(content))))
    }
}
