//! Budgets that the upstream raised or gave back: the gateway sees it before the reset, by asking
//! `GET /rate_limit` at growing distances or when an operator says so.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::{Reply, Setup, World, eventually};

const ISSUES: &str = "/repos/acme/widgets/issues";

async fn page(world: &World, number: u32) -> Reply {
    world.get(&format!("{ISSUES}?per_page=1&page={number}")).await
}

fn asks(world: &World) -> usize {
    world.upstream_requests().iter().filter(|entry| entry.path == "/rate_limit").count()
}

/// A gateway that has used up a budget of three.
async fn used_up() -> World {
    let world = Setup::new().manual_clock().client("max_wait = \"1ms\"").start().await;
    world.set_limits(&json!({ "core.user": 3 }));
    for number in 1..=3 {
        page(&world, number).await.assert_status(200);
    }
    page(&world, 4).await.assert_rate_limited(world.clock.now().as_secs());
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raised_budget_is_seen_before_its_reset() {
    let world = used_up().await;
    world.set_limits(&json!({ "core.user": 100 }));
    world.clock.advance(Duration::from_secs(31));
    let asked = timeout(Duration::from_secs(5), eventually(|| asks(&world) == 1));
    asked.await.expect("the state is not asked");
    let is_open = || world.gateway.dispatcher.admissions().snapshot().1[0].windows[0].remaining > 0;
    eventually(is_open).await;
    page(&world, 4).await.assert_status(200);
    assert!(world.upstream_requests().iter().all(|entry| entry.refused.is_none()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_used_up_budget_is_asked_at_growing_distances() {
    let world = used_up().await;
    let began = world.clock.now();
    let admissions = world.gateway.dispatcher.admissions();
    let mut asked_at = Vec::new();
    while asked_at.len() < 6 {
        eventually(|| admissions.next_question().is_some()).await;
        let at = admissions.next_question().expect("due");
        world.clock.advance(at.since(world.clock.now()));
        asked_at.push(at.since(began).as_secs());
        let asked = asked_at.len();
        eventually(|| asks(&world) == asked).await;
    }
    assert!(asked_at[0] >= 29, "{asked_at:?}");
    let distances: Vec<u64> = asked_at.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(distances.is_sorted() && distances[0] >= 30 && distances[4] <= 301, "{asked_at:?}");
    assert!(world.upstream_requests().iter().all(|entry| entry.refused.is_none()));
}

/// A request every two minutes, with time for the gateway's own question before it.
async fn asks_for_forty_minutes(world: &World) {
    for _ in 0..20 {
        world.clock.advance(Duration::from_mins(2));
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        let _ = page(world, 5).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pristine_answer_does_not_raise_a_refused_window() {
    let world = used_up().await;
    world.arm(&json!({ "fault": "pristine_rate_limit" }));
    asks_for_forty_minutes(&world).await;
    let refused = world.upstream_requests();
    let refused = refused.iter().filter(|entry| entry.refused.is_some()).count();
    assert!(refused <= 1, "one trial, and nothing after its refusal: {refused}");
}

/// A gateway whose request the upstream refused, because somebody else spent the budget.
async fn refused(setup: Setup) -> World {
    let world = setup.manual_clock().client("max_wait = \"1ms\"").start().await;
    world.set_limits(&json!({ "core.user": 3 }));
    page(&world, 1).await.assert_status(200);
    for number in 1..=2 {
        let path = format!("{ISSUES}?per_page=1&page={number}");
        world.ask_emulator(Method::GET, &path, &Value::Null);
    }
    page(&world, 2).await.assert_rate_limited(world.clock.now().as_secs());
    assert_eq!(refusals(&world), 1);
    world
}

fn refusals(world: &World) -> usize {
    world.upstream_requests().iter().filter(|entry| entry.refused.is_some()).count()
}

/// Another budget, of which nothing is used.
fn give_back(world: &World) {
    world.ask_emulator(Method::POST, "/_emulator/reset", &Value::Null);
    world.set_limits(&json!({ "core.user": 50 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_given_back_after_a_refusal_is_tried_by_one_request() {
    let world = refused(Setup::new()).await;
    give_back(&world);
    world.clock.advance(Duration::from_secs(31));
    let is_open = || world.gateway.dispatcher.admissions().snapshot().1[0].windows[0].remaining > 0;
    timeout(Duration::from_secs(10), eventually(is_open)).await.expect("nothing may try it");
    let gate = world.close_gate("GET", "/repos/acme/widgets");
    let trial = world.get("/repos/acme/widgets");
    let others = async {
        world.held(gate, 1).await;
        let other = page(&world, 5);
        let time = async {
            eventually(|| world.gateway.dispatcher.admissions().waiting() == 1).await;
            world.clock.advance(Duration::from_millis(2));
        };
        let (other, ()) = tokio::join!(other, time);
        assert_eq!(other.status, 403, "it waits for the outcome of the trial");
        world.open_gate(gate);
    };
    tokio::join!(trial, others).0.assert_status(200);
    for number in 5..=8 {
        page(&world, number).await.assert_status(200);
    }
    assert_eq!(refusals(&world), 0, "since the reset");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_false_statement_after_a_refusal_costs_one_request() {
    let world = refused(Setup::new()).await;
    world.arm(&json!({ "fault": "pristine_rate_limit" }));
    asks_for_forty_minutes(&world).await;
    let refused = refusals(&world);
    assert!(refused <= 2, "one trial, and nothing after its refusal: {refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_after_a_refusal_tries_a_budget_at_once() {
    let world = refused(Setup::new()).await;
    let refresh = || async {
        let account = world.gateway.env.config.account_id(0);
        world.gateway.dispatcher.refresh(account).await.unwrap();
    };
    // The first statement is false, and its trial is refused.
    world.arm(&json!({ "fault": "pristine_rate_limit" }));
    refresh().await;
    page(&world, 3).await.assert_rate_limited(world.clock.now().as_secs());
    assert_eq!(refusals(&world), 2);
    page(&world, 4).await.assert_rate_limited(world.clock.now().as_secs());
    assert_eq!(refusals(&world), 2, "one request alone");
    give_back(&world);
    refresh().await;
    for number in 5..=8 {
        page(&world, number).await.assert_status(200);
    }
}

/// The upstream refunds everything: its answer looks like an untouched window, so one request
/// tries it.
#[tokio::test(flavor = "multi_thread")]
async fn a_budget_given_back_is_tried_by_one_request() {
    let world = used_up().await;
    world.ask_emulator(Method::POST, "/_emulator/reset", &Value::Null);
    world.set_limits(&json!({ "core.user": 50 }));
    world.clock.advance(Duration::from_secs(31));
    let is_open = || world.gateway.dispatcher.admissions().snapshot().1[0].windows[0].remaining > 0;
    eventually(is_open).await;
    for number in 5..=8 {
        page(&world, number).await.assert_status(200);
    }
}
