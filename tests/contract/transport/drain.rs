//! The drain: every request that was sent before it is answered and logged (SPECIFICATION,
//! "Commands").

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Method, Request};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ring::hmac;
use serde_json::{Value, json};
use tokio::time::timeout;
use weir::admin::Admin;
use weir::clock::machine_instant;
use weir::gateway::Drained;

use crate::support::raw::Connection;
use crate::support::{KEY, Reply, Setup, World, captured_log, eventually};

const REPOSITORY: &str = "/repos/acme/widgets";
const ISSUES: &str = "/repos/acme/widgets/issues";
const COMMENTS: &str = "/repos/acme/widgets/issues/1/comments";
const WEBHOOKS: &str = "/_weir/webhooks";
const SECRET: &str = "It's a Secret to Everybody";
const SECRET_CONFIG: &str = "[webhooks]\nsecret = { value = \"It's a Secret to Everybody\" }";
/// The streams in flight on one HTTP/2 connection.
const STREAMS: usize = 10;
/// More than any drain here needs.
const GRACE: Duration = Duration::from_secs(20);

pub fn get(path: &str, id: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\nX-Request-Id: {id}\r\n\r\n"
    )
}

fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The header lines of a delivery with this body.
fn signed(body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let signature = hmac::sign(&key, body.as_bytes());
    let digits = signature.as_ref().iter().fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    });
    format!(
        "X-GitHub-Event: ping\r\nX-GitHub-Delivery: in-a-drain\r\n\
         Content-Type: application/json\r\nX-Hub-Signature-256: sha256={digits}\r\n"
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
    let answers =
        connections.into_iter().map(|mut client| async move { client.read_to_close().await });
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
async fn a_drain_finishes_requests_whose_bodies_are_under_way() {
    let issue = "{\"title\":\"slow\"}".to_owned();
    let upload = "x".repeat(3000);
    let release = "/api/uploads/repos/acme/widgets/releases/{}/assets?name=slow.txt";
    for (path, body, fields, status) in [
        (ISSUES, &issue, String::new(), 201),
        (ISSUES, &issue, "Expect: 100-continue\r\n".to_owned(), 201),
        // Larger than a body in memory may be.
        (release, &upload, "Content-Type: text/plain\r\n".to_owned(), 201),
        ("/graphql", &"{\"query\":\"{viewer{login}}\"}".to_owned(), String::new(), 200),
        (WEBHOOKS, &"{}".to_owned(), signed("{}"), 202),
    ] {
        let world = Setup::new().writes("max_body = \"1KiB\"").config(SECRET_CONFIG).start().await;
        let releases =
            world.ask_emulator(Method::GET, &format!("{REPOSITORY}/releases"), &Value::Null);
        let path = &path.replace("{}", &releases[0]["id"].to_string());
        let mut connection = Connection::open(world.address).await;
        let request = post(path, body).replace("\r\nHost", &format!("\r\n{fields}Host"));
        let (before, rest) = request.split_at(request.len() - 1);
        connection.send(before.as_bytes()).await;
        let active = Arc::clone(&world.gateway.env.active);
        eventually(|| active.count() == 1).await;
        let (_emulator, drain) = world.into_drain(GRACE);
        let draining = tokio::spawn(drain);
        eventually(|| active.refuses()).await;
        connection.send(rest.as_bytes()).await;
        let answer = within(connection.read_to_close()).await;
        let answer = answer.trim_start_matches("HTTP/1.1 100 Continue\r\n\r\n");
        assert!(is_whole(answer, status), "{path}: {answer}");
        assert_eq!(within(draining).await.unwrap(), Drained::Completely);
    }
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

/// Over HTTP/1.1 and HTTP/2. A read may be repeated; nobody knows of a write that is on its way.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_cut_off_learns_when_to_come_back() {
    let world = Setup::new().start().await;
    world.get(REPOSITORY).await.assert_status(200);
    let (read, write) = (world.close_gate("GET", ISSUES), world.close_gate("POST", ISSUES));
    let mut clients = Vec::new();
    for request in [get(ISSUES, "cut"), post(ISSUES, "{\"title\":\"cut\"}")] {
        let mut client = Connection::open(world.address).await;
        client.send(request.as_bytes()).await;
        clients.push(client);
    }
    let http2: Client<_, Full<Bytes>> =
        Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let request = Request::get(format!("http://{}{ISSUES}?page=2", world.address))
        .header("authorization", format!("Bearer {KEY}"));
    let stream = tokio::spawn(http2.request(request.body(Full::default()).unwrap()));
    within(world.held(read, 2)).await;
    within(world.held(write, 1)).await;
    let (_emulator, drain) = world.into_drain(Duration::from_millis(400));
    assert_eq!(within(drain).await, Drained::CutOff(3));
    let answer = within(stream).await.unwrap().unwrap();
    assert_eq!(
        (answer.status().as_u16(), answer.headers()["retry-after"].as_bytes()),
        (503, &b"5"[..])
    );
    for (mut client, text) in clients.into_iter().zip(["shutting down", "it is unknown whether"]) {
        let answer = client.read_answer().await;
        assert!(is_whole(&answer, 503) && answer.contains(text), "{answer}");
        assert!(answer.to_ascii_lowercase().contains("\r\nretry-after: "), "{answer}");
    }
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
    let world = Setup::new().unspaced_writes().start().await;
    world.get(REPOSITORY).await.assert_status(200);
    let mut connection = Connection::open(world.address).await;
    let reads = [REPOSITORY, ISSUES, REPOSITORY].map(|path| get(path, "behind")).concat();
    let write = post(ISSUES, "{\"title\":\"one of several\"}");
    connection.send([&*reads, &write, &write, &reads, &write].concat().as_bytes()).await;
    let answers = drained(world, vec![connection]).await;
    let answers = answers[0].to_ascii_lowercase();
    let served = ["http/1.1 200", "http/1.1 201"].map(|line| answers.matches(line).count());
    let (_, last) = answers.rsplit_once("http/1.1 ").unwrap();
    // A slow machine comes to the end of the drain before that of the requests.
    assert!(served == [6, 3] || last.starts_with("503"), "{answers}");
    assert_eq!(answers.matches("connection: close").count(), 1, "{answers}");
    assert!(last.contains("connection: close"), "{last}");
}

/// The answer to the first comes after new requests are refused.
#[tokio::test]
async fn a_request_behind_a_slow_one_is_refused_in_a_drain() {
    for second in [get(REPOSITORY, "refused"), post(ISSUES, "{\"title\":\"refused\"}")] {
        let world = Setup::new().start().await;
        let gate = world.close_gate("GET", ISSUES);
        let mut connection = Connection::open(world.address).await;
        connection.send([get(ISSUES, "slow"), second].concat().as_bytes()).await;
        within(world.held(gate, 1)).await;
        let active = Arc::clone(&world.gateway.env.active);
        let (emulator, drain) = world.into_drain(GRACE);
        let draining = tokio::spawn(drain);
        eventually(|| active.refuses()).await;
        emulator.open_gate(gate);
        let answers = within(connection.read_to_close()).await;
        let (first, refused) = answers.split_at(answers.rfind("HTTP/1.1").unwrap());
        assert!(is_whole(first, 200) && is_whole(refused, 503), "{answers}");
        let refused = refused.to_ascii_lowercase();
        for line in ["\r\nretry-after: ", "\r\nconnection: close\r\n"] {
            assert!(refused.contains(line), "{refused}");
        }
        assert_eq!(within(draining).await.unwrap(), Drained::Completely);
    }
}

/// A kept connection after one request, which the usual wait of a drain closes.
async fn idle(world: &World) -> Connection {
    let mut connection = Connection::open(world.address).await;
    connection.send(get(REPOSITORY, "idle").as_bytes()).await;
    assert!(is_whole(&within(connection.read_answer()).await, 200));
    connection
}

/// The last answer of a connection to this request.
async fn last_answer(mut connection: Connection, request: &str) -> String {
    connection.send(request.as_bytes()).await;
    let answer = within(connection.read_to_close()).await;
    assert!(answer.to_ascii_lowercase().contains("\r\nconnection: close\r\n"), "{answer}");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_request_may_come_late_in_a_hand_over() {
    let world = Setup::new().start().await;
    let mut idle = idle(&world).await;
    let [reads, writes] = [Connection::open(world.address), Connection::open(world.address)];
    let (reads, writes) = (reads.await, writes.await);
    let connections = Arc::clone(&world.gateway.env.connections);
    eventually(|| connections.figures().map(|(_, _, open)| open).sum::<u64>() == 3).await;
    let (_emulator, drain) = world.into_hand_over(GRACE);
    let draining = tokio::spawn(drain);
    assert_eq!(within(idle.read_to_close()).await, "");
    let write = post(ISSUES, "{\"title\":\"late\"}");
    for (connection, request, status) in
        [(reads, get(REPOSITORY, "late"), 200), (writes, write, 201)]
    {
        let answer = last_answer(connection, &request).await;
        assert!(is_whole(&answer, status), "{answer}");
    }
    assert_eq!(within(draining).await.unwrap(), Drained::Completely);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unfinished_head_may_be_finished_in_a_hand_over() {
    let world = Setup::new().start().await;
    let mut begun = [idle(&world).await, idle(&world).await];
    let requests = [get(REPOSITORY, "late"), post(ISSUES, "{\"title\":\"late\"}")];
    let parts = requests.each_ref().map(|request| request.split_at("POST /".len()));
    for (connection, (first, _)) in begun.iter_mut().zip(parts) {
        connection.send(first.as_bytes()).await;
    }
    let mut idle = idle(&world).await;
    let (_emulator, drain) = world.into_hand_over(GRACE);
    let draining = tokio::spawn(drain);
    assert_eq!(within(idle.read_to_close()).await, "");
    for ((connection, (_, rest)), status) in begun.into_iter().zip(parts).zip([200, 201]) {
        let answer = last_answer(connection, rest).await;
        assert!(is_whole(&answer, status), "{answer}");
    }
    assert_eq!(within(draining).await.unwrap(), Drained::Completely);
}

/// The successor may have begun to make the changes.
#[tokio::test]
async fn a_read_behind_a_slow_one_is_served_in_a_hand_over() {
    let write = post(ISSUES, "{\"title\":\"refused\"}");
    for (second, status) in [(get(REPOSITORY, "behind"), 200), (write, 503)] {
        let world = Setup::new().start().await;
        let gate = world.close_gate("GET", ISSUES);
        let mut connection = Connection::open(world.address).await;
        connection.send([get(ISSUES, "slow"), second].concat().as_bytes()).await;
        within(world.held(gate, 1)).await;
        let active = Arc::clone(&world.gateway.env.active);
        let (emulator, drain) = world.into_hand_over(GRACE);
        let draining = tokio::spawn(drain);
        eventually(|| active.refuses()).await;
        emulator.open_gate(gate);
        let answers = within(connection.read_to_close()).await;
        let (first, second) = answers.split_at(answers.rfind("HTTP/1.1").unwrap());
        assert!(is_whole(first, 200) && is_whole(second, status), "{answers}");
        assert_eq!(within(draining).await.unwrap(), Drained::Completely);
    }
}

/// A drain that waits at a gate ends after the gate opened. Call it on one thread: a drain that had
/// nothing to wait for would be over when requests are refused.
async fn drains_once_open(world: World, gate: u64) {
    let active = Arc::clone(&world.gateway.env.active);
    let (emulator, drain) = world.into_drain(GRACE);
    let draining = tokio::spawn(drain);
    eventually(|| active.refuses()).await;
    assert!(!draining.is_finished());
    emulator.open_gate(gate);
    assert_eq!(within(draining).await.unwrap(), Drained::Completely);
}

#[tokio::test]
async fn a_drain_waits_for_a_write_whose_client_has_left() {
    for spacing in ["0s", "1s"] {
        let spacing = format!("spacing = \"{spacing}\"\nnotify_spacing = \"{spacing}\"");
        let world = Setup::new().writes(&spacing).start().await;
        let gate = world.close_gate("POST", ISSUES);
        let mut connection = Connection::open(world.address).await;
        connection.send(post(ISSUES, "{\"title\":\"alone\"}").as_bytes()).await;
        within(world.held(gate, 1)).await;
        drop(connection);
        let active = Arc::clone(&world.gateway.env.active);
        eventually(|| active.count() == 0).await;
        drains_once_open(world, gate).await;
    }
}

#[tokio::test]
async fn a_fetch_of_a_lost_client_serves_others_in_a_drain() {
    let world = Setup::new().start().await;
    let gate = world.close_gate("GET", REPOSITORY);
    let mut leader = Connection::open(world.address).await;
    leader.send(get(REPOSITORY, "leader").as_bytes()).await;
    within(world.held(gate, 1)).await;
    let mut follower = Connection::open(world.address).await;
    follower.send(get(REPOSITORY, "follower").as_bytes()).await;
    let active = Arc::clone(&world.gateway.env.active);
    eventually(|| active.count() == 2).await;
    drop(leader);
    eventually(|| active.count() == 1).await;
    let (emulator, drain) = world.into_drain(GRACE);
    let draining = tokio::spawn(drain);
    eventually(|| active.refuses()).await;
    emulator.open_gate(gate);
    let answer = within(follower.read_to_close()).await;
    assert!(is_whole(&answer, 200), "{answer}");
    assert_eq!(within(draining).await.unwrap(), Drained::Completely);
}

/// The operator leaves before the answer.
#[tokio::test]
async fn a_drain_waits_for_an_operators_action() {
    let world = Setup::new().listen("admin = \"127.0.0.1:0\"").start().await;
    let admin = Admin::open(&world.current).unwrap().address().unwrap();
    let gate = world.close_gate("GET", "/rate_limit");
    let mut operator = Connection::open(admin).await;
    let request = "POST /api/budgets/refresh HTTP/1.1\r\nHost: 127.0.0.1\r\n\
                   Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    operator.send(request.as_bytes()).await;
    within(world.held(gate, 1)).await;
    drop(operator);
    drains_once_open(world, gate).await;
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
    let began = machine_instant();
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

#[tokio::test(flavor = "multi_thread")]
async fn a_write_in_a_drain_does_not_hang_behind_one_that_was_stopped() {
    for key in [None, Some(("idempotency-key", "third"))] {
        let spacing = "spacing = \"1s\"\nnotify_spacing = \"1s\"";
        let world = Setup::new().manual_clock().writes(spacing).start().await;
        let comment = |header| world.send(Method::POST, COMMENTS, header, "{\"body\": \"a word\"}");
        let made = async |count| {
            eventually(|| {
                let requests = world.upstream_requests();
                requests.iter().filter(|entry| entry.method == "POST").count() == count
            })
            .await;
        };
        let admissions = world.gateway.dispatcher.admissions();
        for _ in 0..2 {
            comment(&[("prefer", "respond-async")]).await.assert_status(202);
        }
        made(1).await;
        eventually(|| admissions.waiting() == 1).await;
        world.gateway.env.active.drain();
        world.clock.advance(Duration::from_secs(1));
        eventually(|| admissions.waiting() == 0).await;
        let later = async {
            made(2).await;
            world.clock.advance(Duration::from_secs(1));
            made(3).await;
        };
        let (third, ()) = tokio::join!(comment(key.as_slice()), later);
        third.assert_status(201);
    }
}
