//! Tests Git LFS: the transfer limits and the batch format (SPECIFICATION, "Primary rate limits").

use http::{Method, Request};
use serde_json::{Value, json};

use crate::emulator::tests::*;

const BATCH: &str = "/acme/widgets.git/info/lfs/objects/batch";
const PRIVATE_BATCH: &str = "/acme/gadgets.git/info/lfs/objects/batch";
/// SHA-256 of the seed's object in acme/widgets, and of the text `hello`.
const SEED_OID: &str = "49ff49fe205386f4831e6896c8f98498c1de5d2f5453b694f34e2ee8515e11a1";
const HELLO_OID: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

fn wanted(operation: &str, objects: &[(&str, u64)]) -> Value {
    let objects: Vec<Value> =
        objects.iter().map(|(oid, size)| json!({ "oid": oid, "size": size })).collect();
    json!({ "operation": operation, "transfers": ["basic"], "objects": objects, "hash_algo": "sha256" })
}

fn put(token: &str, path: &str, bytes: &'static [u8]) -> Request<Bytes> {
    let mut request = request(Method::PUT, token, path, &[], &Value::Null);
    *request.body_mut() = Bytes::from_static(bytes);
    request
}

fn path_of(href: &Value) -> String {
    href.as_str()
        .and_then(|href| href.strip_prefix("http://upstream.test"))
        .expect("an address of this upstream")
        .to_owned()
}

#[test]
fn a_batch_names_an_address_that_serves_the_object() {
    let mut upstream = Upstream::new();
    let answer =
        upstream.post(NOBODY, BATCH, &wanted("download", &[(SEED_OID, 31)])).assert_status(200);
    assert_eq!(answer.header("content-type"), "application/vnd.git-lfs+json");
    assert_eq!(
        (&answer.body["transfer"], &answer.body["hash_algo"]),
        (&json!("basic"), &json!("sha256"))
    );
    let path = path_of(&answer.body["objects"][0]["actions"]["download"]["href"]);
    let object = upstream.get(NOBODY, &path).assert_status(200);
    assert_eq!(
        (object.header("content-type"), &object.bytes[..7]),
        ("application/octet-stream", &b"a large"[..])
    );
}

#[test]
fn an_uploaded_object_is_served_and_not_uploaded_again() {
    let mut upstream = Upstream::new();
    let batch = wanted("upload", &[(HELLO_OID, 5)]);
    let path = path_of(
        &upstream.post(BEN, BATCH, &batch).assert_status(200).body["objects"][0]["actions"]["upload"]
            ["href"],
    );
    upstream.get(BEN, &path).assert_status(404);
    for _ in 0..2 {
        upstream.send(&put(BEN, &path, b"hello")).assert_status(200);
    }
    assert_eq!(&upstream.get(NOBODY, &path).assert_status(200).bytes[..], b"hello");
    let again = upstream.post(BEN, BATCH, &batch).assert_status(200);
    assert_eq!(again.body["objects"][0], json!({ "oid": HELLO_OID, "size": 5 }));
}

#[test]
fn lfs_allows_300_anonymous_and_3000_authenticated_requests() {
    let mut upstream = Upstream::new();
    let batch = wanted("download", &[(SEED_OID, 31)]);
    for (token, limit) in [(NOBODY, 300), (ADA, 3_000)] {
        for left in (0..limit).rev() {
            let answer = upstream.post(token, BATCH, &batch).assert_status(200);
            assert_eq!((answer.header("x-ratelimit-resource"), answer.remaining()), ("lfs", left));
        }
        let refused = upstream.post(token, BATCH, &batch).assert_status(403);
        assert_eq!(
            (refused.remaining(), refused.header("content-type")),
            (0, "application/vnd.git-lfs+json")
        );
        assert!(
            refused.body["message"]
                .as_str()
                .is_some_and(|message| message.starts_with("API rate limit exceeded"))
        );
    }
    assert_eq!(
        upstream.get(ADA, "/user").assert_status(200).remaining(),
        4_999,
        "it is no part of the other budgets"
    );
    assert_eq!(upstream.usage()["refused_secondary"], 0, "it is neither REST nor GraphQL");
    upstream.pass(60);
    upstream.post(NOBODY, BATCH, &batch).assert_status(200);
}

#[test]
fn a_batch_processes_100_objects() {
    let mut upstream = Upstream::new();
    let objects = vec![(SEED_OID, 31); 101];
    upstream.post(ADA, BATCH, &wanted("download", &objects)).assert_status(413);
    let whole = upstream.post(ADA, BATCH, &wanted("download", &objects[..100])).assert_status(200);
    assert_eq!(whole.body["objects"].as_array().map(Vec::len), Some(100));
    upstream.post(ADA, BATCH, &wanted("download", &[])).assert_status(200);
    upstream.set_limit("lfs.batch", 1);
    upstream.post(ADA, BATCH, &wanted("download", &objects[..2])).assert_status(413);
}

#[test]
fn lfs_objects_need_access_to_their_repository() {
    let mut upstream = Upstream::new();
    let (up, down) = (wanted("upload", &[(HELLO_OID, 5)]), wanted("download", &[(HELLO_OID, 5)]));
    for token in [NOBODY, DAN, ADA_NO_SCOPES, WORKFLOW] {
        upstream.post(token, PRIVATE_BATCH, &down).assert_status(404);
    }
    upstream.post(INSTALLATION, PRIVATE_BATCH, &up).assert_status(200);
    let refused = upstream.post(NOBODY, BATCH, &up).assert_status(401);
    assert_eq!(refused.header("lfs-authenticate"), "Basic realm=\"Git LFS\"");
    let jwt = crate::emulator::tests::auth::apps::acme_jwt(&upstream);
    for (token, status) in [(DAN, 403), (ADA_NO_PERMISSIONS, 403), ("wrong", 401), (&jwt, 403)] {
        upstream.post(token, BATCH, &up).assert_status(status);
    }
    let path = format!("/acme/gadgets.git/info/lfs/objects/{HELLO_OID}");
    upstream.send(&put(DAN, &path, b"hello")).assert_status(404);
    upstream.send(&put(BEN, &path, b"hello")).assert_status(200);
    upstream.get(DAN, &path).assert_status(404);
    upstream.get(BEN, &path.replace("gadgets", "widgets")).assert_status(404);
}

#[test]
fn an_error_in_a_batch_concerns_one_object_alone() {
    let mut upstream = Upstream::new();
    let upper = HELLO_OID.to_uppercase();
    let requested = [("zz", 1), (upper.as_str(), 5), (HELLO_OID, 5), (SEED_OID, 31)];
    let down = upstream.post(ADA, BATCH, &wanted("download", &requested)).assert_status(200);
    let codes: Vec<Value> =
        (0..4).map(|index| down.body["objects"][index]["error"]["code"].clone()).collect();
    assert_eq!(codes, [json!(422), json!(422), json!(404), Value::Null]);
    let up =
        upstream.post(ADA, BATCH, &wanted("upload", &[(HELLO_OID, u64::MAX)])).assert_status(200);
    assert_eq!(up.body["objects"][0]["error"]["code"], 422, "only small objects are kept");
}

#[test]
fn a_wrong_batch_is_refused_by_field() {
    let mut upstream = Upstream::new();
    for (body, field) in [
        (json!({ "objects": [] }), "operation"),
        (json!({ "operation": "sideload", "objects": [] }), "operation"),
        (json!({ "operation": 7, "objects": [] }), "operation"),
        (json!({ "operation": "download" }), "objects"),
        (json!({ "operation": "download", "objects": {} }), "objects"),
        (json!({ "operation": "download", "objects": [1] }), "objects"),
        (json!({ "operation": "download", "objects": [{ "oid": 1, "size": 1 }] }), "objects"),
        (
            json!({ "operation": "download", "objects": [{ "oid": HELLO_OID, "size": -1 }] }),
            "objects",
        ),
        (json!({ "operation": "download", "objects": [], "transfers": ["pigeon"] }), "transfers"),
        (json!({ "operation": "download", "objects": [], "hash_algo": "md5" }), "hash_algo"),
    ] {
        upstream.post(ADA, BATCH, &body).assert_names_field(field);
    }
    let mut malformed = request(Method::POST, ADA, BATCH, &[], &Value::Null);
    *malformed.body_mut() = Bytes::from_static(b"{");
    upstream.send(&malformed).assert_status(400);
    upstream
        .post(ADA, "/acme/nothing.git/info/lfs/objects/batch", &wanted("download", &[]))
        .assert_status(404);
    upstream
        .post(ADA, "/acme/widgets/info/lfs/objects/batch", &wanted("download", &[]))
        .assert_status(404);
}

/// One byte above the largest object, 1 MiB.
static LARGE: [u8; 1024 * 1024 + 1] = [0; 1024 * 1024 + 1];

#[test]
fn an_uploaded_object_must_match_its_digest_and_be_small() {
    let mut upstream = Upstream::new();
    let path = format!("/acme/widgets.git/info/lfs/objects/{HELLO_OID}");
    upstream.send(&put(BEN, &path, b"goodbye")).assert_names_field("oid");
    upstream.send(&put(BEN, &path, &LARGE)).assert_status(413);
    upstream.get(BEN, "/acme/widgets.git/info/lfs/objects/..%2F..").assert_status(404);
}

#[test]
fn a_former_name_of_the_repository_still_works() {
    Upstream::new()
        .post(ADA, "/acme/cogs.git/info/lfs/objects/batch", &wanted("download", &[]))
        .assert_status(200);
}
