//! Fast path, misses: reads that go upstream are answered on their connection as a session would
//! answer them. Bytes that arrive meanwhile are the next request.

use std::time::Duration;

use serde_json::json;
use weir::api::Invalidation;

use crate::support::raw::{Connection, Parts};
use crate::support::{KEY, Setup, World, eventually};

const REPOSITORY: &str = "/repos/acme/widgets";
const ISSUES: &str = "/repos/acme/widgets/issues?per_page=2";
/// Hands the connection to a session and has no other effect.
const BY_SESSION: &str = "TE: trailers\r\n";

/// Headers that differ between exchanges.
const COUNTS: [&str; 4] =
    ["date: ", "x-ratelimit-remaining: ", "x-ratelimit-used: ", "x-github-request-id: "];

fn request(line: &str, headers: &str) -> String {
    format!(
        "{line} HTTP/1.1\r\nHost: weir:8080\r\nAuthorization: Bearer {KEY}\r\nX-Request-Id: the-same\r\n{headers}\r\n"
    )
}

/// The parts of a response without the headers that count.
async fn answer(world: &World, line: &str, headers: &str) -> Parts {
    let mut connection = Connection::open(world.address).await;
    connection.send(request(line, headers).as_bytes()).await;
    connection.read_parts(line.starts_with("HEAD"), &COUNTS).await
}

#[tokio::test]
async fn a_fast_miss_equals_the_sessions_response() {
    let world = Setup::new().manual_clock().start().await;
    let mut revalidated = 0;
    for path in [REPOSITORY, ISSUES, "/user", "/repos/acme/nothing"] {
        for method in ["GET", "HEAD"] {
            for headers in [
                "",
                "If-None-Match: *\r\n",
                "Range: bytes=0-9\r\n",
                "Accept: application/vnd.github.raw+json\r\n",
            ] {
                let (line, as_session) =
                    (format!("{method} {path}"), format!("{headers}{BY_SESSION}"));
                // Stored, and revalidated once.
                answer(&world, &line, headers).await;
                answer(&world, &line, headers).await;
                world.advance_both(Duration::from_secs(7));
                let here = answer(&world, &line, headers).await;
                let by_session = answer(&world, &line, &as_session).await;
                assert_eq!(here, by_session, "{line} {headers:?}");
                revalidated += usize::from(
                    here.1
                        .iter()
                        .any(|line| line.starts_with("cache-status:") && line.contains("304")),
                );
            }
        }
    }
    assert!(revalidated > 10, "{revalidated} answers were confirmed");
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_sent_before_the_response_are_the_next_request() {
    let world = Setup::new().start().await;
    let gate = world.close_gate("GET", REPOSITORY);
    let mut connection = Connection::open(world.address).await;
    let first = request(&format!("GET {REPOSITORY}"), "");
    let second = request(&format!("GET {ISSUES}"), "");
    connection.send(first.as_bytes()).await;
    world.held(gate, 1).await;
    let (beginning, end) = second.split_at(second.len() / 2);
    connection.send(beginning.as_bytes()).await;
    world.open_gate(gate);
    let answer = connection.read_answer().await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\r\n\r\n{"), "{answer}");
    connection.send(end.as_bytes()).await;
    connection.send(first.as_bytes()).await;
    for begins in ["\r\n\r\n[", "\r\n\r\n{"] {
        let answer = connection.read_answer().await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(begins), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_split_around_a_response_is_read_whole() {
    let world = Setup::new().start().await;
    let gate = world.close_gate("GET", REPOSITORY);
    let mut connection = Connection::open(world.address).await;
    connection
        .send((request(&format!("GET {REPOSITORY}"), "") + "DELETE /repos/acme/wid").as_bytes())
        .await;
    world.held(gate, 1).await;
    connection.send(b"gets-v2 HTTP/1.1\r\nHost: weir\r\n\r\n").await;
    world.open_gate(gate);
    for status in ["HTTP/1.1 200", "HTTP/1.1 401"] {
        let answer = connection.read_answer().await;
        assert!(answer.starts_with(status), "{answer}");
    }
    assert!(
        world
            .upstream_requests()
            .iter()
            .all(|entry| entry.method == "GET" && entry.path == REPOSITORY)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_error_leaves_the_connection_open() {
    let world = Setup::new().manual_clock().start().await;
    world.arm(&json!({ "fault": "lost" }));
    let mut connection = Connection::open(world.address).await;
    for _ in 0..3 {
        connection.send(request("GET /repos/acme/widgets", "Prefer: wait=0\r\n").as_bytes()).await;
        let answer = connection.read_answer().await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_leaving_during_a_fetch_is_noticed_and_it_is_stored() {
    let world = Setup::new().start().await;
    let gate = world.close_gate("GET", REPOSITORY);
    let mut connection = Connection::open(world.address).await;
    connection.send(request(&format!("GET {REPOSITORY}"), "").as_bytes()).await;
    world.held(gate, 1).await;
    // The bytes sent after it do not hide the disconnect.
    connection.send(b"GET /re").await;
    drop(connection);
    eventually(|| world.gateway.cache.single_flight().waiters() == 0).await;
    world.open_gate(gate);
    eventually(|| world.gateway.cache.store().size().0 == 1).await;
}

#[tokio::test]
async fn a_revalidation_counts_from_its_request() {
    let world = Setup::new().manual_clock().cache_ttl("/repos/{owner}/{repo}", "10s").start().await;
    let age = async || world.get(REPOSITORY).await.header("age").map(str::to_owned);
    world.get(REPOSITORY).await.assert_status(200);
    for confirmed in 1..5 {
        world.advance_both(Duration::from_secs(11));
        assert_eq!(age().await.as_deref(), Some("0"), "it is confirmed");
        world.advance_both(Duration::from_secs(9));
        assert_eq!(age().await.as_deref(), Some("9"), "its ttl begins with the confirmation");
        assert_eq!(world.upstream_requests().len(), 1 + confirmed);
    }
    // A change through the gateway ends the effect of the last revalidation.
    world
        .gateway
        .cache
        .invalidate_paths(&[Invalidation::Exactly(REPOSITORY.to_owned())], world.clock.now());
    assert_eq!(age().await.as_deref(), Some("0"));
}
