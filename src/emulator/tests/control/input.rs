//! Tests the control plane with unexpected input, cross-origin pages and resets (SPECIFICATION,
//! "Emulator").

use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

use crate::cases::cases;
use crate::emulator::tests::*;
use crate::random::Rng;

const CONTROLS: &[&str] = &[
    "world",
    "transcript",
    "books",
    "limits",
    "gates",
    "gates/1",
    "faults",
    "faults/1",
    "events",
    "seed",
    "reset",
    "tokens",
];

#[test]
fn an_unknown_control_is_404_and_a_wrong_method_405() {
    let mut upstream = Upstream::new();
    for path in [
        "/_emulator",
        "/_emulator/teapot",
        "/_emulator/world/1",
        "/_emulator/gates/1/2",
        "/_emulator/reset/now",
    ] {
        let answer = upstream.get(NOBODY, path).assert_status(404);
        assert!(
            answer.body["message"].as_str().is_some_and(|message| message.contains("faults")),
            "{path}"
        );
    }
    for path in CONTROLS {
        let answer =
            upstream.patch(NOBODY, &format!("/_emulator/{path}"), &json!({})).assert_status(405);
        assert!(
            !answer.header("allow").is_empty() && !answer.header("allow").contains("PATCH"),
            "{path}"
        );
    }
    upstream.delete(NOBODY, "/_emulator/limits").assert_status(405);
    upstream.get(NOBODY, "/_emulator/reset").assert_status(405);
}

#[test]
fn a_control_body_that_is_no_json_object_is_400() {
    let mut upstream = Upstream::new();
    for (method, path) in [
        ("PUT", "limits"),
        ("POST", "gates"),
        ("POST", "faults"),
        ("POST", "events"),
        ("POST", "seed"),
        ("POST", "tokens"),
    ] {
        for body in ["{", "[]", "3", "\"x\"", "null", "\u{0}", "{\"a\":1}}"] {
            let request = Request::builder()
                .method(method)
                .uri(format!("/_emulator/{path}"))
                .header("content-type", "application/json")
                .body(Bytes::from(body))
                .expect("well formed");
            upstream.send(&request).assert_status(400);
        }
        let large = format!("{{\"x\":\"{}\"}}", "y".repeat(1_100_000));
        let request = Request::builder()
            .method(method)
            .uri(format!("/_emulator/{path}"))
            .header("content-type", "application/json")
            .body(Bytes::from(large))
            .expect("well formed");
        upstream.send(&request).assert_status(413);
    }
}

#[test]
fn an_invalid_gate_names_its_wrong_fields_and_holds_nothing() {
    let mut upstream = Upstream::new();
    for (body, field) in [
        (json!({ "match": [] }), "match"),
        (json!({ "match": { "method": 1 } }), "match.method"),
        (json!({ "match": { "method": "G T" } }), "match.method"),
        (json!({ "match": { "path": 1 } }), "match.path"),
        (json!({ "match": { "nth": 1 } }), "match.nth"),
        (json!({ "path": "/user" }), "path"),
    ] {
        upstream.post(NOBODY, "/_emulator/gates", &body).assert_names_field(field);
    }
    assert_eq!(upstream.get(NOBODY, "/_emulator/gates").body["gates"], json!([]));
    upstream.get(NOBODY, "/_emulator/gates/1?held=x").assert_names_field("held");
    for id in ["0", "-1", "x", "99999999999999999999"] {
        upstream.get(NOBODY, &format!("/_emulator/gates/{id}")).assert_status(404);
        upstream.delete(NOBODY, &format!("/_emulator/gates/{id}")).assert_status(404);
    }
}

#[test]
fn every_wrong_limit_is_named_at_once_and_none_is_set() {
    let mut upstream = Upstream::new();
    let answer = upstream.put(
        NOBODY,
        "/_emulator/limits",
        &json!({ "core": -1, "no such": 1, "search": 1.5, "graphql": 7 }),
    );
    let errors = answer.assert_status(422).body["errors"].as_array().cloned().unwrap_or_default();
    let mut fields: Vec<&str> = errors.iter().filter_map(|error| error["field"].as_str()).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["core", "no such", "search"]);
    assert_eq!(upstream.get(NOBODY, "/_emulator/limits").body["limits"]["graphql"], 5_000);
}

#[test]
fn the_number_of_accounts_with_limits_of_their_own_is_bounded() {
    let mut upstream = Upstream::new();
    let many: serde_json::Map<String, Value> =
        (0..1_001).map(|index| (format!("core@anonymous-::{index:x}"), json!(1))).collect();
    upstream.put(NOBODY, "/_emulator/limits", &Value::Object(many)).assert_status(422);
}

#[test]
fn huge_limits_overflow_nothing() {
    let mut upstream = Upstream::new();
    let limits = upstream.get(NOBODY, "/_emulator/limits").body["limits"]
        .as_object()
        .cloned()
        .expect("limits");
    let mut accepted = 0;
    for name in limits.keys() {
        for value in [u64::MAX, (1 << 53) - 1, 31_622_400, 1, 0] {
            let put = upstream.put(NOBODY, "/_emulator/limits", &json!({ name: value }));
            if put.status == 200 {
                accepted += 1;
            } else {
                put.assert_names_field(name);
                continue;
            }
            upstream.get(ADA, "/user");
            upstream.post(ADA, "/repos/acme/widgets/issues", &json!({ "title": "x" }));
            upstream.get(ADA, "/notifications");
            upstream.get(INSTALLATION, "/rate_limit");
            upstream.usage();
        }
        upstream.post(NOBODY, "/_emulator/reset", &Value::Null).assert_status(200);
    }
    assert!(accepted > limits.len() * 2, "{accepted}");
}

#[test]
fn the_transcript_is_paged_by_since_and_limit() {
    let mut upstream = Upstream::new();
    for _ in 0..5 {
        upstream.get(ADA, "/user");
    }
    let piece =
        upstream.get(NOBODY, "/_emulator/transcript?since=1&limit=2").assert_status(200).body;
    let numbers: Vec<u64> = piece["requests"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|request| request["sequence"].as_u64())
        .collect();
    assert_eq!(numbers, [2, 3]);
    assert_eq!(
        (&piece["first"], &piece["last"], &piece["dropped"]),
        (&json!(1), &json!(5), &json!(0))
    );
    let beyond = upstream
        .get(NOBODY, "/_emulator/transcript?since=18446744073709551615")
        .assert_status(200)
        .body;
    assert_eq!(beyond["requests"], json!([]));
    for (query, field) in [
        ("since=x", "since"),
        ("since=-1", "since"),
        ("limit=all", "limit"),
        ("sinse=1", "sinse"),
        ("limit=", "limit"),
    ] {
        upstream.get(NOBODY, &format!("/_emulator/transcript?{query}")).assert_names_field(field);
    }
}

#[test]
fn a_new_seed_makes_a_new_world_and_keeps_omitted_options() {
    let mut upstream = Upstream::new();
    let readme = |upstream: &mut Upstream| {
        upstream.get(ADA, "/repos/acme/widgets/readme").body["content"].clone()
    };
    let first = readme(&mut upstream);
    upstream.set_limit("core", 7);
    let planted = upstream
        .post(NOBODY, "/_emulator/seed", &json!({ "seed": 99, "repositories": 12 }))
        .assert_status(200)
        .body;
    assert_eq!(planted, json!({ "seed": 99, "repositories": 12, "dialect": "service" }));
    assert_ne!(readme(&mut upstream), first);
    assert_eq!(
        upstream.get(ADA, "/user").header("x-ratelimit-limit"),
        "5000",
        "limits are as at the beginning"
    );
    assert_eq!(
        upstream.get(NOBODY, "/_emulator/world").body["repositories"].as_array().map(Vec::len),
        Some(12 + 3),
        "and those on the enterprise cloud"
    );
    upstream.post(NOBODY, "/_emulator/seed", &json!({ "dialect": "github" })).assert_status(200);
    assert_eq!(
        upstream.get(NOBODY, "/_emulator/seed").body,
        json!({ "seed": 99, "repositories": 12, "dialect": "github" })
    );
    assert!(upstream.get(ADA, "/user").headers.contains_key("x-github-request-id"));
    upstream
        .post(NOBODY, "/_emulator/seed", &json!({ "seed": 1, "repositories": 20 }))
        .assert_status(200);
    assert_eq!(readme(&mut upstream), first, "the same seed makes the same world");
}

#[test]
fn an_invalid_seed_changes_nothing() {
    let mut upstream = Upstream::new();
    upstream.issue_exists();
    for (body, field) in [
        (json!({ "seed": -1 }), "seed"),
        (json!({ "seed": "x" }), "seed"),
        (json!({ "repositories": 5 }), "repositories"),
        (json!({ "repositories": 1_000_001 }), "repositories"),
        (json!({ "repositories": 1e30 }), "repositories"),
        (json!({ "dialect": "other" }), "dialect"),
        (json!({ "dialect": 1 }), "dialect"),
        (json!({ "base_url": "http://x" }), "base_url"),
    ] {
        upstream.post(NOBODY, "/_emulator/seed", &body).assert_names_field(field);
    }
    upstream.issue_exists();
}

impl Upstream {
    fn issue_exists(&mut self) {
        self.get(ADA, "/repos/acme/widgets/issues/1").assert_status(200);
    }
}

#[test]
fn a_request_from_before_a_reset_leaves_the_new_state_alone() {
    let mut upstream = Upstream::new();
    upstream.post(NOBODY, "/_emulator/gates", &json!({})).assert_status(201);
    let old = upstream.emulator.arrive(
        upstream.now,
        &request(Method::GET, ADA, "/user", &[], &Value::Null),
        PEER,
    );
    upstream.post(NOBODY, "/_emulator/reset", &Value::Null).assert_status(200);
    upstream.post(NOBODY, "/_emulator/gates", &json!({})).assert_status(201);
    assert!(
        old.gate.is_some_and(|gate| upstream.emulator.gate_is_open(gate)),
        "it is released, although there is a new gate"
    );
    let new = upstream.emulator.arrive(
        upstream.now,
        &request(Method::GET, ADA, "/user", &[], &Value::Null),
        PEER,
    );
    upstream.emulator.finish(upstream.now, old.id);
    assert_eq!(
        upstream.usage()["secondary"][0]["in_flight"],
        1,
        "the new request is still in flight"
    );
    assert!(new.id > old.id, "a reader of the transcript from a number on misses nothing");
}

#[test]
fn a_page_of_another_site_cannot_use_the_control_plane() {
    let mut upstream = Upstream::new();
    for (headers, status) in [
        (&[][..], 200),
        (&[("origin", "http://upstream.test")][..], 200),
        (&[("sec-fetch-site", "none")][..], 200),
        (&[("sec-fetch-site", "same-origin"), ("origin", "http://upstream.test")][..], 200),
        (&[("origin", "https://evil.example")][..], 403),
        (&[("origin", "null")][..], 403),
        (&[("sec-fetch-site", "cross-site")][..], 403),
        (&[("sec-fetch-site", "same-site")][..], 403),
    ] {
        let answer = upstream
            .send(&request(Method::POST, NOBODY, "/_emulator/reset", headers, &Value::Null))
            .assert_status(status);
        assert!(!answer.headers.contains_key("access-control-allow-origin"), "{headers:?}");
    }
    upstream
        .send(&request(Method::OPTIONS, NOBODY, "/_emulator/reset", &[], &Value::Null))
        .assert_status(405);
}

#[test]
fn a_control_post_is_declared_as_json() {
    let mut upstream = Upstream::new();
    for (content_type, body, status) in [
        (Some("application/json"), "", 200),
        (Some("application/json; charset=utf-8"), "{}", 200),
        (None, "", 200),
        (None, "{}", 415),
        (Some("application/x-www-form-urlencoded"), " {}", 415),
        (Some("application/x-www-form-urlencoded"), "", 415),
        (Some("application/x-www-form-urlencoded"), "%7B%7D", 415),
        (Some("text/plain"), "{}", 415),
        (Some("multipart/form-data; boundary=x"), "{}", 415),
        (Some("text/plain; application/json"), "{}", 415),
    ] {
        let mut builder = Request::post("/_emulator/reset");
        if let Some(content_type) = content_type {
            builder = builder.header("content-type", content_type);
        }
        let request = builder.body(Bytes::from_static(body.as_bytes())).expect("well formed");
        let answer = upstream.send(&request).assert_status(status);
        let message = answer.body["message"].as_str().unwrap_or("");
        assert_eq!(status == 415, message.contains("Content-Type: application/json"), "{message}");
    }
    // A path that takes no POST is refused as such.
    for (path, status) in [("/_emulator/world", 405), ("/_emulator/nothing", 404)] {
        let request = Request::post(path).body(Bytes::new()).expect("well formed");
        upstream.send(&request).assert_status(status);
    }
    // A DELETE needs no body. A PUT of another origin needs a preflight, which is not granted.
    let put = Request::put("/_emulator/limits")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Bytes::from_static(b"{\"limits\": {}}"));
    upstream.send(&put.expect("well formed")).assert_status(200);
}

#[test]
fn the_usage_report_shows_windows_and_announced_limits() {
    let mut upstream = Upstream::new();
    upstream.post(ADA, "/repos/acme/widgets/issues", &json!({ "title": "x" })).assert_status(201);
    upstream.post(ADA, "/graphql", &json!({ "query": "{viewer{login}}" })).assert_status(200);
    let usage = upstream.usage();
    let windows = usage["secondary"][0]["windows"].as_array().expect("a list");
    let window = |limit: &str| {
        windows.iter().find(|window| window["limit"] == limit).cloned().expect("a window")
    };
    assert_eq!(
        window("points.rest"),
        json!({ "limit": "points.rest", "endpoint": "POST /repos/{owner}/{repo}/issues", "used": 5, "max": 900, "seconds": 60 })
    );
    assert_eq!(
        (&window("points.graphql")["used"], &window("points.graphql")["max"]),
        (&json!(1), &json!(2_000))
    );
    assert_eq!(
        (&window("content.minute")["used"], &window("content.hour")["seconds"]),
        (&json!(1), &json!(3_600))
    );
    assert_eq!(
        (&window("concurrency")["used"], &window("concurrency")["seconds"]),
        (&json!(0), &Value::Null)
    );
    upstream.set_limit("core", 1);
    upstream.get(ADA, "/user").assert_status(403);
    let announced = upstream.usage()["told"].clone();
    assert_eq!(
        (&announced[0]["account"], &announced[0]["resource"]),
        (&json!("ada"), &json!("core"))
    );
}

fn random_value(dice: &mut Rng, depth: u32) -> Value {
    const TEXTS: &[&str] =
        &["status", "stall", "GET", "*", "", "🦀", "secondary", "service", "\u{0}", "wobble", "-1"];
    match dice.below(if depth == 0 { 6 } else { 8 }) {
        0 => Value::Null,
        1 => json!(dice.below(2) == 0),
        2 => json!(dice.next_u64()),
        3 => json!(-1.5),
        4 => json!(dice.below(10)),
        5 => json!(dice.pick(TEXTS)),
        6 => (0..dice.below(3)).map(|_| random_value(dice, depth - 1)).collect(),
        _ => random_object(dice, depth - 1),
    }
}

fn random_object(dice: &mut Rng, depth: u32) -> Value {
    const NAMES: &[&str] = &[
        "match",
        "fault",
        "status",
        "seconds",
        "executed",
        "body",
        "headers",
        "method",
        "path",
        "nth",
        "times",
        "account",
        "token",
        "after",
        "chunked",
        "retry_after",
        "remaining",
        "pattern",
        "reads",
        "seed",
        "repositories",
        "dialect",
        "type",
        "repository",
        "core",
        "limits",
    ];
    let members = (0..dice.below(6))
        .filter_map(|_| Some(((*dice.pick(NAMES)?).to_owned(), random_value(dice, depth))));
    Value::Object(members.collect())
}

/// Returns the control's path and a request to it; `None` for most of the turns that would reset
/// the world.
fn random_request(dice: &mut Rng, turn: u32) -> Option<(&'static str, Request<Bytes>)> {
    const FAULTS: &[&str] = &[
        "status",
        "stall",
        "reset_before",
        "reset_after",
        "half_body",
        "lost",
        "html_refusal",
        "secondary",
        "revoke",
        "wobble",
        "reorder",
        "clock_offset",
        "pristine_rate_limit",
        "stale_read",
    ];
    let path =
        if dice.below(3) == 0 { "faults" } else { dice.pick(CONTROLS).copied().unwrap_or("world") };
    let method = dice
        .pick(&["GET", "POST", "POST", "POST", "PUT", "DELETE", "HEAD", "PATCH"])
        .copied()
        .unwrap_or("GET");
    let mut body = random_object(dice, 2);
    if path == "faults" && dice.below(2) == 0 {
        body = json!({ "fault": dice.pick(FAULTS), "match": { "nth": dice.below(4) } });
        if dice.below(2) == 0 {
            body["seconds"] = random_value(dice, 0);
        }
    }
    if path == "seed" && !turn.is_multiple_of(100) {
        return None;
    }
    let body = if dice.below(8) == 0 {
        Bytes::from_static(b"{\"a\":")
    } else {
        Bytes::from(body.to_string())
    };
    let queries: &[&str] =
        if dice.below(10) == 0 { &["?since=1", "?limit=x", "?held=1", "?struck=x"] } else { &[""] };
    let uri = format!("/_emulator/{path}{}", dice.pick(queries).unwrap_or(&""));
    let content_type = if dice.below(10) == 0 { "text/plain" } else { "application/json" };
    let request = Request::builder().method(method).uri(uri).header("content-type", content_type);
    let mut request = request.body(body).expect("well formed");
    if dice.below(20) == 0 {
        request
            .headers_mut()
            .insert("origin", HeaderValue::from_bytes(&[0xff, b'x']).expect("bytes"));
    }
    Some((path, request))
}

#[test]
fn random_control_requests_get_only_well_formed_answers() {
    let seed = 20_260_803;
    let mut dice = Rng::new(seed);
    let mut upstream = Upstream::new();
    let (mut armed, mut struck) = (0, 0);
    for turn in 0..cases(3_000) {
        let Some((path, request)) = random_request(&mut dice, turn) else { continue };
        let answer = upstream.send(&request);
        let what = || {
            format!(
                "seed {seed}, turn {turn}: {} {} → {} {}",
                request.method(),
                request.uri(),
                answer.status,
                answer.body
            )
        };
        assert!([200, 201, 400, 403, 404, 405, 415, 422].contains(&answer.status), "{}", what());
        assert!(answer.status < 400 || answer.body["message"].is_string(), "{}", what());
        armed += u32::from(answer.status == 201 && path == "faults");
        upstream.now = upstream.now + Duration::from_millis(dice.below(2_000));
        let answered = upstream.get(ADA, "/user");
        assert!(
            answered.headers == HeaderMap::new() || (200..600).contains(&answered.status),
            "{}",
            what()
        );
        struck += u32::from(answered.status >= 400);
    }
    assert!(
        armed > cases(50) && struck > cases(50),
        "faults were armed ({armed}) and struck ({struck})"
    );
}
