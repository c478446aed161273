//! Tests files, releases, uploads, pull requests and the service's own routes.

use http::Request;
use serde_json::json;

use crate::emulator::http::path::UploadBytes;
use crate::emulator::tests::*;

#[test]
fn a_readme_is_json_or_raw_as_the_caller_accepts() {
    let mut upstream = Upstream::new();
    let path = "/repos/acme/widgets/contents/README.md";
    let json = upstream.get(ADA, path).assert_status(200);
    assert_eq!(
        (&json.body["encoding"], &json.body["name"]),
        (&json!("base64"), &json!("README.md"))
    );
    let raw = upstream
        .get_with(ADA, path, &[("accept", "application/vnd.service.raw+json")])
        .assert_status(200);
    assert!(raw.bytes.starts_with(b"# widgets"));
    assert_ne!(raw.header("etag"), json.header("etag"));
    upstream.get(ADA, "/repos/acme/widgets/contents/none.txt").assert_status(404);
}

#[test]
fn an_asset_is_uploaded_at_the_address_that_the_release_names() {
    let mut upstream = Upstream::new();
    let releases = upstream.get(ADA, "/repos/acme/widgets/releases");
    let address = releases.items()[0]["upload_url"].as_str().expect("an address").to_owned();
    let path = address
        .strip_prefix("http://upstream.test")
        .and_then(|path| path.strip_suffix("{?name,label}"))
        .expect("a template")
        .to_owned();
    assert!(path.starts_with("/api/uploads/"));
    let upload = |name: &str, bytes: u64| {
        let request = Request::post(format!("{path}?name={name}"))
            .header("authorization", format!("Bearer {ADA}"))
            .extension(UploadBytes(bytes));
        request.body(Bytes::new()).expect("well formed")
    };
    let asset = upstream.send(&upload("big.bin", 5_000_000_000)).assert_status(201);
    assert_eq!(
        (&asset.body["size"], &asset.body["state"]),
        (&json!(5_000_000_000_u64), &json!("uploaded"))
    );
    upstream.send(&upload("big.bin", 1)).assert_names_field("name");
    upstream
        .get(
            ADA,
            asset.header("location").strip_prefix("http://upstream.test").expect("our address"),
        )
        .assert_status(200);
}

#[test]
fn a_body_above_10_mib_is_413() {
    let mut upstream = Upstream::new();
    let large = Bytes::from(vec![b' '; 10 * 1024 * 1024 + 1]);
    let request = Request::post("/repos/acme/widgets/issues")
        .header("authorization", format!("Bearer {ADA}"))
        .body(large)
        .expect("well formed");
    upstream.send(&request).assert_status(413);
}

#[test]
fn pulls_are_issues_with_a_branch() {
    let mut upstream = Upstream::new();
    let pulls = upstream.get(ADA, "/repos/acme/widgets/pulls");
    assert_eq!(pulls.items().len(), 4);
    let number = &pulls.items()[0]["number"];
    assert!(upstream.get(ADA, &format!("/repos/acme/widgets/pulls/{number}")).assert_status(200).body["head"]["ref"].is_string());
    assert!(upstream.get(ADA, &format!("/repos/acme/widgets/issues/{number}")).body["pull_request"]["url"].is_string());
    upstream.get(ADA, "/repos/acme/widgets/pulls/1").assert_status(404);
}

#[test]
fn the_root_names_the_addresses_that_clients_start_from() {
    let mut upstream = Upstream::new();
    assert_eq!(
        upstream.get(NOBODY, "/").assert_status(200).body["rate_limit_url"],
        "http://upstream.test/rate_limit"
    );
    assert_eq!(
        upstream.get(NOBODY, "/api/v3/").assert_status(200).body["rate_limit_url"],
        "http://upstream.test/api/v3/rate_limit"
    );
    upstream.get(NOBODY, "/meta").assert_status(200);
}

#[test]
fn graphql_needs_a_token_and_answers_the_selected_fields() {
    let mut upstream = Upstream::new();
    upstream.post(NOBODY, "/graphql", &json!({ "query": "{viewer{login}}" })).assert_status(401);
    for path in ["/graphql", "/api/graphql", "/api/v3/graphql"] {
        assert_eq!(
            upstream.post(ADA, path, &json!({ "query": "query { me: viewer { login } }" })).body,
            json!({ "data": { "me": { "login": "ada" } } })
        );
    }
    assert!(
        upstream
            .post(ADA, "/graphql", &json!({ "query": "{viewer{shoeSize}}" }))
            .assert_status(200)
            .body["errors"][0]["message"]
            .is_string()
    );
    upstream.post(ADA, "/graphql", &json!({ "q": 1 })).assert_status(400);
}

#[test]
fn a_preflight_needs_no_credential_and_costs_nothing() {
    let mut upstream = Upstream::new();
    let answer = upstream
        .send(&request(http::Method::OPTIONS, NOBODY, "/user", &[], &serde_json::Value::Null))
        .assert_status(204);
    assert_eq!((answer.header("access-control-allow-origin"), answer.remaining()), ("*", 60));
}
