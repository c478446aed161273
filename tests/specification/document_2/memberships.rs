//! Team membership: its five endpoints, each by slug and by ids.

use serde_json::json;

use crate::document_2::paths::{Team, named, team, texts};
use crate::kit::{BASE, Upstream};
use crate::objects::user::USER_SUMMARY;
use crate::rows::document_2::membership::TEAM_MEMBERSHIP;
use crate::shape::{assert_shape, assert_shapes};

/// An ordinary team: ben maintains it, cleo is a member.
fn platform(upstream: &mut Upstream) -> Team {
    team(upstream, "acme", "platform")
}

/// A synchronized team; dan owns the organization.
fn synchronised(upstream: &mut Upstream) -> Team {
    let staff = team(upstream, "globex", "staff");
    assert_eq!(staff.view["synchronised"], true);
    staff
}

#[test]
pub fn members_are_listed_as_user_summaries() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    for address in platform(&mut upstream).addresses() {
        let list = upstream.get(&ada, &format!("{address}/members")).expect_status(200);
        assert_shapes(&list.body, &USER_SUMMARY);
    }
}

#[test]
pub fn members_of_child_teams_are_listed_too() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let (parent, child) = (platform(&mut upstream), team(&mut upstream, "acme", "platform-core"));
    assert_eq!(child.view["parent"], parent.id());
    let only_in_the_child = "build-bot";
    let is_in = |team: &Team| {
        team.view["members"]
            .as_array()
            .is_some_and(|members| members.contains(&json!(only_in_the_child)))
    };
    assert_eq!((is_in(&parent), is_in(&child)), (false, true));
    for address in parent.addresses() {
        let list = upstream.get(&ada, &format!("{address}/members")).expect_status(200);
        named(&list.body, "login", only_in_the_child);
    }
}

#[test]
pub fn the_role_filter_selects_by_the_role_in_the_team() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let platform = platform(&mut upstream);
    let mut selected = Vec::new();
    for role in ["maintainer", "member"] {
        let list = upstream
            .get(&ada, &format!("{}/members?role={role}", platform.by_slug))
            .expect_status(200);
        assert!(!list.items().is_empty(), "{role}");
        selected.push(texts(&list.body, "login"));
    }
    assert!(
        selected[0].contains(&"ben".to_owned()) && selected[1].contains(&"cleo".to_owned()),
        "{selected:?}"
    );
    let mut selected = selected.concat();
    let mut all =
        texts(&upstream.get(&ada, &format!("{}/members", platform.by_slug)).body, "login");
    selected.sort();
    all.sort();
    assert_eq!(selected, all);
}

#[test]
pub fn the_team_must_be_visible_to_the_caller() {
    let mut upstream = Upstream::new();
    let (ben, cleo) = (upstream.classic("ben"), upstream.classic("cleo"));
    let secret = team(&mut upstream, "acme", "incident-response");
    assert_eq!(secret.view["privacy"], "secret");
    for address in secret.addresses() {
        upstream.get(&cleo, &format!("{address}/members")).expect_status(200);
        upstream.get(&ben, &format!("{address}/members")).expect_status(404);
    }
}

#[test]
pub fn invitations_and_members_are_paged() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let platform = platform(&mut upstream);
    let invitation = json!({ "email": "second@example.org", "team_ids": [platform.id()] });
    upstream.post(&ada, "/orgs/acme/invitations", &invitation).expect_status(201);
    for list in ["members", "invitations"] {
        let path = format!("{}/{list}", platform.by_slug);
        let whole = upstream.get(&ada, &path).expect_status(200);
        let second = upstream.get(&ada, &format!("{path}?per_page=1&page=2")).expect_status(200);
        assert_eq!(second.items(), &whole.items()[1..2], "{path}");
        assert!(second.link("prev").is_some(), "{path}");
    }
}

#[test]
pub fn a_membership_is_read() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    for address in platform(&mut upstream).addresses() {
        let seen = upstream.get(&ada, &format!("{address}/memberships/cleo")).expect_status(200);
        assert_shape(&seen.body, &TEAM_MEMBERSHIP);
        upstream.get(&ada, &format!("{address}/memberships/triage-bot")).expect_status(404);
        upstream.get(&ada, &format!("{address}/memberships/nobody-at-all")).expect_status(404);
    }
}

#[test]
pub fn the_address_of_a_membership_leads_to_it() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let platform = platform(&mut upstream);
    let seen = upstream
        .get(&ada, &format!("{}/memberships/cleo", platform.by_slug))
        .expect_status(200)
        .body;
    let address =
        seen["url"].as_str().and_then(|url| url.strip_prefix(BASE)).expect("an address of the API");
    assert_eq!(upstream.get(&ada, address).expect_status(200).body, seen);
}

#[test]
pub fn a_membership_is_set() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    for address in platform(&mut upstream).addresses() {
        for role in ["member", "maintainer"] {
            let path = format!("{address}/memberships/scan-bot");
            let set = upstream.put(&ada, &path, &json!({ "role": role })).expect_status(200);
            assert_shape(&set.body, &TEAM_MEMBERSHIP);
            assert_eq!((&set.body["role"], &set.body["state"]), (&json!(role), &json!("active")));
        }
        upstream
            .put(&ada, &format!("{address}/memberships/finn"), &json!({ "role": "member" }))
            .expect_status(200);
        let pending = upstream.get(&ada, &format!("{address}/memberships/finn")).expect_status(200);
        assert_shape(&pending.body, &TEAM_MEMBERSHIP);
        upstream.put(&ada, &format!("{address}/memberships/globex"), &json!({})).expect_status(422);
    }
    let dan = upstream.classic("dan");
    for address in synchronised(&mut upstream).addresses() {
        upstream
            .put(&dan, &format!("{address}/memberships/gwen"), &json!({ "role": "member" }))
            .expect_status(403);
        upstream
            .put(&dan, &format!("{address}/memberships/dan"), &json!({ "role": "member" }))
            .expect_status(403);
    }
}

#[test]
pub fn the_role_is_optional() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let platform = platform(&mut upstream);
    for (body, person) in [("{}", "scan-bot"), ("", "triage-bot")] {
        let request = crate::kit::TestRequest::new(
            "PUT",
            &format!("{}/memberships/{person}", platform.by_slug),
        )
        .by(&ada)
        .text(body);
        let set = upstream.send(&request).expect_status(200);
        assert_shape(&set.body, &TEAM_MEMBERSHIP);
    }
    upstream
        .put(&ada, &format!("{}/memberships/cleo", platform.by_slug), &json!({ "role": 7 }))
        .assert_names_field("role");
}

#[test]
pub fn a_membership_is_removed() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let platform = platform(&mut upstream);
    for (address, person) in platform.addresses().into_iter().zip(["cleo", "ben"]) {
        let path = format!("{address}/memberships/{person}");
        assert_eq!(upstream.delete(&ada, &path).expect_status(204).bytes.len(), 0);
        upstream.get(&ada, &path).expect_status(404);
    }
    let dan = upstream.classic("dan");
    for address in synchronised(&mut upstream).addresses() {
        upstream.delete(&dan, &format!("{address}/memberships/dan")).expect_status(403);
        upstream.get(&dan, &format!("{address}/memberships/dan")).expect_status(200);
    }
}
