//! What a denial is worth to a pool: the last word, one voice among several, or nothing, because
//! somebody has seen what it denies and was not query.
//!
//! AccountSet denies what another one sees mostly cannot know better; who has seen it before, or sees the
//! place that it is in, can: what was there may be gone. What is done with each kind is the
//! caller's business.

use crate::clock::Timestamp;

use super::memory::Mark;
use super::plan::union;
use super::{About, AccessQuery, KnownAccounts, Permissions};
use crate::decision::types::AccountId;
use crate::decision::types::TokenKey;

/// What a denial is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenialConfidence {
    /// Nobody could say more; so is whatever is no denial.
    Final,
    /// Somebody who was not query may see it. It is an answer, and none to keep.
    Open,
    /// Somebody has seen it who was not query, and none of those who were has: it takes the place
    /// of nothing.
    Void,
}

/// AccountSet denies a read, and who would not.
#[derive(Clone, Copy, Debug)]
pub struct Denials<'d> {
    /// AccountSet was query just now.
    pub by: &'d [AccountId],
    /// AccountSet owns a validator of the stored answer, which is no denial; `None`: no such answer is
    /// stored. Those of most answers without an `ETag` are not known.
    pub stored: Option<&'d [AccountId]>,
    /// The accounts that have no working token and get none, in ascending order: what they have
    /// seen is no more for the pool to see.
    pub hopeless: &'d [AccountId],
}

impl Denials<'_> {
    /// Those who have seen it, by what is stored, and can be query some day.
    pub(super) fn owners(&self) -> impl Iterator<Item = AccountId> {
        let owners = self.stored.unwrap_or_default().iter().copied();
        owners.filter(|owner| self.hopeless.binary_search(owner).is_err())
    }
}

impl Permissions {
    /// What these denials are worth to the pool `base`, in ascending order, after they were taught.
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
            &union(denials.hopeless, known.bad.iter().map(|(account, _)| *account)),
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
        } else if query.subject == About::Thing
            && denials.by.len() > 1
            && denials.by.iter().any(|account| sees_place(*account))
        {
            // Two agree, of whom one sees the place: to ask a whole pool for each thing that is
            // missing would cost more than that tells.
            DenialConfidence::Final
        } else {
            DenialConfidence::Open
        }
    }
}
