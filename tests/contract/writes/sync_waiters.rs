//! Synchronous writes with an `Idempotency-Key` go through the queue, and their clients receive the
//! same headers and log fields as others (SPECIFICATION, "Asynchronous writes").

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use weir::clock::Clock;

use crate::support::captured_log;
use crate::support::{Reply, Setup, World, eventually};

const COMMENTS: &str = "/repos/acme/widgets/issues/1/comments";
const LABELS: &str = "/repos/acme/widgets/issues/1/labels";
/// The two paths: an ordinary write, and one in the queue.
const WAYS: [&[(&str, &str)]; 2] = [&[], &[("idempotency-key", "k")]];

impl World {
    async fn write_with(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Reply {
        self.send(method, path, headers, &body.to_string()).await
    }
}

/// The log line of the last request of this method, without the fields that differ between equal
/// requests.
fn logged_of(method: &str) -> Value {
    let log = captured_log::own();
    let lines = log.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let line =
        lines.into_iter().find(|line| line["message"] == "request" && line["method"] == method);
    let line = line.unwrap_or_else(|| panic!("nothing was logged of a {method}:\n{log}"));
    let same = [
        "status",
        "cache",
        "account",
        "resource",
        "upstream_attempts",
        "queue_ms",
        "refusal",
        "held_by",
        "held_account",
        "error",
    ];
    same.into_iter().map(|name| (name.to_owned(), line[name].clone())).collect()
}

/// The line without its waits: a clock that runs fast makes a wait of each moment of the scheduler.
fn without_waits(mut line: Value) -> Value {
    for name in ["queue_ms", "held_by", "held_account"] {
        line[name] = Value::Null;
    }
    line
}

#[tokio::test]
async fn a_writes_wait_and_limit_are_logged_on_every_path() {
    for headers in WAYS {
        captured_log::begin();
        let world = Setup::new().manual_clock().start().await;
        world.post(COMMENTS, json!({ "body": "first" })).await.assert_status(201);
        let body = json!({ "body": "second" });
        let second = world.write_with(Method::POST, COMMENTS, headers, &body);
        let time = async {
            eventually(|| world.gateway.dispatcher.admissions().waiting() == 1).await;
            world.clock.advance(Duration::from_secs(3));
        };
        let (second, ()) = tokio::join!(second, time);
        second.assert_status(201);
        assert_eq!(
            second.header("server-timing"),
            Some("queue;dur=3000;desc=\"spacing\", upstream;dur=0"),
            "{headers:?}"
        );
        assert_eq!(second.header("x-weir-account"), Some("account-0"));
        let captured_log = logged_of("POST");
        assert_eq!(
            (&captured_log["upstream_attempts"], &captured_log["held_by"]),
            (&json!(1), &json!("spacing")),
            "{headers:?}: {captured_log}"
        );
        assert_eq!(
            (&captured_log["queue_ms"], &captured_log["held_account"]),
            (&json!(3000.0), &json!("account-0")),
            "{headers:?}: {captured_log}"
        );
        assert!(
            world
                .gateway
                .env
                .metrics
                .encode()
                .contains("weir_wait_seconds_count{reason=\"spacing\"} 1")
        );
    }
}

#[tokio::test]
async fn the_wait_for_a_lane_is_logged_on_every_path() {
    for headers in WAYS {
        let world = Setup::new().manual_clock().unspaced_writes().start().await;
        let gate = world.close_gate("POST", COMMENTS);
        let body = json!({ "body": "second" });
        let first = world.post(COMMENTS, json!({ "body": "first" }));
        let second = async {
            world.held(gate, 1).await;
            world.write_with(Method::POST, COMMENTS, headers, &body).await
        };
        let time = async {
            eventually(|| world.gateway.writes.turns().writes() == 2).await;

            world.clock.advance(Duration::from_secs(5));
            world.open_gate(gate);
        };
        let (first, second, ()) = tokio::join!(first, second, time);
        first.assert_status(201);
        second.assert_status(201);
        assert_eq!(
            second.header("server-timing"),
            Some("queue;dur=5000;desc=\"turn\", upstream;dur=0"),
            "{headers:?}"
        );
        assert!(
            world
                .gateway
                .env
                .metrics
                .encode()
                .contains("weir_wait_seconds_count{reason=\"turn\"} 1")
        );
    }
}

#[tokio::test]
async fn every_attempt_of_a_write_is_counted_on_every_path() {
    let mut captured_log = Vec::new();
    for headers in WAYS {
        captured_log::begin();
        let world = Setup::new().clock(Clock::scaled(60.0)).unspaced_writes().start().await;
        world.arm(&json!({ "match": { "method": "PUT", "nth": 1 }, "fault": "reset_after" }));
        world
            .write_with(Method::PUT, LABELS, headers, &json!({ "labels": [] }))
            .await
            .assert_status(200);
        let line = logged_of("PUT");
        assert_eq!(line["upstream_attempts"], 2, "{headers:?}: {line}");
        assert!(line["error"].is_string(), "{headers:?}: {line}");
        captured_log.push(without_waits(line));
    }
    assert_eq!(captured_log[0], captured_log[1]);
}

#[tokio::test]
async fn an_unknown_write_reports_its_attempts_on_every_path() {
    let mut captured_log = Vec::new();
    for headers in WAYS {
        captured_log::begin();
        let world = Setup::new().manual_clock().unspaced_writes().start().await;
        world.arm(&json!({ "match": { "method": "POST" }, "fault": "reset_after" }));
        let reply =
            world.write_with(Method::POST, COMMENTS, headers, &json!({ "body": "lost" })).await;
        reply.assert_status(502);
        assert_eq!(reply.header("x-weir-account"), Some("account-0"), "{headers:?}");
        captured_log.push(logged_of("POST"));
    }
    assert_eq!(
        (&captured_log[0], &captured_log[0]["upstream_attempts"]),
        (&captured_log[1], &json!(1))
    );
}

#[tokio::test]
async fn a_put_with_only_5xx_responses_is_unknown_on_every_path() {
    let mut captured_log = Vec::new();
    for headers in WAYS {
        captured_log::begin();
        let world = Setup::new()
            .clock(Clock::scaled(60.0))
            .unspaced_writes()
            .writes("max_attempts = 2")
            .start()
            .await;
        world.arm(&json!({ "match": { "method": "PUT" }, "fault": "status", "status": 500, "executed": true }));
        let reply = world.write_with(Method::PUT, LABELS, headers, &json!({ "labels": [] })).await;
        reply.assert_status(502);
        assert!(
            reply.json()["message"].as_str().unwrap().contains("unknown whether"),
            "{headers:?}: {reply:?}"
        );
        let line = logged_of("PUT");
        assert_eq!(line["upstream_attempts"], 2, "{headers:?}: {line}");
        captured_log.push(without_waits(line));
    }
    assert_eq!(captured_log[0], captured_log[1]);
}

#[tokio::test]
async fn a_write_with_a_5xx_is_unknown_buffered_or_streamed() {
    for method in [Method::POST, Method::PATCH] {
        let mut captured_log = Vec::new();
        for bytes in [100, 10_000] {
            captured_log::begin();
            let world = Setup::new()
                .manual_clock()
                .unspaced_writes()
                .writes("max_body = \"1KiB\"")
                .start()
                .await;
            world.arm(&json!({ "match": { "method": method.as_str() }, "fault": "status", "status": 500, "executed": true }));
            let path =
                if method == Method::POST { COMMENTS } else { "/repos/acme/widgets/issues/1" };
            let reply = world
                .write_with(method.clone(), path, &[], &json!({ "body": "x".repeat(bytes) }))
                .await;
            reply.assert_status(502);
            assert!(
                reply.json()["message"].as_str().unwrap().contains("unknown whether"),
                "{method} of {bytes}: {reply:?}"
            );
            captured_log.push(logged_of(method.as_str()));
        }
        assert_eq!(
            (&captured_log[0], &captured_log[0]["refusal"]),
            (&captured_log[1], &json!("outcome_unknown"))
        );
    }
}

/// Including a second request with the same key, and a wait for a queued write.
#[tokio::test]
async fn every_waiter_of_a_write_sees_its_cost() {
    for first in
        [&[("idempotency-key", "k")][..], &[("idempotency-key", "k"), ("prefer", "respond-async")]]
    {
        let world = Setup::new().manual_clock().start().await;
        world.post(COMMENTS, json!({ "body": "before" })).await.assert_status(201);
        let body = json!({ "body": "once" });
        let begun = world.write_with(Method::POST, COMMENTS, first, &body);
        let joined = async {
            eventually(|| world.gateway.dispatcher.admissions().waiting() == 1).await;
            world.write_with(Method::POST, COMMENTS, WAYS[1], &body).await
        };
        let time = async {
            eventually(|| {
                world.gateway.env.active.count() >= if first.len() == 1 { 2 } else { 1 }
                    && world.gateway.writes.queue().watched() == 1
            })
            .await;
            eventually(|| world.gateway.dispatcher.admissions().waiting() == 1).await;
            world.clock.advance(Duration::from_secs(3));
        };
        let (begun, joined, ()) = tokio::join!(begun, joined, time);
        assert_eq!(begun.status.as_u16(), if first.len() == 1 { 201 } else { 202 });
        joined.assert_status(201);
        assert_eq!(
            joined.header("server-timing"),
            Some("queue;dur=3000;desc=\"spacing\", upstream;dur=0"),
            "{first:?}"
        );
    }
}

/// Other writes precede it, three seconds apart; an earlier retry would be in vain.
#[tokio::test]
async fn a_denied_waiter_gets_the_earliest_time_of_its_turn() {
    for headers in WAYS {
        let world = Setup::new().manual_clock().start().await;
        world.post(COMMENTS, json!({ "body": "first" })).await.assert_status(201);
        for n in 0..4 {
            let body = json!({ "body": format!("number {n}") });
            world
                .write_with(Method::POST, COMMENTS, &[("prefer", "respond-async")], &body)
                .await
                .assert_status(202);
        }
        let headers = [headers, &[("prefer", "wait=0")]].concat();
        let refused =
            world.write_with(Method::POST, COMMENTS, &headers, &json!({ "body": "in vain" })).await;
        refused.assert_secondary_limited();
        // The four go at 3, 6, 9 and 12 s.
        assert_eq!(refused.header("retry-after"), Some("15"), "{headers:?}");
    }
}
