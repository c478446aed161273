//! Outcomes: a writer receives the truth whatever the upstream does (SPECIFICATION, "Promises" 3;
//! D7). Each fault of the emulator is played by method for synchronous writes, synchronous writes
//! with a key, and queued ones.
//!
//! The truth is the emulator's transcript. The gateway uses HTTP/1.1 upstream, so GOAWAY and
//! refused streams cannot occur. The clock runs sixty times as fast, and a fault strikes the first
//! request.

use std::future::ready;

use futures_util::StreamExt;
use futures_util::stream;
use http::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use weir::clock::Clock;
use weir::emulator::Entry;

use crate::support::{Reply, Setup, World};

const SPEED: f64 = 60.0;
/// Concurrent cases. With more of them, some would time out.
const AT_ONCE: usize = 16;
const METHODS: [Method; 4] = [Method::POST, Method::PATCH, Method::PUT, Method::DELETE];
/// A waiting client outlasts a cool-down; a silent upstream times out after a real second.
const CONFIG: &str = "[writes]\nspacing = \"0s\"\nnotify_spacing = \"0s\"\nmax_attempts = 3";

/// The reported outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It was executed.
    Done,
    /// It was not executed.
    Failed,
    /// It may or may not have been executed.
    Unknown,
}
use Outcome::{Done, Failed, Unknown};

#[derive(Clone, Copy, Debug)]
enum Way {
    Waiting,
    /// Synchronous with an `Idempotency-Key`, and repeated, with the same outcome.
    Keyed,
    Queued,
}

/// Each fault, with the outcome of a POST or PATCH, a PUT, and a DELETE, whose repetition finds
/// nothing after a first execution.
fn table() -> Vec<(Value, [Outcome; 3])> {
    let ambiguous_after = [Unknown, Done, Unknown];
    let ambiguous_before = [Unknown, Done, Done];
    let same = |outcome| [outcome, outcome, outcome];
    let status = |status: u16, executed: bool| json!({ "fault": "status", "status": status, "executed": executed, "body": { "message": "so it is" } });
    vec![
        (Value::Null, same(Done)),
        (status(400, false), same(Failed)),
        (status(401, false), same(Failed)),
        (status(403, false), same(Failed)),
        (status(404, false), same(Failed)),
        (status(409, false), same(Failed)),
        (status(410, false), same(Failed)),
        (status(422, false), same(Failed)),
        (status(500, true), ambiguous_after),
        (status(500, false), ambiguous_before),
        (status(502, true), ambiguous_after),
        (status(503, false), ambiguous_before),
        (json!({ "fault": "stall", "executed": true }), ambiguous_after),
        (json!({ "fault": "stall", "executed": false }), ambiguous_before),
        (json!({ "fault": "reset_before" }), ambiguous_before),
        (json!({ "fault": "reset_after" }), ambiguous_after),
        (json!({ "fault": "half_body" }), ambiguous_after),
        (json!({ "fault": "half_body", "chunked": true }), ambiguous_after),
        (json!({ "fault": "lost" }), ambiguous_after),
        (json!({ "fault": "html_refusal" }), same(Done)),
        (json!({ "fault": "secondary" }), same(Done)),
        (json!({ "fault": "secondary", "status": 429 }), same(Done)),
        (json!({ "fault": "secondary", "retry_after": 5 }), same(Done)),
        (json!({ "fault": "revoke" }), same(Failed)),
        (json!({ "fault": "wobble" }), same(Done)),
        (json!({ "fault": "clock_offset", "seconds": 40 }), same(Done)),
        (json!({ "fault": "pristine_rate_limit" }), same(Done)),
        (json!({ "fault": "stale_read" }), same(Done)),
        (json!({ "fault": "reorder" }), same(Done)),
    ]
}

/// A write of this method that changes the world once.
fn write_of(world: &World, method: &Method) -> (String, Value) {
    const ISSUE: &str = "/repos/acme/widgets/issues/1";
    match *method {
        Method::POST => (format!("{ISSUE}/comments"), json!({ "body": "a comment" })),
        Method::PATCH => (ISSUE.to_owned(), json!({ "title": "another title" })),
        Method::PUT => (format!("{ISSUE}/labels"), json!({ "labels": [] })),
        _ => {
            let made = world.ask_emulator(
                Method::POST,
                &format!("{ISSUE}/comments"),
                &json!({ "body": "to be deleted" }),
            );
            (format!("/repos/acme/widgets/issues/comments/{}", made["id"]), Value::Null)
        }
    }
}

async fn outcome(
    world: &World,
    way: Way,
    method: &Method,
    path: &str,
    body: &Value,
) -> (Outcome, String) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    match way {
        Way::Waiting => {
            let reply = world.send(method.clone(), path, &[], &body).await;
            (
                by_answer(&reply),
                format!("{} {}", reply.status, String::from_utf8_lossy(&reply.body)),
            )
        }
        Way::Keyed => {
            let headers = [("idempotency-key", "k")];
            let first = world.send(method.clone(), path, &headers, &body).await;
            let response = format!("{} {}", first.status, String::from_utf8_lossy(&first.body));
            // The key of a write that was never sent is free again.
            let is_kept = world.gateway.writes.queue().counts().iter().any(|(_, count)| *count > 0);
            if is_kept {
                let second = world.send(method.clone(), path, &headers, &body).await;
                assert_eq!(
                    (second.status, &second.body),
                    (first.status, &first.body),
                    "{method} {path}"
                );
            }
            (by_answer(&first), response)
        }
        Way::Queued => {
            let accepted =
                world.send(method.clone(), path, &[("prefer", "respond-async")], &body).await;
            accepted.assert_status(202);
            let status_body = world
                .get_with(accepted.header("location").unwrap(), &[("prefer", "wait=86400")])
                .await
                .json();
            let outcome = match status_body["state"].as_str() {
                Some("done") => Done,
                Some("failed") => Failed,
                Some("unknown") => Unknown,
                other => return (Unknown, format!("{other:?}: {status_body}")),
            };
            (outcome, status_body.to_string())
        }
    }
}

fn by_answer(reply: &Reply) -> Outcome {
    match reply.status.as_u16() {
        200..=299 => Done,
        502 if String::from_utf8_lossy(&reply.body).contains("unknown whether") => Unknown,
        _ => Failed,
    }
}

/// The writes that the emulator certainly executed.
fn executed(entries: &[Entry]) -> usize {
    entries.iter().filter(|entry| entry.executed && entry.status < 400).count()
}

async fn world() -> World {
    let setup =
        Setup::new().clock(Clock::scaled(SPEED)).config(CONFIG).client("max_wait = \"10m\"");
    // An hour is a minute here.
    let setup = setup.listen("idle_timeout = \"1h\"\nheader_timeout = \"1h\"");
    setup.upstream_keys("response_timeout = \"1s\"").start().await
}

/// Plays one case; returns its fault, if any.
async fn case(fault: &Value, way: Way, method: &Method, expected: Outcome) -> Option<String> {
    let world = world().await;
    let (path, body) = write_of(&world, method);
    let before = world.upstream_requests().len();
    if !fault.is_null() {
        let mut armed = fault.clone();
        armed["match"] = json!({ "method": method.as_str(), "nth": 1 });
        world.arm(&armed);
    }
    let (outcome, response) = outcome(&world, way, method, &path, &body).await;
    let entries = world.upstream_requests().split_off(before);
    // The entry of an injected status shows if the request was executed; its status alone does not.
    let effects = executed(&entries)
        .max(entries.iter().filter(|entry| entry.executed && entry.fault.is_some()).count());
    let is_true = match outcome {
        Done => effects >= 1,
        Failed => effects == 0 || fault["fault"] == "revoke",
        Unknown => true,
    };
    let is_once = method.is_idempotent() || effects <= 1;
    let fits = outcome == expected && is_true && is_once;
    (!fits).then(|| {
        let seen: Vec<_> = entries.iter().map(|entry| (entry.status, entry.executed, entry.fault.clone())).collect();
        format!("{method} {way:?} under {fault}: told {outcome:?}, expected {expected:?}; upstream saw {seen:?}; said {response}\n")
    })
}

async fn all_cases(way: Way) {
    let table = table();
    let cases = table.iter().flat_map(|(fault, expected)| {
        METHODS.iter().map(move |method| {
            let expected = match *method {
                Method::PUT => expected[1],
                // An empty body has no half.
                Method::DELETE if fault["fault"] == "half_body" => Done,
                Method::DELETE => expected[2],
                _ => expected[0],
            };
            case(fault, way, method, expected)
        })
    });
    let wrong: Vec<String> =
        stream::iter(cases).buffer_unordered(AT_ONCE).filter_map(ready).collect().await;
    assert!(
        wrong.is_empty(),
        "{} of {} cases:\n{}",
        wrong.len(),
        table.len() * METHODS.len(),
        wrong.concat()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_writer_gets_the_true_outcome() {
    all_cases(Way::Waiting).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_writer_with_a_key_gets_the_true_outcome_twice() {
    all_cases(Way::Keyed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_write_reports_the_true_outcome() {
    all_cases(Way::Queued).await;
}

/// A closed port, and a port without TLS.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_connection_nothing_was_executed() {
    let dead = {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        listener.local_addr().unwrap()
    };
    let plain = world().await;
    for url in
        [format!("http://{dead}"), format!("https://localhost:{}", plain.emulator.addr().port())]
    {
        for method in METHODS {
            for way in [Way::Waiting, Way::Keyed, Way::Queued] {
                let setup =
                    Setup::new().clock(Clock::scaled(SPEED)).config(CONFIG).upstream(url.clone());
                let world = setup.start().await;
                let body = json!({ "body": "never" });
                let (outcome, response) =
                    outcome(&world, way, &method, "/repos/acme/widgets/issues/1/labels", &body)
                        .await;
                assert_eq!(outcome, Failed, "{method} {way:?} to {url}: {response}");
                assert!(response.contains("nothing was executed"), "{response}");
            }
        }
    }
}
