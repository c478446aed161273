//! The second look at a denied read: another account of the pool that may see more is asked too,
//! and what the denial is worth is told with it.
//!
//! Who looks, and what a denial is worth, is decided in `decision/rights`. A denial that is void is
//! an answer only when nothing else can be said: while those who have seen the thing are limited,
//! the limit is what the client is told, and a stored answer stands in for it where the config lets
//! it.

use std::time::Duration;

use http::{Method, StatusCode};

use crate::api::Denial;
use crate::decision::AccountId;
use crate::decision::permissions::denial_confidence::{DenialConfidence, Denials};
use crate::decision::permissions::plan::{PermissionRetry, WaitLimit};
use crate::decision::permissions::{AccessQuery, Holder, Observation, RetryResult};
use crate::tokens::Cause;

use crate::decision::attempts::PermissionAttempts;
use crate::gateway::address::Service;
use crate::gateway::dispatch::answer::{Answer, AnswerBody};
use crate::gateway::dispatch::attempt::Unanswered;
use crate::gateway::dispatch::candidates::Accounts;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::dispatch::job::{Conditions, Job};
use crate::gateway::dispatch::permissions::{Whom, observation};
use crate::gateway::dispatch::progress::{Hold, RequestProgress};
use crate::gateway::dispatch::token_keys::key_of;
use crate::gateway::error::GatewayError;
use crate::gateway::upstream::fetch::{FetchError, Reuse};

/// How long a second look waits for a token to be minted. Ours: several times what a mint takes;
/// while the upstream mints nothing, what is missing is still said to be missing, soon enough.
const LOOK_WAITS_MAX: Duration = Duration::from_secs(5);
/// What a second look brought.
enum Looked {
    /// What was asked for.
    Served(Answer),
    /// Another denial, or whatever else does not count for more.
    Denied(AccountId),
    /// Nothing; why, where that is known.
    Nothing(Option<Unanswered>),
}

impl Dispatcher {
    /// A read that was denied is asked once more of another account that may see more, and what
    /// that one says counts when it is more than another denial.
    pub async fn permission_retry(
        &self,
        job: &Job,
        progress: &RequestProgress,
        conditions: &impl Conditions,
        reuse: Reuse,
        mut first: Answer,
    ) -> Result<Answer, GatewayError> {
        let Some(denial) = denial_of(job, &first, conditions.stored()) else { return Ok(first) };
        let stored = conditions.seen_by().map(|tokens| {
            let mut owners: Vec<AccountId> =
                tokens.into_iter().filter_map(|token| self.tokens.account_of(token)).collect();
            owners.sort_unstable();
            owners
        });
        let mut denied_by = vec![first.account];
        let looked = match self.second_candidates(job, first.account, stored.as_deref()).await {
            Some((accounts, patience)) => {
                self.look(job, progress, conditions, reuse, (accounts, patience)).await
            }
            None => Looked::Nothing(None),
        };
        let unanswered = match looked {
            Looked::Served(second) => {
                let holder = Holder { account: first.account, token: key_of(first.token.slot()) };
                self.permissions.observed.lock().record(
                    self.env.clock.now(),
                    job.asked,
                    holder,
                    Observation::ServedElsewhere(denial),
                    None,
                );
                return Ok(second);
            }
            Looked::Denied(account) => {
                denied_by.push(account);
                None
            }
            Looked::Nothing(unanswered) => unanswered,
        };
        progress.answered_by(first.account);
        let now = self.env.clock.now();
        let (hopeless, late) = self.without_token(job);
        let denials = Denials { by: &denied_by, stored: stored.as_deref(), hopeless: &hopeless };
        let tokens_of = |account| self.keys_of(job, account);
        first.verdict = self.permissions.observed.lock().denial_confidence(
            now,
            job.asked,
            &job.route.candidates,
            &denials,
            &tokens_of,
        );
        let refused = if first.verdict == DenialConfidence::Void {
            self.instead_of_void(job, progress, unanswered, &late)
        } else {
            None
        };
        refused.map_or(Ok(first), Err)
    }

    /// Asks those who may see more; tells the end of the look.
    async fn look(
        &self,
        job: &Job,
        progress: &RequestProgress,
        conditions: &impl Conditions,
        reuse: Reuse,
        (accounts, patience): (Accounts, WaitLimit),
    ) -> Looked {
        let mut look =
            RetryGuard { dispatcher: self, asked: job.asked, found: RetryResult::NotSent };
        let deadline = job.deadline.min(self.env.clock.now() + LOOK_WAITS_MAX);
        let Some(accounts) = self.with_usable_token(job, &accounts, deadline, progress).await
        else {
            return Looked::Nothing(None);
        };
        let whom = Whom::These(accounts, patience);
        let mut attempts = PermissionAttempts::default();
        let looked = loop {
            let reuse = if attempts.may_reuse() { reuse } else { Reuse::Never };
            match Box::pin(self.attempt(job, &whom, progress, conditions, reuse)).await {
                // Other accounts of them may be open, and admission knows until when this one is
                // not.
                Err(unanswered) if attempts.is_sent_again(self.ended(job, &unanswered, reuse)) => {}
                looked => break looked,
            }
        };
        let served =
            |answer: &Answer| observation(answer, conditions.stored()) == Some(Observation::Served);
        look.found = match &looked {
            Ok(second) if served(second) => RetryResult::Something,
            Err(unanswered) if unanswered.was_not_made() => RetryResult::NotSent,
            _ => RetryResult::Nothing,
        };
        match looked {
            Ok(second) if look.found == RetryResult::Something => Looked::Served(second),
            // A fault says nothing of what there is.
            Ok(second) if second.status.is_server_error() => {
                Looked::Nothing(Some(Unanswered::Failed(FetchError::Lost(String::new()))))
            }
            Ok(second) => Looked::Denied(second.account),
            Err(unanswered) => Looked::Nothing(Some(unanswered)),
        }
    }

    /// Who may look again at a denied read, and how long they are waited for.
    async fn second_candidates(
        &self,
        job: &Job,
        first: AccountId,
        stored: Option<&[AccountId]>,
    ) -> Option<(Accounts, WaitLimit)> {
        loop {
            // From before the question on, so that no end is missed.
            let mut ended = std::pin::pin!(self.permissions.probe_ended.notified());
            ended.as_mut().enable();
            let (hopeless, late) = self.without_token(job);
            let mut unusable = hopeless.clone();
            unusable.extend(late);
            unusable.sort_unstable();
            let denials = Denials { by: &[first], stored, hopeless: &hopeless };
            let tokens_of = |account| self.keys_of(job, account);
            let now = self.env.clock.now();
            let look = self.permissions.observed.lock().permission_retry(
                now,
                job.asked,
                &job.route.candidates,
                &unusable,
                first,
                &denials,
                &tokens_of,
            );
            match look {
                PermissionRetry::By(who, patience) => {
                    return Some((
                        self.accounts.candidates.part(&job.route.candidates, who),
                        patience,
                    ));
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

    /// The job's candidates that have no working token and get none in time, in ascending order:
    /// those that get none at all, and those that only come too late.
    fn without_token(&self, job: &Job) -> (Vec<AccountId>, Vec<AccountId>) {
        let now = self.env.clock.now();
        let is_hopeless = |account: &AccountId| {
            let lack = self.tokens.lack(&[*account], job.route.endpoint.tokens, now);
            lack.is_none_or(|lack| lack.cause == Cause::Refused)
        };
        self.unusable(job, &[], now).into_iter().partition(is_hopeless)
    }

    /// What a client is told in place of a denial that is void; `None`: nothing keeps anybody from
    /// answering.
    fn instead_of_void(
        &self,
        job: &Job,
        progress: &RequestProgress,
        unanswered: Option<Unanswered>,
        late: &[AccountId],
    ) -> Option<GatewayError> {
        match unanswered {
            Some(Unanswered::Denied(refusal)) => {
                progress.refused(Hold::from(&refusal));
                Some(self.limited(job, &refusal))
            }
            Some(Unanswered::Limited(_)) => Some(self.limited_now(job)),
            Some(Unanswered::Failed(FetchError::Cancelled)) => Some(GatewayError::ClientGone),
            Some(Unanswered::Failed(FetchError::Timeout)) => Some(GatewayError::UpstreamTimeout),
            Some(Unanswered::Failed(FetchError::Connect(_) | FetchError::Unsendable(_))) => {
                Some(GatewayError::Unreachable)
            }
            Some(Unanswered::Failed(FetchError::Lost(_) | FetchError::Stale(_))) => {
                Some(GatewayError::UpstreamFailed)
            }
            Some(
                Unanswered::TokenRejected | Unanswered::CredentialUnfit | Unanswered::NoToken(_),
            )
            | None => self
                .tokens
                .lack(late, job.route.endpoint.tokens, self.env.clock.now())
                .map(GatewayError::TokenUnavailable),
        }
    }
}

/// A second look under way; tells its end however it comes.
struct RetryGuard<'g> {
    dispatcher: &'g Dispatcher,
    asked: AccessQuery,
    found: RetryResult,
}

impl Drop for RetryGuard<'_> {
    fn drop(&mut self) {
        self.dispatcher.permissions.observed.lock().retry_ended(self.asked, self.found);
        self.dispatcher.permissions.probe_ended.notify_waiters();
    }
}

/// The denial that others may know better than; none at routes of one account, at writes and at
/// GraphQL.
fn denial_of(job: &Job, first: &Answer, stored: Option<StatusCode>) -> Option<Denial> {
    if job.request.method != Method::GET
        || job.request.service != Service::Rest
        || job.route.candidates.len() < 2
    {
        return None;
    }
    // An answer that is still on its way holds its slot and is passed on as it is; one that was
    // confirmed has been looked at before.
    if !matches!(first.body, AnswerBody::Whole(_)) || first.status == StatusCode::NOT_MODIFIED {
        return None;
    }
    match observation(first, stored)? {
        Observation::Denied(denial) => Some(denial),
        Observation::Served | Observation::ServedElsewhere(_) => None,
    }
}
