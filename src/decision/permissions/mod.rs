//! What is known of each token's rights: who of those that may carry a request is likely to be
//! served, who is not, and when a denial is worth a second look (`probe_budget`) and what it is worth in
//! the end (`denial_confidence`).
//!
//! The endpoint table and the config say who may be query at all (`needs` words what is missing
//! when nobody may). The rest is learned from answers and remembered for a while (`memory`), for
//! one token at one place — a repository, an organization — and one endpoint of it:
//!
//! | answer | teaches |
//! |---|---|
//! | served | the token is good for the endpoint there, and sees the place; what was thought worse of it is forgotten, and of others too what was as uncertain |
//! | 403 for want of a right, 404 although its scopes cannot be enough, 401 that wants another kind of credential | bad for the endpoint there; bad for whatever else there wants the one permission it named |
//! | another 403, a 404 | bad for the endpoint there; nothing when the token sees the place and the answer can be about one thing in it: that thing may be missing |
//! | 404 or 403 where another token is served with the same request | bad for the endpoint there, and, for a 404, not seeing the place |
//!
//! Limit refusals, a 401 about the token itself and 5xx are no lessons. KnownAccounts good goes before
//! unknown, unknown before known bad (`plan`), but only where the bad are as many as the good:
//! where nobody is known to be bad all are alike, and load is spread by budget alone. A memory is
//! never the reason of a refusal: when all are bad, the one is query whose observation is the oldest,
//! and when those who are left can carry nothing for now, the bad ones are tried, each once and
//! then once a minute.
//!
//! Left out: what one answer says (`api::denial`), which tokens work at all (`tokens/`), and
//! budgets, which belong to accounts (`books`).

pub mod denial_confidence;
mod memory;
pub mod needs;
pub mod plan;
mod probe_budget;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::api::{
    AcceptedPermission, Access, Denial, Endpoint, EndpointId, PermissionOwner, Table,
};
use crate::clock::Timestamp;

use super::types::AccountId;
use super::types::TokenKey;
use memory::{Key, Mark, Record, Records, Subject};
use probe_budget::ProbeBudget;
pub use probe_budget::RetryResult;

/// What a path is about: the repository, organization, team, enterprise or user that it names, else
/// the path itself. Kept as a fingerprint of 64 bits: two places that share one would share
/// lessons, which cost a request and decide nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResourceScope(u64);

/// What a request asks, as far as rights go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessQuery {
    endpoint: EndpointId,
    place: ResourceScope,
    subject: About,
    /// The one permission that the table names, as the header of accepted permissions would name
    /// it.
    wants: Option<(u64, Access)>,
}

/// What a 404 can be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    /// The place, or all that the endpoint shows of it.
    ResourceScope,
    /// One thing in the place, which may be missing.
    Thing,
}

/// A token and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The account.
    pub account: AccountId,
    /// Which of its tokens.
    pub token: TokenKey,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// Answered with what was query for.
    Served,
    /// Denied, and nobody else was query.
    Denied(Denial),
    /// Denied, while another token was served with the same request.
    ServedElsewhere(Denial),
}

/// What is known of a token or account for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AccountState {
    /// It was served.
    Good,
    /// Nothing is known.
    Unknown,
    /// It was denied.
    Bad(Denied),
}

/// A observation that speaks against somebody; the older one is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Denied {
    /// When it was taught.
    at: Timestamp,
    /// From when on it may be put to the test while nobody else can carry the request.
    again: Timestamp,
}

/// What matters of a pool for one request: of whom nothing is known is in neither list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KnownAccounts {
    /// AccountSet was served.
    good: Vec<AccountId>,
    /// AccountSet was denied, the oldest observation first.
    bad: Vec<(AccountId, Denied)>,
}

/// Everything that answers have taught about rights.
#[derive(Debug, Default)]
pub struct Permissions {
    memory: Records,
    probe_budget: ProbeBudget,
    /// The one permission that an endpoint said it wants; no more entries than the table has
    /// endpoints.
    wants: HashMap<EndpointId, (u64, Access)>,
}

impl ResourceScope {
    /// The place of a path. Names at the upstream do not tell case.
    fn of(path: &str) -> Self {
        match Table::place(path) {
            Some(named) => Self(fingerprint(&named.to_ascii_lowercase())),
            None => Self(fingerprint(path)),
        }
    }
}

impl AccessQuery {
    /// What a request for `path`, of this endpoint, asks.
    pub fn of(endpoint: &Endpoint, path: &str) -> Self {
        let within = Table::place(&endpoint.template)
            .and_then(|place| endpoint.template.strip_prefix(place));
        let subject = if within.is_some_and(|rest| rest.contains('{')) {
            About::Thing
        } else {
            About::ResourceScope
        };
        // Those of organizations have other names in the header; a route marked [M] wants more than
        // one, or another one.
        let is_plain = !endpoint.several_permissions && endpoint.other_permissions.is_empty();
        let named = endpoint
            .permission
            .as_ref()
            .filter(|permission| is_plain && permission.owner == PermissionOwner::Repository);
        let wants = named.map(|permission| (fingerprint(&permission.name), permission.access));
        Self { endpoint: endpoint.id, place: ResourceScope::of(path), subject, wants }
    }

    fn by_endpoint(self) -> Key {
        Key { subject: Subject::Endpoint(self.endpoint), place: self.place }
    }

    fn by_place(self) -> Key {
        Key { subject: Subject::ResourceScope, place: self.place }
    }
}

impl AccountState {
    const fn of(remembered: Record) -> Self {
        match remembered.mark {
            Mark::Good => Self::Good,
            Mark::Lacking | Mark::Denied => {
                Self::Bad(Denied { at: remembered.at, again: remembered.again })
            }
        }
    }
}

impl Permissions {
    /// Takes in what an answer says. `accepted` is the one permission that the answer says its
    /// endpoint wants.
    pub fn record(
        &mut self,
        now: Timestamp,
        query: AccessQuery,
        holder: Holder,
        observation: Observation,
        accepted: Option<&AcceptedPermission<'_>>,
    ) {
        if let Some(wanted) = accepted {
            self.wants.insert(query.endpoint, (fingerprint(wanted.name), wanted.access));
        }
        match observation {
            Observation::Served => self.served(now, query, holder),
            Observation::Denied(Denial::MissingPermission { by_token }) => {
                self.memory.put(now, query.by_endpoint(), holder, Mark::Lacking);
                if by_token {
                    self.lacks_permission(now, query, holder);
                }
            }
            Observation::Denied(Denial::Forbidden | Denial::NotFound) => {
                let sees_place = self.memory.is(now, query.by_place(), holder, Mark::Good);
                if query.subject == About::ResourceScope || !sees_place {
                    self.memory.put(now, query.by_endpoint(), holder, Mark::Denied);
                }
            }
            Observation::ServedElsewhere(denial) => {
                // The same denial as before, better understood; not another one.
                self.memory.forget_holder(query.by_endpoint(), holder);
                self.memory.put(now, query.by_endpoint(), holder, Mark::Lacking);
                let sees_place = self.memory.is(now, query.by_place(), holder, Mark::Good);
                if denial == Denial::NotFound && !sees_place {
                    self.memory.put(now, query.by_place(), holder, Mark::Lacking);
                }
            }
        }
    }

    fn served(&mut self, now: Timestamp, query: AccessQuery, holder: Holder) {
        if self.memory.is(now, query.by_endpoint(), holder, Mark::Denied) {
            // AccountSet was denied like the others and is served now: it was about the thing, or the
            // thing is there by now.
            self.memory.forget(query.by_endpoint(), Mark::Denied);
        }
        self.memory.put(now, query.by_place(), holder, Mark::Good);
        // Of use only beside what is known to be bad; that most tokens are served by most endpoints
        // would fill the memory.
        if self.memory.knows(query.by_endpoint())
            || self.permission_of(query).is_some_and(|key| self.memory.knows(key))
        {
            self.memory.put(now, query.by_endpoint(), holder, Mark::Good);
        }
    }

    /// Whoever may not read may not write either.
    fn lacks_permission(&mut self, now: Timestamp, query: AccessQuery, holder: Holder) {
        let Some((name, wanted)) = self.wants.get(&query.endpoint).copied().or(query.wants) else {
            return;
        };
        for access in [Access::Read, Access::Write, Access::Admin]
            .into_iter()
            .filter(|access| *access >= wanted)
        {
            let key = Key { subject: Subject::Permission(name, access), place: query.place };
            self.memory.put(now, key, holder, Mark::Lacking);
        }
    }

    fn permission_of(&self, query: AccessQuery) -> Option<Key> {
        let (name, access) = self.wants.get(&query.endpoint).copied().or(query.wants)?;
        Some(Key { subject: Subject::Permission(name, access), place: query.place })
    }

    /// What is known of one token. What was learned at the endpoint itself goes before what was
    /// learned beside it.
    pub(super) fn standing(
        &self,
        now: Timestamp,
        query: AccessQuery,
        holder: Holder,
    ) -> AccountState {
        let remembered = |key: Key| self.memory.of(now, key, holder);
        let sees_place = self.memory.is(now, query.by_place(), holder, Mark::Good);
        match remembered(query.by_endpoint()) {
            // It may have been about one thing, by a token that has since been seen to see the
            // place.
            Some(Record { mark: Mark::Denied, .. })
                if query.subject == About::Thing && sees_place =>
            {
                return AccountState::Unknown;
            }
            Some(remembered) => return AccountState::of(remembered),
            None => {}
        }
        let beside = self
            .permission_of(query)
            .and_then(remembered)
            .filter(|remembered| remembered.mark == Mark::Lacking);
        beside
            .or_else(|| remembered(query.by_place()))
            .map_or(AccountState::Unknown, AccountState::of)
    }

    /// What is known of an account: it is as good as the best of its tokens.
    fn of_account(
        &self,
        now: Timestamp,
        query: AccessQuery,
        account: AccountId,
        tokens: &[TokenKey],
    ) -> AccountState {
        tokens
            .iter()
            .map(|token| self.standing(now, query, Holder { account, token: *token }))
            .min()
            .unwrap_or(AccountState::Unknown)
    }

    /// What is known of the accounts of `base`, which is in ascending order; `tokens_of` gives an
    /// account's tokens that the endpoint takes. Empty unless somebody is known to be bad. Costs as
    /// much as is remembered, whatever the size of `base`.
    pub(super) fn known(
        &self,
        now: Timestamp,
        query: AccessQuery,
        base: &[AccountId],
        tokens_of: &dyn Fn(AccountId) -> Vec<TokenKey>,
    ) -> KnownAccounts {
        let keys = [Some(query.by_endpoint()), self.permission_of(query), Some(query.by_place())];
        let keys = || keys.iter().flatten();
        if !keys().any(|key| self.memory.has_bad(now, *key)) {
            return KnownAccounts::default();
        }
        let mut accounts: Vec<AccountId> =
            keys().flat_map(|key| self.memory.holders(*key)).map(|holder| holder.account).collect();
        accounts.sort_unstable();
        accounts.dedup();
        accounts.retain(|account| base.binary_search(account).is_ok());
        let mut known = KnownAccounts::default();
        for account in accounts {
            let mut tokens = tokens_of(account);
            if tokens.is_empty() {
                // An account whose credential is made for each use: what is remembered is all there
                // is.
                let remembered = keys()
                    .flat_map(|key| self.memory.holders(*key))
                    .filter(|holder| holder.account == account);
                tokens = remembered.map(|holder| holder.token).collect();
            }
            match self.of_account(now, query, account, &tokens) {
                AccountState::Good => known.good.push(account),
                AccountState::Bad(denied) => known.bad.push((account, denied)),
                AccountState::Unknown => {}
            }
        }
        known.bad.sort_by_key(|(account, denied)| (denied.at, *account));
        if known.bad.is_empty() { KnownAccounts::default() } else { known }
    }

    /// Puts an account's tokens into the order in which they are worth trying.
    pub fn rank(
        &self,
        now: Timestamp,
        query: AccessQuery,
        account: AccountId,
        tokens: &mut [TokenKey],
    ) {
        tokens.sort_by_key(|token| self.standing(now, query, Holder { account, token: *token }));
    }

    /// How a second look ended: decides how often the endpoint's denials get one.
    pub fn retry_ended(&mut self, query: AccessQuery, found: RetryResult) {
        self.probe_budget.ended(query.endpoint, found);
    }
}

/// The same in every process, so that a test that fails fails again.
fn fingerprint(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
