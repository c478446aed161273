//! What is learned, how long it lasts, and what it does to the order of a pool's accounts.

use http::Method;
use proptest::prelude::*;

use super::denial_confidence::{Denials, Verdict};
use super::memory::{ENTRIES_MAX, TOKENS_MAX};
use super::plan::{Look, Patience, Resort, Stage, Who};
use super::*;
use crate::api::Dialect;

const NOW: Timestamp = Timestamp::from_secs(1_000_000);
const MINUTE: std::time::Duration = std::time::Duration::from_mins(1);
const MOMENT: Patience = Patience::Moment;
const NOT_FOUND: Lesson = Lesson::Denied(Denial::NotFound);
const NO_RIGHT: Lesson = Lesson::Denied(Denial::Rights { by_token: true });

fn asked(path: &str) -> Asked {
    Asked::of(Table::embedded(Dialect::Service).classify(&Method::GET, path).endpoint, path)
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

fn only(accounts: impl IntoIterator<Item = u32>, patience: Patience, resort: Resort) -> Stage {
    Stage { who: Who::Only(ids(accounts)), patience, resort }
}

fn all_but(accounts: impl IntoIterator<Item = u32>) -> Stage {
    Stage { who: Who::AllBut(ids(accounts)), patience: Patience::Whole, resort: Resort::Ordinary }
}

fn ordinary(mut plan: Vec<Stage>) -> Vec<Stage> {
    plan.retain(|stage| stage.resort == Resort::Ordinary);
    plan
}

/// What is known, and the pool of the accounts 0 to 3.
#[derive(Default)]
struct Known4(Rights);

impl Known4 {
    fn teach(&mut self, path: &str, account: u32, lesson: Lesson) {
        self.0.teach(NOW, asked(path), holder(account), lesson, None);
    }

    fn plan_at(&self, now: Timestamp, path: &str) -> Vec<Stage> {
        self.0.plan(now, asked(path), &ids(0..4), &[], &own_token)
    }

    /// The lists but for the last resort.
    fn plan(&self, path: &str) -> Vec<Stage> {
        ordinary(self.plan_at(NOW, path))
    }

    fn second_look(&mut self, path: &str, first: u32) -> Look {
        let denials = Denials { by: &[AccountId(first)], stored: None, hopeless: &[] };
        self.0.second_look(
            NOW,
            asked(path),
            &ids(0..4),
            &[],
            AccountId(first),
            &denials,
            &own_token,
        )
    }
}

#[test]
fn while_nobody_is_known_to_be_bad_all_are_alike() {
    let mut known = Known4::default();
    assert_eq!(known.plan("/repos/o/r"), [all_but([])]);
    known.teach("/repos/o/r", 1, Lesson::Served);
    assert_eq!(known.plan("/repos/o/r"), [all_but([])]);
}

#[test]
fn who_was_denied_is_left_out_while_another_may_be_served() {
    let mut known = Known4::default();
    known.teach("/repos/o/r/issues", 2, NOT_FOUND);
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
fn who_was_served_goes_first_where_another_was_not() {
    let mut known = Known4::default();
    known.teach("/repos/o/r/issues", 0, NOT_FOUND);
    known.teach("/repos/o/r/issues", 3, Lesson::Served);
    assert_eq!(
        known.plan("/repos/o/r/issues"),
        [only([3], Patience::Moment, Resort::Ordinary), all_but([0])]
    );
}

#[test]
fn where_more_were_served_than_denied_the_unknown_are_asked_like_the_good() {
    let mut known = Known4::default();
    known.teach("/repos/o/r/issues", 0, NOT_FOUND);
    known.teach("/repos/o/r/issues", 2, Lesson::Served);
    known.teach("/repos/o/r/issues", 3, Lesson::Served);
    assert_eq!(known.plan("/repos/o/r/issues"), [all_but([0])]);
}

#[test]
fn who_does_not_see_a_place_that_another_sees_is_asked_for_nothing_there() {
    let mut known = Known4::default();
    known.teach("/repos/o/r/issues", 3, Lesson::Served);
    known.teach("/repos/o/r/issues", 0, Lesson::ServedElsewhere(Denial::NotFound));
    assert_eq!(
        known.plan("/repos/o/r/pulls"),
        [only([3], Patience::Moment, Resort::Ordinary), all_but([0])]
    );
}

#[test]
fn a_success_makes_good_what_was_thought_bad() {
    let mut known = Known4::default();
    known.teach("/repos/o/r/hooks", 0, NO_RIGHT);
    known.teach("/repos/o/r/hooks", 0, Lesson::Served);
    assert_eq!(known.plan("/repos/o/r/hooks"), [all_but([])]);
}

#[test]
fn a_missing_thing_says_nothing_of_who_sees_its_place() {
    let mut known = Known4::default();
    known.teach("/repos/o/r", 0, Lesson::Served);
    known.teach("/repos/o/r/issues/99", 0, NOT_FOUND);
    assert_eq!(known.plan("/repos/o/r/issues/1"), [all_but([])]);
    // The list of all hooks is not a thing that may be missing.
    known.teach("/repos/o/r/hooks", 0, NOT_FOUND);
    assert_eq!(known.plan("/repos/o/r/hooks"), [all_but([0])]);
    // A thing was asked for before the place was seen.
    known.teach("/repos/o/r/issues/99", 1, NOT_FOUND);
    assert_eq!(
        known.plan("/repos/o/r/issues/1"),
        [only([0], Patience::Moment, Resort::Ordinary), all_but([1])]
    );
    known.teach("/repos/o/r", 1, Lesson::Served);
    assert_eq!(known.plan("/repos/o/r/issues/1"), [all_but([])]);
}

#[test]
fn who_was_denied_and_is_served_now_clears_those_who_were_denied_with_it() {
    let mut known = Known4::default();
    for account in 0..4 {
        known.teach("/repos/o/r/issues/99", account, NOT_FOUND);
    }
    known.teach("/repos/o/r/issues/1", 2, Lesson::Served);
    assert_eq!(known.plan("/repos/o/r/issues/1"), [all_but([])]);
}

#[test]
fn a_lacking_permission_is_lacking_wherever_it_is_wanted_in_the_place() {
    let mut known = Known4::default();
    let wants = |access| AcceptedPermission { name: "actions", access };
    let (runs, secrets) = (asked("/repos/o/r/actions/runs"), asked("/repos/o/r/actions/secrets"));
    // Another endpoint has said what it wants, in another repository.
    known.0.teach(
        NOW,
        asked("/repos/o/x/actions/secrets"),
        holder(1),
        Lesson::Served,
        Some(&wants(Access::Write)),
    );
    known.0.teach(NOW, runs, holder(0), NO_RIGHT, Some(&wants(Access::Read)));
    let plan = |asked| ordinary(known.0.plan(NOW, asked, &ids(0..4), &[], &own_token));
    assert_eq!(plan(secrets), [all_but([0])], "who may not read may not write");
    assert_eq!(plan(asked("/repos/o/x/actions/secrets")), [all_but([])]);
    // A user without the role says nothing of the token's permissions.
    let role = Lesson::Denied(Denial::Rights { by_token: false });
    known.0.teach(NOW, runs, holder(2), role, Some(&wants(Access::Read)));
    assert_eq!(ordinary(known.0.plan(NOW, secrets, &ids(0..4), &[], &own_token)), [all_but([0])]);
    // What the endpoint itself says goes before.
    known.0.teach(NOW, secrets, holder(0), Lesson::Served, Some(&wants(Access::Write)));
    assert_eq!(ordinary(known.0.plan(NOW, secrets, &ids(0..4), &[], &own_token)), [all_but([])]);
}

#[test]
fn when_all_are_bad_the_oldest_lesson_is_tried_again_first_and_then_all() {
    let mut known = Known4::default();
    for (second, account) in [(0, 2), (1, 0), (2, 3), (3, 1)] {
        let at = NOW + std::time::Duration::from_secs(second);
        known.0.teach(at, asked("/repos/o/r"), holder(account), NOT_FOUND, None);
    }
    let all = only(0..4, Patience::Whole, Resort::Ordinary);
    assert_eq!(
        known.plan_at(NOW + MINUTE, "/repos/o/r"),
        [only([2], Patience::Moment, Resort::Ordinary), all]
    );
}

#[test]
fn the_bad_are_a_last_resort_at_once_and_after_a_second_denial_once_a_minute() {
    let mut known = Known4::default();
    let last = only([2], Patience::None, Resort::Last);
    known.teach("/repos/o/r/hooks", 2, NO_RIGHT);
    assert_eq!(known.plan_at(NOW, "/repos/o/r/hooks"), [all_but([2]), last.clone()]);
    known.teach("/repos/o/r/hooks", 2, NO_RIGHT);
    assert_eq!(
        known.plan_at(NOW + MINUTE - std::time::Duration::from_secs(1), "/repos/o/r/hooks"),
        [all_but([2])]
    );
    assert_eq!(known.plan_at(NOW + MINUTE, "/repos/o/r/hooks"), [all_but([2]), last]);
}

#[test]
fn lessons_are_forgotten_a_lacking_right_after_ten_minutes_a_404_after_five() {
    let mut known = Known4::default();
    known.teach("/repos/o/r/hooks", 0, NO_RIGHT);
    known.teach("/repos/o/r", 1, NOT_FOUND);
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
fn an_account_is_as_good_as_the_best_of_its_tokens() {
    let mut rights = Rights::default();
    let asked = asked("/repos/o/r");
    let (first, second) = (TokenKey(10), TokenKey(11));
    let two =
        |account: AccountId| if account.0 == 0 { vec![first, second] } else { own_token(account) };
    rights.teach(NOW, asked, Holder { account: AccountId(0), token: first }, NOT_FOUND, None);
    assert_eq!(rights.plan(NOW, asked, &ids(0..2), &[], &two), [all_but([])]);
    let mut tokens = [first, second];
    rights.rank(NOW, asked, AccountId(0), &mut tokens);
    assert_eq!(tokens, [second, first]);
    rights.teach(NOW, asked, Holder { account: AccountId(0), token: second }, NOT_FOUND, None);
    assert_eq!(ordinary(rights.plan(NOW, asked, &ids(0..2), &[], &two)), [all_but([0])]);
}

#[test]
fn accounts_without_a_working_token_are_in_no_list_and_who_is_alone_is_asked_whatever_is_known() {
    let mut known = Known4::default();
    known.teach("/repos/o/r", 0, NOT_FOUND);
    let plan = |base: &[AccountId], unusable: &[AccountId]| {
        ordinary(known.0.plan(NOW, asked("/repos/o/r"), base, unusable, &own_token))
    };
    assert_eq!(plan(&ids(0..4), &ids([1])), [all_but([0, 1])]);
    assert_eq!(plan(&ids(0..2), &ids([1])), [only([0], Patience::Whole, Resort::Ordinary)]);
    assert_eq!(plan(&ids([0]), &[]), [all_but([])]);
    assert_eq!(plan(&ids(0..2), &ids(0..2)), []);
}

#[test]
fn a_second_look_is_taken_by_who_was_served_else_by_whoever_is_not_known_to_be_bad() {
    let mut known = Known4::default();
    assert_eq!(known.second_look("/repos/o/r", 1), Look::By(Who::AllBut(ids([1])), MOMENT));
    known.teach("/repos/o/r", 1, NOT_FOUND);
    known.teach("/repos/o/r", 3, NOT_FOUND);
    assert_eq!(known.second_look("/repos/o/r", 1), Look::By(Who::AllBut(ids([1, 3])), MOMENT));
    known.teach("/repos/o/r", 2, Lesson::Served);
    assert_eq!(known.second_look("/repos/o/r", 1), Look::By(Who::Only(ids([2])), Patience::Whole));
}

#[test]
fn there_is_no_second_look_where_everybody_else_is_known_to_be_denied() {
    let mut known = Known4::default();
    for account in [0, 2, 3] {
        known.teach("/repos/o/r", account, NOT_FOUND);
    }
    assert_eq!(known.second_look("/repos/o/r", 1), Look::No);
}

#[test]
fn where_another_account_is_known_to_be_good_the_look_is_always_taken() {
    let mut known = Known4::default();
    known.teach("/repos/o/r/issues", 0, NOT_FOUND);
    known.teach("/repos/o/r/issues", 1, Lesson::Served);
    for _ in 0..100 {
        assert_eq!(
            known.second_look("/repos/o/r/issues", 0),
            Look::By(Who::Only(ids([1])), Patience::Whole)
        );
        known.0.looked(asked("/repos/o/r/issues"), Found::Nothing);
    }
    // Who sees the place itself has no such claim.
    known.teach("/repos/o/r/issues/1", 2, Lesson::Served);
    known.teach("/repos/o/r/issues/2", 2, NOT_FOUND);
    assert_eq!(
        known.second_look("/repos/o/r/issues/2", 2),
        Look::By(Who::AllBut(ids([2])), MOMENT)
    );
    for _ in 0..10 {
        known.0.looked(asked("/repos/o/r/issues/2"), Found::Nothing);
        known.second_look("/repos/o/r/issues/2", 2);
    }
    assert_eq!(known.second_look("/repos/o/r/issues/2", 2), Look::No);
}

impl Known4 {
    fn verdict(&self, path: &str, by: &[u32], stored: Option<&[u32]>, hopeless: &[u32]) -> Verdict {
        let [by, hopeless] = [by, hopeless].map(|accounts| ids(accounts.iter().copied()));
        let stored = stored.map(|accounts| ids(accounts.iter().copied()));
        let denials = Denials { by: &by, stored: stored.as_deref(), hopeless: &hopeless };
        self.0.verdict(NOW, asked(path), &ids(0..4), &denials, &own_token)
    }
}

#[test]
fn a_denial_is_final_when_nobody_is_left_who_was_not_denied() {
    let mut known = Known4::default();
    known.teach("/repos/o/r", 0, NOT_FOUND);
    assert_eq!(known.verdict("/repos/o/r", &[0], None, &[]), Verdict::Open);
    assert_eq!(known.verdict("/repos/o/r", &[0, 1], None, &[2]), Verdict::Open);
    assert_eq!(
        known.verdict("/repos/o/r", &[0, 1], None, &[2, 3]),
        Verdict::Final,
        "who gets no token any more sees nothing"
    );
    (1..4).for_each(|account| known.teach("/repos/o/r", account, NOT_FOUND));
    assert_eq!(known.verdict("/repos/o/r", &[0], None, &[]), Verdict::Final);
}

#[test]
fn a_denial_of_what_another_has_seen_is_void_until_one_who_has_seen_it_denies_it() {
    let mut known = Known4::default();
    let path = "/repos/o/r";
    known.teach(path, 0, NOT_FOUND);
    assert_eq!(known.verdict(path, &[0], Some(&[1]), &[]), Verdict::Void);
    assert_eq!(known.verdict(path, &[0, 2], Some(&[1]), &[]), Verdict::Void);
    assert_eq!(known.verdict(path, &[0, 1], Some(&[1]), &[]), Verdict::Open);
    assert_eq!(
        known.verdict(path, &[0], Some(&[]), &[]),
        Verdict::Void,
        "somebody has, whoever it was"
    );
    known.teach(path, 1, Lesson::Served);
    assert_eq!(
        known.verdict(path, &[0], None, &[]),
        Verdict::Void,
        "who sees the place may see what is in it"
    );
    assert_eq!(known.second_look(path, 0), Look::By(Who::Only(ids([1])), Patience::Whole));
}

#[test]
fn of_a_thing_that_is_missing_two_suffice_of_whom_one_sees_the_place() {
    let mut known = Known4::default();
    let path = "/repos/o/r/issues/99";
    known.teach("/repos/o/r", 0, Lesson::Served);
    known.teach(path, 0, NOT_FOUND);
    assert_eq!(known.verdict(path, &[0], None, &[]), Verdict::Open);
    known.teach(path, 1, NOT_FOUND);
    assert_eq!(known.verdict(path, &[0, 1], None, &[]), Verdict::Final);
    assert_eq!(known.verdict(path, &[1, 2], None, &[]), Verdict::Void);
}

#[test]
fn a_hundred_missing_places_cost_ten_second_looks() {
    let mut known = Known4::default();
    let mut looks = 0;
    for place in 0..100 {
        let path = format!("/repos/o/missing-{place}");
        known.teach(&path, 0, NOT_FOUND);
        if known.second_look(&path, 0) != Look::No {
            known.0.looked(asked(&path), Found::Nothing);
            looks += 1;
        }
    }
    assert!(looks <= 10, "{looks}");
}

#[test]
fn memory_is_bounded_and_what_is_in_use_stays() {
    let mut rights = Rights::default();
    let in_use = asked("/repos/o/used");
    for place in 0..3 * ENTRIES_MAX {
        rights.teach(NOW, asked(&format!("/repos/o/r{place}")), holder(0), NOT_FOUND, None);
        if place % (ENTRIES_MAX / 2) == 0 {
            rights.teach(NOW, in_use, holder(0), NOT_FOUND, None);
        }
    }
    assert!(rights.memory.len() <= 2 * ENTRIES_MAX);
    assert_eq!(ordinary(rights.plan(NOW, in_use, &ids(0..2), &[], &own_token)), [all_but([0])]);
    for account in 0..1_000 {
        rights.teach(NOW, in_use, holder(account), NOT_FOUND, None);
    }
    assert_eq!(rights.memory.holders(in_use.by_endpoint()).count(), TOKENS_MAX);
}

fn lesson() -> impl Strategy<Value = Lesson> {
    let denial = prop::sample::select(vec![
        Denial::NotFound,
        Denial::Forbidden,
        Denial::Rights { by_token: true },
    ]);
    prop_oneof![
        Just(Lesson::Served),
        denial.clone().prop_map(Lesson::Denied),
        denial.prop_map(Lesson::ServedElsewhere)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The rule of thumb: whatever was learned, somebody is asked while any token works, and
    /// everybody once a minute has passed.
    #[test]
    fn what_was_learned_never_leaves_a_request_without_an_account(
        lessons in prop::collection::vec((0..5_u32, 0..4_usize, lesson(), 0..400_u64), 0..60),
        unusable in prop::collection::btree_set(0..5_u32, 0..5),
    ) {
        let paths = ["/repos/o/r", "/repos/o/r/issues", "/repos/o/r/issues/1", "/repos/o/r/hooks"];
        let mut rights = Rights::default();
        let mut now = NOW;
        let permission = AcceptedPermission { name: "issues", access: Access::Read };
        for (account, path, lesson, seconds) in lessons {
            now = now + std::time::Duration::from_secs(seconds);
            rights.teach(now, asked(paths[path]), holder(account), lesson, Some(&permission));
        }
        let (base, unusable) = (ids(0..5), ids(unusable));
        let listed = |now, path: &str| {
            let plan = rights.plan(now, asked(path), &base, &unusable, &own_token);
            let mut listed: Vec<AccountId> = Vec::new();
            for stage in plan {
                let members: Vec<AccountId> = match stage.who {
                    Who::Only(accounts) => accounts,
                    Who::AllBut(out) => base.iter().copied().filter(|account| !out.contains(account)).collect(),
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
            let asked_now = listed(now, path);
            prop_assert_eq!(asked_now.is_empty(), usable.is_empty());
            prop_assert!(asked_now.iter().all(|account| usable.contains(account)));
            prop_assert_eq!(&listed(now + MINUTE, path), &usable);
        }
    }
}
