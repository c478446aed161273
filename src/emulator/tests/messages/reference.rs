//! Tests the service's reference data and global lists.

use serde_json::json;

use crate::emulator::tests::*;

#[test]
fn reference_data_needs_no_credential() {
    let mut upstream = Upstream::new();
    assert!(upstream.get(NOBODY, "/emojis").assert_status(200).body["heart"].is_string());
    assert!(
        upstream
            .get(NOBODY, "/gitignore/templates")
            .assert_status(200)
            .items()
            .contains(&json!("Rust"))
    );
    assert_eq!(
        upstream.get(NOBODY, "/gitignore/templates/Rust").assert_status(200).body["source"],
        "/target\n"
    );
    assert_eq!(upstream.get(NOBODY, "/licenses/MIT").assert_status(200).body["spdx_id"], "MIT");
    assert_eq!(upstream.get(NOBODY, "/licenses").assert_status(200).items().len(), 3);
    assert!(upstream.get(NOBODY, "/codes_of_conduct/contributor_covenant").assert_status(200).body["body"].is_string());
    assert_eq!(
        upstream.get(NOBODY, "/versions").assert_status(200).body,
        json!(["2026-03-10", "2022-11-28"])
    );
    assert!(
        upstream
            .get(NOBODY, "/zen")
            .assert_status(200)
            .header("content-type")
            .starts_with("text/plain")
    );
    assert!(upstream.get(ADA, "/feeds").assert_status(200).body["current_user_url"].is_string());
    assert!(upstream.get(NOBODY, "/meta").assert_status(200).body.is_object());
    for path in ["/licenses/nothing", "/gitignore/templates/Nothing", "/codes_of_conduct/nothing"] {
        upstream.get(NOBODY, path).assert_status(404);
    }
}

#[test]
fn markdown_becomes_html() {
    let mut upstream = Upstream::new();
    let rendered = upstream
        .post(NOBODY, "/markdown", &json!({ "text": "# A <b>\n\nc & d" }))
        .assert_status(200);
    assert!(rendered.header("content-type").starts_with("text/html"));
    assert_eq!(&*rendered.bytes, b"<h1>A &lt;b&gt;</h1>\n<p>c &amp; d</p>\n");
    upstream.post(NOBODY, "/markdown", &json!({ "mode": "poem" })).assert_names_field("text");
    let mut raw = request(
        Method::POST,
        NOBODY,
        "/markdown/raw",
        &[("content-type", "text/plain")],
        &Value::Null,
    );
    *raw.body_mut() = Bytes::from_static("####### é\u{fffd}".as_bytes());
    assert!(upstream.send(&raw).assert_status(200).bytes.starts_with(b"<p>#######"));
}

#[test]
fn leaked_credentials_are_reported_by_anyone() {
    let mut upstream = Upstream::new();
    upstream
        .post(NOBODY, "/credentials/revoke", &json!({ "credentials": ["x"] }))
        .assert_status(202);
    for bad in [
        json!({}),
        json!({ "credentials": [] }),
        json!({ "credentials": "x" }),
        json!({ "credentials": [1] }),
    ] {
        upstream.post(NOBODY, "/credentials/revoke", &bad).assert_names_field("credentials");
    }
}

#[test]
fn lists_of_everything_are_paged_by_the_last_id_seen() {
    let mut upstream = Upstream::new();
    let first = upstream.get(NOBODY, "/repositories?per_page=2").assert_status(200);
    let last = first.items()[1]["id"].as_u64().expect("an id");
    assert_eq!(
        first.link("next").as_deref(),
        Some(&*format!("http://upstream.test/repositories?per_page=2&since={last}"))
    );
    let second =
        upstream.get(NOBODY, &format!("/repositories?per_page=2&since={last}")).assert_status(200);
    assert!(second.items()[0]["id"].as_u64() > Some(last));
    assert!(
        upstream
            .get(ADA, "/repositories?per_page=100")
            .items()
            .iter()
            .all(|one| one["private"] == false),
        "public ones alone"
    );
    assert_eq!(
        upstream.get(NOBODY, "/users?since=103&per_page=1").assert_status(200).items()[0]["login"],
        "dan"
    );
    assert_eq!(
        upstream.get(NOBODY, "/organizations").assert_status(200).items()[0]["login"],
        "acme"
    );
    assert_eq!(
        upstream.get(NOBODY, "/users/ada/orgs").assert_status(200).items()[0]["login"],
        "acme"
    );
}

#[test]
fn a_search_finds_only_objects_visible_to_the_caller() {
    let mut upstream = Upstream::new();
    let found = |answer: &Answer| answer.body["total_count"].as_u64();
    assert_eq!(
        found(&upstream.get(NOBODY, "/search/repositories?q=gadgets").assert_status(200)),
        Some(0)
    );
    let seen = upstream.get(ADA, "/search/repositories?q=gadgets+org:acme").assert_status(200);
    assert_eq!(
        (found(&seen), &seen.body["items"][0]["full_name"]),
        (Some(1), &json!("acme/gadgets"))
    );
    assert_eq!(upstream.get(ADA, "/search/users?q=ada").body["items"][0]["login"], "ada");
    assert_eq!(
        upstream.get(ADA, "/search/users?q=type:org+acme").body["items"][0]["type"],
        "Organization"
    );
    assert_eq!(
        upstream.get(ADA, "/search/labels?q=bug&repository_id=1001").body["items"][0]["name"],
        "bug"
    );
    assert_eq!(upstream.get(ADA, "/search/topics?q=emulated").body["items"][0]["name"], "emulated");
    assert!(found(&upstream.get(ADA, "/search/commits?q=repo:acme/widgets")) >= Some(1));
    let code = upstream.get(ADA, "/search/code?q=x").assert_status(200);
    assert_eq!((found(&code), code.header("x-ratelimit-resource")), (Some(0), "code_search"));
    for kind in ["repositories", "users", "topics", "commits", "code", "labels"] {
        upstream.get(ADA, &format!("/search/{kind}")).assert_names_field("q");
    }
    upstream.get(ADA, "/search/labels?q=bug").assert_names_field("repository_id");
    upstream.get(DAN, "/search/labels?q=bug&repository_id=1002").assert_status(404);
}

#[test]
fn languages_topics_license_and_tags_describe_a_repository() {
    let mut upstream = Upstream::new();
    assert!(
        upstream.get(NOBODY, "/repos/acme/widgets/languages").assert_status(200).body["Rust"]
            .is_u64()
    );
    let path = "/repos/acme/widgets/topics";
    assert_eq!(
        upstream.put(ADA, path, &json!({ "names": ["one", "two-2"] })).assert_status(200).body,
        json!({ "names": ["one", "two-2"] })
    );
    assert_eq!(upstream.get(NOBODY, "/repos/acme/widgets").body["topics"], json!(["one", "two-2"]));
    assert_eq!(upstream.get(NOBODY, path).assert_status(200).body["names"][0], "one");
    for bad in [
        json!({}),
        json!({ "names": ["Big"] }),
        json!({ "names": "one" }),
        json!({ "names": vec!["a"; 21] }),
    ] {
        upstream.put(ADA, path, &bad).assert_names_field("names");
    }
    upstream.put(BEN, path, &json!({ "names": [] })).assert_status(403);
    assert_eq!(
        upstream.get(NOBODY, "/repos/acme/widgets/license").assert_status(200).body["license"]["spdx_id"],
        "Apache-2.0"
    );
    assert_eq!(
        upstream.get(NOBODY, "/repos/acme/widgets/tags").assert_status(200).items()[0]["name"],
        "v1.0.0"
    );
}

#[test]
fn a_gist_is_read_by_address_and_changed_by_its_owner() {
    let mut upstream = Upstream::new();
    let secret = upstream
        .post(
            ADA,
            "/gists",
            &json!({ "files": { "a.txt": { "content": "one" } }, "description": "mine" }),
        )
        .assert_status(201);
    let shown = upstream
        .post(ADA, "/gists", &json!({ "files": { "b.txt": { "content": "two" } }, "public": true }))
        .assert_status(201);
    let path = format!("/gists/{}", secret.body["id"].as_str().expect("an id"));
    assert_eq!(
        upstream.get(NOBODY, &path).assert_status(200).body["files"]["a.txt"]["content"],
        "one"
    );
    for list in ["/gists", "/gists/public", "/users/ada/gists"] {
        let seen = upstream.get(NOBODY, list).assert_status(200);
        assert_eq!((seen.items().len(), &seen.items()[0]["id"]), (1, &shown.body["id"]), "{list}");
    }
    assert_eq!(upstream.get(ADA, "/gists").items().len(), 2);
    assert_eq!(upstream.get(BEN, "/gists").items().len(), 0);
    upstream.patch(BEN, &path, &json!({ "description": "his" })).assert_status(404);
    let changed = json!({ "files": { "a.txt": null, "c.txt": { "content": "three" } } });
    let after = upstream.patch(ADA, &path, &changed).assert_status(200);
    assert_eq!(
        (&after.body["files"]["a.txt"], &after.body["description"]),
        (&Value::Null, &json!("mine"))
    );
    for bad in [
        json!({}),
        json!({ "files": {} }),
        json!({ "files": 1 }),
        json!({ "files": { "a": 1 } }),
        json!({ "files": { "a": { "content": 1 } } }),
    ] {
        upstream.post(ADA, "/gists", &bad).assert_names_field("files");
    }
    upstream.put(BEN, &format!("{path}/star"), &Value::Null).assert_status(204);
    assert_eq!(upstream.get(BEN, "/gists/starred").assert_status(200).items().len(), 1);
    upstream.get(ADA, &format!("{path}/star")).assert_status(404);
    upstream.post(BEN, &format!("{path}/comments"), &json!({ "body": "Nice" })).assert_status(201);
    upstream.delete(BEN, &path).assert_status(404);
    upstream.delete(ADA, &path).assert_status(204);
    upstream.get(ADA, &format!("{path}/comments")).assert_status(404);
    upstream
        .post(NOBODY, "/gists", &json!({ "files": { "a": { "content": "x" } } }))
        .assert_status(401);
    upstream
        .post(INSTALLATION, "/gists", &json!({ "files": { "a": { "content": "x" } } }))
        .assert_status(403);
}

fn numbers(upstream: &mut Upstream, search: &str) -> Vec<u64> {
    let search = search.replace(' ', "+").replace('"', "%22").replace('>', "%3E");
    let path = format!("/search/issues?per_page=100&q=repo:acme/widgets+{search}");
    let items = upstream.get(ADA, &path).assert_status(200).body["items"].clone();
    let items = items.as_array().expect("items").iter();
    items.filter_map(|item| item["number"].as_u64()).collect()
}

#[test]
fn an_unknown_qualifier_of_a_search_is_refused() {
    let mut upstream = Upstream::new();
    for (list, search) in [
        ("issues", "colour:red"),
        ("issues", "-lable:bug"),
        ("issues", "is:weird"),
        ("issues", "created:yesterday"),
        ("issues", "comments:many"),
        ("issues", "label:"),
        ("repositories", "colour:red"),
        ("repositories", "is:open"),
        ("repositories", "stars:many"),
        ("users", "repo:acme/widgets"),
        ("users", "type:robot"),
        ("commits", "label:bug"),
        ("topics", "repo:acme/widgets"),
        ("code", "colour:red"),
    ] {
        upstream.get(ADA, &format!("/search/{list}?q={search}")).assert_names_field("q");
        upstream.pass(10);
    }
    upstream.get(ADA, "/search/issues?q=x&sort=size").assert_names_field("sort");
    upstream.get(ADA, "/search/issues?q=x&sort=created&order=up").assert_names_field("order");
    upstream.get(ADA, "/search/issues?q=%22colour:red%22").assert_status(200);
}

#[test]
fn a_search_applies_its_qualifiers() {
    let mut upstream = Upstream::new();
    assert_eq!(numbers(&mut upstream, "is:pr sort:created-asc"), [76, 77, 78, 79]);
    assert_eq!(numbers(&mut upstream, "is:pr head:topic-77"), [77]);
    assert_eq!(numbers(&mut upstream, "comments:>40"), [1]);
    assert_eq!(numbers(&mut upstream, "milestone:\"first release\""), [1]);
    let open = numbers(&mut upstream, "is:issue is:open").len();
    let closed = numbers(&mut upstream, "is:issue -is:open").len();
    assert_eq!((open + closed, closed), (75, 10));
    let newest = numbers(&mut upstream, "is:issue sort:created-desc");
    assert_eq!((newest[0], newest[74]), (75, 1));
    upstream
        .post(ADA, "/repos/acme/widgets/issues/3/assignees", &json!({ "assignees": ["ada"] }))
        .assert_status(201);
    assert_eq!(numbers(&mut upstream, "assignee:@me"), [3]);
    assert_eq!(numbers(&mut upstream, "created:>2100-01-01"), [0; 0]);
}
