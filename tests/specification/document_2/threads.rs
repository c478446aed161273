//! Notification threads: the object, the endpoints of a single thread, and its states.

use serde_json::{Value, json};

use crate::document_2::events::{inbox, latest, open_issue, path};
use crate::kit::{ANONYMOUS, BASE, TestRequest, Upstream};
use crate::recorder::observe;
use crate::rows::document_2::notifications::THREAD;
use crate::shape::assert_shape;

const MACHINE: &str = "Notification thread";

/// An unread thread of ada's.
pub fn unread(upstream: &mut Upstream) -> Value {
    inbox(upstream, "ada", "").items()[0].clone()
}

/// Observes the state of a thread in ada's inbox.
fn thread_state(upstream: &mut Upstream, thread: &Value) -> &'static str {
    let mut found = Vec::new();
    for page in 1..=3 {
        found.extend(
            inbox(upstream, "ada", &format!("?all=true&page={page}")).items().iter().cloned(),
        );
    }
    let found = found.iter().find(|one| one["id"] == thread["id"]);
    let state = match found.map(|thread| &thread["unread"]) {
        Some(Value::Bool(true)) => "unread",
        Some(Value::Bool(false)) => "read",
        Some(other) => panic!("unread is {other}"),
        None => "done",
    };
    observe(MACHINE, state);
    state
}

#[test]
pub fn a_thread_is_read() {
    let mut upstream = Upstream::new();
    let (ada, bare) = (upstream.classic("ada"), upstream.classic_without_scopes("ada"));
    let path = path(&unread(&mut upstream));
    let seen = upstream.get(&ada, &path).expect_status(200);
    assert_shape(&seen.body, &THREAD);
    let since = seen.header("last-modified").to_owned();
    upstream
        .send(&TestRequest::new("GET", &path).by(&ada).header("if-modified-since", &since))
        .expect_status(304);
    upstream.get(ANONYMOUS, &path).expect_status(401);
    upstream.get(&bare, &path).expect_status(403);
}

#[test]
pub fn a_thread_is_marked_read() {
    let mut upstream = Upstream::new();
    let (ada, bare) = (upstream.classic("ada"), upstream.classic_without_scopes("ada"));
    let thread = unread(&mut upstream);
    let path = path(&thread);
    upstream.patch(&bare, &path, &Value::Null).expect_status(403);
    assert_eq!(thread_state(&mut upstream, &thread), "unread");
    assert_eq!(upstream.patch(&ada, &path, &Value::Null).expect_status(205).bytes.len(), 0);
    assert_eq!(thread_state(&mut upstream, &thread), "read");
    let left = inbox(&mut upstream, "ada", "?per_page=50");
    assert!(
        left.items().iter().all(|one| one["id"] != thread["id"]),
        "it is in the inbox no longer"
    );
}

#[test]
pub fn a_thread_is_marked_done() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let (first, second) =
        (unread(&mut upstream), inbox(&mut upstream, "ada", "").items()[1].clone());
    upstream.patch(&ada, &path(&second), &Value::Null).expect_status(205);
    for (thread, before) in [(first, "unread"), (second, "read")] {
        assert_eq!(thread_state(&mut upstream, &thread), before);
        assert_eq!(upstream.delete(&ada, &path(&thread)).expect_status(204).bytes.len(), 0);
        assert_eq!(thread_state(&mut upstream, &thread), "done");
    }
}

/// The two parts of "`updated_at` at or before `last_read_at` (or `last_read_at` omitted)".
#[test]
pub fn threads_up_to_last_read_at_are_marked_read() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let threads = inbox(&mut upstream, "ada", "").items().clone();
    let (newest, middle, oldest) =
        (&threads[0], &threads[threads.len() / 2], &threads[threads.len() - 1]);
    assert!(newest["updated_at"].as_str() > middle["updated_at"].as_str());
    for thread in [newest, middle, oldest] {
        assert_eq!(thread_state(&mut upstream, thread), "unread");
    }
    upstream
        .put(&ada, "/notifications", &json!({ "last_read_at": middle["updated_at"] }))
        .expect_status(205);
    for (thread, state) in [(newest, "unread"), (middle, "read"), (oldest, "read")] {
        assert_eq!(thread_state(&mut upstream, thread), state);
    }
}

#[test]
pub fn all_threads_are_marked_read_without_last_read_at() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let thread = unread(&mut upstream);
    assert_eq!(thread_state(&mut upstream, &thread), "unread");
    upstream.put(&ada, "/notifications", &json!({})).expect_status(205);
    assert_eq!(thread_state(&mut upstream, &thread), "read");
    assert!(inbox(&mut upstream, "ada", "").items().is_empty());
}

/// "later updates stay unread"
#[test]
pub fn an_update_makes_a_thread_unread_again() {
    let mut upstream = Upstream::new();
    let cleo = upstream.classic("cleo");
    let number = open_issue(&mut upstream, "ben", "Look, @cleo");
    let thread = latest(&mut upstream, "cleo");
    upstream.patch(&cleo, &path(&thread), &Value::Null).expect_status(205);
    crate::document_2::events::comment(&mut upstream, "ben", number, "Once more");
    let again = upstream.get(&cleo, &path(&thread)).expect_status(200).body;
    assert_eq!(again["unread"], true);
    assert!(again["updated_at"].as_str() > again["last_read_at"].as_str(), "{again}");
}

#[test]
pub fn the_addresses_of_a_thread_lead_to_it_and_its_subject() {
    let mut upstream = Upstream::new();
    let cleo = upstream.classic("cleo");
    let number = open_issue(&mut upstream, "ben", "Look, @cleo");
    let thread = latest(&mut upstream, "cleo");
    let local = |url: &Value| {
        url.as_str()
            .and_then(|url| url.strip_prefix(BASE))
            .expect("an address of the API")
            .to_owned()
    };
    assert_eq!(
        upstream.get(&cleo, &local(&thread["url"])).expect_status(200).body["id"],
        thread["id"]
    );
    upstream.get(&cleo, &local(&thread["subscription_url"])).expect_status(200);
    let subject = &thread["subject"];
    assert_eq!((&subject["type"], &subject["title"]), (&json!("Issue"), &json!("An issue of ben")));
    assert_eq!(
        upstream.get(&cleo, &local(&subject["url"])).expect_status(200).body["number"],
        number
    );
    upstream.get(&cleo, &local(&subject["latest_comment_url"])).expect_status(200);
}

#[test]
pub fn a_thread_is_its_owners_alone() {
    let mut upstream = Upstream::new();
    let (ada, ben) = (upstream.classic("ada"), upstream.classic("ben"));
    let thread = unread(&mut upstream);
    for path in [path(&thread), format!("{}/subscription", path(&thread))] {
        let seen = upstream.get(&ben, &path);
        assert!([403, 404].contains(&seen.status), "{} {}", seen.status, seen.body);
    }
    let marked = upstream.patch(&ben, &path(&thread), &Value::Null);
    assert!([403, 404].contains(&marked.status), "{} {}", marked.status, marked.body);
    let done = upstream.delete(&ben, &path(&thread));
    assert!([403, 404].contains(&done.status), "{} {}", done.status, done.body);
    assert_eq!(thread_state(&mut upstream, &thread), "unread");
    upstream.get(&ada, "/notifications/threads/999999999").expect_status(404);
}
