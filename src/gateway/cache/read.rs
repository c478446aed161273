//! Cache reads: lookup, permission to serve the entry, and one single flight for concurrent
//! requests (SPECIFICATION D1 to D3).
//!
//! `router.rs` chooses the accounts and the scope. `response/render.rs` renders the answer.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use crate::api::AccountKind;
use crate::clock::Timestamp;
use crate::decision::cache::key::{CacheKey, Scope};
use crate::decision::cache::part::ByteRange;
use crate::decision::cache::request_directives::RequestDirectives;
use crate::decision::cache::settling::Trust;
use crate::decision::cache::stale_reason::StaleReason;
use crate::decision::fleet::HELD_FOR;
use crate::decision::{ClientId, Priority};
use crate::state::Reach;
use crate::telemetry::{CacheOutcome, spans};
use crate::tokens::{Cause, Lack};

use crate::gateway::address::{Service, path_of};
use crate::gateway::cache::fetch::part_key;
use crate::gateway::cache::lookup::{CacheLookup, CacheRequest, ReadAnswer};
use crate::gateway::cache::queries::{shared_body_key, with_headers};
use crate::gateway::cache::read_cache::ReadCache;
use crate::gateway::cache::single_flight::{FetchResult, Participant, Role, Waiter};
use crate::gateway::cache::store::Entry;
use crate::gateway::cache::streaming::read_shared;
use crate::gateway::dispatch::answer::UpstreamAnswer;
use crate::gateway::dispatch::job::Job;
use crate::gateway::dispatch::progress::{HeldBy, Hold, RequestProgress};
use crate::gateway::dispatch::route::Route;
use crate::gateway::error::GatewayError;
use crate::gateway::http::headers;
use crate::gateway::request::validate::ValidRequest;

/// The number of joined fetches with an unsuitable answer before a request fetches alone.
const JOINS_MAX: u32 = 3;
/// The time for which a read with a stored answer waits once Redis was away for long. Ours: a
/// request that a floor still permits is sent at once.
const PATIENCE_WITHOUT_REDIS: Duration = Duration::from_millis(200);

/// The reason why the result of another request's fetch is of no use to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unusable {
    /// It is another variant, for its requester alone, or a denial of the leader's own.
    OfOther,
    /// It is a failure that the leader's headers may have caused.
    Failure,
}

impl ReadCache {
    /// Answers a GET, a HEAD or a GraphQL query. `progress` becomes that of the joined fetch at
    /// once: a client that leaves early still reports its wait. `lookup` is the preceding cache
    /// lookup.
    pub async fn read(
        self: &Arc<Self>,
        cache_request: Arc<CacheRequest>,
        lookup: Option<CacheLookup>,
        progress: &mut RequestProgress,
    ) -> Result<ReadAnswer, GatewayError> {
        let CacheRequest { job, directives, query, range, .. } = &*cache_request;
        let headers = cache_request.headers();
        let (address, mut lookup) = match lookup {
            Some(CacheLookup { address, key, entry }) => (address, Some((key, entry))),
            None => (self.address_of(&cache_request), None),
        };
        let mut has_other_failed = false;
        for _ in 0..JOINS_MAX {
            let (key, entry) = if let Some(lookup) = lookup.take() {
                lookup
            } else {
                let find = || self.store.find(&address, headers);
                let (key, entry) = if query.as_ref().is_none_or(|query| query.ttl.is_some()) {
                    spans::cache_span(&job.span).in_scope(find)
                } else {
                    (Cow::Borrowed(&address), None)
                };
                let (path, now) = (path_of(&job.request.target), self.env.clock.now());
                let trust =
                    |entry: &Entry| self.trust(&cache_request, Some(entry), entry.requested_at());
                match entry {
                    Some(entry) if self.may_serve(&entry, directives, path, now, trust) => {
                        *progress = RequestProgress::default();
                        return Ok(ReadAnswer::Entry(entry, CacheOutcome::Hit));
                    }
                    entry => (key.into_owned(), entry),
                }
            };
            let part = range.as_ref().filter(|_| entry.is_none());
            let part = part.and_then(|(_, range)| self.part(&key, headers, *range));
            let (path, now) = (path_of(&job.request.target), self.env.clock.now());
            let trust = |part: &Entry| self.trust(&cache_request, Some(part), part.requested_at());
            let part = part.filter(|part| self.may_serve(part, directives, path, now, trust));
            if let Some(part) = part {
                *progress = RequestProgress::default();
                return Ok(ReadAnswer::Entry(part, CacheOutcome::Hit));
            }
            // Then only requests with equal headers share a fetch: one for each kind of client.
            let shared = if has_other_failed { with_headers(&key, headers) } else { key.clone() };
            let shared = match range.as_ref().filter(|_| entry.is_none()) {
                Some((line, _)) => shared.variant(std::iter::once(line.as_bytes())),
                None => shared,
            };
            match self.join_or_fetch(&shared, key, &cache_request, entry, progress).await {
                Ok(answer) => return answer,
                Err(unusable) => has_other_failed |= unusable == Unusable::Failure,
            }
        }
        *progress = RequestProgress::default();
        let (key, _) = self.store.find(&address, headers);
        let key = key.into_owned();
        let fetched_result =
            Arc::clone(self).fetch(key, Arc::clone(&cache_request), None, progress.clone()).await;
        let answer = self.answer_from_fetch(fetched_result, Role::Leader, None, &cache_request);
        answer.unwrap_or(Err(GatewayError::UpstreamFailed))
    }

    /// Joins or starts a fetch of the answer under `key` and waits for it. Requests with equal
    /// `shared` share one.
    async fn join_or_fetch(
        self: &Arc<Self>,
        shared: &CacheKey,
        key: CacheKey,
        cache_request: &Arc<CacheRequest>,
        entry: Option<Arc<Entry>>,
        progress: &mut RequestProgress,
    ) -> Result<Result<ReadAnswer, GatewayError>, Unusable> {
        let job = &cache_request.job;
        // RFC 9111 §5.2.1.7: only a stored answer may serve this request, not a fetch in progress.
        if cache_request.directives.only_if_cached {
            return Ok(Err(GatewayError::NothingStored));
        }
        let of_body = shared_body_key(&key, cache_request);
        if let Some(answer) = self.join_shared_body(&of_body, cache_request) {
            *progress = RequestProgress::default();
            return Ok(Ok(answer));
        }
        if let Some(stale) =
            entry.as_ref().filter(|entry| self.is_usable_meanwhile(entry, cache_request))
            && self.revalidate_in_background(shared, &key, cache_request, stale)
        {
            *progress = RequestProgress::default();
            let outcome = CacheOutcome::StaleWhileRevalidate;
            return Ok(Ok(ReadAnswer::Entry(Arc::clone(stale), outcome)));
        }
        let now = self.env.clock.now();
        let mut participant = self.join(shared, key, cache_request, entry.clone());
        progress.clone_from(&participant.progress);
        let until = self.patience_without_redis(entry.as_ref(), cache_request);
        let mut fetched_result = self.await_result(&mut participant, job.deadline, until).await;
        if fetched_result.is_none() && until.is_some() {
            if let Some(stale) = self.stale_without_redis(entry.as_ref(), cache_request) {
                *progress = RequestProgress::default();
                return Ok(Ok(stale));
            }
            // Redis is back.
            fetched_result = self.await_result(&mut participant, job.deadline, None).await;
        }
        let Some(fetched_result) = fetched_result else {
            // This request's own deadline passed while the fetch was still in the wait queue.
            let error = self.waited_too_long(job, progress, now);
            return Ok(self.stale_instead(error, entry, cache_request));
        };
        if participant.role == Role::Follower
            && participant.headers != *cache_request.headers()
            && !Self::suits_other_headers(&fetched_result, cache_request)
            && self.may_fetch_again(&fetched_result, job)
        {
            return Err(Unusable::Failure);
        }
        self.answer_from_fetch(fetched_result, participant.role, entry, cache_request)
            .ok_or(Unusable::OfOther)
    }

    fn join(
        self: &Arc<Self>,
        shared: &CacheKey,
        key: CacheKey,
        cache_request: &Arc<CacheRequest>,
        entry: Option<Arc<Entry>>,
    ) -> Participant {
        let (job, now) = (&cache_request.job, self.env.clock.now());
        let waiter = Waiter {
            now,
            headers: Arc::clone(cache_request.headers()),
            client: job.client,
            priority: self.priority_of(job),
        };
        self.single_flight.join(
            shared,
            waiter,
            |started_at| !self.trust(cache_request, None, started_at).holds(now),
            |progress| {
                let (cache, cache_request) = (Arc::clone(self), Arc::clone(cache_request));
                cache.fetch(key, cache_request, entry, progress)
            },
        )
    }

    fn is_usable_meanwhile(&self, entry: &Entry, cache_request: &CacheRequest) -> bool {
        let (directives, now) = (&cache_request.directives, self.env.clock.now());
        entry.validated().may_serve_while_revalidated(directives, now, self.env.mode)
            && self.store.is_confirmed(entry)
            && self.trust(cache_request, Some(entry), entry.requested_at()).holds(now)
    }

    /// Starts a revalidation that no client waits for, unless one is on its way. Returns false if
    /// there are too many.
    fn revalidate_in_background(
        self: &Arc<Self>,
        shared: &CacheKey,
        key: &CacheKey,
        cache_request: &Arc<CacheRequest>,
        entry: &Arc<Entry>,
    ) -> bool {
        let Ok(permit) = Arc::clone(&self.background).try_acquire_owned() else { return false };
        let mut participant =
            self.join(shared, key.clone(), cache_request, Some(Arc::clone(entry)));
        if participant.role == Role::Leader {
            self.env.metrics.background_revalidation();
            let held = self.env.active.hold();
            tokio::spawn(async move {
                participant.fetched_result().await;
                drop((permit, held));
            });
        }
        true
    }

    /// True if a result cannot be due to the headers of the request that fetched it. The end of a
    /// long answer to a query may be errors.
    fn suits_other_headers(result: &FetchResult, cache_request: &CacheRequest) -> bool {
        let may_have_errors =
            cache_request.query.is_some() && matches!(result, FetchResult::SharedBody(_));
        !may_have_errors && result.suits_other_headers()
    }

    /// False for a follower that has waited its time for an upstream that does not answer.
    fn may_fetch_again(&self, fetched_result: &FetchResult, job: &Job) -> bool {
        !matches!(fetched_result, FetchResult::Failed(GatewayError::UpstreamTimeout))
            || self.env.clock.now() < job.deadline
    }

    /// Turns a fetch result into the answer of this request; `None`: it is of no use to it.
    fn answer_from_fetch(
        &self,
        fetched_result: FetchResult,
        role: Role,
        entry: Option<Arc<Entry>>,
        cache_request: &CacheRequest,
    ) -> Option<Result<ReadAnswer, GatewayError>> {
        let is_follower = role == Role::Follower;
        let fits_all = |found: &Entry| found.fits(cache_request.headers()) && found.is_for_others();
        match fetched_result {
            FetchResult::Entry(found, _) if is_follower && !fits_all(&found) => None,
            // A stored answer is preferred to an upstream failure.
            FetchResult::Entry(found, fetch) => {
                let failure = Some(found.status()).filter(StatusCode::is_server_error);
                let stale = failure.and_then(|status| {
                    self.may_serve_stale(StaleReason::Answered(status), entry, cache_request)
                });
                Some(Ok(stale.unwrap_or(ReadAnswer::Entry(found, role.outcome(fetch)))))
            }
            FetchResult::SharedBody(guard)
                if is_follower && !guard.0.fits(cache_request.headers()) =>
            {
                None
            }
            FetchResult::SharedBody(guard) => {
                let stale_reason = StaleReason::Answered(guard.0.head.status);
                self.may_serve_stale(stale_reason, entry, cache_request)
                    .or_else(|| read_shared(&guard.0, cache_request, role, None))
                    .map(Ok)
            }
            // The denial belongs to the leader, with another deadline, priority and share. So does
            // the deadline for a token.
            FetchResult::Failed(
                GatewayError::Limited { .. }
                | GatewayError::TokenUnavailable(Lack { cause: Cause::Passing, .. }),
            ) if is_follower && self.env.clock.now() < cache_request.job.deadline => None,
            FetchResult::Failed(error) => Some(self.stale_instead(error, entry, cache_request)),
        }
    }

    fn priority_of(&self, job: &Job) -> Priority {
        self.env
            .config
            .clients
            .get(job.client as usize)
            .map_or(Priority::Normal, |client| client.priority)
    }

    /// Waits for the fetch result; `None` if the deadline, or `until`, passes in the wait queue. A
    /// fetch on its way upstream is awaited: these bound only the wait here.
    async fn await_result(
        &self,
        participant: &mut Participant,
        deadline: Timestamp,
        until: Option<Timestamp>,
    ) -> Option<FetchResult> {
        // The leader's own fetch has the same deadline and ends by itself. The usual fetch has no
        // other waiter and so needs no timer.
        if participant.role == Role::Leader && until.is_none() {
            return Some(participant.fetched_result().await);
        }
        let progress = participant.progress.clone();
        tokio::select! {
            fetched_result = participant.fetched_result() => return Some(fetched_result),
            () = self.env.wait_until(until.map_or(deadline, |until| until.min(deadline))) => {}
        }
        if progress.is_on_wire() { Some(participant.fetched_result().await) } else { None }
    }

    fn waited_too_long(
        &self,
        job: &Job,
        progress: &RequestProgress,
        since: Timestamp,
    ) -> GatewayError {
        let now = self.env.clock.now();
        let (limit, hold) = match progress.figures(self.env.clock.moment()).held {
            Some(hold @ Hold { by: HeldBy::Limit(limit), .. }) => (limit, hold),
            Some(Hold { by: HeldBy::Mint, .. }) => {
                return self
                    .dispatcher
                    .tokens()
                    .lack(&job.route.candidates, job.route.endpoint.tokens, now)
                    .map_or(GatewayError::TokensRejected, GatewayError::TokenUnavailable);
            }
            // No limit: another replica fetches it, or an attempt has failed.
            _ => return GatewayError::UpstreamTimeout,
        };
        let denied =
            self.dispatcher.denied_by(limit, hold, (ClientId(job.client), &job.route), since);
        self.dispatcher.denied(job, &denied)
    }

    fn stale_instead(
        &self,
        error: GatewayError,
        entry: Option<Arc<Entry>>,
        cache_request: &CacheRequest,
    ) -> Result<ReadAnswer, GatewayError> {
        let stale_reason = match &error {
            GatewayError::Limited { .. } => StaleReason::Limited,
            // A rejected token may have lost its permission for the entry; a late token has not.
            GatewayError::TokenUnavailable(Lack { cause: Cause::Passing, .. })
            | GatewayError::Unreachable
            | GatewayError::UpstreamDown(_)
            | GatewayError::UpstreamFailed
            | GatewayError::Undecodable(_)
            | GatewayError::UpstreamTimeout => StaleReason::NoAnswer,
            _ => return Err(error),
        };
        self.may_serve_stale(stale_reason, entry, cache_request).ok_or(error)
    }

    /// The end of the wait of a read with a stored answer while Redis is away. As long as parts of
    /// limits last, it waits as for any limit: nobody here knows of the writes of other replicas.
    fn patience_without_redis(
        &self,
        entry: Option<&Arc<Entry>>,
        cache_request: &CacheRequest,
    ) -> Option<Timestamp> {
        self.stale_without_redis(entry, cache_request)?;
        let now = self.env.clock.now();
        let parts_end = match self.env.replica.as_ref()?.reach() {
            Reach::In => now + HELD_FOR,
            Reach::Out(since, _) => since + HELD_FOR,
            Reach::Never(_) => now,
        };
        Some(parts_end.max(now + PATIENCE_WITHOUT_REDIS))
    }

    /// The stored answer of a read that need not wait for Redis, which is away.
    fn stale_without_redis(
        &self,
        entry: Option<&Arc<Entry>>,
        cache_request: &CacheRequest,
    ) -> Option<ReadAnswer> {
        self.env.replica.as_ref()?.home().away()?;
        self.may_serve_stale(StaleReason::Limited, Some(Arc::clone(entry?)), cache_request)
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
        let (directives, now) = (&cache_request.directives, self.env.clock.now());
        let may_serve = |entry: &Arc<Entry>| {
            let validated = entry.validated();
            validated.may_serve_stale(stale_reason, age_max, directives, now, self.env.mode)
                // A stored failure is no better than this one.
                && !entry.status().is_server_error()
                // An entry from before a write would hide the client's own write.
                && self.known_trust(cache_request, Some(entry), entry.requested_at())
                    != Trust::Invalidated
        };
        Some(ReadAnswer::Entry(entry.filter(may_serve)?, outcome))
    }

    /// Returns a stored answer that may be served without the upstream. It runs before any setup
    /// for a fetch, because most requests with a ttl end here. Its directives are the client's; the
    /// headers that go upstream select the answer.
    pub fn fresh(
        &self,
        route: &Route,
        valid: &ValidRequest,
        request_headers: &HeaderMap,
        to_upstream: &HeaderMap,
        now: Timestamp,
    ) -> Result<Arc<Entry>, CacheLookup> {
        let address_in = |scope| self.cache_key(scope, valid.service, &valid.target(), to_upstream);
        let address = address_in(route.scope);
        let (key, entry) = self.store.find(&address, to_upstream);
        let may_be_served = |entry: &Arc<Entry>| {
            let directives = RequestDirectives::of(request_headers, self.env.mode);
            let trust = |entry: &Entry| {
                if self.may_have_missed(entry.requested_at(), now) {
                    return Trust::Invalidated;
                }
                self.store.trust(&valid.path, entry.requested_at())
            };
            self.may_serve(entry, &directives, &valid.path, now, trust)
        };
        if let Some(entry) = entry.as_ref().filter(|entry| may_be_served(entry)) {
            return Ok(Arc::clone(entry));
        }
        if self.is_plain() && !route.about_caller {
            let public = address_in(Scope::Public);
            let (_, shared) = self.store.find(&public, to_upstream);
            if let Some(shared) = shared.filter(may_be_served) {
                return Ok(shared);
            }
        }
        let key = key.into_owned();
        Err(CacheLookup { address, key, entry })
    }

    /// A stored part that has all of this range.
    fn part(
        &self,
        key: &CacheKey,
        to_upstream: &HeaderMap,
        range: ByteRange,
    ) -> Option<Arc<Entry>> {
        let part = self.store.get(&part_key(key)).filter(|part| part.fits(to_upstream))?;
        let body_bytes = part.body.text().len() as u64;
        part.content_range()?.piece(body_bytes, range)?;
        Some(part)
    }

    /// Shows an answer to every view if the upstream means it for all (RFC 9111 §3.5), and else to
    /// its own alone. An answer to a request without a credential tells nothing about those with
    /// one. `stored` is `None` for an answer that must not be stored.
    pub(super) fn share(
        &self,
        cache_request: &CacheRequest,
        stored: Option<&Arc<Entry>>,
        answer: &UpstreamAnswer,
    ) {
        let (job, headers) = (&cache_request.job, cache_request.headers());
        if !self.is_plain() || job.route.about_caller {
            return;
        }
        let address =
            self.cache_key(Scope::Public, job.request.service, &job.request.target, headers);
        let (key, before) = self.store.find(&address, headers);
        let now = self.env.clock.now();
        let is_anonymous = || {
            let account = self.env.config.account(answer.account);
            account.is_some_and(|account| account.kind == AccountKind::Anonymous)
        };
        let is_for_all = |entry: &&Arc<Entry>| {
            entry.stored.is_shareable(now) && !entry.varies_by_view() && !is_anonymous()
        };
        match stored.filter(is_for_all) {
            Some(entry) => self.store.put(key.into_owned(), Arc::clone(entry)),
            None if before.is_some() => self.store.remove(&key, answer.requested_at),
            None => {}
        }
    }

    pub(super) fn cache_key(
        &self,
        scope: Scope,
        service: Service,
        target: &str,
        to_upstream: &HeaderMap,
    ) -> CacheKey {
        let (accept, version) = (headers::accept_of(to_upstream), self.version_of(to_upstream));
        match service {
            // The upload host is another address; no API path begins with this prefix.
            Service::Uploads => {
                CacheKey::new(scope, &format!("/api/uploads{target}"), &accept, version)
            }
            _ => CacheKey::new(scope, target, &accept, version),
        }
    }

    pub(super) fn version_of<'h>(&self, to_upstream: &'h HeaderMap) -> &'h str {
        // At most one, and ASCII: validation ensures it.
        to_upstream
            .get(self.env.config.upstream.dialect.version_header())
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    /// True if the entry may answer a request for this path without the upstream.
    fn may_serve(
        &self,
        entry: &Entry,
        directives: &RequestDirectives,
        path: &str,
        now: Timestamp,
        trust: impl FnOnce(&Entry) -> Trust,
    ) -> bool {
        // Nobody knows what changed while no gateway ran.
        if !self.store.is_confirmed(entry) {
            return false;
        }
        let granted = self.watched(entry, path, now).max(self.confirmed(entry));
        entry.validated().answers(directives, now, self.env.mode, || trust(entry), granted)
    }

    /// The time for which a confirmation counts.
    fn confirmed(&self, entry: &Entry) -> Option<Duration> {
        let span = self.env.config.cache.revalidate_at_most;
        (!span.is_zero()).then(|| entry.validated().confirmed_for(span, self.env.mode)).flatten()
    }

    /// The lifetime that a healthy webhook grants.
    fn watched(&self, entry: &Entry, path: &str, now: Timestamp) -> Option<Duration> {
        let rule = entry.stored.watched_by?.get() - 1;
        self.coverage.ttl(rule.into(), path, entry.requested_at(), now)
    }
}
