//! Slow readers of large answers: the upstream's slot becomes free at the upstream's pace, not at
//! that of the client (SPECIFICATION D5).

use std::sync::Arc;

use crate::support::raw::Connection;
use crate::support::scripted::ScriptedUpstream;
use crate::support::{KEY, OTHER_KEY, Setup};

const QUICK: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
/// More than the system buffers for a client that does not read.
const BYTES: usize = 24 * 1024 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_gives_its_slot_back() {
    let upstream = ScriptedUpstream::start().await;
    let setup = Setup::new().upstream(upstream.url()).limits("concurrency = 1");
    let setup = setup.upstream_keys("response_timeout = \"5m\"").listen("body_timeout = \"5m\"");
    let world = Arc::new(setup.cache("max_object = \"1KiB\"").start().await);
    let mut slow = Connection::open(world.address).await;
    let request = format!(
        "GET /repos/acme/widgets/tarball HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n\r\n"
    );
    slow.send(request.as_bytes()).await;
    let mut connection = upstream.next().await;
    let body: Vec<u8> = (0..=250).cycle().take(BYTES).collect();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/gzip\r\nContent-Length: {BYTES}\r\n\
         Connection: close\r\n\r\n"
    );
    connection.send(head).await;
    connection.send(&body).await;
    let gateway = Arc::clone(&world);
    let other = tokio::spawn(async move {
        let authorization = format!("Bearer {OTHER_KEY}");
        gateway.get_with("/repos/acme/sprockets", &[("authorization", &authorization)]).await
    });
    let mut second = upstream.next().await;
    second.send(QUICK).await;
    other.await.unwrap().assert_status(200);
    let answer = slow.read_head().await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(slow.read_bytes(BYTES).await == body, "the slow reader gets other bytes");
}
