//! Pending invitations to a team: the object and its notes.

use serde_json::{Value, json};

use crate::document_2::paths::{enterprise_team, team, texts};
use crate::kit::Upstream;
use crate::rows::document_2::membership::TEAM_INVITATION;
use crate::shape::{assert_shapes, is_timestamp};

const ROLES: [&str; 5] =
    ["direct_member", "admin", "billing_manager", "hiring_manager", "reinstate"];

/// Invites a mail address to acme and to these teams.
fn invite(upstream: &mut Upstream, email: &str, role: &str, teams: &[u64]) {
    let ada = upstream.classic("ada");
    upstream
        .post(
            &ada,
            "/orgs/acme/invitations",
            &json!({ "email": email, "role": role, "team_ids": teams }),
        )
        .expect_status(201);
}

/// The pending invitation of a mail address to a team.
fn invitation(upstream: &mut Upstream, team: &str, email: &str) -> Value {
    let ada = upstream.classic("ada");
    let list = upstream.get(&ada, &format!("{team}/invitations?per_page=100")).expect_status(200);
    list.items()
        .iter()
        .find(|item| item["email"] == email)
        .cloned()
        .unwrap_or_else(|| panic!("{email} in {}", list.body))
}

#[test]
pub fn invitations_are_listed() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let platform = team(&mut upstream, "acme", "platform");
    for address in platform.addresses() {
        let list = upstream.get(&ada, &format!("{address}/invitations")).expect_status(200);
        assert_shapes(&list.body, &TEAM_INVITATION);
    }
}

#[test]
pub fn an_enterprise_team_is_not_modified_at_organization_level() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let architects = enterprise_team(&mut upstream, "acme", "ent:architects");
    for address in architects.addresses() {
        upstream.get(&ada, &format!("{address}/invitations")).expect_status(422);
    }
}

#[test]
pub fn the_role_is_one_of_five() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let platform = team(&mut upstream, "acme", "platform");
    for role in ROLES {
        invite(&mut upstream, &format!("{role}@example.org"), role, &[platform.id()]);
        let seen = invitation(&mut upstream, &platform.by_slug, &format!("{role}@example.org"));
        assert_eq!(seen["role"], role);
    }
    let list = upstream.get(&ada, &format!("{}/invitations", platform.by_slug)).expect_status(200);
    assert_shapes(&list.body, &TEAM_INVITATION);
}

#[test]
pub fn the_login_is_null_without_an_existing_account() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let platform = team(&mut upstream, "acme", "platform");
    invite(&mut upstream, "somebody@example.org", "direct_member", &[platform.id()]);
    assert!(
        invitation(&mut upstream, &platform.by_slug, "somebody@example.org")["login"].is_null()
    );
    let list = upstream.get(&ada, &format!("{}/invitations", platform.by_slug)).expect_status(200);
    assert!(texts(&list.body, "login").contains(&"hugo".to_owned()), "{}", list.body);
}

#[test]
pub fn a_failure_has_a_time_and_a_reason_and_both_may_be_empty() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let platform = team(&mut upstream, "acme", "platform");
    let pending =
        upstream.get(&ada, &format!("{}/invitations", platform.by_slug)).expect_status(200);
    for item in pending.items() {
        assert_eq!((&item["failed_at"], &item["failed_reason"]), (&json!(""), &json!("")));
    }
    let failed = upstream.get(&ada, "/orgs/acme/failed_invitations").expect_status(200);
    assert!(!failed.items().is_empty(), "the world has a failed invitation");
    for item in failed.items() {
        assert!(item["failed_at"].as_str().is_some_and(is_timestamp), "{item}");
        assert!(item["failed_reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{item}");
    }
}

#[test]
pub fn team_count_counts_the_teams_that_the_url_lists() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let (platform, bots) =
        (team(&mut upstream, "acme", "platform"), team(&mut upstream, "acme", "bots"));
    invite(&mut upstream, "somebody@example.org", "direct_member", &[platform.id(), bots.id()]);
    let seen = invitation(&mut upstream, &bots.by_slug, "somebody@example.org");
    assert_eq!(seen["team_count"], 2);
    let address = seen["invitation_teams_url"]
        .as_str()
        .and_then(|url| url.strip_prefix(crate::kit::BASE))
        .expect("an address of the API");
    let teams = upstream.get(&ada, address).expect_status(200);
    let mut slugs = texts(&teams.body, "slug");
    slugs.sort();
    assert_eq!(slugs, ["bots", "platform"]);
}

#[test]
pub fn a_page_has_30_invitations_by_default_and_100_at_most() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let platform = team(&mut upstream, "acme", "platform");
    for n in 0..110 {
        invite(
            &mut upstream,
            &format!("person-{n}@example.org"),
            "direct_member",
            &[platform.id()],
        );
        upstream.pass(10);
    }
    let path = format!("{}/invitations", platform.by_slug);
    assert_eq!(upstream.get(&ada, &path).expect_status(200).items().len(), 30);
    let hundred = upstream.get(&ada, &format!("{path}?per_page=1000")).expect_status(200);
    assert_eq!(hundred.items().len(), 100);
    let third = upstream.get(&ada, &format!("{path}?per_page=7&page=3")).expect_status(200);
    assert_eq!(third.items(), &hundred.items()[14..21]);
}
