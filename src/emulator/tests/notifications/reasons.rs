//! Tests the reasons of notifications: the cause of each, and the one that is kept (SPECIFICATION,
//! "Notifications").

use serde_json::{Value, json};

use crate::emulator::tests::*;

const CLEO: &str = "emu_classic_cleo_all_scopes";
const NOTIFICATIONS: &str = "/notifications?all=true&per_page=50";

fn happens(upstream: &mut Upstream, event: &Value) -> Answer {
    let mut whole =
        json!({ "repository": "acme/sprockets", "actor": "ben", "user": "cleo", "number": 1 });
    for (name, value) in event.as_object().expect("an object") {
        whole[name] = value.clone();
    }
    upstream.pass(1);
    upstream.post(NOBODY, "/_emulator/events", &whole)
}

fn happened(upstream: &mut Upstream, event: &Value) {
    happens(upstream, event).assert_status(201);
}

fn newest(upstream: &mut Upstream, token: &str) -> Value {
    upstream
        .get(token, NOTIFICATIONS)
        .assert_status(200)
        .items()
        .first()
        .cloned()
        .unwrap_or_default()
}

/// Returns the reason of the thread about an issue of acme/sprockets; null without one.
fn reason(upstream: &mut Upstream, token: &str, number: u64) -> Value {
    let address = format!("/repos/acme/sprockets/issues/{number}");
    let inbox = upstream.get(token, NOTIFICATIONS).assert_status(200);
    let thread = inbox.items().iter().find(|thread| {
        thread["subject"]["url"].as_str().is_some_and(|url| url.ends_with(&address))
    });
    thread.map_or(Value::Null, |thread| thread["reason"].clone())
}

fn comment(upstream: &mut Upstream, token: &str, number: u64, text: &str) {
    upstream.pass(1);
    upstream
        .post(
            token,
            &format!("/repos/acme/sprockets/issues/{number}/comments"),
            &json!({ "body": text }),
        )
        .assert_status(201);
}

fn open(upstream: &mut Upstream, token: &str, body: &Value) -> u64 {
    upstream.pass(1);
    let issue = upstream.post(token, "/repos/acme/sprockets/issues", body).assert_status(201);
    issue.body["number"].as_u64().expect("a number")
}

fn change(upstream: &mut Upstream, token: &str, number: u64, body: &Value) {
    upstream.pass(1);
    upstream
        .patch(token, &format!("/repos/acme/sprockets/issues/{number}"), body)
        .assert_status(200);
}

#[test]
fn each_of_the_13_reasons_has_an_event_that_produces_it() {
    let mut upstream = Upstream::new();
    let mut seen = std::collections::BTreeSet::new();
    for event in ["ci_activity", "approval_requested", "invitation", "assign", "mention"] {
        happened(&mut upstream, &json!({ "type": event }));
        seen.insert(newest(&mut upstream, CLEO)["reason"].as_str().unwrap_or("none").to_owned());
    }
    happened(
        &mut upstream,
        &json!({ "type": "team_mention", "team": "acme/platform-core", "number": 2 }),
    );
    seen.insert(newest(&mut upstream, CLEO)["reason"].as_str().unwrap_or("none").to_owned());
    happened(
        &mut upstream,
        &json!({ "type": "review_requested", "repository": "acme/widgets", "number": 76 }),
    );
    seen.insert(newest(&mut upstream, CLEO)["reason"].as_str().unwrap_or("none").to_owned());
    happened(&mut upstream, &json!({ "type": "member_feature_requested" }));
    seen.insert(newest(&mut upstream, ADA)["reason"].as_str().unwrap_or("none").to_owned());
    // author, comment, state_change: the user's participation, reported on the next event.
    let number = open(&mut upstream, CLEO, &json!({ "title": "Mine" }));
    for (body, by) in [(None, "author"), (Some(json!({ "state": "closed" })), "state_change")] {
        if let Some(body) = body {
            change(&mut upstream, CLEO, number, &body);
        }
        comment(&mut upstream, BEN, number, "Go on");
        assert_eq!(reason(&mut upstream, CLEO, number), by);
        seen.insert(by.to_owned());
    }
    comment(&mut upstream, CLEO, 3, "I have seen it too");
    comment(&mut upstream, BEN, 3, "And I");
    seen.insert(reason(&mut upstream, CLEO, 3).as_str().unwrap_or("none").to_owned());
    // subscribed: watching; manual: subscribing to a thread by hand.
    happened(&mut upstream, &json!({ "type": "watch" }));
    let number = open(&mut upstream, BEN, &json!({ "title": "Watched" }));
    seen.insert(reason(&mut upstream, CLEO, number).as_str().unwrap_or("none").to_owned());
    let path = newest(&mut upstream, CLEO)["subscription_url"]
        .as_str()
        .and_then(|url| url.strip_prefix("http://upstream.test"))
        .map(str::to_owned);
    upstream.put(CLEO, &path.expect("our address"), &json!({})).assert_status(200);
    comment(&mut upstream, BEN, number, "Again");
    seen.insert(reason(&mut upstream, CLEO, number).as_str().unwrap_or("none").to_owned());
    let all = [
        "approval_requested",
        "assign",
        "author",
        "ci_activity",
        "comment",
        "invitation",
        "manual",
        "member_feature_requested",
        "mention",
        "review_requested",
        "state_change",
        "subscribed",
        "team_mention",
    ];
    assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), all);
}

#[test]
fn ci_and_invitation_threads_have_subjects_of_their_own() {
    let mut upstream = Upstream::new();
    let run = happens(&mut upstream, &json!({ "type": "ci_activity" })).assert_status(201);
    let thread = newest(&mut upstream, CLEO);
    let url = format!("http://upstream.test/repos/acme/sprockets/actions/runs/{}", run.body["id"]);
    assert_eq!(
        thread["subject"],
        json!({ "title": "CI workflow run completed", "url": url, "latest_comment_url": url, "type": "CheckSuite" })
    );
    let id = thread["id"].clone();
    happened(&mut upstream, &json!({ "type": "ci_activity" }));
    assert_ne!(newest(&mut upstream, CLEO)["id"], id, "another run is another thread");
    for (event, kind) in
        [("invitation", "RepositoryInvitation"), ("approval_requested", "CheckSuite")]
    {
        happened(&mut upstream, &json!({ "type": event }));
        let subject = newest(&mut upstream, CLEO)["subject"].clone();
        assert_eq!(subject["type"], kind);
        for field in ["title", "url", "latest_comment_url"] {
            assert!(subject[field].as_str().is_some_and(|text| !text.is_empty()), "{field}");
        }
    }
}

#[test]
fn a_pull_request_thread_links_its_latest_comment() {
    let mut upstream = Upstream::new();
    happened(
        &mut upstream,
        &json!({ "type": "review_requested", "repository": "acme/widgets", "number": 77 }),
    );
    let subject = newest(&mut upstream, CLEO)["subject"].clone();
    assert_eq!(
        (&subject["type"], &subject["url"]),
        (&json!("PullRequest"), &json!("http://upstream.test/repos/acme/widgets/pulls/77"))
    );
    assert_eq!(subject["latest_comment_url"], subject["url"]);
    happened(
        &mut upstream,
        &json!({ "type": "mention", "repository": "acme/widgets", "number": 77 }),
    );
    let subject = newest(&mut upstream, CLEO)["subject"].clone();
    let address = subject["latest_comment_url"]
        .as_str()
        .and_then(|url| url.strip_prefix("http://upstream.test"))
        .expect("our address")
        .to_owned();
    assert_eq!(upstream.get(CLEO, &address).assert_status(200).body["user"]["login"], "ben");
}

#[test]
fn a_mention_stays_the_reason_of_its_thread() {
    let mut upstream = Upstream::new();
    let number =
        open(&mut upstream, BEN, &json!({ "title": "For @cleo", "body": "and nobody else" }));
    assert_eq!(reason(&mut upstream, CLEO, number), "mention");
    comment(&mut upstream, ADA, number, "nothing");
    comment(&mut upstream, CLEO, number, "I reply");
    comment(&mut upstream, ADA, number, "still nothing");
    change(&mut upstream, CLEO, number, &json!({ "state": "closed" }));
    change(&mut upstream, BEN, number, &json!({ "state": "open", "assignees": ["cleo"] }));
    comment(&mut upstream, ADA, number, "@acme/platform look");
    assert_eq!(reason(&mut upstream, CLEO, number), "mention");
    assert_eq!(reason(&mut upstream, BEN, number), "team_mention");
}

#[test]
fn a_reason_changes_only_with_a_later_notification() {
    let mut upstream = Upstream::new();
    let number = open(&mut upstream, BEN, &json!({ "title": "x", "assignees": ["cleo"] }));
    assert_eq!(reason(&mut upstream, CLEO, number), "assign");
    comment(&mut upstream, ADA, number, "nothing");
    assert_eq!(reason(&mut upstream, CLEO, number), "assign", "kept");
    change(&mut upstream, BEN, number, &json!({ "assignees": [] }));
    comment(&mut upstream, ADA, number, "nothing");
    assert_eq!(reason(&mut upstream, CLEO, number), "assign", "kept, although the cause is gone");
    comment(&mut upstream, CLEO, number, "I take part");
    assert_eq!(reason(&mut upstream, CLEO, number), "assign", "there was no later notification");
    comment(&mut upstream, ADA, number, "nothing");
    assert_eq!(reason(&mut upstream, CLEO, number), "comment");
    comment(&mut upstream, ADA, number, "@acme/platform-core");
    assert_eq!(reason(&mut upstream, CLEO, number), "team_mention");
    comment(&mut upstream, ADA, number, "nothing");
    assert_eq!(
        reason(&mut upstream, CLEO, number),
        "team_mention",
        "her own comment was the reason of the previous notification"
    );
    change(&mut upstream, CLEO, number, &json!({ "state": "closed" }));
    assert_eq!(reason(&mut upstream, CLEO, number), "team_mention");
    comment(&mut upstream, ADA, number, "nothing");
    assert_eq!(reason(&mut upstream, CLEO, number), "state_change");
    comment(&mut upstream, ADA, number, "@Cleo!");
    assert_eq!(reason(&mut upstream, CLEO, number), "mention");
}

#[test]
fn the_reason_stays_author_when_the_author_comments() {
    let mut upstream = Upstream::new();
    let number = open(&mut upstream, CLEO, &json!({ "title": "Mine" }));
    assert_eq!(
        reason(&mut upstream, CLEO, number),
        Value::Null,
        "nobody is notified of their own actions"
    );
    comment(&mut upstream, CLEO, number, "more");
    comment(&mut upstream, BEN, number, "thanks");
    assert_eq!(reason(&mut upstream, CLEO, number), "author");
    comment(&mut upstream, CLEO, number, "and more");
    comment(&mut upstream, BEN, number, "thanks");
    assert_eq!(reason(&mut upstream, CLEO, number), "author");
}

#[test]
fn an_edit_notifies_only_newly_mentioned_users() {
    let mut upstream = Upstream::new();
    let number = open(&mut upstream, BEN, &json!({ "title": "x", "body": "@cleo" }));
    let updated = newest(&mut upstream, CLEO)["updated_at"].clone();
    change(&mut upstream, BEN, number, &json!({ "title": "y" }));
    assert_eq!(
        newest(&mut upstream, CLEO)["updated_at"],
        updated,
        "a changed title notifies nobody"
    );
    change(&mut upstream, BEN, number, &json!({ "body": "@cleo and @ada" }));
    assert_eq!(newest(&mut upstream, CLEO)["updated_at"], updated, "she was named before");
    assert_eq!(reason(&mut upstream, ADA, number), "mention");
    change(&mut upstream, ADA, number, &json!({ "state": "closed" }));
    assert_ne!(newest(&mut upstream, CLEO)["updated_at"], updated, "closing notifies");
}

#[test]
fn a_user_without_access_to_a_repository_is_not_notified() {
    let mut upstream = Upstream::new();
    let before = upstream.get(DAN, NOTIFICATIONS).items().len();
    upstream
        .post(BEN, "/repos/acme/gadgets/issues", &json!({ "title": "@dan", "assignees": ["dan"] }))
        .assert_status(201);
    assert_eq!(upstream.get(DAN, NOTIFICATIONS).items().len(), before);
    for event in ["ci_activity", "approval_requested"] {
        happens(
            &mut upstream,
            &json!({ "type": event, "repository": "acme/gadgets", "user": "dan" }),
        )
        .assert_status(422);
    }
    happened(
        &mut upstream,
        &json!({ "type": "invitation", "repository": "acme/gadgets", "user": "dan" }),
    );
    assert_eq!(
        newest(&mut upstream, DAN)["repository"]["full_name"],
        "acme/gadgets",
        "an invited user sees it"
    );
    upstream.get(DAN, "/repos/acme/gadgets").assert_status(200);
}

#[test]
fn a_review_request_to_a_team_notifies_its_members() {
    let mut upstream = Upstream::new();
    let review = json!({ "type": "review_requested", "repository": "acme/widgets", "number": 76, "actor": "ada", "team": "acme/platform" });
    happened(&mut upstream, &review);
    for token in [BEN, CLEO] {
        assert_eq!(newest(&mut upstream, token)["reason"], "review_requested");
    }
    assert_ne!(newest(&mut upstream, ADA)["reason"], "review_requested");
}

#[test]
fn a_state_change_event_closes_or_reopens_an_issue() {
    let mut upstream = Upstream::new();
    for state in ["closed", "open"] {
        happened(&mut upstream, &json!({ "type": "state_change" }));
        assert_eq!(upstream.get(ADA, "/repos/acme/sprockets/issues/1").body["state"], state);
    }
    happened(&mut upstream, &json!({ "type": "comment", "actor": "ada" }));
    assert_eq!(reason(&mut upstream, BEN, 1), "state_change");
}

#[test]
fn an_invalid_event_is_422_with_a_message() {
    let mut upstream = Upstream::new();
    let cases = [
        json!({ "type": "assign", "number": 999 }),
        json!({ "type": "assign", "number": "one" }),
        json!({ "type": "assign", "user": "nobody" }),
        json!({ "type": "assign", "user": 3 }),
        json!({ "type": "assign", "actor": "🦀" }),
        json!({ "type": "assign", "repository": "acme" }),
        json!({ "type": "assign", "repository": "acme/nothing" }),
        json!({ "type": "assign", "repository": null }),
        json!({ "type": "team_mention" }),
        json!({ "type": "team_mention", "team": "platform" }),
        json!({ "type": "team_mention", "team": "acme/nothing" }),
        json!({ "type": "team_mention", "team": "acme/bots", "number": 999 }),
        json!({ "type": "review_requested" }),
        json!({ "type": "state_change", "number": 0 }),
        json!({ "type": "member_feature_requested", "repository": "ada/dotfiles" }),
        json!({ "type": "flood" }),
        json!({ "type": 3 }),
    ];
    for event in cases {
        let refused = happens(&mut upstream, &event);
        assert_eq!(refused.status, 422, "{event}");
        assert!(
            refused.body["message"].as_str().is_some_and(|message| !message.is_empty()),
            "{event}"
        );
    }
}

#[test]
fn an_unwatched_repository_no_longer_notifies() {
    let mut upstream = Upstream::new();
    happened(&mut upstream, &json!({ "type": "watch" }));
    let first = open(&mut upstream, BEN, &json!({ "title": "Watched" }));
    happened(&mut upstream, &json!({ "type": "unwatch" }));
    let second = open(&mut upstream, BEN, &json!({ "title": "Not watched" }));
    assert_eq!(
        (reason(&mut upstream, CLEO, first), reason(&mut upstream, CLEO, second)),
        (json!("subscribed"), Value::Null)
    );
}

#[test]
fn the_world_lists_threads_roles_properties_and_fields() {
    let mut upstream = Upstream::new();
    let world = upstream.get(NOBODY, "/_emulator/world").body;
    let reasons: std::collections::BTreeSet<&str> = world["threads"]
        .as_array()
        .expect("threads")
        .iter()
        .filter_map(|thread| thread["reason"].as_str())
        .collect();
    assert_eq!(reasons.len(), 13);
    let acme = &world["organizations"][0];
    assert_eq!(acme["roles"]["custom_properties_org_definitions_manager"], json!(["ben"]));
    assert_eq!(acme["roles"]["custom_properties_org_values_editor"], json!(["cleo"]));
    assert_eq!(
        acme["properties"][1],
        json!({ "property_name": "environment", "value_type": "single_select" })
    );
    assert_eq!(acme["issue_fields"].as_array().map(Vec::len), Some(2));
}

/// Asserts that a member of a thread's subject is the address of something that the user can read.
fn assert_answers(upstream: &mut Upstream, token: &str, subject: &Value, member: &str) {
    let url = subject[member].as_str().expect("an address");
    let path = url.strip_prefix("http://upstream.test").expect("our address");
    let status = upstream.get(token, path).status;
    assert_eq!(status, 200, "{member} of {subject}");
}

#[test]
fn the_subject_of_every_seeded_thread_can_be_read() {
    let mut upstream = Upstream::new();
    let world = upstream.get(NOBODY, "/_emulator/world").body;
    let mut kinds = std::collections::BTreeSet::new();
    for token in world["tokens"].as_array().expect("tokens") {
        let has_inbox =
            token["scopes"].as_array().is_some_and(|scopes| scopes.contains(&json!("repo")));
        let value = token["token"].as_str().expect("a token");
        if token["kind"] != "classic" || !has_inbox {
            continue;
        }
        for page in 1..=2 {
            upstream.pass(60);
            let path = format!("/notifications?all=true&per_page=50&page={page}");
            let threads = upstream.get(value, &path);
            if threads.status != 200 {
                continue;
            }
            for thread in threads.items() {
                let subject = &thread["subject"];
                assert_answers(&mut upstream, value, subject, "url");
                assert_answers(&mut upstream, value, subject, "latest_comment_url");
                kinds.insert(subject["type"].as_str().unwrap_or_default().to_owned());
            }
        }
    }
    let all = ["CheckSuite", "Issue", "MemberFeatureRequest", "RepositoryInvitation"];
    assert_eq!(kinds.iter().map(String::as_str).collect::<Vec<_>>(), all);
}

#[test]
fn a_run_of_a_triggered_notification_can_be_read() {
    let mut upstream = Upstream::new();
    for (event, status) in [("ci_activity", "completed"), ("approval_requested", "waiting")] {
        let run = happens(&mut upstream, &json!({ "type": event })).assert_status(201);
        let subject = newest(&mut upstream, CLEO)["subject"].clone();
        assert_answers(&mut upstream, CLEO, &subject, "url");
        let path = format!("/repos/acme/sprockets/actions/runs/{}", run.body["id"]);
        assert_eq!(upstream.get(CLEO, &path).body["status"], status);
    }
}
