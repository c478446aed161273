//! Tests that controls refuse whatever can have no effect: limits, faults, events and tokens.

use serde_json::{Value, json};

use crate::emulator::tests::*;

#[test]
fn a_limit_of_nothing_or_out_of_bounds_is_refused() {
    let mut upstream = Upstream::new();
    for (name, value) in [
        ("core@nobody", 5),
        ("core@", 5),
        ("points@GET /nowhere", 5),
        ("points@FETCH /user", 5),
        ("content.minute@POST /user", 5),
        ("refusal.status", 200),
        ("refusal.retry-after", 3),
        ("window.primary", 0),
        ("core", u64::MAX),
    ] {
        upstream.put(NOBODY, "/_emulator/limits", &json!({ name: value })).assert_names_field(name);
    }
    let beside = json!({ "limits": { "core": 5 }, "search": 1 });
    upstream.put(NOBODY, "/_emulator/limits", &beside).assert_names_field("search");
    upstream.put(NOBODY, "/_emulator/limits?dry=1", &json!({})).assert_names_field("dry");
    let whole = upstream.get(NOBODY, "/_emulator/limits").assert_status(200).body;
    assert_eq!(whole["limits"]["core.user"], 5_000, "nothing was set");
    upstream.put(NOBODY, "/_emulator/limits", &whole).assert_status(200);
    for name in ["core@ada", "core@installation-311", "core@anonymous-127.0.0.1"] {
        upstream.put(NOBODY, "/_emulator/limits", &json!({ name: 5 })).assert_status(200);
    }
    for name in ["points@GET /user", "points@POST /graphql", "points@GET /orgs/{org}/events"] {
        upstream.put(NOBODY, "/_emulator/limits", &json!({ name: 5 })).assert_status(200);
    }
}

#[test]
fn a_fault_that_strikes_nothing_is_refused() {
    let mut upstream = Upstream::new();
    for (member, value) in [
        ("account", "nobody"),
        ("token", "emu_no_such_token"),
        ("method", "FETCH"),
        ("path", "repos/acme"),
        ("path", "/user?page=1"),
        ("path", "/api/v3/user"),
        ("path", "/_emulator/world"),
        ("path", "/us er"),
    ] {
        let fault = json!({ "fault": "lost", "match": { member: value } });
        upstream
            .post(NOBODY, "/_emulator/faults", &fault)
            .assert_names_field(&format!("match.{member}"));
    }
    upstream.get(NOBODY, "/_emulator/faults?struck=1").assert_names_field("struck");
    assert_eq!(upstream.get(NOBODY, "/_emulator/faults").body["faults"], json!([]));
    let fault = json!({ "fault": "lost", "match": { "account": "installation-311", "token": ADA, "method": "head", "path": "*" } });
    upstream.post(NOBODY, "/_emulator/faults", &fault).assert_status(201);
}

#[test]
fn an_event_with_an_unknown_member_is_refused() {
    let mut upstream = Upstream::new();
    let valid = json!({ "type": "comment", "repository": "acme/widgets", "actor": "ben" });
    upstream.post(NOBODY, "/_emulator/events", &valid).assert_status(201);
    let before = upstream.get(ADA, "/repos/acme/widgets/issues/1").body["comments"].clone();
    for (member, value) in [
        ("tex", json!("a typing error")),
        ("branch", json!("main")),
        ("user", json!("nobody")),
        ("text", json!(" ")),
        ("type", json!("commented")),
        ("organization", json!("acme")),
    ] {
        let mut event = valid.clone();
        event[member] = value;
        let answer = upstream.post(NOBODY, "/_emulator/events", &event).assert_status(422);
        let message = answer.body["message"].as_str().unwrap_or_default();
        assert!(message.contains(member), "{member}: {message}");
    }
    let custom = json!({ "type": "custom", "event": "x", "repository": "acme/widgets", "organization": "acme" });
    upstream.post(NOBODY, "/_emulator/events", &custom).assert_names_field("organization");
    assert_eq!(upstream.get(ADA, "/repos/acme/widgets/issues/1").body["comments"], before);
}

#[test]
fn an_added_token_has_the_chosen_scopes() {
    let mut upstream = Upstream::new();
    let add = |upstream: &mut Upstream, body: Value| {
        upstream.post(NOBODY, "/_emulator/tokens", &body).assert_status(201).body
    };
    let body = json!({ "user": "ada", "scopes": ["read:org", "gist"], "token": "mine" });
    let added = add(&mut upstream, body);
    assert_eq!(
        (&added["token"], &added["kind"], &added["scopes"]),
        (&json!("mine"), &json!("classic"), &json!(["gist", "read:org"]))
    );
    let answer = upstream.get("mine", "/user").assert_status(200);
    assert_eq!(
        (&answer.body["login"], answer.header("x-oauth-scopes")),
        (&json!("ada"), "gist, read:org")
    );
    upstream.get("mine", "/orgs/acme/members").assert_status(200);
    upstream.get("mine", "/repos/acme/gadgets").assert_status(404);
    let body = json!({ "user": "ben", "kind": "fine-grained", "permissions": { "metadata": "read", "issues": "write" }, "seconds": 60 });
    let fine = add(&mut upstream, body)["token"].as_str().expect("a token").to_owned();
    upstream.post(&fine, "/repos/acme/gadgets/issues", &json!({ "title": "x" })).assert_status(201);
    upstream.get(&fine, "/repos/acme/gadgets/contents/README.md").assert_status(403);
    upstream.pass(61);
    upstream.get(&fine, "/user").assert_status(401);
    upstream.post(NOBODY, "/_emulator/reset", &Value::Null).assert_status(200);
    upstream.get("mine", "/user").assert_status(401);
}

#[test]
fn a_malformed_token_is_refused_by_its_field() {
    let mut upstream = Upstream::new();
    for (body, field) in [
        (json!({}), "user"),
        (json!({ "user": "nobody" }), "user"),
        (json!({ "user": "ada", "scopes": "repo" }), "scopes"),
        (json!({ "user": "ada", "scopes": ["repos"] }), "scopes"),
        (json!({ "user": "ada", "permissions": { "issues": "read" } }), "permissions"),
        (json!({ "user": "ada", "kind": "fine-grained", "scopes": [] }), "scopes"),
        (
            json!({ "user": "ada", "kind": "fine-grained", "permissions": { "issues": "all" } }),
            "permissions",
        ),
        (json!({ "user": "ada", "kind": "installation" }), "kind"),
        (json!({ "user": "ada", "token": "a.b.c" }), "token"),
        (json!({ "user": "ada", "token": ADA }), "token"),
        (json!({ "user": "ada", "seconds": 0 }), "seconds"),
        (json!({ "user": "ada", "scope": [] }), "scope"),
    ] {
        upstream.post(NOBODY, "/_emulator/tokens", &body).assert_names_field(field);
    }
}
