//! The owner of an account's tokens, as answers to `GET /user` show it. Another owner sees other
//! things: what was stored about the one before is dropped.

use std::time::Duration;

use crate::decision::AccountId;
use crate::decision::cache::key::Scope;
use crate::gateway::cache::lookup::CacheRequest;
use crate::gateway::cache::read_cache::ReadCache;
use crate::gateway::dispatch::answer::{AnswerBody, UpstreamAnswer};

/// The route about the owner itself.
const OWN_USER: &str = "/user";

impl ReadCache {
    /// Reads the owner from an answer, and forgets the one before.
    pub(super) fn note_owner(&self, cache_request: &CacheRequest, answer: &UpstreamAnswer) {
        let job = &cache_request.job;
        let is_about_owner = *job.route.endpoint.template == *OWN_USER
            && answer.status == http::StatusCode::OK
            && job.client_credential.is_none();
        let AnswerBody::Whole(body) = &answer.body else { return };
        if !is_about_owner {
            return;
        }
        let user: Option<serde_json::Value> = serde_json::from_slice(body).ok();
        let Some(owner) = user.as_ref().and_then(|user| user.get("id")?.as_u64()) else { return };
        let before = self.owners.lock().insert(answer.account, owner);
        if before.is_some_and(|before| before != owner) {
            let account = self.env.account_name(answer.account);
            tracing::warn!(account, "the token of this account has another owner than before");
            self.dispatcher.tokens().disown(answer.account);
            self.forget_owner(answer.account);
            // Answers that others fetched with it are confirmed before they are served again.
            self.store.invalidate_before(answer.requested_at);
        }
    }

    /// Drops the answers about the owner of an account.
    pub fn forget_owner(&self, account: AccountId) {
        self.store.remove_scope(Scope::Account(account.0));
    }

    /// Forgets the owners of accounts with new credentials, once requests use these.
    pub fn forget_replaced(&self, is_replaced: impl Fn(AccountId) -> bool) {
        let accounts = (0..self.env.config.accounts.len()).map(|at| self.env.config.account_id(at));
        let replaced: Vec<_> = accounts.filter(|account| is_replaced(*account)).collect();
        for account in &replaced {
            self.owners.lock().remove(account);
            self.forget_owner(*account);
        }
        if !replaced.is_empty() {
            // Answers on their way are another owner's too.
            self.store.invalidate_before(self.env.clock.now() + Duration::from_millis(1));
        }
    }
}
