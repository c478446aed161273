//! Issue fields: the rules of a body, permissions and credentials.

use serde_json::{Value, json};

use crate::document_2::issue_fields::{FIELDS, made, select, text};
use crate::document_2::paths::{app_user_with, classic_with, organization};
use crate::kit::{ANONYMOUS, Answer, Upstream};

const PERMISSION: &str = "issue_fields";

/// Asserts 403 or 404: the documents list 404 for these routes and allow 403 everywhere.
#[track_caller]
fn assert_refused(answer: &Answer) {
    assert!(
        [403, 404].contains(&answer.status),
        "{} {} {}",
        answer.status,
        answer.endpoint,
        answer.body
    );
}

fn with_options(options: &Value) -> Value {
    json!({ "name": "Urgency", "data_type": "single_select", "options": options })
}

#[test]
pub fn name_and_data_type_are_required() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    upstream.post(&ada, FIELDS, &json!({ "data_type": "text" })).assert_names_field("name");
    upstream.post(&ada, FIELDS, &json!({ "name": "Region" })).assert_names_field("data_type");
    upstream.post(&ada, FIELDS, &text("Region")).expect_status(200);
}

#[test]
pub fn description_is_text_or_null_and_visibility_is_accepted() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let seen = upstream.get(&ada, FIELDS).expect_status(200).body[0]["visibility"].clone();
    assert!(seen.is_string(), "{seen}");
    for (name, description) in [("One", json!(null)), ("Two", json!("described"))] {
        let body = json!({ "name": name, "data_type": "text", "description": description, "visibility": seen, "options": null });
        let made = upstream.post(&ada, FIELDS, &body).expect_status(200);
        assert_eq!((&made.body["description"], &made.body["visibility"]), (&description, &seen));
    }
    for field in ["description", "visibility"] {
        upstream
            .post(&ada, FIELDS, &json!({ "name": "Three", "data_type": "text", field: 7 }))
            .assert_names_field(field);
    }
}

#[test]
pub fn options_are_required_for_single_select() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    upstream
        .post(&ada, FIELDS, &json!({ "name": "Urgency", "data_type": "single_select" }))
        .assert_names_field("options");
    upstream.post(&ada, FIELDS, &with_options(&Value::Null)).assert_names_field("options");
    upstream.post(&ada, FIELDS, &select("Urgency")).expect_status(200);
}

#[test]
pub fn an_option_has_a_name_a_color_and_an_integer_priority() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let whole = json!({ "name": "Now", "color": "red", "priority": 1 });
    for field in ["name", "color", "priority"] {
        let mut incomplete = whole.clone();
        incomplete.as_object_mut().expect("an object").remove(field);
        upstream.post(&ada, FIELDS, &with_options(&json!([incomplete]))).expect_status(422);
        let mut wrong = whole.clone();
        wrong[field] = json!({});
        upstream.post(&ada, FIELDS, &with_options(&json!([wrong]))).expect_status(422);
    }
    let (path, made) = made(&mut upstream, &with_options(&json!([whole])));
    assert_eq!(made.body["options"][0]["description"], Value::Null);
    upstream.patch(&ada, &path, &json!({ "options": [{ "name": "Now" }] })).expect_status(422);
}

#[test]
pub fn options_are_in_the_order_of_their_priority() {
    let mut upstream = Upstream::new();
    let options = json!([
        { "name": "Later", "color": "green", "priority": 9 },
        { "name": "Now", "color": "red", "priority": 1 },
        { "name": "Soon", "color": "yellow", "priority": 4 },
    ]);
    let (_, made) = made(&mut upstream, &with_options(&options));
    let names: Vec<&Value> = made.body["options"]
        .as_array()
        .expect("options")
        .iter()
        .map(|option| &option["name"])
        .collect();
    assert_eq!(names, ["Now", "Soon", "Later"]);
}

#[test]
pub fn options_are_only_for_single_select() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let (path, _) = made(&mut upstream, &text("Region"));
    let options = json!({ "options": [{ "name": "Now", "color": "red", "priority": 1 }] });
    upstream.patch(&ada, &path, &options).assert_names_field("options");
    let after = upstream.get(&ada, FIELDS).expect_status(200);
    let region =
        after.items().iter().find(|field| field["name"] == "Region").expect("it is still there");
    assert!(region["options"].is_null(), "{region}");
}

#[test]
pub fn only_an_organization_administrator_writes() {
    let mut upstream = Upstream::new();
    assert_eq!(organization(&mut upstream, "acme")["owners"], json!(["ada"]));
    let (path, _) = made(&mut upstream, &text("Region"));
    for person in ["ben", "cleo", "triage-bot"] {
        let token = upstream.classic(person);
        upstream.get(&token, FIELDS).expect_status(200);
        assert_refused(&upstream.post(&token, FIELDS, &text("Other")));
        assert_refused(&upstream.patch(&token, &path, &json!({ "name": "Other" })));
        assert_refused(&upstream.delete(&token, &path));
    }
    let ada = upstream.classic("ada");
    upstream.patch(&ada, &path, &json!({ "name": "Other" })).expect_status(200);
    upstream.delete(&ada, &path).expect_status(204);
}

#[test]
pub fn classic_tokens_need_read_org_to_read_and_admin_org_to_write() {
    let mut upstream = Upstream::new();
    let (path, _) = made(&mut upstream, &text("Region"));
    let reading = classic_with(&upstream, "ada", "read:org", "admin:org");
    let bare = upstream.classic_without_scopes("ada");
    upstream.get(&reading, FIELDS).expect_status(200);
    assert_refused(&upstream.get(&bare, FIELDS));
    for token in [&reading, &bare] {
        assert_refused(&upstream.post(token, FIELDS, &text("Other")));
        assert_refused(&upstream.patch(token, &path, &json!({ "name": "Other" })));
        assert_refused(&upstream.delete(token, &path));
    }
}

#[test]
pub fn issue_fields_needs_read_for_get_and_write_otherwise() {
    let mut upstream = Upstream::new();
    let (path, _) = made(&mut upstream, &text("Region"));
    let none = upstream.installation_with("acme", &[("metadata", "read")]);
    let read = upstream.installation_with("acme", &[(PERMISSION, "read")]);
    let write = upstream.installation_with("acme", &[(PERMISSION, "write")]);
    upstream.get(&none, FIELDS).expect_status(403);
    upstream.get(&read, FIELDS).expect_status(200);
    upstream.get(&write, FIELDS).expect_status(200);
    for token in [&none, &read] {
        upstream.post(token, FIELDS, &text("Other")).expect_status(403);
        upstream.patch(token, &path, &json!({ "name": "Other" })).expect_status(403);
        upstream.delete(token, &path).expect_status(403);
    }
    upstream.post(&write, FIELDS, &text("Another")).expect_status(200);
    upstream.patch(&write, &path, &json!({ "name": "Other" })).expect_status(200);
    upstream.delete(&write, &path).expect_status(204);
}

#[test]
pub fn fine_grained_tokens_are_allowed() {
    let mut upstream = Upstream::new();
    let (classic, fine, iat) = (
        upstream.classic("ada"),
        upstream.token("fine-grained", "ada"),
        upstream.installation("acme"),
    );
    for (n, token) in [&classic, &fine, &iat].into_iter().enumerate() {
        upstream.get(token, FIELDS).expect_status(200);
        upstream.post(token, FIELDS, &text(&format!("Field {n}"))).expect_status(200);
    }
    let uat = app_user_with(&upstream, PERMISSION);
    upstream.get(&uat, FIELDS).expect_status(200);
    upstream.get(ANONYMOUS, FIELDS).expect_status(401);
}
