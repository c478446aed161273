//! Informational responses (1xx) reach the client of their request in order, before its response.
//! No other client receives them, and none is stored (RFC 9110 §15.2).

use http::Request;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use crate::support::broken::{Behaviour, Broken};
use crate::support::raw::Connection;
use crate::support::scripted::ScriptedUpstream;
use crate::support::{KEY, Reply, Setup, World};

const LABELS: &str = "/repos/acme/widgets/labels";
/// Hands the connection to a session and has no other effect.
const BY_SESSION: &str = "TE: trailers\r\n";
const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

fn request(method: &str, version: &str, headers: &str) -> String {
    let body = if method == "POST" { "Content-Length: 2\r\n\r\n{}" } else { "\r\n" };
    format!(
        "{method} {LABELS} {version}\r\nHost: weir:8080\r\nAuthorization: Bearer {KEY}\r\n{headers}{body}"
    )
}

async fn before(upstream: &ScriptedUpstream) -> World {
    Setup::new().upstream(upstream.url()).unspaced_writes().start().await
}

#[tokio::test]
async fn informational_responses_arrive_at_once_and_in_order() {
    for (method, headers) in [("GET", ""), ("GET", BY_SESSION), ("HEAD", ""), ("POST", "")] {
        let upstream = ScriptedUpstream::start().await;
        let world = before(&upstream).await;
        let mut client = Connection::open(world.address).await;
        client.send(request(method, "HTTP/1.1", headers).as_bytes()).await;
        let mut connection = upstream.next().await;
        connection.send("HTTP/1.1 102 Processing\r\n\r\n").await;
        assert!(client.read_head().await.starts_with("HTTP/1.1 102 "), "{method} {headers}");
        connection.send("HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\nHTTP/1.1 199 \r\nX-Hint: one\r\n\r\n").await;
        let hints = client.read_head().await;
        assert!(
            hints.starts_with("HTTP/1.1 103 Early Hints\r\n")
                && hints.to_lowercase().contains("\r\nlink: "),
            "{hints}"
        );
        let unknown = client.read_head().await;
        assert!(
            unknown.starts_with("HTTP/1.1 199 ")
                && unknown.to_lowercase().contains("\r\nx-hint: one\r\n"),
            "{unknown}"
        );
        connection.send(ANSWER).await;
        let answer = client.read_head().await;
        assert!(answer.starts_with("HTTP/1.1 200 OK") && !answer.contains("hint"), "{answer}");
    }
}

#[tokio::test]
async fn informational_responses_precede_an_immediate_response() {
    let response = format!("HTTP/1.1 103 Early Hints\r\nX-Hint: one\r\n\r\n{ANSWER}");
    let upstream = Broken::start(Behaviour::Keeps(response.leak())).await;
    let world = upstream.world().await;
    for headers in ["", BY_SESSION, "Range: bytes=0-0\r\n"] {
        let mut client = Connection::open(world.address).await;
        // Fetched, and requested again on the same connection.
        for _ in 0..2 {
            client.send(request("GET", "HTTP/1.1", headers).as_bytes()).await;
            assert!(client.read_head().await.starts_with("HTTP/1.1 103 "), "{headers}");
            assert!(client.read_answer().await.starts_with("HTTP/1.1 20"), "{headers}");
        }
    }
}

#[tokio::test]
async fn informational_responses_disclose_no_more_than_a_response() {
    let hint = "HTTP/1.1 103 Early Hints\r\nX-RateLimit-Remaining: 1\r\nX-OAuth-Scopes: repo\r\nContent-Length: 5\r\nSet-Cookie: a=b\r\nConnection: x-own\r\nX-Own: 1\r\n\r\n";
    let upstream = Broken::start(Behaviour::Keeps(format!("{hint}{ANSWER}").leak())).await;
    let world = upstream.world().await;
    for headers in ["", BY_SESSION] {
        let mut client = Connection::open(world.address).await;
        client.send(request("GET", "HTTP/1.1", headers).as_bytes()).await;
        assert_eq!(client.read_head().await, "HTTP/1.1 103 Early Hints\r\n\r\n");
        assert!(client.read_answer().await.ends_with("hi"));
    }
}

#[tokio::test]
async fn urls_in_informational_responses_are_rewritten() {
    let upstream = ScriptedUpstream::start().await;
    let world = before(&upstream).await;
    let mut client = Connection::open(world.address).await;
    client.send(request("GET", "HTTP/1.1", "").as_bytes()).await;
    let mut connection = upstream.next().await;
    connection
        .send(format!(
            "HTTP/1.1 103 Early Hints\r\nLink: <{}/repos/acme/widgets>; rel=\"preload\"\r\n\r\n",
            upstream.url()
        ))
        .await;
    let hints = client.read_head().await;
    assert!(hints.contains("<http://weir:8080/repos/acme/widgets>"), "{hints}");
}

#[tokio::test]
async fn a_100_and_other_http_versions_are_left_out() {
    let response = format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n{ANSWER}");
    let upstream = Broken::start(Behaviour::Keeps(response.leak())).await;
    let world = upstream.world().await;
    let mut client = Connection::open(world.address).await;
    client.send(request("GET", "HTTP/1.1", "").as_bytes()).await;
    assert!(client.read_head().await.starts_with("HTTP/1.1 103 "));
    let mut old = Connection::open(world.address).await;
    old.send(request("GET", "HTTP/1.0", "").as_bytes()).await;
    let answer = old.read_to_close().await;
    assert!(
        answer.split("\r\n").next().unwrap().ends_with("200 OK") && !answer.contains("Early Hints"),
        "{answer}"
    );
    let http2 = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let get = Request::get(format!("http://{}{LABELS}", world.address))
        .header("authorization", format!("Bearer {KEY}"));
    Reply::read(http2.request(get.body(Full::<bytes::Bytes>::default()).unwrap()).await.unwrap())
        .await
        .assert_status(200);
}

#[tokio::test]
async fn followers_and_hits_get_no_informational_responses() {
    let upstream = ScriptedUpstream::start().await;
    let world = Setup::new()
        .upstream(upstream.url())
        .cache_ttl("/repos/{owner}/{repo}/labels", "10m")
        .start()
        .await;
    let (mut first, mut second) =
        (Connection::open(world.address).await, Connection::open(world.address).await);
    first.send(request("GET", "HTTP/1.1", "").as_bytes()).await;
    let mut connection = upstream.next().await;
    second.send(request("GET", "HTTP/1.1", "").as_bytes()).await;
    world.all_waiting_for_one_fetch(2).await;
    connection.send("HTTP/1.1 103 Early Hints\r\n\r\n").await;
    assert!(first.read_head().await.starts_with("HTTP/1.1 103 "));
    connection.send(ANSWER).await;
    assert!(first.read_answer().await.starts_with("HTTP/1.1 200 "));
    assert!(second.read_answer().await.starts_with("HTTP/1.1 200 "));
    first.send(request("GET", "HTTP/1.1", "").as_bytes()).await;
    assert!(first.read_answer().await.starts_with("HTTP/1.1 200 "));
    upstream.assert_not_asked_again();
}

#[tokio::test]
async fn an_upstream_sending_only_informational_responses_times_out() {
    let many = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1_000);
    let large =
        format!("HTTP/1.1 103 Early Hints\r\nX-Large: {}\r\n\r\n", "x".repeat(40_000)).repeat(2);
    for response in
        [many, large, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n".to_owned()]
    {
        let upstream = Broken::start(Behaviour::Keeps(format!("{response}{ANSWER}").leak())).await;
        let world = upstream.world().await;
        let mut client = Connection::open(world.address).await;
        client.send(request("GET", "HTTP/1.1", "").as_bytes()).await;
        let mut head = client.read_head().await;
        let mut passed = 0;
        while head.starts_with("HTTP/1.1 103") {
            passed += 1;
            head = client.read_head().await;
        }
        assert!(head.starts_with("HTTP/1.1 502 ") && passed <= 3 * 32, "{passed}: {head}");
        assert!(upstream.requests() <= 3);
    }
}

#[tokio::test]
async fn a_client_that_leaves_delays_no_follower() {
    let upstream = ScriptedUpstream::start().await;
    let world = before(&upstream).await;
    let (mut deaf, mut other) =
        (Connection::open(world.address).await, Connection::open(world.address).await);
    deaf.send(request("GET", "HTTP/1.1", "").as_bytes()).await;
    let mut connection = upstream.next().await;
    other.send(request("GET", "HTTP/1.1", "").as_bytes()).await;
    world.all_waiting_for_one_fetch(2).await;
    for _ in 0..20 {
        connection
            .send(format!("HTTP/1.1 103 Early Hints\r\nX-Large: {}\r\n\r\n", "x".repeat(3_000)))
            .await;
    }
    drop(deaf);
    world.all_waiting_for_one_fetch(1).await;
    connection.send(ANSWER).await;
    assert!(other.read_answer().await.ends_with("hi"));
}
