//! Admission on one of several replicas: reports about its parts of the limits, and the answers.

use std::time::Duration;

use super::Admission;
use crate::api::{EndpointId, ResourceName};
use crate::clock::Timestamp;
use crate::decision::fleet::{Answer, Report};
use crate::decision::quota::SpentBudget;
use crate::decision::types::AccountId;

impl Admission {
    /// The accounts on which this replica has something to report to the others.
    pub fn to_report(&self, now: Timestamp) -> Vec<AccountId> {
        self.ledger.to_report(now).collect()
    }

    /// The accounts of which this replica holds parts, at its end. Their next reports give back all
    /// that is not in use.
    pub fn give_back(&mut self) -> Vec<AccountId> {
        self.ledger.give_back()
    }

    /// True if there is something for [`Admission::take_short`].
    pub fn has_short(&self) -> bool {
        self.ledger.has_short()
    }

    /// Drains the accounts to be reported on at once: requests wait for more than the parts of this
    /// replica, or the upstream has refused one.
    pub fn take_short(&mut self) -> Vec<AccountId> {
        self.ledger.take_short()
    }

    /// Reports on an account, and gives back at once what this replica does not need of it. `None`:
    /// there is no such account, or no other replica. `name` names an endpoint, equally for all.
    pub fn report(
        &mut self,
        now: Timestamp,
        account: AccountId,
        name: &dyn Fn(EndpointId) -> String,
    ) -> Option<Report> {
        let waiting = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        self.ledger.report(now, account, waiting, name)
    }

    /// Takes over the answer to the last report about an account, which was made at `sent_at`, and
    /// decides the requests that it frees. `None`: no answer came.
    pub fn reported(
        &mut self,
        now: Timestamp,
        sent_at: Timestamp,
        account: AccountId,
        answer: Option<&Answer>,
    ) {
        let may_go = if let Some(answer) = answer {
            self.ledger.take_parts(now, sent_at, account, answer)
        } else {
            self.ledger.unanswered(account);
            false
        };
        if may_go {
            self.retry_all(now);
        }
    }

    /// Closes an account for a time, as a whole and for some resources: the upstream has refused a
    /// request of another replica.
    pub fn closed_elsewhere(
        &mut self,
        now: Timestamp,
        account: AccountId,
        whole_for: Duration,
        resources_for: &[(ResourceName, Duration)],
    ) {
        self.ledger.closed_elsewhere(now, account, whole_for, resources_for);
    }

    /// Units of their own budgets that clients have spent since the last call, for the others.
    pub(crate) fn own_news(&mut self) -> Vec<SpentBudget> {
        self.ledger.own_news()
    }

    /// Adds what another replica's clients have spent of their own budgets.
    pub(crate) fn add_own_spent(&mut self, now: Timestamp, spent: &[SpentBudget]) {
        self.ledger.add_own_spent(now, spent);
    }
}
