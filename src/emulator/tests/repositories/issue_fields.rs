//! Tests issue fields (SPECIFICATION, "Issue fields").

use serde_json::{Value, json};

use crate::emulator::tests::*;

const FIELDS: &str = "/orgs/acme/issue-fields";
const CLEO: &str = "emu_classic_cleo_all_scopes";
const READS: &str = "emu_fine_grained_ada_reads_properties";
const WRITES: &str = "emu_app_user_ada_writes_properties";

fn options(names: &[&str]) -> Value {
    names
        .iter()
        .enumerate()
        .map(|(index, name)| json!({ "name": name, "color": "red", "priority": index }))
        .collect()
}

fn select(upstream: &mut Upstream) -> Answer {
    let body = json!({ "name": "Effort", "data_type": "single_select", "options": options(&["small", "large"]) });
    upstream.post(ADA, FIELDS, &body).assert_status(200)
}

fn path_of(field: &Answer) -> String {
    format!("{FIELDS}/{}", field.body["id"])
}

fn ids(field: &Answer) -> Vec<(String, u64)> {
    let options = field.body["options"].as_array().expect("options");
    options
        .iter()
        .map(|option| {
            (
                option["name"].as_str().unwrap_or("?").to_owned(),
                option["id"].as_u64().expect("an integer"),
            )
        })
        .collect()
}

#[test]
fn a_field_has_everything_of_its_table() {
    let mut upstream = Upstream::new();
    let answer = upstream.get(ADA, FIELDS).assert_status(200);
    let priority =
        answer.items().iter().find(|field| field["name"] == "Priority").expect("the seed has it");
    assert!(priority["id"].is_u64());
    for field in ["node_id", "data_type", "visibility", "created_at", "updated_at"] {
        assert!(priority[field].is_string(), "{field}");
    }
    assert!(priority["description"].is_null());
    let options = priority["options"].as_array().expect("options of a single_select");
    let shown: Vec<_> = options
        .iter()
        .map(|option| (&option["name"], &option["color"], &option["priority"]))
        .collect();
    assert_eq!(
        shown,
        [
            (&json!("High"), &json!("red"), &json!(1)),
            (&json!("Medium"), &json!("yellow"), &json!(2)),
            (&json!("Low"), &json!("green"), &json!(3))
        ]
    );
    for field in ["id", "description", "created_at", "updated_at"] {
        assert!(options[0].get(field).is_some(), "{field}");
    }
    let text =
        answer.items().iter().find(|field| field["data_type"] == "text").expect("the seed has one");
    assert!(text.get("options").is_none(), "only for single_select");
}

#[test]
fn creating_answers_200_and_not_201() {
    let mut upstream = Upstream::new();
    let text = upstream
        .post(
            ADA,
            FIELDS,
            &json!({ "name": "Notes", "description": "Free text", "data_type": "text" }),
        )
        .assert_status(200);
    assert_eq!(
        (&text.body["description"], &text.body["visibility"]),
        (&json!("Free text"), &json!("organization_members_only"))
    );
    let field = select(&mut upstream);
    assert_eq!(ids(&field).len(), 2);
    assert_eq!(upstream.get(ADA, FIELDS).items().len(), 4);
    let seen = upstream
        .post(
            ADA,
            FIELDS,
            &json!({ "name": "Seen", "data_type": "date", "visibility": "all", "options": null }),
        )
        .assert_status(200);
    assert_eq!(seen.body["visibility"], "all");
}

#[test]
fn options_are_required_for_single_select_and_refused_for_text() {
    let mut upstream = Upstream::new();
    for given in [Value::Null, json!([])] {
        upstream
            .post(
                ADA,
                FIELDS,
                &json!({ "name": "x", "data_type": "single_select", "options": given }),
            )
            .assert_names_field("options");
    }
    upstream
        .post(ADA, FIELDS, &json!({ "name": "x", "data_type": "single_select" }))
        .assert_names_field("options");
    for given in [options(&["a"]), json!([]), json!("a")] {
        upstream
            .post(ADA, FIELDS, &json!({ "name": "x", "data_type": "text", "options": given }))
            .assert_names_field("options");
    }
    let text =
        upstream.post(ADA, FIELDS, &json!({ "name": "x", "data_type": "text" })).assert_status(200);
    upstream
        .patch(ADA, &path_of(&text), &json!({ "options": options(&["a"]) }))
        .assert_names_field("options");
    let field = select(&mut upstream);
    for given in [Value::Null, json!([])] {
        upstream
            .patch(ADA, &path_of(&field), &json!({ "options": given }))
            .assert_names_field("options");
    }
}

#[test]
fn every_option_has_a_name_a_color_and_an_integer_priority() {
    let mut upstream = Upstream::new();
    let cases = [
        (json!({ "color": "red", "priority": 1 }), "name"),
        (json!({ "name": "", "color": "red", "priority": 1 }), "name"),
        (json!({ "name": 1, "color": "red", "priority": 1 }), "name"),
        (json!({ "name": "x".repeat(256), "color": "red", "priority": 1 }), "name"),
        (json!({ "name": "x", "priority": 1 }), "color"),
        (json!({ "name": "x", "color": null, "priority": 1 }), "color"),
        (json!({ "name": "x", "color": "ff0000", "priority": 1 }), "color"),
        (json!({ "name": "x", "color": ["red"], "priority": 1 }), "color"),
        (json!({ "name": "x", "color": "red" }), "priority"),
        (json!({ "name": "x", "color": "red", "priority": null }), "priority"),
        (json!({ "name": "x", "color": "red", "priority": "1" }), "priority"),
        (json!({ "name": "x", "color": "red", "priority": 1.5 }), "priority"),
        (json!({ "name": "x", "color": "red", "priority": u64::MAX }), "priority"),
        (json!({ "name": "x", "color": "red", "priority": 1, "description": 3 }), "description"),
    ];
    let field = select(&mut upstream);
    for (option, name) in cases {
        let body = json!({ "name": "x", "data_type": "single_select", "options": [{ "name": "good", "color": "blue", "priority": -3 }, option] });
        upstream.post(ADA, FIELDS, &body).assert_names_field(&format!("options[1].{name}"));
        upstream
            .patch(ADA, &path_of(&field), &json!({ "options": [option] }))
            .assert_names_field(&format!("options[0].{name}"));
    }
    for (given, name) in [
        (json!([1]), "options"),
        (json!({}), "options"),
        (options(&["a", "A"]), "options[1].name"),
        (options(&["x"; 101]), "options"),
    ] {
        let body = json!({ "name": "x", "data_type": "single_select", "options": given });
        upstream.post(ADA, FIELDS, &body).assert_names_field(name);
    }
    assert_eq!(
        ids(&upstream.patch(ADA, &path_of(&field), &json!({})).assert_status(200)),
        ids(&field),
        "nothing was changed"
    );
}

#[test]
fn a_wrong_type_in_any_field_is_422_and_names_it() {
    let mut upstream = Upstream::new();
    let wrong: &[(&str, &[Value])] = &[
        ("name", &[json!(null), json!(3), json!(""), json!("  "), json!("x".repeat(256))]),
        ("description", &[json!(3), json!([]), json!("x".repeat(1_025))]),
        ("data_type", &[json!(null), json!(3), json!("color"), json!("Text")]),
        ("visibility", &[json!(3), json!(""), json!("all of them"), json!(null)]),
    ];
    let field = select(&mut upstream);
    for (name, values) in wrong {
        for value in *values {
            let mut body = json!({ "name": "x", "data_type": "text" });
            body[*name] = value.clone();
            upstream.post(ADA, FIELDS, &body).assert_names_field(name);
            if *name != "data_type" {
                upstream
                    .patch(ADA, &path_of(&field), &json!({ *name: value }))
                    .assert_names_field(name);
            }
        }
    }
    let empty = upstream.post(ADA, FIELDS, &json!({}));
    empty.assert_names_field("name");
    empty.assert_names_field("data_type");
    upstream.post(ADA, FIELDS, &json!([])).assert_status(400);
    upstream.patch(ADA, &path_of(&field), &json!([])).assert_status(400);
}

#[test]
fn two_fields_cannot_have_one_name() {
    let mut upstream = Upstream::new();
    let field = select(&mut upstream);
    upstream
        .post(ADA, FIELDS, &json!({ "name": "effort", "data_type": "text" }))
        .assert_names_field("name");
    upstream
        .patch(ADA, &path_of(&field), &json!({ "name": "priority" }))
        .assert_names_field("name");
    upstream.patch(ADA, &path_of(&field), &json!({ "name": "EFFORT" })).assert_status(200);
}

#[test]
fn a_patch_changes_only_the_named_fields() {
    let mut upstream = Upstream::new();
    let field = select(&mut upstream);
    upstream.pass(60);
    let changed = upstream
        .patch(ADA, &path_of(&field), &json!({ "description": "How much", "data_type": "text" }))
        .assert_status(200);
    assert_eq!(
        (&changed.body["name"], &changed.body["description"]),
        (&json!("Effort"), &json!("How much"))
    );
    assert_eq!(changed.body["data_type"], "single_select", "the body has no data_type");
    assert_eq!(changed.body["options"], field.body["options"]);
    assert_eq!(changed.body["created_at"], field.body["created_at"]);
    assert_ne!(changed.body["updated_at"], field.body["updated_at"]);
    let cleared = upstream
        .patch(
            ADA,
            &path_of(&field),
            &json!({ "description": null, "name": "Size", "visibility": "all" }),
        )
        .assert_status(200);
    assert_eq!(
        (&cleared.body["name"], &cleared.body["description"], &cleared.body["visibility"]),
        (&json!("Size"), &json!(null), &json!("all"))
    );
}

#[test]
fn a_patched_option_keeps_its_id_and_options_are_sorted() {
    let mut upstream = Upstream::new();
    let field = select(&mut upstream);
    let before = ids(&field);
    upstream.pass(60);
    let body = json!({ "options": [
        { "name": "large", "color": "red", "priority": 1 },
        { "name": "medium", "color": "yellow", "priority": 0 },
        { "name": "small", "color": "green", "priority": -1, "description": "an hour" },
    ] });
    let changed = upstream.patch(ADA, &path_of(&field), &body).assert_status(200);
    let after = ids(&changed);
    assert_eq!(
        after.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["small", "medium", "large"]
    );
    assert_eq!((&after[0], &after[2]), (&before[0], &before[1]));
    assert!(!before.contains(&after[1]));
    let (small, large) = (&changed.body["options"][0], &changed.body["options"][2]);
    assert_eq!(small["created_at"], large["created_at"]);
    assert_ne!(small["updated_at"], large["updated_at"], "only the changed option was updated");
    let gone = upstream
        .patch(ADA, &path_of(&field), &json!({ "options": options(&["large"]) }))
        .assert_status(200);
    assert_eq!(ids(&gone), [after[2].clone()]);
}

#[test]
fn a_deleted_field_is_gone_and_a_malformed_id_is_422() {
    let mut upstream = Upstream::new();
    let field = select(&mut upstream);
    upstream.delete(ADA, &path_of(&field)).assert_status(204);
    upstream.delete(ADA, &path_of(&field)).assert_status(404);
    upstream.patch(ADA, &path_of(&field), &json!({ "name": "x" })).assert_status(404);
    for id in ["x", "1.5", "99999999999999999999999", "%20", "1e3"] {
        upstream.delete(ADA, &format!("{FIELDS}/{id}")).assert_names_field("issue_field_id");
        upstream
            .patch(ADA, &format!("{FIELDS}/{id}"), &json!({ "name": "x" }))
            .assert_names_field("issue_field_id");
    }
    for id in ["0", "-1", "4000000000"] {
        upstream.delete(ADA, &format!("{FIELDS}/{id}")).assert_status(404);
        upstream.patch(ADA, &format!("{FIELDS}/{id}"), &json!({ "name": "x" })).assert_status(404);
    }
    upstream
        .delete(DAN, &format!("/orgs/globex/issue-fields/{}", upstream_field(&mut Upstream::new())))
        .assert_status(404);
}

fn upstream_field(upstream: &mut Upstream) -> u64 {
    upstream.get(ADA, FIELDS).items()[0]["id"].as_u64().expect("an id")
}

#[test]
fn members_read_and_only_an_administrator_writes() {
    let mut upstream = Upstream::new();
    let body = json!({ "name": "x", "data_type": "text" });
    for token in
        [ADA, BEN, CLEO, OAUTH, "emu_classic_ada_read_org", ADA_FINE, READS, WRITES, INSTALLATION]
    {
        assert_eq!(upstream.get(token, FIELDS).status, 200, "{token}");
    }
    for token in [ADA, ADA_FINE, WRITES, INSTALLATION] {
        let field = upstream.post(token, FIELDS, &body).assert_status(200);
        upstream.patch(token, &path_of(&field), &json!({ "description": "y" })).assert_status(200);
        upstream.delete(token, &path_of(&field)).assert_status(204);
    }
    let path = format!("{FIELDS}/{}", upstream_field(&mut upstream));
    // 404 is the only documented refusal; a wrong kind is a 403, a missing credential a 401.
    for (token, status) in [
        (BEN, 404),
        (CLEO, 404),
        (DAN, 404),
        (ADA_NO_SCOPES, 404),
        ("emu_classic_ada_read_org", 404),
        (OAUTH, 404),
        (READS, 403),
        (ADA_NO_PERMISSIONS, 403),
        (WORKFLOW, 403),
        (NOBODY, 401),
    ] {
        assert_eq!(upstream.post(token, FIELDS, &body).status, status, "{token}");
        assert_eq!(upstream.patch(token, &path, &json!({})).status, status, "{token}");
        assert_eq!(upstream.delete(token, &path).status, status, "{token}");
    }
    for (token, status) in [
        (ADA_NO_SCOPES, 404),
        (DAN, 404),
        (ADA_NO_PERMISSIONS, 403),
        ("emu_app_user_ben", 403),
        (NOBODY, 401),
    ] {
        assert_eq!(upstream.get(token, FIELDS).status, status, "{token}");
    }
}

#[test]
fn both_versions_work_and_the_permission_is_stated() {
    let mut upstream = Upstream::new();
    for version in ["2022-11-28", "2026-03-10"] {
        let answer = upstream
            .get_with(ADA, FIELDS, &[("x-service-api-version", version)])
            .assert_status(200);
        assert_eq!(answer.header("x-service-api-version"), version);
    }
    assert_eq!(
        upstream.get(ADA, FIELDS).header("x-accepted-service-permissions"),
        "issue_fields=read"
    );
    assert_eq!(
        upstream.post(ADA, FIELDS, &json!({})).header("x-accepted-service-permissions"),
        "issue_fields=write"
    );
    assert_eq!(
        upstream.post(ADA, FIELDS, &json!({})).header("x-accepted-oauth-scopes"),
        "admin:org"
    );
}

#[test]
fn an_organisation_has_room_for_a_hundred_fields() {
    let mut upstream = Upstream::new();
    for index in 2..100 {
        upstream
            .post(
                ADA,
                FIELDS,
                &json!({ "name": format!("Field {index} 🦀"), "data_type": "number" }),
            )
            .assert_status(200);
    }
    upstream
        .post(ADA, FIELDS, &json!({ "name": "One more", "data_type": "text" }))
        .assert_names_field("base");
    assert_eq!(upstream.get(ADA, FIELDS).items().len(), 100, "the list is not in pages");
}
