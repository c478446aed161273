//! The shell around [`Permissions`](crate::decision::permissions::Permissions): its lock, and the
//! order of a request's accounts and tokens.
//!
//! `decision/permissions` decides. `permission_retry.rs` has the retry of a denied read.

use std::sync::Arc;

use http::StatusCode;

use crate::api::{AcceptedPermission, Denial, Table, accepted_permission};
use crate::clock::Timestamp;
use crate::decision::permissions::plan::{DenialRole, SHORT_WAIT, Stage, WaitLimit};
use crate::decision::permissions::{AccessQuery, Holder, Observation};
use crate::decision::{AccountId, ClientId, TokenKey};
use crate::tokens::{Credential, ProbeReadiness, SlotId, TokenId};

use crate::gateway::address::path_of;
use crate::gateway::dispatch::answer::{AnswerBody, UpstreamAnswer};
use crate::gateway::dispatch::candidates::Accounts;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::dispatch::findings::Finding;
use crate::gateway::dispatch::job::Job;
use crate::gateway::upstream::outgoing::OutgoingBody;

/// The most times that an account may turn out to have no token while one is minted for it. Chosen
/// here: each time is a rejection in between.
const WITHOUT_MAX: usize = 3;

/// A list of accounts that may carry a request.
pub struct Offer {
    pub accounts: Accounts,
    /// The end of the wait for one of them.
    pub deadline: Timestamp,
    /// The confidence in their denials.
    pub resort: DenialRole,
}

/// The accounts that may carry a request.
#[derive(Clone)]
pub enum AccountChoice {
    /// All candidates, in the order of their recorded permissions.
    All,
    /// Only these, for a permission retry with this wait limit.
    Only(Accounts, WaitLimit),
}

impl Dispatcher {
    /// Returns the lists for a request, to be tried in order; none if no candidate has a usable
    /// token. Accounts in `without_token` turned out to have none.
    pub fn offers(
        &self,
        job: &Job,
        choice: &AccountChoice,
        without_token: &[AccountId],
        now: Timestamp,
    ) -> Vec<Offer> {
        let candidates = &job.route.candidates;
        let offer = |accounts: Accounts, patience, resort| Offer {
            accounts,
            deadline: deadline(job, patience, now),
            resort,
        };
        let unusable = self.unusable(job, without_token, now);
        let stages = match choice {
            // A permission retry gets one try.
            AccountChoice::Only(..) if !without_token.is_empty() => return Vec::new(),
            AccountChoice::Only(accounts, patience) => {
                return vec![offer(Arc::clone(accounts), *patience, DenialRole::Ordinary)];
            }
            // A single account is used, whatever its permissions.
            AccountChoice::All if candidates.len() == 1 && unusable.is_empty() => {
                let only = Arc::clone(candidates);
                return vec![offer(only, WaitLimit::Whole, DenialRole::Ordinary)];
            }
            AccountChoice::All => {
                let tokens_of = |account| self.keys_of(job, account);
                let observed = self.permissions.observed.lock();
                observed.plan(now, job.access_query, candidates, &unusable, &tokens_of)
            }
        };
        let offered = |stage: Stage| {
            let accounts = self.accounts.candidates.part(candidates, stage.accounts);
            offer(accounts, stage.patience, stage.resort)
        };
        stages.into_iter().map(offered).collect()
    }

    /// The candidates without a usable token now or in time, in ascending order.
    pub fn unusable(
        &self,
        job: &Job,
        without_token: &[AccountId],
        now: Timestamp,
    ) -> Vec<AccountId> {
        let accepted = job.route.endpoint.tokens;
        let comes = |account: &AccountId| self.tokens.comes(*account, accepted, now, job.deadline);
        let mut unusable = self.without_usable_token(job, &job.route.candidates, now);
        unusable.retain(|account| !comes(account));
        // An account that gets another token is tried again, but not for ever.
        let found_without =
            |account: &AccountId| without_token.iter().filter(|other| *other == account).count();
        let is_left = |account: &AccountId| found_without(account) < WITHOUT_MAX && comes(account);
        unusable.extend(without_token.iter().copied().filter(|account| !is_left(account)));
        unusable.sort_unstable();
        unusable.dedup();
        unusable
    }

    /// Takes a usable credential of `account` for the job. The order: recorded permissions, a token
    /// due for another trial, then `preferred`.
    pub fn credential(
        &self,
        job: &Job,
        account: AccountId,
        preferred: Option<TokenId>,
        now: Timestamp,
    ) -> Option<Credential> {
        if let Some(client_credential) = &job.client_credential {
            return Some(client_credential.credential());
        }
        // A streamed body cannot be sent again after a rejected token.
        let trial = if matches!(job.request.body, OutgoingBody::Streamed(_)) {
            ProbeReadiness::Reluctant
        } else {
            ProbeReadiness::Willing
        };
        let slots = self.tokens.order(account, job.route.endpoint.tokens, preferred, trial, now);
        let mut keys: Vec<TokenKey> = slots.into_iter().map(key_of).collect();
        if keys.len() > 1 {
            // A stable sort: equals keep their order.
            self.permissions.observed.lock().rank(now, job.access_query, account, &mut keys);
        }
        keys.into_iter().find_map(|TokenKey(slot)| self.tokens.take(SlotId(slot), now))
    }

    pub fn keys_of(&self, job: &Job, account: AccountId) -> Vec<TokenKey> {
        self.tokens.fitting(account, job.route.endpoint.tokens).map(key_of).collect()
    }

    /// Records an answer as an observation about its token. `stored` is the status behind a 304.
    pub fn observe(&self, job: &Job, answer: &UpstreamAnswer, stored: Option<StatusCode>) {
        // A client's own credential is not recorded, and its dynamic account may change hands.
        if job.client_credential.is_some() {
            return;
        }
        let Some(observation) = observation(answer, stored) else { return };
        let accepted = accepted_permission(&answer.headers, self.env.config.upstream.dialect);
        self.record(job, answer.account, answer.token, observation, accepted.as_ref());
    }

    pub(super) fn record(
        &self,
        job: &Job,
        account: AccountId,
        token: TokenId,
        observation: Observation,
        accepted: Option<&AcceptedPermission<'_>>,
    ) {
        let (now, holder) = (self.env.clock.now(), Holder { account, token: key_of(token.slot()) });
        let is_news = self.permissions.observed.lock().record(
            now,
            job.access_query,
            holder,
            observation,
            accepted,
        );
        // With one credential there is nothing to choose, here or elsewhere.
        if is_news && self.env.replica.is_some() && self.others_of(job, 1) > 0 {
            self.permissions.findings.note(Finding::Permission {
                holder,
                method: job.request.method.clone(),
                path: path_of(&job.request.target).to_owned(),
                observation,
                accepted: accepted.map(|accepted| (accepted.name.to_owned(), accepted.access)),
            });
        }
    }

    /// Takes the news for the other replicas.
    pub fn take_findings(&self) -> Vec<Finding> {
        let mut findings = self.permissions.findings.take();
        findings.extend(self.admissions.own_news().into_iter().map(Finding::Spent));
        findings
    }

    /// Learns what another replica has learned.
    pub fn learn(&self, finding: Finding) {
        match finding {
            Finding::Permission { holder, method, path, observation, accepted } => {
                let table = Table::embedded(self.env.config.upstream.dialect);
                let query = AccessQuery::of(table.classify(&method, &path).endpoint, &path);
                let accepted = accepted.as_ref();
                let accepted =
                    accepted.map(|(name, access)| AcceptedPermission { name, access: *access });
                let (now, accepted) = (self.env.clock.now(), accepted.as_ref());
                let mut observed = self.permissions.observed.lock();
                observed.record(now, query, holder, observation, accepted);
            }
            Finding::Price(operation, price) => {
                self.admissions.graphql_prices.set(ClientId::BACKGROUND.0, operation, price);
            }
            Finding::Spent(spent) => self.admissions.add_own_spent(&[spent]),
        }
    }

    /// The number of further credentials for a denied read, at most `max`.
    pub fn others_of(&self, job: &Job, max: usize) -> usize {
        let credentials = job
            .route
            .candidates
            .iter()
            .flat_map(|account| self.tokens.fitting(*account, job.route.endpoint.tokens));
        credentials.take(max + 1).count().saturating_sub(1)
    }
}

pub fn token_key(token: TokenId) -> TokenKey {
    TokenKey(token.0)
}

/// Permissions belong to the slot: a newly minted token has those of its predecessor.
pub fn key_of(slot: SlotId) -> TokenKey {
    TokenKey(slot.0)
}

fn deadline(job: &Job, patience: WaitLimit, now: Timestamp) -> Timestamp {
    match patience {
        WaitLimit::Whole => job.deadline,
        WaitLimit::Moment => job.deadline.min(now + SHORT_WAIT),
        WaitLimit::None => now,
    }
}

/// The observation in an answer; `None` if it has none. Limit errors and 401 are handled elsewhere.
pub fn observation(answer: &UpstreamAnswer, stored: Option<StatusCode>) -> Option<Observation> {
    let body: &[u8] = if let AnswerBody::Whole(bytes) = &answer.body { bytes } else { b"" };
    // A 304 repeats the stored answer, a 404 included.
    let status = if answer.status == StatusCode::NOT_MODIFIED { stored? } else { answer.status };
    match Denial::read(status, &answer.headers, body) {
        Some(denial) => Some(Observation::Denied(denial)),
        None => (status.is_success() || status.is_redirection()).then_some(Observation::Served),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderMap;

    use super::*;
    use crate::decision::permissions::denial_confidence::DenialConfidence;

    fn answered(status: u16, stored: Option<u16>) -> Option<Observation> {
        let status_of = |status| StatusCode::from_u16(status).unwrap();
        let answer = UpstreamAnswer {
            status: status_of(status),
            headers: HeaderMap::new(),
            body: AnswerBody::Whole(Bytes::new()),
            client: 0,
            account: AccountId(0),
            token: TokenId(0),
            requested_at: Timestamp::EPOCH,
            denial_confidence: DenialConfidence::Final,
        };
        observation(&answer, stored.map(status_of))
    }

    #[test]
    fn a_revalidated_404_is_still_a_404() {
        assert_eq!(answered(304, Some(404)), Some(Observation::Denied(Denial::NotFound)));
        assert_eq!(answered(304, Some(200)), Some(Observation::Served));
        assert_eq!(answered(304, None), None);
    }

    #[test]
    fn upstream_faults_and_bad_requests_yield_no_observation() {
        for status in [400, 401, 409, 410, 422, 429, 451, 500, 502, 503] {
            assert_eq!(answered(status, Some(200)), None, "{status}");
        }
        assert_eq!(answered(301, None), Some(Observation::Served));
        assert_eq!(answered(404, Some(200)), Some(Observation::Denied(Denial::NotFound)));
    }
}
