//! Reads: the job and the cache request that a request becomes, and the answer to it.

use std::sync::Arc;

use http::Method;
use pingora::protocols::http::ServerSession;

use crate::decision::{cache::request_directives::RequestDirectives, permissions::AccessQuery};
use crate::gateway::cache::cache_request::CacheRequest;
use crate::gateway::cache::lookup::{CacheLookup, ReadAnswer};
use crate::gateway::dispatch::{job::Job, progress::RequestProgress, route::Route};
use crate::gateway::error::GatewayError;
use crate::gateway::http::headers;
use crate::gateway::response::render::{Compression, Content, Selection};
use crate::gateway::server::handler::Handler;
use crate::gateway::server::request::{ClientRequest, Request, RoutedRequest, Stop};
use crate::gateway::upstream::outgoing::{OutgoingBody, OutgoingRequest};

impl Handler {
    pub(super) async fn read_for_session(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        read: RoutedRequest,
        lookup: Option<CacheLookup>,
    ) -> Result<Content, Stop> {
        let mut progress = request.progress.clone();
        let fetch = self.ask(request, &mut progress, read, lookup);
        let answered = self.while_there(session, request, fetch).await;
        let answered = request.fetched(progress, answered)?;
        Ok(self.content(request, answered).await)
    }

    /// Performs a read that needs the upstream, alone or as a waiter of another request's fetch,
    /// and adopts that fetch's progress. Dropping the future leaves the fetch.
    pub(super) async fn ask(
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
        let cache_request =
            Arc::new(CacheRequest { job, scope, asked: Arc::clone(&request.headers), directives });
        self.gateway.cache.read(cache_request, lookup, progress).await
    }

    pub(super) async fn content(&self, request: &Request, answered: ReadAnswer) -> Content {
        let (responder, form) = (&self.gateway.responder, request.form());
        match answered {
            ReadAnswer::Entry(entry, _) => {
                let gzip = responder.gzipped(&entry, &form).await;
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
            asked: AccessQuery::of(route.endpoint, &valid.path),
            route: Arc::new(route),
            request: OutgoingRequest {
                service: valid.service,
                method: valid.method.clone(),
                target: valid.target(),
                headers: request.to_upstream(self.gateway.env.config.upstream.dialect),
                body,
            },
            client: client.index,
            deadline: request.arrived + wait,
            hold_max: self.gateway.env.hold_max(),
            span: request.span.clone(),
            memory: None,
            client_credential: request.identity.client_credential.clone(),
            journal: None,
            interims: request.interims.clone(),
        }
    }
}
