//! One attempt of one request: admission, credential, sending, settlement.
//!
//! Reads and writes both come through here. `perform.rs` decides on further attempts.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use tracing::Instrument;

use crate::api::{Denial, RateHeaders, ResourceName, UpstreamLimit, upstream_limit};
use crate::clock::{Moment, Timestamp};
use crate::decision::attempts::TokenWaits;

use crate::decision::deadline::answer_by;
use crate::decision::permissions::Observation;
use crate::decision::permissions::denial_confidence::DenialConfidence;
use crate::decision::permissions::plan::DenialRole;
use crate::decision::{AccountId, ClientId, Demand, LimitDenied, units_spent};
use crate::telemetry::spans::{self, TraceSpan, UpstreamCall};
use crate::telemetry::{LogText, MethodName, UpstreamOutcome};
use crate::tokens::{Credential, Lack, Source, TokenId};

use crate::gateway::address::Service;
use crate::gateway::counted::Counted;
use crate::gateway::dispatch::admission::Lease;
use crate::gateway::dispatch::answer::{
    AnswerBody, StreamingLease, UpstreamAnswer, status_and_message,
};
use crate::gateway::dispatch::breaker::heard;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::dispatch::findings::Finding;
use crate::gateway::dispatch::graphql_prices::Measured;
use crate::gateway::dispatch::job::{Conditions, Job};
use crate::gateway::dispatch::permissions::{AccountChoice, Offer, observation};
use crate::gateway::dispatch::progress::{Hold, RequestProgress};
use crate::gateway::dispatch::questions::Suspicion;
use crate::gateway::http::headers::upstream_request_id;
use crate::gateway::upstream::fetch::{Collected, Exchange, FetchError, Reuse, UpstreamRequest};

/// The bytes of an error body that are read. Further bytes say nothing about limits.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// The longest way of a permission to the first byte, with replicas. Ours: half of the time after
/// which the others take over what a replica had.
const SENT_WITHIN: Duration = Duration::from_secs(5);

/// An admitted attempt before it is sent.
pub struct Prepared<'j> {
    pub request: UpstreamRequest<'j>,
    pub span: TraceSpan,
    admitted: Admitted,
    requested_at: Timestamp,
    /// The same, to measure its duration.
    began: Moment,
    /// The status that a 304 stands for.
    stored: Option<StatusCode>,
    /// Counts a write as long as it lives.
    on_wire: Option<Counted>,
}

impl Prepared<'_> {
    /// The upstream has taken a piece of the body: writes that wait for it are not unanswered.
    pub fn body_taken(&self) {
        self.admitted.lease.body_taken();
    }
}

/// A lease with the token that will use it.
struct Admitted {
    lease: Lease,
    credential: Credential,
    resource: ResourceName,
    /// The limit of likelier accounts, reported if the last resort denies the read.
    expected: Option<LimitDenied>,
}

/// The upstream's answer before it is settled.
pub struct UnsettledAnswer {
    status: StatusCode,
    headers: HeaderMap,
    body: Collected,
}

impl UnsettledAnswer {
    /// True if the whole body was read.
    pub fn is_whole(&self) -> bool {
        matches!(self.body, Collected::Whole(_))
    }

    pub fn status(&self) -> StatusCode {
        self.status
    }

    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    pub fn into_parts(self) -> (StatusCode, HeaderMap, Collected) {
        (self.status, self.headers, self.body)
    }

    /// Reads a body up to `held_max` bytes, and that of an error up to `error_max` if more. A body
    /// that stalls ends with `answer_by`.
    pub async fn read(
        mut exchange: Box<Exchange>,
        held_max: usize,
        error_max: usize,
        answer_by: Option<Timestamp>,
    ) -> Result<Self, FetchError> {
        let (status, headers) = exchange.take_head();
        let bytes_max = if status.is_success() { held_max } else { held_max.max(error_max) };
        Ok(Self { status, headers, body: exchange.collect(bytes_max, answer_by).await? })
    }
}

/// The reason why an attempt got no answer.
pub enum Unanswered {
    Denied(LimitDenied),
    Limited(UpstreamLimit),
    TokenRejected,
    /// The upstream rejected the token, perhaps by mistake.
    /// [`Dispatcher::cleared_of_suspicion`] replaces it.
    TokenSuspected(Box<Suspicion>),
    /// The upstream rejected the token, which stays in use.
    TokenCleared,
    /// The upstream wants another kind of credential for this route.
    CredentialUnfit,
    /// No candidate has an accepted token; with the reason why none could be minted.
    NoToken(Option<Lack>),
    Failed(FetchError),
}

impl Dispatcher {
    /// Admits, sends and settles once.
    pub async fn attempt(
        &self,
        job: &Job,
        choice: &AccountChoice,
        progress: &RequestProgress,
        conditions: &impl Conditions,
        reuse: Reuse,
    ) -> Result<UpstreamAnswer, Unanswered> {
        let prepared = self.prepare(job, choice, progress, conditions).await?;
        if let Some(journal) = &job.journal
            && journal.sending().await.is_err()
        {
            return self.finish(job, progress, prepared, Err(FetchError::Cancelled));
        }
        let result = self.answered(job, progress, &prepared, reuse);
        let result = result.instrument(prepared.span.as_tracing().clone()).await;
        let finished = self.finish(job, progress, prepared, result);
        self.cleared_of_suspicion(job, progress, finished).await
    }

    /// Sends what was prepared and reads the answer, unless the upstream goes down meanwhile.
    async fn answered(
        &self,
        job: &Job,
        progress: &RequestProgress,
        prepared: &Prepared<'_>,
        reuse: Reuse,
    ) -> Result<UnsettledAnswer, FetchError> {
        let answer_by = self.answer_by(job, progress);
        let breaker = self.breaker(job);
        let listening = breaker.begin();
        let answered = pin!(async {
            let overdue = async {
                let Some(answer_by) = answer_by else { return std::future::pending().await };
                self.env.timeouts.reach(answer_by).await;
                self.upstream.overdue(job.request.service, prepared.admitted.lease.was_sent())
            };
            let exchange = {
                let sent = pin!(self.send(prepared, progress, reuse));
                unless(overdue, sent).await?
            };
            UnsettledAnswer::read(exchange, job.hold_max, ERROR_BYTES_MAX, answer_by).await
        });
        // A write on its way is not given up: its outcome would be unknown.
        let is_down = async {
            if !job.is_read() {
                return std::future::pending().await;
            }
            breaker.opened().await;
            FetchError::Down
        };
        let result = unless(is_down, answered).await;
        listening.ended(heard(result.as_ref().map(UnsettledAnswer::is_whole)));
        result
    }

    /// The time by which the job's client is answered, by the clock of timeouts; `None`: no client
    /// waits.
    pub(super) fn answer_by(&self, job: &Job, progress: &RequestProgress) -> Option<Timestamp> {
        let upstream = &self.env.config.upstream;
        let (total, one_answer) = (upstream.total_timeout, upstream.response_timeout);
        (!job.is_queued()).then(|| answer_by(job.began, progress.queued(), total, one_answer))
    }

    /// Admits the request and adds its credential.
    pub async fn prepare<'j>(
        &self,
        job: &'j Job,
        choice: &AccountChoice,
        progress: &RequestProgress,
        conditions: &impl Conditions,
    ) -> Result<Prepared<'j>, Unanswered> {
        let admitted = tokio::select! {
            biased;
            _ = self.breaker(job).opened() => return Err(Unanswered::Failed(FetchError::Down)),
            admitted = self.admit(job, choice, progress, conditions.preferred()) => admitted?,
        };
        let began = self.env.clock.moment();
        let (account, resource) = (admitted.lease.account(), &admitted.resource);
        let resent = progress.attempted(began, account, resource, admitted.lease.chosen());
        let mut added = conditions.with(&admitted.credential);
        let authorization = admitted.credential.authorization.clone();
        added.extend(authorization.map(|value| (AUTHORIZATION, value)));
        let span = spans::upstream_span(
            &job.span,
            &UpstreamCall {
                method: MethodName::from(&job.request.method),
                server_address: self.upstream.host(job.request.service),
                target: &job.request.target,
                resent,
            },
        );
        spans::inject(&span, &mut added);
        let request =
            UpstreamRequest { request: &job.request, added, interims: job.interims.as_deref() };
        let on_wire = (!job.is_read()).then(|| Counted::new(&self.writes_on_wire));
        let (requested_at, stored) = (self.env.clock.now(), conditions.stored());
        Ok(Prepared { request, span, admitted, requested_at, began, stored, on_wire })
    }

    /// Sends what was prepared, unless the request was cancelled meanwhile.
    pub async fn send(
        &self,
        prepared: &Prepared<'_>,
        progress: &RequestProgress,
        reuse: Reuse,
    ) -> Result<Box<Exchange>, FetchError> {
        let may_send = || {
            // Another replica may have the limits' part, or repeat the write, or not hear of it.
            if let Some(replica) = &self.env.replica {
                let age = self.env.clock.moment().since(prepared.began);
                let (is_write, now) = (prepared.on_wire.is_some(), self.env.clock.now());
                if age > SENT_WITHIN || is_write && replica.is_out_of_touch(now) {
                    return Err(FetchError::TooLate);
                }
            }
            prepared.admitted.lease.sending();
            if progress.may_send() { Ok(()) } else { Err(FetchError::Cancelled) }
        };
        self.upstream.send(&prepared.request, reuse, may_send).await
    }

    /// Ends an attempt in every case: progress, span, quota ledger.
    pub fn finish(
        &self,
        job: &Job,
        progress: &RequestProgress,
        prepared: Prepared<'_>,
        result: Result<UnsettledAnswer, FetchError>,
    ) -> Result<UpstreamAnswer, Unanswered> {
        let Prepared { span, admitted, requested_at, began, stored, .. } = prepared;
        let Admitted { lease, credential, resource, expected } = admitted;
        let elapsed = self.env.clock.moment().since(began);
        progress.ended(elapsed);
        self.note_end(progress, elapsed, &result);
        let status = result.as_ref().ok().map(|answer| answer.status.as_u16());
        spans::finish_upstream(&span, status);
        let never_sent = match &result {
            Ok(_) => false,
            Err(FetchError::Connect(_) | FetchError::Cancelled | FetchError::TooLate) => true,
            // Such as a read that was given up before it had a connection.
            Err(_) => !lease.was_sent(),
        };
        let result = match result {
            Err(error) if never_sent => {
                lease.never_sent();
                return Err(Unanswered::Failed(error));
            }
            result => result,
        };
        self.env.metrics.upstream(&UpstreamOutcome {
            account: self.env.account_name(lease.account()),
            resource: resource.as_str(),
            endpoint: &job.route.endpoint.template,
            method: MethodName::from(&job.request.method),
            server_address: self.upstream.host(job.request.service),
            status,
            duration: elapsed,
            trace: spans::ids(&span).as_ref(),
        });
        let account = lease.account();
        let spent = |units| self.count_spent(job, progress, account, &resource, units);
        let mut answer = match result {
            Ok(answer) => answer,
            Err(error) => {
                spent(job.route.cost);
                // Otherwise the gateway gave up, and the drop of the lease says so.
                if matches!(error, FetchError::Lost(_) | FetchError::Stale(_)) {
                    lease.lost();
                }
                return Err(Unanswered::Failed(error));
            }
        };
        self.tokens.observe(&mut answer.headers, self.env.clock.now(), elapsed);
        if let Some(id) = upstream_request_id(&answer.headers) {
            progress.answered_as(LogText::request_id(id));
        }
        let status = answer.status;
        let settled = self.settle(job, lease, credential, requested_at, answer);
        let is_refused = matches!(settled, Err(Unanswered::Limited(_)));
        spent(units_spent(status, is_refused, job.route.cost));
        if let Ok(answer) = &settled {
            self.observe(job, answer, stored);
        }
        let is_denied = match &settled {
            Ok(answer) => matches!(observation(answer, stored), Some(Observation::Denied(_))),
            Err(unanswered) => matches!(unanswered, Unanswered::CredentialUnfit),
        };
        match expected {
            Some(denied) if is_denied => Err(Unanswered::Denied(denied)),
            _ => settled,
        }
    }

    /// Waits for an account and takes one of its tokens.
    async fn admit(
        &self,
        job: &Job,
        choice: &AccountChoice,
        progress: &RequestProgress,
        prefer: Option<TokenId>,
    ) -> Result<Admitted, Unanswered> {
        let mut without_token = Vec::new();
        let mut token_waits = TokenWaits::default();
        loop {
            let (lease, expected) =
                match self.admit_once(job, choice, &without_token, progress, prefer).await {
                    // A permission retry that is not made denies nothing.
                    Err(Unanswered::Denied(denied)) if matches!(choice, AccountChoice::All) => {
                        if token_waits.begin() && self.another_minted(job, progress).await {
                            continue;
                        }
                        progress.denied(self.env.clock.moment(), Hold::from(&denied));
                        return Err(Unanswered::Denied(denied));
                    }
                    admitted => admitted?,
                };
            // The account's token may have been rejected during the wait; then another one is used.
            let now = self.env.clock.now();
            if let Some(credential) = self.credential(job, lease.account(), prefer, now) {
                let resource = self.resource_of(job);
                return Ok(Admitted { lease, credential, resource, expected });
            }
            without_token.push(lease.account());
        }
    }

    /// Acquires a lease of one of the accounts, the likeliest first. For a last resort it also
    /// returns the limit denial of the likelier ones.
    async fn admit_once(
        &self,
        job: &Job,
        choice: &AccountChoice,
        without_token: &[AccountId],
        progress: &RequestProgress,
        prefer: Option<TokenId>,
    ) -> Result<(Lease, Option<LimitDenied>), Unanswered> {
        let mut denied = None;
        for mut offer in self.offers(job, choice, without_token, self.env.clock.now()) {
            let usable = self.with_usable_token(job, &offer.accounts, offer.deadline, progress);
            let Some(usable) = usable.await else { continue };
            offer.accounts = usable;
            match (self.acquire(job, &offer, progress, prefer).await, offer.resort) {
                (Ok(lease), DenialRole::Ordinary) => return Ok((lease, None)),
                (Ok(lease), DenialRole::Last) => return Ok((lease, denied)),
                (Err(denial), DenialRole::Ordinary) => denied = Some(denial),
                (Err(_), DenialRole::Last) => {}
            }
        }
        if let Some(denied) = denied {
            return Err(Unanswered::Denied(denied));
        }
        let (now, accepted) = (self.env.clock.now(), job.route.endpoint.tokens);
        // Requests a mint even without time to wait, so that the next request finds a token.
        self.tokens.missed(&job.route.candidates, accepted, now);
        Err(Unanswered::NoToken(self.tokens.lack(&job.route.candidates, accepted, now)))
    }

    pub(super) async fn acquire(
        &self,
        job: &Job,
        offer: &Offer,
        progress: &RequestProgress,
        prefer: Option<TokenId>,
    ) -> Result<Lease, LimitDenied> {
        let owner = prefer.and_then(|token| self.tokens.account_of(token));
        let demand = Demand {
            client: ClientId(job.client),
            held_bytes: job.request.body.held_bytes(),
            candidates: Arc::clone(&offer.accounts),
            prefer: owner,
            resource: job.route.endpoint.resource.clone(),
            endpoint: job.route.endpoint.id,
            cost: job.route.cost,
            unproven: job.route.operation.map_or(0, |operation| {
                let proven = self.admissions.graphql_prices.proven(operation.key);
                job.route.cost.saturating_sub(proven)
            }),
            points: job.route.points,
            graphql: job.request.service == Service::Graphql,
            content: job.route.content,
            token_request: job.route.endpoint.token_request,
            write: job.route.spacing,
        };
        let span = spans::admission_span(&job.span);
        let waiting = self.waits(job.client, progress);
        let now = || self.env.clock.moment();
        let held = |denied: &LimitDenied| progress.held(now(), Hold::from(denied));
        let mut admitted =
            self.admissions.acquire(demand, offer.deadline, held).instrument(span.clone()).await;
        drop(waiting);
        if let Ok(lease) = &mut admitted {
            lease.chosen_among(offer.accounts.len(), owner);
            self.count_shadowed(job, progress, lease);
        }
        if !span.is_disabled()
            && let Some(hold) = progress.figures(now()).held
        {
            spans::record_wait_cause(&span, &hold.for_log(&self.env));
        }
        admitted
    }

    /// Handles a 401. A token that may be at fault is suspected; a known culprit is benched.
    fn unauthorized(
        &self,
        job: &Job,
        lease: Lease,
        credential: Credential,
        headers: HeaderMap,
        body: &Collected,
    ) -> Unanswered {
        let account = lease.account();
        let rate = RateHeaders::parse(&headers);
        let body: &[u8] = if let Collected::Whole(bytes) = body { bytes } else { &[] };
        let answer_text = status_and_message(StatusCode::UNAUTHORIZED, body);
        let is_revoked = match credential.source {
            // A JWT is used only where no other credential is accepted, so the fault is its own.
            Source::App(_) => true,
            // Neither can be revoked.
            Source::Anonymous | Source::Client => false,
            Source::Configured(_) | Source::Installation(_) => {
                answer_text.eq_ignore_ascii_case("401 bad credentials")
            }
        };
        let unanswered = if !is_revoked {
            self.tell_unfit(job, account, &credential, &answer_text);
            Unanswered::CredentialUnfit
        } else if credential.is_probe() || matches!(credential.source, Source::App(_)) {
            // Before the lease ends: the next request in the wait queue must not get this token.
            self.bench(account, &credential, &headers, &answer_text);
            Unanswered::TokenRejected
        } else {
            let suspicion = Suspicion { credential, account, headers, text: answer_text };
            Unanswered::TokenSuspected(Box::new(suspicion))
        };
        lease.answered(StatusCode::UNAUTHORIZED, rate.as_ref(), None);
        unanswered
    }

    /// Records that the upstream wants another credential for this route.
    pub(super) fn tell_unfit(
        &self,
        job: &Job,
        account: AccountId,
        credential: &Credential,
        text: &str,
    ) {
        tracing::warn!(account = self.env.account_name(account), token = %credential.source, said = text, endpoint = %job.route.endpoint.template, "the upstream wants another credential for this route");
        let denied = Observation::Denied(Denial::MissingPermission { by_token: false });
        self.record(job, account, credential.token, denied, None);
    }

    /// Learns the price of a GraphQL operation from its answer.
    fn learn_price(&self, job: &Job, status: StatusCode, body: Option<&[u8]>, price: Measured) {
        if let (Some(operation), StatusCode::OK) = (job.route.operation, status) {
            let learned = self.admissions.graphql_prices.learn(job.client, operation, body, price);
            if let (Some(price), Some(_)) = (learned, &self.env.replica) {
                self.permissions.findings.note(Finding::Price(operation.key, price));
            }
        }
    }

    /// The resource of the job: the table's entry, corrected by earlier answers.
    fn resource_of(&self, job: &Job) -> ResourceName {
        self.admissions.with_ledger(|ledger, _| {
            ledger.resource_for(job.route.endpoint.id, &job.route.endpoint.resource)
        })
    }

    /// Settles an answer and decides if it goes to the client.
    fn settle(
        &self,
        job: &Job,
        lease: Lease,
        credential: Credential,
        requested_at: Timestamp,
        UnsettledAnswer { status, headers, body }: UnsettledAnswer,
    ) -> Result<UpstreamAnswer, Unanswered> {
        let now = self.env.clock.now();
        // A fault of a client's own credential is passed to the client.
        if status == StatusCode::UNAUTHORIZED && job.client_credential.is_none() {
            return Err(self.unauthorized(job, lease, credential, headers, &body));
        }
        if !status.is_server_error() {
            self.tokens.accepted(&credential);
        }
        let rate = RateHeaders::parse(&headers);
        let (account, token, denial_confidence) =
            (lease.account(), credential.token, DenialConfidence::Final);
        let may_refuse = matches!(status, StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS)
            || job.request.service == Service::Graphql;
        let limit = match &body {
            Collected::Whole(bytes) if may_refuse => upstream_limit(status, &headers, bytes, now),
            _ => None,
        };
        if let Some(limit) = &limit {
            self.note_limit(job, account, limit);
        }
        let body = match (body, limit) {
            (Collected::Whole(bytes), limit) => {
                let measured = lease.answered(status, rate.as_ref(), limit.as_ref());
                if limit.is_none() {
                    let limit = rate.as_ref().map(|rate| rate.limit);
                    self.learn_price(
                        job,
                        status,
                        Some(&bytes),
                        Measured { units: measured, limit },
                    );
                }
                match limit {
                    // Otherwise a part of the mutation was executed: no repetition
                    // (SPECIFICATION, "Promises" 3).
                    Some(limit) if job.is_read() || !holds_graphql_data(&bytes) => {
                        return Err(Unanswered::Limited(limit));
                    }
                    _ => AnswerBody::Whole(bytes),
                }
            }
            (Collected::TooLarge(first, exchange), _) => {
                let measured = lease.answer_begun(status, rate.as_ref());
                let limit = rate.as_ref().map(|rate| rate.limit);
                self.learn_price(job, status, None, Measured { units: measured, limit });
                let held = StreamingLease::new(lease, status);
                AnswerBody::SharedBody { first, exchange, held }
            }
        };
        Ok(UpstreamAnswer {
            status,
            headers,
            body,
            client: job.client,
            account,
            token,
            requested_at,
            denial_confidence,
        })
    }
}

/// Runs a step until `end` gives the reason to end it. The caller pins the step: moved here, it
/// would take its space twice.
async fn unless<T>(
    end: impl Future<Output = FetchError>,
    step: Pin<&mut impl Future<Output = Result<T, FetchError>>>,
) -> Result<T, FetchError> {
    tokio::select! {
        biased;
        done = step => done,
        error = end => Err(error),
    }
}

/// True if a GraphQL answer has data for some field beside its errors.
fn holds_graphql_data(body: &[u8]) -> bool {
    let answer: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    match answer.as_ref().and_then(|answer| answer.get("data")) {
        Some(serde_json::Value::Object(fields)) => fields.values().any(|value| !value.is_null()),
        _ => false,
    }
}
