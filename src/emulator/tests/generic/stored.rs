//! Tests the generic stored resource behind routes with undocumented shapes: lists, items,
//! settings, actions, families.

use http::Method;
use serde_json::{Value, json};

use super::inventory::{request_with, routes, unlimited, walkable};
use crate::api::Endpoint;
use crate::emulator::resources::find;
use crate::emulator::routing::Verb;
use crate::emulator::tests::*;

/// Returns all members that any list of the table requires of a new object.
fn anything() -> Value {
    json!({
        "name": "thing", "value": "v", "head_sha": "main", "ref": "main", "state": "success", "key": "ssh-ed25519 AAAA", "body": "text",
        "content": "heart", "files": { "a": { "content": "b" } }, "enforcement": "active", "key_prefix": "X-", "armored_public_key": "key",
        "url_template": "https://example.com/<num>", "commit_sha": "main", "sarif": "e30=", "kept": { "as": ["it", "is", null, 3] },
    })
}

/// Lists the table's lists without hand-written routes, each with the address of its items.
fn lists() -> Vec<(&'static Endpoint, &'static Endpoint)> {
    let item_of = |list: &Endpoint| {
        routes(Dialect::Service).find(|item| {
            let own = item
                .template
                .strip_prefix(&list.template)
                .and_then(|rest| rest.strip_prefix("/{"))
                .and_then(|rest| rest.strip_suffix('}'));
            item.method == Method::GET && own.is_some_and(|param| !param.contains(['/', '*']))
        })
    };
    let made =
        routes(Dialect::Service).filter(|list| list.method == Method::POST && is_generic(list));
    made.filter_map(|list| Some((list, item_of(list).filter(|item| is_generic(item))?))).collect()
}

fn is_generic(endpoint: &Endpoint) -> bool {
    Verb::of(&endpoint.method)
        .is_some_and(|verb| find(verb, &walkable(endpoint, "widgets")).is_none())
}

fn has_route(method: &Method, template: &str) -> bool {
    routes(Dialect::Service)
        .any(|endpoint| endpoint.method == *method && endpoint.template == template)
}

fn name_of(made: &Answer) -> String {
    made.body["url"].as_str().and_then(|url| url.rsplit('/').next()).unwrap_or_default().to_owned()
}

#[test]
fn a_posted_item_is_listed_until_it_is_deleted() {
    let mut walked = 0;
    for (list, item) in lists().into_iter().filter(|(list, _)| {
        list.template.starts_with("/repos/") || list.template.starts_with("/orgs/")
    }) {
        // Another test covers collections below unknown objects, and the world itself has teams.
        if walkable(list, "widgets").contains("4711") || list.template.ends_with("/teams") {
            continue;
        }
        let mut upstream = unlimited(Dialect::Service);
        let address = walkable(list, "widgets");
        let made = upstream.post(ADA, &address, &anything());
        assert!(matches!(made.status, 201 | 202), "POST {address} → {} {}", made.status, made.body);
        let thing = format!("{address}/{}", name_of(&made));
        let got = upstream.get(ADA, &thing);
        assert_eq!(got.status, 200, "{thing}");
        assert_eq!(
            (&got.body["kept"], &got.body["id"]),
            (&json!({ "as": ["it", "is", null, 3] }), &made.body["id"]),
            "{thing}"
        );
        assert_eq!(got.body["created_at"], got.body["updated_at"], "{thing}");
        if has_route(&Method::GET, &list.template) {
            let listed = upstream.get(ADA, &address).assert_status(200);
            let items = listed
                .body
                .as_array()
                .or_else(|| listed.body.as_object()?.values().find_map(Value::as_array))
                .expect("a list");
            assert!(items.iter().any(|one| one["id"] == made.body["id"]), "{address}");
        }
        upstream.pass(5);
        if has_route(&Method::PATCH, &item.template) {
            let changed = upstream.patch(
                ADA,
                &thing,
                &json!({ "kept": "otherwise", "id": 1, "created_at": "never" }),
            );
            assert!(matches!(changed.status, 200 | 204), "PATCH {thing} → {}", changed.status);
            let after = upstream.get(ADA, &thing).body;
            assert_eq!(
                (&after["kept"], &after["id"]),
                (&json!("otherwise"), &made.body["id"]),
                "{thing}"
            );
            assert!(after["updated_at"].as_str() > after["created_at"].as_str(), "{thing}");
        }
        if has_route(&Method::DELETE, &item.template) {
            upstream.delete(ADA, &thing).assert_status(204);
            upstream.get(ADA, &thing).assert_status(404);
            upstream.delete(ADA, &thing).assert_status(404);
        }
        walked += 1;
    }
    assert!(walked >= 12, "{walked}");
}

#[test]
fn unknown_ids_are_not_found() {
    let mut upstream = unlimited(Dialect::Service);
    for path in [
        "/repos/acme/widgets/deployments/4711",
        "/repos/acme/widgets/deployments/4711/statuses",
        "/repos/acme/widgets/deployments/x",
        "/repos/acme/widgets/actions/runs/99999999999999999999/jobs",
        "/repos/acme/widgets/issues/4711/timeline",
        "/repos/acme/widgets/issues/x/events",
        "/orgs/acme/rulesets/4711",
        "/orgs/acme/code-security/configurations/4711/repositories",
        "/repos/acme/widgets/commits/nothing/check-runs",
        "/orgs/acme/members/nobody/codespaces",
        "/orgs/nothing/actions/permissions",
        "/repos/acme/nothing/deployments",
        "/enterprises/nothing/actions/cache/storage-limit",
        "/users/nobody/received_events",
    ] {
        upstream.get(ADA, path).assert_status(404);
    }
    upstream
        .put(ADA, "/orgs/acme/actions/permissions/repositories/4711", &Value::Null)
        .assert_status(404);
    upstream.put(ADA, "/orgs/acme/rulesets/4711", &json!({ "name": "x" })).assert_status(404);
    upstream
        .post(ADA, "/repos/acme/widgets/actions/runs/4711/cancel", &Value::Null)
        .assert_status(404);
}

#[test]
fn settings_have_defaults_and_keep_the_values_of_a_put() {
    let mut upstream = Upstream::new();
    for path in [
        "/orgs/acme/actions/permissions",
        "/organizations/acme/actions/cache/storage-limit",
        "/repos/acme/widgets/actions/permissions/workflow",
    ] {
        assert!(upstream.get(ADA, path).assert_status(200).body.is_object());
        let put = upstream.put(ADA, path, &json!({ "chosen": [1, 2] })).assert_status(204);
        assert!(put.bytes.is_empty());
        upstream.pass(1);
        let kept = upstream.get(ADA, path).assert_status(200);
        assert_eq!(kept.body["chosen"], json!([1, 2]));
        assert!(!kept.header("last-modified").is_empty());
        upstream.put(ADA, path, &json!({ "other": true })).assert_status(204);
        assert_eq!(upstream.get(ADA, path).body["chosen"], Value::Null, "PUT sets it whole");
    }
    let limits = upstream
        .put(ADA, "/orgs/acme/interaction-limits", &json!({ "limit": "existing_users" }))
        .assert_status(200);
    assert_eq!(limits.body["limit"], "existing_users");
    upstream.delete(ADA, "/orgs/acme/interaction-limits").assert_status(204);
    assert_eq!(
        upstream.get(ADA, "/orgs/acme/interaction-limits").assert_status(200).body["limit"],
        Value::Null
    );
}

#[test]
fn an_object_is_the_same_under_each_of_its_addresses() {
    let mut upstream = Upstream::new();
    upstream
        .put(ADA, "/orgs/ACME/interaction-limits", &json!({ "limit": "existing_users" }))
        .assert_status(200);
    assert_eq!(
        upstream.get(ADA, "/organizations/201/interaction-limits").assert_status(200).body["limit"],
        "existing_users"
    );
    upstream
        .put(ADA, "/organizations/201/actions/cache/retention-limit", &json!({ "days": 3 }))
        .assert_status(204);
    assert_eq!(
        upstream
            .get(ADA, "/organizations/acme/actions/cache/retention-limit")
            .assert_status(200)
            .body["days"],
        3
    );
    let key =
        upstream.post(ADA, "/user/keys", &json!({ "key": "ssh-ed25519 AAAA" })).assert_status(201);
    for path in ["/users/ada/keys", "/user/101/keys"] {
        assert_eq!(
            upstream.get(BEN, path).assert_status(200).items()[0]["id"],
            key.body["id"],
            "{path}"
        );
    }
    assert_eq!(
        upstream.get(BEN, "/user/keys").assert_status(200).items().len(),
        0,
        "each account has its own"
    );
}

#[test]
fn a_renamed_repository_keeps_and_redirects_to_its_items() {
    let mut upstream = Upstream::new();
    let made = upstream
        .post(ADA, "/repos/acme/widgets/deployments", &json!({ "ref": "main" }))
        .assert_status(201);
    upstream.patch(ADA, "/repos/acme/widgets", &json!({ "name": "gizmos" })).assert_status(200);
    let there = format!("/repos/acme/gizmos/deployments/{}", made.body["id"]);
    assert_eq!(upstream.get(ADA, &there).assert_status(200).body["id"], made.body["id"]);
    let moved = upstream.get(ADA, "/repos/acme/widgets/deployments?page=2").assert_status(301);
    assert_eq!(
        moved.header("location"),
        "http://upstream.test/repositories/1001/deployments?page=2"
    );
    upstream.get(ADA, "/repositories/1001/deployments").assert_status(200);
    let moved = upstream
        .post(ADA, "/repos/acme/widgets/deployments", &json!({ "ref": "main" }))
        .assert_status(307);
    assert_eq!(moved.header("location"), "http://upstream.test/repositories/1001/deployments");
}

#[test]
fn repositories_are_selected_singly_or_as_a_whole_list() {
    let mut upstream = Upstream::new();
    let path = "/orgs/acme/actions/permissions/repositories";
    upstream.put(ADA, path, &json!({ "selected_repository_ids": [1001, 1002] })).assert_status(204);
    let chosen = upstream.get(ADA, path).assert_status(200);
    assert_eq!(
        (&chosen.body["total_count"], &chosen.body["repositories"][0]["full_name"]),
        (&json!(2), &json!("acme/widgets"))
    );
    upstream.delete(ADA, &format!("{path}/1001")).assert_status(204);
    upstream.delete(ADA, &format!("{path}/1001")).assert_status(404);
    upstream.put(ADA, &format!("{path}/1003"), &Value::Null).assert_status(204);
    upstream.put(ADA, &format!("{path}/1003"), &Value::Null).assert_status(204);
    assert_eq!(upstream.get(ADA, path).body["total_count"], 2);
    for bad in [
        json!({ "selected_repository_ids": [4711] }),
        json!({ "selected_repository_ids": "all" }),
        json!({ "selected_repository_ids": [-1] }),
        json!({}),
    ] {
        upstream.put(ADA, path, &bad).assert_names_field("selected_repository_ids");
    }
}

#[test]
fn secrets_are_write_only() {
    let mut upstream = Upstream::new();
    let path = "/repos/acme/widgets/actions/secrets/TOKEN";
    upstream.get(ADA, path).assert_status(404);
    upstream
        .put(ADA, path, &json!({ "encrypted_value": "c2VjcmV0", "key_id": "1" }))
        .assert_status(201);
    upstream
        .put(ADA, path, &json!({ "encrypted_value": "b3RoZXI=", "key_id": "1" }))
        .assert_status(204);
    let shown = upstream.get(ADA, path).assert_status(200);
    assert_eq!(shown.body["name"], "TOKEN");
    assert!(!String::from_utf8_lossy(&shown.bytes).contains("b3RoZXI"));
    assert_eq!(upstream.get(ADA, "/repos/acme/widgets/actions/secrets").body["total_count"], 1);
    let organization = "/orgs/acme/actions/secrets/DEPLOY_KEY";
    upstream.put(ADA, organization, &json!({ "encrypted_value": "c2VjcmV0" })).assert_status(201);
    assert_eq!(
        upstream.get(ADA, "/orgs/acme/actions/secrets").assert_status(200).body["secrets"][0]["name"],
        "DEPLOY_KEY"
    );
    upstream
        .put(ADA, &format!("{organization}/repositories/1001"), &Value::Null)
        .assert_status(204);
    assert_eq!(
        upstream.get(ADA, &format!("{organization}/repositories")).assert_status(200).items()[0]["full_name"],
        "acme/widgets"
    );
    upstream
        .put(ADA, "/orgs/acme/actions/secrets/NEVER/repositories/1001", &Value::Null)
        .assert_status(404);
}

#[test]
fn a_variable_is_addressed_by_its_unique_name() {
    let mut upstream = Upstream::new();
    let list = "/repos/acme/widgets/actions/variables";
    upstream.post(ADA, list, &json!({ "name": "STAGE", "value": "test" })).assert_status(201);
    upstream
        .post(ADA, list, &json!({ "name": "STAGE", "value": "test" }))
        .assert_names_field("name");
    upstream.post(ADA, list, &json!({ "name": 7 })).assert_names_field("value");
    upstream.patch(ADA, &format!("{list}/STAGE"), &json!({ "value": "live" })).assert_status(204);
    assert_eq!(upstream.get(ADA, &format!("{list}/STAGE")).body["value"], "live");
}

#[test]
fn malformed_bodies_are_bad_requests() {
    let mut upstream = Upstream::new();
    let send = |upstream: &mut Upstream, method: Method, path: &str, body: &'static str| {
        let mut request = request_with(upstream, &method, ADA, path, &Value::Null);
        *request.body_mut() = Bytes::from_static(body.as_bytes());
        upstream.send(&request)
    };
    for (method, path) in [
        (Method::POST, "/repos/acme/widgets/deployments"),
        (Method::PUT, "/orgs/acme/actions/permissions"),
        (Method::PATCH, "/orgs/acme/secret-scanning/pattern-configurations"),
        (Method::POST, "/repos/acme/widgets/actions/workflows/10000100101/dispatches"),
        (Method::PUT, "/repos/acme/widgets/environments/stage"),
    ] {
        for body in ["{", "{\"a\":", "nonsense", "\"text\"", "7", "null", "[1]"] {
            assert_eq!(
                send(&mut upstream, method.clone(), path, body).status,
                400,
                "{method} {path} {body}"
            );
        }
    }
    assert_eq!(
        send(&mut upstream, Method::POST, "/user/emails", "[\"a@example.com\"]").status,
        201,
        "an array where arrays are taken"
    );
    upstream.post(ADA, "/repos/acme/widgets/deployments", &json!({})).assert_names_field("ref");
    upstream
        .post(ADA, "/repos/acme/widgets/check-runs", &json!({ "name": [], "head_sha": "main" }))
        .assert_names_field("name");
    upstream
        .post(ADA, "/repos/acme/widgets/check-runs", &json!({ "name": "x", "head_sha": "nothing" }))
        .assert_names_field("head_sha");
}

#[test]
fn a_large_item_or_a_full_list_is_refused() {
    let mut upstream = unlimited(Dialect::Service);
    let large = "x".repeat(300 * 1024);
    upstream
        .post(ADA, "/repos/acme/widgets/deployments", &json!({ "ref": "main", "payload": large }))
        .assert_names_field("base");
    let full = (0..1_100)
        .map(|_| {
            upstream.post(ADA, "/repos/acme/widgets/deployments", &json!({ "ref": "main" })).status
        })
        .find(|status| *status != 201);
    assert_eq!(full, Some(422));
    upstream
        .post(ADA, "/repos/acme/sprockets/deployments", &json!({ "ref": "main" }))
        .assert_status(201);
}

#[test]
fn lists_are_paged_and_linked() {
    let mut upstream = unlimited(Dialect::Service);
    for number in 0..7 {
        upstream
            .post(
                ADA,
                "/repos/acme/sprockets/autolinks",
                &json!({ "key_prefix": format!("K{number}-"), "url_template": "x" }),
            )
            .assert_status(201);
    }
    let first = upstream.get(ADA, "/repos/acme/sprockets/autolinks?per_page=3").assert_status(200);
    assert_eq!(first.items().len(), 3);
    assert_eq!(
        first.link("next").as_deref(),
        Some("http://upstream.test/repos/acme/sprockets/autolinks?per_page=3&page=2")
    );
    let last =
        upstream.get(ADA, "/repos/acme/sprockets/autolinks?per_page=3&page=3").assert_status(200);
    assert_eq!((last.items().len(), last.link("next")), (1, None));
    assert_eq!(
        upstream
            .get(ADA, "/repos/acme/sprockets/autolinks?page=99")
            .assert_status(200)
            .items()
            .len(),
        0
    );
    upstream.get(ADA, "/repos/acme/widgets/hooks/1/deliveries?cursor=x").assert_status(404);
}

#[test]
fn a_get_of_something_unchanged_is_304() {
    let mut upstream = Upstream::new();
    let path = "/repos/acme/widgets/environments/production";
    let first = upstream.get(ADA, path).assert_status(200);
    let (etag, modified) =
        (first.header("etag").to_owned(), first.header("last-modified").to_owned());
    upstream.get_with(ADA, path, &[("if-none-match", &etag)]).assert_status(304);
    upstream.get_with(ADA, path, &[("if-modified-since", &modified)]).assert_status(304);
    upstream.put(ADA, path, &json!({ "wait_timer": 5 })).assert_status(200);
    upstream.pass(2);
    assert_eq!(
        upstream.get_with(ADA, path, &[("if-modified-since", &modified)]).assert_status(200).body["wait_timer"],
        5
    );
}

#[test]
fn a_polled_list_states_poll_interval_and_last_modified() {
    let mut upstream = unlimited(Dialect::Service);
    for endpoint in
        routes(Dialect::Service).filter(|endpoint| endpoint.polls && is_generic(endpoint))
    {
        let path = walkable(endpoint, "widgets");
        let answer = upstream.get(ADA, &path).assert_status(200);
        assert_eq!(answer.header("x-poll-interval"), "60", "{path}");
        let modified = answer.header("last-modified").to_owned();
        upstream.get_with(ADA, &path, &[("if-modified-since", &modified)]).assert_status(304);
    }
}

#[test]
fn an_action_changes_the_object_it_is_called_on() {
    let mut upstream = Upstream::new();
    let runs = "/repos/acme/widgets/actions/runs";
    upstream.post(ADA, &format!("{runs}/10000100112/cancel"), &Value::Null).assert_status(202);
    assert_eq!(upstream.get(ADA, &format!("{runs}/10000100112")).body["conclusion"], "cancelled");
    upstream.post(ADA, &format!("{runs}/10000100112/rerun"), &Value::Null).assert_status(201);
    let again = upstream.get(ADA, &format!("{runs}/10000100112")).body;
    assert_eq!((&again["status"], &again["run_attempt"]), (&json!("queued"), &json!(2)));
    let workflow = "/repos/acme/widgets/actions/workflows/10000100101";
    upstream
        .post(ADA, &format!("{workflow}/dispatches"), &json!({ "ref": "nothing" }))
        .assert_names_field("ref");
    upstream
        .post(ADA, &format!("{workflow}/dispatches"), &json!({ "ref": "main" }))
        .assert_status(204);
    let listed = upstream.get(ADA, &format!("{workflow}/runs")).assert_status(200);
    let runs = listed.body["workflow_runs"].as_array().expect("runs");
    let dispatched = runs.iter().filter(|run| run["event"] == "workflow_dispatch").count();
    assert_eq!((&listed.body["total_count"], dispatched), (&json!(runs.len()), 1));
    upstream.put(ADA, &format!("{workflow}/disable"), &Value::Null).assert_status(204);
    assert_eq!(upstream.get(ADA, workflow).body["state"], "disabled_manually");
    let token = upstream
        .post(ADA, "/orgs/acme/actions/runners/registration-token", &Value::Null)
        .assert_status(201);
    assert!(token.body["token"].is_string() && token.body["expires_at"].is_string());
    assert_eq!(upstream.get(ADA, "/orgs/acme/actions/runners").body["total_count"], 0);
    let runner = upstream
        .post(ADA, "/orgs/acme/actions/runners/generate-jitconfig", &json!({ "name": "box" }))
        .assert_status(201);
    let labels = format!("/orgs/acme/actions/runners/{}/labels", runner.body["runner"]["id"]);
    assert_eq!(
        upstream.post(ADA, &labels, &json!({ "labels": ["gpu", "big"] })).assert_status(200).body["total_count"],
        2
    );
    upstream.delete(ADA, &format!("{labels}/gpu")).assert_status(204);
    assert_eq!(upstream.get(ADA, &labels).assert_status(200).body["labels"][0]["name"], "big");
    upstream.post(ADA, &labels, &json!({ "labels": [7] })).assert_names_field("labels");
}

#[test]
fn a_file_download_redirects_to_another_host() {
    let mut upstream = Upstream::new();
    for path in [
        "/repos/acme/widgets/actions/runs/10000100112/logs",
        "/repos/acme/widgets/actions/jobs/10000100122/logs",
        "/repos/acme/widgets/actions/artifacts/10000100131/zip",
        "/repos/acme/widgets/tarball/main",
        "/repos/acme/widgets/zipball",
    ] {
        assert!(
            upstream
                .get(ADA, path)
                .assert_status(302)
                .header("location")
                .starts_with("https://git.example.com/"),
            "{path}"
        );
    }
    upstream.get(ADA, "/repos/acme/widgets/actions/artifacts/10000100131/rar").assert_status(404);
}

#[test]
fn a_literal_path_segment_is_not_taken_as_an_id() {
    let mut upstream = Upstream::new();
    let comments = upstream.get(NOBODY, "/repos/acme/widgets/pulls/comments").assert_status(200);
    assert_eq!(comments.items().len(), 0);
    for path in ["/repos/acme/widgets/issues/events", "/repositories/1001/issues/events"] {
        let events = upstream.get(NOBODY, path).assert_status(200);
        assert!(events.items().iter().all(|event| event["event"].is_string()), "{path}");
    }
    upstream.get(NOBODY, "/repos/acme/widgets/issues/comments").assert_status(200);
    let comment = upstream
        .post(
            BEN,
            "/repos/acme/widgets/pulls/76/comments",
            &json!({ "body": "Look", "path": "README.md" }),
        )
        .assert_status(201);
    assert_eq!(
        upstream.get(NOBODY, "/repos/acme/widgets/pulls/comments").items()[0]["id"],
        comment.body["id"]
    );
    let own = format!("/repos/acme/widgets/pulls/comments/{}", comment.body["id"]);
    assert_eq!(upstream.get(NOBODY, &own).assert_status(200).body["pull_number"], 76);
}

#[test]
fn a_wrong_method_or_a_trailing_slash_is_not_found() {
    let mut upstream = Upstream::new();
    for (method, path) in [
        (Method::PUT, "/repos/acme/widgets/issues"),
        (Method::DELETE, "/repos/acme/widgets/issues/1"),
        (Method::PUT, "/repos/acme/widgets/actions/runs/10000100112"),
        (Method::POST, "/orgs/acme/actions/permissions"),
        (Method::GET, "/orgs/acme/actions/permissions/"),
        (Method::GET, "/repos/acme/widgets/deployments/"),
        (Method::GET, "/orgs/acme/unheard-of"),
        (Method::GET, "/nothing/of/the/sort"),
    ] {
        let answer = upstream.send(&request_with(&upstream, &method, ADA, path, &Value::Null));
        assert_eq!(
            (answer.status, &answer.body["message"]),
            (404, &json!("Not Found")),
            "{method} {path}"
        );
    }
}

#[test]
fn a_variable_of_an_organization_is_found_by_its_name() {
    let mut upstream = unlimited(Dialect::Service);
    let list = "/orgs/acme/actions/variables";
    let sent = json!({ "name": "LEVEL", "value": "debug", "visibility": "all" });
    upstream.post(ADA, list, &sent).assert_status(201);
    upstream.post(ADA, list, &sent).assert_names_field("name");
    let one = format!("{list}/LEVEL");
    assert_eq!(upstream.get(ADA, &one).assert_status(200).body["value"], "debug");
    upstream.patch(ADA, &one, &json!({ "value": "info" })).assert_status(204);
    assert_eq!(upstream.get(ADA, &one).body["value"], "info");
    let listed = upstream.get(ADA, list).assert_status(200).body;
    assert_eq!(
        (&listed["total_count"], &listed["variables"][0]["name"]),
        (&json!(1), &json!("LEVEL"))
    );
    upstream.delete(ADA, &one).assert_status(204);
    upstream.get(ADA, &one).assert_status(404);
}

#[test]
fn every_list_of_secrets_has_a_public_key() {
    let mut upstream = unlimited(Dialect::Service);
    for list in [
        "/orgs/acme/actions/secrets",
        "/orgs/acme/codespaces/secrets",
        "/orgs/acme/dependabot/secrets",
        "/repos/acme/widgets/actions/secrets",
        "/repos/acme/widgets/codespaces/secrets",
        "/repos/acme/widgets/dependabot/secrets",
        "/repos/acme/widgets/environments/production/secrets",
    ] {
        let key = upstream.get(ADA, &format!("{list}/public-key")).assert_status(200).body;
        assert!(key["key_id"].is_string() && key["key"].is_string(), "{list}: {key}");
        assert!(key.get("id").is_none(), "{list}: {key}");
        let secret = format!("{list}/KEY");
        let sent = json!({ "encrypted_value": "eA==", "key_id": "1", "visibility": "all" });
        upstream.put(ADA, &secret, &sent).assert_status(201);
        upstream.put(ADA, &secret, &sent).assert_status(204);
        let shown = upstream.get(ADA, &secret).assert_status(200).body;
        assert!(shown.get("encrypted_value").is_none(), "{shown}");
    }
}
