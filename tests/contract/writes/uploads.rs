//! Uploads: bodies too large for memory, which take no account's place among the spaced writes
//! before they are whole (SPECIFICATION D7, D21).

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::interval;

use crate::support::raw::Connection;
use crate::support::reply::Reply;
use crate::support::scripted::ScriptedUpstream;
use crate::support::{KEY, OTHER_KEY, Setup, World, eventually};

const COMMENTS: &str = "/repos/acme/widgets/issues/1/comments";
const ISSUES: &str = "/repos/acme/widgets/issues";

/// Begins an upload of the client `ci` that has sent this much so far.
async fn begin_upload(world: &World, path: &str, length: usize, sent: usize) -> Connection {
    let mut connection = Connection::open(world.address).await;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    connection.send(head.as_bytes()).await;
    connection.send(&vec![b'x'; sent]).await;
    connection
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_upload_stops_no_other_write() {
    let spacing = "spacing = \"10ms\"\nnotify_spacing = \"10ms\"";
    let world = Setup::new().client("max_wait = \"2s\"").writes(spacing).start().await;
    let asset = "/api/uploads/repos/acme/widgets/releases/1/assets?name=slow";
    let _upload = begin_upload(&world, asset, 64 * 1024 * 1024, 300 * 1024).await;
    let _large = begin_upload(&world, COMMENTS, 64 * 1024 * 1024, 300 * 1024).await;
    eventually(|| world.gateway.downstream.uploads().taken() > 0).await;
    for key in [KEY, OTHER_KEY] {
        let authorization = format!("Bearer {key}");
        let headers = [("authorization", &*authorization), ("content-type", "application/json")];
        let body = json!({ "body": "quick" }).to_string();
        world.send(Method::POST, COMMENTS, &headers, &body).await.assert_status(201);
    }
    assert_eq!(world.upstream_requests().len(), 2, "nothing of the uploads was sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_in_chunks_is_sent_with_its_length() {
    let upstream = ScriptedUpstream::start().await;
    let setup = Setup::new().upstream(upstream.url()).unspaced_writes();
    let world = setup.writes("max_body = \"1KiB\"").start().await;
    let mut client = Connection::open(world.address).await;
    let head = format!(
        "POST {ISSUES} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n\
         Transfer-Encoding: chunked\r\n\r\n"
    );
    client.send(head.as_bytes()).await;
    for _ in 0..5 {
        client.send(format!("{:x}\r\n{}\r\n", 100_000, "x".repeat(100_000)).as_bytes()).await;
    }
    client.send(b"0\r\n\r\n").await;
    let mut connection = upstream.next().await;
    assert!(connection.request.contains("content-length: 500000\r\n"), "{}", connection.request);
    connection.read_body(500_000).await;
    connection.send("HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}").await;
    assert!(client.read_answer().await.starts_with("HTTP/1.1 201 "));
    eventually(|| world.gateway.downstream.uploads().taken() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_outlasts_a_401_that_is_not_repeated() {
    for (times, status) in [(1, 201), (9, 403)] {
        let world = Setup::new().unspaced_writes().writes("max_body = \"1KiB\"").start().await;
        let bad = json!({ "message": "Bad credentials" });
        world.arm(&json!({ "fault": "status", "status": 401, "body": bad, "match": { "path": "/repos/*", "times": times } }));
        let made = world.post(COMMENTS, json!({ "body": "x".repeat(200_000) })).await;
        made.assert_status(status);
        let sent = world.upstream_requests().iter().filter(|entry| entry.path == COMMENTS).count();
        assert_eq!(sent, 2);
        eventually(|| world.gateway.downstream.uploads().taken() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_not_sent_again_was_not_executed() {
    const BYTES: usize = 200_000;
    let upstream = ScriptedUpstream::start().await;
    let setup = Setup::new().upstream(upstream.url()).unspaced_writes();
    let world = setup.writes("max_body = \"1KiB\"").start().await;
    let mut client = begin_upload(&world, ISSUES, BYTES, BYTES).await;
    let mut connection = upstream.next().await;
    connection.read_body(BYTES).await;
    let bad = json!({ "message": "Bad credentials" }).to_string();
    let head = "HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\n";
    connection.send(format!("{head}Content-Length: {}\r\n\r\n{bad}", bad.len())).await;
    let mut question = upstream.next_of_any().await;
    assert!(question.request.starts_with("GET /rate_limit "), "{}", question.request);
    drop(upstream);
    question.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}").await;
    let answer = client.read_answer().await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(answer.contains("nothing was executed"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_at_its_share_of_upload_space_leaves_room() {
    let space = "max_body = \"1KiB\"\nupload_space = \"4MiB\"";
    let world = Setup::new().unspaced_writes().writes(space).start().await;
    let mut first = begin_upload(&world, COMMENTS, 8 * 1024 * 1024, 5 * 1024 * 1024).await;
    assert!(first.read_to_close().await.starts_with("HTTP/1.1 403 "));
    let _kept = begin_upload(&world, COMMENTS, 8 * 1024 * 1024, 3 * 1024 * 1024).await;
    eventually(|| world.gateway.downstream.uploads().taken() >= 44).await;
    let authorization = format!("Bearer {OTHER_KEY}");
    let headers = [("authorization", &*authorization), ("content-type", "application/json")];
    let body = json!({ "body": "x".repeat(60_000) }).to_string();
    world.send(Method::POST, COMMENTS, &headers, &body).await.assert_status(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_with_a_credential_goes_to_no_file() {
    let world = Setup::new().unspaced_writes().writes("max_body = \"1KiB\"").start().await;
    let mut upload = begin_upload(&world, "/repos/acme/widgets/hooks", 9_000, 0).await;
    let answer = upload.read_to_close().await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_write_counts_the_writes_before_it() {
    const BYTES: usize = 24 * 1024 * 1024;
    const PIECE: usize = 256 * 1024;
    let upstream = ScriptedUpstream::start().await;
    let spacing = "spacing = \"2s\"\nnotify_spacing = \"2s\"";
    let setup = Setup::new().upstream(upstream.url()).writes(spacing);
    let world = Arc::new(setup.client("max_wait = \"1s\"").start().await);
    let _upload = begin_upload(&world, COMMENTS, BYTES, BYTES).await;
    let mut connection = upstream.next().await;
    // The upstream takes the upload slowly, for as long as the test looks.
    tokio::spawn(async move {
        let mut pace = interval(Duration::from_millis(200));
        for _ in 0..BYTES / PIECE - 1 {
            pace.tick().await;
            connection.read_bytes(PIECE).await;
        }
    });
    // Questions whether it lives.
    tokio::spawn(async move {
        loop {
            let mut question = upstream.next().await;
            question.try_send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await;
        }
    });
    let refused = world.post(ISSUES, json!({ "title": "one" })).await;
    refused.assert_secondary_limited();
    assert!((2..10).contains(&refused.number("retry-after")), "{refused:?}");
    // Writes of another client wait in lanes of their own.
    let others: Vec<_> = (2..6).map(|issue| other_comment(&world, issue)).collect();
    eventually(|| world.gateway.dispatcher.admissions().waiting() == others.len()).await;
    let refused = world.post(ISSUES, json!({ "title": "two" })).await;
    refused.assert_secondary_limited();
    assert!((10..20).contains(&refused.number("retry-after")), "{refused:?}");
}

fn other_comment(world: &Arc<World>, issue: u32) -> JoinHandle<Reply> {
    let world = Arc::clone(world);
    tokio::spawn(async move {
        let authorization = format!("Bearer {OTHER_KEY}");
        let headers = [("authorization", &*authorization), ("content-type", "application/json")];
        let path = format!("/repos/acme/widgets/issues/{issue}/comments");
        world.send(Method::POST, &path, &headers, "{\"body\":\"later\"}").await
    })
}
