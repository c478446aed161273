//! Tests requests that cannot be read: the response is one of the API, with its body and headers.

use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::clock::Clock;
use crate::emulator::server::{Handle, Server};
use crate::emulator::tests::*;

async fn serve() -> Handle {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let clock = Clock::manual(START);
    Server::start(listener, Emulator::new(Options::default(), clock.now()), clock, Duration::ZERO)
}

/// Sends bytes and reads to the end of the connection.
async fn exchange(handle: &Handle, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(handle.addr()).await.expect("it listens");
    stream.write_all(bytes).await.expect("it is read");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("an answer");
    String::from_utf8(answer).expect("text")
}

fn assert_answer_of_the_api(answer: &str, status: &str) {
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    for name in ["content-type: application/json", "x-service-request-id: ", "x-ratelimit-limit: "]
    {
        assert!(head.contains(&format!("\r\n{name}")), "{name} in {head}");
    }
    let head = format!("{head}\r\n");
    assert!(head.contains(&format!("\r\ncontent-length: {}\r\n", body.len())), "{head}");
    let body: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(body["status"], status, "{body}");
    assert!(body["message"].is_string() && body["documentation_url"].is_string(), "{body}");
}

#[tokio::test]
async fn an_unreadable_head_is_refused_in_the_words_of_the_api() {
    let handle = serve().await;
    let long = "a".repeat(70_000);
    let many = "X-1: 1\r\n".repeat(200);
    for (head, status) in [
        (format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n"), "414"),
        (format!("GET /user HTTP/1.1\r\nHost: x\r\n{many}\r\n"), "431"),
        (format!("GET /user HTTP/1.1\r\nX: {}\r\n\r\n", long.repeat(20)), "431"),
        ("GET /user HTTP/1.1\r\nHost: x\r\nX-Bad: a\u{1}b\r\n\r\n".to_owned(), "400"),
        ("GET /user HTTP/1.1\r\nX Bad: a\r\n\r\n".to_owned(), "400"),
        ("nonsense\r\n\r\n".to_owned(), "400"),
    ] {
        assert_answer_of_the_api(&exchange(&handle, head.as_bytes()).await, status);
    }
    handle.shutdown().await;
}

#[tokio::test]
async fn an_unfinished_head_is_refused_at_its_bound() {
    let handle = serve().await;
    let mut stream = TcpStream::connect(handle.addr()).await.expect("it listens");
    let begin = format!("GET /user HTTP/1.1\r\nX: {}", "a".repeat(96 * 1024));
    stream.write_all(begin.as_bytes()).await.expect("it reads");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.expect("an answer before the end of the head");
    assert_eq!(&answer, b"HTTP/1.1 431");
    handle.shutdown().await;
}

#[tokio::test]
async fn a_bad_head_behind_a_good_one_is_refused_after_its_answer() {
    let handle = serve().await;
    let good = format!("GET /user HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADA}\r\n\r\n");
    let both = format!("{good}GET /user HTTP/1.1\r\nX-Bad: \u{1}\r\n\r\n");
    let answer = exchange(&handle, both.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let second = answer.rfind("HTTP/1.1 400 ").expect("a second answer");
    assert_answer_of_the_api(&answer[second..], "400");
    handle.shutdown().await;
}

#[tokio::test]
async fn an_unreadable_body_is_refused_in_the_words_of_the_api() {
    let handle = serve().await;
    let head = "POST /user HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
    assert_answer_of_the_api(&exchange(&handle, head.as_bytes()).await, "400");
    handle.shutdown().await;
}

#[tokio::test]
async fn a_large_head_over_http2_is_refused_in_the_words_of_the_api() {
    let handle = serve().await;
    let stream = TcpStream::connect(handle.addr()).await.expect("it listens");
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut client, connection) = handshake.expect("it speaks h2c");
    tokio::spawn(connection);
    let (many, large) = ((0..101, "1".to_owned()), (0..50, "a".repeat(10_000)));
    for (indices, value) in [many, large] {
        let mut request = Request::get(format!("http://{}/user", handle.addr()));
        for index in indices {
            request = request.header(format!("x-{index}"), &value);
        }
        let request = request.body(Full::new(Bytes::new())).expect("well formed");
        let response = client.send_request(request).await.expect("an answer");
        assert_eq!(response.status(), 431);
        for name in ["content-type", "x-service-request-id", "x-ratelimit-limit"] {
            assert!(response.headers().contains_key(name), "{name}");
        }
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        assert!(body["message"].is_string() && body["status"] == "431", "{body}");
    }
    handle.shutdown().await;
}
