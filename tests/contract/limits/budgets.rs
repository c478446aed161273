//! Budgets as clients see them, and the limits that the upstream never has to enforce
//! (SPECIFICATION, "Promises" 2).

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use weir::decision::QuotaLedger;

use crate::support::Setup;
use crate::support::all_have_status;
use crate::support::raw::Connection;
use crate::support::{KEY, eventually};

const ISSUES: &str = "/repos/acme/widgets/issues";

#[tokio::test(flavor = "multi_thread")]
async fn three_accounts_of_fifty_carry_exactly_150_of_200_requests() {
    let world = Setup::new().accounts(3).start().await;
    world.set_limits(&json!({ "core.user": 50 }));
    let answers = join_all((0..200).map(|n| {
        let world = &world;
        async move { world.get(&format!("{ISSUES}?per_page=1&page={n}")).await }
    }))
    .await;
    let served = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(served, 150);
    assert_eq!(world.upstream_requests().len(), 150);
    assert!(world.upstream_requests().iter().all(|entry| entry.refused.is_none()));
    let now = world.clock.now().as_secs();
    answers
        .iter()
        .filter(|answer| answer.status != 200)
        .for_each(|answer| answer.assert_rate_limited(now));
    assert!(
        answers
            .iter()
            .filter(|answer| answer.status == 200)
            .all(|answer| answer.number("x-ratelimit-remaining") >= 1)
    );
}

#[tokio::test]
async fn a_wrong_upstream_clock_shifts_no_request() {
    for seconds in [-420, -5, 5, 420] {
        let world =
            Setup::new().manual_clocks_apart(seconds).client("max_wait = \"1ms\"").start().await;
        world.set_limits(&json!({ "core.user": 4, "window.primary": 60 }));
        for window in 0..3 {
            for page in 1..=4 {
                world
                    .get(&format!("{ISSUES}?page={page}&window={window}"))
                    .await
                    .assert_status(200);
            }
            let refused = world.get(&format!("{ISSUES}?page=5&window={window}")).await;
            let now = world.clock.now().as_secs();
            refused.assert_rate_limited(now);
            assert!(refused.number("x-ratelimit-reset") <= now + 63, "{seconds}: {refused:?}");
            world.advance_both(Duration::from_secs(64));
        }
        assert!(world.upstream_requests().iter().all(|entry| entry.refused.is_none()), "{seconds}");
    }
}

#[tokio::test]
async fn a_new_window_is_used_again() {
    let world = Setup::new().manual_clock().start().await;
    world.set_limits(&json!({ "core.user": 2 }));
    for page in 1..=2 {
        world.get(&format!("{ISSUES}?page={page}")).await.assert_status(200);
    }
    let refused = world.get(&format!("{ISSUES}?page=3")).await;
    refused.assert_rate_limited(world.clock.now().as_secs());
    world.clock.advance(Duration::from_secs(refused.number("retry-after") + 3));
    world.get(&format!("{ISSUES}?page=3")).await.assert_status(200);
    assert!(world.upstream_requests().iter().all(|entry| entry.refused.is_none()));
}

#[tokio::test]
async fn a_reserve_is_left_to_others() {
    let world = Setup::new().account("reserve = 3").start().await;
    world.set_limits(&json!({ "core.user": 5 }));
    for page in 1..=2 {
        world.get(&format!("{ISSUES}?page={page}")).await.assert_status(200);
    }
    world.get(&format!("{ISSUES}?page=3")).await.assert_rate_limited(world.clock.now().as_secs());
    assert_eq!(world.upstream_requests().len(), 2);
}

#[tokio::test]
async fn a_stored_response_is_served_when_the_budget_is_spent() {
    let world = Setup::new().start().await;
    world.set_limits(&json!({ "core.user": 1 }));
    let first = world.get(ISSUES).await;
    let second = world.get(ISSUES).await;
    assert_eq!(second.body, first.body);
    assert_eq!(second.cache_status(), "weir; hit; detail=stale-if-limited");
}

#[tokio::test]
async fn rate_limit_shows_the_clients_own_view_and_costs_nothing() {
    let world = Setup::new().accounts(2).start().await;
    world.get(ISSUES).await.assert_status(200);
    let answer = world.get("/rate_limit").await.json();
    let core = &answer["resources"]["core"];
    assert_eq!((core["limit"].as_u64(), core["used"].as_u64()), (Some(10_000), Some(1)));
    assert_eq!(answer["rate"], *core);
    for name in ["search", "graphql", "integration_manifest", "code_search"] {
        assert!(answer["resources"][name]["remaining"].as_u64() >= Some(1), "{name}");
    }
    assert_eq!(world.upstream_requests().len(), 1);
    assert_eq!(world.get("/api/v3/rate_limit").await.json()["resources"]["core"], *core);
}

#[tokio::test(flavor = "multi_thread")]
async fn prefer_wait_limits_the_wait() {
    let world = Setup::new().manual_clock().limits("concurrency = 1").start().await;
    world.get(ISSUES).await.assert_status(200);
    let gate = world.close_gate("GET", "/repos/acme/widgets");
    let holder = world.get("/repos/acme/widgets");
    let waiter = async {
        world.held(gate, 1).await;
        let waiting = world.get_with("/repos/acme/sprockets", &[("prefer", "wait=5")]);
        let time = async {
            eventually(|| world.gateway.dispatcher.admissions().waiting() == 1).await;
            world.clock.advance(Duration::from_secs(6));
        };
        let (answer, ()) = tokio::join!(waiting, time);
        world.open_gate(gate);
        answer
    };
    let (held, refused) = tokio::join!(holder, waiter);
    held.assert_status(200);
    refused.assert_status(504);
    assert_eq!(world.gateway.dispatcher.admissions().waiting(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disconnected_client_frees_its_slot() {
    let world = Setup::new().limits("concurrency = 1").start().await;
    world.get(ISSUES).await.assert_status(200);
    let gate = world.close_gate("GET", "/repos/acme/widgets");
    let holder = world.get("/repos/acme/widgets");
    let leaver = async {
        world.held(gate, 1).await;
        let mut connection = Connection::open(world.address).await;
        let request = format!(
            "GET /repos/acme/sprockets HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n\r\n"
        );
        connection.send(request.as_bytes()).await;
        eventually(|| world.gateway.dispatcher.admissions().waiting() == 1).await;
        drop(connection);
        eventually(|| world.gateway.dispatcher.admissions().waiting() == 0).await;
        world.open_gate(gate);
    };
    let (held, ()) = tokio::join!(holder, leaver);
    held.assert_status(200);
    assert!(world.upstream_requests().iter().all(|entry| !entry.path.contains("sprockets")));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrency_stays_within_the_upstreams_limit() {
    let world = Setup::new().limits("concurrency = 5").start().await;
    world.set_limits(&json!({ "concurrency": 5 }));
    let answers = join_all((0..60).map(|n| {
        let world = &world;
        async move { world.get(&format!("{ISSUES}?per_page=1&page={n}")).await }
    }))
    .await;
    all_have_status(&answers, 200);
    assert!(
        world
            .upstream_requests()
            .iter()
            .all(|entry| entry.refused.is_none() && entry.concurrency < 5)
    );
}

#[tokio::test]
async fn a_secondary_limit_moves_reads_to_another_account() {
    let world = Setup::new().accounts(2).start().await;
    // The emulator allows fewer points than the gateway assumes, so it refuses.
    world.set_limits(&json!({ "points.rest": 3 }));
    for page in 0..6 {
        world.get(&format!("{ISSUES}?page={page}&per_page=1")).await.assert_status(200);
    }
    let refused = world.upstream_requests().iter().filter(|entry| entry.refused.is_some()).count();
    assert!(refused <= 1, "{refused} refusals");
}

#[tokio::test]
async fn the_ledger_is_open_to_the_operator() {
    let world = Setup::new().start().await;
    world.get(ISSUES).await.assert_status(200);
    let snapshot = world.gateway.dispatcher.admissions().with_ledger(QuotaLedger::snapshot);
    let core =
        snapshot[0].windows.iter().find(|window| window.resource.as_str() == "core").unwrap();
    assert_eq!((core.limit, core.remaining, core.reserved), (5_000, 4_999, 0));
}
