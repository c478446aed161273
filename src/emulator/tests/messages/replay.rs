//! Tests the replay of recorded exchanges.

use serde_json::{Value, json};

use crate::emulator::replay::Recording;
use crate::emulator::tests::*;

/// Returns a record in the published package's form, with the headers of a real response.
fn record(method: &str, path: &str, body: &Value, status: u16, response: &Value) -> Value {
    let etag = format!("\"etag-of-{path}-{response}\"").replace(['{', '}', ','], "");
    json!({
        "scope": "https://api.github.com:443", "method": method, "path": path, "body": body, "status": status, "response": response,
        "rawHeaders": ["Date", "Tue, 19 Jul 2022 04:37:49 GMT", "Content-Type", "application/json; charset=utf-8", "Content-Length", "9999",
            "ETag", etag.replace('"', "").replace(':', "-"), "X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1658208999",
            "X-RateLimit-Resource", "core", "Link", "<https://api.github.com/user?page=2>; rel=\"next\"", "connection", "close"],
        "reqheaders": {}, "responseIsBinary": false,
    })
}

fn replaying(records: &[Value]) -> Upstream {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let scenario = folder.path().join("scenarios/api.github.com/one");
    std::fs::create_dir_all(&scenario).expect("a folder");
    std::fs::write(scenario.join("raw-fixture.json"), serde_json::to_vec(records).expect("JSON"))
        .expect("a file");
    let recording = Recording::load(folder.path()).expect("a recording");
    let options = Options { base_url: "http://upstream.test".to_owned(), ..Options::default() };
    Upstream { emulator: Emulator::replaying(options, recording, START), now: START }
}

#[test]
fn a_recorded_answer_names_the_emulator_as_its_host() {
    let mut upstream = replaying(&[record(
        "get",
        "/user",
        &json!(""),
        200,
        &json!({ "url": "https://api.github.com/users/a", "html_url": "https://github.com/a" }),
    )]);
    let answer = upstream.get("any", "/user").assert_status(200);
    assert_eq!(
        answer.body,
        json!({ "url": "http://upstream.test/users/a", "html_url": "https://github.com/a" })
    );
    assert_eq!(answer.link("next").as_deref(), Some("http://upstream.test/user?page=2"));
    let hosted = upstream.get("any", "/api/v3/user");
    assert_eq!(hosted.body["url"], "http://upstream.test/api/v3/users/a");
}

#[test]
fn each_token_has_a_live_budget_during_replay() {
    let mut upstream = replaying(&[record("get", "/user", &json!(""), 200, &json!({}))]);
    assert_eq!(upstream.get("one", "/user").remaining(), 4_999);
    let again = upstream.get("one", "/user");
    assert_eq!(again.remaining(), 4_998);
    assert!(
        again
            .header("x-ratelimit-reset")
            .parse::<u64>()
            .is_ok_and(|reset| reset > upstream.now.as_secs())
    );
    assert_eq!(again.header("date"), crate::emulator::http::timestamps::http_date(upstream.now));
    assert_eq!(upstream.get("two", "/user").remaining(), 4_999);
    assert_eq!(upstream.get("two", "/rate_limit").body["resources"]["core"]["used"], 1);
}

#[test]
fn a_recorded_etag_answers_304_for_free() {
    let mut upstream = replaying(&[record("get", "/user", &json!(""), 200, &json!({}))]);
    let etag = upstream.get("one", "/user").header("etag").to_owned();
    let unchanged = upstream
        .get_with("one", "/user", &[("if-none-match", &format!("\"{etag}\""))])
        .assert_status(304);
    assert_eq!(unchanged.remaining(), 4_999);
}

#[test]
fn records_of_one_request_are_replayed_in_order() {
    let mut upstream = replaying(&[
        record("get", "/list", &json!(""), 200, &json!([1])),
        record("delete", "/list", &json!(""), 204, &json!("")),
        record("get", "/list", &json!(""), 200, &json!([1, 2])),
    ]);
    let bodies: Vec<Value> = (0..3).map(|_| upstream.get("one", "/list").body).collect();
    assert_eq!(bodies, [json!([1]), json!([1, 2]), json!([1, 2])]);
    upstream.delete("one", "/list").assert_status(204);
}

#[test]
fn the_request_body_selects_among_records_of_one_path() {
    let mut upstream = replaying(&[
        record("post", "/things", &json!({ "name": "a" }), 201, &json!({ "id": 1 })),
        record("post", "/things", &json!({ "name": "b" }), 201, &json!({ "id": 2 })),
    ]);
    assert_eq!(
        upstream.post("one", "/things", &json!({ "name": "b" })).assert_status(201).body["id"],
        2
    );
    assert_eq!(
        upstream
            .post("one", "/things", &json!({ "name": "a", "private": false }))
            .assert_status(201)
            .body["id"],
        1
    );
    let other = upstream.post("one", "/things", &json!({ "name": "c" })).assert_status(404);
    assert!(
        other.body["message"]
            .as_str()
            .is_some_and(|message| message.starts_with("Recorded with another body only"))
    );
}

#[test]
fn the_order_of_query_parameters_does_not_matter() {
    let mut upstream =
        replaying(&[record("get", "/x?per_page=3&page=2", &json!(""), 200, &json!([]))]);
    upstream.get("one", "/x?page=2&per_page=3").assert_status(200);
    upstream.get("one", "/x?page=3&per_page=3").assert_status(404);
}

#[test]
fn an_unknown_request_names_the_nearest_recorded_ones() {
    let mut upstream = replaying(&[
        record("get", "/repos/a/b", &json!(""), 200, &json!({})),
        record("get", "/user", &json!(""), 200, &json!({})),
    ]);
    let unknown = upstream.get("one", "/repos/a/c").assert_status(404);
    assert_eq!(unknown.body["nearest"][0], "GET /repos/a/b");
}

#[test]
fn an_upload_is_served_at_the_rewritten_address() {
    let mut upload = record(
        "post",
        "/repos/a/b/releases/1/assets?name=x",
        &json!("Hello"),
        201,
        &json!({ "id": 5 }),
    );
    upload["scope"] = json!("https://uploads.github.com:443");
    let mut upstream = replaying(&[upload]);
    upstream
        .post("one", "/api/uploads/repos/a/b/releases/1/assets?name=x", &json!("anything"))
        .assert_status(201);
    upstream.post("one", "/repos/a/b/releases/1/assets?name=x", &Value::Null).assert_status(201);
}

#[test]
fn an_empty_folder_and_a_malformed_file_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let message = |folder: &std::path::Path| {
        Recording::load(folder).map(|recording| recording.len()).unwrap_err().to_string()
    };
    assert!(message(folder.path()).contains("has no scenario"));
    std::fs::write(folder.path().join("raw-fixture.json"), b"{}").expect("a file");
    assert!(message(folder.path()).contains("is not a recording"));
    assert!(message(&folder.path().join("none")).contains("cannot read"));
}
