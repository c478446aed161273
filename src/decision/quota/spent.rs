//! The spending of a process that drains beside its successor (SPECIFICATION, "Commands").
//!
//! The successor begins with the state of a moment ([`super::saved`]). What its predecessor spends
//! later is added here, message by message.

use serde::{Deserialize, Serialize};

use super::QuotaLedger;
use super::account::Account;
use super::client_budgets::{BudgetId, SpentBudget};
use super::limits::cooldown::Cooldown;
use super::limits::primary::SavedWindow;
use super::limits::secondary::{Known, SpentSecondary};
use super::saved::kind_of;
use crate::api::{EndpointId, ResourceName};
use crate::clock::Timestamp;
use crate::decision::types::{AccountId, HashMap};

/// The spending of the accounts of the config since the last message. Accounts that are not named
/// have nothing under way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spent {
    accounts: Vec<SpentAccount>,
    /// Own budgets of clients.
    client_budgets: Vec<SpentBudget>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpentAccount {
    name: String,
    kind: String,
    windows: Vec<(String, SavedWindow)>,
    cooldown: Cooldown,
    secondary: SpentSecondary,
}

/// The knowledge of the successor, at the time of the last message.
#[derive(Debug)]
pub struct SpendingMark {
    at: Timestamp,
    known: HashMap<AccountId, Known>,
    /// Units that the own budgets of clients had spent.
    client_budgets: HashMap<BudgetId, u64>,
}

impl SpendingMark {
    /// The successor knows nothing.
    pub fn beginning() -> Self {
        Self { at: Timestamp::EPOCH, known: HashMap::default(), client_budgets: HashMap::default() }
    }
}

impl QuotaLedger {
    /// A mark for a successor that has the state of this time.
    pub(in crate::decision) fn spending_mark(&self, now: Timestamp) -> SpendingMark {
        let accounts = (0..).map(AccountId).zip(&self.accounts);
        let of_config = accounts.filter(|(id, _)| !self.layout.is_dynamic(*id));
        SpendingMark {
            at: now,
            known: of_config.map(|(id, account)| (id, account.secondary.known(now))).collect(),
            client_budgets: self.client_budgets.mark(),
        }
    }

    /// Returns what the accounts of the config have spent since the last message.
    pub(in crate::decision) fn spent_since(
        &self,
        now: Timestamp,
        mark: &mut SpendingMark,
        name: &dyn Fn(EndpointId) -> String,
    ) -> Spent {
        let mut accounts = Vec::new();
        for (id, account) in (0..).map(AccountId).zip(&self.accounts) {
            if self.layout.is_dynamic(id) {
                continue;
            }
            let known = mark.known.entry(id).or_default();
            let secondary = account.secondary.spent_since(now, mark.at, known, name);
            if !secondary.is_empty() {
                accounts.push(SpentAccount {
                    name: account.settings.name.to_string(),
                    kind: kind_of(account),
                    windows: account.saved_windows(now),
                    cooldown: account.cooldown.clone(),
                    secondary,
                });
            }
        }
        mark.at = now;
        let client_budgets = self.client_budgets.spent_since(&mut mark.client_budgets);
        Spent { accounts, client_budgets }
    }

    /// Adds what a predecessor has spent. `endpoint` finds an endpoint by its name.
    pub(in crate::decision) fn add_spent(
        &mut self,
        now: Timestamp,
        spent: &Spent,
        endpoint: &dyn Fn(&str) -> Option<EndpointId>,
    ) {
        for (id, account) in (0..).map(AccountId).zip(&mut self.accounts) {
            if self.layout.is_dynamic(id) {
                continue;
            }
            let is_it = |spent: &&SpentAccount| {
                *spent.name == *account.settings.name && spent.kind == kind_of(account)
            };
            match spent.accounts.iter().find(is_it) {
                Some(spent) => account.add_spent(now, spent, endpoint),
                None if account.secondary.has_slots_of_earlier() => {
                    account.secondary.forget_slots_of_earlier(now);
                }
                None => continue,
            }
            self.candidates.changed(now, id, account);
        }
        self.add_own_spent(now, &spent.client_budgets);
    }
}

impl Spent {
    /// True if nothing was spent or is in flight.
    pub fn is_empty(&self) -> bool {
        self.accounts.is_empty() && self.client_budgets.is_empty()
    }
}

impl Account {
    fn add_spent(
        &mut self,
        now: Timestamp,
        spent: &SpentAccount,
        endpoint: &dyn Fn(&str) -> Option<EndpointId>,
    ) {
        for (name, spent) in &spent.windows {
            let at = self.window_index(&ResourceName::new(name));
            if let Some(window) = self.window_at(at) {
                window.add_spent(now, spent);
            }
        }
        self.cooldown.extend_to(&spent.cooldown.restored(now));
        self.secondary.add_spent(&spent.secondary, endpoint, now);
    }
}
