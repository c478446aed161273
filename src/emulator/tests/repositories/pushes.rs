//! Tests file changes, moved branches, and the event `push`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::emulator::tests::*;

const WIDGETS: &str = "/repos/acme/widgets";
const FILE: &str = "/repos/acme/widgets/contents/docs/guide.md";

fn newest(upstream: &mut Upstream) -> (String, Value) {
    let hook = upstream.get(ADA, "/orgs/acme/hooks").items()[0]["id"].clone();
    let path = format!("/orgs/acme/hooks/{hook}/deliveries");
    let delivery = upstream.get(ADA, &format!("{path}?per_page=1")).items()[0].clone();
    let payload =
        upstream.get(ADA, &format!("{path}/{}", delivery["id"])).body["request"]["payload"].clone();
    (delivery["event"].as_str().unwrap_or("").to_owned(), payload)
}

fn write(text: &str) -> Value {
    json!({ "message": format!("Write {text}"), "content": STANDARD.encode(text) })
}

fn head(upstream: &mut Upstream, branch: &str) -> String {
    let found = upstream.get(ADA, &format!("{WIDGETS}/git/ref/heads/{branch}")).assert_status(200);
    found.body["object"]["sha"].as_str().unwrap_or("").to_owned()
}

#[test]
fn a_written_file_makes_a_commit_and_a_push_event() {
    let mut upstream = Upstream::new();
    let before = head(&mut upstream, "main");
    let created = upstream.put(BEN, FILE, &write("one")).assert_status(201);
    let sha = created.body["commit"]["sha"].as_str().expect("a commit").to_owned();
    assert_eq!(upstream.get(ADA, FILE).assert_status(200).body["content"], STANDARD.encode("one"));
    assert_eq!(
        upstream.get(ADA, &format!("{WIDGETS}/contents/docs")).items()[0]["name"],
        "guide.md"
    );
    let root = upstream.get(ADA, &format!("{WIDGETS}/contents"));
    assert_eq!(
        root.items().iter().map(|entry| &entry["type"]).collect::<Vec<_>>(),
        ["file", "dir"]
    );
    let commits = upstream.get(ADA, &format!("{WIDGETS}/commits"));
    assert_eq!(
        (&commits.items()[0]["sha"], &commits.items()[0]["commit"]["message"]),
        (&json!(sha), &json!("Write one"))
    );
    assert_eq!((commits.items().len(), &commits.items()[0]["author"]["login"]), (2, &json!("ben")));
    upstream.get(ADA, &format!("{WIDGETS}/commits/{sha}")).assert_status(200);
    let (event, payload) = newest(&mut upstream);
    assert_eq!((event.as_str(), &payload["ref"]), ("push", &json!("refs/heads/main")));
    assert_eq!((&payload["before"], &payload["after"]), (&json!(before), &json!(sha)));
    assert_eq!(
        (&payload["commits"][0]["id"], &payload["commits"][0]["added"]),
        (&json!(sha), &json!(["docs/guide.md"]))
    );
    assert_eq!((&payload["pusher"]["name"], payload.get("action")), (&json!("ben"), None));
    assert_eq!(
        (&payload["created"], &payload["deleted"], &payload["forced"]),
        (&json!(false), &json!(false), &json!(false))
    );
}

#[test]
fn a_file_is_replaced_and_removed_by_its_sha() {
    let mut upstream = Upstream::new();
    let created = upstream.put(BEN, FILE, &write("one")).assert_status(201);
    upstream.put(BEN, FILE, &write("two")).assert_names_field("sha");
    upstream.delete(BEN, FILE).assert_names_field("message");
    let mut update = write("two");
    update["sha"] = json!("0000");
    upstream.put(BEN, FILE, &update).assert_names_field("sha");
    update["sha"] = created.body["content"]["sha"].clone();
    let updated = upstream.put(BEN, FILE, &update).assert_status(200);
    assert_eq!(newest(&mut upstream).1["commits"][0]["modified"], json!(["docs/guide.md"]));
    let body = json!({ "message": "Remove it", "sha": updated.body["content"]["sha"] });
    upstream.send(&request(Method::DELETE, BEN, FILE, &[], &body)).assert_status(200);
    assert_eq!(newest(&mut upstream).1["commits"][0]["removed"], json!(["docs/guide.md"]));
    upstream.get(ADA, FILE).assert_status(404);
    upstream.send(&request(Method::DELETE, BEN, FILE, &[], &body)).assert_status(404);
}

#[test]
fn a_push_changes_the_repository_and_its_validators() {
    let mut upstream = Upstream::new();
    let path = format!("{WIDGETS}/readme");
    let before = upstream.get(ADA, &path);
    let date = before.header("last-modified").to_owned();
    let mut update = write("# anew");
    update["sha"] = before.body["sha"].clone();
    upstream.put(BEN, &format!("{WIDGETS}/contents/README.md"), &update).assert_status(200);
    upstream.pass(2);
    let after = upstream.get_with(ADA, &path, &[("if-modified-since", &date)]).assert_status(200);
    assert_eq!(after.body["content"], STANDARD.encode("# anew"));
    let repository = upstream.get(ADA, WIDGETS).body;
    assert_eq!(
        (&repository["size"], repository["pushed_at"].as_str() > repository["created_at"].as_str()),
        (&json!(6), true)
    );
}

#[test]
fn bad_writes_are_422_and_name_the_field() {
    let mut upstream = Upstream::new();
    let cases = [
        (json!({ "content": "YQ==" }), "message"),
        (json!({ "message": "x" }), "content"),
        (json!({ "message": "x", "content": 7 }), "content"),
        (json!({ "message": "x", "content": "%%%" }), "content"),
        (
            json!({ "message": "x", "content": STANDARD.encode(vec![0; 1024 * 1024 + 1]) }),
            "content",
        ),
        (json!({ "message": "x", "content": "YQ==", "branch": "none" }), "branch"),
        (json!({ "message": "x", "content": "YQ==", "sha": [] }), "sha"),
    ];
    for (body, field) in cases {
        upstream.put(BEN, FILE, &body).assert_names_field(field);
    }
    for path in ["..", "a//b", "a/../b", ".git/config", "a%00b"] {
        upstream
            .put(BEN, &format!("{WIDGETS}/contents/{path}"), &write("x"))
            .assert_names_field("path");
    }
    upstream.put(DAN, FILE, &write("x")).assert_status(403);
    upstream.put(NOBODY, FILE, &write("x")).assert_status(401);
    upstream.put(ADA_NO_PERMISSIONS, FILE, &write("x")).assert_status(403);
    upstream.get(ADA, FILE).assert_status(404);
}

#[test]
fn each_change_of_a_branch_is_a_push_event() {
    let mut upstream = Upstream::new();
    let begin = head(&mut upstream, "main");
    let refs = format!("{WIDGETS}/git/refs");
    let made = upstream
        .post(BEN, &refs, &json!({ "ref": "refs/heads/topic/a", "sha": begin }))
        .assert_status(201);
    assert_eq!(made.body["object"]["sha"], begin);
    assert_eq!(newest(&mut upstream).1["created"], true);
    let mut there = write("there");
    there["branch"] = json!("topic/a");
    upstream.put(BEN, FILE, &there).assert_status(201);
    upstream.get(ADA, FILE).assert_status(404);
    upstream.get(ADA, &format!("{FILE}?ref=topic%2Fa")).assert_status(200);
    let ahead = head(&mut upstream, "topic/a");
    upstream.patch(BEN, &format!("{refs}/heads/main"), &json!({ "sha": ahead })).assert_status(200);
    assert_eq!(newest(&mut upstream).1["commits"].as_array().map(Vec::len), Some(1));
    upstream.get(ADA, FILE).assert_status(200);
    upstream
        .patch(BEN, &format!("{refs}/heads/main"), &json!({ "sha": begin }))
        .assert_names_field("sha");
    upstream
        .patch(BEN, &format!("{refs}/heads/main"), &json!({ "sha": begin, "force": true }))
        .assert_status(200);
    assert_eq!(newest(&mut upstream).1["forced"], true);
    assert_eq!(upstream.get(ADA, &refs).items().len(), 2);
    upstream.delete(BEN, &format!("{refs}/heads/topic/a")).assert_status(204);
    let (_, payload) = newest(&mut upstream);
    assert_eq!(
        (&payload["deleted"], payload["after"].as_str().map(|sha| sha.trim_matches('0'))),
        (&json!(true), Some(""))
    );
    upstream.delete(BEN, &format!("{refs}/heads/topic/a")).assert_status(404);
    upstream.delete(BEN, &format!("{refs}/heads/main")).assert_names_field("ref");
}

#[test]
fn bad_references_are_422_and_name_the_field() {
    let mut upstream = Upstream::new();
    let begin = head(&mut upstream, "main");
    let refs = format!("{WIDGETS}/git/refs");
    for name in [
        json!("topic"),
        json!("refs/heads/"),
        json!("refs/heads/a b"),
        json!("refs/heads/../x"),
        json!("refs/tags/v1"),
        json!(7),
        Value::Null,
    ] {
        upstream.post(BEN, &refs, &json!({ "ref": name, "sha": begin })).assert_names_field("ref");
    }
    upstream
        .post(BEN, &refs, &json!({ "ref": "refs/heads/main", "sha": begin }))
        .assert_names_field("ref");
    for sha in [json!("0000"), json!(7), Value::Null] {
        upstream
            .post(BEN, &refs, &json!({ "ref": "refs/heads/x", "sha": sha }))
            .assert_names_field("sha");
    }
    upstream.patch(BEN, &format!("{refs}/heads/none"), &json!({ "sha": begin })).assert_status(404);
    upstream
        .patch(BEN, &format!("{refs}/heads/main"), &json!({ "sha": begin, "force": "yes" }))
        .assert_names_field("force");
    upstream.get(ADA, &format!("{WIDGETS}/git/ref/tags/v1")).assert_status(404);
}

#[test]
fn a_push_triggered_by_the_control_plane_changes_the_world() {
    let mut upstream = Upstream::new();
    let push = json!({ "type": "push", "repository": "acme/widgets", "actor": "cleo", "text": "More notes" });
    let sha =
        upstream.post(NOBODY, "/_emulator/events", &push).assert_status(201).body["id"].clone();
    assert_eq!(head(&mut upstream, "main"), sha.as_str().unwrap_or(""));
    let (event, payload) = newest(&mut upstream);
    assert_eq!(
        (event.as_str(), &payload["after"], &payload["sender"]["login"]),
        ("push", &sha, &json!("cleo"))
    );
    upstream.post(NOBODY, "/_emulator/events", &push).assert_status(201);
    let notes = upstream.get(ADA, &format!("{WIDGETS}/contents/notes.md")).body;
    assert_eq!(notes["content"], STANDARD.encode("More notes\nMore notes\n"));
}

#[test]
fn commits_are_found_by_branch_and_by_path() {
    let mut upstream = Upstream::new();
    upstream.put(BEN, FILE, &write("one")).assert_status(201);
    upstream.put(BEN, &format!("{WIDGETS}/contents/other.md"), &write("two")).assert_status(201);
    let of = |upstream: &mut Upstream, query: &str| {
        upstream.get(ADA, &format!("{WIDGETS}/commits?{query}")).assert_status(200).items().len()
    };
    assert_eq!(
        (
            of(&mut upstream, ""),
            of(&mut upstream, "path=docs/guide.md"),
            of(&mut upstream, "sha=main&per_page=2")
        ),
        (3, 1, 2)
    );
    upstream.get(ADA, &format!("{WIDGETS}/commits?sha=none")).assert_status(404);
    upstream.get(ADA, &format!("{WIDGETS}/commits/none")).assert_status(404);
    upstream.get(DAN, "/repos/acme/gadgets/commits").assert_status(404);
}

#[test]
fn a_repository_holds_at_most_200_files() {
    let mut upstream = Upstream::new();
    upstream.set_limit("points.rest", 1_000_000);
    for index in 0..199 {
        upstream.put(BEN, &format!("{WIDGETS}/contents/f{index}"), &write("x")).assert_status(201);
    }
    upstream.put(BEN, &format!("{WIDGETS}/contents/more"), &write("x")).assert_names_field("base");
}
