//! Custom property definitions: the object and its five endpoints.

use serde_json::{Value, json};

use crate::document_2::paths::{named, texts};
use crate::kit::{BASE, Upstream};
use crate::rows::document_2::properties::{DEFINITION, NAMED_VALUES};
use crate::shape::{assert_shape, assert_shapes};

pub const SCHEMA: &str = "/orgs/acme/properties/schema";
const ELSEWHERE: &str = "/orgs/there-is-no-such-organization/properties/schema";

/// A definition in which no optional field has its default.
pub fn full() -> Value {
    json!({
        "value_type": "single_select",
        "required": true,
        "default_value": "low",
        "description": "How much it matters",
        "allowed_values": ["low", "high"],
        "values_editable_by": "org_and_repo_actors",
        "require_explicit_values": true,
    })
}

/// The same with its name, as a batch requires.
fn named_full(name: &str) -> Value {
    let mut definition = full();
    definition["property_name"] = json!(name);
    definition
}

#[test]
pub fn definitions_are_listed() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    upstream.put(&ada, &format!("{SCHEMA}/importance"), &full()).expect_status(200);
    let list = upstream.get(&ada, SCHEMA).expect_status(200);
    assert_shapes(&list.body, &DEFINITION);
    named(&list.body, "property_name", "importance");
    let bare = upstream.fine_grained_without_permissions();
    upstream.get(&bare, SCHEMA).expect_status(403);
    upstream.get(&ada, ELSEWHERE).expect_status(404);
}

#[test]
pub fn definitions_are_written_together() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let before = texts(&upstream.get(&ada, SCHEMA).expect_status(200).body, "property_name");
    let body = json!({ "properties": [named_full("importance"), { "property_name": "motto", "value_type": "string" }] });
    let written = upstream.patch(&ada, SCHEMA, &body).expect_status(200);
    assert_shapes(&written.body, &DEFINITION);
    let after = upstream.get(&ada, SCHEMA).expect_status(200);
    for name in ["importance", "motto"] {
        assert_eq!(
            named(&written.body, "property_name", name),
            named(&after.body, "property_name", name)
        );
    }
    for untouched in before {
        named(&after.body, "property_name", &untouched);
    }
    let bare = upstream.fine_grained_without_permissions();
    upstream.patch(&bare, SCHEMA, &body).expect_status(403);
    upstream.patch(&ada, ELSEWHERE, &body).expect_status(404);
}

#[test]
pub fn a_definition_is_read() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let path = format!("{SCHEMA}/importance");
    upstream.get(&ada, &path).expect_status(404);
    let put = upstream.put(&ada, &path, &full()).expect_status(200);
    let read = upstream.get(&ada, &path).expect_status(200);
    assert_shape(&read.body, &DEFINITION);
    assert_eq!(read.body, put.body);
    let bare = upstream.fine_grained_without_permissions();
    upstream.get(&bare, &path).expect_status(403);
}

#[test]
pub fn a_definition_is_put_and_keeps_its_fields() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let path = format!("{SCHEMA}/importance");
    let put = upstream.put(&ada, &path, &full()).expect_status(200);
    assert_shape(&put.body, &DEFINITION);
    assert_eq!(put.body["property_name"], "importance");
    for (field, value) in full().as_object().expect("an object") {
        assert_eq!(&put.body[field], value, "{field}");
    }
    let bare = upstream.fine_grained_without_permissions();
    upstream.put(&bare, &path, &full()).expect_status(403);
    upstream.put(&ada, &format!("{ELSEWHERE}/importance"), &full()).expect_status(404);
}

#[test]
pub fn a_definition_is_deleted() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let path = format!("{SCHEMA}/importance");
    upstream.put(&ada, &path, &full()).expect_status(200);
    let bare = upstream.fine_grained_without_permissions();
    upstream.delete(&bare, &path).expect_status(403);
    assert_eq!(upstream.delete(&ada, &path).expect_status(204).bytes.len(), 0);
    upstream.get(&ada, &path).expect_status(404);
    upstream.delete(&ada, &path).expect_status(404);
}

#[test]
pub fn the_address_of_a_definition_leads_to_it() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    for definition in upstream.get(&ada, SCHEMA).expect_status(200).items() {
        let address = definition["url"]
            .as_str()
            .and_then(|url| url.strip_prefix(BASE))
            .expect("an address of the API");
        assert_eq!(&upstream.get(&ada, address).expect_status(200).body, definition);
    }
}

/// "values named: `org_actors` (default), `org_and_repo_actors`"; "example values: string,
/// `single_select`"; "example value: organization".
#[test]
pub fn the_values_that_are_named_occur() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let first = upstream.put(&ada, &format!("{SCHEMA}/importance"), &full()).expect_status(200);
    let second = upstream
        .put(&ada, &format!("{SCHEMA}/motto"), &json!({ "value_type": "string" }))
        .expect_status(200);
    assert_shape(&first.body, &NAMED_VALUES);
    assert_shape(&second.body, &NAMED_VALUES);
}

#[test]
pub fn a_default_value_is_null_or_text_or_a_list() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let none = upstream
        .put(
            &ada,
            &format!("{SCHEMA}/motto"),
            &json!({ "value_type": "string", "default_value": null }),
        )
        .expect_status(200);
    assert_eq!(none.body["default_value"], Value::Null);
    let text = upstream.put(&ada, &format!("{SCHEMA}/importance"), &full()).expect_status(200);
    assert_eq!(text.body["default_value"], "low");
    // The documents do not name the type of a property with list values; the world has one.
    let of_lists = json!({ "value_type": "multi_select", "required": true, "allowed_values": ["a", "b", "c"], "default_value": ["a", "c"] });
    let list = upstream.put(&ada, &format!("{SCHEMA}/letters"), &of_lists).expect_status(200);
    assert_eq!(list.body["default_value"], json!(["a", "c"]));
    upstream
        .put(
            &ada,
            &format!("{SCHEMA}/motto"),
            &json!({ "value_type": "string", "default_value": 7 }),
        )
        .assert_names_field("default_value");
}
