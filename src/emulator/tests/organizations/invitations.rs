//! Tests invitations to an organisation (SPECIFICATION, "Team membership").

use serde_json::{Value, json};

use crate::emulator::tests::*;

const FINN: &str = "emu_classic_finn_org_scopes";
const HUGO: &str = "emu_classic_hugo_org_scopes";
const BEN_APP_READ: &str = "emu_app_user_ben_members_read";
const INVITATIONS: &str = "/orgs/acme/invitations";

#[test]
fn pending_and_failed_invitations_are_listed_apart() {
    let mut upstream = Upstream::new();
    let pending = upstream.get(ADA, INVITATIONS).assert_status(200);
    assert_eq!((pending.items().len(), &pending.items()[0]["login"]), (1, &json!("hugo")));
    let failed = upstream.get(ADA, "/orgs/acme/failed_invitations").assert_status(200);
    let [failed] = failed.items().as_slice() else { panic!("one has failed") };
    assert_eq!(
        (&failed["login"], &failed["email"]),
        (&Value::Null, &json!("nobody@example.org")),
        "the invitee has no account"
    );
    assert!(
        failed["failed_at"].as_str().is_some_and(|at| at.ends_with('Z'))
            && failed["failed_reason"] != ""
    );
    let both = upstream.get(ADA, &format!("{INVITATIONS}?role=admin"));
    assert!(both.items().is_empty());
    upstream.get(ADA, &format!("{INVITATIONS}?role=chief")).assert_names_field("role");
}

#[test]
fn an_accepted_invitation_makes_a_member_of_its_teams() {
    let mut upstream = Upstream::new();
    let body = json!({ "invitee_id": 131, "role": "direct_member", "team_ids": [401, 403, 401] });
    let invitation = upstream.post(ADA, INVITATIONS, &body).assert_status(201);
    assert_eq!(
        (&invitation.body["login"], &invitation.body["team_count"]),
        (&json!("finn"), &json!(2))
    );
    let teams = upstream
        .get(ADA, &format!("{INVITATIONS}/{}/teams", invitation.body["id"]))
        .assert_status(200);
    assert_eq!(teams.items().len(), 2);
    assert_eq!(upstream.get(ADA, "/teams/403/memberships/finn").body["state"], "pending");
    upstream
        .patch(FINN, "/user/memberships/orgs/acme", &json!({ "state": "active" }))
        .assert_status(200);
    assert_eq!(upstream.get(ADA, "/teams/403/memberships/finn").body["state"], "active");
    upstream.get(ADA, &format!("{INVITATIONS}/{}/teams", invitation.body["id"])).assert_status(404);
}

#[test]
fn an_invitation_by_address_names_only_a_known_account() {
    let mut upstream = Upstream::new();
    let stranger = upstream
        .post(ADA, INVITATIONS, &json!({ "email": "some.one+x@example.net" }))
        .assert_status(201);
    assert_eq!(
        (&stranger.body["login"], &stranger.body["email"]),
        (&Value::Null, &json!("some.one+x@example.net"))
    );
    assert_eq!(stranger.body["role"], "direct_member");
    let known =
        upstream.post(ADA, INVITATIONS, &json!({ "email": "FINN@example.com" })).assert_status(201);
    assert_eq!(known.body["login"], "finn");
}

#[test]
fn every_listed_role_can_be_offered_and_only_those() {
    let mut upstream = Upstream::new();
    for role in ["direct_member", "admin", "billing_manager", "hiring_manager", "reinstate"] {
        let body = json!({ "email": format!("{role}@example.net"), "role": role });
        assert_eq!(upstream.post(ADA, INVITATIONS, &body).assert_status(201).body["role"], role);
    }
    upstream
        .post(ADA, INVITATIONS, &json!({ "email": "x@example.net", "role": "king" }))
        .assert_names_field("role");
}

#[test]
fn bad_invitations_are_422_and_name_the_field() {
    let mut upstream = Upstream::new();
    let cases = [
        (json!({}), "invitee_id"),
        (json!({ "invitee_id": null }), "invitee_id"),
        (json!({ "invitee_id": "finn" }), "invitee_id"),
        (json!({ "invitee_id": 999_999 }), "invitee_id"),
        (json!({ "invitee_id": u64::MAX }), "invitee_id"),
        (json!({ "invitee_id": -1.5 }), "invitee_id"),
        (json!({ "invitee_id": 102 }), "invitee_id"),
        (json!({ "invitee_id": 133 }), "invitee_id"),
        (json!({ "email": "ben@example.com" }), "email"),
        (json!({ "email": 1 }), "email"),
        (json!({ "email": "" }), "email"),
        (json!({ "email": "@" }), "email"),
        (json!({ "email": "a b@example.net" }), "email"),
        (json!({ "email": "a@b@c" }), "email"),
        (json!({ "email": format!("{}@example.net", "x".repeat(300)) }), "email"),
        (json!({ "invitee_id": 131, "role": 1 }), "role"),
        (json!({ "invitee_id": 131, "team_ids": 401 }), "team_ids"),
        (json!({ "invitee_id": 131, "team_ids": ["platform"] }), "team_ids"),
        (json!({ "invitee_id": 131, "team_ids": [411] }), "team_ids"),
        (json!({ "invitee_id": 131, "team_ids": [511] }), "team_ids"),
        (json!({ "invitee_id": 131, "team_ids": [u64::MAX] }), "team_ids"),
    ];
    for (body, field) in cases {
        upstream.post(ADA, INVITATIONS, &body).assert_names_field(field);
    }
    assert_eq!(upstream.get(ADA, INVITATIONS).items().len(), 1);
    upstream
        .post(DAN, "/orgs/globex/invitations", &json!({ "invitee_id": 131, "team_ids": [411] }))
        .assert_names_field("team_ids");
    upstream.post(ADA, INVITATIONS, &json!([])).assert_status(400);
}

#[test]
fn a_user_is_not_invited_twice() {
    let mut upstream = Upstream::new();
    for body in [json!({ "invitee_id": 131 }), json!({ "email": "new@example.net" })] {
        upstream.post(ADA, INVITATIONS, &body).assert_status(201);
        assert_eq!(
            upstream.post(ADA, INVITATIONS, &body).body["errors"][0]["code"],
            "already_exists"
        );
    }
    upstream.post(ADA, INVITATIONS, &json!({ "email": "nobody@example.org" })).assert_status(201);
}

#[test]
fn a_cancelled_invitation_cannot_be_accepted() {
    let mut upstream = Upstream::new();
    upstream.delete(ADA, &format!("{INVITATIONS}/421")).assert_status(204);
    upstream.delete(ADA, &format!("{INVITATIONS}/421")).assert_status(404);
    upstream
        .patch(HUGO, "/user/memberships/orgs/acme", &json!({ "state": "active" }))
        .assert_status(404);
    upstream.get(ADA, "/teams/401/memberships/hugo").assert_status(404);
    for id in ["0", "-1", "x", "99999999999999999999"] {
        upstream.delete(ADA, &format!("{INVITATIONS}/{id}")).assert_status(404);
        upstream.get(ADA, &format!("{INVITATIONS}/{id}/teams")).assert_status(404);
    }
}

#[test]
fn owners_invite_with_the_scope_or_the_permission() {
    let mut upstream = Upstream::new();
    let body = json!({ "invitee_id": 131 });
    upstream.post(NOBODY, INVITATIONS, &body).assert_status(401);
    upstream.post(DAN, INVITATIONS, &body).assert_status(404);
    for token in [BEN, OAUTH, ADA_NO_SCOPES, ADA_NO_PERMISSIONS, BEN_APP_READ, WORKFLOW] {
        upstream.post(token, INVITATIONS, &body).assert_status(403);
    }
    upstream.get(BEN, INVITATIONS).assert_status(403);
    let answer = upstream.post(INSTALLATION, INVITATIONS, &body).assert_status(201);
    assert_eq!(answer.header("x-accepted-service-permissions"), "members=write");
}
