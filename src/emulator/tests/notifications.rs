//! Document 2, Notifications: lists, filters, reading, done.

use serde_json::json;

use super::*;

fn first_thread(upstream: &mut Upstream) -> String {
    upstream.get(ADA, "/notifications").items()[0]["id"].as_str().expect("an id is a string").to_owned()
}

#[test]
fn only_classic_tokens_with_the_scope_reach_notifications() {
    let mut upstream = Upstream::new();
    upstream.get(ADA, "/notifications").assert_status(200);
    upstream.get(NOBODY, "/notifications").assert_status(401);
    for token in [ADA_FINE, ADA_NO_PERMISSIONS, OAUTH, "emu_app_user_ben", INSTALLATION, WORKFLOW, ADA_NO_SCOPES] {
        upstream.get(token, "/notifications").assert_status(403);
    }
}

#[test]
fn the_notifications_list_has_50_a_page_and_no_more() {
    let mut upstream = Upstream::new();
    for query in ["", "?per_page=100"] {
        let answer = upstream.get(ADA, &format!("/notifications{query}"));
        assert_eq!(answer.items().len(), 50, "{query}");
        assert!(answer.link("next").is_some());
    }
    assert_eq!(upstream.get(ADA, "/notifications?per_page=7").items().len(), 7);
}

#[test]
fn threads_are_sorted_by_most_recent_update_and_have_every_field() {
    let mut upstream = Upstream::new();
    let answer = upstream.get(ADA, "/notifications");
    let times: Vec<&str> = answer.items().iter().filter_map(|thread| thread["updated_at"].as_str()).collect();
    assert!(times.windows(2).all(|pair| pair[0] >= pair[1]));
    for field in ["id", "repository", "subject", "reason", "unread", "updated_at", "last_read_at", "url", "subscription_url"] {
        assert!(answer.items()[0].get(field).is_some(), "{field}");
    }
    for field in ["title", "url", "latest_comment_url", "type"] {
        assert!(answer.items()[0]["subject"][field].is_string(), "{field}");
    }
    assert_eq!(answer.header("x-poll-interval"), "60");
}

#[test]
fn all_includes_read_threads_and_without_it_only_unread_ones_are_listed() {
    let mut upstream = Upstream::new();
    let unread = upstream.get(BEN, "/notifications").items().len();
    let id = upstream.get(BEN, "/notifications").items()[0]["id"].as_str().expect("an id").to_owned();
    upstream.patch(BEN, &format!("/notifications/threads/{id}"), &serde_json::Value::Null).assert_status(205);
    assert_eq!(upstream.get(BEN, "/notifications").items().len(), unread - 1);
    let all = upstream.get(BEN, "/notifications?all=true");
    let read = all.items().iter().find(|thread| thread["id"] == id.as_str()).expect("it is still listed");
    assert_eq!(read["unread"], false);
    assert!(read["last_read_at"].is_string());
}

#[test]
fn participating_leaves_out_what_is_only_watched() {
    let mut upstream = Upstream::new();
    let answer = upstream.get(ADA, "/notifications?participating=true");
    let reasons: Vec<&str> = answer.items().iter().filter_map(|thread| thread["reason"].as_str()).collect();
    assert!(reasons.contains(&"mention") && !reasons.contains(&"subscribed") && !reasons.contains(&"ci_activity"));
}

#[test]
fn since_and_before_bound_the_update_time() {
    let mut upstream = Upstream::new();
    let times: Vec<String> =
        upstream.get(BEN, "/notifications").items().iter().filter_map(|thread| thread["updated_at"].as_str().map(str::to_owned)).collect();
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
    upstream.put(ADA, "/notifications", &json!({ "last_read_at": "soon", "read": "yes" })).assert_names_field("last_read_at");
}

#[test]
fn put_notifications_marks_what_is_not_newer_than_last_read_at() {
    let mut upstream = Upstream::new();
    let times: Vec<String> =
        upstream.get(BEN, "/notifications").items().iter().filter_map(|thread| thread["updated_at"].as_str().map(str::to_owned)).collect();
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
    let listed =
        upstream.get(ADA, "/notifications?all=true").items().iter().any(|thread| path.ends_with(thread["id"].as_str().unwrap_or("?")));
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
fn polling_with_the_exact_last_modified_yields_304_until_something_changes() {
    let mut upstream = Upstream::new();
    let date = upstream.get(ADA, "/notifications").header("last-modified").to_owned();
    let unchanged = upstream.get_with(ADA, "/notifications", &[("if-modified-since", &date)]).assert_status(304);
    assert_eq!(unchanged.header("x-poll-interval"), "60");
    let path = format!("/notifications/threads/{}", first_thread(&mut upstream));
    upstream.patch(ADA, &path, &serde_json::Value::Null);
    upstream.get_with(ADA, "/notifications", &[("if-modified-since", &date)]).assert_status(200);
}

#[test]
fn a_write_that_changes_nothing_and_asks_conditionally_is_304() {
    let mut upstream = Upstream::new();
    let path = format!("/notifications/threads/{}", first_thread(&mut upstream));
    upstream.patch(ADA, &path, &serde_json::Value::Null).assert_status(205);
    upstream.pass(5);
    let date = super::super::timestamps::http_date(upstream.now);
    let again = request(Method::PATCH, ADA, &path, &[("if-modified-since", &date)], &serde_json::Value::Null);
    upstream.send(&again).assert_status(304);
    upstream.patch(ADA, &path, &serde_json::Value::Null).assert_status(205);
}

#[test]
fn a_repositorys_notifications_have_the_usual_page_and_only_its_threads() {
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
    let comment = json!({ "type": "comment", "repository": "acme/sprockets", "actor": "ada", "number": 1 });
    upstream.post(NOBODY, "/_emulator/events", &comment).assert_status(201);
    let threads = upstream.get(cleo, "/notifications");
    assert_eq!((threads.items().len(), &threads.items()[0]["reason"]), (1, &json!("mention")), "told again, never mentioned again");
}
