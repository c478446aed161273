//! Early responses: a response before the end of the request body counts, whatever the upstream
//! does with the connection. The rest of the body is not sent (SPECIFICATION D7; RFC 9112 §9.3,
//! §9.5).

use http::Method;
use weir::clock::Clock;

use crate::support::scripted::{ScriptedConnection, ScriptedUpstream};
use crate::support::{Reply, Setup, World};

const ISSUES: &str = "/repos/acme/widgets/issues";
const LOCK: &str = "/repos/acme/widgets/issues/1/lock";
/// More than the operating system buffers for an unread connection, and little enough for the
/// gateway to buffer.
const HELD_BYTES: usize = 5 * 1024 * 1024;
/// Too much to buffer: the body is streamed.
const STREAMED_BYTES: usize = 12 * 1024 * 1024;
const UNPROCESSABLE: &str =
    "HTTP/1.1 422 Unprocessable Entity\r\nContent-Length: 18\r\n\r\n{\"message\":\"long\"}";
const REFUSED: &str = "HTTP/1.1 403 Forbidden\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\n{}";
const BROKEN: &str = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\n{}";
const CREATED: &str = "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}";

/// The upstream's action after its response; it reads no further.
#[derive(Clone, Copy, Debug)]
enum Then {
    Closes,
    HalfCloses,
    StaysOpen,
}

const EACH: [Then; 3] = [Then::Closes, Then::HalfCloses, Then::StaysOpen];

/// A gateway with timeouts beyond the length of a test.
async fn world(upstream: &ScriptedUpstream) -> World {
    let setup = Setup::new()
        .upstream(upstream.url())
        .upstream_keys("response_timeout = \"5m\"")
        .clock(Clock::scaled(60.0));
    let setup = setup
        .listen("idle_timeout = \"1h\"\nheader_timeout = \"1h\"\nbody_timeout = \"1h\"")
        .client("max_wait = \"10m\"");
    setup.unspaced_writes().writes("max_attempts = 3").start().await
}

/// Answers the next request after its head.
async fn answers(
    upstream: &ScriptedUpstream,
    response: &str,
    then: Then,
) -> Option<ScriptedConnection> {
    let mut connection = upstream.next().await;
    connection.send(response).await;
    match then {
        Then::Closes => return None,
        Then::HalfCloses => connection.half_closes().await,
        Then::StaysOpen => {}
    }
    Some(connection)
}

async fn sends(world: &World, method: Method, path: &str, bytes: usize) -> Reply {
    world.send(method, path, &[], &"x".repeat(bytes)).await
}

fn assert_early_response(reply: &Reply, then: Then) {
    assert_eq!(
        (reply.status.as_u16(), &*reply.body),
        (422, &b"{\"message\":\"long\"}"[..]),
        "{then:?}: {reply:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_writer_gets_an_early_response() {
    for then in EACH {
        for (method, path, bytes) in [
            (Method::POST, ISSUES, HELD_BYTES),
            (Method::PUT, LOCK, HELD_BYTES),
            (Method::POST, ISSUES, STREAMED_BYTES),
        ] {
            let upstream = ScriptedUpstream::start().await;
            let world = world(&upstream).await;
            let (reply, _connection) = tokio::join!(
                sends(&world, method, path, bytes),
                answers(&upstream, UNPROCESSABLE, then)
            );
            assert_early_response(&reply, then);
            upstream.assert_not_asked_again();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_write_fails_by_an_early_response() {
    for then in EACH {
        let upstream = ScriptedUpstream::start().await;
        let world = world(&upstream).await;
        let accepted = world
            .send(Method::POST, ISSUES, &[("prefer", "respond-async")], &"x".repeat(HELD_BYTES))
            .await;
        accepted.assert_status(202);
        let _connection = answers(&upstream, UNPROCESSABLE, then).await;
        let status_body = world
            .get_with(accepted.header("location").unwrap(), &[("prefer", "wait=86400")])
            .await
            .json();
        assert_eq!(
            (&status_body["state"], &status_body["response"]["status"]),
            (&"failed".into(), &422.into()),
            "{then:?}: {status_body}"
        );
        upstream.assert_not_asked_again();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_limited_by_an_early_response_is_resent() {
    for then in EACH {
        let upstream = ScriptedUpstream::start().await;
        let world = world(&upstream).await;
        let plays = async {
            let refused = answers(&upstream, REFUSED, then).await;
            let mut again = upstream.next().await;
            again.read_body(HELD_BYTES).await;
            again.send(CREATED).await;
            (refused, again)
        };
        let (reply, _connections) =
            tokio::join!(sends(&world, Method::POST, ISSUES, HELD_BYTES), plays);
        reply.assert_status(201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_with_an_early_5xx_is_unknown() {
    for then in EACH {
        let upstream = ScriptedUpstream::start().await;
        let world = world(&upstream).await;
        let (reply, _connection) = tokio::join!(
            sends(&world, Method::POST, ISSUES, HELD_BYTES),
            answers(&upstream, BROKEN, then)
        );
        reply.assert_status(502);
        assert!(
            reply.json()["message"].as_str().unwrap().contains("unknown whether"),
            "{then:?}: {reply:?}"
        );
        upstream.assert_not_asked_again();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_with_a_partial_request_is_not_reused() {
    let upstream = ScriptedUpstream::start().await;
    let world = world(&upstream).await;
    for bytes in [HELD_BYTES, STREAMED_BYTES] {
        let (reply, _connection) = tokio::join!(
            sends(&world, Method::POST, ISSUES, bytes),
            answers(&upstream, UNPROCESSABLE, Then::StaysOpen)
        );
        assert_early_response(&reply, Then::StaysOpen);
        let path = format!("{ISSUES}/{bytes}");
        let (reply, _connection) =
            tokio::join!(world.get(&path), answers(&upstream, CREATED, Then::Closes));
        reply.assert_status(201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_informational_response_does_not_end_the_body() {
    for bytes in [HELD_BYTES, STREAMED_BYTES] {
        let upstream = ScriptedUpstream::start().await;
        let world = world(&upstream).await;
        let plays = async {
            let mut connection = upstream.next().await;
            connection
                .send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
                .await;
            connection.read_body(bytes).await;
            connection.send(CREATED).await;
            // The response was read to its end, so another read may follow on the connection.
            upstream.next_reusing(&mut connection).await;
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").await;
        };
        let request = async {
            sends(&world, Method::POST, ISSUES, bytes).await.assert_status(201);
            world.get(ISSUES).await.assert_status(200);
        };
        tokio::join!(request, plays);
    }
}
