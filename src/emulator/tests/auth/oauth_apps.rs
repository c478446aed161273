//! Tests OAuth apps, by their tokens and by client id and secret (SPECIFICATION, "Credentials").

use http::Method;
use serde_json::{Value, json};

use crate::emulator::tests::limits::primary::by_basic;
use crate::emulator::tests::*;

const APP: &str = "emu_client_id:emu_client_secret";
const TOKEN: &str = "/applications/emu_client_id/token";

fn send(upstream: &mut Upstream, method: Method, path: &str, body: &Value) -> Answer {
    upstream.send(&by_basic(method, APP, path, body))
}

#[test]
fn a_token_issued_to_an_oauth_app_acts_as_the_authorizing_user() {
    let mut upstream = Upstream::new();
    assert_eq!(upstream.get(OAUTH, "/user").assert_status(200).body["login"], "ada");
    upstream.get(OAUTH, "/repos/ada/diary").assert_status(200);
    upstream
        .patch(OAUTH, "/repos/acme/widgets", &json!({ "description": "by her" }))
        .assert_status(200);
}

#[test]
fn client_id_and_secret_read_public_data_and_nothing_else() {
    let mut upstream = Upstream::new();
    for path in [
        "/repos/acme/widgets",
        "/users/ada",
        "/orgs/acme/repos",
        "/search/issues?q=widget",
        "/rate_limit",
    ] {
        send(&mut upstream, Method::GET, path, &Value::Null).assert_status(200);
    }
    let listed = send(&mut upstream, Method::GET, "/orgs/acme/repos?per_page=100", &Value::Null);
    assert!(listed.items().iter().all(|repository| repository["private"] == false));
    for (path, status) in [
        ("/user", 401),
        ("/user/repos", 401),
        ("/notifications", 401),
        ("/orgs/acme/hooks", 401),
        ("/app", 401),
        ("/repos/acme/gadgets", 404),
    ] {
        send(&mut upstream, Method::GET, path, &Value::Null).assert_status(status);
    }
    let issue = json!({ "title": "x" });
    send(&mut upstream, Method::POST, "/repos/acme/widgets/issues", &issue).assert_status(401);
    send(&mut upstream, Method::POST, "/repos/acme/gadgets/issues", &issue).assert_status(404);
    send(&mut upstream, Method::POST, "/graphql", &json!({ "query": "{viewer{login}}" }))
        .assert_status(401);
    send(&mut upstream, Method::DELETE, "/installation/token", &Value::Null).assert_status(401);
    let wrong = by_basic(Method::GET, "emu_client_id:wrong", "/users/ada", &Value::Null);
    upstream.send(&wrong).assert_status(401);
}

#[test]
fn an_unchanged_answer_is_free_for_an_oauth_app_too() {
    let mut upstream = Upstream::new();
    let etag =
        send(&mut upstream, Method::GET, "/users/ada", &Value::Null).header("etag").to_owned();
    let mut again = by_basic(Method::GET, APP, "/users/ada", &Value::Null);
    again.headers_mut().insert("if-none-match", etag.parse().expect("a header value"));
    assert_eq!(upstream.send(&again).assert_status(304).remaining(), 4_999);
}

#[test]
fn an_oauth_app_checks_resets_and_deletes_its_tokens() {
    let mut upstream = Upstream::new();
    let target = json!({ "access_token": OAUTH });
    let checked = send(&mut upstream, Method::POST, TOKEN, &target).assert_status(200);
    assert_eq!(
        (&checked.body["token"], &checked.body["user"]["login"]),
        (&json!(OAUTH), &json!("ada"))
    );
    assert_eq!(checked.body["app"]["client_id"], "emu_client_id");
    let reset = send(&mut upstream, Method::PATCH, TOKEN, &target).assert_status(200);
    let fresh = reset.body["token"].as_str().expect("a token").to_owned();
    assert_eq!(reset.body["scopes"], checked.body["scopes"]);
    upstream.get(OAUTH, "/user").assert_status(401);
    assert_eq!(upstream.get(&fresh, "/user").assert_status(200).body["login"], "ada");
    send(&mut upstream, Method::POST, TOKEN, &target).assert_status(404);
    send(&mut upstream, Method::PATCH, TOKEN, &target).assert_status(404);
    let target = json!({ "access_token": fresh });
    send(&mut upstream, Method::DELETE, TOKEN, &target).assert_status(204);
    send(&mut upstream, Method::DELETE, TOKEN, &target).assert_status(404);
    upstream.get(&fresh, "/user").assert_status(401);
}

#[test]
fn a_deleted_grant_revokes_its_tokens() {
    let mut upstream = Upstream::new();
    send(
        &mut upstream,
        Method::DELETE,
        "/applications/emu_client_id/grant",
        &json!({ "access_token": OAUTH }),
    )
    .assert_status(204);
    upstream.get(OAUTH, "/user").assert_status(401);
    upstream.get(ADA, "/user").assert_status(200);
    upstream.get("emu_oauth_iris", "/user").assert_status(200);
}

#[test]
fn an_oauth_app_cannot_check_tokens_of_others() {
    let mut upstream = Upstream::new();
    for token in [ADA, ADA_FINE, "emu_oauth_iris", "emu_classic_expired", "nobody", "🦀"] {
        send(&mut upstream, Method::POST, TOKEN, &json!({ "access_token": token }))
            .assert_status(404);
    }
    let path = "/applications/emu_initech_client_id/token";
    send(&mut upstream, Method::POST, path, &json!({ "access_token": "emu_oauth_iris" }))
        .assert_status(404);
    send(
        &mut upstream,
        Method::POST,
        "/applications/none/token",
        &json!({ "access_token": OAUTH }),
    )
    .assert_status(404);
}

#[test]
fn the_oauth_app_routes_reject_every_other_credential() {
    let mut upstream = Upstream::new();
    let target = json!({ "access_token": OAUTH });
    for (token, status) in
        [(ADA, 403), (OAUTH, 403), (INSTALLATION, 403), (NOBODY, 401), ("wrong", 401)]
    {
        upstream.post(token, TOKEN, &target).assert_status(status);
        upstream.patch(token, TOKEN, &target).assert_status(status);
    }
    upstream.get(OAUTH, "/user").assert_status(200);
    for body in [
        json!({}),
        json!({ "access_token": 7 }),
        json!({ "access_token": null }),
        json!({ "access_token": [] }),
    ] {
        send(&mut upstream, Method::POST, TOKEN, &body).assert_names_field("access_token");
    }
    send(&mut upstream, Method::POST, TOKEN, &json!([])).assert_status(400);
}

#[test]
fn oauth_apps_may_make_2000_token_requests_an_hour() {
    let mut upstream = Upstream::new();
    upstream.set_limit("oauth-tokens.hour", 3);
    let target = json!({ "access_token": OAUTH });
    for _ in 0..3 {
        send(&mut upstream, Method::POST, TOKEN, &target).assert_status(200);
    }
    let refused = send(&mut upstream, Method::POST, TOKEN, &target).assert_status(403);
    assert_eq!(refused.header("retry-after"), "3600");
    assert_eq!(upstream.get(NOBODY, "/_emulator/limits").body["limits"]["oauth-tokens.hour"], 3);
}
