//! Tests the values of custom properties (SPECIFICATION, "Custom properties").

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::emulator::tests::*;

const VALUES: &str = "/orgs/acme/properties/values";
const CLEO: &str = "emu_classic_cleo_all_scopes";
const BUILD_BOT: &str = "emu_classic_build_bot";

fn shown(answer: &Answer, name: &str) -> BTreeMap<String, Value> {
    let value = |repository: &Value| {
        let properties = repository["properties"].as_array().expect("an array");
        properties
            .iter()
            .find(|property| property["property_name"] == name)
            .map_or(json!("absent"), |property| property["value"].clone())
    };
    let name =
        |repository: &Value| repository["repository_name"].as_str().unwrap_or("?").to_owned();
    answer.items().iter().map(|repository| (name(repository), value(repository))).collect()
}

fn of(upstream: &mut Upstream, repository: &str, name: &str) -> Value {
    shown(&upstream.get(ADA, &format!("{VALUES}?per_page=100")).assert_status(200), name)
        [repository]
        .clone()
}

fn set(upstream: &mut Upstream, repositories: &[&str], name: &str, value: &Value) -> Answer {
    let body = json!({ "repository_names": repositories, "properties": [{ "property_name": name, "value": value }] });
    upstream.patch(ADA, VALUES, &body)
}

fn found(upstream: &mut Upstream, query: &str) -> Vec<String> {
    let query: String =
        percent_encoding::utf8_percent_encode(query, percent_encoding::NON_ALPHANUMERIC).collect();
    let answer = upstream
        .get(ADA, &format!("{VALUES}?per_page=100&repository_query={query}"))
        .assert_status(200);
    answer
        .items()
        .iter()
        .filter_map(|repository| repository["repository_name"].as_str().map(str::to_owned))
        .collect()
}

#[test]
fn each_repository_has_the_fields_of_the_table() {
    let mut upstream = Upstream::new();
    let answer = upstream.get(ADA, VALUES).assert_status(200);
    assert_eq!(
        answer.items()[0],
        json!({
            "repository_id": 1001,
            "repository_name": "widgets",
            "repository_full_name": "acme/widgets",
            "properties": [
                { "property_name": "audited", "value": null },
                { "property_name": "environment", "value": "production" },
                { "property_name": "service", "value": "widgets" },
                { "property_name": "teams", "value": ["platform", "bots"] },
            ],
        })
    );
    assert!(answer.items().iter().all(|repository| {
        repository["repository_full_name"].as_str().is_some_and(|name| name.starts_with("acme/"))
    }));
}

#[test]
fn the_list_comes_in_pages() {
    let mut upstream = Upstream::with(Options {
        repositories: 60,
        base_url: "http://upstream.test".to_owned(),
        ..Options::default()
    });
    assert_eq!(upstream.get(ADA, VALUES).items().len(), 30);
    let first =
        upstream.get(ADA, &format!("{VALUES}?per_page=2&repository_query=visibility:public"));
    assert_eq!(first.items().len(), 2);
    let next = first.link("next").expect("there is more");
    assert_eq!(
        next,
        "http://upstream.test/orgs/acme/properties/values?per_page=2&repository_query=visibility:public&page=2"
    );
    let second = upstream
        .get(ADA, next.strip_prefix("http://upstream.test").expect("our address"))
        .assert_status(200);
    assert_ne!(first.items()[0], second.items()[0]);
    assert!(upstream.get(ADA, &format!("{VALUES}?per_page=500")).items().len() > 30);
}

#[test]
fn a_required_property_shows_its_default_until_a_value_is_set() {
    let mut upstream = Upstream::new();
    assert_eq!(of(&mut upstream, "gadgets", "environment"), "development");
    set(&mut upstream, &["gadgets"], "environment", &json!("staging")).assert_status(204);
    assert_eq!(of(&mut upstream, "gadgets", "environment"), "staging");
    set(&mut upstream, &["gadgets"], "environment", &Value::Null).assert_status(204);
    assert_eq!(of(&mut upstream, "gadgets", "environment"), "development");
    let optional = json!({ "value_type": "string", "default_value": "x" });
    upstream.put(ADA, "/orgs/acme/properties/schema/service", &optional).assert_status(200);
    assert_eq!(
        of(&mut upstream, "gadgets", "service"),
        Value::Null,
        "only a required property has a default"
    );
}

#[test]
fn a_value_is_set_or_unset_on_each_listed_repository() {
    let mut upstream = Upstream::new();
    let both = ["widgets", "gadgets"];
    let changed = set(&mut upstream, &both, "service", &json!("both")).assert_status(204);
    assert!(changed.bytes.is_empty());
    for name in both {
        assert_eq!(of(&mut upstream, name, "service"), "both");
    }
    assert_eq!(of(&mut upstream, "sprockets", "service"), Value::Null);
    for _ in 0..2 {
        set(&mut upstream, &both, "service", &Value::Null).assert_status(204);
        assert_eq!(
            (of(&mut upstream, "widgets", "service"), of(&mut upstream, "gadgets", "service")),
            (Value::Null, Value::Null)
        );
    }
    assert_eq!(
        of(&mut upstream, "widgets", "environment"),
        "production",
        "an unlisted property stays"
    );
}

#[test]
fn several_properties_are_set_at_once() {
    let mut upstream = Upstream::new();
    let body = json!({ "repository_names": ["Gadgets", "acme/widgets", "gadgets"], "properties": [
        { "property_name": "audited", "value": "false" },
        { "property_name": "teams", "value": ["bots"] },
        { "property_name": "service", "value": null },
    ] });
    upstream.patch(ADA, VALUES, &body).assert_status(204);
    for name in ["widgets", "gadgets"] {
        assert_eq!(of(&mut upstream, name, "audited"), "false");
        assert_eq!(of(&mut upstream, name, "teams"), json!(["bots"]));
    }
}

#[test]
fn at_most_30_repositories_are_named_at_once() {
    let mut upstream = Upstream::with(Options { repositories: 80, ..Options::default() });
    let names: Vec<String> = upstream
        .get(ADA, &format!("{VALUES}?per_page=100"))
        .items()
        .iter()
        .filter_map(|repository| repository["repository_name"].as_str().map(str::to_owned))
        .take(31)
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    set(&mut upstream, &names, "service", &json!("many")).assert_names_field("repository_names");
    assert_ne!(of(&mut upstream, names[0], "service"), "many");
    set(&mut upstream, &names[..30], "service", &json!("many")).assert_status(204);
    assert_eq!(
        (of(&mut upstream, names[29], "service"), of(&mut upstream, names[30], "service")),
        (json!("many"), Value::Null)
    );
}

#[test]
fn an_invalid_value_is_422_and_names_the_field() {
    let mut upstream = Upstream::new();
    let wrong = [
        ("environment", json!("moon")),
        ("environment", json!(["production"])),
        ("environment", json!("Production")),
        ("environment", json!("")),
        ("teams", json!("bots")),
        ("teams", json!(["bots", "moon"])),
        ("teams", json!(["bots", "bots"])),
        ("teams", json!(["bots", null])),
        ("audited", json!(true)),
        ("audited", json!("yes")),
        ("service", json!(3)),
        ("service", json!({})),
        ("service", json!(["a"])),
        ("service", json!("x".repeat(256))),
    ];
    for (name, value) in wrong {
        set(&mut upstream, &["widgets"], name, &value).assert_names_field("properties[0].value");
    }
    for (name, value) in
        [("teams", json!([])), ("service", json!("🦀 \u{202e}é")), ("audited", json!("true"))]
    {
        set(&mut upstream, &["widgets"], name, &value).assert_status(204);
        assert_eq!(of(&mut upstream, "widgets", name), value);
    }
}

#[test]
fn a_selection_without_a_list_has_nothing_to_select() {
    let mut upstream = Upstream::new();
    upstream
        .put(ADA, "/orgs/acme/properties/schema/empty", &json!({ "value_type": "single_select" }))
        .assert_status(200);
    set(&mut upstream, &["widgets"], "empty", &json!("x"))
        .assert_names_field("properties[0].value");
    set(&mut upstream, &["widgets"], "empty", &Value::Null).assert_status(204);
}

#[test]
fn unknown_properties_and_repositories_are_422() {
    let mut upstream = Upstream::new();
    set(&mut upstream, &["widgets"], "nothing", &json!("x"))
        .assert_names_field("properties[0].property_name");
    // Repositories of another organisation and of a user, a former name, and unknown names.
    for name in [
        "portal",
        "globex/portal",
        "dotfiles",
        "ada/dotfiles",
        "cogs",
        "nothing",
        "",
        "a/b/c",
        "🦀",
    ] {
        set(&mut upstream, &["gadgets", name], "service", &json!("x"))
            .assert_names_field("repository_names");
    }
    assert_eq!(of(&mut upstream, "gadgets", "service"), Value::Null);
}

#[test]
fn a_wrong_type_anywhere_is_422_and_names_the_field() {
    let mut upstream = Upstream::new();
    let (names, properties) =
        (json!(["widgets"]), json!([{ "property_name": "service", "value": "x" }]));
    for wrong in [Value::Null, json!("widgets"), json!([1]), json!([]), json!({})] {
        upstream
            .patch(ADA, VALUES, &json!({ "repository_names": wrong, "properties": properties }))
            .assert_names_field("repository_names");
    }
    for wrong in [Value::Null, json!("x"), json!(["x"]), json!([]), json!({})] {
        upstream
            .patch(ADA, VALUES, &json!({ "repository_names": names, "properties": wrong }))
            .assert_names_field("properties");
    }
    let both = upstream.patch(ADA, VALUES, &json!({}));
    both.assert_names_field("repository_names");
    both.assert_names_field("properties");
    let wrong = json!({ "repository_names": names, "properties": [
        { "property_name": "service" }, { "value": "x" }, { "property_name": 3, "value": "x" }, { "property_name": "service", "value": "x" },
    ] });
    let answer = upstream.patch(ADA, VALUES, &wrong);
    for field in ["[0].value", "[1].property_name", "[2].property_name", "[3].property_name"] {
        answer.assert_names_field(&format!("properties{field}"));
    }
}

#[test]
fn value_writes_need_an_administrator_or_the_values_editor() {
    let mut upstream = Upstream::new();
    let body = json!({ "repository_names": ["widgets"], "properties": [{ "property_name": "service", "value": "x" }] });
    for token in [ADA, CLEO, ADA_FINE, INSTALLATION, "emu_app_user_ada_writes_properties"] {
        assert_eq!(upstream.patch(token, VALUES, &body).status, 204, "{token}");
    }
    for token in [
        BEN,
        BUILD_BOT,
        ADA_NO_SCOPES,
        OAUTH,
        "emu_classic_ada_read_org",
        ADA_NO_PERMISSIONS,
        "emu_fine_grained_ada_reads_properties",
        WORKFLOW,
    ] {
        assert_eq!(upstream.patch(token, VALUES, &body).status, 403, "{token}");
    }
    upstream.patch(DAN, VALUES, &body).assert_status(404);
    upstream.patch(NOBODY, VALUES, &body).assert_status(401);
}

#[test]
fn a_repository_that_the_token_does_not_see_is_not_listed() {
    let mut upstream = Upstream::new();
    assert!(shown(&upstream.get(ADA, VALUES), "service").contains_key("gadgets"));
    let public = upstream.get("emu_classic_ada_read_org", VALUES).assert_status(200);
    assert!(
        shown(&public, "service").contains_key("widgets")
            && !shown(&public, "service").contains_key("gadgets")
    );
}

#[test]
fn a_query_limits_the_repositories_by_keywords_and_qualifiers() {
    let mut upstream = Upstream::new();
    let all = found(&mut upstream, "");
    assert!(all.len() > 10);
    assert_eq!(found(&mut upstream, "WIDG"), ["widgets"]);
    assert_eq!(
        found(&mut upstream, "\"about widgets\""),
        ["widgets"],
        "descriptions are searched too"
    );
    assert_eq!(found(&mut upstream, "repo:acme/Widgets"), ["widgets"]);
    assert_eq!(found(&mut upstream, "repo:gadgets visibility:private"), ["gadgets"]);
    assert!(found(&mut upstream, "repo:gadgets visibility:public").is_empty());
    let (public, private) =
        (found(&mut upstream, "visibility:public"), found(&mut upstream, "is:private"));
    assert_eq!(public.len() + private.len(), all.len());
    assert_eq!(found(&mut upstream, "-visibility:private"), public);
    assert_eq!(
        found(&mut upstream, "org:acme language:rust topic:emulated archived:false template:false"),
        all
    );
    for nothing in [
        "user:globex",
        "language:cobol",
        "topic:moon",
        "archived:true",
        "is:archived",
        "visibility:internal",
        "moon",
        "size:3",
    ] {
        assert!(found(&mut upstream, nothing).is_empty(), "{nothing}");
    }
}

#[test]
fn a_query_matches_set_and_default_values() {
    let mut upstream = Upstream::new();
    assert_eq!(found(&mut upstream, "props.environment:production"), ["widgets"]);
    assert_eq!(found(&mut upstream, "props.Teams:BOTS"), ["widgets"], "one of several");
    let all = found(&mut upstream, "").len();
    assert_eq!(found(&mut upstream, "props.environment:development").len(), all - 1, "by default");
    assert_eq!(found(&mut upstream, "-props.environment:development"), ["widgets"]);
    set(&mut upstream, &["gadgets"], "service", &json!("the big one")).assert_status(204);
    assert_eq!(found(&mut upstream, "props.service:\"the big one\""), ["gadgets"]);
    for nothing in
        ["props.nothing:x", "props.:x", "props.service:", "props.service", ":", "\"", "🦀:🦀"]
    {
        let hits = found(&mut upstream, nothing).len();
        assert!(hits == 0 || hits == all, "{nothing} {hits}");
    }
}

#[test]
fn the_values_of_a_repository_are_visible_to_its_readers() {
    let mut upstream = Upstream::new();
    let path = "/repos/acme/widgets/properties/values";
    let answer = upstream.get(NOBODY, path).assert_status(200);
    assert_eq!(answer.items()[2], json!({ "property_name": "service", "value": "widgets" }));
    upstream.get(DAN, "/repos/acme/gadgets/properties/values").assert_status(404);
    assert_eq!(
        upstream.get(ADA, "/repos/ada/dotfiles/properties/values").assert_status(200).body,
        json!([])
    );
}

#[test]
fn push_access_suffices_for_values_open_to_repository_actors() {
    let mut upstream = Upstream::new();
    let path = "/repos/acme/widgets/properties/values";
    let body = |name: &str, value: &str| json!({ "properties": [{ "property_name": name, "value": value }] });
    upstream.patch(BUILD_BOT, path, &body("service", "bots")).assert_status(204);
    assert_eq!(of(&mut upstream, "widgets", "service"), "bots");
    upstream.patch(BUILD_BOT, path, &body("environment", "staging")).assert_status(403);
    for token in [ADA, CLEO, INSTALLATION] {
        upstream.patch(token, path, &body("environment", "staging")).assert_status(204);
    }
    upstream.patch(DAN, path, &body("service", "x")).assert_status(403);
    upstream.patch(NOBODY, path, &body("service", "x")).assert_status(401);
    upstream
        .patch(ADA, path, &body("environment", "moon"))
        .assert_names_field("properties[0].value");
    upstream.patch(ADA, path, &json!({ "properties": [] })).assert_names_field("properties");
    upstream
        .patch(ADA, "/repos/ada/dotfiles/properties/values", &body("service", "x"))
        .assert_status(404);
}
