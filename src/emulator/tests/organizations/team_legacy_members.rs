//! Tests the deprecated routes `/teams/{team_id}/members/{username}` (SPECIFICATION, "Team
//! membership").

use serde_json::{Value, json};

use crate::emulator::tests::*;

const CLEO: &str = "emu_classic_cleo_all_scopes";
/// The team `bots` of acme.
const MEMBERS: &str = "/teams/403/members";

#[test]
fn a_member_is_204_and_anybody_else_404() {
    let mut upstream = Upstream::new();
    upstream.get(CLEO, &format!("{MEMBERS}/build-bot")).assert_status(204);
    for user in ["cleo", "hugo", "nobody", "acme"] {
        upstream.get(CLEO, &format!("{MEMBERS}/{user}")).assert_status(404);
    }
    upstream.get(CLEO, "/teams/401/members/hugo").assert_status(404);
}

#[test]
fn a_member_of_another_team_is_added_at_once_and_can_be_removed() {
    let mut upstream = Upstream::new();
    let path = format!("{MEMBERS}/cleo");
    upstream.put(BEN, &path, &Value::Null).assert_status(204);
    upstream.put(BEN, &path, &Value::Null).assert_status(204);
    upstream.get(BEN, &path).assert_status(204);
    assert_eq!(upstream.get(BEN, "/teams/403/memberships/cleo").body["role"], "member");
    upstream.delete(BEN, &path).assert_status(204);
    upstream.delete(BEN, &path).assert_status(404);
    upstream.get(BEN, "/users/cleo").assert_status(200);
}

#[test]
fn a_repeated_put_keeps_the_role_of_a_member() {
    let mut upstream = Upstream::new();
    upstream.put(ADA, &format!("{MEMBERS}/ben"), &Value::Null).assert_status(204);
    assert_eq!(upstream.get(ADA, "/teams/403/memberships/ben").body["role"], "maintainer");
}

#[test]
fn a_new_member_must_be_in_another_team_of_the_organisation() {
    let mut upstream = Upstream::new();
    for user in ["triage-bot", "finn", "hugo", "dan"] {
        upstream
            .put(ADA, &format!("{MEMBERS}/{user}"), &Value::Null)
            .assert_names_field("username");
    }
    upstream.put(ADA, "/teams/402/memberships/triage-bot", &Value::Null).assert_status(200);
    upstream.put(ADA, &format!("{MEMBERS}/triage-bot"), &Value::Null).assert_status(204);
}

#[test]
fn an_organisation_cannot_be_added() {
    Upstream::new()
        .put(ADA, &format!("{MEMBERS}/globex"), &Value::Null)
        .assert_names_field("username");
}

#[test]
fn a_synchronised_team_answers_404_to_changes() {
    let mut upstream = Upstream::new();
    upstream.put(DAN, "/teams/411/members/gwen", &Value::Null).assert_status(404);
    upstream.delete(DAN, "/teams/411/members/dan").assert_status(404);
    upstream.get(DAN, "/teams/411/members/dan").assert_status(204);
}

#[test]
fn only_owners_and_maintainers_change_it() {
    let mut upstream = Upstream::new();
    upstream.put(CLEO, &format!("{MEMBERS}/cleo"), &Value::Null).assert_status(403);
    upstream.delete(CLEO, &format!("{MEMBERS}/build-bot")).assert_status(403);
    upstream.put(NOBODY, &format!("{MEMBERS}/cleo"), &Value::Null).assert_status(401);
    upstream.put(DAN, &format!("{MEMBERS}/cleo"), &Value::Null).assert_status(404);
    upstream.put(ADA_NO_PERMISSIONS, &format!("{MEMBERS}/cleo"), &Value::Null).assert_status(403);
    upstream.put(INSTALLATION, &format!("{MEMBERS}/cleo"), &Value::Null).assert_status(204);
}

#[test]
fn a_put_needs_content_length_zero() {
    let mut upstream = Upstream::new();
    upstream.put(BEN, &format!("{MEMBERS}/cleo"), &json!({ "role": "member" })).assert_status(400);
    upstream.get(BEN, &format!("{MEMBERS}/cleo")).assert_status(404);
    let request = request(
        Method::PUT,
        BEN,
        &format!("{MEMBERS}/cleo"),
        &[("content-length", "0")],
        &Value::Null,
    );
    upstream.send(&request).assert_status(204);
}

#[test]
fn an_invitation_is_no_membership_here() {
    let mut upstream = Upstream::new();
    upstream.delete(ADA, "/teams/401/members/hugo").assert_status(404);
    assert_eq!(
        upstream.get(ADA, "/teams/401/memberships/hugo").assert_status(200).body["state"],
        "pending"
    );
}
