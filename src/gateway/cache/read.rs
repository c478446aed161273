//! A read: what is stored, whether that may be served, and one fetch for everyone who asks at once
//! (DESIGN D1–D3).
//!
//! Which accounts may fetch and whose view the answer shows comes from `route.rs`; how the answer
//! is put on the wire is in `respond.rs`.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::clock::Timestamp;
use crate::config::CacheRule;
use crate::decision::Priority;
use crate::decision::cache::cache_control::{poll_interval, storable, vary_names};
use crate::decision::cache::freshness::Mode;
use crate::decision::cache::freshness::Stored;
use crate::decision::cache::key::{CacheKey, Scope};
use crate::decision::cache::merge::merge_not_modified;
use crate::decision::cache::request_directives::RequestDirectives;
use crate::decision::cache::settling::Trust;
use crate::decision::cache::stale_reason::StaleReason;
use crate::decision::permissions::denial_confidence::DenialConfidence;
use crate::telemetry::{CacheOutcome, Fetch, spans};
use crate::tokens::{Cause, Lack};

use crate::gateway::address::Service;
use crate::gateway::address::path_of;
use crate::gateway::cache::cache_request::Question;
use crate::gateway::cache::conditions::OfEntry;
use crate::gateway::cache::lookup::{ReadAnswer, Sought};
use crate::gateway::cache::pages::page_of;
use crate::gateway::cache::predicted_etags::Worth;
use crate::gateway::cache::read_cache::ReadCache;
use crate::gateway::cache::shared_body_reader::Reader;
use crate::gateway::cache::single_flight::{Asker, Landed, Role, Seat};
use crate::gateway::cache::store::{Entry, Vary, etag_of};
use crate::gateway::cache::stored_head::StoredHead;
use crate::gateway::cache::validation::{Confirmation, Print};
use crate::gateway::dispatch::answer::{Answer, AnswerBody};
use crate::gateway::dispatch::job::Job;
use crate::gateway::dispatch::progress::{Effort, HeldBy, Hold};
use crate::gateway::dispatch::token_keys::token_key;
use crate::gateway::error::Refused;
use crate::gateway::http::content_coding::Codings;
use crate::gateway::http::headers;
use crate::gateway::http::media_type::{has_json_type, is_json};
use crate::gateway::request::validate::Intake;
use crate::gateway::url_rewrite::map::{Body, without_secrets};

/// How often an asker joins a fetch that turns out not to be for it before it fetches alone.
const JOINS_MAX: u32 = 3;

/// What an asker holds against a fetch that did not bring what it needs.
enum Miss {
    Again,
    Give(Result<ReadAnswer, Refused>),
}

impl ReadCache {
    /// Answers a GET or HEAD. `effort` becomes that of the fetch it takes part in as soon as there
    /// is one: a client that leaves while it waits has waited for something all the same. `sought`
    /// is what the store was found to have just now.
    pub async fn read(
        self: &Arc<Self>,
        question: Arc<Question>,
        sought: Option<Sought>,
        effort: &mut Effort,
    ) -> Result<ReadAnswer, Refused> {
        let (address, mut sought) = match sought {
            Some(Sought { address, key, entry }) => (address, Some((key, entry))),
            None => (
                self.cache_key(
                    question.scope,
                    question.job.request.service,
                    &question.job.request.target,
                    &question.asked,
                ),
                None,
            ),
        };
        for _ in 0..JOINS_MAX {
            let (key, entry) = match sought.take() {
                Some(sought) => sought,
                None => match spans::cache_span(&question.job.span)
                    .in_scope(|| self.store.find(address.clone(), &question.asked))
                {
                    (_, Some(entry)) if self.may_serve(&entry, &question) => {
                        *effort = Effort::default();
                        return Ok(ReadAnswer::Entry(entry, CacheOutcome::Hit));
                    }
                    sought => sought,
                },
            };
            match self.take_part(&key, &question, entry, effort).await {
                Miss::Give(answer) => return answer,
                Miss::Again => {}
            }
        }
        *effort = Effort::default();
        let (key, _) = self.store.find(address, &question.asked);
        let landed = Arc::clone(self).fetch(key, Arc::clone(&question), None, effort.clone()).await;
        given(landed, Role::Leader)
    }

    async fn take_part(
        self: &Arc<Self>,
        key: &CacheKey,
        question: &Arc<Question>,
        entry: Option<Arc<Entry>>,
        effort: &mut Effort,
    ) -> Miss {
        // RFC 9111 §5.2.1.7: from the store or not at all. What another request is just asking for
        // is not stored.
        if question.wishes.only_if_cached {
            return Miss::Give(Err(Refused::NothingStored));
        }
        if let Some(answer) = self.join_stream(key, question) {
            *effort = Effort::default();
            return Miss::Give(Ok(answer));
        }
        let path = path_of(&question.job.request.target);
        let start = |effort| {
            Arc::clone(self).fetch(key.clone(), Arc::clone(question), entry.clone(), effort)
        };
        let asker = Asker {
            now: self.env.clock.now(),
            client: question.job.client,
            priority: self.priority_of(&question.job),
        };
        let mut seat = self.flights.join(
            key,
            asker,
            |started_at| !self.store.trust(path, started_at).holds(asker.now),
            start,
        );
        effort.clone_from(&seat.effort);
        let Some(landed) = self.await_landing(&mut seat, question.job.deadline).await else {
            // Still in line when this asker's own patience ended.
            let refused = self.waited_too_long(&question.job, effort);
            return Miss::Give(self.stale_instead(refused, entry, question));
        };
        match (landed, seat.role) {
            (Landed::Entry(entry, _), Role::Follower)
                if !entry.fits(&question.asked) || !entry.is_for_others() =>
            {
                Miss::Again
            }
            (Landed::Large(landing), Role::Follower) if !landing.0.fits(&question.asked) => {
                Miss::Again
            }
            // A failure that a stored answer is preferred to.
            (Landed::Entry(failure, fetch), role) if failure.status().is_server_error() => {
                let stale =
                    self.may_serve_stale(StaleReason::Answered(failure.status()), entry, question);
                Miss::Give(stale.map_or_else(|| given(Landed::Entry(failure, fetch), role), Ok))
            }
            // It was refused as the one whose fetch it was: with another patience, priority and
            // share.
            (Landed::Refused(Refused::Limited { .. }), Role::Follower)
                if self.env.clock.now() < question.job.deadline =>
            {
                Miss::Again
            }
            // The one whose fetch it was had less patience for the token.
            (
                Landed::Refused(Refused::TokenUnavailable(Lack { cause: Cause::Passing, .. })),
                Role::Follower,
            ) if self.env.clock.now() < question.job.deadline => Miss::Again,
            (Landed::Refused(refused), _) => {
                Miss::Give(self.stale_instead(refused, entry, question))
            }
            (Landed::Large(landing), role) => {
                let stale = self.may_serve_stale(
                    StaleReason::Answered(landing.0.head.status),
                    entry,
                    question,
                );
                stale
                    .or_else(|| self.streamed(&landing.0, question, role))
                    .map_or(Miss::Again, |answer| Miss::Give(Ok(answer)))
            }
            (landed, role) => Miss::Give(given(landed, role)),
        }
    }

    fn priority_of(&self, job: &Job) -> Priority {
        self.env
            .config
            .clients
            .get(job.client as usize)
            .map_or(Priority::Normal, |client| client.priority)
    }

    /// The end of the fetch; `None` when the deadline came while it was still in line. What is on
    /// its way is waited for: the client's patience is about being held, the upstream's slowness
    /// has its own timeout.
    async fn await_landing(&self, seat: &mut Seat, deadline: Timestamp) -> Option<Landed> {
        // Its own fetch is held no longer than that, and ends by itself: no timer for what mostly
        // has nobody else waiting.
        if seat.role == Role::Leader {
            return Some(seat.landed().await);
        }
        let effort = seat.effort.clone();
        tokio::select! {
            landed = seat.landed() => return Some(landed),
            () = self.env.wait_until(deadline) => {}
        }
        if effort.is_on_wire() { Some(seat.landed().await) } else { None }
    }

    /// The fetch it takes part in is held, and is left waiting for those with more patience.
    fn waited_too_long(&self, job: &Job, effort: &Effort) -> Refused {
        use crate::decision::{LimitDenied, LimitKind, Until};
        let now = self.env.clock.now();
        let (limit, account, until) = match effort.figures(now).held {
            Some(Hold { by: HeldBy::Limit(limit), account, until }) => (limit, account, until),
            Some(Hold { by: HeldBy::Mint, .. }) => {
                return self
                    .dispatcher
                    .tokens()
                    .lack(&job.route.candidates, job.route.endpoint.tokens, now)
                    .map_or(Refused::TokensRejected, Refused::TokenUnavailable);
            }
            _ => (LimitKind::Probe, None, Until::Event),
        };
        self.dispatcher.limited(
            job,
            &LimitDenied { limit, account, resource: job.route.endpoint.resource.clone(), until },
        )
    }

    /// A stored answer that is old, where it is preferred to none.
    fn stale_instead(
        &self,
        refused: Refused,
        entry: Option<Arc<Entry>>,
        question: &Question,
    ) -> Result<ReadAnswer, Refused> {
        let trouble = match &refused {
            Refused::Limited { .. } => StaleReason::Limited,
            // A token that was refused may have lost its right to what is stored; one that only has
            // not come has not.
            Refused::TokenUnavailable(Lack { cause: Cause::Passing, .. })
            | Refused::Unreachable
            | Refused::UpstreamFailed
            | Refused::UpstreamTimeout => StaleReason::NoAnswer,
            _ => return Err(refused),
        };
        self.may_serve_stale(trouble, entry, question).ok_or(refused)
    }

    fn may_serve_stale(
        &self,
        trouble: StaleReason,
        entry: Option<Arc<Entry>>,
        question: &Question,
    ) -> Option<ReadAnswer> {
        let (age_max, outcome) = match trouble {
            StaleReason::Limited => {
                (self.env.config.cache.stale_if_limited, CacheOutcome::StaleIfLimited)
            }
            StaleReason::NoAnswer | StaleReason::Answered(_) => {
                (self.env.config.cache.stale_if_error, CacheOutcome::StaleIfError)
            }
        };
        let may_stand_in = |entry: &Arc<Entry>| {
            entry.confirmed().may_serve_stale(trouble, age_max, &question.wishes, self.env.clock.now(), self.env.mode)
                // A stored answer from before a write would show the client that its write did not
                // happen.
                && self.trust(entry, question) != Trust::Invalidated
        };
        Some(ReadAnswer::Entry(entry.filter(may_stand_in)?, outcome))
    }

    /// A stored answer that may be served without asking. Looked for before anything is made that
    /// only a fetch needs: most requests end here where answers have a lifetime.
    pub fn fresh(
        &self,
        scope: Scope,
        intake: &Intake,
        asked: &HeaderMap,
        now: Timestamp,
    ) -> Result<Arc<Entry>, Sought> {
        let address = self.cache_key(scope, intake.service, &intake.target(), asked);
        let (key, entry) = self.store.find(address.clone(), asked);
        let may_be_served = |entry: &Arc<Entry>| {
            let trust = || self.store.trust(&intake.path, entry.requested_at());
            entry.confirmed().answers(
                &RequestDirectives::of(asked, self.env.mode),
                now,
                self.env.mode,
                trust,
                self.watched(entry, &intake.path, now),
            )
        };
        match entry {
            Some(entry) if may_be_served(&entry) => Ok(entry),
            entry => Err(Sought { address, key, entry }),
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
        // One at most, and ASCII: `intake` has seen to it.
        let version = asked
            .get(self.env.config.upstream.dialect.version_header())
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        match service {
            // Another of the upstream's addresses: no path of the API begins so.
            Service::Uploads => {
                CacheKey::new(scope, &format!("/api/uploads{target}"), &accept, version)
            }
            _ => CacheKey::new(scope, target, &accept, version),
        }
    }

    fn may_serve(&self, entry: &Entry, question: &Question) -> bool {
        let now = self.env.clock.now();
        let watched = self.watched(entry, path_of(&question.job.request.target), now);
        entry.confirmed().answers(
            &question.wishes,
            now,
            self.env.mode,
            || self.trust(entry, question),
            watched,
        )
    }

    /// How long it is good because a webhook would have told of a change.
    fn watched(&self, entry: &Entry, path: &str, now: Timestamp) -> Option<Duration> {
        let rule = entry.stored.watched_by?.get() - 1;
        self.coverage.ttl(rule.into(), path, entry.requested_at(), now)
    }

    fn trust(&self, entry: &Entry, question: &Question) -> Trust {
        self.store.trust(path_of(&question.job.request.target), entry.requested_at())
    }

    /// The fetch itself, conditional when something is stored.
    async fn fetch(
        self: Arc<Self>,
        key: CacheKey,
        question: Arc<Question>,
        entry: Option<Arc<Entry>>,
        effort: Effort,
    ) -> Landed {
        let (performed, was_asked) =
            self.ask_upstream(&key, &question.job, entry.as_deref(), &effort).await;
        match (performed, entry) {
            (Err(refused), _) => Landed::Refused(refused),
            (Ok(answer), Some(entry)) if answer.status == StatusCode::NOT_MODIFIED && was_asked => {
                self.confirmed(key, &question, &entry, &answer)
            }
            // An answer to a condition that was never sent; nothing can be made of it.
            (Ok(answer), _) if answer.status == StatusCode::NOT_MODIFIED => {
                Landed::Refused(Refused::UpstreamFailed)
            }
            (Ok(answer), entry) => self.fetched(key, &question, entry.as_deref(), answer),
        }
    }

    /// Asks the upstream, and says whether with conditions.
    async fn ask_upstream(
        &self,
        key: &CacheKey,
        job: &Job,
        entry: Option<&Entry>,
        effort: &Effort,
    ) -> (Result<Answer, Refused>, bool) {
        loop {
            let conditions = OfEntry::new(self, key, job, entry);
            let mut performed = self.dispatcher.perform(job, effort, &conditions).await;
            let (was_asked, sent) = conditions.sent();
            if let (Ok(answer), Some(sent)) = (&mut performed, sent)
                && self.predictor.as_ref().is_some_and(|predictor| {
                    predictor.judge(&self.env, job, &sent, entry, answer) == Worth::Nothing
                })
            {
                // Nothing is predicted for this route by now, so it is asked so once.
                continue;
            }
            return (performed, was_asked);
        }
    }

    /// A 304 has come. What the last one said already is not taken over again.
    fn confirmed(
        &self,
        key: CacheKey,
        question: &Question,
        entry: &Arc<Entry>,
        answer: &Answer,
    ) -> Landed {
        let (now, token) = (self.env.clock.now(), token_key(answer.token));
        // RFC 9111 §5.2.1.5: an answer to a request that says so leaves nothing behind, but for
        // what keeps the upstream from being polled.
        let may_leave = !question.wishes.no_store || entry.stored.is_polled(&answer.headers);
        let is_repeatable = entry.stored.is_repeated_by(&answer.headers);
        let print = if is_repeatable {
            self.store.prints.of(token, &answer.headers, self.env.mode)
        } else {
            Print::default()
        };
        if may_leave && print.repeats(entry.print) {
            entry.confirmation.repeated(answer.requested_at, now);
            return Landed::Entry(Arc::clone(entry), Fetch::Revalidated);
        }
        let news = headers::to_client(&answer.headers, self.env.mode);
        let mut stored = entry.stored.clone();
        let head = if entry.head.says_already(&news) {
            entry.head.clone()
        } else {
            let mut merged = entry.head.to_map();
            let mut etag = merged.remove(header::ETAG);
            let is_own = etag.is_some()
                && news.contains_key(header::LINK)
                && etag == etag_of(entry.body.text(), &merged);
            merge_not_modified(&mut merged, &news, self.env.mode);
            if news.contains_key(header::LINK) {
                stored.page = page_of(question, entry.status(), &merged, &entry.body);
            }
            if is_own {
                etag = etag_of(entry.body.text(), &merged);
            }
            StoredHead::new(&merged, etag.as_ref(), &self.store.shared_lines)
        };
        stored.revalidate(now, &answer.headers, Some(token), self.ttl(question));
        let confirmation = Confirmation::new(answer.requested_at, now);
        // RFC 9111 §3.2: the 304's `Vary` takes the place of the stored one, and its values are
        // those of the request that was answered so.
        let vary = if news.contains_key(header::VARY) {
            Entry::vary_of(&answer.headers, &question.asked)
        } else {
            entry.vary.clone()
        };
        // What may not be kept by the 304's word was kept until now (§5.2.2.5, §4.3.4).
        let may_stay = storable(entry.status(), &answer.headers);
        let may_keep = may_leave && may_stay && vary.as_deref() != Some(&Vary::Everything);
        if !may_keep && (!may_stay || vary != entry.vary) {
            self.store.remove(&key, answer.requested_at);
        }
        let entry =
            Arc::new(Entry { head, body: entry.body.clone(), stored, confirmation, print, vary });
        if may_keep {
            self.store.put(key, Arc::clone(&entry));
        }
        Landed::Entry(entry, Fetch::Revalidated)
    }

    fn fetched(
        &self,
        key: CacheKey,
        question: &Question,
        before: Option<&Entry>,
        mut answer: Answer,
    ) -> Landed {
        let AnswerBody::Whole(bytes) = &mut answer.body else {
            self.store.remove(&key, answer.requested_at);
            return Landed::Large(self.begin_stream(key, question, answer));
        };
        let length = bytes.len();
        let bytes = std::mem::take(bytes);
        // RFC 9111 §3, §5.2.1.5; a wish, which goes behind the upstream's on how often it is
        // polled.
        let may_be_stored =
            storable(answer.status, &answer.headers) && answer.verdict == DenialConfidence::Final;
        let may_be_kept = may_be_stored && self.may_keep_encoding(&answer.headers);
        let is_unwanted = question.wishes.no_store && poll_interval(&answer.headers).is_none();
        let keep = may_be_kept && !is_unwanted;
        let body = if is_json(&answer.headers) {
            self.env.urls.mark_json(without_secrets(bytes))
        } else {
            Body::opaque(bytes)
        };
        let is_as_sent = body.is_alike_for_all() && body.text().len() == length;
        let mut said = headers::to_client(&answer.headers, self.env.mode);
        if !is_as_sent {
            headers::remove_digests(&mut said);
        }
        let etag = self.etag_for_clients(&answer, &said, &body, is_as_sent);
        let now = self.env.clock.now();
        let mut stored = Stored::new(
            now,
            answer.status,
            &answer.headers,
            Some(token_key(answer.token)),
            self.ttl(question),
        );
        stored.page = page_of(question, answer.status, &answer.headers, &body);
        stored.watched_by = self.watched_by(question);
        let vary = Entry::vary_of(&answer.headers, &question.asked);
        let is_same = |before: &&Entry| {
            before.status() == answer.status
                && before.vary == vary
                && before.body.text() == body.text()
        };
        if let Some(before) = before.filter(is_same) {
            stored.remember_etags(&before.stored);
        }
        let mut head = StoredHead::new(&said, etag.as_ref(), &self.store.shared_lines);
        if is_unwanted {
            // Another form of it would be kept.
            head.codings = Codings::AsItIs;
        }
        let entry = Arc::new(Entry {
            head,
            stored,
            confirmation: Confirmation::new(answer.requested_at, now),
            print: Print::default(),
            vary,
            body,
        });
        self.note_change(&key, question, before, &entry);
        let fetch = match (keep, before.is_some()) {
            (_, true) => Fetch::Changed { status: answer.status.as_u16() },
            (true, false) => Fetch::Stored,
            (false, false) => Fetch::NotStored,
        };
        if keep {
            self.store.put(key, Arc::clone(&entry));
        } else if answer.status.is_server_error() || answer.verdict == DenialConfidence::Void {
            // It says nothing of what is stored.
        } else if may_be_kept {
            self.found_another(key, before, &entry);
        } else {
            self.store.remove(&key, answer.requested_at);
        }
        Landed::Entry(entry, fetch)
    }

    /// An answer that its asker does not want stored. What others have stays theirs; where it is
    /// another one by now, it has to be confirmed before it is served again.
    fn found_another(&self, key: CacheKey, before: Option<&Entry>, found: &Entry) {
        let is_other = |before: &&Entry| {
            before.status() != found.status() || before.body.text() != found.body.text()
        };
        let is_kept = |before: &&Entry| {
            self.store.get(&key).is_some_and(|kept| std::ptr::eq(&raw const *kept, *before))
        };
        let Some(before) = before.filter(is_other).filter(is_kept) else { return };
        let mut stored = before.stored.clone();
        stored.invalidate();
        let confirmation =
            Confirmation::new(before.requested_at(), before.confirmation.confirmed_at());
        let (head, body, vary) = (before.head.clone(), before.body.clone(), before.vary.clone());
        self.store.put(
            key,
            Arc::new(Entry { head, body, stored, confirmation, print: Print::default(), vary }),
        );
    }

    /// An encoding that was not asked for cannot be rewritten, and is not for others who did not
    /// ask for it either. A plain HTTP cache repeats what the upstream does not call a choice (RFC
    /// 9111 §4.1), unless it would have had to look into it (DESIGN D2, secrets).
    fn may_keep_encoding(&self, headers: &HeaderMap) -> bool {
        let is_choice =
            || vary_names(headers).is_none_or(|names| names.contains(&header::ACCEPT_ENCODING));
        !headers.contains_key(header::CONTENT_ENCODING)
            || self.env.mode == Mode::Rfc9111 && !is_choice() && !has_json_type(headers)
    }

    /// What clients know an answer by: the gateway's own validator, which is the same whichever
    /// token fetched the body. In a plain HTTP cache the upstream's, where each client gets the
    /// very bytes that the upstream named so (RFC 9110 §8.8.3).
    fn etag_for_clients(
        &self,
        answer: &Answer,
        said: &HeaderMap,
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
        upstreams.cloned().or_else(|| etag_of(body.text(), said))
    }

    fn rule(&self, question: &Question) -> Option<(usize, &CacheRule)> {
        self.env
            .config
            .cache
            .rules
            .iter()
            .enumerate()
            .find(|(_, rule)| *rule.route == *question.job.route.endpoint.template)
    }

    fn watched_by(&self, question: &Question) -> Option<NonZeroU16> {
        let (place, _) = self.rule(question).filter(|(_, rule)| rule.webhook_ttl.is_some())?;
        NonZeroU16::new(u16::try_from(place).ok()?.checked_add(1)?)
    }

    fn ttl(&self, question: &Question) -> Option<Duration> {
        self.rule(question).and_then(|(_, rule)| rule.ttl)
    }
}

/// What a landed fetch is for an asker.
fn given(landed: Landed, role: Role) -> Result<ReadAnswer, Refused> {
    match landed {
        Landed::Entry(entry, fetch) => {
            let outcome = if role == Role::Leader {
                CacheOutcome::Fetched(fetch)
            } else {
                CacheOutcome::Collapsed(fetch)
            };
            Ok(ReadAnswer::Entry(entry, outcome))
        }
        // Nobody else has it.
        Landed::Large(landing) => {
            let reader = Reader::join(&landing.0, None).ok_or(Refused::UpstreamFailed)?;
            Ok(ReadAnswer::Streamed(Box::new(reader), CacheOutcome::Fetched(Fetch::TooLarge)))
        }
        Landed::Refused(refused) => Err(refused),
    }
}
