//! Tests secondary limits and the rules after a limit, row by row (SPECIFICATION, "Secondary rate
//! limits" and "After a limit"); `callers` has the basic cases.

use serde_json::json;

use crate::emulator::tests::*;

fn open_issue(upstream: &mut Upstream, token: &str) -> Answer {
    upstream.post(token, "/repos/acme/widgets/issues", &json!({ "title": "One more" }))
}

fn is_secondary(answer: &Answer) -> bool {
    answer.body["message"]
        .as_str()
        .is_some_and(|message| message.starts_with("You have exceeded a secondary rate limit"))
}

const QUERY: &str = "{ viewer { login } }";

#[test]
fn cpu_time_is_limited_to_90_seconds_in_60_seconds() {
    let mut upstream = Upstream::new();
    upstream.set_limit("cpu.burst", 1_000);
    upstream.set_limit("cpu-micros.read", 10_000_000);
    for path in [
        "/user",
        "/users/ada",
        "/users/ben",
        "/repos/acme/widgets",
        "/user/orgs",
        "/meta",
        "/",
        "/events",
        "/orgs/acme",
    ] {
        upstream.get(ADA, path).assert_status(200);
    }
    let refused = upstream.get(ADA, "/users/cleo").assert_status(403);
    assert!(is_secondary(&refused) && refused.remaining() > 0);
    assert_eq!(refused.header("retry-after"), "60");
    let entry = upstream.emulator.transcript(9).remove(0);
    assert_eq!((entry.refused, entry.cpu_micros), (Some("cpu"), 0));
    upstream.pass(60);
    upstream.get(ADA, "/users/cleo").assert_status(200);
}

#[test]
fn graphql_cpu_time_is_limited_to_60_seconds_in_60_seconds() {
    let mut upstream = Upstream::new();
    upstream.set_limit("cpu.burst", 1_000);
    upstream.set_limit("cpu-micros.graphql", 20_000_000);
    for _ in 0..3 {
        upstream.post(ADA, "/graphql", &json!({ "query": QUERY })).assert_status(200);
    }
    upstream.get(ADA, "/user").assert_status(200);
    let refused = upstream.post(ADA, "/graphql", &json!({ "query": QUERY })).assert_status(403);
    assert!(is_secondary(&refused));
    let usage = upstream.usage();
    assert!(usage["secondary"][0]["graphql_cpu_millis"].as_u64() >= Some(60_000));
}

#[test]
fn a_burst_of_cpu_time_is_limited() {
    let mut upstream = Upstream::new();
    upstream.set_limit("cpu-micros.read", 15_000_000);
    upstream.get(ADA, "/user").assert_status(200);
    upstream.get(ADA, "/users/ada").assert_status(200);
    let refused = upstream.get(ADA, "/users/ben").assert_status(403);
    assert_eq!(refused.header("retry-after"), "10");
    upstream.pass(10);
    upstream.get(ADA, "/users/ben").assert_status(200);
}

#[test]
fn other_default_limits_are_reached_long_before_cpu_time() {
    let mut upstream = Upstream::new();
    upstream.get(ADA, "/repos/acme/widgets/issues?per_page=100&state=all").assert_status(200);
    open_issue(&mut upstream, ADA).assert_status(201);
    upstream.post(ADA, "/graphql", &json!({ "query": QUERY })).assert_status(200);
    let dearest = upstream
        .emulator
        .transcript(0)
        .iter()
        .map(|entry| entry.cpu_micros)
        .max()
        .expect("three requests");
    let seconds_of_the_largest_budget = dearest * 15_000 / 1_000_000;
    assert!(dearest > 0 && seconds_of_the_largest_budget < 60, "{dearest}");
}

#[test]
fn some_endpoints_have_a_lower_content_limit() {
    let mut upstream = Upstream::new();
    let release = |upstream: &mut Upstream, number: u32| {
        upstream.post(
            ADA,
            "/repos/acme/widgets/releases",
            &json!({ "tag_name": format!("v2.0.{number}") }),
        )
    };
    for number in 0..20 {
        release(&mut upstream, number).assert_status(201);
    }
    open_issue(&mut upstream, ADA).assert_status(201);
    let refused = release(&mut upstream, 20).assert_status(403);
    assert!(
        refused.body["message"]
            .as_str()
            .is_some_and(|message| message.contains("content creation"))
    );
    upstream.set_limit("content.hour@POST /repos/{owner}/{repo}/issues", 1);
    upstream.pass(60);
    open_issue(&mut upstream, ADA).assert_status(403);
}

#[test]
fn web_actions_count_as_content_too() {
    let mut upstream = Upstream::new();
    let action = json!({ "type": "comment", "repository": "acme/widgets", "actor": "ada", "text": "By hand" });
    for _ in 0..80 {
        upstream.post(NOBODY, "/_emulator/events", &action).assert_status(201);
    }
    let refused = open_issue(&mut upstream, ADA).assert_status(403);
    assert!(is_secondary(&refused));
    open_issue(&mut upstream, BEN).assert_status(201);
    upstream.post(NOBODY, "/_emulator/events", &action).assert_status(201);
}

#[test]
fn an_endpoint_may_cost_points_that_are_not_disclosed() {
    let mut upstream = Upstream::new();
    upstream.set_limit("points@GET /users/{username}", 300);
    for _ in 0..3 {
        upstream.get(ADA, "/users/ben").assert_status(200);
    }
    assert_eq!(upstream.emulator.transcript(0)[0].points, 300);
    assert!(is_secondary(&upstream.get(ADA, "/users/ben").assert_status(403)));
    upstream.put(NOBODY, "/_emulator/limits", &json!({ "points@nowhere": 3 })).assert_status(422);
    upstream.set_limit("points@GET /user", (1 << 53) - 1);
    upstream.get(BEN, "/user").assert_status(403);
}

#[test]
fn a_denied_request_uses_no_budget() {
    let mut upstream = Upstream::new();
    upstream.set_limit("points.rest", 2);
    upstream.set_limit("refusal.retry-after", 1);
    for _ in 0..2 {
        upstream.get(ADA, "/user").assert_status(200);
    }
    for turn in 1..=3_u64 {
        upstream.get(ADA, "/user").assert_status(403);
        let usage = upstream.usage();
        assert_eq!(usage["secondary"][0]["points"]["GET /user"], 2);
        assert_eq!(usage["windows"][0]["used"], 2);
        assert_eq!(
            (&usage["refused_secondary"], &usage["sent_while_limited"]),
            (&json!(turn), &json!(turn - 1))
        );
    }
    upstream.pass(60);
    upstream.get(ADA, "/user").assert_status(200);
}

#[test]
fn a_setting_forces_or_suppresses_retry_after() {
    for (value, expected) in [(0, ["", ""]), (1, ["60", "60"]), (2, ["60", ""])] {
        let mut upstream = Upstream::new();
        upstream.set_limit("points.rest", 0);
        upstream.set_limit("refusal.retry-after", value);
        let retry_after = [ADA, BEN].map(|token| {
            upstream.get(token, "/user").assert_status(403).header("retry-after").to_owned()
        });
        assert_eq!(retry_after, expected);
    }
}

#[test]
fn a_secondary_limit_ends_after_its_retry_after() {
    let mut upstream = Upstream::new();
    upstream.set_limit("points.rest", 1);
    upstream.set_limit("refusal.retry-after", 1);
    upstream.get(ADA, "/user");
    upstream.pass(20);
    assert_eq!(upstream.get(ADA, "/user").assert_status(403).header("retry-after"), "40");
    upstream.pass(39);
    assert_eq!(upstream.get(ADA, "/user").assert_status(403).header("retry-after"), "1");
    upstream.pass(1);
    upstream.get(ADA, "/user").assert_status(200);
}

#[test]
fn a_secondary_denial_at_0_remaining_lasts_until_the_reset() {
    let mut upstream = Upstream::new();
    upstream.set_limit("points.rest", 1);
    upstream.set_limit("core.user", 1);
    upstream.set_limit("refusal.retry-after", 0);
    let reset: u64 = upstream
        .get(ADA, "/user")
        .assert_status(200)
        .header("x-ratelimit-reset")
        .parse()
        .expect("seconds");
    let refused = upstream.get(ADA, "/user").assert_status(403);
    assert!(is_secondary(&refused), "it is secondary by its message");
    assert_eq!((refused.remaining(), refused.header("retry-after")), (0, ""));
    upstream.pass(120);
    let waiting = upstream.get(ADA, "/search/issues?q=x").assert_status(403);
    assert!(is_secondary(&waiting));
    assert_eq!(
        waiting.header("retry-after").parse::<u64>().ok(),
        Some(reset - upstream.now.as_secs())
    );
    assert_eq!(upstream.usage()["sent_while_limited"], 1);
    upstream.now = Timestamp::from_secs(reset);
    upstream.get(ADA, "/user").assert_status(200);
}

#[test]
fn a_secondary_denial_without_retry_after_lasts_a_minute() {
    let mut upstream = Upstream::new();
    upstream.set_limit("points.rest", 1);
    upstream.set_limit("refusal.retry-after", 0);
    upstream.get(ADA, "/user");
    upstream.pass(50);
    assert_eq!(upstream.get(ADA, "/user").assert_status(403).header("retry-after"), "");
    upstream.pass(59);
    upstream.get(ADA, "/user").assert_status(403);
    upstream.pass(1);
    upstream.get(ADA, "/user").assert_status(200);
}

#[test]
fn a_secondary_denial_may_be_429() {
    let mut upstream = Upstream::new();
    upstream.set_limit("points.rest", 0);
    upstream.set_limit("refusal.status", 429);
    assert!(is_secondary(&upstream.get(ADA, "/user").assert_status(429)));
}

#[test]
fn rate_limit_counts_against_the_secondary_limit() {
    let mut upstream = Upstream::new();
    for _ in 0..900 {
        upstream.get(ADA, "/rate_limit").assert_status(200);
    }
    let refused = upstream.get(ADA, "/rate_limit").assert_status(403);
    assert!(is_secondary(&refused));
    assert_eq!(refused.remaining(), 5_000);
}

#[test]
fn an_unchanged_answer_still_counts_its_point() {
    let mut upstream = Upstream::new();
    upstream.set_limit("points.rest", 2);
    let etag = upstream.get(ADA, "/user").header("etag").to_owned();
    upstream.get_with(ADA, "/user", &[("if-none-match", &etag)]).assert_status(304);
    upstream.get_with(ADA, "/user", &[("if-none-match", &etag)]).assert_status(403);
}

#[test]
fn an_app_acting_for_a_member_has_its_own_secondary_limits() {
    let mut upstream = Upstream::new();
    upstream.set_limit("points.rest", 1);
    upstream.get(crate::emulator::tests::limits::primary::IRIS_BY_APP, "/user").assert_status(200);
    upstream.get(crate::emulator::tests::limits::primary::IRIS, "/user").assert_status(200);
    upstream.get(crate::emulator::tests::limits::primary::IRIS_BY_APP, "/user").assert_status(403);
}
