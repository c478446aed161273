//! Requests that wait for a token mint: an installation without requests for an hour has no token
//! (`tokens::installation`).
//!
//! Accounts with a usable token come first, because a mint takes time and a request of the app. The
//! others are waited for if they are the only equally likely accounts, or if the rest are at their
//! limits. `tokens/` decides when a mint is due; `mint` sends it.

use crate::clock::Timestamp;
use crate::decision::AccountId;
use crate::decision::permissions::plan::AccountSet;
use crate::gateway::dispatch::candidates::Accounts;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::dispatch::job::Job;
use crate::gateway::dispatch::progress::{Hold, RequestProgress};

/// Up to this many accounts are checked one by one; for more, the list of unusable tokens is
/// searched. A write usually has one. Chosen here.
const FEW: usize = 4;

impl Dispatcher {
    /// Returns the accounts with a usable token for the job. If there are none, waits for a mint
    /// until `deadline`; `None` if none arrives. Returns the list itself if all have one.
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
            // Subscribed before the check, so that no mint is missed in between.
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
            // One at a time: thousands may be idle. AccountSet was tried before is tried again when
            // nobody else is left.
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

    /// True if a candidate got a token after those with one met their limits for the whole wait.
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

    /// The accounts without a usable token, in ascending order. Free while all tokens work.
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
