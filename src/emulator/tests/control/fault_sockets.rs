//! Tests faults over real connections, HTTP/1.1 and h2c: the client's view of each, and the
//! emulator's counts meanwhile.

use std::io::ErrorKind;

use http::{Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::clock::Clock;
use crate::emulator::faults::FaultId;
use crate::emulator::server::{Handle, Server};
use crate::emulator::tests::*;

struct Running {
    handle: Handle,
    clock: Clock,
}

/// The end of a raw HTTP/1.1 exchange: the received bytes, and whether a reset ended them.
struct Ended {
    bytes: Vec<u8>,
    error: Option<ErrorKind>,
}

impl Ended {
    fn head(&self) -> String {
        String::from_utf8_lossy(&self.bytes)
            .split("\r\n\r\n")
            .next()
            .unwrap_or("")
            .to_ascii_lowercase()
    }

    fn body(&self) -> &[u8] {
        let end = self.bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head") + 4;
        &self.bytes[end..]
    }

    fn content_length(&self) -> usize {
        let length = self
            .head()
            .lines()
            .find_map(|line| line.strip_prefix("content-length: ").map(str::to_owned));
        length.and_then(|length| length.parse().ok()).expect("a length")
    }
}

impl Running {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let clock = Clock::manual(START);
        let handle = Server::start(
            listener,
            Emulator::new(Options::default(), clock.now()),
            clock.clone(),
            Duration::ZERO,
        );
        Self { handle, clock }
    }

    fn control(&self, method: Method, path: &str, body: &Value) -> Value {
        let request = request(method, NOBODY, &format!("/_emulator/{path}"), &[], body);
        let answer = self
            .handle
            .with_emulator(|emulator| emulator.respond(self.clock.now(), &request, PEER));
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        serde_json::from_slice(answer.body()).unwrap_or(Value::Null)
    }

    fn arm(&self, fault: &Value) -> FaultId {
        FaultId(self.control(Method::POST, "faults", fault)["id"].as_u64().expect("an id"))
    }

    fn disarm(&self) {
        self.control(Method::DELETE, "faults", &Value::Null);
    }

    fn last(&self) -> Value {
        self.control(Method::GET, "transcript", &Value::Null)["requests"]
            .as_array()
            .and_then(|all| all.last().cloned())
            .expect("a request")
    }

    fn in_flight(&self) -> u64 {
        self.control(Method::GET, "books", &Value::Null)["secondary"][0]["in_flight"]
            .as_u64()
            .unwrap_or(0)
    }

    async fn wait_until_none_in_flight(&self) {
        let freed = async {
            while self.in_flight() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), freed).await.expect("the slot is freed");
    }

    async fn raw(&self, method: &str, path: &str, more: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.handle.addr()).await.expect("it listens");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {ADA}\r\n{more}\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("it reads");
        stream
    }

    async fn ended(&self, method: &str, path: &str, more: &str) -> Ended {
        let mut stream = self.raw(method, path, more).await;
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut bytes))
            .await
            .expect("it ends");
        Ended { bytes, error: read.err().map(|error| error.kind()) }
    }

    async fn h2(&self) -> SendRequest<Full<Bytes>> {
        let stream = TcpStream::connect(self.handle.addr()).await.expect("it listens");
        let handshake =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (client, connection) = handshake.expect("it speaks h2c");
        tokio::spawn(connection);
        client
    }

    async fn ask(
        &self,
        client: &mut SendRequest<Full<Bytes>>,
        path: &str,
    ) -> Result<Response<Incoming>, hyper::Error> {
        client.ready().await?;
        let builder =
            Request::get(format!("http://{}{path}", self.handle.addr())).version(Version::HTTP_2);
        let request = builder
            .header("authorization", format!("Bearer {ADA}"))
            .body(Full::default())
            .expect("well formed");
        tokio::time::timeout(Duration::from_secs(10), client.send_request(request))
            .await
            .expect("it ends")
    }
}

#[tokio::test]
async fn a_reset_resets_the_connection_before_or_after_execution() {
    let running = Running::start().await;
    for (fault, executed) in [("reset_before", false), ("reset_after", true)] {
        running.arm(&json!({ "fault": fault, "match": { "nth": 1 } }));
        let ended = running.ended("GET", "/user", "").await;
        assert_eq!(
            (ended.bytes.len(), ended.error),
            (0, Some(ErrorKind::ConnectionReset)),
            "{fault}"
        );
        assert_eq!(
            (&running.last()["executed"], &running.last()["fault"]),
            (&json!(executed), &json!(fault))
        );
        assert_eq!(running.in_flight(), 0, "the slot was free before the client saw it");
    }
    running.handle.shutdown().await;
}

#[tokio::test]
async fn a_reset_in_h2_resets_the_stream_and_the_connection_goes_on() {
    let running = Running::start().await;
    let mut client = running.h2().await;
    for (fault, executed) in [("reset_before", false), ("reset_after", true)] {
        running.arm(&json!({ "fault": fault, "match": { "nth": 1 } }));
        assert!(running.ask(&mut client, "/user").await.is_err(), "{fault}");
        assert_eq!(running.last()["executed"], executed);
        assert_eq!(
            running.ask(&mut client, "/user").await.expect("the same connection").status(),
            200
        );
    }
    assert_eq!(running.in_flight(), 0);
    running.handle.shutdown().await;
}

#[tokio::test]
async fn a_lost_answer_closes_the_connection_without_a_reset() {
    let running = Running::start().await;
    running.arm(&json!({ "fault": "lost" }));
    let ended = running
        .ended("POST", "/repos/acme/widgets/issues", "content-length: 13\r\n\r\n{\"title\":\"x\"}")
        .await;
    assert_eq!((ended.bytes.len(), ended.error), (0, None));
    assert_eq!(
        (&running.last()["executed"], &running.last()["status"], &running.last()["cost"]),
        (&json!(true), &json!(201), &json!(1))
    );
    let mut client = running.h2().await;
    assert!(running.ask(&mut client, "/user").await.is_err());
    running.disarm();
    assert!(running.ask(&mut client, "/user").await.is_err(), "the connection is gone");
    assert_eq!(running.in_flight(), 0);
    running.handle.shutdown().await;
}

#[tokio::test]
async fn half_a_body_arrives_under_its_full_content_length() {
    let running = Running::start().await;
    let whole = running.ended("GET", "/user", "connection: close\r\n").await;
    assert_eq!(whole.body().len(), whole.content_length());
    running.arm(&json!({ "fault": "half_body" }));
    let half = running.ended("GET", "/user", "").await;
    assert!(half.head().starts_with("http/1.1 200"), "{}", half.head());
    assert_eq!(
        (half.content_length(), half.body().len(), half.error),
        (whole.content_length(), whole.content_length() / 2, None)
    );
    assert_eq!(half.body(), &whole.body()[..half.body().len()]);
    let mut client = running.h2().await;
    let response = running.ask(&mut client, "/user").await.expect("a head");
    let announced: usize = response.headers()["content-length"]
        .to_str()
        .ok()
        .and_then(|text| text.parse().ok())
        .expect("a length");
    let mut body = response.into_body();
    let mut received = 0;
    let broken = loop {
        match body.frame().await {
            Some(Ok(frame)) => received += frame.into_data().map_or(0, |data| data.len()),
            Some(Err(_)) => break true,
            None => break false,
        }
    };
    assert!(broken);
    assert_eq!(received, announced / 2);
    running.disarm();
    assert_eq!(running.ask(&mut client, "/user").await.expect("the same connection").status(), 200);
    running.handle.shutdown().await;
}

#[tokio::test]
async fn half_a_chunked_body_has_no_last_chunk() {
    let running = Running::start().await;
    let whole = running.ended("GET", "/user", "connection: close\r\n").await.body().len();
    running.arm(&json!({ "fault": "half_body", "chunked": true }));
    let half = running.ended("GET", "/user", "").await;
    assert!(
        half.head().contains("transfer-encoding: chunked")
            && !half.head().contains("content-length"),
        "{}",
        half.head()
    );
    assert!(half.body().starts_with(format!("{:X}\r\n", whole / 2).as_bytes()));
    assert!(!half.body().ends_with(b"0\r\n\r\n"));
    running.handle.shutdown().await;
}

#[tokio::test]
async fn half_of_a_large_body_arrives_over_http1_and_h2() {
    let running = Running::start().await;
    let path = "/repos/acme/widgets/issues?per_page=100&state=all";
    let whole = running.ended("GET", path, "connection: close\r\n").await.body().len();
    assert!(whole > 131_072, "its half is more than the usual window of h2: {whole}");
    running.arm(&json!({ "fault": "half_body" }));
    assert_eq!(running.ended("GET", path, "").await.body().len(), whole / 2);
    let mut client = running.h2().await;
    let mut body = running.ask(&mut client, path).await.expect("a head").into_body();
    let mut received = 0;
    while let Some(Ok(frame)) = body.frame().await {
        received += frame.into_data().map_or(0, |data| data.len());
    }
    // Addresses in the body contain the request's host, which has another length here.
    assert!(received > 65_535 && received.abs_diff(whole / 2) < 10_000, "{received} of {whole}");
    running.handle.shutdown().await;
}

#[tokio::test]
async fn a_half_body_fault_leaves_a_head_answer_intact() {
    let running = Running::start().await;
    running.arm(&json!({ "fault": "half_body" }));
    let head = running.ended("HEAD", "/user", "").await;
    assert!(head.head().starts_with("http/1.1 200") && head.body().is_empty());
    let mut client = running.h2().await;
    let request = Request::head(format!("http://{}/user", running.handle.addr()))
        .body(Full::default())
        .expect("well formed");
    client.ready().await.expect("it is open");
    assert_eq!(client.send_request(request).await.expect("an answer").status(), 401);
    running.handle.shutdown().await;
}

#[tokio::test]
async fn a_stalled_answer_is_sent_after_its_delay() {
    let running = Running::start().await;
    let mut client = running.h2().await;
    for executed in [true, false] {
        let fault = running.arm(&json!({ "fault": "stall", "seconds": 30, "executed": executed, "match": { "times": 2 } }));
        let first = running.ended("GET", "/user", "connection: close\r\n");
        let second = running.ask(&mut client, "/user");
        let move_on = async {
            running.handle.wait_until_struck(fault, 2).await;
            assert_eq!(running.in_flight(), 2, "both are in flight");
            assert_eq!(
                running.control(Method::GET, "faults", &Value::Null)["faults"][0]["holding"],
                2
            );
            running.clock.advance(Duration::from_secs(29));
            assert_eq!(running.in_flight(), 2);
            running.clock.advance(Duration::from_secs(1));
        };
        let (first, second, ()) = tokio::join!(first, second, move_on);
        let status = if executed { 200 } else { 504 };
        assert!(first.head().starts_with(&format!("http/1.1 {status}")), "{}", first.head());
        assert_eq!(second.expect("an answer").status(), status);
        assert_eq!((&running.last()["executed"], running.in_flight()), (&json!(executed), 0));
        running.disarm();
    }
    running.handle.shutdown().await;
}

#[tokio::test]
async fn a_disconnected_stalled_client_frees_its_slot() {
    let running = Running::start().await;
    let fault = running.arm(&json!({ "fault": "stall" }));
    let leaving = running.raw("GET", "/user", "").await;
    running.handle.wait_until_struck(fault, 1).await;
    assert_eq!(running.in_flight(), 1);
    drop(leaving);
    running.wait_until_none_in_flight().await;
    let mut client = running.h2().await;
    {
        let mut stalled_request = Box::pin(running.ask(&mut client, "/user"));
        tokio::select! {
            _ = &mut stalled_request => panic!("it is stalled for ever"),
            () = running.handle.wait_until_struck(fault, 2) => {}
        }
        assert_eq!(running.in_flight(), 1);
    }
    running.wait_until_none_in_flight().await;
    assert_eq!(running.control(Method::GET, "faults", &Value::Null)["faults"][0]["holding"], 0);
    running.disarm();
    assert_eq!(
        running.ask(&mut client, "/user").await.expect("the connection goes on").status(),
        200
    );
    running.handle.shutdown().await;
}

#[tokio::test]
async fn an_undelivered_denial_leaves_sent_while_limited_at_0() {
    let running = Running::start().await;
    running.control(Method::PUT, "limits", &json!({ "points.rest": 0 }));
    let fault = running.arm(&json!({ "fault": "stall", "match": { "nth": 1 } }));
    let leaving = running.raw("GET", "/user", "").await;
    running.handle.wait_until_struck(fault, 1).await;
    drop(leaving);
    let holding =
        || running.control(Method::GET, "faults", &Value::Null)["faults"][0]["holding"] != 0;
    let gone = async {
        while holding() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.expect("it is noticed");
    assert!(
        running
            .ended("GET", "/user", "connection: close\r\n")
            .await
            .head()
            .starts_with("http/1.1 403")
    );
    let usage = running.control(Method::GET, "books", &Value::Null);
    assert_eq!((&usage["refused_secondary"], &usage["sent_while_limited"]), (&json!(2), &json!(0)));
    running.handle.shutdown().await;
}

#[tokio::test]
async fn a_deleted_fault_releases_its_stalled_answers() {
    let running = Running::start().await;
    let fault = running.arm(&json!({ "fault": "stall" }));
    let stalled = running.ended("GET", "/user", "connection: close\r\n");
    let disarmed = async {
        running.handle.wait_until_struck(fault, 1).await;
        running.disarm();
    };
    let (ended, ()) = tokio::join!(stalled, disarmed);
    assert!(ended.head().starts_with("http/1.1 200"));
    running.handle.shutdown().await;
}

#[tokio::test]
async fn a_control_request_waits_until_a_fault_has_struck() {
    let running = Running::start().await;
    let FaultId(id) = running.arm(&json!({ "fault": "stall" }));
    let stalled = running.ended("GET", "/user", "connection: close\r\n");
    let watched = async {
        let seen = running
            .ended("GET", &format!("/_emulator/faults/{id}?struck=1"), "connection: close\r\n")
            .await;
        let seen: Value = serde_json::from_slice(seen.body()).expect("JSON");
        assert_eq!((&seen["struck"], &seen["holding"]), (&json!(1), &json!(1)));
        running.disarm();
    };
    tokio::join!(stalled, watched);
    running.handle.shutdown().await;
}

fn remaining_of(bytes: &[u8]) -> u32 {
    let text = String::from_utf8_lossy(bytes);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("x-ratelimit-remaining: ").map(str::to_owned));
    line.and_then(|line| line.parse().ok()).unwrap_or_else(|| panic!("a whole head, not {text:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reordered_answer_arrives_last_with_older_headers() {
    let running = Running::start().await;
    for turn in 0..100 {
        let fault = running.arm(&json!({ "fault": "reorder", "after": 1, "match": { "nth": 1 } }));
        let mut first = running.raw("GET", "/user", "").await;
        running.handle.wait_until_struck(fault, 1).await;
        let second = running.raw("GET", "/user", "").await;
        let mut buffer = [0; 4_096];
        let count = first.read(&mut buffer).await.expect("the first answer");
        let first = remaining_of(&buffer[..count]);
        // The second response arrived before the first, so it can be read without any waiting.
        let count =
            second.into_std().and_then(|mut second| std::io::Read::read(&mut second, &mut buffer));
        let second =
            remaining_of(&buffer[..count.unwrap_or_else(|error| panic!("turn {turn}: {error}"))]);
        assert_eq!(first, second + 1, "turn {turn}");
        running.disarm();
    }
    running.handle.shutdown().await;
}

#[tokio::test]
async fn a_reordered_answer_without_followers_is_sent_at_its_timeout() {
    let running = Running::start().await;
    let fault = running.arm(&json!({ "fault": "reorder", "seconds": 5, "match": { "nth": 1 } }));
    let held = running.ended("GET", "/user", "connection: close\r\n");
    let timed_out = async {
        running.handle.wait_until_struck(fault, 1).await;
        running.clock.advance(Duration::from_secs(5));
    };
    let (ended, ()) = tokio::join!(held, timed_out);
    assert!(ended.head().starts_with("http/1.1 200"));
    running.handle.shutdown().await;
}

#[tokio::test]
async fn answers_on_one_h2_connection_can_be_reordered_too() {
    let running = Running::start().await;
    let fault = running.arm(&json!({ "fault": "reorder", "match": { "nth": 1 } }));
    let mut first = running.h2().await;
    let mut second = first.clone();
    let held = running.ask(&mut first, "/user");
    let overtaking = async {
        running.handle.wait_until_struck(fault, 1).await;
        running.ask(&mut second, "/user").await
    };
    let (held, overtaking) = tokio::join!(held, overtaking);
    let remaining = |response: Response<Incoming>| {
        response.headers()["x-ratelimit-remaining"].to_str().expect("digits").to_owned()
    };
    assert_eq!(
        (remaining(held.expect("an answer")), remaining(overtaking.expect("an answer"))),
        ("4999".into(), "4998".into())
    );
    running.handle.shutdown().await;
}

#[tokio::test]
async fn a_fault_strikes_a_request_after_its_gate_opens() {
    let running = Running::start().await;
    let gate =
        running.control(Method::POST, "gates", &json!({ "match": { "path": "/user" } }))["id"]
            .as_u64()
            .expect("an id");
    running.arm(&json!({ "fault": "reset_after", "match": { "nth": 1 } }));
    let reset = running.ended("GET", "/user", "");
    let opened = async {
        running.handle.wait_until_held(crate::emulator::faults::gates::GateId(gate), 1).await;
        assert_eq!(running.in_flight(), 1);
        running.control(Method::DELETE, &format!("gates/{gate}"), &Value::Null);
    };
    let (ended, ()) = tokio::join!(reset, opened);
    assert_eq!(ended.error, Some(ErrorKind::ConnectionReset));
    running.handle.shutdown().await;
}

#[tokio::test]
async fn an_emulator_reset_releases_gated_and_stalled_requests() {
    let running = Running::start().await;
    let gate =
        running.control(Method::POST, "gates", &json!({ "match": { "path": "/user" } }))["id"]
            .as_u64()
            .expect("an id");
    let fault = running.arm(&json!({ "fault": "stall", "match": { "path": "/meta" } }));
    let mut client = running.h2().await;
    let gated = running.ended("GET", "/user", "connection: close\r\n");
    let stalled = running.ask(&mut client, "/meta");
    let reset = async {
        running.handle.wait_until_held(crate::emulator::faults::gates::GateId(gate), 1).await;
        running.handle.wait_until_struck(fault, 1).await;
        running.control(Method::POST, "reset", &Value::Null);
        // A gate shut at once must not catch the request that the old one held.
        running.control(Method::POST, "gates", &json!({ "match": { "path": "/user" } }));
    };
    let (gated, stalled, ()) = tokio::join!(gated, stalled, reset);
    assert!(gated.head().starts_with("http/1.1 200"));
    assert_eq!(stalled.expect("an answer").status(), 200);
    assert_eq!(running.in_flight(), 0);
    running.handle.shutdown().await;
}

#[tokio::test]
async fn disconnected_and_released_clients_leave_no_held_request() {
    let running = Running::start().await;
    let mut gates: Vec<u64> = Vec::new();
    for turn in 0..40 {
        let path = format!("/users/ada?turn={turn}");
        let gate = running.control(
            Method::POST,
            "gates",
            &json!({ "match": { "path": "/users/*" } }),
        )["id"]
            .as_u64()
            .expect("an id");
        gates.push(gate);
        let held_by = crate::emulator::faults::gates::GateId(gates[0]);
        let leaving = running.raw("GET", &path, "").await;
        running.handle.wait_until_held(held_by, 1).await;
        if turn % 2 == 0 {
            drop(leaving);
            running.wait_until_none_in_flight().await;
        } else {
            running.control(Method::DELETE, &format!("gates/{}", gates.remove(0)), &Value::Null);
            let mut stream = leaving;
            let mut first = [0; 12];
            stream.read_exact(&mut first).await.expect("an answer");
            assert_eq!(&first, b"HTTP/1.1 200");
        }
    }
    let list = running.control(Method::GET, "gates", &Value::Null);
    assert!(
        list["gates"]
            .as_array()
            .is_some_and(|all| all.len() == 20 && all.iter().all(|gate| gate["held"] == 0)),
        "{list}"
    );
    assert_eq!(running.control(Method::DELETE, "gates", &Value::Null)["released"], 0);
    running.handle.shutdown().await;
}
