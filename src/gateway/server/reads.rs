//! Reads: the job and the cache request that a request becomes, and the answer to it.
//!
//! A miss on the fast path is served here too. Its answer leaves with one write.
//! Streamed bodies, gateway errors, and answers that end the connection need a session.

use std::sync::Arc;

use http::Method;
use pingora::server::ShutdownWatch;
use tracing::Instrument;

use crate::clock::Timestamp;
use crate::decision::{cache::request_directives::RequestDirectives, permissions::AccessQuery};
use crate::gateway::cache::lookup::{CacheLookup, CacheRequest, ReadAnswer};
use crate::gateway::cache::store::Entry;
use crate::gateway::dispatch::{job::Job, progress::RequestProgress, route::Route};
use crate::gateway::error::GatewayError;
use crate::gateway::http::headers;
use crate::gateway::http::range::plain_range;
use crate::gateway::response::render::{Buffered, Compression, Content, Selection};
use crate::gateway::server::request::{
    Classification, ClientRequest, Known, Request, RoutedRequest, Stop,
};
use crate::gateway::server::{connection::Connection, handler::Handler};
use crate::gateway::session::Session;
use crate::gateway::upstream::outgoing::{OutgoingBody, OutgoingRequest};

/// A read without a fresh stored answer.
pub(super) struct Miss {
    pub(super) request: Request,
    pub(super) read: Box<RoutedRequest>,
    pub(super) lookup: CacheLookup,
}

/// The result of a read on the fast path.
pub(super) enum Served {
    /// The answer, or its beginning, is in the buffer.
    Buffered(Request, Buffered),
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
    pub(super) async fn read_for_session(
        &self,
        session: &mut Session,
        request: &mut Request,
        read: RoutedRequest,
        lookup: Option<CacheLookup>,
    ) -> Result<Content, Stop> {
        let mut progress = request.progress.clone();
        // Boxed before it is wrapped, because each wrapper would move its large state.
        let fetch = Box::pin(self.fetch(request, &mut progress, read, lookup));
        let answered = self.while_connected(session, request, fetch).await;
        let answered = request.fetched(progress, answered)?;
        Ok(self.content(request, answered).await)
    }

    /// Fetches the answer while the client stays; bytes that the client sends meanwhile are kept.
    /// Interim answers are written as the client takes them. Those left in the buffer, which then
    /// holds nothing else, go before the answer.
    pub(super) async fn fetch_for_connection(
        &self,
        connection: &mut Connection,
        Miss { mut request, read, lookup }: Miss,
        shutdown: &ShutdownWatch,
        buffer: &mut Vec<u8>,
    ) -> Served {
        let interims = request.take_interims();
        let mut progress = request.progress.clone();
        // Boxed before it is wrapped, because each wrapper would move its large state.
        let mut fetch = Box::pin(self.fetch(&request, &mut progress, *read, Some(lookup)))
            .instrument(request.span.as_tracing().clone());
        let answered = loop {
            tokio::select! {
                biased;
                answered = &mut fetch => break Some(answered),
                interim = interims.next() => self.put_interim(&interim, &request.origin, buffer),
                () = connection.left(buffer) => break None,
                () = self.gateway.env.active.is_cut_off() => {
                    break Some(Err(GatewayError::Draining));
                }
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
        let keeps_connection = !*shutdown.borrow() || !connection.ends_with_head();
        let answered = match answered {
            ReadAnswer::Entry(entry, cache) if keeps_connection => {
                match self.put(entry, &mut request, self.gateway.env.clock.now(), buffer) {
                    Ok(buffered) => return Served::Buffered(request, buffered),
                    Err(entry) => ReadAnswer::Entry(entry, cache),
                }
            }
            answered => answered,
        };
        let content = self.content(&request, answered).await;
        Served::known(request, Ok(Classification::Answered(Box::new(content))))
    }

    /// Performs a read that needs the upstream, alone or as a waiter of another request's fetch,
    /// and adopts that fetch's progress. Dropping the future leaves the fetch.
    pub(super) async fn fetch(
        &self,
        request: &Request,
        progress: &mut RequestProgress,
        RoutedRequest { from, route }: RoutedRequest,
        lookup: Option<CacheLookup>,
    ) -> Result<ReadAnswer, GatewayError> {
        let scope = route.scope;
        let mut job = self.job(request, &from, route, OutgoingBody::Absent);
        job.request.method = Method::GET;
        let directives = RequestDirectives::of(&request.headers, self.gateway.env.mode);
        let is_plain_get = self.gateway.cache.is_plain() && request.method == Method::GET;
        let range = plain_range(&request.headers).filter(|_| is_plain_get);
        let range = range.map(|(line, range)| (line.clone(), range));
        let cache_request = Arc::new(CacheRequest { job, scope, directives, range, query: None });
        self.gateway.cache.read(cache_request, lookup, progress).await
    }

    pub(super) async fn content(&self, request: &Request, answered: ReadAnswer) -> Content {
        let (responder, form) = (&self.gateway.responder, request.form());
        match answered {
            ReadAnswer::Entry(entry, _) => {
                let forms = responder.compressed_forms();
                let gzip = forms.gzipped(&self.gateway.env, &entry, &form).await;
                let selection = responder
                    .select(&entry, &form, Compression::Done(gzip))
                    .unwrap_or(Selection::Whole);
                Content::Stored(entry, selection)
            }
            ReadAnswer::Streamed(reader, _) => {
                Content::Made(responder.reply_from_shared_body(reader, &form))
            }
        }
    }

    /// Renders a stored answer, or the beginning of a long one, into the buffer. Returns the entry
    /// when that is for the session: its body is on disk, or has to be compressed first, elsewhere.
    pub(super) fn put(
        &self,
        entry: Arc<Entry>,
        request: &mut Request,
        now: Timestamp,
        buffer: &mut Vec<u8>,
    ) -> Result<Buffered, Arc<Entry>> {
        let responder = &self.gateway.responder;
        if entry.body.file().is_some() {
            return Err(entry);
        }
        let Some(selection) = responder.select(&entry, &request.form(), Compression::AtOnce) else {
            return Err(entry);
        };
        let added = self.gateway_headers(request);
        let (status, buffered) =
            responder.render_into(entry, selection, &request.form(), added, now, buffer);
        request.outcome.status = status.as_u16();
        Ok(buffered)
    }

    /// Builds the job that the dispatcher sends upstream.
    pub(super) fn job(
        &self,
        request: &Request,
        ClientRequest { valid, client }: &ClientRequest,
        route: Route,
        body: OutgoingBody,
    ) -> Job {
        let wait = headers::prefer_wait(&request.headers)
            .map_or(client.max_wait, |wait| wait.min(client.max_wait));
        Job {
            access_query: AccessQuery::of(route.endpoint, &valid.path),
            route: Arc::new(route),
            request: OutgoingRequest {
                service: valid.service,
                method: valid.method.clone(),
                target: valid.target(),
                headers: Arc::clone(request.to_upstream(&self.gateway.env)),
                body,
            },
            client: client.index,
            began: self.gateway.env.timeouts.now(),
            deadline: request.arrival.at + self.gateway.env.patience(wait),
            hold_max: self.gateway.env.hold_max(),
            span: request.span.clone(),
            memory: None,
            client_credential: request.identity.client_credential.clone(),
            journal: None,
            interims: request.interims.clone(),
        }
    }
}
