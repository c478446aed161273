//! Tests the access rights of each credential (SPECIFICATION, "Credentials").

use serde_json::json;

use crate::emulator::tests::*;

#[test]
fn no_credential_is_allowed_only_for_public_data() {
    let mut upstream = Upstream::new();
    upstream.get(NOBODY, "/repos/acme/widgets").assert_status(200);
    upstream.get(NOBODY, "/repos/acme/gadgets").assert_status(404);
    upstream.get(NOBODY, "/user").assert_status(401);
    upstream
        .post(NOBODY, "/repos/acme/widgets/issues", &json!({ "title": "x" }))
        .assert_status(401);
}

#[test]
fn a_wrong_token_is_answered_401_bad_credentials() {
    let answer = Upstream::new().get("nobody", "/repos/acme/widgets").assert_status(401);
    assert_eq!(answer.body["message"], "Bad credentials");
}

#[test]
fn an_inaccessible_private_repository_is_not_found() {
    let mut upstream = Upstream::new();
    upstream.get(ADA, "/repos/acme/gadgets").assert_status(200);
    upstream.get(BEN, "/repos/acme/gadgets").assert_status(200);
    for token in [DAN, ADA_NO_SCOPES, ADA_NO_PERMISSIONS, WORKFLOW, "emu_installation_globex"] {
        upstream.get(token, "/repos/acme/gadgets").assert_status(404);
    }
    upstream.get(INSTALLATION, "/repos/acme/gadgets").assert_status(200);
    upstream.get(BEN, "/repos/ada/diary").assert_status(404);
}

#[test]
fn hidden_repositories_are_missing_from_lists_and_search() {
    let mut upstream = Upstream::new();
    let names = |answer: &Answer| {
        answer
            .items()
            .iter()
            .map(|item| item["name"].as_str().unwrap_or("").to_owned())
            .collect::<Vec<_>>()
    };
    assert!(names(&upstream.get(ADA, "/orgs/acme/repos")).contains(&"gadgets".to_owned()));
    assert!(!names(&upstream.get(DAN, "/orgs/acme/repos")).contains(&"gadgets".to_owned()));
    assert_eq!(upstream.get(DAN, "/search/issues?q=repo:acme/gadgets").body["total_count"], 0);
}

#[test]
fn routes_of_a_user_reject_tokens_that_act_for_no_user() {
    let mut upstream = Upstream::new();
    upstream.get(INSTALLATION, "/user").assert_status(403);
    upstream.get(WORKFLOW, "/user/repos").assert_status(403);
    upstream.get("emu_app_user_ben", "/user").assert_status(200);
}

#[test]
fn a_token_without_the_permission_may_not_write() {
    let mut upstream = Upstream::new();
    let issue = json!({ "title": "x" });
    upstream.post(ADA_NO_PERMISSIONS, "/repos/acme/widgets/issues", &issue).assert_status(403);
    upstream.post(ADA_NO_SCOPES, "/repos/acme/widgets/issues", &issue).assert_status(404);
    for token in [ADA, ADA_FINE, INSTALLATION, WORKFLOW, "emu_app_user_ben", DAN] {
        upstream.post(token, "/repos/acme/widgets/issues", &issue).assert_status(201);
    }
}

#[test]
fn only_administrators_change_a_repository() {
    let mut upstream = Upstream::new();
    let change = json!({ "description": "new" });
    upstream.patch(BEN, "/repos/acme/widgets", &change).assert_status(403);
    upstream.patch(DAN, "/repos/acme/widgets", &change).assert_status(403);
    upstream.patch(DAN, "/repos/acme/gadgets", &change).assert_status(404);
    assert_eq!(
        upstream.patch(ADA, "/repos/acme/widgets", &change).assert_status(200).body["description"],
        "new"
    );
}

#[test]
fn an_oauth_app_reads_public_data_with_basic_credentials() {
    let mut upstream = Upstream::new();
    let basic = "Basic ZW11X2NsaWVudF9pZDplbXVfY2xpZW50X3NlY3JldA==";
    let get = |path: &str| {
        http::Request::get(path)
            .header("authorization", basic)
            .body(Bytes::new())
            .expect("well formed")
    };
    upstream.send(&get("/repos/acme/widgets")).assert_status(200);
    upstream.send(&get("/repos/acme/gadgets")).assert_status(404);
    upstream.send(&get("/user")).assert_status(401);
}
