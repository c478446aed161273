//! Budgets whose window is unknown: at the start, and in a new hour. A slow or missing answer
//! delays only the request that waits for it, and is no limit.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::time::timeout;
use weir::clock::Clock;

use crate::support::broken::{Behaviour, Broken};
use crate::support::{Setup, World, all_have_status};

const SLOW: &str = "/repos/acme/widgets";
const ISSUES: &str = "/repos/acme/widgets/issues";
/// Far below the wait of a client, and above the second after which the state is asked.
const SOON: Duration = Duration::from_secs(5);

async fn quick_requests_pass_a_slow_one(world: &World) {
    let gate = world.close_gate("GET", SLOW);
    let slow = world.get(SLOW);
    let quick = async {
        world.held(gate, 1).await;
        let quick = (1..=5).map(|page| {
            let path = format!("{ISSUES}?per_page=1&page={page}");
            async move { world.get(&path).await }
        });
        let answers = timeout(SOON, join_all(quick)).await;
        world.open_gate(gate);
        answers.expect("five quick requests wait for one slow answer")
    };
    let (slow, quick) = tokio::join!(slow, quick);
    slow.assert_status(200);
    all_have_status(&quick, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_answer_does_not_delay_quick_requests() {
    let world = Setup::new().start().await;
    quick_requests_pass_a_slow_one(&world).await;
    let asked = world.upstream_requests();
    assert_eq!(asked.iter().filter(|entry| entry.path == "/rate_limit").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_slow_answers_do_not_delay_quick_requests() {
    let world = Setup::new().start().await;
    // Statements that never show the requests in flight.
    world.arm(&json!({ "fault": "pristine_rate_limit" }));
    let gate = world.close_gate("GET", SLOW);
    let slow = (0..12).map(|n| {
        let (world, path) = (&world, format!("{SLOW}?n={n}"));
        async move { world.get(&path).await }
    });
    let quick = async {
        world.held(gate, 10).await;
        let quick = (1..=5).map(|page| {
            let path = format!("{ISSUES}?per_page=1&page={page}");
            let world = &world;
            async move { world.get(&path).await }
        });
        let answers = timeout(SOON, join_all(quick)).await;
        world.open_gate(gate);
        answers.expect("quick requests wait for ten slow answers")
    };
    let (slow, quick) = tokio::join!(join_all(slow), quick);
    all_have_status(&slow, 200);
    all_have_status(&quick, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_hour_does_not_wait_for_one_slow_answer() {
    let world = Setup::new().clock(Clock::scaled(20.0)).start().await;
    world.set_limits(&json!({ "window.primary": 40 }));
    world.get(&format!("{ISSUES}?page=9")).await.assert_status(200);
    world.clock.reach(world.clock.now() + Duration::from_secs(45)).await;
    quick_requests_pass_a_slow_one(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_without_rate_limit_lets_a_second_request_out() {
    let world = Setup::new().start().await;
    let not_found = json!({ "message": "Not Found" });
    world.arm(&json!({ "fault": "status", "status": 404, "body": not_found, "match": { "path": "/rate_limit" } }));
    quick_requests_pass_a_slow_one(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_upstream_is_a_timeout_and_no_limit() {
    let broken = Broken::start(Behaviour::Silence).await;
    let setup = Setup::new().upstream(broken.url()).client("max_wait = \"2s\"");
    let world = setup.upstream_keys("response_timeout = \"3s\"").listen("admin = \"127.0.0.1:0\"");
    let world = world.start().await;
    let answers = join_all((1..=12).map(|page| {
        let path = format!("{ISSUES}?page={page}");
        let world = &world;
        async move { world.get(&path).await }
    }))
    .await;
    all_have_status(&answers, 504);
    for answer in &answers {
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        assert!(!message.contains("limit"), "{message}");
        assert!(answer.header("x-ratelimit-remaining") != Some("0"), "{answer:?}");
    }
    let metrics = world.gateway.env.metrics.scrape(|_| ());
    let refused: Vec<&str> =
        metrics.lines().filter(|line| line.starts_with("weir_refused_total{")).collect();
    assert_eq!(refused, ["weir_refused_total{client=\"ci\",reason=\"upstream_timeout\"} 12"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_concurrency_of_hanging_requests_is_a_timeout() {
    let broken = Broken::start(Behaviour::Silence).await;
    let setup = Setup::new().upstream(broken.url()).limits("concurrency = 2");
    let setup = setup.client("max_wait = \"2s\"").upstream_keys("response_timeout = \"4s\"");
    let world = setup.start().await;
    let answers = join_all((1..=5).map(|page| {
        let path = format!("{ISSUES}?page={page}");
        let world = &world;
        async move { world.get(&path).await }
    }))
    .await;
    all_have_status(&answers, 504);
}
