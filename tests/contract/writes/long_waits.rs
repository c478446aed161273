//! An accepted write outlasts temporary failures (SPECIFICATION D7 and "Asynchronous writes").

use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio::net::TcpListener;
use weir::clock::Clock;
use weir::writes::{WriteId, WriteState};

use crate::support::{Reply, Setup, World, eventually};

const COMMENTS: &str = "/repos/acme/widgets/issues/1/comments";
const ASYNC: (&str, &str) = ("prefer", "respond-async");

async fn hand_over(world: &World, path: &str, body: &str, more: &[(&str, &str)]) -> Reply {
    let accepted = world
        .send(Method::POST, path, &[&[ASYNC], more].concat(), &json!({ "body": body }).to_string())
        .await;
    accepted.assert_status(202);
    accepted
}

fn state(world: &World, accepted: &Reply) -> WriteState {
    let id: WriteId = accepted.json()["id"].as_str().unwrap().parse().unwrap();
    world.gateway.writes.queue().write_status(id).unwrap().state
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_write_outlasts_a_401_that_is_not_repeated() {
    let world = Setup::new().unspaced_writes().start().await;
    let bad = json!({ "message": "Bad credentials" });
    world.arm(&json!({ "fault": "status", "status": 401, "body": bad, "match": { "method": "POST", "times": 1 } }));
    let accepted = hand_over(&world, COMMENTS, "first", &[]).await;
    eventually(|| state(&world, &accepted).is_final()).await;
    let status = world.get(accepted.header("location").unwrap()).await.json();
    assert_eq!((&status["state"], &status["attempts"]), (&json!("done"), &json!(2)));
    let sent = world.upstream_requests();
    let sent: Vec<&str> = sent.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(sent, [COMMENTS, "/rate_limit", COMMENTS]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_write_ends_with_a_401_that_is_repeated() {
    let world = Setup::new().unspaced_writes().start().await;
    let bad = json!({ "message": "Bad credentials" });
    world.arm(
        &json!({ "fault": "status", "status": 401, "body": bad, "match": { "method": "POST" } }),
    );
    let accepted = hand_over(&world, COMMENTS, "first", &[]).await;
    eventually(|| state(&world, &accepted).is_final()).await;
    assert_eq!(state(&world, &accepted), WriteState::Failed);
    let sent = world.upstream_requests();
    assert_eq!(sent.iter().filter(|entry| entry.path == COMMENTS).count(), 2);
}

/// Only the write that got the confirmed 401 has failed.
#[tokio::test(flavor = "multi_thread")]
async fn writes_behind_a_refused_token_wait_until_it_works_again() {
    let world = Setup::new().clock(Clock::scaled(100.0)).unspaced_writes().start().await;
    let bad = json!({ "message": "Bad credentials" });
    world.arm(&json!({ "fault": "status", "status": 401, "body": bad, "match": { "path": "*", "times": 2 } }));
    let first = hand_over(&world, COMMENTS, "first", &[]).await;
    eventually(|| state(&world, &first) == WriteState::Failed).await;
    let mut others = Vec::new();
    for issue in 1..=20 {
        others.push(
            hand_over(
                &world,
                &format!("/repos/acme/widgets/issues/{issue}/comments"),
                "later",
                &[],
            )
            .await,
        );
    }
    eventually(|| others.iter().all(|other| state(&world, other) == WriteState::Done)).await;
    assert_eq!(state(&world, &first), WriteState::Failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_repeated_asynchronously_gets_the_queues_patience() {
    let dead = TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap();
    let world = Setup::new()
        .clock(Clock::scaled(30.0))
        .unspaced_writes()
        .upstream(format!("http://{dead}"))
        .start()
        .await;
    let key = ("idempotency-key", "k");
    let body = json!({ "body": "once" }).to_string();
    let waits = async { world.send(Method::POST, COMMENTS, &[key], &body).await };
    let takes_over = async {
        eventually(|| world.gateway.writes.queue().watched() == 1).await;
        hand_over(&world, COMMENTS, "once", &[key]).await
    };
    let (reported, accepted) = tokio::join!(waits, takes_over);
    assert_ne!(reported.status, 201);
    world.clock.reach(world.clock.now() + Duration::from_secs(60)).await;
    assert!(!state(&world, &accepted).is_final(), "{:?}", state(&world, &accepted));
}

/// The requests wait for the write; if it waited for their memory, none could proceed.
#[tokio::test(flavor = "multi_thread")]
async fn a_stored_write_needs_no_memory_of_waiting_requests() {
    const MIB: usize = 1024 * 1024;
    let folder = tempfile::tempdir().unwrap();
    let store = format!("store = {{ path = {:?} }}", folder.path().join("weir.redb"));
    let world = Setup::new().unspaced_writes().writes(&store).start().await;
    let gate = world.close_gate("POST", COMMENTS);
    let first = hand_over(&world, COMMENTS, "first", &[]).await;
    world.held(gate, 1).await;
    let second = hand_over(&world, COMMENTS, &"x".repeat(MIB), &[]).await;
    // Nothing is left for requests.
    world.gateway.downstream.bodies().resized(0);
    world.open_gate(gate);
    eventually(|| [&first, &second].iter().all(|accepted| state(&world, accepted).is_final()))
        .await;
}
