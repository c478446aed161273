//! `freshness = "rfc9111"`: the gateway as the shared HTTP cache of RFC 9111. The public cache
//! suite in `tests/clients` covers the rest.

use std::time::Duration;

use http::Method;
use serde_json::json;

use crate::support::broken::{Behaviour, Broken};
use crate::support::{Setup, World};

const ISSUES: &str = "/repos/acme/widgets/issues";
const LABELS: &str = "/repos/acme/widgets/labels";
const REPOSITORY: &str = "/repos/acme/widgets";

/// An RFC 9111 cache in front of an upstream with one constant response.
async fn before(upstream: &Broken) -> World {
    upstream.setup().rfc9111().start().await
}

#[tokio::test]
async fn a_private_response_is_revalidated_unless_s_maxage_is_named() {
    for (lifetime, reached) in
        [("private, max-age=3600", 2), ("private, max-age=60, s-maxage=60", 1)]
    {
        let response =
            format!("HTTP/1.1 200 OK\r\nCache-Control: {lifetime}\r\nContent-Length: 2\r\n\r\nhi");
        let upstream = Broken::start(Behaviour::Keeps(response.leak())).await;
        let world = before(&upstream).await;
        for _ in 0..2 {
            world.get(ISSUES).await.assert_status(200);
        }
        assert_eq!(upstream.requests(), reached, "{lifetime}");
    }
}

#[tokio::test]
async fn the_age_received_is_forwarded_and_counts() {
    let upstream = Broken::start(Behaviour::Keeps(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nAge: 30\r\nContent-Length: 2\r\n\r\nhi",
    ));
    let upstream = upstream.await;
    let world = upstream.setup().rfc9111().manual_clock().start().await;
    assert_eq!(world.get(ISSUES).await.header("age"), Some("30"));
    world.clock.advance(Duration::from_secs(29));
    let hit = world.get(ISSUES).await;
    assert_eq!((hit.cache_status(), hit.header("age")), ("weir; hit", Some("59")));
    world.clock.advance(Duration::from_secs(1));
    world.get(ISSUES).await.assert_status(200);
    assert_eq!(upstream.requests(), 2);
}

#[tokio::test]
async fn clients_get_the_upstreams_etag_where_the_bytes_are_the_same() {
    let upstream =
        Broken::start(Behaviour::Keeps("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nETag: \"a\"\r\nContent-Length: 2\r\n\r\nhi")).await;
    let world = before(&upstream).await;
    assert_eq!(world.get(ISSUES).await.header("etag"), Some("\"a\""));
    let unchanged = world.get_with(ISSUES, &[("if-none-match", "\"a\"")]).await;
    unchanged.assert_status(304);
    assert_eq!(unchanged.header("etag"), Some("\"a\""));
    let part = world.get_with(ISSUES, &[("range", "bytes=1-"), ("if-range", "\"a\"")]).await;
    assert_eq!((part.status.as_u16(), &part.body[..]), (206, &b"i"[..]));
    assert_eq!(upstream.requests(), 1);

    let emulated = Setup::new().rfc9111().start().await;
    let own = emulated.get(REPOSITORY).await;
    assert!(
        own.header("etag").is_some_and(|etag| etag.starts_with("W/")),
        "its addresses are other ones for each client"
    );
}

#[tokio::test]
async fn an_unknown_coding_is_stored_only_where_not_negotiated() {
    for (vary, reached) in
        [("", 1), ("Vary: Accept-Encoding\r\n", 2), ("Content-Type: application/json\r\n", 2)]
    {
        let response = format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Encoding: x-own\r\n{vary}Content-Length: 2\r\n\r\nzz"
        );
        let upstream = Broken::start(Behaviour::Keeps(response.leak())).await;
        let world = before(&upstream).await;
        for _ in 0..2 {
            assert_eq!(world.get(ISSUES).await.header("content-encoding"), Some("x-own"));
        }
        assert_eq!(upstream.requests(), reached, "{vary}");
    }
}

#[tokio::test]
async fn a_failure_is_passed_on_unchanged() {
    let upstream = Broken::start(Behaviour::Keeps(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno",
    ))
    .await;
    let world = before(&upstream).await;
    world.get(ISSUES).await.assert_status(503);
    assert_eq!(upstream.requests(), 1);
    let world = upstream.world().await;
    world.get(ISSUES).await.assert_status(503);
    assert_eq!(upstream.requests(), 3, "elsewhere a passing trouble is told from a lasting one");
}

#[tokio::test]
async fn must_revalidate_is_not_served_when_revalidation_fails() {
    // The emulator names a lifetime for shared caches, which forbids a stale response (RFC 9111
    // §5.2.2.10).
    let world = Setup::new().manual_clock().rfc9111().start().await;
    world.get(REPOSITORY).await.assert_status(200);
    world.clock.advance(Duration::from_mins(2));
    world.arm(&json!({ "fault": "reset_before", "match": { "path": REPOSITORY } }));
    world.get_with(REPOSITORY, &[("prefer", "wait=0")]).await.assert_status(502);
}

#[tokio::test]
async fn an_unknown_method_is_passed_on_once() {
    let upstream = Broken::start(Behaviour::Keeps(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 2\r\n\r\nhi",
    ))
    .await;
    let world = before(&upstream).await;
    let search = || Method::from_bytes(b"M-SEARCH").unwrap();
    world.get(ISSUES).await.assert_status(200);
    world.send(search(), ISSUES, &[], "abc").await.assert_status(200);
    assert_eq!(upstream.requests(), 2);
    world.get(ISSUES).await.assert_status(200);
    assert_eq!(upstream.requests(), 3, "it may have changed what is stored");
    // Methods that an upstream without regard to case takes for another method, or that echo the
    // request.
    for refused in ["TRACE", "trace", "TRACK", "post", "Head", "connect"] {
        world
            .send(Method::from_bytes(refused.as_bytes()).unwrap(), ISSUES, &[], "")
            .await
            .assert_status(405);
    }
    assert_eq!(upstream.requests(), 3);
    let documented = Setup::new().start().await;
    documented.send(search(), ISSUES, &[], "abc").await.assert_status(405);
}

#[tokio::test]
async fn the_urls_in_a_write_response_are_invalidated() {
    // One of them is relative to the written URL.
    let named =
        "Location: issues/../issues/./7?page=1\r\nContent-Location: /repos/acme/widgets/labels\r\n";
    let response = format!(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n{named}Content-Length: 2\r\n\r\nhi"
    );
    let upstream = Broken::start(Behaviour::Keeps(response.leak())).await;
    let world = before(&upstream).await;
    let paths = [
        "/repos/acme/widgets/issues/7",
        "/repos/acme/widgets/labels",
        "/repos/acme/widgets/milestones",
    ];
    for path in paths {
        world.get(path).await.assert_status(200);
    }
    world
        .send(
            Method::POST,
            "/repos/acme/widgets/merges",
            &[("content-type", "application/json")],
            "{}",
        )
        .await
        .assert_status(200);
    let before = upstream.requests();
    for (path, again) in paths.into_iter().zip([1, 2, 2]) {
        world.get(path).await.assert_status(200);
        assert_eq!(upstream.requests() - before, again, "{path}");
    }
}

#[tokio::test]
async fn the_urls_in_an_upload_response_are_invalidated() {
    let response = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nLocation: /repos/acme/widgets/labels\r\nContent-Length: 2\r\n\r\nhi";
    let upstream = Broken::start(Behaviour::Keeps(response)).await;
    let world = upstream.setup().rfc9111().writes("max_body = \"1KiB\"").start().await;
    world.get(LABELS).await.assert_status(200);
    world.get(LABELS).await.assert_hit();
    world
        .send(Method::POST, "/repos/acme/widgets/merges", &[], &"x".repeat(4_000))
        .await
        .assert_status(200);
    assert_ne!(world.get(LABELS).await.cache_status(), "weir; hit");
}

#[tokio::test]
async fn ranges_are_served_in_every_mode() {
    let world = Setup::new().start().await;
    let whole = world.get(REPOSITORY).await;
    let part = world.get_with(REPOSITORY, &[("range", "bytes=2-5")]).await;
    assert_eq!((part.status.as_u16(), &part.body[..]), (206, &whole.body[2..6]));
    assert_eq!(
        part.header("content-range"),
        Some(format!("bytes 2-5/{}", whole.body.len()).as_str())
    );
    let behind = world.get_with(REPOSITORY, &[("range", "bytes=9999999-")]).await;
    assert_eq!((behind.status.as_u16(), behind.body.len()), (416, 0));
    assert_eq!(
        behind.header("content-range"),
        Some(format!("bytes */{}", whole.body.len()).as_str())
    );
    let head = world.send(Method::HEAD, REPOSITORY, &[("range", "bytes=2-5")], "").await;
    head.assert_status(200);
}
