//! Organizations that an enterprise team is assigned to: the six endpoints and their rules.

use serde_json::{Value, json};

use crate::document_2::paths::{classic_with, named, texts};
use crate::kit::{ANONYMOUS, Upstream};
use crate::rows::document_2::enterprise_teams::ORGANIZATION_SUMMARY;
use crate::shape::{assert_shape, assert_shapes};

/// A team that is assigned to acme alone, by its slug.
const ARCHITECTS: &str = "/enterprises/initech/teams/ent:architects/organizations";
/// A team that is assigned to nothing.
const AUDITORS: &str = "/enterprises/initech/teams/ent:auditors/organizations";

fn slugs(organizations: &[&str]) -> Value {
    json!({ "organization_slugs": organizations })
}

/// The logins of the organizations that a team is assigned to.
fn assigned(upstream: &mut Upstream, path: &str) -> Vec<String> {
    let ada = upstream.classic("ada");
    let list = upstream.get(&ada, path).expect_status(200);
    let mut logins = texts(&list.body, "login");
    logins.sort();
    logins
}

#[test]
pub fn assignments_are_listed() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let list = upstream.get(&ada, ARCHITECTS).expect_status(200);
    assert_shapes(&list.body, &ORGANIZATION_SUMMARY);
    assert_eq!(texts(&list.body, "login"), ["acme"]);
}

#[test]
pub fn assignments_are_paged() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    upstream.post(&ada, &format!("{AUDITORS}/add"), &slugs(&["acme", "globex"])).expect_status(200);
    let whole = upstream.get(&ada, AUDITORS).expect_status(200);
    let second = upstream.get(&ada, &format!("{AUDITORS}?per_page=1&page=2")).expect_status(200);
    assert_eq!(second.items(), &whole.items()[1..2]);
    assert!(second.link("prev").is_some() && second.link("next").is_none());
}

#[test]
pub fn organizations_are_added_together() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let added = upstream
        .post(&ada, &format!("{AUDITORS}/add"), &slugs(&["acme", "globex"]))
        .expect_status(200);
    assert_shapes(&added.body, &ORGANIZATION_SUMMARY);
    assert_eq!(assigned(&mut upstream, AUDITORS), ["acme", "globex"]);
}

#[test]
pub fn organizations_are_removed_together() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    upstream.post(&ada, &format!("{AUDITORS}/add"), &slugs(&["acme", "globex"])).expect_status(200);
    assert_eq!(
        upstream
            .post(&ada, &format!("{AUDITORS}/remove"), &slugs(&["acme"]))
            .expect_status(204)
            .bytes
            .len(),
        0
    );
    assert_eq!(assigned(&mut upstream, AUDITORS), ["globex"]);
}

#[test]
pub fn organization_slugs_are_required_and_an_array_of_strings() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    for operation in ["add", "remove"] {
        for body in [
            json!({}),
            json!({ "organization_slugs": "acme" }),
            json!({ "organization_slugs": [7] }),
        ] {
            upstream
                .post(&ada, &format!("{AUDITORS}/{operation}"), &body)
                .assert_names_field("organization_slugs");
        }
    }
    assert!(assigned(&mut upstream, AUDITORS).is_empty());
}

#[test]
pub fn an_assignment_is_read() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let seen = upstream.get(&ada, &format!("{ARCHITECTS}/acme")).expect_status(200);
    assert_shape(&seen.body, &ORGANIZATION_SUMMARY);
    assert_eq!(seen.body["login"], "acme");
    upstream.get(&ada, &format!("{ARCHITECTS}/globex")).expect_status(404);
}

#[test]
pub fn an_organization_is_assigned() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let path = format!("{AUDITORS}/globex");
    upstream.get(&ada, &path).expect_status(404);
    let put = upstream.put_empty(&ada, &path).expect_status(201);
    assert_shape(&put.body, &ORGANIZATION_SUMMARY);
    assert_eq!(upstream.get(&ada, &path).expect_status(200).body, put.body);
    // 201 is its only documented result.
    upstream.put_empty(&ada, &path).expect_status(201);
    assert_eq!(assigned(&mut upstream, AUDITORS), ["globex"]);
}

#[test]
pub fn an_assignment_ends() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let path = format!("{ARCHITECTS}/acme");
    assert_eq!(upstream.delete(&ada, &path).expect_status(204).bytes.len(), 0);
    upstream.get(&ada, &path).expect_status(404);
    assert!(assigned(&mut upstream, ARCHITECTS).is_empty());
}

#[test]
pub fn the_team_is_named_by_its_slug_or_its_id() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let world = upstream.world();
    let initech = named(&world["enterprises"], "slug", "initech");
    let auditors = named(&initech["teams"], "slug", "ent:auditors");
    let by_id = format!("/enterprises/initech/teams/{}/organizations", auditors["id"]);
    upstream.post(&ada, &format!("{by_id}/add"), &slugs(&["acme"])).expect_status(200);
    upstream.put_empty(&ada, &format!("{by_id}/globex")).expect_status(201);
    assert_eq!(assigned(&mut upstream, AUDITORS), ["acme", "globex"]);
    assert_eq!(assigned(&mut upstream, &by_id), ["acme", "globex"]);
    upstream.get(&ada, &format!("{by_id}/acme")).expect_status(200);
    upstream.post(&ada, &format!("{by_id}/remove"), &slugs(&["acme"])).expect_status(204);
    upstream.delete(&ada, &format!("{by_id}/globex")).expect_status(204);
    assert!(assigned(&mut upstream, AUDITORS).is_empty());
    upstream.get(&ada, "/enterprises/initech/teams/999999999/organizations").expect_status(404);
    upstream.get(&ada, "/enterprises/initech/teams/ent:nobody/organizations").expect_status(404);
    upstream.get(&ada, "/enterprises/nowhere/teams/ent:auditors/organizations").expect_status(404);
}

#[test]
pub fn an_enterprise_teams_slug_is_its_name_with_the_prefix_ent() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let made = upstream
        .post(&ada, "/enterprises/initech/teams", &json!({ "name": "Night Watch" }))
        .expect_status(201);
    assert_eq!(made.body["slug"], "ent:night-watch");
    upstream
        .get(&ada, "/enterprises/initech/teams/ent:night-watch/organizations")
        .expect_status(200);
    let world = upstream.world();
    let initech = named(&world["enterprises"], "slug", "initech");
    assert_eq!(named(&initech["teams"], "name", "Night Watch")["slug"], "ent:night-watch");
    for slug in texts(&initech["teams"], "slug") {
        assert!(slug.starts_with("ent:"), "{slug}");
    }
}

/// Requests each of the six endpoints, the writes last.
fn statuses(upstream: &mut Upstream, token: &str) -> [u16; 6] {
    [
        upstream.get(token, ARCHITECTS).status,
        upstream.get(token, &format!("{ARCHITECTS}/acme")).status,
        upstream.post(token, &format!("{AUDITORS}/add"), &slugs(&["acme"])).status,
        upstream.post(token, &format!("{AUDITORS}/remove"), &slugs(&["acme"])).status,
        upstream.put_empty(token, &format!("{AUDITORS}/globex")).status,
        upstream.delete(token, &format!("{AUDITORS}/globex")).status,
    ]
}

#[test]
pub fn only_classic_personal_access_tokens_are_accepted() {
    let mut upstream = Upstream::new();
    let (uat, iat) = (upstream.token("app-user", "ada"), upstream.installation("acme"));
    let (fine, classic) = (upstream.token("fine-grained", "ada"), upstream.classic("ada"));
    for token in [&uat, &iat, &fine] {
        assert_eq!(statuses(&mut upstream, token), [403; 6]);
    }
    assert_eq!(statuses(&mut upstream, ANONYMOUS), [401; 6]);
    assert_eq!(statuses(&mut upstream, &classic), [200, 200, 200, 204, 201, 204]);
}

/// "only classic personal access tokens": a token of an OAuth app is not one, whatever its scopes.
#[test]
pub fn tokens_of_oauth_apps_are_not_accepted() {
    let mut upstream = Upstream::new();
    let oauth = upstream
        .token_where(|view| view.kind == "oauth" && view.scopes.contains(&"admin:enterprise"));
    let oauth = oauth.expect("a token of an OAuth app with admin:enterprise");
    assert_eq!(statuses(&mut upstream, &oauth), [403; 6]);
}

#[test]
pub fn reads_need_read_enterprise_and_writes_admin_enterprise() {
    let mut upstream = Upstream::new();
    let reading = classic_with(&upstream, "ada", "read:enterprise", "admin:enterprise");
    let bare = upstream.classic_without_scopes("ada");
    assert_eq!(statuses(&mut upstream, &bare), [403; 6]);
    assert_eq!(statuses(&mut upstream, &reading), [200, 200, 403, 403, 403, 403]);
    assert!(assigned(&mut upstream, AUDITORS).is_empty());
}

/// "The permission 'Enterprise teams' enterprise (read for GET, write otherwise) is named" by the
/// permission header (SPECIFICATION, "Permissions").
#[test]
pub fn the_permission_enterprise_teams_is_named() {
    const NAMED: &str = "x-accepted-service-permissions";
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let read = upstream.get(&ada, ARCHITECTS).expect_status(200);
    assert_eq!(read.header(NAMED), "enterprise_teams=read");
    let answers = [
        upstream.post(&ada, &format!("{AUDITORS}/add"), &slugs(&["acme"])),
        upstream.post(&ada, &format!("{AUDITORS}/remove"), &slugs(&["acme"])),
        upstream.put_empty(&ada, &format!("{AUDITORS}/globex")),
        upstream.delete(&ada, &format!("{AUDITORS}/globex")),
    ];
    for answer in answers {
        assert_eq!(answer.header(NAMED), "enterprise_teams=write", "{}", answer.endpoint);
    }
}
