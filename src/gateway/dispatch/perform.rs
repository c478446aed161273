//! A request brought to an answer: one attempt after another, as far as `decision/retry.rs` allows
//! (DESIGN D6, D7).
//!
//! What is cached, coalesced or put in a lane is decided by the callers; nothing here knows the
//! client's connection.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::api::UpstreamLimit;
use crate::clock::Timestamp;
use crate::decision::cache::freshness::Mode;
use crate::decision::retry::{Failure, Next, Patience, Policy};
use crate::decision::{AccountId, LimitDenied, LimitKind, Until};

use crate::gateway::dispatch::answer::Answer;
use crate::gateway::dispatch::attempt::Unanswered;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::dispatch::job::{Conditions, Job};
use crate::gateway::dispatch::permissions::Whom;
use crate::gateway::dispatch::progress::RequestProgress;
use crate::gateway::error::GatewayError;
use crate::gateway::random::unit_random;
use crate::gateway::upstream::fetch::{FetchError, Reuse};

/// How often a read is tried. Ours: somebody waits for it, and a stored answer may stand in for it;
/// what two more attempts do not mend is an outage.
const READS: Policy =
    Policy { max_attempts: NonZeroU32::MIN.saturating_add(2), patience: Patience::Waiting };

/// How many refused tokens one request goes through. Ours: more than the tokens of an account that
/// are revoked at once.
const REJECTIONS_MAX: u32 = 20;

/// How many further credentials a read is tried with that the upstream wants another kind for.
/// Ours: as many as there are kinds that differ.
const UNFIT_MAX: usize = 3;

/// Why no token may carry a request whose upstream answered 401 for another reason than the token.
pub const UNFIT: &str = "the upstream wants another kind of credential for it";

impl Dispatcher {
    /// Brings a job to an answer.
    pub async fn perform(
        &self,
        job: &Job,
        progress: &RequestProgress,
        conditions: &impl Conditions,
    ) -> Result<Answer, GatewayError> {
        let mut may_have_run = job.journal.as_ref().is_some_and(|journal| journal.may_have_run());
        let performed = self.attempts(job, progress, conditions, &mut may_have_run).await;
        if !may_have_run || job.is_read() {
            return performed;
        }
        // Whatever stopped a later attempt, an earlier one may have been executed: that is what a
        // writer has to know (CONTRACT §4, 3). Also when a repetition finds nothing to delete, or
        // something in its way: it may be the earlier one's doing.
        match performed {
            Ok(answer) if answer.status.is_client_error() && job.journal.is_none() => {
                Err(GatewayError::OutcomeUnknown)
            }
            // A queued write that is not to be sent now may be sent later.
            Err(refused)
                if !matches!(refused, GatewayError::ClientGone) || job.journal.is_none() =>
            {
                Err(GatewayError::OutcomeUnknown)
            }
            performed => performed,
        }
    }

    async fn attempts(
        &self,
        job: &Job,
        progress: &RequestProgress,
        conditions: &impl Conditions,
        may_have_run: &mut bool,
    ) -> Result<Answer, GatewayError> {
        let mut attempt = job.journal.as_ref().map_or(0, |journal| journal.attempts());
        let mut refusals = 0;
        let mut rejections = 0;
        let mut unfit = 0;
        let mut has_met_stale = false;
        loop {
            attempt += 1;
            let reuse = if has_met_stale { Reuse::Never } else { self.reuse(job, attempt) };
            match self.attempt(job, &Whom::Anyone, progress, conditions, reuse).await {
                // A plain HTTP cache passes on what it was answered; what was lost is repeated all
                // the same (RFC 9110 §9.2.2).
                Ok(answer)
                    if !answer.status.is_server_error()
                        || self.env.mode == Mode::Rfc9111 && job.is_read() =>
                {
                    return self.permission_retry(job, progress, conditions, reuse, answer).await;
                }
                Ok(answer) => match self.next(job, attempt, Failure::Upstream5xx) {
                    Next::Retry { not_before } if not_before <= job.deadline => {
                        *may_have_run = true;
                        job.failed(not_before, true);
                        self.rest(job, not_before).await?;
                    }
                    // With a queued write the answer is kept, as that of one whose outcome is
                    // unknown.
                    Next::Unknown | Next::Retry { .. }
                        if !job.is_read() && job.journal.is_none() =>
                    {
                        return Err(GatewayError::OutcomeUnknown);
                    }
                    _ => return Ok(answer),
                },
                Err(Unanswered::Denied(refusal)) => return Err(self.limited(job, &refusal)),
                Err(Unanswered::NoToken(lack)) => {
                    return Err(
                        lack.map_or(GatewayError::TokensRejected, GatewayError::TokenUnavailable)
                    );
                }
                // Each rejection benches a token or has it replaced once; the bound is for an
                // upstream that takes back whatever it gives.
                Err(Unanswered::TokenRejected) => {
                    attempt -= 1;
                    rejections += 1;
                    job.failed(self.env.clock.now(), false);
                    if rejections > REJECTIONS_MAX {
                        return Err(GatewayError::TokensRejected);
                    }
                }
                // Each refusal closes an account or a budget, so that a read goes to the next one.
                // An upstream that goes on refusing all of them is not asked any more.
                Err(Unanswered::Limited(_)) if job.is_read() => {
                    attempt -= 1;
                    refusals += 1;
                    if refusals > job.route.candidates.len() {
                        return Err(self.limited_now(job));
                    }
                }
                // The books know until when; a queued write has to know it by itself, should this
                // process not live to see it.
                Err(Unanswered::Limited(refusal)) => {
                    match self.next(
                        job,
                        attempt,
                        Failure::UpstreamLimit { until: self.closed_until(&refusal) },
                    ) {
                        Next::Retry { not_before } => job.failed(not_before, false),
                        Next::RetryElsewhere => {}
                        _ => return Err(self.limited_now(job)),
                    }
                }
                // The connection had been closed by the upstream, most likely before the request:
                // at once, and on one of its own. There is an attempt left for it.
                Err(Unanswered::Failed(FetchError::Stale(_))) if reuse == Reuse::Idle => {
                    *may_have_run = true;
                    job.failed(self.env.clock.now(), true);
                    has_met_stale = true;
                }
                // It is remembered as denied, so that another one goes first.
                Err(Unanswered::CredentialUnfit)
                    if job.is_read() && unfit < self.others_of(job, UNFIT_MAX) =>
                {
                    attempt -= 1;
                    unfit += 1;
                }
                Err(Unanswered::CredentialUnfit) => {
                    return Err(GatewayError::NoToken(UNFIT.into()));
                }
                Err(Unanswered::Failed(error)) => {
                    progress.failed(&error);
                    *may_have_run |= error.may_have_run();
                    let not_before = self.after_failure(job, attempt, &error)?;
                    job.failed(not_before, error.may_have_run());
                    self.rest(job, not_before).await?;
                }
            }
        }
    }

    /// When to try again after a failure, or what to tell the client.
    fn after_failure(
        &self,
        job: &Job,
        attempt: u32,
        error: &FetchError,
    ) -> Result<Timestamp, GatewayError> {
        let (failure, is_timeout) = match error {
            FetchError::Cancelled => return Err(GatewayError::ClientGone),
            FetchError::Connect(_) | FetchError::Unsendable(_) => (Failure::Connect, false),
            FetchError::Lost(_) | FetchError::Stale(_) => (Failure::Ambiguous, false),
            FetchError::Timeout => (Failure::Ambiguous, true),
        };
        match self.next(job, attempt, failure) {
            Next::Retry { not_before } if not_before <= job.deadline => Ok(not_before),
            _ if failure == Failure::Connect => Err(GatewayError::Unreachable),
            _ if !job.is_read() => Err(GatewayError::OutcomeUnknown),
            _ if is_timeout => Err(GatewayError::UpstreamTimeout),
            _ => Err(GatewayError::UpstreamFailed),
        }
    }

    fn next(&self, job: &Job, attempt: u32, failure: Failure) -> Next {
        let patience = job.journal.as_ref().map_or(Patience::Waiting, |journal| journal.patience());
        let policy = if job.is_read() {
            READS
        } else {
            Policy { max_attempts: self.env.config.writes.max_attempts, patience }
        };
        policy.next(self.env.clock.now(), job.repeated_as(), attempt, failure, unit_random())
    }

    /// Whether an attempt may go over a connection that was used before: that of a write only while
    /// it could be repeated, should the connection die under it.
    fn reuse(&self, job: &Job, attempt: u32) -> Reuse {
        if job.is_read()
            || matches!(self.next(job, attempt, Failure::Ambiguous), Next::Retry { .. })
        {
            Reuse::of(&job.request.method)
        } else {
            Reuse::Never
        }
    }

    /// A refusal of the books, in the client's terms.
    pub fn limited(&self, job: &Job, refusal: &LimitDenied) -> GatewayError {
        self.limited_for(&job.route.view, refusal)
    }

    /// The same for a client that is told about these accounts.
    pub fn limited_for(&self, view: &Arc<[AccountId]>, refusal: &LimitDenied) -> GatewayError {
        let now = self.env.clock.now();
        let until = match refusal.until {
            Until::Time(at) => at,
            // Something in flight decides it: soon, but no time is known.
            Until::Event => now + Duration::from_secs(1),
        };
        let view = self.admissions.view(view, &refusal.resource).0;
        GatewayError::Limited {
            limit: refusal.limit,
            until,
            resource: refusal.resource.clone(),
            view,
        }
    }

    /// The pause between two attempts. A queued write goes back to its queue for a long one: its
    /// place is for those that can be sent.
    async fn rest(&self, job: &Job, not_before: Timestamp) -> Result<(), GatewayError> {
        /// Ours: shorter ones are not worth a way back.
        const REST_HERE_MAX: Duration = Duration::from_secs(2);
        let is_queued =
            job.journal.as_ref().is_some_and(|journal| journal.patience() == Patience::Queued);
        if is_queued && not_before > self.env.clock.now() + REST_HERE_MAX {
            return Err(GatewayError::ClientGone);
        }
        self.env.wait_until(not_before).await;
        Ok(())
    }

    /// Until when the upstream is not to be asked again after a refusal, as far as it says
    /// (UPSTREAM.md, Limits).
    fn closed_until(&self, refusal: &UpstreamLimit) -> Timestamp {
        self.env.clock.now() + refusal.retry_after().unwrap_or(Duration::from_secs(60))
    }

    /// The upstream went on refusing until no attempt was left.
    pub fn limited_now(&self, job: &Job) -> GatewayError {
        let resource = job.route.endpoint.resource.clone();
        let refusal = LimitDenied {
            limit: LimitKind::Cooldown,
            account: None,
            resource,
            until: Until::Time(self.env.clock.now() + Duration::from_secs(60)),
        };
        self.limited(job, &refusal)
    }
}
