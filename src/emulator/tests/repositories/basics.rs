//! Tests repositories, issues, comments and labels: state, pages, redirects, bad input.

use serde_json::{Value, json};

use crate::emulator::tests::*;

/// Every documented field of a repository.
const REPOSITORY_FIELDS: &str = "id node_id name full_name html_url description private fork is_template archived disabled has_issues has_projects \
    has_wiki has_pages has_downloads allow_rebase_merge allow_squash_merge allow_auto_merge delete_branch_on_merge allow_merge_commit visibility \
    default_branch homepage language forks_count stargazers_count watchers_count size open_issues_count subscribers_count network_count forks \
    open_issues watchers topics pushed_at created_at updated_at permissions template_repository temp_clone_token mirror_url clone_url git_url \
    ssh_url svn_url owner license archive_url assignees_url blobs_url branches_url collaborators_url comments_url commits_url compare_url \
    contents_url contributors_url deployments_url downloads_url events_url forks_url git_commits_url git_refs_url git_tags_url \
    issue_comment_url issue_events_url issues_url keys_url labels_url languages_url merges_url milestones_url notifications_url pulls_url \
    releases_url stargazers_url statuses_url subscribers_url subscription_url tags_url teams_url trees_url hooks_url url";

/// Every documented field of a user summary.
const USER_FIELDS: &str = "login id node_id avatar_url gravatar_id url html_url followers_url following_url gists_url starred_url \
    subscriptions_url organizations_url repos_url events_url received_events_url type site_admin";

fn assert_fields(value: &Value, fields: &str) {
    for field in fields.split_whitespace() {
        assert!(value.get(field).is_some(), "{field} in {value}");
    }
}

#[test]
fn the_repository_object_has_every_field_of_the_document() {
    let mut upstream = Upstream::new();
    let repository = upstream.get(ADA, "/repos/acme/widgets").assert_status(200);
    assert_fields(&repository.body, REPOSITORY_FIELDS);
    assert_fields(&repository.body["owner"], USER_FIELDS);
    assert_fields(&repository.body["license"], "key name url spdx_id node_id html_url");
    assert_eq!(
        repository.body["permissions"],
        json!({ "admin": true, "push": true, "pull": true })
    );
    assert_eq!(
        upstream.get(DAN, "/repos/acme/widgets").body["permissions"],
        json!({ "admin": false, "push": false, "pull": true })
    );
    assert_fields(&upstream.get(ADA, "/notifications").items()[0]["repository"], REPOSITORY_FIELDS);
}

#[test]
fn owner_and_name_are_case_insensitive_without_a_git_suffix() {
    let mut upstream = Upstream::new();
    assert_eq!(
        upstream.get(ADA, "/repos/Acme/WIDGETS").assert_status(200).body["full_name"],
        "acme/widgets"
    );
    upstream.get(ADA, "/repos/acme/widgets.git").assert_status(404);
    upstream.get(ADA, "/repos/acme/widgets/").assert_status(404);
}

#[test]
fn both_base_paths_answer_with_addresses_of_their_own_shape() {
    let mut upstream = Upstream::new();
    assert_eq!(
        upstream.get(ADA, "/repos/acme/widgets").body["url"],
        "http://upstream.test/repos/acme/widgets"
    );
    let hosted = upstream.get(ADA, "/api/v3/repos/acme/widgets/issues?per_page=5");
    assert_eq!(
        hosted.link("next").as_deref(),
        Some("http://upstream.test/api/v3/repos/acme/widgets/issues?per_page=5&page=2")
    );
    assert!(hosted.items()[0]["url"].as_str().is_some_and(|url| {
        url.starts_with("http://upstream.test/api/v3/repos/acme/widgets/issues/")
    }));
}

#[test]
fn without_a_base_url_addresses_follow_the_host() {
    let mut upstream = Upstream::github();
    let answer = upstream.send(
        &http::Request::get("/user")
            .header("host", "other.test:81")
            .header("authorization", format!("token {ADA}"))
            .body(Bytes::new())
            .expect("well formed"),
    );
    assert_eq!(answer.body["url"], "http://other.test:81/users/ada");
}

#[test]
fn pages_are_numbered_and_linked_in_both_directions() {
    let mut upstream = Upstream::new();
    let path = "/repos/acme/widgets/issues?state=all&per_page=20";
    let first = upstream.get(ADA, path);
    assert_eq!((first.link("prev"), first.link("first")), (None, None));
    let mut seen = Vec::new();
    let mut next = Some(format!("http://upstream.test{path}"));
    while let Some(address) = next {
        let page = upstream
            .get(ADA, address.strip_prefix("http://upstream.test").expect("our address"))
            .assert_status(200);
        seen.extend(page.items().iter().filter_map(|issue| issue["number"].as_u64()));
        next = page.link("next");
        if next.is_none() {
            assert_eq!(page.link("last"), None);
            assert!(page.link("prev").is_some() && page.link("first").is_some());
        }
    }
    assert_eq!(seen, (1..=79).rev().collect::<Vec<u64>>());
}

#[test]
fn per_page_is_30_by_default_and_100_at_most() {
    let mut upstream = Upstream::new();
    assert_eq!(upstream.get(ADA, "/repos/acme/widgets/issues?state=all").items().len(), 30);
    assert_eq!(
        upstream.get(ADA, "/repos/acme/widgets/issues?state=all&per_page=500").items().len(),
        79
    );
    assert_eq!(
        upstream.get(ADA, "/repos/acme/widgets/issues?per_page=x&page=-1").items().len(),
        30
    );
    assert_eq!(upstream.get(ADA, "/repos/acme/widgets/issues?page=99999999999").items().len(), 0);
}

#[test]
fn issues_are_filtered_by_state() {
    let mut upstream = Upstream::new();
    for state in ["open", "closed"] {
        let answer =
            upstream.get(ADA, &format!("/repos/acme/widgets/issues?state={state}&per_page=100"));
        assert!(
            !answer.items().is_empty()
                && answer.items().iter().all(|issue| issue["state"] == state)
        );
    }
    upstream.get(ADA, "/repos/acme/widgets/issues?state=odd").assert_names_field("state");
}

#[test]
fn an_issue_is_created_changed_and_closed() {
    let mut upstream = Upstream::new();
    let created = upstream
        .post(
            ADA,
            "/repos/acme/widgets/issues",
            &json!({ "title": "New", "labels": ["bug", "fresh"], "assignees": ["ben"] }),
        )
        .assert_status(201);
    let path = format!("/repos/acme/widgets/issues/{}", created.body["number"]);
    assert_eq!(created.header("location"), format!("http://upstream.test{path}"));
    assert_eq!(created.body["labels"].as_array().map(Vec::len), Some(2));
    assert_eq!(created.body["assignee"]["login"], "ben");
    let closed =
        upstream.patch(ADA, &path, &json!({ "state": "closed", "body": null })).assert_status(200);
    assert_eq!((&closed.body["state"], &closed.body["title"]), (&json!("closed"), &json!("New")));
    assert!(closed.body["closed_at"].is_string());
    assert_eq!(upstream.get(ADA, &path).body["state"], "closed");
}

#[test]
fn an_author_may_change_its_own_issue_and_a_stranger_may_not() {
    let mut upstream = Upstream::new();
    let created = upstream
        .post(DAN, "/repos/acme/widgets/issues", &json!({ "title": "Mine", "labels": ["bug"] }))
        .assert_status(201);
    assert_eq!(created.body["labels"], json!([]), "only who may push chooses labels");
    upstream
        .patch(
            DAN,
            &format!("/repos/acme/widgets/issues/{}", created.body["number"]),
            &json!({ "title": "Still mine" }),
        )
        .assert_status(200);
    upstream
        .patch(DAN, "/repos/acme/widgets/issues/1", &json!({ "title": "Not mine" }))
        .assert_status(403);
}

#[test]
fn malformed_json_is_400_and_wrong_types_are_422() {
    let mut upstream = Upstream::new();
    let broken = http::Request::post("/repos/acme/widgets/issues")
        .header("authorization", format!("Bearer {ADA}"))
        .body(Bytes::from_static(b"{\"title\":"))
        .expect("well formed");
    assert_eq!(upstream.send(&broken).assert_status(400).body["message"], "Problems parsing JSON");
    upstream.post(ADA, "/repos/acme/widgets/issues", &json!({})).assert_names_field("title");
    upstream
        .post(ADA, "/repos/acme/widgets/issues", &json!({ "title": 7 }))
        .assert_names_field("title");
    upstream
        .post(
            ADA,
            "/repos/acme/widgets/issues",
            &json!({ "title": "x", "assignees": ["nobody-at-all"] }),
        )
        .assert_names_field("assignees");
    upstream
        .patch(ADA, "/repos/acme/widgets/issues/1", &json!({ "state": "ajar" }))
        .assert_names_field("state");
}

#[test]
fn unknown_objects_are_not_found() {
    let mut upstream = Upstream::new();
    for path in [
        "/repos/acme/nothing",
        "/repos/acme/widgets/issues/9999",
        "/repos/acme/widgets/issues/x",
        "/users/nobody",
        "/orgs/nobody",
        "/no/such/route",
        "/repositories/1",
    ] {
        upstream.get(ADA, path).assert_status(404);
    }
}

#[test]
fn comments_are_listed_created_changed_and_deleted() {
    let mut upstream = Upstream::new();
    let list = "/repos/acme/widgets/issues/1/comments";
    assert_eq!(upstream.get(ADA, &format!("{list}?page=2")).items().len(), 15);
    let created = upstream.post(BEN, list, &json!({ "body": "Hello" })).assert_status(201);
    let path = format!("/repos/acme/widgets/issues/comments/{}", created.body["id"]);
    assert_eq!(
        upstream.patch(BEN, &path, &json!({ "body": "Hello again" })).assert_status(200).body["body"],
        "Hello again"
    );
    upstream.patch(DAN, &path, &json!({ "body": "no" })).assert_status(403);
    upstream.delete(BEN, &path).assert_status(204);
    upstream.get(BEN, &path).assert_status(404);
    upstream.post(BEN, list, &json!({ "body": "" })).assert_names_field("body");
}

#[test]
fn labels_are_created_renamed_and_deleted() {
    let mut upstream = Upstream::new();
    let labels = "/repos/acme/widgets/labels";
    upstream.post(ADA, labels, &json!({ "name": "red hot", "color": "ff0000" })).assert_status(201);
    upstream.post(ADA, labels, &json!({ "name": "RED hot" })).assert_names_field("name");
    upstream.post(ADA, labels, &json!({ "name": "x", "color": "red" })).assert_names_field("color");
    let renamed = upstream
        .patch(ADA, &format!("{labels}/red%20hot"), &json!({ "new_name": "cold" }))
        .assert_status(200);
    assert_eq!(renamed.body["url"], "http://upstream.test/repos/acme/widgets/labels/cold");
    upstream.delete(ADA, &format!("{labels}/cold")).assert_status(204);
    upstream.get(ADA, &format!("{labels}/cold")).assert_status(404);
}

#[test]
fn a_renamed_repository_redirects_reads_301_and_writes_307() {
    let mut upstream = Upstream::new();
    let moved = upstream.get(ADA, "/repos/acme/cogs/issues?state=all").assert_status(301);
    let address = moved.header("location").to_owned();
    assert_eq!(address, "http://upstream.test/repositories/1003/issues?state=all");
    assert_eq!(
        upstream
            .get(ADA, address.strip_prefix("http://upstream.test").expect("our address"))
            .assert_status(200)
            .items()
            .len(),
        3
    );
    let moved =
        upstream.patch(ADA, "/repos/acme/cogs", &json!({ "description": "x" })).assert_status(307);
    assert_eq!(moved.header("location"), "http://upstream.test/repositories/1003");
    assert_eq!(upstream.get(ADA, "/repositories/1003").body["name"], "sprockets");
    upstream.get(DAN, "/repositories/1002").assert_status(404);
}

#[test]
fn a_renamed_repository_redirects_and_needs_a_free_name() {
    let mut upstream = Upstream::new();
    upstream.patch(ADA, "/repos/acme/widgets", &json!({ "name": "gizmos" })).assert_status(200);
    upstream.get(ADA, "/repos/acme/widgets").assert_status(301);
    upstream.get(ADA, "/repos/acme/gizmos").assert_status(200);
    upstream
        .patch(ADA, "/repos/acme/gizmos", &json!({ "name": "gadgets" }))
        .assert_names_field("name");
    upstream
        .patch(ADA, "/repos/acme/gizmos", &json!({ "name": "a/b", "private": "no" }))
        .assert_names_field("name");
}

#[test]
fn every_address_in_a_link_or_url_field_can_be_followed() {
    let mut upstream = Upstream::new();
    let issue = upstream.get(ADA, "/repos/acme/widgets/issues/1").body;
    let repository = upstream.get(ADA, "/repos/acme/widgets").body;
    let addresses = [
        &issue["url"],
        &issue["repository_url"],
        &issue["comments_url"],
        &issue["user"]["url"],
        &issue["user"]["repos_url"],
        &repository["owner"]["url"],
        &repository["url"],
    ];
    for address in addresses {
        let path = address
            .as_str()
            .and_then(|address| address.strip_prefix("http://upstream.test"))
            .expect("our address");
        upstream.get(ADA, path).assert_status(200);
    }
}
