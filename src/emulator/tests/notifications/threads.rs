//! Tests notifications: lists, filters, marking as read and done (SPECIFICATION, "Notifications").

use serde_json::json;

use crate::emulator::tests::*;

fn first_thread(upstream: &mut Upstream) -> String {
    upstream.get(ADA, "/notifications").items()[0]["id"]
        .as_str()
        .expect("an id is a string")
        .to_owned()
}

#[test]
fn only_classic_tokens_with_the_scope_reach_notifications() {
    let mut upstream = Upstream::new();
    upstream.get(ADA, "/notifications").assert_status(200);
    upstream.get(NOBODY, "/notifications").assert_status(401);
    for token in [
        ADA_FINE,
        ADA_NO_PERMISSIONS,
        OAUTH,
        "emu_app_user_ben",
        INSTALLATION,
        WORKFLOW,
        ADA_NO_SCOPES,
    ] {
        upstream.get(token, "/notifications").assert_status(403);
    }
}

#[test]
fn the_notifications_list_has_at_most_50_a_page() {
    let mut upstream = Upstream::new();
    for query in ["", "?per_page=100"] {
        let answer = upstream.get(ADA, &format!("/notifications{query}"));
        assert_eq!(answer.items().len(), 50, "{query}");
        assert!(answer.link("next").is_some());
    }
    assert_eq!(upstream.get(ADA, "/notifications?per_page=7").items().len(), 7);
}

#[test]
fn threads_are_sorted_by_update_and_have_every_field() {
    let mut upstream = Upstream::new();
    let answer = upstream.get(ADA, "/notifications");
    let times: Vec<&str> =
        answer.items().iter().filter_map(|thread| thread["updated_at"].as_str()).collect();
    assert!(times.windows(2).all(|pair| pair[0] >= pair[1]));
    for field in [
        "id",
        "repository",
        "subject",
        "reason",
        "unread",
        "updated_at",
        "last_read_at",
        "url",
        "subscription_url",
    ] {
        assert!(answer.items()[0].get(field).is_some(), "{field}");
    }
    for field in ["title", "url", "latest_comment_url", "type"] {
        assert!(answer.items()[0]["subject"][field].is_string(), "{field}");
    }
    assert_eq!(answer.header("x-poll-interval"), "60");
}

#[test]
fn read_threads_are_listed_only_with_all() {
    let mut upstream = Upstream::new();
    let unread = upstream.get(BEN, "/notifications").items().len();
    let id =
        upstream.get(BEN, "/notifications").items()[0]["id"].as_str().expect("an id").to_owned();
    upstream
        .patch(BEN, &format!("/notifications/threads/{id}"), &serde_json::Value::Null)
        .assert_status(205);
    assert_eq!(upstream.get(BEN, "/notifications").items().len(), unread - 1);
    let all = upstream.get(BEN, "/notifications?all=true");
    let read =
        all.items().iter().find(|thread| thread["id"] == id.as_str()).expect("it is still listed");
    assert_eq!(read["unread"], false);
    assert!(read["last_read_at"].is_string());
}

#[test]
fn participating_omits_threads_that_are_only_watched() {
    let mut upstream = Upstream::new();
    let answer = upstream.get(ADA, "/notifications?participating=true");
    let reasons: Vec<&str> =
        answer.items().iter().filter_map(|thread| thread["reason"].as_str()).collect();
    assert!(
        reasons.contains(&"mention")
            && !reasons.contains(&"subscribed")
            && !reasons.contains(&"ci_activity")
    );
}

#[test]
fn since_and_before_bound_the_update_time() {
    let mut upstream = Upstream::new();
    let times: Vec<String> = upstream
        .get(BEN, "/notifications")
        .items()
        .iter()
        .filter_map(|thread| thread["updated_at"].as_str().map(str::to_owned))
        .collect();
    let middle = &times[times.len() / 2];
    let since = upstream.get(BEN, &format!("/notifications?since={middle}")).items().len();
    let before = upstream.get(BEN, &format!("/notifications?before={middle}")).items().len();
    assert_eq!(since + before, times.len());
    assert!(since > 0 && before > 0);
}

#[test]
fn a_malformed_filter_is_422_and_names_the_field() {
    let mut upstream = Upstream::new();
    upstream.get(ADA, "/notifications?since=yesterday").assert_names_field("since");
    upstream.get(ADA, "/notifications?all=perhaps").assert_names_field("all");
    upstream
        .put(ADA, "/notifications", &json!({ "last_read_at": "soon", "read": "yes" }))
        .assert_names_field("last_read_at");
}

#[test]
fn a_mark_covers_threads_up_to_last_read_at() {
    let mut upstream = Upstream::new();
    let times: Vec<String> = upstream
        .get(BEN, "/notifications")
        .items()
        .iter()
        .filter_map(|thread| thread["updated_at"].as_str().map(str::to_owned))
        .collect();
    upstream.put(BEN, "/notifications", &json!({ "last_read_at": times[2] })).assert_status(205);
    assert_eq!(upstream.get(BEN, "/notifications").items().len(), 2, "later updates stay unread");
    upstream.put(BEN, "/notifications", &serde_json::Value::Null).assert_status(205);
    assert_eq!(upstream.get(BEN, "/notifications").items().len(), 0, "omitted marks all read");
}

#[test]
fn a_large_volume_is_marked_in_the_background_with_202() {
    let mut upstream = Upstream::new();
    upstream.set_limit("notifications.background-above", 10);
    let answer = upstream.put(ADA, "/notifications", &serde_json::Value::Null).assert_status(202);
    assert!(answer.body["message"].is_string());
    assert!(!upstream.get(ADA, "/notifications").items().is_empty(), "it continues");
    upstream.pass(5);
    assert_eq!(upstream.get(ADA, "/notifications").items().len(), 0);
}

#[test]
fn a_thread_is_read_by_patch_and_done_by_delete() {
    let mut upstream = Upstream::new();
    let path = format!("/notifications/threads/{}", first_thread(&mut upstream));
    assert_eq!(upstream.get(ADA, &path).assert_status(200).body["unread"], true);
    upstream.patch(ADA, &path, &serde_json::Value::Null).assert_status(205);
    assert_eq!(upstream.get(ADA, &path).body["unread"], false);
    upstream.delete(ADA, &path).assert_status(204);
    let listed = upstream
        .get(ADA, "/notifications?all=true")
        .items()
        .iter()
        .any(|thread| path.ends_with(thread["id"].as_str().unwrap_or("?")));
    assert!(!listed, "done threads are not in the inbox");
}

#[test]
fn a_thread_of_another_user_and_an_unknown_one_are_not_found() {
    let mut upstream = Upstream::new();
    let path = format!("/notifications/threads/{}", first_thread(&mut upstream));
    upstream.get(BEN, &path).assert_status(404);
    upstream.get(ADA, "/notifications/threads/999999999").assert_status(404);
    upstream.get(ADA, "/notifications/threads/x").assert_status(404);
}

#[test]
fn a_poll_with_last_modified_is_304_until_a_change() {
    let mut upstream = Upstream::new();
    let date = upstream.get(ADA, "/notifications").header("last-modified").to_owned();
    let unchanged = upstream
        .get_with(ADA, "/notifications", &[("if-modified-since", &date)])
        .assert_status(304);
    assert_eq!(unchanged.header("x-poll-interval"), "60");
    let path = format!("/notifications/threads/{}", first_thread(&mut upstream));
    upstream.patch(ADA, &path, &serde_json::Value::Null);
    upstream.get_with(ADA, "/notifications", &[("if-modified-since", &date)]).assert_status(200);
}

#[test]
fn a_conditional_patch_of_a_read_thread_is_304() {
    let mut upstream = Upstream::new();
    let path = format!("/notifications/threads/{}", first_thread(&mut upstream));
    upstream.patch(ADA, &path, &serde_json::Value::Null).assert_status(205);
    upstream.pass(5);
    let date = crate::emulator::http::timestamps::http_date(upstream.now);
    let again = request(
        Method::PATCH,
        ADA,
        &path,
        &[("if-modified-since", &date)],
        &serde_json::Value::Null,
    );
    upstream.send(&again).assert_status(304);
    upstream.patch(ADA, &path, &serde_json::Value::Null).assert_status(205);
}

#[test]
fn a_repository_lists_only_its_own_notifications() {
    let mut upstream = Upstream::new();
    assert_eq!(upstream.get(ADA, "/repos/ACME/Widgets/notifications").items().len(), 30);
    assert!(upstream.get(ADA, "/repos/acme/widgets/notifications?per_page=100").items().len() > 50);
    assert_eq!(upstream.get(ADA, "/repos/acme/gadgets/notifications").items().len(), 0);
    upstream.get(ADA, "/repos/acme/widgets.git/notifications").assert_status(404);
    upstream.get(ADA_FINE, "/repos/acme/widgets/notifications").assert_status(403);
}

#[test]
fn a_mention_makes_a_thread_and_its_reason_stays_mention() {
    let mut upstream = Upstream::new();
    let cleo = "emu_classic_cleo_all_scopes";
    let mention = json!({ "type": "mention", "repository": "acme/sprockets", "actor": "ben", "number": 1, "user": "cleo" });
    upstream.post(NOBODY, "/_emulator/events", &mention).assert_status(201);
    assert_eq!(upstream.get(cleo, "/notifications").items()[0]["reason"], "mention");
    upstream.put(cleo, "/notifications", &serde_json::Value::Null).assert_status(205);
    upstream.pass(10);
    let comment =
        json!({ "type": "comment", "repository": "acme/sprockets", "actor": "ada", "number": 1 });
    upstream.post(NOBODY, "/_emulator/events", &comment).assert_status(201);
    let threads = upstream.get(cleo, "/notifications");
    assert_eq!(
        (threads.items().len(), &threads.items()[0]["reason"]),
        (1, &json!("mention")),
        "notified again, never mentioned again"
    );
}

const NOTIFICATIONS_ONLY: &str = "emu_classic_ada_notifications";

fn rows(upstream: &mut Upstream) -> Vec<(Method, String)> {
    let thread = format!("/notifications/threads/{}", first_thread(upstream));
    let subscription = format!("{thread}/subscription");
    let (get, put, patch, delete) = (Method::GET, Method::PUT, Method::PATCH, Method::DELETE);
    vec![
        (get.clone(), "/notifications".to_owned()),
        (put.clone(), "/notifications".to_owned()),
        (get.clone(), thread.clone()),
        (patch, thread.clone()),
        (delete.clone(), thread),
        (get.clone(), subscription.clone()),
        (put, subscription.clone()),
        (delete, subscription),
        (get, "/repos/acme/widgets/notifications".to_owned()),
    ]
}

#[test]
fn every_route_needs_a_classic_token_with_the_scope() {
    use crate::emulator::auth::jwt::tests::signed;
    let mut upstream = Upstream::new();
    let now = upstream.now.as_secs();
    let app = format!(
        "Bearer {}",
        signed(
            &json!({ "alg": "RS256" }),
            &json!({ "iss": 301, "iat": now - 60, "exp": now + 500 })
        )
    );
    let basic = "Basic ZW11X2NsaWVudF9pZDplbXVfY2xpZW50X3NlY3JldA==".to_owned();
    let bearer = |token: &str| format!("Bearer {token}");
    for (method, path) in rows(&mut upstream) {
        let mut status = |authorization: Option<&String>| {
            let headers: Vec<(&str, &str)> =
                authorization.iter().map(|value| ("authorization", value.as_str())).collect();
            upstream
                .send(&request(method.clone(), NOBODY, &path, &headers, &serde_json::Value::Null))
                .status
        };
        assert_eq!(status(None), 401, "{method} {path}");
        assert_eq!(status(Some(&bearer("wrong"))), 401, "{method} {path}");
        for token in [
            ADA_FINE,
            ADA_NO_PERMISSIONS,
            OAUTH,
            "emu_app_user_ben",
            INSTALLATION,
            WORKFLOW,
            ADA_NO_SCOPES,
            "emu_classic_ada_read_org",
        ] {
            assert_eq!(status(Some(&bearer(token))), 403, "{token} {method} {path}");
        }
        assert_eq!(status(Some(&app)), 403, "an app itself, {method} {path}");
        assert_eq!(
            status(Some(&basic)),
            401,
            "an OAuth app itself, which has no token, {method} {path}"
        );
    }
}

#[test]
fn the_threads_of_private_repositories_need_the_scope_repo() {
    let mut upstream = Upstream::new();
    let mention = json!({ "type": "mention", "repository": "acme/gadgets", "actor": "ben", "number": 1, "user": "ada" });
    upstream.post(NOBODY, "/_emulator/events", &mention).assert_status(201);
    let path = format!("/notifications/threads/{}", first_thread(&mut upstream));
    upstream.get(ADA, &path).assert_status(200);
    let public = upstream.get(NOTIFICATIONS_ONLY, "/notifications").assert_status(200);
    assert!(
        !public.items().is_empty()
            && public.items().iter().all(|thread| thread["repository"]["private"] == false)
    );
    for method in [Method::GET, Method::PATCH, Method::DELETE] {
        upstream
            .send(&request(method, NOTIFICATIONS_ONLY, &path, &[], &serde_json::Value::Null))
            .assert_status(404);
    }
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        upstream
            .send(&request(
                method,
                NOTIFICATIONS_ONLY,
                &format!("{path}/subscription"),
                &[],
                &serde_json::Value::Null,
            ))
            .assert_status(404);
    }
    upstream.get(NOTIFICATIONS_ONLY, "/repos/acme/gadgets/notifications").assert_status(404);
    upstream.put(NOTIFICATIONS_ONLY, "/notifications", &serde_json::Value::Null).assert_status(205);
    assert_eq!(upstream.get(NOTIFICATIONS_ONLY, "/notifications").items().len(), 0);
    assert_eq!(
        upstream.get(ADA, "/notifications").items().len(),
        1,
        "a token marks only visible threads"
    );
    upstream.get(NOTIFICATIONS_ONLY, "/repos/acme/gadgets/issues/1").assert_status(404);
}

#[test]
fn a_thread_of_a_hidden_repository_is_no_longer_listed() {
    let mut upstream = Upstream::new();
    let before = upstream.get(DAN, "/notifications").assert_status(200);
    assert_eq!(before.items().len(), 2);
    let date = before.header("last-modified").to_owned();
    upstream.patch(ADA, "/repos/acme/widgets", &json!({ "private": true })).assert_status(200);
    upstream.pass(5);
    let after = upstream
        .get_with(DAN, "/notifications", &[("if-modified-since", &date)])
        .assert_status(200);
    assert_eq!(after.items().len(), 0);
}

#[test]
fn a_thread_has_the_types_of_its_table() {
    let mut upstream = Upstream::new();
    for thread in upstream.get(ADA, "/notifications?all=true").items() {
        for field in ["id", "reason", "updated_at", "last_read_at", "url", "subscription_url"] {
            assert!(thread[field].is_string(), "{field} of {thread}");
        }
        assert!(thread["unread"].is_boolean() && thread["repository"]["id"].is_u64());
        let id = thread["id"].as_str().expect("a string");
        assert!(id.parse::<u64>().is_ok(), "the thread_id is an integer");
        assert_eq!(thread["url"], format!("http://upstream.test/notifications/threads/{id}"));
        assert_eq!(
            thread["subscription_url"],
            format!("http://upstream.test/notifications/threads/{id}/subscription")
        );
        assert_eq!(
            thread["last_read_at"].as_str() >= thread["updated_at"].as_str(),
            thread["unread"] == false,
            "{thread}"
        );
    }
}

#[test]
fn the_inbox_is_paged_by_50_in_order_of_update() {
    let mut upstream = Upstream::new();
    let first = upstream.get(ADA, "/notifications?all=true&per_page=51");
    let next = first.link("next").expect("60 threads are two pages");
    let second = upstream.get(ADA, next.strip_prefix("http://upstream.test").expect("our address"));
    assert_eq!((first.items().len(), second.items().len()), (50, 10));
    assert!(first.items()[49]["updated_at"].as_str() >= second.items()[0]["updated_at"].as_str());
    assert_eq!(upstream.get(ADA, "/notifications?page=99").items().len(), 0);
}

#[test]
fn every_wrong_filter_is_named_at_once() {
    let mut upstream = Upstream::new();
    for path in ["/notifications", "/repos/acme/widgets/notifications"] {
        let answer = upstream
            .get(ADA, &format!("{path}?all=2&participating=TRUE&since=2024&before=12%3A00"));
        for field in ["all", "participating", "since", "before"] {
            answer.assert_names_field(field);
        }
    }
}

#[test]
fn the_bounds_take_any_offset_and_an_empty_span_has_nothing() {
    let mut upstream = Upstream::new();
    let inbox = upstream.get(BEN, "/notifications");
    let newest = inbox.items()[0]["updated_at"].as_str().expect("a time").to_owned();
    assert_eq!(upstream.get(BEN, &format!("/notifications?since={newest}")).items().len(), 1);
    let offset = format!("{}%2B00:00", newest.trim_end_matches('Z'));
    assert_eq!(upstream.get(BEN, &format!("/notifications?since={offset}")).items().len(), 1);
    assert_eq!(
        upstream.get(BEN, &format!("/notifications?since={newest}&before={newest}")).items().len(),
        0
    );
    assert_eq!(upstream.get(BEN, "/notifications?since=9999-12-31T23:59:59Z").items().len(), 0);
}

#[test]
fn a_mark_in_the_future_leaves_later_updates_unread() {
    let mut upstream = Upstream::new();
    upstream
        .put(
            BEN,
            "/notifications",
            &json!({ "last_read_at": "2099-01-01T00:00:00Z", "read": true }),
        )
        .assert_status(205);
    assert_eq!(upstream.get(BEN, "/notifications").items().len(), 0);
    let read = upstream.get(BEN, "/notifications?all=true").items()[0]["last_read_at"].clone();
    assert_eq!(
        read,
        crate::emulator::http::timestamps::iso(upstream.now),
        "the time of reading is not in the future"
    );
    upstream.pass(10);
    let mention = json!({ "type": "mention", "repository": "acme/widgets", "actor": "ada", "number": 1, "user": "ben" });
    upstream.post(NOBODY, "/_emulator/events", &mention).assert_status(201);
    assert_eq!(upstream.get(BEN, "/notifications").items().len(), 1);
}

#[test]
fn a_wrong_body_of_a_mark_is_refused_and_marks_nothing() {
    let mut upstream = Upstream::new();
    let before = upstream.get(BEN, "/notifications").items().len();
    for (field, value) in [
        ("last_read_at", json!(3)),
        ("last_read_at", json!(null)),
        ("last_read_at", json!("2024-13-01T00:00:00Z")),
        ("read", json!("true")),
    ] {
        upstream.put(BEN, "/notifications", &json!({ field: value })).assert_names_field(field);
    }
    upstream.put(BEN, "/notifications", &json!([])).assert_status(400);
    upstream.put(BEN, "/notifications", &json!({ "read": false })).assert_status(205);
    assert_eq!(upstream.get(BEN, "/notifications").items().len(), before);
}

#[test]
fn a_conditional_mark_without_effect_is_304() {
    let mut upstream = Upstream::new();
    upstream.put(BEN, "/notifications", &serde_json::Value::Null).assert_status(205);
    upstream.pass(5);
    let date = crate::emulator::http::timestamps::http_date(upstream.now);
    let again = request(
        Method::PUT,
        BEN,
        "/notifications",
        &[("if-modified-since", &date)],
        &serde_json::Value::Null,
    );
    upstream.send(&again).assert_status(304);
    upstream.put(BEN, "/notifications", &serde_json::Value::Null).assert_status(205);
}

#[test]
fn a_thread_updated_during_a_background_mark_stays_unread() {
    let mut upstream = Upstream::new();
    upstream.set_limit("notifications.background-above", 3);
    upstream.put(BEN, "/notifications", &serde_json::Value::Null).assert_status(202);
    upstream.pass(1);
    let mention = json!({ "type": "mention", "repository": "acme/widgets", "actor": "ada", "number": 2, "user": "ben" });
    upstream.post(NOBODY, "/_emulator/events", &mention).assert_status(201);
    upstream.pass(10);
    let unread = upstream.get(BEN, "/notifications");
    assert_eq!((unread.items().len(), &unread.items()[0]["reason"]), (1, &json!("mention")));
}

#[test]
fn a_second_mark_finishes_the_first_one() {
    let mut upstream = Upstream::new();
    upstream.set_limit("notifications.background-above", 3);
    upstream.put(BEN, "/notifications", &serde_json::Value::Null).assert_status(202);
    upstream.put(BEN, "/notifications", &serde_json::Value::Null).assert_status(205);
    assert_eq!(upstream.get(BEN, "/notifications").items().len(), 0);
}

/// Unread, read and done, each with every trigger of the state machine, and new activity.
#[test]
fn every_state_of_a_thread_answers_every_trigger() {
    let mention = json!({ "type": "mention", "repository": "acme/sprockets", "actor": "ben", "number": 1, "user": "cleo" });
    let cleo = "emu_classic_cleo_all_scopes";
    for state in ["unread", "read", "done"] {
        for (trigger, status, expected) in [
            ("PATCH", 205, if state == "done" { "done" } else { "read" }),
            ("PUT", 205, if state == "unread" { "read" } else { state }),
            ("DELETE", 204, "done"),
            ("activity", 201, "unread"),
        ] {
            let mut upstream = Upstream::new();
            upstream.post(NOBODY, "/_emulator/events", &mention).assert_status(201);
            let id = upstream.get(cleo, "/notifications").items()[0]["id"].clone();
            let path = format!("/notifications/threads/{}", id.as_str().expect("an id"));
            match state {
                "read" => {
                    drop(upstream.patch(cleo, &path, &serde_json::Value::Null).assert_status(205));
                }
                "done" => drop(upstream.delete(cleo, &path).assert_status(204)),
                _ => {}
            }
            upstream.pass(10);
            let answer = match trigger {
                "PATCH" => upstream.patch(cleo, &path, &serde_json::Value::Null),
                "PUT" => upstream.put(cleo, "/notifications", &serde_json::Value::Null),
                "DELETE" => upstream.delete(cleo, &path),
                _ => upstream.post(NOBODY, "/_emulator/events", &mention),
            };
            assert_eq!(answer.status, status, "{state} {trigger}");
            let listed = upstream.get(cleo, "/notifications?all=true");
            let found =
                listed.items().first().map(|thread| (thread["id"] == id, thread["unread"] == true));
            let now = match found {
                Some((true, true)) => "unread",
                Some((true, false)) => "read",
                Some((false, _)) => "another",
                None => "done",
            };
            assert_eq!(now, expected, "{state} {trigger}");
            upstream.get(cleo, &path).assert_status(200);
        }
    }
}

#[test]
fn a_thread_id_that_is_no_integer_is_not_found() {
    let mut upstream = Upstream::new();
    for id in
        ["x", "-1", "1.0", "1e3", "99999999999999999999999", "%20", "0", "%F0%9F%A6%80", "1%2F2"]
    {
        for rest in ["", "/subscription"] {
            upstream.get(ADA, &format!("/notifications/threads/{id}{rest}")).assert_status(404);
            upstream.delete(ADA, &format!("/notifications/threads/{id}{rest}")).assert_status(404);
        }
        upstream
            .patch(ADA, &format!("/notifications/threads/{id}"), &serde_json::Value::Null)
            .assert_status(404);
        upstream
            .put(ADA, &format!("/notifications/threads/{id}/subscription"), &json!({}))
            .assert_status(404);
    }
}

#[test]
fn a_repositorys_notifications_are_marked_read_on_their_own() {
    let mut upstream = Upstream::new();
    let mention = json!({ "type": "mention", "repository": "acme/sprockets", "actor": "ben", "number": 1, "user": "ada" });
    upstream.post(NOBODY, "/_emulator/events", &mention).assert_status(201);
    upstream
        .put(ADA, "/repos/acme/widgets/notifications", &serde_json::Value::Null)
        .assert_status(205);
    let left = upstream.get(ADA, "/notifications");
    assert_eq!(
        (left.items().len(), &left.items()[0]["repository"]["name"]),
        (1, &json!("sprockets"))
    );
    upstream.put(ADA_FINE, "/repos/acme/widgets/notifications", &json!({})).assert_status(403);
}

#[test]
fn participating_and_all_can_be_combined() {
    let mut upstream = Upstream::new();
    let all = upstream.get(ADA, "/notifications?all=true&participating=true");
    assert!(all.items().iter().any(|thread| thread["unread"] == false));
    assert!(all.items().iter().all(|thread| {
        !["subscribed", "ci_activity"].contains(&thread["reason"].as_str().unwrap_or(""))
    }));
}

#[test]
fn a_time_given_covers_its_whole_second() {
    let mut upstream = Upstream::new();
    upstream.now = upstream.now + Duration::from_millis(700);
    let mention = json!({ "type": "mention", "repository": "acme/widgets", "actor": "ada", "number": 1, "user": "ben" });
    upstream.post(NOBODY, "/_emulator/events", &mention).assert_status(201);
    let newest = upstream.get(BEN, "/notifications").items()[0]["updated_at"].clone();
    upstream.pass(5);
    upstream.put(BEN, "/notifications", &json!({ "last_read_at": newest })).assert_status(205);
    assert_eq!(
        upstream.get(BEN, "/notifications").items().len(),
        0,
        "it was updated at, not after, the time given"
    );
}
