//! Tests that every id of a commit, tree or file is git's own, and equal in the API and in
//! archives.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::emulator::tests::migrations::archives::{Files, archive_of, object, records};
use crate::emulator::tests::*;

const REPOSITORY: &str = "/repos/acme/widgets";

fn on(path: &str) -> String {
    format!("{REPOSITORY}{path}")
}

fn put(upstream: &mut Upstream, path: &str, content: &str) -> Value {
    let content = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, content);
    let body = json!({ "message": format!("Add {path}"), "content": content });
    upstream.put(ADA, &on(&format!("/contents/{path}")), &body).assert_status(201).body
}

fn archive(upstream: &mut Upstream) -> Files {
    archive_of(upstream, &json!({ "repositories": ["acme/widgets"] }))
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn refs(files: &Files) -> BTreeMap<String, String> {
    let packed = String::from_utf8(files["repositories/acme/widgets.git/packed-refs"].clone())
        .expect("text");
    packed
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(' '))
        .map(|(id, name)| (name.to_owned(), id.to_owned()))
        .collect()
}

#[test]
fn a_file_that_was_pushed_is_in_the_git_data_of_the_archive() {
    let mut upstream = Upstream::new();
    let before = upstream.get(ADA, &on("/branches/main")).body["commit"]["sha"].clone();
    let made = put(&mut upstream, "docs/deep/new.md", "hello\n");
    // printf 'hello\n' | git hash-object --stdin
    assert_eq!(made["content"]["sha"], "ce013625030ba8dba906f756967f9e9ca394464a");
    let (commit, tree) = (text(&made["commit"]["sha"]), text(&made["commit"]["tree"]["sha"]));
    let files = archive(&mut upstream);
    assert_eq!(
        object(&files, "acme/widgets", text(&made["content"]["sha"])),
        ("blob".to_owned(), b"hello\n".to_vec())
    );
    assert_eq!(refs(&files)["refs/heads/main"], commit);
    assert_eq!(refs(&files)["refs/tags/v1.0.0"], commit, "as `/tags` says");
    let (kind, raw) = object(&files, "acme/widgets", commit);
    let raw = String::from_utf8(raw).expect("text");
    assert_eq!(kind, "commit");
    let at = crate::emulator::http::timestamps::parse_iso(text(&made["commit"]["author"]["date"]))
        .expect("a date")
        .as_secs();
    let who = format!(
        "{} <{}> {at} +0000",
        text(&made["commit"]["author"]["name"]),
        text(&made["commit"]["author"]["email"])
    );
    let expected = format!(
        "tree {tree}\nparent {}\nauthor {who}\ncommitter {who}\n\nAdd docs/deep/new.md\n",
        text(&before)
    );
    assert_eq!(raw, expected, "object and API agree");
    assert_eq!(object(&files, "acme/widgets", tree).0, "tree");
    assert_eq!(
        object(&files, "acme/widgets", text(&before)).0,
        "commit",
        "the earlier commit is there as well"
    );
}

#[test]
fn a_tree_is_found_by_its_id_its_commit_or_its_branch() {
    let mut upstream = Upstream::new();
    let made = put(&mut upstream, "docs/deep/new.md", "hello\n");
    let folder = upstream.get(ADA, &on("/contents/docs")).items()[0].clone();
    assert_eq!((&folder["type"], &folder["path"]), (&json!("dir"), &json!("docs/deep")));
    // In an empty repository: printf 'hello\n' > new.md; git add .; git write-tree
    assert_eq!(folder["sha"], "399c5d83edc2375f74bcae73f75a44c996b8e89a");
    let inside =
        upstream.get(ADA, &on(&format!("/git/trees/{}", text(&folder["sha"])))).assert_status(200);
    assert_eq!(
        (&inside.body["sha"], &inside.body["tree"][0]["path"]),
        (&folder["sha"], &json!("new.md"))
    );
    let tree = &made["commit"]["tree"]["sha"];
    for name in [text(tree), text(&made["commit"]["sha"]), "main"] {
        let shown = upstream.get(ADA, &on(&format!("/git/trees/{name}"))).assert_status(200);
        assert_eq!(
            (&shown.body["sha"], &shown.body["tree"][1]["path"]),
            (tree, &json!("docs/deep/new.md"))
        );
    }
    let entry = json!({ "path": "docs/deep/new.md", "mode": "100644", "content": "hello\n" });
    let begun = upstream.get(ADA, &on("/commits/main")).body["parents"][0]["sha"].clone();
    let same = upstream
        .post(ADA, &on("/git/trees"), &json!({ "base_tree": begun, "tree": [entry] }))
        .assert_status(201);
    assert_eq!(same.body["sha"], *tree, "the same files are the same tree");
    let moved = json!({ "path": "moved", "mode": "040000", "type": "tree", "sha": folder["sha"] });
    let moved =
        upstream.post(ADA, &on("/git/trees"), &json!({ "tree": [moved] })).assert_status(201);
    assert_eq!(moved.body["tree"][0]["path"], "moved/new.md");
}

#[test]
fn the_same_commit_made_twice_is_one() {
    let mut upstream = Upstream::new();
    let tree = upstream.get(ADA, &on("/git/trees/main")).body["sha"].clone();
    let body = json!({ "message": "Twice", "tree": tree, "parents": [] });
    let first = upstream.post(ADA, &on("/git/commits"), &body).assert_status(201);
    assert_eq!(
        upstream.post(ADA, &on("/git/commits"), &body).assert_status(201).body["sha"],
        first.body["sha"]
    );
    assert_eq!(first.body["tree"]["sha"], tree);
    upstream.patch(ADA, "/user", &json!({ "name": "Somebody Else" })).assert_status(200);
    let sha = text(&first.body["sha"]).to_owned();
    let later = upstream.get(ADA, &on(&format!("/git/commits/{sha}")));
    assert_eq!(
        later.body["author"], first.body["author"],
        "a commit keeps the name that it was made with"
    );
    upstream.pass(1);
    assert_ne!(
        upstream.post(ADA, &on("/git/commits"), &body).assert_status(201).body["sha"],
        first.body["sha"]
    );
}

#[test]
fn trees_that_are_invalid_in_git_are_refused() {
    let mut upstream = Upstream::new();
    for path in ["", "..", "a//b", "/a", ".git/config", "a/.GIT", "a\0b"] {
        let entry = json!({ "path": path, "mode": "100644", "content": "x" });
        upstream
            .post(ADA, &on("/git/trees"), &json!({ "tree": [entry] }))
            .assert_names_field("tree");
    }
    for entry in [
        json!({ "path": "a", "mode": "644", "content": "x" }),
        json!({ "path": "a", "mode": "100644", "type": "tree", "content": "x" }),
        json!({ "path": "a", "mode": "040000", "content": "x" }),
        json!({ "path": "a", "mode": "100644", "sha": "0000" }),
        json!({ "path": "a", "mode": "160000", "sha": "HEAD" }),
        json!({ "path": 1, "mode": "100644", "content": "x" }),
        json!("a"),
    ] {
        upstream
            .post(ADA, &on("/git/trees"), &json!({ "tree": [entry] }))
            .assert_names_field("tree");
    }
    put(&mut upstream, "a", "file");
    put(&mut upstream, "a/b", "below");
    upstream.get(ADA, &on("/contents/a/b")).assert_status(200);
    assert!(
        upstream.get(ADA, &on("/contents/a")).body.is_array(),
        "a folder has taken the place of the file"
    );
}

#[test]
fn the_commits_of_a_pull_are_those_of_its_branches() {
    let mut upstream = Upstream::new();
    let main = upstream.get(ADA, &on("/branches/main")).body["commit"]["sha"].clone();
    upstream
        .post(ADA, &on("/git/refs"), &json!({ "ref": "refs/heads/topic", "sha": main }))
        .assert_status(201);
    let body = json!({ "message": "New", "content": "aGVsbG8K", "branch": "topic" });
    let pushed = upstream.put(ADA, &on("/contents/new.md"), &body).assert_status(201).body;
    let pull = upstream
        .post(ADA, &on("/pulls"), &json!({ "title": "T", "head": "topic", "base": "main" }))
        .assert_status(201)
        .body;
    assert_eq!((&pull["head"]["sha"], &pull["base"]["sha"]), (&pushed["commit"]["sha"], &main));
    let seeded = upstream.get(ADA, &on("/pulls?state=all&per_page=100")).items().clone();
    let files = archive(&mut upstream);
    assert_eq!(refs(&files)["refs/heads/topic"], text(&pushed["commit"]["sha"]));
    assert!(seeded.len() > 1);
    for pull in &seeded {
        let number = &pull["number"];
        assert_eq!(
            refs(&files)[&format!("refs/pull/{number}/head")],
            text(&pull["head"]["sha"]),
            "{number}"
        );
        assert_eq!(object(&files, "acme/widgets", text(&pull["head"]["sha"])).0, "commit");
        let url = json!(format!("https://git.example.com/acme/widgets/pull/{number}"));
        let recorded = records(&files, "pull_requests_000001.json")
            .into_iter()
            .find(|one| one["url"] == url)
            .expect("a record");
        assert_eq!(
            (&recorded["head"]["sha"], &recorded["base"]["sha"]),
            (&pull["head"]["sha"], &pull["base"]["sha"])
        );
    }
}
