//! A hundred synchronous comments that a library sends concurrently: more than the service's limits
//! admit for minutes. Each is executed once, in the gateway's order of arrival, and none is
//! refused.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::driver::Library;
use super::relay::Relay;
use super::virtual_time::VirtualTime;
use super::with_each_library;

with_each_library! {
    concurrent_comments_are_written_in_their_order_of_arrival
    concurrent_comments_on_ten_issues_keep_each_issues_order
}

const COMMENTS: usize = 100;
const ISSUES: usize = 10;
/// The default distance between writes that notify (SPECIFICATION, "Configuration":
/// `notify_spacing`).
const SPACING: Duration = Duration::from_secs(3);
/// The content limit of an account for a minute (SPECIFICATION, "Secondary rate limits").
const CONTENTS_A_MINUTE: usize = 80;

fn concurrent_comments_are_written_in_their_order_of_arrival(library: Library) {
    let comments: Vec<_> =
        (0..COMMENTS).map(|n| json!({ "number": 2, "text": format!("2: {n:03}") })).collect();
    are_written_as_received(library, &comments);
}

fn concurrent_comments_on_ten_issues_keep_each_issues_order(library: Library) {
    let comment = |n: usize| json!({ "number": n % ISSUES + 1, "text": format!("{}: {n:03}", n % ISSUES + 1) });
    are_written_as_received(library, &(0..COMMENTS).map(comment).collect::<Vec<_>>());
}

/// No relay orders these requests: only the content limit holds them.
#[test]
fn two_libraries_are_served_concurrently_and_in_full() {
    let virtual_time =
        VirtualTime::start(2, "[writes]\nspacing = \"0s\"\nnotify_spacing = \"0s\"\n");
    let of = |client: usize| -> Vec<Value> {
        let comment = |n: usize| json!({ "number": n % ISSUES + 1, "text": format!("{client} to {}: {n:03}", n % ISSUES + 1) });
        (0..COMMENTS / 2).map(comment).collect()
    };
    std::thread::scope(|scope| {
        for (client, library) in [Library::Octokit, Library::PyGithub].into_iter().enumerate() {
            let (virtual_time, comments) = (&virtual_time, of(client));
            scope.spawn(move || {
                let (values, _) = VirtualTime::client(client, library, virtual_time.address())
                    .plays("comments_at_once", &arguments(&comments));
                assert_eq!(written_texts(&values), texts(&comments));
            });
        }
        VirtualTime::until(|| {
            virtual_time.posts() == CONTENTS_A_MINUTE
                && virtual_time.gateway.writes.turns().writes() == COMMENTS - CONTENTS_A_MINUTE
        });
        virtual_time.clock.advance(Duration::from_secs(61));
    });
    let expected: BTreeSet<String> = (0..2).flat_map(|client| texts(&of(client))).collect();
    assert_eq!(executed(&virtual_time).into_iter().collect::<BTreeSet<_>>(), expected);
    assert_each_was_taken(&virtual_time);
}

/// Sends all comments by a library, and advances the clock once the gateway holds the last one.
fn are_written_as_received(library: Library, comments: &[Value]) {
    let virtual_time = VirtualTime::start(1, "");
    let relay = Relay::start(&virtual_time);
    let gate = virtual_time.close_gate();
    let (received, values) = std::thread::scope(|scope| {
        let playing = scope.spawn(|| {
            VirtualTime::client(0, library, &relay.address)
                .plays("comments_at_once", &arguments(comments))
                .0
        });
        let received = virtual_time.runtime.block_on(relay.all_received(comments.len()));
        virtual_time.open_gate(gate);
        for written in 1..comments.len() {
            VirtualTime::until(|| {
                virtual_time.gateway.dispatcher.admissions().waiting() > 0
                    && virtual_time.gateway.writes.turns().writes() == comments.len() - written
            });
            assert_eq!(virtual_time.posts(), written, "one was sent before its time");
            virtual_time.clock.advance(SPACING);
        }
        (received, playing.join().expect("the library plays its scenario"))
    });
    assert_eq!(written_texts(&values), texts(comments));
    let text = |body: &String| {
        serde_json::from_str::<Value>(body).expect("a comment in JSON")["body"]
            .as_str()
            .map(str::to_owned)
    };
    let received: Vec<_> = received.iter().filter_map(text).collect();
    assert_eq!(by_issue(&executed(&virtual_time)), by_issue(&received));
    assert_each_was_taken(&virtual_time);
}

fn arguments(comments: &[Value]) -> Value {
    json!({ "owner": "acme", "repo": "widgets", "comments": comments })
}

fn texts(comments: &[Value]) -> Vec<String> {
    comments.iter().filter_map(|comment| comment["text"].as_str()).map(str::to_owned).collect()
}

/// The texts of the library's responses, in the order of its requests.
fn written_texts(values: &Value) -> Vec<String> {
    texts(values["written"].as_array().expect("a list"))
}

/// The texts of the existing comments, the oldest first; each is one execution.
fn executed(virtual_time: &VirtualTime) -> Vec<String> {
    let comments = virtual_time.comments();
    let mut ours: Vec<_> = comments
        .iter()
        .filter_map(|comment| Some((comment["id"].as_u64()?, comment["body"].as_str()?)))
        .filter(|(_, text)| is_ours(text))
        .collect();
    ours.sort_unstable();
    ours.into_iter().map(|(_, text)| text.to_owned()).collect()
}

/// True for a text of these tests: `… N: NNN`.
fn is_ours(text: &str) -> bool {
    text.rsplit_once(": ").is_some_and(|(_, number)| {
        number.len() == 3 && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// The comments of each issue in their order.
fn by_issue(texts: &[String]) -> BTreeMap<&str, Vec<&str>> {
    let mut lanes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for text in texts {
        let (issue, _) = text.split_once(": ").expect("the number of an issue");
        lanes.entry(issue).or_default().push(text);
    }
    lanes
}

/// The upstream received each write once and refused none.
fn assert_each_was_taken(virtual_time: &VirtualTime) {
    let posts: Vec<_> =
        virtual_time.transcript().into_iter().filter(|entry| entry.method == "POST").collect();
    assert_eq!(posts.len(), COMMENTS);
    assert!(posts.iter().all(|entry| entry.status == 201 && entry.refused.is_none()));
    let counters = virtual_time.ask_emulator(Method::GET, "/_emulator/books", &Value::Null);
    let figures = ["refused_primary", "refused_secondary", "sent_while_limited"]
        .map(|name| counters[name].as_u64());
    assert_eq!(figures, [Some(0); 3], "{counters}");
}
