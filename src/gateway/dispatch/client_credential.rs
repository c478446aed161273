//! An upstream credential that a client brings itself, and the account it stands for.

use crate::decision::AccountId;
use crate::decision::cache::key::{CredentialKey, Scope};
use crate::tokens::{Credential, TokenId};
use http::HeaderValue;
use std::sync::Arc;

/// A client's own credential, for one request.
pub struct Brought {
    pub authorization: HeaderValue,
    pub seat: Arc<Seat>,
}

/// What a credential has as long as it keeps its place.
pub struct Seat {
    pub key: CredentialKey,
    pub account: AccountId,
    pub token: TokenId,
}

impl Brought {
    /// Whose view it shows.
    pub fn scope(&self) -> Scope {
        Scope::Credential(self.seat.key)
    }

    /// The account behind it.
    pub fn account(&self) -> AccountId {
        self.seat.account
    }

    /// What a request is sent with.
    pub fn credential(&self) -> Credential {
        Credential::of_client(self.seat.token, self.authorization.clone())
    }
}
