//! Tests branches, their protection, comparisons and the git database.

use serde_json::{Value, json};

use crate::emulator::tests::*;

const REPOSITORY: &str = "/repos/acme/widgets";

fn on(path: &str) -> String {
    format!("{REPOSITORY}{path}")
}

fn head(upstream: &mut Upstream) -> String {
    upstream.get(ADA, &on("/branches/main")).assert_status(200).body["commit"]["sha"]
        .as_str()
        .expect("a commit")
        .to_owned()
}

/// Commits one file on top of main through the git database, and returns the commit's id.
fn commit(upstream: &mut Upstream, path: &str, content: &str) -> String {
    let parent = head(upstream);
    let blob =
        upstream.post(ADA, &on("/git/blobs"), &json!({ "content": content })).assert_status(201);
    let entry = json!({ "path": path, "mode": "100644", "type": "blob", "sha": blob.body["sha"] });
    let tree = upstream
        .post(ADA, &on("/git/trees"), &json!({ "base_tree": parent, "tree": [entry] }))
        .assert_status(201);
    let commit =
        json!({ "message": format!("Add {path}"), "tree": tree.body["sha"], "parents": [parent] });
    let made = upstream.post(ADA, &on("/git/commits"), &commit).assert_status(201);
    made.body["sha"].as_str().expect("a name").to_owned()
}

fn branch(upstream: &mut Upstream, name: &str, sha: &str) {
    upstream
        .post(ADA, &on("/git/refs"), &json!({ "ref": format!("refs/heads/{name}"), "sha": sha }))
        .assert_status(201);
}

#[test]
fn a_branch_shows_its_newest_commit_to_every_reader() {
    let mut upstream = Upstream::new();
    let list = upstream.get(NOBODY, &on("/branches")).assert_status(200);
    let sha = head(&mut upstream);
    assert_eq!(
        (
            &list.items()[0]["name"],
            &list.items()[0]["commit"]["sha"],
            &list.items()[0]["protected"]
        ),
        (&json!("main"), &json!(sha), &json!(false))
    );
    assert_eq!(
        upstream.get(NOBODY, &on(&format!("/commits/{sha}"))).assert_status(200).body["sha"],
        json!(sha)
    );
    assert_eq!(
        upstream.get(NOBODY, &on("/commits")).assert_status(200).items()[0]["sha"],
        json!(sha)
    );
    assert_eq!(
        upstream.get(NOBODY, &on("/git/ref/heads/main")).assert_status(200).body["object"]["sha"],
        json!(sha)
    );
    upstream.get(NOBODY, &on("/branches/nothing")).assert_status(404);
    upstream.get(NOBODY, "/repos/acme/gadgets/branches").assert_status(404);
    upstream.get(ADA, &on("/branches?protected=maybe")).assert_names_field("protected");
}

#[test]
fn blob_tree_commit_and_ref_make_a_change() {
    let mut upstream = Upstream::new();
    let base = head(&mut upstream);
    upstream.pass(10);
    let sha = commit(&mut upstream, "docs/new.md", "new");
    branch(&mut upstream, "topic/one", &sha);
    let tree = upstream.get(ADA, &on(&format!("/git/trees/{sha}"))).assert_status(200);
    let paths: Vec<_> = tree.body["tree"]
        .as_array()
        .expect("entries")
        .iter()
        .map(|entry| entry["path"].clone())
        .collect();
    assert_eq!(paths, [json!("README.md"), json!("docs/new.md")]);
    let blob = tree.body["tree"][1]["sha"].as_str().expect("a name");
    assert_eq!(
        upstream.get(ADA, &on(&format!("/git/blobs/{blob}"))).assert_status(200).body["content"],
        "bmV3"
    );
    let compared = upstream.get(ADA, &on("/compare/main...topic/one")).assert_status(200);
    assert_eq!(
        (&compared.body["status"], &compared.body["ahead_by"], &compared.body["behind_by"]),
        (&json!("ahead"), &json!(1), &json!(0))
    );
    assert_eq!(
        (&compared.body["files"][0]["filename"], &compared.body["files"][0]["status"]),
        (&json!("docs/new.md"), &json!("added"))
    );
    assert_eq!(compared.body["merge_base_commit"]["sha"], json!(base));
    assert_eq!(upstream.get(ADA, &on("/compare/topic%2Fone...main")).body["status"], "behind");
    assert_eq!(
        upstream.get(ADA, &on(&format!("/compare/main...acme:{sha}"))).body["status"],
        "ahead"
    );
    for bad in ["main", "main...nothing", "main..main"] {
        upstream.get(ADA, &on(&format!("/compare/{bad}"))).assert_status(404);
    }
    let merged = upstream
        .post(ADA, &on("/merges"), &json!({ "base": "main", "head": "topic/one" }))
        .assert_status(201);
    assert_eq!(head(&mut upstream), merged.body["sha"].as_str().expect("a name"));
    assert_eq!(upstream.get(ADA, &on("/compare/main...topic/one")).body["files"], json!([]));
    let there =
        upstream.get(ADA, &on(&format!("/commits/{sha}/branches-where-head"))).assert_status(200);
    assert_eq!(there.items()[0]["name"], "topic/one");
    let refs = upstream.get(ADA, &on("/git/matching-refs/heads/topic")).assert_status(200);
    assert_eq!(refs.items()[0]["ref"], "refs/heads/topic/one");
}

#[test]
fn a_merge_without_new_commits_is_204() {
    let mut upstream = Upstream::new();
    let sha = head(&mut upstream);
    branch(&mut upstream, "same", &sha);
    upstream
        .post(ADA, &on("/merges"), &json!({ "base": "main", "head": "same" }))
        .assert_status(204);
    upstream
        .post(ADA, &on("/merges"), &json!({ "base": "nothing", "head": "same" }))
        .assert_status(404);
    upstream.post(ADA, &on("/merges"), &json!({ "base": "main" })).assert_names_field("head");
}

#[test]
fn git_objects_need_push_access_and_valid_references() {
    let mut upstream = Upstream::new();
    for (token, status) in [
        (NOBODY, 401),
        (DAN, 403),
        (ADA_NO_SCOPES, 404),
        (ADA_NO_PERMISSIONS, 403),
        (BEN, 201),
        (WORKFLOW, 201),
        (INSTALLATION, 201),
    ] {
        upstream.post(token, &on("/git/blobs"), &json!({ "content": "x" })).assert_status(status);
    }
    upstream
        .post(ADA, &on("/git/blobs"), &json!({ "content": "***", "encoding": "base64" }))
        .assert_names_field("content");
    upstream
        .post(ADA, &on("/git/blobs"), &json!({ "content": "x", "encoding": "rot13" }))
        .assert_names_field("encoding");
    upstream.post(ADA, &on("/git/trees"), &json!({ "tree": "x" })).assert_names_field("tree");
    upstream
        .post(ADA, &on("/git/trees"), &json!({ "tree": [], "base_tree": "nothing" }))
        .assert_names_field("base_tree");
    upstream
        .post(ADA, &on("/git/commits"), &json!({ "message": "x", "tree": "nothing" }))
        .assert_names_field("tree");
    upstream
        .post(
            ADA,
            &on("/git/commits"),
            &json!({ "message": "x", "tree": "main", "parents": ["nothing"] }),
        )
        .assert_names_field("parents");
    for path in ["/git/blobs/0000", "/git/trees/0000", "/git/commits/main", "/git/tags/0000"] {
        upstream.get(ADA, &on(path)).assert_status(404);
    }
    let sha = head(&mut upstream);
    let tag = json!({ "tag": "v2", "message": "Two", "object": sha, "type": "commit" });
    let made = upstream.post(ADA, &on("/git/tags"), &tag).assert_status(201);
    let name = made.body["sha"].as_str().expect("a name");
    assert_eq!(
        upstream.get(ADA, &on(&format!("/git/tags/{name}"))).assert_status(200).body["object"]["sha"],
        json!(sha)
    );
    assert_eq!(
        upstream.get(ADA, &on(&format!("/git/commits/{sha}"))).assert_status(200).body["sha"],
        json!(sha)
    );
}

#[test]
fn a_renamed_default_branch_stays_the_default() {
    let mut upstream = Upstream::new();
    let sha = head(&mut upstream);
    for (body, field) in [
        (json!({}), "new_name"),
        (json!({ "new_name": "a b" }), "new_name"),
        (json!({ "new_name": "main" }), "new_name"),
    ] {
        upstream.post(ADA, &on("/branches/main/rename"), &body).assert_names_field(field);
    }
    let renamed = upstream
        .post(ADA, &on("/branches/main/rename"), &json!({ "new_name": "trunk" }))
        .assert_status(201);
    assert_eq!(
        (&renamed.body["name"], &renamed.body["commit"]["sha"]),
        (&json!("trunk"), &json!(sha))
    );
    upstream.get(ADA, &on("/branches/main")).assert_status(404);
    assert_eq!(upstream.get(ADA, REPOSITORY).body["default_branch"], "trunk");
    upstream
        .post(BEN, &on("/branches/nothing/rename"), &json!({ "new_name": "x" }))
        .assert_status(404);
}

#[test]
fn a_protection_is_set_whole_and_changed_in_parts() {
    let mut upstream = Upstream::new();
    let path = on("/branches/main/protection");
    upstream.get(ADA, &path).assert_status(404);
    let wanted = json!({
        "required_status_checks": { "strict": true, "contexts": ["ci"] }, "enforce_admins": true,
        "required_pull_request_reviews": null, "restrictions": { "users": ["ben"], "teams": [], "apps": [] },
    });
    upstream.put(BEN, &path, &wanted).assert_status(403);
    let set = upstream.put(ADA, &path, &wanted).assert_status(200);
    assert_eq!(
        (&set.body["enforce_admins"]["enabled"], &set.body["required_status_checks"]["strict"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(set.body["restrictions"]["users"][0]["login"], "ben");
    assert_eq!(upstream.get(ADA, &on("/branches/main")).body["protected"], true);
    assert_eq!(
        upstream.get(BEN, &format!("{path}/enforce_admins")).assert_status(200).body["enabled"],
        true
    );
    upstream.get(ADA, &format!("{path}/required_pull_request_reviews")).assert_status(404);
    upstream.delete(ADA, &format!("{path}/enforce_admins")).assert_status(204);
    assert_eq!(upstream.get(ADA, &format!("{path}/enforce_admins")).body["enabled"], false);
    upstream.post(ADA, &format!("{path}/required_signatures"), &Value::Null).assert_status(200);
    upstream
        .patch(ADA, &format!("{path}/required_status_checks"), &json!({ "strict": false }))
        .assert_status(200);
    let contexts = format!("{path}/required_status_checks/contexts");
    assert_eq!(
        upstream.post(ADA, &contexts, &json!(["lint", "ci"])).assert_status(200).body,
        json!(["ci", "lint"])
    );
    assert_eq!(upstream.delete(ADA, &contexts).status, 422, "the contexts are missing");
    assert_eq!(
        upstream.put(ADA, &contexts, &json!({ "contexts": ["only"] })).assert_status(200).body,
        json!(["only"])
    );
    upstream.put(ADA, &contexts, &json!({ "contexts": [1] })).assert_names_field("contexts");
    assert_eq!(
        upstream
            .put(ADA, &format!("{path}/restrictions/users"), &json!([]))
            .assert_status(200)
            .body,
        json!([])
    );
    upstream.get(ADA, &format!("{path}/restrictions/unheard-of")).assert_status(404);
    upstream
        .put(ADA, &path, &json!({ "required_status_checks": 7 }))
        .assert_names_field("required_status_checks");
    upstream.delete(ADA, &path).assert_status(204);
    upstream.delete(ADA, &path).assert_status(404);
    upstream.put(ADA, &on("/branches/nothing/protection"), &wanted).assert_status(404);
}

#[test]
fn statuses_combine_into_one_state() {
    let mut upstream = Upstream::new();
    let sha = head(&mut upstream);
    let status = on(&format!("/statuses/{sha}"));
    assert_eq!(
        upstream.get(NOBODY, &on("/commits/main/status")).assert_status(200).body["state"],
        "success"
    );
    upstream
        .post(BEN, &status, &json!({ "state": "pending", "context": "ci/test" }))
        .assert_status(201);
    assert_eq!(upstream.get(NOBODY, &on("/commits/main/status")).body["state"], "pending");
    upstream
        .post(BEN, &status, &json!({ "state": "failure", "context": "ci/test" }))
        .assert_status(201);
    let combined = upstream.get(NOBODY, &on("/commits/main/status")).body;
    assert_eq!(
        (&combined["state"], &combined["total_count"], &combined["sha"]),
        (&json!("failure"), &json!(2), &json!(sha))
    );
    assert_eq!(
        upstream.get(NOBODY, &on("/commits/main/statuses")).assert_status(200).items().len(),
        3
    );
    upstream.post(BEN, &status, &json!({ "state": "great" })).assert_names_field("state");
    upstream.post(BEN, &on("/statuses/nothing"), &json!({ "state": "success" })).assert_status(404);
    upstream.post(DAN, &status, &json!({ "state": "success" })).assert_status(403);
}

#[test]
fn checks_are_listed_by_the_commit_they_name() {
    let mut upstream = Upstream::new();
    let sha = head(&mut upstream);
    let made = upstream
        .post(ADA, &on("/check-runs"), &json!({ "name": "lint", "head_sha": sha }))
        .assert_status(201);
    assert_eq!(made.body["status"], "queued");
    let listed = upstream.get(NOBODY, &on("/commits/main/check-runs")).assert_status(200).body;
    assert_eq!(
        (&listed["total_count"], &listed["check_runs"][1]["id"]),
        (&json!(2), &made.body["id"])
    );
    let path = on(&format!("/check-runs/{}", made.body["id"]));
    upstream
        .patch(ADA, &path, &json!({ "status": "completed", "conclusion": "success" }))
        .assert_status(200);
    assert_eq!(upstream.get(NOBODY, &path).assert_status(200).body["conclusion"], "success");
    assert_eq!(
        upstream.get(NOBODY, &on("/check-suites/10000100141/check-runs")).assert_status(200).body["total_count"],
        1
    );
    let comment = upstream
        .post(BEN, &on("/commits/main/comments"), &json!({ "body": "Nice" }))
        .assert_status(201);
    let own = on(&format!("/comments/{}", comment.body["id"]));
    assert_eq!(upstream.get(NOBODY, &own).assert_status(200).body["user"]["login"], "ben");
    assert_eq!(
        upstream.get(NOBODY, &on("/commits/main/comments")).assert_status(200).items().len(),
        1
    );
    upstream
        .post(BEN, &format!("{own}/reactions"), &json!({ "content": "heart" }))
        .assert_status(201);
}
