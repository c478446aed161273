//! The order in which the accounts of a pool are offered a request, and the accounts for a
//! permission retry.
//!
//! The order is a few stages. Each is tried only when the one before cannot send now: first
//! accounts that were served there, unless more were served than denied; then all that are not
//! known to be bad; then the bad ones. A stage is described by its difference from the pool, which
//! is cheap for pools of thousands.

use std::time::Duration;

use crate::clock::Timestamp;

use super::denial_confidence::{DenialConfidence, Denials};
use super::probe_budget::Pass;
use super::{AccessQuery, Denied, KnownAccounts, Permissions};
use crate::decision::types::{AccountId, TokenKey};

/// Time that a request waits for a good account while others might be good. Ours: longer than an
/// answer that frees a slot, shorter than a person notices.
pub const SHORT_WAIT: Duration = Duration::from_secs(1);

/// Part of a pool; the accounts are in ascending order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AccountSet {
    /// These accounts; never empty.
    Only(Vec<AccountId>),
    /// All but these accounts; never empty either.
    AllBut(Vec<AccountId>),
}

/// Longest wait for the accounts of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitLimit {
    /// As long as the request may be held.
    Whole,
    /// [`SHORT_WAIT`] at most.
    Moment,
    None,
}

/// Meaning of a denial by an account of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenialRole {
    /// The answer, unless another account retries it.
    Ordinary,
    /// Expected: the limits of the other accounts are the reason to report.
    Last,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    pub accounts: AccountSet,
    pub patience: WaitLimit,
    pub resort: DenialRole,
}

/// Decision about the retry of a denied read with another account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionRetry {
    /// Retry with one of these accounts, and wait so long; [`Permissions::retry_ended`] must
    /// follow.
    By(AccountSet, WaitLimit),
    /// Decide again when a retry in progress has ended.
    Later,
    /// No retry: no account could see more, or retries of this endpoint hardly ever find anything.
    No,
}

impl Permissions {
    /// Returns the stages for a request to the pool `base` (in ascending order); empty when all
    /// accounts are unusable. `unusable` are the accounts without a working token, in ascending
    /// order. `tokens_of` returns an account's tokens that the endpoint takes.
    pub fn plan(
        &self,
        now: Timestamp,
        query: AccessQuery,
        base: &[AccountId],
        unusable: &[AccountId],
        tokens_of: &dyn Fn(AccountId) -> Vec<TokenKey>,
    ) -> Vec<Stage> {
        // A single account is tried in any case.
        let known = if base.len() > 1 {
            self.known(now, query, base, tokens_of)
        } else {
            KnownAccounts::default()
        };
        stages(now, &known, base.len(), unusable)
    }

    /// Decides about the retry of a request that `first` denied, the one account of `denials`.
    #[expect(
        clippy::too_many_arguments,
        reason = "the query, the client, and what is known of the pool"
    )]
    pub fn permission_retry(
        &mut self,
        now: Timestamp,
        query: AccessQuery,
        base: &[AccountId],
        unusable: &[AccountId],
        first: AccountId,
        denials: &Denials<'_>,
        tokens_of: &dyn Fn(AccountId) -> Vec<TokenKey>,
    ) -> PermissionRetry {
        let known = self.known(now, query, base, tokens_of);
        let out = union(&union(unusable, known.bad.iter().map(|(account, _)| *account)), [first]);
        if out.len() >= base.len() {
            return PermissionRetry::No;
        }
        // Owners of the resource are tried as if no denial had come.
        let is_void = self.confidence(now, query, base, denials, &known) == DenialConfidence::Void;
        let good = union(&[], known.good.iter().copied().chain(denials.owners()));
        let good: Vec<AccountId> = good
            .into_iter()
            .filter(|account| {
                base.binary_search(account).is_ok() && out.binary_search(account).is_err()
            })
            .collect();
        // An account that sees the place was probably denied because the resource is missing.
        // Another one was denied a resource that the good accounts see.
        let is_sure =
            is_void || !good.is_empty() && known.bad.iter().any(|(account, _)| *account == first);
        let patience = if is_void { WaitLimit::Whole } else { WaitLimit::Moment };
        match if is_sure {
            self.probe_budget.take_anyway(query.endpoint)
        } else {
            self.probe_budget.take(query.endpoint)
        } {
            Pass::Given if good.is_empty() => {
                PermissionRetry::By(AccountSet::AllBut(out), patience)
            }
            Pass::Given => PermissionRetry::By(AccountSet::Only(good), patience),
            Pass::Awaited => PermissionRetry::Later,
            Pass::Refused => PermissionRetry::No,
        }
    }
}

fn stages(
    now: Timestamp,
    known: &KnownAccounts,
    base_len: usize,
    unusable: &[AccountId],
) -> Vec<Stage> {
    let usable = |account: &AccountId| unusable.binary_search(account).is_err();
    let good: Vec<AccountId> = known.good.iter().copied().filter(usable).collect();
    let bad: Vec<(AccountId, Denied)> =
        known.bad.iter().copied().filter(|(account, _)| usable(account)).collect();
    let out = union(unusable, bad.iter().map(|(account, _)| *account));
    let stage = |accounts, patience, resort| Stage { accounts, patience, resort };
    let only = |mut accounts: Vec<AccountId>| {
        accounts.sort_unstable();
        AccountSet::Only(accounts)
    };
    let accounts =
        |bad: &[(AccountId, Denied)]| bad.iter().map(|(account, _)| *account).collect::<Vec<_>>();
    let mut stages = Vec::new();
    let open = base_len.saturating_sub(out.len());
    if open > 0 {
        // Where most were served, an unknown account probably is too. Preferring the good ones
        // would empty their budgets first.
        let is_gamble = bad.len() >= good.len();
        if is_gamble && !good.is_empty() && good.len() < open {
            stages.push(stage(only(good), WaitLimit::Moment, DenialRole::Ordinary));
        }
        stages.push(stage(AccountSet::AllBut(out), WaitLimit::Whole, DenialRole::Ordinary));
        let rested: Vec<_> = bad.into_iter().filter(|(_, denied)| denied.again <= now).collect();
        if !rested.is_empty() {
            stages.push(stage(only(accounts(&rested)), WaitLimit::None, DenialRole::Last));
        }
    } else if let Some((oldest, _)) = bad.first() {
        if bad.len() > 1 {
            stages.push(stage(only(vec![*oldest]), WaitLimit::Moment, DenialRole::Ordinary));
        }
        stages.push(stage(only(accounts(&bad)), WaitLimit::Whole, DenialRole::Ordinary));
    }
    stages
}

pub(super) fn union(
    sorted: &[AccountId],
    others: impl IntoIterator<Item = AccountId>,
) -> Vec<AccountId> {
    let mut all: Vec<AccountId> = sorted.iter().copied().chain(others).collect();
    all.sort_unstable();
    all.dedup();
    all
}
