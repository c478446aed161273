//! Suspected tokens. A single 401 proves little about a token: a free question with it confirms the
//! rejection, or clears the token (SPECIFICATION D16). The same question looks at all tokens at the
//! start and for readiness.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use http::HeaderMap;
use tokio::time::timeout;

use crate::clock::Timestamp;
use crate::decision::AccountId;
use crate::tokens::{Credential, HealthState, Rejection};

use crate::gateway::dispatch::attempt::Unanswered;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::dispatch::job::Job;
use crate::gateway::dispatch::progress::RequestProgress;
use crate::gateway::dispatch::questions::{Acceptance, LookState, Recent, Suspicion};

/// Questions of one look under way at once. Chosen here: thousands of tokens take seconds.
const LOOKS_MAX: usize = 32;
/// The distance of looks at all tokens. Chosen here: far less than the points of a minute.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// The longest look. Chosen here: an upstream that hangs must not keep a gateway from its clients.
const LOOK_TIME_MAX: Duration = Duration::from_secs(15);

/// Guard: a look under way.
struct Look<'d>(&'d Dispatcher);

impl Drop for Look<'_> {
    fn drop(&mut self) {
        let looks = &self.0.looks;
        let is_ready = self.0.lacking_token().is_empty();
        {
            let mut state = looks.state.lock();
            *state = LookState {
                is_under_way: false,
                ended_at: Some(self.0.env.clock.now()),
                has_ended: true,
                was_ready: state.was_ready || is_ready,
            };
        }
        looks.ended.notify_waiters();
    }
}

impl Dispatcher {
    /// Resolves the suspicion about the token of an attempt. The token is benched if a question
    /// confirms the 401, or if the question cannot be answered and the 401 was repeated.
    pub async fn cleared_of_suspicion<T>(
        &self,
        job: &Job,
        progress: &RequestProgress,
        result: Result<T, Unanswered>,
    ) -> Result<T, Unanswered> {
        let suspicion = match result {
            Err(Unanswered::TokenSuspected(suspicion)) => suspicion,
            other => return other,
        };
        let Suspicion { credential, account, headers, text } = *suspicion;
        let is_repeated = progress.suspects(credential.token);
        // An answer from before the 401 proves nothing.
        let recent = self.asking.after_now(account);
        // Boxed, because it is rare and larger than the attempt before it.
        match Box::pin(self.ask(account, &credential, recent)).await {
            Acceptance::Rejected(headers, text) => {
                self.bench(account, &credential, &headers, &text);
                Err(Unanswered::TokenRejected)
            }
            Acceptance::Accepted if is_repeated => {
                self.tell_unfit(job, account, &credential, &text);
                Err(Unanswered::CredentialUnfit)
            }
            Acceptance::Unknown(_) if is_repeated => {
                self.bench(account, &credential, &headers, &text);
                Err(Unanswered::TokenRejected)
            }
            Acceptance::Accepted | Acceptance::Unknown(_) => {
                tracing::warn!(
                    account = self.env.account_name(account),
                    token = %credential.source,
                    said = text,
                    "the upstream rejected this token once; it stays in use"
                );
                Err(Unanswered::TokenCleared)
            }
        }
    }

    /// Draws the consequence of a question for the token that asked it.
    pub fn judged(&self, account: AccountId, credential: &Credential, acceptance: &Acceptance) {
        match acceptance {
            Acceptance::Accepted => self.tokens.accepted(credential),
            Acceptance::Rejected(headers, text) => self.bench(account, credential, headers, text),
            Acceptance::Unknown(_) => {}
        }
    }

    /// Takes a rejected token out of use.
    pub fn bench(
        &self,
        account: AccountId,
        credential: &Credential,
        headers: &HeaderMap,
        text: &str,
    ) {
        let account = self.env.account_name(account);
        let token = credential.source.to_string();
        match self.tokens.rejected(credential, self.env.clock.now(), headers, text) {
            Rejection::Benched => tracing::error!(
                account,
                token,
                said = text,
                "this token is benched: the upstream rejected it"
            ),
            Rejection::Replaced => tracing::warn!(
                account,
                token,
                said = text,
                "the upstream rejected this token, a new one replaces it"
            ),
            Rejection::Old => {}
        }
    }

    /// Looks at the tokens if the last look is old, and waits for its end for at most `wait_max`.
    /// Returns false if no look has ended yet.
    pub async fn looked(self: &Arc<Self>, wait_max: Duration) -> bool {
        let ended = self.looks.ended.notified();
        tokio::pin!(ended);
        // Subscribed before the look begins, so that its end is not missed.
        ended.as_mut().enable();
        if self.is_look_due() {
            let dispatcher = Arc::clone(self);
            tokio::spawn(async move { dispatcher.look_at_tokens().await });
        } else if !self.looks.state.lock().is_under_way {
            return true;
        }
        let _ = timeout(wait_max, ended).await;
        self.looks.state.lock().has_ended
    }

    /// True if a token that dies may take the writes of its account, but not the whole gateway, out
    /// of service: everything was ready before.
    pub fn was_ready(&self) -> bool {
        self.looks.state.lock().was_ready
    }

    /// True once a look at the tokens has ended.
    pub fn has_looked(&self) -> bool {
        self.looks.state.lock().has_ended
    }

    /// Asks for the state of one account at once. Fails with the reason.
    pub async fn refresh(&self, account: AccountId) -> Result<(), String> {
        let Some(credential) = self.tokens.for_question(account, self.env.clock.now()) else {
            return Err("it has no working token to ask with".into());
        };
        let acceptance = self.ask_by_operator(account, &credential).await;
        self.judged(account, &credential, &acceptance);
        match acceptance {
            Acceptance::Accepted => Ok(()),
            Acceptance::Rejected(_, problem) | Acceptance::Unknown(problem) => Err(problem),
        }
    }

    /// Asks with every token that may be used, and with those whose pause is over. Another look
    /// under way goes on beside it.
    pub async fn look_at_tokens(&self) {
        self.looks.state.lock().is_under_way = true;
        let look = Look(self);
        let now = self.env.clock.now();
        let accounts = self.env.config.accounts.iter().enumerate();
        let accounts = accounts.filter(|(_, account)| !account.retired);
        let accounts = accounts.map(|(index, _)| self.env.config.account_id(index));
        let slots: Vec<_> = accounts
            .flat_map(|account| {
                let slots: Vec<_> = self.tokens.askable(account).collect();
                let is_proven = slots.len() == 1 && self.was_served(account, now);
                slots.into_iter().filter(move |_| !is_proven).map(move |slot| (account, slot))
            })
            .collect();
        let asked = futures_util::stream::iter(slots).for_each_concurrent(
            LOOKS_MAX,
            |(account, slot)| async move {
                // Taken late: a permit to probe must not wait for its turn.
                let Some(credential) = self.tokens.take(slot, self.env.clock.now()) else { return };
                let mut acceptance = self.ask(account, &credential, Recent::Suffices).await;
                // A single 401 proves little, here too.
                if matches!(acceptance, Acceptance::Rejected(..)) {
                    acceptance = self.ask(account, &credential, Recent::IsTooOld).await;
                }
                self.judged(account, &credential, &acceptance);
            },
        );
        let _ = timeout(LOOK_TIME_MAX, asked).await;
        drop(look);
    }

    /// True if the upstream has served this account lately, so that its only token works.
    fn was_served(&self, account: AccountId, now: Timestamp) -> bool {
        let is_silent =
            |since| self.admissions.with_ledger(|ledger, _| ledger.is_silent_since(account, since));
        self.looks.state.lock().has_ended && !is_silent(now - LOOK_EVERY) && self.all_healthy(now)
    }

    fn all_healthy(&self, now: Timestamp) -> bool {
        self.tokens.all_healthy(now)
    }

    fn is_look_due(&self) -> bool {
        let LookState { is_under_way, ended_at, .. } = *self.looks.state.lock();
        let now = self.env.clock.now();
        let is_pause_over = || {
            let health = self.tokens.health(now);
            health
                .iter()
                .any(|token| matches!(token.state, HealthState::Benched { until } if until <= now))
        };
        !is_under_way
            && ended_at.is_none_or(|at| {
                let age = now.since(at);
                age >= LOOK_EVERY || age >= Duration::from_secs(1) && is_pause_over()
            })
    }
}
