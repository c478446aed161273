//! Tests the event feeds under polling.

use serde_json::{Value, json};

use crate::emulator::tests::*;

const FEEDS: [&str; 8] = [
    "/events",
    "/repos/acme/widgets/events",
    "/networks/acme/widgets/events",
    "/orgs/acme/events",
    "/users/ben/events",
    "/users/ben/events/public",
    "/users/cleo/received_events",
    "/users/cleo/received_events/public",
];
const ISSUES: &str = "/repos/acme/widgets/issues";

/// Returns an upstream where Cleo watches acme/widgets, after a while without events.
fn quiet() -> Upstream {
    let mut upstream = Upstream::new();
    upstream
        .put(
            "emu_classic_cleo_all_scopes",
            "/repos/acme/widgets/subscription",
            &json!({ "subscribed": true }),
        )
        .assert_status(200);
    upstream.pass(60);
    upstream
}

#[test]
fn an_opened_issue_appears_in_each_feed_as_an_event() {
    let mut upstream = quiet();
    for path in FEEDS {
        assert!(upstream.get(BEN, path).assert_status(200).items().is_empty(), "{path}");
    }
    upstream.post(BEN, ISSUES, &json!({ "title": "New" })).assert_status(201);
    for path in FEEDS {
        let answer = upstream.get(BEN, path).assert_status(200);
        assert_eq!(answer.items().len(), 1, "{path}");
        let event = &answer.items()[0];
        assert_eq!(
            (&event["type"], &event["actor"]["login"]),
            (&json!("IssuesEvent"), &json!("ben")),
            "{path}"
        );
        assert_eq!(
            (&event["repo"]["name"], &event["org"]["login"]),
            (&json!("acme/widgets"), &json!("acme"))
        );
        assert_eq!(
            (&event["payload"]["action"], &event["payload"]["issue"]["title"]),
            (&json!("opened"), &json!("New"))
        );
        assert!(
            event["id"].is_string() && event["created_at"].is_string() && event["public"] == true,
            "{event}"
        );
        assert_eq!(answer.header("x-poll-interval"), "60");
    }
    assert!(upstream.get(BEN, "/users/ada/events").items().is_empty(), "it was not Ada");
    assert!(
        upstream.get(BEN, "/users/dan/received_events").items().is_empty(),
        "Dan does not watch it"
    );
    assert!(upstream.get(BEN, "/orgs/globex/events").items().is_empty());
}

#[test]
fn a_feed_is_304_until_something_happens_in_it() {
    let mut upstream = quiet();
    let dates: Vec<String> = FEEDS
        .iter()
        .map(|path| upstream.get(BEN, path).header("last-modified").to_owned())
        .collect();
    for (path, date) in FEEDS.iter().zip(&dates) {
        let unchanged =
            upstream.get_with(BEN, path, &[("if-modified-since", date)]).assert_status(304);
        assert!(!unchanged.header("x-poll-interval").is_empty(), "{path}");
    }
    upstream.pass(60);
    upstream.post(BEN, ISSUES, &json!({ "title": "New" })).assert_status(201);
    upstream.pass(60);
    for (path, date) in FEEDS.iter().zip(&dates) {
        let changed =
            upstream.get_with(BEN, path, &[("if-modified-since", date)]).assert_status(200);
        upstream
            .get_with(BEN, path, &[("if-modified-since", changed.header("last-modified"))])
            .assert_status(304);
    }
}

#[test]
fn private_events_are_visible_only_with_repository_access() {
    let mut upstream = quiet();
    upstream.post(BEN, ISSUES, &json!({ "title": "New" })).assert_status(201);
    upstream.pass(60);
    let date = upstream
        .get(DAN, "/users/ben/events")
        .assert_status(200)
        .header("last-modified")
        .to_owned();
    upstream.patch(ADA, "/repos/acme/widgets", &json!({ "private": true })).assert_status(200);
    upstream.pass(60);
    let hidden = upstream
        .get_with(DAN, "/users/ben/events", &[("if-modified-since", &date)])
        .assert_status(200);
    assert!(hidden.items().is_empty(), "and a 304 would have let them keep it");
    for path in
        ["/events", "/orgs/acme/events", "/users/ben/events/public", "/users/cleo/received_events"]
    {
        assert!(upstream.get(DAN, path).assert_status(200).items().is_empty(), "{path}");
        assert!(upstream.get(NOBODY, path).assert_status(200).items().is_empty(), "{path}");
    }
    upstream.get(DAN, "/repos/acme/widgets/events").assert_status(404);
    upstream.get(DAN, "/networks/acme/widgets/events").assert_status(404);
    for path in [
        "/orgs/acme/events",
        "/users/ben/events",
        "/users/cleo/received_events",
        "/repos/acme/widgets/events",
    ] {
        assert_eq!(upstream.get(BEN, path).assert_status(200).items().len(), 1, "{path}");
    }
    for path in ["/events", "/users/ben/events/public", "/users/cleo/received_events/public"] {
        assert!(upstream.get(BEN, path).items().is_empty(), "{path} is of public ones");
    }
    assert_eq!(upstream.get(BEN, "/repos/acme/widgets/events").items()[0]["public"], false);
}

#[test]
fn events_are_paged_newest_first() {
    let mut upstream = quiet();
    for title in ["one", "two", "three"] {
        upstream.post(BEN, ISSUES, &json!({ "title": title })).assert_status(201);
    }
    upstream
        .post(BEN, &format!("{ISSUES}/2/comments"), &json!({ "body": "text" }))
        .assert_status(201);
    upstream
        .post(ADA, "/repos/acme/widgets/releases", &json!({ "tag_name": "v9" }))
        .assert_status(201);
    let push = json!({ "type": "push", "repository": "acme/widgets" });
    upstream.post(NOBODY, "/_emulator/events", &push).assert_status(201);
    let all = upstream.get(BEN, "/repos/acme/widgets/events");
    let kinds: Vec<&str> = all.items().iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(
        kinds,
        [
            "PushEvent",
            "ReleaseEvent",
            "IssueCommentEvent",
            "IssuesEvent",
            "IssuesEvent",
            "IssuesEvent"
        ]
    );
    let page = upstream.get(BEN, "/repos/acme/widgets/events?per_page=1&page=4");
    assert_eq!(page.items()[0]["payload"]["issue"]["title"], "three");
    assert!(
        page.link("next").is_some_and(|next| next.ends_with("per_page=1&page=5"))
            && page.link("prev").is_some()
    );
}

#[test]
fn the_feeds_show_user_repositories_until_their_deletion() {
    let mut upstream = quiet();
    upstream.post(BEN, "/user/repos", &json!({ "name": "own" })).assert_status(201);
    upstream.post(BEN, "/repos/ben/own/issues", &json!({ "title": "Mine" })).assert_status(201);
    upstream.pass(60);
    let feed = upstream.get(DAN, "/events").assert_status(200);
    assert_eq!(
        (&feed.items()[0]["repo"]["name"], feed.items()[0].get("org")),
        (&json!("ben/own"), None)
    );
    upstream.delete(BEN, "/repos/ben/own").assert_status(204);
    upstream.pass(60);
    let after = upstream
        .get_with(DAN, "/events", &[("if-modified-since", feed.header("last-modified"))])
        .assert_status(200);
    assert!(after.items().is_empty());
}

#[test]
fn feeds_of_unknown_objects_are_404() {
    let mut upstream = Upstream::new();
    for path in [
        "/users/nobody-here/events",
        "/users/acme/received_events",
        "/orgs/ben/events",
        "/repos/acme/none/events",
        "/networks/a/b/events",
    ] {
        upstream.get(ADA, path).assert_status(404);
    }
    let odd = upstream.get(ADA, "/events?page=99999999999999999999&per_page=-1").assert_status(200);
    assert_eq!(odd.body, Value::Array(Vec::new()));
}
