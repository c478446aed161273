//! Compression for clients that accept gzip, and its limits (RFC 9110 §8.4, §12.5.3; RFC 9111
//! §5.2.2.6).

use std::io::Read;

use flate2::read::GzDecoder;
use http::Method;
use serde_json::json;

use crate::support::broken::{Behaviour, Broken};
use crate::support::{Reply, Setup, World};

const REPOSITORY: &str = "/repos/acme/widgets";
const LIST: &str = "/repos/acme/widgets/issues?state=all&per_page=100";
const PLAIN: &str = "[cache]\nfreshness = \"rfc9111\"";
const ACCEPTS: (&str, &str) = ("accept-encoding", "gzip, deflate, br");

fn decoded(answer: &Reply) -> Vec<u8> {
    assert_eq!(answer.header("content-encoding"), Some("gzip"), "{answer:?}");
    let mut text = Vec::new();
    GzDecoder::new(&answer.body[..]).read_to_end(&mut text).unwrap();
    text
}

/// True if the response varies by `Accept-Encoding`.
fn varies(answer: &Reply) -> bool {
    answer
        .headers
        .get_all("vary")
        .iter()
        .any(|line| line.to_str().unwrap().to_ascii_lowercase().contains("accept-encoding"))
}

/// The response to a client that accepts gzip.
async fn gzipped(world: &World, path: &str) -> Reply {
    world.get_with(path, &[ACCEPTS]).await
}

/// The replies of an RFC 9111 cache for a response with this head and this many bytes of text:
/// fetched, then stored.
async fn given(head: &str, bytes: usize) -> [Reply; 2] {
    let text = format!(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60{head}\r\nContent-Length: {bytes}\r\n\r\n{}",
        "a".repeat(bytes)
    );
    let upstream = Broken::start(Behaviour::Keeps(text.leak())).await;
    let world = upstream.setup().rfc9111().start().await;
    [gzipped(&world, REPOSITORY).await, gzipped(&world, REPOSITORY).await]
}

#[tokio::test]
async fn gzip_clients_get_the_same_content_in_fewer_bytes() {
    for (config, first) in [(PLAIN, "weir; hit"), ("", "weir; fwd=stale; fwd-status=304")] {
        for path in [REPOSITORY, LIST] {
            let world = Setup::new().config(config).start().await;
            let fetched = gzipped(&world, path).await;
            let plain = world.get(path).await;
            assert_eq!(
                (plain.header("content-encoding"), decoded(&fetched)),
                (None, plain.body.to_vec()),
                "{path}"
            );
            assert!(
                fetched.body.len() * 3 < plain.body.len() && varies(&fetched) && varies(&plain),
                "{path}"
            );
            assert_eq!(fetched.header("etag"), plain.header("etag"));
            let again = gzipped(&world, path).await;
            assert_eq!((again.cache_status(), &again.body), (first, &fetched.body));
            assert_eq!(again.number("content-length"), again.body.len() as u64);
            // No request for the compressed form reaches the upstream.
            assert_eq!(
                world.get_with(path, &[("accept-encoding", "br, gzip;q=0")]).await.body,
                plain.body
            );
        }
    }
}

#[tokio::test]
async fn a_head_has_the_headers_of_a_get() {
    for path in [REPOSITORY, LIST] {
        let world = Setup::new().start().await;
        let head = world.send(Method::HEAD, path, &[ACCEPTS], "").await;
        let get = gzipped(&world, path).await;
        for name in ["content-encoding", "content-length", "etag", "content-type"] {
            assert!(
                head.header(name).is_some() && head.header(name) == get.header(name),
                "{name}: {head:?}"
            );
        }
        assert!(head.body.is_empty() && varies(&head));
    }
}

#[tokio::test]
async fn a_client_with_either_form_gets_a_304() {
    let world = Setup::new().start().await;
    let etag = gzipped(&world, REPOSITORY).await.header("etag").unwrap().to_owned();
    for headers in
        [&[ACCEPTS, ("if-none-match", etag.as_str())][..], &[("if-none-match", etag.as_str())]]
    {
        let same = world.get_with(REPOSITORY, headers).await;
        same.assert_status(304);
        assert!(
            same.header("content-encoding").is_none() && varies(&same) && same.body.is_empty(),
            "{same:?}"
        );
    }
}

#[tokio::test]
async fn a_range_is_of_the_uncompressed_body() {
    let world = Setup::new().start().await;
    let whole = world.get(REPOSITORY).await;
    let part = world.get_with(REPOSITORY, &[ACCEPTS, ("range", "bytes=2-5")]).await;
    assert_eq!(
        (part.status.as_u16(), &part.body[..], part.header("content-encoding")),
        (206, &whole.body[2..6], None)
    );
    let changed =
        world.get_with(REPOSITORY, &[ACCEPTS, ("range", "bytes=2-5"), ("if-range", "\"x\"")]).await;
    assert_eq!(
        (changed.status.as_u16(), &changed.body, changed.header("content-encoding")),
        (200, &whole.body, None)
    );
}

#[tokio::test]
async fn each_client_gets_its_own_urls() {
    for path in [REPOSITORY, LIST] {
        let world = Setup::new().rfc9111().start().await;
        for host in ["one.example", "another.example", "one.example"] {
            let text = decoded(&world.get_with(path, &[ACCEPTS, ("host", host)]).await);
            assert!(
                String::from_utf8(text)
                    .unwrap()
                    .contains(&format!("\"http://{host}/repos/acme/widgets")),
                "{path} {host}"
            );
        }
    }
}

#[tokio::test]
async fn a_changed_body_is_never_served_in_its_old_compressed_form() {
    let world = Setup::new().start().await;
    for path in [REPOSITORY, "/repos/acme/widgets/issues/3"] {
        for number in 0..5 {
            let news = format!("the state of number {number}");
            let key = if path == REPOSITORY { "description" } else { "title" };
            world.ask_emulator(Method::PATCH, path, &json!({ key: news }));
            for _ in 0..2 {
                let shown: serde_json::Value =
                    serde_json::from_slice(&decoded(&gzipped(&world, path).await)).unwrap();
                assert_eq!(shown[key], json!(news), "{path}");
            }
        }
    }
}

#[tokio::test]
async fn a_kilobyte_with_a_weak_validator_is_compressed() {
    for head in [
        "\r\nContent-Type: text/plain\r\nETag: W/\"a\"",
        "\r\nContent-Type: application/vnd.x.diff; charset=utf-8",
    ] {
        for answer in given(head, 1024).await {
            assert!(decoded(&answer) == "a".repeat(1024).into_bytes() && varies(&answer), "{head}");
        }
    }
}

#[tokio::test]
async fn short_binary_and_no_transform_bodies_are_not_compressed() {
    let short = given("\r\nContent-Type: text/plain", 1023).await;
    let mut others = Vec::from(short);
    for head in [
        "\r\nContent-Type: image/png",
        ", no-transform\r\nContent-Type: text/plain",
        ", no-store\r\nContent-Type: text/plain",
        "\r\nContent-Type: text/plain\r\nETag: \"strong\"",
        "\r\nContent-Type: text/plain\r\nContent-Encoding: x-own",
        "\r\nContent-Type: text/plain\r\nContent-Digest: sha-256=:x=:",
        "\r\nContent-Type: text/plain\r\nVary: *",
    ] {
        others.extend(given(head, 4096).await);
    }
    for answer in others {
        answer.assert_status(200);
        assert!(
            answer.header("content-encoding") != Some("gzip")
                && !varies(&answer)
                && answer.body.len() >= 1023,
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn no_transform_and_no_store_requests_get_the_plain_body() {
    let world = Setup::new().start().await;
    for line in ["no-store", "no-transform"] {
        let answer = world.get_with(REPOSITORY, &[ACCEPTS, ("cache-control", line)]).await;
        assert!(
            answer.header("content-encoding").is_none() && answer.body.starts_with(b"{"),
            "{line}: {answer:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_readers_get_a_large_body_compressed() {
    let world = Setup::new().rfc9111().start().await;
    let plain = world.get(LIST).await;
    let answers = futures_util::future::join_all((0..20).map(|_| gzipped(&world, LIST))).await;
    assert!(answers.iter().all(|answer| decoded(answer) == plain.body));
    assert_eq!(world.upstream_requests().len(), 1);
}
