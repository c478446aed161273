//! The wait for minted tokens: its length, the requests that share it, and the error without a
//! token (SPECIFICATION, "Waiting").

use std::time::Duration;

use weir::tokens::HealthState;

use super::apps::{MINT, REPOSITORY, mints, mixed, ready, setup, state};
use crate::support::raw::Connection;
use crate::support::{KEY, eventually};

#[tokio::test]
async fn a_request_that_does_not_wait_still_starts_a_mint() {
    let world = setup().manual_clock().start().await;
    ready(&world).await;
    world.clock.advance(Duration::from_hours(2));
    let mut connection = Connection::open(world.address).await;
    let head = format!(
        "GET {REPOSITORY} HTTP/1.1\r\nhost: weir\r\nauthorization: Bearer {KEY}\r\nprefer: wait=0\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n"
    );
    connection.send(head.as_bytes()).await;
    assert!(connection.read_answer().await.starts_with("HTTP/1.1 100"));
    // The request has arrived, and its wait is over.
    world.clock.advance(Duration::from_secs(1));
    connection.send(b"{}").await;
    let answer = connection.read_answer().await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    eventually(|| {
        mints(&world).len() == 2 && state(&world, "installation 311") == Some(HealthState::Healthy)
    })
    .await;
}

#[tokio::test]
async fn a_more_patient_request_keeps_waiting_for_the_mint() {
    let world = setup().manual_clock().start().await;
    let gate = world.close_gate("POST", MINT);
    let first = world.get_with(REPOSITORY, &[("prefer", "wait=5")]);
    let second = async {
        world.all_waiting_for_one_fetch(1).await;
        world.get(REPOSITORY).await
    };
    let time = async {
        world.held(gate, 1).await;
        world.all_waiting_for_one_fetch(2).await;
        world.clock.advance(Duration::from_secs(6));
        world.all_waiting_for_one_fetch(1).await;
        world.open_gate(gate);
    };
    let (first, second, ()) = tokio::join!(first, second, time);
    first.assert_status(503);
    second.assert_status(200);
}

#[tokio::test]
async fn a_mint_whose_response_never_ends_is_abandoned() {
    let world = setup().manual_clock().start().await;
    let gate = world.close_gate("POST", MINT);
    world.held(gate, 1).await;
    world.clock.advance(Duration::from_mins(3));
    eventually(|| world.has_token_problem()).await;
    world.open_gate(gate);
    world.clock.advance(Duration::from_secs(1));
    ready(&world).await;
}

#[tokio::test]
async fn a_denied_read_waits_only_seconds_for_a_better_token() {
    let world = mixed().start().await;
    ready(&world).await;
    world.clock.advance(Duration::from_hours(2));
    let gate = world.close_gate("POST", MINT);
    let denied = async {
        tokio::time::timeout(Duration::from_secs(20), world.get("/repos/acme/gadgets"))
            .await
            .expect("it still waits")
    };
    let time = async {
        world.held(gate, 1).await;
        world.clock.advance(Duration::from_secs(6));
    };
    let (denied, ()) = tokio::join!(denied, time);
    denied.assert_status(404);
    world.open_gate(gate);
}
