//! Actions in a repository that notify others, over the routes that a client would use.

use serde_json::{Value, json};

use crate::kit::{Answer, Upstream};

const ISSUES: &str = "/repos/acme/widgets/issues";
/// The time between two actions, in seconds.
const A_MINUTE: u64 = 60;

/// Opens an issue as this person and returns its number.
pub fn open_issue(upstream: &mut Upstream, person: &str, body: &str) -> u64 {
    upstream.pass(A_MINUTE);
    let token = upstream.classic(person);
    let issue = upstream
        .post(&token, ISSUES, &json!({ "title": format!("An issue of {person}"), "body": body }))
        .expect_status(201);
    issue.body["number"].as_u64().expect("a number")
}

pub fn comment(upstream: &mut Upstream, person: &str, number: u64, body: &str) {
    upstream.pass(A_MINUTE);
    let token = upstream.classic(person);
    upstream
        .post(&token, &format!("{ISSUES}/{number}/comments"), &json!({ "body": body }))
        .expect_status(201);
}

/// Changes an issue as this person: its assignees, its state.
pub fn change_issue(upstream: &mut Upstream, person: &str, number: u64, change: &Value) {
    upstream.pass(A_MINUTE);
    let token = upstream.classic(person);
    upstream.patch(&token, &format!("{ISSUES}/{number}"), change).expect_status(200);
}

/// Makes an event without a route happen by the control plane; it notifies `user`.
pub fn occur(upstream: &mut Upstream, kind: &str, user: &str) {
    upstream.pass(A_MINUTE);
    upstream.event(
        &json!({ "type": kind, "repository": "acme/widgets", "actor": "ben", "user": user }),
    );
}

/// Makes this person watch acme/widgets.
pub fn watch(upstream: &mut Upstream, person: &str) {
    upstream.event(&json!({ "type": "watch", "repository": "acme/widgets", "user": person }));
}

/// The threads of a person's inbox, the latest first.
pub fn inbox(upstream: &mut Upstream, person: &str, query: &str) -> Answer {
    let token = upstream.classic(person);
    upstream.get(&token, &format!("/notifications{query}")).expect_status(200)
}

/// The most recently updated thread of this person.
pub fn latest(upstream: &mut Upstream, person: &str) -> Value {
    let threads = inbox(upstream, person, "?all=true");
    threads.items().first().cloned().unwrap_or_else(|| panic!("{person} was told of nothing"))
}

pub fn path(thread: &Value) -> String {
    format!("/notifications/threads/{}", thread["id"].as_str().expect("the id of a thread is text"))
}

/// True if the event notifies a person: the thread is read before and unread after it.
pub fn is_notified(
    upstream: &mut Upstream,
    person: &str,
    path: &str,
    event: impl FnOnce(&mut Upstream),
) -> bool {
    let token = upstream.classic(person);
    upstream.pass(A_MINUTE);
    let read = upstream.patch(&token, path, &Value::Null).status;
    assert!([205, 304].contains(&read), "{read}");
    assert_eq!(upstream.get(&token, path).expect_status(200).body["unread"], false);
    event(upstream);
    upstream.get(&token, path).expect_status(200).body["unread"] == true
}
