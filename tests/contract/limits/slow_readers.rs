//! Slow readers of large answers: the upstream's slot becomes free at the upstream's pace, not at
//! that of the client. Where no file may hold the answer, a client has a share of the slots
//! (SPECIFICATION D5).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::raw::Connection;
use crate::support::reply::Reply;
use crate::support::scripted::{ScriptedConnection, ScriptedUpstream};
use crate::support::{KEY, OTHER_KEY, Setup, World, eventually};

const QUICK: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
/// More than the system buffers for a client that does not read.
const BYTES: usize = 24 * 1024 * 1024;
/// The same on both sides of the gateway.
const BOTH_BYTES: usize = 2 * BYTES;

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

/// The requests at a scripted upstream that answers questions of its state by itself.
type Requests = mpsc::UnboundedReceiver<ScriptedConnection>;

/// A gateway before a scripted upstream. Its accounts have this many slots; its clients wait this
/// long for one.
async fn with_slots(slots: usize, max_wait: &str) -> (Requests, Arc<World>) {
    let upstream = ScriptedUpstream::start().await;
    let url = upstream.url();
    let (sender, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            if sender.send(upstream.next().await).is_err() {
                return;
            }
        }
    });
    let setup = Setup::new().upstream(url).limits(&format!("concurrency = {slots}"));
    let setup = setup.upstream_keys("response_timeout = \"5m\"").listen("body_timeout = \"5m\"");
    let setup = setup.client(&format!("max_wait = \"{max_wait}\""));
    let world = setup.cache("max_object = \"1KiB\"").start().await;
    (requests, Arc::new(world))
}

/// Asks for a large answer that no file may hold, and reads no more than its head. The upstream
/// sends as much as the gateway takes.
async fn stuck_reader(
    upstream: &mut Requests,
    world: &World,
    number: usize,
) -> (Connection, JoinHandle<bool>) {
    let (mut reader, mut connection) = asks(upstream, world, number).await;
    let sending = tokio::spawn(async move { connection.try_send(vec![b'x'; BOTH_BYTES]).await });
    assert!(reader.read_head().await.starts_with("HTTP/1.1 200 "));
    (reader, sending)
}

async fn asks(
    upstream: &mut Requests,
    world: &World,
    number: usize,
) -> (Connection, ScriptedConnection) {
    let mut reader = Connection::open(world.address).await;
    let request = format!(
        "GET /repos/acme/widgets/tarball/{number} HTTP/1.1\r\nHost: weir\r\n\
         Authorization: Bearer {KEY}\r\nCache-Control: no-store\r\n\r\n"
    );
    reader.send(request.as_bytes()).await;
    let mut connection = upstream.recv().await.unwrap();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/gzip\r\n\
         Content-Length: {BOTH_BYTES}\r\nConnection: close\r\n\r\n"
    );
    connection.send(head).await;
    (reader, connection)
}

/// A GET of another client.
fn other_get(world: &Arc<World>) -> JoinHandle<Reply> {
    let world = Arc::clone(world);
    tokio::spawn(async move {
        let authorization = format!("Bearer {OTHER_KEY}");
        world.get_with("/repos/acme/sprockets", &[("authorization", &authorization)]).await
    })
}

/// Answers the other client's request, which must not wait for the grace of a request that was
/// given up.
async fn answers_promptly(upstream: &mut Requests, world: &World, other: JoinHandle<Reply>) {
    eventually(|| yielded(world) != "0" || other.is_finished() || !upstream.is_empty()).await;
    let state = (other.is_finished(), upstream.len());
    assert_eq!(yielded(world), "1", "{state:?}: {}", world.gateway.env.metrics.encode());
    let next = timeout(Duration::from_secs(8), upstream.recv()).await;
    next.expect("no slot became free").unwrap().send(QUICK).await;
    other.await.unwrap().assert_status(200);
}

/// Number of answers that were broken off because another client waited for their slot.
fn yielded(world: &World) -> String {
    let text = world.gateway.env.metrics.encode();
    let line = text.lines().find(|line| line.contains("reason=\"slot_needed\""));
    line.and_then(|line| line.rsplit(' ').next()).unwrap_or("0").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn stuck_readers_leave_slots_to_other_clients() {
    let (mut upstream, world) = with_slots(4, "60s").await;
    let mut stuck = Vec::new();
    for number in 0..3 {
        stuck.push(stuck_reader(&mut upstream, &world, number).await);
    }
    // A reader that takes all it gets, at the pace of its upstream.
    let (mut quick, mut connection) = asks(&mut upstream, &world, 3).await;
    let sending = tokio::spawn(async move {
        connection.send(vec![b'y'; BYTES]).await;
        connection
    });
    assert!(quick.read_head().await.starts_with("HTTP/1.1 200 "));
    assert!(quick.read_bytes(BYTES).await.iter().all(|byte| *byte == b'y'));
    let other = other_get(&world);
    answers_promptly(&mut upstream, &world, other).await;
    // One was enough, and the others keep their share.
    eventually(|| stuck.iter().filter(|(_, sending)| sending.is_finished()).count() == 1).await;
    assert_eq!(yielded(&world), "1");
    let mut connection = sending.await.unwrap();
    let rest = tokio::spawn(async move { connection.send(vec![b'y'; BYTES]).await });
    assert!(quick.read_bytes(BYTES).await.iter().all(|byte| *byte == b'y'));
    rest.await.unwrap();
    for (mut reader, sending) in stuck {
        let is_cut_off = sending.is_finished();
        let read = reader.read_bytes_or_less(BOTH_BYTES).await.len();
        assert_eq!(read < BOTH_BYTES, is_cut_off, "{read}");
        assert_eq!(sending.await.unwrap(), !is_cut_off);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_reader_does_not_keep_the_only_slot() {
    let (mut upstream, world) = with_slots(1, "60s").await;
    let (mut reader, sending) = stuck_reader(&mut upstream, &world, 0).await;
    let other = other_get(&world);
    answers_promptly(&mut upstream, &world, other).await;
    assert!(reader.read_bytes_or_less(BOTH_BYTES).await.len() < BOTH_BYTES);
    assert!(!sending.await.unwrap());
    assert_eq!(yielded(&world), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_keeps_its_own_stuck_readers() {
    // Longer than the patience with a slow reader.
    let (mut upstream, world) = with_slots(2, "3s").await;
    let mut stuck = Vec::new();
    for number in 0..2 {
        stuck.push(stuck_reader(&mut upstream, &world, number).await);
    }
    let own = world.get("/repos/acme/sprockets").await;
    own.assert_secondary_limited();
    for (mut reader, sending) in stuck {
        assert_eq!(reader.read_bytes(BOTH_BYTES).await.len(), BOTH_BYTES);
        assert!(sending.await.unwrap());
    }
    assert_eq!(yielded(&world), "0");
}
