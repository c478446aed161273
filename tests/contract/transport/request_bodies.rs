//! Request bodies under way: memory as bytes arrive, a fair share of it for each client and each
//! connection, a floor rate and a total time (SPECIFICATION D20; "Well-formed requests").

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Method, Request, Response};
use http_body_util::StreamBody;
use http_body_util::combinators::BoxBody;
use hyper::body::Frame;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::origin::Origin;
use crate::support::raw::Connection;
use crate::support::{KEY, OTHER_KEY, Reply, Setup, World, config, eventually};

/// The key of a client in another pool.
const FAR_KEY: &str = "weir_key_of_a_client_in_another_pool_in_tests";
const ISSUES: &str = "/repos/acme/widgets/issues";
const GRAPHQL: &str = "/graphql";
const MIB: usize = 1024 * 1024;
/// Announced lengths, together more than the default memory for bodies and filling it to the brim.
const ANNOUNCED: [usize; 42] = {
    let mut lengths = [10 * MIB; 42];
    let mut n = 30;
    while n < 42 {
        lengths[n] = MIB / 2;
        n += 1;
    }
    lengths
};

type Http2 = Client<HttpConnector, BoxBody<Bytes, Infallible>>;

/// A gateway with two pools, before an upstream that accepts everything.
async fn world(listen: &str, writes: &str) -> World {
    let upstream = Origin::start(|_| async {
        let answer = Response::builder().status(201).header("content-type", "application/json");
        answer.body(Bytes::from_static(b"{\"data\":{}}")).unwrap()
    })
    .await;
    let client = |name, key, pool| {
        let keys = format!("reads = \"{pool}\"\nwrites = \"{pool}\"\nmax_wait = \"5s\"");
        config::client(name, key, &keys)
    };
    let credentials = config::user("near", "near-secret")
        + &config::user("far", "far-secret")
        + &config::pool("near", &["near"])
        + &config::pool("far", &["far"])
        + &client("ci", KEY, "near")
        + &client("other", OTHER_KEY, "near")
        + &client("third", FAR_KEY, "far");
    let setup = Setup::new().upstream(upstream.url()).credentials(credentials);
    setup.listen(listen).unspaced_writes().writes(writes).start().await
}

fn head(method: &str, target: &str, length: usize) -> String {
    format!(
        "{method} {target} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n\
         Content-Length: {length}\r\n\r\n"
    )
}

/// A request of the client `ci` that announces `length` bytes and sends fewer.
async fn begins(
    world: &World,
    method: &str,
    target: &str,
    length: usize,
    sent: usize,
) -> Connection {
    let mut connection = Connection::open(world.address).await;
    connection.send(head(method, target, length).as_bytes()).await;
    connection.send(&vec![b'x'; sent]).await;
    connection
}

/// Waits until this many requests are under way.
async fn under_way(world: &World, count: usize) {
    eventually(|| world.gateway.env.active.count() >= count).await;
}

async fn write(world: &World, key: &str, path: &str, body: &str) -> Reply {
    let authorization = format!("Bearer {key}");
    let headers = [("authorization", &*authorization), ("content-type", "application/json")];
    world.send(Method::POST, path, &headers, body).await
}

/// Asserts that every client's writes and GraphQL go through, in both pools.
async fn assert_others_get_in(world: &World) {
    for key in [OTHER_KEY, FAR_KEY, KEY] {
        for (path, body) in [(ISSUES, "{\"title\":\"x\"}"), (GRAPHQL, "{\"query\":\"{a}\"}")] {
            write(world, key, path, body).await.assert_status(201);
        }
    }
}

fn http2() -> Http2 {
    Client::builder(TokioExecutor::new()).http2_only(true).build_http()
}

/// Begins a request over HTTP/2 that sends these pieces and never ends.
fn begins_http2(
    client: &Http2,
    world: &World,
    path: &str,
    length: usize,
    pieces: Vec<Bytes>,
) -> JoinHandle<Reply> {
    let frames = stream::iter(pieces).map(|piece| Ok(Frame::data(piece)));
    let body = BoxBody::new(StreamBody::new(frames.chain(stream::pending())));
    let request = Request::post(format!("http://{}{path}", world.address))
        .header("authorization", format!("Bearer {KEY}"))
        .header("content-length", length)
        .body(body)
        .unwrap();
    let answer = client.request(request);
    tokio::spawn(async move { Reply::read(answer.await.unwrap()).await })
}

#[tokio::test(flavor = "multi_thread")]
async fn announced_bodies_keep_nobody_out() {
    let world = world("", "").await;
    let targets = [ISSUES, GRAPHQL, "/repos/acme/widgets/git/blobs"];
    let mut connections = Vec::new();
    for (n, length) in ANNOUNCED.into_iter().enumerate() {
        connections.push(begins(&world, "POST", targets[n % 3], length, 306).await);
        under_way(&world, n + 1).await;
    }
    assert_others_get_in(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_streams_without_data_keep_nobody_out() {
    let world = world("", "").await;
    let client = http2();
    let answers: Vec<_> =
        (0..45).map(|_| begins_http2(&client, &world, ISSUES, 10 * MIB, Vec::new())).collect();
    under_way(&world, 45).await;
    assert_others_get_in(&world).await;
    assert!(answers.iter().all(|answer| !answer.is_finished()));
}

#[tokio::test(flavor = "multi_thread")]
async fn gets_with_announced_bodies_keep_nobody_out() {
    let world = world("", "").await;
    let mut connections = Vec::new();
    for (n, length) in ANNOUNCED.into_iter().enumerate() {
        let target = "/graphql?query=%7Ba%7D";
        connections.push(begins(&world, "GET", target, length, 306).await);
        connections.push(begins(&world, "GET", ISSUES, 64 * 1024, 306).await);
        under_way(&world, n + 1).await;
    }
    assert_others_get_in(&world).await;
}

#[tokio::test]
async fn a_get_with_a_body_too_long_for_it_is_a_413() {
    let world = world("", "").await;
    for target in [ISSUES, "/graphql?query=%7Ba%7D"] {
        let mut connection = begins(&world, "GET", target, 64 * 1024 + 1, 0).await;
        let answer = connection.read_to_close().await;
        assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("too large"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_body_of_a_get_takes_no_memory() {
    let world = world("body_memory = \"1KiB\"", "").await;
    for _ in 0..2 {
        let mut connection = begins(&world, "GET", ISSUES, 60 * 1024, 60 * 1024).await;
        let answer = connection.read_answer().await;
        assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_at_its_share_leaves_room_for_others() {
    let world = world("body_memory = \"2MiB\"", "max_body = \"1MiB\"").await;
    let mut connections = Vec::new();
    for _ in 0..3 {
        connections.push(begins(&world, "POST", ISSUES, MIB, 600 * 1024).await);
    }
    eventually(|| world.gateway.downstream.bodies().taken() >= 3 * 600).await;
    let mut denied = begins(&world, "POST", ISSUES, MIB, 200 * 1024).await;
    let answer = denied.read_to_close().await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("retry-after: "), "{answer}");
    for key in [OTHER_KEY, FAR_KEY] {
        write(&world, key, ISSUES, &"x".repeat(20 * 1024)).await.assert_status(201);
    }
    drop(connections);
    eventually(|| world.gateway.env.active.count() == 0).await;
    write(&world, KEY, ISSUES, &"x".repeat(900 * 1024)).await.assert_status(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_at_its_share_leaves_room_for_others() {
    let world = world("body_memory = \"2MiB\"", "max_body = \"1MiB\"").await;
    let client = http2();
    let pieces = || vec![Bytes::from(vec![b'x'; 16 * 1024]); 8];
    let streams: Vec<_> =
        (0..20).map(|_| begins_http2(&client, &world, ISSUES, MIB, pieces())).collect();
    eventually(|| streams.iter().any(JoinHandle::is_finished)).await;
    write(&world, KEY, ISSUES, &"x".repeat(20 * 1024)).await.assert_status(201);
    for stream in streams.into_iter().filter(JoinHandle::is_finished) {
        stream.await.unwrap().assert_status(403);
    }
}

/// Sends a byte again and again, until the gateway answers.
async fn dribble(world: &World, target: &str) -> String {
    let mut connection = begins(world, "POST", target, MIB, 1).await;
    for _ in 0..200 {
        let answer = timeout(Duration::from_millis(50), connection.read_to_close()).await;
        if let Ok(answer) = answer {
            return answer;
        }
        if !connection.send_unless_full(b"x").await {
            return connection.read_to_close().await;
        }
    }
    String::from("no answer")
}

fn assert_too_slow(answer: &str) {
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("The request body did not arrive in time."), "{answer}");
    assert!(answer.contains("documentation_url"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_below_the_floor_rate_is_a_408() {
    for writes in ["", "max_body = \"16B\""] {
        let world = world("body_timeout = \"300ms\"\nbody_rate_min = \"64KiB\"", writes).await;
        assert_too_slow(&dribble(&world, ISSUES).await);
        assert_eq!(world.gateway.writes.turns().writes(), 0);
        assert_others_get_in(&world).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_beyond_its_total_time_is_a_408() {
    let world = world("body_max_time = \"300ms\"\nbody_rate_min = \"1B\"", "").await;
    for target in [ISSUES, GRAPHQL] {
        assert_too_slow(&dribble(&world, target).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_http2_stream_ends_without_its_connection() {
    let world = world("body_timeout = \"300ms\"", "").await;
    let client = http2();
    let answer = begins_http2(&client, &world, ISSUES, MIB, vec![Bytes::from_static(b"x")]).await;
    let answer = answer.unwrap();
    answer.assert_status(408);
    assert!(answer.json()["documentation_url"].is_string());
    let again = begins_http2(&client, &world, ISSUES, 65_536 * 1024, Vec::new()).await.unwrap();
    again.assert_status(408);
    eventually(|| world.gateway.env.active.count() == 0).await;
}
