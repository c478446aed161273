//! The permission retry: a denied read is tried once with another account that may see more, and
//! the denial gets its confidence.
//!
//! `decision/permissions` chooses the account and rates the denial. A void denial is delivered only
//! if no better answer is possible. If accounts that have seen the resource are at a limit, the
//! client gets the limit, or a stale answer where the config allows it.

use std::time::Duration;

use http::{Method, StatusCode};

use crate::api::Denial;
use crate::decision::AccountId;
use crate::decision::attempts::PermissionAttempts;
use crate::decision::permissions::denial_confidence::{DenialConfidence, Denials};
use crate::decision::permissions::plan::{PermissionRetry, WaitLimit};
use crate::decision::permissions::{AccessQuery, Observation, RetryResult};
use crate::tokens::Cause;

use crate::gateway::address::Service;
use crate::gateway::dispatch::answer::{AnswerBody, UpstreamAnswer};
use crate::gateway::dispatch::attempt::Unanswered;
use crate::gateway::dispatch::candidates::Accounts;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::dispatch::job::{Conditions, Job};
use crate::gateway::dispatch::permissions::{AccountChoice, observation};
use crate::gateway::dispatch::progress::{Hold, RequestProgress};
use crate::gateway::error::GatewayError;
use crate::gateway::upstream::fetch::{FetchError, Reuse};

/// The longest wait of a permission retry for a mint. Chosen here: several times a mint's duration.
/// Without mints, a missing resource is still reported soon enough.
const RETRY_WAIT_MAX: Duration = Duration::from_secs(5);

/// The end of a permission retry.
enum RetryOutcome {
    Served(UpstreamAnswer),
    /// Another denial, or an answer of no more value.
    Denied(AccountId),
    /// No answer; with the reason, if known.
    NoAnswer(Option<Unanswered>),
}

impl Dispatcher {
    /// Retries a denied read with another account. Its answer counts unless it is another denial.
    pub async fn permission_retry(
        &self,
        job: &Job,
        progress: &RequestProgress,
        conditions: &impl Conditions,
        reuse: Reuse,
        mut first: UpstreamAnswer,
    ) -> Result<UpstreamAnswer, GatewayError> {
        let Some(denial) = denial_of(job, &first, conditions.stored()) else { return Ok(first) };
        let stored = conditions.seen_by().map(|tokens| {
            let mut owners: Vec<AccountId> =
                tokens.into_iter().filter_map(|token| self.tokens.account_of(token)).collect();
            owners.sort_unstable();
            owners
        });
        let mut denied_by = vec![first.account];
        let outcome = match self.second_candidates(job, first.account, stored.as_deref()).await {
            Some(others) => self.retry_with(job, progress, conditions, reuse, others).await,
            None => RetryOutcome::NoAnswer(None),
        };
        let unanswered = match outcome {
            RetryOutcome::Served(second) => {
                let observation = Observation::ServedElsewhere(denial);
                self.record(job, first.account, first.token, observation, None);
                return Ok(second);
            }
            RetryOutcome::Denied(account) => {
                denied_by.push(account);
                None
            }
            RetryOutcome::NoAnswer(unanswered) => unanswered,
        };
        progress.answered_by(first.account);
        let now = self.env.clock.now();
        let (without_prospect, ready_too_late) = self.without_token(job);
        let denials =
            Denials { by: &denied_by, stored: stored.as_deref(), unusable: &without_prospect };
        let tokens_of = |account| self.keys_of(job, account);
        first.denial_confidence = self.permissions.observed.lock().denial_confidence(
            now,
            job.access_query,
            &job.route.candidates,
            &denials,
            &tokens_of,
        );
        if first.denial_confidence == DenialConfidence::Void
            && let Some(error) = self.instead_of_void(job, progress, unanswered, &ready_too_late)
        {
            return Err(error);
        }
        Ok(first)
    }

    /// Sends the retry to accounts that may see more, and reports its end.
    async fn retry_with(
        &self,
        job: &Job,
        progress: &RequestProgress,
        conditions: &impl Conditions,
        reuse: Reuse,
        (accounts, patience): (Accounts, WaitLimit),
    ) -> RetryOutcome {
        let mut guard = RetryGuard {
            dispatcher: self,
            access_query: job.access_query,
            found: RetryResult::NotSent,
        };
        let deadline = job.deadline.min(self.env.clock.now() + RETRY_WAIT_MAX);
        let Some(accounts) = self.with_usable_token(job, &accounts, deadline, progress).await
        else {
            return RetryOutcome::NoAnswer(None);
        };
        let choice = AccountChoice::Only(accounts, patience);
        let mut attempts = PermissionAttempts::default();
        let answered = loop {
            let reuse = if attempts.may_reuse() { reuse } else { Reuse::Never };
            match Box::pin(self.attempt(job, &choice, progress, conditions, reuse)).await {
                // Another of these accounts may be free; admission knows the limits of this one.
                Err(unanswered) if attempts.is_sent_again(self.ended(job, &unanswered, reuse)) => {}
                answered => break answered,
            }
        };
        let served = |answer: &UpstreamAnswer| {
            observation(answer, conditions.stored()) == Some(Observation::Served)
        };
        guard.found = match &answered {
            Ok(second) if served(second) => RetryResult::Something,
            Err(
                Unanswered::Denied(_)
                | Unanswered::NoToken(_)
                | Unanswered::Failed(
                    FetchError::Connect(_)
                    | FetchError::Cancelled
                    | FetchError::TooLate
                    | FetchError::Down,
                ),
            ) => RetryResult::NotSent,
            _ => RetryResult::Nothing,
        };
        match answered {
            Ok(second) if guard.found == RetryResult::Something => RetryOutcome::Served(second),
            // A server error says nothing about the resource.
            Ok(second) if second.status.is_server_error() => {
                RetryOutcome::NoAnswer(Some(Unanswered::Failed(FetchError::Lost(String::new()))))
            }
            Ok(second) => RetryOutcome::Denied(second.account),
            Err(unanswered) => RetryOutcome::NoAnswer(Some(unanswered)),
        }
    }

    async fn second_candidates(
        &self,
        job: &Job,
        first: AccountId,
        stored: Option<&[AccountId]>,
    ) -> Option<(Accounts, WaitLimit)> {
        loop {
            // Subscribed before the decision, so that no end is missed.
            let mut ended = std::pin::pin!(self.permissions.probe_ended.notified());
            ended.as_mut().enable();
            let (without_prospect, ready_too_late) = self.without_token(job);
            let mut unusable = without_prospect.clone();
            unusable.extend(ready_too_late);
            unusable.sort_unstable();
            let denials = Denials { by: &[first], stored, unusable: &without_prospect };
            let tokens_of = |account| self.keys_of(job, account);
            let now = self.env.clock.now();
            let retry = self.permissions.observed.lock().permission_retry(
                now,
                job.access_query,
                &job.route.candidates,
                &unusable,
                first,
                &denials,
                &tokens_of,
            );
            match retry {
                PermissionRetry::By(who, patience) => {
                    let accounts = self.accounts.candidates.part(&job.route.candidates, who);
                    return Some((accounts, patience));
                }
                PermissionRetry::No => return None,
                PermissionRetry::Later => {}
            }
            tokio::select! {
                () = ended => {}
                () = self.env.wait_until(job.deadline) => return None,
            }
        }
    }

    /// The candidates without a usable token now or in time, in ascending order: first those
    /// without any prospect, then those that are only too late.
    fn without_token(&self, job: &Job) -> (Vec<AccountId>, Vec<AccountId>) {
        let now = self.env.clock.now();
        let is_without_prospect = |account: &AccountId| {
            let lack = self.tokens.lack(&[*account], job.route.endpoint.tokens, now);
            lack.is_none_or(|lack| lack.cause == Cause::Refused)
        };
        self.unusable(job, &[], now).into_iter().partition(is_without_prospect)
    }

    /// The error that replaces a void denial; `None` if no limit or fault was in the way.
    fn instead_of_void(
        &self,
        job: &Job,
        progress: &RequestProgress,
        unanswered: Option<Unanswered>,
        ready_too_late: &[AccountId],
    ) -> Option<GatewayError> {
        match unanswered {
            Some(Unanswered::Denied(denied)) => {
                progress.denied(self.env.clock.moment(), Hold::from(&denied));
                Some(self.limited(job.client_route(), &denied))
            }
            Some(Unanswered::Limited(_)) => Some(self.limited_now(job)),
            Some(Unanswered::Failed(FetchError::Cancelled)) => Some(GatewayError::ClientGone),
            Some(Unanswered::Failed(FetchError::Down)) => Some(self.upstream_down(job)),
            Some(Unanswered::Failed(FetchError::Timeout)) => Some(GatewayError::UpstreamTimeout),
            Some(Unanswered::Failed(
                FetchError::Connect(_) | FetchError::TooLate | FetchError::Unsendable(_),
            )) => Some(GatewayError::Unreachable),
            Some(Unanswered::Failed(FetchError::Lost(_) | FetchError::Stale(_))) => {
                Some(GatewayError::UpstreamFailed)
            }
            Some(Unanswered::Failed(FetchError::Undecodable(reason))) => {
                Some(GatewayError::Undecodable(reason.to_string()))
            }
            Some(
                Unanswered::TokenRejected
                | Unanswered::TokenSuspected(_)
                | Unanswered::TokenCleared
                | Unanswered::CredentialUnfit
                | Unanswered::NoToken(_),
            )
            | None => self
                .tokens
                .lack(ready_too_late, job.route.endpoint.tokens, self.env.clock.now())
                .map(GatewayError::TokenUnavailable),
        }
    }
}

/// Guard: reports the end of a permission retry.
struct RetryGuard<'g> {
    dispatcher: &'g Dispatcher,
    access_query: AccessQuery,
    found: RetryResult,
}

impl Drop for RetryGuard<'_> {
    fn drop(&mut self) {
        self.dispatcher.permissions.observed.lock().retry_ended(self.access_query, self.found);
        self.dispatcher.permissions.probe_ended.notify_waiters();
    }
}

/// Returns a denial that another candidate may overrule. Writes and GraphQL have none.
fn denial_of(job: &Job, first: &UpstreamAnswer, stored: Option<StatusCode>) -> Option<Denial> {
    if job.request.method != Method::GET
        || job.request.service != Service::Rest
        || job.route.candidates.len() < 2
    {
        return None;
    }
    // A body in transit holds its slot and is passed on; a revalidated answer was retried before.
    if !matches!(first.body, AnswerBody::Whole(_)) || first.status == StatusCode::NOT_MODIFIED {
        return None;
    }
    match observation(first, stored)? {
        Observation::Denied(denial) => Some(denial),
        Observation::Served | Observation::ServedElsewhere(_) => None,
    }
}
