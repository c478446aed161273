//! Tests pull requests from opening to merging; milestones, releases and locks; creation and
//! deletion of repositories.

use serde_json::{Value, json};

use crate::emulator::tests::*;

const WIDGETS: &str = "/repos/acme/widgets";

fn on(path: &str) -> String {
    format!("{WIDGETS}{path}")
}

pub fn propose(upstream: &mut Upstream, name: &str) {
    let head = upstream.get(ADA, &on("/branches/main")).body["commit"]["sha"].clone();
    let tree = json!({ "base_tree": head, "tree": [{ "path": format!("{name}.md"), "mode": "100644", "type": "blob", "content": "x" }] });
    let tree = upstream.post(ADA, &on("/git/trees"), &tree).assert_status(201).body["sha"].clone();
    let commit = json!({ "message": name, "tree": tree, "parents": [head] });
    let commit =
        upstream.post(ADA, &on("/git/commits"), &commit).assert_status(201).body["sha"].clone();
    upstream
        .post(ADA, &on("/git/refs"), &json!({ "ref": format!("refs/heads/{name}"), "sha": commit }))
        .assert_status(201);
}

#[test]
fn a_pull_goes_from_a_branch_into_another_one() {
    let mut upstream = Upstream::new();
    propose(&mut upstream, "topic");
    let wanted = json!({ "title": "Better", "head": "topic", "base": "main", "body": "See" });
    let made = upstream.post(BEN, &on("/pulls"), &wanted).assert_status(201);
    let pull = on(&format!("/pulls/{}", made.body["number"]));
    assert_eq!(made.header("location"), format!("http://upstream.test{pull}"));
    assert_eq!(
        (&made.body["head"]["ref"], &made.body["base"]["ref"], &made.body["merged"]),
        (&json!("topic"), &json!("main"), &json!(false))
    );
    assert_eq!(
        upstream.get(NOBODY, &format!("{pull}/commits")).assert_status(200).items()[0]["commit"]["message"],
        "topic"
    );
    assert_eq!(
        upstream.get(NOBODY, &format!("{pull}/files")).assert_status(200).items()[0]["filename"],
        "topic.md"
    );
    upstream.get(NOBODY, &format!("{pull}/merge")).assert_status(404);
    upstream
        .put(BEN, &format!("{pull}/merge"), &json!({ "sha": "0000" }))
        .assert_names_field("sha");
    upstream.put(DAN, &format!("{pull}/merge"), &Value::Null).assert_status(403);
    let merged = upstream.put(BEN, &format!("{pull}/merge"), &Value::Null).assert_status(200);
    assert_eq!(merged.body["merged"], true);
    upstream.get(NOBODY, &format!("{pull}/merge")).assert_status(204);
    let after = upstream.get(NOBODY, &pull).body;
    assert_eq!(
        (&after["state"], &after["merged"], &after["merge_commit_sha"]),
        (&json!("closed"), &json!(true), &merged.body["sha"])
    );
    assert_eq!(
        upstream.get(NOBODY, &on("/branches/main")).body["commit"]["sha"],
        merged.body["sha"]
    );
    upstream.put(BEN, &format!("{pull}/merge"), &Value::Null).assert_names_field("state");
    upstream.patch(BEN, &pull, &json!({ "state": "open" })).assert_names_field("state");
    let of_commit = upstream.get(NOBODY, &on("/commits/topic/pulls")).assert_status(200);
    assert_eq!(of_commit.items()[0]["number"], made.body["number"]);
}

#[test]
fn a_pull_needs_branches_that_are_there_and_is_opened_once() {
    let mut upstream = Upstream::new();
    propose(&mut upstream, "topic");
    for (body, field) in [
        (json!({ "head": "topic", "base": "main" }), "title"),
        (json!({ "title": "x", "head": "nothing", "base": "main" }), "head"),
        (json!({ "title": "x", "head": "topic", "base": "nothing" }), "base"),
        (json!({ "title": "x", "head": "main", "base": "main" }), "head"),
        (json!({ "title": 1, "head": "topic", "base": "main" }), "title"),
    ] {
        upstream.post(BEN, &on("/pulls"), &body).assert_names_field(field);
    }
    let wanted = json!({ "title": "x", "head": "acme:topic", "base": "main" });
    let made = upstream.post(DAN, &on("/pulls"), &wanted).assert_status(201);
    upstream.post(BEN, &on("/pulls"), &wanted).assert_names_field("head");
    let pull = on(&format!("/pulls/{}", made.body["number"]));
    assert_eq!(
        upstream
            .patch(DAN, &pull, &json!({ "title": "y", "state": "closed" }))
            .assert_status(200)
            .body["state"],
        "closed"
    );
    assert_eq!(
        upstream.patch(BEN, &pull, &json!({ "state": "open" })).assert_status(200).body["closed_at"],
        Value::Null
    );
    upstream
        .patch("emu_classic_dan_all_scopes", &on("/pulls/76"), &json!({ "title": "y" }))
        .assert_status(403);
    upstream.patch(BEN, &on("/pulls/1"), &json!({ "title": "y" })).assert_status(404);
}

#[test]
fn reviewers_are_requested_and_reviews_are_stored() {
    let mut upstream = Upstream::new();
    let path = on("/pulls/76/requested_reviewers");
    let requested = upstream.post(ADA, &path, &json!({ "reviewers": ["cleo"] })).assert_status(201);
    assert_eq!(requested.body["requested_reviewers"][0]["login"], "cleo");
    assert_eq!(upstream.get(NOBODY, &path).assert_status(200).body["users"][0]["login"], "cleo");
    upstream.post(ADA, &path, &json!({ "reviewers": ["nobody"] })).assert_names_field("reviewers");
    let left = upstream
        .send(&request(Method::DELETE, ADA, &path, &[], &json!({ "reviewers": ["cleo"] })))
        .assert_status(200);
    assert_eq!(left.body["requested_reviewers"], json!([]));
    let review = upstream
        .post(ADA, &on("/pulls/76/reviews"), &json!({ "body": "Fine", "event": "APPROVE" }))
        .assert_status(201);
    let own = on(&format!("/pulls/76/reviews/{}", review.body["id"]));
    assert_eq!(upstream.get(NOBODY, &own).assert_status(200).body["user"]["login"], "ada");
    upstream.put(ADA, &format!("{own}/dismissals"), &json!({ "message": "no" })).assert_status(200);
    assert_eq!(upstream.get(NOBODY, &own).body["state"], "DISMISSED");
    upstream.get(NOBODY, &on("/pulls/1/reviews")).assert_status(404);
}

#[test]
fn milestones_releases_and_locks_change() {
    let mut upstream = Upstream::new();
    let milestone = on("/milestones/1");
    assert_eq!(
        upstream.patch(BEN, &milestone, &json!({ "state": "closed" })).assert_status(200).body["state"],
        "closed"
    );
    upstream
        .patch(BEN, &milestone, &json!({ "state": "gone", "title": "" }))
        .assert_names_field("state");
    assert_eq!(
        upstream.get(NOBODY, &format!("{milestone}/labels")).assert_status(200).items().len(),
        1
    );
    upstream.delete(BEN, &milestone).assert_status(204);
    upstream.delete(BEN, &milestone).assert_status(404);
    assert_eq!(upstream.get(NOBODY, &on("/issues/1")).body["milestone"], Value::Null);
    let latest = upstream.get(NOBODY, &on("/releases/latest")).assert_status(200);
    let release = on(&format!("/releases/{}", latest.body["id"]));
    let modified = upstream.get(NOBODY, &release).header("last-modified").to_owned();
    upstream.patch(BEN, &release, &json!({ "name": "First", "body": null })).assert_status(200);
    upstream.pass(2);
    assert_eq!(
        upstream
            .get_with(NOBODY, &release, &[("if-modified-since", &modified)])
            .assert_status(200)
            .body["name"],
        "First"
    );
    upstream.patch(BEN, &release, &json!({ "tag_name": 1 })).assert_names_field("tag_name");
    upstream.delete(DAN, &release).assert_status(403);
    upstream.delete(BEN, &release).assert_status(204);
    upstream.get(NOBODY, &on("/releases/latest")).assert_status(404);
    upstream
        .put(BEN, &on("/issues/1/lock"), &json!({ "lock_reason": "bored" }))
        .assert_names_field("lock_reason");
    upstream.put(BEN, &on("/issues/1/lock"), &Value::Null).assert_status(204);
    assert_eq!(upstream.get(NOBODY, &on("/issues/1")).body["locked"], true);
    upstream.delete(BEN, &on("/issues/1/lock")).assert_status(204);
    upstream.delete(BEN, &on("/issues/1/labels")).assert_status(204);
    assert_eq!(upstream.get(NOBODY, &on("/issues/1/labels")).items().len(), 0);
}

#[test]
fn a_new_repository_is_there_at_once_and_a_deleted_one_is_gone() {
    let mut upstream = Upstream::new();
    let made = upstream
        .post(
            ADA,
            "/orgs/acme/repos",
            &json!({ "name": "novel", "private": true, "has_wiki": false }),
        )
        .assert_status(201);
    assert_eq!(
        (&made.body["full_name"], &made.body["private"], &made.body["has_wiki"]),
        (&json!("acme/novel"), &json!(true), &json!(false))
    );
    upstream.get(BEN, "/repos/acme/novel/branches/main").assert_status(200);
    upstream.get(DAN, "/repos/acme/novel").assert_status(404);
    upstream.post(ADA, "/orgs/acme/repos", &json!({ "name": "Novel" })).assert_names_field("name");
    upstream
        .post(ADA, "/orgs/acme/repos", &json!({ "name": "a b", "visibility": "secret" }))
        .assert_names_field("visibility");
    upstream.post(DAN, "/orgs/acme/repos", &json!({ "name": "other" })).assert_status(404);
    upstream
        .post(ADA_NO_PERMISSIONS, "/orgs/acme/repos", &json!({ "name": "other" }))
        .assert_status(403);
    upstream.post(BEN, "/user/repos", &json!({ "name": "mine" })).assert_status(201);
    upstream.post(INSTALLATION, "/user/repos", &json!({ "name": "mine" })).assert_status(403);
    upstream
        .post(ADA, "/repos/acme/novel/deployments", &json!({ "ref": "main" }))
        .assert_status(201);
    upstream.delete(BEN, "/repos/acme/novel").assert_status(403);
    upstream.delete(ADA, "/repos/acme/novel").assert_status(204);
    upstream.get(ADA, "/repos/acme/novel").assert_status(404);
    upstream.post(ADA, "/orgs/acme/repos", &json!({ "name": "novel" })).assert_status(201);
    assert_eq!(
        upstream.get(ADA, "/repos/acme/novel/deployments").assert_status(200).items().len(),
        1,
        "only what every repository begins with"
    );
}

#[test]
fn a_fork_is_a_new_repository_that_its_source_lists() {
    let mut upstream = Upstream::new();
    let fork = upstream.post(DAN, &on("/forks"), &Value::Null).assert_status(202);
    assert_eq!(
        (&fork.body["full_name"], &fork.body["fork"]),
        (&json!("dan/widgets"), &json!(true))
    );
    assert_eq!(upstream.get(NOBODY, WIDGETS).body["forks_count"], 1);
    assert_eq!(
        upstream.get(NOBODY, &on("/forks")).assert_status(200).items()[0]["full_name"],
        "dan/widgets"
    );
    upstream.post(DAN, &on("/forks"), &Value::Null).assert_names_field("name");
    upstream
        .post(DAN, &on("/forks"), &json!({ "organization": "acme" }))
        .assert_names_field("organization");
    upstream.post(INSTALLATION, &on("/forks"), &Value::Null).assert_status(403);
    upstream
        .post(INSTALLATION, &on("/forks"), &json!({ "organization": "globex" }))
        .assert_names_field("organization");
    upstream
        .post(INSTALLATION, &on("/forks"), &json!({ "organization": "acme" }))
        .assert_names_field("name");
    let within = upstream
        .post(INSTALLATION, &on("/forks"), &json!({ "organization": "acme", "name": "gears" }))
        .assert_status(202);
    assert_eq!(within.body["full_name"], "acme/gears");
    upstream.delete(ADA, "/repos/acme/gears").assert_status(204);
    upstream.delete(DAN, "/repos/dan/widgets").assert_status(204);
    assert_eq!(upstream.get(NOBODY, WIDGETS).body["forks_count"], 0);
}

#[test]
fn only_owners_edit_and_delete_an_organisation() {
    let mut upstream = Upstream::new();
    assert_eq!(
        upstream.patch(ADA, "/orgs/acme", &json!({ "description": "New" })).assert_status(200).body
            ["description"],
        "New"
    );
    upstream
        .patch(ADA, "/orgs/acme", &json!({ "description": 7 }))
        .assert_names_field("description");
    upstream.patch(BEN, "/orgs/acme", &json!({ "description": "New" })).assert_status(403);
    assert_eq!(
        upstream.patch(BEN, "/user", &json!({ "name": "Benjamin" })).assert_status(200).body["name"],
        "Benjamin"
    );
    upstream.delete(BEN, "/orgs/acme").assert_status(403);
    upstream.delete(ADA, "/orgs/acme").assert_status(202);
    for path in ["/orgs/acme", WIDGETS, "/orgs/acme/hooks"] {
        upstream.get(ADA, path).assert_status(404);
    }
    upstream.get(INSTALLATION, "/users/ada").assert_status(200);
}
