//! Notifications: permissions, and the polling of threads.

use serde_json::{Value, json};

use crate::document_2::events::{inbox, latest, open_issue, path};
use crate::document_2::paths::classic_with;
use crate::kit::{ANONYMOUS, BASE, TestRequest, Upstream};

/// Requests every notification route of a thread, the changes last.
fn statuses(upstream: &mut Upstream, token: &str, thread: &Value) -> Vec<u16> {
    let thread = path(thread);
    let subscription = format!("{thread}/subscription");
    vec![
        upstream.get(token, "/notifications").status,
        upstream.get(token, &thread).status,
        upstream.get(token, &subscription).status,
        upstream.get(token, "/repos/acme/widgets/notifications").status,
        upstream.put(token, &subscription, &json!({ "ignored": false })).status,
        upstream.delete(token, &subscription).status,
        upstream.patch(token, &thread, &Value::Null).status,
        upstream.delete(token, &thread).status,
        upstream.put(token, "/notifications", &json!({})).status,
    ]
}

/// The statuses for a caller with every permission.
const SERVED: [u16; 9] = [200, 200, 200, 200, 200, 204, 205, 204, 205];

/// A thread that ada participates in.
fn thread(upstream: &mut Upstream) -> Value {
    open_issue(upstream, "ben", "Look, @ada");
    latest(upstream, "ada")
}

#[test]
pub fn only_classic_personal_access_tokens_are_accepted() {
    let mut upstream = Upstream::new();
    let (uat, iat) = (upstream.token("app-user", "ada"), upstream.installation("acme"));
    let (fine, classic) = (upstream.token("fine-grained", "ada"), upstream.classic("ada"));
    let thread = thread(&mut upstream);
    for token in [&uat, &iat, &fine] {
        assert_eq!(statuses(&mut upstream, token, &thread), [403; 9]);
    }
    assert_eq!(statuses(&mut upstream, ANONYMOUS, &thread), [401; 9]);
    assert_eq!(statuses(&mut upstream, &classic, &thread), SERVED);
}

/// "only classic personal access tokens": a token of an OAuth app is not one, whatever its scopes.
#[test]
pub fn tokens_of_oauth_apps_are_not_accepted() {
    let mut upstream = Upstream::new();
    let oauth =
        upstream.token_where(|view| view.kind == "oauth" && view.scopes.contains(&"notifications"));
    let oauth = oauth.expect("a token of an OAuth app with the scope notifications");
    let thread = thread(&mut upstream);
    assert_eq!(statuses(&mut upstream, &oauth, &thread), [403; 9]);
}

#[test]
pub fn the_scope_notifications_is_enough() {
    let mut upstream = Upstream::new();
    let token = classic_with(&upstream, "ada", "notifications", "repo");
    let thread = thread(&mut upstream);
    assert_eq!(statuses(&mut upstream, &token, &thread), SERVED);
}

#[test]
pub fn the_scope_repo_is_enough() {
    let mut upstream = Upstream::new();
    let token = classic_with(&upstream, "ada", "repo", "notifications");
    let thread = thread(&mut upstream);
    assert_eq!(statuses(&mut upstream, &token, &thread), SERVED);
}

#[test]
pub fn another_scope_is_not_enough() {
    let mut upstream = Upstream::new();
    let (bare, other) = (
        upstream.classic_without_scopes("ada"),
        classic_with(&upstream, "ada", "read:org", "notifications"),
    );
    let thread = thread(&mut upstream);
    for token in [&bare, &other] {
        assert_eq!(statuses(&mut upstream, token, &thread), [403; 9]);
    }
}

#[test]
pub fn the_scope_repo_is_needed_to_reach_issues() {
    let mut upstream = Upstream::new();
    let (whole, narrow) =
        (upstream.classic("ada"), classic_with(&upstream, "ada", "notifications", "repo"));
    upstream.event(&json!({ "type": "mention", "repository": "acme/gadgets", "actor": "ben", "user": "ada", "text": "Look" }));
    let thread = latest(&mut upstream, "ada");
    assert_eq!(thread["repository"]["private"], true);
    let subject = thread["subject"]["url"]
        .as_str()
        .and_then(|url| url.strip_prefix(BASE))
        .expect("an address of the API");
    upstream.get(&whole, subject).expect_status(200);
    let refused = upstream.get(&narrow, subject);
    assert!([403, 404].contains(&refused.status), "{} {}", refused.status, refused.body);
}

#[test]
pub fn threads_are_polled_by_last_modified() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let thread = path(&thread(&mut upstream));
    upstream.pass(60);
    for path in [
        "/notifications",
        "/repos/acme/widgets/notifications",
        &thread,
        &format!("{thread}/subscription"),
    ] {
        let seen = upstream.get(&ada, path).expect_status(200);
        let modified = seen.header("last-modified").to_owned();
        httpdate::parse_http_date(&modified)
            .unwrap_or_else(|_| panic!("{path} was last modified {modified:?}"));
        let request = TestRequest::new("GET", path).by(&ada).header("if-modified-since", &modified);
        assert_eq!(upstream.send(&request).expect_status(304).bytes.len(), 0);
    }
    let before = inbox(&mut upstream, "ada", "").header("last-modified").to_owned();
    open_issue(&mut upstream, "ben", "Again, @ada");
    upstream
        .send(
            &TestRequest::new("GET", "/notifications")
                .by(&ada)
                .header("if-modified-since", &before),
        )
        .expect_status(200);
}

#[test]
pub fn an_unchanged_poll_costs_nothing() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let seen = upstream.get(&ada, "/notifications").expect_status(200);
    let request = TestRequest::new("GET", "/notifications")
        .by(&ada)
        .header("if-modified-since", seen.header("last-modified"));
    let unchanged = upstream.send(&request).expect_status(304);
    assert_eq!(unchanged.remaining(), seen.remaining());
}

#[test]
pub fn the_poll_interval_is_stated_with_the_threads() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    for path in ["/notifications", "/repos/acme/widgets/notifications"] {
        let seen = upstream.get(&ada, path).expect_status(200);
        assert!(seen.number("x-poll-interval") > 0, "{path}");
    }
}

/// "Responses of polling endpoints carry Last-Modified" (SPECIFICATION, "Conventions"), an empty
/// inbox included.
#[test]
pub fn an_empty_inbox_is_polled_like_any_other() {
    let mut upstream = Upstream::new();
    let cleo = upstream.classic("cleo");
    let empty = inbox(&mut upstream, "cleo", "");
    assert!(empty.items().is_empty());
    assert!(empty.number("x-poll-interval") > 0);
    let modified = empty.header("last-modified").to_owned();
    upstream
        .send(
            &TestRequest::new("GET", "/notifications")
                .by(&cleo)
                .header("if-modified-since", &modified),
        )
        .expect_status(304);
    open_issue(&mut upstream, "ben", "Look, @cleo");
    upstream
        .send(
            &TestRequest::new("GET", "/notifications")
                .by(&cleo)
                .header("if-modified-since", &modified),
        )
        .expect_status(200);
}
