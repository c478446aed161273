//! Performs a request: one attempt after another, as far as `decision/attempts.rs` allows
//! (SPECIFICATION D6, D7).
//!
//! Callers decide on caching, single flight and lanes. The client's connection is left out.

use std::num::NonZeroU32;

use crate::clock::Timestamp;
use crate::decision::attempts::{Attempted, Attempts, Ended, Finished, Record, Step};
use crate::decision::cache::freshness::Mode;
use crate::decision::retry::{Patience, Policy};

use crate::gateway::dispatch::answer::UpstreamAnswer;
use crate::gateway::dispatch::attempt::Unanswered;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::dispatch::job::{Conditions, Job};
use crate::gateway::dispatch::permissions::AccountChoice;
use crate::gateway::dispatch::progress::RequestProgress;
use crate::gateway::error::GatewayError;
use crate::gateway::random::unit_random;
use crate::gateway::upstream::fetch::Reuse;

/// The attempts of a read. Chosen here: a client waits for it, a stale answer may replace it, and a
/// fault that outlasts two more attempts is an outage.
const READS: Policy =
    Policy { max_attempts: NonZeroU32::MIN.saturating_add(2), patience: Patience::Waiting };

impl Dispatcher {
    pub async fn perform(
        &self,
        job: &Job,
        progress: &RequestProgress,
        conditions: &impl Conditions,
    ) -> Result<UpstreamAnswer, GatewayError> {
        let terms = job.journal.as_ref().map(|journal| journal.terms());
        let policy = if job.is_read() {
            READS
        } else {
            Policy {
                max_attempts: self.env.config.writes.max_attempts,
                patience: terms.map_or(Patience::Waiting, |terms| terms.patience),
            }
        };
        let mut attempts = Attempts::new(Attempted {
            policy,
            method: job.repeated_as().clone(),
            is_read: job.is_read(),
            kept: terms.map(|terms| (terms.attempts, terms.may_have_run)),
            candidates: job.route.candidates.len(),
            deadline: job.deadline,
        });
        let performed = self.attempt_all(job, progress, conditions, &mut attempts).await;
        let finished = match &performed {
            Ok(answer) if answer.status.is_client_error() => Finished::ClientError,
            Ok(_) => Finished::Answered,
            Err(GatewayError::ClientGone) => Finished::NotNow,
            Err(_) => Finished::Failed,
        };
        if attempts.outcome_is_unknown(finished) {
            return Err(GatewayError::OutcomeUnknown);
        }
        performed
    }

    async fn attempt_all(
        &self,
        job: &Job,
        progress: &RequestProgress,
        conditions: &impl Conditions,
        attempts: &mut Attempts,
    ) -> Result<UpstreamAnswer, GatewayError> {
        loop {
            self.while_down(job).await?;
            if !self.while_unheard(job).await {
                let failed = attempts.failed_before().filter(|_| job.journal.is_none());
                return Err(failed
                    .map_or(GatewayError::StateAway, |failed| self.error_of(job, failed, None)));
            }
            let reuse = if attempts.begin(self.env.clock.now(), unit_random()) {
                Reuse::of(&job.request.method)
            } else {
                Reuse::Never
            };
            let attempted =
                self.attempt(job, &AccountChoice::All, progress, conditions, reuse).await;
            let ended = match &attempted {
                Err(Unanswered::Denied(denied)) => {
                    return Err(match attempts.failed_before().filter(|_| job.journal.is_none()) {
                        Some(failed) => self.error_of(job, failed, None),
                        None => self.denied(job, denied),
                    });
                }
                Err(Unanswered::NoToken(None)) => return Err(GatewayError::TokensRejected),
                Err(Unanswered::NoToken(Some(lack))) => {
                    return Err(GatewayError::TokenUnavailable(lack.clone()));
                }
                Err(unanswered) => self.ended(job, unanswered, reuse),
                // A plain HTTP cache passes on every answer, except to a write that is kept; lost
                // reads are repeated (RFC 9110 §9.2.2).
                Ok(answer)
                    if answer.status.is_server_error()
                        && !(self.env.mode == Mode::Rfc9111 && job.journal.is_none()) =>
                {
                    Ended::ServerError
                }
                Ok(_) => Ended::Answered,
            };
            if let Err(Unanswered::Failed(error)) = &attempted
                && ended != Ended::StaleConnection
            {
                progress.failed(error);
            }
            let left = |answer_by: Timestamp| answer_by.since(self.env.timeouts.now());
            let answer_by = self.answer_by(job, progress).map(left);
            attempts.set_answer_by(answer_by.map(|left| self.env.clock.now() + left));
            let decided = attempts.ended(self.env.clock.now(), ended, unit_random());
            if let Some(Record { not_before, may_have_run }) = decided.record {
                job.failed(not_before, may_have_run);
            }
            match decided.step {
                Step::Send => {}
                Step::Wait(until) if job.is_queued() => self.env.wait_until(until).await,
                Step::Wait(until) => tokio::select! {
                    () = self.env.wait_until(until) => {}
                    _ = self.breaker(job).opened() => {}
                },
                Step::Deliver => {
                    let answer = attempted.map_err(|_| GatewayError::UpstreamFailed)?;
                    if ended == Ended::ServerError {
                        return Ok(answer);
                    }
                    return self.permission_retry(job, progress, conditions, reuse, answer).await;
                }
                Step::Fail(failed) => return Err(self.error_of(job, failed, attempted.err())),
            }
        }
    }
}
