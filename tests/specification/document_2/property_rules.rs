//! Custom property definitions: required fields, defaults, sizes and permissions.

use serde_json::{Value, json};

use crate::document_2::paths::{app_user_with, named, organization};
use crate::document_2::property_definitions::{SCHEMA, full};
use crate::document_2::property_values::VALUES;
use crate::kit::{ANONYMOUS, Answer, Upstream};

pub const PERMISSION: &str = "organization_custom_properties";

fn path(name: &str) -> String {
    format!("{SCHEMA}/{name}")
}

/// Writes one definition as a batch.
fn batch(upstream: &mut Upstream, token: &str, definition: &Value) -> Answer {
    upstream.patch(token, SCHEMA, &json!({ "properties": [definition] }))
}

/// This many different values.
fn values(count: usize) -> Vec<String> {
    // Sorted neither way.
    (0..count).map(|n| format!("value {}", (n * 7) % count)).collect()
}

#[test]
pub fn a_batch_names_each_property_and_its_type() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    upstream.patch(&ada, SCHEMA, &json!({})).assert_names_field("properties");
    upstream
        .patch(&ada, SCHEMA, &json!({ "properties": "motto" }))
        .assert_names_field("properties");
    batch(&mut upstream, &ada, &json!({ "property_name": "motto" })).expect_status(422);
    batch(&mut upstream, &ada, &json!({ "value_type": "string" })).expect_status(422);
    upstream.get(&ada, &path("motto")).expect_status(404);
    batch(&mut upstream, &ada, &json!({ "property_name": "motto", "value_type": "string" }))
        .expect_status(200);
}

#[test]
pub fn a_put_requires_the_type_only() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    upstream
        .put(&ada, &path("motto"), &json!({ "description": "d" }))
        .assert_names_field("value_type");
    upstream.put(&ada, &path("motto"), &json!({ "value_type": "string" })).expect_status(200);
    for field in [
        "required",
        "description",
        "allowed_values",
        "values_editable_by",
        "require_explicit_values",
    ] {
        upstream
            .put(&ada, &path("motto"), &json!({ "value_type": "string", field: 7 }))
            .assert_names_field(field);
    }
}

#[test]
pub fn a_batch_creates_or_replaces_and_omissions_reset() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let minimal = |name: &str| json!({ "property_name": name, "value_type": "string" });
    let fresh = batch(&mut upstream, &ada, &minimal("fresh")).expect_status(200);
    let changed = json!({
        "value_type": "string", "required": true, "default_value": "d", "description": "described",
        "values_editable_by": "org_and_repo_actors", "require_explicit_values": true,
    });
    let before = upstream.put(&ada, &path("motto"), &changed).expect_status(200).body;
    assert_eq!(before["values_editable_by"], "org_and_repo_actors");
    batch(&mut upstream, &ada, &minimal("motto")).expect_status(200);
    let after = upstream.get(&ada, &path("motto")).expect_status(200).body;
    assert_eq!(after["values_editable_by"], "org_actors");
    let fresh = named(&fresh.body, "property_name", "fresh");
    for field in [
        "required",
        "default_value",
        "description",
        "allowed_values",
        "values_editable_by",
        "require_explicit_values",
    ] {
        assert_eq!(after[field], fresh[field], "{field}");
    }
}

#[test]
pub fn values_editable_by_is_org_actors_by_default() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let put =
        upstream.put(&ada, &path("motto"), &json!({ "value_type": "string" })).expect_status(200);
    assert_eq!(put.body["values_editable_by"], "org_actors");
}

#[test]
pub fn allowed_values_are_at_most_200_and_keep_their_order() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let select =
        |values: &[String]| json!({ "value_type": "single_select", "allowed_values": values });
    let put = upstream.put(&ada, &path("letters"), &select(&values(200))).expect_status(200);
    assert_eq!(put.body["allowed_values"], json!(values(200)));
    assert_eq!(upstream.get(&ada, &path("letters")).body["allowed_values"], json!(values(200)));
    upstream
        .put(&ada, &path("letters"), &select(&values(201)))
        .assert_names_field("allowed_values");
    let mut in_batch = select(&values(201));
    in_batch["property_name"] = json!("letters");
    batch(&mut upstream, &ada, &in_batch).expect_status(422);
    assert_eq!(upstream.get(&ada, &path("letters")).body["allowed_values"], json!(values(200)));
}

#[test]
pub fn organization_members_may_read() {
    let mut upstream = Upstream::new();
    for person in ["ada", "ben", "cleo", "triage-bot"] {
        let token = upstream.classic(person);
        upstream.get(&token, SCHEMA).expect_status(200);
    }
    let dan = upstream.classic("dan");
    let outsider = upstream.get(&dan, SCHEMA);
    assert!([403, 404].contains(&outsider.status), "{} {}", outsider.status, outsider.body);
    upstream.get(ANONYMOUS, SCHEMA).expect_status(401);
}

#[test]
pub fn administrators_and_managers_write_definitions() {
    let mut upstream = Upstream::new();
    assert_roles(&mut upstream);
    for person in ["ada", "ben"] {
        let token = upstream.classic(person);
        batch(&mut upstream, &token, &json!({ "property_name": "motto", "value_type": "string" }))
            .expect_status(200);
        upstream.put(&token, &path("motto"), &json!({ "value_type": "string" })).expect_status(200);
        upstream.delete(&token, &path("motto")).expect_status(204);
    }
    let ada = upstream.classic("ada");
    upstream.put(&ada, &path("motto"), &json!({ "value_type": "string" })).expect_status(200);
    for person in ["cleo", "triage-bot"] {
        let token = upstream.classic(person);
        batch(&mut upstream, &token, &json!({ "property_name": "motto", "value_type": "string" }))
            .expect_status(403);
        upstream.put(&token, &path("motto"), &json!({ "value_type": "string" })).expect_status(403);
        upstream.delete(&token, &path("motto")).expect_status(403);
    }
}

#[test]
pub fn administrators_and_editors_write_values() {
    let mut upstream = Upstream::new();
    assert_roles(&mut upstream);
    let ada = upstream.classic("ada");
    upstream.put(&ada, &path("motto"), &json!({ "value_type": "string" })).expect_status(200);
    let body = json!({ "repository_names": ["widgets"], "properties": [{ "property_name": "motto", "value": "on" }] });
    for (person, status) in [("ada", 204), ("cleo", 204), ("ben", 403), ("triage-bot", 403)] {
        let token = upstream.classic(person);
        upstream.patch(&token, VALUES, &body).expect_status(status);
    }
}

/// Asserts the roles: ben manages definitions, cleo edits values, triage-bot does neither, and none
/// of them owns acme.
fn assert_roles(upstream: &mut Upstream) {
    let acme = organization(upstream, "acme");
    assert_eq!(acme["owners"], json!(["ada"]));
    assert_eq!(acme["roles"]["custom_properties_org_definitions_manager"], json!(["ben"]));
    assert_eq!(acme["roles"]["custom_properties_org_values_editor"], json!(["cleo"]));
}

#[test]
pub fn the_permission_is_read_or_write_or_admin_as_stated() {
    let mut upstream = Upstream::new();
    let none = upstream.installation_with("acme", &[("metadata", "read")]);
    let [read, write, admin] = ["read", "write", "admin"]
        .map(|level| upstream.installation_with("acme", &[(PERMISSION, level)]));
    let definition = json!({ "property_name": "motto", "value_type": "string" });
    let values = json!({ "repository_names": ["widgets"], "properties": [{ "property_name": "motto", "value": "on" }] });
    for token in [&none, &read, &write] {
        batch(&mut upstream, token, &definition).expect_status(403);
        upstream.put(token, &path("motto"), &full()).expect_status(403);
        upstream.delete(token, &path("motto")).expect_status(403);
    }
    batch(&mut upstream, &admin, &definition).expect_status(200);
    for token in [&none, &read] {
        upstream.patch(token, VALUES, &values).expect_status(403);
    }
    upstream.patch(&write, VALUES, &values).expect_status(204);
    for (token, status) in [(&none, 403), (&read, 200), (&write, 200), (&admin, 200)] {
        upstream.get(token, SCHEMA).expect_status(status);
        upstream.get(token, &path("motto")).expect_status(status);
        upstream.get(token, VALUES).expect_status(status);
    }
    upstream.put(&admin, &path("motto"), &full()).expect_status(200);
    upstream.delete(&admin, &path("motto")).expect_status(204);
}

#[test]
pub fn fine_grained_tokens_are_allowed() {
    let mut upstream = Upstream::new();
    let (classic, fine, iat) = (
        upstream.classic("ada"),
        upstream.token("fine-grained", "ada"),
        upstream.installation("acme"),
    );
    for token in [&classic, &fine, &iat] {
        upstream.get(token, SCHEMA).expect_status(200);
        upstream.get(token, VALUES).expect_status(200);
        upstream.put(token, &path("motto"), &json!({ "value_type": "string" })).expect_status(200);
    }
    let uat = app_user_with(&upstream, PERMISSION);
    upstream.get(&uat, SCHEMA).expect_status(200);
}
