//! Other gateways for comparison: the same bots, network and upstream, with the cache rules that
//! people use today.
//!
//! They keep every limit by our ledger, which real ones lack; they differ in their requests.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::Unplayable;
use super::plan::{Client, Plan};
use super::report::Report;
use super::sweep::{Sweep, sweep};
use crate::decision::TokenKey;
use crate::decision::{AccountId, ClientSettings};

/// `revalidate_at_most` where the plan has none: the value that the guides show.
const AT_MOST: Duration = Duration::from_secs(1);

/// Rules for the use of stored answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rules {
    /// Ours: one store per pool, validators by token, one fetch for simultaneous requests.
    Weir,
    /// One store; each request becomes one conditional request, with the next token in turn. It
    /// sends the last validators, whichever token they belong to.
    RevalidateEvery,
    /// Each bot has one of the tokens, and each token a store of its own. Each request becomes one
    /// conditional request.
    CachePerToken,
    /// Ours with `cache.revalidate_at_most` of the plan, or of a second.
    WeirAtMost,
}

/// Results of one gateway.
#[derive(Debug)]
pub struct Rival {
    /// Its rules.
    pub rules: Rules,
    /// Results of all seeds.
    pub swept: Sweep,
}

impl Rules {
    /// All rules, ours first.
    pub const ALL: [Self; 4] =
        [Self::Weir, Self::RevalidateEvery, Self::CachePerToken, Self::WeirAtMost];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Weir => "Weir",
            Self::RevalidateEvery => "revalidate every request",
            Self::CachePerToken => "one cache per token",
            Self::WeirAtMost => "Weir, revalidate_at_most",
        }
    }

    /// Returns true for our rules. Simultaneous equal requests share a fetch under no others.
    pub fn is_ours(self) -> bool {
        matches!(self, Self::Weir | Self::WeirAtMost)
    }

    /// Returns the accounts that may carry the `turn`th request.
    pub(super) fn candidates(self, all: &Arc<[AccountId]>, turn: u64) -> Arc<[AccountId]> {
        let next = || all.get(usize::try_from(turn).unwrap_or(0) % all.len().max(1)).copied();
        match self {
            Self::RevalidateEvery => next().into_iter().collect(),
            Self::Weir | Self::WeirAtMost | Self::CachePerToken => Arc::clone(all),
        }
    }

    /// Returns the owner of the validators that an account received.
    pub(super) fn owner(self, account: AccountId) -> TokenKey {
        match self {
            Self::RevalidateEvery => TokenKey(0),
            Self::Weir | Self::WeirAtMost | Self::CachePerToken => TokenKey(account.0.into()),
        }
    }

    /// Returns the plan under these rules.
    pub fn of(self, plan: &Plan) -> Plan {
        let mut plan = Plan { rules: self, ..plan.clone() };
        plan.revalidate_at_most = match self {
            Self::WeirAtMost if plan.revalidate_at_most.is_zero() => AT_MOST,
            Self::Weir | Self::WeirAtMost => plan.revalidate_at_most,
            Self::RevalidateEvery | Self::CachePerToken => Duration::ZERO,
        };
        if self == Self::CachePerToken
            && let Some(model) = plan.clients.first().cloned()
        {
            let own = |(pool, account): (u32, &AccountId)| Client {
                name: format!("bots of token {}", pool + 1).into(),
                pool,
                reads: Arc::from([*account]),
                ..model.clone()
            };
            plan.clients = (0..).zip(model.reads.iter()).map(own).collect();
            plan.settings.clients =
                plan.clients.iter().map(|_| ClientSettings::default()).collect();
        }
        plan
    }
}

/// Plays the same seeds under all rules.
pub fn compare(plan: &Plan, seeds: u64, threads: usize) -> Result<Vec<Rival>, Unplayable> {
    Rules::ALL
        .into_iter()
        .map(|rules| Ok(Rival { rules, swept: sweep(&rules.of(plan), seeds, threads, &|_| ())? }))
        .collect()
}

impl Rival {
    /// Returns its figures.
    pub fn report(&self) -> &Report {
        &self.swept.total
    }
}
