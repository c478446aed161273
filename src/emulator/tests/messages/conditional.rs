//! Tests conditional requests and the headers of every response (SPECIFICATION, "Conditional
//! requests in practice").

use serde_json::json;

use crate::emulator::tests::*;

#[test]
fn a_304_has_no_body_no_link_and_no_content_type() {
    let mut upstream = Upstream::new();
    let path = "/repos/acme/widgets/issues?per_page=10";
    let full = upstream.get(ADA, path).assert_status(200);
    assert!(full.link("next").is_some());
    let unchanged =
        upstream.get_with(ADA, path, &[("if-none-match", full.header("etag"))]).assert_status(304);
    assert!(unchanged.bytes.is_empty());
    assert_eq!((unchanged.header("link"), unchanged.header("content-type")), ("", ""));
    assert_eq!(unchanged.header("etag"), full.header("etag"));
}

#[test]
fn the_etag_belongs_to_the_token_and_last_modified_does_not() {
    let mut upstream = Upstream::new();
    let (one, two) = (upstream.get(ADA, "/users/ben"), upstream.get(BEN, "/users/ben"));
    assert_eq!(one.bytes, two.bytes);
    assert_ne!(one.header("etag"), two.header("etag"));
    upstream
        .get_with(BEN, "/users/ben", &[("if-none-match", one.header("etag"))])
        .assert_status(200);
    upstream
        .get_with(BEN, "/users/ben", &[("if-modified-since", one.header("last-modified"))])
        .assert_status(304);
}

#[test]
fn the_etag_is_weak_with_compression_and_strong_on_a_304() {
    let mut upstream = Upstream::new();
    let weak = upstream.get_with(ADA, "/user", &[("accept-encoding", "gzip")]);
    assert!(weak.header("etag").starts_with("W/\""));
    let unchanged = upstream
        .get_with(
            ADA,
            "/user",
            &[("accept-encoding", "gzip"), ("if-none-match", weak.header("etag"))],
        )
        .assert_status(304);
    assert_eq!(format!("W/{}", unchanged.header("etag")), weak.header("etag"));
}

#[test]
fn single_resources_have_last_modified_and_most_lists_do_not() {
    let mut upstream = Upstream::new();
    for path in ["/user", "/repos/acme/widgets", "/repos/acme/widgets/issues/1", "/notifications"] {
        assert!(!upstream.get(ADA, path).header("last-modified").is_empty(), "{path}");
    }
    for path in ["/repos/acme/widgets/issues", "/user/repos", "/repos/acme/widgets/labels"] {
        assert_eq!(upstream.get(ADA, path).header("last-modified"), "", "{path}");
    }
}

#[test]
fn if_modified_since_yields_200_after_a_change() {
    let mut upstream = Upstream::new();
    let path = "/repos/acme/widgets/issues/2";
    let before = upstream.get(ADA, path).header("last-modified").to_owned();
    upstream.get_with(ADA, path, &[("if-modified-since", &before)]).assert_status(304);
    upstream.patch(ADA, path, &json!({ "title": "Changed" })).assert_status(200);
    let changed =
        upstream.get_with(ADA, path, &[("if-modified-since", &before)]).assert_status(200);
    assert_eq!(changed.body["title"], "Changed");
}

#[test]
fn a_resource_changed_this_second_has_no_last_modified() {
    let mut upstream = Upstream::new();
    let path = "/repos/acme/widgets/issues/2";
    upstream.patch(ADA, path, &json!({ "title": "First" }));
    let answer = upstream.get(ADA, path);
    assert_eq!(
        answer.header("last-modified"),
        "",
        "a date could not tell the next change from this one"
    );
    upstream.patch(ADA, path, &json!({ "title": "Second" }));
    upstream.pass(1);
    assert_eq!(upstream.get(ADA, path).body["title"], "Second");
    assert!(!upstream.get(ADA, path).header("last-modified").is_empty());
}

#[test]
fn a_304_of_a_full_last_page_hides_a_new_next_link() {
    let mut upstream = Upstream::new();
    upstream
        .get(ADA, "/repos/acme/sprockets/issues?state=all&per_page=3&direction=asc")
        .assert_status(200);
    let path = "/repos/acme/sprockets/issues?state=all&per_page=3&direction=asc";
    let full = upstream.get(ADA, path);
    assert_eq!((full.items().len(), full.link("next")), (3, None));
    upstream
        .post(ADA, "/repos/acme/sprockets/issues", &json!({ "title": "A fourth" }))
        .assert_status(201);
    upstream.get_with(ADA, path, &[("if-none-match", full.header("etag"))]).assert_status(304);
    assert!(upstream.get(ADA, path).link("next").is_some());
}

#[test]
fn answers_carry_cache_control_vary_and_date() {
    let mut upstream = Upstream::github();
    let answer = upstream.get(ADA, "/user");
    assert_eq!(answer.header("cache-control"), "private, max-age=60, s-maxage=60");
    assert_eq!(answer.header("vary"), "Accept, Authorization, Cookie, X-GitHub-OTP");
    assert_eq!(answer.header("date"), crate::emulator::http::timestamps::http_date(upstream.now));
}

#[test]
fn every_answer_states_the_permissions_its_endpoint_requires() {
    let mut upstream = Upstream::new();
    assert_eq!(
        upstream.get(ADA, "/orgs/acme/hooks").header("x-accepted-service-permissions"),
        "organization_hooks=read"
    );
    assert_eq!(
        upstream.get(ADA, "/repos/acme/widgets/issues").header("x-accepted-service-permissions"),
        "issues=read"
    );
    for path in ["/notifications", "/nothing", "/user"] {
        assert!(
            upstream.get(ADA, path).headers.contains_key("x-accepted-service-permissions"),
            "{path}"
        );
    }
}

#[test]
fn a_known_api_version_is_echoed_and_an_unknown_one_is_400() {
    let mut upstream = Upstream::new();
    for version in ["2022-11-28", "2026-03-10"] {
        assert_eq!(
            upstream
                .get_with(ADA, "/user", &[("x-service-api-version", version)])
                .assert_status(200)
                .header("x-service-api-version"),
            version
        );
    }
    upstream.get_with(ADA, "/user", &[("x-service-api-version", "1999-01-01")]).assert_status(400);
    let mut upstream = Upstream::github();
    upstream.get_with(ADA, "/user", &[("x-github-api-version", "1999-01-01")]).assert_status(400);
}

#[test]
fn a_classic_token_gets_its_scopes_in_a_header() {
    let mut upstream = Upstream::new();
    assert!(upstream.get(ADA, "/user").header("x-oauth-scopes").contains("notifications"));
    assert!(!upstream.get(ADA_FINE, "/user").headers.contains_key("x-oauth-scopes"));
}

#[test]
fn a_head_has_the_headers_of_its_get_and_no_body() {
    let mut upstream = Upstream::new();
    let get = upstream.get(ADA, "/user");
    let head = upstream
        .send(&request(http::Method::HEAD, ADA, "/user", &[], &serde_json::Value::Null))
        .assert_status(200);
    assert!(head.bytes.is_empty());
    assert_eq!(head.header("content-length"), get.bytes.len().to_string());
    assert_eq!(head.header("etag"), get.header("etag"));
}

#[test]
fn a_changed_public_repository_count_modifies_its_owner() {
    let mut upstream = Upstream::new();
    for (owner, repository) in
        [("/orgs/acme", "/repos/acme/widgets"), ("/users/ada", "/repos/ada/dotfiles")]
    {
        let before = upstream.get(ADA, owner).assert_status(200);
        let since = before.header("last-modified").to_owned();
        upstream.pass(60);
        upstream.patch(ADA, repository, &json!({ "private": true })).assert_status(200);
        upstream.pass(60);
        let after =
            upstream.get_with(ADA, owner, &[("if-modified-since", &since)]).assert_status(200);
        assert_ne!(after.body["public_repos"], before.body["public_repos"]);
        let since = after.header("last-modified").to_owned();
        upstream.get_with(ADA, owner, &[("if-modified-since", &since)]).assert_status(304);
    }
}
