//! Team membership: its states and transitions.

use serde_json::json;

use crate::document_2::paths::{named, team, texts};
use crate::kit::Upstream;
use crate::recorder::observe;

const MACHINE: &str = "Team membership";
const PLATFORM: &str = "/orgs/acme/teams/platform";

/// Observes the state of a person's membership of the platform team.
fn membership_state(upstream: &mut Upstream, person: &str) -> String {
    let ada = upstream.classic("ada");
    let answer = upstream.get(&ada, &format!("{PLATFORM}/memberships/{person}"));
    let state = match answer.status {
        404 => "(none)",
        _ => answer.body["state"]
            .as_str()
            .unwrap_or_else(|| panic!("a membership without a state: {}", answer.body)),
    };
    observe(MACHINE, state);
    state.to_owned()
}

fn put(upstream: &mut Upstream, person: &str, role: &str) {
    let ada = upstream.classic("ada");
    upstream
        .put(&ada, &format!("{PLATFORM}/memberships/{person}"), &json!({ "role": role }))
        .expect_status(200);
}

/// The role of a person's membership of the platform team.
fn role(upstream: &mut Upstream, person: &str) -> String {
    let ada = upstream.classic("ada");
    let answer = upstream.get(&ada, &format!("{PLATFORM}/memberships/{person}")).expect_status(200);
    answer.body["role"].as_str().expect("a role").to_owned()
}

#[test]
pub fn an_organization_member_is_added_at_once_in_the_given_role() {
    let mut upstream = Upstream::new();
    for (person, requested) in [("scan-bot", "member"), ("triage-bot", "maintainer")] {
        assert_eq!(membership_state(&mut upstream, person), "(none)");
        put(&mut upstream, person, requested);
        assert_eq!(membership_state(&mut upstream, person), "active");
        assert_eq!(role(&mut upstream, person), requested);
    }
}

#[test]
pub fn an_outsider_is_invited_by_mail_and_pending() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    assert_eq!(membership_state(&mut upstream, "dan"), "(none)");
    put(&mut upstream, "dan", "maintainer");
    assert_eq!(membership_state(&mut upstream, "dan"), "pending");
    let received = upstream.get(&ada, &format!("{PLATFORM}/invitations")).expect_status(200);
    let invitation = named(&received.body, "login", "dan");
    assert!(invitation["email"].as_str().is_some_and(|email| email.contains('@')), "{invitation}");
    let members = upstream.get(&ada, &format!("{PLATFORM}/members")).expect_status(200);
    assert!(!texts(&members.body, "login").contains(&"dan".to_owned()), "{}", members.body);
}

#[test]
pub fn only_an_organization_owner_invites_outsiders() {
    let mut upstream = Upstream::new();
    let ben = upstream.classic("ben");
    upstream
        .put(&ben, &format!("{PLATFORM}/memberships/scan-bot"), &json!({ "role": "member" }))
        .expect_status(200);
    upstream
        .put(&ben, &format!("{PLATFORM}/memberships/dan"), &json!({ "role": "member" }))
        .expect_status(403);
    assert_eq!(membership_state(&mut upstream, "dan"), "(none)");
}

#[test]
pub fn accepting_an_invitation_makes_a_team_member() {
    let mut upstream = Upstream::new();
    let (ada, dan) = (upstream.classic("ada"), upstream.classic("dan"));
    put(&mut upstream, "dan", "member");
    assert_eq!(membership_state(&mut upstream, "dan"), "pending");
    upstream
        .patch(&dan, "/user/memberships/orgs/acme", &json!({ "state": "active" }))
        .expect_status(200);
    assert_eq!(membership_state(&mut upstream, "dan"), "active");
    let members = upstream.get(&ada, &format!("{PLATFORM}/members")).expect_status(200);
    named(&members.body, "login", "dan");
}

#[test]
pub fn putting_a_member_again_sets_the_new_role() {
    let mut upstream = Upstream::new();
    for requested in ["maintainer", "member"] {
        assert_eq!(membership_state(&mut upstream, "cleo"), "active");
        put(&mut upstream, "cleo", requested);
        assert_eq!(membership_state(&mut upstream, "cleo"), "active");
        assert_eq!(role(&mut upstream, "cleo"), requested);
    }
}

#[test]
pub fn an_active_or_pending_membership_ends_and_the_account_stays() {
    let mut upstream = Upstream::new();
    let (ada, ben) = (upstream.classic("ada"), upstream.classic("ben"));
    put(&mut upstream, "dan", "member");
    for (person, before, by) in [("cleo", "active", &ben), ("dan", "pending", &ada)] {
        assert_eq!(membership_state(&mut upstream, person), before);
        upstream.delete(by, &format!("{PLATFORM}/memberships/{person}")).expect_status(204);
        assert_eq!(membership_state(&mut upstream, person), "(none)");
        upstream.get(&ada, &format!("/users/{person}")).expect_status(200);
    }
    let left = upstream.get(&ada, &format!("{PLATFORM}/invitations")).expect_status(200);
    assert!(!texts(&left.body, "login").contains(&"dan".to_owned()), "{}", left.body);
    upstream.get(&ada, "/orgs/acme/members/cleo").expect_status(204);
}

#[test]
pub fn only_a_team_administrator_or_organization_owner_removes() {
    let mut upstream = Upstream::new();
    let (ada, cleo) = (upstream.classic("ada"), upstream.classic("cleo"));
    upstream.delete(&cleo, &format!("{PLATFORM}/memberships/ben")).expect_status(403);
    assert_eq!(membership_state(&mut upstream, "ben"), "active");
    let platform = team(&mut upstream, "acme", "platform");
    upstream.delete(&ada, &format!("{}/memberships/ben", platform.by_ids)).expect_status(204);
}
