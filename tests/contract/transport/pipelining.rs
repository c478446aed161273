//! Pipelined requests are all answered, in their order, however their bytes arrive (SPECIFICATION,
//! "Client interface").

use std::time::Duration;

use crate::support::raw::Connection;
use crate::support::{KEY, Setup, World};

const REPOSITORY: &str = "/repos/acme/widgets";
const JSON: &str = "{\"query\":\"{viewer{login}}\"}";

fn request(line: &str, headers: &str, body: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n{headers}\r\n{body}")
}

fn get(path: &str, id: usize) -> String {
    request(&format!("GET {path}"), &format!("X-Request-Id: r{id}\r\n"), "")
}

fn with_length(line: &str, body: &str) -> String {
    request(line, &format!("Content-Length: {}\r\n", body.len()), body)
}

fn chunked(line: &str, body: &str) -> String {
    let (first, second) = body.split_at(body.len() / 2);
    let chunk = |text: &str| format!("{:x};a=b\r\n{text}\r\n", text.len());
    let body = format!("{}{}0\r\nX-Trailer: 1\r\n\r\n", chunk(first), chunk(second));
    request(line, "Transfer-Encoding: chunked\r\n", &body)
}

/// Reads the answers and asserts their statuses; the connection stays open.
async fn assert_statuses(connection: &mut Connection, statuses: &[u16]) {
    for (index, status) in statuses.iter().enumerate() {
        let answer = connection.read_answer().await;
        let answer = answer.split("\r\n\r\n").next().unwrap_or_default();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{index}: {answer:?}");
        assert!(
            !answer.to_ascii_lowercase().contains("\r\nconnection: close"),
            "{index}: {answer:?}"
        );
    }
}

/// A world whose limits leave room for many requests.
async fn world() -> World {
    Setup::new().unspaced_writes().manual_clock().start().await
}

#[tokio::test]
async fn sixty_pipelined_requests_are_all_answered() {
    let world = world().await;
    for path in [REPOSITORY, "/repos/acme/widgets/issues", "/rate_limit"] {
        let mut connection = Connection::open(world.address).await;
        let requests: String = (0..60).map(|id| get(path, id)).collect();
        connection.send(requests.as_bytes()).await;
        for id in 0..60 {
            let answer = connection.read_answer().await.to_ascii_lowercase();
            assert!(answer.contains(&format!("\r\nx-request-id: r{id}\r\n")), "{id}: {answer:?}");
        }
        connection.send(get(path, 60).as_bytes()).await;
        assert_statuses(&mut connection, &[200]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_split_at_any_byte_is_read_whole() {
    let world = world().await;
    for second in [
        get(REPOSITORY, 2),
        request(&format!("GET {REPOSITORY}"), "TE: trailers\r\n", ""),
        with_length("POST /graphql", JSON),
        chunked("POST /graphql", JSON),
        with_length(&format!("GET {REPOSITORY}"), "ignored"),
    ] {
        let batch = get(REPOSITORY, 1) + &second + &get("/rate_limit", 3);
        let first = get(REPOSITORY, 1).len();
        for split in first..first + second.len() {
            let mut connection = Connection::open(world.address).await;
            let (begin, end) = batch.as_bytes().split_at(split);
            connection.send(begin).await;
            assert_statuses(&mut connection, &[200]).await;
            connection.send(end).await;
            assert_statuses(&mut connection, &[200, 200]).await;
            world.advance_both(Duration::from_secs(2));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_between_pipelined_reads_keep_their_order() {
    let world = world().await;
    let post = format!("POST {REPOSITORY}/issues");
    let large = "x".repeat(20_000);
    let issue = |title: &str| format!("{{\"title\":\"{title}\",\"body\":\"{large}\"}}");
    let requests = [
        (get(REPOSITORY, 1), 200),
        (with_length(&post, &issue("one")), 201),
        (get("/repos/acme/widgets/issues?per_page=1&q=1", 2), 200),
        (chunked(&post, &issue("two")), 201),
        (get("/repos/acme/widgets/issues?per_page=1&q=2", 3), 200),
        (with_length("POST /graphql", JSON), 200),
        (chunked("POST /graphql", JSON), 200),
        (request(&format!("DELETE {REPOSITORY}/labels/none"), "", ""), 404),
        (get("/user", 4), 200),
    ];
    let (texts, statuses): (Vec<_>, Vec<_>) = requests.into_iter().unzip();
    let texts = texts.concat();
    // At once, and in pieces that straddle heads, bodies and reads.
    for piece in [texts.len(), 4_095, 1_000, 97] {
        let mut connection = Connection::open(world.address).await;
        for piece in texts.as_bytes().chunks(piece) {
            connection.send(piece).await;
            tokio::task::yield_now().await;
        }
        assert_statuses(&mut connection, &statuses).await;
        world.advance_both(Duration::from_secs(120));
    }
    let sent = world.upstream_requests();
    let titles =
        sent.iter().filter(|entry| entry.method == "POST" && entry.path.ends_with("issues"));
    assert_eq!(titles.count(), 8, "each write once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waits_leaves_the_next_one_whole() {
    let world = world().await;
    for headers in ["", "TE: trailers\r\n"] {
        let gate = world.close_gate("GET", REPOSITORY);
        let mut connection = Connection::open(world.address).await;
        let first = request(&format!("GET {REPOSITORY}"), headers, "");
        let second = with_length("POST /graphql", JSON);
        connection.send((first + &second[..40]).as_bytes()).await;
        world.held(gate, 1).await;
        connection.send(&second.as_bytes()[40..60]).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        world.open_gate(gate);
        assert_statuses(&mut connection, &[200]).await;
        connection.send((second[60..].to_owned() + &get("/rate_limit", 3)).as_bytes()).await;
        assert_statuses(&mut connection, &[200, 200]).await;
        world.advance_both(Duration::from_secs(3_600));
    }
}

#[tokio::test]
async fn a_body_refused_unread_leaves_the_next_request_whole() {
    let world = world().await;
    let line = format!("POST {REPOSITORY}/issues");
    let body = format!("GET {REPOSITORY}/smuggled HTTP/1.1\r\n\r\n").repeat(40);
    for refused in [with_length(&line, &body), chunked(&line, &body)] {
        let refused = refused.replace(KEY, "weir_nobodys");
        let batch = get(REPOSITORY, 1) + &refused + &refused + &get(REPOSITORY, 2);
        for piece in [batch.len(), 700, 50] {
            let mut connection = Connection::open(world.address).await;
            for piece in batch.as_bytes().chunks(piece) {
                connection.send(piece).await;
                tokio::task::yield_now().await;
            }
            assert_statuses(&mut connection, &[200, 401, 401, 200]).await;
        }
    }
    assert!(world.upstream_requests().iter().all(|entry| entry.path == REPOSITORY));
}

#[tokio::test]
async fn an_expected_continue_leaves_the_connection_open() {
    let world = world().await;
    let mut connection = Connection::open(world.address).await;
    for _ in 0..2 {
        let headers = format!("Expect: 100-continue\r\nContent-Length: {}\r\n", JSON.len());
        connection.send(request("POST /graphql", &headers, "").as_bytes()).await;
        let interim = connection.read_head().await;
        assert!(interim.starts_with("HTTP/1.1 100 "), "{interim}");
        connection.send((JSON.to_owned() + &get(REPOSITORY, 2)).as_bytes()).await;
        assert_statuses(&mut connection, &[200, 200]).await;
    }
}

#[tokio::test]
async fn a_connection_ends_where_the_next_request_is_uncertain() {
    let world = world().await;
    let line = format!("POST {REPOSITORY}/issues");
    let unknown = |text: String| text.replace(KEY, "weir_nobodys");
    for (request, status) in [
        // The client may send its body or not.
        (request(&line, "Content-Length: 5\r\nExpect: 100-continue\r\n", ""), 401),
        (with_length(&line, &"x".repeat(70_000)), 401),
        (request(&line, "Transfer-Encoding: chunked\r\n", "5\nhello\r\n0\r\n\r\n"), 400),
        (request("GET /rate_limit", "Connection: close\r\n", ""), 200),
        (request("GET /rate_limit", "Content-Length: 1\r\nContent-Length: 1\r\n", "x"), 400),
    ] {
        let text = if status == 401 { unknown(request) } else { request };
        let mut connection = Connection::open(world.address).await;
        connection.send((text.clone() + &get(REPOSITORY, 2)).as_bytes()).await;
        let answers = connection.read_to_close().await;
        assert!(answers.starts_with(&format!("HTTP/1.1 {status} ")), "{answers}");
        assert!(answers.to_ascii_lowercase().contains("\r\nconnection: close"), "{answers}");
        assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{answers}");
    }
    // Chunks of an unread body that break the framing show up after the answer.
    let broken = unknown(request(&line, "Transfer-Encoding: chunked\r\n", "5\nhello\r\n0\r\n\r\n"));
    let mut connection = Connection::open(world.address).await;
    connection.send((broken + &get(REPOSITORY, 2)).as_bytes()).await;
    let answers = connection.read_to_close().await;
    assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{answers}");
    assert!(world.upstream_requests().is_empty());
}
