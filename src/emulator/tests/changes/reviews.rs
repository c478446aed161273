//! Tests the events of reviews, and of review, commit and edited comments.

use serde_json::{Value, json};

use super::*;

#[test]
fn a_submitted_review_raises_its_event_and_notifies_the_author() {
    let mut observed = Observed::new();
    let number = observed.pull();
    let pull = format!("/pulls/{number}");
    let reviewers = on(&format!("{pull}/requested_reviewers"));
    observed.upstream.post(BEN, &reviewers, &json!({ "reviewers": ["ada"] })).assert_status(201);
    observed.deliveries();
    observed.upstream.get(ADA, &on("/events"));
    let review = json!({ "event": "REQUEST_CHANGES", "body": "No, ask @cleo" });
    let made = observed
        .upstream
        .post(ADA, &on(&format!("{pull}/reviews")), &review)
        .assert_status(201)
        .body;
    assert_eq!(made["state"], "CHANGES_REQUESTED");
    assert!(made["submitted_at"].is_string() && made["commit_id"].is_string());
    let payload = observed.assert_delivered(&["pull_request_review submitted"]).remove(0);
    assert_eq!(payload["review"]["state"], "changes_requested");
    assert_eq!(payload["review"]["user"]["login"], "ada");
    assert_eq!(payload["pull_request"]["number"], number);
    observed.assert_notified(BEN, &pull, "author");
    observed.assert_notified(CLEO, &pull, "mention");
    let left = observed.upstream.get(ADA, &reviewers).body;
    assert_eq!(left["users"], json!([]), "the review was given");
    let timeline = observed.upstream.get(ADA, &on(&format!("/issues/{number}/timeline"))).body;
    let reviewed = timeline.as_array().into_iter().flatten().find(|one| one["event"] == "reviewed");
    assert_eq!(reviewed.map(|one| &one["state"]), Some(&json!("changes_requested")));
    let own = on(&format!("{pull}/reviews/{}", made["id"]));
    observed.upstream.put(ADA, &own, &json!({ "body": "Yes" })).assert_status(200);
    let payload = observed.assert_delivered(&["pull_request_review edited"]).remove(0);
    assert_eq!(payload["changes"]["body"]["from"], "No, ask @cleo");
    let message = json!({ "message": "Old" });
    observed.upstream.put(BEN, &format!("{own}/dismissals"), &message).assert_status(200);
    let payload = observed.assert_delivered(&["pull_request_review dismissed"]).remove(0);
    assert_eq!(payload["review"]["state"], "dismissed");
    assert_eq!(observed.history(number).last().map(String::as_str), Some("review_dismissed"));
}

#[test]
fn a_pending_review_raises_its_event_when_it_is_submitted() {
    let mut observed = Observed::new();
    let pull = format!("/pulls/{}", observed.pull());
    let reviews = on(&format!("{pull}/reviews"));
    let made = observed.upstream.post(ADA, &reviews, &json!({ "body": "x" })).assert_status(201);
    assert_eq!(made.body["state"], "PENDING");
    observed.assert_delivered(&[]);
    observed.assert_not_notified(BEN, &pull);
    let events = format!("{reviews}/{}/events", made.body["id"]);
    observed.upstream.post(ADA, &events, &json!({})).assert_names_field("event");
    let approve = json!({ "event": "APPROVE" });
    let submitted = observed.upstream.post(ADA, &events, &approve).assert_status(200).body;
    assert_eq!(submitted["state"], "APPROVED");
    observed.assert_delivered(&["pull_request_review submitted"]);
    observed.assert_notified(BEN, &pull, "author");
    observed.upstream.post(ADA, &events, &approve).assert_names_field("event");
}

#[test]
fn a_review_is_validated() {
    let mut observed = Observed::new();
    let reviews = on(&format!("/pulls/{}/reviews", observed.pull()));
    for (token, body, field) in [
        (ADA, json!({ "event": "MAYBE" }), "event"),
        (ADA, json!({ "event": "COMMENT" }), "body"),
        (ADA, json!({ "event": "REQUEST_CHANGES", "body": "" }), "body"),
        (ADA, json!({ "event": 1 }), "event"),
        (ADA, json!({ "event": "APPROVE", "comments": [{ "body": "x" }] }), "comments.path"),
        (ADA, json!({ "event": "APPROVE", "commit_id": "nothing" }), "commit_id"),
        (BEN, json!({ "event": "APPROVE" }), "event"),
    ] {
        observed.upstream.post(token, &reviews, &body).assert_names_field(field);
    }
    observed.assert_delivered(&[]);
}

#[test]
fn a_review_comment_raises_its_events_and_mentions() {
    let mut observed = Observed::new();
    let pull = format!("/pulls/{}", observed.pull());
    let comments = on(&format!("{pull}/comments"));
    let sha = observed.upstream.get(ADA, &on("/branches/topic")).body["commit"]["sha"].clone();
    let sent = json!({ "body": "Here, @cleo", "path": "topic.md", "line": 1, "commit_id": sha });
    let made = observed.upstream.post(ADA, &comments, &sent).assert_status(201).body;
    let created = "pull_request_review_comment created";
    let payload = observed.assert_delivered(&[created]).remove(0);
    assert_eq!(payload["comment"]["id"], made["id"]);
    assert_eq!(payload["comment"]["path"], "topic.md");
    assert!(payload["pull_request"]["number"].is_u64());
    observed.assert_fed(&["PullRequestReviewCommentEvent created"]);
    let thread = observed.assert_notified(CLEO, &pull, "mention");
    let own = on(&format!("/pulls/comments/{}", made["id"]));
    assert_eq!(thread["subject"]["latest_comment_url"], format!("http://upstream.test{own}"));
    observed.assert_notified(BEN, &pull, "author");
    observed.upstream.patch(ADA, &own, &json!({ "body": "There, @dan" })).assert_status(200);
    let payload = observed.assert_delivered(&["pull_request_review_comment edited"]).remove(0);
    assert_eq!(payload["changes"]["body"]["from"], "Here, @cleo");
    observed.assert_notified(DAN, &pull, "mention");
    observed.assert_not_notified(BEN, &pull);
    let reply = format!("{comments}/{}/replies", made["id"]);
    let replied =
        observed.upstream.post(BEN, &reply, &json!({ "body": "Done" })).assert_status(201);
    assert_eq!(replied.body["in_reply_to_id"], made["id"]);
    observed.assert_delivered(&[created]);
    assert_eq!(observed.upstream.get(ADA, &comments).items().len(), 2);
    observed.upstream.delete(ADA, &own).assert_status(204);
    observed.assert_delivered(&["pull_request_review_comment deleted"]);
    observed.upstream.post(ADA, &comments, &json!({ "body": "x" })).assert_names_field("path");
    observed.upstream.post(ADA, &comments, &json!({ "path": "x" })).assert_names_field("body");
}

#[test]
fn a_commit_comment_notifies_the_commit_author_and_mentions() {
    let mut observed = Observed::new();
    observed.pull();
    let sha = observed.upstream.get(ADA, &on("/branches/topic")).body["commit"]["sha"].clone();
    let commit = format!("/commits/{}", sha.as_str().unwrap_or(""));
    let sent = json!({ "body": "Why, @cleo?" });
    let path = on(&format!("{commit}/comments"));
    let made = observed.upstream.post(BEN, &path, &sent).assert_status(201).body;
    assert_eq!(made["commit_id"], sha);
    let payload = observed.assert_delivered(&["commit_comment created"]).remove(0);
    assert_eq!(payload["comment"]["commit_id"], sha);
    observed.assert_fed(&["CommitCommentEvent created"]);
    let thread = observed.assert_notified(CLEO, &commit, "mention");
    assert_eq!(
        (&thread["subject"]["type"], &thread["subject"]["title"]),
        (&json!("Commit"), &json!("topic"))
    );
    let own = on(&format!("/comments/{}", made["id"]));
    assert_eq!(thread["subject"]["latest_comment_url"], format!("http://upstream.test{own}"));
    observed.assert_notified(ADA, &commit, "author");
    observed.upstream.patch(BEN, &own, &json!({ "body": "Why, @dan?" })).assert_status(200);
    observed.assert_notified(DAN, &commit, "mention");
    observed.assert_not_notified(CLEO, &commit);
    observed.upstream.post(ADA, &path, &json!({ "body": "So" })).assert_status(201);
    observed.assert_notified(BEN, &commit, "comment");
    observed.upstream.post(BEN, &path, &Value::Null).assert_names_field("body");
}

#[test]
fn an_edited_comment_notifies_the_newly_mentioned_only() {
    let mut observed = Observed::new();
    let number = observed.pull();
    let pull = format!("/pulls/{number}");
    let comments = on(&format!("/issues/{number}/comments"));
    let made =
        observed.upstream.post(ADA, &comments, &json!({ "body": "@cleo" })).assert_status(201);
    observed.assert_notified(CLEO, &pull, "mention");
    observed.assert_notified(BEN, &pull, "author");
    let own = on(&format!("/issues/comments/{}", made.body["id"]));
    let edited = json!({ "body": "@cleo @dan" });
    observed.upstream.patch(ADA, &own, &edited).assert_status(200);
    observed.assert_notified(DAN, &pull, "mention");
    observed.assert_not_notified(CLEO, &pull);
    observed.assert_not_notified(BEN, &pull);
}
