//! Tests thread subscriptions (SPECIFICATION, "Notifications").

use serde_json::{Value, json};

use crate::emulator::tests::*;

const CLEO: &str = "emu_classic_cleo_all_scopes";

/// Mentions Cleo, who does not watch acme/sprockets, and returns the path of her thread.
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
        (
            &subscription.body["subscribed"],
            &subscription.body["ignored"],
            &subscription.body["reason"]
        ),
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
    let watched = threads
        .items()
        .iter()
        .find(|thread| thread["reason"] == "subscribed")
        .expect("the seed has one");
    let path =
        format!("/notifications/threads/{}/subscription", watched["id"].as_str().expect("an id"));
    upstream.get(ADA, &path).assert_status(404);
    let subscribed = upstream.put(ADA, &path, &json!({})).assert_status(200);
    assert_eq!(subscribed.body["subscribed"], true);
}

#[test]
fn an_ignored_thread_blocks_all_its_notifications() {
    let mut upstream = Upstream::new();
    let path = mentioned(&mut upstream);
    let ignored = upstream
        .put(CLEO, &format!("{path}/subscription"), &json!({ "ignored": true }))
        .assert_status(200);
    assert_eq!(
        (&ignored.body["subscribed"], &ignored.body["ignored"]),
        (&json!(false), &json!(true))
    );
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
    let other =
        json!({ "type": "comment", "repository": "acme/sprockets", "actor": "ada", "number": 2 });
    upstream.post(NOBODY, "/_emulator/events", &other).assert_status(201);
    assert_eq!(upstream.get(CLEO, &path).body["unread"], false, "muted");
    happens(&mut upstream, "mention");
    assert_eq!(upstream.get(CLEO, &path).body["unread"], true, "mentioned");
    upstream.get(CLEO, &format!("{path}/subscription")).assert_status(200);
}

#[test]
fn an_unsubscribed_watcher_is_still_notified() {
    let mut upstream = Upstream::new();
    let threads = upstream.get(BEN, "/notifications");
    let thread = threads
        .items()
        .iter()
        .find(|thread| thread["subject"]["type"] == "Issue")
        .expect("one about an issue");
    let path = format!("/notifications/threads/{}", thread["id"].as_str().expect("an id"));
    let number: u64 = thread["subject"]["url"]
        .as_str()
        .and_then(|url| url.rsplit('/').next()?.parse().ok())
        .expect("a number");
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
    upstream
        .put(CLEO, &format!("{path}/subscription"), &json!({ "ignored": "yes" }))
        .assert_names_field("ignored");
}

#[test]
fn a_reply_subscribes_but_an_assignment_or_a_watch_does_not() {
    let mut upstream = Upstream::new();
    let quiet = ["assign", "state_change_of_others", "watch"];
    for (number, event) in (1..).zip(quiet) {
        if event == "watch" {
            upstream.post(
                NOBODY,
                "/_emulator/events",
                &json!({ "type": "watch", "repository": "acme/sprockets", "user": "cleo" }),
            );
        }
        let kind = if event == "assign" { "assign" } else { "comment" };
        let happened = json!({ "type": kind, "repository": "acme/sprockets", "actor": "ben", "number": number, "user": "cleo" });
        upstream.post(NOBODY, "/_emulator/events", &happened).assert_status(201);
        for thread in upstream.get(CLEO, "/notifications").items() {
            let path = format!(
                "/notifications/threads/{}/subscription",
                thread["id"].as_str().expect("an id")
            );
            upstream.get(CLEO, &path).assert_status(404);
        }
    }
    upstream.pass(5);
    upstream
        .post(CLEO, "/repos/acme/sprockets/issues/1/comments", &json!({ "body": "I reply" }))
        .assert_status(201);
    let threads = upstream.get(CLEO, "/notifications");
    let replied =
        threads.items().iter().find(|thread| thread["reason"] == "assign").expect("the first one");
    let path =
        format!("/notifications/threads/{}/subscription", replied["id"].as_str().expect("an id"));
    let subscription = upstream.get(CLEO, &path).assert_status(200);
    assert_eq!(
        (&subscription.body["reason"], &subscription.body["created_at"]),
        (&json!("comment"), &json!(crate::emulator::http::timestamps::iso(upstream.now)))
    );
}

#[test]
fn an_early_reply_dates_the_subscription_of_a_later_thread() {
    let mut upstream = Upstream::new();
    upstream
        .post(CLEO, "/repos/acme/sprockets/issues/2/comments", &json!({ "body": "I reply" }))
        .assert_status(201);
    let replied = crate::emulator::http::timestamps::iso(upstream.now);
    upstream.pass(100);
    upstream
        .post(BEN, "/repos/acme/sprockets/issues/2/comments", &json!({ "body": "and I" }))
        .assert_status(201);
    let threads = upstream.get(CLEO, "/notifications");
    let path = format!(
        "/notifications/threads/{}/subscription",
        threads.items()[0]["id"].as_str().expect("an id")
    );
    assert_eq!(upstream.get(CLEO, &path).assert_status(200).body["created_at"], json!(replied));
}

/// None, subscribed, ignored and muted, each with every trigger of the state machine.
#[test]
fn every_state_of_a_subscription_answers_every_trigger() {
    for state in ["none", "subscribed", "ignored", "muted"] {
        for (trigger, status, expected) in [
            ("PUT false", 200, "subscribed"),
            ("PUT true", 200, "ignored"),
            ("PUT", 200, "subscribed"),
            ("DELETE", 204, "none"),
        ] {
            let mut upstream = Upstream::new();
            let assigned = json!({ "type": "assign", "repository": "acme/sprockets", "actor": "ben", "number": 2, "user": "cleo" });
            upstream.post(NOBODY, "/_emulator/events", &assigned).assert_status(201);
            let threads = upstream.get(CLEO, "/notifications");
            let path = format!(
                "/notifications/threads/{}/subscription",
                threads.items()[0]["id"].as_str().expect("an id")
            );
            match state {
                "subscribed" => {
                    drop(
                        upstream.put(CLEO, &path, &json!({ "ignored": false })).assert_status(200),
                    );
                }
                "ignored" => {
                    drop(upstream.put(CLEO, &path, &json!({ "ignored": true })).assert_status(200));
                }
                "muted" => drop(upstream.delete(CLEO, &path).assert_status(204)),
                _ => {}
            }
            let answer = match trigger {
                "PUT false" => upstream.put(CLEO, &path, &json!({ "ignored": false })),
                "PUT true" => upstream.put(CLEO, &path, &json!({ "ignored": true })),
                "PUT" => upstream.put(CLEO, &path, &Value::Null),
                _ => upstream.delete(CLEO, &path),
            };
            assert_eq!(answer.status, status, "{state} {trigger}");
            let now = upstream.get(CLEO, &path);
            let (subscribed, ignored) = (&now.body["subscribed"], &now.body["ignored"]);
            match expected {
                "subscribed" => assert_eq!(
                    (subscribed, ignored),
                    (&json!(true), &json!(false)),
                    "{state} {trigger}"
                ),
                "ignored" => assert_eq!(
                    (subscribed, ignored),
                    (&json!(false), &json!(true)),
                    "{state} {trigger}"
                ),
                _ => assert_eq!(now.status, 404, "{state} {trigger}"),
            }
        }
    }
}

#[test]
fn a_conditional_subscription_write_without_effect_is_304() {
    let mut upstream = Upstream::new();
    let path = format!("{}/subscription", mentioned(&mut upstream));
    for (method, body) in [
        (Method::PUT, json!({ "ignored": false })),
        (Method::PUT, json!({ "ignored": true })),
        (Method::DELETE, Value::Null),
    ] {
        let first = upstream.send(&request(method.clone(), CLEO, &path, &[], &body));
        assert!(first.status < 300);
        upstream.pass(5);
        let date = crate::emulator::http::timestamps::http_date(upstream.now);
        let conditional =
            request(method.clone(), CLEO, &path, &[("if-modified-since", &date)], &body);
        assert!(upstream.send(&conditional).assert_status(304).bytes.is_empty());
        let again = upstream.send(&request(method, CLEO, &path, &[], &body));
        assert_eq!(
            (again.status, again.body),
            (first.status, first.body),
            "without a condition it is answered as before"
        );
        upstream.pass(5);
    }
}

#[test]
fn a_changed_subscription_changes_last_modified() {
    let mut upstream = Upstream::new();
    let path = format!("{}/subscription", mentioned(&mut upstream));
    upstream.pass(5);
    let date = upstream.get(CLEO, &path).header("last-modified").to_owned();
    upstream.get_with(CLEO, &path, &[("if-modified-since", &date)]).assert_status(304);
    upstream.put(CLEO, &path, &json!({ "ignored": true })).assert_status(200);
    let changed =
        upstream.get_with(CLEO, &path, &[("if-modified-since", &date)]).assert_status(200);
    assert_eq!((&changed.body["ignored"], &changed.body["reason"]), (&json!(true), &Value::Null));
}

#[test]
fn a_muted_thread_notifies_again_after_a_comment_of_the_user() {
    let mut upstream = Upstream::new();
    let path = mentioned(&mut upstream);
    upstream.patch(CLEO, &path, &Value::Null).assert_status(205);
    upstream.delete(CLEO, &format!("{path}/subscription")).assert_status(204);
    let other =
        json!({ "type": "comment", "repository": "acme/sprockets", "actor": "ada", "number": 2 });
    for kind in ["assign", "state_change", "comment"] {
        happens(&mut upstream, kind);
        upstream.post(
            NOBODY,
            "/_emulator/events",
            &json!({ "type": "team_mention", "repository": "acme/sprockets", "number": 2, "team": "acme/platform" }),
        );
        assert_eq!(
            upstream.get(CLEO, &path).body["unread"],
            false,
            "{kind}: neither a comment of her own nor a mention"
        );
    }
    upstream
        .post(CLEO, "/repos/acme/sprockets/issues/2/comments", &json!({ "body": "I come back" }))
        .assert_status(201);
    assert_eq!(
        upstream.get(CLEO, &format!("{path}/subscription")).assert_status(200).body["subscribed"],
        true
    );
    upstream.post(NOBODY, "/_emulator/events", &other).assert_status(201);
    assert_eq!(upstream.get(CLEO, &path).body["unread"], true);
}

#[test]
fn an_ignored_thread_stays_ignored_despite_participation() {
    let mut upstream = Upstream::new();
    let path = mentioned(&mut upstream);
    upstream
        .post(
            NOBODY,
            "/_emulator/events",
            &json!({ "type": "watch", "repository": "acme/sprockets", "user": "cleo" }),
        )
        .assert_status(201);
    upstream
        .put(CLEO, &format!("{path}/subscription"), &json!({ "ignored": true }))
        .assert_status(200);
    upstream.patch(CLEO, &path, &Value::Null).assert_status(205);
    upstream
        .post(CLEO, "/repos/acme/sprockets/issues/2/comments", &json!({ "body": "I reply" }))
        .assert_status(201);
    for kind in ["mention", "assign", "comment", "state_change"] {
        happens(&mut upstream, kind);
    }
    assert_eq!(upstream.get(CLEO, &path).body["unread"], false);
    assert_eq!(upstream.get(CLEO, &format!("{path}/subscription")).body["ignored"], true);
    upstream
        .put(CLEO, &format!("{path}/subscription"), &json!({ "ignored": false }))
        .assert_status(200);
    happens(&mut upstream, "comment");
    assert_eq!(upstream.get(CLEO, &path).body["unread"], true, "subscribed again");
}

#[test]
fn a_manual_subscription_follows_an_unwatched_thread() {
    let mut upstream = Upstream::new();
    let path = mentioned(&mut upstream);
    upstream.delete(CLEO, &format!("{path}/subscription")).assert_status(204);
    let by_hand =
        upstream.put(CLEO, &format!("{path}/subscription"), &Value::Null).assert_status(200);
    assert_eq!(
        (&by_hand.body["subscribed"], &by_hand.body["reason"]),
        (&json!(true), &json!("manual"))
    );
    upstream.patch(CLEO, &path, &Value::Null);
    happens(&mut upstream, "comment");
    assert_eq!(upstream.get(CLEO, &path).body["unread"], true);
}

#[test]
fn another_users_subscription_is_not_found() {
    let mut upstream = Upstream::new();
    let path = format!("{}/subscription", mentioned(&mut upstream));
    upstream.get(BEN, &path).assert_status(404);
    upstream.put(BEN, &path, &json!({})).assert_status(404);
    upstream.delete(BEN, &path).assert_status(404);
    for wrong in [json!(null), json!(1), json!("true"), json!([])] {
        upstream.put(CLEO, &path, &json!({ "ignored": wrong })).assert_names_field("ignored");
    }
    upstream.put(CLEO, &path, &json!([true])).assert_status(400);
    assert_eq!(upstream.get(CLEO, &path).body["ignored"], false);
}

#[test]
fn a_reply_changes_a_subscription_for_conditional_writes() {
    let mut upstream = Upstream::new();
    let path = mentioned(&mut upstream);
    upstream.delete(CLEO, &format!("{path}/subscription")).assert_status(204);
    upstream.pass(5);
    let date = crate::emulator::http::timestamps::http_date(upstream.now);
    upstream.pass(5);
    upstream
        .post(CLEO, "/repos/acme/sprockets/issues/2/comments", &json!({ "body": "I come back" }))
        .assert_status(201);
    upstream.pass(5);
    let put = request(
        Method::PUT,
        CLEO,
        &format!("{path}/subscription"),
        &[("if-modified-since", &date)],
        &json!({ "ignored": false }),
    );
    assert_eq!(upstream.send(&put).assert_status(200).body["reason"], "comment");
}
