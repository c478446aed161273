//! Observed permissions of tokens: the accounts of a pool that are likely to be served, the retry
//! of a denial (`probe_budget`), and the confidence in it (`denial_confidence`).
//!
//! The endpoint table and the config name the candidates; `needs` words the missing permission when
//! there is none. The rest is observed and recorded for a while (`memory`): for one token, one
//! place (a repository, an organization), and one endpoint.
//!
//! | answer | record |
//! |---|---|
//! | served | the token is good for the endpoint there and sees the place; worse records end, and so do uncertain ones of other tokens |
//! | 403 about a permission, 404 with insufficient scopes, 401 about the kind of credential | bad for the endpoint there, and for other endpoints there with the same single permission |
//! | another 403, a 404 | bad for the endpoint there; no record when the token sees the place and one resource in it may be missing |
//! | 404 or 403 while another token is served with the same request | bad for the endpoint there; for a 404, does not see the place |
//!
//! Limits, a 401 about the token itself and 5xx are no observations. Good accounts come before
//! unknown ones, and those before bad ones (`plan`), but only where at least as many are bad as
//! good. Without a bad account all are alike, and the budgets alone spread the load.
//!
//! A record never denies a request. When all accounts are bad, the one with the oldest record is
//! tried. When the others cannot send now, the bad ones are tried, each at once and then once a
//! minute.

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

use super::types::{AccountId, TokenKey};
use memory::{Key, Mark, Record, Records, Subject};
use probe_budget::ProbeBudget;
pub use probe_budget::RetryResult;

/// Place of a path: the repository, organization, team, enterprise or user that it names, else the
/// path itself. Kept as a fingerprint of 64 bits: a collision would share records, which costs a
/// request and decides nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResourceScope(u64);

/// Request, as far as permissions are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessQuery {
    endpoint: EndpointId,
    place: ResourceScope,
    subject: DenialSubject,
    /// The table's single permission, by its name in the header of accepted permissions.
    wants: Option<(u64, Access)>,
}

/// Possible subject of a 404.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DenialSubject {
    /// The place, or everything that the endpoint shows of it.
    Place,
    /// One resource in the place, which may be missing.
    Resource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    pub account: AccountId,
    pub token: TokenKey,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// Answered without a denial.
    Served,
    /// Denied, and no other account was tried.
    Denied(Denial),
    /// Denied, while another token was served with the same request.
    ServedElsewhere(Denial),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AccountState {
    Good,
    Unknown,
    Bad(Denied),
}

/// Record against an account; the older one is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Denied {
    at: Timestamp,
    /// Time from which it may be tried while no other account can send the request.
    again: Timestamp,
}

/// Recorded accounts of a pool for one request; unknown ones are in neither list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KnownAccounts {
    good: Vec<AccountId>,
    /// Denied accounts, the oldest record first.
    bad: Vec<(AccountId, Denied)>,
}

#[derive(Debug, Default)]
pub struct Permissions {
    memory: Records,
    probe_budget: ProbeBudget,
    /// Single permission that an endpoint reported; no more entries than the table has endpoints.
    wants: HashMap<EndpointId, (u64, Access)>,
}

impl ResourceScope {
    /// The upstream ignores case in names.
    fn of(path: &str) -> Self {
        match Table::place(path) {
            Some(named) => Self(fingerprint(&named.to_ascii_lowercase())),
            None => Self(fingerprint(path)),
        }
    }
}

impl AccessQuery {
    pub fn of(endpoint: &Endpoint, path: &str) -> Self {
        let within = Table::place(&endpoint.template)
            .and_then(|place| endpoint.template.strip_prefix(place));
        let subject = if within.is_some_and(|rest| rest.contains('{')) {
            DenialSubject::Resource
        } else {
            DenialSubject::Place
        };
        // Organization permissions have other names in the header. A route marked [M] wants more
        // than one permission, or another one.
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
    /// Records an observation. `accepted` is the single permission that the answer reports for its
    /// endpoint. Returns true for news: a token is denied that was not, or served where one was
    /// denied.
    pub fn record(
        &mut self,
        now: Timestamp,
        query: AccessQuery,
        holder: Holder,
        observation: Observation,
        accepted: Option<&AcceptedPermission<'_>>,
    ) -> bool {
        let is_news = self.is_news(now, query, holder, observation);
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
                if query.subject == DenialSubject::Place || !sees_place {
                    self.memory.put(now, query.by_endpoint(), holder, Mark::Denied);
                }
            }
            Observation::ServedElsewhere(denial) => {
                // The same denial, better understood.
                self.memory.forget_holder(query.by_endpoint(), holder);
                self.memory.put(now, query.by_endpoint(), holder, Mark::Lacking);
                let sees_place = self.memory.is(now, query.by_place(), holder, Mark::Good);
                if denial == Denial::NotFound && !sees_place {
                    self.memory.put(now, query.by_place(), holder, Mark::Lacking);
                }
            }
        }
        is_news
    }

    fn is_news(
        &self,
        now: Timestamp,
        query: AccessQuery,
        holder: Holder,
        observation: Observation,
    ) -> bool {
        let keys = [Some(query.by_endpoint()), self.permission_of(query), Some(query.by_place())];
        match observation {
            Observation::Served => {
                let is_good = self.memory.is(now, query.by_endpoint(), holder, Mark::Good);
                !is_good && keys.iter().flatten().any(|key| self.memory.has_bad(now, *key))
            }
            Observation::Denied(_) => !self
                .memory
                .of(now, query.by_endpoint(), holder)
                .is_some_and(|record| record.mark != Mark::Good),
            Observation::ServedElsewhere(_) => true,
        }
    }

    fn served(&mut self, now: Timestamp, query: AccessQuery, holder: Holder) {
        if self.memory.is(now, query.by_endpoint(), holder, Mark::Denied) {
            // A denied token is served now: the denial was about the resource, or the resource
            // exists by now.
            self.memory.forget(query.by_endpoint(), Mark::Denied);
        }
        self.memory.put(now, query.by_place(), holder, Mark::Good);
        // Useful only beside bad records. Most tokens are served by most endpoints, which would
        // fill the memory.
        if self.memory.knows(query.by_endpoint())
            || self.permission_of(query).is_some_and(|key| self.memory.knows(key))
        {
            self.memory.put(now, query.by_endpoint(), holder, Mark::Good);
        }
    }

    /// A token without read permission has no write permission either.
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

    /// State of one token. Records of the endpoint itself override records of its permission and
    /// place.
    pub(super) fn token_state(
        &self,
        now: Timestamp,
        query: AccessQuery,
        holder: Holder,
    ) -> AccountState {
        let remembered = |key: Key| self.memory.of(now, key, holder);
        let sees_place = self.memory.is(now, query.by_place(), holder, Mark::Good);
        match remembered(query.by_endpoint()) {
            // The denial may have been about one resource; since then the token has been seen to
            // see the place.
            Some(Record { mark: Mark::Denied, .. })
                if query.subject == DenialSubject::Resource && sees_place =>
            {
                AccountState::Unknown
            }
            Some(remembered) => AccountState::of(remembered),
            None => self
                .permission_of(query)
                .and_then(remembered)
                .filter(|remembered| remembered.mark == Mark::Lacking)
                .or_else(|| remembered(query.by_place()))
                .map_or(AccountState::Unknown, AccountState::of),
        }
    }

    /// State of an account: that of its best token.
    fn account_state(
        &self,
        now: Timestamp,
        query: AccessQuery,
        account: AccountId,
        tokens: &[TokenKey],
    ) -> AccountState {
        tokens
            .iter()
            .map(|token| self.token_state(now, query, Holder { account, token: *token }))
            .min()
            .unwrap_or(AccountState::Unknown)
    }

    /// Recorded accounts of `base`, which is in ascending order; `tokens_of` returns the tokens
    /// that the endpoint takes. Empty without a bad account. The cost grows with the records, not
    /// with `base`.
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
                // The account makes a credential for each use, so only recorded tokens are known.
                let remembered = keys()
                    .flat_map(|key| self.memory.holders(*key))
                    .filter(|holder| holder.account == account);
                tokens = remembered.map(|holder| holder.token).collect();
            }
            match self.account_state(now, query, account, &tokens) {
                AccountState::Good => known.good.push(account),
                AccountState::Bad(denied) => known.bad.push((account, denied)),
                AccountState::Unknown => {}
            }
        }
        known.bad.sort_by_key(|(account, denied)| (denied.at, *account));
        if known.bad.is_empty() { KnownAccounts::default() } else { known }
    }

    /// Sorts an account's tokens by their state, the best first.
    pub fn rank(
        &self,
        now: Timestamp,
        query: AccessQuery,
        account: AccountId,
        tokens: &mut [TokenKey],
    ) {
        tokens.sort_by_key(|token| self.token_state(now, query, Holder { account, token: *token }));
    }

    /// Ends a permission retry; its result determines the frequency of further ones.
    pub fn retry_ended(&mut self, query: AccessQuery, found: RetryResult) {
        self.probe_budget.ended(query.endpoint, found);
    }
}

/// The same in every process, so that a failing test fails again.
fn fingerprint(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
