//! The 304 of notification routes that change something.
//!
//! The documents give the status its meaning ("conditional request matched") but no condition for a
//! change. Each test repeats a change, unless modified since: under every reading nothing is left
//! to do.

use serde_json::{Value, json};

use crate::document_2::events::{inbox, latest, open_issue, path};
use crate::kit::{Answer, TestRequest, Upstream};

/// cleo's path of a thread that mentions her.
fn thread(upstream: &mut Upstream) -> String {
    open_issue(upstream, "ben", "Look, @cleo");
    path(&latest(upstream, "cleo"))
}

/// Makes the change, waits, and repeats it unless modified since `seen`. Returns the second
/// response.
fn repeated(upstream: &mut Upstream, method: &str, path: &str, body: &Value, seen: &str) -> Answer {
    let cleo = upstream.classic("cleo");
    let change = TestRequest::new(method, path).by(&cleo).json(body);
    let first = upstream.send(&change);
    assert_eq!(first.status / 100, 2, "{} {}", first.status, first.body);
    upstream.pass(60);
    let modified = upstream.get(&cleo, seen).expect_status(200).header("last-modified").to_owned();
    assert_ne!(modified, "", "{seen}");
    upstream.send(&change.header("if-modified-since", &modified))
}

#[test]
pub fn an_inbox_that_is_read_is_not_modified() {
    let mut upstream = Upstream::new();
    thread(&mut upstream);
    assert_eq!(inbox(&mut upstream, "cleo", "").items().len(), 1);
    repeated(&mut upstream, "PUT", "/notifications", &json!({}), "/notifications?all=true")
        .expect_status(304);
}

#[test]
pub fn a_thread_that_is_read_is_not_modified() {
    let mut upstream = Upstream::new();
    let thread = thread(&mut upstream);
    repeated(&mut upstream, "PATCH", &thread, &Value::Null, &thread).expect_status(304);
}

#[test]
pub fn an_unchanged_subscription_is_not_modified() {
    let mut upstream = Upstream::new();
    let subscription = format!("{}/subscription", thread(&mut upstream));
    repeated(&mut upstream, "PUT", &subscription, &json!({ "ignored": true }), &subscription)
        .expect_status(304);
}

#[test]
pub fn a_deleted_subscription_is_not_modified() {
    let mut upstream = Upstream::new();
    let thread = thread(&mut upstream);
    repeated(&mut upstream, "DELETE", &format!("{thread}/subscription"), &Value::Null, &thread)
        .expect_status(304);
}
