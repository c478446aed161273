//! Tests each kind of record in an archive, with content created by callers (SPECIFICATION, "User
//! migrations").

use serde_json::{Value, json};

use super::archives::{Files, archive_of, records};
use crate::emulator::tests::repositories::pull_requests::propose;
use crate::emulator::tests::*;

/// Every documented kind but `schema`, which is not a list.
const KINDS: [&str; 16] = [
    "attachments",
    "bases",
    "commit_comments",
    "issue_comments",
    "issue_events",
    "issues",
    "milestones",
    "organizations",
    "projects",
    "protected_branches",
    "pull_request_reviews",
    "pull_requests",
    "releases",
    "repositories",
    "review_comments",
    "users",
];
const SITE: &str = "https://git.example.com";

fn on(rest: &str) -> String {
    format!("/repos/acme/widgets{rest}")
}

fn archive(upstream: &mut Upstream) -> Files {
    archive_of(upstream, &json!({ "repositories": ["acme/widgets"] }))
}

fn of_kind(files: &Files, kind: &str) -> Vec<Value> {
    records(files, &format!("{kind}_000001.json"))
}

fn kinds_in(files: &Files) -> Vec<&str> {
    files.keys().filter_map(|name| name.strip_suffix("_000001.json")).collect()
}

#[test]
fn every_documented_kind_has_a_file_even_without_records() {
    let mut upstream = Upstream::new();
    for repository in ["acme/widgets", "ada/dotfiles"] {
        let files = archive_of(&mut upstream, &json!({ "repositories": [repository] }));
        assert_eq!(kinds_in(&files), KINDS, "{repository}");
        assert!(files.contains_key("schema.json") && files.contains_key("attachments/"));
        for kind in [
            "attachments",
            "projects",
            "commit_comments",
            "pull_request_reviews",
            "review_comments",
            "protected_branches",
        ] {
            assert!(of_kind(&files, kind).is_empty(), "{kind}");
        }
    }
}

#[test]
fn a_kind_that_is_excluded_has_no_file_and_every_other_has() {
    let mut upstream = Upstream::new();
    for (flag, gone) in [
        ("exclude_attachments", "attachments"),
        ("exclude_releases", "releases"),
        ("exclude_owner_projects", "projects"),
    ] {
        let files =
            archive_of(&mut upstream, &json!({ "repositories": ["acme/widgets"], flag: true }));
        let expected: Vec<&str> = KINDS.into_iter().filter(|kind| *kind != gone).collect();
        assert_eq!(kinds_in(&files), expected, "{flag}");
    }
    let files = archive_of(
        &mut upstream,
        &json!({ "repositories": ["acme/widgets"], "exclude_metadata": true }),
    );
    assert!(files.keys().all(|name| name.starts_with("repositories/")));
    let files =
        archive_of(&mut upstream, &json!({ "repositories": [], "org_metadata_only": true }));
    assert_eq!(kinds_in(&files), ["organizations", "users"]);
}

#[test]
fn a_comment_on_a_commit_is_in_the_archive() {
    let mut upstream = Upstream::new();
    let sent = json!({ "body": "Nice 🦀", "path": "README.md", "position": 2 });
    let made = upstream.post(BEN, &on("/commits/main/comments"), &sent).assert_status(201).body;
    let comments = of_kind(&archive(&mut upstream), "commit_comments");
    assert_eq!(comments.len(), 1);
    let comment = &comments[0];
    assert_eq!(
        (&comment["type"], &comment["user"]),
        (&json!("commit_comment"), &json!(format!("{SITE}/ben")))
    );
    for member in ["body", "path", "position", "commit_id", "created_at"] {
        assert_eq!(comment[member], made[member], "{member}");
    }
    let sha = made["commit_id"].as_str().expect("a commit");
    assert_eq!(
        comment["url"],
        format!("{SITE}/acme/widgets/commit/{sha}#commitcomment-{}", made["id"])
    );
    upstream.delete(ADA, &on(&format!("/comments/{}", made["id"]))).assert_status(204);
    assert!(of_kind(&archive(&mut upstream), "commit_comments").is_empty());
}

#[test]
fn a_review_of_a_pull_is_in_the_archive_with_its_state() {
    let mut upstream = Upstream::new();
    let events = [
        ("APPROVE", "APPROVED"),
        ("REQUEST_CHANGES", "CHANGES_REQUESTED"),
        ("COMMENT", "COMMENTED"),
        ("", "PENDING"),
    ];
    for (event, _) in events {
        upstream
            .post(ADA, &on("/pulls/76/reviews"), &json!({ "body": event, "event": event }))
            .assert_status(201);
    }
    let last = upstream
        .post(ADA, &on("/pulls/76/reviews"), &json!({ "body": "No", "event": "APPROVE" }))
        .assert_status(201)
        .body;
    upstream
        .put(
            ADA,
            &on(&format!("/pulls/76/reviews/{}/dismissals", last["id"])),
            &json!({ "message": "no" }),
        )
        .assert_status(200);
    let files = archive(&mut upstream);
    let reviews = of_kind(&files, "pull_request_reviews");
    let states: Vec<&str> = reviews.iter().filter_map(|review| review["state"].as_str()).collect();
    assert_eq!(states, ["APPROVED", "CHANGES_REQUESTED", "COMMENTED", "PENDING", "DISMISSED"]);
    let pull = of_kind(&files, "pull_requests")
        .into_iter()
        .find(|pull| pull["url"] == reviews[0]["pull_request"])
        .expect("its pull");
    assert_eq!(
        reviews[4]["url"],
        format!("{}#pullrequestreview-{}", pull["url"].as_str().unwrap_or(""), last["id"])
    );
    assert_eq!(
        (&reviews[4]["user"], &reviews[4]["body"]),
        (&json!(format!("{SITE}/ada")), &json!("No"))
    );
}

#[test]
fn a_review_comment_is_in_the_archive_and_its_author_too() {
    let mut upstream = Upstream::new();
    let sent = json!({ "body": "Look", "path": "README.md", "position": 1, "commit_id": "abc" });
    let made = upstream.post(DAN, &on("/pulls/76/comments"), &sent).assert_status(201).body;
    let files = archive(&mut upstream);
    let comments = of_kind(&files, "review_comments");
    assert_eq!(comments.len(), 1);
    let on = format!("{SITE}/acme/widgets/pull/76");
    assert_eq!(
        (&comments[0]["pull_request"], &comments[0]["type"]),
        (&json!(on), &json!("review_comment"))
    );
    assert_eq!(comments[0]["url"], format!("{on}#discussion_r{}", made["id"]));
    for (member, value) in sent.as_object().expect("an object") {
        assert_eq!(&comments[0][member.as_str()], value, "{member}");
    }
    assert!(
        of_kind(&files, "users").iter().any(|user| user["url"] == comments[0]["user"]),
        "everyone named is there"
    );
}

#[test]
fn a_protected_branch_is_archived_while_it_is_protected() {
    let mut upstream = Upstream::new();
    let path = on("/branches/main/protection");
    let wanted = json!({
        "required_status_checks": { "strict": true, "contexts": ["ci"] }, "enforce_admins": true,
        "required_pull_request_reviews": null, "restrictions": { "users": ["ben"], "teams": [], "apps": [] },
    });
    upstream.put(ADA, &path, &wanted).assert_status(200);
    let branches = of_kind(&archive(&mut upstream), "protected_branches");
    assert_eq!(branches.len(), 1);
    assert_eq!(
        (&branches[0]["name"], &branches[0]["type"]),
        (&json!("main"), &json!("protected_branch"))
    );
    assert_eq!(branches[0]["repository"], format!("{SITE}/acme/widgets"));
    assert_eq!(
        (&branches[0]["enforce_admins"], &branches[0]["required_signatures"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(branches[0]["required_status_checks"]["contexts"], json!(["ci"]));
    assert_eq!(branches[0]["restrictions"]["users"], json!(["ben"]));
    upstream.delete(ADA, &path).assert_status(204);
    assert!(of_kind(&archive(&mut upstream), "protected_branches").is_empty());
}

#[test]
fn each_closed_issue_has_an_event_and_a_merged_pull_two() {
    let mut upstream = Upstream::new();
    upstream.patch(ADA, &on("/issues/1"), &json!({ "state": "closed" })).assert_status(200);
    propose(&mut upstream, "topic");
    let wanted = json!({ "title": "Better", "head": "topic", "base": "main" });
    let number =
        upstream.post(BEN, &on("/pulls"), &wanted).assert_status(201).body["number"].clone();
    let merged = upstream
        .put(ADA, &on(&format!("/pulls/{number}/merge")), &json!({}))
        .assert_status(200)
        .body;
    let files = archive(&mut upstream);
    let (events, issues) = (of_kind(&files, "issue_events"), of_kind(&files, "issues"));
    let closed: Vec<&Value> = issues.iter().filter(|issue| !issue["closed_at"].is_null()).collect();
    let recorded: Vec<&Value> = events
        .iter()
        .filter(|event| event["event"] == "closed" && event.get("issue").is_some())
        .collect();
    assert!(
        recorded.len() == closed.len()
            && recorded.iter().zip(&closed).all(|(event, issue)| event["issue"] == issue["url"])
    );
    assert_eq!(
        (&recorded[0]["issue"], &recorded[0]["created_at"]),
        (&issues[0]["url"], &issues[0]["closed_at"])
    );
    let pull = of_kind(&files, "pull_requests")
        .into_iter()
        .find(|pull| !pull["merged_at"].is_null())
        .expect("the merged one");
    let of_pull: Vec<&Value> =
        events.iter().filter(|event| event["pull_request"] == pull["url"]).collect();
    assert_eq!(
        (&of_pull[0]["event"], &of_pull[0]["commit_id"]),
        (&json!("merged"), &merged["sha"])
    );
    assert_eq!((of_pull.len(), &of_pull[1]["event"]), (2, &json!("closed")));
    upstream.patch(ADA, &on("/issues/1"), &json!({ "state": "open" })).assert_status(200);
    let events = of_kind(&archive(&mut upstream), "issue_events");
    assert!(
        events.iter().all(|event| event["issue"] != issues[0]["url"]),
        "a reopened issue is not closed"
    );
}

#[test]
fn the_base_of_each_pull_is_in_the_archive() {
    let mut upstream = Upstream::new();
    propose(&mut upstream, "topic");
    propose(&mut upstream, "stack");
    upstream
        .post(BEN, &on("/pulls"), &json!({ "title": "Higher", "head": "stack", "base": "topic" }))
        .assert_status(201);
    let files = archive(&mut upstream);
    let (bases, pulls) = (of_kind(&files, "bases"), of_kind(&files, "pull_requests"));
    assert!(!pulls.is_empty());
    for pull in &pulls {
        let base = bases.iter().find(|base| base["ref"] == pull["base"]["ref"]).expect("its base");
        assert_eq!(
            (&base["sha"], &base["repository"]),
            (&pull["base"]["sha"], &pull["repository"])
        );
        assert!(base["pull_requests"].as_array().is_some_and(|urls| urls.contains(&pull["url"])));
    }
    let urls: Vec<&Value> = bases.iter().map(|base| &base["url"]).collect();
    assert_eq!(
        urls,
        [&format!("{SITE}/acme/widgets/tree/main"), &format!("{SITE}/acme/widgets/tree/topic")]
    );
    assert_ne!(bases[0]["sha"], bases[1]["sha"]);
}

#[test]
fn odd_members_of_comments_make_no_odd_records() {
    let mut upstream = Upstream::new();
    for odd in [
        json!(null),
        json!(-1),
        json!(u64::MAX),
        json!(1e300),
        json!([[]]),
        json!({ "id": "x" }),
        json!({ "id": 99_999 }),
        json!("🦀"),
    ] {
        let sent = json!({
            "body": "x", "user": odd, "path": odd, "position": odd, "commit_id": odd, "state": odd, "event": odd, "diff_hunk": odd,
            "type": odd, "pull_request": odd,
        });
        for place in ["/commits/main/comments", "/pulls/76/comments", "/pulls/76/reviews"] {
            let status = upstream.post(BEN, &on(place), &sent).status;
            assert!(matches!(status, 201 | 422), "{status} {odd}");
        }
    }
    let comment = json!({ "body": "x", "path": "README.md", "user": 7 });
    upstream.post(BEN, &on("/pulls/76/comments"), &comment).assert_status(201);
    let files = archive(&mut upstream);
    for kind in ["commit_comments", "review_comments", "pull_request_reviews"] {
        let records = of_kind(&files, kind);
        assert!(!records.is_empty(), "{kind}");
        for record in &records {
            assert!(
                record["url"]
                    .as_str()
                    .is_some_and(|url| url.starts_with(&format!("{SITE}/acme/widgets/"))),
                "{record}"
            );
            assert!(
                record["user"] == format!("{SITE}/ben")
                    && record["type"].is_string()
                    && record["body"] == "x",
                "{record}"
            );
            assert!(
                ["path", "commit_id", "diff_hunk"]
                    .iter()
                    .all(|member| record[*member].is_null() || record[*member].is_string())
            );
        }
    }
}
