//! Large bodies on their way: readers of any pace that join at any time, parts and HEADs of them,
//! a full disk, and ends before the end (SPECIFICATION D1). `shared_bodies.rs` covers what they
//! have in common with other answers, `bodies_on_disk.rs` those that are stored.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ring::digest::{SHA256, digest};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::support::raw::Connection;
use crate::support::scripted::{ScriptedConnection, ScriptedUpstream};
use crate::support::{KEY, Reply, Setup, World, bounded, eventually};

pub(super) const PATH: &str = "/repos/acme/widgets/contents/large.bin";
/// More than the system buffers for a client that does not read.
pub(super) const BYTES: usize = 24 * 1024 * 1024;
/// The shortest body that is not held in memory, in these tests.
const MAX_OBJECT: &str = "max_object = \"1KiB\"";
const READERS: usize = 50;
/// Readers that take nothing before all others have everything.
const STUCK: usize = 10;
/// Two thirds of the copies that the stuck readers would have; other tests allocate too.
const GROWN_BYTES_MAX: usize = 160 * 1024 * 1024;

/// A gateway that holds no body in memory, and its upstream.
pub(super) struct Fixture {
    pub world: Arc<World>,
    pub upstream: ScriptedUpstream,
}

impl Fixture {
    pub async fn new() -> Self {
        Self::with_cache("").await
    }

    pub async fn with_cache(keys: &str) -> Self {
        let upstream = ScriptedUpstream::start().await;
        // Long timeouts: a busy machine must not look like a stalled peer.
        let setup = Setup::new()
            .upstream(upstream.url())
            .upstream_keys("response_timeout = \"5m\"")
            .listen("body_timeout = \"5m\"");
        let setup = setup.manual_clock().cache(MAX_OBJECT).cache(keys);
        Self { world: Arc::new(setup.start().await), upstream }
    }

    /// A client that has sent a request.
    pub async fn asks(&self, method: &str, headers: &str) -> Connection {
        self.asks_for(PATH, method, headers).await
    }

    pub async fn asks_for(&self, path: &str, method: &str, headers: &str) -> Connection {
        let mut client = Connection::open(self.world.address).await;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n{headers}\r\n"
        );
        client.send(request.as_bytes()).await;
        client
    }

    /// A client that gets the head of a body that the upstream has begun with these bytes.
    async fn begins(&self, head: &str, bytes: &[u8]) -> (Connection, ScriptedConnection) {
        let mut client = self.asks("GET", "").await;
        let mut connection = self.upstream.next().await;
        connection.send([head.as_bytes(), bytes].concat()).await;
        assert!(client.read_head().await.starts_with("HTTP/1.1 200 "));
        (client, connection)
    }

    pub fn get(&self) -> JoinHandle<Reply> {
        self.get_with(&[])
    }

    pub fn get_with(&self, headers: &'static [(&'static str, &'static str)]) -> JoinHandle<Reply> {
        let world = Arc::clone(&self.world);
        tokio::spawn(async move { world.get_with(PATH, headers).await })
    }

    pub fn assert_no_further_request(&self) {
        self.upstream.assert_not_asked_again();
    }

    /// Waits until the file has this much of the one body.
    async fn spooled(&self, bytes: usize) {
        eventually(|| self.world.gateway.env.spool_space.figures().bytes >= bytes as u64).await;
    }

    pub async fn has_no_files(&self) {
        eventually(|| self.world.gateway.env.spool_space.figures().bytes == 0).await;
    }
}

/// Bytes without repetition.
pub(super) fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(bytes).collect()
}

pub(super) fn head(length: usize, more: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nETag: \"a\"\r\n\
         Content-Length: {length}\r\n{more}\r\n"
    )
}

pub(super) fn lower(head: &str) -> String {
    head.to_ascii_lowercase()
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    digest(&SHA256, bytes).as_ref().to_vec()
}

fn resident_bytes() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Reads a body piece by piece, and hashes it. It begins once `may_read`.
async fn hashed(mut client: Connection, mut may_read: watch::Receiver<bool>) -> Vec<u8> {
    assert!(client.read_head().await.starts_with("HTTP/1.1 200 "));
    may_read.wait_for(|may_read| *may_read).await.unwrap();
    let (mut hash, mut left) = (ring::digest::Context::new(&SHA256), BYTES);
    while left > 0 {
        let piece = client.read_bytes_or_less(left.min(64 * 1024)).await;
        assert!(!piece.is_empty(), "{left} bytes are missing");
        hash.update(&piece);
        left -= piece.len();
    }
    hash.finish().as_ref().to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_readers_of_any_pace_share_one_fetch() {
    let fixture = Fixture::new().await;
    let body = noise(BYTES);
    let expected = sha256(&body);
    let before = resident_bytes();
    let (open, gate) = watch::channel(false);
    let (_keep, at_once) = watch::channel(true);
    let mut readers = Vec::new();
    let mut join = async |count: usize| {
        for _ in 0..count {
            // The first one too.
            let is_stuck = readers.len() % (READERS / STUCK) == 0;
            let may_read = if is_stuck { gate.clone() } else { at_once.clone() };
            readers.push(tokio::spawn(hashed(fixture.asks("GET", "").await, may_read)));
        }
    };
    join(1).await;
    let mut connection = fixture.upstream.next().await;
    connection.send(head(BYTES, "Connection: close\r\n")).await;
    // Some more join after each part of the body, and the last ones after its end.
    for part in body.chunks(BYTES / 4) {
        connection.send(part).await;
        join(READERS / 5).await;
    }
    connection.left().await;
    join(READERS / 5 - 1).await;
    let quick = readers.iter_mut().enumerate();
    let quick = quick.filter(|(number, _)| number % (READERS / STUCK) != 0);
    for digest in join_all(quick.map(|(_, reader)| reader)).await {
        assert!(digest.unwrap() == expected, "a quick reader got other bytes");
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < GROWN_BYTES_MAX, "resident memory grew by {} MiB", grown >> 20);
    readers.retain(|reader| !reader.is_finished());
    assert_eq!(readers.len(), STUCK);
    open.send_replace(true);
    for digest in join_all(readers).await {
        assert!(digest.unwrap() == expected, "a slow reader got other bytes");
    }
    fixture.assert_no_further_request();
    fixture.has_no_files().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_joins_long_after_the_start() {
    let fixture = Fixture::new().await;
    let body = noise(BYTES);
    let (mut first, mut connection) = fixture.begins(&head(BYTES, ""), &body[..BYTES / 2]).await;
    fixture.spooled(BYTES / 2 - 1024 * 1024).await;
    fixture.world.clock.advance(Duration::from_secs(600));
    let mut late = fixture.asks("GET", "").await;
    let answer = lower(&late.read_head().await);
    assert!(answer.contains("cache-status: weir; fwd=bypass; collapsed\r\n"), "{answer}");
    assert!(answer.contains("\r\nage: 600\r\n"), "{answer}");
    assert!(late.read_bytes(BYTES / 2 - 1024 * 1024).await == body[..BYTES / 2 - 1024 * 1024]);
    // A client that asks for a new answer gets one.
    let new = fixture.get_with(&[("cache-control", "no-cache")]);
    let mut another = fixture.upstream.next().await;
    another.send(head(2, "Connection: close\r\n") + "hi").await;
    assert_eq!(new.await.unwrap().body, "hi");
    connection.send(&body[BYTES / 2..]).await;
    let rest = late.read_bytes(BYTES - (BYTES / 2 - 1024 * 1024)).await;
    assert!(rest == body[BYTES / 2 - 1024 * 1024..]);
    assert!(first.read_bytes(BYTES).await == body);
    fixture.assert_no_further_request();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_complete_body_is_joined_for_a_minute_while_it_is_read() {
    let fixture = Fixture::new().await;
    let body = noise(BYTES);
    let close = head(BYTES, "Connection: close\r\n");
    let (mut slow, connection) = fixture.begins(&close, &body).await;
    connection.left().await;
    fixture.world.clock.advance(Duration::from_secs(59));
    assert!(fixture.get().await.unwrap().body == body);
    fixture.assert_no_further_request();
    fixture.world.clock.advance(Duration::from_secs(2));
    let late = fixture.get();
    let mut another = fixture.upstream.next().await;
    another.send(head(2, "Connection: close\r\n") + "hi").await;
    assert_eq!(late.await.unwrap().body, "hi");
    assert!(slow.read_bytes(BYTES).await == body);
    fixture.has_no_files().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_upstream_is_read_at_its_own_pace() {
    let fixture = Fixture::new().await;
    let body = noise(2 * BYTES);
    // Its only reader takes nothing.
    let close = head(2 * BYTES, "Connection: close\r\n");
    let (mut slow, connection) = fixture.begins(&close, &body).await;
    connection.left().await;
    assert!(slow.read_bytes(2 * BYTES).await == body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_goes_on_without_the_reader_that_began_it() {
    let fixture = Fixture::new().await;
    let body = noise(BYTES);
    let (first, mut connection) = fixture.begins(&head(BYTES, ""), &body[..BYTES / 2]).await;
    let mut second = fixture.asks("GET", "").await;
    second.read_head().await;
    drop(first);
    let mut third = fixture.asks("GET", "").await;
    third.read_head().await;
    drop(second);
    connection.send(&body[BYTES / 2..]).await;
    assert!(third.read_bytes(BYTES).await == body);
    fixture.assert_no_further_request();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_break_reaches_every_reader_and_is_forgotten() {
    let fixture = Fixture::new().await;
    let body = noise(BYTES);
    let chunked = "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\
                   Transfer-Encoding: chunked\r\n\r\n";
    let chunk = [format!("{BYTES:x}\r\n").as_bytes(), &body, b"\r\n"].concat();
    let (mut stuck, connection) = fixture.begins(chunked, &chunk).await;
    let mut late = fixture.asks("GET", "").await;
    late.read_head().await;
    let mut http2 = Client::builder(TokioExecutor::new());
    let http2 = http2.http2_only(true).build_http::<Empty<Bytes>>();
    let request = Request::get(format!("http://{}{PATH}", fixture.world.address));
    let request = request.header("authorization", format!("Bearer {KEY}"));
    let stream = http2.request(request.body(Empty::new()).unwrap()).await.unwrap();
    drop(connection);
    assert!(stream.into_body().collect().await.is_err(), "the stream ended as if complete");
    // Two clients still read what came.
    let again = fixture.get();
    let mut another = fixture.upstream.next().await;
    another.send(head(2, "Connection: close\r\n") + "hi").await;
    assert_eq!(again.await.unwrap().body, "hi");
    for client in [&mut late, &mut stuck] {
        let received = client.read_bytes_or_less(2 * BYTES).await;
        assert!(received.len() > BYTES, "what came is passed on: {} bytes", received.len());
        assert!(!received.ends_with(b"0\r\n\r\n"), "the body ended as if complete");
    }
    fixture.has_no_files().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_with_no_store_goes_to_no_file() {
    for (keys, control) in [
        ("", "Cache-Control: no-store\r\n"),
        ("freshness = \"rfc9111\"", "CDN-Cache-Control: no-store\r\n"),
    ] {
        let fixture = Fixture::with_cache(keys).await;
        let body = noise(BYTES);
        let mut client = fixture.asks("GET", "").await;
        let mut connection = fixture.upstream.next().await;
        let answer = [head(BYTES, control).as_bytes(), &body].concat();
        let sending = tokio::spawn(async move { connection.try_send(answer).await });
        assert!(client.read_head().await.starts_with("HTTP/1.1 200 "));
        for part in body.chunks(1024 * 1024) {
            assert!(client.read_bytes(part.len()).await == part);
            assert_eq!(fixture.world.gateway.env.spool_space.figures().bytes, 0);
        }
        assert!(sending.await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_cuts_a_slow_reader_off_and_no_other() {
    for keys in ["spool_max = \"1MiB\"", "spool_max = \"0B\""] {
        let fixture = Fixture::with_cache(keys).await;
        let body = noise(BYTES);
        let mut slow = fixture.asks("GET", "").await;
        let mut connection = fixture.upstream.next().await;
        let mut quick = fixture.asks("GET", "").await;
        fixture.world.all_waiting_for_one_fetch(2).await;
        let answer = [head(BYTES, "Connection: close\r\n").as_bytes(), &body].concat();
        let sending = tokio::spawn(async move { connection.try_send(answer).await });
        quick.read_head().await;
        assert!(quick.read_bytes(BYTES / 2).await == body[..BYTES / 2]);
        // The beginning is gone.
        let late = fixture.get();
        let mut another = fixture.upstream.next().await;
        another.send(head(2, "Connection: close\r\n") + "hi").await;
        assert_eq!(late.await.unwrap().body, "hi", "{keys}");
        assert!(quick.read_bytes(BYTES - BYTES / 2).await == body[BYTES / 2..], "{keys}");
        assert!(sending.await.unwrap());
        assert!(slow.read_head().await.contains("200"));
        let received = slow.read_bytes_or_less(BYTES).await;
        assert!(body.starts_with(&received) && received.len() < BYTES, "{keys}: it looks whole");
        fixture.has_no_files().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_slow_reader_gets_all_without_a_disk() {
    let fixture = Fixture::with_cache("spool_max = \"0B\"").await;
    let body = noise(BYTES);
    let mut slow = fixture.asks("GET", "").await;
    let mut connection = fixture.upstream.next().await;
    let answer = [head(BYTES, "").as_bytes(), &body].concat();
    let sending = tokio::spawn(async move { connection.try_send(answer).await });
    slow.read_head().await;
    assert!(slow.read_bytes(BYTES).await == body && sending.await.unwrap());
}

/// Status, lower-case head, and body of the part of [`PATH`] that these headers name.
pub(super) async fn part(fixture: &Fixture, headers: &str) -> (String, Vec<u8>) {
    let mut client = fixture.asks("GET", headers).await;
    let head = lower(&client.read_head().await);
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    let length = length.and_then(|length| length.parse().ok()).unwrap_or(0);
    let body = client.read_bytes(length).await;
    (head, body)
}

/// Asserts parts and the length of a body that is on its way, complete, or on disk.
pub(super) async fn has_parts(fixture: &Fixture, body: &[u8]) {
    let last = body.len() - 1;
    for (range, begin, end) in [
        ("bytes=0-0", 0, 0),
        ("bytes=1000-1999", 1000, 1999),
        ("bytes=300000-", 300_000, last),
        ("bytes=-100000", body.len() - 100_000, last),
    ] {
        let (head, part) = part(fixture, &format!("Range: {range}\r\n")).await;
        assert!(head.starts_with("http/1.1 206 "), "{range}: {head}");
        let content_range = format!("content-range: bytes {begin}-{end}/{}\r\n", body.len());
        assert!(head.contains(&content_range) && part == body[begin..=end], "{range}: {head}");
    }
    for (headers, status) in [
        (format!("Range: bytes={}-\r\n", body.len()), 416),
        ("Range: bytes=0-1\r\nIf-Range: \"a\"\r\n".to_owned(), 206),
        ("Range: bytes=0-1\r\nIf-Range: \"b\"\r\n".to_owned(), 200),
        ("Range: bytes=0-1,4-5\r\n".to_owned(), 200),
    ] {
        let (head, part) = part(fixture, &headers).await;
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{headers}: {head}");
        assert!(status != 200 || part == body, "{headers}: other bytes");
        assert!(status != 416 || head.contains(&format!("content-range: bytes */{}", body.len())));
    }
    let mut client = fixture.asks("HEAD", "").await;
    let answer = lower(&client.read_head().await);
    assert!(answer.starts_with("http/1.1 200 ") && answer.contains("etag: \"a\"\r\n"), "{answer}");
    assert!(answer.contains(&format!("content-length: {}\r\n", body.len())), "{answer}");
    let mut client = fixture.asks("GET", "If-None-Match: \"a\"\r\n").await;
    assert!(client.read_head().await.starts_with("HTTP/1.1 304 "));
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_and_heads_of_a_body_on_its_way_need_no_request() {
    let fixture = Fixture::new().await;
    let body = noise(BYTES);
    let (mut slow, mut connection) = fixture.begins(&head(BYTES, ""), &body[..BYTES / 2]).await;
    let (answer, first) = part(&fixture, "Range: bytes=5-9\r\n").await;
    assert!(answer.starts_with("http/1.1 206 ") && first == body[5..=9], "{answer}");
    connection.send(&body[BYTES / 2..]).await;
    has_parts(&fixture, &body).await;
    assert!(slow.read_bytes(BYTES).await == body);
    fixture.assert_no_further_request();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_complete_body_of_unknown_length_has_parts_too() {
    let fixture = Fixture::new().await;
    let body = noise(BYTES);
    let chunked = "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nETag: \"a\"\r\n\
                   Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    let end = [format!("{BYTES:x}\r\n").as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
    let (stuck, connection) = fixture.begins(chunked, &end).await;
    connection.left().await;
    // The gateway notes the end after the upstream has seen it.
    let noted = async {
        loop {
            let mut client = fixture.asks("HEAD", "").await;
            if lower(&client.read_head().await).contains("content-length: ") {
                return;
            }
        }
    };
    bounded(noted).await;
    has_parts(&fixture, &body).await;
    fixture.assert_no_further_request();
    drop(stuck);
    fixture.has_no_files().await;
}
