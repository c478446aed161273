//! Organization webhooks: their endpoints with each documented status.

use serde_json::{Value, json};

use crate::kit::{Answer, Upstream};
use crate::rows::document_3::webhooks::{ORGANIZATION_WEBHOOK, WEBHOOK_CONFIGURATION};
use crate::shape::{assert_shape, assert_shapes};

pub const HOOKS: &str = "/orgs/acme/hooks";

/// Creates a hook with every option of its configuration.
pub fn create(upstream: &mut Upstream, token: &str) -> Answer {
    let config = json!({ "url": "https://bots.example.com/hook", "content_type": "json", "secret": "sesame", "insecure_ssl": "0" });
    let body = json!({ "name": "web", "config": config, "events": ["issues"], "active": true });
    upstream.post(token, HOOKS, &body).expect_status(201)
}

/// Creates a hook and returns its path.
pub fn created(upstream: &mut Upstream, token: &str) -> String {
    let answer = create(upstream, token);
    format!("{HOOKS}/{}", answer.body["id"])
}

#[test]
pub fn hooks_are_listed() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    created(&mut upstream, &ada);
    assert_shapes(&upstream.get(&ada, HOOKS).expect_status(200).body, &ORGANIZATION_WEBHOOK);
    assert_eq!(
        upstream.get(&ada, &format!("{HOOKS}?per_page=1")).expect_status(200).items().len(),
        1
    );
    upstream.get(&ada, "/orgs/nobody/hooks").expect_status(404);
}

#[test]
pub fn a_hook_is_created() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let hook = create(&mut upstream, &ada);
    assert_shape(&hook.body, &ORGANIZATION_WEBHOOK);
    assert_eq!((&hook.body["name"], &hook.body["type"]), (&json!("web"), &json!("Organization")));
    upstream
        .post(
            &ada,
            "/orgs/nobody/hooks",
            &json!({ "name": "web", "config": { "url": "https://a.example.com" } }),
        )
        .expect_status(404);
    upstream
        .post(
            &ada,
            HOOKS,
            &json!({ "name": "email", "config": { "url": "https://a.example.com" } }),
        )
        .assert_names_field("name");
    upstream.post(&ada, HOOKS, &json!({ "name": "web" })).assert_names_field("config");
    upstream
        .post(&ada, HOOKS, &json!({ "name": "web", "config": {} }))
        .assert_names_field("config.url");
    upstream
        .post(&ada, HOOKS, &json!({ "config": { "url": "https://a.example.com" } }))
        .assert_names_field("name");
    let wrong = json!({ "name": "web", "config": { "url": "https://a.example.com" }, "events": "push", "active": "yes" });
    upstream.post(&ada, HOOKS, &wrong).assert_names_field("events");
}

#[test]
pub fn a_hook_is_read() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let path = created(&mut upstream, &ada);
    assert_shape(&upstream.get(&ada, &path).expect_status(200).body, &ORGANIZATION_WEBHOOK);
    upstream.get(&ada, &format!("{HOOKS}/999999999")).expect_status(404);
}

#[test]
pub fn a_hook_is_changed() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let path = created(&mut upstream, &ada);
    let change = json!({ "config": { "url": "https://b.example.com/x" }, "events": ["*"], "active": false, "name": "web" });
    let changed = upstream.patch(&ada, &path, &change).expect_status(200);
    assert_shape(&changed.body, &ORGANIZATION_WEBHOOK);
    assert_eq!(changed.body["events"], json!(["*"]));
    assert_eq!(
        (&changed.body["active"], &changed.body["config"]["url"]),
        (&json!(false), &json!("https://b.example.com/x"))
    );
    upstream
        .patch(&ada, &path, &json!({ "config": { "secret": "s" } }))
        .assert_names_field("config.url");
    upstream.patch(&ada, &format!("{HOOKS}/999999999"), &json!({})).expect_status(404);
}

#[test]
pub fn a_hook_is_deleted() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let path = created(&mut upstream, &ada);
    upstream.delete(&ada, &path).expect_status(204);
    upstream.get(&ada, &path).expect_status(404);
    upstream.delete(&ada, &path).expect_status(404);
}

#[test]
pub fn a_hooks_configuration_is_read_and_changed() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let path = format!("{}/config", created(&mut upstream, &ada));
    assert_shape(&upstream.get(&ada, &path).expect_status(200).body, &WEBHOOK_CONFIGURATION);
    let changed = upstream
        .patch(&ada, &path, &json!({ "url": "https://c.example.com/x" }))
        .expect_status(200);
    assert_shape(&changed.body, &WEBHOOK_CONFIGURATION);
    assert_eq!(changed.body["url"], "https://c.example.com/x");
    assert_eq!(changed.body["content_type"], "json", "the other fields are optional and stay");
}

#[test]
pub fn a_ping_is_triggered() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let path = created(&mut upstream, &ada);
    upstream.post(&ada, &format!("{path}/pings"), &Value::Null).expect_status(204);
    let deliveries = upstream.get(&ada, &format!("{path}/deliveries")).expect_status(200).body;
    assert_eq!(deliveries[0]["event"], "ping");
    upstream.post(&ada, &format!("{HOOKS}/999999999/pings"), &Value::Null).expect_status(404);
}
