//! Secondary rate limits: each kind up to its maximum, and one more.

use serde_json::{Value, json};

use crate::document_1::paths::{ORGANIZATION, PUBLIC};
use crate::kit::{Answer, TestRequest, Upstream};

const COMMENTS: &str = "/repos/acme/widgets/issues/1/comments";
const QUERY: &str = "query { viewer { login } }";
const MUTATION: &str =
    "mutation { addComment(input: {subjectId: \"none\", body: \"b\"}) { clientMutationId } }";
/// Puts all other limits out of reach.
const PLENTY: u64 = 10_000_000;

fn graphql(upstream: &mut Upstream, token: &str, query: &str) -> Answer {
    upstream.post(token, "/graphql", &json!({ "query": query }))
}

/// An upstream with ada's token and no effective primary limits.
fn unbounded() -> (Upstream, String) {
    let mut upstream = Upstream::new();
    for limit in ["core", "graphql"] {
        upstream.set_limit(limit, PLENTY);
    }
    let ada = upstream.classic("ada");
    (upstream, ada)
}

#[test]
pub fn concurrency_is_limited_to_100_requests() {
    let (mut upstream, ada) = unbounded();
    let mut ids = Vec::new();
    upstream.assert_refuses_after("concurrency", 100, |upstream, _| {
        let (answer, id) = upstream.begin(&TestRequest::new("GET", PUBLIC).by(&ada));
        ids.push(id);
        answer
    });
    // A request that ends makes room for another.
    upstream.pass(120);
    upstream.end(ids[0]);
    let (answer, _) = upstream.begin(&TestRequest::new("GET", PUBLIC).by(&ada));
    assert!(!answer.is_secondary_refusal());
}

#[test]
pub fn rest_and_graphql_share_the_concurrency_limit() {
    let (mut upstream, ada) = unbounded();
    upstream.assert_refuses_after("concurrency of both", 100, |upstream, n| {
        let query = TestRequest::new("POST", "/graphql").by(&ada).json(&json!({ "query": QUERY }));
        let request = if n % 2 == 0 { query } else { TestRequest::new("GET", PUBLIC).by(&ada) };
        upstream.begin(&request).0
    });
}

#[test]
pub fn another_account_has_its_own_concurrency_limit() {
    let (mut upstream, ada) = unbounded();
    for _ in 0..100 {
        upstream.begin(&TestRequest::new("GET", PUBLIC).by(&ada));
    }
    let ben = upstream.classic("ben");
    let (answer, _) = upstream.begin(&TestRequest::new("GET", PUBLIC).by(&ben));
    answer.expect_status(200);
}

#[test]
pub fn a_rest_endpoint_has_900_points_a_minute() {
    let (mut upstream, ada) = unbounded();
    upstream.assert_refuses_after("points of GET", 900, |upstream, _| upstream.get(&ada, "/user"));
    upstream.pass(120);
    upstream.get(&ada, "/user").expect_status(200);
}

#[test]
pub fn each_rest_endpoint_has_its_own_points() {
    let (mut upstream, ada) = unbounded();
    for _ in 0..900 {
        upstream.get(&ada, "/user").expect_status(200);
    }
    upstream.get(&ada, PUBLIC).expect_status(200);
    // Another repository is the same endpoint.
    for _ in 0..899 {
        upstream.get(&ada, "/repos/acme/gadgets").expect_status(200);
    }
    assert!(upstream.get(&ada, PUBLIC).is_secondary_refusal());
}

#[test]
pub fn head_and_options_are_a_point_each() {
    let (mut upstream, ada) = unbounded();
    upstream.set_limit("points.rest", 50);
    upstream.assert_refuses_after("points of HEAD", 50, |upstream, _| {
        refusal_of(upstream, &TestRequest::new("HEAD", "/user").by(&ada))
    });
    upstream.pass(3_600);
    upstream.assert_refuses_after("points of OPTIONS", 50, |upstream, _| {
        upstream.send(&TestRequest::new("OPTIONS", "/user").by(&ada))
    });
}

/// A HEAD has no body to name its limit, so a GET of the same path follows its refusal.
fn refusal_of(upstream: &mut Upstream, head: &TestRequest) -> Answer {
    let answer = upstream.send(head);
    if answer.status != 403 {
        return answer;
    }
    assert!(answer.bytes.is_empty());
    let ada = upstream.classic("ada");
    upstream.get(&ada, "/user")
}

#[test]
pub fn writes_are_5_points_each() {
    for method in ["POST", "PATCH", "PUT", "DELETE"] {
        let (mut upstream, ada) = unbounded();
        let (limit, url_path, body) = match method {
            // A body that fails validation creates nothing, so the content limits do not apply.
            "POST" => ("points of POST", "/repos/acme/widgets/issues", json!({})),
            "PATCH" => ("points of PATCH", "/repos/acme/widgets/issues/1", json!({ "title": "t" })),
            "PUT" => ("points of PUT", "/notifications", json!({})),
            _ => ("points of DELETE", "/orgs/acme/hooks/999999", json!({})),
        };
        for name in ["content.minute", "content.hour"] {
            upstream.set_limit(name, PLENTY);
        }
        upstream.assert_refuses_after(limit, 180, |upstream, _| {
            upstream.send(&TestRequest::new(method, url_path).by(&ada).json(&body))
        });
    }
}

#[test]
pub fn graphql_has_2000_points_a_minute() {
    let (mut upstream, ada) = unbounded();
    upstream.assert_refuses_after("points of GraphQL without mutations", 2_000, |upstream, _| {
        graphql(upstream, &ada, QUERY)
    });
}

#[test]
pub fn a_graphql_mutation_is_5_points() {
    let (mut upstream, ada) = unbounded();
    for name in ["content.minute", "content.hour"] {
        upstream.set_limit(name, PLENTY);
    }
    upstream.assert_refuses_after("points of GraphQL with mutations", 400, |upstream, _| {
        graphql(upstream, &ada, MUTATION)
    });
}

/// Sends two requests a second, each with a second of CPU time.
fn two_a_second(
    upstream: &mut Upstream,
    n: u64,
    send: impl FnOnce(&mut Upstream) -> Answer,
) -> Answer {
    if n > 0 && n.is_multiple_of(2) {
        upstream.pass(1);
    }
    send(upstream)
}

#[test]
pub fn cpu_time_is_limited_to_90_seconds_a_minute() {
    let (mut upstream, ada) = unbounded();
    upstream.set_limit("cpu-micros.read", 1_000_000);
    upstream.assert_refuses_after("cpu", 90, |upstream, n| {
        two_a_second(upstream, n, |upstream| upstream.get(&ada, "/user"))
    });
    upstream.pass(120);
    upstream.get(&ada, "/user").expect_status(200);
}

#[test]
pub fn graphql_has_60_of_the_90_seconds() {
    let (mut upstream, ada) = unbounded();
    for name in ["cpu-micros.read", "cpu-micros.graphql"] {
        upstream.set_limit(name, 1_000_000);
    }
    upstream.assert_refuses_after("cpu of GraphQL", 60, |upstream, n| {
        two_a_second(upstream, n, |upstream| graphql(upstream, &ada, QUERY))
    });
}

#[test]
pub fn rest_and_graphql_share_the_cpu_time() {
    let (mut upstream, ada) = unbounded();
    for name in ["cpu-micros.read", "cpu-micros.graphql"] {
        upstream.set_limit(name, 1_000_000);
    }
    upstream.assert_refuses_after("cpu of both", 90, |upstream, n| {
        two_a_second(upstream, n, |upstream| {
            if n % 2 == 0 { graphql(upstream, &ada, QUERY) } else { upstream.get(&ada, "/user") }
        })
    });
}

#[test]
pub fn much_compute_in_a_short_time_may_be_limited() {
    let (mut upstream, ada) = unbounded();
    upstream.set_limit("cpu-micros.read", 10_000_000);
    let refused = (0..9).any(|_| upstream.get(&ada, "/user").is_secondary_refusal());
    assert!(refused, "80 seconds of compute at once are let through");
}

fn comment(upstream: &mut Upstream, token: &str, n: u64) -> Answer {
    upstream.post(token, COMMENTS, &json!({ "body": format!("Comment {n}") }))
}

#[test]
pub fn content_is_limited_to_80_requests_a_minute() {
    let (mut upstream, ada) = unbounded();
    upstream.assert_refuses_after("content.minute", 80, |upstream, n| comment(upstream, &ada, n));
    // Requests that create no content continue.
    let mut upstream = Upstream::new();
    for n in 0..80 {
        comment(&mut upstream, &ada, n).expect_status(201);
    }
    upstream.get(&ada, COMMENTS).expect_status(200);
    upstream.pass(60);
    comment(&mut upstream, &ada, 81).expect_status(201);
}

#[test]
pub fn content_is_limited_to_500_requests_an_hour() {
    let (mut upstream, ada) = unbounded();
    upstream.assert_refuses_after("content.hour", 500, |upstream, n| {
        if n > 0 && n % 50 == 0 {
            upstream.pass(61);
        }
        comment(upstream, &ada, n)
    });
}

#[test]
pub fn some_endpoints_have_lower_limits_on_content() {
    let (mut upstream, ada) = unbounded();
    let shown = upstream.get("", "/_emulator/limits").expect_status(200);
    let limits = shown.body["limits"].as_object().expect("limits by name");
    let lower = limits.iter().find(|(name, value)| {
        name.starts_with("content.minute@POST ") && value.as_u64() < Some(80)
    });
    let (name, value) = lower.expect("an endpoint with a lower limit");
    let url_path = name
        .trim_start_matches("content.minute@POST ")
        .replace("{owner}", "acme")
        .replace("{repo}", "widgets");
    let most = value.as_u64().unwrap_or(0);
    let received = |upstream: &mut Upstream, n: u64| {
        upstream.post(
            &ada,
            &url_path,
            &json!({ "tag_name": format!("v{n}"), "title": "t", "body": "b" }),
        )
    };
    let refused = (0..=most).map(|n| received(&mut upstream, n)).last().expect("at least one");
    assert!(refused.is_secondary_refusal(), "{url_path}: {}", refused.body);
}

#[test]
pub fn content_created_on_the_web_counts_too() {
    let (mut upstream, ada) = unbounded();
    for n in 0..80 {
        let made = json!({ "type": "comment", "repository": "acme/widgets", "number": 1, "actor": "ada", "text": format!("By hand {n}") });
        upstream.event(&made);
    }
    assert!(comment(&mut upstream, &ada, 81).is_secondary_refusal());
}

#[test]
pub fn access_token_requests_are_limited_to_2000_an_hour() {
    let (mut upstream, _) = unbounded();
    for name in ["points.rest", "cpu", "cpu.burst"] {
        upstream.set_limit(name, PLENTY);
    }
    let jwt = upstream.jwt();
    let url_path =
        format!("/app/installations/{}/access_tokens", upstream.installation_id(ORGANIZATION));
    upstream.assert_refuses_after("oauth tokens", 2_000, |upstream, _| {
        upstream.post(&jwt, &url_path, &Value::Null)
    });
}

#[test]
pub fn limits_change_without_notice() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    assert_eq!(upstream.get(&ada, "/user").expect_status(200).number("x-ratelimit-limit"), 5_000);
    assert_eq!(upstream.limit("core.user"), Some(5_000));
    upstream.set_limit("core", 100);
    let next = upstream.get(&ada, "/user").expect_status(200);
    assert_eq!((next.number("x-ratelimit-limit"), next.remaining()), (100, 98));
}

#[test]
pub fn a_304_counts_against_the_secondary_limits_only() {
    let (mut upstream, ada) = unbounded();
    upstream.set_limit("points.rest", 10);
    let first = upstream.get(&ada, "/notifications").expect_status(200);
    let conditional = TestRequest::new("GET", "/notifications")
        .by(&ada)
        .header("if-modified-since", first.header("last-modified"));
    for _ in 0..9 {
        upstream.send(&conditional).expect_status(304);
    }
    assert!(upstream.send(&conditional).is_secondary_refusal());
}
