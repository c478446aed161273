//! The ledger as a file keeps it, so that a restart of the gateway forgets neither budgets nor
//! limits.
//!
//! Endpoints are saved by name, because their numbers differ between releases. Accounts are known
//! by name and kind, as after a reload. Left out are dynamic accounts, estimates of durations and
//! prices, and questions under way.

use serde::{Deserialize, Serialize};

use super::account::Account;
use super::client_budgets::SavedBudget;
use super::limits::cooldown::Cooldown;
use super::limits::primary::{PrimaryWindow, SavedWindow};
use super::limits::secondary::SavedSecondary;
use super::{QuotaLedger, WindowIndex};
use crate::api::{EndpointId, ResourceName};
use crate::clock::Timestamp;
use crate::decision::types::{AccountId, Recovered};

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedLedger {
    accounts: Vec<SavedAccount>,
    /// Resources that answers named, by endpoint.
    learned: Vec<(String, String)>,
    /// Own budgets of clients.
    #[serde(default)]
    client_budgets: Vec<SavedBudget>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedAccount {
    name: String,
    kind: String,
    windows: Vec<(String, SavedWindow)>,
    cooldown: Cooldown,
    secondary: SavedSecondary,
}

impl QuotaLedger {
    /// Returns the state of the accounts of the config. `name` names an endpoint.
    pub(in crate::decision) fn saved(
        &self,
        now: Timestamp,
        name: &dyn Fn(EndpointId) -> String,
    ) -> SavedLedger {
        let ids = (0..).map(AccountId).zip(&self.accounts);
        let of_config = ids.filter(|(id, _)| !self.layout.is_dynamic(*id));
        let accounts = of_config.map(|(_, account)| account.saved(now, name)).collect();
        let learned = self.learned.iter();
        let learned =
            learned.map(|(endpoint, resource)| (name(*endpoint), resource.as_str().to_owned()));
        let client_budgets = self.client_budgets.saved(now);
        SavedLedger { accounts, learned: learned.collect(), client_budgets }
    }

    /// Takes over the state of an earlier process, before the first request. `endpoint` finds an
    /// endpoint by its name.
    pub(in crate::decision) fn restore(
        &mut self,
        now: Timestamp,
        saved: &SavedLedger,
        recovered: Recovered,
        endpoint: &dyn Fn(&str) -> Option<EndpointId>,
    ) {
        for (id, account) in (0..).map(AccountId).zip(&mut self.accounts) {
            let is_it = |saved: &&SavedAccount| {
                *saved.name == *account.settings.name && saved.kind == kind_of(account)
            };
            if self.layout.is_dynamic(id) {
                continue;
            }
            if let Some(saved) = saved.accounts.iter().find(is_it) {
                account.restore(now, saved, recovered, endpoint);
                self.candidates.changed(now, id, account);
            }
        }
        let known = saved.learned.iter();
        let known = known
            .filter_map(|(name, resource)| Some((endpoint(name)?, ResourceName::parse(resource)?)));
        self.learned.extend(known);
        self.client_budgets.restore(now, &saved.client_budgets);
        let accounts: Vec<_> = (0..).map(AccountId).take(self.accounts.len()).collect();
        self.want_questions(now, &accounts);
    }
}

impl Account {
    fn saved(&self, now: Timestamp, name: &dyn Fn(EndpointId) -> String) -> SavedAccount {
        SavedAccount {
            name: self.settings.name.to_string(),
            kind: kind_of(self),
            windows: self.saved_windows(now),
            cooldown: self.cooldown.clone(),
            secondary: self.secondary.saved(now, name),
        }
    }

    /// Returns the state of the primary windows, by the names of their resources.
    pub fn saved_windows(&self, now: Timestamp) -> Vec<(String, SavedWindow)> {
        let windows = self.windows.iter();
        let saved = windows.map(|(name, window)| (name.as_str().to_owned(), window.saved(now)));
        saved.collect()
    }

    fn restore(
        &mut self,
        now: Timestamp,
        saved: &SavedAccount,
        recovered: Recovered,
        endpoint: &dyn Fn(&str) -> Option<EndpointId>,
    ) {
        for (name, saved) in &saved.windows {
            let resource = ResourceName::new(name);
            let at: WindowIndex = self.window_index(&resource);
            if let Some(window) = self.window_at(at) {
                let has_replicas = window.has_replicas;
                let restored = PrimaryWindow::restored(&resource, saved, recovered, now);
                *window = restored;
                window.has_replicas = has_replicas;
            }
        }
        self.cooldown = saved.cooldown.restored(now);
        self.secondary.restore(&saved.secondary, endpoint, now);
    }
}

pub(super) fn kind_of(account: &Account) -> String {
    format!("{:?}", account.settings.kind)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use http::StatusCode;

    use super::*;
    use crate::api::{AccountKind, RateHeaders, UpstreamLimit, UpstreamLimitKind};
    use crate::decision::types::{
        AccountSettings, Demand, LeaseId, LimitKind, Settings, Settlement, WriteSpacing,
    };

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
    const ONE: AccountId = AccountId(0);

    fn settings() -> Settings {
        let account = AccountSettings {
            is_shared: false,
            name: "one".into(),
            kind: AccountKind::User,
            reserve: 0,
            also_spends: None,
        };
        Settings {
            accounts: vec![account],
            spacing: Duration::from_secs(1),
            notify_spacing: Duration::from_secs(3),
            ..Settings::default()
        }
    }

    /// A ledger before its first request.
    fn ledger() -> QuotaLedger {
        QuotaLedger::new(settings())
    }

    fn read() -> Demand {
        Demand::read(vec![ONE], "/repos/a/b")
    }

    fn rate(remaining: u32) -> RateHeaders {
        let reset = NOW + Duration::from_mins(30);
        RateHeaders { limit: 5_000, remaining, used: None, reset, resource: None }
    }

    fn admitted(ledger: &mut QuotaLedger, lease: u64, demand: &Demand) -> Result<(), LimitKind> {
        let list = ledger.candidates.find(&demand.candidates);
        let admitted = ledger.admit(NOW, LeaseId(lease), demand, list, NOW);
        admitted.map(drop).map_err(|blocked| blocked.refusal.limit)
    }

    fn answered(ledger: &mut QuotaLedger, lease: u64, remaining: u32) {
        let rate = rate(remaining);
        let settlement =
            Settlement::Answered { status: StatusCode::OK, rate: Some(&rate), refusal: None };
        ledger.settle(NOW, LeaseId(lease), settlement, 0.0);
    }

    /// The ledger after a restart, by way of text.
    fn restarted(before: &QuotaLedger, now: Timestamp, recovered: Recovered) -> QuotaLedger {
        let name = |endpoint: EndpointId| format!("{endpoint:?}");
        let text = serde_json::to_string(&before.saved(now, &name)).unwrap();
        let saved = serde_json::from_str(&text).unwrap();
        let mut after = ledger();
        let of_test = read().endpoint;
        let endpoint = |named: &str| (named == name(of_test)).then_some(of_test);
        after.restore(now, &saved, recovered, &endpoint);
        assert_eq!(after.audit(), []);
        after
    }

    fn remaining(ledger: &QuotaLedger, now: Timestamp) -> Option<u32> {
        let windows = ledger.snapshot(now).remove(0).windows;
        windows.iter().find(|window| window.known).map(|window| window.remaining)
    }

    #[test]
    fn a_budget_returns_without_the_units_in_flight() {
        let mut before = ledger();
        admitted(&mut before, 1, &read()).unwrap();
        answered(&mut before, 1, 4_000);
        admitted(&mut before, 2, &read()).unwrap();
        let after = restarted(&before, NOW, Recovered::Last);
        assert_eq!(remaining(&after, NOW), Some(3_999), "the last one ends with the process");
        let over = NOW + Duration::from_mins(31);
        assert_eq!(remaining(&restarted(&before, over, Recovered::Last), over), None);
    }

    #[test]
    fn a_budget_of_before_a_crash_returns_only_if_it_denies() {
        let mut before = ledger();
        admitted(&mut before, 1, &read()).unwrap();
        answered(&mut before, 1, 4_000);
        assert_eq!(remaining(&restarted(&before, NOW, Recovered::Earlier), NOW), None);
        admitted(&mut before, 2, &read()).unwrap();
        answered(&mut before, 2, 0);
        let mut after = restarted(&before, NOW, Recovered::Earlier);
        assert_eq!(remaining(&after, NOW), Some(0));
        assert_eq!(admitted(&mut after, 1, &read()), Err(LimitKind::Primary));
    }

    #[test]
    fn refusals_and_writes_deny_after_the_restart_as_before() {
        for recovered in [Recovered::Last, Recovered::Earlier] {
            let mut before = ledger();
            let write = Demand { write: WriteSpacing::Notifies, content: true, ..read() };
            admitted(&mut before, 1, &write).unwrap();
            answered(&mut before, 1, 4_000);
            let mut after = restarted(&before, NOW, recovered);
            assert_eq!(admitted(&mut after, 1, &write), Err(LimitKind::Spacing));
            let in_use = |ledger: &QuotaLedger, limit| {
                let limits = ledger.snapshot(NOW).remove(0).secondary;
                limits.iter().find(|other| other.limit == limit).map(|limit| limit.in_use)
            };
            for limit in [LimitKind::Points, LimitKind::ContentPerMinute, LimitKind::ContentPerHour]
            {
                assert_eq!(in_use(&after, limit), in_use(&before, limit), "{limit:?}");
                assert_ne!(in_use(&after, limit), Some(0), "{limit:?}");
            }
            admitted(&mut before, 2, &read()).unwrap();
            let refusal = UpstreamLimit {
                kind: UpstreamLimitKind::Secondary,
                retry_after: Some(Duration::from_mins(10)),
                reset: None,
                remaining: None,
                resource: None,
            };
            let settlement = Settlement::Answered {
                status: StatusCode::FORBIDDEN,
                rate: None,
                refusal: Some(&refusal),
            };
            before.settle(NOW, LeaseId(2), settlement, 0.0);
            let mut after = restarted(&before, NOW, recovered);
            assert_eq!(admitted(&mut after, 1, &read()), Err(LimitKind::Cooldown));
        }
    }

    #[test]
    fn an_account_of_another_name_or_kind_begins_anew() {
        let mut before = ledger();
        admitted(&mut before, 1, &read()).unwrap();
        answered(&mut before, 1, 4_000);
        let saved = before.saved(NOW, &|_| String::new());
        for (name, kind) in [("two", AccountKind::User), ("one", AccountKind::Workflow)] {
            let mut settings = settings();
            settings.accounts[0].name = Arc::from(name);
            settings.accounts[0].kind = kind;
            let mut after = QuotaLedger::new(settings);
            after.restore(NOW, &saved, Recovered::Last, &|_| None);
            assert_eq!(remaining(&after, NOW), None, "{name} {kind:?}");
        }
    }
}
