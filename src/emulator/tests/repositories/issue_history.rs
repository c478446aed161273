//! Tests locks, issue events and timelines.

use serde_json::{Value, json};

use crate::emulator::tests::*;

const ISSUE: &str = "/repos/acme/widgets/issues/2";

fn names(answer: &Answer) -> Vec<String> {
    let names = answer.items().iter().filter_map(|event| event["event"].as_str());
    names.map(str::to_owned).collect()
}

#[test]
fn a_locked_issue_has_a_reason_and_takes_no_comments_of_others() {
    let mut upstream = Upstream::new();
    let text = json!({ "body": "May I?" });
    let comments = format!("{ISSUE}/comments");
    upstream.post(DAN, &comments, &text).assert_status(201);
    let reason = json!({ "lock_reason": "too heated" });
    upstream.put(ADA, &format!("{ISSUE}/lock"), &reason).assert_status(204);
    let issue = upstream.get(DAN, ISSUE).body;
    assert_eq!(
        (&issue["locked"], &issue["active_lock_reason"]),
        (&json!(true), &json!("too heated"))
    );
    let refused = upstream.post(DAN, &comments, &text).assert_status(403);
    assert_eq!(refused.body["message"], "Unable to create comment because issue is locked.");
    upstream.post(BEN, &comments, &text).assert_status(201);
    let id = issue["node_id"].as_str().expect("a node id");
    let mutation = format!(
        "mutation {{ addComment(input: {{ subjectId: \"{id}\", body: \"May I?\" }}) {{ clientMutationId }} }}"
    );
    assert_eq!(upstream.query(DAN, &mutation)["errors"][0]["type"], "FORBIDDEN");
    upstream.delete(ADA, &format!("{ISSUE}/lock")).assert_status(204);
    assert_eq!(upstream.get(DAN, ISSUE).body["active_lock_reason"], Value::Null);
    upstream.post(DAN, &comments, &text).assert_status(201);
    let events = upstream.get(ADA, &format!("{ISSUE}/events"));
    let locked = events.items().iter().find(|event| event["event"] == "locked").expect("locked");
    assert_eq!(locked["lock_reason"], "too heated");
    assert_eq!(names(&events).last().map(String::as_str), Some("unlocked"));
}

#[test]
fn a_change_of_an_issue_is_an_issue_event() {
    let mut upstream = Upstream::new();
    let label = upstream.get(ADA, "/repos/acme/widgets/labels").body[1]["name"].clone();
    let opened = json!({ "title": "New", "body": "x" });
    let number = upstream.post(ADA, "/repos/acme/widgets/issues", &opened).assert_status(201).body
        ["number"]
        .clone();
    let issue = format!("/repos/acme/widgets/issues/{number}");
    upstream.patch(BEN, &issue, &json!({ "title": "Newer", "milestone": 1 })).assert_status(200);
    upstream
        .post(BEN, &format!("{issue}/labels"), &json!({ "labels": [label] }))
        .assert_status(200);
    upstream.delete(BEN, &format!("{issue}/labels")).assert_status(204);
    let ada = json!({ "assignees": ["ada"] });
    upstream.post(BEN, &format!("{issue}/assignees"), &ada).assert_status(201);
    upstream.send(&request(Method::DELETE, BEN, &format!("{issue}/assignees"), &[], &ada));
    upstream.pass(1);
    upstream.post(BEN, &format!("{issue}/comments"), &json!({ "body": "Hm" })).assert_status(201);
    upstream.pass(1);
    upstream.patch(BEN, &issue, &json!({ "state": "closed" })).assert_status(200);
    upstream.patch(BEN, &issue, &json!({ "state": "open" })).assert_status(200);
    let events = upstream.get(ADA, &format!("{issue}/events")).assert_status(200);
    let expected = [
        "renamed",
        "milestoned",
        "labeled",
        "unlabeled",
        "assigned",
        "unassigned",
        "closed",
        "reopened",
    ];
    assert_eq!(names(&events), expected);
    assert_eq!(events.items()[0]["rename"], json!({ "from": "New", "to": "Newer" }));
    assert_eq!(events.items()[2]["label"]["name"], label);
    assert_eq!(events.items()[4]["assignee"]["login"], "ada");
    assert!(events.items().iter().all(|event| event["actor"]["login"] == "ben"));
    let timeline = upstream.get(ADA, &format!("{issue}/timeline")).assert_status(200);
    assert_eq!(timeline.items().len(), expected.len() + 1);
    assert_eq!(
        (&timeline.items()[6]["event"], &timeline.items()[6]["body"]),
        (&json!("commented"), &json!("Hm"))
    );
    let newest = upstream.get(ADA, "/repos/acme/widgets/issues/events").assert_status(200);
    assert_eq!(
        (&newest.items()[0]["event"], &newest.items()[0]["issue"]["number"]),
        (&json!("reopened"), &number)
    );
    let url = newest.items()[0]["url"].as_str().expect("a url").replace("http://upstream.test", "");
    assert_eq!(upstream.get(ADA, &url).assert_status(200).body["id"], newest.items()[0]["id"]);
}

#[test]
fn seeded_issues_have_a_history() {
    let mut upstream = Upstream::new();
    let events = upstream.get(ADA, "/repos/acme/widgets/issues/7/events").assert_status(200);
    assert_eq!(names(&events), ["labeled", "closed"]);
    let date = events.header("last-modified").to_owned();
    assert!(!date.is_empty() && !events.header("x-poll-interval").is_empty());
    upstream
        .get_with(ADA, "/repos/acme/widgets/issues/7/events", &[("if-modified-since", &date)])
        .assert_status(304);
    let timeline = upstream.get(ADA, "/repos/acme/widgets/issues/1/timeline?per_page=100");
    assert!(timeline.assert_status(200).items().len() > 45);
    upstream.get(NOBODY, "/repos/acme/gadgets/issues/7/events").assert_status(404);
}
