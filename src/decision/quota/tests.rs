//! The ledger as a whole: the chosen account, the settlement of answers, and the views.

use std::time::Duration;

use http::Method;

use super::*;
use crate::api::{AccountKind, Dialect, Table, UpstreamLimit, UpstreamLimitKind};
use crate::decision::types::{AccountSettings, LimitDenied};

const NOW: Timestamp = Timestamp::from_secs(10_000);
const RESET: Timestamp = Timestamp::from_secs(12_000);
const OK: StatusCode = StatusCode::OK;

impl QuotaLedger {
    /// Admits without a wait queue.
    pub(in crate::decision) fn try_admit(
        &mut self,
        now: Timestamp,
        lease: LeaseId,
        demand: &Demand,
    ) -> Result<Grant, LimitDenied> {
        let list = self.candidates.find(&demand.candidates);
        self.admit(now, lease, demand, list, now).map_err(|blocked| blocked.refusal)
    }
}

fn ledger(accounts: u32) -> QuotaLedger {
    with_reserve(accounts, 0)
}

fn with_reserve(accounts: u32, reserve: u32) -> QuotaLedger {
    let account = |number: u32| AccountSettings {
        is_shared: false,
        name: format!("account-{number}").into(),
        kind: AccountKind::User,
        reserve,
        also_spends: None,
    };
    let limits = SecondaryLimits { concurrency: 1_000, ..SecondaryLimits::default() };
    QuotaLedger::new(Settings {
        accounts: (0..accounts).map(account).collect(),
        limits,
        ..Settings::default()
    })
}

fn endpoint(path: &str) -> EndpointId {
    Table::embedded(Dialect::Service).classify(&Method::GET, path).endpoint.id
}

fn demand(accounts: u32) -> Demand {
    Demand::read((0..accounts).map(AccountId).collect::<Vec<_>>(), "/repos/a/b")
}

fn rate_headers(limit: u32, remaining: u32) -> RateHeaders {
    RateHeaders { limit, remaining, used: None, reset: RESET, resource: Some(ResourceName::core()) }
}

fn answer(ledger: &mut QuotaLedger, lease: u64, rate: Option<&RateHeaders>) {
    ledger.settle(
        NOW,
        LeaseId(lease),
        Settlement::Answered { status: OK, rate, refusal: None },
        0.0,
    );
}

fn refuse(ledger: &mut QuotaLedger, lease: u64, rate: &RateHeaders, refusal: &UpstreamLimit) {
    let settlement = Settlement::Answered {
        status: StatusCode::FORBIDDEN,
        rate: Some(rate),
        refusal: Some(refusal),
    };
    ledger.settle(NOW, LeaseId(lease), settlement, 0.0);
}

/// Lets every account answer once, so that it is known to have `remaining` of 100 left.
fn warm(ledger: &mut QuotaLedger, remaining: &[u32]) {
    for (account, remaining) in (0..).zip(remaining) {
        let lease = 900_000 + account;
        let alone =
            Demand { candidates: [AccountId(u32::try_from(account).unwrap())].into(), ..demand(1) };
        ledger.try_admit(NOW, LeaseId(lease), &alone).unwrap();
        answer(ledger, lease, Some(&rate_headers(100, *remaining)));
    }
}

#[test]
fn three_cold_accounts_of_50_units_admit_exactly_150() {
    let mut ledger = ledger(3);
    let mut left = [50u32; 3];
    let mut open = std::collections::VecDeque::new();
    let mut admitted = 0;
    for lease in 0..200 {
        match ledger.try_admit(NOW, LeaseId(lease), &demand(3)) {
            Ok(grant) => {
                admitted += 1;
                open.push_back(grant);
            }
            Err(refusal) if refusal.until == Until::Event => {}
            Err(refusal) => {
                assert_eq!(
                    refusal.until,
                    Until::Time(RESET + crate::decision::quota::limits::primary::WOBBLE)
                );
                assert_eq!(
                    (refusal.limit, refusal.account),
                    (LimitKind::Primary, Some(AccountId(0)))
                );
            }
        }
        // The answers come in between, and those of accounts 1 and 2 name later resets.
        if admitted >= 3 && lease % 2 == 1 {
            for grant in open.drain(..) {
                let remaining = &mut left[place(grant.account)];
                *remaining -= 1;
                let rate = RateHeaders {
                    reset: RESET + Duration::from_mins(grant.account.0.into()),
                    ..rate_headers(50, *remaining)
                };
                answer(&mut ledger, grant.lease.0, Some(&rate));
            }
        }
    }
    assert_eq!(admitted, 150);
    assert_eq!(left, [0; 3]);
}

#[test]
fn cold_accounts_are_probed_in_parallel() {
    let mut ledger = ledger(3);
    let accounts: Vec<u32> = (0..3)
        .map(|lease| ledger.try_admit(NOW, LeaseId(lease), &demand(3)).unwrap().account.0)
        .collect();
    assert_eq!(accounts, [0, 1, 2]);
    let refusal = ledger.try_admit(NOW, LeaseId(3), &demand(3)).unwrap_err();
    assert_eq!((refusal.limit, refusal.until), (LimitKind::Probe, Until::Event));
}

#[test]
fn a_lease_is_admitted_once_and_settled_once() {
    let mut ledger = ledger(1);
    warm(&mut ledger, &[10]);
    let first = ledger.try_admit(NOW, LeaseId(1), &demand(1)).unwrap();
    assert_eq!(ledger.try_admit(NOW, LeaseId(1), &demand(1)), Ok(first));
    assert_eq!(ledger.open_leases(), 1);
    ledger.settle(NOW, LeaseId(1), Settlement::Unknown, 0.0);
    ledger.settle(NOW, LeaseId(1), Settlement::Unknown, 0.0);
    assert_eq!(ledger.view(NOW, &[AccountId(0)].into(), &ResourceName::core()).remaining, 9);
}

#[test]
fn a_pool_empties_evenly() {
    let mut ledger = ledger(3);
    warm(&mut ledger, &[90, 30, 60]);
    for lease in 0..120 {
        ledger.try_admit(NOW, LeaseId(lease), &demand(3)).unwrap();
    }
    let left = [0, 1, 2].map(|account| {
        ledger.view(NOW, &[AccountId(account)].into(), &ResourceName::core()).remaining
    });
    assert_eq!(left, [20, 20, 20]);
}

#[test]
fn the_etag_owner_is_preferred_while_about_as_good() {
    let mut ledger = ledger(2);
    warm(&mut ledger, &[26, 90]);
    let demand = Demand { prefer: Some(AccountId(0)), ..demand(2) };
    assert_eq!(ledger.try_admit(NOW, LeaseId(0), &demand).unwrap().account, AccountId(0));
    assert_eq!(
        ledger.try_admit(NOW, LeaseId(1), &demand).unwrap().account,
        AccountId(1),
        "a quarter is left to it"
    );
}

#[test]
fn a_reported_resource_overrides_the_endpoint_table() {
    let mut ledger = ledger(1);
    warm(&mut ledger, &[50]);
    let search = RateHeaders { resource: Some(ResourceName::search()), ..rate_headers(30, 4) };
    ledger.try_admit(NOW, LeaseId(1), &demand(1)).unwrap();
    answer(&mut ledger, 1, Some(&search));
    assert_eq!(
        ledger.resource_for(demand(1).endpoint, &ResourceName::core()),
        ResourceName::search()
    );
    let mut view = |resource| ledger.view(NOW, &[AccountId(0)].into(), &resource).remaining;
    assert_eq!((view(ResourceName::core()), view(ResourceName::search())), (50, 4));
    for lease in 2..6 {
        ledger.try_admit(NOW, LeaseId(lease), &demand(1)).unwrap();
    }
    assert_eq!(
        ledger.try_admit(NOW, LeaseId(6), &demand(1)).unwrap_err().resource,
        ResourceName::search()
    );
    assert_eq!(
        ledger.resources_seen(&[AccountId(0)]),
        [ResourceName::core(), ResourceName::search()]
    );
}

#[test]
fn unknown_resources_get_windows_up_to_a_bound() {
    let mut ledger = ledger(1);
    for lease in 0..500 {
        ledger.try_admit(NOW, LeaseId(lease), &demand(1)).unwrap();
        let resource = Some(ResourceName::new(&format!("unheard-of-{lease}")));
        answer(&mut ledger, lease, Some(&RateHeaders { resource, ..rate_headers(100, 50) }));
    }
    assert_eq!(ledger.resources_seen(&[AccountId(0)]).len(), account::WINDOWS_MAX + 1);
    assert_eq!(ledger.audit(), Vec::new());
}

#[test]
fn a_primary_limit_closes_one_resource_of_one_account() {
    let mut ledger = ledger(2);
    warm(&mut ledger, &[90, 80]);
    assert_eq!(ledger.try_admit(NOW, LeaseId(1), &demand(2)).unwrap().account, AccountId(0));
    let refusal = UpstreamLimit {
        kind: UpstreamLimitKind::Primary,
        retry_after: None,
        reset: Some(RESET),
        remaining: Some(0),
        resource: None,
    };
    refuse(&mut ledger, 1, &rate_headers(100, 0), &refusal);
    let alone = Demand { candidates: [AccountId(0)].into(), ..demand(1) };
    assert_eq!(ledger.try_admit(NOW, LeaseId(2), &alone).unwrap_err().limit, LimitKind::Primary);
    let search =
        Demand { resource: ResourceName::search(), endpoint: endpoint("/search/issues"), ..alone };
    assert!(ledger.try_admit(NOW, LeaseId(2), &search).is_ok());
    assert_eq!(ledger.try_admit(NOW, LeaseId(3), &demand(2)).unwrap().account, AccountId(1));
}

#[test]
fn a_primary_limit_without_numbers_closes_the_leased_window() {
    let mut ledger = ledger(1);
    warm(&mut ledger, &[50]);
    ledger.try_admit(NOW, LeaseId(1), &demand(1)).unwrap();
    let refusal = UpstreamLimit {
        kind: UpstreamLimitKind::Primary,
        retry_after: Some(Duration::ZERO),
        reset: None,
        remaining: None,
        resource: Some(ResourceName::search()),
    };
    let settlement =
        Settlement::Answered { status: StatusCode::FORBIDDEN, rate: None, refusal: Some(&refusal) };
    ledger.settle(NOW, LeaseId(1), settlement, 0.0);
    let refused = ledger.try_admit(NOW, LeaseId(2), &demand(1)).unwrap_err();
    assert_eq!(
        (refused.limit, refused.until),
        (LimitKind::Primary, Until::Time(NOW + Duration::from_secs(1)))
    );
}

#[test]
fn a_secondary_limit_closes_one_account_for_everything() {
    let mut ledger = ledger(2);
    warm(&mut ledger, &[90, 80]);
    ledger.try_admit(NOW, LeaseId(1), &demand(2)).unwrap();
    let pause = Duration::from_secs(30);
    let refusal = UpstreamLimit {
        kind: UpstreamLimitKind::Secondary,
        retry_after: Some(pause),
        reset: Some(RESET),
        remaining: Some(88),
        resource: None,
    };
    refuse(&mut ledger, 1, &rate_headers(100, 88), &refusal);
    let search =
        Demand { candidates: [AccountId(0)].into(), resource: ResourceName::search(), ..demand(1) };
    let refused = ledger.try_admit(NOW, LeaseId(2), &search).unwrap_err();
    assert_eq!((refused.limit, refused.until), (LimitKind::Cooldown, Until::Time(NOW + pause)));
    assert_eq!(ledger.try_admit(NOW, LeaseId(3), &demand(2)).unwrap().account, AccountId(1));
    assert_eq!(ledger.snapshot(NOW)[0].cooldown_until, Some(NOW + pause));
}

#[test]
fn rate_headers_on_a_401_are_ignored() {
    let mut ledger = ledger(1);
    warm(&mut ledger, &[90]);
    ledger.try_admit(NOW, LeaseId(1), &demand(1)).unwrap();
    let settlement = Settlement::Answered {
        status: StatusCode::UNAUTHORIZED,
        rate: Some(&rate_headers(60, 0)),
        refusal: None,
    };
    ledger.settle(NOW, LeaseId(1), settlement, 0.0);
    assert_eq!(ledger.view(NOW, &[AccountId(0)].into(), &ResourceName::core()).remaining, 89);
}

#[test]
fn an_uncounted_request_changes_no_window() {
    let mut ledger = ledger(1);
    warm(&mut ledger, &[0]);
    let free = Demand { cost: 0, ..demand(1) };
    ledger.try_admit(NOW, LeaseId(1), &free).unwrap();
    answer(
        &mut ledger,
        1,
        Some(&RateHeaders { reset: RESET + Duration::from_hours(1), ..rate_headers(100, 100) }),
    );
    assert!(ledger.try_admit(NOW, LeaseId(2), &demand(1)).is_err());
    assert_eq!(ledger.audit(), Vec::new());
}

#[test]
fn a_demand_without_a_known_account_is_never_admitted() {
    let mut ledger = ledger(1);
    for candidates in [Vec::new(), vec![AccountId(7)]] {
        let refusal = ledger
            .try_admit(NOW, LeaseId(1), &Demand { candidates: candidates.into(), ..demand(1) })
            .unwrap_err();
        assert_eq!(
            (refusal.limit, refusal.until),
            (LimitKind::NoAccount, Until::Time(Timestamp::FAR_FUTURE))
        );
    }
}

#[test]
fn a_view_sums_the_pool_without_leases_and_reserves() {
    let mut ledger = with_reserve(3, 10);
    warm(&mut ledger, &[90, 5]);
    ledger
        .try_admit(NOW, LeaseId(1), &Demand { candidates: [AccountId(0)].into(), ..demand(1) })
        .unwrap();
    let pool = [AccountId(0), AccountId(1), AccountId(2)];
    let view = ledger.view(NOW, &pool.into(), &ResourceName::core());
    assert_eq!(
        (view.limit, view.remaining),
        (100 + 100 + 5_000, 79 + 4_990),
        "the third was never seen and counts as documented"
    );
    assert_eq!((view.used, view.reset), (view.limit - view.remaining, RESET));
}

#[test]
fn a_reported_reset_is_always_in_the_future() {
    let mut ledger = ledger(1);
    warm(&mut ledger, &[5]);
    for now in [RESET, RESET + Duration::from_secs(1), RESET + Duration::from_hours(5)] {
        assert!(
            ledger.view(now, &[AccountId(0)].into(), &ResourceName::core()).reset.as_secs()
                > now.as_secs()
        );
    }
    assert_eq!(
        ledger
            .view(RESET + Duration::from_secs(2), &[AccountId(0)].into(), &ResourceName::core())
            .remaining,
        100,
        "the window is over"
    );
}

#[test]
fn a_snapshot_contains_every_window_and_every_limit() {
    let mut ledger = ledger(1);
    warm(&mut ledger, &[40]);
    ledger.try_admit(NOW, LeaseId(1), &demand(1)).unwrap();
    let [account] = ledger.snapshot(NOW).try_into().unwrap();
    let [core] = account.windows.try_into().unwrap();
    let expected = WindowSnapshot {
        resource: ResourceName::core(),
        limit: 100,
        remaining: 40,
        reserved: 1,
        used: 60,
        reset: RESET,
        known: true,
        // 60 units in 1,600 seconds, so that 40 last for 1,066.
        gone_at: Some(Timestamp::from_millis(11_066_666)),
    };
    assert_eq!((&*account.name, core), ("account-0", expected));
    let in_use: Vec<_> =
        account.secondary.iter().map(|limit| (limit.limit.name(), limit.in_use)).collect();
    let others = [
        "graphql_points",
        "content_per_minute",
        "content_per_hour",
        "oauth_tokens",
        "cpu",
        "graphql_cpu",
    ];
    assert_eq!(in_use[..2], [("concurrency", 1), ("points", 2)]);
    assert_eq!(in_use.iter().skip(2).map(|(name, _)| *name).collect::<Vec<_>>(), others);
}

#[test]
fn limits_without_headers_do_not_make_a_resource_unmetered() {
    let mut ledger = ledger(1);
    let refusal = UpstreamLimit {
        kind: UpstreamLimitKind::Primary,
        retry_after: Some(Duration::from_secs(1)),
        reset: None,
        remaining: None,
        resource: None,
    };
    for number in 0..5 {
        let now = NOW + Duration::from_secs(10) * u32::try_from(number).unwrap();
        assert!(ledger.try_admit(now, LeaseId(number), &demand(1)).is_ok());
        assert!(ledger.try_admit(now, LeaseId(100), &demand(1)).is_err(), "one probe at a time");
        let settlement = Settlement::Answered {
            status: StatusCode::FORBIDDEN,
            rate: None,
            refusal: Some(&refusal),
        };
        ledger.settle(now, LeaseId(number), settlement, 0.0);
    }
}

#[test]
fn rate_headers_on_the_head_of_a_401_are_ignored() {
    let mut ledger = ledger(1);
    warm(&mut ledger, &[40]);
    assert!(ledger.try_admit(NOW, LeaseId(1), &demand(1)).is_ok());
    ledger.answer_begun(NOW, LeaseId(1), StatusCode::UNAUTHORIZED, Some(&rate_headers(60, 0)));
    assert!(ledger.try_admit(NOW, LeaseId(2), &demand(1)).is_ok());
}

#[test]
fn batch_requests_wait_for_the_earliest_window_end() {
    let account = |number: u32| AccountSettings {
        is_shared: false,
        name: format!("{number}").into(),
        kind: AccountKind::User,
        reserve: 0,
        also_spends: None,
    };
    for accounts in [2, 40] {
        let clients = vec![crate::decision::types::ClientSettings {
            priority: Priority::Batch,
            ..Default::default()
        }];
        let settings = Settings {
            accounts: (0..accounts).map(account).collect(),
            clients,
            batch_floor: 0.5,
            ..Settings::default()
        };
        let mut ledger = QuotaLedger::new(settings);
        for number in 0..accounts {
            let one = Demand { candidates: [AccountId(number)].into(), ..demand(1) };
            assert!(ledger.try_admit(NOW, LeaseId(number.into()), &one).is_ok());
            let reset = if number == 1 { NOW + Duration::from_secs(5) } else { RESET };
            let rate =
                RateHeaders { reset, ..rate_headers(100, if number == 1 { 10 } else { 20 }) };
            answer(&mut ledger, number.into(), Some(&rate));
        }
        let refusal = ledger.try_admit(NOW, LeaseId(100), &demand(accounts)).unwrap_err();
        assert_eq!(
            (refusal.limit, refusal.until),
            (LimitKind::BatchFloor, Until::Time(NOW + Duration::from_secs(7)))
        );
    }
}

#[test]
fn absurd_costs_and_points_break_nothing() {
    let mut ledger = ledger(1);
    let much = Demand { cost: u32::MAX, points: u32::MAX, ..demand(1) };
    assert!(ledger.try_admit(NOW, LeaseId(0), &much).is_ok());
    answer(&mut ledger, 0, None);
    for number in 1..6 {
        let now = NOW + Duration::from_secs(100 * number);
        let other = Demand { endpoint: endpoint("/repos/a/b/issues"), ..much.clone() };
        let _ = ledger.try_admit(now, LeaseId(number), &much);
        let _ = ledger.try_admit(now, LeaseId(100 + number), &other);
        assert_eq!(ledger.audit(), Vec::new());
        ledger.settle(
            now,
            LeaseId(number),
            Settlement::Answered { status: OK, rate: None, refusal: None },
            0.0,
        );
        assert_eq!(ledger.audit(), Vec::new());
        ledger.settle(now, LeaseId(100 + number), Settlement::Unknown, 0.0);
    }
}

#[test]
fn the_number_of_rankings_is_bounded() {
    let mut ledger = ledger(2);
    for number in 0..500 {
        let named = ResourceName::new(&format!("resource-{number}"));
        let now = NOW + Duration::from_secs(number);
        let Ok(grant) = ledger.try_admit(now, LeaseId(number), &demand(2)) else { continue };
        let rate = RateHeaders { resource: Some(named), ..rate_headers(50, 40) };
        ledger.settle(
            now,
            grant.lease,
            Settlement::Answered { status: OK, rate: Some(&rate), refusal: None },
            0.0,
        );
    }
    assert!(ledger.candidates.rankings() <= 80, "{}", ledger.candidates.rankings());
}

/// Two accounts of the config and one dynamic account, which is number 2.
fn with_dynamic_account() -> (QuotaLedger, Demand) {
    let account = |number: u32| AccountSettings {
        is_shared: false,
        name: format!("account-{number}").into(),
        kind: AccountKind::User,
        reserve: 0,
        also_spends: None,
    };
    let ledger = QuotaLedger::new(Settings {
        accounts: (0..2).map(account).collect(),
        dynamic_accounts: 1,
        ..Settings::default()
    });
    (ledger, Demand { candidates: [AccountId(2)].into(), ..demand(1) })
}

#[test]
fn a_vacated_dynamic_account_forgets_its_budget() {
    let (mut ledger, of_dynamic) = with_dynamic_account();
    ledger.try_admit(NOW, LeaseId(1), &of_dynamic).unwrap();
    assert!(!ledger.vacate(NOW, AccountId(2)), "something of it is in flight");
    answer(&mut ledger, 1, Some(&rate_headers(100, 0)));
    assert_eq!(
        ledger.try_admit(NOW, LeaseId(2), &of_dynamic).unwrap_err().limit,
        LimitKind::Primary
    );
    assert_eq!(ledger.view(NOW, &of_dynamic.candidates, &ResourceName::core()).remaining, 0);
    assert!(ledger.vacate(NOW, AccountId(2)));
    assert_eq!(ledger.view(NOW, &of_dynamic.candidates, &ResourceName::core()).remaining, 5_000);
    assert_eq!(ledger.try_admit(NOW, LeaseId(3), &of_dynamic).unwrap().account, AccountId(2));
    assert!(ledger.audit().is_empty());
}

#[test]
fn accounts_of_the_config_are_never_vacated() {
    let (mut ledger, _) = with_dynamic_account();
    assert!(
        !ledger.vacate(NOW, AccountId(0))
            && !ledger.vacate(NOW, AccountId(1))
            && !ledger.vacate(NOW, AccountId(3))
    );
    assert_eq!(ledger.snapshot(NOW).len(), 2);
}
