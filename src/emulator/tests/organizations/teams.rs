//! Tests the teams themselves and their repositories (SPECIFICATION, "Permissions").

use serde_json::{Value, json};

use crate::emulator::tests::*;

const CLEO: &str = "emu_classic_cleo_all_scopes";
const ADA_APP: &str = "emu_app_user_ada_members";
const BEN_APP_READ: &str = "emu_app_user_ben_members_read";
const TEAMS: &str = "/orgs/acme/teams";

fn slugs(answer: &Answer) -> Vec<&str> {
    answer.items().iter().map(|team| team["slug"].as_str().unwrap_or("")).collect()
}

fn created(upstream: &mut Upstream, body: &Value) -> Answer {
    upstream.post(ADA, TEAMS, body).assert_status(201)
}

#[test]
fn a_list_has_the_visible_teams_and_the_enterprise_teams() {
    let mut upstream = Upstream::new();
    assert_eq!(
        slugs(&upstream.get(BEN, TEAMS)),
        ["platform", "platform-core", "bots", "ent:architects"]
    );
    assert_eq!(
        slugs(&upstream.get(CLEO, TEAMS)),
        ["platform", "platform-core", "bots", "incident-response", "ent:architects"]
    );
    assert_eq!(
        slugs(&upstream.get(CLEO, "/orgs/acme/teams?per_page=2&page=3")),
        ["ent:architects"]
    );
    let nested = &upstream.get(BEN, TEAMS).items()[1].clone();
    assert_eq!(
        (&nested["parent"]["slug"], &nested["type"]),
        (&json!("platform"), &json!("organization"))
    );
}

#[test]
fn the_slug_is_generated_from_the_name() {
    let mut upstream = Upstream::new();
    for (name, slug) in [
        ("Site Reliability", "site-reliability"),
        ("  R&D // Ünïcode__x ", "r-d-ünïcode__x"),
        ("ent:architects", "ent-architects"),
        ("A-B--C", "a-b-c"),
    ] {
        let team = created(&mut upstream, &json!({ "name": name }));
        assert_eq!((&team.body["slug"], &team.body["name"]), (&json!(slug), &json!(name)));
        let encoded = crate::emulator::http::urls::segment(slug);
        assert_eq!(
            upstream.get(ADA, &format!("{TEAMS}/{encoded}")).assert_status(200).body,
            team.body
        );
    }
}

#[test]
fn a_team_is_found_in_every_shape_and_its_location_leads_to_it() {
    let mut upstream = Upstream::new();
    let team =
        created(&mut upstream, &json!({ "name": "New", "description": "d", "privacy": "closed" }));
    let id = team.body["id"].as_u64().expect("an id");
    let location = team.header("location").trim_start_matches("http://upstream.test").to_owned();
    for path in [
        location,
        "/orgs/acme/teams/new".to_owned(),
        format!("/organizations/201/team/{id}"),
        format!("/teams/{id}"),
    ] {
        assert_eq!(upstream.get(ADA, &path).assert_status(200).body, team.body, "{path}");
        assert!(upstream.get(ADA, &format!("{path}/teams")).items().is_empty());
    }
}

#[test]
fn the_creator_of_a_team_maintains_it() {
    let mut upstream = Upstream::new();
    upstream
        .post(CLEO, TEAMS, &json!({ "name": "Mine", "maintainers": ["ben", "BEN"] }))
        .assert_status(201);
    let maintainers =
        upstream.get(CLEO, "/orgs/acme/teams/mine/members?role=maintainer").assert_status(200);
    assert_eq!(maintainers.items().len(), 2);
    upstream
        .patch(CLEO, "/orgs/acme/teams/mine", &json!({ "description": "x" }))
        .assert_status(200);
    upstream.get("emu_classic_triage_bot", "/orgs/acme/teams/mine").assert_status(404);
}

#[test]
fn bad_teams_are_422_and_name_the_field() {
    let mut upstream = Upstream::new();
    let long = "x".repeat(2_000);
    let cases = [
        (json!({}), "name"),
        (json!({ "name": "" }), "name"),
        (json!({ "name": "   " }), "name"),
        (json!({ "name": null }), "name"),
        (json!({ "name": 7 }), "name"),
        (json!({ "name": "🦀" }), "name"),
        (json!({ "name": long }), "name"),
        (json!({ "name": "Platform" }), "name"),
        (json!({ "name": "x", "description": 1 }), "description"),
        (json!({ "name": "x", "description": long }), "description"),
        (json!({ "name": "x", "privacy": "open" }), "privacy"),
        (json!({ "name": "x", "privacy": [] }), "privacy"),
        (json!({ "name": "x", "permission": "admin" }), "permission"),
        (json!({ "name": "x", "parent_team_id": "401" }), "parent_team_id"),
        (json!({ "name": "x", "parent_team_id": 411 }), "parent_team_id"),
        (json!({ "name": "x", "parent_team_id": 404 }), "parent_team_id"),
        (json!({ "name": "x", "parent_team_id": 511 }), "parent_team_id"),
        (json!({ "name": "x", "parent_team_id": -1 }), "parent_team_id"),
        (json!({ "name": "x", "parent_team_id": 401, "privacy": "secret" }), "privacy"),
        (json!({ "name": "x", "maintainers": "ben" }), "maintainers"),
        (json!({ "name": "x", "maintainers": ["nobody"] }), "maintainers"),
        (json!({ "name": "x", "maintainers": ["dan"] }), "maintainers"),
        (json!({ "name": "x", "repo_names": ["widgets"] }), "repo_names"),
        (json!({ "name": "x", "repo_names": ["ada/dotfiles"] }), "repo_names"),
        (json!({ "name": "x", "repo_names": [1] }), "repo_names"),
    ];
    for (body, field) in cases {
        upstream.post(ADA, TEAMS, &body).assert_names_field(field);
    }
    let all = upstream.post(
        ADA,
        TEAMS,
        &json!({ "name": 1, "privacy": 2, "permission": 3, "maintainers": 4 }),
    );
    assert_eq!(
        all.body["errors"].as_array().map(Vec::len),
        Some(4),
        "all faults at once: {}",
        all.body
    );
    assert_eq!(upstream.get(ADA, TEAMS).items().len(), 5, "nothing was created");
}

#[test]
fn a_patch_changes_only_the_named_fields_and_the_slug() {
    let mut upstream = Upstream::new();
    let before = upstream.get(BEN, "/teams/403").assert_status(200).body;
    let after = upstream
        .patch(BEN, "/orgs/acme/teams/bots", &json!({ "name": "Robots" }))
        .assert_status(200)
        .body;
    assert_eq!(
        (&after["slug"], &after["privacy"], &after["id"]),
        (&json!("robots"), &before["privacy"], &before["id"])
    );
    upstream.get(BEN, "/orgs/acme/teams/bots").assert_status(404);
    upstream
        .patch(BEN, "/teams/403", &json!({ "name": "robots", "description": "d" }))
        .assert_status(200);
    assert_eq!(
        upstream.patch(BEN, "/organizations/201/team/403", &json!({ "description": null })).body["description"],
        Value::Null
    );
    upstream.patch(BEN, "/teams/403", &json!({ "name": "Platform" })).assert_names_field("name");
    upstream.patch(BEN, "/teams/403", &json!({ "name": null })).assert_names_field("name");
    upstream.patch(CLEO, "/teams/403", &json!({ "name": "x" })).assert_status(403);
}

#[test]
fn a_team_is_never_its_own_parent_and_a_nested_one_never_secret() {
    let mut upstream = Upstream::new();
    upstream
        .patch(ADA, "/teams/401", &json!({ "parent_team_id": 401 }))
        .assert_names_field("parent_team_id");
    upstream
        .patch(ADA, "/teams/401", &json!({ "parent_team_id": 402 }))
        .assert_names_field("parent_team_id");
    upstream
        .patch(ADA, "/teams/401", &json!({ "privacy": "secret" }))
        .assert_names_field("privacy");
    upstream
        .patch(ADA, "/teams/402", &json!({ "privacy": "secret" }))
        .assert_names_field("privacy");
    let moved =
        upstream.patch(ADA, "/teams/404", &json!({ "parent_team_id": 403 })).assert_status(200);
    assert_eq!(
        (&moved.body["parent"]["id"], &moved.body["privacy"]),
        (&json!(403), &json!("closed"))
    );
    assert_eq!(slugs(&upstream.get(BEN, "/teams/403/teams")), ["incident-response"]);
    let freed = upstream
        .patch(ADA, "/teams/404", &json!({ "parent_team_id": null, "privacy": "secret" }))
        .assert_status(200);
    assert_eq!(freed.body["parent"], Value::Null);
}

#[test]
fn a_deleted_team_is_gone_with_its_nested_teams() {
    let mut upstream = Upstream::new();
    upstream.delete(CLEO, "/orgs/acme/teams/platform").assert_status(403);
    upstream.delete(BEN, "/orgs/acme/teams/platform").assert_status(204);
    for path in [
        "/teams/401",
        "/teams/402",
        "/orgs/acme/teams/platform-core",
        "/organizations/201/team/401",
    ] {
        upstream.get(ADA, path).assert_status(404);
        upstream.delete(ADA, path).assert_status(404);
    }
    upstream.get(ADA, "/orgs/acme/memberships/hugo").assert_status(404);
    upstream.get(ADA, "/users/hugo").assert_status(200);
}

#[test]
fn teams_of_the_caller_are_those_it_is_in() {
    let mut upstream = Upstream::new();
    assert_eq!(slugs(&upstream.get(BEN, "/user/teams")), ["platform", "platform-core", "bots"]);
    upstream.get(INSTALLATION, "/user/teams").assert_status(403);
    upstream.get(NOBODY, "/user/teams").assert_status(401);
}

#[test]
fn only_the_right_tokens_create_change_and_delete_teams() {
    let mut upstream = Upstream::new();
    let body = json!({ "name": "x" });
    upstream.post(NOBODY, TEAMS, &body).assert_status(401);
    upstream.post(DAN, TEAMS, &body).assert_status(404);
    for token in [
        ADA_NO_SCOPES,
        ADA_NO_PERMISSIONS,
        BEN_APP_READ,
        WORKFLOW,
        OAUTH,
        "emu_classic_ada_read_only",
    ] {
        upstream.post(token, TEAMS, &body).assert_status(403);
        upstream.patch(token, "/teams/401", &body).assert_status(403);
        upstream.delete(token, "/teams/401").assert_status(403);
    }
    for (token, name) in [
        (ADA, "a"),
        (ADA_FINE, "b"),
        (ADA_APP, "c"),
        (INSTALLATION, "d"),
        ("emu_oauth_ada_org_scopes", "e"),
    ] {
        upstream.post(token, TEAMS, &json!({ "name": name })).assert_status(201);
        upstream.delete(token, &format!("{TEAMS}/{name}")).assert_status(204);
    }
}

#[test]
fn a_team_has_repositories_and_those_of_the_teams_above_it() {
    let mut upstream = Upstream::new();
    for shape in ["/orgs/acme/teams/platform-core", "/organizations/201/team/402", "/teams/402"] {
        let list = upstream.get(BEN, &format!("{shape}/repos")).assert_status(200);
        assert_eq!(list.items().len(), 2);
        assert_eq!(
            (&list.items()[0]["full_name"], &list.items()[0]["role_name"]),
            (&json!("acme/widgets"), &json!("write"))
        );
        upstream.get(BEN, &format!("{shape}/repos/acme/widgets")).assert_status(204);
        upstream.get(BEN, &format!("{shape}/repos/acme/sprockets")).assert_status(404);
        upstream.get(BEN, &format!("{shape}/repos/acme/nothing")).assert_status(404);
    }
    let accept = [("accept", "application/vnd.service.v3.repository+json")];
    let shown = upstream.get_with(BEN, "/teams/403/repos/ACME/Widgets", &accept).assert_status(200);
    assert_eq!(
        (&shown.body["permissions"]["pull"], &shown.body["permissions"]["push"]),
        (&json!(true), &json!(false))
    );
    upstream.get(BEN, "/orgs/acme/teams/ent:architects/repos/acme/widgets").assert_status(404);
    assert!(upstream.get(BEN, "/orgs/acme/teams/ent:architects/repos").items().is_empty());
}

#[test]
fn a_team_is_given_a_repository_and_loses_it() {
    let mut upstream = Upstream::new();
    for shape in ["/orgs/acme/teams/bots", "/organizations/201/team/403", "/teams/403"] {
        let path = format!("{shape}/repos/acme/gadgets");
        upstream.put(ADA, &path, &json!({ "permission": "push" })).assert_status(204);
        upstream.put(ADA, &path, &Value::Null).assert_status(204);
        upstream.get(BEN, &path).assert_status(204);
        assert_eq!(
            upstream.get(BEN, "/teams/403/repos").items()[1]["role_name"],
            "write",
            "an omitted field stays"
        );
        upstream.delete(ADA, &path).assert_status(204);
        upstream.delete(ADA, &path).assert_status(404);
    }
    upstream
        .put(ADA, "/teams/403/repos/acme/gadgets", &json!({ "permission": "rule" }))
        .assert_names_field("permission");
    upstream
        .put(ADA, "/teams/403/repos/acme/gadgets", &json!({ "permission": 1 }))
        .assert_names_field("permission");
    upstream.put(ADA, "/teams/403/repos/ada/dotfiles", &Value::Null).assert_names_field("repo");
    upstream.put(ADA, "/teams/403/repos/acme/cogs", &Value::Null).assert_status(204);
    upstream.get(ADA, "/teams/403/repos/acme/sprockets").assert_status(204);
}

#[test]
fn a_team_gets_a_repository_only_from_its_administrators() {
    let mut upstream = Upstream::new();
    let path = "/orgs/acme/teams/platform/repos/acme/widgets";
    let get = upstream.get(BEN_APP_READ, path).assert_status(204);
    assert_eq!(get.header("x-accepted-service-permissions"), "members=read,metadata=read");
    let put = upstream.put(ADA_APP, path, &Value::Null).assert_status(403);
    assert_eq!(put.header("x-accepted-service-permissions"), "members=read,administration=write");
    upstream.delete(ADA_APP, path).assert_status(403);
    for token in [BEN, CLEO] {
        upstream.put(token, path, &Value::Null).assert_status(403);
    }
    for token in [ADA, ADA_FINE, INSTALLATION] {
        upstream.put(token, path, &Value::Null).assert_status(204);
    }
    upstream
        .put(ADA, "/orgs/acme/teams/ent:architects/repos/acme/widgets", &Value::Null)
        .assert_names_field("team_slug");
    upstream.put(NOBODY, path, &Value::Null).assert_status(401);
    upstream.get(DAN, path).assert_status(404);
}

#[test]
fn the_members_of_an_admin_team_administer_its_repository() {
    let mut upstream = Upstream::new();
    let change = json!({ "description": "new" });
    upstream
        .put(ADA, "/teams/401/repos/acme/widgets", &json!({ "permission": "admin" }))
        .assert_status(204);
    for token in [BEN, CLEO, "emu_classic_build_bot"] {
        upstream.patch(token, "/repos/acme/widgets", &change).assert_status(200);
    }
    upstream.patch("emu_classic_scan_bot", "/repos/acme/widgets", &change).assert_status(403);
    upstream.delete(ADA, "/teams/401/memberships/cleo").assert_status(204);
    upstream.delete(ADA, "/teams/402/memberships/cleo").assert_status(204);
    upstream.patch(CLEO, "/repos/acme/widgets", &change).assert_status(403);
}

#[test]
fn very_deep_nesting_is_answered() {
    let mut upstream = Upstream::new();
    for name in ["core", "points.rest", "content.minute", "content.hour"] {
        upstream.set_limit(name, 1_000_000);
    }
    let mut parent = json!(401);
    for depth in 0..200 {
        parent = created(
            &mut upstream,
            &json!({ "name": format!("deep {depth}"), "parent_team_id": parent }),
        )
        .body["id"]
            .clone();
    }
    upstream
        .patch(ADA, "/teams/401", &json!({ "parent_team_id": parent }))
        .assert_names_field("parent_team_id");
    assert!(upstream.get(ADA, "/teams/401/members").items().len() >= 4);
    upstream.delete(ADA, "/teams/401").assert_status(204);
    upstream.get(ADA, &format!("/teams/{parent}")).assert_status(404);
}
