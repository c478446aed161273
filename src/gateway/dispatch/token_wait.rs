//! Requests that wait for a token to be minted: an installation that nobody missed for an hour has
//! none (`tokens::installation`).
//!
//! Accounts that have a token go first, since a mint costs time and a request of the app. Those
//! without are waited for where a list of accounts that are equally likely to serve a request has
//! no other, and where the others can carry nothing. When a mint is due is known to `tokens/`; it
//! is sent by `mint`.

use crate::clock::Timestamp;
use crate::decision::AccountId;
use crate::decision::permissions::plan::AccountSet;
use crate::gateway::dispatch::candidates::Accounts;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::dispatch::job::Job;
use crate::gateway::dispatch::progress::{Hold, RequestProgress};

/// So few accounts are looked at themselves, rather than all that have a credential out of use:
/// those of a write, mostly one. Ours.
const FEW: usize = 4;

impl Dispatcher {
    /// Those of `accounts` that have a token for the job; when none has, it waits for one until
    /// `deadline`. `None` when none comes. The list itself while all have one.
    pub async fn with_usable_token(
        &self,
        job: &Job,
        accounts: &Accounts,
        deadline: Timestamp,
        progress: &RequestProgress,
    ) -> Option<Accounts> {
        let began = self.env.clock.now();
        let mut without_usable_token = self.without_usable_token(job, accounts, began);
        if without_usable_token.len() < accounts.len() {
            return Some(
                self.accounts.candidates.part(accounts, AccountSet::AllBut(without_usable_token)),
            );
        }
        let accepted = job.route.endpoint.tokens;
        let _waiting = self.waits(job.client, progress);
        let mut tried = Vec::new();
        loop {
            // Asked for before looking, so that no end of a mint is missed between the two.
            let minted = self.tokens.mint_ended();
            let now = self.env.clock.now();
            without_usable_token = self.without_usable_token(job, accounts, now);
            if without_usable_token.len() < accounts.len() {
                return Some(
                    self.accounts
                        .candidates
                        .part(accounts, AccountSet::AllBut(without_usable_token)),
                );
            }
            // One at a time: thousands may be idle. AccountSet was tried before is tried again when nobody
            // else is left.
            let wanted =
                |account: &&AccountId| self.tokens.want(&[**account], accepted, now, deadline);
            let next = without_usable_token
                .iter()
                .filter(|account| !tried.contains(*account))
                .find(wanted);
            let next = next.or_else(|| tried.iter().find(wanted)).copied()?;
            if now >= deadline {
                return None;
            }
            tried.push(next);
            progress.held(began, Hold::MINT);
            tokio::select! {
                () = minted => {}
                () = self.env.wait_until(deadline) => {}
            }
        }
    }

    /// The candidates that have a token can carry nothing for as long as the job may wait: whether
    /// another one has been given one meanwhile.
    pub async fn another_minted(&self, job: &Job, progress: &RequestProgress) -> bool {
        let without_usable_token =
            self.without_usable_token(job, &job.route.candidates, self.env.clock.now());
        if without_usable_token.is_empty() {
            return false;
        }
        let without_usable_token = self
            .accounts
            .candidates
            .part(&job.route.candidates, AccountSet::Only(without_usable_token));
        self.with_usable_token(job, &without_usable_token, job.deadline, progress).await.is_some()
    }

    /// Those of `accounts` without a usable token for the job, in ascending order. Free while all
    /// tokens work.
    pub fn without_usable_token(
        &self,
        job: &Job,
        accounts: &[AccountId],
        now: Timestamp,
    ) -> Vec<AccountId> {
        if job.client_credential.is_some() || self.tokens.all_healthy(now) {
            return Vec::new();
        }
        let is_asleep =
            |account: &AccountId| !self.tokens.is_usable(*account, job.route.endpoint.tokens, now);
        if accounts.len() <= FEW {
            return accounts.iter().copied().filter(is_asleep).collect();
        }
        let mut impaired = self.tokens.unhealthy_accounts(now);
        impaired.retain(|account| accounts.binary_search(account).is_ok() && is_asleep(account));
        impaired
    }
}
