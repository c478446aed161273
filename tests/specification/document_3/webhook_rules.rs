//! Organization webhooks: permissions, defaults and masked values.

use serde_json::{Value, json};

use crate::document_3::webhooks::{HOOKS, create, created};
use crate::kit::{ANONYMOUS, Upstream};

fn minimal() -> Value {
    json!({ "name": "web", "config": { "url": "https://bots.example.com/hook" } })
}

#[test]
pub fn events_default_to_push_and_active_to_true() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let hook = upstream.post(&ada, HOOKS, &minimal()).expect_status(201).body;
    assert_eq!((&hook["events"], &hook["active"]), (&json!(["push"]), &json!(true)));
}

#[test]
pub fn a_star_means_all_events() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let mut body = minimal();
    body["events"] = json!(["*"]);
    let hook = upstream.post(&ada, HOOKS, &body).expect_status(201).body;
    upstream
        .post(&ada, "/repos/acme/widgets/issues", &json!({ "title": "told" }))
        .expect_status(201);
    let deliveries =
        upstream.get(&ada, &format!("{HOOKS}/{}/deliveries", hook["id"])).expect_status(200);
    assert!(deliveries.items().iter().any(|one| one["event"] == "issues"), "{}", deliveries.body);
}

#[test]
pub fn an_event_that_is_not_selected_is_not_delivered() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let hook = upstream.post(&ada, HOOKS, &minimal()).expect_status(201).body;
    upstream
        .post(&ada, "/repos/acme/widgets/issues", &json!({ "title": "not told" }))
        .expect_status(201);
    let deliveries =
        upstream.get(&ada, &format!("{HOOKS}/{}/deliveries", hook["id"])).expect_status(200);
    assert!(deliveries.items().iter().all(|one| one["event"] != "issues"), "{}", deliveries.body);
}

#[test]
pub fn the_secret_is_never_returned() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let hook = create(&mut upstream, &ada);
    assert!(!hook.bytes.windows(6).any(|window| window == b"sesame"));
    let path = format!("{HOOKS}/{}", hook.body["id"]);
    for path in [path.clone(), format!("{path}/config"), HOOKS.to_owned()] {
        let answer = upstream.get(&ada, &path).expect_status(200);
        assert!(!answer.bytes.windows(6).any(|window| window == b"sesame"), "{path}");
    }
    assert!(
        upstream.get(&ada, &format!("{path}/config")).body["secret"].is_string(),
        "it is shown masked"
    );
}

#[test]
pub fn an_update_without_the_secret_removes_it() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let path = created(&mut upstream, &ada);
    upstream
        .patch(
            &ada,
            &path,
            &json!({ "config": { "url": "https://bots.example.com/hook", "secret": "again" } }),
        )
        .expect_status(200);
    assert!(upstream.get(&ada, &format!("{path}/config")).body["secret"].is_string());
    upstream
        .patch(&ada, &path, &json!({ "config": { "url": "https://bots.example.com/hook" } }))
        .expect_status(200);
    assert_eq!(
        upstream.get(&ada, &format!("{path}/config")).expect_status(200).body["secret"],
        Value::Null
    );
}

#[test]
pub fn insecure_ssl_is_text_or_a_number() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    for value in [json!("0"), json!(0), json!("1"), json!(1)] {
        let mut body = minimal();
        body["config"]["insecure_ssl"] = value;
        upstream.post(&ada, HOOKS, &body).expect_status(201);
    }
    let mut body = minimal();
    body["config"]["insecure_ssl"] = json!([]);
    upstream.post(&ada, HOOKS, &body).assert_names_field("config.insecure_ssl");
}

#[test]
pub fn username_and_password_are_accepted_on_creation() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let mut body = minimal();
    body["config"]["username"] = json!("bot");
    body["config"]["password"] = json!("opensesame");
    let hook = upstream.post(&ada, HOOKS, &body).expect_status(201);
    assert!(!hook.bytes.windows(10).any(|window| window == b"opensesame"));
}

#[test]
pub fn only_an_organization_owner_may_call() {
    let mut upstream = Upstream::new();
    let (ada, ben) = (upstream.classic("ada"), upstream.classic("ben"));
    let path = created(&mut upstream, &ada);
    assert!([403, 404].contains(&upstream.get(&ben, HOOKS).status));
    assert!([403, 404].contains(&upstream.post(&ben, HOOKS, &minimal()).status));
    assert!([403, 404].contains(&upstream.delete(&ben, &path).status));
    upstream.get(&ada, &path).expect_status(200);
}

#[test]
pub fn classic_tokens_need_the_scope() {
    let mut upstream = Upstream::new();
    let (ada, unscoped) = (upstream.classic("ada"), upstream.classic_without_scopes("ada"));
    assert!([403, 404].contains(&upstream.get(&unscoped, HOOKS).status));
    assert!([403, 404].contains(&upstream.post(&unscoped, HOOKS, &minimal()).status));
    upstream.get(&ada, HOOKS).expect_status(200);
    upstream.get(ANONYMOUS, HOOKS).expect_status(401);
}

#[test]
pub fn fine_grained_tokens_need_the_webhooks_permission() {
    let mut upstream = Upstream::new();
    let reader = upstream.installation_with("acme", &[("organization_hooks", "read")]);
    let writer = upstream.installation_with("acme", &[("organization_hooks", "write")]);
    let other = upstream.installation_with("acme", &[("members", "write")]);
    let path = created(&mut upstream, &writer);
    upstream.get(&reader, &path).expect_status(200);
    for (method, path) in [
        ("POST", HOOKS.to_owned()),
        ("PATCH", path.clone()),
        ("DELETE", path.clone()),
        ("POST", format!("{path}/pings")),
    ] {
        let update = crate::kit::TestRequest::new(method, &path).by(&reader).json(&minimal());
        upstream.send(&update).expect_status(403);
    }
    upstream.get(&other, HOOKS).expect_status(403);
    let fine = upstream.token("fine-grained", "ada");
    upstream.get(&fine, &path).expect_status(200);
    let none = upstream.fine_grained_without_permissions();
    upstream.get(&none, &path).expect_status(403);
    upstream.delete(&writer, &path).expect_status(204);
}

#[test]
pub fn an_oauth_app_sees_only_its_own_hooks() {
    let mut upstream = Upstream::new();
    let (ada, app) = (upstream.classic("ada"), upstream.token("oauth", "ada"));
    let (mine, its) = (created(&mut upstream, &ada), created(&mut upstream, &app));
    for path in [mine.clone(), format!("{mine}/config"), format!("{mine}/deliveries")] {
        upstream.get(&app, &path).expect_status(404);
    }
    upstream.patch(&app, &mine, &json!({ "active": false })).expect_status(404);
    upstream.get(&app, &its).expect_status(200);
    let listed = upstream.get(&app, HOOKS).expect_status(200);
    assert!(
        listed.items().iter().all(|hook| !mine.ends_with(&format!("/{}", hook["id"]))),
        "{}",
        listed.body
    );
}

#[test]
pub fn users_do_not_see_hooks_of_oauth_apps() {
    let mut upstream = Upstream::new();
    let (ada, app) = (upstream.classic("ada"), upstream.token("oauth", "ada"));
    let its = created(&mut upstream, &app);
    upstream.get(&ada, &its).expect_status(404);
    upstream.patch(&ada, &its, &json!({ "active": false })).expect_status(404);
    upstream.delete(&ada, &its).expect_status(404);
}

#[test]
pub fn the_organization_has_any_case_and_the_hook_is_an_integer() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let path = created(&mut upstream, &ada).replace("/acme/", "/ACME/");
    upstream.get(&ada, &path).expect_status(200);
    upstream.get(&ada, &format!("{HOOKS}/first")).expect_status(404);
}
