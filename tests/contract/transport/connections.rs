//! The number of open connections, and those that make room for others (SPECIFICATION,
//! "Connections").

use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use tokio::time::timeout;
use weir::gateway::Drained;

use super::drain::{get, is_whole};
use crate::support::origin::Origin;
use crate::support::raw::Connection;
use crate::support::{KEY, Reply, Setup, World, captured_log, eventually};

const REPOSITORY: &str = "/repos/acme/widgets";

/// A gateway with this bound. Nothing but a place that another connection needs ends one.
async fn start(max: usize, listen: &str) -> World {
    let patient = "header_timeout = \"1h\"\nidle_timeout = \"1h\"\n";
    Setup::new().listen(&format!("connections_max = {max}\n{patient}{listen}")).start().await
}

async fn ask(connection: &mut Connection, id: &str) {
    connection.send(get(REPOSITORY, id).as_bytes()).await;
    let answer = connection.read_answer().await;
    assert!(is_whole(&answer, 200), "{answer}");
}

/// A kept connection after one request.
async fn kept(world: &World, id: &str) -> Connection {
    let mut connection = Connection::open(world.address).await;
    ask(&mut connection, id).await;
    connection
}

/// A connection that has sent nothing, and that the gateway has accepted.
async fn silent(world: &World) -> Connection {
    let before = open(world);
    let connection = Connection::open(world.address).await;
    eventually(|| open(world) > before).await;
    connection
}

fn open(world: &World) -> u64 {
    world.gateway.env.connections.figures().map(|(_, _, open)| open).sum()
}

/// The connections that have a request under way.
fn busy(world: &World) -> u64 {
    let figures = world.gateway.env.connections.figures();
    figures.filter(|(_, state, _)| state.name() == "busy").map(|(_, _, open)| open).sum()
}

fn is_counted(world: &World, line: &str) -> bool {
    let text = world.gateway.env.metrics.encode();
    text.lines().any(|counted| counted == line)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_silent_connection_makes_room_for_another() {
    captured_log::begin();
    let world = start(3, "").await;
    let (mut oldest, mut second) = (silent(&world).await, silent(&world).await);
    let mut used = kept(&world, "used").await;
    // It waits until a silent one is a second old.
    let mut newest = Connection::open(world.address).await;
    ask(&mut newest, "newest").await;
    assert_eq!(oldest.read_to_close().await, "");
    assert_eq!(second.read_unless_open().await, None);
    ask(&mut used, "kept").await;
    assert_eq!(open(&world), 3);
    assert!(is_counted(&world, "weir_connections_ended_total{reason=\"evicted_new\"} 1"));
    assert!(is_counted(&world, "weir_accept_pauses_total{reason=\"connections_max\"} 1"));
    assert!(is_counted(&world, "weir_connections_accepted_total{listener=\"http\"} 4"));
    assert!(captured_log::all().contains("connections were ended to make room"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_connection_that_is_idle_for_longest_makes_room() {
    let world = start(3, "").await;
    let mut first = kept(&world, "first").await;
    let mut second = kept(&world, "second").await;
    let mut third = kept(&world, "third").await;
    ask(&mut first, "again").await;
    let mut fourth = kept(&world, "fourth").await;
    assert_eq!(second.read_to_close().await, "");
    for (connection, id) in [(&mut first, "a"), (&mut third, "b"), (&mut fourth, "c")] {
        ask(connection, id).await;
    }
    assert!(is_counted(&world, "weir_connections_ended_total{reason=\"evicted_idle\"} 1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_under_way_is_never_ended_to_make_room() {
    let world = start(2, "").await;
    let gate = world.close_gate("GET", REPOSITORY);
    let mut all = Vec::new();
    for id in ["a", "b", "c", "d"] {
        let mut connection = Connection::open(world.address).await;
        connection.send(get(REPOSITORY, id).as_bytes()).await;
        all.push(connection);
    }
    eventually(|| is_counted(&world, "weir_accept_pauses_total{reason=\"connections_max\"} 1"))
        .await;
    assert_eq!(open(&world), 2, "the others wait in the backlog");
    world.open_gate(gate);
    for mut connection in all {
        let answer = connection.read_answer().await;
        assert!(is_whole(&answer, 200), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_under_way_is_never_ended_to_make_room() {
    let world = start(1, "").await;
    let issues = "/repos/acme/widgets/issues";
    let gate = world.close_gate("POST", issues);
    let mut write = Connection::open(world.address).await;
    write.send_write(&Method::POST, issues, &[], &json!({ "title": "kept" })).await;
    world.held(gate, 1).await;
    let mut other = Connection::open(world.address).await;
    other.send(get(REPOSITORY, "other").as_bytes()).await;
    eventually(|| is_counted(&world, "weir_accept_pauses_total{reason=\"connections_max\"} 1"))
        .await;
    world.open_gate(gate);
    assert!(is_whole(&write.read_answer().await, 201));
    assert!(is_whole(&other.read_answer().await, 200));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http2_stream_under_way_is_never_ended_to_make_room() {
    let world = start(1, "").await;
    let gate = world.close_gate("GET", REPOSITORY);
    let client: Client<_, Full<Bytes>> =
        Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let key = format!("Bearer {KEY}");
    let request = Request::get(format!("http://{}{REPOSITORY}", world.address))
        .header("authorization", key)
        .body(Full::default())
        .unwrap();
    let stream = tokio::spawn(client.request(request));
    world.held(gate, 1).await;
    let mut other = Connection::open(world.address).await;
    other.send(get(REPOSITORY, "other").as_bytes()).await;
    eventually(|| is_counted(&world, "weir_accept_pauses_total{reason=\"connections_max\"} 1"))
        .await;
    world.open_gate(gate);
    Reply::read(stream.await.unwrap().unwrap()).await.assert_status(200);
    // The connection of the stream is idle now, and makes room.
    let answer = other.read_answer().await;
    assert!(is_whole(&answer, 200), "{answer}");
    assert!(is_counted(&world, "weir_connections_ended_total{reason=\"evicted_idle\"} 1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_to_strangers_keep_no_place() {
    let world = start(2, "").await;
    let mut used = kept(&world, "used").await;
    let mut stranger = Connection::open(world.address).await;
    stranger.send(b"GET /user HTTP/1.1\r\nHost: weir\r\n\r\n").await;
    assert!(is_whole(&stranger.read_answer().await, 401));
    let mut newest = Connection::open(world.address).await;
    ask(&mut newest, "newest").await;
    assert_eq!(stranger.read_to_close().await, "");
    ask(&mut used, "kept").await;
}

/// The client's idle connection would have to go if the stranger's were protected.
#[tokio::test(flavor = "multi_thread")]
async fn an_unread_body_of_a_stranger_keeps_no_place() {
    let world = start(2, "").await;
    let mut used = kept(&world, "used").await;
    let mut stranger = Connection::open(world.address).await;
    let issue =
        "POST /repos/acme/widgets/issues HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n";
    stranger.send(issue.as_bytes()).await;
    assert!(is_whole(&stranger.read_answer().await, 401));
    let mut newest = Connection::open(world.address).await;
    ask(&mut newest, "newest").await;
    assert_eq!(stranger.read_to_close().await, "");
    ask(&mut used, "kept").await;
    assert!(is_counted(&world, "weir_connections_ended_total{reason=\"evicted_new\"} 1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unfinished_delivery_of_a_stranger_keeps_no_place() {
    let listen = "connections_max = 2\nheader_timeout = \"1h\"\nidle_timeout = \"1h\"";
    let secret = "[webhooks]\nsecret = { value = \"It's a Secret to Everybody\" }";
    let world = Setup::new().listen(listen).config(secret).start().await;
    let mut used = kept(&world, "used").await;
    let mut stranger = Connection::open(world.address).await;
    let signature = "0".repeat(64);
    let delivery = format!(
        "POST /_weir/webhooks HTTP/1.1\r\nHost: weir\r\nX-GitHub-Event: ping\r\n\
         X-GitHub-Delivery: never\r\nContent-Type: application/json\r\n\
         X-Hub-Signature-256: sha256={signature}\r\nContent-Length: 60000\r\n\r\n{{"
    );
    stranger.send(delivery.as_bytes()).await;
    eventually(|| world.gateway.env.active.count() == 1).await;
    let mut newest = Connection::open(world.address).await;
    ask(&mut newest, "newest").await;
    assert_eq!(stranger.read_to_close().await, "");
    ask(&mut used, "kept").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http2_stream_of_a_stranger_keeps_no_place() {
    let world = start(2, "").await;
    let mut used = kept(&world, "used").await;
    let mut stranger = Connection::open(world.address).await;
    stranger.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    // SETTINGS with a window of no byte (RFC 9113 §6.5.2): the body of the answer has to wait.
    stranger.send(b"\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0").await;
    // HEADERS of a GET by `http` for `/` (RFC 7541 appendix A) with the authority `a`.
    stranger.send(b"\0\0\x06\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01a").await;
    eventually(|| busy(&world) == 1).await;
    let mut newest = Connection::open(world.address).await;
    ask(&mut newest, "newest").await;
    ask(&mut used, "kept").await;
    assert!(is_counted(&world, "weir_connections_ended_total{reason=\"evicted_new\"} 1"));
}

/// Its connection is the oldest one that has not been answered yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_clients_unfinished_body_keeps_its_place() {
    let world = start(2, "").await;
    let issue = "{\"title\":\"kept\"}";
    let head = format!(
        "POST /repos/acme/widgets/issues HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n\
         Content-Length: {}\r\n\r\n",
        issue.len()
    );
    let mut write = Connection::open(world.address).await;
    write.send(head.as_bytes()).await;
    eventually(|| world.gateway.env.active.count() == 1).await;
    let mut stranger = silent(&world).await;
    let mut newest = Connection::open(world.address).await;
    ask(&mut newest, "newest").await;
    assert_eq!(stranger.read_to_close().await, "");
    write.send(issue.as_bytes()).await;
    let answer = write.read_answer().await;
    assert!(is_whole(&answer, 201), "{answer}");
}

/// Five seconds late, by the floor rates.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_go_on_makes_room() {
    let body = Bytes::from(format!("\"{}\"", "x".repeat(20_000_000)));
    let origin = Origin::start(move |_| {
        let answer = Response::builder().header("content-type", "application/json");
        let answer = answer.header("cache-control", "no-store").body(body.clone()).unwrap();
        async move { answer }
    })
    .await;
    let world = Setup::new().listen("connections_max = 2").upstream(origin.url()).start().await;
    let mut sender = Connection::open(world.address).await;
    let head = format!(
        "POST /repos/acme/widgets/issues HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n\
         Content-Length: 1000\r\n\r\n{{"
    );
    sender.send(head.as_bytes()).await;
    let mut reader = Connection::open(world.address).await;
    reader.send(get(REPOSITORY, "unread").as_bytes()).await;
    eventually(|| busy(&world) == 2).await;
    let mut third = Connection::open(world.address).await;
    third.send(get(REPOSITORY, "third").as_bytes()).await;
    let mut fourth = Connection::open(world.address).await;
    fourth.send(get(REPOSITORY, "fourth").as_bytes()).await;
    for connection in [&mut third, &mut fourth] {
        assert!(connection.read_head().await.starts_with("HTTP/1.1 200"));
    }
    assert_eq!(sender.read_to_close().await, "");
    assert!(is_counted(&world, "weir_connections_ended_total{reason=\"evicted_slow\"} 2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_takes_another_number_of_connections() {
    let world = start(1, "").await;
    let gate = world.close_gate("GET", REPOSITORY);
    let mut first = Connection::open(world.address).await;
    first.send(get(REPOSITORY, "first").as_bytes()).await;
    world.held(gate, 1).await;
    let mut second = Connection::open(world.address).await;
    second.send(get(REPOSITORY, "second").as_bytes()).await;
    eventually(|| is_counted(&world, "weir_accept_pauses_total{reason=\"connections_max\"} 1"))
        .await;
    world.reload(|text| text.replace("connections_max = 1", "connections_max = 2"));
    eventually(|| open(&world) == 2).await;
    world.open_gate(gate);
    assert!(is_whole(&first.read_answer().await, 200));
    assert!(is_whole(&second.read_answer().await, 200));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_serves_the_connections_that_wait_for_a_place() {
    let world = start(1, "").await;
    let gate = world.close_gate("GET", REPOSITORY);
    let mut all = Vec::new();
    for id in ["served", "in-hand", "in-the-backlog"] {
        let mut connection = Connection::open(world.address).await;
        connection.send(get(REPOSITORY, id).as_bytes()).await;
        all.push(connection);
    }
    world.held(gate, 1).await;
    eventually(|| is_counted(&world, "weir_accept_pauses_total{reason=\"connections_max\"} 1"))
        .await;
    let (emulator, drain) = world.into_drain(Duration::from_secs(20));
    let draining = tokio::spawn(drain);
    emulator.open_gate(gate);
    for mut connection in all {
        let answer = connection.read_to_close().await;
        assert!(is_whole(&answer, 200), "{answer}");
    }
    assert_eq!(draining.await.unwrap(), Drained::Completely);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_has_at_most_its_connections() {
    captured_log::begin();
    let world = start(9, "connections_max_per_address = 2").await;
    let from = |last| Connection::open_from(Ipv4Addr::new(127, 0, 7, last), world.address);
    let (mut first, mut second) = (from(1).await, from(1).await);
    ask(&mut first, "first").await;
    ask(&mut second, "second").await;
    assert_eq!(from(1).await.read_to_close().await, "");
    assert!(is_counted(
        &world,
        "weir_connections_ended_total{reason=\"connections_max_per_address\"} 1"
    ));
    let log = captured_log::all();
    assert!(log.contains("an address has too many connections") && log.contains("127.0.7.1"));
    ask(&mut from(2).await, "other").await;
    drop(second);
    // The gateway learns of the end a moment later.
    let again = async {
        loop {
            let mut third = from(1).await;
            if third.send_unless_closed(get(REPOSITORY, "third").as_bytes()).await
                && is_whole(&third.read_answer().await, 200)
            {
                break;
            }
        }
    };
    timeout(Duration::from_secs(20), again).await.expect("the place is free again");
}
