//! Anything but exactly one well-formed request is refused before anything is sent upstream
//! (SPECIFICATION, "Well-formed requests").

use crate::support::raw::Connection;
use crate::support::{KEY, Setup, World, eventually};

async fn answer_to(world: &World, request: &str) -> String {
    let mut connection = Connection::open(world.address).await;
    connection.send(request.replace("KEY", KEY).as_bytes()).await;
    connection.read_to_close().await
}

#[tokio::test]
async fn ambiguous_framing_is_a_400_and_closes_the_connection() {
    let world = Setup::new().start().await;
    let post =
        "POST /repos/acme/widgets/issues HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer KEY\r\n";
    for rest in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        "Content-Length: +5\r\n\r\nhello",
        "Content-Length: 005\r\n\r\nhello",
        "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "Content-Length: 5, 5\r\n\r\nhello",
        "Content-Length: -1\r\n\r\n",
        "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: identity\r\n\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n\r\nhello\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n5;a\nb\r\nhello\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n0\r\nGET /smuggled HTTP/1.1\r\n\r\n",
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "X: a\r\n folded\r\nContent-Length: 0\r\n\r\n",
        "X: a\nContent-Length: 0\r\n\r\n",
    ] {
        let answer = answer_to(&world, &format!("{post}{rest}")).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{rest:?}: {answer}");
        assert!(
            answer.to_ascii_lowercase().contains("connection: close")
                && answer.contains("\"message\""),
            "{answer}"
        );
    }
    assert!(world.upstream_requests().is_empty());
}

#[tokio::test]
async fn ambiguous_hosts_paths_and_methods_are_refused() {
    let world = Setup::new().start().await;
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"),
        ("GET /repos/../user HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("GET /repos/%2e%2e/user HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("GET /repos//widgets HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("GET /repos/%00 HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("GET  /x HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("GET x HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("GET /repos/acme widgets HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("DELETE /repos/acme widgets HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("GET /repos/\u{1} HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("GET /a HTTP/1.1\r\nHost: ]:[\r\n\r\n", "400"),
        ("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", "405"),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", "4"),
        ("BREW / HTTP/1.1\r\nHost: a\r\n\r\n", "405"),
    ] {
        let answer = answer_to(&world, request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request:?}: {answer}");
    }
    assert!(world.upstream_requests().is_empty());
}

#[tokio::test]
async fn heads_and_targets_have_size_limits() {
    let world = Setup::new().start().await;
    let long =
        answer_to(&world, &format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(10_000)))
            .await;
    assert!(long.starts_with("HTTP/1.1 414"), "{long}");
    let large = answer_to(
        &world,
        &format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(33_000)),
    )
    .await;
    assert!(large.starts_with("HTTP/1.1 431"), "{large}");
    let headers = (0..300).fold(String::new(), |text, n| text + &format!("X-{n}: 1\r\n"));
    let headers = answer_to(&world, &format!("GET / HTTP/1.1\r\nHost: a\r\n{headers}\r\n")).await;
    assert!(headers.starts_with("HTTP/1.1 431"), "{headers}");
    let many = (0..101).fold(String::new(), |text, n| text + &format!("X-{n}: 1\r\n"));
    let many = answer_to(&world, &format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n")).await;
    assert!(many.starts_with("HTTP/1.1 431"), "{many}");
}

#[tokio::test]
async fn an_incomplete_head_times_out() {
    let world = Setup::new().listen("header_timeout = \"200ms\"").start().await;
    // Nothing at all, less than a preface, and a head without an end.
    for beginning in ["", "GET /", "GET /repos/acme/widgets HTTP/1.1\r\nHost: weir\r\nX: "] {
        let answer = answer_to(&world, beginning).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
}

#[tokio::test]
async fn a_stalled_body_times_out() {
    let world = Setup::new().listen("body_timeout = \"200ms\"").start().await;
    let request = "POST /repos/acme/widgets/issues HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer KEY\r\nContent-Length: 50\r\n\r\n{\"title\":";
    let answer = answer_to(&world, request).await;
    assert!(answer.starts_with("HTTP/1.1 408") || answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(world.upstream_requests().is_empty());
}

#[tokio::test]
async fn a_connection_carries_one_request_after_another() {
    let world = Setup::new().start().await;
    let mut connection = Connection::open(world.address).await;
    let request =
        format!("GET /rate_limit HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n\r\n");
    for _ in 0..3 {
        connection.send(request.as_bytes()).await;
        assert!(connection.read_answer().await.starts_with("HTTP/1.1 200"));
    }
    // A gateway error does not end the connection either.
    connection.send(b"GET /user HTTP/1.1\r\nHost: weir\r\n\r\n").await;
    assert!(connection.read_answer().await.starts_with("HTTP/1.1 401"));
    connection.send(request.as_bytes()).await;
    assert!(connection.read_answer().await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn an_unknown_route_is_forwarded() {
    let world = Setup::new().start().await;
    world.get("/no/such/route").await.assert_status(404);
    assert_eq!(world.upstream_requests().len(), 1);
    world.get("/_weir/nothing").await.assert_status(404);
    assert_eq!(world.upstream_requests().len(), 1);
}

#[tokio::test]
async fn early_bytes_to_a_session_are_the_next_request() {
    let world = Setup::new().start().await;
    // `TE` selects a session, which reads ahead. `fast_path_misses.rs` covers the other requests.
    let request = |method: &str, path: &str| {
        format!(
            "{method} {path} HTTP/1.1\r\nHost: weir\r\nTE: trailers\r\nAuthorization: Bearer {KEY}\r\n\r\n"
        )
    };
    for (first, rest, next) in [
        (request("GET", "/repos/acme/widgets"), request("GET", "/repos/acme/sprockets"), 200),
        (
            request("GET", "/repos/acme/widgets") + "DELETE /repos/acme/wid",
            "gets-v2 HTTP/1.1\r\nHost: weir\r\n\r\n".to_owned(),
            401,
        ),
    ] {
        let gate = world.close_gate("GET", "/repos/acme/widgets");
        let mut connection = Connection::open(world.address).await;
        connection.send(first.as_bytes()).await;
        world.held(gate, 1).await;
        connection.send(rest.as_bytes()).await;
        // The gateway has read the bytes once it has run after their arrival.
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        world.open_gate(gate);
        for status in [200, next] {
            let answer = connection.read_answer().await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        }
    }
    let sent = world.upstream_requests();
    let is_asked = |path: &str| path.ends_with("/widgets") || path.ends_with("/sprockets");
    assert!(sent.iter().all(|entry| entry.method == "GET" && is_asked(&entry.path)));
}

#[tokio::test]
async fn a_connection_goes_on_after_a_chunked_request() {
    let world = Setup::new().unspaced_writes().start().await;
    let request = format!(
        "POST /repos/acme/widgets/issues HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\nTransfer-Encoding: chunked\r\n\r\nd\r\n{{\"title\":\"x\"}}\r\n0\r\n\r\n"
    );
    let mut connection = Connection::open(world.address).await;
    for _ in 0..2 {
        connection.send(request.as_bytes()).await;
        let answer = connection.read_answer().await;
        assert!(
            answer.starts_with("HTTP/1.1 201")
                && answer.to_ascii_lowercase().contains("connection: keep-alive"),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn a_client_that_never_reads_is_disconnected() {
    let world = Setup::new().listen("body_timeout = \"300ms\"").start().await;
    let mut connection = Connection::open(world.address).await;
    // Enough responses to fill every buffer between client and gateway.
    let request = "OPTIONS / HTTP/1.1\r\nHost: weir\r\n\r\n".repeat(1_000);
    while connection.send_unless_full(request.as_bytes()).await {}
    eventually(|| world.gateway.env.active.count() == 0).await;
}
