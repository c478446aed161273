//! Tests members, public members, memberships, outside collaborators and organisation roles
//! (SPECIFICATION, "Permissions").

use serde_json::{Value, json};

use crate::emulator::tests::*;

const CLEO: &str = "emu_classic_cleo_all_scopes";
const FINN: &str = "emu_classic_finn_org_scopes";
const GWEN: &str = "emu_fine_grained_gwen";
const HUGO: &str = "emu_classic_hugo_org_scopes";
const HUGO_APP: &str = "emu_app_user_hugo_members";
const ADA_APP: &str = "emu_app_user_ada_members";
const BEN_APP_READ: &str = "emu_app_user_ben_members_read";
const OWN: &str = "/user/memberships/orgs/acme";

fn logins(answer: &Answer) -> Vec<&str> {
    answer.items().iter().map(|user| user["login"].as_str().unwrap_or("")).collect()
}

#[test]
fn members_see_all_members_and_strangers_the_public_ones() {
    let mut upstream = Upstream::new();
    for token in [ADA, BEN, BEN_APP_READ, ADA_FINE, INSTALLATION, OAUTH] {
        assert_eq!(upstream.get(token, "/orgs/acme/members").items().len(), 6, "{token}");
    }
    for token in [NOBODY, DAN, ADA_NO_SCOPES, "emu_installation_globex"] {
        assert_eq!(logins(&upstream.get(token, "/orgs/acme/members")), ["ada", "ben"], "{token}");
    }
    for token in [ADA_NO_PERMISSIONS, WORKFLOW, "emu_app_user_ben"] {
        upstream.get(token, "/orgs/acme/members").assert_status(403);
        upstream.get(token, "/orgs/acme/public_members").assert_status(403);
    }
    upstream.get("wrong", "/orgs/acme/members").assert_status(401);
    upstream.get(ADA, "/orgs/nowhere/members").assert_status(404);
}

#[test]
fn members_are_filtered_by_role() {
    let mut upstream = Upstream::new();
    assert_eq!(logins(&upstream.get(BEN, "/orgs/acme/members?role=admin")), ["ada"]);
    assert_eq!(upstream.get(BEN, "/orgs/acme/members?role=member").items().len(), 5);
    assert_eq!(
        upstream.get(BEN, "/orgs/acme/members?role=member&per_page=2&page=3").items().len(),
        1
    );
    assert!(upstream.get(BEN, "/orgs/acme/members?filter=2fa_disabled").items().is_empty());
    upstream.get(BEN, "/orgs/acme/members?role=chief").assert_names_field("role");
    upstream.get(BEN, "/orgs/acme/members?filter=tall").assert_names_field("filter");
}

#[test]
fn a_membership_check_redirects_strangers_to_public_members() {
    let mut upstream = Upstream::new();
    upstream.get(BEN, "/orgs/acme/members/cleo").assert_status(204);
    for user in ["finn", "hugo", "nobody", "globex"] {
        upstream.get(BEN, &format!("/orgs/acme/members/{user}")).assert_status(404);
    }
    for token in [NOBODY, DAN] {
        let found = upstream.get(token, "/orgs/ACME/members/ada").assert_status(302);
        assert_eq!(found.header("location"), "http://upstream.test/orgs/acme/public_members/ada");
    }
    upstream.get(NOBODY, "/orgs/acme/public_members/ada").assert_status(204);
    upstream.get(NOBODY, "/orgs/acme/public_members/cleo").assert_status(404);
}

#[test]
fn a_removed_member_leaves_every_team_and_keeps_the_account() {
    let mut upstream = Upstream::new();
    upstream
        .put(ADA, "/orgs/acme/organization-roles/users/cleo/601", &Value::Null)
        .assert_status(204);
    for token in [BEN, CLEO, OAUTH, BEN_APP_READ] {
        upstream.delete(token, "/orgs/acme/members/cleo").assert_status(403);
    }
    upstream.delete(ADA_APP, "/orgs/acme/members/cleo").assert_status(204);
    upstream.delete(ADA, "/orgs/acme/members/cleo").assert_status(404);
    for path in [
        "/orgs/acme/members/cleo",
        "/teams/401/memberships/cleo",
        "/teams/404/memberships/cleo",
        "/orgs/acme/memberships/cleo",
    ] {
        upstream.get(ADA, path).assert_status(404);
    }
    assert_eq!(
        logins(&upstream.get(ADA, "/orgs/acme/organization-roles/601/users")),
        ["ben"],
        "its initial holder"
    );
    upstream.get(ADA, "/users/cleo").assert_status(200);
    upstream.get(CLEO, "/orgs/acme/teams").assert_status(404);
}

#[test]
fn the_last_owner_stays() {
    let mut upstream = Upstream::new();
    upstream.delete(ADA, "/orgs/acme/members/ada").assert_names_field("username");
    upstream.delete(ADA, "/orgs/acme/memberships/ada").assert_names_field("username");
    upstream
        .put(ADA, "/orgs/acme/outside_collaborators/ada", &Value::Null)
        .assert_names_field("username");
    upstream
        .put(ADA, "/orgs/acme/memberships/ada", &json!({ "role": "member" }))
        .assert_names_field("role");
    upstream.put(ADA, "/orgs/acme/memberships/ben", &json!({ "role": "admin" })).assert_status(200);
    upstream
        .put(ADA, "/orgs/acme/memberships/ada", &json!({ "role": "member" }))
        .assert_status(200);
    upstream.delete(ADA, "/orgs/acme/members/cleo").assert_status(403);
    upstream.delete(BEN, "/orgs/acme/members/ada").assert_status(204);
}

#[test]
fn members_publicize_and_conceal_only_themselves() {
    let mut upstream = Upstream::new();
    let cleo = "/orgs/acme/public_members/cleo";
    for token in [ADA, INSTALLATION, BEN_APP_READ] {
        upstream.put(token, cleo, &Value::Null).assert_status(403);
        upstream.delete(token, cleo).assert_status(403);
    }
    upstream.put(NOBODY, cleo, &Value::Null).assert_status(401);
    upstream.put(FINN, "/orgs/acme/public_members/finn", &Value::Null).assert_status(404);
    upstream.put(CLEO, cleo, &Value::Null).assert_status(204);
    upstream.put(CLEO, cleo, &Value::Null).assert_status(204);
    assert_eq!(logins(&upstream.get(NOBODY, "/orgs/acme/public_members")), ["ada", "ben", "cleo"]);
    upstream.delete(CLEO, cleo).assert_status(204);
    upstream.get(NOBODY, cleo).assert_status(404);
    upstream.delete(ADA_APP, "/orgs/acme/public_members/ada").assert_status(204);
}

#[test]
fn a_membership_shows_role_and_state() {
    let mut upstream = Upstream::new();
    for (user, role, state) in
        [("ada", "admin", "active"), ("cleo", "member", "active"), ("hugo", "member", "pending")]
    {
        let membership =
            upstream.get(BEN, &format!("/orgs/acme/memberships/{user}")).assert_status(200);
        assert_eq!(
            (&membership.body["role"], &membership.body["state"]),
            (&json!(role), &json!(state))
        );
        assert_eq!(
            (&membership.body["user"]["login"], &membership.body["organization"]["login"]),
            (&json!(user), &json!("acme"))
        );
    }
    upstream.get(BEN, "/orgs/acme/memberships/finn").assert_status(404);
    upstream.get(DAN, "/orgs/acme/memberships/ada").assert_status(404);
}

#[test]
fn an_owner_sets_roles_of_members_and_invites_strangers() {
    let mut upstream = Upstream::new();
    upstream.put(BEN, "/orgs/acme/memberships/cleo", &Value::Null).assert_status(403);
    let admin = upstream
        .put(ADA, "/orgs/acme/memberships/cleo", &json!({ "role": "admin" }))
        .assert_status(200);
    assert_eq!((&admin.body["role"], &admin.body["state"]), (&json!("admin"), &json!("active")));
    assert_eq!(
        upstream.put(ADA, "/orgs/acme/memberships/cleo", &Value::Null).body["role"],
        "admin",
        "an omitted field stays"
    );
    let invited = upstream
        .put(ADA, "/orgs/acme/memberships/finn", &json!({ "role": "admin" }))
        .assert_status(200);
    assert_eq!(
        (&invited.body["role"], &invited.body["state"]),
        (&json!("admin"), &json!("pending"))
    );
    upstream.patch(FINN, OWN, &json!({ "state": "active" })).assert_status(200);
    upstream.delete(FINN, "/orgs/acme/members/ben").assert_status(204);
    for role in [json!("owner"), json!(1), Value::Null] {
        upstream
            .put(ADA, "/orgs/acme/memberships/gwen", &json!({ "role": role }))
            .assert_names_field("role");
    }
    for user in ["nobody", "globex"] {
        upstream
            .put(ADA, &format!("/orgs/acme/memberships/{user}"), &Value::Null)
            .assert_status(404);
    }
}

#[test]
fn a_deleted_membership_removes_the_member_or_the_invitation() {
    let mut upstream = Upstream::new();
    upstream.delete(ADA, "/orgs/acme/memberships/hugo").assert_status(204);
    upstream.delete(ADA, "/orgs/acme/memberships/hugo").assert_status(404);
    upstream.patch(HUGO, OWN, &json!({ "state": "active" })).assert_status(404);
    upstream.delete(ADA, "/orgs/acme/memberships/cleo").assert_status(204);
    upstream.get(CLEO, OWN).assert_status(404);
}

#[test]
fn an_invitation_is_accepted_only_with_a_token_of_the_user() {
    let mut upstream = Upstream::new();
    let accept = json!({ "state": "active" });
    upstream.patch(NOBODY, OWN, &accept).assert_status(401);
    for token in [INSTALLATION, WORKFLOW, BEN_APP_READ, ADA_NO_PERMISSIONS, ADA_NO_SCOPES] {
        upstream.patch(token, OWN, &accept).assert_status(403);
    }
    upstream.get(INSTALLATION, OWN).assert_status(403);
    upstream.patch(FINN, OWN, &accept).assert_status(404);
    upstream.patch(HUGO, "/user/memberships/orgs/nowhere", &accept).assert_status(404);
    assert_eq!(upstream.get(HUGO_APP, OWN).assert_status(200).body["state"], "pending");
    for body in [
        json!({}),
        json!({ "state": "pending" }),
        json!({ "state": 1 }),
        json!({ "state": null }),
        json!({ "state": [] }),
    ] {
        upstream.patch(HUGO, OWN, &body).assert_names_field("state");
    }
    let accepted = upstream.patch(HUGO_APP, OWN, &accept).assert_status(200);
    assert_eq!(
        (&accepted.body["state"], &accepted.body["role"]),
        (&json!("active"), &json!("member"))
    );
    upstream.get(ADA, "/orgs/acme/members/hugo").assert_status(204);
    assert_eq!(upstream.get(ADA, "/teams/401/memberships/hugo").body["state"], "active");
}

#[test]
fn the_control_plane_lets_an_invitation_be_accepted_or_fail() {
    let mut upstream = Upstream::new();
    let event =
        |kind: &str, user: &str| json!({ "type": kind, "organization": "acme", "user": user });
    upstream
        .post(NOBODY, "/_emulator/events", &event("invitation_accepted", "finn"))
        .assert_status(422);
    upstream
        .post(NOBODY, "/_emulator/events", &json!({ "type": "invitation_accepted", "user": 1 }))
        .assert_status(422);
    upstream.put(ADA, "/teams/401/memberships/finn", &Value::Null).assert_status(200);
    upstream
        .post(NOBODY, "/_emulator/events", &event("invitation_failed", "finn"))
        .assert_status(201);
    upstream.get(ADA, "/teams/401/memberships/finn").assert_status(404);
    assert_eq!(upstream.get(ADA, "/orgs/acme/failed_invitations").items().len(), 2);
    upstream
        .post(NOBODY, "/_emulator/events", &event("invitation_accepted", "hugo"))
        .assert_status(201);
    assert_eq!(upstream.get(HUGO, OWN).body["state"], "active");
}

#[test]
fn the_own_memberships_are_listed_by_state() {
    let mut upstream = Upstream::new();
    let state = |answer: &Answer| {
        answer.items().iter().map(|item| item["state"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(state(&upstream.get(HUGO, "/user/memberships/orgs")), ["pending"]);
    assert!(upstream.get(HUGO, "/user/memberships/orgs?state=active").items().is_empty());
    assert_eq!(
        upstream.get(GWEN, "/user/memberships/orgs?state=active").items()[0]["organization"]["login"],
        "globex"
    );
    upstream.get(HUGO, "/user/memberships/orgs?state=happy").assert_names_field("state");
}

#[test]
fn outside_collaborators_push_without_being_members() {
    let mut upstream = Upstream::new();
    let list = "/orgs/acme/outside_collaborators";
    assert_eq!(logins(&upstream.get(ADA, list)), ["gwen"]);
    upstream.get(NOBODY, list).assert_status(401);
    upstream.get(DAN, list).assert_status(404);
    upstream.get(GWEN, "/repos/acme/gadgets").assert_status(200);
    upstream.put(BEN, &format!("{list}/cleo"), &Value::Null).assert_status(403);
    upstream.put(ADA, &format!("{list}/cleo"), &Value::Null).assert_status(204);
    assert_eq!(logins(&upstream.get(ADA, list)), ["cleo", "gwen"], "cleo's teams could push");
    upstream.get(ADA, "/orgs/acme/members/cleo").assert_status(404);
    upstream.get(CLEO, "/repos/acme/gadgets").assert_status(200);
    upstream.put(ADA, &format!("{list}/finn"), &Value::Null).assert_names_field("username");
    upstream.delete(ADA, &format!("{list}/ben")).assert_names_field("username");
    upstream.delete(ADA, &format!("{list}/finn")).assert_status(404);
    upstream.delete(ADA, &format!("{list}/gwen")).assert_status(204);
    upstream.delete(ADA, &format!("{list}/gwen")).assert_status(404);
    upstream.get(GWEN, "/repos/acme/gadgets").assert_status(404);
}

#[test]
fn organisation_roles_are_given_to_people_and_teams() {
    let mut upstream = Upstream::new();
    let roles = "/orgs/acme/organization-roles";
    upstream.put(ADA, &format!("{roles}/users/cleo/601"), &Value::Null).assert_status(204);
    upstream.put(ADA, &format!("{roles}/teams/platform-core/601"), &Value::Null).assert_status(204);
    assert_eq!(
        upstream.get(ADA, &format!("{roles}/601/teams")).items()[0]["slug"],
        "platform-core"
    );
    let users = upstream.get(ADA, &format!("{roles}/601/users"));
    let assignments: Vec<(&Value, &Value)> =
        users.items().iter().map(|user| (&user["login"], &user["assignment"])).collect();
    let expected = [("ben", "mixed"), ("cleo", "mixed"), ("build-bot", "indirect")]
        .map(|(user, how)| (json!(user), json!(how)));
    assert_eq!(assignments, expected.iter().map(|(user, how)| (user, how)).collect::<Vec<_>>());
    upstream.delete(ADA, &format!("{roles}/teams/platform-core/601")).assert_status(204);
    upstream.delete(ADA, &format!("{roles}/users/cleo/601")).assert_status(204);
    upstream.delete(ADA, &format!("{roles}/users/cleo/601")).assert_status(204);
    assert_eq!(
        logins(&upstream.get(ADA, &format!("{roles}/601/users"))),
        ["ben"],
        "its initial holder"
    );
    for role in [601, 602] {
        upstream.put(ADA, &format!("{roles}/users/cleo/{role}"), &Value::Null).assert_status(204);
        upstream.put(ADA, &format!("{roles}/teams/bots/{role}"), &Value::Null).assert_status(204);
    }
    upstream.delete(ADA, &format!("{roles}/users/cleo")).assert_status(204);
    upstream.delete(ADA, &format!("{roles}/teams/bots")).assert_status(204);
    assert!(upstream.get(ADA, &format!("{roles}/602/users")).items().is_empty());
}

#[test]
fn only_owners_assign_existing_organisation_roles() {
    let mut upstream = Upstream::new();
    let roles = "/orgs/acme/organization-roles";
    upstream.put(BEN, &format!("{roles}/users/cleo/601"), &Value::Null).assert_status(403);
    upstream.get(BEN, &format!("{roles}/601/users")).assert_status(403);
    upstream.get(NOBODY, &format!("{roles}/601/users")).assert_status(401);
    for role in ["600", "x", "99999999999999999999", "-1"] {
        upstream.get(ADA, &format!("{roles}/{role}/users")).assert_status(404);
        upstream.get(ADA, &format!("{roles}/{role}/teams")).assert_status(404);
        upstream.put(ADA, &format!("{roles}/users/cleo/{role}"), &Value::Null).assert_status(404);
    }
    upstream
        .put(ADA, &format!("{roles}/users/finn/601"), &Value::Null)
        .assert_names_field("username");
    upstream.put(ADA, &format!("{roles}/users/nobody/601"), &Value::Null).assert_status(404);
    upstream.put(ADA, &format!("{roles}/teams/nothing/601"), &Value::Null).assert_status(404);
    upstream
        .put(ADA, &format!("{roles}/teams/ent:architects/601"), &Value::Null)
        .assert_names_field("team_slug");
}
