//! Tests the schema of custom properties (SPECIFICATION, "Custom properties").

use bytes::Bytes;
use serde_json::{Value, json};

use crate::cases::cases;
use crate::emulator::tests::*;
use crate::random::Rng;

const SCHEMA: &str = "/orgs/acme/properties/schema";
const VALUES: &str = "/orgs/acme/properties/values";
const CLEO: &str = "emu_classic_cleo_all_scopes";
const BUILD_BOT: &str = "emu_classic_build_bot";
const READ_ORG: &str = "emu_classic_ada_read_org";
const READS: &str = "emu_fine_grained_ada_reads_properties";
const WRITES: &str = "emu_app_user_ada_writes_properties";

fn put(upstream: &mut Upstream, name: &str, body: &Value) -> Answer {
    upstream.put(ADA, &format!("{SCHEMA}/{name}"), body)
}

fn value_of(upstream: &mut Upstream, name: &str) -> Value {
    let answer = upstream.get(ADA, "/repos/acme/widgets/properties/values").assert_status(200);
    answer
        .items()
        .iter()
        .find(|property| property["property_name"] == name)
        .map_or(json!("absent"), |property| property["value"].clone())
}

#[test]
fn a_definition_has_every_field_of_its_table() {
    let mut upstream = Upstream::new();
    let answer = upstream.get(ADA, SCHEMA).assert_status(200);
    let names: Vec<&str> = answer
        .items()
        .iter()
        .filter_map(|definition| definition["property_name"].as_str())
        .collect();
    assert_eq!(names, ["audited", "environment", "service", "teams"]);
    assert_eq!(
        answer.items()[1],
        json!({
            "property_name": "environment",
            "url": "http://upstream.test/orgs/acme/properties/schema/environment",
            "source_type": "organization",
            "value_type": "single_select",
            "required": true,
            "default_value": "development",
            "description": "Where it runs",
            "allowed_values": ["production", "staging", "development"],
            "values_editable_by": "org_actors",
            "require_explicit_values": false,
        })
    );
    assert_eq!(
        upstream.get(ADA, &format!("{SCHEMA}/environment")).assert_status(200).body,
        answer.items()[1]
    );
    let address = answer.items()[1]["url"]
        .as_str()
        .and_then(|url| url.strip_prefix("http://upstream.test"))
        .expect("our address");
    upstream.get(ADA, address).assert_status(200);
}

#[test]
fn property_names_are_case_sensitive_and_organisations_are_not() {
    let mut upstream = Upstream::new();
    upstream.get(ADA, "/orgs/ACME/properties/schema/environment").assert_status(200);
    for name in ["Environment", "nothing", "%20", "%F0%9F%A6%80", "a%2Fb"] {
        upstream.get(ADA, &format!("{SCHEMA}/{name}")).assert_status(404);
    }
    upstream.get(ADA, "/orgs/nobody/properties/schema").assert_status(404);
}

#[test]
fn a_patch_creates_or_replaces_each_listed_property() {
    let mut upstream = Upstream::new();
    let body = json!({ "properties": [
        { "property_name": "zone", "value_type": "string" },
        { "property_name": "service", "value_type": "single_select", "allowed_values": ["b", "a"] },
    ] });
    let answer = upstream.patch(ADA, SCHEMA, &body).assert_status(200);
    let names: Vec<&str> = answer
        .items()
        .iter()
        .filter_map(|definition| definition["property_name"].as_str())
        .collect();
    assert_eq!(names, ["zone", "service"]);
    assert_eq!(answer.items()[1]["allowed_values"], json!(["b", "a"]), "ordered");
    assert_eq!(upstream.get(ADA, SCHEMA).items().len(), 5, "an unlisted property stays");
    assert_eq!(
        upstream.patch(ADA, SCHEMA, &body).assert_status(200).body,
        answer.body,
        "the same again changes nothing"
    );
    assert_eq!(upstream.get(ADA, SCHEMA).items().len(), 5);
}

#[test]
fn omitted_optional_fields_revert_to_defaults() {
    let mut upstream = Upstream::new();
    let whole = json!({
        "value_type": "single_select", "required": true, "default_value": "a", "description": "All of it", "allowed_values": ["a"],
        "values_editable_by": "org_and_repo_actors", "require_explicit_values": true,
    });
    let set = put(&mut upstream, "service", &whole).assert_status(200);
    for (field, value) in whole.as_object().expect("an object") {
        assert_eq!(set.body[field], *value, "{field}");
    }
    let listed = json!({ "properties": [{ "property_name": "service", "value_type": "string" }] });
    let reverted = upstream.patch(ADA, SCHEMA, &listed).assert_status(200).items()[0].clone();
    put(&mut upstream, "service", &whole).assert_status(200);
    for definition in [
        reverted,
        put(&mut upstream, "service", &json!({ "value_type": "string" })).assert_status(200).body,
    ] {
        assert_eq!(
            definition,
            json!({
                "property_name": "service", "url": "http://upstream.test/orgs/acme/properties/schema/service", "source_type": "organization",
                "value_type": "string", "required": false, "default_value": null, "description": null, "allowed_values": null,
                "values_editable_by": "org_actors", "require_explicit_values": false,
            })
        );
    }
    let nulls = json!({ "value_type": "string", "default_value": null, "description": null, "allowed_values": null, "values_editable_by": null });
    assert_eq!(
        put(&mut upstream, "service", &nulls).assert_status(200).body["values_editable_by"],
        "org_actors"
    );
}

#[test]
fn a_put_creates_a_missing_property_and_answers_200() {
    let mut upstream = Upstream::new();
    let created =
        put(&mut upstream, "tier-1$", &json!({ "value_type": "true_false" })).assert_status(200);
    assert_eq!(created.body["url"], "http://upstream.test/orgs/acme/properties/schema/tier-1%24");
    assert_eq!(
        upstream.get(ADA, &format!("{SCHEMA}/tier-1%24")).assert_status(200).body,
        created.body
    );
    for impossible in ["a%20b", "%E2%82%AC", &"x".repeat(76)] {
        put(&mut upstream, impossible, &json!({ "value_type": "string" })).assert_status(404);
    }
}

#[test]
fn there_are_at_most_200_allowed_values_in_their_order() {
    let mut upstream = Upstream::new();
    let values =
        |count: usize| (0..count).rev().map(|index| format!("value {index}")).collect::<Vec<_>>();
    let body = |count| json!({ "value_type": "single_select", "allowed_values": values(count) });
    let whole = put(&mut upstream, "large", &body(200)).assert_status(200);
    assert_eq!(whole.body["allowed_values"], json!(values(200)));
    put(&mut upstream, "large", &body(201)).assert_names_field("allowed_values");
    let listed = json!({ "properties": [{ "property_name": "large", "value_type": "single_select", "allowed_values": values(201) }] });
    upstream.patch(ADA, SCHEMA, &listed).assert_names_field("properties[0].allowed_values");
    assert_eq!(
        upstream.get(ADA, &format!("{SCHEMA}/large")).body["allowed_values"],
        json!(values(200))
    );
}

#[test]
fn a_default_value_is_one_that_the_property_takes() {
    let mut upstream = Upstream::new();
    let body = |value_type: &str, default: Value| json!({ "value_type": value_type, "default_value": default, "allowed_values": ["a", "b"] });
    for (value_type, default) in
        [("string", json!("a")), ("single_select", json!("b")), ("multi_select", json!(["b", "a"]))]
    {
        assert_eq!(
            put(&mut upstream, "x", &body(value_type, default.clone())).assert_status(200).body["default_value"],
            default
        );
    }
    let wrong = [
        ("string", json!(["a"])),
        ("single_select", json!("c")),
        ("single_select", json!(1)),
        ("multi_select", json!("a")),
        ("multi_select", json!(["a", "c"])),
        ("multi_select", json!(["a", "a"])),
        ("multi_select", json!([["a"]])),
    ];
    for (value_type, default) in wrong {
        put(&mut upstream, "x", &body(value_type, default)).assert_names_field("default_value");
    }
    put(&mut upstream, "x", &json!({ "value_type": "true_false", "default_value": true }))
        .assert_names_field("default_value");
    put(&mut upstream, "x", &json!({ "value_type": "true_false", "default_value": "maybe" }))
        .assert_names_field("default_value");
    put(&mut upstream, "x", &json!({ "value_type": "true_false", "default_value": "true" }))
        .assert_status(200);
    put(&mut upstream, "x", &json!({ "value_type": "single_select", "default_value": "a" }))
        .assert_names_field("default_value");
}

#[test]
fn a_wrong_type_in_a_definition_is_422_and_names_the_field() {
    let mut upstream = Upstream::new();
    let wrong: &[(&str, &[Value])] = &[
        (
            "value_type",
            &[json!(null), json!(1), json!("number"), json!([]), json!("String"), json!("")],
        ),
        ("required", &[json!("yes"), json!(null), json!(1)]),
        ("default_value", &[json!(1), json!({}), json!([1]), json!("x".repeat(256))]),
        ("description", &[json!(1), json!(["x"]), json!("x".repeat(1_025))]),
        (
            "allowed_values",
            &[
                json!("a"),
                json!([1]),
                json!({}),
                json!(["a", "a"]),
                json!([""]),
                json!(["x".repeat(256)]),
            ],
        ),
        ("values_editable_by", &[json!("everyone"), json!(1), json!("")]),
        ("require_explicit_values", &[json!("yes"), json!(null)]),
    ];
    for (field, values) in wrong {
        for value in *values {
            let mut body = json!({ "value_type": "string" });
            body[*field] = value.clone();
            put(&mut upstream, "x", &body).assert_names_field(field);
            body["property_name"] = json!("x");
            upstream
                .patch(ADA, SCHEMA, &json!({ "properties": [body] }))
                .assert_names_field(&format!("properties[0].{field}"));
        }
    }
    put(&mut upstream, "x", &json!({})).assert_names_field("value_type");
    upstream.get(ADA, &format!("{SCHEMA}/x")).assert_status(404);
}

#[test]
fn an_invalid_batch_names_all_faults_and_changes_nothing() {
    let mut upstream = Upstream::new();
    let body = json!({ "properties": [
        { "property_name": "good", "value_type": "string" },
        { "property_name": "not good", "value_type": "string" },
        { "value_type": "string" },
        { "property_name": "good", "value_type": "string" },
        { "property_name": 7 },
    ] });
    let answer = upstream.patch(ADA, SCHEMA, &body);
    for field in [
        "[1].property_name",
        "[2].property_name",
        "[3].property_name",
        "[4].property_name",
        "[4].value_type",
    ] {
        answer.assert_names_field(&format!("properties{field}"));
    }
    upstream.get(ADA, &format!("{SCHEMA}/good")).assert_status(404);
    for wrong in [
        json!({}),
        json!({ "properties": null }),
        json!({ "properties": {} }),
        json!({ "properties": [1] }),
        json!({ "properties": [] }),
    ] {
        upstream.patch(ADA, SCHEMA, &wrong).assert_names_field("properties");
    }
}

#[test]
fn a_body_that_is_no_json_object_is_400() {
    let mut upstream = Upstream::new();
    for (method, path) in [
        (Method::PATCH, SCHEMA),
        (Method::PUT, "/orgs/acme/properties/schema/x"),
        (Method::PATCH, VALUES),
    ] {
        for body in ["{", "[]", "\"x\"", "{\"a\":}", "\u{0}"] {
            let mut request = request(method.clone(), ADA, path, &[], &Value::Null);
            *request.body_mut() = Bytes::from(body);
            upstream.send(&request).assert_status(400);
        }
    }
}

#[test]
fn an_organisation_has_room_for_a_hundred_properties() {
    let mut upstream = Upstream::new();
    let listed = |from: usize, to: usize| {
        let items: Vec<Value> = (from..to)
            .map(|index| json!({ "property_name": format!("p{index}"), "value_type": "string" }))
            .collect();
        json!({ "properties": items })
    };
    upstream.patch(ADA, SCHEMA, &listed(0, 97)).assert_names_field("properties");
    upstream.patch(ADA, SCHEMA, &listed(0, 96)).assert_status(200);
    put(&mut upstream, "one-more", &json!({ "value_type": "string" })).assert_names_field("base");
    put(&mut upstream, "p0", &json!({ "value_type": "true_false" })).assert_status(200);
    upstream.patch(ADA, SCHEMA, &listed(0, 101)).assert_names_field("properties");
}

#[test]
fn a_deleted_property_is_gone_with_all_its_values() {
    let mut upstream = Upstream::new();
    assert_eq!(value_of(&mut upstream, "service"), "widgets");
    let deleted = upstream.delete(ADA, &format!("{SCHEMA}/service")).assert_status(204);
    assert!(deleted.bytes.is_empty());
    upstream.get(ADA, &format!("{SCHEMA}/service")).assert_status(404);
    upstream.delete(ADA, &format!("{SCHEMA}/service")).assert_status(404);
    assert_eq!(value_of(&mut upstream, "service"), "absent");
    put(&mut upstream, "service", &json!({ "value_type": "string" })).assert_status(200);
    assert_eq!(
        value_of(&mut upstream, "service"),
        Value::Null,
        "a new property of that name has no old values"
    );
}

#[test]
fn values_that_a_new_definition_does_not_take_are_unset() {
    let mut upstream = Upstream::new();
    put(
        &mut upstream,
        "service",
        &json!({ "value_type": "single_select", "allowed_values": ["widgets", "x"] }),
    )
    .assert_status(200);
    assert_eq!(value_of(&mut upstream, "service"), "widgets");
    put(
        &mut upstream,
        "service",
        &json!({ "value_type": "single_select", "allowed_values": ["x"] }),
    )
    .assert_status(200);
    assert_eq!(value_of(&mut upstream, "service"), Value::Null);
}

#[test]
fn members_may_read_and_strangers_find_nothing() {
    let mut upstream = Upstream::new();
    for path in [SCHEMA, "/orgs/acme/properties/schema/environment", VALUES] {
        for token in
            [ADA, BEN, CLEO, BUILD_BOT, OAUTH, READ_ORG, ADA_FINE, READS, WRITES, INSTALLATION]
        {
            assert_eq!(upstream.get(token, path).status, 200, "{token} {path}");
        }
        upstream.get(NOBODY, path).assert_status(401);
        upstream.get("wrong", path).assert_status(401);
        for token in [DAN, "emu_installation_globex"] {
            assert_eq!(upstream.get(token, path).status, 404, "{token} {path}");
        }
        for token in [ADA_NO_PERMISSIONS, WORKFLOW, "emu_app_user_ben"] {
            assert_eq!(upstream.get(token, path).status, 403, "{token} {path}");
        }
        for token in [ADA_NO_SCOPES, "emu_classic_ada_notifications"] {
            assert_eq!(upstream.get(token, path).status, 200, "no scope is named: {token} {path}");
        }
    }
}

#[test]
fn definition_writes_need_an_administrator_or_manager() {
    let mut upstream = Upstream::new();
    let one = format!("{SCHEMA}/x");
    let listed = json!({ "properties": [{ "property_name": "x", "value_type": "string" }] });
    for token in [ADA, BEN, ADA_FINE, INSTALLATION] {
        upstream.patch(token, SCHEMA, &listed).assert_status(200);
        upstream.put(token, &one, &json!({ "value_type": "string" })).assert_status(200);
        upstream.delete(token, &one).assert_status(204);
    }
    // Ben is the manager, Cleo edits values only. The other tokens lack scope, role or level.
    for token in [
        CLEO,
        BUILD_BOT,
        ADA_NO_SCOPES,
        READ_ORG,
        OAUTH,
        ADA_NO_PERMISSIONS,
        READS,
        WRITES,
        WORKFLOW,
    ] {
        assert_eq!(upstream.patch(token, SCHEMA, &listed).status, 403, "{token}");
        assert_eq!(
            upstream.put(token, &one, &json!({ "value_type": "string" })).status,
            403,
            "{token}"
        );
        assert_eq!(upstream.delete(token, &one).status, 403, "{token}");
    }
    upstream.patch(DAN, SCHEMA, &listed).assert_status(404);
    upstream.patch(NOBODY, SCHEMA, &listed).assert_status(401);
}

#[test]
fn the_permission_is_read_write_or_admin() {
    let mut upstream = Upstream::new();
    let permission = |answer: Answer| answer.header("x-accepted-service-permissions").to_owned();
    assert_eq!(permission(upstream.get(ADA, SCHEMA)), "organization_custom_properties=read");
    assert_eq!(
        permission(upstream.patch(ADA, VALUES, &json!({}))),
        "organization_custom_properties=write"
    );
    assert_eq!(
        permission(upstream.put(ADA, "/orgs/acme/properties/schema/x", &json!({}))),
        "organization_custom_properties=admin"
    );
    assert_eq!(upstream.get(ADA, SCHEMA).header("x-accepted-oauth-scopes"), "", "none is named");
    assert_eq!(
        upstream.delete(ADA, "/orgs/acme/properties/schema/x").header("x-accepted-oauth-scopes"),
        "admin:org"
    );
}

/// Names of fields of the routes below.
const NAMES: &[&str] = &[
    "properties",
    "property_name",
    "value_type",
    "required",
    "default_value",
    "description",
    "allowed_values",
    "values_editable_by",
    "repository_names",
    "value",
    "options",
    "name",
    "data_type",
    "visibility",
    "color",
    "priority",
    "ignored",
    "last_read_at",
];

const TEXTS: &[&str] = &[
    "x",
    "",
    "service",
    "teams",
    "widgets",
    "acme/gadgets",
    "single_select",
    "multi_select",
    "text",
    "red",
    "🦀\u{0}",
    "../..",
];

fn random_value(dice: &mut Rng, depth: u32) -> Value {
    let word = |dice: &mut Rng| dice.pick(TEXTS).copied().unwrap_or("");
    match dice.below(if depth == 0 { 4 } else { 7 }) {
        0 => dice
            .pick(&[Value::Null, json!(true), json!(3), json!(-1), json!(1e300), json!(u64::MAX)])
            .cloned()
            .unwrap_or_default(),
        1..=3 => json!(word(dice)),
        4 => (0..dice.below(4)).map(|_| random_value(dice, depth - 1)).collect(),
        _ => Value::Object(
            (0..dice.below(6))
                .map(|_| {
                    (
                        dice.pick(NAMES).copied().unwrap_or("").to_owned(),
                        random_value(dice, depth - 1),
                    )
                })
                .collect(),
        ),
    }
}

/// Sends random bodies to each route in turn, asserts that none fails, and counts the accepted.
fn send_random_bodies(upstream: &mut Upstream, routes: &[(Method, &str)]) -> u32 {
    const BODIES_EACH: u32 = 860;
    for name in ["core", "points.rest", "content.minute", "content.hour"] {
        upstream.set_limit(name, 1_000_000_000);
    }
    let mut dice = Rng::new(20_270_115);
    let mut accepted = 0;
    for turn in 0..cases(BODIES_EACH) as usize * routes.len() {
        let (method, path) = &routes[turn % routes.len()];
        let mut body = random_value(&mut dice, 3);
        if !body.is_object() {
            body = json!({ "properties": [body.clone()], "repository_names": ["widgets"], "value_type": "string", "name": body.clone(), "options": [body] });
        }
        let answer = upstream.send(&request(method.clone(), ADA, path, &[], &body));
        assert!(
            [200, 204, 205, 404, 422].contains(&answer.status),
            "turn {turn}: {method} {path} {body} → {}",
            answer.status
        );
        accepted += u32::from(answer.status < 300);
    }
    accepted
}

#[test]
fn no_body_makes_a_route_of_properties_fail() {
    let mut upstream = Upstream::new();
    let one = format!("{SCHEMA}/service");
    let routes = [
        (Method::PATCH, SCHEMA),
        (Method::PUT, one.as_str()),
        (Method::PATCH, VALUES),
        (Method::PATCH, "/repos/acme/widgets/properties/values"),
    ];
    let accepted = send_random_bodies(&mut upstream, &routes);
    assert!(accepted > cases(100), "some are well formed: {accepted}");
    assert!(
        upstream
            .get(ADA, SCHEMA)
            .items()
            .iter()
            .all(|definition| definition["value_type"].is_string())
    );
}

#[test]
fn no_body_makes_a_route_of_fields_or_notifications_fail() {
    let mut upstream = Upstream::new();
    let field = upstream.get(ADA, "/orgs/acme/issue-fields").items()[0]["id"].clone();
    let one = format!("/orgs/acme/issue-fields/{field}");
    let routes = [
        (Method::POST, "/orgs/acme/issue-fields"),
        (Method::PATCH, one.as_str()),
        (Method::PUT, "/notifications"),
    ];
    let accepted = send_random_bodies(&mut upstream, &routes);
    assert!(accepted > cases(100), "some are well formed: {accepted}");
}
