//! Answers that the upstream compresses although `identity` is requested: decoded before anything
//! else, or a clear error (SPECIFICATION, "Cache headers").

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use http::{Method, Response};
use serde_json::json;

use crate::support::origin::Origin;
use crate::support::scripted::ScriptedUpstream;
use crate::support::{Setup, World};

const REPOSITORY: &str = "/repos/acme/widgets";
const ISSUES: &str = "/repos/acme/widgets/issues";
const CODINGS: [&str; 5] = ["gzip", "x-gzip", "deflate", "br", "zstd"];

fn encoded(coding: &str, text: &[u8]) -> Vec<u8> {
    match coding {
        "gzip" | "x-gzip" => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(text).and_then(|()| encoder.finish()).unwrap()
        }
        "deflate" => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(text).and_then(|()| encoder.finish()).unwrap()
        }
        "br" => {
            let (mut text, mut bytes) = (text, Vec::new());
            let params = brotli::enc::BrotliEncoderParams::default();
            brotli::BrotliCompress(&mut text, &mut bytes, &params).unwrap();
            bytes
        }
        _ => zstd::encode_all(text, 1).unwrap(),
    }
}

/// An upstream with one answer to all, in JSON; `URL` in it is its own address.
async fn answers(status: u16, coding: &'static str, text: &'static str) -> Origin {
    Origin::start(move |request| {
        let host = request.headers()["host"].to_str().unwrap();
        let text = text.replace("URL", &format!("http://{host}"));
        let response = Response::builder()
            .status(status)
            .header("content-type", "application/json")
            .header("content-encoding", coding)
            .header("etag", "\"of-the-coded-bytes\"")
            .body(Bytes::from(encoded(coding, text.as_bytes())));
        async move { response.unwrap() }
    })
    .await
}

async fn before(upstream: &Origin) -> World {
    Setup::new().upstream(upstream.url()).unspaced_writes().start().await
}

#[tokio::test]
async fn an_encoded_answer_is_stored_rewritten_and_served_plain() {
    for coding in CODINGS {
        let text = "{\"url\":\"URL/repos/acme/widgets\",\"temp_clone_token\":\"s3cret\"}";
        let upstream = answers(200, coding, text).await;
        let world = Setup::new()
            .upstream(upstream.url())
            .cache_ttl("/repos/{owner}/{repo}", "10m")
            .start()
            .await;
        let own = format!("http://{}{REPOSITORY}", world.address);
        for status in ["weir; fwd=uri-miss; stored", "weir; hit"] {
            let answer = world.get(REPOSITORY).await;
            assert_eq!((answer.status.as_u16(), answer.cache_status()), (200, status), "{coding}");
            assert_eq!(answer.json(), json!({ "url": own, "temp_clone_token": "" }), "{coding}");
            assert_eq!(answer.header("content-encoding"), None);
        }
        assert_eq!(upstream.last().header("accept-encoding"), "identity");
    }
}

#[tokio::test]
async fn a_plain_http_cache_decodes_too_and_weakens_the_validator() {
    let upstream = answers(200, "zstd", "[\"a\", \"text\"]").await;
    let world = Setup::new().upstream(upstream.url()).rfc9111().start().await;
    let answer = world.get(ISSUES).await;
    assert_eq!(answer.json(), json!(["a", "text"]));
    assert_eq!(answer.header("etag"), Some("W/\"of-the-coded-bytes\""));
    assert_eq!(answer.header("content-encoding"), None);
}

#[tokio::test]
async fn an_encoded_answer_to_a_write_is_decoded() {
    let upstream = ScriptedUpstream::start().await;
    let world = Setup::new().upstream(upstream.url()).unspaced_writes().start().await;
    let text = format!("{{\"url\":\"{}{ISSUES}/7\"}}", upstream.url());
    let body = encoded("br", text.as_bytes());
    let answering = async {
        let mut connection = upstream.next().await;
        let head = format!(
            "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Encoding: br\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        connection.send([head.as_bytes(), &body].concat()).await;
    };
    let (answer, ()) = tokio::join!(world.post(ISSUES, json!({ "title": "x" })), answering);
    answer.assert_status(201);
    assert_eq!(answer.json()["url"], format!("http://{}{ISSUES}/7", world.address));
}

#[tokio::test]
async fn an_encoded_answer_too_large_to_hold_is_streamed_plain() {
    let text = format!("[{}\"URL/end\"]", "{\"url\":\"URL/repos/acme/widgets\"},".repeat(20_000));
    let upstream = answers(200, "gzip", text.clone().leak()).await;
    let world = Setup::new().upstream(upstream.url()).cache("max_object = \"64KiB\"").start().await;
    let answer = world.get(ISSUES).await;
    answer.assert_status(200);
    let own = format!("http://{}", world.address);
    let rewritten = text
        .replace("URL/repos", &format!("{own}/repos"))
        .replace("\"URL/end\"", &format!("\"{}/end\"", upstream.url()));
    assert!(answer.body == rewritten.as_bytes(), "{} bytes", answer.body.len());
}

#[tokio::test]
async fn an_upstream_limit_is_recognized_in_an_encoded_answer() {
    let text = "{\"message\":\"You have exceeded a secondary rate limit.\"}";
    let upstream = answers(403, "gzip", text).await;
    let world = before(&upstream).await;
    world.get_with(ISSUES, &[("prefer", "wait=0")]).await.assert_secondary_limited();
    assert_eq!(upstream.exchanges().len(), 1);
}

#[tokio::test]
async fn an_undecodable_answer_is_a_502_with_its_reason() {
    for (coding, reason) in [
        ("gzip", "encoded with gzip, is not well-formed"),
        ("br", "encoded with br,"),
        ("x-own", "`x-own` is not known"),
        ("gzip, gzip", "several content codings"),
    ] {
        let upstream = Origin::start(move |_| async move {
            let builder = Response::builder().header("content-encoding", coding);
            builder.body(Bytes::from_static(b"\xff\xffzz, as it is")).unwrap()
        })
        .await;
        let world = before(&upstream).await;
        let answer = world.get(ISSUES).await;
        answer.assert_status(502);
        let body = answer.json();
        assert!(body["message"].as_str().unwrap().contains(reason), "{body}");
        assert!(body["documentation_url"].as_str().unwrap().ends_with("#upstream_undecodable"));
        assert_eq!(upstream.exchanges().len(), 1, "the next answer would be no other");
        // A write was executed, which nobody can see.
        let written = world.send(Method::PUT, &format!("{ISSUES}/1/lock"), &[], "").await;
        written.assert_status(502);
        assert!(written.json()["message"].as_str().unwrap().contains("unknown whether"));
        assert_eq!(upstream.exchanges().len(), 2);
    }
}

#[tokio::test]
async fn an_answer_without_a_body_needs_no_decoding() {
    let upstream = Origin::start(|_| async {
        let builder = Response::builder().status(204).header("content-encoding", "x-own");
        builder.body(Bytes::new()).unwrap()
    })
    .await;
    let world = before(&upstream).await;
    world.get(ISSUES).await.assert_status(204);
}
