//! The accounts of the ledger: at the start, after a reload, and dynamic ones.
//!
//! A reload keeps all knowledge: no window is closed. A removed account is in no candidate list any
//! more, and keeps its place for its requests in flight. Dynamic accounts, which no config names,
//! belong to the credentials that clients present. Each has the same windows as others, in a place
//! that is reused later. The caller assigns the places and decides which account leaves one.

use crate::api::AccountKind;
use crate::clock::Timestamp;

use super::QuotaLedger;
use super::account::Account;
use super::limits::primary::{Terms, in_ten_thousandths};
use super::limits::secondary::{Secondary, Spacing};
use super::parts::Parts;
use crate::decision::types::{AccountId, AccountSettings, Settings};

impl QuotaLedger {
    /// Applies new settings. `settings.accounts` and `settings.clients` begin with the earlier ones
    /// in their order, and may add new ones. The number of dynamic accounts never changes.
    pub(in crate::decision) fn reconfigure(&mut self, now: Timestamp, settings: Settings) {
        self.terms = Terms {
            reserve: 0,
            batch_floor: in_ten_thousandths(settings.batch_floor),
            pace: settings.pace,
        };
        self.limits = settings.limits;
        self.replicas_max = settings.replicas_max;
        self.spacing = Spacing { any: settings.spacing, notifying: settings.notify_spacing };
        self.clients = settings.clients;
        self.client_budgets.reconfigure(settings.client_budgets);
        self.shadow = settings.shadow;
        self.elapsed_unknown = Secondary::elapsed_unknown(self.limits);
        let first_places = place(AccountId(self.layout.first.saturating_add(self.layout.dynamic)));
        self.accounts.reserve_exact(first_places.saturating_sub(self.accounts.len()));
        for (index, settings) in settings.accounts.into_iter().enumerate() {
            let at = place(self.layout.id(index));
            if let Some(known) = self.accounts.get_mut(at) {
                known.settings = settings;
            } else if at == self.accounts.len() {
                self.accounts.push(self.new_account(settings));
            }
        }
        // At the start the dynamic accounts follow those of the config.
        while self.accounts.len() < first_places {
            self.accounts.push(self.new_dynamic_account());
        }
        self.candidates.grow(self.accounts.len());
        for (id, account) in (0..).map(AccountId).zip(&mut self.accounts) {
            account.terms = Terms { reserve: account.settings.reserve, ..self.terms };
            let is_shared = account.settings.is_shared;
            account.secondary.reconfigure(self.limits, self.spacing, is_shared);
            self.candidates.changed(now, id, account);
        }
    }

    /// Clears a dynamic account, so that another may use its place. Returns false while it has
    /// requests in flight or waiting.
    pub fn vacate(&mut self, now: Timestamp, id: AccountId) -> bool {
        let at = place(id);
        let is_idle =
            self.accounts.get(at).is_some_and(|account| account.secondary.slots.in_use(now) == 0);
        if !is_idle || !self.layout.is_dynamic(id) || self.candidates.is_waited_on(id) {
            return false;
        }
        self.accounts[at] = self.new_dynamic_account();
        self.candidates.changed(now, id, &self.accounts[at]);
        true
    }

    fn new_account(&self, settings: AccountSettings) -> Account {
        let terms = Terms { reserve: settings.reserve, ..self.terms };
        let secondary = Secondary::new(self.limits, self.spacing, settings.is_shared);
        Account::new(settings, terms, secondary, Parts::of(self.replicas_max))
    }

    fn new_dynamic_account(&self) -> Account {
        self.new_account(AccountSettings {
            is_shared: false,
            name: "".into(),
            kind: AccountKind::User,
            reserve: 0,
            also_spends: None,
        })
    }
}

/// The place of an account in the ledger.
pub(super) fn place(account: AccountId) -> usize {
    usize::try_from(account.0).unwrap_or(usize::MAX)
}
