//! Tests the webhook events of state changes (SPECIFICATION, "Events").

use serde_json::{Value, json};

use crate::emulator::tests::*;

const WIDGETS: &str = "/repos/acme/widgets";

fn listening() -> (Upstream, String) {
    let mut upstream = Upstream::new();
    let hook =
        json!({ "name": "web", "config": { "url": "https://example.com/" }, "events": ["*"] });
    let id = upstream.post(ADA, "/orgs/acme/hooks", &hook).assert_status(201).body["id"].clone();
    (upstream, format!("/orgs/acme/hooks/{id}/deliveries"))
}

/// Returns the events since the last call, oldest first: `event action`, and the payloads.
fn new_events(
    upstream: &mut Upstream,
    deliveries: &str,
    seen: &mut usize,
) -> (Vec<String>, Vec<Value>) {
    let mut all =
        upstream.get(ADA, &format!("{deliveries}?per_page=100")).assert_status(200).items().clone();
    all.reverse();
    let new: Vec<Value> = all.split_off(*seen);
    *seen += new.len();
    let name = |delivery: &Value| {
        format!(
            "{} {}",
            delivery["event"].as_str().unwrap_or(""),
            delivery["action"].as_str().unwrap_or("-")
        )
    };
    let payload = |delivery: &Value| {
        upstream.get(ADA, &format!("{deliveries}/{}", delivery["id"])).body["request"]["payload"]
            .clone()
    };
    (new.iter().map(name).collect(), new.iter().map(payload).collect())
}

#[test]
fn an_opened_issue_event_names_issue_repository_and_sender() {
    let (mut upstream, deliveries) = listening();
    upstream.post(BEN, &format!("{WIDGETS}/issues"), &json!({ "title": "New" })).assert_status(201);
    let (names, payloads) = new_events(&mut upstream, &deliveries, &mut 0);
    assert_eq!(names, ["issues opened"]);
    let payload = &payloads[0];
    assert_eq!((&payload["action"], &payload["issue"]["title"]), (&json!("opened"), &json!("New")));
    assert_eq!(
        (
            &payload["repository"]["full_name"],
            &payload["organization"]["login"],
            &payload["sender"]["login"]
        ),
        (&json!("acme/widgets"), &json!("acme"), &json!("ben"))
    );
    assert_eq!(
        payload["issue"]["url"].as_str().map(|url| url.starts_with("http://upstream.test/repos/")),
        Some(true)
    );
    assert!(payload.get("installation").is_none(), "that is for apps");
    assert!(
        payload["repository"].get("temp_clone_token").is_none()
            && payload["repository"].get("permissions").is_none()
    );
}

#[test]
fn an_issue_update_sends_one_event_per_change() {
    let (mut upstream, deliveries) = listening();
    let mut seen = 0;
    let issue = format!("{WIDGETS}/issues/2");
    upstream.patch(ADA, &issue, &json!({ "labels": [], "assignees": [] })).assert_status(200);
    new_events(&mut upstream, &deliveries, &mut seen);
    let change = json!({ "title": "Other", "body": "text", "labels": ["bug", "a new one"], "assignees": ["ben"], "milestone": 1 });
    upstream.patch(ADA, &issue, &change).assert_status(200);
    let (names, payloads) = new_events(&mut upstream, &deliveries, &mut seen);
    assert_eq!(
        names,
        [
            "label created",
            "issues edited",
            "issues labeled",
            "issues labeled",
            "issues assigned",
            "issues milestoned"
        ]
    );
    assert!(
        payloads[1]["changes"]["title"]["from"].is_string()
            && payloads[1]["issue"]["title"] == "Other"
    );
    assert_eq!(
        (&payloads[2]["label"]["name"], &payloads[4]["assignee"]["login"]),
        (&json!("bug"), &json!("ben"))
    );
    upstream.patch(ADA, &issue, &json!({ "state": "closed" })).assert_status(200);
    upstream.patch(ADA, &issue, &json!({ "state": "closed" })).assert_status(200);
    upstream
        .patch(
            ADA,
            &issue,
            &json!({ "state": "open", "labels": ["bug"], "assignees": [], "milestone": null }),
        )
        .assert_status(200);
    let (names, _) = new_events(&mut upstream, &deliveries, &mut seen);
    assert_eq!(
        names,
        [
            "issues closed",
            "issues reopened",
            "issues unlabeled",
            "issues unassigned",
            "issues demilestoned"
        ]
    );
}

#[test]
fn each_label_change_of_an_issue_sends_one_event() {
    let (mut upstream, deliveries) = listening();
    let mut seen = 0;
    upstream.put(ADA, &format!("{WIDGETS}/issues/2/labels"), &json!([])).assert_status(200);
    new_events(&mut upstream, &deliveries, &mut seen);
    upstream
        .post(ADA, &format!("{WIDGETS}/issues/2/labels"), &json!({ "labels": ["bug"] }))
        .assert_status(200);
    upstream
        .post(ADA, &format!("{WIDGETS}/issues/2/labels"), &json!({ "labels": ["bug"] }))
        .assert_status(200);
    upstream.delete(ADA, &format!("{WIDGETS}/issues/2/labels/bug")).assert_status(200);
    assert_eq!(
        new_events(&mut upstream, &deliveries, &mut seen).0,
        ["issues labeled", "issues unlabeled"]
    );
}

#[test]
fn a_closed_pull_sends_a_pull_request_event() {
    let (mut upstream, deliveries) = listening();
    let number = upstream.get(ADA, &format!("{WIDGETS}/pulls")).items()[0]["number"].clone();
    upstream
        .patch(ADA, &format!("{WIDGETS}/issues/{number}"), &json!({ "state": "closed" }))
        .assert_status(200);
    let (names, payloads) = new_events(&mut upstream, &deliveries, &mut 0);
    assert_eq!(names, ["pull_request closed"]);
    assert_eq!(
        (&payloads[0]["number"], &payloads[0]["pull_request"]["state"]),
        (&number, &json!("closed"))
    );
}

#[test]
fn a_comment_sends_created_edited_and_deleted_events() {
    let (mut upstream, deliveries) = listening();
    let comment = upstream
        .post(BEN, &format!("{WIDGETS}/issues/2/comments"), &json!({ "body": "first" }))
        .assert_status(201);
    let path = format!("{WIDGETS}/issues/comments/{}", comment.body["id"]);
    upstream.patch(BEN, &path, &json!({ "body": "second" })).assert_status(200);
    upstream.delete(BEN, &path).assert_status(204);
    let (names, payloads) = new_events(&mut upstream, &deliveries, &mut 0);
    assert_eq!(names, ["issue_comment created", "issue_comment edited", "issue_comment deleted"]);
    assert_eq!(
        (&payloads[0]["comment"]["body"], &payloads[0]["issue"]["number"]),
        (&json!("first"), &json!(2))
    );
    assert_eq!(
        (&payloads[1]["changes"]["body"]["from"], &payloads[1]["comment"]["body"]),
        (&json!("first"), &json!("second"))
    );
    assert_eq!(payloads[2]["comment"]["body"], "second");
}

#[test]
fn labels_milestones_and_releases_send_events() {
    let (mut upstream, deliveries) = listening();
    upstream
        .post(ADA, &format!("{WIDGETS}/labels"), &json!({ "name": "new", "color": "ff0000" }))
        .assert_status(201);
    upstream
        .patch(ADA, &format!("{WIDGETS}/labels/new"), &json!({ "new_name": "newer" }))
        .assert_status(200);
    upstream.delete(ADA, &format!("{WIDGETS}/labels/newer")).assert_status(204);
    upstream
        .post(ADA, &format!("{WIDGETS}/milestones"), &json!({ "title": "Two" }))
        .assert_status(201);
    upstream
        .post(ADA, &format!("{WIDGETS}/releases"), &json!({ "tag_name": "v9" }))
        .assert_status(201);
    let (names, payloads) = new_events(&mut upstream, &deliveries, &mut 0);
    assert_eq!(
        names,
        [
            "label created",
            "label edited",
            "label deleted",
            "milestone created",
            "release published"
        ]
    );
    assert_eq!(
        (&payloads[1]["label"]["name"], &payloads[1]["changes"]["name"]["from"]),
        (&json!("newer"), &json!("new"))
    );
    assert_eq!(
        (&payloads[2]["label"]["name"], &payloads[3]["milestone"]["title"]),
        (&json!("newer"), &json!("Two"))
    );
    assert_eq!(payloads[4]["release"]["tag_name"], "v9");
}

#[test]
fn a_repository_update_sends_one_event_per_change() {
    let (mut upstream, deliveries) = listening();
    let change =
        json!({ "description": "Else", "name": "gizmos", "archived": true, "private": true });
    upstream.patch(ADA, WIDGETS, &change).assert_status(200);
    let (names, payloads) = new_events(&mut upstream, &deliveries, &mut 0);
    assert_eq!(
        names,
        ["repository edited", "repository renamed", "repository archived", "repository privatized"]
    );
    assert!(payloads[0]["changes"]["description"]["from"].is_string());
    assert_eq!(payloads[1]["changes"]["repository"]["name"]["from"], "widgets");
    assert!(payloads.iter().all(|payload| payload["repository"]["full_name"] == "acme/gizmos"));
    upstream.patch(ADA, "/repos/acme/gizmos", &json!({ "description": "Else" })).assert_status(200);
    assert_eq!(
        new_events(&mut upstream, &deliveries, &mut 4).0,
        Vec::<String>::new(),
        "nothing changed"
    );
}

#[test]
fn a_refused_request_sends_no_event() {
    let (mut upstream, deliveries) = listening();
    upstream.post(BEN, &format!("{WIDGETS}/issues"), &json!({ "title": 7 })).assert_status(422);
    upstream
        .patch(BEN, &format!("{WIDGETS}/issues/9999"), &json!({ "title": "x" }))
        .assert_status(404);
    upstream.post(DAN, &format!("{WIDGETS}/labels"), &json!({ "name": "x" })).assert_status(403);
    assert!(new_events(&mut upstream, &deliveries, &mut 0).0.is_empty());
}

#[test]
fn the_control_plane_triggers_any_event() {
    let (mut upstream, deliveries) = listening();
    let mut happen =
        |event: &Value| upstream.post(NOBODY, "/_emulator/events", event).assert_status(201).body;
    happen(&json!({ "type": "issue_opened", "repository": "acme/widgets" }));
    happen(&json!({ "type": "comment", "repository": "acme/widgets" }));
    happen(&json!({ "type": "mention", "repository": "acme/widgets", "user": "cleo" }));
    let pull = happen(
        &json!({ "type": "pull_request_opened", "repository": "acme/widgets", "actor": "cleo", "text": "Mine", "branch": "b" }),
    );
    let given = json!({ "deployment": { "id": 7 }, "sender": "me" });
    let custom = json!({ "type": "custom", "event": "deployment", "action": "created", "repository": "acme/widgets", "payload": given });
    assert_eq!(happen(&custom)["deliveries"], 2, "the webhook and the app");
    happen(
        &json!({ "type": "custom", "event": "organization", "organization": "acme", "actor": "ada" }),
    );
    let (names, payloads) = new_events(&mut upstream, &deliveries, &mut 0);
    let expected = [
        "issues opened",
        "issue_comment created",
        "issue_comment created",
        "pull_request opened",
        "deployment created",
        "organization ",
    ];
    assert_eq!(names, expected);
    assert_eq!(
        (&payloads[3]["pull_request"]["head"]["ref"], &payloads[3]["number"]),
        (&json!("b"), &pull["id"])
    );
    assert_eq!(payloads[3]["repository"]["url"], "http://upstream.test/repos/acme/widgets");
    assert_eq!(
        (&payloads[4]["deployment"]["id"], &payloads[4]["action"], &payloads[4]["sender"]),
        (&json!(7), &json!("created"), &json!("me"))
    );
    assert_eq!(
        (payloads[5].get("repository"), &payloads[5]["organization"]["login"]),
        (None, &json!("acme"))
    );
    upstream.get(ADA, &format!("{WIDGETS}/pulls/{}", pull["id"])).assert_status(200);
}

#[test]
fn a_malformed_trigger_is_422_with_a_message() {
    let (mut upstream, deliveries) = listening();
    let cases = [
        json!({ "type": "push" }),
        json!({ "type": "push", "repository": "acme" }),
        json!({ "type": "push", "repository": 7 }),
        json!({ "type": "push", "repository": "acme/widgets", "branch": "none" }),
        json!({ "type": "push", "repository": "acme/widgets", "actor": "nobody" }),
        json!({ "type": "pull_request_opened", "repository": "acme/none" }),
        json!({ "type": "custom", "repository": "acme/widgets" }),
        json!({ "type": "custom", "event": "x\ny", "repository": "acme/widgets" }),
        json!({ "type": "custom", "event": "\u{1f980}", "repository": "acme/widgets" }),
        json!({ "type": "custom", "event": "x".repeat(200), "repository": "acme/widgets" }),
        json!({ "type": "custom", "event": "x", "organization": "none" }),
        json!({ "type": "custom", "event": "x", "repository": "acme/widgets", "payload": [] }),
    ];
    for case in cases {
        let answer = upstream.post(NOBODY, "/_emulator/events", &case).assert_status(422);
        assert!(
            answer.body["message"].as_str().is_some_and(|message| !message.is_empty()),
            "{case}"
        );
    }
    assert!(new_events(&mut upstream, &deliveries, &mut 0).0.is_empty());
}

#[test]
fn a_self_hosted_caller_causes_self_hosted_payloads() {
    let (mut upstream, deliveries) = listening();
    upstream
        .post(BEN, &format!("/api/v3{WIDGETS}/issues"), &json!({ "title": "New" }))
        .assert_status(201);
    let (_, payloads) = new_events(&mut upstream, &deliveries, &mut 0);
    assert_eq!(payloads[0]["repository"]["url"], "http://upstream.test/api/v3/repos/acme/widgets");
}
