//! The fetch that fills the cache: what a 304 validates, and what another answer replaces.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use parking_lot::Mutex;

use crate::api::has_errors;
use crate::clock::Timestamp;
use crate::config::CacheRule;
use crate::decision::cache::arrived::Arrived;
use crate::decision::cache::cache_control::{poll_interval, vary_names};
use crate::decision::cache::freshness::{Mode, Stored};
use crate::decision::cache::key::CacheKey;
use crate::decision::cache::merge::merge_not_modified;
use crate::decision::cache::part::ContentRange;
use crate::decision::permissions::denial_confidence::DenialConfidence;
use crate::gateway::cache::conditions::EntryConditions;
use crate::gateway::cache::lookup::{CacheRequest, Query};
use crate::gateway::cache::pages::page_of;
use crate::gateway::cache::predicted_etags::become_empty_list;
use crate::gateway::cache::queries::shared_body_key;
use crate::gateway::cache::read_cache::ReadCache;
use crate::gateway::cache::single_flight::FetchResult;
use crate::gateway::cache::snapshot::far::Far;
use crate::gateway::cache::store::{Entry, Vary};
use crate::gateway::cache::stored_head::StoredHead;
use crate::gateway::cache::streaming::streamed_etag;
use crate::gateway::cache::validation::{Fingerprint, ValidationTimes};
use crate::gateway::dispatch::answer::{AnswerBody, UpstreamAnswer};
use crate::gateway::dispatch::job::Unconditional;
use crate::gateway::dispatch::permissions::token_key;
use crate::gateway::dispatch::progress::RequestProgress;
use crate::gateway::error::GatewayError;
use crate::gateway::http::content_coding::ContentCodings;
use crate::gateway::http::content_etag::ContentETag;
use crate::gateway::http::headers;
use crate::gateway::http::media_type::{has_json_type, is_json};
use crate::gateway::url_rewrite::map::{Body, blank_secrets};
use crate::telemetry::Fetch;

impl ReadCache {
    pub(super) async fn fetch(
        self: Arc<Self>,
        key: CacheKey,
        cache_request: Arc<CacheRequest>,
        entry: Option<Arc<Entry>>,
        progress: RequestProgress,
    ) -> FetchResult {
        let asked_for = self.asked_for(&key, &cache_request);
        let number = asked_for.key;
        progress.asks_for(asked_for);
        let fetched = self.fetch_result(key, &cache_request, entry.clone(), &progress).await;
        self.note_read(number, &cache_request, entry.as_deref(), &fetched);
        fetched
    }

    async fn fetch_result(
        self: &Arc<Self>,
        key: CacheKey,
        cache_request: &CacheRequest,
        entry: Option<Arc<Entry>>,
        progress: &RequestProgress,
    ) -> FetchResult {
        if self.env.replica.is_none() {
            return self.fetch_here(key, cache_request, entry, progress).await;
        }
        let (entry, claim) = match self.find_far(&key, cache_request, entry.as_deref()).await {
            Far::Answer(result) => return result,
            Far::Copy(copy) => (Some(copy), None),
            Far::Claimed(claim) => (entry, Some(claim)),
            Far::Nothing => (entry, None),
        };
        let result = self.fetch_here(key.clone(), cache_request, entry, progress).await;
        match claim {
            Some(claim) => self.fulfil(claim, &key, &result).await,
            None => self.keep_far(&key, &result),
        }
        result
    }

    async fn fetch_here(
        self: &Arc<Self>,
        key: CacheKey,
        cache_request: &CacheRequest,
        entry: Option<Arc<Entry>>,
        progress: &RequestProgress,
    ) -> FetchResult {
        let (performed, is_conditional) = if cache_request.query.is_some() {
            // No server knows validators of a POST.
            (self.dispatcher.perform(&cache_request.job, progress, &Unconditional).await, false)
        } else {
            self.fetch_answer(&key, cache_request, entry.as_deref(), progress).await
        };
        match (performed, entry) {
            (Err(error), _) => FetchResult::Failed(error),
            (Ok(answer), Some(entry))
                if answer.status == StatusCode::NOT_MODIFIED && is_conditional =>
            {
                self.validated(key, cache_request, &entry, &answer)
            }
            // Only the predicted `ETag` of an empty list is a condition without an entry.
            (Ok(answer), None) if answer.status == StatusCode::NOT_MODIFIED && is_conditional => {
                self.fetched_empty_list(key, cache_request, answer)
            }
            // A 304 without a condition has no meaning.
            (Ok(answer), _)
                if answer.status == StatusCode::NOT_MODIFIED && cache_request.query.is_none() =>
            {
                FetchResult::Failed(GatewayError::UpstreamFailed)
            }
            (Ok(answer), _)
                if answer.status == StatusCode::PARTIAL_CONTENT
                    && cache_request.range.is_some()
                    && matches!(answer.body, AnswerBody::Whole(_)) =>
            {
                self.fetched_part(&key, cache_request, answer)
            }
            (Ok(answer), entry) => {
                self.note_owner(cache_request, &answer);
                self.fetched(key, cache_request, entry.as_deref(), answer)
            }
        }
    }

    /// Requests the answer from the upstream. Returns true too if the request was conditional.
    async fn fetch_answer(
        &self,
        key: &CacheKey,
        cache_request: &CacheRequest,
        entry: Option<&Entry>,
        progress: &RequestProgress,
    ) -> (Result<UpstreamAnswer, GatewayError>, bool) {
        let job = &cache_request.job;
        let mut range = cache_request.range.as_ref().map(|(line, _)| line);
        range = range.filter(|_| entry.is_none());
        loop {
            let (is_conditional, sent) = (AtomicBool::default(), Mutex::default());
            let conditions =
                EntryConditions { cache: self, key, job, entry, range, is_conditional, sent };
            let mut performed = self.dispatcher.perform(job, progress, &conditions).await;
            let EntryConditions { is_conditional, sent, .. } = conditions;
            if let (Ok(answer), Some(sent)) = (&mut performed, sent.into_inner())
                && let Some(predictor) = &self.predictor
                && predictor.is_void(&self.env, job, &sent, entry, answer)
            {
                // The failed prediction closed this route; one more request settles the answer.
                continue;
            }
            if range.is_some() && is_unusable_part(&performed) {
                range = None;
                continue;
            }
            return (performed, is_conditional.into_inner());
        }
    }

    /// Handles a 304. One that repeats the previous 304 needs no merge.
    fn validated(
        &self,
        key: CacheKey,
        cache_request: &CacheRequest,
        entry: &Arc<Entry>,
        answer: &UpstreamAnswer,
    ) -> FetchResult {
        let (now, token) = (self.env.clock.now(), token_key(answer.token));
        // RFC 9111 §5.2.1.5: not stored, except to keep the upstream from being polled.
        let may_leave =
            !cache_request.directives.no_store || entry.stored.is_polled(&answer.headers);
        let is_repeatable = entry.stored.is_repeated_by(&answer.headers);
        let fingerprint = if is_repeatable {
            self.store.fingerprints.of(token, &answer.headers, self.env.mode)
        } else {
            Fingerprint::default()
        };
        let fetch = if self.was_fresh(cache_request, entry, answer.requested_at) {
            Fetch::Requested { status: answer.status.as_u16() }
        } else {
            Fetch::Revalidated
        };
        if may_leave && fingerprint.repeats(entry.fingerprint) {
            entry.validation.repeated(answer.requested_at, now);
            return FetchResult::Entry(Arc::clone(entry), fetch);
        }
        let news = self.stored_headers(&answer.headers);
        let mut renewed = Entry::clone(entry);
        renewed.fingerprint = fingerprint;
        renewed.validation = ValidationTimes::new(answer.requested_at, now);
        if !entry.head.contains_all(&news) {
            let mut merged = entry.head.to_map();
            let mut etag = merged.remove(header::ETAG);
            let names_pages = news.contains_key(header::LINK);
            let of_content = |headers: &HeaderMap| {
                HeaderValue::from(ContentETag::of(entry.body.text(), headers))
            };
            let is_own = names_pages && etag.as_ref() == Some(&of_content(&merged));
            merge_not_modified(&mut merged, &news, self.env.mode);
            if names_pages && entry.body.file().is_none() {
                renewed.stored.page = page_of(cache_request, entry.status(), &merged, &entry.body);
            }
            if is_own {
                etag = Some(of_content(&merged));
            }
            renewed.head = StoredHead::new(&merged, etag.as_ref(), &self.store.shared_lines);
        }
        renewed.stored.revalidate(now, &answer.headers, Some(token), self.ttl(cache_request));
        // RFC 9111 §3.2: the 304's `Vary` replaces the stored one, with the values of this request.
        if news.contains_key(header::VARY) {
            renewed.vary = Entry::vary_of(&answer.headers, cache_request.headers());
        }
        // The 304 can forbid further storage of the entry (§5.2.2.5, §4.3.4).
        let may_stay = self.arrived(entry.status(), &answer.headers).permits_storing();
        let may_keep = may_leave && may_stay && renewed.vary.as_deref() != Some(&Vary::Everything);
        let is_withdrawn = !may_keep && (!may_stay || renewed.vary != entry.vary);
        if is_withdrawn {
            self.store.remove(&key, answer.requested_at);
        }
        if is_withdrawn || !may_keep && !renewed.stored.is_shareable(now) {
            self.share(cache_request, None, answer);
        }
        let renewed = Arc::new(renewed);
        if may_keep {
            self.store.put(key, Arc::clone(&renewed));
            self.share(cache_request, Some(&renewed), answer);
        }
        FetchResult::Entry(renewed, fetch)
    }

    /// True if an answer was fresh when a request was sent all the same (RFC 9211 §2.2).
    fn was_fresh(&self, cache_request: &CacheRequest, entry: &Entry, at: Timestamp) -> bool {
        let trust = || self.trust(cache_request, Some(entry), entry.requested_at());
        self.is_plain()
            && self.store.is_confirmed(entry)
            && entry.validated().is_fresh_after(at, self.env.mode, trust, None)
    }

    /// The result of a fetch with an answer that is not the stored one.
    fn changed(
        &self,
        cache_request: &CacheRequest,
        before: Option<&Entry>,
        answer: &UpstreamAnswer,
        stored: bool,
    ) -> Fetch {
        let status = answer.status.as_u16();
        if let Some(before) = before {
            let was_fresh = self.was_fresh(cache_request, before, answer.requested_at);
            return if was_fresh { Fetch::Requested { status } } else { Fetch::Changed { status } };
        }
        let first = self.is_plain().then(|| self.address_of(cache_request));
        let first = first.and_then(|address| self.store.get(&address));
        match first.filter(|first| !first.fits(cache_request.headers())) {
            Some(_) => Fetch::OtherVariant { stored },
            None if stored => Fetch::Stored,
            None => Fetch::NotStored,
        }
    }

    fn fetched(
        &self,
        key: CacheKey,
        cache_request: &CacheRequest,
        before: Option<&Entry>,
        mut answer: UpstreamAnswer,
    ) -> FetchResult {
        let AnswerBody::Whole(bytes) = &mut answer.body else {
            self.store.remove(&key, answer.requested_at);
            self.share(cache_request, None, &answer);
            let key = shared_body_key(&key, cache_request).into_owned();
            return FetchResult::SharedBody(self.begin_shared_body(key, cache_request, answer));
        };
        let bytes = std::mem::take(bytes);
        // RFC 9111 §3, §5.2.1.5. The upstream's poll interval outweighs this directive.
        let may_be_kept = self.may_store(&answer);
        let is_unwanted =
            cache_request.directives.no_store && poll_interval(&answer.headers).is_none();
        // A failure with a lifetime replaces no answer that may stand in for it.
        let replaces = before.is_none_or(|before| before.status().is_server_error());
        let keep = may_be_kept && !is_unwanted && (replaces || !answer.status.is_server_error());
        if let Some(query) = &cache_request.query {
            let entry = self.entry_of(cache_request, before, &answer, bytes);
            return self.queried(key, cache_request, query, before, entry, keep);
        }
        let mut entry = self.entry_of(cache_request, before, &answer, bytes);
        if is_unwanted {
            // A compressed form would be stored.
            entry.head.codings = ContentCodings::IdentityOnly;
        }
        let entry = Arc::new(entry);
        self.note_change(&key, cache_request, before, &entry);
        let fetch = self.changed(cache_request, before, &answer, keep);
        if keep {
            self.store.put(key, Arc::clone(&entry));
            self.share(cache_request, Some(&entry), &answer);
        } else if answer.status.is_server_error()
            || answer.denial_confidence == DenialConfidence::Void
        {
            // A failure says nothing about the stored entry.
        } else if may_be_kept {
            if before.is_none_or(|before| !before.has_same_content(&entry)) {
                self.share(cache_request, None, &answer);
            }
            self.invalidate_if_different(key, before, &entry);
        } else {
            self.store.remove(&key, answer.requested_at);
            self.share(cache_request, None, &answer);
        }
        FetchResult::Entry(entry, fetch)
    }

    fn fetched_empty_list(
        &self,
        key: CacheKey,
        cache_request: &CacheRequest,
        mut answer: UpstreamAnswer,
    ) -> FetchResult {
        become_empty_list(&mut answer);
        match self.fetched(key, cache_request, None, answer) {
            FetchResult::Entry(entry, fetch) => {
                let is_stored = fetch == Fetch::Stored;
                FetchResult::Entry(entry, Fetch::EmptyList { is_stored })
            }
            other => other,
        }
    }

    /// Stores the answer to a GraphQL query, if a rule says so and it is complete.
    fn queried(
        &self,
        key: CacheKey,
        cache_request: &CacheRequest,
        query: &Query,
        before: Option<&Entry>,
        entry: Entry,
        may_be_kept: bool,
    ) -> FetchResult {
        if query.ttl.is_none() {
            return FetchResult::Entry(Arc::new(entry), Fetch::Shared);
        }
        let is_complete = entry.status() == StatusCode::OK && !has_errors(entry.body.text());
        if !may_be_kept || !is_complete {
            return FetchResult::Entry(Arc::new(entry), Fetch::QueryNotStored);
        }
        if let Some(named) = self.named_in(query, &entry) {
            self.store.set_named(self.address_of(cache_request), named);
        }
        let entry = Arc::new(entry);
        self.store.put(key, Arc::clone(&entry));
        let status = entry.status().as_u16();
        let fetch = before.map_or(Fetch::QueryStored, |_| Fetch::Changed { status });
        FetchResult::Entry(entry, fetch)
    }

    /// Stores a part for later requests within it. No other answer changes by it.
    fn fetched_part(
        &self,
        key: &CacheKey,
        cache_request: &CacheRequest,
        mut answer: UpstreamAnswer,
    ) -> FetchResult {
        let AnswerBody::Whole(bytes) = &mut answer.body else {
            return FetchResult::Failed(GatewayError::UpstreamFailed);
        };
        let bytes = std::mem::take(bytes);
        let entry = Arc::new(self.entry_of(cache_request, None, &answer, bytes));
        let keep = !cache_request.directives.no_store
            && self.arrived(answer.status, &answer.headers).permits_storing()
            && entry.stored.is_fresh(self.env.clock.now(), self.env.mode);
        if keep {
            self.store.put(part_key(key), Arc::clone(&entry));
        }
        FetchResult::Entry(entry, if keep { Fetch::Stored } else { Fetch::NotStored })
    }

    fn entry_of(
        &self,
        cache_request: &CacheRequest,
        before: Option<&Entry>,
        answer: &UpstreamAnswer,
        bytes: Bytes,
    ) -> Entry {
        let length = bytes.len();
        let body = if is_json(&answer.headers) {
            self.env.urls.with_url_offsets(blank_secrets(bytes))
        } else {
            Body::opaque(bytes)
        };
        let is_as_sent = body.is_alike_for_all() && body.text().len() == length;
        let mut headers = self.stored_headers(&answer.headers);
        if !is_as_sent {
            headers::remove_digests(&mut headers);
        }
        let etag = if cache_request.query.is_some() {
            headers.get(header::ETAG).cloned()
        } else {
            self.etag_for_clients(answer, &headers, &body, is_as_sent)
        };
        let mut entry = self.entry_with_head(cache_request, answer, &headers, etag.as_ref());
        if cache_request.query.is_none() {
            entry.stored.page = page_of(cache_request, answer.status, &answer.headers, &body);
        }
        if let Some(before) = before
            && before.status() == answer.status
            && before.vary == entry.vary
            && before.body.is_same_as(&body)
        {
            entry.stored.remember_etags(&before.stored);
        }
        Entry { body, ..entry }
    }

    /// An answer to store whose body is on its way to a file. Its validators are the upstream's,
    /// as those who are sent it meanwhile get them.
    pub(super) fn entry_on_disk(
        &self,
        cache_request: &CacheRequest,
        answer: &UpstreamAnswer,
    ) -> Entry {
        let mut headers = self.stored_headers(&answer.headers);
        if is_json(&answer.headers) {
            headers::remove_digests(&mut headers);
        }
        let etag = streamed_etag(&answer.headers);
        self.entry_with_head(cache_request, answer, &headers, etag.as_ref())
    }

    /// An entry without its body.
    fn entry_with_head(
        &self,
        cache_request: &CacheRequest,
        answer: &UpstreamAnswer,
        headers: &HeaderMap,
        etag: Option<&HeaderValue>,
    ) -> Entry {
        let now = self.env.clock.now();
        let (token, ttl) = (token_key(answer.token), self.ttl(cache_request));
        let mode = self.env.mode;
        let mut stored = Stored::new(mode, now, answer.status, &answer.headers, Some(token), ttl);
        if cache_request.query.is_none() {
            stored.watched_by = self.watched_by(cache_request);
        }
        Entry {
            head: StoredHead::new(headers, etag, &self.store.shared_lines),
            stored,
            validation: ValidationTimes::new(answer.requested_at, now),
            fingerprint: Fingerprint::default(),
            vary: Entry::vary_of(&answer.headers, cache_request.headers()),
            body: Body::default(),
        }
    }

    /// Handles an answer that its request forbids to store. The entry stays for other clients, but
    /// a different answer makes it stale until revalidated.
    fn invalidate_if_different(&self, key: CacheKey, before: Option<&Entry>, found: &Entry) {
        if let Some(before) = before
            && !before.has_same_content(found)
            && self.store.get(&key).is_some_and(|kept| std::ptr::eq(&raw const *kept, before))
        {
            let mut invalidated = before.clone();
            invalidated.stored.invalidate();
            invalidated.fingerprint = Fingerprint::default();
            self.store.put(key, Arc::new(invalidated));
        }
    }

    /// True if the answer itself allows it to be stored.
    pub(super) fn may_store(&self, answer: &UpstreamAnswer) -> bool {
        self.arrived(answer.status, &answer.headers).is_storable()
            && answer.denial_confidence == DenialConfidence::Final
            && self.may_keep_encoding(&answer.headers)
    }

    /// True if an answer's encoding may be stored. An unrequested encoding can neither be rewritten
    /// nor be served to other clients. A plain HTTP cache stores it if `Vary` does not name it (RFC
    /// 9111 §4.1). JSON is excluded, because it could hold secrets (SPECIFICATION D2).
    fn may_keep_encoding(&self, headers: &HeaderMap) -> bool {
        let is_choice =
            || vary_names(headers).is_none_or(|names| names.contains(&header::ACCEPT_ENCODING));
        !headers.contains_key(header::CONTENT_ENCODING)
            || self.env.mode == Mode::Rfc9111 && !is_choice() && !has_json_type(headers)
    }

    /// The headers of an answer that clients get. A plain HTTP cache dates an answer that has no
    /// `Date` (RFC 9110 §6.6.1).
    fn stored_headers(&self, received: &HeaderMap) -> HeaderMap {
        let mut headers = headers::to_client(received, self.env.mode);
        if self.env.mode == Mode::Rfc9111 && !headers.contains_key(header::DATE) {
            let arrived = Duration::from_millis(self.env.clock.now().as_millis());
            let date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + arrived);
            headers.extend(HeaderValue::try_from(date).ok().map(|date| (header::DATE, date)));
        }
        headers
    }

    fn arrived<'h>(&self, status: StatusCode, headers: &'h HeaderMap) -> Arrived<'h> {
        Arrived { status, headers, at: self.env.clock.now(), mode: self.env.mode }
    }

    /// The `ETag` for clients: the gateway's own validator, equal for all tokens. A plain HTTP
    /// cache passes on the upstream's if the client gets the exact bytes (RFC 9110 §8.8.3).
    fn etag_for_clients(
        &self,
        answer: &UpstreamAnswer,
        headers: &HeaderMap,
        body: &Body,
        is_as_sent: bool,
    ) -> Option<HeaderValue> {
        let is_part = answer.status == StatusCode::PARTIAL_CONTENT;
        if answer.status != StatusCode::OK && !is_part {
            return None;
        }
        let upstreams = answer
            .headers
            .get(header::ETAG)
            .filter(|_| self.env.mode == Mode::Rfc9111 && is_as_sent);
        let of_content = || ContentETag::of(body.text(), headers).into();
        upstreams.cloned().or_else(|| (!is_part).then(of_content))
    }

    pub(super) fn rule(&self, cache_request: &CacheRequest) -> Option<(usize, &CacheRule)> {
        self.env
            .config
            .cache
            .rules
            .iter()
            .enumerate()
            .find(|(_, rule)| *rule.route == *cache_request.job.route.endpoint.template)
    }

    fn watched_by(&self, cache_request: &CacheRequest) -> Option<NonZeroU16> {
        let (index, _) = self.rule(cache_request).filter(|(_, rule)| rule.webhook_ttl.is_some())?;
        NonZeroU16::new(u16::try_from(index).ok()?.checked_add(1)?)
    }

    fn ttl(&self, cache_request: &CacheRequest) -> Option<Duration> {
        match &cache_request.query {
            Some(query) => query.ttl,
            None => self.rule(cache_request).and_then(|(_, rule)| rule.ttl),
        }
    }
}

/// The key of the stored part of an answer of which nothing else is stored.
pub(super) fn part_key(key: &CacheKey) -> CacheKey {
    key.variant(std::iter::once(&b"part"[..]))
}

/// True for a part that cannot be passed on: URLs in JSON are rewritten, which moves its bytes, and
/// a part may hide secrets. The whole is requested then.
fn is_unusable_part(performed: &Result<UpstreamAnswer, GatewayError>) -> bool {
    match performed {
        Ok(answer) if answer.status == StatusCode::PARTIAL_CONTENT => {
            let range = answer.headers.get(header::CONTENT_RANGE);
            has_json_type(&answer.headers)
                || range.and_then(|range| ContentRange::parse(range.to_str().ok()?)).is_none()
        }
        // A part of an encoded answer cannot be decoded.
        Err(error) => matches!(error, GatewayError::Undecodable(_)),
        Ok(_) => false,
    }
}
