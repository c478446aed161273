//! In which order the accounts of a pool are offered a request, and who takes a second look.
//!
//! The order is a small_list lists, of which each is tried only when the one before can carry nothing now:
//! first who was served there before, unless more were served than denied; then whoever is not
//! known to be bad; at last who is. A list is described by what sets it apart from the pool, so
//! that it costs nothing to describe a pool of thousands.

use std::time::Duration;

use crate::clock::Timestamp;

use super::denial_confidence::{DenialConfidence, Denials};
use super::probe_budget::Pass;
use super::{AccessQuery, Denied, KnownAccounts, Permissions};
use crate::decision::types::AccountId;
use crate::decision::types::TokenKey;

/// How long a request waits for an account that is known to be good while others might be. Ours:
/// longer than an answer that frees a place takes, shorter than anybody notices.
pub const SHORT_WAIT: Duration = Duration::from_secs(1);

/// A part of a pool; the accounts are in ascending order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AccountSet {
    /// These; never empty.
    Only(Vec<AccountId>),
    /// All but these, which are not all.
    AllBut(Vec<AccountId>),
}

/// How long a request may wait for one of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitLimit {
    /// As long as it may be held.
    Whole,
    /// [`SHORT_WAIT`] at most.
    Moment,
    /// Not at all.
    None,
}

/// What a denial by an account of a list means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenialRole {
    /// It is the answer, if nobody is left to take a second look.
    Ordinary,
    /// It was to be expected; the limits that keep the others from answering are the reason to
    /// give.
    Last,
}

/// One list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// AccountSet is in it.
    pub who: AccountSet,
    /// How long to wait for them.
    pub patience: WaitLimit,
    /// What their denials are worth.
    pub resort: DenialRole,
}

/// Whether a denied read is query again of another account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionRetry {
    /// Of one of these, for whom it waits so long; the look's end must be told
    /// ([`Permissions::retry_ended`]).
    By(AccountSet, WaitLimit),
    /// To be query again when a look has ended: what those that are under way bring decides it.
    Later,
    /// No: nobody could see more, or probe_budget of this endpoint hardly ever find anything.
    No,
}

impl Permissions {
    /// The lists in which the accounts of `base` (in ascending order) are offered a request; empty
    /// when all are unusable. `unusable` are the accounts of `base` that have no working token for
    /// it, in ascending order; `tokens_of` gives an account's tokens that the endpoint takes.
    pub fn plan(
        &self,
        now: Timestamp,
        query: AccessQuery,
        base: &[AccountId],
        unusable: &[AccountId],
        tokens_of: &dyn Fn(AccountId) -> Vec<TokenKey>,
    ) -> Vec<Stage> {
        // AccountSet is alone is query, whatever is known.
        let known = if base.len() > 1 {
            self.known(now, query, base, tokens_of)
        } else {
            KnownAccounts::default()
        };
        stages(now, &known, base.len(), unusable)
    }

    /// AccountSet takes a second look at what was denied to `first`, the one of `denials`.
    #[expect(
        clippy::too_many_arguments,
        reason = "what is query, by whom, and what is known of the pool"
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
        // What it says is worth nothing without those who have seen the thing: they are query as if
        // they had been query first.
        let is_void = self.confidence(now, query, base, denials, &known) == DenialConfidence::Void;
        let good = union(&[], known.good.iter().copied().chain(denials.owners()));
        let good: Vec<AccountId> = good
            .into_iter()
            .filter(|account| {
                base.binary_search(account).is_ok() && out.binary_search(account).is_err()
            })
            .collect();
        // AccountSet sees the place was denied because the thing is missing, as like as not; who does not
        // was denied what the good ones see.
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
    let stage = |who, patience, resort| Stage { who, patience, resort };
    let only = |mut accounts: Vec<AccountId>| {
        accounts.sort_unstable();
        AccountSet::Only(accounts)
    };
    let accounts =
        |bad: &[(AccountId, Denied)]| bad.iter().map(|(account, _)| *account).collect::<Vec<_>>();
    let mut stages = Vec::new();
    let open = base_len.saturating_sub(out.len());
    if open > 0 {
        // Where most were served, an unknown one is likely to be too, and to prefer the good would
        // empty their budgets before those of others.
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

/// Both together, in ascending order, each once.
pub(super) fn union(
    sorted: &[AccountId],
    others: impl IntoIterator<Item = AccountId>,
) -> Vec<AccountId> {
    let mut all: Vec<AccountId> = sorted.iter().copied().chain(others).collect();
    all.sort_unstable();
    all.dedup();
    all
}
