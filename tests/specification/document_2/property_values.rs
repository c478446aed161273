//! Custom property values of repositories: the list and the batch write.

use serde_json::{Value, json};
use weir::emulator::Options;

use crate::document_2::paths::{named, texts};
use crate::document_2::property_definitions::SCHEMA;
use crate::kit::{BASE, Upstream};
use crate::rows::document_2::properties::{REPOSITORY_VALUES, VALUE};
use crate::shape::{assert_shape, assert_shapes};

pub const VALUES: &str = "/orgs/acme/properties/values";
const ELSEWHERE: &str = "/orgs/there-is-no-such-organization/properties/values";

/// A world with a text property, `motto`, and a list property, `letters`.
fn with_properties(repositories: u32) -> (Upstream, String) {
    let mut upstream =
        Upstream::with(Options { repositories, base_url: BASE.to_owned(), ..Options::default() });
    let ada = upstream.classic("ada");
    let definitions = json!({ "properties": [
        { "property_name": "motto", "value_type": "string" },
        { "property_name": "letters", "value_type": "multi_select", "allowed_values": ["a", "b", "c"] },
    ] });
    upstream.patch(&ada, SCHEMA, &definitions).expect_status(200);
    (upstream, ada)
}

fn write(repositories: &[&str], name: &str, value: &Value) -> Value {
    json!({ "repository_names": repositories, "properties": [{ "property_name": name, "value": value }] })
}

/// The value of a property of a repository.
fn value(upstream: &mut Upstream, repository: &str, property: &str) -> Value {
    let ada = upstream.classic("ada");
    let list = upstream.get(&ada, &format!("{VALUES}?per_page=100")).expect_status(200);
    let line = named(&list.body, "repository_name", repository);
    let found = line["properties"]
        .as_array()
        .and_then(|all| all.iter().find(|one| one["property_name"] == property))
        .cloned();
    found.map_or(Value::Null, |property| property["value"].clone())
}

/// The names of acme's repositories.
fn repositories(upstream: &mut Upstream) -> Vec<String> {
    let world = upstream.world();
    let names = texts(&world["repositories"], "full_name").into_iter();
    names.filter_map(|name| name.strip_prefix("acme/").map(str::to_owned)).collect()
}

#[test]
pub fn values_are_listed_by_repository() {
    let (mut upstream, ada) = with_properties(12);
    let list = upstream.get(&ada, VALUES).expect_status(200);
    assert_shapes(&list.body, &REPOSITORY_VALUES);
    assert_eq!(texts(&list.body, "repository_name").len(), repositories(&mut upstream).len());
    for line in list.items() {
        let (name, full_name) = (&line["repository_name"], &line["repository_full_name"]);
        assert_eq!(full_name, &json!(format!("acme/{}", name.as_str().unwrap_or_default())));
    }
    let bare = upstream.fine_grained_without_permissions();
    upstream.get(&bare, VALUES).expect_status(403);
    upstream.get(&ada, ELSEWHERE).expect_status(404);
}

#[test]
pub fn values_are_written() {
    let (mut upstream, ada) = with_properties(12);
    let body = write(&["widgets", "gadgets"], "motto", &json!("onward"));
    assert_eq!(upstream.patch(&ada, VALUES, &body).expect_status(204).bytes.len(), 0);
    for repository in ["widgets", "gadgets"] {
        assert_eq!(value(&mut upstream, repository, "motto"), "onward");
    }
    assert_eq!(value(&mut upstream, "sprockets", "motto"), Value::Null);
    let bare = upstream.fine_grained_without_permissions();
    upstream.patch(&bare, VALUES, &body).expect_status(403);
    upstream.patch(&ada, ELSEWHERE, &body).expect_status(404);
    upstream.patch(&ada, VALUES, &write(&["widgets"], "motto", &json!(7))).expect_status(422);
}

#[test]
pub fn a_value_is_null_or_text_or_a_list() {
    let (mut upstream, ada) = with_properties(12);
    upstream
        .patch(&ada, VALUES, &write(&["widgets"], "motto", &json!("onward")))
        .expect_status(204);
    upstream
        .patch(&ada, VALUES, &write(&["widgets"], "letters", &json!(["a", "c"])))
        .expect_status(204);
    assert_eq!(value(&mut upstream, "widgets", "motto"), "onward");
    assert_eq!(value(&mut upstream, "widgets", "letters"), json!(["a", "c"]));
    assert_eq!(value(&mut upstream, "gadgets", "letters"), Value::Null);
    let list = upstream.get(&ada, VALUES).expect_status(200);
    for property in
        named(&list.body, "repository_name", "widgets")["properties"].as_array().expect("a list")
    {
        assert_shape(property, &VALUE);
    }
}

#[test]
pub fn a_value_that_is_not_allowed_fails_validation() {
    let (mut upstream, ada) = with_properties(12);
    for wrong in [json!(["a", "d"]), json!("a, b"), json!({ "a": true })] {
        upstream.patch(&ada, VALUES, &write(&["widgets"], "letters", &wrong)).expect_status(422);
    }
    upstream
        .patch(&ada, VALUES, &write(&["widgets"], "there-is-no-such-property", &json!("a")))
        .expect_status(422);
    assert_eq!(value(&mut upstream, "widgets", "letters"), Value::Null);
}

#[test]
pub fn null_unsets_the_property_on_each_listed_repository() {
    let (mut upstream, ada) = with_properties(12);
    let all = ["widgets", "gadgets", "sprockets"];
    upstream.patch(&ada, VALUES, &write(&all, "motto", &json!("onward"))).expect_status(204);
    upstream.patch(&ada, VALUES, &write(&all[..2], "motto", &Value::Null)).expect_status(204);
    let values = all.map(|repository| value(&mut upstream, repository, "motto"));
    assert_eq!(values, [Value::Null, Value::Null, json!("onward")]);
}

#[test]
pub fn writes_are_limited_to_30_repositories_at_once() {
    let (mut upstream, ada) = with_properties(80);
    let names = repositories(&mut upstream);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert!(names.len() > 30, "the world is too small: {}", names.len());
    upstream
        .patch(&ada, VALUES, &write(&names[..31], "motto", &json!("onward")))
        .assert_names_field("repository_names");
    assert_eq!(value(&mut upstream, names[0], "motto"), Value::Null);
    upstream
        .patch(&ada, VALUES, &write(&names[..30], "motto", &json!("onward")))
        .expect_status(204);
    assert_eq!(value(&mut upstream, names[29], "motto"), "onward");
    assert_eq!(value(&mut upstream, names[30], "motto"), Value::Null);
}

#[test]
pub fn repositories_properties_names_and_values_are_required() {
    let (mut upstream, ada) = with_properties(12);
    let property = json!([{ "property_name": "motto", "value": "onward" }]);
    upstream
        .patch(&ada, VALUES, &json!({ "properties": property }))
        .assert_names_field("repository_names");
    upstream
        .patch(&ada, VALUES, &json!({ "repository_names": "widgets", "properties": property }))
        .assert_names_field("repository_names");
    upstream
        .patch(&ada, VALUES, &json!({ "repository_names": ["widgets"] }))
        .assert_names_field("properties");
    for incomplete in [json!({ "property_name": "motto" }), json!({ "value": "onward" })] {
        upstream
            .patch(
                &ada,
                VALUES,
                &json!({ "repository_names": ["widgets"], "properties": [incomplete] }),
            )
            .expect_status(422);
    }
    assert_eq!(value(&mut upstream, "widgets", "motto"), Value::Null);
}

#[test]
pub fn repository_query_limits_the_repositories() {
    let (mut upstream, ada) = with_properties(12);
    let by_keyword =
        upstream.get(&ada, &format!("{VALUES}?repository_query=gadgets")).expect_status(200);
    assert_eq!(texts(&by_keyword.body, "repository_name"), ["gadgets"]);
    let world = upstream.world();
    let private = world["repositories"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|one| one["private"] == true);
    let mut private: Vec<String> = private
        .filter_map(|one| one["full_name"].as_str())
        .filter(|name| name.starts_with("acme/"))
        .map(str::to_owned)
        .collect();
    let by_qualifier =
        upstream.get(&ada, &format!("{VALUES}?repository_query=is:private")).expect_status(200);
    let mut found = texts(&by_qualifier.body, "repository_full_name");
    private.sort();
    found.sort();
    assert_eq!(found, private);
}

#[test]
pub fn a_page_has_30_repositories_by_default_and_100_at_most() {
    let (mut upstream, ada) = with_properties(400);
    let count = repositories(&mut upstream).len();
    assert!(count > 100, "the world is too small: {count}");
    assert_eq!(upstream.get(&ada, VALUES).expect_status(200).items().len(), 30);
    let third = upstream.get(&ada, &format!("{VALUES}?per_page=7&page=3")).expect_status(200);
    let hundred = upstream.get(&ada, &format!("{VALUES}?per_page=1000")).expect_status(200);
    assert_eq!(hundred.items().len(), 100);
    assert_eq!(third.items(), &hundred.items()[14..21]);
}
