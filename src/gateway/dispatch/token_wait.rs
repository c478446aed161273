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
        let (now, began) = (self.env.clock.now(), self.env.clock.moment());
        if let Ok(accounts) = self.part_with_usable_token(job, accounts, now) {
            return Some(accounts);
        }
        let accepted = job.route.endpoint.tokens;
        let _waiting = self.waits(job.client, progress);
        let mut tried = Vec::new();
        loop {
            // Subscribed before the check, so that no mint is missed in between.
            let minted = self.tokens.mint_ended();
            let now = self.env.clock.now();
            let without_usable_token = match self.part_with_usable_token(job, accounts, now) {
                Ok(accounts) => return Some(accounts),
                Err(without_usable_token) => without_usable_token,
            };
            // One at a time: thousands may be idle. Each is tried again when no other is left.
            let wanted =
                |account: &&AccountId| self.tokens.want(&[**account], accepted, now, deadline);
            let mut untried =
                without_usable_token.iter().filter(|account| !tried.contains(*account));
            let next = untried.find(wanted);
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

    /// The accounts with a usable token; all the others if none has one.
    fn part_with_usable_token(
        &self,
        job: &Job,
        accounts: &Accounts,
        now: Timestamp,
    ) -> Result<Accounts, Vec<AccountId>> {
        let without = self.without_usable_token(job, accounts, now);
        if without.len() < accounts.len() {
            Ok(self.accounts.candidates.part(accounts, AccountSet::AllBut(without)))
        } else {
            Err(without)
        }
    }

    /// True if a candidate got a token after those with one met their limits for the whole wait.
    pub async fn another_minted(&self, job: &Job, progress: &RequestProgress) -> bool {
        let candidates = &job.route.candidates;
        let without_token = self.without_usable_token(job, candidates, self.env.clock.now());
        if without_token.is_empty() {
            return false;
        }
        let others = self.accounts.candidates.part(candidates, AccountSet::Only(without_token));
        self.with_usable_token(job, &others, job.deadline, progress).await.is_some()
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
        let is_unusable =
            |account: &AccountId| !self.tokens.is_usable(*account, job.route.endpoint.tokens, now);
        if accounts.len() <= FEW {
            return accounts.iter().copied().filter(is_unusable).collect();
        }
        let mut unhealthy = self.tokens.unhealthy_accounts(now);
        unhealthy.retain(|account| accounts.binary_search(account).is_ok() && is_unusable(account));
        unhealthy
    }
}
