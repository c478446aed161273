//! `weir cache advise`: rules by a replay of what was sent upstream, and what they then save
//! (SPECIFICATION, "Commands" and "Admin listener").

use std::fmt::Write as _;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use weir::clock::Timestamp;

use super::operator::{ADMIN, Operator, TOKEN, printed};
use crate::support::{Setup, World, captured_log};

const ISSUE: &str = "/repos/acme/widgets/issues/1";
const USER: &str = "/users/ada";
const LABELS: &str = "/repos/acme/widgets/labels";
/// A poll each half second, for two minutes.
const STEPS: u64 = 240;
const STEP: Duration = Duration::from_millis(500);
/// Steps between two changes of the issue, and the first of them.
const CHANGES: (u64, u64) = (40, 13);

fn setup() -> Setup {
    let high = "rest_points_per_minute = 100000\ncpu_seconds_per_minute = 6000";
    Setup::new().listen(ADMIN).manual_clock().unspaced_writes().limits(high)
}

/// The requests of the clients at a step.
fn polls(step: u64) -> impl Iterator<Item = Option<&'static str>> {
    let issue = std::iter::once(Some(ISSUE));
    let user = (step % 4 == 1).then_some(Some(USER));
    let page = (step % 8 == 2).then_some(Some("/repos/acme/widgets/labels?per_page=2"));
    let labels = (step % 8 == 3).then_some(Some(LABELS));
    let query = (step % 6 == 5).then_some(None);
    issue.chain(user).chain(page).chain(labels).chain(query)
}

/// Bots that poll, while the issue changes around the gateway. Returns the times of the requests.
async fn traffic(world: &World) -> Vec<Timestamp> {
    let query = json!({ "query": "query Viewer { viewer { login } }" });
    let mut times = Vec::new();
    for step in 0..STEPS {
        if step % CHANGES.0 == CHANGES.1 {
            let title = json!({ "title": format!("at {step}") });
            world.ask_emulator(Method::PATCH, ISSUE, &title);
        }
        for poll in polls(step) {
            times.push(world.clock.now());
            let reply = match poll {
                Some(path) => world.get(path).await,
                None => world.post("/graphql", query.clone()).await,
            };
            reply.assert_status(200);
        }
        world.clock.advance(STEP);
    }
    times
}

/// Requests and units by the upstream's count.
fn spent(world: &World) -> (u64, u64) {
    let entries = world.upstream_requests();
    let ours = entries
        .iter()
        .filter(|entry| entry.method != "PATCH" && !["/", "/rate_limit"].contains(&&*entry.path));
    ours.fold((0, 0), |(requests, units), entry| (requests + 1, units + u64::from(entry.cost)))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// The part of a config with one advised rule.
fn config_of(rule: &Value) -> String {
    let line = format!("{} = {}\n", rule["setting"].as_str().unwrap(), rule["value"]);
    match (&rule["route"], &rule["graphql"]) {
        (Value::String(route), _) => format!("[[cache.rules]]\nroute = \"{route}\"\n{line}"),
        (_, Value::String(name)) => format!("[[cache.rules]]\ngraphql = \"{name}\"\n{line}"),
        _ => format!("[cache]\n{line}"),
    }
}

/// Asserts that each rule saves what the advice says, in the same traffic again.
async fn assert_saves(advice: &Value, before: (u64, u64)) {
    let mut tried = Vec::new();
    for rule in advice["rules"].as_array().unwrap() {
        let setting = rule["setting"].as_str().unwrap();
        if setting == "webhook_ttl" {
            continue;
        }
        let world = setup().config(&config_of(rule)).start().await;
        traffic(&world).await;
        let after = spent(&world);
        for (saved, promised) in [
            (before.0 - after.0, number(&rule["saved_requests"])),
            (before.1 - after.1, number(&rule["saved_units"])),
        ] {
            let tolerated = 2 + promised / 20;
            assert!(saved.abs_diff(promised) <= tolerated, "{saved} saved: {rule}");
        }
        tried.push(setting.to_owned());
    }
    tried.sort();
    tried.dedup();
    assert_eq!(tried, ["revalidate_at_most", "ttl"], "{advice}");
}

fn names(advice: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let rules = advice["rules"].as_array().unwrap().iter();
    let name = |rule: &Value| {
        let subject = if rule["route"].is_null() { &rule["graphql"] } else { &rule["route"] };
        (text(&rule["setting"]), text(subject))
    };
    rules.map(name).collect()
}

#[tokio::test]
async fn an_advised_rule_saves_what_was_promised() {
    let world = setup().start().await;
    traffic(&world).await;
    let operator = Operator::of(&world);
    let advice = operator.get("/api/cache/advice").await.json();
    let before = spent(&world);
    assert_eq!((number(&advice["requests"]), number(&advice["units"])), before, "{advice}");
    let names = names(&advice);
    for (setting, subject) in [
        ("revalidate_at_most", "-"),
        ("ttl", "/users/{username}"),
        ("ttl", "/repos/{owner}/{repo}/labels"),
        ("ttl", "Viewer"),
        ("webhook_ttl", "/repos/{owner}/{repo}/issues/{issue_number}"),
    ] {
        assert!(names.contains(&(setting.into(), subject.into())), "{setting} {subject}: {advice}");
    }
    // Every lifetime would show outdated answers.
    let of_issue = ("ttl".into(), "/repos/{owner}/{repo}/issues/{issue_number}".into());
    assert!(!names.contains(&of_issue), "{advice}");
    assert_saves(&advice, before).await;
}

#[tokio::test]
async fn a_log_has_the_same_advice_as_the_gateway() {
    captured_log::begin();
    let world = setup().start().await;
    let times = traffic(&world).await;
    let advice = Operator::of(&world).get("/api/cache/advice").await.json();
    let lines = captured_log::own();
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let lines: Vec<_> = lines.filter(|line| line["message"] == "request").collect();
    assert_eq!(lines.len(), times.len());
    let mut log = String::new();
    for (mut line, at) in lines.into_iter().zip(times) {
        // The log's own clock is the machine's.
        let millis = at.as_millis() % 1_000;
        let second = Timestamp::from_secs(at.as_secs()).rfc3339();
        line["time"] = format!("{}.{millis:03}Z", second.trim_end_matches('Z')).into();
        line["duration_ms"] = json!(0.0);
        writeln!(log, "{line}").unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    std::fs::write(&path, log).unwrap();
    let operator = Operator::of(&world);
    let arguments = ["advise", "--json", "--log", path.to_str().unwrap()];
    let output = operator.weir("cache", &arguments, None).await;
    assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
    let logged: Value = serde_json::from_slice(&output.stdout).unwrap();
    for rule in advice["rules"].as_array().unwrap() {
        // A log has no content: a query's answers count as unchanged, as they are here.
        assert!(logged["rules"].as_array().unwrap().contains(rule), "{rule}: {logged}");
    }
    assert_eq!((&logged["requests"], &logged["units"]), (&advice["requests"], &advice["units"]));
}

#[tokio::test]
async fn the_printed_rules_pass_the_check_of_a_config() {
    let world = setup().listen(&format!("admin_token = {{ value = \"{TOKEN}\" }}")).start().await;
    traffic(&world).await;
    let operator = Operator::of(&world);
    let address = operator.address.to_string();
    let output = operator.weir("cache", &["advise", "--admin", &address], Some(TOKEN)).await;
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for part in ["stale up to 1s", "needs a watched webhook", "query Viewer", "revalidate_at_most"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (_, rules) = text.split_once("for the config:\n").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.toml");
    let minimal = std::fs::read_to_string("config/minimal.toml").unwrap();
    let present = "[cache]\nstale_if_error = \"2h\"\n";
    assert!(rules.contains("# in the section [cache]:\n# revalidate_at_most = \"1s\""), "{rules}");
    std::fs::write(&path, format!("{minimal}\n{present}\n{rules}")).unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["check", "--config", path.to_str().unwrap()])
        .env("WEIR_BOT_TOKEN", "ghp_of_the_test")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
    let effective = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(effective.contains("stale_if_error = \"2h\""), "{effective}");
    assert!(effective.contains("graphql = \"Viewer\""), "{effective}");
}

#[tokio::test]
async fn a_gateway_with_the_rules_has_no_advice_left() {
    let world = setup().start().await;
    traffic(&world).await;
    let operator = Operator::of(&world);
    let advice = operator.get("/api/cache/advice").await.json();
    let rules = advice["toml"].as_str().unwrap();
    // The section is there already in most configs.
    let rules = rules.replace("# in the section [cache]:\n# ", "[cache]\n");
    let world = setup().config(&rules).start().await;
    traffic(&world).await;
    let operator = Operator::of(&world);
    let output =
        operator.weir("cache", &["advise", "--admin", &operator.address.to_string()], None).await;
    assert!(printed(&output).contains("no rule is worth having"), "{}", printed(&output));
    assert_eq!(output.status.code(), Some(0));
    let left = operator.get("/api/cache/advice").await.json();
    assert_eq!((&left["rules"], &left["toml"]), (&json!([]), &json!("")), "{left}");
}

#[tokio::test]
async fn advice_without_its_source_is_refused_with_a_reason() {
    let world = setup().listen(&format!("admin_token = {{ value = \"{TOKEN}\" }}")).start().await;
    let operator = Operator::of(&world);
    let (admin, clients) = (operator.address.to_string(), world.address.to_string());
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other");
    std::fs::write(&other, "GET / 200\n{\"time\":5}\n").unwrap();
    let other = other.to_str().unwrap();
    for (arguments, token, code, problem) in [
        (&["advise"][..], None, 2, "give --admin ADDR"),
        (&["advise", "--admin", &admin], None, 1, "admin_token"),
        (&["advise", "--admin", &admin], Some("another"), 1, "admin_token"),
        (&["advise", "--admin", "127.0.0.1:1"], None, 1, "nothing answers"),
        (&["advise", "--admin", &clients], Some(TOKEN), 1, "not the admin listener"),
        (&["advise", "--log", "/not/here"], None, 2, "cannot be read"),
        (&["advise", "--log", other], None, 2, "no line of it is a request"),
        (&["advise", "--log", other, "--admin", &admin], None, 2, "cannot be used with"),
    ] {
        let output = operator.weir("cache", arguments, token).await;
        let text = printed(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(problem), "{arguments:?}: {text}");
        assert!(output.stdout.is_empty(), "{text}");
    }
}

#[tokio::test]
async fn log_lines_of_another_shape_are_counted() {
    let world = setup().start().await;
    let operator = Operator::of(&world);
    let request = r#"{"time":"2026-07-01T10:00:05Z","message":"request","client":"ci","method":"GET","path":"/repos/a/b","endpoint":"/repos/{owner}/{repo}","status":200,"cache":"revalidated","cost":0}"#;
    let other = r#"{"time":"2026-07-01T10:00:05Z","message":"listening"}"#;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    std::fs::write(&path, format!("{request}\nGET / 200\n{other}\n{request}\n")).unwrap();
    let path = path.to_str().unwrap();
    let output = operator.weir("cache", &["advise", "--log", path], None).await;
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for part in [
        "2 requests",
        ":2: neither JSON nor a line of nginx",
        "1 line that cannot be read",
        "1 line of other records",
        "without a cache_key",
        "no rule is worth having",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
