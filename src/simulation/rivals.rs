//! Other gateways to compare with: the same bots, network and upstream, and the rules by which
//! people put a cache before the service today.
//!
//! They keep every limit by our books, which theirs do not; they differ in what they ask.

use std::sync::Arc;

use serde::Serialize;

use super::Unplayable;
use super::plan::{Client, Plan};
use super::report::Report;
use super::sweep::{Sweep, sweep};
use crate::decision::TokenKey;
use crate::decision::{AccountId, ClientSettings};

/// By whose rules stored answers are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rules {
    /// Ours: one store for a pool, validators by token, one fetch for all who ask at once.
    Weir,
    /// One store; each request is one conditional request, with the next token in turn. What it
    /// knows of an answer is the validators it came with, whichever token they came to, and it
    /// sends both.
    RevalidateEvery,
    /// Each bot has one of the tokens, and each token a store of its own. Each request is one
    /// conditional request.
    CachePerToken,
}

/// What came of one gateway.
#[derive(Debug)]
pub struct Rival {
    /// Sender rules.
    pub rules: Rules,
    /// Of all seeds.
    pub swept: Sweep,
}

impl Rules {
    /// All of them, ours first.
    pub const ALL: [Self; 3] = [Self::Weir, Self::RevalidateEvery, Self::CachePerToken];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Weir => "Weir",
            Self::RevalidateEvery => "revalidate every request",
            Self::CachePerToken => "one cache per token",
        }
    }

    /// Whether those who ask for the same at the same time share a fetch.
    pub(super) fn coalesces(self) -> bool {
        self == Self::Weir
    }

    /// Who may carry the `turn`th request, of those that may.
    pub(super) fn candidates(self, all: &Arc<[AccountId]>, turn: u64) -> Arc<[AccountId]> {
        let next = || all.get(usize::try_from(turn).unwrap_or(0) % all.len().max(1)).copied();
        match self {
            Self::RevalidateEvery => next().into_iter().collect(),
            Self::Weir | Self::CachePerToken => Arc::clone(all),
        }
    }

    /// Sender the validators are that came to an account.
    pub(super) fn owner(self, account: AccountId) -> TokenKey {
        match self {
            Self::RevalidateEvery => TokenKey(0),
            Self::Weir | Self::CachePerToken => TokenKey(account.0.into()),
        }
    }

    /// The plan under these rules.
    pub fn of(self, plan: &Plan) -> Plan {
        let mut plan = Plan { rules: self, ..plan.clone() };
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

/// The same seeds through each of them.
pub fn compare(plan: &Plan, seeds: u64, threads: usize) -> Result<Vec<Rival>, Unplayable> {
    Rules::ALL
        .into_iter()
        .map(|rules| Ok(Rival { rules, swept: sweep(&rules.of(plan), seeds, threads, &|_| ())? }))
        .collect()
}

impl Rival {
    /// Its figures.
    pub fn report(&self) -> &Report {
        &self.swept.total
    }
}
