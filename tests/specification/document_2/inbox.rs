//! Notification lists: the inbox of a person and of a repository, and marking the inbox as read.

use serde_json::json;

use crate::document_2::events::{inbox, latest, occur, open_issue, watch};
use crate::kit::{ANONYMOUS, Answer, TestRequest, Upstream};
use crate::rows::document_2::notifications::THREAD;
use crate::shape::assert_shapes;

const INBOX: &str = "/notifications";
const OF_WIDGETS: &str = "/repos/acme/widgets/notifications";

fn updates(list: &Answer) -> Vec<String> {
    list.items()
        .iter()
        .filter_map(|thread| thread["updated_at"].as_str())
        .map(str::to_owned)
        .collect()
}

fn ids(list: &Answer) -> Vec<String> {
    list.items().iter().filter_map(|thread| thread["id"].as_str()).map(str::to_owned).collect()
}

#[test]
pub fn the_inbox_is_listed() {
    let mut upstream = Upstream::new();
    let (ada, bare) = (upstream.classic("ada"), upstream.classic_without_scopes("ada"));
    let list = upstream.get(&ada, INBOX).expect_status(200);
    assert_shapes(&list.body, &THREAD);
    let since = list.header("last-modified").to_owned();
    upstream
        .send(&TestRequest::new("GET", INBOX).by(&ada).header("if-modified-since", &since))
        .expect_status(304);
    upstream.get(ANONYMOUS, INBOX).expect_status(401);
    upstream.get(&bare, INBOX).expect_status(403);
    upstream.get(&ada, "/notifications?since=yesterday").expect_status(422);
}

#[test]
pub fn the_inbox_is_sorted_by_the_most_recent_update() {
    let mut upstream = Upstream::new();
    let before = updates(&inbox(&mut upstream, "ada", "?all=true"));
    assert!(before.is_sorted_by(|earlier, later| earlier >= later), "{before:?}");
    let number = open_issue(&mut upstream, "ben", "Look, @ada");
    let first = latest(&mut upstream, "ada");
    let subject = first["subject"]["url"].as_str().unwrap_or_default();
    assert!(subject.ends_with(&format!("/issues/{number}")), "{subject}");
    let after = updates(&inbox(&mut upstream, "ada", "?all=true"));
    assert!(after.is_sorted_by(|earlier, later| earlier >= later), "{after:?}");
}

#[test]
pub fn read_threads_are_listed_only_with_all() {
    let mut upstream = Upstream::new();
    for (list, size) in [(INBOX, 50), (OF_WIDGETS, 100)] {
        let ada = upstream.classic("ada");
        let read = ids(&upstream.get(&ada, list).expect_status(200))[0].clone();
        upstream
            .patch(&ada, &format!("/notifications/threads/{read}"), &json!(null))
            .expect_status(205);
        for (query, is_there) in [("", false), ("&all=false", false), ("&all=true", true)] {
            let mut seen = Vec::new();
            for page in 1..=2 {
                let threads = upstream
                    .get(&ada, &format!("{list}?per_page={size}&page={page}{query}"))
                    .expect_status(200);
                assert!(is_there || threads.items().iter().all(|thread| thread["unread"] == true));
                seen.extend(ids(&threads));
            }
            assert_eq!(seen.contains(&read), is_there, "{list} {query}");
        }
    }
    upstream.get(&upstream.classic("ada"), "/notifications?all=perhaps").assert_names_field("all");
}

#[test]
pub fn participating_leaves_out_watched_repositories() {
    let mut upstream = Upstream::new();
    let cleo = upstream.classic("cleo");
    watch(&mut upstream, "cleo");
    open_issue(&mut upstream, "ben", "Nobody in particular");
    let watched = latest(&mut upstream, "cleo")["id"].clone();
    open_issue(&mut upstream, "ben", "Look, @cleo");
    let mentioned = latest(&mut upstream, "cleo")["id"].clone();
    assert_ne!(watched, mentioned);
    let both = json!([mentioned, watched]);
    for list in [INBOX, OF_WIDGETS] {
        for (query, expected) in [
            ("", &both),
            ("?participating=false", &both),
            ("?participating=true", &json!([mentioned])),
        ] {
            let seen = upstream.get(&cleo, &format!("{list}{query}")).expect_status(200);
            assert_eq!(&json!(ids(&seen)), expected, "{list}{query}");
        }
    }
}

#[test]
pub fn since_and_before_select_by_the_time_of_the_update() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    for list in [INBOX, OF_WIDGETS] {
        let whole = upstream.get(&ada, &format!("{list}?all=true")).expect_status(200);
        let times = updates(&whole);
        let middle = times[times.len() / 2].clone();
        let later =
            upstream.get(&ada, &format!("{list}?all=true&since={middle}")).expect_status(200);
        let earlier =
            upstream.get(&ada, &format!("{list}?all=true&before={middle}")).expect_status(200);
        assert!(
            !later.items().is_empty() && updates(&later).iter().all(|time| *time >= middle),
            "{list}"
        );
        assert!(
            !earlier.items().is_empty() && updates(&earlier).iter().all(|time| *time <= middle),
            "{list}"
        );
        let newest = whole
            .items()
            .iter()
            .filter(|thread| thread["updated_at"].as_str() > Some(middle.as_str()));
        for thread in newest {
            assert!(
                ids(&later).contains(&thread["id"].as_str().unwrap_or_default().to_owned()),
                "{list}"
            );
        }
        upstream.get(&ada, &format!("{list}?before=tomorrow")).assert_names_field("before");
    }
}

#[test]
pub fn a_page_of_the_inbox_has_50_threads_at_most_and_by_default() {
    let mut upstream = Upstream::new();
    let whole = inbox(&mut upstream, "ada", "?all=true");
    assert_eq!(whole.items().len(), 50);
    assert_eq!(inbox(&mut upstream, "ada", "?all=true&per_page=100").items().len(), 50);
    let third = inbox(&mut upstream, "ada", "?all=true&per_page=7&page=3");
    assert_eq!(third.items(), &whole.items()[14..21]);
    assert_eq!(inbox(&mut upstream, "ada", "?all=true&page=1").items(), whole.items());
    assert!(!inbox(&mut upstream, "ada", "?all=true&page=2").items().is_empty());
}

#[test]
pub fn the_inbox_is_marked_read() {
    let mut upstream = Upstream::new();
    let (ada, bare) = (upstream.classic("ada"), upstream.classic_without_scopes("ada"));
    upstream.put(ANONYMOUS, INBOX, &json!({})).expect_status(401);
    upstream.put(&bare, INBOX, &json!({})).expect_status(403);
    assert!(!inbox(&mut upstream, "ada", "").items().is_empty());
    assert_eq!(
        upstream.put(&ada, INBOX, &json!({ "read": true })).expect_status(205).bytes.len(),
        0
    );
    assert!(inbox(&mut upstream, "ada", "").items().is_empty());
}

#[test]
pub fn a_large_volume_is_marked_in_the_background() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    upstream.set_limit("notifications.background-above", 10);
    let accepted = upstream.put(&ada, INBOX, &json!({})).expect_status(202);
    assert!(!accepted.message().is_empty());
    upstream.pass(600);
    assert!(inbox(&mut upstream, "ada", "").items().is_empty());
}

#[test]
pub fn last_read_at_is_now_by_default_and_later_updates_stay_unread() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    upstream.put(&ada, INBOX, &json!({})).expect_status(205);
    let read = latest(&mut upstream, "ada");
    assert!(read["last_read_at"].as_str() > read["updated_at"].as_str(), "{read}");
    open_issue(&mut upstream, "ben", "Look, @ada");
    assert_eq!(inbox(&mut upstream, "ada", "").items().len(), 1);
    // A time before the update: the thread stays unread.
    upstream.put(&ada, INBOX, &json!({ "last_read_at": read["last_read_at"] }));
    assert_eq!(inbox(&mut upstream, "ada", "").items().len(), 1);
    for (field, wrong) in [("last_read_at", json!("yesterday")), ("read", json!("yes"))] {
        upstream.put(&ada, INBOX, &json!({ field: wrong })).assert_names_field(field);
    }
}

#[test]
pub fn a_repositorys_notifications_are_listed() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    upstream.event(&json!({ "type": "mention", "repository": "acme/gadgets", "actor": "ben", "user": "ada", "text": "Look" }));
    let list = upstream.get(&ada, OF_WIDGETS).expect_status(200);
    assert_shapes(&list.body, &THREAD);
    assert!(list.items().iter().all(|thread| thread["repository"]["full_name"] == "acme/widgets"));
    let other = upstream.get(&ada, "/repos/acme/gadgets/notifications").expect_status(200);
    assert!(!other.items().is_empty());
    assert!(other.items().iter().all(|thread| thread["repository"]["full_name"] == "acme/gadgets"));
}

#[test]
pub fn owner_and_repository_are_named_in_any_case_and_without_git() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let plain = upstream.get(&ada, OF_WIDGETS).expect_status(200);
    let shouted = upstream.get(&ada, "/repos/ACME/Widgets/notifications").expect_status(200);
    assert_eq!(ids(&shouted), ids(&plain));
    upstream.get(&ada, "/repos/acme/widgets.git/notifications").expect_status(404);
    upstream.get(&ada, "/repos/acme/there-is-no-such-repository/notifications").expect_status(404);
}

#[test]
pub fn a_repositorys_page_has_30_threads_by_default_and_100_at_most() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    watch(&mut upstream, "ada");
    for _ in 0..60 {
        occur(&mut upstream, "issue_opened", "ada");
    }
    let page = |upstream: &mut Upstream, query: &str| {
        let list = upstream.get(&ada, &format!("{OF_WIDGETS}?all=true{query}")).expect_status(200);
        list.items().clone()
    };
    assert_eq!(page(&mut upstream, "").len(), 30);
    let hundred = page(&mut upstream, "&per_page=1000");
    assert_eq!(hundred.len(), 100);
    assert_eq!(page(&mut upstream, "&per_page=7&page=3"), hundred[14..21]);
    assert!(!page(&mut upstream, "&per_page=100&page=2").is_empty());
}
