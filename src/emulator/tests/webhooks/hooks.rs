//! Tests organisation webhooks (SPECIFICATION, "Webhooks").

use serde_json::{Value, json};

use crate::emulator::tests::*;

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
    for field in [
        "id",
        "url",
        "ping_url",
        "deliveries_url",
        "name",
        "events",
        "active",
        "config",
        "updated_at",
        "created_at",
        "type",
    ] {
        assert!(hook.body.get(field).is_some(), "{field}");
    }
    assert_eq!(
        (&hook.body["events"], &hook.body["active"], &hook.body["type"]),
        (&json!(["push"]), &json!(true), &json!("Organization"))
    );
    assert_eq!(
        hook.body["config"],
        json!({ "url": "https://example.com/hook", "content_type": "json" }),
        "the secret is never returned"
    );
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
    let ids = |answer: Answer| {
        answer.items().iter().filter_map(|hook| hook["id"].as_u64()).collect::<Vec<_>>()
    };
    let (of_user, of_app) = (ids(upstream.get(ADA, HOOKS)), ids(upstream.get(OAUTH, HOOKS)));
    assert_eq!((of_user.len(), of_app.len()), (1, 1));
    assert_ne!(of_user, of_app);
    upstream.get(ADA, &format!("{HOOKS}/{}", of_app[0])).assert_status(404);
    upstream
        .patch(OAUTH, &format!("{HOOKS}/{}", of_user[0]), &json!({ "active": false }))
        .assert_status(404);
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
        (
            json!({ "name": "web", "config": { "url": "https://e.com", "insecure_ssl": 7 } }),
            "config.insecure_ssl",
        ),
        (
            json!({ "name": "web", "config": { "url": "https://e.com" }, "events": "push" }),
            "events",
        ),
        (json!({ "name": "web", "config": { "url": "https://e.com" }, "active": "yes" }), "active"),
        (json!({ "name": 7, "config": { "url": "https://e.com" } }), "name"),
        (json!({ "name": "web", "config": { "url": "ftp://e.com" } }), "config.url"),
        (json!({ "name": "web", "config": { "url": "https://" } }), "config.url"),
        (json!({ "name": "web", "config": { "url": "https://e.com:99999/" } }), "config.url"),
        (json!({ "name": "web", "config": { "url": "https://e.com/\u{1f980}" } }), "config.url"),
        (
            json!({ "name": "web", "config": { "url": format!("https://e.com/{}", "x".repeat(10_000)) } }),
            "config.url",
        ),
        (
            json!({ "name": "web", "config": { "url": "https://e.com", "content_type": "xml" } }),
            "config.content_type",
        ),
        (
            json!({ "name": "web", "config": { "url": "https://e.com", "secret": 1 } }),
            "config.secret",
        ),
        (
            json!({ "name": "web", "config": { "url": "https://e.com", "secret": "x".repeat(10_000) } }),
            "config.secret",
        ),
        (
            json!({ "name": "web", "config": { "url": "https://e.com", "username": [] } }),
            "config.username",
        ),
        (
            json!({ "name": "web", "config": { "url": "https://e.com", "password": {} } }),
            "config.password",
        ),
        (
            json!({ "name": "web", "config": { "url": "https://e.com", "insecure_ssl": true } }),
            "config.insecure_ssl",
        ),
        (
            json!({ "name": "web", "config": { "url": "https://e.com", "insecure_ssl": "2" } }),
            "config.insecure_ssl",
        ),
        (json!({ "name": "web", "config": { "url": "https://e.com" }, "events": [] }), "events"),
        (json!({ "name": "web", "config": { "url": "https://e.com" }, "events": [""] }), "events"),
        (
            json!({ "name": "web", "config": { "url": "https://e.com" }, "events": ["push", 1] }),
            "events",
        ),
        (
            json!({ "name": "web", "config": { "url": "https://e.com" }, "events": ["x".repeat(1_000)] }),
            "events",
        ),
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
    upstream
        .patch(ADA, &path, &json!({ "config": { "content_type": "json" } }))
        .assert_names_field("config.url");
    assert_eq!(
        upstream.get(ADA, &format!("{path}/config")).body["secret"],
        "********",
        "a refused update changed nothing"
    );
    for update in [
        json!({ "config": { "url": "https://example.com/other" } }),
        json!({ "active": false }),
        json!({}),
    ] {
        let again = json!({ "config": { "url": "https://example.com/hook", "secret": "another" } });
        upstream.patch(ADA, &path, &again).assert_status(200);
        assert_eq!(
            upstream.get(ADA, &format!("{path}/config")).body["secret"],
            "********",
            "it was sent again"
        );
        upstream.patch(ADA, &path, &update).assert_status(200);
        assert!(
            upstream.get(ADA, &format!("{path}/config")).body.get("secret").is_none(),
            "{update}"
        );
    }
}

#[test]
fn an_update_keeps_the_fields_that_it_omits() {
    let mut upstream = Upstream::new();
    let config =
        json!({ "url": "https://example.com/hook", "content_type": "form", "insecure_ssl": "1" });
    let hook = upstream.post(
        ADA,
        HOOKS,
        &json!({ "name": "web", "config": config, "events": ["issues", "push"], "active": false }),
    );
    let path = format!("{HOOKS}/{}", hook.assert_status(201).body["id"]);
    upstream.pass(5);
    let updated = upstream
        .patch(ADA, &path, &json!({ "name": "web", "config": { "url": "https://example.com/b" } }))
        .assert_status(200);
    assert_eq!(
        (&updated.body["events"], &updated.body["active"], &updated.body["config"]["content_type"]),
        (&json!(["issues", "push"]), &json!(false), &json!("form"))
    );
    assert!(updated.body["updated_at"].as_str() > updated.body["created_at"].as_str());
    assert_eq!(upstream.get(ADA, &format!("{path}/config")).body["insecure_ssl"], "1");
}

#[test]
fn hooks_are_listed_in_pages() {
    let mut upstream = Upstream::new();
    for _ in 0..34 {
        create(&mut upstream);
    }
    let first = upstream.get(ADA, HOOKS);
    assert_eq!(first.items().len(), 30);
    let next = first.link("next").expect("there are more");
    let second = upstream.get(ADA, next.strip_prefix("http://upstream.test").expect("our address"));
    assert_eq!((second.items().len(), second.link("next")), (5, None));
    assert_eq!(upstream.get(ADA, &format!("{HOOKS}?per_page=2&page=3")).items().len(), 2);
}

#[test]
fn username_and_password_are_never_shown() {
    let mut upstream = Upstream::new();
    let config = json!({ "url": "https://example.com/hook", "username": "emu_user", "password": "emu_password" });
    let created =
        upstream.post(ADA, HOOKS, &json!({ "name": "web", "config": config })).assert_status(201);
    let path = format!("{HOOKS}/{}", created.body["id"]);
    let updated = upstream
        .patch(ADA, &path, &json!({ "config": { "url": "https://example.com/b", "username": 7 } }))
        .assert_status(200);
    let config = upstream.get(ADA, &format!("{path}/config")).assert_status(200);
    for answer in [created, updated, config] {
        assert!(
            !answer.body.to_string().contains("emu_user")
                && !answer.body.to_string().contains("emu_password"),
            "{}",
            answer.body
        );
    }
}

#[test]
fn a_star_stands_for_all_events_and_the_same_event_counts_once() {
    let mut upstream = Upstream::new();
    let events = |events: Value| json!({ "name": "web", "config": { "url": "https://example.com/hook" }, "events": events });
    let all = upstream.post(ADA, HOOKS, &events(json!(["*"]))).assert_status(201);
    let twice =
        upstream.post(ADA, HOOKS, &events(json!(["push", "issues", "push"]))).assert_status(201);
    assert_eq!(twice.body["events"], json!(["push", "issues"]));
    upstream
        .post(BEN, "/repos/acme/widgets/issues/1/comments", &json!({ "body": "x" }))
        .assert_status(201);
    let deliveries = |upstream: &mut Upstream, hook: &Answer| {
        upstream.get(ADA, &format!("{HOOKS}/{}/deliveries", hook.body["id"])).items().len()
    };
    assert_eq!((deliveries(&mut upstream, &all), deliveries(&mut upstream, &twice)), (1, 0));
}

#[test]
fn an_inactive_hook_gets_no_events() {
    let mut upstream = Upstream::new();
    let body = json!({ "name": "web", "config": { "url": "https://example.com/hook" }, "events": ["*"], "active": false });
    let hook = upstream.post(ADA, HOOKS, &body).assert_status(201);
    upstream.post(BEN, "/repos/acme/widgets/issues", &json!({ "title": "x" })).assert_status(201);
    assert!(
        upstream.get(ADA, &format!("{HOOKS}/{}/deliveries", hook.body["id"])).items().is_empty()
    );
}

#[test]
fn an_unknown_hook_is_404_and_a_malformed_body_is_400() {
    let mut upstream = Upstream::new();
    for id in ["0", "abc", "-1", "18446744073709551616", "%F0%9F%A6%80"] {
        for rest in ["", "/config", "/deliveries", "/deliveries/1"] {
            upstream.get(ADA, &format!("{HOOKS}/{id}{rest}")).assert_status(404);
        }
        upstream.patch(ADA, &format!("{HOOKS}/{id}"), &json!({})).assert_status(404);
        upstream.delete(ADA, &format!("{HOOKS}/{id}")).assert_status(404);
        upstream
            .post(ADA, &format!("{HOOKS}/{id}/deliveries/1/attempts"), &Value::Null)
            .assert_status(404);
    }
    let path = create(&mut upstream);
    for body in ["{", "[]", "\"web\"", "\u{0}"] {
        for (method, path) in [
            (Method::POST, HOOKS),
            (Method::PATCH, &path),
            (Method::PATCH, &format!("{path}/config")),
        ] {
            let mut malformed = request(method, ADA, path, &[], &Value::Null);
            *malformed.body_mut() = Bytes::from_static(body.as_bytes());
            upstream.send(&malformed).assert_status(400);
        }
    }
}

#[test]
fn the_number_of_hooks_of_an_organisation_is_bounded() {
    let mut upstream = Upstream::new();
    upstream.set_limit("points.rest", 10_000);
    for _ in 0..248 {
        create(&mut upstream);
    }
    upstream.post(ADA, HOOKS, &new_hook()).assert_names_field("base");
}

#[test]
fn a_configuration_patch_changes_only_the_named_fields() {
    let mut upstream = Upstream::new();
    let path = create(&mut upstream);
    let config = upstream
        .patch(ADA, &format!("{path}/config"), &json!({ "insecure_ssl": 1 }))
        .assert_status(200);
    assert_eq!(
        (&config.body["insecure_ssl"], &config.body["secret"]),
        (&json!("1"), &json!("********"))
    );
    upstream
        .patch(ADA, &format!("{path}/config"), &json!({ "content_type": "xml" }))
        .assert_names_field("content_type");
}

#[test]
fn a_deleted_hook_is_gone() {
    let mut upstream = Upstream::new();
    let path = create(&mut upstream);
    upstream.delete(ADA, &path).assert_status(204);
    upstream.get(ADA, &path).assert_status(404);
    upstream.delete(ADA, &path).assert_status(404);
}
