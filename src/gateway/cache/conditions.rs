//! The conditions of a revalidation. Validators belong to tokens (SPECIFICATION D3), so the choice
//! waits until the token is known.

use std::sync::atomic::{AtomicBool, Ordering};

use http::{HeaderMap, HeaderValue, StatusCode, header};
use parking_lot::Mutex;

use crate::decision::TokenKey;
use crate::decision::cache::key::CacheKey;
use crate::tokens::{Credential, TokenId};

use crate::gateway::cache::predicted_etags::{Basis, Sent};
use crate::gateway::cache::read_cache::ReadCache;
use crate::gateway::cache::store::Entry;
use crate::gateway::dispatch::job::{Conditions, Job};
use crate::gateway::dispatch::permissions::token_key;

/// The most headers that an attempt adds: two conditions, the credential, and two for tracing.
const ADDED_MAX: usize = 5;

/// The validators that an entry has for each token.
pub struct EntryConditions<'e> {
    pub(super) cache: &'e ReadCache,
    pub(super) key: &'e CacheKey,
    pub(super) job: &'e Job,
    pub(super) entry: Option<&'e Entry>,
    /// Asked for if nothing is stored.
    pub(super) range: Option<&'e HeaderValue>,
    pub(super) is_conditional: AtomicBool,
    /// The conditions of the last request; set if `predicted_etags` is on.
    pub(super) sent: Mutex<Option<Sent>>,
}

impl<'e> EntryConditions<'e> {
    /// The body whose `ETag` may be predicted. `entry` is `None` too where a 304 would prove
    /// nothing.
    fn basis(&self, entry: Option<&'e Entry>) -> Basis<'e> {
        match entry {
            Some(entry) => Basis::Entry(entry),
            None if self.entry.is_none() && self.range.is_none() => Basis::Unknown,
            None => Basis::Unpredictable,
        }
    }
}

impl Conditions for EntryConditions<'_> {
    fn preferred(&self) -> Option<TokenId> {
        self.entry?.stored.preferred_token().map(|TokenKey(token)| TokenId(token))
    }

    /// Evaluated when the request is sent, because it may have waited long.
    fn with(&self, credential: &Credential) -> HeaderMap {
        // Leaves space for further headers (`attempt.rs`).
        let mut conditions = HeaderMap::with_capacity(ADDED_MAX);
        let entry = self.entry.filter(|entry| !self.cache.may_hide_next(self.key, entry));
        if let Some(validators) =
            entry.and_then(|entry| entry.stored.validators(Some(token_key(credential.token))))
        {
            conditions.extend(validators.if_none_match.map(|value| (header::IF_NONE_MATCH, value)));
            conditions.extend(
                validators.if_modified_since.map(|value| (header::IF_MODIFIED_SINCE, value)),
            );
        }
        if let Some(predictor) = &self.cache.predictor {
            let now = self.cache.env.clock.now();
            let basis = self.basis(entry);
            *self.sent.lock() =
                Some(predictor.add_prediction(&mut conditions, self.job, credential, basis, now));
        }
        self.is_conditional.store(!conditions.is_empty(), Ordering::Relaxed);
        if conditions.is_empty() {
            conditions.extend(self.range.map(|range| (header::RANGE, range.clone())));
        }
        conditions
    }

    fn stored(&self) -> Option<StatusCode> {
        let tries_empty = || self.sent.lock().as_ref().is_some_and(Sent::tries_empty);
        self.entry.map(Entry::status).or_else(|| tries_empty().then_some(StatusCode::OK))
    }

    fn seen_by(&self) -> Option<Vec<TokenId>> {
        let entry = self
            .entry
            .filter(|entry| entry.status().is_success() || entry.status().is_redirection())?;
        Some(entry.stored.owners().map(|TokenKey(token)| TokenId(token)).collect())
    }
}
