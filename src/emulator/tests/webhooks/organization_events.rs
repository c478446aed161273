//! Tests webhook events about an organisation's people, teams, repositories and properties
//! (SPECIFICATION, "Events").

use serde_json::{Value, json};

use crate::emulator::tests::*;

const FINN: &str = "emu_classic_finn_org_scopes";

fn listening() -> (Upstream, String) {
    let mut upstream = Upstream::new();
    let hook =
        json!({ "name": "web", "config": { "url": "https://example.com/" }, "events": ["*"] });
    let id = upstream.post(ADA, "/orgs/acme/hooks", &hook).assert_status(201).body["id"].clone();
    (upstream, format!("/orgs/acme/hooks/{id}/deliveries"))
}

/// Returns all events, oldest first: `event action`, and the payloads.
fn sent_events(upstream: &mut Upstream, deliveries: &str) -> (Vec<String>, Vec<Value>) {
    let mut all =
        upstream.get(ADA, &format!("{deliveries}?per_page=100")).assert_status(200).items().clone();
    all.reverse();
    let name = |one: &Value| {
        format!("{} {}", one["event"].as_str().unwrap_or(""), one["action"].as_str().unwrap_or("-"))
    };
    let payload = |one: &Value| {
        upstream.get(ADA, &format!("{deliveries}/{}", one["id"])).body["request"]["payload"].clone()
    };
    (all.iter().map(name).collect(), all.iter().map(payload).collect())
}

#[test]
fn each_change_of_a_team_member_sends_one_membership_event() {
    let (mut upstream, deliveries) = listening();
    let cleo = "/orgs/acme/teams/platform/memberships/cleo";
    upstream.delete(ADA, cleo);
    let before = sent_events(&mut upstream, &deliveries).0.len();
    upstream.put(ADA, cleo, &Value::Null).assert_status(200);
    upstream.put(ADA, cleo, &json!({ "role": "maintainer" })).assert_status(200);
    upstream.delete(ADA, cleo).assert_status(204);
    upstream.delete(ADA, cleo).assert_status(404);
    upstream
        .put(ADA, "/orgs/acme/teams/platform/memberships/finn", &Value::Null)
        .assert_status(200);
    let (names, payloads) = sent_events(&mut upstream, &deliveries);
    assert_eq!(
        names[before..],
        ["membership added", "membership removed"],
        "an invitation is no membership yet"
    );
    let payload = &payloads[before];
    assert_eq!((&payload["scope"], &payload["team"]["slug"]), (&json!("team"), &json!("platform")));
    assert_eq!(
        (&payload["member"]["login"], &payload["organization"]["login"]),
        (&json!("cleo"), &json!("acme"))
    );
}

#[test]
fn a_joining_or_leaving_member_sends_events_with_its_teams() {
    let (mut upstream, deliveries) = listening();
    upstream
        .put(ADA, "/orgs/acme/teams/platform/memberships/finn", &Value::Null)
        .assert_status(200);
    let accept = json!({ "state": "active" });
    upstream.patch(FINN, "/user/memberships/orgs/acme", &accept).assert_status(200);
    upstream.patch(FINN, "/user/memberships/orgs/acme", &accept).assert_status(200);
    upstream.delete(ADA, "/orgs/acme/members/finn").assert_status(204);
    let (names, payloads) = sent_events(&mut upstream, &deliveries);
    assert_eq!(
        names,
        [
            "organization member_added",
            "membership added",
            "organization member_removed",
            "membership removed"
        ]
    );
    assert_eq!(
        (&payloads[0]["membership"]["user"]["login"], &payloads[0]["membership"]["role"]),
        (&json!("finn"), &json!("member"))
    );
    assert_eq!(
        (&payloads[0]["sender"]["login"], &payloads[2]["sender"]["login"]),
        (&json!("finn"), &json!("ada"))
    );
}

#[test]
fn a_team_sends_created_edited_and_deleted_events() {
    let (mut upstream, deliveries) = listening();
    upstream.post(ADA, "/orgs/acme/teams", &json!({ "name": "New" })).assert_status(201);
    upstream.patch(ADA, "/orgs/acme/teams/new", &json!({ "name": "Newer" })).assert_status(200);
    upstream.delete(ADA, "/orgs/acme/teams/newer").assert_status(204);
    upstream.post(ADA, "/orgs/acme/teams", &json!({ "name": 7 })).assert_status(422);
    let (names, payloads) = sent_events(&mut upstream, &deliveries);
    assert_eq!(names, ["team created", "team edited", "team deleted"]);
    assert_eq!(
        (&payloads[0]["team"]["slug"], &payloads[2]["team"]["slug"]),
        (&json!("new"), &json!("newer"))
    );
    assert_eq!(
        (&payloads[1]["changes"], &payloads[1]["team"]["name"]),
        (&json!({ "name": { "from": "New" } }), &json!("Newer"))
    );
}

#[test]
fn a_repository_sends_created_and_deleted_events() {
    let (mut upstream, deliveries) = listening();
    upstream.post(ADA, "/orgs/acme/repos", &json!({ "name": "fresh" })).assert_status(201);
    upstream.delete(ADA, "/repos/acme/fresh").assert_status(204);
    let (names, payloads) = sent_events(&mut upstream, &deliveries);
    assert_eq!(names, ["repository created", "repository deleted"]);
    assert!(
        payloads.iter().all(|payload| payload["repository"]["full_name"] == "acme/fresh"),
        "also when it is gone"
    );
}

#[test]
fn a_property_sends_created_updated_and_deleted_events() {
    let (mut upstream, deliveries) = listening();
    let (one, text) = ("/orgs/acme/properties/schema/new_one", json!({ "value_type": "string" }));
    upstream.put(ADA, one, &text).assert_status(200);
    upstream.put(ADA, one, &text).assert_status(200);
    upstream.delete(ADA, one).assert_status(204);
    upstream.delete(ADA, one).assert_status(404);
    let (names, payloads) = sent_events(&mut upstream, &deliveries);
    assert_eq!(
        names,
        ["custom_property created", "custom_property updated", "custom_property deleted"]
    );
    assert!(payloads.iter().all(|payload| payload["definition"]["property_name"] == "new_one"));
    assert_eq!(payloads[0]["definition"]["value_type"], "string");
}

#[test]
fn a_changed_property_value_sends_one_event_per_repository() {
    let (mut upstream, deliveries) = listening();
    upstream
        .put(ADA, "/orgs/acme/properties/schema/new_one", &json!({ "value_type": "string" }))
        .assert_status(200);
    let wish = json!([{ "property_name": "new_one", "value": "x" }]);
    let body = json!({ "repository_names": ["widgets"], "properties": wish });
    upstream.patch(ADA, "/orgs/acme/properties/values", &body).assert_status(204);
    upstream.patch(ADA, "/orgs/acme/properties/values", &body).assert_status(204);
    upstream
        .patch(ADA, "/repos/acme/widgets/properties/values", &json!({ "properties": wish }))
        .assert_status(204);
    let (names, payloads) = sent_events(&mut upstream, &deliveries);
    assert_eq!(names, ["custom_property created", "custom_property_values updated"]);
    let has = |list: &str, value: Value| {
        let wanted = json!({ "property_name": "new_one", "value": value });
        payloads[1][list].as_array().is_some_and(|values| values.contains(&wanted))
    };
    assert!(
        has("old_property_values", Value::Null) && has("new_property_values", json!("x")),
        "{}",
        payloads[1]
    );
    assert_eq!(payloads[1]["repository"]["full_name"], "acme/widgets");
}
