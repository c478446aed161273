//! Validators sent upstream where `ETag`s depend on the credential and on request headers
//! (SPECIFICATION, "Conditional requests in practice"), and the conditions of clients.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response};
use parking_lot::Mutex;

use crate::support::origin::{Origin, header, token};
use crate::support::{Setup, World};

const LABELS: &str = "/repos/acme/widgets/labels";

/// A 304 if the request carries this `ETag`, otherwise the body with it.
fn validated(request: &HeaderMap, etag: &str, body: &'static str) -> Response<Bytes> {
    let has_it = header(request, "if-none-match") == etag;
    let answer = Response::builder()
        .status(if has_it { 304 } else { 200 })
        .header("etag", etag)
        .header("content-type", "application/json");
    answer.body(if has_it { Bytes::new() } else { Bytes::from_static(body.as_bytes()) }).unwrap()
}

async fn statuses(origin: &Origin, world: &World, accepts: &[&str]) -> Vec<u16> {
    let before = origin.exchanges().len();
    for accept in accepts {
        world.get_with(LABELS, &[("accept", accept)]).await.assert_status(200);
    }
    origin.exchanges()[before..].iter().map(|exchange| exchange.status).collect()
}

#[tokio::test]
async fn clients_sharing_a_response_revalidate_it_for_each_other() {
    let origin = Origin::start(|request| async move {
        let etag = format!("\"{}\"", header(request.headers(), "accept"));
        validated(request.headers(), &etag, "[]")
    })
    .await;
    let world = Setup::new().upstream(origin.url()).start().await;
    let plain = [
        "application/vnd.service+json",
        "application/json",
        "application/vnd.github.v3+json",
        "*/*",
        "application/json, */*",
    ];
    assert_eq!(statuses(&origin, &world, &plain).await, [200, 304, 304, 304, 304]);
    // A request with special headers is forwarded as it is.
    let other = [
        "application/vnd.github.v3.raw; charset=utf-8",
        "application/vnd.github.v3.raw; charset=utf-8",
        "text/html, */*;q=0.1",
    ];
    assert_eq!(statuses(&origin, &world, &other).await, [200, 304, 200]);
    let accepted: Vec<_> = origin.exchanges()[5..]
        .iter()
        .map(|exchange| exchange.header("accept").to_owned())
        .collect();
    assert_eq!(accepted, other);
}

#[tokio::test]
async fn an_equal_body_keeps_the_etag_of_the_other_token() {
    let closed = Arc::new(Mutex::new(String::new()));
    let theirs = Arc::clone(&closed);
    let origin = Origin::start(move |request| {
        let closed = theirs.lock().clone();
        async move {
            let token = token(request.headers());
            if token == closed {
                return Response::builder()
                    .status(403)
                    .header("retry-after", "60")
                    .body(Bytes::from_static(SLOW_DOWN.as_bytes()))
                    .unwrap();
            }
            validated(request.headers(), &format!("\"of {token}\""), "[1]")
        }
    })
    .await;
    let world = Setup::new().accounts(2).upstream(origin.url()).manual_clock().start().await;
    world.get(LABELS).await.assert_status(200);
    let first = origin.last().token().to_owned();
    closed.lock().clone_from(&first);
    world.get(LABELS).await.assert_status(200);
    let other = origin.last().token().to_owned();
    assert!(first != other && origin.last().status == 200, "it had no validator of its own");
    // Then with the roles reversed.
    world.clock.advance(std::time::Duration::from_mins(2));
    *closed.lock() = other;
    world.get(LABELS).await.assert_status(200);
    assert_eq!((origin.last().token(), origin.last().status), (first.as_str(), 304));
}
const SLOW_DOWN: &str = r#"{"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}"#;

#[tokio::test]
async fn a_read_with_a_failed_precondition_is_a_412() {
    let repository = "/repos/acme/widgets";
    for config in ["", "[cache]\nfreshness = \"rfc9111\""] {
        let world = Setup::new().manual_clock().config(config).start().await;
        let date = world.get(repository).await.header("last-modified").unwrap().to_owned();
        for (line, status) in [
            (("if-match", "\"other\""), 412),
            (("if-match", "*"), 200),
            (("if-unmodified-since", "Wed, 01 Jan 2020 00:00:00 GMT"), 412),
            (("if-unmodified-since", date.as_str()), 200),
        ] {
            let answer = world.get_with(repository, &[line]).await;
            answer.assert_status(status);
            assert_eq!(answer.body.is_empty(), status == 412, "{line:?}");
            world
                .get_with(repository, &[line, ("range", "bytes=0-1")])
                .await
                .assert_status(if status == 412 { 412 } else { 206 });
        }
        let (matched, etag) = (("if-match", "\"other\""), ("if-none-match", "*"));
        world.get_with(repository, &[matched, etag]).await.assert_status(412);
        world.get_with("/repos/acme/nothing", &[matched]).await.assert_status(404);
    }
}

#[tokio::test]
async fn if_match_compares_the_upstreams_etag_where_clients_get_it() {
    let origin = Origin::start(|request| async move {
        let mut answer = validated(request.headers(), "\"it\"", "hi");
        answer.headers_mut().insert("content-type", "text/plain".parse().unwrap());
        answer
    })
    .await;
    let world = Setup::new().upstream(origin.url()).rfc9111().start().await;
    for (etag, status) in
        [("\"it\"", 200), ("\"other\", \"it\"", 200), ("W/\"it\"", 412), ("\"other\"", 412)]
    {
        world.get_with(LABELS, &[("if-match", etag)]).await.assert_status(status);
    }
}

#[tokio::test]
async fn a_large_rewritten_body_has_a_weak_etag() {
    for (kind, reported) in [("application/json", "W/\"it\""), ("text/plain", "\"it\"")] {
        let origin = Origin::start(move |_| async move {
            let answer = Response::builder().header("etag", "\"it\"").header("content-type", kind);
            answer.body(format!("\"{}\"", "x".repeat(20_000)).into()).unwrap()
        })
        .await;
        let world =
            Setup::new().upstream(origin.url()).cache("max_object = \"4KiB\"").start().await;
        assert_eq!(world.get(LABELS).await.header("etag"), Some(reported), "{kind}");
        world.get_with(LABELS, &[("if-none-match", reported)]).await.assert_status(304);
        world
            .get_with(LABELS, &[("if-match", "\"it\"")])
            .await
            .assert_status(if kind == "text/plain" { 200 } else { 412 });
    }
}
