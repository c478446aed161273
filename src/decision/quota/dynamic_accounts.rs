//! Dynamic accounts, which no config names: the accounts behind credentials that clients present.
//! Each has the same windows as others, in a place that is reused later.
//!
//! The caller assigns the places and decides which account leaves one.

use crate::api::AccountKind;
use crate::clock::Timestamp;

use super::account::Account;
use super::limits::primary::Terms;
use super::limits::secondary::{Secondary, Spacing};
use super::{QuotaLedger, place};
use crate::decision::types::{AccountId, AccountLayout, AccountSettings, SecondaryLimits};

#[derive(Debug)]
pub(super) struct DynamicAccounts {
    pub(super) places: AccountLayout,
    pub(super) terms: Terms,
    pub(super) limits: SecondaryLimits,
    pub(super) spacing: Spacing,
}

impl DynamicAccounts {
    pub(super) fn arrival(&self) -> Account {
        let settings = AccountSettings {
            name: "".into(),
            kind: AccountKind::User,
            reserve: 0,
            also_spends: None,
        };
        Account::new(settings, self.terms, Secondary::new(self.limits, self.spacing))
    }
}

impl QuotaLedger {
    /// Clears a dynamic account, so that another may use its place. Returns false while it has
    /// requests in flight or waiting.
    pub fn vacate(&mut self, now: Timestamp, guest: AccountId) -> bool {
        if !self.dynamic_accounts.places.is_dynamic(guest) || self.candidates.is_waited_on(guest) {
            return false;
        }
        let Some(account) = self
            .accounts
            .get_mut(place(guest))
            .filter(|account| account.secondary.in_flight() == 0)
        else {
            return false;
        };
        *account = self.dynamic_accounts.arrival();
        self.candidates.changed(now, guest, account);
        true
    }
}
