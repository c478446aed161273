//! Document 3, Organization webhooks.

use serde_json::{Value, json};

use super::*;

const HOOKS: &str = "/orgs/acme/hooks";

fn new_hook() -> Value {
    json!({ "name": "web", "config": { "url": "https://example.com/hook", "content_type": "json", "secret": "emu_secret" } })
}

fn create(upstream: &mut Upstream) -> String {
    let hook = upstream.post(ADA, HOOKS, &new_hook()).assert_status(201);
    format!("{HOOKS}/{}", hook.body["id"])
}

#[test]
fn a_created_hook_has_every_field_and_the_defaults() {
    let mut upstream = Upstream::new();
    let hook = upstream.post(ADA, HOOKS, &new_hook()).assert_status(201);
    for field in ["id", "url", "ping_url", "deliveries_url", "name", "events", "active", "config", "updated_at", "created_at", "type"] {
        assert!(hook.body.get(field).is_some(), "{field}");
    }
    assert_eq!((&hook.body["events"], &hook.body["active"], &hook.body["type"]), (&json!(["push"]), &json!(true), &json!("Organization")));
    assert_eq!(hook.body["config"], json!({ "url": "https://example.com/hook", "content_type": "json" }), "the secret is never returned");
    assert_eq!(hook.header("location"), hook.body["url"].as_str().expect("an address"));
}

#[test]
fn the_caller_must_be_an_owner_with_the_scope_or_the_permission() {
    let mut upstream = Upstream::new();
    upstream.get(NOBODY, HOOKS).assert_status(401);
    for token in [BEN, DAN, ADA_NO_SCOPES] {
        upstream.get(token, HOOKS).assert_status(404);
    }
    for token in [ADA_NO_PERMISSIONS, WORKFLOW] {
        upstream.get(token, HOOKS).assert_status(403);
    }
    for token in [ADA, ADA_FINE, INSTALLATION, OAUTH] {
        upstream.get(token, HOOKS).assert_status(200);
    }
    upstream.get("emu_installation_globex", HOOKS).assert_status(404);
}

#[test]
fn oauth_apps_and_users_do_not_see_each_others_hooks() {
    let mut upstream = Upstream::new();
    let ids = |answer: Answer| answer.items().iter().filter_map(|hook| hook["id"].as_u64()).collect::<Vec<_>>();
    let (of_user, of_app) = (ids(upstream.get(ADA, HOOKS)), ids(upstream.get(OAUTH, HOOKS)));
    assert_eq!((of_user.len(), of_app.len()), (1, 1));
    assert_ne!(of_user, of_app);
    upstream.get(ADA, &format!("{HOOKS}/{}", of_app[0])).assert_status(404);
    upstream.patch(OAUTH, &format!("{HOOKS}/{}", of_user[0]), &json!({ "active": false })).assert_status(404);
}

#[test]
fn the_organisation_is_case_insensitive() {
    Upstream::new().get(ADA, "/orgs/ACME/hooks").assert_status(200);
}

#[test]
fn bad_hooks_are_422_and_name_the_field() {
    let mut upstream = Upstream::new();
    let cases = [
        (json!({ "config": { "url": "https://e.com" } }), "name"),
        (json!({ "name": "irc", "config": { "url": "https://e.com" } }), "name"),
        (json!({ "name": "web" }), "config"),
        (json!({ "name": "web", "config": "x" }), "config"),
        (json!({ "name": "web", "config": {} }), "config.url"),
        (json!({ "name": "web", "config": { "url": 3 } }), "config.url"),
        (json!({ "name": "web", "config": { "url": "nowhere" } }), "config.url"),
        (json!({ "name": "web", "config": { "url": "https://e.com", "insecure_ssl": 7 } }), "config.insecure_ssl"),
        (json!({ "name": "web", "config": { "url": "https://e.com" }, "events": "push" }), "events"),
        (json!({ "name": "web", "config": { "url": "https://e.com" }, "active": "yes" }), "active"),
    ];
    for (body, field) in cases {
        upstream.post(ADA, HOOKS, &body).assert_names_field(field);
    }
}

#[test]
fn the_secret_is_masked_in_the_configuration() {
    let mut upstream = Upstream::new();
    let path = create(&mut upstream);
    let config = upstream.get(ADA, &format!("{path}/config")).assert_status(200);
    assert_eq!(
        config.body,
        json!({ "url": "https://example.com/hook", "content_type": "json", "insecure_ssl": "0", "secret": "********" })
    );
}

#[test]
fn an_update_without_the_secret_removes_it() {
    let mut upstream = Upstream::new();
    let path = create(&mut upstream);
    upstream.patch(ADA, &path, &json!({ "config": { "content_type": "json" } })).assert_names_field("config.url");
    upstream.patch(ADA, &path, &json!({ "active": false })).assert_status(200);
    assert_eq!(upstream.get(ADA, &format!("{path}/config")).body["secret"], "********", "only a new config overwrites it");
    upstream.patch(ADA, &path, &json!({ "config": { "url": "https://example.com/other" } })).assert_status(200);
    assert!(upstream.get(ADA, &format!("{path}/config")).body.get("secret").is_none());
}

#[test]
fn a_patch_of_the_configuration_changes_only_what_it_names() {
    let mut upstream = Upstream::new();
    let path = create(&mut upstream);
    let config = upstream.patch(ADA, &format!("{path}/config"), &json!({ "insecure_ssl": 1 })).assert_status(200);
    assert_eq!((&config.body["insecure_ssl"], &config.body["secret"]), (&json!("1"), &json!("********")));
    upstream.patch(ADA, &format!("{path}/config"), &json!({ "content_type": "xml" })).assert_names_field("content_type");
}

#[test]
fn a_deleted_hook_is_gone() {
    let mut upstream = Upstream::new();
    let path = create(&mut upstream);
    upstream.delete(ADA, &path).assert_status(204);
    upstream.get(ADA, &path).assert_status(404);
    upstream.delete(ADA, &path).assert_status(404);
}
