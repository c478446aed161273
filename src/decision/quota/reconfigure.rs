//! The ledger after a reload: its knowledge stays, its settings change.
//!
//! No window is closed here. A removed account is in no candidate list any more, and keeps its
//! place for its requests in flight.

use crate::clock::Timestamp;

use super::account::Account;
use super::limits::primary::Terms;
use super::limits::secondary::{Secondary, Spacing};
use super::{QuotaLedger, in_ten_thousandths, place};
use crate::decision::types::{AccountId, Settings};

impl QuotaLedger {
    /// Applies new settings. `settings.accounts` and `settings.clients` begin with the earlier ones
    /// in their order, and may add new ones. The number of dynamic accounts never changes.
    pub(in crate::decision) fn reconfigure(&mut self, now: Timestamp, settings: Settings) {
        let Settings {
            accounts, clients, pace, batch_floor, limits, spacing, notify_spacing, ..
        } = settings;
        let spacing = Spacing { any: spacing, notifying: notify_spacing };
        let terms = |reserve| Terms { reserve, batch_floor: in_ten_thousandths(batch_floor), pace };
        self.clients = clients;
        self.elapsed_unknown = Secondary::elapsed_unknown(limits);
        (
            self.dynamic_accounts.terms,
            self.dynamic_accounts.limits,
            self.dynamic_accounts.spacing,
        ) = (terms(0), limits, spacing);
        let places = self.dynamic_accounts.places;
        for (index, settings) in accounts.into_iter().enumerate() {
            let at = place(places.id(index));
            if let Some(known) = self.accounts.get_mut(at) {
                (known.terms, known.settings) = (terms(settings.reserve), settings);
            } else if at == self.accounts.len() {
                self.accounts.push(Account::new(
                    settings.clone(),
                    terms(settings.reserve),
                    Secondary::new(limits, spacing),
                ));
            }
        }
        self.candidates.grow(self.accounts.len());
        for (id, account) in (0..).map(AccountId).zip(&mut self.accounts) {
            account.secondary.reconfigure(limits, spacing);
            if places.is_dynamic(id) {
                account.terms = self.dynamic_accounts.terms;
            }
            self.candidates.changed(now, id, account);
        }
    }
}
