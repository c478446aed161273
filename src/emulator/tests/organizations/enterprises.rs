//! Tests enterprise teams and their organisation assignments (SPECIFICATION, "Enterprise teams").

use serde_json::{Value, json};

use crate::emulator::tests::*;

const FINN: &str = "emu_classic_finn_org_scopes";
/// Has sufficient scopes, but is no classic token.
const OAUTH_WITH_SCOPES: &str = "emu_oauth_ada_org_scopes";
const ADA_READ_ONLY: &str = "emu_classic_ada_read_only";
const TEAMS: &str = "/enterprises/initech/teams";
const ASSIGNED: &str = "/enterprises/initech/teams/ent:architects/organizations";

fn logins(answer: &Answer) -> Vec<&str> {
    answer.items().iter().map(|item| item["login"].as_str().unwrap_or("")).collect()
}

#[test]
fn a_team_by_slug_or_id_lists_its_organisations() {
    let mut upstream = Upstream::new();
    for team in ["ent:architects", "ent%3Aarchitects", "ENT:Architects", "511"] {
        let list = upstream.get(ADA, &format!("{TEAMS}/{team}/organizations")).assert_status(200);
        let [acme] = list.items().as_slice() else { panic!("assigned to acme only") };
        assert_eq!((&acme["login"], &acme["id"]), (&json!("acme"), &json!(201)));
        for field in [
            "node_id",
            "url",
            "repos_url",
            "events_url",
            "hooks_url",
            "issues_url",
            "members_url",
            "public_members_url",
            "avatar_url",
            "description",
        ] {
            assert!(acme[field].is_string(), "{field}");
        }
    }
}

#[test]
fn one_assignment_is_200_when_assigned_and_404_when_not() {
    let mut upstream = Upstream::new();
    assert_eq!(
        upstream.get(ADA, &format!("{ASSIGNED}/acme")).assert_status(200).body["login"],
        "acme"
    );
    for organization in ["globex", "vandelay", "nowhere", "ada", "%F0%9F%A6%80"] {
        upstream.get(ADA, &format!("{ASSIGNED}/{organization}")).assert_status(404);
    }
}

#[test]
fn a_put_assigns_and_is_201_each_time() {
    let mut upstream = Upstream::new();
    for _ in 0..2 {
        assert_eq!(
            upstream.put(ADA, &format!("{ASSIGNED}/Globex"), &Value::Null).assert_status(201).body
                ["login"],
            "globex"
        );
    }
    upstream.get(ADA, &format!("{ASSIGNED}/globex")).assert_status(200);
    upstream.get(DAN, "/orgs/globex/teams/ent:architects").assert_status(200);
    upstream.put(ADA, &format!("{ASSIGNED}/vandelay"), &Value::Null).assert_status(404);
}

#[test]
fn a_delete_ends_the_assignment_for_the_organisation_too() {
    let mut upstream = Upstream::new();
    upstream.get(BEN, "/orgs/acme/teams/ent:architects/members").assert_status(200);
    upstream.delete(ADA, &format!("{ASSIGNED}/acme")).assert_status(204);
    upstream.delete(ADA, &format!("{ASSIGNED}/acme")).assert_status(404);
    upstream.get(ADA, &format!("{ASSIGNED}/acme")).assert_status(404);
    upstream.get(BEN, "/orgs/acme/teams/ent:architects/members").assert_status(404);
}

#[test]
fn organisations_are_added_and_removed_by_their_slugs() {
    let mut upstream = Upstream::new();
    let both = json!({ "organization_slugs": ["globex", "ACME", "globex"] });
    let added = upstream.post(ADA, &format!("{ASSIGNED}/add"), &both).assert_status(200);
    assert_eq!(logins(&added), ["globex", "acme"]);
    assert_eq!(logins(&upstream.get(ADA, ASSIGNED)), ["acme", "globex"]);
    assert_eq!(logins(&upstream.get(ADA, &format!("{ASSIGNED}?per_page=1&page=2"))), ["globex"]);
    for _ in 0..2 {
        upstream.post(ADA, &format!("{ASSIGNED}/remove"), &both).assert_status(204);
        assert!(upstream.get(ADA, ASSIGNED).items().is_empty());
    }
    assert!(
        upstream
            .post(ADA, &format!("{ASSIGNED}/add"), &json!({ "organization_slugs": [] }))
            .assert_status(200)
            .items()
            .is_empty()
    );
}

#[test]
fn bad_slugs_are_422_and_assign_nothing() {
    let mut upstream = Upstream::new();
    for slugs in [
        json!("globex"),
        json!([1]),
        json!(null),
        json!({}),
        json!(["globex", "nowhere"]),
        json!(["vandelay"]),
        json!(["ada"]),
        json!([""]),
    ] {
        for action in ["add", "remove"] {
            let body = json!({ "organization_slugs": slugs });
            upstream
                .post(ADA, &format!("{ASSIGNED}/{action}"), &body)
                .assert_names_field("organization_slugs");
        }
    }
    upstream
        .post(ADA, &format!("{ASSIGNED}/add"), &json!({}))
        .assert_names_field("organization_slugs");
    upstream.post(ADA, &format!("{ASSIGNED}/add"), &json!([])).assert_status(400);
    assert_eq!(logins(&upstream.get(ADA, ASSIGNED)), ["acme"]);
}

#[test]
fn only_classic_tokens_with_the_scope_are_accepted() {
    let mut upstream = Upstream::new();
    let gets = [
        TEAMS.to_owned(),
        ASSIGNED.to_owned(),
        format!("{ASSIGNED}/acme"),
        format!("{TEAMS}/511/memberships"),
    ];
    for path in gets {
        upstream.get(NOBODY, &path).assert_status(401);
        upstream.get("wrong", &path).assert_status(401);
        for token in [
            ADA_FINE,
            ADA_NO_PERMISSIONS,
            OAUTH,
            OAUTH_WITH_SCOPES,
            "emu_app_user_ada_members",
            INSTALLATION,
            WORKFLOW,
            ADA_NO_SCOPES,
        ] {
            upstream.get(token, &path).assert_status(403);
        }
        for token in [ADA, ADA_READ_ONLY, DAN, BEN] {
            upstream.get(token, &path).assert_status(200);
        }
        upstream.get(FINN, &path).assert_status(404);
    }
    for path in [
        format!("{ASSIGNED}/add"),
        format!("{ASSIGNED}/remove"),
        format!("{TEAMS}/511/memberships/add"),
    ] {
        for token in [ADA_FINE, OAUTH, OAUTH_WITH_SCOPES, INSTALLATION, ADA_READ_ONLY, DAN] {
            upstream.post(token, &path, &json!({})).assert_status(403);
        }
    }
    for token in [ADA_READ_ONLY, ADA_FINE, "emu_app_user_ada_members", BEN] {
        upstream.put(token, &format!("{ASSIGNED}/globex"), &Value::Null).assert_status(403);
        upstream.delete(token, &format!("{ASSIGNED}/acme")).assert_status(403);
    }
}

#[test]
fn every_answer_names_the_permission_and_the_scope() {
    let mut upstream = Upstream::new();
    let get = upstream.get(ADA, ASSIGNED);
    assert_eq!(get.header("x-accepted-service-permissions"), "enterprise_teams=read");
    assert_eq!(get.header("x-accepted-oauth-scopes"), "read:enterprise");
    let put = upstream.put(ADA, &format!("{ASSIGNED}/globex"), &Value::Null);
    assert_eq!(put.header("x-accepted-service-permissions"), "enterprise_teams=write");
    assert_eq!(put.header("x-accepted-oauth-scopes"), "admin:enterprise");
}

#[test]
fn unknown_enterprises_and_teams_are_not_found() {
    let mut upstream = Upstream::new();
    for path in [
        "/enterprises/nowhere/teams",
        "/enterprises/nowhere/teams/511/organizations",
        "/enterprises/initech/teams/ent:nobody/organizations",
        "/enterprises/initech/teams/401/organizations",
        "/enterprises/initech/teams/99999999999999999999/organizations",
        "/enterprises/initech/teams/%ff/organizations/acme",
    ] {
        upstream.get(ADA, path).assert_status(404);
    }
    upstream
        .post(
            ADA,
            &format!("{TEAMS}/ent:nobody/organizations/add"),
            &json!({ "organization_slugs": 1 }),
        )
        .assert_status(404);
}

#[test]
fn an_enterprise_team_slug_is_generated_with_the_prefix() {
    let mut upstream = Upstream::new();
    let team = upstream
        .post(ADA, TEAMS, &json!({ "name": "Night Watch", "description": "d" }))
        .assert_status(201);
    assert_eq!(team.body["slug"], "ent:night-watch");
    let location = team.header("location").trim_start_matches("http://upstream.test").to_owned();
    assert_eq!(upstream.get(ADA, &location).assert_status(200).body, team.body);
    assert_eq!(upstream.get(ADA, TEAMS).items().len(), 3);
    let renamed =
        upstream.patch(ADA, &location, &json!({ "name": "Day Watch" })).assert_status(200);
    assert_eq!(
        (&renamed.body["slug"], &renamed.body["description"]),
        (&json!("ent:day-watch"), &json!("d"))
    );
    upstream.get(ADA, &location).assert_status(404);
    upstream.delete(ADA, &format!("{TEAMS}/{}", team.body["id"])).assert_status(204);
    upstream.delete(ADA, &format!("{TEAMS}/{}", team.body["id"])).assert_status(404);
}

#[test]
fn bad_enterprise_teams_are_422_and_name_the_field() {
    let mut upstream = Upstream::new();
    let long = "x".repeat(2_000);
    for (body, field) in [
        (json!({}), "name"),
        (json!({ "name": 1 }), "name"),
        (json!({ "name": "🦀" }), "name"),
        (json!({ "name": long }), "name"),
        (json!({ "name": "architects" }), "name"),
        (json!({ "name": "x", "description": 1 }), "description"),
        (json!({ "name": "x", "description": long }), "description"),
    ] {
        upstream.post(ADA, TEAMS, &body).assert_names_field(field);
    }
    upstream
        .patch(ADA, &format!("{TEAMS}/512"), &json!({ "name": "Architects" }))
        .assert_names_field("name");
    upstream
        .patch(ADA, &format!("{TEAMS}/512"), &json!({ "name": null }))
        .assert_names_field("name");
    upstream.patch(ADA, &format!("{TEAMS}/512"), &json!({ "name": "AUDITORS" })).assert_status(200);
}

#[test]
fn enterprise_members_are_added_to_its_teams_and_removed() {
    let mut upstream = Upstream::new();
    let members = format!("{TEAMS}/ent:auditors/memberships");
    upstream.get(ADA, &format!("{members}/ben")).assert_status(404);
    assert_eq!(
        upstream.put(ADA, &format!("{members}/ben"), &Value::Null).assert_status(201).body["login"],
        "ben"
    );
    upstream.get(ADA, &format!("{members}/BEN")).assert_status(200);
    upstream.put(ADA, &format!("{members}/finn"), &Value::Null).assert_names_field("username");
    upstream.put(ADA, &format!("{members}/nobody"), &Value::Null).assert_status(404);
    let added = upstream
        .post(ADA, &format!("{members}/add"), &json!({ "usernames": ["cleo", "cleo"] }))
        .assert_status(200);
    assert_eq!(logins(&added), ["cleo"]);
    assert_eq!(logins(&upstream.get(ADA, &members)), ["ben", "cleo", "dan"]);
    upstream
        .post(ADA, &format!("{members}/remove"), &json!({ "usernames": ["cleo"] }))
        .assert_status(200);
    upstream.delete(ADA, &format!("{members}/ben")).assert_status(204);
    upstream.delete(ADA, &format!("{members}/ben")).assert_status(404);
    for usernames in [json!("ben"), json!([1]), json!(["nobody"]), json!(["finn"]), Value::Null] {
        upstream
            .post(ADA, &format!("{members}/add"), &json!({ "usernames": usernames }))
            .assert_names_field("usernames");
    }
}

#[test]
fn the_world_lists_the_teams_of_enterprises_and_organisations() {
    let mut upstream = Upstream::new();
    let world = upstream.get(NOBODY, "/_emulator/world").body;
    let enterprise = &world["enterprises"][0];
    assert_eq!(
        (&enterprise["slug"], &enterprise["organizations"]),
        (&json!("initech"), &json!(["acme", "globex"]))
    );
    assert_eq!(
        (&enterprise["teams"][0]["slug"], &enterprise["teams"][0]["organizations"]),
        (&json!("ent:architects"), &json!(["acme"]))
    );
    let acme = &world["organizations"][0];
    let core = &acme["teams"][1];
    assert_eq!(
        (&core["slug"], &core["id"], &core["parent"]),
        (&json!("platform-core"), &json!(402), &json!(401))
    );
    assert_eq!(
        (&core["maintainers"], &core["members"]),
        (&json!(["ben"]), &json!(["ben", "cleo", "build-bot"]))
    );
    assert_eq!(
        (&acme["invitations"][0]["failed"], &acme["invitations"][1]["failed"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(world["organizations"][1]["teams"][0]["synchronised"], true);
}
