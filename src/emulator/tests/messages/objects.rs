//! Tests the objects that many responses share, field by field and type by type: user summaries and
//! repositories.

use serde_json::{Value, json};

use crate::emulator::tests::*;

const USER_STRINGS: &str = "login node_id avatar_url url html_url followers_url following_url gists_url starred_url subscriptions_url \
    organizations_url repos_url events_url received_events_url type";
const STRINGS: &str = "node_id name full_name html_url description visibility mirror_url clone_url git_url ssh_url svn_url \
    archive_url assignees_url blobs_url branches_url collaborators_url comments_url commits_url compare_url contents_url contributors_url \
    deployments_url downloads_url events_url forks_url git_commits_url git_refs_url git_tags_url issue_comment_url issue_events_url issues_url \
    keys_url labels_url languages_url merges_url milestones_url notifications_url pulls_url releases_url stargazers_url statuses_url \
    subscribers_url subscription_url tags_url teams_url trees_url hooks_url url";
const STRINGS_OR_NULL: &str = "default_branch homepage language";
const BOOLEANS: &str = "private fork is_template archived disabled has_issues has_projects has_wiki has_pages has_downloads allow_rebase_merge \
    allow_squash_merge allow_auto_merge delete_branch_on_merge allow_merge_commit";
const INTEGERS: &str = "id forks_count stargazers_count watchers_count size open_issues_count subscribers_count network_count forks open_issues watchers";
const TIMESTAMPS: &str = "pushed_at created_at updated_at";

fn each(value: &Value, fields: &str, is_right: impl Fn(&Value) -> bool) {
    for field in fields.split_whitespace() {
        assert!(value.get(field).is_some_and(&is_right), "{field} is {}", value[field]);
    }
}

fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

fn assert_user(user: &Value) {
    each(user, USER_STRINGS, is_text);
    each(user, "id", Value::is_u64);
    each(user, "site_admin", Value::is_boolean);
    each(user, "gravatar_id", Value::is_string);
}

fn assert_repository(repository: &Value) {
    each(repository, STRINGS, is_text);
    each(repository, STRINGS_OR_NULL, |value| value.is_string() || value.is_null());
    each(repository, BOOLEANS, Value::is_boolean);
    each(repository, INTEGERS, Value::is_u64);
    each(repository, TIMESTAMPS, |value| {
        value
            .as_str()
            .is_some_and(|text| crate::emulator::http::timestamps::parse_iso(text).is_some())
    });
    each(repository, "topics", |value| {
        value.as_array().is_some_and(|topics| topics.iter().all(Value::is_string))
    });
    each(repository, "temp_clone_token", Value::is_string);
    each(repository, "template_repository", |value| value.is_object() || value.is_null());
    each(&repository["permissions"], "admin push pull", Value::is_boolean);
    each(&repository["license"], "key name url spdx_id node_id html_url", is_text);
    assert_user(&repository["owner"]);
}

#[test]
fn every_user_summary_has_all_fields_with_their_types() {
    let mut upstream = Upstream::new();
    assert_user(&upstream.get(ADA, "/users/ada").body);
    assert_user(&upstream.get(ADA, "/repos/acme/widgets/issues/1").body["user"]);
    assert_user(&upstream.get(INSTALLATION, "/repos/acme/widgets").body["owner"]);
    let made = upstream
        .post(INSTALLATION, "/repos/acme/widgets/issues", &json!({ "title": "By an app" }))
        .assert_status(201);
    assert_user(&made.body["user"]);
    assert_eq!(made.body["user"]["type"], "Bot");
}

#[test]
fn every_repository_object_has_all_fields_with_their_types() {
    let mut upstream = Upstream::new();
    for token in [ADA, DAN, NOBODY] {
        assert_repository(&upstream.get(token, "/repos/acme/widgets").body);
        assert_repository(
            &upstream.get(token, "/repos/acme/sprockets").body["template_repository"],
        );
    }
    assert_repository(&upstream.get(ADA, "/repos/acme/gadgets").body);
    assert_repository(&upstream.get(ADA, "/repos/ada/diary").body);
    assert_repository(&upstream.get(ADA, "/notifications").items()[0]["repository"]);
    for repository in upstream.get(ADA, "/orgs/acme/repos").items() {
        assert_repository(repository);
    }
}

#[test]
fn permissions_are_those_of_the_caller() {
    let mut upstream = Upstream::new();
    let expected = [
        (ADA, json!({ "admin": true, "push": true, "pull": true })),
        (BEN, json!({ "admin": false, "push": true, "pull": true })),
        (DAN, json!({ "admin": false, "push": false, "pull": true })),
        (NOBODY, json!({ "admin": false, "push": false, "pull": true })),
        (INSTALLATION, json!({ "admin": true, "push": true, "pull": true })),
        (WORKFLOW, json!({ "admin": false, "push": true, "pull": true })),
    ];
    for (token, permissions) in expected {
        assert_eq!(
            upstream.get(token, "/repos/acme/widgets").body["permissions"],
            permissions,
            "{token}"
        );
    }
}

#[test]
fn the_clone_secret_is_short_lived_and_differs_between_users() {
    let mut upstream = Upstream::new();
    let secret = |upstream: &mut Upstream, token: &str| {
        upstream.get(token, "/repos/acme/gadgets").assert_status(200).body["temp_clone_token"]
            .as_str()
            .expect("a string")
            .to_owned()
    };
    let first = secret(&mut upstream, ADA);
    assert!(first.len() > 20);
    upstream.pass(60);
    assert_eq!(secret(&mut upstream, ADA), first);
    assert_ne!(secret(&mut upstream, BEN), first);
    upstream.pass(3_600);
    assert_ne!(secret(&mut upstream, ADA), first);
    assert_eq!(
        upstream.get(ADA, "/repos/acme/widgets").body["temp_clone_token"],
        "",
        "a public repository is cloned without"
    );
}

#[test]
fn a_new_clone_secret_changes_last_modified() {
    let mut upstream = Upstream::new();
    upstream.set_limit("poll.interval", 1);
    upstream
        .post(BEN, "/repos/acme/gadgets/issues", &json!({ "title": "@ada" }))
        .assert_status(201);
    upstream.pass(60);
    let thread = format!(
        "/notifications/threads/{}",
        upstream.get(ADA, "/notifications").items()[0]["id"].as_str().expect("an id")
    );
    for path in ["/repos/acme/gadgets", "/notifications", &thread] {
        let date = upstream.get(ADA, path).header("last-modified").to_owned();
        upstream.pass(10);
        upstream.get_with(ADA, path, &[("if-modified-since", &date)]).assert_status(304);
        upstream.pass(3_600);
        upstream.get_with(ADA, path, &[("if-modified-since", &date)]).assert_status(200);
    }
}

#[test]
fn a_template_is_shown_only_to_callers_with_access() {
    let mut upstream = Upstream::new();
    let generated = upstream.get(DAN, "/repos/acme/sprockets").assert_status(200);
    assert_eq!(generated.body["template_repository"]["full_name"], "acme/widgets");
    assert_eq!(generated.body["template_repository"]["permissions"]["push"], false);
    assert!(upstream.get(ADA, "/repos/acme/widgets").body["template_repository"].is_null());
    upstream.patch(ADA, "/repos/acme/widgets", &json!({ "private": true })).assert_status(200);
    assert!(upstream.get(DAN, "/repos/acme/sprockets").body["template_repository"].is_null());
    assert!(upstream.get(ADA, "/repos/acme/sprockets").body["template_repository"].is_object());
}
