//! One request brought to an answer: admission, credential, sending, settling, and the next attempt where `decision/retry.rs` allows one.
//!
//! Reads and writes both come through here. What is cached, coalesced or put in a lane is decided by the callers; nothing here knows the client's connection.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use parking_lot::Mutex;
use tracing::Instrument;

use crate::api::{Endpoint, LimitRefusal, RateHeaders, ResourceName, limit_refusal};
use crate::clock::Timestamp;
use crate::decision::retry::{Failure, Next, Policy};
use crate::decision::{AccountId, Demand, LimitKind, Refusal, Until, WriteSpacing};
use crate::telemetry::{MethodName, UpstreamOutcome, spans};
use crate::tokens::{Credential, TokenId};

use super::Gateway;
use super::admission::Lease;
use super::fetch::{Collected, Exchange, FetchError, OutgoingBody, UpstreamRequest};
use super::intake::Service;
use super::random::unit_random;
use super::refuse::Refused;

/// A refusal's body is never longer than this; what follows says nothing more about limits.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// How often a read is tried. Ours: somebody waits for it, and a stored answer may stand in for it; what two more attempts do not mend is an outage.
const READS: Policy = Policy { max_attempts: NonZeroU32::MIN.saturating_add(2) };

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

/// What a request has cost so far; shared by the task that spends and the one that tells the client.
#[derive(Clone, Default)]
pub struct Effort(Arc<Spent>);

#[derive(Default)]
struct Spent {
    sent: AtomicBool,
    figures: Mutex<Figures>,
}

/// The figures of an [`Effort`].
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Requests sent upstream.
    pub attempts: u32,
    /// Time spent waiting for the upstream.
    pub upstream: Duration,
    /// Time spent waiting for admission.
    pub queue: Duration,
    /// The last account.
    pub account: Option<AccountId>,
    /// The resource it was booked under.
    pub resource: Option<ResourceName>,
    /// The last thing that went wrong, in the words of the log.
    pub error: Option<String>,
}

impl Effort {
    /// Whether something is, or has been, on its way upstream.
    pub fn is_sent(&self) -> bool {
        self.0.sent.load(Ordering::Acquire)
    }

    /// A copy of the figures.
    pub fn figures(&self) -> Figures {
        self.0.figures.lock().clone()
    }

    /// Adds time spent waiting for a turn.
    pub fn queued(&self, waited: Duration) {
        self.note(|figures| figures.queue += waited);
    }

    /// Notes that an attempt is about to be made.
    pub(super) fn attempted(&self, account: AccountId, resource: &ResourceName) {
        self.note(|figures| {
            figures.attempts += 1;
            figures.account = Some(account);
            figures.resource = Some(resource.clone());
        });
    }

    /// Notes that the first byte may leave now.
    pub(super) fn sending(&self) {
        self.0.sent.store(true, Ordering::Release);
    }

    /// Notes what went wrong, in the words of the log.
    pub(super) fn failed(&self, error: &FetchError) {
        self.note(|figures| figures.error = Some(error.to_string()));
    }

    fn note(&self, change: impl FnOnce(&mut Figures)) {
        change(&mut self.0.figures.lock());
    }
}

/// Why one attempt brought no answer.
pub(super) enum Unanswered {
    Refused(Refusal),
    Limited(LimitRefusal),
    TokenRejected,
    /// None of the candidates has a token that the upstream still accepts.
    NoToken,
    Failed(FetchError),
}

impl Gateway {
    /// Brings a job to an answer.
    pub async fn perform(self: &Arc<Self>, job: &Job, effort: &Effort, conditions: &impl Conditions) -> Result<Answer, Refused> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let failure = match self.attempt(job, effort, conditions).await {
                Ok(answer) if !answer.status.is_server_error() => return Ok(answer),
                Ok(answer) => match self.next(job, attempt, Failure::Upstream5xx) {
                    Next::Retry { not_before } if not_before <= job.deadline => {
                        self.wait_until(not_before).await;
                        continue;
                    }
                    Next::Unknown => return Err(Refused::OutcomeUnknown),
                    _ => return Ok(answer),
                },
                Err(Unanswered::Refused(refusal)) => return Err(self.limited(job, &refusal)),
                Err(Unanswered::NoToken) => return Err(Refused::TokensRejected),
                // Each rejection benches a token, so this ends.
                Err(Unanswered::TokenRejected) => continue,
                // Each refusal closes an account or a budget, so that the books themselves end it, by waiting or by refusing.
                Err(Unanswered::Limited(_)) if job.is_read() => {
                    attempt -= 1;
                    continue;
                }
                Err(Unanswered::Limited(_)) => Failure::LimitRefusal { until: self.clock.now() },
                Err(Unanswered::Failed(error)) => {
                    effort.failed(&error);
                    match self.after_failure(job, attempt, &error) {
                        Ok(not_before) => self.wait_until(not_before).await,
                        Err(refused) => return Err(refused),
                    }
                    continue;
                }
            };
            match self.next(job, attempt, failure) {
                Next::Retry { .. } | Next::RetryElsewhere => {}
                _ => return Err(self.limited_now(job)),
            }
        }
    }

    /// When to try again after a failure, or what to tell the client.
    fn after_failure(&self, job: &Job, attempt: u32, error: &FetchError) -> Result<Timestamp, Refused> {
        let (failure, is_timeout) = match error {
            FetchError::Connect(_) | FetchError::Unsendable(_) => (Failure::Connect, false),
            FetchError::Lost(_) => (Failure::Ambiguous, false),
            FetchError::Timeout => (Failure::Ambiguous, true),
        };
        match self.next(job, attempt, failure) {
            Next::Retry { not_before } if not_before <= job.deadline => Ok(not_before),
            _ if failure == Failure::Connect => Err(Refused::Unreachable),
            _ if !job.is_read() => Err(Refused::OutcomeUnknown),
            _ if is_timeout => Err(Refused::UpstreamTimeout),
            _ => Err(Refused::UpstreamFailed),
        }
    }

    fn next(&self, job: &Job, attempt: u32, failure: Failure) -> Next {
        let policy = if job.is_read() { READS } else { self.retry };
        policy.next(self.clock.now(), &job.method, attempt, failure, unit_random())
    }

    async fn attempt(self: &Arc<Self>, job: &Job, effort: &Effort, conditions: &impl Conditions) -> Result<Answer, Unanswered> {
        let (lease, credential, resource) = self.admit(job, effort, conditions.preferred()).await?;
        let account = lease.account();
        effort.attempted(account, &resource);
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
        let requested_at = self.clock.now();
        let sending = || {
            lease.sending();
            effort.sending();
        };
        let answered = async {
            let exchange = self.upstream.send(&request, sending).await?;
            let (status, headers) = (exchange.status(), exchange.headers().clone());
            let bytes_max = if status.is_success() { job.hold_max } else { job.hold_max.max(REFUSAL_BYTES_MAX) };
            Ok((status, headers, exchange.collect(bytes_max).await?))
        };
        let result = answered.instrument(span.clone()).await;
        let elapsed = self.clock.now().since(requested_at);
        effort.note(|figures| figures.upstream += elapsed);
        let status = result.as_ref().ok().map(|(status, ..)| status.as_u16());
        spans::finish_upstream(&span, status);
        self.metrics.upstream(&UpstreamOutcome {
            account: self.account_name(account),
            resource: resource.as_str(),
            endpoint: &job.endpoint.template,
            status,
            duration: elapsed,
        });
        match result {
            Ok((status, headers, body)) => self.settle(job, lease, &credential, requested_at, status, headers, body),
            Err(error @ FetchError::Connect(_)) => {
                lease.never_sent();
                Err(Unanswered::Failed(error))
            }
            // The lease's drop counts it as spent.
            Err(error) => Err(Unanswered::Failed(error)),
        }
    }

    /// Waits for an account, and takes one of its tokens.
    pub(super) async fn admit(
        self: &Arc<Self>,
        job: &Job,
        effort: &Effort,
        prefer: Option<TokenId>,
    ) -> Result<(Lease, Credential, ResourceName), Unanswered> {
        let now = self.clock.now();
        let usable = |account: &AccountId| self.tokens.pick(*account, job.endpoint.tokens, None, now).is_some();
        let candidates: Arc<[AccountId]> = if job.candidates.iter().all(usable) {
            Arc::clone(&job.candidates)
        } else {
            job.candidates.iter().copied().filter(usable).collect()
        };
        if candidates.is_empty() {
            return Err(Unanswered::NoToken);
        }
        let resource = self.admissions.with_books(|books, _| books.resource_for(job.endpoint.id, &job.endpoint.resource));
        let demand = Demand {
            candidates,
            prefer: prefer.and_then(|token| self.tokens.account_of(token)),
            resource: resource.clone(),
            endpoint: job.endpoint.id,
            cost: job.endpoint.primary_cost,
            points: job.points,
            graphql: job.service == Service::Graphql,
            content: job.endpoint.content_generating,
            write: job.spacing,
        };
        let span = spans::admission_span(&job.span);
        let admitted = self.admissions.acquire(demand, job.deadline).instrument(span).await;
        let waited = self.clock.now().since(now);
        effort.note(|figures| figures.queue += waited);
        let lease = admitted.map_err(Unanswered::Refused)?;
        let credential = self.tokens.pick(lease.account(), job.endpoint.tokens, prefer, now).ok_or(Unanswered::NoToken)?;
        Ok((lease, credential, resource))
    }

    /// Books an answer and says whether it is one for the client.
    #[expect(clippy::too_many_arguments, reason = "the parts of one answer, taken apart where it was read")]
    pub(super) fn settle(
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
            lease.answered(status, rate.as_ref(), Some(&refusal));
            self.metrics.limited(self.account_name(account), limit_name(&refusal));
            tracing::warn!(account = self.account_name(account), limit = limit_name(&refusal), endpoint = %job.endpoint.template, "the upstream refused a request for a limit");
            return Err(Unanswered::Limited(refusal));
        }
        if status == StatusCode::UNAUTHORIZED {
            lease.answered(status, rate.as_ref(), None);
            self.tokens.bench(credential.token, now);
            tracing::error!(
                account = self.account_name(account),
                token = credential.token.0,
                "the upstream does not accept this token any more"
            );
            return Err(Unanswered::TokenRejected);
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

    /// A refusal of the books, in the client's terms.
    pub fn limited(&self, job: &Job, refusal: &Refusal) -> Refused {
        let now = self.clock.now();
        let until = match refusal.until {
            Until::Time(at) => at,
            // Something in flight decides it: soon, but no time is known.
            Until::Event => now + Duration::from_secs(1),
        };
        let view = self.admissions.with_books(|books, now| books.view(now, &job.view, &refusal.resource));
        Refused::Limited { limit: refusal.limit, until, resource: refusal.resource.clone(), view }
    }

    /// The upstream went on refusing until no attempt was left.
    fn limited_now(&self, job: &Job) -> Refused {
        let resource = job.endpoint.resource.clone();
        let refusal =
            Refusal { limit: LimitKind::Cooldown, account: None, resource, until: Until::Time(self.clock.now() + Duration::from_secs(60)) };
        self.limited(job, &refusal)
    }

    /// Sleeps on the gateway's clock.
    pub async fn wait_until(&self, at: Timestamp) {
        self.clock.reach(at).await;
    }
}

/// The word for a refusal by the upstream in metrics and logs.
fn limit_name(refusal: &LimitRefusal) -> &'static str {
    match refusal {
        LimitRefusal::Primary { .. } => "primary",
        LimitRefusal::Secondary { .. } => "secondary",
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
