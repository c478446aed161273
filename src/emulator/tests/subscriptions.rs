//! Document 2, Thread subscription.

use serde_json::{Value, json};

use super::*;

const CLEO: &str = "emu_classic_cleo_all_scopes";

/// Cleo does not watch acme/sprockets; somebody mentions her there. The path of her thread.
fn mentioned(upstream: &mut Upstream) -> String {
    happens(upstream, "mention");
    let threads = upstream.get(CLEO, "/notifications");
    format!("/notifications/threads/{}", threads.items()[0]["id"].as_str().expect("an id"))
}

fn happens(upstream: &mut Upstream, kind: &str) {
    let event = json!({ "type": kind, "repository": "acme/sprockets", "actor": "ben", "number": 2, "user": "cleo" });
    upstream.post(NOBODY, "/_emulator/events", &event).assert_status(201);
}

#[test]
fn a_subscription_is_created_when_the_user_participates() {
    let mut upstream = Upstream::new();
    let path = mentioned(&mut upstream);
    let subscription = upstream.get(CLEO, &format!("{path}/subscription")).assert_status(200);
    assert_eq!(
        (&subscription.body["subscribed"], &subscription.body["ignored"], &subscription.body["reason"]),
        (&json!(true), &json!(false), &json!("mention"))
    );
    for field in ["created_at", "url", "thread_url"] {
        assert!(subscription.body[field].is_string(), "{field}");
    }
}

#[test]
fn a_watcher_that_never_took_part_has_no_subscription() {
    let mut upstream = Upstream::new();
    let threads = upstream.get(ADA, "/notifications");
    let watched = threads.items().iter().find(|thread| thread["reason"] == "subscribed").expect("the seed has one");
    let path = format!("/notifications/threads/{}/subscription", watched["id"].as_str().expect("an id"));
    upstream.get(ADA, &path).assert_status(404);
    let subscribed = upstream.put(ADA, &path, &json!({})).assert_status(200);
    assert_eq!(subscribed.body["subscribed"], true);
}

#[test]
fn an_ignored_thread_blocks_all_its_notifications() {
    let mut upstream = Upstream::new();
    let path = mentioned(&mut upstream);
    let ignored = upstream.put(CLEO, &format!("{path}/subscription"), &json!({ "ignored": true })).assert_status(200);
    assert_eq!((&ignored.body["subscribed"], &ignored.body["ignored"]), (&json!(false), &json!(true)));
    upstream.patch(CLEO, &path, &Value::Null);
    happens(&mut upstream, "mention");
    assert_eq!(upstream.get(CLEO, &path).body["unread"], false);
}

#[test]
fn a_deleted_subscription_is_muted_until_the_user_is_mentioned() {
    let mut upstream = Upstream::new();
    let path = mentioned(&mut upstream);
    upstream.patch(CLEO, &path, &Value::Null);
    upstream.delete(CLEO, &format!("{path}/subscription")).assert_status(204);
    upstream.get(CLEO, &format!("{path}/subscription")).assert_status(404);
    let other = json!({ "type": "comment", "repository": "acme/sprockets", "actor": "ada", "number": 2 });
    upstream.post(NOBODY, "/_emulator/events", &other).assert_status(201);
    assert_eq!(upstream.get(CLEO, &path).body["unread"], false, "muted");
    happens(&mut upstream, "mention");
    assert_eq!(upstream.get(CLEO, &path).body["unread"], true, "mentioned");
    upstream.get(CLEO, &format!("{path}/subscription")).assert_status(200);
}

#[test]
fn a_deleted_subscription_of_a_watched_repository_still_notifies() {
    let mut upstream = Upstream::new();
    let threads = upstream.get(BEN, "/notifications");
    let path = format!("/notifications/threads/{}", threads.items()[0]["id"].as_str().expect("an id"));
    let number: u64 = threads.items()[0]["subject"]["url"].as_str().and_then(|url| url.rsplit('/').next()?.parse().ok()).expect("a number");
    upstream.delete(BEN, &format!("{path}/subscription")).assert_status(204);
    upstream.patch(BEN, &path, &Value::Null);
    let event = json!({ "type": "comment", "repository": "acme/widgets", "actor": "ada", "number": number });
    upstream.post(NOBODY, "/_emulator/events", &event).assert_status(201);
    assert_eq!(upstream.get(BEN, &path).body["unread"], true);
}

#[test]
fn ignored_must_be_a_boolean() {
    let mut upstream = Upstream::new();
    let path = mentioned(&mut upstream);
    upstream.put(CLEO, &format!("{path}/subscription"), &json!({ "ignored": "yes" })).assert_names_field("ignored");
}
