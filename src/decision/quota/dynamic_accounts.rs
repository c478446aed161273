//! Accounts that no config names: those behind the credentials that clients bring. Each has the
//! same windows as others have, in a place that another one may have after it.
//!
//! Whose place is whose, and who has to leave one, is known to the caller.

use crate::api::AccountKind;
use crate::clock::Timestamp;

use super::account::Account;
use super::limits::primary::Terms;
use super::limits::secondary::{Secondary, Spacing};
use super::{QuotaLedger, place};
use crate::decision::types::{AccountId, AccountLayout, AccountSettings, SecondaryLimits};

/// What the windows of a guest begin with.
#[derive(Debug)]
pub(super) struct DynamicAccounts {
    pub(super) places: AccountLayout,
    pub(super) terms: Terms,
    pub(super) limits: SecondaryLimits,
    pub(super) spacing: Spacing,
}

impl DynamicAccounts {
    /// Of whom nothing is known; what is not known of its kind counts as a user's.
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
    /// Forgets all that is known of a guest, so that its place is free for another; whether it
    /// could: not while something of it is in flight or waits.
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
