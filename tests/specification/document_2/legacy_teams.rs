//! The closing-down routes of a team by its id alone.

use serde_json::json;

use crate::document_2::paths::team;
use crate::kit::Upstream;
use crate::objects::user::USER_SUMMARY;
use crate::rows::document_2::membership::{TEAM_INVITATION, TEAM_MEMBERSHIP};
use crate::shape::{assert_shape, assert_shapes};

/// The path of an ordinary team: ben maintains it, cleo is a member.
fn platform(upstream: &mut Upstream) -> String {
    team(upstream, "acme", "platform").legacy
}

/// The path of a synchronized team; dan owns the organization.
fn synchronised(upstream: &mut Upstream) -> String {
    let staff = team(upstream, "globex", "staff");
    assert_eq!(staff.view["synchronised"], true);
    staff.legacy
}

#[test]
pub fn invitations_are_listed() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let team = platform(&mut upstream);
    let list = upstream.get(&ada, &format!("{team}/invitations")).expect_status(200);
    assert_shapes(&list.body, &TEAM_INVITATION);
}

#[test]
pub fn members_are_listed() {
    let mut upstream = Upstream::new();
    let (ada, ben) = (upstream.classic("ada"), upstream.classic("ben"));
    let platform = platform(&mut upstream);
    let whole = upstream.get(&ada, &format!("{platform}/members")).expect_status(200);
    assert_shapes(&whole.body, &USER_SUMMARY);
    let second =
        upstream.get(&ada, &format!("{platform}/members?per_page=1&page=2")).expect_status(200);
    assert_eq!(second.items(), &whole.items()[1..2]);
    let maintainers =
        upstream.get(&ada, &format!("{platform}/members?role=maintainer")).expect_status(200);
    assert!(!maintainers.items().is_empty() && maintainers.items().len() < whole.items().len());
    upstream.get(&ada, "/teams/999999999/members").expect_status(404);
    let secret = team(&mut upstream, "acme", "incident-response").legacy;
    upstream.get(&ben, &format!("{secret}/members")).expect_status(404);
}

#[test]
pub fn a_member_is_204_and_any_other_user_404() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let team = platform(&mut upstream);
    upstream.get(&ada, &format!("{team}/members/cleo")).expect_status(204);
    upstream.get(&ada, &format!("{team}/members/triage-bot")).expect_status(404);
    upstream.get(&ada, &format!("{team}/members/nobody-at-all")).expect_status(404);
}

#[test]
pub fn an_invited_person_is_not_a_member_yet() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let team = platform(&mut upstream);
    upstream
        .put(&ada, "/orgs/acme/teams/platform/memberships/dan", &json!({ "role": "member" }))
        .expect_status(200);
    assert_eq!(
        upstream.get(&ada, &format!("{team}/memberships/dan")).expect_status(200).body["state"],
        "pending"
    );
    upstream.get(&ada, &format!("{team}/members/dan")).expect_status(404);
}

#[test]
pub fn a_person_of_another_team_is_added_by_an_empty_put() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let path = format!("{}/members/scan-bot", platform(&mut upstream));
    upstream.get(&ada, &path).expect_status(404);
    upstream.put_empty(&ada, &path).expect_status(204);
    upstream.get(&ada, &path).expect_status(204);
}

#[test]
pub fn only_an_owner_or_a_maintainer_adds() {
    let mut upstream = Upstream::new();
    let (ada, ben, cleo) =
        (upstream.classic("ada"), upstream.classic("ben"), upstream.classic("cleo"));
    let team = platform(&mut upstream);
    upstream.put_empty(&cleo, &format!("{team}/members/scan-bot")).expect_status(403);
    upstream.put_empty(&ben, &format!("{team}/members/scan-bot")).expect_status(204);
    upstream.put_empty(&ada, &format!("{team}/members/build-bot")).expect_status(204);
}

#[test]
pub fn organizations_and_people_of_no_other_team_are_not_added() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let team = platform(&mut upstream);
    upstream.put_empty(&ada, &format!("{team}/members/globex")).expect_status(422);
    upstream.put_empty(&ada, &format!("{team}/members/triage-bot")).expect_status(422);
}

#[test]
pub fn the_person_must_already_belong_to_the_organization() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let team = platform(&mut upstream);
    upstream.put_empty(&ada, &format!("{team}/members/dan")).expect_status(422);
    upstream.get(&ada, &format!("{team}/members/dan")).expect_status(404);
    upstream.get(&ada, &format!("{team}/memberships/dan")).expect_status(404);
}

#[test]
pub fn a_synchronised_team_is_not_found_by_a_change() {
    let mut upstream = Upstream::new();
    let dan = upstream.classic("dan");
    let team = synchronised(&mut upstream);
    upstream.put_empty(&dan, &format!("{team}/members/gwen")).expect_status(404);
    upstream.delete(&dan, &format!("{team}/members/dan")).expect_status(404);
    upstream.get(&dan, &format!("{team}/members/dan")).expect_status(204);
}

#[test]
pub fn a_member_is_removed() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let path = format!("{}/members/cleo", platform(&mut upstream));
    upstream.delete(&ada, &path).expect_status(204);
    upstream.get(&ada, &path).expect_status(404);
}

#[test]
pub fn a_membership_is_read() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let team = platform(&mut upstream);
    let seen = upstream.get(&ada, &format!("{team}/memberships/cleo")).expect_status(200);
    assert_shape(&seen.body, &TEAM_MEMBERSHIP);
    upstream.get(&ada, &format!("{team}/memberships/triage-bot")).expect_status(404);
}

/// "PUT and DELETE `/teams/{team_id}/memberships/{username}`: request and response details: not
/// shown".
#[test]
pub fn memberships_are_set_and_removed() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let path = format!("{}/memberships/scan-bot", platform(&mut upstream));
    assert_eq!(upstream.put(&ada, &path, &json!({ "role": "maintainer" })).status / 100, 2);
    upstream.get(&ada, &path).expect_status(200);
    assert_eq!(upstream.delete(&ada, &path).status / 100, 2);
    upstream.get(&ada, &path).expect_status(404);
}
