//! One installation through its life: minted, renewed, rejected, and wanted by many requests at
//! once.

use std::sync::Barrier;

use http::HeaderValue;
use proptest::prelude::*;

use super::*;

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const HOUR: Duration = Duration::from_hours(1);
const MINUTE: Duration = Duration::from_mins(1);

fn installation() -> Arc<Installation> {
    Arc::new(Installation::new(311, SlotId(0), AccountId(0), 0, Arc::default()))
}

fn due(installation: &Installation, now: Timestamp) -> Option<Timestamp> {
    installation.due(now, BenchState::Healthy).map(|(at, _)| at)
}

/// Mints the token `number`, which lives for an hour.
fn mint(installation: &Arc<Installation>, number: u64, now: Timestamp) {
    let minting = installation.begin().expect("no mint is under way");
    minting.succeeded(TokenId(number), HeaderValue::from_static("Bearer t"), now + HOUR, now, 0.5);
}

fn fail(installation: &Arc<Installation>, now: Timestamp, failure: MintFailure) {
    installation.begin().expect("no mint is under way").failed(now, failure, 1.0);
}

fn used(installation: &Installation, now: Timestamp) -> Option<u64> {
    installation.take(now).map(|(token, ..)| token.0)
}

#[test]
fn the_first_token_is_minted_without_a_request() {
    let installation = installation();
    assert!(due(&installation, START).is_some_and(|at| at <= START));
    assert_eq!(installation.health(START, BenchState::Healthy).0, HealthState::Minting);
    mint(&installation, 7, START);
    assert_eq!((due(&installation, START), used(&installation, START)), (None, Some(7)));
}

#[test]
fn a_used_token_is_renewed_early_and_serves_until_its_end() {
    let installation = installation();
    mint(&installation, 7, START);
    used(&installation, START);
    let at = due(&installation, START).expect("it was used");
    assert!(at <= START + HOUR - 5 * MINUTE && at >= START + HOUR - 15 * MINUTE, "{at:?}");
    // The renewal fails repeatedly; the token still serves.
    let mut now = at;
    while let Some(next) = due(&installation, now) {
        now = next;
        if now >= START + HOUR - 6 * Duration::from_secs(1) {
            break;
        }
        fail(&installation, now, MintFailure::Passing("no answer".into()));
        assert_eq!(used(&installation, now), Some(7));
    }
    assert_eq!(used(&installation, START + HOUR - END_MARGIN), None, "it would end on its way");
}

#[test]
fn a_short_lived_token_is_renewed_at_half_of_its_life() {
    let installation = installation();
    let minting = installation.begin().expect("due");
    minting.succeeded(
        TokenId(7),
        HeaderValue::from_static("Bearer t"),
        START + 4 * MINUTE,
        START,
        0.5,
    );
    used(&installation, START);
    assert_eq!(due(&installation, START), Some(START + 2 * MINUTE));
}

#[test]
fn a_budget_without_a_reset_is_retried_within_the_hour() {
    let installation = installation();
    fail(
        &installation,
        START,
        MintFailure::Later(Timestamp::from_millis(u64::MAX), "spent".into()),
    );
    assert_eq!(due(&installation, START), Some(START + HOUR));
}

#[test]
fn the_old_token_is_used_while_the_new_one_is_minted() {
    let installation = installation();
    mint(&installation, 7, START);
    used(&installation, START);
    let at = due(&installation, START).expect("it was used");
    let minting = installation.begin().expect("due");
    assert_eq!((used(&installation, at), due(&installation, at)), (Some(7), None));
    minting.succeeded(TokenId(8), HeaderValue::from_static("Bearer u"), at + HOUR, at, 0.5);
    assert_eq!(used(&installation, at), Some(8), "another token for validators");
}

#[test]
fn an_unused_token_expires_and_the_next_request_mints_one() {
    let installation = installation();
    mint(&installation, 7, START);
    let later = START + 5 * HOUR;
    assert_eq!((due(&installation, START), due(&installation, later)), (None, None));
    assert_eq!(installation.health(later, BenchState::Healthy), (HealthState::Expired, None));
    assert!(
        !installation.is_usable(later)
            && installation.want(later, later + MINUTE, BenchState::Healthy)
    );
    assert!(due(&installation, later).is_some_and(|at| at <= later));
}

#[test]
fn failures_are_retried_after_doubling_pauses_with_jitter() {
    let installation = installation();
    let mut now = START;
    for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
        fail(&installation, now, MintFailure::Passing("no answer".into()));
        assert_eq!(due(&installation, now), Some(now + Duration::from_secs(seconds)));
        now = now + Duration::from_secs(seconds);
    }
    assert!(backoff(3, 0.0) == Duration::from_secs(4) && backoff(3, 1.0) == Duration::from_secs(8));
    assert_eq!(
        installation.health(now, BenchState::Healthy),
        (HealthState::Minting, Some("no answer".into()))
    );
    mint(&installation, 7, now);
    assert_eq!(installation.health(now, BenchState::Healthy), (HealthState::Healthy, None));
}

#[test]
fn mints_for_a_removed_installation_become_rarer() {
    let installation = installation();
    let mut now = START;
    for minutes in [5, 10, 20, 40, 60, 60] {
        fail(&installation, now, MintFailure::Refused("404 Not Found".into()));
        let until = now + minutes * MINUTE;
        assert_eq!(due(&installation, now), Some(until));
        assert_eq!(
            installation.health(now, BenchState::Healthy),
            (HealthState::Benched { until }, Some("404 Not Found".into()))
        );
        now = until;
    }
}

#[test]
fn a_request_waits_only_for_a_token_that_can_come_in_its_time() {
    let installation = installation();
    fail(
        &installation,
        START,
        MintFailure::Later(START + MINUTE, "the app's budget is spent".into()),
    );
    assert!(!installation.want(START, START + 59 * Duration::from_secs(1), BenchState::Healthy));
    assert!(installation.want(START, START + MINUTE, BenchState::Healthy));
    assert!(
        !installation.want(START, START + MINUTE, BenchState::Benched(START + HOUR)),
        "its app is not accepted"
    );
    assert_eq!(
        installation.due(START, BenchState::Benched(START + HOUR)).map(|(at, _)| at),
        Some(START + HOUR)
    );
}

#[test]
fn a_second_refusal_in_a_row_benches_the_installation() {
    let installation = installation();
    mint(&installation, 7, START);
    let refuse = |number, now| installation.refused(TokenId(number), &Permit::Plain, now, "401");
    assert_eq!(refuse(7, START), Rejection::Replaced);
    assert_eq!(refuse(7, START), Rejection::Old, "who used it as well");
    assert!(
        used(&installation, START).is_none()
            && due(&installation, START).is_some_and(|at| at <= START)
    );
    mint(&installation, 8, START);
    assert_eq!(refuse(8, START + MINUTE), Rejection::Benched);
    let until = START + MINUTE + PAUSE_MIN;
    assert_eq!(
        installation.health(START + MINUTE, BenchState::Healthy),
        (HealthState::Benched { until }, Some("401".into()))
    );
    assert!(!installation.want(START + MINUTE, until - MINUTE, BenchState::Healthy));
    // After the pause one token is minted for one request; the others wait for its answer.
    assert!(installation.want(until, until + MINUTE, BenchState::Healthy));
    mint(&installation, 9, until);
    let (token, _, permit) = installation.take(until).expect("the probe");
    assert!(installation.take(until).is_none());
    assert_eq!(installation.refused(token, &permit, until, "401"), Rejection::Benched);
    assert_eq!(
        installation.health(until, BenchState::Healthy).0,
        HealthState::Benched { until: until + 2 * PAUSE_MIN }
    );
}

#[test]
fn an_expired_token_is_replaced_without_a_bench() {
    let installation = installation();
    for number in 7..20 {
        mint(&installation, number, START);
        assert_eq!(
            installation.refused(TokenId(number), &Permit::Plain, START + HOUR, "401"),
            Rejection::Replaced
        );
    }
}

#[test]
fn a_cancelled_mint_returns_its_right() {
    let installation = installation();
    drop(installation.begin().expect("due"));
    assert!(due(&installation, START).is_some() && installation.begin().is_some());
}

#[test]
fn concurrent_requests_start_exactly_one_mint() {
    for _ in 0..50 {
        let installation = installation();
        let start = Barrier::new(8);
        let begun = std::thread::scope(|scope| {
            let request = || {
                start.wait();
                installation.want(START, START + MINUTE, BenchState::Healthy);
                installation.begin()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(request)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        assert_eq!(begun.iter().flatten().count(), 1);
    }
}

/// One event in the life of an installation.
#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Ask,
    Use,
    Begin,
    Mint,
    Fail,
    Gone,
    Die,
    Refuse,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..4_000_u64).prop_map(Step::Pass),
        Just(Step::Ask),
        Just(Step::Use),
        Just(Step::Begin),
        Just(Step::Begin),
        Just(Step::Mint),
        Just(Step::Fail),
        Just(Step::Gone),
        Just(Step::Die),
        Just(Step::Refuse),
    ]
}

proptest! {
    /// Invariants in any order of events: one mint at a time, no token after its end, no deadlock,
    /// and no waiting request is forgotten.
    #[test]
    fn one_mint_runs_at_a_time_and_no_waiter_is_forgotten(steps in proptest::collection::vec(step(), 0..120)) {
        let installation = installation();
        let (mut now, mut minting, mut number) = (START, None, 0);
        let mut ends = std::collections::HashMap::new();
        let mut last: Option<(TokenId, Permit)> = None;
        for step in steps {
            match step {
                Step::Pass(seconds) => now = now + Duration::from_secs(seconds),
                Step::Ask => {
                    let deadline = now + MINUTE;
                    if !installation.is_usable(now) && installation.want(now, deadline, BenchState::Healthy) && minting.is_none() {
                        prop_assert!(due(&installation, now).is_some_and(|at| at.max(now) <= deadline));
                    }
                }
                Step::Use => {
                    last = None;
                    if let Some((token, _, permit)) = installation.take(now) {
                        prop_assert!(ends[&token] > now);
                        last = Some((token, permit));
                    }
                }
                Step::Begin => {
                    let begun = installation.begin();
                    prop_assert_eq!(begun.is_some(), minting.is_none());
                    minting = minting.or(begun);
                }
                Step::Mint => if let Some(minting) = minting.take() {
                    number += 1;
                    ends.insert(TokenId(number), now + HOUR);
                    Minting::succeeded(minting, TokenId(number), HeaderValue::from_static("Bearer t"), now + HOUR, now, 0.3);
                },
                Step::Fail => if let Some(minting) = minting.take() { minting.failed(now, MintFailure::Passing(String::new()), 0.3) },
                Step::Gone => if let Some(minting) = minting.take() { minting.failed(now, MintFailure::Refused(String::new()), 0.3) },
                Step::Die => drop(minting.take()),
                Step::Refuse => if let Some((token, permit)) = last.take() { installation.refused(token, &permit, now, "401"); },
            }
            prop_assert!(minting.is_none() || due(&installation, now).is_none());
        }
    }
}
