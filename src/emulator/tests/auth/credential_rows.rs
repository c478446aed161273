//! Tests every documented row about authentication and errors, and the reach of each kind of token
//! (SPECIFICATION, "Credentials" and "Errors").

use std::collections::BTreeSet;
use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use super::apps::{INITECH, initech_jwt};
use crate::emulator::accounts::Permissions;
use crate::emulator::tests::limits::primary::{IRIS_BY_APP, IRIS_BY_OAUTH, by_basic};
use crate::emulator::tests::*;

const PRIVATE: &str = "/repos/initech-labs/blueprints";
const NOT_CHOSEN: &str = "/repos/initech-labs/vault";
const STEP: &str = "emu_installation_workflow_step";

fn issue() -> Value {
    json!({ "title": "x" })
}

#[test]
fn bearer_and_token_are_the_accepted_schemes() {
    let mut upstream = Upstream::new();
    for (scheme, status) in [
        ("Bearer", 200),
        ("bearer", 200),
        ("token", 200),
        ("TOKEN", 200),
        ("Digest", 401),
        ("Bearer,token", 401),
    ] {
        let header = format!("{scheme} {ADA}");
        upstream
            .send(&request(
                Method::GET,
                NOBODY,
                "/user",
                &[("authorization", &header)],
                &Value::Null,
            ))
            .assert_status(status);
    }
    let twice = request(
        Method::GET,
        ADA,
        "/user",
        &[("authorization", &format!("Bearer {BEN}"))],
        &Value::Null,
    );
    upstream.send(&twice).assert_status(401);
}

#[test]
fn an_expired_or_revoked_token_is_a_bad_credential_everywhere() {
    let mut upstream = Upstream::new();
    for token in ["emu_classic_expired", "emu_classic_revoked"] {
        for path in ["/user", "/repos/acme/widgets", "/rate_limit", "/nothing/here"] {
            let answer = upstream.get(token, path).assert_status(401);
            assert_eq!(
                (answer.body["message"].as_str(), answer.header("x-ratelimit-limit")),
                (Some("Bad credentials"), "60")
            );
        }
        upstream.post(token, "/graphql", &json!({ "query": "{viewer{login}}" })).assert_status(401);
    }
}

#[test]
fn a_workflow_step_token_expires_after_60_minutes() {
    let mut upstream = Upstream::new();
    upstream.now = START;
    upstream.post(STEP, "/repos/acme/widgets/issues", &issue()).assert_status(201);
    upstream.get(STEP, "/repos/acme/gadgets").assert_status(404);
    upstream.pass(3_599);
    upstream.get(STEP, "/repos/acme/widgets").assert_status(200);
    upstream.pass(1);
    upstream.get(STEP, "/repos/acme/widgets").assert_status(401);
    upstream.get(WORKFLOW, "/repos/acme/widgets").assert_status(200);
}

#[test]
fn a_workflow_token_is_limited_to_one_repository() {
    let mut upstream = Upstream::new();
    upstream.post(WORKFLOW, "/repos/acme/widgets/issues", &issue()).assert_status(201);
    upstream.post(WORKFLOW, "/repos/acme/sprockets/issues", &issue()).assert_status(403);
    upstream.get("emu_workflow_blueprints", PRIVATE).assert_status(200);
    upstream.get("emu_workflow_blueprints", NOT_CHOSEN).assert_status(404);
    upstream.get(WORKFLOW, "/orgs/acme/hooks").assert_status(403);
}

#[test]
fn an_app_user_token_needs_the_rights_of_both_app_and_user() {
    let mut upstream = Upstream::new();
    upstream.get(IRIS_BY_APP, PRIVATE).assert_status(200);
    upstream.post(IRIS_BY_APP, &format!("{PRIVATE}/issues"), &issue()).assert_status(201);
    upstream.patch(IRIS_BY_APP, PRIVATE, &json!({ "description": "x" })).assert_status(403);
    upstream.patch(IRIS_BY_OAUTH, PRIVATE, &json!({ "description": "x" })).assert_status(200);
    upstream.get("emu_app_user_dan", PRIVATE).assert_status(404);
    upstream.get(IRIS_BY_APP, "/orgs/initech-labs/hooks").assert_status(403);
}

#[test]
fn an_app_user_token_reaches_only_installed_repositories() {
    let mut upstream = Upstream::new();
    upstream.get("emu_classic_iris", NOT_CHOSEN).assert_status(200);
    upstream.get(IRIS_BY_APP, NOT_CHOSEN).assert_status(404);
    // Ben may push to this one, but his app is not installed there.
    upstream.get(BEN, PRIVATE).assert_status(200);
    upstream.get("emu_app_user_ben", PRIVATE).assert_status(404);
    upstream.get("emu_app_user_ben", "/repos/initech-labs/staplers").assert_status(200);
    upstream
        .post("emu_app_user_ben", "/repos/initech-labs/staplers/issues", &issue())
        .assert_status(403);
    upstream.post(BEN, "/repos/initech-labs/staplers/issues", &issue()).assert_status(201);
    let seen = upstream.get(IRIS_BY_APP, "/user/repos").assert_status(200);
    let names: Vec<_> = seen.items().iter().map(|one| one["name"].clone()).collect();
    assert_eq!(names, [json!("blueprints"), json!("staplers")]);
}

#[test]
fn an_app_user_token_loses_access_without_an_installation() {
    let mut upstream = Upstream::new();
    let world = &mut upstream.emulator.state.world;
    let position = world.token_positions[IRIS_BY_APP];
    Arc::make_mut(&mut world.tokens[position]).permissions = Permissions::All;
    upstream.get(IRIS_BY_APP, "/orgs/initech-labs/hooks").assert_status(200);
    upstream.emulator.state.world.apps.iter_mut().for_each(|app| app.installations.clear());
    upstream.get(IRIS_BY_APP, "/orgs/initech-labs/hooks").assert_status(403);
    upstream.get(IRIS_BY_APP, PRIVATE).assert_status(404);
}

#[test]
fn an_installation_token_reaches_the_chosen_repositories() {
    let mut upstream = Upstream::new();
    upstream.get(INITECH, PRIVATE).assert_status(200);
    upstream.get(INITECH, NOT_CHOSEN).assert_status(404);
    upstream.get(INITECH, "/repos/acme/gadgets").assert_status(404);
    upstream.post(INITECH, "/repos/acme/widgets/issues", &issue()).assert_status(403);
    let listed = upstream.get(INITECH, "/orgs/initech-labs/repos").assert_status(200);
    assert_eq!(listed.items().len(), 2);
    assert_eq!(
        upstream.get(INITECH, "/search/issues?q=repo:initech-labs/vault").body["total_count"],
        0
    );
}

#[test]
fn a_collaborator_sees_and_pushes_to_one_private_repository() {
    let mut upstream = Upstream::new();
    upstream.get(BEN, PRIVATE).assert_status(200);
    let seen = upstream.get(BEN, PRIVATE).body["permissions"].clone();
    assert_eq!(seen, json!({ "admin": false, "push": true, "pull": true }));
    upstream.patch(BEN, PRIVATE, &json!({ "description": "x" })).assert_status(403);
    upstream.get(BEN, NOT_CHOSEN).assert_status(404);
    upstream.get(ADA, PRIVATE).assert_status(404);
    let mine = upstream.get(BEN, "/user/repos?per_page=100").assert_status(200);
    assert!(mine.items().iter().any(|one| one["name"] == "blueprints"));
}

#[test]
fn private_repositories_need_the_scope_repo_or_the_permission() {
    let mut upstream = Upstream::new();
    for (token, status) in [
        (ADA, 200),
        (OAUTH, 200),
        (ADA_FINE, 200),
        (ADA_NO_SCOPES, 404),
        (ADA_NO_PERMISSIONS, 404),
        (NOBODY, 404),
    ] {
        upstream.get(token, "/repos/acme/gadgets").assert_status(status);
    }
}

#[test]
fn every_rest_answer_states_the_required_permissions() {
    let mut upstream = Upstream::new();
    let etag = upstream.get(ADA, "/repos/acme/widgets").header("etag").to_owned();
    upstream.set_limit("core@ben", 0);
    let jwt = initech_jwt(&upstream);
    for (token, path, headers, status) in [
        (ADA, "/repos/acme/widgets", &[][..], 200),
        (ADA, "/repos/acme/widgets", &[("if-none-match", etag.as_str())][..], 304),
        (ADA, "/repos/acme/nothing", &[][..], 404),
        (ADA, "/nothing/here", &[][..], 404),
        ("wrong", "/repos/acme/widgets", &[][..], 401),
        (BEN, "/repos/acme/widgets", &[][..], 403),
        (ADA, "/repos/acme/cogs", &[][..], 301),
        (INSTALLATION, "/user", &[][..], 403),
        (NOBODY, "/app", &[][..], 401),
        (&jwt, "/app", &[][..], 200),
        (ADA, "/rate_limit", &[][..], 200),
        (ADA, "/repos/acme/widgets", &[("x-service-api-version", "1999-01-01")][..], 400),
    ] {
        let answer = upstream.get_with(token, path, headers).assert_status(status);
        let accepted_permissions = answer
            .headers
            .get("x-accepted-service-permissions")
            .unwrap_or_else(|| panic!("{path} {status}"));
        if path == "/repos/acme/widgets" {
            assert_eq!(accepted_permissions, "metadata=read", "{status}");
        }
    }
    let mut github = Upstream::github();
    assert_eq!(
        github.get(ADA, "/orgs/acme/hooks").header("x-accepted-github-permissions"),
        "organization_hooks=read"
    );
}

#[test]
fn answers_to_classic_and_oauth_tokens_state_the_scopes() {
    let mut upstream = Upstream::new();
    upstream.set_limit("core@ben", 0);
    for (token, path, status, accepted) in [
        (ADA, "/orgs/acme/hooks", 200, "admin:org_hook"),
        (ADA, "/repos/acme/nothing", 404, "repo"),
        (BEN, "/repos/acme/widgets", 403, "repo"),
        (OAUTH, "/notifications", 403, "notifications, repo"),
        (ADA, "/user", 200, ""),
    ] {
        let answer = upstream.get(token, path).assert_status(status);
        assert!(answer.header("x-oauth-scopes").contains("repo"), "{path}");
        assert_eq!(
            answer.headers.get("x-accepted-oauth-scopes").and_then(|value| value.to_str().ok()),
            Some(accepted),
            "{path}"
        );
    }
    assert_eq!(
        upstream
            .get(ADA_NO_SCOPES, "/user")
            .headers
            .get("x-oauth-scopes")
            .map(http::HeaderValue::as_bytes),
        Some(&b""[..])
    );
    let graphql = upstream.post(ADA, "/graphql", &json!({ "query": "{viewer{login}}" }));
    assert!(graphql.header("x-oauth-scopes").contains("repo"));
    for token in [ADA_FINE, INSTALLATION, WORKFLOW, NOBODY, "wrong"] {
        assert!(
            !upstream.get(token, "/users/ada").headers.contains_key("x-oauth-scopes"),
            "{token}"
        );
    }
}

#[test]
fn a_304_costs_no_budget_but_a_401_does() {
    let mut upstream = Upstream::new();
    let etag = upstream.get(NOBODY, "/users/ada").header("etag").to_owned();
    assert_eq!(
        upstream
            .get_with(NOBODY, "/users/ada", &[("if-none-match", &etag)])
            .assert_status(304)
            .remaining(),
        59
    );
    assert_eq!(
        upstream
            .get_with("wrong", "/users/ada", &[("if-none-match", &etag)])
            .assert_status(401)
            .remaining(),
        58
    );
    let etag = upstream.get("emu_workflow_blueprints", "/users/ada").header("etag").to_owned();
    let free = upstream
        .get_with("emu_workflow_blueprints", "/users/ada", &[("if-none-match", &etag)])
        .assert_status(304);
    assert_eq!(free.remaining(), 14_999);
}

#[test]
fn the_emulator_produces_every_status_of_the_errors_table() {
    let mut upstream = Upstream::new();
    let etag = upstream.get(ADA, "/user").header("etag").to_owned();
    let thread =
        upstream.get(ADA, "/notifications").items()[0]["id"].as_str().expect("an id").to_owned();
    let hooks = upstream.get(ADA, "/orgs/acme/hooks").assert_status(200);
    let deliveries = format!("/orgs/acme/hooks/{}/deliveries", hooks.items()[0]["id"]);
    let delivery = upstream.get(ADA, &deliveries).assert_status(200).items()[0]["id"].clone();
    let label = "/repos/acme/widgets/labels/bug";
    let mut seen: BTreeSet<u16> = [
        upstream.get(ADA, "/user"),
        upstream.post(ADA, "/repos/acme/widgets/issues", &issue()),
        upstream.post(ADA, &format!("{deliveries}/{delivery}/attempts"), &Value::Null),
        upstream.delete(ADA, label),
        upstream.patch(ADA, &format!("/notifications/threads/{thread}"), &Value::Null),
        upstream.get_with(ADA, "/user", &[("if-none-match", &etag)]),
        upstream.post(ADA, "/repos/acme/widgets/issues", &json!([])),
        upstream.get(NOBODY, "/user"),
        upstream.get(INSTALLATION, "/user"),
        upstream.get(ADA, "/nothing"),
        upstream.post(ADA, "/repos/acme/widgets/issues", &json!({})),
    ]
    .map(|answer| answer.status)
    .into();
    upstream.set_limit("refusal.status", 429);
    upstream.set_limit("core", 0);
    seen.insert(upstream.get(ADA, "/user").status);
    // 302 is the archive of a migration.
    assert_eq!(seen, BTreeSet::from([200, 201, 202, 204, 205, 304, 400, 401, 403, 404, 422, 429]));
}

#[test]
fn basic_carries_a_token_as_password_or_user() {
    let mut upstream = Upstream::new();
    for credential in [format!("ada:{ADA}"), format!("{ADA}:x-oauth-basic"), format!("{ADA}:")] {
        upstream
            .send(&by_basic(Method::GET, &credential, "/user", &Value::Null))
            .assert_status(200);
    }
    for credential in [
        ":",
        "emu_client_id:",
        ":emu_client_secret",
        "emu_client_secret:emu_client_id",
        "no colon",
        "ü:🦀",
    ] {
        upstream
            .send(&by_basic(Method::GET, credential, "/users/ada", &Value::Null))
            .assert_status(401);
    }
}
