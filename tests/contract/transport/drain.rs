//! The drain: every request that was sent before it is answered and logged (SPECIFICATION,
//! "Commands").

use std::io::Write as _;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Method, Request};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::time::timeout;
use weir::gateway::Drained;

use crate::support::raw::Connection;
use crate::support::{KEY, Reply, Setup, World, captured_log, eventually};

const REPOSITORY: &str = "/repos/acme/widgets";
const ISSUES: &str = "/repos/acme/widgets/issues";
/// The streams in flight on one HTTP/2 connection.
const STREAMS: usize = 10;
/// More than any drain here needs.
const GRACE: Duration = Duration::from_secs(20);

pub fn get(path: &str, id: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\nX-Request-Id: {id}\r\n\r\n"
    )
}

/// True if `answer` is one complete response with this status.
pub fn is_whole(answer: &str, status: u16) -> bool {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { return false };
    let length = format!("content-length: {}", body.len());
    head.starts_with(&format!("HTTP/1.1 {status}"))
        && head.to_ascii_lowercase().lines().any(|line| line == length)
}

/// Bounds a wait, so that a lost request fails its test.
pub async fn within<T>(wait: impl Future<Output = T>) -> T {
    timeout(2 * GRACE, wait).await.expect("the drain does not come to its end")
}

/// Drains, and returns the connection's bytes up to its end.
async fn drained(world: World, connections: Vec<Connection>) -> Vec<String> {
    let (_emulator, drain) = world.into_drain(GRACE);
    let answers = connections.into_iter().map(async |mut client| client.read_to_close().await);
    let (drained, answers) = within(async { tokio::join!(drain, join_all(answers)) }).await;
    assert_eq!(drained, Drained::Completely);
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_finishes_requests_in_flight() {
    let world = Setup::new().start().await;
    let gate = world.close_gate("GET", REPOSITORY);
    let mut connection = Connection::open(world.address).await;
    connection.send(get(REPOSITORY, "in-flight").as_bytes()).await;
    within(world.held(gate, 1)).await;
    let (emulator, drain) = world.into_drain(GRACE);
    let draining = tokio::spawn(drain);
    emulator.open_gate(gate);
    let answer = within(connection.read_to_close()).await;
    assert!(is_whole(&answer, 200), "{answer}");
    assert_eq!(within(draining).await.unwrap(), Drained::Completely);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_finishes_http2_streams_in_flight() {
    let world = Setup::new().start().await;
    // The first answer tells the budget; until then there is one request at a time.
    world.get(REPOSITORY).await.assert_status(200);
    let gate = world.close_gate("GET", ISSUES);
    let client: Client<_, Full<Bytes>> =
        Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let streams = (1..=STREAMS).map(|page| {
        let request = Request::get(format!("http://{}{ISSUES}?page={page}", world.address))
            .header("authorization", format!("Bearer {KEY}"));
        tokio::spawn(client.request(request.body(Full::default()).unwrap()))
    });
    let streams: Vec<_> = streams.collect();
    within(world.held(gate, STREAMS)).await;
    let (emulator, drain) = world.into_drain(GRACE);
    let draining = tokio::spawn(drain);
    emulator.open_gate(gate);
    for stream in streams {
        let answer = within(stream).await.unwrap().unwrap();
        within(Reply::read(answer)).await.assert_status(200);
    }
    assert_eq!(within(draining).await.unwrap(), Drained::Completely);
}

/// The rest of the body comes after new requests are refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_finishes_a_write_whose_body_is_under_way() {
    let world = Setup::new().start().await;
    let body = json!({ "title": "slow" }).to_string();
    let head = format!(
        "POST {ISSUES} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut connection = Connection::open(world.address).await;
    connection.send(head.as_bytes()).await;
    connection.send(&body.as_bytes()[..5]).await;
    let active = std::sync::Arc::clone(&world.gateway.env.active);
    eventually(|| active.count() == 1).await;
    let (_emulator, drain) = world.into_drain(GRACE);
    let draining = tokio::spawn(drain);
    eventually(|| active.refuses()).await;
    connection.send(&body.as_bytes()[5..]).await;
    let answer = within(connection.read_to_close()).await;
    assert!(is_whole(&answer, 201), "{answer}");
    assert_eq!(within(draining).await.unwrap(), Drained::Completely);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_ends_after_its_grace_period() {
    let world = Setup::new().start().await;
    let gate = world.close_gate("GET", REPOSITORY);
    let mut connection = Connection::open(world.address).await;
    connection.send(get(REPOSITORY, "too-long").as_bytes()).await;
    within(world.held(gate, 1)).await;
    let (_emulator, drain) = world.into_drain(Duration::from_millis(100));
    assert_eq!(within(drain).await, Drained::CutOff(1));
}

#[test]
fn a_request_that_is_cut_off_has_a_log_line() {
    captured_log::begin();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let cut_off = runtime.block_on(async {
        let world = Setup::new().start().await;
        let gate = world.close_gate("GET", REPOSITORY);
        let mut connection = Connection::open(world.address).await;
        connection.send(get(REPOSITORY, "drain-cut-off").as_bytes()).await;
        within(world.held(gate, 1)).await;
        let (_emulator, drain) = world.into_drain(Duration::from_millis(100));
        within(drain).await
    });
    assert_eq!(cut_off, Drained::CutOff(1));
    drop(runtime);
    let text = captured_log::all();
    let mut lines = text.lines().filter(|line| line.contains("drain-cut-off"));
    let is_end = |line: &str| {
        serde_json::from_str::<Value>(line).is_ok_and(|line| line["message"] == "request")
    };
    assert!(lines.any(is_end), "{text}");
}

/// One thread: the gateway has no chance to read the requests before the drain begins.
#[tokio::test]
async fn a_request_on_an_open_connection_is_served_in_a_drain() {
    let world = Setup::new().start().await;
    let mut used = Connection::open(world.address).await;
    used.send(get(REPOSITORY, "first").as_bytes()).await;
    assert!(is_whole(&within(used.read_answer()).await, 200));
    let mut unused = Connection::open(world.address).await;
    eventually(|| true).await;
    for connection in [&mut used, &mut unused] {
        connection.send(get(REPOSITORY, "second").as_bytes()).await;
    }
    for answer in drained(world, vec![used, unused]).await {
        assert!(is_whole(&answer, 200), "{answer}");
        assert!(answer.to_ascii_lowercase().contains("connection: close"), "{answer}");
    }
}

#[tokio::test]
async fn requests_sent_one_behind_another_are_served_in_a_drain() {
    let world = Setup::new().start().await;
    world.get(REPOSITORY).await.assert_status(200);
    let mut connection = Connection::open(world.address).await;
    let requests = [REPOSITORY, ISSUES, REPOSITORY, REPOSITORY].map(|path| get(path, "behind"));
    connection.send(requests.concat().as_bytes()).await;
    let answers = drained(world, vec![connection]).await;
    assert_eq!(answers[0].matches("HTTP/1.1 200").count(), 4, "{answers:?}");
}

/// One thread: the system has accepted the connections, and the gateway has not.
#[tokio::test]
async fn a_connection_in_the_backlog_is_served_in_a_drain() {
    let world = Setup::new().start().await;
    world.get(REPOSITORY).await.assert_status(200);
    let client = || {
        let mut client = std::net::TcpStream::connect(world.address).unwrap();
        client.write_all(get(REPOSITORY, "waiting").as_bytes()).unwrap();
        client.set_nonblocking(true).unwrap();
        Connection::from(client)
    };
    let clients = (0..10).map(|_| client()).collect();
    for answer in drained(world, clients).await {
        assert!(is_whole(&answer, 200), "{answer}");
    }
}

/// Its client neither answers nor closes.
#[tokio::test]
async fn an_http2_connection_in_the_backlog_delays_no_drain() {
    let world = Setup::new().start().await;
    let mut client = std::net::TcpStream::connect(world.address).unwrap();
    // The preface and empty settings.
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    client.set_nonblocking(true).unwrap();
    let answers = drained(world, vec![client.into()]).await;
    // GOAWAY with the highest number of a stream (RFC 9113 §6.8).
    assert!(answers[0].contains("\0\0\x08\x07\0\0\0\0\0\x7f"), "{answers:?}");
}

#[tokio::test]
async fn an_idle_connection_ends_with_the_drain() {
    let world = Setup::new().start().await;
    let idle = Connection::open(world.address).await;
    let began = std::time::Instant::now();
    assert_eq!(drained(world, vec![idle]).await, [""]);
    assert!(began.elapsed() < GRACE / 2, "{:?}", began.elapsed());
}

#[tokio::test]
async fn an_unfinished_head_is_refused_at_the_end_of_a_drain() {
    let world = Setup::new().start().await;
    let begins = ["G", "GET /repos/acme/widgets HTTP/1.1\r\nHost: weir\r\nX: ", "POST /user HT"];
    let mut connections = Vec::new();
    for begin in begins {
        let mut connection = Connection::open(world.address).await;
        connection.send(begin.as_bytes()).await;
        connections.push(connection);
    }
    for answer in drained(world, connections).await {
        assert!(is_whole(&answer, 503), "{answer:?}");
        assert!(answer.contains("shutting down"), "{answer}");
    }
}

/// It could be neither executed nor kept.
#[tokio::test]
async fn a_drain_accepts_no_write_into_memory() {
    let world = Setup::new().start().await;
    let mut connection = Connection::open(world.address).await;
    let prefer = [("Prefer", "respond-async")];
    connection.send_write(&Method::POST, ISSUES, &prefer, &json!({ "title": "later" })).await;
    let answers = drained(world, vec![connection]).await;
    assert!(is_whole(&answers[0], 503), "{answers:?}");
}
