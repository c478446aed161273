//! Issue fields: the object and its four endpoints.

use serde_json::{Value, json};

use crate::document_2::paths::named;
use crate::kit::{Answer, TestRequest, Upstream};
use crate::rows::document_2::issue_fields::{ISSUE_FIELD, NAMED_VALUES, TEXT_FIELD};
use crate::shape::{assert_shape, assert_shapes};

pub const FIELDS: &str = "/orgs/acme/issue-fields";
const ELSEWHERE: &str = "/orgs/there-is-no-such-organization/issue-fields";

/// The body that creates a field with a list of choices.
pub fn select(name: &str) -> Value {
    json!({
        "name": name,
        "description": "How soon",
        "data_type": "single_select",
        "options": [
            { "name": "Now", "description": "Drop everything", "color": "red", "priority": 1 },
            { "name": "Soon", "description": null, "color": "yellow", "priority": 2 },
            { "name": "Some day", "color": "green", "priority": 3 },
        ],
    })
}

pub fn text(name: &str) -> Value {
    json!({ "name": name, "data_type": "text" })
}

/// Creates a field and returns its path.
pub fn made(upstream: &mut Upstream, field: &Value) -> (String, Answer) {
    let ada = upstream.classic("ada");
    let made = upstream.post(&ada, FIELDS, field).expect_status(200);
    (format!("{FIELDS}/{}", made.body["id"]), made)
}

#[test]
pub fn fields_are_listed() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    made(&mut upstream, &select("Urgency"));
    made(&mut upstream, &text("Region"));
    let list = upstream.get(&ada, FIELDS).expect_status(200);
    assert_shapes(&list.body, &TEXT_FIELD);
    assert_shape(&named(&list.body, "name", "Urgency"), &ISSUE_FIELD);
    assert_eq!(
        named(&list.body, "name", "Region").get("options").filter(|options| !options.is_null()),
        None
    );
    upstream.get(&ada, ELSEWHERE).expect_status(404);
}

#[test]
pub fn a_field_is_created_with_status_200() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let (path, made) = made(&mut upstream, &select("Urgency"));
    assert_shape(&made.body, &ISSUE_FIELD);
    assert_eq!(
        (&made.body["name"], &made.body["description"]),
        (&json!("Urgency"), &json!("How soon"))
    );
    let list = upstream.get(&ada, FIELDS).expect_status(200);
    assert_eq!(named(&list.body, "name", "Urgency"), made.body);
    assert!(path.ends_with(&made.body["id"].to_string()));
    upstream.post(&ada, ELSEWHERE, &select("Urgency")).expect_status(404);
    upstream
        .post(&ada, FIELDS, &json!({ "name": 7, "data_type": "text" }))
        .assert_names_field("name");
}

#[test]
pub fn the_values_that_are_named_occur() {
    let mut upstream = Upstream::new();
    let (_, select) = made(&mut upstream, &select("Urgency"));
    let (_, text) = made(&mut upstream, &text("Region"));
    for field in [&select, &text] {
        assert_shape(&field.body, &NAMED_VALUES);
    }
    for option in select.body["options"].as_array().expect("options") {
        assert_shape(option, &crate::rows::document_2::issue_fields::COLORS);
    }
}

#[test]
pub fn a_field_is_changed() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let (path, _) = made(&mut upstream, &select("Urgency"));
    let change = json!({
        "name": "Haste",
        "description": "Changed",
        "options": [{ "name": "At once", "color": "green", "priority": 1 }],
    });
    let changed = upstream.patch(&ada, &path, &change).expect_status(200);
    assert_shape(&changed.body, &TEXT_FIELD);
    assert_eq!(
        (&changed.body["name"], &changed.body["description"]),
        (&json!("Haste"), &json!("Changed"))
    );
    let options = changed.body["options"].as_array().expect("options");
    assert_eq!(
        (options.len(), &options[0]["name"], &options[0]["color"]),
        (1, &json!("At once"), &json!("green"))
    );
    let list = upstream.get(&ada, FIELDS).expect_status(200);
    assert_eq!(named(&list.body, "name", "Haste"), changed.body);
    upstream.patch(&ada, &format!("{FIELDS}/999999999"), &change).expect_status(404);
    upstream.patch(&ada, &path, &json!({ "name": 7 })).assert_names_field("name");
}

#[test]
pub fn a_field_is_deleted() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let (path, _) = made(&mut upstream, &text("Region"));
    assert_eq!(upstream.delete(&ada, &path).expect_status(204).bytes.len(), 0);
    upstream.delete(&ada, &path).expect_status(404);
    let list = upstream.get(&ada, FIELDS).expect_status(200);
    assert!(list.items().iter().all(|field| field["name"] != "Region"), "{}", list.body);
}

/// "path `issue_field_id` (integer, required)". A DELETE has no other parameter, and its results
/// are 204, 404 and 422.
#[test]
pub fn an_id_that_is_no_integer_fails_validation() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    upstream.delete(&ada, &format!("{FIELDS}/first")).expect_status(422);
}

#[test]
pub fn the_examples_version_works_on_every_route() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let request = |method: &str, path: &str| {
        TestRequest::new(method, path).by(&ada).header("x-service-api-version", "2026-03-10")
    };
    upstream.send(&request("GET", FIELDS)).expect_status(200);
    let made = upstream.send(&request("POST", FIELDS).json(&select("Urgency"))).expect_status(200);
    assert_shape(&made.body, &ISSUE_FIELD);
    let path = format!("{FIELDS}/{}", made.body["id"]);
    let changed = upstream
        .send(&request("PATCH", &path).json(&json!({ "name": "Haste" })))
        .expect_status(200);
    assert_shape(&changed.body, &ISSUE_FIELD);
    upstream.send(&request("DELETE", &path)).expect_status(204);
}
