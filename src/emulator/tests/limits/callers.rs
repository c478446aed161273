//! Tests primary and secondary limits as callers meet them (SPECIFICATION, "Primary rate limits"
//! and "Secondary rate limits").

use http::{Method, Request};
use serde_json::{Value, json};

use crate::emulator::tests::*;

#[test]
fn every_answer_carries_all_five_rate_headers() {
    let mut upstream = Upstream::new();
    for (token, path) in [
        (ADA, "/user"),
        (ADA, "/nothing/here"),
        ("wrong", "/user"),
        (NOBODY, "/users/ada"),
        (ADA, "/rate_limit"),
    ] {
        let answer = upstream.get(token, path);
        for name in ["limit", "remaining", "used", "reset", "resource"] {
            assert!(!answer.header(&format!("x-ratelimit-{name}")).is_empty(), "{path} {name}");
        }
    }
}

#[test]
fn all_tokens_of_one_user_share_one_budget() {
    let mut upstream = Upstream::new();
    assert_eq!(upstream.get(ADA, "/user").remaining(), 4_999);
    assert_eq!(upstream.get(ADA_NO_SCOPES, "/user").remaining(), 4_998);
    assert_eq!(upstream.get(ADA_FINE, "/user").remaining(), 4_997);
    assert_eq!(upstream.get(OAUTH, "/user").remaining(), 4_996);
    assert_eq!(upstream.get(BEN, "/user").remaining(), 4_999);
}

#[test]
fn each_kind_of_caller_has_the_limit_of_the_table() {
    let mut upstream = Upstream::new();
    let limit = |answer: Answer| answer.header("x-ratelimit-limit").to_owned();
    assert_eq!(limit(upstream.get(ADA, "/users/ada")), "5000");
    assert_eq!(limit(upstream.get(INSTALLATION, "/users/ada")), "5000");
    assert_eq!(limit(upstream.get(WORKFLOW, "/users/ada")), "1000");
    assert_eq!(limit(upstream.get(NOBODY, "/users/ada")), "60");
    let basic = Request::get("/users/ada")
        .header("authorization", "Basic ZW11X2NsaWVudF9pZDplbXVfY2xpZW50X3NlY3JldA==")
        .body(Bytes::new())
        .expect("well formed");
    assert_eq!(limit(upstream.send(&basic)), "5000");
}

#[test]
fn an_exceeded_primary_limit_is_403_with_0_remaining() {
    let mut upstream = Upstream::new();
    upstream.set_limit("core", 3);
    for remaining in [2, 1, 0] {
        assert_eq!(upstream.get(ADA, "/user").assert_status(200).remaining(), remaining);
    }
    let refused = upstream.get(ADA, "/user").assert_status(403);
    assert_eq!(refused.remaining(), 0);
    assert_eq!(refused.body["message"], "API rate limit exceeded for user ID 101.");
    assert_eq!(refused.header("x-ratelimit-used"), "3");
    upstream.get(BEN, "/user").assert_status(200);
}

#[test]
fn a_primary_denial_may_be_429() {
    let mut upstream = Upstream::new();
    upstream.set_limit("core", 0);
    upstream.set_limit("refusal.status", 429);
    upstream.get(ADA, "/user").assert_status(429);
}

#[test]
fn the_budget_is_whole_again_after_the_reset() {
    let mut upstream = Upstream::new();
    upstream.set_limit("core", 1);
    let reset: u64 =
        upstream.get(ADA, "/user").header("x-ratelimit-reset").parse().expect("seconds");
    upstream.get(ADA, "/user").assert_status(403);
    upstream.now = Timestamp::from_secs(reset);
    upstream.get(ADA, "/user").assert_status(200);
}

#[test]
fn the_length_of_the_primary_window_is_configurable() {
    let mut upstream = Upstream::new();
    upstream.set_limit("window.primary", 10);
    let reset: u64 =
        upstream.get(ADA, "/user").header("x-ratelimit-reset").parse().expect("seconds");
    assert_eq!(reset, upstream.now.as_secs() + 10);
}

#[test]
fn search_has_a_budget_of_30_a_minute_of_its_own() {
    let mut upstream = Upstream::new();
    let answer = upstream.get(ADA, "/search/issues?q=repo:acme/widgets");
    assert_eq!(
        (answer.header("x-ratelimit-resource"), answer.header("x-ratelimit-limit")),
        ("search", "30")
    );
    assert!(answer.body["total_count"].as_u64() > Some(60));
    assert_eq!(upstream.get(ADA, "/user").remaining(), 4_999);
}

#[test]
fn a_304_costs_no_budget() {
    let mut upstream = Upstream::new();
    let etag = upstream.get(ADA, "/users/ada").header("etag").to_owned();
    let unchanged =
        upstream.get_with(ADA, "/users/ada", &[("if-none-match", &etag)]).assert_status(304);
    assert_eq!(unchanged.remaining(), 4_999);
    let etag = upstream.get(NOBODY, "/users/ada").header("etag").to_owned();
    let unchanged =
        upstream.get_with(NOBODY, "/users/ada", &[("if-none-match", &etag)]).assert_status(304);
    assert_eq!(unchanged.remaining(), 59);
}

#[test]
fn rate_limit_reports_the_status_and_does_not_count() {
    let mut upstream = Upstream::new();
    upstream.get(ADA, "/user");
    for _ in 0..3 {
        let answer = upstream.get(ADA, "/rate_limit").assert_status(200);
        assert_eq!(answer.body["resources"]["core"]["remaining"], 4_999);
        assert_eq!(answer.body["resources"]["search"]["limit"], 30);
        assert_eq!(answer.body["rate"]["used"], 1);
    }
    upstream.set_limit("core", 1);
    upstream.get(ADA, "/rate_limit").assert_status(200);
}

#[test]
fn a_bad_credential_costs_the_budget_of_its_address() {
    let mut upstream = Upstream::new();
    assert_eq!(upstream.get("wrong", "/user").assert_status(401).remaining(), 59);
    assert_eq!(upstream.get(NOBODY, "/users/ada").remaining(), 58);
}

#[test]
fn rest_and_graphql_share_100_concurrent_requests() {
    let mut upstream = Upstream::new();
    let rest = request(Method::GET, ADA, "/user", &[], &Value::Null);
    let graphql =
        request(Method::POST, ADA, "/graphql", &[], &json!({ "query": "{viewer{login}}" }));
    let arrivals: Vec<_> = (0..100)
        .map(|turn| {
            upstream.emulator.arrive(
                upstream.now,
                if turn % 2 == 0 { &rest } else { &graphql },
                PEER,
            )
        })
        .collect();
    assert!(arrivals.iter().all(|arrival| arrival.response.status() == 200));
    let refused = upstream.emulator.arrive(upstream.now, &rest, PEER);
    assert_eq!(refused.response.status(), 403);
    let body: Value = serde_json::from_slice(refused.response.body()).expect("JSON");
    assert!(
        body["message"]
            .as_str()
            .is_some_and(|message| message.starts_with("You have exceeded a secondary rate limit"))
    );
    assert!(
        body["documentation_url"]
            .as_str()
            .is_some_and(|url| url.ends_with("#secondary-rate-limits"))
    );
    assert_eq!(upstream.usage()["refused_secondary"], 1);
}

#[test]
fn an_endpoint_takes_900_points_a_minute_of_one_account() {
    let mut upstream = Upstream::new();
    for _ in 0..900 {
        upstream.get(ADA, "/user").assert_status(200);
    }
    let refused = upstream.get(ADA, "/user").assert_status(403);
    assert!(refused.remaining() > 0, "it is not the primary limit");
    assert_eq!(refused.header("retry-after"), "60");
    assert_eq!(refused.header("x-ratelimit-used"), "900");
    upstream.get(BEN, "/user").assert_status(200);
}

#[test]
fn every_request_while_limited_is_refused_and_counted() {
    let mut upstream = Upstream::new();
    upstream.set_limit("points.rest", 1);
    upstream.get(ADA, "/user").assert_status(200);
    upstream.get(ADA, "/user").assert_status(403);
    assert_eq!(upstream.usage()["sent_while_limited"], 0, "the first denial comes without notice");
    upstream.get(ADA, "/users/ada").assert_status(403);
    upstream.get(ADA, "/meta").assert_status(403);
    assert_eq!(upstream.usage()["sent_while_limited"], 2);
    upstream.pass(60);
    upstream.get(ADA, "/user").assert_status(200);
}

#[test]
fn a_request_after_a_primary_denial_is_sent_while_limited() {
    let mut upstream = Upstream::new();
    upstream.set_limit("core", 1);
    upstream.get(ADA, "/user");
    upstream.get(ADA, "/user").assert_status(403);
    assert_eq!(upstream.usage()["sent_while_limited"], 0);
    upstream.get(ADA, "/user").assert_status(403);
    let usage = upstream.usage();
    assert_eq!((&usage["refused_primary"], &usage["sent_while_limited"]), (&json!(2), &json!(1)));
    upstream.pass(3_600);
    upstream.get(ADA, "/user").assert_status(200);
    assert_eq!(upstream.usage()["sent_while_limited"], 1);
}

#[test]
fn some_secondary_denials_have_retry_after_and_some_do_not() {
    let mut upstream = Upstream::new();
    upstream.set_limit("points.rest", 0);
    let (first, second) = (
        upstream.get(ADA, "/user").assert_status(403),
        upstream.get(BEN, "/user").assert_status(403),
    );
    assert_eq!(first.header("retry-after").is_empty(), second.header("retry-after").len() > 1);
}

#[test]
fn repeated_requests_while_limited_lead_to_a_lasting_ban() {
    let mut upstream = Upstream::new();
    upstream.set_limit("points.rest", 1);
    upstream.set_limit("ban.after", 5);
    for _ in 0..7 {
        upstream.get(ADA, "/user");
    }
    upstream.pass(100_000);
    upstream.get(ADA, "/user").assert_status(403);
    assert_eq!(upstream.usage()["banned"], json!(["ada"]));
}

#[test]
fn the_81st_issue_of_a_minute_is_refused_as_content() {
    let mut upstream = Upstream::new();
    for number in 0..80 {
        upstream
            .post(
                ADA,
                "/repos/acme/widgets/issues",
                &json!({ "title": format!("Number {number}") }),
            )
            .assert_status(201);
    }
    let refused = upstream
        .post(ADA, "/repos/acme/widgets/issues", &json!({ "title": "One more" }))
        .assert_status(403);
    assert!(
        refused.body["message"]
            .as_str()
            .is_some_and(|message| message.contains("blocked from content creation"))
    );
    let transcript = upstream.get(NOBODY, "/_emulator/transcript?since=80").body;
    assert_eq!(
        (&transcript["requests"][0]["executed"], &transcript["requests"][0]["refused"]),
        (&json!(false), &json!("content"))
    );
}

#[test]
fn graphql_exhaustion_is_200_with_errors() {
    let mut upstream = Upstream::new();
    upstream.set_limit("graphql", 1);
    let query = json!({ "query": "{ viewer { login } rateLimit { cost remaining } }" });
    let answer = upstream.post(ADA, "/graphql", &query).assert_status(200);
    assert_eq!(
        answer.body["data"],
        json!({ "viewer": { "login": "ada" }, "rateLimit": { "cost": 1, "remaining": 0 } })
    );
    assert_eq!(answer.header("x-ratelimit-resource"), "graphql");
    let refused = upstream.post(ADA, "/api/graphql", &query).assert_status(200);
    assert_eq!(refused.body["errors"][0]["type"], "RATE_LIMITED");
    assert_eq!(refused.remaining(), 0);
}

#[test]
fn one_account_can_have_limits_of_its_own() {
    let mut upstream = Upstream::new();
    upstream.set_limit("core@build-bot", 2);
    assert_eq!(upstream.get("emu_classic_build_bot", "/user").header("x-ratelimit-limit"), "2");
    assert_eq!(upstream.get("emu_classic_scan_bot", "/user").header("x-ratelimit-limit"), "5000");
}
