//! An upstream credential that a client brings itself, and the account it stands for.

use crate::decision::AccountId;
use crate::decision::cache::key::{CredentialKey, Scope};
use crate::tokens::{Credential, TokenId};
use http::HeaderValue;
use std::sync::Arc;

/// A client's own credential, for one request.
pub struct ClientCredential {
    pub authorization: HeaderValue,
    pub account_place: Arc<DynamicAccount>,
}

/// The dynamic account of a credential.
pub struct DynamicAccount {
    pub key: CredentialKey,
    pub account: AccountId,
    pub token: TokenId,
}

impl ClientCredential {
    /// The cache scope of its reads.
    pub fn scope(&self) -> Scope {
        Scope::Credential(self.account_place.key)
    }

    pub fn account(&self) -> AccountId {
        self.account_place.account
    }

    pub fn credential(&self) -> Credential {
        Credential::of_client(self.account_place.token, self.authorization.clone())
    }
}
