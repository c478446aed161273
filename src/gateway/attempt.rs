//! One attempt of one request: admission, credential, sending, settling.
//!
//! Reads and writes both come through here. Whether there is another attempt is decided in `perform.rs`.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use tokio::sync::OwnedSemaphorePermit;
use tracing::Instrument;

use crate::api::{Endpoint, LimitRefusal, RateHeaders, ResourceName, limit_refusal};
use crate::clock::Timestamp;
use crate::decision::{AccountId, Demand, Refusal, WriteSpacing};
use crate::telemetry::{MethodName, UpstreamOutcome, spans};
use crate::tokens::{Credential, TokenId};

use super::Gateway;
use super::admission::Lease;
use super::counted::Counted;
use super::effort::Effort;
use super::fetch::{Collected, Exchange, FetchError, OutgoingBody, Reuse, UpstreamRequest};
use super::intake::Service;

/// A refusal's body is never longer than this; what follows says nothing more about limits.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// A request for the upstream, complete but for account and credential.
pub struct Job {
    /// What the table knows about it.
    pub endpoint: &'static Endpoint,
    /// Which of the upstream's addresses.
    pub service: Service,
    /// GET for a read of either kind.
    pub method: Method,
    /// Canonical path and query.
    pub target: String,
    /// End-to-end headers without credential and conditions.
    pub headers: HeaderMap,
    /// The body.
    pub body: OutgoingBody,
    /// Points of the secondary limit.
    pub points: u32,
    /// Whose request it is: the client's place in the config.
    pub client: u32,
    /// How it is spaced from other writes.
    pub spacing: WriteSpacing,
    /// The accounts that may carry it; never empty.
    pub candidates: Arc<[AccountId]>,
    /// How long it may be held.
    pub deadline: Timestamp,
    /// Bytes of the largest body that is held.
    pub hold_max: usize,
    /// The pool or account whose budget the client is told about.
    pub view: Arc<[AccountId]>,
    /// The client's request, for tracing.
    pub span: tracing::Span,
    /// The held body's part of the memory for bodies.
    pub memory: Option<OwnedSemaphorePermit>,
}

/// The validators that a request carries: they belong to tokens (DESIGN D3), so they are known only once the token is.
pub trait Conditions: Sync {
    /// A token whose validators are better than those of others; taken when its account is as good as another.
    fn preferred(&self) -> Option<TokenId>;
    /// The conditions to ask with.
    fn with(&self, token: TokenId) -> HeaderMap;
}

/// Asks without conditions.
pub struct Unconditional;

impl Conditions for Unconditional {
    fn preferred(&self) -> Option<TokenId> {
        None
    }

    fn with(&self, _: TokenId) -> HeaderMap {
        HeaderMap::new()
    }
}

impl Job {
    /// Whether it changes nothing upstream. A GraphQL query is a read although it is a POST.
    pub fn is_read(&self) -> bool {
        self.spacing == WriteSpacing::None
    }
}

/// An answer of the upstream that is not a limit refusal.
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// All headers as received.
    pub headers: HeaderMap,
    /// The body.
    pub body: AnswerBody,
    /// Which token it was asked with.
    pub token: TokenId,
    /// When the request was sent: what the answer shows is not older than this.
    pub requested_at: Timestamp,
}

/// The body of an [`Answer`].
pub enum AnswerBody {
    /// All of it.
    Whole(Bytes),
    /// More than `hold_max`: what was read so far, and where the rest comes from.
    Large {
        /// What was read.
        first: Bytes,
        /// The rest.
        exchange: Box<Exchange>,
        /// The slot it holds upstream.
        held: Held,
    },
}

/// A lease whose answer's head has been read and whose body has not.
pub struct Held {
    lease: Option<Lease>,
    status: StatusCode,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.answered(self.status, None, None);
        }
    }
}

/// An attempt that is admitted and not sent yet.
pub(super) struct Prepared {
    /// What to send.
    pub request: UpstreamRequest,
    /// To be told when it is sent.
    pub lease: Lease,
    /// Its span.
    pub span: tracing::Span,
    credential: Credential,
    resource: ResourceName,
    requested_at: Timestamp,
    #[expect(dead_code, reason = "counts as long as it lives")]
    on_wire: Option<Counted>,
}

/// Why one attempt brought no answer.
pub(super) enum Unanswered {
    Refused(Refusal),
    Limited(LimitRefusal),
    TokenRejected,
    /// The upstream wants another kind of credential for this route.
    CredentialUnfit,
    /// None of the candidates has a token that the upstream still accepts.
    NoToken,
    Failed(FetchError),
}

impl Gateway {
    /// Admission, sending, settling: once.
    pub(super) async fn attempt(
        self: &Arc<Self>,
        job: &Job,
        effort: &Effort,
        conditions: &impl Conditions,
        reuse: Reuse,
    ) -> Result<Answer, Unanswered> {
        let prepared = self.prepare(job, effort, conditions).await?;
        let may_send = || {
            prepared.lease.sending();
            effort.may_send()
        };
        let answered = async {
            let exchange = self.upstream.send(&prepared.request, reuse, may_send).await?;
            let (status, headers) = (exchange.status(), exchange.headers().clone());
            let bytes_max = if status.is_success() { job.hold_max } else { job.hold_max.max(REFUSAL_BYTES_MAX) };
            Ok((status, headers, exchange.collect(bytes_max).await?))
        };
        let result = answered.instrument(prepared.span.clone()).await;
        self.conclude(job, effort, prepared, result)
    }

    /// Admission, and the request complete with its credential.
    pub(super) async fn prepare(
        self: &Arc<Self>,
        job: &Job,
        effort: &Effort,
        conditions: &impl Conditions,
    ) -> Result<Prepared, Unanswered> {
        let (lease, credential, resource) = self.admit(job, effort, conditions.preferred()).await?;
        effort.attempted(lease.account(), &resource);
        let mut headers = job.headers.clone();
        headers.extend(conditions.with(credential.token));
        headers.insert(http::header::AUTHORIZATION, credential.authorization.clone());
        let span = spans::upstream_span(&job.span, MethodName::from(&job.method), self.upstream.host(job.service));
        spans::inject(&span, &mut headers);
        let request = UpstreamRequest {
            service: job.service,
            method: job.method.clone(),
            target: job.target.clone(),
            headers,
            body: job.body.clone(),
        };
        let on_wire = (!job.is_read()).then(|| Counted::new(&self.writes_on_wire));
        Ok(Prepared { request, lease, credential, resource, span, requested_at: self.clock.now(), on_wire })
    }

    /// The end of an attempt, however it came: figures, span, books.
    pub(super) fn conclude(
        &self,
        job: &Job,
        effort: &Effort,
        prepared: Prepared,
        result: Result<(StatusCode, HeaderMap, Collected), FetchError>,
    ) -> Result<Answer, Unanswered> {
        let Prepared { lease, credential, resource, span, requested_at, .. } = prepared;
        let elapsed = self.clock.now().since(requested_at);
        effort.ended(elapsed);
        let status = result.as_ref().ok().map(|(status, ..)| status.as_u16());
        spans::finish_upstream(&span, status);
        if let Err(error @ (FetchError::Connect(_) | FetchError::Deserted)) = result {
            lease.never_sent();
            return Err(Unanswered::Failed(error));
        }
        self.metrics.upstream(&UpstreamOutcome {
            account: self.account_name(lease.account()),
            resource: resource.as_str(),
            endpoint: &job.endpoint.template,
            status,
            duration: elapsed,
        });
        match result {
            Ok((status, headers, body)) => self.settle(job, lease, &credential, requested_at, status, headers, body),
            // The lease's drop counts it as spent.
            Err(error) => Err(Unanswered::Failed(error)),
        }
    }

    /// Waits for an account, and takes one of its tokens.
    async fn admit(
        self: &Arc<Self>,
        job: &Job,
        effort: &Effort,
        prefer: Option<TokenId>,
    ) -> Result<(Lease, Credential, ResourceName), Unanswered> {
        loop {
            let now = self.clock.now();
            let lease = self.admit_once(job, effort, prefer, now).await?;
            // While it waited, the account's token may have been found to be revoked: then its place goes to another account.
            if let Some(credential) = self.tokens.pick(lease.account(), job.endpoint.tokens, prefer, self.clock.now()) {
                let resource = self.resource_of(job);
                return Ok((lease, credential, resource));
            }
        }
    }

    async fn admit_once(
        self: &Arc<Self>,
        job: &Job,
        effort: &Effort,
        prefer: Option<TokenId>,
        now: Timestamp,
    ) -> Result<Lease, Unanswered> {
        let usable = |account: &AccountId| self.tokens.pick(*account, job.endpoint.tokens, None, now).is_some();
        let candidates: Arc<[AccountId]> = if job.candidates.iter().all(usable) {
            Arc::clone(&job.candidates)
        } else {
            job.candidates.iter().copied().filter(usable).collect()
        };
        if candidates.is_empty() {
            return Err(Unanswered::NoToken);
        }
        let demand = Demand {
            candidates,
            prefer: prefer.and_then(|token| self.tokens.account_of(token)),
            resource: self.resource_of(job),
            endpoint: job.endpoint.id,
            cost: job.endpoint.primary_cost,
            points: job.points,
            graphql: job.service == Service::Graphql,
            content: job.endpoint.content_generating,
            write: job.spacing,
        };
        let span = spans::admission_span(&job.span);
        let waiting = self.waiting.get(job.client as usize).map(Counted::new);
        let admitted = self.admissions.acquire(demand, job.deadline).instrument(span).await;
        drop(waiting);
        let waited = self.clock.now().since(now);
        effort.queued(waited);
        if !waited.is_zero() {
            self.metrics.wait("admission", waited);
        }
        admitted.map_err(Unanswered::Refused)
    }

    /// A 401: the token is benched when it is the token's fault.
    fn unauthorized(&self, job: &Job, lease: Lease, credential: &Credential, body: &Collected, rate: Option<&RateHeaders>) -> Unanswered {
        let account = lease.account();
        let is_revoked = names_bad_credentials(body);
        if is_revoked {
            // Before the lease ends: it goes to the next in line, who must not get this token.
            self.tokens.bench(credential.token, self.clock.now());
            tracing::error!(
                account = self.account_name(account),
                token = credential.token.0,
                "the upstream does not accept this token any more"
            );
        } else {
            tracing::warn!(account = self.account_name(account), token = credential.token.0, endpoint = %job.endpoint.template, "the upstream wants another credential for this route");
        }
        lease.answered(StatusCode::UNAUTHORIZED, rate, None);
        if is_revoked { Unanswered::TokenRejected } else { Unanswered::CredentialUnfit }
    }

    /// What the job counts against: the table's word, corrected by what answers said.
    fn resource_of(&self, job: &Job) -> ResourceName {
        self.admissions.with_books(|books, _| books.resource_for(job.endpoint.id, &job.endpoint.resource))
    }

    /// Books an answer and says whether it is one for the client.
    #[expect(clippy::too_many_arguments, reason = "the parts of one answer, taken apart where it was read")]
    fn settle(
        &self,
        job: &Job,
        lease: Lease,
        credential: &Credential,
        requested_at: Timestamp,
        status: StatusCode,
        headers: HeaderMap,
        body: Collected,
    ) -> Result<Answer, Unanswered> {
        let now = self.clock.now();
        let rate = RateHeaders::parse(&headers);
        let account = lease.account();
        let may_refuse = matches!(status, StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS) || job.service == Service::Graphql;
        let refusal = match &body {
            Collected::Whole(bytes) if may_refuse => limit_refusal(status, &headers, bytes, now),
            _ => None,
        };
        if let Some(refusal) = refusal {
            self.metrics.limited(self.account_name(account), limit_name(&refusal));
            tracing::warn!(account = self.account_name(account), limit = limit_name(&refusal), endpoint = %job.endpoint.template, "the upstream refused a request for a limit");
            lease.answered(status, rate.as_ref(), Some(&refusal));
            return match body {
                // Part of the mutation was executed: it is no refusal of the whole, and must not be sent again (CONTRACT §4, 3).
                Collected::Whole(bytes) if !job.is_read() && holds_graphql_data(&bytes) => {
                    Ok(Answer { status, headers, body: AnswerBody::Whole(bytes), token: credential.token, requested_at })
                }
                _ => Err(Unanswered::Limited(refusal)),
            };
        }
        if status == StatusCode::UNAUTHORIZED {
            return Err(self.unauthorized(job, lease, credential, &body, rate.as_ref()));
        }
        let body = match body {
            Collected::Whole(bytes) => {
                lease.answered(status, rate.as_ref(), None);
                AnswerBody::Whole(bytes)
            }
            Collected::TooLarge(first, exchange) => {
                lease.answer_begun(status, rate.as_ref());
                AnswerBody::Large { first, exchange, held: Held { lease: Some(lease), status } }
            }
        };
        Ok(Answer { status, headers, body, token: credential.token, requested_at })
    }
}

/// Whether a 401 is about the token, and not about the route: some routes answer it to every token but an app's own credential.
fn names_bad_credentials(body: &Collected) -> bool {
    let Collected::Whole(bytes) = body else { return false };
    let message: Option<serde_json::Value> = serde_json::from_slice(bytes).ok();
    message.as_ref().and_then(|body| body.get("message")?.as_str()).is_some_and(|message| message.eq_ignore_ascii_case("bad credentials"))
}

/// The word for a refusal by the upstream in metrics and logs.
fn limit_name(refusal: &LimitRefusal) -> &'static str {
    match refusal {
        LimitRefusal::Primary { .. } => "primary",
        LimitRefusal::Secondary { .. } => "secondary",
    }
}

/// Whether a GraphQL answer carries data of some field, beside its errors.
fn holds_graphql_data(body: &[u8]) -> bool {
    let answer: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    match answer.as_ref().and_then(|answer| answer.get("data")) {
        Some(serde_json::Value::Object(fields)) => fields.values().any(|value| !value.is_null()),
        _ => false,
    }
}

/// What a token would have to be for this endpoint, in the words of the specification.
pub fn needed_tokens(endpoint: &Endpoint) -> String {
    use crate::api::TokenKind;
    if endpoint.tokens.accepts_app_jwt() == Some(true) {
        return "it needs an app's own credential (a JWT)".into();
    }
    let kinds: Vec<_> =
        TokenKind::ALL.into_iter().filter(|kind| endpoint.tokens.accepts(*kind) != Some(false)).map(TokenKind::as_str).collect();
    let permission = endpoint.permission.as_ref().map(|permission| format!(" with the permission {permission}")).unwrap_or_default();
    format!("it needs a working token of one of the kinds {}{permission}", kinds.join(", "))
}
