//! Credentials: each kind with each of its rules, and its limits.

use serde_json::{Value, json};

use crate::callers::signed;
use crate::document_1::paths::{ORGANIZATION, PUBLIC, private_repository_of};
use crate::kit::{ANONYMOUS, Answer, TestRequest, Upstream};
use crate::shape::is_timestamp;

const APP_HOOK: &str = "/app/hook/config";
const TEAM: &str = "/orgs/acme/teams/platform/members";
const HOUR: u64 = 3_600;

/// A request with this text as `Authorization`.
fn as_written(upstream: &mut Upstream, url_path: &str, authorization: &str) -> Answer {
    upstream.send(&TestRequest::new("GET", url_path).header("authorization", authorization))
}

fn private_repository(upstream: &mut Upstream) -> String {
    format!("/repos/{}", private_repository_of(&upstream.world()))
}

#[test]
pub fn a_token_is_accepted_with_both_schemes() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    for scheme in ["Bearer", "bearer", "token", "Token"] {
        assert_eq!(
            as_written(&mut upstream, "/user", &format!("{scheme} {ada}")).expect_status(200).body
                ["login"],
            "ada"
        );
    }
    for wrong in ["Bearer emu_nobody", "Bearer", "Bearer ", "Digest x", "Negotiate x"] {
        let answer = as_written(&mut upstream, "/user", wrong).expect_status(401);
        assert!(!answer.message().is_empty());
    }
}

#[test]
pub fn a_jwt_must_use_bearer() {
    let mut upstream = Upstream::new();
    let jwt = upstream.jwt();
    as_written(&mut upstream, APP_HOOK, &format!("Bearer {jwt}")).expect_status(200);
    as_written(&mut upstream, APP_HOOK, &format!("token {jwt}")).expect_status(401);
}

#[test]
pub fn a_classic_token_is_bound_to_its_scopes() {
    let mut upstream = Upstream::new();
    let (all, none) = (upstream.classic("ada"), upstream.classic_without_scopes("ada"));
    upstream.get(&all, "/notifications").expect_status(200);
    upstream.get(&none, "/notifications").expect_status(403);
    upstream.get(&none, "/user").expect_status(200);
    let private = private_repository(&mut upstream);
    upstream.get(&all, &private).expect_status(200);
    upstream.get(&none, &private).expect_status(404);
}

#[test]
pub fn an_expired_or_unknown_token_is_refused() {
    let mut upstream = Upstream::new();
    let expired = upstream
        .token_where(|view| view.kind == "classic" && view.note.contains("expired"))
        .expect("an expired token");
    upstream.get(&expired, "/user").expect_status(401);
    // A bad credential is refused even where none is required.
    upstream.get("emu_nobody", PUBLIC).expect_status(401);
}

#[test]
pub fn a_fine_grained_token_needs_the_permission_of_the_endpoint() {
    let mut upstream = Upstream::new();
    let (all, none) =
        (upstream.token("fine-grained", "ada"), upstream.fine_grained_without_permissions());
    for url_path in [TEAM, "/orgs/acme/hooks", "/orgs/acme/actions/permissions"] {
        upstream.get(&all, url_path).expect_status(200);
        let refused = upstream.get(&none, url_path).expect_status(403);
        assert!(refused.header("x-accepted-service-permissions").contains("=read"), "{url_path}");
    }
}

#[test]
pub fn an_app_user_token_has_the_users_and_the_apps_limits() {
    let mut upstream = Upstream::new();
    let user = upstream.token("app-user", "ben");
    assert_eq!(upstream.get(&user, "/user").expect_status(200).body["login"], "ben");
    let made = upstream
        .post(&user, "/repos/acme/widgets/issues", &json!({ "title": "By ben's app" }))
        .expect_status(201);
    assert_eq!(made.body["user"]["login"], "ben");
    // Ben is a member and may; an app user token without the permission may not.
    let ben = upstream.classic("ben");
    upstream.get(&ben, TEAM).expect_status(200);
    let without = |permission: &'static str| {
        move |view: &weir::emulator::TokenView| {
            view.kind == "app-user" && !view.permissions.contains_key(permission)
        }
    };
    let bounded = upstream
        .token_where(without("members"))
        .expect("an app user token without the members permission");
    upstream.get(&bounded, TEAM).expect_status(403);
    // The app's permission does not extend the user's: hooks need an owner.
    let hooks = upstream.get(&user, "/orgs/acme/hooks");
    assert!([403, 404].contains(&hooks.status), "{}", hooks.status);
}

/// Mints a token with this JWT and body.
fn mint(upstream: &mut Upstream, jwt: &str, body: &Value) -> Answer {
    let path =
        format!("/app/installations/{}/access_tokens", upstream.installation_id(ORGANIZATION));
    upstream.post(jwt, &path, body)
}

#[test]
pub fn an_app_creates_a_token_for_its_installation() {
    let mut upstream = Upstream::new();
    let jwt = upstream.jwt();
    let minted = mint(&mut upstream, &jwt, &json!({})).expect_status(201);
    assert!(minted.body["expires_at"].as_str().is_some_and(is_timestamp), "{}", minted.body);
    let token = upstream.installation_with(ORGANIZATION, &[("members", "read")]);
    upstream.get(&token, TEAM).expect_status(200);
    upstream.get(&token, "/orgs/acme/hooks").expect_status(403);
    // The token acts for the installation, not for a user, and only where the app is installed.
    for elsewhere in ["/user", "/orgs/globex/teams"] {
        let refused = upstream.get(&token, elsewhere);
        assert!([403, 404].contains(&refused.status), "{elsewhere}: {}", refused.status);
    }
    // Only the app itself creates tokens.
    for other in [upstream.classic("ada"), token, upstream.token("app-user", "ben")] {
        let refused = mint(&mut upstream, &other, &json!({}));
        assert!([401, 403].contains(&refused.status), "{}", refused.status);
    }
    upstream.post(&jwt, "/app/installations/999999/access_tokens", &json!({})).expect_status(404);
}

#[test]
pub fn a_minted_token_expires_after_60_minutes() {
    let mut upstream = Upstream::new();
    let token = upstream.installation_with(ORGANIZATION, &[("members", "read")]);
    upstream.pass(HOUR - 1);
    upstream.get(&token, TEAM).expect_status(200);
    upstream.pass(1);
    upstream.get(&token, TEAM).expect_status(401);
}

#[test]
pub fn narrowing_never_widens() {
    let mut upstream = Upstream::new();
    let jwt = upstream.jwt();
    for wrong in [
        json!({ "permissions": { "members": "everything" } }),
        json!({ "permissions": [] }),
        json!({ "permissions": { "members": 1 } }),
    ] {
        mint(&mut upstream, &jwt, &wrong).expect_status(422);
    }
}

#[test]
pub fn app_endpoints_take_a_jwt_and_reject_other_tokens() {
    let mut upstream = Upstream::new();
    let jwt = upstream.jwt();
    upstream.get(&jwt, APP_HOOK).expect_status(200);
    upstream.get(&jwt, "/app/hook/deliveries").expect_status(200);
    let others = [
        upstream.classic("ada"),
        upstream.token("fine-grained", "ada"),
        upstream.token("app-user", "ben"),
        upstream.installation(ORGANIZATION),
        ANONYMOUS.to_owned(),
    ];
    for other in others {
        let refused = upstream.get(&other, APP_HOOK);
        assert!([401, 403].contains(&refused.status), "{}", refused.status);
    }
}

#[test]
pub fn a_jwt_of_the_wrong_time_key_or_app_is_refused() {
    let mut upstream = Upstream::new();
    for (issued, expires) in [(-700, -100), (-60, 1_200)] {
        let jwt = upstream.jwt_from(issued, expires);
        upstream.get(&jwt, APP_HOOK).expect_status(401);
    }
    let jwt = upstream.jwt();
    upstream.get(&format!("{}AAAA", &jwt[..jwt.len() - 4]), APP_HOOK).expect_status(401);
    let key = upstream.world()["apps"][0]["private_key"].as_str().expect("the key").to_owned();
    let now = upstream.now.as_secs();
    let foreign = signed(
        &key,
        &json!({ "alg": "RS256" }),
        &json!({ "iss": "999999", "iat": now, "exp": now + 60 }),
    );
    upstream.get(&foreign, APP_HOOK).expect_status(401);
    let unsigned = signed(
        &key,
        &json!({ "alg": "none" }),
        &json!({ "iss": "301", "iat": now, "exp": now + 60 }),
    );
    upstream.get(&unsigned, APP_HOOK).expect_status(401);
    // The right token succeeds, and it is no user.
    upstream.get(&jwt, APP_HOOK).expect_status(200);
    let user = upstream.get(&jwt, "/user");
    assert!([401, 403].contains(&user.status), "{}", user.status);
}

#[test]
pub fn a_workflow_token_has_a_rate_limit_of_its_own() {
    let mut upstream = Upstream::new();
    let workflow = upstream.token_where(|view| view.kind == "workflow").expect("a workflow token");
    let ada = upstream.classic("ada");
    let before = upstream.get(&ada, PUBLIC).expect_status(200).remaining();
    upstream.get(&workflow, PUBLIC).expect_status(200);
    let own = upstream.get(&workflow, PUBLIC).expect_status(200);
    assert_eq!(own.number("x-ratelimit-used"), 2);
    assert_eq!(upstream.get(&ada, PUBLIC).remaining(), before - 1);
}

#[test]
pub fn an_oauth_apps_token_acts_as_the_user() {
    let mut upstream = Upstream::new();
    let token = upstream.token("oauth", "ada");
    assert_eq!(upstream.get(&token, "/user").expect_status(200).body["login"], "ada");
    let private = private_repository(&mut upstream);
    upstream.get(&token, &private).expect_status(200);
    // Only classic personal tokens reach notifications (SPECIFICATION, "Notifications").
    upstream.get(&token, "/notifications").expect_status(403);
}

#[test]
pub fn an_oauth_app_reads_public_data_with_its_id_and_secret() {
    let mut upstream = Upstream::new();
    let world = upstream.world();
    let app = &world["oauth_apps"][0];
    let (id, secret) = (
        app["client_id"].as_str().expect("an id"),
        app["client_secret"].as_str().expect("a secret"),
    );
    let pair = format!("{id}:{secret}");
    upstream.get(&pair, PUBLIC).expect_status(200);
    let private = private_repository(&mut upstream);
    upstream.get(&pair, &private).expect_status(404);
    for (method, url_path) in
        [("GET", "/user"), ("POST", "/repos/acme/widgets/issues"), ("GET", APP_HOOK)]
    {
        let refused = upstream
            .send(&TestRequest::new(method, url_path).by(&pair).json(&json!({ "title": "t" })));
        assert!([401, 403].contains(&refused.status), "{method} {url_path}: {}", refused.status);
    }
    upstream.get(&format!("{id}:wrong"), PUBLIC).expect_status(401);
    upstream.get(&format!("nobody:{secret}"), PUBLIC).expect_status(401);
}

#[test]
pub fn the_client_secret_is_in_no_answer() {
    let mut upstream = Upstream::new();
    let world = upstream.world();
    let secret = world["oauth_apps"][0]["client_secret"].as_str().expect("a secret").to_owned();
    let ada = upstream.classic("ada");
    for url_path in ["/user", "/orgs/acme/hooks", "/rate_limit", "/orgs/acme/installations"] {
        let answer = upstream.get(&ada, url_path);
        assert!(!String::from_utf8_lossy(&answer.bytes).contains(&secret), "{url_path}");
    }
}

#[test]
pub fn a_request_without_a_credential_gets_public_data_only() {
    let mut upstream = Upstream::new();
    upstream.get(ANONYMOUS, PUBLIC).expect_status(200);
    upstream.get(ANONYMOUS, "/repos/acme/widgets/issues").expect_status(200);
    let private = private_repository(&mut upstream);
    upstream.get(ANONYMOUS, &private).expect_status(404);
    for url_path in ["/user", "/notifications", TEAM, "/orgs/acme/hooks", "/user/migrations"] {
        upstream.get(ANONYMOUS, url_path).expect_status(401);
    }
    upstream
        .post(ANONYMOUS, "/repos/acme/widgets/issues", &json!({ "title": "t" }))
        .expect_status(401);
}

/// Asserts that this scope opens the request and that a token without it is refused.
fn assert_scope(method: &str, url_path: &str, body: &Value) {
    let mut upstream = Upstream::new();
    let (all, none) = (upstream.classic("ada"), upstream.classic_without_scopes("ada"));
    let refused = upstream.send(&TestRequest::new(method, url_path).by(&none).json(body));
    assert!(
        [403, 404].contains(&refused.status),
        "{method} {url_path} without the scope: {}",
        refused.status
    );
    let allowed = upstream.send(&TestRequest::new(method, url_path).by(&all).json(body));
    assert!(
        (200..300).contains(&allowed.status),
        "{method} {url_path} with every scope: {} {}",
        allowed.status,
        allowed.body
    );
}

#[test]
pub fn read_org_opens_team_memberships() {
    assert_scope("GET", "/orgs/acme/teams/platform/memberships/cleo", &Value::Null);
}

#[test]
pub fn admin_org_opens_issue_field_definitions() {
    assert_scope(
        "POST",
        "/orgs/acme/issue-fields",
        &json!({ "name": "Size", "data_type": "text" }),
    );
    // A token that may only read the organization is refused.
    let mut upstream = Upstream::new();
    let reader = upstream.token_where(|view| {
        view.user.as_deref() == Some("ada")
            && view.scopes.contains(&"read:org")
            && !view.scopes.contains(&"admin:org")
    });
    let reader = reader.expect("a token with read:org alone");
    let refused = upstream.post(
        &reader,
        "/orgs/acme/issue-fields",
        &json!({ "name": "Size", "data_type": "text" }),
    );
    assert!([403, 404].contains(&refused.status), "{}", refused.status);
    upstream.get(&reader, "/orgs/acme/issue-fields").expect_status(200);
}

#[test]
pub fn admin_org_hook_opens_webhooks() {
    assert_scope("GET", "/orgs/acme/hooks", &Value::Null);
}

#[test]
pub fn the_enterprise_scopes_open_enterprise_teams() {
    let mut upstream = Upstream::new();
    let world = upstream.world();
    let enterprise = &world["enterprises"][0];
    let team = enterprise["teams"][0]["slug"].as_str().expect("an enterprise with a team");
    let list = format!(
        "/enterprises/{}/teams/{team}/organizations",
        enterprise["slug"].as_str().unwrap_or_default()
    );
    assert_scope("GET", &list, &Value::Null);
    assert_scope("PUT", &format!("{list}/acme"), &json!({}));
}

#[test]
pub fn notifications_opens_the_inbox() {
    assert_scope("GET", "/notifications", &Value::Null);
}

#[test]
pub fn repo_opens_private_repositories() {
    let mut upstream = Upstream::new();
    let private = private_repository(&mut upstream);
    assert_scope("GET", &private, &Value::Null);
}
