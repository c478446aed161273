//! The ledger among those of other replicas: what it reports, and what it learns.

use std::time::Duration;

use super::account::Account;
use super::{QuotaLedger, place};
use crate::api::{EndpointId, ResourceName};
use crate::clock::Timestamp;
use crate::decision::fleet::{Answer, Report};
use crate::decision::types::AccountId;

impl QuotaLedger {
    /// The accounts of the config that have something to report.
    pub(in crate::decision) fn to_report(
        &self,
        now: Timestamp,
    ) -> impl Iterator<Item = AccountId> + '_ {
        let ids = (0..).map(AccountId).zip(&self.accounts);
        ids.filter(move |(_, account)| {
            account.parts.as_ref().is_some_and(|parts| parts.is_to_be_reported(now))
        })
        .map(|(id, _)| id)
    }

    /// True if there is something for [`QuotaLedger::take_short`].
    pub(in crate::decision) fn has_short(&self) -> bool {
        !self.short.is_empty()
    }

    /// Drains the accounts to be reported on at once: a request waits for more than the parts of
    /// this replica, or the upstream has refused one.
    pub(in crate::decision) fn take_short(&mut self) -> Vec<AccountId> {
        std::mem::take(&mut self.short)
    }

    /// Reports on an account, and gives back what this replica does not need of it. `waiting`:
    /// requests that wait. `name` names an endpoint.
    pub(in crate::decision) fn report(
        &mut self,
        now: Timestamp,
        id: AccountId,
        waiting: u32,
        name: &dyn Fn(EndpointId) -> String,
    ) -> Option<Report> {
        let Account { parts, secondary, windows, cooldown, terms, .. } =
            self.accounts.get_mut(place(id))?;
        let rest = (cooldown.until(now), terms.reserve);
        Some(parts.as_mut()?.report(now, waiting, (secondary, windows), rest, name))
    }

    /// Takes over the answer to the last report, which was sent at this time. Returns true if
    /// waiting requests may go now.
    pub(in crate::decision) fn take_parts(
        &mut self,
        now: Timestamp,
        sent_at: Timestamp,
        id: AccountId,
        answer: &Answer,
    ) -> bool {
        let Some(account) = self.accounts.get_mut(place(id)) else { return false };
        let Some(parts) = &mut account.parts else { return false };
        let (resources, is_more) = parts.take(sent_at, answer);
        let is_known = account.learn(now, resources, answer);
        self.candidates.changed(now, id, account);
        is_more || is_known
    }

    /// Closes an account for a time, as a whole and for some resources: the upstream has refused a
    /// request of another replica.
    pub(in crate::decision) fn closed_elsewhere(
        &mut self,
        now: Timestamp,
        id: AccountId,
        whole_for: Duration,
        resources_for: &[(ResourceName, Duration)],
    ) {
        let Some(account) = self.accounts.get_mut(place(id)) else { return };
        if !whole_for.is_zero() {
            account.cooldown.extend(now + whole_for);
        }
        for (resource, closed_for) in resources_for {
            let at = account.window_index(resource);
            if let Some(window) = account.window_at(at) {
                window.reported_closed(now + *closed_for);
            }
        }
        self.candidates.changed(now, id, account);
    }

    /// The accounts of which this replica holds parts, at its end. Their next reports give back all
    /// that is not in use.
    pub(in crate::decision) fn give_back(&mut self) -> Vec<AccountId> {
        let mut held = Vec::new();
        for (id, account) in (0..).map(AccountId).zip(&mut self.accounts) {
            if let Some(parts) = account.parts.as_mut().filter(|parts| parts.has_reported()) {
                parts.give_back();
                held.push(id);
            }
        }
        held
    }

    /// The last report about an account has no answer.
    pub(in crate::decision) fn unanswered(&mut self, id: AccountId) {
        let account = self.accounts.get_mut(place(id));
        if let Some(parts) = account.and_then(|account| account.parts.as_mut()) {
            parts.unanswered();
        }
    }
}

impl Account {
    /// Returns true if a window that was unknown is known now.
    fn learn(&mut self, now: Timestamp, resources: Vec<ResourceName>, answer: &Answer) -> bool {
        let mut is_known = false;
        if !answer.cooldown.is_zero() {
            self.cooldown.extend(now + answer.cooldown);
        }
        self.secondary.reported_writes(answer.last_writes.map(|age| age.map(|age| now - age)));
        for (resource, known) in resources.into_iter().zip(&answer.budgets) {
            let at = self.window_index(&resource);
            let Some(window) = self.window_at(at) else { continue };
            let was_unknown = window.is_unknown(now);
            if let Some(seen) = known.seen {
                window.reported(now, seen);
            } else if known.is_unmetered {
                window.reported_unmetered();
            }
            if !known.closed_for.is_zero() {
                window.reported_closed(now + known.closed_for);
            }
            is_known |= was_unknown && !window.is_unknown(now);
        }
        is_known
    }
}
