//! Tests team memberships: the routes by slug and by id, and the state machine (SPECIFICATION,
//! "Team membership").

use serde_json::{Value, json};

use crate::emulator::tests::*;

const CLEO: &str = "emu_classic_cleo_all_scopes";
const FINN: &str = "emu_classic_finn_org_scopes";
const HUGO: &str = "emu_classic_hugo_org_scopes";
const ADA_READ_ONLY: &str = "emu_classic_ada_read_only";
const ADA_APP: &str = "emu_app_user_ada_members";
const BEN_APP_READ: &str = "emu_app_user_ben_members_read";
const PLATFORM: &str = "/orgs/acme/teams/platform";
/// The same team by slug, by id, and by the deprecated address.
const SHAPES: [&str; 3] = [PLATFORM, "/organizations/201/team/401", "/teams/401"];

fn membership(user: &str) -> String {
    format!("{PLATFORM}/memberships/{user}")
}

fn logins(answer: &Answer) -> Vec<String> {
    answer.items().iter().map(|user| user["login"].as_str().unwrap_or("").to_owned()).collect()
}

fn role_and_state(answer: &Answer) -> (&Value, &Value) {
    (&answer.body["role"], &answer.body["state"])
}

#[test]
fn a_member_of_the_organisation_that_is_added_is_active_at_once() {
    for shape in SHAPES {
        let mut upstream = Upstream::new();
        let path = format!("{shape}/memberships/triage-bot");
        upstream.get(BEN, &path).assert_status(404);
        let put = upstream.put(BEN, &path, &json!({ "role": "maintainer" })).assert_status(200);
        assert_eq!(
            role_and_state(&put),
            (&json!("maintainer"), &json!("active")),
            "with the requested role"
        );
        assert_eq!(upstream.get(BEN, &path).assert_status(200).body, put.body);
        upstream
            .get(
                BEN,
                put.body["url"]
                    .as_str()
                    .expect("an address")
                    .trim_start_matches("http://upstream.test"),
            )
            .assert_status(200);
    }
}

#[test]
fn an_invited_stranger_is_pending_until_acceptance() {
    let mut upstream = Upstream::new();
    let put =
        upstream.put(ADA, &membership("finn"), &json!({ "role": "maintainer" })).assert_status(200);
    assert_eq!(role_and_state(&put), (&json!("maintainer"), &json!("pending")));
    assert!(
        !logins(&upstream.get(ADA, &format!("{PLATFORM}/members"))).contains(&"finn".to_owned()),
        "not a member yet"
    );
    let invitations = upstream.get(ADA, &format!("{PLATFORM}/invitations"));
    assert!(
        invitations.items().iter().any(
            |invitation| invitation["login"] == "finn" && invitation["role"] == "direct_member"
        )
    );
    upstream.get(FINN, PLATFORM).assert_status(404);

    upstream
        .patch(FINN, "/user/memberships/orgs/acme", &json!({ "state": "active" }))
        .assert_status(200);
    let get = upstream.get(FINN, &membership("finn")).assert_status(200);
    assert_eq!(
        role_and_state(&get),
        (&json!("maintainer"), &json!("active")),
        "the person becomes a team member"
    );
    assert!(
        !upstream
            .get(ADA, &format!("{PLATFORM}/invitations"))
            .items()
            .iter()
            .any(|invitation| invitation["login"] == "finn")
    );
}

#[test]
fn only_an_organisation_owner_may_invite_a_stranger() {
    let mut upstream = Upstream::new();
    upstream.put(BEN, &membership("finn"), &Value::Null).assert_status(403);
    upstream.put(ADA, &membership("finn"), &Value::Null).assert_status(200);
    upstream.put(INSTALLATION, &membership("gwen"), &Value::Null).assert_status(200);
}

#[test]
fn another_put_updates_the_role_of_an_active_member() {
    let mut upstream = Upstream::new();
    let put =
        upstream.put(BEN, &membership("cleo"), &json!({ "role": "maintainer" })).assert_status(200);
    assert_eq!(role_and_state(&put), (&json!("maintainer"), &json!("active")));
    let kept = upstream.put(BEN, &membership("cleo"), &json!({})).assert_status(200);
    assert_eq!(kept.body["role"], "maintainer", "an omitted field stays");
    assert_eq!(
        upstream.put(BEN, &membership("cleo"), &json!({ "role": "member" })).body["role"],
        "member"
    );
}

#[test]
fn a_second_put_updates_a_pending_role_without_an_invitation() {
    let mut upstream = Upstream::new();
    let before = upstream.get(ADA, "/orgs/acme/invitations").items().len();
    let put =
        upstream.put(ADA, &membership("hugo"), &json!({ "role": "maintainer" })).assert_status(200);
    assert_eq!(role_and_state(&put), (&json!("maintainer"), &json!("pending")));
    upstream.put(ADA, "/orgs/acme/teams/bots/memberships/hugo", &Value::Null).assert_status(200);
    let all = upstream.get(ADA, "/orgs/acme/invitations");
    assert_eq!(all.items().len(), before);
    assert_eq!(all.items()[0]["team_count"], 2);
}

#[test]
fn a_deleted_membership_is_gone_and_the_account_stays() {
    for shape in SHAPES {
        let mut upstream = Upstream::new();
        let path = format!("{shape}/memberships/cleo");
        upstream.delete(BEN, &path).assert_status(204);
        upstream.get(BEN, &path).assert_status(404);
        upstream.delete(BEN, &path).assert_status(404);
        upstream.get(BEN, "/users/cleo").assert_status(200);
        upstream.get(BEN, "/orgs/acme/members/cleo").assert_status(204);
    }
}

#[test]
fn a_deleted_pending_membership_withdraws_its_invitation() {
    let mut upstream = Upstream::new();
    upstream.delete(BEN, &membership("hugo")).assert_status(204);
    upstream.get(ADA, &membership("hugo")).assert_status(404);
    upstream.get(HUGO, "/user/memberships/orgs/acme").assert_status(404);
    upstream.get(ADA, "/users/hugo").assert_status(200);
    upstream.put(ADA, "/orgs/acme/memberships/hugo", &Value::Null).assert_status(200);
    upstream.put(ADA, &membership("hugo"), &Value::Null).assert_status(200);
    upstream.delete(ADA, &membership("hugo")).assert_status(204);
    assert_eq!(
        upstream.get(HUGO, "/user/memberships/orgs/acme").assert_status(200).body["state"],
        "pending",
        "the invitation was for more than a team"
    );
}

#[test]
fn organisation_owners_show_maintainer() {
    let mut upstream = Upstream::new();
    upstream.get(BEN, &membership("ada")).assert_status(404);
    let put =
        upstream.put(BEN, &membership("ada"), &json!({ "role": "member" })).assert_status(200);
    assert_eq!(put.body["role"], "maintainer");
    let maintainers = upstream.get(BEN, &format!("{PLATFORM}/members?role=maintainer"));
    assert_eq!(logins(&maintainers), ["ada", "ben"]);
}

#[test]
fn members_include_child_teams_and_are_filtered_by_role() {
    let mut upstream = Upstream::new();
    for shape in SHAPES {
        assert_eq!(
            logins(&upstream.get(CLEO, &format!("{shape}/members"))),
            ["ben", "cleo", "build-bot"],
            "build-bot is in platform-core"
        );
        assert_eq!(
            logins(&upstream.get(CLEO, &format!("{shape}/members?role=maintainer"))),
            ["ben"]
        );
        assert_eq!(
            logins(&upstream.get(CLEO, &format!("{shape}/members?role=member"))),
            ["cleo", "build-bot"]
        );
        assert_eq!(upstream.get(CLEO, &format!("{shape}/members?role=all")).items().len(), 3);
        upstream.get(CLEO, &format!("{shape}/members?role=chief")).assert_names_field("role");
    }
    upstream.get(CLEO, &membership("build-bot")).assert_status(404);
}

#[test]
fn a_list_of_members_has_pages_and_user_summaries() {
    let mut upstream = Upstream::new();
    let first = upstream.get(BEN, &format!("{PLATFORM}/members?per_page=2"));
    assert_eq!(first.items().len(), 2);
    assert_eq!(
        first.link("next"),
        Some(format!("http://upstream.test{PLATFORM}/members?per_page=2&page=2"))
    );
    assert_eq!(
        upstream.get(BEN, &format!("{PLATFORM}/members?per_page=2&page=2")).items().len(),
        1
    );
    assert_eq!(
        upstream.get(BEN, &format!("{PLATFORM}/members?page=99999999999999999999")).items().len(),
        3,
        "a page number above the range is ignored"
    );
    for field in [
        "login",
        "id",
        "node_id",
        "avatar_url",
        "gravatar_id",
        "received_events_url",
        "type",
        "site_admin",
    ] {
        assert!(first.items()[0].get(field).is_some(), "{field}");
    }
}

#[test]
fn a_team_must_be_visible_to_the_caller() {
    let mut upstream = Upstream::new();
    let secret = "/orgs/acme/teams/incident-response";
    for token in [CLEO, ADA, INSTALLATION] {
        upstream.get(token, &format!("{secret}/members")).assert_status(200);
    }
    for path in [
        format!("{secret}/members"),
        "/organizations/201/team/404/members".to_owned(),
        "/teams/404/members".to_owned(),
    ] {
        upstream.get(BEN, &path).assert_status(404);
    }
    upstream.put(BEN, &format!("{secret}/memberships/ben"), &Value::Null).assert_status(404);
}

#[test]
fn an_invitation_has_every_field_and_empty_failure_fields() {
    let mut upstream = Upstream::new();
    for shape in SHAPES {
        let all = upstream.get(CLEO, &format!("{shape}/invitations")).assert_status(200);
        let [invitation] = all.items().as_slice() else { panic!("one is pending") };
        assert_eq!(
            (&invitation["login"], &invitation["email"]),
            (&json!("hugo"), &json!("hugo@example.com"))
        );
        assert_eq!(
            (&invitation["failed_at"], &invitation["failed_reason"]),
            (&json!(""), &json!(""))
        );
        assert_eq!(
            (&invitation["role"], &invitation["team_count"]),
            (&json!("direct_member"), &json!(1))
        );
        assert_eq!(invitation["inviter"]["login"], "ada");
        for field in ["id", "node_id", "created_at", "invitation_source"] {
            assert!(!invitation[field].is_null(), "{field}");
        }
        let teams = invitation["invitation_teams_url"]
            .as_str()
            .expect("an address")
            .trim_start_matches("http://upstream.test")
            .to_owned();
        assert_eq!(upstream.get(ADA, &teams).assert_status(200).items()[0]["slug"], "platform");
    }
    assert!(
        upstream.get(CLEO, "/orgs/acme/teams/bots/invitations").items().is_empty(),
        "a failed one is not pending"
    );
}

#[test]
fn an_organisation_cannot_be_added_to_a_team() {
    let mut upstream = Upstream::new();
    for shape in SHAPES {
        upstream
            .put(ADA, &format!("{shape}/memberships/globex"), &Value::Null)
            .assert_names_field("username");
        upstream.get(ADA, &format!("{shape}/memberships/globex")).assert_status(404);
    }
}

#[test]
fn a_synchronised_team_cannot_be_changed_but_read() {
    let mut upstream = Upstream::new();
    for shape in ["/orgs/globex/teams/staff", "/organizations/202/team/411", "/teams/411"] {
        upstream
            .put(DAN, &format!("{shape}/memberships/gwen"), &json!({ "role": "member" }))
            .assert_status(403);
        upstream
            .put(DAN, &format!("{shape}/memberships/dan"), &json!({ "role": "member" }))
            .assert_status(403);
        upstream.delete(DAN, &format!("{shape}/memberships/dan")).assert_status(403);
        upstream.get(DAN, &format!("{shape}/memberships/dan")).assert_status(200);
        upstream.get(DAN, &format!("{shape}/members")).assert_status(200);
    }
}

#[test]
fn an_enterprise_team_is_read_only_for_its_organisation() {
    let mut upstream = Upstream::new();
    for shape in [
        "/orgs/acme/teams/ent:architects",
        "/orgs/ACME/teams/ent%3AArchitects",
        "/organizations/201/team/511",
    ] {
        upstream.get(ADA, &format!("{shape}/invitations")).assert_names_field("team_slug");
        upstream
            .put(ADA, &format!("{shape}/memberships/ben"), &Value::Null)
            .assert_names_field("team_slug");
        upstream.delete(ADA, &format!("{shape}/memberships/cleo")).assert_names_field("team_slug");
        upstream.patch(ADA, shape, &json!({ "name": "x" })).assert_names_field("team_slug");
        upstream.delete(ADA, shape).assert_names_field("team_slug");
        assert_eq!(logins(&upstream.get(BEN, &format!("{shape}/members"))), ["ada", "cleo", "dan"]);
        assert_eq!(
            logins(&upstream.get(BEN, &format!("{shape}/members?role=maintainer"))),
            ["ada"]
        );
        upstream.get(BEN, &format!("{shape}/memberships/ben")).assert_status(404);
        let cleo = upstream.get(BEN, &format!("{shape}/memberships/cleo")).assert_status(200);
        assert_eq!(role_and_state(&cleo), (&json!("member"), &json!("active")));
    }
    for path in [
        "/orgs/acme/teams/ent:auditors",
        "/orgs/acme/teams/ent:nobody",
        "/organizations/201/team/512",
        "/teams/511",
    ] {
        upstream.get(ADA, &format!("{path}/invitations")).assert_status(404);
    }
}

#[test]
fn the_caller_must_be_an_owner_or_a_maintainer_to_change_a_team() {
    let mut upstream = Upstream::new();
    for shape in SHAPES {
        upstream
            .put(CLEO, &format!("{shape}/memberships/triage-bot"), &Value::Null)
            .assert_status(403);
        upstream.delete(CLEO, &format!("{shape}/memberships/cleo")).assert_status(403);
        for token in [BEN, ADA, ADA_FINE, ADA_APP, INSTALLATION] {
            upstream
                .put(token, &format!("{shape}/memberships/triage-bot"), &Value::Null)
                .assert_status(200);
            upstream.delete(token, &format!("{shape}/memberships/triage-bot")).assert_status(204);
        }
    }
}

#[test]
fn the_routes_need_membership_and_the_scope_or_permission() {
    let mut upstream = Upstream::new();
    for shape in SHAPES {
        for path in
            ["members", "invitations", "memberships/ben"].map(|rest| format!("{shape}/{rest}"))
        {
            upstream.get(NOBODY, &path).assert_status(401);
            upstream.get("wrong", &path).assert_status(401);
            for token in [DAN, FINN, HUGO, "emu_installation_globex"] {
                upstream.get(token, &path).assert_status(404);
            }
            for token in [ADA_NO_SCOPES, ADA_NO_PERMISSIONS, WORKFLOW, "emu_app_user_ben"] {
                upstream.get(token, &path).assert_status(403);
            }
            for token in [
                ADA,
                BEN,
                CLEO,
                OAUTH,
                ADA_READ_ONLY,
                ADA_FINE,
                ADA_APP,
                BEN_APP_READ,
                INSTALLATION,
            ] {
                upstream.get(token, &path).assert_status(200);
            }
        }
        let put = format!("{shape}/memberships/triage-bot");
        upstream.put(BEN_APP_READ, &put, &Value::Null).assert_status(403);
        upstream.put(ADA_NO_SCOPES, &put, &Value::Null).assert_status(403);
        upstream.put(ADA_READ_ONLY, &put, &Value::Null).assert_status(200);
    }
}

#[test]
fn every_answer_names_the_permission_that_the_route_requires() {
    let mut upstream = Upstream::new();
    for shape in SHAPES {
        let get = upstream.get(ADA, &format!("{shape}/members"));
        assert_eq!(get.header("x-accepted-service-permissions"), "members=read");
        assert_eq!(get.header("x-accepted-oauth-scopes"), "read:org");
        let put = upstream.put(ADA, &format!("{shape}/memberships/cleo"), &Value::Null);
        assert_eq!(put.header("x-accepted-service-permissions"), "members=write");
    }
}

#[test]
fn names_are_case_insensitive_and_unknown_ones_not_found() {
    let mut upstream = Upstream::new();
    upstream.get(BEN, "/orgs/ACME/teams/PLATFORM/memberships/CLEO").assert_status(200);
    for path in [
        "/orgs/acme/teams/nothing/members",
        "/orgs/nowhere/teams/platform/members",
        "/orgs/acme/teams/401/members",
        "/orgs/acme/teams/staff/members",
        "/organizations/201/team/411/members",
        "/organizations/202/team/401/members",
        "/organizations/acme/team/platform/members",
        "/organizations/99999999999999999999/team/401/members",
        "/organizations/201/team/-1/members",
        "/teams/99999999999999999999/members",
        "/teams/platform/members",
        "/orgs/acme/teams/platform/memberships/nobody",
        "/orgs/acme/teams/%F0%9F%A6%80/members",
        "/orgs/acme/teams/%ff%00/members",
        "/orgs/acme/teams/platform%2Fmembers/members",
    ] {
        upstream.get(ADA, path).assert_status(404);
    }
    upstream
        .put(ADA, "/orgs/acme/teams/platform/memberships/nobody", &Value::Null)
        .assert_status(404);
    upstream.delete(ADA, "/orgs/acme/teams/platform/memberships/finn").assert_status(404);
}

#[test]
fn a_wrong_role_is_422_and_names_the_field_and_changes_nothing() {
    let mut upstream = Upstream::new();
    for role in [
        json!("owner"),
        json!(""),
        json!(3),
        json!(["member"]),
        json!({}),
        json!(true),
        Value::Null,
    ] {
        upstream
            .put(BEN, &membership("triage-bot"), &json!({ "role": role }))
            .assert_names_field("role");
        upstream.put(ADA, &membership("finn"), &json!({ "role": role })).assert_names_field("role");
    }
    for body in ["{", "[]", "null", "\"member\"", "\u{0}"] {
        let request = http::Request::put(membership("triage-bot"))
            .header("authorization", format!("Bearer {BEN}"));
        upstream
            .send(&request.body(Bytes::from_static(body.as_bytes())).expect("well formed"))
            .assert_status(400);
    }
    upstream.get(BEN, &membership("triage-bot")).assert_status(404);
    upstream.get(BEN, &membership("finn")).assert_status(404);
}

#[test]
fn repeating_a_request_changes_nothing_more() {
    let mut upstream = Upstream::new();
    let once = upstream.put(ADA, &membership("finn"), &Value::Null).assert_status(200);
    for _ in 0..5 {
        assert_eq!(
            upstream.put(ADA, &membership("finn"), &Value::Null).assert_status(200).body,
            once.body
        );
    }
    let invitations = upstream.get(ADA, "/orgs/acme/invitations");
    assert_eq!(
        invitations.items().iter().filter(|invitation| invitation["login"] == "finn").count(),
        1
    );
    let accept = json!({ "state": "active" });
    let active = upstream.patch(FINN, "/user/memberships/orgs/acme", &accept).assert_status(200);
    assert_eq!(
        upstream.patch(FINN, "/user/memberships/orgs/acme", &accept).assert_status(200).body,
        active.body
    );
    upstream.delete(ADA, &membership("finn")).assert_status(204);
    upstream.patch(FINN, "/user/memberships/orgs/acme", &accept).assert_status(200);
    upstream.get(ADA, &membership("finn")).assert_status(404);
}

#[test]
fn the_self_hosted_base_leads_to_the_same_teams() {
    let mut upstream = Upstream::new();
    let put = upstream
        .put(ADA, "/api/v3/organizations/201/team/401/memberships/cleo", &Value::Null)
        .assert_status(200);
    assert_eq!(
        put.body["url"],
        "http://upstream.test/api/v3/organizations/201/team/401/memberships/cleo"
    );
}
