//! What answers teach about the rights of tokens, in the running program: the lock around the pure [`Rights`](crate::decision::rights::Rights), and the order
//! in which a request's accounts and tokens come out of it.
//!
//! Every decision is made in `decision/rights`. Here is what it needs to know of the tokens, and the second look at a denied read.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};

use crate::api::{Denial, accepted_permission};
use crate::clock::Timestamp;
use crate::decision::AccountId;
use crate::decision::freshness::TokenKey;
use crate::decision::rights::plan::{Look, MOMENT, Patience, Resort, Stage, Who};
use crate::decision::rights::{Asked, Found, Holder, Lesson};
use crate::tokens::{Credential, SlotId, TokenId, Trial};

use super::Gateway;
use super::attempt::{Answer, AnswerBody, Unanswered};
use super::candidates::Accounts;
use super::effort::Effort;
use super::fetch::{FetchError, OutgoingBody, Reuse};
use super::intake::Service;
use super::job::{Conditions, Job};

/// How often an account may be found to have no token after all while another one is minted for it. Ours: each time is a refusal that came in between.
const WITHOUT_MAX: usize = 3;

/// How long a second look waits for a token to be minted. Ours: several times what a mint takes; while the upstream mints nothing, what is missing is still said
/// to be missing, soon enough.
const LOOK_WAITS_MAX: Duration = Duration::from_secs(5);

/// One list of accounts that a request is offered to.
pub(super) struct Offer {
    /// Who is in it.
    pub accounts: Accounts,
    /// How long the request may wait for one of them.
    pub deadline: Timestamp,
    /// What their denials are worth.
    pub resort: Resort,
}

/// Whom a request may be offered to.
#[derive(Clone)]
pub(super) enum Whom {
    /// All who may carry it, in the order of what is known of them.
    Anyone,
    /// These alone, for a second look.
    These(Accounts),
}

impl Gateway {
    /// The lists to which a request is offered, one after the other; none when no token of its candidates works. Accounts in `without_token` have been found to
    /// have none.
    pub(super) fn offers(&self, job: &Job, whom: &Whom, without_token: &[AccountId], now: Timestamp) -> Vec<Offer> {
        let unusable = self.unusable(job, without_token, now);
        let stages = match whom {
            // One try is enough for a second look.
            Whom::These(_) if !without_token.is_empty() => Vec::new(),
            Whom::These(accounts) => {
                let deadline = job.deadline.min(now + MOMENT);
                return vec![Offer { accounts: Arc::clone(accounts), deadline, resort: Resort::Ordinary }];
            }
            // Who is alone is asked, whatever is known.
            Whom::Anyone if job.candidates.len() == 1 && unusable.is_empty() => {
                vec![Stage { who: Who::AllBut(Vec::new()), patience: Patience::Whole, resort: Resort::Ordinary }]
            }
            Whom::Anyone => {
                let tokens_of = |account| self.keys_of(job, account);
                self.rights.lock().plan(now, job.asked, &job.candidates, &unusable, &tokens_of)
            }
        };
        let offer = |stage: Stage| Offer {
            accounts: self.candidates.part(&job.candidates, stage.who),
            deadline: match stage.patience {
                Patience::Whole => job.deadline,
                Patience::Moment => job.deadline.min(now + MOMENT),
                Patience::None => now,
            },
            resort: stage.resort,
        };
        stages.into_iter().map(offer).collect()
    }

    /// The job's candidates that have no working token for it and get none in time, in ascending order. Free while all tokens work.
    fn unusable(&self, job: &Job, without_token: &[AccountId], now: Timestamp) -> Vec<AccountId> {
        let mut unusable = self.asleep(job, &job.candidates, now);
        unusable.retain(|account| !self.tokens.comes(*account, job.endpoint.tokens, now, job.deadline));
        // Who gets another one may be asked again, but not for ever.
        let found_without = |account: &AccountId| without_token.iter().filter(|other| *other == account).count();
        let is_left = |account: &AccountId| {
            found_without(account) < WITHOUT_MAX && self.tokens.comes(*account, job.endpoint.tokens, now, job.deadline)
        };
        unusable.extend(without_token.iter().copied().filter(|account| !is_left(account)));
        unusable.sort_unstable();
        unusable.dedup();
        unusable
    }

    /// A working credential of `account` for the job: the best by its rights; among equals one that is to be tried again, then `preferred`.
    pub(super) fn credential(&self, job: &Job, account: AccountId, preferred: Option<TokenId>, now: Timestamp) -> Option<Credential> {
        if let Some(brought) = &job.brought {
            return Some(brought.credential());
        }
        // A body that is passed on once cannot be sent again after its token was refused.
        let trial = if matches!(job.body, OutgoingBody::Streamed(_)) { Trial::Reluctant } else { Trial::Willing };
        let slots = self.tokens.order(account, job.endpoint.tokens, preferred, trial, now);
        let mut keys: Vec<TokenKey> = slots.into_iter().map(key_of).collect();
        if keys.len() > 1 {
            // Leaves equals in their order.
            self.rights.lock().rank(now, job.asked, account, &mut keys);
        }
        keys.into_iter().find_map(|TokenKey(slot)| self.tokens.take(SlotId(slot), now))
    }

    fn keys_of(&self, job: &Job, account: AccountId) -> Vec<TokenKey> {
        self.tokens.fitting(account, job.endpoint.tokens).map(key_of).collect()
    }

    /// Remembers what an answer says about its token. `stored` is the status that a 304 confirms.
    pub(super) fn learn(&self, job: &Job, answer: &Answer, stored: Option<StatusCode>) {
        // What a client's own credential may do is that client's business, and its place somebody else's next.
        if job.brought.is_some() {
            return;
        }
        let Some(lesson) = lesson(answer, stored) else { return };
        let accepted = accepted_permission(&answer.headers, self.config.upstream.dialect);
        let holder = Holder { account: answer.account, token: key_of(answer.token.slot()) };
        self.rights.lock().teach(self.clock.now(), job.asked, holder, lesson, accepted.as_ref());
    }

    /// Remembers that the upstream wants another kind of credential than this one.
    pub(super) fn unfit(&self, job: &Job, account: AccountId, credential: &Credential) {
        let holder = Holder { account, token: key_of(credential.token.slot()) };
        let lesson = Lesson::Denied(Denial::Rights { by_token: false });
        self.rights.lock().teach(self.clock.now(), job.asked, holder, lesson, None);
    }

    /// How many credentials of other kinds a read may be tried with, at most `max`, after it was refused with one.
    pub(super) fn others_of(&self, job: &Job, max: usize) -> usize {
        let credentials = job.candidates.iter().flat_map(|account| self.tokens.fitting(*account, job.endpoint.tokens));
        credentials.take(max + 1).count().saturating_sub(1)
    }

    /// A read that was denied is asked once more of another account that may see more, and what that one says counts when it is more than another denial.
    pub(super) async fn second_look(
        self: &Arc<Self>,
        job: &Job,
        effort: &Effort,
        conditions: &impl Conditions,
        reuse: Reuse,
        first: Answer,
    ) -> Answer {
        let Some((denial, accounts)) = self.second_candidates(job, &first, conditions.stored()).await else { return first };
        let mut look = Looking { gateway: self, asked: job.asked, found: Found::NotLooked };
        let deadline = job.deadline.min(self.clock.now() + LOOK_WAITS_MAX);
        let Some(accounts) = self.awake(job, &accounts, deadline, effort).await else { return first };
        let whom = Whom::These(accounts);
        let mut looked = Box::pin(self.attempt(job, &whom, effort, conditions, reuse)).await;
        if reuse == Reuse::Idle && matches!(looked, Err(Unanswered::Failed(FetchError::Stale(_)))) {
            looked = Box::pin(self.attempt(job, &whom, effort, conditions, Reuse::Never)).await;
        }
        let served = |answer: &Answer| lesson(answer, conditions.stored()) == Some(Lesson::Served);
        look.found = match &looked {
            Ok(second) if served(second) => Found::Something,
            Err(unanswered) if unanswered.was_not_made() => Found::NotLooked,
            _ => Found::Nothing,
        };
        match looked {
            Ok(second) if look.found == Found::Something => {
                let holder = Holder { account: first.account, token: key_of(first.token.slot()) };
                self.rights.lock().teach(self.clock.now(), job.asked, holder, Lesson::ServedElsewhere(denial), None);
                second
            }
            _ => {
                effort.answered_by(first.account);
                first
            }
        }
    }

    /// Who may look again at a denied read; nobody at routes of one account, at writes and at GraphQL.
    async fn second_candidates(&self, job: &Job, first: &Answer, stored: Option<StatusCode>) -> Option<(Denial, Accounts)> {
        if job.method != Method::GET || job.service != Service::Rest || job.candidates.len() < 2 {
            return None;
        }
        // An answer that is still on its way holds its slot and is passed on as it is; one that was confirmed has been looked at before.
        if !matches!(first.body, AnswerBody::Whole(_)) || first.status == StatusCode::NOT_MODIFIED {
            return None;
        }
        let Some(Lesson::Denied(denial)) = lesson(first, stored) else { return None };
        loop {
            // From before the question on, so that no end is missed.
            let mut ended = std::pin::pin!(self.look_ended.notified());
            ended.as_mut().enable();
            let now = self.clock.now();
            let unusable = self.unusable(job, &[], now);
            let tokens_of = |account| self.keys_of(job, account);
            let look = self.rights.lock().second_look(now, job.asked, &job.candidates, &unusable, first.account, &tokens_of);
            match look {
                Look::By(who) => return Some((denial, self.candidates.part(&job.candidates, who))),
                Look::No => return None,
                Look::Later => {}
            }
            tokio::select! {
                () = ended => {}
                () = self.wait_until(job.deadline) => return None,
            }
        }
    }
}

/// A second look under way; tells its end however it comes.
struct Looking<'g> {
    gateway: &'g Gateway,
    asked: Asked,
    found: Found,
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        self.gateway.rights.lock().looked(self.asked, self.found);
        self.gateway.look_ended.notify_waiters();
    }
}

/// What an answer teaches; `None`: nothing. Limit refusals and a 401 do not come here.
pub(super) fn lesson(answer: &Answer, stored: Option<StatusCode>) -> Option<Lesson> {
    let body: &[u8] = if let AnswerBody::Whole(bytes) = &answer.body { bytes } else { b"" };
    // What is confirmed is as it was stored: also a 404.
    let status = if answer.status == StatusCode::NOT_MODIFIED { stored? } else { answer.status };
    match Denial::read(status, &answer.headers, body) {
        Some(denial) => Some(Lesson::Denied(denial)),
        None => (status.is_success() || status.is_redirection()).then_some(Lesson::Served),
    }
}

/// Rights belong to the place: a token that is minted anew has those of the one before.
fn key_of(slot: SlotId) -> TokenKey {
    TokenKey(slot.0)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderMap;

    use super::*;

    fn answered(status: u16, stored: Option<u16>) -> Option<Lesson> {
        let status_of = |status| StatusCode::from_u16(status).unwrap();
        let answer = Answer {
            status: status_of(status),
            headers: HeaderMap::new(),
            body: AnswerBody::Whole(Bytes::new()),
            account: AccountId(0),
            token: TokenId(0),
            requested_at: Timestamp::EPOCH,
        };
        lesson(&answer, stored.map(status_of))
    }

    #[test]
    fn a_confirmed_404_is_still_a_404() {
        assert_eq!(answered(304, Some(404)), Some(Lesson::Denied(Denial::NotFound)));
        assert_eq!(answered(304, Some(200)), Some(Lesson::Served));
        assert_eq!(answered(304, None), None);
    }

    #[test]
    fn faults_of_the_upstream_and_bad_requests_teach_nothing() {
        for status in [400, 401, 409, 410, 422, 429, 451, 500, 502, 503] {
            assert_eq!(answered(status, Some(200)), None, "{status}");
        }
        assert_eq!(answered(301, None), Some(Lesson::Served));
        assert_eq!(answered(404, Some(200)), Some(Lesson::Denied(Denial::NotFound)));
    }
}
