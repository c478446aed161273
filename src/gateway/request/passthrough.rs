//! Client credentials (SPECIFICATION, "Configuration" and "Keys"): their cache scope and their
//! dynamic accounts in the quota ledger.
//!
//! A client that identifies itself by `X-Weir-Key` may send its own `Authorization` upstream. The
//! account behind it is not in the config. It gets one of a bounded number of dynamic accounts and
//! keeps it while one of its requests is in progress. If none is free, the least recently used idle
//! account is reassigned.
//!
//! A credential is not stored beyond its request, only a digest under a secret of this process. The
//! upstream's answers pass to the client and are not recorded as permissions.

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderValue;
use parking_lot::Mutex;
use ring::hmac;

use crate::config::Config;
use crate::decision::{AccountId, cache::key::CredentialKey};
use crate::gateway::dispatch::job::{ClientCredential, DynamicAccount};
use crate::gateway::random;
use crate::tokens::TokenId;

pub struct DynamicAccounts {
    /// Keys the digests of the credentials.
    secret: hmac::Key,
    /// The first dynamic account; those of the config come before it.
    first: AccountId,
    accounts_max: u32,
    occupied: Mutex<Occupied>,
}

#[derive(Default)]
struct Occupied {
    by_key: HashMap<CredentialKey, Taken>,
    /// A logical clock: the number of lookups so far.
    lookups: u64,
    /// The number of credentials that have been given an account.
    given: u32,
}

struct Taken {
    dynamic_account: Arc<DynamicAccount>,
    used: u64,
}

impl DynamicAccounts {
    pub fn new(config: &Config) -> Self {
        Self {
            secret: hmac::Key::new(hmac::HMAC_SHA256, &random::secret()),
            first: AccountId(config.account_layout.first),
            accounts_max: config.account_layout.dynamic,
            occupied: Mutex::default(),
        }
    }

    /// Assigns a dynamic account to the credential; `None` if none is free. `vacate` resets the
    /// least recently used one and fails if it is in use.
    pub(super) fn assign(
        &self,
        mut authorization: HeaderValue,
        vacate: impl Fn(AccountId) -> bool,
    ) -> Option<ClientCredential> {
        authorization.set_sensitive(true);
        let digest = hmac::sign(&self.secret, authorization.as_bytes());
        let key = CredentialKey::of_digest(digest.as_ref().try_into().ok()?);
        let mut occupied = self.occupied.lock();
        occupied.lookups += 1;
        let used = occupied.lookups;
        if let Some(taken) = occupied.by_key.get_mut(&key) {
            taken.used = used;
            return Some(ClientCredential {
                authorization,
                dynamic_account: Arc::clone(&taken.dynamic_account),
            });
        }
        let in_use = u32::try_from(occupied.by_key.len()).unwrap_or(u32::MAX);
        let account = if in_use < self.accounts_max {
            AccountId(self.first.0 + in_use)
        } else {
            occupied.vacate_idle(vacate)?
        };
        // Its validators belong to it alone. If the number wraps around, the scope still differs.
        let token = TokenId::of_client(occupied.given);
        occupied.given = occupied.given.wrapping_add(1);
        let dynamic_account = Arc::new(DynamicAccount { key, account, token });
        occupied.by_key.insert(key, Taken { dynamic_account: Arc::clone(&dynamic_account), used });
        Some(ClientCredential { authorization, dynamic_account })
    }
}

impl Occupied {
    /// Frees the least recently used account without a request in progress.
    fn vacate_idle(&mut self, vacate: impl Fn(AccountId) -> bool) -> Option<AccountId> {
        let idle =
            self.by_key.values().filter(|taken| Arc::strong_count(&taken.dynamic_account) == 1);
        let mut idle: Vec<_> = idle
            .map(|taken| (taken.used, taken.dynamic_account.key, taken.dynamic_account.account))
            .collect();
        idle.sort_unstable_by_key(|(used, ..)| *used);
        let (_, key, account) = idle.into_iter().find(|(_, _, account)| vacate(*account))?;
        self.by_key.remove(&key);
        Some(account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dynamic_accounts(accounts_max: u32) -> DynamicAccounts {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, b"secret");
        DynamicAccounts { secret, first: AccountId(3), accounts_max, occupied: Mutex::default() }
    }

    fn credential(
        dynamic_accounts: &DynamicAccounts,
        credential: &'static str,
    ) -> Option<ClientCredential> {
        dynamic_accounts.assign(HeaderValue::from_static(credential), |_| true)
    }

    #[test]
    fn each_credential_keeps_a_dynamic_account_of_its_own() {
        let dynamic_accounts = dynamic_accounts(2);
        let [one, again, other] = ["Bearer a", "Bearer a", "token a"]
            .map(|value| credential(&dynamic_accounts, value).unwrap());
        assert_eq!((one.account(), one.scope()), (again.account(), again.scope()));
        assert!(
            one.account() != other.account()
                && one.scope() != other.scope()
                && one.dynamic_account.token != other.dynamic_account.token
        );
        assert!(one.account().0 >= 3 && other.account().0 >= 3);
    }

    #[test]
    fn the_least_recently_used_account_is_reassigned() {
        let dynamic_accounts = dynamic_accounts(2);
        let first = credential(&dynamic_accounts, "Bearer a").unwrap().account();
        drop(credential(&dynamic_accounts, "Bearer b"));
        drop(credential(&dynamic_accounts, "Bearer a"));
        let next = credential(&dynamic_accounts, "Bearer c").unwrap();
        assert_ne!(next.account(), first);
        assert_eq!(credential(&dynamic_accounts, "Bearer a").unwrap().account(), first);
    }

    #[test]
    fn an_account_in_use_is_not_reassigned() {
        let dynamic_accounts = dynamic_accounts(1);
        let under_way = credential(&dynamic_accounts, "Bearer a").unwrap();
        assert!(credential(&dynamic_accounts, "Bearer b").is_none());
        drop(under_way);
        assert!(
            dynamic_accounts.assign(HeaderValue::from_static("Bearer b"), |_| false).is_none(),
            "the ledger has an open lease"
        );
        assert!(credential(&dynamic_accounts, "Bearer b").is_some());
    }

    #[test]
    fn a_credential_cannot_be_printed() {
        let client_credential = credential(&dynamic_accounts(1), "Bearer s3cret").unwrap();
        assert!(!format!("{:?}", client_credential.credential()).contains("s3cret"));
    }
}
