//! Tests app JWTs and installation access tokens (SPECIFICATION, "Credentials" and "Apps").

use http::{Method, Request};
use serde_json::{Value, json};

use crate::emulator::auth::jwt::tests::signed_with;
use crate::emulator::seed::{APP_KEY, INITECH_APP_KEY};
use crate::emulator::tests::*;

pub const INITECH: &str = "emu_installation_initech";
const MINT: &str = "/app/installations/361/access_tokens";

/// Returns a JWT of the app that is installed on acme and globex.
pub fn acme_jwt(upstream: &Upstream) -> String {
    jwt(upstream, APP_KEY, 301)
}

/// Returns a JWT of the app of initech-labs.
pub fn initech_jwt(upstream: &Upstream) -> String {
    jwt(upstream, INITECH_APP_KEY, 351)
}

fn jwt(upstream: &Upstream, key: &str, app: u64) -> String {
    let now = upstream.now.as_secs();
    signed_with(
        key,
        &json!({ "alg": "RS256", "typ": "JWT" }),
        &json!({ "iss": app.to_string(), "iat": now - 60, "exp": now + 540 }),
    )
}

fn mint(upstream: &mut Upstream, body: &Value) -> String {
    let jwt = initech_jwt(upstream);
    let answer = upstream.post(&jwt, MINT, body).assert_status(201);
    answer.body["token"].as_str().expect("a token").to_owned()
}

fn names(answer: &Value) -> Vec<&str> {
    answer["repositories"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["name"].as_str().expect("a name"))
        .collect()
}

#[test]
fn an_app_sees_itself_and_its_installations_with_its_jwt() {
    let mut upstream = Upstream::new();
    let jwt = acme_jwt(&upstream);
    let app = upstream.get(&jwt, "/app").assert_status(200);
    assert_eq!(
        (&app.body["id"], &app.body["slug"], &app.body["owner"]["login"]),
        (&json!(301), &json!("acme-app"), &json!("acme"))
    );
    assert_eq!(
        (&app.body["installations_count"], &app.body["permissions"]["issues"]),
        (&json!(2), &json!("write"))
    );
    let list = upstream.get(&jwt, "/app/installations?per_page=1").assert_status(200);
    assert_eq!(
        (list.items().len(), list.items()[0]["account"]["login"].as_str()),
        (1, Some("acme"))
    );
    assert!(list.link("next").is_some());
    let one = upstream.get(&jwt, "/app/installations/312").assert_status(200);
    assert_eq!(
        (&one.body["app_id"], &one.body["repository_selection"]),
        (&json!(301), &json!("all"))
    );
    assert!(
        one.body["access_tokens_url"]
            .as_str()
            .is_some_and(|url| url.ends_with("/app/installations/312/access_tokens"))
    );
    upstream.get(NOBODY, "/apps/acme-app").assert_status(200);
    upstream.get(NOBODY, "/apps/nobody").assert_status(404);
}

#[test]
fn an_app_finds_its_installation_by_organisation_or_repository() {
    let mut upstream = Upstream::new();
    let (acme, initech) = (acme_jwt(&upstream), initech_jwt(&upstream));
    assert_eq!(upstream.get(&acme, "/orgs/ACME/installation").assert_status(200).body["id"], 311);
    assert_eq!(
        upstream.get(&acme, "/repos/acme/gadgets/installation").assert_status(200).body["id"],
        311
    );
    assert_eq!(
        upstream
            .get(&initech, "/repos/initech-labs/blueprints/installation")
            .assert_status(200)
            .body["id"],
        361
    );
    for path in [
        "/orgs/initech-labs/installation",
        "/orgs/nobody/installation",
        "/repos/ada/dotfiles/installation",
        "/repos/a/b/installation",
    ] {
        upstream.get(&acme, path).assert_status(404);
    }
    upstream.get(&initech, "/repos/initech-labs/vault/installation").assert_status(404);
    upstream.get(&initech, "/app/installations/311").assert_status(404);
    upstream.get(&acme, "/app/installations/18446744073709551616").assert_status(404);
}

#[test]
fn the_app_level_endpoints_reject_user_and_installation_tokens() {
    let mut upstream = Upstream::new();
    for path in [
        "/app",
        "/app/installations",
        "/app/installations/311",
        "/orgs/acme/installation",
        "/repos/acme/widgets/installation",
    ] {
        for token in [ADA, ADA_FINE, OAUTH, "emu_app_user_ben", INSTALLATION, WORKFLOW] {
            upstream.get(token, path).assert_status(403);
        }
        upstream.get(NOBODY, path).assert_status(401);
        upstream.get("not.a.jwt", path).assert_status(401);
    }
    upstream
        .post(INSTALLATION, "/app/installations/311/access_tokens", &Value::Null)
        .assert_status(403);
}

#[test]
fn a_jwt_opens_only_app_endpoints_and_public_answers() {
    let mut upstream = Upstream::new();
    let jwt = acme_jwt(&upstream);
    for path in [
        "/user",
        "/user/repos",
        "/repos/acme/widgets",
        "/repos/acme/gadgets",
        "/notifications",
        "/orgs/acme/hooks",
    ] {
        upstream.get(&jwt, path).assert_status(403);
    }
    upstream.post(&jwt, "/repos/acme/widgets/issues", &json!({ "title": "x" })).assert_status(403);
    upstream.post(&jwt, "/graphql", &json!({ "query": "{viewer{login}}" })).assert_status(401);
    for path in ["/meta", "/rate_limit", "/users/ada"] {
        upstream.get(&jwt, path).assert_status(200);
    }
    let token_scheme = request(
        Method::GET,
        NOBODY,
        "/app",
        &[("authorization", &format!("token {jwt}"))],
        &Value::Null,
    );
    upstream.send(&token_scheme).assert_status(401);
}

#[test]
fn a_minted_token_works_for_an_hour_and_not_longer() {
    let mut upstream = Upstream::new();
    let jwt = initech_jwt(&upstream);
    let answer = upstream.post(&jwt, MINT, &Value::Null).assert_status(201);
    assert_eq!(
        answer.body["expires_at"],
        crate::emulator::http::timestamps::iso(upstream.now + Duration::from_hours(1))
    );
    assert_eq!(
        answer.body["permissions"],
        json!({ "contents": "write", "issues": "write", "members": "read", "metadata": "read" })
    );
    assert_eq!(names(&answer.body), ["staplers", "blueprints"]);
    let token = answer.body["token"].as_str().expect("a token").to_owned();
    let shown = upstream.get(&token, "/repos/initech-labs/blueprints").assert_status(200);
    assert_eq!(shown.header("x-ratelimit-limit"), "15000", "it spends the installation's budget");
    assert!(
        upstream
            .emulator
            .tokens()
            .iter()
            .any(|view| view.token == token && view.account == "installation-361")
    );
    let entry = upstream.emulator.transcript(1).remove(0);
    assert_eq!(
        entry.token.and_then(|position| upstream
            .emulator
            .tokens()
            .get(position)
            .map(|view| view.token.clone())),
        Some(token.clone())
    );
    upstream.pass(3_599);
    upstream.get(&token, "/repos/initech-labs/blueprints").assert_status(200);
    upstream.pass(1);
    upstream.get(&token, "/repos/initech-labs/blueprints").assert_status(401);
}

#[test]
fn the_body_may_narrow_the_repositories() {
    let mut upstream = Upstream::new();
    for body in [json!({ "repositories": ["staplers"] }), json!({ "repository_ids": [3_000_001] })]
    {
        let jwt = initech_jwt(&upstream);
        let answer = upstream.post(&jwt, MINT, &body).assert_status(201);
        assert_eq!(
            (names(&answer.body), &answer.body["repository_selection"]),
            (vec!["staplers"], &json!("selected"))
        );
        let token = answer.body["token"].as_str().expect("a token").to_owned();
        upstream.get(&token, "/repos/initech-labs/blueprints").assert_status(404);
        upstream
            .post(&token, "/repos/initech-labs/staplers/issues", &json!({ "title": "x" }))
            .assert_status(201);
        let reached = upstream.get(&token, "/installation/repositories").assert_status(200).body;
        assert_eq!((names(&reached), &reached["total_count"]), (vec!["staplers"], &json!(1)));
    }
    let both = mint(
        &mut upstream,
        &json!({ "repositories": ["staplers"], "repository_ids": [3_000_002, 3_000_002] }),
    );
    assert_eq!(
        names(&upstream.get(&both, "/installation/repositories").body),
        ["staplers", "blueprints"]
    );
}

#[test]
fn the_body_may_narrow_the_permissions_and_not_widen_them() {
    let mut upstream = Upstream::new();
    let reader = mint(&mut upstream, &json!({ "permissions": { "issues": "read" } }));
    upstream.get(&reader, "/repos/initech-labs/blueprints/issues").assert_status(200);
    upstream
        .post(&reader, "/repos/initech-labs/blueprints/issues", &json!({ "title": "x" }))
        .assert_status(403);
    let jwt = initech_jwt(&upstream);
    for (permissions, field) in [
        (json!({ "administration": "write" }), "permissions.administration"),
        (json!({ "issues": "admin" }), "permissions.issues"),
        (json!({ "members": "write" }), "permissions.members"),
        (json!({ "issues": "everything" }), "permissions.issues"),
        (json!({ "issues": 1 }), "permissions.issues"),
        (json!({ "telepathy": "read" }), "permissions.telepathy"),
        (json!([]), "permissions"),
        (json!("issues"), "permissions"),
    ] {
        upstream.post(&jwt, MINT, &json!({ "permissions": permissions })).assert_names_field(field);
    }
    let whole = upstream.post(&jwt, MINT, &json!({ "permissions": {} })).assert_status(201);
    assert!(
        whole.body["permissions"]["contents"].is_string(),
        "an empty object narrows nothing: {}",
        whole.body
    );
    upstream
        .post(
            &acme_jwt(&upstream),
            "/app/installations/311/access_tokens",
            &json!({ "permissions": { "metadata": "write" } }),
        )
        .assert_names_field("permissions.metadata");
}

#[test]
fn a_token_request_for_unreachable_repositories_is_refused() {
    let mut upstream = Upstream::new();
    let jwt = initech_jwt(&upstream);
    for (body, field) in [
        (json!({ "repositories": ["vault"] }), "repositories"),
        (json!({ "repositories": ["staplers", "🦀"] }), "repositories"),
        (json!({ "repositories": [] }), "repositories"),
        (json!({ "repositories": "staplers" }), "repositories"),
        (json!({ "repositories": [1] }), "repositories"),
        (json!({ "repository_ids": [1_001] }), "repository_ids"),
        (json!({ "repository_ids": [3_000_003] }), "repository_ids"),
        (json!({ "repository_ids": ["3000001"] }), "repository_ids"),
        (json!({ "repository_ids": [-1] }), "repository_ids"),
        (json!({ "repository_ids": null }), "repository_ids"),
        (json!({ "repository_ids": vec![3_000_001; 501] }), "repository_ids"),
    ] {
        upstream.post(&jwt, MINT, &body).assert_names_field(field);
    }
    let mut malformed = request(Method::POST, &jwt, MINT, &[], &Value::Null);
    *malformed.body_mut() = Bytes::from_static(b"{\"repositories\"");
    upstream.send(&malformed).assert_status(400);
    for path in [
        "/app/installations/311/access_tokens",
        "/app/installations/9/access_tokens",
        "/app/installations/x/access_tokens",
    ] {
        upstream.post(&jwt, path, &Value::Null).assert_status(404);
    }
}

#[test]
fn a_revoked_installation_token_is_rejected() {
    let mut upstream = Upstream::new();
    let (first, second) = (mint(&mut upstream, &Value::Null), mint(&mut upstream, &Value::Null));
    assert_ne!(first, second);
    upstream.delete(&first, "/installation/token").assert_status(204);
    upstream.delete(&first, "/installation/token").assert_status(401);
    upstream.get(&second, "/installation/repositories").assert_status(200);
    for (token, status) in [(ADA, 403), (WORKFLOW, 403), (NOBODY, 401)] {
        upstream.delete(token, "/installation/token").assert_status(status);
        upstream.get(token, "/installation/repositories").assert_status(status);
    }
}

#[test]
fn an_app_mints_at_most_2000_access_tokens_an_hour() {
    let mut upstream = Upstream::new();
    assert_eq!(
        upstream.get(NOBODY, "/_emulator/limits").body["limits"]["oauth-tokens.hour"],
        2_000
    );
    upstream.set_limit("oauth-tokens.hour", 100);
    for _ in 0..100 {
        mint(&mut upstream, &Value::Null);
    }
    let jwt = initech_jwt(&upstream);
    let refused = upstream.post(&jwt, MINT, &Value::Null).assert_status(403);
    assert!(
        refused.body["message"]
            .as_str()
            .is_some_and(|message| message.contains("secondary rate limit"))
    );
    assert_eq!(refused.header("retry-after"), "3600");
    let usage = upstream.usage();
    let of_the_app = usage["secondary"]
        .as_array()
        .and_then(|all| all.iter().find(|one| one["account"] == "app-351"))
        .expect("its usage");
    assert_eq!(of_the_app["oauth_tokens_hour"], 100);
    let other = acme_jwt(&upstream);
    upstream.post(&other, "/app/installations/311/access_tokens", &Value::Null).assert_status(201);
    upstream.pass(3_600);
    mint(&mut upstream, &Value::Null);
}

#[test]
fn an_app_user_token_lists_its_installations() {
    let mut upstream = Upstream::new();
    let mine = upstream.get("emu_app_user_ben", "/user/installations").assert_status(200).body;
    assert_eq!((&mine["total_count"], &mine["installations"][0]["id"]), (&json!(1), &json!(311)));
    assert_eq!(
        upstream.get("emu_app_user_dan", "/user/installations").assert_status(200).body["total_count"],
        0
    );
    let reached = upstream
        .get("emu_app_user_iris", "/user/installations/361/repositories")
        .assert_status(200);
    assert_eq!(names(&reached.body), ["staplers", "blueprints"]);
    upstream.get("emu_app_user_iris", "/user/installations/311/repositories").assert_status(404);
    upstream.get("emu_app_user_dan", "/user/installations/361/repositories").assert_status(404);
    for (token, status) in [(ADA, 403), (ADA_FINE, 403), (INITECH, 403), (NOBODY, 401)] {
        upstream.get(token, "/user/installations").assert_status(status);
    }
}

#[test]
fn the_world_lists_app_keys_and_enterprise_cloud_organisations() {
    let world = Upstream::new().get(NOBODY, "/_emulator/world").body;
    let app = world["apps"]
        .as_array()
        .and_then(|apps| apps.iter().find(|app| app["app_id"] == 351))
        .expect("the app");
    assert!(
        app["private_key"]
            .as_str()
            .is_some_and(|key| key.starts_with("-----BEGIN RSA PRIVATE KEY-----"))
    );
    assert_eq!(
        (&app["owner"], &app["installations"][0]["organization"]),
        (&json!("initech-labs"), &json!("initech-labs"))
    );
    assert_eq!(world["oauth_apps"][1]["owner"], "initech-labs");
    let cloud: Vec<&Value> = world["organizations"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|one| one["enterprise_cloud"] == true)
        .collect();
    assert!(cloud.len() == 1 && cloud[0]["login"] == "initech-labs");
}

#[test]
fn a_jwt_with_invalid_claims_or_a_foreign_key_is_rejected() {
    let mut upstream = Upstream::new();
    let header = json!({ "alg": "RS256" });
    for claims in [
        json!({}),
        json!([]),
        json!("301"),
        json!({ "iss": -1, "iat": 0, "exp": 0 }),
        json!({ "iss": "301", "iat": u64::MAX, "exp": u64::MAX }),
        json!({ "iss": "301", "iat": "now", "exp": "then" }),
        json!({ "iss": "301", "iat": 1e300, "exp": 1e300 }),
        json!({ "iss": "999", "iat": upstream.now.as_secs(), "exp": upstream.now.as_secs() + 60 }),
    ] {
        let jwt = signed_with(APP_KEY, &header, &claims);
        upstream.get(&jwt, "/app").assert_status(401);
    }
    let stolen = signed_with(
        INITECH_APP_KEY,
        &header,
        &json!({ "iss": 301, "iat": upstream.now.as_secs(), "exp": upstream.now.as_secs() + 60 }),
    );
    upstream.get(&stolen, "/app").assert_status(401);
    let empty: Request<Bytes> = request(Method::GET, "..", "/app", &[], &Value::Null);
    upstream.send(&empty).assert_status(401);
}

#[test]
fn a_jwt_is_dated_by_the_machine_or_the_emulated_clock() {
    let mut upstream = Upstream::new();
    upstream.emulator.paced(60.0, upstream.now);
    let by_machine = acme_jwt(&upstream);
    upstream.pass(9 * 60 * 60);
    // Nine minutes of the machine have passed.
    upstream.get(&by_machine, "/app").assert_status(401);
    let emulated = acme_jwt(&upstream);
    upstream.get(&emulated, "/app").assert_status(200);
    let fresh =
        acme_jwt(&Upstream { now: START + Duration::from_secs(10 + 500), ..Upstream::new() });
    upstream.get(&fresh, "/app").assert_status(200);
    upstream.post(NOBODY, "/_emulator/reset", &Value::Null).assert_status(200);
    upstream.get(&fresh, "/app").assert_status(200);
    upstream.pass(60 * 60);
    upstream.get(&fresh, "/app").assert_status(200);
    upstream.pass(10 * 60 * 60);
    upstream.get(&fresh, "/app").assert_status(401);
}
