//! The log line of a request: the limit that held it, the wait, and the outcome (SPECIFICATION,
//! "Logs").

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use super::hold_for_five_seconds;
use super::operator::{ADMIN, ISSUES, Operator};
use crate::support::raw::Connection;
use crate::support::{KEY, Reply, Setup, captured_log, config, eventually};

/// The log lines of the requests that finished on this thread during `act`.
async fn captured_log(act: impl AsyncFnOnce()) -> Vec<Value> {
    captured_log::begin();
    act().await;
    let text = captured_log::own();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["message"] == "request").collect()
}

#[tokio::test]
async fn one_log_line_explains_why_a_request_waited() {
    let world = Setup::new().manual_clock().limits("concurrency = 1").start().await;
    let lines = captured_log(async || drop(hold_for_five_seconds(&world, async || {}).await)).await;
    let waited =
        lines.iter().find(|line| line["path"] == "/repos/acme/sprockets").expect("it has a line");
    let reported =
        ["client", "status", "queue_ms", "held_by", "held_account"].map(|key| waited[key].clone());
    assert_eq!(
        reported,
        [json!("ci"), json!(200), json!(5000.0), json!("concurrency"), json!("account-0")],
        "{waited}"
    );
    assert!(waited.get("held_until").is_none(), "only an answer ends it: {waited}");
    let served =
        lines.iter().find(|line| line["path"] == "/repos/acme/widgets").expect("it has a line");
    assert!(served.get("held_by").is_none(), "{served}");
}

#[tokio::test]
async fn a_denial_logs_one_line_with_limit_account_and_time() {
    let world = Setup::new().manual_clock().start().await;
    world.set_limits(&json!({ "core.user": 1 }));
    world.get(ISSUES).await.assert_status(200);
    let lines =
        captured_log(async || world.get(&format!("{ISSUES}?page=2")).await.assert_status(403))
            .await;
    let [refused] = lines.as_slice() else { panic!("one line: {lines:?}") };
    let reported = ["client", "status", "refusal", "held_by", "held_account"]
        .map(|key| refused[key].as_str().unwrap_or("").to_owned());
    assert_eq!(reported, ["ci", "", "primary", "primary", "account-0"], "{refused}");
    assert!(refused["held_until"].as_str().unwrap() > "2027-01-15T08:00:00Z", "{refused}");
}

#[tokio::test]
async fn a_client_that_stops_waiting_leaves_a_line_naming_the_limit() {
    let world = Setup::new().listen(ADMIN).manual_clock().limits("concurrency = 1").start().await;
    world.get(ISSUES).await.assert_status(200);
    let gate = world.close_gate("GET", "/repos/acme/widgets");
    let lines = captured_log(async || {
        let leaver = async {
            world.held(gate, 1).await;
            let mut connection = Connection::open(world.address).await;
            connection
                .send(format!("GET /repos/acme/sprockets HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n\r\n").as_bytes())
                .await;
            eventually(|| world.gateway.dispatcher.admissions().waiting() == 1).await;
            world.clock.advance(Duration::from_secs(20));
            drop(connection);
            // The line appears once the request is dropped; the other request continues.
            eventually(|| world.gateway.dispatcher.admissions().waiting() == 0 && world.gateway.env.active.count() == 1).await;
            world.open_gate(gate);
        };
        tokio::join!(world.get("/repos/acme/widgets"), leaver).0.assert_status(200);
    })
    .await;
    let left = lines.iter().find(|line| line["path"] == "/repos/acme/sprockets");
    let left = left.unwrap_or_else(|| panic!("it has no line: {lines:?}"));
    let reported =
        ["status", "queue_ms", "held_by", "held_account", "resource"].map(|key| left[key].clone());
    assert_eq!(
        reported,
        [json!(0), json!(20_000.0), json!("concurrency"), json!("account-0"), json!("core")],
        "{left}"
    );
    let operator = Operator::of(&world);
    assert_eq!(operator.metric("weir_wait_seconds_sum{reason=\"concurrency\"}").await, Some(20.0));
    assert_eq!(operator.client("ci").await["waits"]["count"], 1);
}

#[tokio::test]
async fn a_follower_logs_the_limit_of_its_leader_and_its_own_wait() {
    let world = Setup::new().manual_clock().limits("concurrency = 1").start().await;
    world.get(ISSUES).await.assert_status(200);
    let gate = world.close_gate("GET", "/repos/acme/widgets");
    let lines = captured_log(async || {
        let others = async {
            world.held(gate, 1).await;
            let first = world.get("/repos/acme/sprockets");
            let second = async {
                eventually(|| world.gateway.dispatcher.admissions().waiting() == 1).await;
                let second = world.get_with(
                    "/repos/acme/sprockets",
                    &[("prefer", "wait=3"), ("x-request-id", "second")],
                );
                let time = async {
                    eventually(|| world.gateway.cache.single_flight().waiters() == 3).await;
                    world.clock.advance(Duration::from_secs(4));
                };
                let (second, ()) = tokio::join!(second, time);
                world.open_gate(gate);
                second
            };
            tokio::join!(first, second)
        };
        let (holder, (first, second)) = tokio::join!(world.get("/repos/acme/widgets"), others);
        holder.assert_status(200);
        first.assert_status(200);
        // Nothing was answered meanwhile, so no limit is to blame for the refusal.
        second.assert_status(504);
    })
    .await;
    let second = lines.iter().find(|line| line["request_id"] == "second").expect("it has a line");
    let reported = ["refusal", "held_by", "held_account"].map(|key| second[key].clone());
    assert_eq!(
        reported,
        [json!("upstream_timeout"), json!("concurrency"), json!("account-0")],
        "{second}"
    );
}

#[tokio::test]
async fn a_write_behind_another_logs_the_wait_for_its_turn() {
    let world = Setup::new().manual_clock().start().await;
    world.get(ISSUES).await.assert_status(200);
    let gate = world.close_gate("POST", ISSUES);
    let lines = captured_log(async || {
        let first = world.post(ISSUES, json!({ "title": "first" }));
        let second = async {
            world.held(gate, 1).await;
            let second = world.post(ISSUES, json!({ "title": "second" }));
            let time = async {
                eventually(|| world.gateway.writes.turns().writes() == 2).await;
                world.clock.advance(Duration::from_secs(10));
                world.open_gate(gate);
            };
            tokio::join!(second, time).0
        };
        let (first, second) = tokio::join!(first, second);
        first.assert_status(201);
        second.assert_status(201);
    })
    .await;
    let held: Vec<&Value> = lines.iter().map(|line| &line["held_by"]).collect();
    assert_eq!(held, [&Value::Null, &json!("turn")], "{lines:?}");
}

#[tokio::test]
async fn a_failed_request_is_logged_as_a_warning() {
    let world = Setup::new().start().await;
    world.arm(
        &json!({ "match": { "path": "/repos/acme/sprockets" }, "fault": "status", "status": 500 }),
    );
    let wrong_key = [("authorization", "Bearer weir_key_of_nobody")];
    let lines = captured_log(async || {
        world.get(ISSUES).await.assert_status(200);
        world.get("/repos/acme/none").await.assert_status(404);
        world.get_with(ISSUES, &wrong_key).await.assert_status(401);
        let failed = world.get("/repos/acme/sprockets").await;
        assert!(failed.status.is_server_error(), "{failed:?}");
    })
    .await;
    let levels: Vec<_> = lines.iter().map(|line| line["level"].as_str().unwrap()).collect();
    assert_eq!(levels, ["INFO", "INFO", "WARN", "WARN"], "{lines:?}");
}

#[tokio::test]
async fn durations_in_the_log_have_microseconds() {
    let world = Setup::new().start().await;
    let lines = captured_log(async || {
        for page in 1..=8 {
            world.get(&format!("{ISSUES}?page={page}")).await.assert_status(200);
        }
    })
    .await;
    for key in ["duration_ms", "upstream_ms"] {
        let millis: Vec<f64> = lines.iter().map(|line| line[key].as_f64().unwrap()).collect();
        assert!(millis.iter().all(|millis| *millis > 0.0), "{key}: {millis:?}");
        assert!(millis.iter().any(|millis| millis.fract() > 0.0), "{key}: {millis:?}");
    }
    let metrics = world.gateway.env.metrics.encode();
    let sum = metrics
        .lines()
        .find(|line| line.starts_with("weir_upstream_duration_seconds_sum"))
        .and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .unwrap();
    assert!((sum * 1e6).round() % 1e3 > 0.5, "{sum}");
}

#[test]
fn an_unknown_log_level_stops_a_start_and_a_check() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weir.toml");
    let text = config::listen("127.0.0.1:0", "")
        + &config::upstream("http://127.0.0.1:9", "")
        + &config::user("bot", "token")
        + &config::client("ci", KEY, "");
    std::fs::write(&file, text).unwrap();
    for command in ["serve", "check"] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
            .args([command, "--config"])
            .arg(&file)
            .env("WEIR_LOG", "loud")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command}: {stderr}");
        let expected = "WEIR_LOG: unknown level \"loud\" (accepted: off, error, warn, info, debug)";
        assert!(stderr.contains(expected), "{command}: {stderr}");
    }
}

#[tokio::test]
async fn a_request_line_leads_to_the_client_and_the_upstream() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    let world = Setup::new().start().await;
    let traceparent = format!("00-{TRACE}-b7ad6b7169203331-01");
    let headers = [
        ("authorization", format!("Bearer {KEY}")),
        ("user-agent", "octokit.js/5.0 (linux)".into()),
        ("traceparent", traceparent),
    ];
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut upstream_id = String::new();
    let lines = captured_log(async || {
        world.get_with(ISSUES, &headers).await.assert_status(200);
        world.get_with(ISSUES, &headers).await.assert_status(200);
        let missing = world.get_with("/repos/acme/none", &headers).await;
        missing.assert_status(404);
        upstream_id = missing.header("x-github-request-id").unwrap_or_default().to_owned();
    })
    .await;
    let keys = ["client_address", "user_agent", "protocol", "trace_id"];
    for line in &lines {
        let shown = keys.map(|key| line[key].as_str().unwrap_or_default());
        assert_eq!(shown, ["127.0.0.1", "octokit.js/5.0 (linux)", "HTTP/1.1", TRACE], "{line}");
    }
    let costs: Vec<_> = lines.iter().map(|line| line["cost"].as_u64().unwrap()).collect();
    assert_eq!(costs, [1, 0, 1], "the second read is a free 304 or a hit: {lines:?}");
    let shown = lines[2]["upstream_request_id"].as_str().unwrap();
    assert!(!shown.is_empty() && (upstream_id.is_empty() || upstream_id == shown), "{shown}");
}

#[tokio::test]
async fn a_request_over_http2_is_logged_as_such() {
    let world = Setup::new().start().await;
    let client: Client<_, Full<Bytes>> =
        Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let request = Request::get(format!("http://{}{ISSUES}", world.address))
        .header("authorization", format!("Bearer {KEY}"));
    let lines = captured_log(async || {
        let answer = client.request(request.body(Full::default()).unwrap()).await.unwrap();
        Reply::read(answer).await.assert_status(200);
    })
    .await;
    let shown = ["protocol", "client_address"].map(|key| lines[0][key].as_str());
    assert_eq!(shown, [Some("HTTP/2"), Some("127.0.0.1")]);
}
