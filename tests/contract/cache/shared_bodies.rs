//! Shared bodies, too large to buffer: one fetch for concurrent readers, streamed with bounded
//! memory (SPECIFICATION D1). `stored_answers.rs` and `variants.rs` cover large bodies of a single
//! client.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use weir::decision::QuotaLedger;

use crate::support::raw::Connection;
use crate::support::scripted::{ScriptedConnection, ScriptedUpstream};
use crate::support::{KEY, Reply, Setup, World, config, eventually};

const LABELS: &str = "/repos/acme/widgets/labels";
const MILESTONES: &str = "/repos/acme/widgets/milestones";
const ALONE: &str = "weir; fwd=bypass";
const SHARED: &str = "weir; fwd=bypass; collapsed";
/// The validator of the upstream's response where its identity matters.
const FIRST: &str = "ETag: \"a\"\r\n";
/// More than the operating system buffers for two connections.
const VAST_BYTES: usize = 32 * 1024 * 1024;

/// A gateway that buffers no body, and its upstream.
struct Fixture {
    world: Arc<World>,
    upstream: ScriptedUpstream,
}

impl Fixture {
    async fn new() -> Self {
        Self::with_cache("").await
    }

    async fn with_cache(keys: &str) -> Self {
        let upstream = ScriptedUpstream::start().await;
        // Long timeouts: a busy machine must not look like a stalled peer.
        let setup = Setup::new()
            .upstream(upstream.url())
            .upstream_keys("response_timeout = \"5m\"")
            .listen("body_timeout = \"5m\"");
        let setup = setup.manual_clock().cache("max_object = \"1KiB\"").cache(keys);
        Self { world: Arc::new(setup.start().await), upstream }
    }

    fn spawn_get(&self, headers: &'static [(&'static str, &'static str)]) -> JoinHandle<Reply> {
        let world = Arc::clone(&self.world);
        tokio::spawn(async move { world.get_with(LABELS, headers).await })
    }

    /// This many concurrent readers, and the one upstream connection.
    async fn spawn_readers(&self, count: usize) -> (Vec<JoinHandle<Reply>>, ScriptedConnection) {
        let readers = (0..count).map(|_| self.spawn_get(&[])).collect();
        let connection = self.upstream.next().await;
        self.world.all_waiting_for_one_fetch(count).await;
        (readers, connection)
    }

    async fn connects(&self, method: &str, headers: &str) -> Connection {
        self.asks(method, LABELS, headers).await
    }

    async fn asks(&self, method: &str, path: &str, headers: &str) -> Connection {
        let mut client = Connection::open(self.world.address).await;
        client.send(format!("{method} {path} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n{headers}\r\n").as_bytes()).await;
        client
    }

    fn assert_no_second_request(&self) {
        self.upstream.assert_not_asked_again();
    }

    fn open_leases(&self) -> usize {
        let admissions = self.world.gateway.dispatcher.admissions();
        admissions.with_ledger(|ledger, _| ledger.open_leases())
    }

    /// The slots in use by the ledger.
    fn concurrency(&self) -> u64 {
        let snapshot =
            self.world.gateway.dispatcher.admissions().with_ledger(QuotaLedger::snapshot);
        let limits = snapshot
            .iter()
            .flat_map(|account| &account.secondary)
            .filter(|limit| limit.limit.name() == "concurrency");
        limits.map(|limit| u64::from(limit.in_use)).sum()
    }
}

/// Text without repetition.
fn text(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 16);
    for number in 0_u64.. {
        if text.len() >= bytes {
            break;
        }
        // Writing to a string does not fail.
        let _ = write!(text, "{:x}.", number.wrapping_mul(0x9e37_79b9));
    }
    text.truncate(bytes);
    text
}

fn head(length: usize, more: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n{more}\r\n")
}

/// Asserts that the leader and its followers received this body.
fn are_shared(answers: &[Reply], body: &str) {
    for answer in answers {
        answer.assert_status(200);
        assert!(answer.body == body.as_bytes(), "{} of {} bytes", answer.body.len(), body.len());
    }
    let received =
        |status: &str| answers.iter().filter(|answer| answer.cache_status() == status).count();
    assert_eq!((received(ALONE), received(SHARED)), (1, answers.len() - 1));
}

async fn all(readers: Vec<JoinHandle<Reply>>) -> Vec<Reply> {
    futures_util::future::try_join_all(readers).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_readers_share_one_fetch_of_any_length() {
    let body = text(3 * 1024 * 1024);
    for is_chunked in [false, true] {
        let fixture = Fixture::new().await;
        let (readers, mut connection) = fixture.spawn_readers(8).await;
        if is_chunked {
            connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
            for piece in body.as_bytes().chunks(10_000) {
                connection
                    .send([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat())
                    .await;
            }
            connection.send("0\r\n\r\n").await;
        } else {
            connection.send(head(body.len(), "") + &body).await;
        }
        are_shared(&all(readers).await, &body);
        fixture.assert_no_second_request();
        eventually(|| fixture.concurrency() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_joins_while_the_body_is_read() {
    let fixture = Fixture::new().await;
    let body = text(2 * 1024 * 1024);
    let (early, rest) = body.split_at(100_000);
    let mut first = fixture.connects("GET", "").await;
    let mut connection = fixture.upstream.next().await;
    connection.send(head(body.len(), "") + early).await;
    assert!(first.read_head().await.to_lowercase().contains("cache-status: weir; fwd=bypass\r\n"));
    let mut second = fixture.connects("GET", "").await;
    assert!(
        second
            .read_head()
            .await
            .to_lowercase()
            .contains("cache-status: weir; fwd=bypass; collapsed\r\n")
    );
    fixture.assert_no_second_request();
    let ((), first, second) = tokio::join!(
        connection.send(rest),
        first.read_bytes(body.len()),
        second.read_bytes(body.len())
    );
    assert!(first == body.as_bytes() && second == body.as_bytes());
    eventually(|| fixture.concurrency() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_fetches_when_the_start_is_gone() {
    // Without a file, the beginning is gone once the first reader has more than the window.
    let fixture = Fixture::with_cache("spool_max = \"0B\"").await;
    let body = text(4 * 1024 * 1024);
    let (early, rest) = body.split_at(2 * 1024 * 1024);
    let mut first = fixture.connects("GET", "").await;
    let mut connection = fixture.upstream.next().await;
    let reading = async {
        first.read_head().await;
        // A buffer may hold back the last bytes.
        first.read_bytes(early.len() / 2).await
    };
    let ((), begun) = tokio::join!(connection.send(head(body.len(), "") + early), reading);
    let late = fixture.spawn_get(&[]);
    let mut another = fixture.upstream.next().await;
    another.send(head(2, "") + "hi").await;
    assert_eq!(late.await.unwrap().body, "hi");
    let ((), ended) =
        tokio::join!(connection.send(rest), first.read_bytes(body.len() - begun.len()));
    assert!([begun, ended].concat() == body.as_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_outlives_its_first_reader_and_ends_with_the_last() {
    let fixture = Fixture::new().await;
    let body = text(2 * 1024 * 1024);
    let (early, rest) = body.split_at(100_000);
    let mut first = fixture.connects("GET", "").await;
    let mut connection = fixture.upstream.next().await;
    let mut second = fixture.connects("GET", "").await;
    fixture.world.all_waiting_for_one_fetch(2).await;
    connection.send(head(body.len(), "") + early).await;
    first.read_head().await;
    second.read_head().await;
    drop(first);
    let ((), received) = tokio::join!(connection.send(rest), second.read_bytes(body.len()));
    assert!(received == body.as_bytes());
    fixture.assert_no_second_request();

    // The last reader may still be there, and others may then join the first body.
    let (mut first, mut second) =
        (fixture.asks("GET", MILESTONES, "").await, fixture.asks("GET", MILESTONES, "").await);
    fixture.upstream.next_reusing(&mut connection).await;
    fixture.world.all_waiting_for_one_fetch(2).await;
    // The body does not end before the gateway notices that its readers have left.
    connection.send(head(1 << 40, "") + early).await;
    first.read_head().await;
    second.read_head().await;
    drop((first, second));
    while connection.try_send(rest).await {}
    connection.left().await;
    eventually(|| fixture.open_leases() == 0).await;
    assert_eq!(fixture.concurrency(), 1, "the upstream may not have noticed");
    fixture.world.clock.advance(Duration::from_secs(10));
    assert_eq!(fixture.concurrency(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_body_is_truncated_for_every_reader() {
    let fixture = Fixture::new().await;
    let body = text(100_000);
    let (mut first, mut second) =
        (fixture.connects("GET", "").await, fixture.connects("GET", "").await);
    let mut connection = fixture.upstream.next().await;
    fixture.world.all_waiting_for_one_fetch(2).await;
    connection.send(head(200_000, "") + &body).await;
    drop(connection);
    for client in [&mut first, &mut second] {
        let received = client.read_to_close().await;
        let (head, begun) = received.split_once("\r\n\r\n").unwrap();
        assert!(
            head.to_lowercase().contains("content-length: 200000") && begun == body,
            "{head} and {} bytes",
            begun.len()
        );
    }
    fixture.assert_no_second_request();
    eventually(|| fixture.concurrency() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_request_delays_no_reader() {
    let fixture = Fixture::new().await;
    let body = text(2 * 1024 * 1024);
    let mut bodiless = [
        fixture.connects("HEAD", "").await,
        fixture.connects("GET", "If-None-Match: \"a\"\r\n").await,
    ];
    let whole = fixture.spawn_get(&[]);
    let part = fixture.spawn_get(&[("range", "bytes=0-1")]);
    let mut connection = fixture.upstream.next().await;
    fixture.world.all_waiting_for_one_fetch(4).await;
    connection.send(head(body.len(), "ETag: \"a\"\r\n") + &body).await;
    for (client, status) in bodiless.iter_mut().zip(["200", "304"]) {
        assert!(client.read_head().await.starts_with(&format!("HTTP/1.1 {status} ")));
    }
    let (whole, part) = (whole.await.unwrap(), part.await.unwrap());
    assert!(whole.status == 200 && whole.body == body.as_bytes());
    assert!(part.status == 206 && part.body == body.as_bytes()[..2]);
    fixture.assert_no_second_request();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_client_gets_its_own_urls() {
    let fixture = Fixture::new().await;
    let hosts = ["http://one:1", "http://two:2"];
    let mut clients = Vec::new();
    for host in hosts {
        let mut client = Connection::open(fixture.world.address).await;
        let host = host.strip_prefix("http://").unwrap();
        let request = format!(
            "GET {LABELS} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n\r\n"
        );
        client.send(request.as_bytes()).await;
        clients.push(client);
    }
    let mut connection = fixture.upstream.next().await;
    fixture.world.all_waiting_for_one_fetch(2).await;
    let item = format!("{{\"url\":\"{}/repos/acme/widgets\"}}", fixture.upstream.url());
    let body = format!("[{}]", vec![item; 100].join(","));
    connection
        .send(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await;
    for (mut client, host) in clients.into_iter().zip(hosts) {
        let received = client.read_to_close().await;
        assert_eq!(
            (received.matches(host).count(), received.matches(&fixture.upstream.url()).count()),
            (100, 0),
            "{received}"
        );
    }
    fixture.assert_no_second_request();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_for_one_requester_is_fetched_by_each() {
    for header in
        ["Connection: close\r\nCache-Control: no-store\r\n", "Connection: close\r\nVary: *\r\n"]
    {
        let fixture = Fixture::new().await;
        let body = text(10_000);
        let (readers, mut connection) = fixture.spawn_readers(2).await;
        connection.send(head(body.len(), header) + &body).await;
        let mut other = fixture.upstream.next().await;
        other.send(head(body.len(), header) + &body).await;
        for answer in all(readers).await {
            assert_eq!((answer.cache_status(), answer.body.len()), (ALONE, body.len()), "{header}");
        }
    }
}

/// A reader that takes nothing until another one has everything that the upstream sends: the first
/// `sent` bytes. Returns what it receives in the end.
async fn left_behind(fixture: &Fixture, body: &str, sent: usize) -> Vec<u8> {
    let mut slow = fixture.connects("GET", "").await;
    let mut connection = fixture.upstream.next().await;
    let mut fast = fixture.connects("GET", "").await;
    fixture.world.all_waiting_for_one_fetch(2).await;
    let answer = head(body.len(), FIRST) + &body[..sent];
    let sending = tokio::spawn(async move { connection.try_send(answer).await });
    fast.read_head().await;
    let received = fast.read_bytes_or_less(body.len()).await;
    assert!(received == body.as_bytes()[..sent], "{} bytes", received.len());
    assert!(sending.await.unwrap());
    slow.read_head().await;
    slow.read_bytes_or_less(body.len()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_gets_the_rest_of_the_one_fetch() {
    let fixture = Fixture::new().await;
    let body = text(VAST_BYTES);
    let received = left_behind(&fixture, &body, body.len()).await;
    assert!(received == body.as_bytes(), "{} bytes", received.len());
    fixture.assert_no_second_request();
    eventually(|| fixture.concurrency() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_body_is_truncated_for_a_slow_reader() {
    let fixture = Fixture::new().await;
    let body = text(VAST_BYTES);
    let received = left_behind(&fixture, &body, VAST_BYTES - 1).await;
    assert!(received == body.as_bytes()[..VAST_BYTES - 1], "{} bytes", received.len());
    fixture.assert_no_second_request();
    eventually(|| fixture.concurrency() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_of_json_gets_the_rest_without_secrets() {
    let fixture = Fixture::new().await;
    let json = |secret: &str, text: &str| {
        format!("{{\"temp_clone_token\":\"{secret}\",\"url\":\"none\",\"text\":\"{text}\"}}")
    };
    let text = text(VAST_BYTES / 2);
    let (body, blanked) = (json("of the first token", &text), json("", &text));
    // Without chunks, so that the body is what follows the head.
    let mut slow = Connection::open(fixture.world.address).await;
    let request =
        format!("GET {LABELS} HTTP/1.0\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n\r\n");
    slow.send(request.as_bytes()).await;
    let mut connection = fixture.upstream.next().await;
    let fast = fixture.spawn_get(&[]);
    fixture.world.all_waiting_for_one_fetch(2).await;
    let length = body.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    let sending = tokio::spawn(async move { connection.try_send(head + &body).await });
    let fast = fast.await.unwrap();
    assert!(fast.body == blanked.as_bytes(), "{} bytes", fast.body.len());
    assert!(sending.await.unwrap());
    let received = slow.read_to_close().await;
    let (_, received) = received.split_once("\r\n\r\n").unwrap();
    assert!(received == blanked, "{} bytes", received.len());
    fixture.assert_no_second_request();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_is_cut_off_where_no_file_may_have_the_body() {
    // Secrets in encoded JSON cannot be blanked. A client's `no-store` holds for what it joins.
    let encoded = "Content-Type: application/json\r\nContent-Encoding: x-own\r\n";
    for (mode, request, response) in [
        (config::RFC9111, "", encoded),
        ("", "Cache-Control: no-store\r\n", "Content-Type: text/plain\r\n"),
    ] {
        let fixture = Fixture::with_cache(mode).await;
        let body = text(VAST_BYTES);
        let mut slow = fixture.connects("GET", "").await;
        let mut connection = fixture.upstream.next().await;
        let mut fast = fixture.connects("GET", request).await;
        fixture.world.all_waiting_for_one_fetch(2).await;
        let answer =
            format!("HTTP/1.1 200 OK\r\n{response}Content-Length: {}\r\n\r\n{body}", body.len());
        let sending = tokio::spawn(async move { connection.try_send(answer).await });
        fast.read_head().await;
        let received = fast.read_bytes_or_less(body.len()).await;
        assert!(received == body.as_bytes(), "{response}: {} bytes", received.len());
        assert!(sending.await.unwrap());
        slow.read_head().await;
        let received = slow.read_bytes_or_less(body.len()).await;
        assert!(body.as_bytes().starts_with(&received), "{response}: other bytes");
        assert!(received.len() < body.len(), "{response}: the body was kept for a slow reader");
        fixture.assert_no_second_request();
    }
}
