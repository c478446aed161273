//! Records, their duration, and their effect on the order of a pool's accounts.

use http::Method;
use proptest::prelude::*;

use super::denial_confidence::{DenialConfidence, Denials};
use super::memory::{ENTRIES_MAX, TOKENS_MAX};
use super::plan::{AccountSet, DenialRole, PermissionRetry, Stage, WaitLimit};
use super::*;
use crate::api::Dialect;

const NOW: Timestamp = Timestamp::from_secs(1_000_000);
const MINUTE: std::time::Duration = std::time::Duration::from_mins(1);
const SHORT_WAIT: WaitLimit = WaitLimit::Moment;
const NOT_FOUND: Observation = Observation::Denied(Denial::NotFound);
const NO_PERMISSION: Observation =
    Observation::Denied(Denial::MissingPermission { by_token: true });

fn query(path: &str) -> AccessQuery {
    AccessQuery::of(Table::embedded(Dialect::Service).classify(&Method::GET, path).endpoint, path)
}

fn ids(numbers: impl IntoIterator<Item = u32>) -> Vec<AccountId> {
    numbers.into_iter().map(AccountId).collect()
}

/// One token for each account, of the same number.
fn holder(account: u32) -> Holder {
    Holder { account: AccountId(account), token: TokenKey(u64::from(account)) }
}

fn own_token(account: AccountId) -> Vec<TokenKey> {
    vec![TokenKey(u64::from(account.0))]
}

fn only(accounts: impl IntoIterator<Item = u32>, patience: WaitLimit, resort: DenialRole) -> Stage {
    Stage { accounts: AccountSet::Only(ids(accounts)), patience, resort }
}

fn all_but(accounts: impl IntoIterator<Item = u32>) -> Stage {
    Stage {
        accounts: AccountSet::AllBut(ids(accounts)),
        patience: WaitLimit::Whole,
        resort: DenialRole::Ordinary,
    }
}

fn ordinary(mut plan: Vec<Stage>) -> Vec<Stage> {
    plan.retain(|stage| stage.resort == DenialRole::Ordinary);
    plan
}

/// Records, and the pool of the accounts 0 to 3.
#[derive(Default)]
struct Known4(Permissions);

impl Known4 {
    fn record(&mut self, path: &str, account: u32, observation: Observation) {
        self.0.record(NOW, query(path), holder(account), observation, None);
    }

    fn plan_at(&self, now: Timestamp, path: &str) -> Vec<Stage> {
        self.0.plan(now, query(path), &ids(0..4), &[], &own_token)
    }

    /// Stages except the last resort.
    fn plan(&self, path: &str) -> Vec<Stage> {
        ordinary(self.plan_at(NOW, path))
    }

    fn permission_retry(&mut self, path: &str, first: u32) -> PermissionRetry {
        let denials = Denials { by: &[AccountId(first)], stored: None, unusable: &[] };
        self.0.permission_retry(
            NOW,
            query(path),
            &ids(0..4),
            &[],
            AccountId(first),
            &denials,
            &own_token,
        )
    }
}

#[test]
fn accounts_are_alike_while_none_was_denied() {
    let mut known = Known4::default();
    assert_eq!(known.plan("/repos/o/r"), [all_but([])]);
    known.record("/repos/o/r", 1, Observation::Served);
    assert_eq!(known.plan("/repos/o/r"), [all_but([])]);
}

#[test]
fn a_denied_account_is_left_out() {
    let mut known = Known4::default();
    known.record("/repos/o/r/issues", 2, NOT_FOUND);
    assert_eq!(known.plan("/repos/o/r/issues"), [all_but([2])]);
    assert_eq!(known.plan("/repos/O/R/issues"), [all_but([2])], "names do not tell case");
    assert_eq!(known.plan("/repos/o/other/issues"), [all_but([])]);
    assert_eq!(
        known.plan("/repos/o/r/pulls"),
        [all_but([])],
        "one denial says nothing of other endpoints"
    );
}

#[test]
fn a_served_account_goes_before_unknown_ones() {
    let mut known = Known4::default();
    known.record("/repos/o/r/issues", 0, NOT_FOUND);
    known.record("/repos/o/r/issues", 3, Observation::Served);
    assert_eq!(
        known.plan("/repos/o/r/issues"),
        [only([3], WaitLimit::Moment, DenialRole::Ordinary), all_but([0])]
    );
}

#[test]
fn unknown_accounts_count_as_good_where_most_were_served() {
    let mut known = Known4::default();
    known.record("/repos/o/r/issues", 0, NOT_FOUND);
    known.record("/repos/o/r/issues", 2, Observation::Served);
    known.record("/repos/o/r/issues", 3, Observation::Served);
    assert_eq!(known.plan("/repos/o/r/issues"), [all_but([0])]);
}

#[test]
fn an_account_that_cannot_see_a_place_is_left_out_there() {
    let mut known = Known4::default();
    known.record("/repos/o/r/issues", 3, Observation::Served);
    known.record("/repos/o/r/issues", 0, Observation::ServedElsewhere(Denial::NotFound));
    assert_eq!(
        known.plan("/repos/o/r/pulls"),
        [only([3], WaitLimit::Moment, DenialRole::Ordinary), all_but([0])]
    );
}

#[test]
fn a_success_clears_an_earlier_denial() {
    let mut known = Known4::default();
    known.record("/repos/o/r/hooks", 0, NO_PERMISSION);
    known.record("/repos/o/r/hooks", 0, Observation::Served);
    assert_eq!(known.plan("/repos/o/r/hooks"), [all_but([])]);
}

#[test]
fn a_missing_resource_is_no_evidence_against_an_account() {
    let mut known = Known4::default();
    known.record("/repos/o/r", 0, Observation::Served);
    known.record("/repos/o/r/issues/99", 0, NOT_FOUND);
    assert_eq!(known.plan("/repos/o/r/issues/1"), [all_but([])]);
    // The list of all hooks is no single resource that may be missing.
    known.record("/repos/o/r/hooks", 0, NOT_FOUND);
    assert_eq!(known.plan("/repos/o/r/hooks"), [all_but([0])]);
    // The resource was requested before the place was seen.
    known.record("/repos/o/r/issues/99", 1, NOT_FOUND);
    assert_eq!(
        known.plan("/repos/o/r/issues/1"),
        [only([0], WaitLimit::Moment, DenialRole::Ordinary), all_but([1])]
    );
    known.record("/repos/o/r", 1, Observation::Served);
    assert_eq!(known.plan("/repos/o/r/issues/1"), [all_but([])]);
}

#[test]
fn a_success_clears_uncertain_denials_of_all_accounts() {
    let mut known = Known4::default();
    for account in 0..4 {
        known.record("/repos/o/r/issues/99", account, NOT_FOUND);
    }
    known.record("/repos/o/r/issues/1", 2, Observation::Served);
    assert_eq!(known.plan("/repos/o/r/issues/1"), [all_but([])]);
}

#[test]
fn a_missing_permission_counts_at_other_endpoints_too() {
    let mut known = Known4::default();
    let wants = |access| AcceptedPermission { name: "actions", access };
    let (runs, secrets) = (query("/repos/o/r/actions/runs"), query("/repos/o/r/actions/secrets"));
    // Another endpoint has reported its permission, in another repository.
    known.0.record(
        NOW,
        query("/repos/o/x/actions/secrets"),
        holder(1),
        Observation::Served,
        Some(&wants(Access::Write)),
    );
    known.0.record(NOW, runs, holder(0), NO_PERMISSION, Some(&wants(Access::Read)));
    let plan = |query| ordinary(known.0.plan(NOW, query, &ids(0..4), &[], &own_token));
    assert_eq!(plan(secrets), [all_but([0])], "who may not read may not write");
    assert_eq!(plan(query("/repos/o/x/actions/secrets")), [all_but([])]);
    // A user without the role proves nothing about the token's permissions.
    let role = Observation::Denied(Denial::MissingPermission { by_token: false });
    known.0.record(NOW, runs, holder(2), role, Some(&wants(Access::Read)));
    assert_eq!(ordinary(known.0.plan(NOW, secrets, &ids(0..4), &[], &own_token)), [all_but([0])]);
    // The endpoint's own record overrides others.
    known.0.record(NOW, secrets, holder(0), Observation::Served, Some(&wants(Access::Write)));
    assert_eq!(ordinary(known.0.plan(NOW, secrets, &ids(0..4), &[], &own_token)), [all_but([])]);
}

#[test]
fn the_oldest_denial_is_retried_first_when_all_are_bad() {
    let mut known = Known4::default();
    for (second, account) in [(0, 2), (1, 0), (2, 3), (3, 1)] {
        let at = NOW + std::time::Duration::from_secs(second);
        known.0.record(at, query("/repos/o/r"), holder(account), NOT_FOUND, None);
    }
    let all = only(0..4, WaitLimit::Whole, DenialRole::Ordinary);
    assert_eq!(
        known.plan_at(NOW + MINUTE, "/repos/o/r"),
        [only([2], WaitLimit::Moment, DenialRole::Ordinary), all]
    );
}

#[test]
fn denied_accounts_are_a_last_resort_once_a_minute() {
    let mut known = Known4::default();
    let last = only([2], WaitLimit::None, DenialRole::Last);
    known.record("/repos/o/r/hooks", 2, NO_PERMISSION);
    assert_eq!(known.plan_at(NOW, "/repos/o/r/hooks"), [all_but([2]), last.clone()]);
    known.record("/repos/o/r/hooks", 2, NO_PERMISSION);
    assert_eq!(
        known.plan_at(NOW + MINUTE - std::time::Duration::from_secs(1), "/repos/o/r/hooks"),
        [all_but([2])]
    );
    assert_eq!(known.plan_at(NOW + MINUTE, "/repos/o/r/hooks"), [all_but([2]), last]);
}

#[test]
fn a_denial_is_forgotten_after_five_or_ten_minutes() {
    let mut known = Known4::default();
    known.record("/repos/o/r/hooks", 0, NO_PERMISSION);
    known.record("/repos/o/r", 1, NOT_FOUND);
    let left_out = |now, path| known.plan_at(now, path)[0] != all_but([]);
    assert!(
        left_out(NOW + 9 * MINUTE, "/repos/o/r/hooks") && left_out(NOW + 4 * MINUTE, "/repos/o/r")
    );
    assert!(
        !left_out(NOW + 10 * MINUTE, "/repos/o/r/hooks")
            && !left_out(NOW + 5 * MINUTE, "/repos/o/r")
    );
}

#[test]
fn an_account_is_as_good_as_its_best_token() {
    let mut permissions = Permissions::default();
    let query = query("/repos/o/r");
    let (first, second) = (TokenKey(10), TokenKey(11));
    let two =
        |account: AccountId| if account.0 == 0 { vec![first, second] } else { own_token(account) };
    permissions.record(NOW, query, Holder { account: AccountId(0), token: first }, NOT_FOUND, None);
    assert_eq!(permissions.plan(NOW, query, &ids(0..2), &[], &two), [all_but([])]);
    let mut tokens = [first, second];
    permissions.rank(NOW, query, AccountId(0), &mut tokens);
    assert_eq!(tokens, [second, first]);
    permissions.record(
        NOW,
        query,
        Holder { account: AccountId(0), token: second },
        NOT_FOUND,
        None,
    );
    assert_eq!(ordinary(permissions.plan(NOW, query, &ids(0..2), &[], &two)), [all_but([0])]);
}

#[test]
fn accounts_without_a_working_token_are_never_offered() {
    let mut known = Known4::default();
    known.record("/repos/o/r", 0, NOT_FOUND);
    let plan = |base: &[AccountId], unusable: &[AccountId]| {
        ordinary(known.0.plan(NOW, query("/repos/o/r"), base, unusable, &own_token))
    };
    assert_eq!(plan(&ids(0..4), &ids([1])), [all_but([0, 1])]);
    assert_eq!(plan(&ids(0..2), &ids([1])), [only([0], WaitLimit::Whole, DenialRole::Ordinary)]);
    assert_eq!(plan(&ids([0]), &[]), [all_but([])]);
    assert_eq!(plan(&ids(0..2), &ids(0..2)), []);
}

#[test]
fn a_permission_retry_prefers_accounts_that_were_served() {
    let mut known = Known4::default();
    assert_eq!(
        known.permission_retry("/repos/o/r", 1),
        PermissionRetry::By(AccountSet::AllBut(ids([1])), SHORT_WAIT)
    );
    known.record("/repos/o/r", 1, NOT_FOUND);
    known.record("/repos/o/r", 3, NOT_FOUND);
    assert_eq!(
        known.permission_retry("/repos/o/r", 1),
        PermissionRetry::By(AccountSet::AllBut(ids([1, 3])), SHORT_WAIT)
    );
    known.record("/repos/o/r", 2, Observation::Served);
    assert_eq!(
        known.permission_retry("/repos/o/r", 1),
        PermissionRetry::By(AccountSet::Only(ids([2])), WaitLimit::Whole)
    );
}

#[test]
fn a_permission_retry_needs_an_account_not_yet_denied() {
    let mut known = Known4::default();
    for account in [0, 2, 3] {
        known.record("/repos/o/r", account, NOT_FOUND);
    }
    assert_eq!(known.permission_retry("/repos/o/r", 1), PermissionRetry::No);
}

#[test]
fn a_known_good_account_always_permits_a_retry() {
    let mut known = Known4::default();
    known.record("/repos/o/r/issues", 0, NOT_FOUND);
    known.record("/repos/o/r/issues", 1, Observation::Served);
    for _ in 0..100 {
        assert_eq!(
            known.permission_retry("/repos/o/r/issues", 0),
            PermissionRetry::By(AccountSet::Only(ids([1])), WaitLimit::Whole)
        );
        known.0.retry_ended(query("/repos/o/r/issues"), RetryResult::Nothing);
    }
    // A token that sees the place itself is not affected.
    known.record("/repos/o/r/issues/1", 2, Observation::Served);
    known.record("/repos/o/r/issues/2", 2, NOT_FOUND);
    assert_eq!(
        known.permission_retry("/repos/o/r/issues/2", 2),
        PermissionRetry::By(AccountSet::AllBut(ids([2])), SHORT_WAIT)
    );
    for _ in 0..10 {
        known.0.retry_ended(query("/repos/o/r/issues/2"), RetryResult::Nothing);
        known.permission_retry("/repos/o/r/issues/2", 2);
    }
    assert_eq!(known.permission_retry("/repos/o/r/issues/2", 2), PermissionRetry::No);
}

impl Known4 {
    fn denial_confidence(
        &self,
        path: &str,
        by: &[u32],
        stored: Option<&[u32]>,
        unusable: &[u32],
    ) -> DenialConfidence {
        let [by, unusable] = [by, unusable].map(|accounts| ids(accounts.iter().copied()));
        let stored = stored.map(|accounts| ids(accounts.iter().copied()));
        let denials = Denials { by: &by, stored: stored.as_deref(), unusable: &unusable };
        self.0.denial_confidence(NOW, query(path), &ids(0..4), &denials, &own_token)
    }
}

#[test]
fn a_denial_by_every_usable_account_is_final() {
    let mut known = Known4::default();
    known.record("/repos/o/r", 0, NOT_FOUND);
    assert_eq!(known.denial_confidence("/repos/o/r", &[0], None, &[]), DenialConfidence::Open);
    assert_eq!(known.denial_confidence("/repos/o/r", &[0, 1], None, &[2]), DenialConfidence::Open);
    assert_eq!(
        known.denial_confidence("/repos/o/r", &[0, 1], None, &[2, 3]),
        DenialConfidence::Final,
        "who gets no token any more sees nothing"
    );
    (1..4).for_each(|account| known.record("/repos/o/r", account, NOT_FOUND));
    assert_eq!(known.denial_confidence("/repos/o/r", &[0], None, &[]), DenialConfidence::Final);
}

#[test]
fn a_denial_of_a_resource_seen_by_others_is_void() {
    let mut known = Known4::default();
    let path = "/repos/o/r";
    known.record(path, 0, NOT_FOUND);
    assert_eq!(known.denial_confidence(path, &[0], Some(&[1]), &[]), DenialConfidence::Void);
    assert_eq!(known.denial_confidence(path, &[0, 2], Some(&[1]), &[]), DenialConfidence::Void);
    assert_eq!(known.denial_confidence(path, &[0, 1], Some(&[1]), &[]), DenialConfidence::Open);
    assert_eq!(
        known.denial_confidence(path, &[0], Some(&[]), &[]),
        DenialConfidence::Void,
        "somebody has, whoever it was"
    );
    known.record(path, 1, Observation::Served);
    assert_eq!(
        known.denial_confidence(path, &[0], None, &[]),
        DenialConfidence::Void,
        "who sees the place may see what is in it"
    );
    assert_eq!(
        known.permission_retry(path, 0),
        PermissionRetry::By(AccountSet::Only(ids([1])), WaitLimit::Whole)
    );
}

#[test]
fn two_denials_confirm_a_missing_resource_in_a_seen_place() {
    let mut known = Known4::default();
    let path = "/repos/o/r/issues/99";
    known.record("/repos/o/r", 0, Observation::Served);
    known.record(path, 0, NOT_FOUND);
    assert_eq!(known.denial_confidence(path, &[0], None, &[]), DenialConfidence::Open);
    known.record(path, 1, NOT_FOUND);
    assert_eq!(known.denial_confidence(path, &[0, 1], None, &[]), DenialConfidence::Final);
    assert_eq!(known.denial_confidence(path, &[1, 2], None, &[]), DenialConfidence::Void);
}

#[test]
fn a_hundred_missing_places_cost_ten_retries() {
    let mut known = Known4::default();
    let mut retries = 0;
    for place in 0..100 {
        let path = format!("/repos/o/missing-{place}");
        known.record(&path, 0, NOT_FOUND);
        if known.permission_retry(&path, 0) != PermissionRetry::No {
            known.0.retry_ended(query(&path), RetryResult::Nothing);
            retries += 1;
        }
    }
    assert!(retries <= 10, "{retries}");
}

#[test]
fn the_memory_is_bounded_and_keeps_entries_in_use() {
    let mut permissions = Permissions::default();
    let in_use = query("/repos/o/used");
    for place in 0..3 * ENTRIES_MAX {
        permissions.record(NOW, query(&format!("/repos/o/r{place}")), holder(0), NOT_FOUND, None);
        if place % (ENTRIES_MAX / 2) == 0 {
            permissions.record(NOW, in_use, holder(0), NOT_FOUND, None);
        }
    }
    assert!(permissions.memory.len() <= 2 * ENTRIES_MAX);
    assert_eq!(
        ordinary(permissions.plan(NOW, in_use, &ids(0..2), &[], &own_token)),
        [all_but([0])]
    );
    for account in 0..1_000 {
        permissions.record(NOW, in_use, holder(account), NOT_FOUND, None);
    }
    assert_eq!(permissions.memory.holders(in_use.by_endpoint()).count(), TOKENS_MAX);
}

fn observation() -> impl Strategy<Value = Observation> {
    let denial = prop::sample::select(vec![
        Denial::NotFound,
        Denial::Forbidden,
        Denial::MissingPermission { by_token: true },
    ]);
    prop_oneof![
        Just(Observation::Served),
        denial.clone().prop_map(Observation::Denied),
        denial.prop_map(Observation::ServedElsewhere)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Some account is offered while any token works, and every account after a minute.
    #[test]
    fn observations_never_leave_a_request_without_an_account(
        observations in prop::collection::vec((0..5_u32, 0..4_usize, observation(), 0..400_u64), 0..60),
        unusable in prop::collection::btree_set(0..5_u32, 0..5),
    ) {
        let paths = ["/repos/o/r", "/repos/o/r/issues", "/repos/o/r/issues/1", "/repos/o/r/hooks"];
        let mut permissions = Permissions::default();
        let mut now = NOW;
        let permission = AcceptedPermission { name: "issues", access: Access::Read };
        for (account, path, observation, seconds) in observations {
            now = now + std::time::Duration::from_secs(seconds);
            permissions.record(now, query(paths[path]), holder(account), observation, Some(&permission));
        }
        let (base, unusable) = (ids(0..5), ids(unusable));
        let listed = |now, path: &str| {
            let plan = permissions.plan(now, query(path), &base, &unusable, &own_token);
            let mut listed: Vec<AccountId> = Vec::new();
            for stage in plan {
                let members: Vec<AccountId> = match stage.accounts {
                    AccountSet::Only(accounts) => accounts,
                    AccountSet::AllBut(out) => base.iter().copied().filter(|account| !out.contains(account)).collect(),
                };
                assert!(!members.is_empty() && members.is_sorted());
                listed.extend(members);
            }
            listed.sort_unstable();
            listed.dedup();
            listed
        };
        let usable: Vec<AccountId> = base.iter().copied().filter(|account| !unusable.contains(account)).collect();
        for path in paths {
            let offered_now = listed(now, path);
            prop_assert_eq!(offered_now.is_empty(), usable.is_empty());
            prop_assert!(offered_now.iter().all(|account| usable.contains(account)));
            prop_assert_eq!(&listed(now + MINUTE, path), &usable);
        }
    }
}
