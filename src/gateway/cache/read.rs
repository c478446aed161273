//! Cache reads: lookup, permission to serve the entry, and one single flight for concurrent
//! requests (SPECIFICATION D1 to D3).
//!
//! `router.rs` chooses the accounts and the scope. `response/render.rs` renders the answer.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

use crate::clock::Timestamp;
use crate::decision::Priority;
use crate::decision::cache::key::{CacheKey, Scope};
use crate::decision::cache::request_directives::RequestDirectives;
use crate::decision::cache::settling::Trust;
use crate::decision::cache::stale_reason::StaleReason;
use crate::telemetry::{CacheOutcome, Fetch, spans};
use crate::tokens::{Cause, Lack};

use crate::gateway::address::Service;
use crate::gateway::address::path_of;
use crate::gateway::cache::cache_request::CacheRequest;
use crate::gateway::cache::lookup::{CacheLookup, ReadAnswer};
use crate::gateway::cache::read_cache::ReadCache;
use crate::gateway::cache::shared_body_reader::Reader;
use crate::gateway::cache::single_flight::{FetchResult, Participant, Role, Waiter};
use crate::gateway::cache::store::Entry;
use crate::gateway::dispatch::job::Job;
use crate::gateway::dispatch::progress::{HeldBy, Hold, RequestProgress};
use crate::gateway::error::GatewayError;
use crate::gateway::http::headers;
use crate::gateway::request::validate::ValidRequest;

/// The number of joined fetches with an unsuitable answer before a request fetches alone.
const JOINS_MAX: u32 = 3;

/// The decision of a waiter after a fetch.
enum Miss {
    Resume,
    Give(Result<ReadAnswer, GatewayError>),
}

impl ReadCache {
    /// Answers a GET or HEAD. `progress` becomes that of the joined fetch at once: a client
    /// that leaves early still reports its wait. `lookup` is the preceding cache lookup.
    pub async fn read(
        self: &Arc<Self>,
        cache_request: Arc<CacheRequest>,
        lookup: Option<CacheLookup>,
        progress: &mut RequestProgress,
    ) -> Result<ReadAnswer, GatewayError> {
        let (address, mut lookup) = match lookup {
            Some(CacheLookup { address, key, entry }) => (address, Some((key, entry))),
            None => (
                self.cache_key(
                    cache_request.scope,
                    cache_request.job.request.service,
                    &cache_request.job.request.target,
                    &cache_request.asked,
                ),
                None,
            ),
        };
        for _ in 0..JOINS_MAX {
            let (key, entry) = match lookup.take() {
                Some(lookup) => lookup,
                None => match spans::cache_span(&cache_request.job.span)
                    .in_scope(|| self.store.find(address.clone(), &cache_request.asked))
                {
                    (_, Some(entry)) if self.may_serve(&entry, &cache_request) => {
                        *progress = RequestProgress::default();
                        return Ok(ReadAnswer::Entry(entry, CacheOutcome::Hit));
                    }
                    lookup => lookup,
                },
            };
            match self.take_part(&key, &cache_request, entry, progress).await {
                Miss::Give(answer) => return answer,
                Miss::Resume => {}
            }
        }
        *progress = RequestProgress::default();
        let (key, _) = self.store.find(address, &cache_request.asked);
        let fetched_result =
            Arc::clone(self).fetch(key, Arc::clone(&cache_request), None, progress.clone()).await;
        given(fetched_result, Role::Leader)
    }

    async fn take_part(
        self: &Arc<Self>,
        key: &CacheKey,
        cache_request: &Arc<CacheRequest>,
        entry: Option<Arc<Entry>>,
        progress: &mut RequestProgress,
    ) -> Miss {
        // RFC 9111 §5.2.1.7: only a stored answer may serve this request, not a fetch in progress.
        if cache_request.directives.only_if_cached {
            return Miss::Give(Err(GatewayError::NothingStored));
        }
        if let Some(answer) = self.join_shared_body(key, cache_request) {
            *progress = RequestProgress::default();
            return Miss::Give(Ok(answer));
        }
        let path = path_of(&cache_request.job.request.target);
        let start = |progress| {
            Arc::clone(self).fetch(key.clone(), Arc::clone(cache_request), entry.clone(), progress)
        };
        let waiter = Waiter {
            now: self.env.clock.now(),
            client: cache_request.job.client,
            priority: self.priority_of(&cache_request.job),
        };
        let mut participant = self.single_flight.join(
            key,
            waiter,
            |started_at| !self.store.trust(path, started_at).holds(waiter.now),
            start,
        );
        progress.clone_from(&participant.progress);
        let Some(fetched_result) =
            self.await_landing(&mut participant, cache_request.job.deadline).await
        else {
            // This request's own deadline passed while the fetch was still in the wait queue.
            let refused = self.waited_too_long(&cache_request.job, progress);
            return Miss::Give(self.stale_instead(refused, entry, cache_request));
        };
        match (fetched_result, participant.role) {
            (FetchResult::Entry(entry, _), Role::Follower)
                if !entry.fits(&cache_request.asked) || !entry.is_for_others() =>
            {
                Miss::Resume
            }
            (FetchResult::SharedBody(landing), Role::Follower)
                if !landing.0.fits(&cache_request.asked) =>
            {
                Miss::Resume
            }
            // A stored answer is preferred to an upstream failure.
            (FetchResult::Entry(failure, fetch), role) if failure.status().is_server_error() => {
                let stale = self.may_serve_stale(
                    StaleReason::Answered(failure.status()),
                    entry,
                    cache_request,
                );
                Miss::Give(
                    stale.map_or_else(|| given(FetchResult::Entry(failure, fetch), role), Ok),
                )
            }
            // The denial belongs to the leader, with another deadline, priority and share.
            (FetchResult::Failed(GatewayError::Limited { .. }), Role::Follower)
                if self.env.clock.now() < cache_request.job.deadline =>
            {
                Miss::Resume
            }
            // The leader's deadline for the token was shorter.
            (
                FetchResult::Failed(GatewayError::TokenUnavailable(Lack {
                    cause: Cause::Passing,
                    ..
                })),
                Role::Follower,
            ) if self.env.clock.now() < cache_request.job.deadline => Miss::Resume,
            (FetchResult::Failed(refused), _) => {
                Miss::Give(self.stale_instead(refused, entry, cache_request))
            }
            (FetchResult::SharedBody(landing), role) => {
                let stale = self.may_serve_stale(
                    StaleReason::Answered(landing.0.head.status),
                    entry,
                    cache_request,
                );
                stale
                    .or_else(|| self.streamed(&landing.0, cache_request, role))
                    .map_or(Miss::Resume, |answer| Miss::Give(Ok(answer)))
            }
            (fetched_result, role) => Miss::Give(given(fetched_result, role)),
        }
    }

    fn priority_of(&self, job: &Job) -> Priority {
        self.env
            .config
            .clients
            .get(job.client as usize)
            .map_or(Priority::Normal, |client| client.priority)
    }

    /// Waits for the fetch result; `None` if the deadline passes in the wait queue. A fetch on its
    /// way upstream is awaited: the deadline bounds only the wait here.
    async fn await_landing(
        &self,
        participant: &mut Participant,
        deadline: Timestamp,
    ) -> Option<FetchResult> {
        // The leader's own fetch has the same deadline and ends by itself. The usual fetch has no
        // other waiter and so needs no timer.
        if participant.role == Role::Leader {
            return Some(participant.fetched_result().await);
        }
        let progress = participant.progress.clone();
        tokio::select! {
            fetched_result = participant.fetched_result() => return Some(fetched_result),
            () = self.env.wait_until(deadline) => {}
        }
        if progress.is_on_wire() { Some(participant.fetched_result().await) } else { None }
    }

    /// The error of a waiter whose deadline passed; the fetch goes on for later deadlines.
    fn waited_too_long(&self, job: &Job, progress: &RequestProgress) -> GatewayError {
        use crate::decision::{LimitDenied, LimitKind, Until};
        let now = self.env.clock.now();
        let (limit, account, until) = match progress.figures(now).held {
            Some(Hold { by: HeldBy::Limit(limit), account, until }) => (limit, account, until),
            Some(Hold { by: HeldBy::Mint, .. }) => {
                return self
                    .dispatcher
                    .tokens()
                    .lack(&job.route.candidates, job.route.endpoint.tokens, now)
                    .map_or(GatewayError::TokensRejected, GatewayError::TokenUnavailable);
            }
            _ => (LimitKind::Probe, None, Until::Event),
        };
        self.dispatcher.limited(
            &job.route,
            &LimitDenied { limit, account, resource: job.route.endpoint.resource.clone(), until },
        )
    }

    /// Serves a stale entry instead of an error where the rules allow it.
    fn stale_instead(
        &self,
        refused: GatewayError,
        entry: Option<Arc<Entry>>,
        cache_request: &CacheRequest,
    ) -> Result<ReadAnswer, GatewayError> {
        let stale_reason = match &refused {
            GatewayError::Limited { .. } => StaleReason::Limited,
            // A rejected token may have lost its permission for the entry; a late token has not.
            GatewayError::TokenUnavailable(Lack { cause: Cause::Passing, .. })
            | GatewayError::Unreachable
            | GatewayError::UpstreamFailed
            | GatewayError::UpstreamTimeout => StaleReason::NoAnswer,
            _ => return Err(refused),
        };
        self.may_serve_stale(stale_reason, entry, cache_request).ok_or(refused)
    }

    fn may_serve_stale(
        &self,
        stale_reason: StaleReason,
        entry: Option<Arc<Entry>>,
        cache_request: &CacheRequest,
    ) -> Option<ReadAnswer> {
        let (age_max, outcome) = match stale_reason {
            StaleReason::Limited => {
                (self.env.config.cache.stale_if_limited, CacheOutcome::StaleIfLimited)
            }
            StaleReason::NoAnswer | StaleReason::Answered(_) => {
                (self.env.config.cache.stale_if_error, CacheOutcome::StaleIfError)
            }
        };
        let may_stand_in = |entry: &Arc<Entry>| {
            entry.validated().may_serve_stale(stale_reason, age_max, &cache_request.directives, self.env.clock.now(), self.env.mode)
                // An entry from before a write would hide the client's own write.
                && self.trust(entry, cache_request) != Trust::Invalidated
        };
        Some(ReadAnswer::Entry(entry.filter(may_stand_in)?, outcome))
    }

    /// Returns a stored answer that may be served without the upstream. It runs before any setup
    /// for a fetch, because most requests with a ttl end here.
    pub fn fresh(
        &self,
        scope: Scope,
        valid: &ValidRequest,
        asked: &HeaderMap,
        now: Timestamp,
    ) -> Result<Arc<Entry>, CacheLookup> {
        let address = self.cache_key(scope, valid.service, &valid.target(), asked);
        let (key, entry) = self.store.find(address.clone(), asked);
        let may_be_served = |entry: &Arc<Entry>| {
            let trust = || self.store.trust(&valid.path, entry.requested_at());
            entry.validated().answers(
                &RequestDirectives::of(asked, self.env.mode),
                now,
                self.env.mode,
                trust,
                self.watched(entry, &valid.path, now),
            )
        };
        match entry {
            Some(entry) if may_be_served(&entry) => Ok(entry),
            entry => Err(CacheLookup { address, key, entry }),
        }
    }

    fn cache_key(
        &self,
        scope: Scope,
        service: Service,
        target: &str,
        asked: &HeaderMap,
    ) -> CacheKey {
        let accept = headers::accept_of(asked);
        // At most one, and ASCII: validation ensures it.
        let version = asked
            .get(self.env.config.upstream.dialect.version_header())
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        match service {
            // The upload host is another address; no API path begins with this prefix.
            Service::Uploads => {
                CacheKey::new(scope, &format!("/api/uploads{target}"), &accept, version)
            }
            _ => CacheKey::new(scope, target, &accept, version),
        }
    }

    fn may_serve(&self, entry: &Entry, cache_request: &CacheRequest) -> bool {
        let now = self.env.clock.now();
        let watched = self.watched(entry, path_of(&cache_request.job.request.target), now);
        entry.validated().answers(
            &cache_request.directives,
            now,
            self.env.mode,
            || self.trust(entry, cache_request),
            watched,
        )
    }

    /// The lifetime that a healthy webhook grants.
    fn watched(&self, entry: &Entry, path: &str, now: Timestamp) -> Option<Duration> {
        let rule = entry.stored.watched_by?.get() - 1;
        self.coverage.ttl(rule.into(), path, entry.requested_at(), now)
    }

    fn trust(&self, entry: &Entry, cache_request: &CacheRequest) -> Trust {
        self.store.trust(path_of(&cache_request.job.request.target), entry.requested_at())
    }
}

/// Converts a fetch result into a waiter's answer.
fn given(fetched_result: FetchResult, role: Role) -> Result<ReadAnswer, GatewayError> {
    match fetched_result {
        FetchResult::Entry(entry, fetch) => {
            let outcome = if role == Role::Leader {
                CacheOutcome::Fetched(fetch)
            } else {
                CacheOutcome::Collapsed(fetch)
            };
            Ok(ReadAnswer::Entry(entry, outcome))
        }
        // No other request shares this body.
        FetchResult::SharedBody(landing) => {
            let reader = Reader::join(&landing.0, None).ok_or(GatewayError::UpstreamFailed)?;
            Ok(ReadAnswer::Streamed(Box::new(reader), CacheOutcome::Fetched(Fetch::TooLarge)))
        }
        FetchResult::Failed(refused) => Err(refused),
    }
}
