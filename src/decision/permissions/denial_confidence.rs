//! The confidence in a denial: final, open, or void because another account has seen the resource.
//!
//! A denial by an account that never sees the place mostly proves nothing. An account that has seen
//! the resource before, or sees its place, can show that it is gone. The caller decides about each
//! case.

use crate::clock::Timestamp;

use super::memory::Mark;
use super::plan::union;
use super::{AccessQuery, DenialSubject, KnownAccounts, Permissions};
use crate::decision::types::{AccountId, TokenKey};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenialConfidence {
    /// No other account could see more. Answers other than denials are final too.
    Final,
    /// Another account may see the resource: an answer, but not to be stored.
    Open,
    /// Another account has seen the resource, and none of the denied ones has: it replaces no
    /// stored answer.
    Void,
}

/// Denials of one read, and the accounts that could contradict them.
#[derive(Clone, Copy, Debug)]
pub struct Denials<'d> {
    /// Accounts that denied the read.
    pub by: &'d [AccountId],
    /// Owners of a validator of the stored answer, if one is stored. Owners without an `ETag` are
    /// mostly unknown.
    pub stored: Option<&'d [AccountId]>,
    /// Accounts without any working token, in ascending order. The pool no longer sees their
    /// resources.
    pub unusable: &'d [AccountId],
}

impl Denials<'_> {
    /// Owners by the stored answer that can be tried again.
    pub(super) fn owners(&self) -> impl Iterator<Item = AccountId> {
        let owners = self.stored.unwrap_or_default().iter().copied();
        owners.filter(|owner| self.unusable.binary_search(owner).is_err())
    }
}

impl Permissions {
    /// Returns the confidence of the pool `base` (in ascending order) in these denials, after they
    /// were recorded.
    pub fn denial_confidence(
        &self,
        now: Timestamp,
        query: AccessQuery,
        base: &[AccountId],
        denials: &Denials<'_>,
        tokens_of: &dyn Fn(AccountId) -> Vec<TokenKey>,
    ) -> DenialConfidence {
        self.confidence(now, query, base, denials, &self.known(now, query, base, tokens_of))
    }

    pub(super) fn confidence(
        &self,
        now: Timestamp,
        query: AccessQuery,
        base: &[AccountId],
        denials: &Denials<'_>,
        known: &KnownAccounts,
    ) -> DenialConfidence {
        let out = union(
            &union(denials.unusable, known.bad.iter().map(|(account, _)| *account)),
            denials.by.iter().copied(),
        );
        if out.len() >= base.len() {
            return DenialConfidence::Final;
        }
        let sees_place = |account: AccountId| {
            let mut holders =
                self.memory.holders(query.by_place()).filter(|holder| holder.account == account);
            holders.any(|holder| self.memory.is(now, query.by_place(), holder, Mark::Good))
        };
        let is_seen = denials.stored.is_some()
            || known.good.iter().any(|account| out.binary_search(account).is_err());
        let has_owners = denials.owners().next().is_some();
        let may_know = |account: AccountId| {
            if has_owners {
                denials.owners().any(|owner| owner == account)
            } else {
                sees_place(account)
            }
        };
        if is_seen && !denials.by.iter().any(|account| may_know(*account)) {
            DenialConfidence::Void
        } else if query.subject == DenialSubject::Resource
            && denials.by.len() > 1
            && denials.by.iter().any(|account| sees_place(*account))
        {
            // Two agree, and one of them sees the place. Trying a whole pool for each missing
            // resource would cost too much.
            DenialConfidence::Final
        } else {
            DenialConfidence::Open
        }
    }
}
