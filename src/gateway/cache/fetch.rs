//! The fetch that fills the cache: what a 304 validates, and what another answer replaces.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use parking_lot::Mutex;

use crate::config::CacheRule;
use crate::decision::cache::cache_control::{poll_interval, storable, vary_names};
use crate::decision::cache::freshness::{Mode, Stored};
use crate::decision::cache::key::CacheKey;
use crate::decision::cache::merge::merge_not_modified;
use crate::decision::permissions::denial_confidence::DenialConfidence;
use crate::gateway::cache::conditions::EntryConditions;
use crate::gateway::cache::lookup::CacheRequest;
use crate::gateway::cache::pages::page_of;
use crate::gateway::cache::read_cache::ReadCache;
use crate::gateway::cache::single_flight::FetchResult;
use crate::gateway::cache::store::{Entry, Vary, etag_of};
use crate::gateway::cache::stored_head::StoredHead;
use crate::gateway::cache::validation::{Fingerprint, ValidationTimes};
use crate::gateway::dispatch::answer::{AnswerBody, UpstreamAnswer};
use crate::gateway::dispatch::job::Job;
use crate::gateway::dispatch::permissions::token_key;
use crate::gateway::dispatch::progress::RequestProgress;
use crate::gateway::error::GatewayError;
use crate::gateway::http::content_coding::ContentCodings;
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
        let (performed, is_conditional) =
            self.fetch_answer(&key, &cache_request.job, entry.as_deref(), &progress).await;
        match (performed, entry) {
            (Err(error), _) => FetchResult::Failed(error),
            (Ok(answer), Some(entry))
                if answer.status == StatusCode::NOT_MODIFIED && is_conditional =>
            {
                self.validated(key, &cache_request, &entry, &answer)
            }
            // A 304 without a condition has no meaning.
            (Ok(answer), _) if answer.status == StatusCode::NOT_MODIFIED => {
                FetchResult::Failed(GatewayError::UpstreamFailed)
            }
            (Ok(answer), entry) => {
                self.note_owner(&cache_request, &answer);
                self.fetched(key, &cache_request, entry.as_deref(), answer)
            }
        }
    }

    /// Requests the answer from the upstream. Returns true too if the request was conditional.
    async fn fetch_answer(
        &self,
        key: &CacheKey,
        job: &Job,
        entry: Option<&Entry>,
        progress: &RequestProgress,
    ) -> (Result<UpstreamAnswer, GatewayError>, bool) {
        loop {
            let (is_conditional, sent) = (AtomicBool::default(), Mutex::default());
            let conditions = EntryConditions { cache: self, key, job, entry, is_conditional, sent };
            let mut performed = self.dispatcher.perform(job, progress, &conditions).await;
            let EntryConditions { is_conditional, sent, .. } = conditions;
            if let (Ok(answer), Some(sent)) = (&mut performed, sent.into_inner())
                && let Some(predictor) = &self.predictor
                && predictor.is_void(&self.env, job, &sent, entry, answer)
            {
                // The failed prediction closed this route; one more request settles the answer.
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
        if may_leave && fingerprint.repeats(entry.fingerprint) {
            entry.validation.repeated(answer.requested_at, now);
            return FetchResult::Entry(Arc::clone(entry), Fetch::Revalidated);
        }
        let news = headers::to_client(&answer.headers, self.env.mode);
        let mut renewed = Entry::clone(entry);
        renewed.fingerprint = fingerprint;
        renewed.validation = ValidationTimes::new(answer.requested_at, now);
        if !entry.head.contains_all(&news) {
            let mut merged = entry.head.to_map();
            let mut etag = merged.remove(header::ETAG);
            let names_pages = news.contains_key(header::LINK);
            let is_own =
                names_pages && etag.is_some() && etag == etag_of(entry.body.text(), &merged);
            merge_not_modified(&mut merged, &news, self.env.mode);
            if names_pages {
                renewed.stored.page = page_of(cache_request, entry.status(), &merged, &entry.body);
            }
            if is_own {
                etag = etag_of(entry.body.text(), &merged);
            }
            renewed.head = StoredHead::new(&merged, etag.as_ref(), &self.store.shared_lines);
        }
        renewed.stored.revalidate(now, &answer.headers, Some(token), self.ttl(cache_request));
        // RFC 9111 §3.2: the 304's `Vary` replaces the stored one, with the values of this request.
        if news.contains_key(header::VARY) {
            renewed.vary = Entry::vary_of(&answer.headers, cache_request.headers());
        }
        // The 304 can forbid further storage of the entry (§5.2.2.5, §4.3.4).
        let may_stay = storable(entry.status(), &answer.headers);
        let may_keep = may_leave && may_stay && renewed.vary.as_deref() != Some(&Vary::Everything);
        if !may_keep && (!may_stay || renewed.vary != entry.vary) {
            self.store.remove(&key, answer.requested_at);
        }
        let renewed = Arc::new(renewed);
        if may_keep {
            self.store.put(key, Arc::clone(&renewed));
        }
        FetchResult::Entry(renewed, Fetch::Revalidated)
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
            return FetchResult::SharedBody(self.begin_shared_body(key, cache_request, answer));
        };
        let bytes = std::mem::take(bytes);
        // RFC 9111 §3, §5.2.1.5. The upstream's poll interval outweighs this directive.
        let may_be_kept = storable(answer.status, &answer.headers)
            && answer.denial_confidence == DenialConfidence::Final
            && self.may_keep_encoding(&answer.headers);
        let is_unwanted =
            cache_request.directives.no_store && poll_interval(&answer.headers).is_none();
        let keep = may_be_kept && !is_unwanted;
        let mut entry = self.entry_of(cache_request, before, &answer, bytes);
        if is_unwanted {
            // A compressed form would be stored.
            entry.head.codings = ContentCodings::IdentityOnly;
        }
        let entry = Arc::new(entry);
        self.note_change(&key, cache_request, before, &entry);
        let fetch = match (keep, before.is_some()) {
            (_, true) => Fetch::Changed { status: answer.status.as_u16() },
            (true, false) => Fetch::Stored,
            (false, false) => Fetch::NotStored,
        };
        if keep {
            self.store.put(key, Arc::clone(&entry));
        } else if answer.status.is_server_error()
            || answer.denial_confidence == DenialConfidence::Void
        {
            // A failure says nothing about the stored entry.
        } else if may_be_kept {
            self.invalidate_if_different(key, before, &entry);
        } else {
            self.store.remove(&key, answer.requested_at);
        }
        FetchResult::Entry(entry, fetch)
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
        let mut headers = headers::to_client(&answer.headers, self.env.mode);
        if !is_as_sent {
            headers::remove_digests(&mut headers);
        }
        let etag = self.etag_for_clients(answer, &headers, &body, is_as_sent);
        let now = self.env.clock.now();
        let (token, ttl) = (token_key(answer.token), self.ttl(cache_request));
        let mut stored = Stored::new(now, answer.status, &answer.headers, Some(token), ttl);
        stored.page = page_of(cache_request, answer.status, &answer.headers, &body);
        stored.watched_by = self.watched_by(cache_request);
        let vary = Entry::vary_of(&answer.headers, cache_request.headers());
        if let Some(before) = before
            && before.status() == answer.status
            && before.vary == vary
            && before.body.text() == body.text()
        {
            stored.remember_etags(&before.stored);
        }
        Entry {
            head: StoredHead::new(&headers, etag.as_ref(), &self.store.shared_lines),
            stored,
            validation: ValidationTimes::new(answer.requested_at, now),
            fingerprint: Fingerprint::default(),
            vary,
            body,
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

    /// True if an answer's encoding may be stored. An unrequested encoding can neither be rewritten
    /// nor be served to other clients. A plain HTTP cache stores it if `Vary` does not name it (RFC
    /// 9111 §4.1). JSON is excluded, because it could hold secrets (SPECIFICATION D2).
    fn may_keep_encoding(&self, headers: &HeaderMap) -> bool {
        let is_choice =
            || vary_names(headers).is_none_or(|names| names.contains(&header::ACCEPT_ENCODING));
        !headers.contains_key(header::CONTENT_ENCODING)
            || self.env.mode == Mode::Rfc9111 && !is_choice() && !has_json_type(headers)
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
        if answer.status != StatusCode::OK {
            return None;
        }
        let upstreams = answer
            .headers
            .get(header::ETAG)
            .filter(|_| self.env.mode == Mode::Rfc9111 && is_as_sent);
        upstreams.cloned().or_else(|| etag_of(body.text(), headers))
    }

    fn rule(&self, cache_request: &CacheRequest) -> Option<(usize, &CacheRule)> {
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
        self.rule(cache_request).and_then(|(_, rule)| rule.ttl)
    }
}
