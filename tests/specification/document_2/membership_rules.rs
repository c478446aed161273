//! Team membership: permissions, credentials, and the rules of the prose.

use serde_json::{Value, json};

use crate::document_2::paths::{
    app_user_with, classic_with, enterprise_team, named, organization, team,
};
use crate::kit::{ANONYMOUS, TestRequest, Upstream};

const PLATFORM: &str = "/orgs/acme/teams/platform";
const MEMBERS: &str = "/orgs/acme/teams/platform/members";
const CLEO: &str = "/orgs/acme/teams/platform/memberships/cleo";

#[test]
pub fn fine_grained_tokens_are_allowed() {
    let mut upstream = Upstream::new();
    let (uat, iat) = (app_user_with(&upstream, "members"), upstream.installation("acme"));
    let (fine, oauth, classic) = (
        upstream.token("fine-grained", "ada"),
        upstream.token("oauth", "ada"),
        upstream.classic("ada"),
    );
    for token in [&uat, &iat, &fine, &oauth, &classic] {
        upstream.get(token, MEMBERS).expect_status(200);
        upstream.get(token, &format!("{PLATFORM}/invitations")).expect_status(200);
        upstream.get(token, CLEO).expect_status(200);
    }
    for token in [&uat, &iat, &fine, &classic] {
        upstream.put(token, CLEO, &json!({ "role": "maintainer" })).expect_status(200);
        upstream.delete(token, CLEO).expect_status(204);
    }
}

#[test]
pub fn a_request_without_a_valid_credential_is_a_401() {
    let mut upstream = Upstream::new();
    for token in [ANONYMOUS, "emu_nobody_has_this"] {
        upstream.get(token, MEMBERS).expect_status(401);
        upstream.get(token, CLEO).expect_status(401);
        upstream.put(token, CLEO, &json!({})).expect_status(401);
        upstream.delete(token, CLEO).expect_status(401);
    }
}

#[test]
pub fn the_permission_members_is_read_for_get_and_write_for_changes() {
    let mut upstream = Upstream::new();
    let none = upstream.installation_with("acme", &[("metadata", "read")]);
    let read = upstream.installation_with("acme", &[("members", "read")]);
    let write = upstream.installation_with("acme", &[("members", "write")]);
    for path in [MEMBERS, CLEO, "/orgs/acme/teams/platform/invitations"] {
        upstream.get(&none, path).expect_status(403);
        upstream.get(&read, path).expect_status(200);
        upstream.get(&write, path).expect_status(200);
    }
    for token in [&none, &read] {
        upstream.put(token, CLEO, &json!({ "role": "maintainer" })).expect_status(403);
        upstream.delete(token, CLEO).expect_status(403);
    }
    upstream.put(&write, CLEO, &json!({ "role": "maintainer" })).expect_status(200);
    upstream.delete(&write, CLEO).expect_status(204);
    let bare = upstream.fine_grained_without_permissions();
    upstream.get(&bare, MEMBERS).expect_status(403);
}

#[test]
pub fn authenticated_members_of_the_organization_may_call() {
    let mut upstream = Upstream::new();
    for person in ["ada", "ben", "cleo", "triage-bot"] {
        let token = upstream.classic(person);
        upstream.get(&token, MEMBERS).expect_status(200);
        upstream.get(&token, &format!("{PLATFORM}/memberships/ben")).expect_status(200);
    }
    // 404 for a hidden resource, 403 for a forbidden action (SPECIFICATION, "Errors").
    let dan = upstream.classic("dan");
    for path in [MEMBERS, CLEO, "/orgs/acme/teams/platform/invitations"] {
        let answer = upstream.get(&dan, path);
        assert!([403, 404].contains(&answer.status), "{path}: {} {}", answer.status, answer.body);
    }
}

#[test]
pub fn classic_tokens_need_read_org() {
    let mut upstream = Upstream::new();
    let (reading, bare) = (
        classic_with(&upstream, "ada", "read:org", "admin:org"),
        upstream.classic_without_scopes("ada"),
    );
    for path in [MEMBERS, CLEO, "/orgs/acme/teams/platform/invitations"] {
        upstream.get(&reading, path).expect_status(200);
        upstream.get(&bare, path).expect_status(403);
    }
    upstream.put(&bare, CLEO, &json!({ "role": "maintainer" })).expect_status(403);
    upstream.delete(&bare, CLEO).expect_status(403);
}

#[test]
pub fn an_owner_or_a_maintainer_changes_memberships() {
    let mut upstream = Upstream::new();
    let (ada, ben, cleo) =
        (upstream.classic("ada"), upstream.classic("ben"), upstream.classic("cleo"));
    let path = format!("{PLATFORM}/memberships/scan-bot");
    upstream.put(&cleo, &path, &json!({ "role": "member" })).expect_status(403);
    upstream.put(&cleo, CLEO, &json!({ "role": "maintainer" })).expect_status(403);
    upstream.put(&ben, &path, &json!({ "role": "member" })).expect_status(200);
    upstream.put(&ada, &path, &json!({ "role": "maintainer" })).expect_status(200);
}

#[test]
pub fn organization_owners_show_maintainer() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    assert_eq!(organization(&mut upstream, "acme")["owners"], json!(["ada"]));
    let path = format!("{PLATFORM}/memberships/ada");
    let set = upstream.put(&ada, &path, &json!({ "role": "member" })).expect_status(200);
    assert_eq!(set.body["role"], "maintainer");
    assert_eq!(upstream.get(&ada, &path).expect_status(200).body["role"], "maintainer");
    let maintainers = upstream.get(&ada, &format!("{MEMBERS}?role=maintainer")).expect_status(200);
    named(&maintainers.body, "login", "ada");
}

#[test]
pub fn changing_membership_of_a_synchronized_team_fails() {
    let mut upstream = Upstream::new();
    let dan = upstream.classic("dan");
    let staff = team(&mut upstream, "globex", "staff");
    let before = upstream.get(&dan, &format!("{}/members", staff.by_slug)).expect_status(200).body;
    for address in [&staff.by_slug, &staff.by_ids, &staff.legacy] {
        for person in ["gwen", "dan"] {
            let put = upstream.put(
                &dan,
                &format!("{address}/memberships/{person}"),
                &json!({ "role": "member" }),
            );
            assert!([403, 404].contains(&put.status), "{address}: {} {}", put.status, put.body);
        }
        let removed = upstream.delete(&dan, &format!("{address}/memberships/dan"));
        assert!(
            [403, 404].contains(&removed.status),
            "{address}: {} {}",
            removed.status,
            removed.body
        );
    }
    assert_eq!(
        upstream.get(&dan, &format!("{}/members", staff.by_slug)).expect_status(200).body,
        before
    );
}

/// 422 for "a rule violation such as modifying an enterprise team at the organization level"
/// (SPECIFICATION, "Errors").
#[test]
pub fn an_enterprise_team_is_not_modified_at_organization_level() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let architects = enterprise_team(&mut upstream, "acme", "ent:architects");
    for address in architects.addresses() {
        upstream
            .put(&ada, &format!("{address}/memberships/cleo"), &json!({ "role": "member" }))
            .expect_status(422);
        upstream.delete(&ada, &format!("{address}/memberships/cleo")).expect_status(422);
    }
    let after = enterprise_team(&mut upstream, "acme", "ent:architects");
    assert_eq!(after.view["members"], architects.view["members"]);
}

#[test]
pub fn the_organization_is_named_in_any_case() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let plain = upstream.get(&ada, "/orgs/acme/teams/platform/invitations").expect_status(200).body;
    let shouted =
        upstream.get(&ada, "/orgs/ACME/teams/platform/invitations").expect_status(200).body;
    assert_eq!(plain, shouted);
    upstream.get(&ada, "/orgs/AcMe/teams/platform/members").expect_status(200);
}

/// "Where pull and push permissions are accepted they map to the Read and Write roles": for a
/// team's repositories.
#[test]
pub fn pull_and_push_map_to_the_roles_read_and_write() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    for (permission, role, may_push) in [("pull", "read", false), ("push", "write", true)] {
        upstream
            .put(
                &ada,
                &format!("{PLATFORM}/repos/acme/gadgets"),
                &json!({ "permission": permission }),
            )
            .expect_status(204);
        let list = upstream.get(&ada, &format!("{PLATFORM}/repos")).expect_status(200);
        let gadgets = named(&list.body, "full_name", "acme/gadgets");
        assert_eq!(gadgets["role_name"], role);
        assert_eq!(
            (&gadgets["permissions"]["pull"], &gadgets["permissions"]["push"]),
            (&json!(true), &json!(may_push))
        );
    }
}

#[test]
pub fn a_teams_slug_is_generated_from_its_name() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let made = upstream
        .post(&ada, "/orgs/acme/teams", &json!({ "name": "Night Watch" }))
        .expect_status(201);
    assert_eq!(made.body["slug"], "night-watch");
    upstream.get(&ada, "/orgs/acme/teams/night-watch/members").expect_status(200);
    let world = organization(&mut upstream, "acme");
    assert_eq!(named(&world["teams"], "name", "Night Watch")["slug"], "night-watch");
}

#[test]
pub fn the_media_type_is_recommended_and_not_required() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let without = upstream.get(&ada, MEMBERS).expect_status(200).body;
    let with = upstream
        .send(
            &TestRequest::new("GET", MEMBERS)
                .by(&ada)
                .header("accept", "application/vnd.service+json"),
        )
        .expect_status(200);
    assert_ne!(without, Value::Null);
    assert_eq!(with.body, without);
}
