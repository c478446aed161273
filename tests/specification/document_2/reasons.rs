//! Reasons of notifications: the cause of each reason, and its duration.

use serde_json::json;

use crate::document_2::events::{change_issue, comment, latest, occur, open_issue, path, watch};
use crate::kit::Upstream;
use crate::rows::document_2::notifications::THREAD;
use crate::shape::assert_shape;

/// Asserts that cleo was notified for this reason.
#[track_caller]
fn assert_notified(upstream: &mut Upstream, reason: &str) {
    let thread = latest(upstream, "cleo");
    assert_shape(&thread, &THREAD);
    assert_eq!(thread["reason"], reason);
}

#[test]
pub fn approval_requested_is_a_deployment_to_approve() {
    let mut upstream = Upstream::new();
    occur(&mut upstream, "approval_requested", "cleo");
    assert_notified(&mut upstream, "approval_requested");
}

#[test]
pub fn assign_is_an_assignment_to_the_issue() {
    let mut upstream = Upstream::new();
    let number = open_issue(&mut upstream, "ben", "Who does it?");
    change_issue(&mut upstream, "ben", number, &json!({ "assignees": ["cleo"] }));
    assert_notified(&mut upstream, "assign");
}

#[test]
pub fn author_is_the_creation_of_the_thread() {
    let mut upstream = Upstream::new();
    let number = open_issue(&mut upstream, "cleo", "Who does it?");
    comment(&mut upstream, "ben", number, "Somebody will");
    assert_notified(&mut upstream, "author");
}

#[test]
pub fn ci_activity_is_a_workflow_run_that_completed() {
    let mut upstream = Upstream::new();
    occur(&mut upstream, "ci_activity", "cleo");
    assert_notified(&mut upstream, "ci_activity");
}

#[test]
pub fn comment_is_a_comment_of_ones_own() {
    let mut upstream = Upstream::new();
    let number = open_issue(&mut upstream, "ben", "Who does it?");
    comment(&mut upstream, "cleo", number, "Not me");
    comment(&mut upstream, "ben", number, "A pity");
    assert_notified(&mut upstream, "comment");
}

#[test]
pub fn invitation_is_an_accepted_repository_invitation() {
    let mut upstream = Upstream::new();
    occur(&mut upstream, "invitation", "cleo");
    assert_notified(&mut upstream, "invitation");
}

#[test]
pub fn manual_is_a_subscription_to_the_thread() {
    let mut upstream = Upstream::new();
    let cleo = upstream.classic("cleo");
    watch(&mut upstream, "cleo");
    let number = open_issue(&mut upstream, "ben", "Nobody in particular");
    let subscription = format!("{}/subscription", path(&latest(&mut upstream, "cleo")));
    upstream.put(&cleo, &subscription, &json!({ "ignored": false })).expect_status(200);
    comment(&mut upstream, "ben", number, "Anybody?");
    assert_notified(&mut upstream, "manual");
}

#[test]
pub fn member_feature_requested_is_a_members_request_to_an_owner() {
    let mut upstream = Upstream::new();
    upstream.pass(60);
    let before = latest(&mut upstream, "ada")["id"].clone();
    occur(&mut upstream, "member_feature_requested", "ada");
    let reported = latest(&mut upstream, "ada");
    assert_shape(&reported, &THREAD);
    assert_ne!(reported["id"], before);
    assert_eq!(reported["reason"], "member_feature_requested");
}

#[test]
pub fn mention_is_a_mention_by_name() {
    let mut upstream = Upstream::new();
    let number = open_issue(&mut upstream, "ben", "Who does it?");
    comment(&mut upstream, "ben", number, "You, @cleo?");
    assert_notified(&mut upstream, "mention");
}

/// Opens a pull request as ben with a review request for a person or a team.
fn request_review(upstream: &mut Upstream, whom: (&str, &str)) {
    upstream.pass(60);
    let opened = upstream.event(
        &json!({ "type": "pull_request_opened", "repository": "acme/widgets", "actor": "ben" }),
    );
    upstream.pass(60);
    let (key, name) = whom;
    let request = json!({ "type": "review_requested", "repository": "acme/widgets", "actor": "ben", "number": opened.body["id"], key: name });
    upstream.event(&request);
}

#[test]
pub fn review_requested_is_a_review_by_a_person() {
    let mut upstream = Upstream::new();
    request_review(&mut upstream, ("user", "cleo"));
    assert_notified(&mut upstream, "review_requested");
    assert_eq!(latest(&mut upstream, "cleo")["subject"]["type"], "PullRequest");
}

#[test]
pub fn review_requested_is_a_review_by_a_team() {
    let mut upstream = Upstream::new();
    request_review(&mut upstream, ("team", "acme/platform"));
    assert_notified(&mut upstream, "review_requested");
}

#[test]
pub fn state_change_is_a_change_of_the_state() {
    let mut upstream = Upstream::new();
    let number = open_issue(&mut upstream, "ben", "Who does it?");
    change_issue(&mut upstream, "cleo", number, &json!({ "state": "closed" }));
    comment(&mut upstream, "ben", number, "Why?");
    assert_notified(&mut upstream, "state_change");
}

#[test]
pub fn subscribed_is_a_watched_repository() {
    let mut upstream = Upstream::new();
    watch(&mut upstream, "cleo");
    open_issue(&mut upstream, "ben", "Nobody in particular");
    assert_notified(&mut upstream, "subscribed");
}

#[test]
pub fn team_mention_is_a_mention_of_an_own_team() {
    let mut upstream = Upstream::new();
    let number = open_issue(&mut upstream, "ada", "Who does it?");
    comment(&mut upstream, "ada", number, "Perhaps @acme/platform");
    assert_notified(&mut upstream, "team_mention");
}

#[test]
pub fn the_reason_stays_mention_after_a_mention() {
    let mut upstream = Upstream::new();
    let number = open_issue(&mut upstream, "ben", "Look, @cleo");
    let first = latest(&mut upstream, "cleo");
    for person in ["ben", "ada"] {
        comment(&mut upstream, person, number, "And more");
        let again = latest(&mut upstream, "cleo");
        assert_eq!(again["id"], first["id"], "it is one thread");
        assert!(again["updated_at"].as_str() > first["updated_at"].as_str());
        assert_notified(&mut upstream, "mention");
    }
}

#[test]
pub fn a_mention_replaces_an_earlier_reason() {
    let mut upstream = Upstream::new();
    watch(&mut upstream, "cleo");
    let number = open_issue(&mut upstream, "ben", "Nobody in particular");
    assert_notified(&mut upstream, "subscribed");
    comment(&mut upstream, "ben", number, "You, @cleo?");
    assert_notified(&mut upstream, "mention");
    comment(&mut upstream, "ben", number, "Anybody?");
    assert_notified(&mut upstream, "mention");
}

#[test]
pub fn a_later_reason_replaces_an_earlier_one() {
    let mut upstream = Upstream::new();
    watch(&mut upstream, "cleo");
    let number = open_issue(&mut upstream, "ben", "Nobody in particular");
    assert_notified(&mut upstream, "subscribed");
    change_issue(&mut upstream, "ben", number, &json!({ "assignees": ["cleo"] }));
    assert_notified(&mut upstream, "assign");
}

#[test]
pub fn the_reason_is_kept_by_thread() {
    let mut upstream = Upstream::new();
    let first = open_issue(&mut upstream, "ben", "Look, @cleo");
    let second = open_issue(&mut upstream, "cleo", "Who does it?");
    comment(&mut upstream, "ben", second, "Not me");
    assert_notified(&mut upstream, "author");
    comment(&mut upstream, "ben", first, "And more");
    assert_notified(&mut upstream, "mention");
}
