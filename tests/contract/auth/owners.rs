//! A token whose owner changes: what was stored about the owner before is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::Response;
use serde_json::json;

use crate::support::origin::{Origin, header};
use crate::support::scripted::ScriptedUpstream;
use crate::support::{Setup, World};

const OWN: &str = "/user/repos";
const SHARED: &str = "/repos/acme/widgets";

/// An upstream whose token belongs to the user with the current number, and its gateway.
async fn world_of(cache_ttl: &str) -> (World, Origin, Arc<AtomicU64>) {
    let owner = Arc::new(AtomicU64::new(1));
    let current = Arc::clone(&owner);
    let origin = Origin::start(move |request| {
        let owner = current.load(Ordering::SeqCst);
        let path = request.uri().path().to_owned();
        let body = json!({ "login": format!("user-{owner}"), "id": owner, "path": path });
        let etag = if path == SHARED { "\"shared\"".into() } else { format!("\"{path} {owner}\"") };
        let is_known = header(request.headers(), "if-none-match") == etag;
        async move {
            Response::builder()
                .status(if is_known { 304 } else { 200 })
                .header("content-type", "application/json")
                .header("etag", etag)
                .body(if is_known { Bytes::new() } else { body.to_string().into() })
                .unwrap()
        }
    })
    .await;
    let setup = Setup::new().upstream(origin.url());
    let setup = if cache_ttl.is_empty() { setup } else { setup.cache_ttl(cache_ttl, "1h") };
    (setup.start().await, origin, owner)
}

#[tokio::test]
async fn another_owner_drops_the_answers_about_the_one_before() {
    let (world, origin, owner) = world_of("").await;
    world.get("/user").await.assert_fetched_and_stored();
    world.get(OWN).await.assert_fetched_and_stored();
    world.get(OWN).await.assert_revalidated();
    world.get("/user").await.assert_revalidated();
    world.get(OWN).await.assert_revalidated();
    owner.store(2, Ordering::SeqCst);
    assert_eq!(world.get("/user").await.json()["id"], 2);
    world.get(OWN).await.assert_fetched_and_stored();
    assert_eq!(origin.last().header("if-none-match"), "", "no validator of another owner");
}

#[tokio::test]
async fn another_owner_leaves_no_validator_of_the_token() {
    let (world, origin, owner) = world_of("/repos/{owner}/{repo}").await;
    world.get("/user").await.assert_status(200);
    world.get(SHARED).await.assert_fetched_and_stored();
    world.get(SHARED).await.assert_hit();
    owner.store(2, Ordering::SeqCst);
    assert_eq!(world.get("/user").await.json()["id"], 2);
    let answer = world.get(SHARED).await;
    answer.assert_status(200);
    assert_ne!(answer.cache_status(), "weir; hit", "it is confirmed first");
    assert_eq!(origin.last().header("if-none-match"), "", "no validator of another owner");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_for_the_token_before_is_not_kept_after_a_reload() {
    let upstream = ScriptedUpstream::start().await;
    let setup = Setup::new().upstream(upstream.url()).cache_ttl(OWN, "1h");
    let world = Arc::new(setup.start().await);
    let get = || {
        let world = Arc::clone(&world);
        tokio::spawn(async move { world.get(OWN).await })
    };
    let answer = |body: &str| {
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        )
    };
    let first = get();
    let mut connection = upstream.next().await;
    world.reload(|text| text.replace(&world.tokens[0].token, "another_token"));
    connection.send(answer("[1]")).await;
    assert_eq!(first.await.unwrap().body, "[1]");
    let second = get();
    let mut connection = upstream.next().await;
    assert!(connection.request.contains("another_token"), "{}", connection.request);
    connection.send(answer("[2]")).await;
    assert_eq!(second.await.unwrap().body, "[2]");
}

#[tokio::test]
async fn a_new_token_drops_what_was_stored_about_the_owner() {
    let (world, origin, owner) = world_of("").await;
    let old = world.tokens[0].token.clone();
    world.get("/user").await.assert_fetched_and_stored();
    owner.store(2, Ordering::SeqCst);
    world.reload(|text| text.replace(&old, "another_token"));
    world.get("/user").await.assert_fetched_and_stored();
    assert_eq!(origin.last().header("if-none-match"), "");
}
