//! Synchronous writes: executed once, in order, with an intact body, and reported truthfully
//! (SPECIFICATION, "Promises" 3 and 4).

use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};

use weir::decision::QuotaLedger;
use weir::emulator::GateId;

use crate::support::all_have_status;
use crate::support::raw::Connection;
use crate::support::{KEY, Setup, eventually};

const COMMENTS: &str = "/repos/acme/widgets/issues/1/comments";

#[tokio::test]
async fn a_write_is_done_once_and_read_back() {
    let world = Setup::new().unspaced_writes().start().await;
    let made = world.post(COMMENTS, json!({ "body": "once" })).await;
    made.assert_status(201);
    assert_eq!(made.cache_status(), "weir; fwd=bypass");
    let id = made.json()["id"].clone();
    let read = world.get(&format!("/repos/acme/widgets/issues/comments/{id}")).await;
    assert_eq!(read.json()["body"], "once");
    assert_eq!(world.upstream_requests().iter().filter(|entry| entry.method == "POST").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_of_one_client_to_one_resource_keep_their_order() {
    let world = Setup::new().unspaced_writes().start().await;
    let gate = world.close_gate("POST", COMMENTS);
    let sends = (0..10).map(|n| {
        let world = &world;
        async move {
            // Each write enters its lane before the next one is sent.
            eventually(|| world.gateway.writes.turns().writes() == n).await;
            world.post(COMMENTS, json!({ "body": format!("number {n}") })).await
        }
    });
    let opened = async {
        eventually(|| world.gateway.writes.turns().writes() == 10).await;
        world.held(gate, 1).await;
        world.open_gate(gate);
    };
    let (answers, ()) = tokio::join!(join_all(sends), opened);
    all_have_status(&answers, 201);
    let ids: Vec<_> = answers.iter().map(|answer| answer.json()["id"].as_u64().unwrap()).collect();
    assert!(ids.is_sorted(), "{ids:?}");
    assert!(
        world
            .upstream_requests()
            .iter()
            .filter(|entry| entry.method == "POST")
            .all(|entry| entry.concurrency == 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unspaced_writes_run_side_by_side_but_lanes_keep_order() {
    for prefer in ["", "respond-async"] {
        let world = Setup::new().unspaced_writes().start().await;
        world.get("/repos/acme/widgets").await.assert_status(200);
        let gate = world.close_gate("POST", "/repos/acme/widgets/issues/*/comments");
        let send = |issue: usize, n: usize| {
            let (world, body) = (&world, json!({ "body": format!("number {n}") }).to_string());
            async move {
                eventually(|| world.gateway.writes.turns().writes() == n).await;
                let path = format!("/repos/acme/widgets/issues/{issue}/comments");
                world.send(Method::POST, &path, &[("prefer", prefer)], &body).await
            }
        };
        let side_by_side = async {
            eventually(|| world.gateway.writes.turns().writes() == 4).await;
            let held = || world.emulator.with_emulator(|emulator| emulator.held(GateId(gate)));
            eventually(|| held() == 2).await;
            assert_eq!(world.gateway.dispatcher.admissions().waiting(), 0);
            world.open_gate(gate);
            eventually(|| world.gateway.writes.turns().writes() == 0).await;
        };
        let sends = join_all([send(1, 0), send(2, 1), send(1, 2), send(2, 3)]);
        let (answers, ()) = tokio::join!(sends, side_by_side);
        all_have_status(&answers, if prefer.is_empty() { 201 } else { 202 });
        for (issue, expected) in [(1, ["number 0", "number 2"]), (2, ["number 1", "number 3"])] {
            let path = format!("/repos/acme/widgets/issues/{issue}/comments?per_page=100");
            let comments = world.ask_emulator(Method::GET, &path, &Value::Null);
            let bodies = comments.as_array().unwrap().iter().map(|comment| &comment["body"]);
            let ours: Vec<_> =
                bodies.filter(|body| expected.contains(&body.as_str().unwrap())).collect();
            assert_eq!(ours, expected, "{prefer}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_of_one_account_are_spaced() {
    let world = Setup::new()
        .manual_clock()
        .writes("spacing = \"1s\"\nnotify_spacing = \"3s\"")
        .start()
        .await;
    world.post(COMMENTS, json!({ "body": "first" })).await.assert_status(201);
    let second = world.post("/repos/acme/widgets/issues/2/comments", json!({ "body": "second" }));
    let time = async {
        eventually(|| world.gateway.dispatcher.admissions().waiting() == 1).await;
        assert_eq!(world.upstream_requests().len(), 1);
        world.clock.advance(Duration::from_secs(3));
    };
    let (second, ()) = tokio::join!(second, time);
    second.assert_status(201);
    let sent = world.upstream_requests();
    assert!(sent[1].at_millis - sent[0].at_millis >= 3_000);
}

#[tokio::test]
async fn a_client_without_an_account_cannot_write() {
    let world = Setup::new().reader().start().await;
    world.get("/repos/acme/widgets").await.assert_status(200);
    let refused = world.post(COMMENTS, json!({ "body": "no" })).await;
    refused.assert_status(403);
    assert!(refused.json()["message"].as_str().unwrap().contains("no account of its own"));
    assert_eq!(world.upstream_requests().len(), 1);
}

#[tokio::test]
async fn a_disallowed_request_is_not_sent() {
    let world = Setup::new()
        .client("allow = [\"GET *\", \"POST /repos/acme/*/issues\"]")
        .unspaced_writes()
        .start()
        .await;
    world.post(COMMENTS, json!({ "body": "no" })).await.assert_status(403);
    assert!(world.upstream_requests().is_empty());
    world.post("/repos/acme/widgets/issues", json!({ "title": "yes" })).await.assert_status(201);
    world
        .post("/repos/%61cme/widgets/issues", json!({ "title": "the same letter" }))
        .await
        .assert_status(201);
    world.post("/repos/acme/widgets%2fx/issues", json!({ "title": "no" })).await.assert_status(404);
}

#[tokio::test]
async fn the_upstreams_response_to_a_write_is_passed_on() {
    let world = Setup::new().unspaced_writes().start().await;
    world
        .send(Method::POST, COMMENTS, &[("content-type", "application/json")], "{ not json")
        .await
        .assert_status(400);
    world.post(COMMENTS, json!({ "body": 5 })).await.assert_status(422);
    world.post("/repos/acme/nothing/issues", json!({ "title": "x" })).await.assert_status(404);
}

#[tokio::test]
async fn a_large_upload_is_streamed_whole() {
    let world = Setup::new().unspaced_writes().writes("max_body = \"1KiB\"").start().await;
    let text = "x".repeat(200_000);
    let made = world.post(COMMENTS, json!({ "body": text })).await;
    made.assert_status(201);
    assert_eq!(made.json()["body"].as_str().map(str::len), Some(text.len()));
}

#[tokio::test]
async fn expect_continue_is_answered() {
    let world = Setup::new().unspaced_writes().start().await;
    let body = json!({ "body": "patient" }).to_string();
    let chunk = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for (framing, body) in [
        (format!("Content-Length: {}", body.len()), body),
        ("Transfer-Encoding: chunked".to_owned(), chunk),
    ] {
        let mut connection = Connection::open(world.address).await;
        let head = format!(
            "POST {COMMENTS} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\nExpect: 100-continue\r\n{framing}\r\n\r\n"
        );
        connection.send(head.as_bytes()).await;
        assert!(connection.read_answer().await.starts_with("HTTP/1.1 100"));
        connection.send(body.as_bytes()).await;
        let answer = connection.read_answer().await;
        assert!(answer.starts_with("HTTP/1.1 201"), "{framing}: {answer}");
    }
}

#[tokio::test]
async fn an_error_reaches_a_client_that_is_still_sending() {
    let world = Setup::new().reader().unspaced_writes().start().await;
    let mut connection = Connection::open(world.address).await;
    let bytes = 20 * 1024 * 1024;
    let head = format!(
        "POST {COMMENTS} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {bytes}\r\n\r\n"
    );
    connection.send(head.as_bytes()).await;
    connection.send(&vec![b'x'; bytes]).await;
    assert!(connection.read_to_close().await.starts_with("HTTP/1.1 403"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_write_is_dropped_with_its_client() {
    let world = Setup::new().unspaced_writes().start().await;
    let gate = world.close_gate("POST", COMMENTS);
    let first = world.post(COMMENTS, json!({ "body": "stays" }));
    let leaver = async {
        world.held(gate, 1).await;
        let mut connection = Connection::open(world.address).await;
        connection.send_write(&Method::POST, COMMENTS, &[], &json!({ "body": "leaves" })).await;
        eventually(|| world.gateway.writes.turns().writes() == 2).await;
        drop(connection);
        eventually(|| world.gateway.writes.turns().writes() == 1).await;
        world.open_gate(gate);
    };
    let (answer, ()) = tokio::join!(first, leaver);
    answer.assert_status(201);
    assert_eq!(world.upstream_requests().iter().filter(|entry| entry.method == "POST").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sent_write_is_finished_without_its_client() {
    let world = Setup::new().unspaced_writes().start().await;
    let gate = world.close_gate("POST", COMMENTS);
    let mut connection = Connection::open(world.address).await;
    connection.send_write(&Method::POST, COMMENTS, &[], &json!({ "body": "sent" })).await;
    world.held(gate, 1).await;
    drop(connection);
    world.open_gate(gate);
    eventually(|| world.gateway.writes.turns().writes() == 0).await;
    assert_eq!(world.upstream_requests()[0].status, 201);
    let snapshot = world.gateway.dispatcher.admissions().with_ledger(QuotaLedger::snapshot);
    assert!(snapshot[0].windows.iter().all(|window| window.reserved == 0));
}

#[tokio::test]
async fn a_graphql_query_is_a_read_and_a_mutation_is_a_write() {
    let world = Setup::new().reader().start().await;
    let query = world.post("/graphql", json!({ "query": "{ viewer { login } }" })).await;
    query.assert_status(200);
    for body in [
        "[{\"query\":\"mutation{b}\"}]",
        "{\"query\":\"#x\\rmutation{a}\"}",
        "query=mutation{b}",
        "{\"id\":\"persisted\"}",
    ] {
        world.send(Method::POST, "/graphql", &[], body).await.assert_status(403);
    }
    for path in ["/graphql", "/api/graphql", "/api/v3/graphql"] {
        world.post(path, json!({ "query": "mutation { x }" })).await.assert_status(403);
    }
}
