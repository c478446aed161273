//! Writes that wait behind another write. A write without an answer is no limit; the distance
//! between answered writes is one (SPECIFICATION, "Waiting").

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::support::{Reply, Setup, World, eventually};

const FIRST: &str = "/repos/acme/widgets/issues/1/comments";
const SECOND: &str = "/repos/acme/widgets/issues/2/comments";
const SPACED: &str = "spacing = \"2s\"\nnotify_spacing = \"2s\"";
const UNSPACED: &str = "spacing = \"0s\"\nnotify_spacing = \"0s\"";
const SECOND_OF_TIME: Duration = Duration::from_secs(1);

async fn start(spacing: &str) -> Arc<World> {
    let setup = Setup::new().manual_clock().writes(spacing).client("max_wait = \"10s\"");
    let world = Arc::new(setup.start().await);
    world.get("/repos/acme/widgets").await.assert_status(200);
    world
}

fn comment(
    world: &Arc<World>,
    path: &'static str,
    headers: &[(&'static str, &'static str)],
) -> JoinHandle<Reply> {
    let (world, headers) = (Arc::clone(world), headers.to_vec());
    let body = json!({ "body": "a comment" }).to_string();
    tokio::spawn(async move { world.send(Method::POST, path, &headers, &body).await })
}

/// Waits until this many requests wait for admission or a turn.
async fn waiting(world: &World, count: u64) {
    let of_client = |world: &World| {
        let waiting = world.gateway.dispatcher.waiting();
        waiting[0].load(std::sync::atomic::Ordering::Relaxed)
    };
    eventually(|| of_client(world) >= count).await;
}

/// Lets seconds pass, with an answered read in each.
async fn pass(world: &World, seconds: u32) {
    for second in 0..seconds {
        world.clock.advance(SECOND_OF_TIME);
        let page = world.upstream_requests().len();
        let path = format!("/repos/acme/widgets/issues?per_page=1&page={second}{page}");
        world.get(&path).await.assert_status(200);
    }
}

fn refused(world: &World) -> Vec<String> {
    let metrics = world.gateway.env.metrics.scrape(|_| ());
    let refused = metrics.lines().filter(|line| line.starts_with("weir_refused_total{"));
    refused.map(str::to_owned).collect()
}

#[track_caller]
fn assert_timeout(world: &World, reply: &Reply) {
    reply.assert_status(504);
    let timeouts = "weir_refused_total{client=\"ci\",reason=\"upstream_timeout\"} 1";
    assert_eq!(refused(world), [timeouts]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_write_is_a_timeout_for_those_behind_it() {
    let with_key = [("idempotency-key", "once")];
    let kinds: [(&str, &'static str, &[_]); 4] = [
        (SPACED, SECOND, &[]),
        (SPACED, FIRST, &[]),
        (UNSPACED, FIRST, &[]),
        (SPACED, SECOND, &with_key),
    ];
    for (spacing, path, headers) in kinds {
        let world = start(spacing).await;
        let gate = world.close_gate("POST", FIRST);
        let hanging = comment(&world, FIRST, &[]);
        world.held(gate, 1).await;
        let behind = comment(&world, path, headers);
        waiting(&world, 1).await;
        pass(&world, 11).await;
        assert_timeout(&world, &behind.await.unwrap());
        world.open_gate(gate);
        hanging.await.unwrap().assert_status(201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_hangs_after_an_answered_one_is_a_timeout() {
    let world = start(SPACED).await;
    let first = world.close_gate("POST", FIRST);
    let second = world.close_gate("POST", SECOND);
    let answered = comment(&world, FIRST, &[]);
    world.held(first, 1).await;
    let hanging = comment(&world, SECOND, &[]);
    waiting(&world, 1).await;
    let behind = comment(&world, SECOND, &[]);
    waiting(&world, 2).await;
    pass(&world, 2).await;
    world.open_gate(first);
    answered.await.unwrap().assert_status(201);
    world.held(second, 1).await;
    pass(&world, 9).await;
    assert_timeout(&world, &behind.await.unwrap());
    world.open_gate(second);
    hanging.await.unwrap().assert_status(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_distance_of_answered_writes_stays_a_limit() {
    for path in [FIRST, SECOND] {
        let world = start("spacing = \"4s\"\nnotify_spacing = \"4s\"").await;
        let first = comment(&world, FIRST, &[]);
        first.await.unwrap().assert_status(201);
        let writes: Vec<_> = (0..4).map(|_| comment(&world, path, &[])).collect();
        waiting(&world, 4).await;
        pass(&world, 11).await;
        let mut statuses = Vec::new();
        for write in writes {
            let reply = write.await.unwrap();
            if reply.status == 403 {
                reply.assert_secondary_limited();
            }
            statuses.push(reply.status.as_u16());
        }
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 201, 403, 403], "{path}");
        assert_eq!(refused(&world), ["weir_refused_total{client=\"ci\",reason=\"spacing\"} 2"]);
    }
}
