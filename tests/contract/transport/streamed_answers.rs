//! Answers that the upstream sends slowly: what has come goes to the client at once, however little
//! it is and whatever follows (SPECIFICATION D1).

use crate::support::raw::Connection;
use crate::support::scripted::{ScriptedConnection, ScriptedUpstream};
use crate::support::{KEY, Setup, World};

const BYTES: usize = 50_000;

async fn before(upstream: &ScriptedUpstream) -> World {
    Setup::new().upstream(upstream.url()).cache("max_object = \"1KiB\"").start().await
}

/// Asks for an archive. The upstream has sent only the head of its answer.
async fn asked(
    upstream: &ScriptedUpstream,
    world: &World,
    length: &str,
) -> (Connection, ScriptedConnection) {
    let mut client = Connection::open(world.address).await;
    let request = format!(
        "GET /repos/acme/widgets/tarball HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n\r\n"
    );
    client.send(request.as_bytes()).await;
    let mut answer = upstream.next().await;
    answer
        .send(format!("HTTP/1.1 200 OK\r\nContent-Type: application/gzip\r\n{length}\r\n\r\n"))
        .await;
    (client, answer)
}

#[tokio::test]
async fn each_piece_of_a_known_length_reaches_the_client_at_once() {
    let upstream = ScriptedUpstream::start().await;
    let world = before(&upstream).await;
    let (mut client, mut answer) =
        asked(&upstream, &world, &format!("Content-Length: {BYTES}")).await;
    assert!(client.read_head().await.starts_with("HTTP/1.1 200 "));
    let body: Vec<u8> = (0..=250).cycle().take(BYTES).collect();
    let mut sent = 0;
    for piece in [1, 3, 500, 17_000, 1, 20_000] {
        answer.send(&body[sent..sent + piece]).await;
        assert!(client.read_bytes(piece).await == body[sent..sent + piece], "{piece} at {sent}");
        sent += piece;
    }
    answer.send(&body[sent..]).await;
    assert!(client.read_bytes(BYTES - sent).await == body[sent..], "the rest");
}

#[tokio::test]
async fn each_chunk_reaches_the_client_at_once() {
    let upstream = ScriptedUpstream::start().await;
    let world = before(&upstream).await;
    let (mut client, mut answer) = asked(&upstream, &world, "Transfer-Encoding: chunked").await;
    // More than is held to find out the length.
    answer.send(format!("800\r\n{}\r\n", "a".repeat(0x800))).await;
    assert!(client.read_head().await.starts_with("HTTP/1.1 200 "));
    assert_eq!(client.read_bytes(0x800 + 7).await.first(), Some(&b'8'));
    for _ in 0..3 {
        answer.send("3\r\nabc\r\n").await;
        assert_eq!(client.read_bytes(8).await, b"3\r\nabc\r\n");
    }
    answer.send("0\r\n\r\n").await;
    assert_eq!(client.read_bytes(5).await, b"0\r\n\r\n");
}
