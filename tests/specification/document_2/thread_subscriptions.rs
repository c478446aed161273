//! Thread subscriptions: the object, the three endpoints and the states.

use serde_json::{Value, json};

use crate::document_2::events::{
    change_issue, comment, is_notified, latest, open_issue, path, watch,
};
use crate::kit::{ANONYMOUS, TestRequest, Upstream};
use crate::recorder::observe;
use crate::rows::document_2::notifications::SUBSCRIPTION;
use crate::shape::assert_shape;

const MACHINE: &str = "Thread subscription";

/// An issue of ben's, and cleo's thread about it.
struct Conversation {
    upstream: Upstream,
    number: u64,
    thread: String,
}

impl Conversation {
    /// The issue mentions cleo.
    fn with_a_mention() -> Self {
        let mut upstream = Upstream::new();
        let number = open_issue(&mut upstream, "ben", "Look, @cleo");
        let thread = path(&latest(&mut upstream, "cleo"));
        Self { upstream, number, thread }
    }

    /// cleo watches the repository and does not participate.
    fn watched() -> Self {
        let mut upstream = Upstream::new();
        watch(&mut upstream, "cleo");
        let number = open_issue(&mut upstream, "ben", "Nobody in particular");
        let thread = path(&latest(&mut upstream, "cleo"));
        Self { upstream, number, thread }
    }

    fn subscription(&self) -> String {
        format!("{}/subscription", self.thread)
    }

    fn put(&mut self, body: &Value) -> Value {
        let cleo = self.upstream.classic("cleo");
        self.upstream.put(&cleo, &self.subscription(), body).expect_status(200).body
    }

    fn delete(&mut self) {
        let cleo = self.upstream.classic("cleo");
        self.upstream.delete(&cleo, &self.subscription()).expect_status(204);
    }

    /// True if this comment of ben's notifies cleo.
    fn notifies(&mut self, text: &str) -> bool {
        let number = self.number;
        is_notified(&mut self.upstream, "cleo", &self.thread, |upstream| {
            comment(upstream, "ben", number, text);
        })
    }

    /// Observes the state: the subscription, or without one, if comments notify cleo.
    fn state(&mut self) -> &'static str {
        let cleo = self.upstream.classic("cleo");
        let seen = self.upstream.get(&cleo, &self.subscription());
        let state = match (seen.status, &seen.body["subscribed"], &seen.body["ignored"]) {
            (200, Value::Bool(true), Value::Bool(false)) => "subscribed",
            (200, Value::Bool(false), Value::Bool(true)) => "ignored",
            (404, ..) if self.notifies("And?") => "(none)",
            (404, ..) => "muted",
            _ => panic!("{} {}", seen.status, seen.body),
        };
        observe(MACHINE, state);
        state
    }
}

#[test]
pub fn a_subscription_is_read() {
    let mut talk = Conversation::with_a_mention();
    let path = talk.subscription();
    let upstream = &mut talk.upstream;
    let (cleo, bare) = (upstream.classic("cleo"), upstream.classic_without_scopes("ada"));
    upstream.pass(60);
    let seen = upstream.get(&cleo, &path).expect_status(200);
    assert_shape(&seen.body, &SUBSCRIPTION);
    let since = seen.header("last-modified").to_owned();
    upstream
        .send(&TestRequest::new("GET", &path).by(&cleo).header("if-modified-since", &since))
        .expect_status(304);
    upstream.get(ANONYMOUS, &path).expect_status(401);
    upstream.get(&bare, &path).expect_status(403);
}

#[test]
pub fn a_subscription_is_set() {
    let mut talk = Conversation::with_a_mention();
    let path = talk.subscription();
    for ignored in [true, false] {
        let set = talk.put(&json!({ "ignored": ignored }));
        assert_shape(&set, &SUBSCRIPTION);
        assert_eq!((&set["ignored"], &set["subscribed"]), (&json!(ignored), &json!(!ignored)));
    }
    let bare = talk.upstream.classic_without_scopes("ada");
    talk.upstream.put(ANONYMOUS, &path, &json!({})).expect_status(401);
    talk.upstream.put(&bare, &path, &json!({})).expect_status(403);
}

#[test]
pub fn ignored_is_false_by_default_and_a_boolean() {
    let mut talk = Conversation::with_a_mention();
    talk.put(&json!({ "ignored": true }));
    assert_eq!(talk.put(&json!({}))["ignored"], false);
    let (cleo, path) = (talk.upstream.classic("cleo"), talk.subscription());
    talk.upstream.put(&cleo, &path, &json!({ "ignored": "yes" })).assert_names_field("ignored");
}

#[test]
pub fn a_subscription_is_deleted() {
    let mut talk = Conversation::with_a_mention();
    let (path, cleo, bare) = (
        talk.subscription(),
        talk.upstream.classic("cleo"),
        talk.upstream.classic_without_scopes("ada"),
    );
    talk.upstream.delete(ANONYMOUS, &path).expect_status(401);
    talk.upstream.delete(&bare, &path).expect_status(403);
    assert_eq!(talk.upstream.delete(&cleo, &path).expect_status(204).bytes.len(), 0);
    let gone = talk.upstream.get(&cleo, &path);
    assert_ne!(gone.status, 200, "{}", gone.body);
}

#[test]
pub fn the_addresses_of_a_subscription_lead_to_their_objects() {
    let mut talk = Conversation::with_a_mention();
    let seen = talk.put(&json!({ "ignored": false }));
    assert!(seen["url"].as_str().is_some_and(|url| url.ends_with(&talk.subscription())), "{seen}");
    assert!(seen["thread_url"].as_str().is_some_and(|url| url.ends_with(&talk.thread)), "{seen}");
}

#[test]
pub fn a_put_without_ignored_subscribes_from_any_state() {
    let mut talk = Conversation::watched();
    assert_eq!(talk.state(), "(none)");
    talk.put(&json!({ "ignored": false }));
    assert_eq!(talk.state(), "subscribed");
    talk.put(&json!({ "ignored": false }));
    assert_eq!(talk.state(), "subscribed");
    talk.put(&json!({ "ignored": true }));
    assert_eq!(talk.state(), "ignored");
    talk.put(&json!({ "ignored": false }));
    assert_eq!(talk.state(), "subscribed");
    assert!(talk.notifies("You should know"));
}

#[test]
pub fn a_put_on_a_muted_thread_subscribes_or_ignores() {
    for (ignored, state) in [(false, "subscribed"), (true, "ignored")] {
        let mut talk = Conversation::with_a_mention();
        talk.delete();
        assert_eq!(talk.state(), "muted");
        talk.put(&json!({ "ignored": ignored }));
        assert_eq!(talk.state(), state);
        assert_eq!(talk.notifies("You should know"), !ignored);
    }
}

#[test]
pub fn a_put_with_ignored_blocks_everything_from_any_state() {
    let mut talk = Conversation::watched();
    assert_eq!(talk.state(), "(none)");
    talk.put(&json!({ "ignored": true }));
    assert_eq!(talk.state(), "ignored");
    talk.put(&json!({ "ignored": true }));
    assert_eq!(talk.state(), "ignored");
    talk.put(&json!({ "ignored": false }));
    assert_eq!(talk.state(), "subscribed");
    talk.put(&json!({ "ignored": true }));
    assert_eq!(talk.state(), "ignored");
    assert!(!talk.notifies("Anybody?"));
    assert!(!talk.notifies("You, @cleo?"));
    let number = talk.number;
    let notified_of_an_assignment =
        is_notified(&mut talk.upstream, "cleo", &talk.thread, |upstream| {
            change_issue(upstream, "ben", number, &json!({ "assignees": ["cleo"] }));
        });
    assert!(!notified_of_an_assignment);
}

#[test]
pub fn a_delete_mutes_from_any_state() {
    let mut talk = Conversation::with_a_mention();
    assert_eq!(talk.state(), "subscribed");
    talk.delete();
    assert_eq!(talk.state(), "muted");
    talk.put(&json!({ "ignored": true }));
    assert_eq!(talk.state(), "ignored");
    talk.delete();
    assert_eq!(talk.state(), "muted");
    talk.delete();
    assert_eq!(talk.state(), "muted");
}

#[test]
pub fn a_muted_thread_stays_so_until_the_person_is_mentioned() {
    let mut talk = Conversation::with_a_mention();
    talk.delete();
    assert!(!talk.notifies("Anybody?"));
    assert!(talk.notifies("You, @cleo?"));
    assert!(talk.notifies("And what do you think?"));
}

#[test]
pub fn a_muted_thread_stays_so_until_the_person_comments() {
    let mut talk = Conversation::with_a_mention();
    talk.delete();
    assert!(!talk.notifies("Anybody?"));
    comment(&mut talk.upstream, "cleo", talk.number, "I do");
    assert!(talk.notifies("Thank you"));
}

#[test]
pub fn a_watched_thread_can_be_ignored() {
    let mut talk = Conversation::watched();
    assert!(talk.notifies("Anybody?"));
    talk.put(&json!({ "ignored": true }));
    assert!(!talk.notifies("Anybody?"));
    let before = latest(&mut talk.upstream, "cleo")["id"].clone();
    open_issue(&mut talk.upstream, "ben", "Another one");
    assert_ne!(latest(&mut talk.upstream, "cleo")["id"], before, "only this thread is ignored");
}

#[test]
pub fn a_previously_ignored_thread_can_be_subscribed_to() {
    let mut talk = Conversation::with_a_mention();
    talk.put(&json!({ "ignored": true }));
    assert!(!talk.notifies("Anybody?"));
    talk.put(&json!({ "ignored": false }));
    assert!(talk.notifies("Anybody?"));
}

#[test]
pub fn deleting_is_like_ignoring_when_the_repository_is_not_watched() {
    let mut talk = Conversation::with_a_mention();
    assert!(talk.notifies("Anybody?"));
    talk.delete();
    assert!(!talk.notifies("Anybody?"));
}

#[test]
pub fn a_watched_repository_still_notifies() {
    let mut talk = Conversation::watched();
    talk.put(&json!({ "ignored": false }));
    talk.delete();
    assert!(talk.notifies("Anybody?"));
}

#[test]
pub fn only_participation_creates_a_subscription() {
    let subscribed = |mut talk: Conversation| {
        let (cleo, path) = (talk.upstream.classic("cleo"), talk.subscription());
        let seen = talk.upstream.get(&cleo, &path);
        seen.status == 200 && seen.body["subscribed"] == true
    };
    assert!(subscribed(Conversation::with_a_mention()), "is @mentioned");
    assert!(!subscribed(Conversation::watched()), "merely watches");
    let mut replied = Conversation::watched();
    comment(&mut replied.upstream, "cleo", replied.number, "I think so");
    assert!(subscribed(replied), "replies");
    let mut manually = Conversation::watched();
    manually.put(&json!({}));
    assert!(subscribed(manually), "subscribes manually");
    let mut assigned = Conversation::watched();
    change_issue(&mut assigned.upstream, "ben", assigned.number, &json!({ "assignees": ["cleo"] }));
    assert!(!subscribed(assigned), "is merely assigned");
}
