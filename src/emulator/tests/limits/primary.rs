//! Tests the primary limit of every kind of caller, in the headers and in `GET /rate_limit`
//! (SPECIFICATION, "Primary rate limits").

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::{Method, Request};
use serde_json::{Value, json};

use crate::emulator::tests::*;

pub const IRIS: &str = "emu_classic_iris";
pub const IRIS_BY_APP: &str = "emu_app_user_iris";
pub const IRIS_BY_OAUTH: &str = "emu_oauth_iris";

pub fn by_basic(method: Method, credential: &str, path: &str, body: &Value) -> Request<Bytes> {
    use base64::Engine;
    let encoded = base64::engine::general_purpose::STANDARD.encode(credential);
    request(method, NOBODY, path, &[("authorization", &format!("Basic {encoded}"))], body)
}

/// Returns the limit in the headers of a response, and the one of `GET /rate_limit`.
fn limits(upstream: &mut Upstream, token: &str) -> (u64, u64) {
    let shown = upstream.get(token, "/users/ada").assert_status(200);
    let status = upstream.get(token, "/rate_limit").assert_status(200);
    assert_eq!(shown.header("x-ratelimit-resource"), "core");
    (
        shown.header("x-ratelimit-limit").parse().expect("a number"),
        status.body["resources"]["core"]["limit"].as_u64().expect("a number"),
    )
}

fn used(upstream: &mut Upstream, token: &str) -> u64 {
    upstream.get(token, "/rate_limit").body["rate"]["used"].as_u64().expect("a number")
}

#[test]
fn every_caller_of_the_table_has_its_limit() {
    let mut upstream = Upstream::new();
    for (token, limit) in [
        (NOBODY, 60),
        (ADA, 5_000),
        (ADA_FINE, 5_000),
        (OAUTH, 5_000),
        ("emu_app_user_ben", 5_000),
        (IRIS, 5_000),
        (IRIS_BY_APP, 15_000),
        (IRIS_BY_OAUTH, 15_000),
        (INSTALLATION, 5_000),
        ("emu_installation_initech", 15_000),
        (WORKFLOW, 1_000),
        ("emu_workflow_blueprints", 15_000),
    ] {
        assert_eq!(limits(&mut upstream, token), (limit, limit), "{token}");
    }
    for (credential, limit) in [
        ("emu_client_id:emu_client_secret", "5000"),
        ("emu_initech_client_id:emu_initech_client_secret", "15000"),
    ] {
        let answer = upstream
            .send(&by_basic(Method::GET, credential, "/users/ada", &Value::Null))
            .assert_status(200);
        assert_eq!(answer.header("x-ratelimit-limit"), limit);
    }
}

#[test]
fn the_unauthenticated_limit_is_per_originating_address() {
    let mut upstream = Upstream::new();
    let anonymous = request(Method::GET, NOBODY, "/users/ada", &[], &Value::Null);
    let mut remaining = |peer: IpAddr| {
        let response = upstream.emulator.respond(upstream.now, &anonymous, peer);
        response.headers()["x-ratelimit-remaining"].to_str().expect("text").to_owned()
    };
    assert_eq!(remaining(PEER), "59");
    assert_eq!(remaining(PEER), "58");
    assert_eq!(remaining(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7))), "59");
    assert_eq!(remaining(IpAddr::V6(Ipv6Addr::LOCALHOST)), "59");
}

#[test]
fn a_request_by_a_higher_limit_app_costs_the_users_budget_too() {
    let mut upstream = Upstream::new();
    assert_eq!(upstream.get(IRIS_BY_APP, "/user").assert_status(200).remaining(), 14_999);
    assert_eq!(upstream.get(IRIS, "/user").assert_status(200).remaining(), 4_998);
    assert_eq!(
        upstream.get(IRIS_BY_OAUTH, "/user").assert_status(200).remaining(),
        14_999,
        "each app has a budget of its own for her"
    );
    assert_eq!(used(&mut upstream, IRIS), 3);
    assert_eq!(used(&mut upstream, IRIS_BY_APP), 1, "a request of her own is not the app's");
}

#[test]
fn a_higher_limit_app_outlasts_the_budget_of_its_user() {
    let mut upstream = Upstream::new();
    upstream.set_limit("core.user", 3);
    for _ in 0..5 {
        upstream.get(IRIS_BY_APP, "/user").assert_status(200);
    }
    let refused = upstream.get(IRIS, "/user").assert_status(403);
    assert_eq!(
        (refused.remaining(), refused.header("x-ratelimit-used")),
        (0, "3"),
        "down to 0, not below"
    );
    assert_eq!(upstream.get(IRIS_BY_APP, "/user").assert_status(200).remaining(), 15_000 - 6);
    let usage = upstream.usage();
    let windows = usage["windows"].as_array().expect("a list");
    let used = |account: &str| {
        windows
            .iter()
            .find(|window| window["account"] == account)
            .map(|window| window["used"].clone())
    };
    assert_eq!((used("iris"), used("iris-by-app-351")), (Some(json!(3)), Some(json!(6))));
    upstream.set_limit("core.enterprise-app-user", 6);
    let refused = upstream.get(IRIS_BY_APP, "/user").assert_status(403);
    assert_eq!(refused.body["message"], "API rate limit exceeded for user ID 151.");
}

#[test]
fn an_app_user_token_shares_the_budget_of_its_user() {
    let mut upstream = Upstream::new();
    assert_eq!(upstream.get("emu_app_user_ben", "/user").remaining(), 4_999);
    assert_eq!(upstream.get(BEN, "/user").remaining(), 4_998);
}

#[test]
fn an_app_acting_for_a_non_member_has_the_usual_limit() {
    let mut upstream = Upstream::new();
    assert_eq!(limits(&mut upstream, "emu_app_user_dan"), (5_000, 5_000));
    assert_eq!(upstream.get(DAN, "/user").remaining(), 4_998, "it is Dan's own budget");
}

#[test]
fn a_free_or_unchanged_answer_consumes_neither_budget() {
    let mut upstream = Upstream::new();
    let etag = upstream.get(IRIS_BY_APP, "/user").header("etag").to_owned();
    upstream.get_with(IRIS_BY_APP, "/user", &[("if-none-match", &etag)]).assert_status(304);
    upstream.get(IRIS_BY_APP, "/rate_limit").assert_status(200);
    assert_eq!((used(&mut upstream, IRIS), used(&mut upstream, IRIS_BY_APP)), (1, 1));
}

#[test]
fn an_installation_limit_grows_by_50_beyond_20_repositories() {
    let limit = |repositories| {
        limits(&mut Upstream::with(Options { repositories, ..Options::default() }), INSTALLATION).0
    };
    assert_eq!(limit(20), 5_000);
    let owned =
        |repositories: u64| (6..repositories).filter(|index| index % 9 != 0).count() as u64 + 3;
    assert_eq!(limit(60), 5_000 + 50 * (owned(60) - 20));
    assert_eq!(limit(1_000), 12_500);
}

#[test]
fn an_enterprise_cloud_installation_is_not_scaled() {
    let mut upstream = Upstream::new();
    upstream.set_limit("core.installation-free", 0);
    assert_eq!(limits(&mut upstream, INSTALLATION).0, 5_000 + 50 * (17 + 6 - 2));
    assert_eq!(limits(&mut upstream, "emu_installation_initech").0, 15_000);
}

#[test]
fn workflow_tokens_are_counted_by_repository() {
    let mut upstream = Upstream::new();
    assert_eq!(upstream.get(WORKFLOW, "/users/ada").remaining(), 999);
    assert_eq!(upstream.get(INSTALLATION, "/users/ada").remaining(), 4_999);
    assert_eq!(upstream.get("emu_workflow_blueprints", "/users/ada").remaining(), 14_999);
}

#[test]
fn rate_limit_lists_every_resource_and_no_secondary_limit() {
    let mut upstream = Upstream::new();
    let body = upstream.get(ADA, "/rate_limit").assert_status(200).body;
    let resources = body["resources"].as_object().expect("an object");
    for name in [
        "core",
        "search",
        "code_search",
        "graphql",
        "integration_manifest",
        "source_import",
        "code_scanning_upload",
        "code_scanning_autofix",
        "actions_runner_registration",
        "scim",
        "dependency_snapshots",
        "dependency_sbom",
        "audit_log",
        "audit_log_streaming",
        "lfs",
    ] {
        let one = &resources[name];
        assert!(
            one["limit"].as_u64() > Some(0) && one["used"] == 0 && one["reset"].is_u64(),
            "{name} {one}"
        );
        assert_eq!((&one["remaining"], &one["resource"]), (&one["limit"], &json!(name)));
    }
    assert_eq!(resources.len(), 15, "the secondary limit status cannot be queried");
    for word in ["concurrency", "points", "content", "cpu", "oauth"] {
        assert!(!body.to_string().contains(word), "{word}");
    }
}

#[test]
fn a_changed_limit_applies_at_once() {
    let mut upstream = Upstream::new();
    for _ in 0..3 {
        upstream.get(ADA, "/user").assert_status(200);
    }
    upstream.set_limit("core.user", 2);
    let refused = upstream.get(ADA, "/user").assert_status(403);
    assert_eq!((refused.header("x-ratelimit-limit"), refused.remaining()), ("2", 0));
    upstream.set_limit("core.user", 4);
    assert_eq!(upstream.get(ADA, "/user").assert_status(200).remaining(), 0);
}
