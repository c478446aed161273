//! With `state.encrypt_key`, Redis holds neither answers nor writes that it could read.

use http::Method;
use serde_json::json;

use super::{Replicas, is_away};
use crate::support::setup::gateway_by;
use crate::support::{Setup, eventually};

const COMMENTS: &str = "/repos/acme/widgets/issues/1/comments";
const ISSUE: &str = "/repos/acme/widgets/issues/2";
const OTHER_ISSUE: &str = "/repos/acme/widgets/issues/3";
const TEXT: &str = "only for readers of acme";
const KEY: &str = "0123456789abcdef0123456789abcdef";
const OTHER: &str = "fedcba9876543210fedcba9876543210";
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// Replicas with these keys, through which a comment was made later than its 202.
async fn with_a_write(keys: &str) -> Replicas {
    let setup = Setup::new().writes("store = \"redis\"").unspaced_writes();
    let replicas = Replicas::start_with_keys(setup, 2, &DURABLE, keys).await;
    let is_open = || replicas.all().all(|current| current.gateway().writes.queue().is_open());
    eventually(is_open).await;
    let (world, body) = (&replicas.world, json!({ "body": TEXT }).to_string());
    let headers = [("prefer", "respond-async")];
    let accepted =
        world.send_to(replicas.address(0), Method::POST, COMMENTS, &headers, &body).await;
    accepted.assert_status(202);
    let write = accepted.header("location").unwrap().to_owned();
    let wait = [("prefer", "wait=30")];
    let ended = world.send_to(replicas.address(1), Method::GET, &write, &wait, "").await;
    assert_eq!(ended.json()["state"], "done", "{ended:?}");
    replicas
}

/// The number of writes in Redis that show the text.
fn shown(replicas: &Replicas) -> String {
    let script = format!(
        "EVAL \"local n = 0; for _, key in ipairs(redis.call('KEYS', '*write:*')) do \
         if string.find(redis.call('HGET', key, 'request'), '{TEXT}', 1, true) then n = n + 1 end \
         if string.find(redis.call('HGET', key, 'progress'), '{TEXT}', 1, true) then n = n + 1 end \
         end return n\" 0"
    );
    replicas.redis.as_ref().unwrap().run(&script)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_unreadable_in_redis_with_a_key() {
    let plain = with_a_write("").await;
    assert_eq!(shown(&plain), ":2", "request and answer");
    let sealed = with_a_write(&format!("encrypt_key = {{ value = \"{KEY}\" }}")).await;
    assert_eq!(shown(&sealed), ":0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_answer_is_of_use_with_its_key_alone() {
    let keys = format!("encrypt_key = {{ value = \"{KEY}\" }}");
    let replicas = Replicas::start_with_keys(Setup::new(), 1, &[], &keys).await;
    replicas.get(0, ISSUE).await.assert_status(200);
    let redis = replicas.redis.as_ref().unwrap();
    let copies = || redis.run("EVAL \"return #redis.call('KEYS', '*:kept:*')\" 0");
    eventually(|| copies() == ":1").await;
    // A replica with these keys answers its first read.
    let first_read = async |keys: &str, path: &str| {
        let text = replicas.world.text.replace(&format!("{{ value = \"{KEY}\" }}"), keys);
        let (new, listening) = gateway_by(&text, &replicas.world.clock);
        eventually(|| !is_away(&new)).await;
        let address = listening.addresses[0];
        replicas.world.send_to(address, Method::GET, path, &[], "").await
    };
    let rotated =
        format!("{{ value = \"{OTHER}\" }}\nprevious_encrypt_key = {{ value = \"{KEY}\" }}");
    let same = format!("{{ value = \"{KEY}\" }}");
    for keys in [same.as_str(), &rotated] {
        assert!(first_read(keys, ISSUE).await.cache_status().contains("fwd-status=304"), "{keys}");
    }
    // It is paid for, and sealed with this key from then on.
    let other = format!("{{ value = \"{OTHER}\" }}");
    let answer = first_read(&other, ISSUE).await;
    answer.assert_status(200);
    assert!(!answer.cache_status().contains("304"), "{answer:?}");
    // A reload changes the key.
    let reloaded = replicas.world.reload(|text| text.replace(&same, &rotated));
    assert!(reloaded.at_next_start.is_empty());
    replicas.get(0, OTHER_ISSUE).await.assert_status(200);
    eventually(|| copies() == ":2").await;
    assert!(first_read(&other, OTHER_ISSUE).await.cache_status().contains("fwd-status=304"));
}
