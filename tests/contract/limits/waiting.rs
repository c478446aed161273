//! The longest wait of a request: `max_wait` and `Prefer: wait` (SPECIFICATION, "Waiting").

use std::time::Duration;

use futures_util::future::join_all;

use crate::support::{Reply, Setup, all_have_status, config, eventually};

/// The reply to a client with this `max_wait` and `Prefer` while the only upstream slot is taken,
/// and the seconds until it arrives.
async fn held(max_wait: &str, prefer: &str) -> (Reply, u64) {
    let client = format!("max_wait = \"{max_wait}\"");
    let world = Setup::new().manual_clock().limits("concurrency = 1").client(&client).start().await;
    world.get("/repos/acme/widgets/issues").await.assert_status(200);
    let gate = world.close_gate("GET", "/repos/acme/widgets");
    let holder = world.get("/repos/acme/widgets");
    let waiter = async {
        world.held(gate, 1).await;
        let begun = world.clock.now();
        let preference = [("prefer", prefer)];
        let waiting = world.get_with("/repos/acme/sprockets", &preference);
        let time = async {
            eventually(|| world.gateway.dispatcher.admissions().waiting() == 1).await;
            let mut seconds = 0;
            while world.gateway.dispatcher.admissions().waiting() == 1 && seconds < 60 {
                world.clock.advance(Duration::from_secs(1));
                seconds += 1;
                let gateway = &world.gateway;
                settle(|| gateway.dispatcher.admissions().waiting() == 0).await;
            }
            world.clock.now().since(begun).as_secs()
        };
        let answered = tokio::join!(waiting, time);
        world.open_gate(gate);
        answered
    };
    let (held, refused) = tokio::join!(holder, waiter);
    held.assert_status(200);
    assert_eq!(
        world.upstream_requests().iter().filter(|entry| entry.path.contains("sprockets")).count(),
        0
    );
    refused
}

#[tokio::test(flavor = "multi_thread")]
async fn a_high_priority_read_does_not_wait_for_a_low_one() {
    const BOSS: &str = "weir_key_of_somebody_who_waits_for_the_answer";
    let keys = "reads = \"default\"\npriority = \"interactive\"";
    let world = Setup::new()
        .client("priority = \"batch\"")
        .config(&config::client("boss", BOSS, keys))
        .limits("concurrency = 1")
        .start()
        .await;
    world.get("/repos/acme/widgets/issues").await.assert_status(200);
    let gate = world.close_gate("GET", "/repos/acme/widgets");
    let holder = world.get("/repos/acme/widgets");
    let others = async {
        world.held(gate, 1).await;
        let last = world.get("/repos/acme/sprockets");
        let first = async {
            eventually(|| world.gateway.dispatcher.admissions().waiting() == 1).await;
            let authorization = format!("Bearer {BOSS}");
            let headers = [("authorization", authorization.as_str())];
            let first = world.get_with("/repos/acme/sprockets", &headers);
            let open = async {
                eventually(|| world.gateway.dispatcher.admissions().waiting() == 2).await;
                world.open_gate(gate);
            };
            tokio::join!(first, open).0
        };
        tokio::join!(last, first)
    };
    let (held, (last, first)) = tokio::join!(holder, others);
    for answer in [held, last, first] {
        answer.assert_status(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_modest_client_is_not_delayed_by_a_greedy_ones_fetch() {
    const MODEST: &str = "weir_key_of_somebody_who_asks_for_one_thing";
    const SHARED: &str = "/repos/acme/sprockets";
    let modest = config::client("modest", MODEST, "reads = \"default\"");
    let world = Setup::new().config(&modest).limits("concurrency = 1").start().await;
    let gate = world.close_gate("GET", "/repos/acme/widgets");
    let holder = world.get("/repos/acme/widgets");
    let others = async {
        world.held(gate, 1).await;
        let page = |number: usize| {
            let (world, path) = (&world, format!("/repos/acme/widgets/issues?page={number}"));
            async move { world.get(&path).await }
        };
        let greedy = join_all((1..=20).map(page));
        let last = async {
            eventually(|| world.gateway.dispatcher.admissions().waiting() == 20).await;
            world.get(SHARED).await
        };
        let modest = async {
            eventually(|| world.gateway.dispatcher.admissions().waiting() == 21).await;
            let authorization = format!("Bearer {MODEST}");
            let headers = [("authorization", authorization.as_str())];
            let answer = world.get_with(SHARED, &headers);
            let open = async {
                eventually(|| world.gateway.dispatcher.admissions().waiting() == 22).await;
                world.open_gate(gate);
            };
            tokio::join!(answer, open).0
        };
        tokio::join!(greedy, last, modest)
    };
    let (held, (greedy, last, modest)) = tokio::join!(holder, others);
    all_have_status(&greedy, 200);
    for answer in [&held, &last, &modest] {
        answer.assert_status(200);
    }
    let sent: Vec<String> = world.upstream_requests().into_iter().map(|entry| entry.path).collect();
    let positions: Vec<usize> =
        (0..sent.len()).filter(|position| sent[*position] == SHARED).collect();
    assert!(matches!(positions[..], [position] if position <= 2), "{sent:?}");
    modest.assert_fetched_and_stored();
    assert_eq!(last.cache_status(), "weir; fwd=uri-miss; stored; collapsed");
}

/// Lets the tasks that a clock woke run while the condition is false.
async fn settle(condition: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if condition() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn max_wait_limits_the_wait() {
    let (refused, seconds) = held("7s", "").await;
    refused.assert_status(504);
    assert!((7..=9).contains(&seconds), "{seconds}");
}

#[tokio::test(flavor = "multi_thread")]
async fn prefer_wait_may_shorten_max_wait() {
    let (refused, seconds) = held("20s", "respond-async, wait=4").await;
    refused.assert_status(504);
    assert!((4..=6).contains(&seconds), "{seconds}");
}

#[tokio::test(flavor = "multi_thread")]
async fn prefer_wait_cannot_exceed_max_wait() {
    let (refused, seconds) = held("7s", "wait=50").await;
    refused.assert_status(504);
    assert!((7..=9).contains(&seconds), "{seconds}");
}
