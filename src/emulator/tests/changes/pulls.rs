//! Tests the events of pull requests from opening to merging, and of their reviewers.

use serde_json::{Value, json};

use super::*;
use crate::emulator::tests::repositories::propose;

#[test]
fn an_opened_pull_raises_its_event_and_mentions() {
    let mut observed = Observed::new();
    observed.upstream.put(CLEO, &on("/subscription"), &json!({ "subscribed": true }));
    propose(&mut observed.upstream, "topic");
    observed.deliveries();
    observed.fed = observed.upstream.get(ADA, &on("/events?per_page=100")).items().len();
    let wanted =
        json!({ "title": "Better", "head": "topic", "base": "main", "body": "Please, @ada" });
    let made = observed.upstream.post(BEN, &on("/pulls"), &wanted).assert_status(201).body;
    let payload = observed.assert_delivered(&["pull_request opened"]).remove(0);
    assert_eq!(payload["number"], made["number"]);
    assert_eq!(payload["pull_request"]["head"]["ref"], "topic");
    assert_eq!(payload["pull_request"]["user"]["login"], "ben");
    assert_eq!(payload["sender"]["login"], "ben");
    observed.assert_fed(&["PullRequestEvent opened"]);
    let pull = format!("/pulls/{}", made["number"]);
    let thread = observed.assert_notified(ADA, &pull, "mention");
    assert_eq!(thread["subject"]["type"], "PullRequest");
    observed.assert_notified(CLEO, &pull, "subscribed");
    observed.assert_not_notified(BEN, &pull);
    let number = made["number"].as_u64().expect("a number");
    assert_eq!(observed.history(number), ["mentioned", "subscribed"]);
}

#[test]
fn an_edited_pull_raises_one_event_with_its_changes() {
    let mut observed = Observed::new();
    let number = observed.pull();
    let pull = format!("/pulls/{number}");
    propose(&mut observed.upstream, "next");
    observed.deliveries();
    let change = json!({ "title": "Best", "body": "See @cleo", "base": "next" });
    observed.upstream.patch(BEN, &on(&pull), &change).assert_status(200);
    let payload = observed.assert_delivered(&["pull_request edited"]).remove(0);
    assert_eq!(payload["changes"]["title"]["from"], "Better");
    assert_eq!(payload["changes"]["body"]["from"], Value::Null);
    assert_eq!(payload["changes"]["base"]["ref"]["from"], "main");
    assert!(payload["changes"]["base"]["sha"]["from"].is_string());
    observed.assert_notified(CLEO, &pull, "mention");
    let expected = ["renamed", "base_ref_changed", "mentioned", "subscribed"];
    let mut history = observed.history(number);
    history.sort();
    assert_eq!(history, {
        let mut names = expected.to_vec();
        names.sort_unstable();
        names
    });
    observed.upstream.patch(BEN, &on(&pull), &change).assert_status(200);
    observed.assert_delivered(&[]);
    observed.assert_not_notified(CLEO, &pull);
}

#[test]
fn a_closed_and_reopened_pull_notifies_its_author() {
    let mut observed = Observed::new();
    let number = observed.pull();
    let pull = format!("/pulls/{number}");
    for (state, action) in [("closed", "closed"), ("open", "reopened")] {
        observed.upstream.patch(ADA, &on(&pull), &json!({ "state": state })).assert_status(200);
        let event = format!("pull_request {action}");
        let payload = observed.assert_delivered(&[&event]).remove(0);
        assert_eq!(payload["pull_request"]["state"], state);
        assert_eq!(payload["pull_request"]["merged"], false);
        observed.assert_fed(&[&format!("PullRequestEvent {action}")]);
        observed.assert_notified(BEN, &pull, "author");
    }
    assert_eq!(observed.history(number), ["closed", "reopened"]);
    observed.upstream.patch(BEN, &on(&pull), &json!({ "state": "closed" })).assert_status(200);
    observed.assert_notified(ADA, &pull, "state_change");
}

#[test]
fn a_merged_pull_raises_a_push_and_its_closing() {
    let mut observed = Observed::new();
    let number = observed.pull();
    let pull = format!("/pulls/{number}");
    let merged = observed
        .upstream
        .put(ADA, &on(&format!("{pull}/merge")), &Value::Null)
        .assert_status(200)
        .body;
    let payloads = observed.assert_delivered(&["push", "pull_request closed"]);
    assert_eq!(payloads[0]["ref"], "refs/heads/main");
    let shown = &payloads[1]["pull_request"];
    assert_eq!((&shown["merged"], &shown["state"]), (&json!(true), &json!("closed")));
    assert_eq!(shown["merge_commit_sha"], merged["sha"]);
    assert_eq!(shown["merged_by"]["login"], "ada");
    observed.assert_fed(&["PushEvent", "PullRequestEvent closed"]);
    observed.assert_notified(BEN, &pull, "author");
    assert_eq!(observed.history(number), ["merged", "closed"]);
    let events = observed.upstream.get(ADA, &on(&format!("/issues/{number}/events")));
    assert_eq!(events.items()[0]["commit_id"], merged["sha"]);
    observed.upstream.post(
        BEN,
        &on(&format!("/issues/{number}/comments")),
        &json!({ "body": "Ah" }),
    );
    observed.assert_notified(ADA, &pull, "state_change");
}

#[test]
fn a_push_to_the_head_of_a_pull_synchronizes_it() {
    let mut observed = Observed::new();
    let number = observed.pull();
    let before = observed.upstream.get(ADA, &on("/branches/topic")).body["commit"]["sha"].clone();
    let file = json!({ "message": "More", "content": "eA==", "branch": "topic" });
    observed.upstream.put(BEN, &on("/contents/more.md"), &file).assert_status(201);
    let payloads = observed.assert_delivered(&["push", "pull_request synchronize"]);
    assert_eq!(payloads[1]["number"], number);
    assert_eq!(payloads[1]["before"], before);
    assert_eq!(payloads[1]["after"], payloads[1]["pull_request"]["head"]["sha"]);
    observed.assert_fed(&["PushEvent", "PullRequestEvent synchronize"]);
}

#[test]
fn reviewers_are_notified_once_of_their_request() {
    let mut observed = Observed::new();
    let number = observed.pull();
    let pull = format!("/pulls/{number}");
    let path = on(&format!("{pull}/requested_reviewers"));
    let both = json!({ "reviewers": ["cleo", "ada"] });
    observed.upstream.post(BEN, &path, &both).assert_status(201);
    let event = "pull_request review_requested";
    let payloads = observed.assert_delivered(&[event, event]);
    let names: Vec<_> = payloads.iter().map(|one| &one["requested_reviewer"]["login"]).collect();
    assert!(names.contains(&&json!("cleo")) && names.contains(&&json!("ada")));
    observed.assert_notified(CLEO, &pull, "review_requested");
    observed.assert_notified(ADA, &pull, "review_requested");
    observed.upstream.post(BEN, &path, &both).assert_status(201);
    observed.assert_delivered(&[]);
    observed.assert_not_notified(CLEO, &pull);
    let cleo = json!({ "reviewers": ["cleo"] });
    observed.upstream.send(&request(Method::DELETE, BEN, &path, &[], &cleo)).assert_status(200);
    observed.assert_delivered(&["pull_request review_request_removed"]);
    assert_eq!(
        observed.history(number),
        ["review_requested", "review_requested", "review_request_removed"]
    );
    observed
        .upstream
        .post(BEN, &path, &json!({ "reviewers": ["ben"] }))
        .assert_names_field("reviewers");
    observed.upstream.post(BEN, &path, &json!({})).assert_names_field("reviewers");
}

#[test]
fn a_requested_team_is_shown_and_its_members_are_notified() {
    let mut observed = Observed::new();
    let pull = format!("/pulls/{}", observed.pull());
    let path = on(&format!("{pull}/requested_reviewers"));
    let team = json!({ "team_reviewers": ["platform-core"] });
    let made = observed.upstream.post(ADA, &path, &team).assert_status(201).body;
    assert_eq!(made["requested_teams"][0]["slug"], "platform-core");
    let payload = observed.assert_delivered(&["pull_request review_requested"]).remove(0);
    assert_eq!(payload["requested_team"]["slug"], "platform-core");
    observed.assert_notified(CLEO, &pull, "review_requested");
    let listed = observed.upstream.get(ADA, &path).assert_status(200).body;
    assert_eq!(listed["teams"][0]["slug"], "platform-core");
    observed
        .upstream
        .post(ADA, &path, &json!({ "team_reviewers": ["nobody"] }))
        .assert_names_field("team_reviewers");
    observed.upstream.send(&request(Method::DELETE, ADA, &path, &[], &team)).assert_status(200);
    observed.assert_delivered(&["pull_request review_request_removed"]);
}

#[test]
fn assignees_by_their_own_route_are_notified() {
    let mut observed = Observed::new();
    let number = observed.pull();
    let path = on(&format!("/issues/{number}/assignees"));
    let cleo = json!({ "assignees": ["cleo"] });
    observed.upstream.post(ADA, &path, &cleo).assert_status(201);
    let payload = observed.assert_delivered(&["pull_request assigned"]).remove(0);
    assert_eq!(payload["assignee"]["login"], "cleo");
    observed.assert_notified(CLEO, &format!("/pulls/{number}"), "assign");
    observed.upstream.send(&request(Method::DELETE, ADA, &path, &[], &cleo)).assert_status(200);
    observed.assert_delivered(&["pull_request unassigned"]);
    assert_eq!(observed.history(number), ["assigned", "unassigned"]);
    observed.upstream.post(ADA, &path, &json!({ "assignees": 1 })).assert_names_field("assignees");
}
