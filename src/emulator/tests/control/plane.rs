//! Tests the control plane (SPECIFICATION, "Emulator").

use serde_json::{Value, json};

use crate::emulator::tests::*;

#[test]
fn the_world_shows_everything_a_test_needs_to_pick_a_case() {
    let mut upstream = Upstream::new();
    let world = upstream.get(NOBODY, "/_emulator/world").assert_status(200).body;
    for list in [
        "tokens",
        "apps",
        "oauth_apps",
        "users",
        "organizations",
        "repositories",
        "threads",
        "hooks",
    ] {
        assert!(world[list].as_array().is_some_and(|list| !list.is_empty()), "{list}");
    }
    for field in ["token", "account", "kind", "scopes", "permissions"] {
        assert!(world["tokens"][0].get(field).is_some(), "{field}");
    }
    assert!(
        world["organizations"]
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one["teams"][0]["synchronised"] == true))
    );
}

#[test]
fn the_control_plane_is_neither_counted_nor_recorded() {
    let mut upstream = Upstream::new();
    upstream.get(ADA, "/_emulator/world");
    assert_eq!(upstream.get(ADA, "/user").remaining(), 4_999);
    assert_eq!(upstream.emulator.transcript(0).len(), 1);
}

#[test]
fn the_transcript_records_how_each_request_was_served() {
    let mut upstream = Upstream::new();
    let etag = upstream.get(ADA, "/repos/acme/widgets").header("etag").to_owned();
    upstream.get_with(ADA, "/repos/acme/widgets?x=1", &[("if-none-match", &etag)]);
    let all = upstream.get(NOBODY, "/_emulator/transcript").body["requests"].clone();
    let second = &all[1];
    assert_eq!(
        (&second["sequence"], &second["path"], &second["endpoint"]),
        (&json!(2), &json!("/repos/acme/widgets?x=1"), &json!("GET /repos/{owner}/{repo}"))
    );
    assert_eq!(
        (&second["account"], &second["token"], &second["resource"]),
        (&json!("ada"), &json!(0), &json!("core"))
    );
    assert_eq!(
        (&second["status"], &second["cost"], &second["points"]),
        (&json!(304), &json!(0), &json!(1))
    );
    assert_eq!(
        (&second["conditional"], &second["executed"], &second["concurrency"]),
        (&json!("etag"), &json!(true), &json!(0))
    );
    assert_eq!(
        upstream.get(NOBODY, "/_emulator/transcript?since=1").body["requests"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    upstream.get(NOBODY, "/_emulator/transcript?since=x").assert_status(422);
}

#[test]
fn the_usage_report_shows_every_window() {
    let mut upstream = Upstream::new();
    upstream.get(ADA, "/user");
    upstream.get(ADA, "/search/issues?q=x");
    let usage = upstream.usage();
    let windows = usage["windows"].as_array().expect("a list");
    assert_eq!(windows.len(), 2);
    assert!(windows.iter().any(|window| window["resource"] == "core"
        && window["account"] == "ada"
        && window["used"] == 1
        && window["remaining"] == 4_999));
    assert_eq!(usage["secondary"][0]["points"]["GET /user"], 1);
}

#[test]
fn limits_are_set_all_or_none() {
    let mut upstream = Upstream::new();
    upstream
        .put(NOBODY, "/_emulator/limits", &json!({ "core": 5, "no such": 1 }))
        .assert_status(422);
    assert_eq!(upstream.get(NOBODY, "/_emulator/limits").body["limits"]["core.user"], 5_000);
    upstream
        .put(NOBODY, "/_emulator/limits", &json!({ "limits": { "core": 5 } }))
        .assert_status(200);
    assert_eq!(upstream.get(NOBODY, "/_emulator/limits").body["limits"]["core.user"], 5);
    upstream.put(NOBODY, "/_emulator/limits", &json!({ "core": "many" })).assert_status(422);
    upstream.put(NOBODY, "/_emulator/limits", &json!([])).assert_status(400);
}

#[test]
fn a_gate_holds_matching_requests_until_it_is_deleted() {
    let mut upstream = Upstream::new();
    let gate = upstream
        .post(
            NOBODY,
            "/_emulator/gates",
            &json!({ "match": { "method": "GET", "path": "/repos/*" } }),
        )
        .assert_status(201);
    let path = format!("/_emulator/gates/{}", gate.body["id"]);
    let held = upstream.emulator.arrive(
        upstream.now,
        &request(Method::GET, ADA, "/repos/acme/widgets", &[], &Value::Null),
        PEER,
    );
    let free = upstream.emulator.arrive(
        upstream.now,
        &request(Method::GET, ADA, "/user", &[], &Value::Null),
        PEER,
    );
    assert!(held.gate.is_some_and(|gate| !upstream.emulator.gate_is_open(gate)));
    assert_eq!(free.gate, None);
    assert_eq!(upstream.get(NOBODY, &path).body["held"], 1);
    assert_eq!(upstream.delete(NOBODY, &path).assert_status(200).body["released"], 1);
    assert!(held.gate.is_some_and(|gate| upstream.emulator.gate_is_open(gate)));
    upstream.get(NOBODY, &path).assert_status(404);
}

#[test]
fn a_disconnected_client_leaves_its_gate() {
    let mut upstream = Upstream::new();
    let gate =
        upstream.post(NOBODY, "/_emulator/gates", &json!({})).body["id"].as_u64().expect("an id");
    let held = upstream.emulator.arrive(
        upstream.now,
        &request(Method::GET, ADA, "/user", &[], &Value::Null),
        PEER,
    );
    assert_eq!(upstream.emulator.held(crate::emulator::faults::gates::GateId(gate)), 1);
    upstream.emulator.finish(upstream.now, held.id);
    assert_eq!(upstream.emulator.held(crate::emulator::faults::gates::GateId(gate)), 0);
}

#[test]
fn an_event_changes_the_world() {
    let mut upstream = Upstream::new();
    let date = upstream.get(ADA, "/notifications").header("last-modified").to_owned();
    let opened = json!({ "type": "issue_opened", "repository": "acme/widgets", "actor": "ben", "text": "A new one" });
    upstream.post(NOBODY, "/_emulator/events", &opened).assert_status(201);
    let newest = upstream
        .get_with(ADA, "/notifications", &[("if-modified-since", &date)])
        .assert_status(200);
    assert_eq!(
        (&newest.items()[0]["subject"]["title"], &newest.items()[0]["reason"]),
        (&json!("A new one"), &json!("subscribed"))
    );
    upstream
        .post(
            NOBODY,
            "/_emulator/events",
            &json!({ "type": "flood", "repository": "acme/widgets" }),
        )
        .assert_status(422);
    upstream.post(NOBODY, "/_emulator/events", &json!({ "type": "comment" })).assert_status(422);
}

#[test]
fn a_reset_brings_the_seed_back() {
    let mut upstream = Upstream::new();
    upstream.set_limit("core", 1);
    upstream.post(ADA, "/repos/acme/widgets/issues", &json!({ "title": "x" })).assert_status(201);
    upstream.post(NOBODY, "/_emulator/reset", &Value::Null).assert_status(200);
    assert!(upstream.emulator.transcript(0).is_empty());
    assert_eq!(upstream.get(ADA, "/user").assert_status(200).remaining(), 4_999);
    upstream.get(ADA, "/repos/acme/widgets/issues/80").assert_status(404);
}

#[test]
fn an_unknown_control_is_404() {
    Upstream::new().get(NOBODY, "/_emulator/teapot").assert_status(404);
}
