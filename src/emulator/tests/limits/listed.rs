//! Tests the limits of the endpoint table's routes, and alternatives of permissions.

use std::sync::Arc;

use serde_json::json;

use crate::api::TokenKind;
use crate::emulator::accounts::{AccountId, Level, Permissions, Token, TokenStatus};
use crate::emulator::tests::*;

fn with_permissions(
    upstream: &mut Upstream,
    value: &str,
    granted: &[(&'static str, Level)],
) -> String {
    let token = Token {
        value: value.to_owned(),
        kind: TokenKind::FineGrained,
        account: AccountId::User(101),
        user: Some(101),
        permissions: Permissions::Only(granted.iter().copied().collect()),
        status: TokenStatus::Valid,
        ..Token::clone(&Arc::clone(&upstream.emulator.state.world.tokens[0]))
    };
    upstream.emulator.state.world.add_token(token);
    value.to_owned()
}

#[test]
fn either_of_two_listed_permissions_opens_an_endpoint() {
    let mut upstream = Upstream::new();
    let path = "/orgs/acme/assistant/billing/seats";
    for (value, name) in
        [("one", "organization_administration"), ("two", "organization_assistant_seat_management")]
    {
        let token = with_permissions(&mut upstream, value, &[(name, Level::Read)]);
        let seats = upstream.get(&token, path).assert_status(200);
        assert_eq!(seats.body["seats"], json!([]));
        let accepted =
            "organization_administration=read; organization_assistant_seat_management=read";
        assert_eq!(seats.header("x-accepted-service-permissions"), accepted);
    }
    let other = with_permissions(
        &mut upstream,
        "three",
        &[("organization_hooks", Level::Admin), ("members", Level::Admin)],
    );
    upstream.get(&other, path).assert_status(403);
    let reads =
        with_permissions(&mut upstream, "four", &[("organization_administration", Level::Read)]);
    upstream
        .post(
            &reads,
            "/orgs/acme/assistant/billing/selected_users",
            &json!({ "selected_usernames": ["ben"] }),
        )
        .assert_status(403);
}

#[test]
fn a_permission_opens_its_level_and_the_ones_below_it() {
    let mut upstream = Upstream::new();
    let reads = with_permissions(
        &mut upstream,
        "reads",
        &[("organization_self_hosted_runners", Level::Read)],
    );
    let writes = with_permissions(
        &mut upstream,
        "writes",
        &[("organization_self_hosted_runners", Level::Write)],
    );
    for token in [&reads, &writes] {
        upstream.get(token, "/orgs/acme/actions/runner-groups").assert_status(200);
        upstream.get(token, "/orgs/acme/actions/permissions").assert_status(403);
    }
    let group = json!({ "name": "builders" });
    upstream.post(&reads, "/orgs/acme/actions/runner-groups", &group).assert_status(403);
    upstream.post(&writes, "/orgs/acme/actions/runner-groups", &group).assert_status(201);
    // All routes of rulesets take write access, the reading ones too.
    let administers = with_permissions(
        &mut upstream,
        "administers",
        &[("organization_administration", Level::Read)],
    );
    upstream.get(&administers, "/orgs/acme/rulesets").assert_status(403);
}

#[test]
fn the_product_segment_depends_on_the_dialect() {
    let mut upstream = Upstream::github();
    let segment = Dialect::Github.assistant_segment();
    upstream.get(ADA, &format!("/orgs/acme/{segment}/billing")).assert_status(200);
    upstream.get(ADA, "/orgs/acme/assistant/billing").assert_status(404);
    let header =
        format!("organization_administration=read; organization_{segment}_seat_management=read");
    assert_eq!(
        upstream
            .get(ADA, &format!("/orgs/acme/members/ben/{segment}"))
            .header("x-accepted-github-permissions"),
        header
    );
}

#[test]
fn an_endpoint_uses_the_resource_and_points_of_the_table() {
    let mut upstream = Upstream::new();
    let sarif = json!({ "commit_sha": "main", "ref": "refs/heads/main", "sarif": "e30=" });
    let sent =
        upstream.post(ADA, "/repos/acme/widgets/code-scanning/sarifs", &sarif).assert_status(202);
    assert_eq!(
        (sent.header("x-ratelimit-resource"), sent.header("x-ratelimit-limit")),
        ("code_scanning_upload", "500")
    );
    let registered = upstream
        .post(ADA, "/orgs/acme/actions/runners/registration-token", &Value::Null)
        .assert_status(201);
    assert_eq!(registered.header("x-ratelimit-resource"), "actions_runner_registration");
    upstream.get(ADA, "/orgs/acme/actions/runners").assert_status(200);
    let points: Vec<u32> =
        upstream.emulator.transcript(0).iter().map(|entry| entry.points).collect();
    assert_eq!(points, [5, 5, 1]);
}

#[test]
fn a_gist_counts_as_content_and_a_deployment_does_not() {
    let mut upstream = Upstream::new();
    upstream.set_limit("content.minute", 2);
    let gist = json!({ "files": { "a": { "content": "b" } } });
    for _ in 0..2 {
        upstream.post(ADA, "/gists", &gist).assert_status(201);
    }
    let refused = upstream.post(ADA, "/gists", &gist).assert_status(403);
    assert!(
        refused.body["message"]
            .as_str()
            .is_some_and(|message| message.contains("content creation"))
    );
    upstream.pass(3_600);
    for _ in 0..4 {
        upstream
            .post(ADA, "/repos/acme/widgets/deployments", &json!({ "ref": "main" }))
            .assert_status(201);
    }
}

#[test]
fn each_endpoint_of_the_table_has_its_own_points() {
    let mut upstream = Upstream::new();
    upstream.set_limit("points.rest", 2);
    for _ in 0..2 {
        upstream.get(ADA, "/orgs/acme/actions/permissions").assert_status(200);
        upstream.get(ADA, "/orgs/acme/actions/permissions/workflow").assert_status(200);
    }
    upstream.get(ADA, "/orgs/acme/actions/permissions").assert_status(403);
}
