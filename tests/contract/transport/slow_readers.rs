//! Clients that read slowly: a stored body is shared by all of them, what is written to one is
//! bounded, and a client below the floor rate is cut off (SPECIFICATION, "Slow clients").

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::interval;

use crate::support::origin::Origin;
use crate::support::raw::Connection;
use crate::support::{KEY, OTHER_KEY, Setup, World, captured_log, eventually};

const PATH: &str = "/repos/acme/widgets";
const LONG_LIVED: &str = "[[cache.rules]]\nroute = \"/repos/{owner}/{repo}\"\nttl = \"1h\"";
/// The size of the stored body.
const BODY_BYTES: usize = 15 * 1024 * 1024 / 2;
const READERS: usize = 64;
/// A third of the copies that the readers would have; other tests allocate too.
const GROWN_BYTES_MAX: usize = 160 * 1024 * 1024;
/// Hands the connection to a session and has no other effect.
const BY_SESSION: &str = "TE: trailers\r\n";

/// A JSON text of [`BODY_BYTES`] with an upstream URL every 256 bytes, which compresses badly.
fn text(api: &str) -> String {
    let mut text = String::with_capacity(BODY_BYTES + 512);
    let mut noise = 1_u64;
    while text.len() < BODY_BYTES {
        let before = text.len();
        let _ = write!(text, "{{\"url\":\"{api}/repos/acme/widgets/issues/{noise}\",\"title\":\"");
        while text.len() < before + 250 {
            // Xorshift, in digits of base 64.
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            let digits = noise.to_le_bytes().map(|byte| char::from(b'0' + byte % 64));
            text.extend(digits.map(|digit| if digit == '\\' { 'z' } else { digit }));
        }
        text.push_str("\"},");
    }
    format!("[{}]", text.trim_end_matches(','))
}

/// A gateway that has stored the large body, and that body with the upstream's URLs.
struct Fixture {
    world: World,
    text: String,
    upstream: String,
}

impl Fixture {
    async fn new(listen: &str) -> Self {
        Self::with_cache(listen, "").await
    }

    async fn with_cache(listen: &str, cache: &str) -> Self {
        let origin = Origin::start(|request: Request<()>| async move {
            let body = text(&format!("http://{}", request.headers()["host"].to_str().unwrap()));
            let json = "application/json; charset=utf-8";
            Response::builder().header("content-type", json).body(Bytes::from(body)).unwrap()
        })
        .await;
        let setup =
            Setup::new().upstream(origin.url()).listen(listen).cache(cache).config(LONG_LIVED);
        let world = setup.start().await;
        let text = text(&origin.url());
        // The condition leaves out the body, for which a busy machine may take too long.
        let stored = world.get_with(PATH, &[("if-none-match", "*")]).await;
        stored.assert_status(304);
        Self { world, text, upstream: origin.url() }
    }

    /// The body as a client of `base` gets it.
    fn rendered(&self, base: &str) -> String {
        self.text.replace(&self.upstream, base)
    }

    async fn requests(&self, headers: &str) -> Connection {
        self.requests_of(PATH, headers).await
    }

    async fn requests_of(&self, path: &str, headers: &str) -> Connection {
        let mut client = Connection::open(self.world.address).await;
        client.send(request("GET", path, headers).as_bytes()).await;
        client
    }

    async fn all_ended(&self) {
        eventually(|| self.world.gateway.env.active.count() == 0).await;
    }

    fn cut_off(&self) -> u64 {
        self.cut_off_for("slow_client")
    }

    fn cut_off_for(&self, reason: &str) -> u64 {
        let text = self.world.gateway.env.metrics.encode();
        let reason = format!("reason=\"{reason}\"");
        let line = text.lines().find(|line| line.contains(&reason));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_default()
    }
}

fn request(method: &str, path: &str, headers: &str) -> String {
    let host = if headers.contains("Host:") { "" } else { "Host: weir:8080\r\n" };
    format!("{method} {path} HTTP/1.1\r\n{host}Authorization: Bearer {KEY}\r\n{headers}\r\n")
}

fn resident_bytes() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn assert_grown_little(before: usize) {
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < GROWN_BYTES_MAX, "resident memory grew by {} MiB", grown >> 20);
}

fn body_of(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

/// An HTTP/2 client with stream windows of this size.
fn http2(window_bytes: u32) -> Client<HttpConnector, Empty<Bytes>> {
    let mut client = Client::builder(TokioExecutor::new());
    client.http2_only(true).http2_initial_stream_window_size(window_bytes);
    client.http2_initial_connection_window_size(1 << 30).build_http()
}

fn http2_request(world: &World, headers: &[(&str, &str)]) -> Request<Empty<Bytes>> {
    let mut request = Request::get(format!("http://{}{PATH}", world.address));
    for (name, value) in [("authorization", format!("Bearer {KEY}").as_str())].iter().chain(headers)
    {
        request = request.header(*name, *value);
    }
    request.body(Empty::new()).unwrap()
}

#[tokio::test]
async fn slow_readers_share_one_stored_body() {
    let fixture = Fixture::new("").await;
    for headers in ["", BY_SESSION, "Range: bytes=1000-\r\n", "Accept-Encoding: gzip\r\n"] {
        let before = resident_bytes();
        // A form of its own for each: the gateway's address in it is the client's.
        let readers = (0..READERS).map(|number| {
            let host = format!("Host: weir-{number}.internal:8080\r\n");
            let headers =
                if headers.contains("gzip") { host + headers } else { headers.to_owned() };
            let fixture = &fixture;
            async move {
                let mut reader = fixture.requests(&headers).await;
                let head = reader.read_head().await;
                assert!(head.starts_with("HTTP/1.1 20"), "{head}");
                reader
            }
        });
        let readers = join_all(readers).await;
        assert_grown_little(before);
        drop(readers);
        fixture.all_ended().await;
    }
}

#[tokio::test]
async fn streams_without_a_window_share_one_stored_body() {
    let fixture = Fixture::new("").await;
    let (client, before) = (http2(0), resident_bytes());
    let get = || client.request(http2_request(&fixture.world, &[]));
    let answers = join_all((0..READERS).map(|_| get())).await;
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap().status() == 200));
    assert_eq!(fixture.world.gateway.env.active.count(), READERS);
    assert_grown_little(before);
}

/// Each has a body of its own, which the cache drops for the next ones.
#[tokio::test]
async fn bodies_that_slow_readers_alone_keep_are_bounded() {
    let cache = "max_object = \"8MiB\"\nmax_size = \"20MiB\"";
    let fixture = Fixture::with_cache("", cache).await;
    let path = |number: usize| format!("/repos/acme/widgets-{number}");
    for headers in ["", BY_SESSION] {
        let before = fixture.cut_off_for("memory_needed");
        let mut readers = Vec::new();
        for number in 0..6 {
            let mut reader = fixture.requests_of(&path(number), headers).await;
            let head = reader.read_head().await;
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            readers.push(reader);
        }
        eventually(|| fixture.cut_off_for("memory_needed") == before + 4).await;
        let length = fixture.rendered("http://weir:8080").len();
        for (number, mut reader) in readers.into_iter().enumerate() {
            let is_whole = reader.read_bytes_or_less(length).await.len() == length;
            assert_eq!(is_whole, number >= 4, "the oldest four are cut off: {number} {headers}");
        }
        let other = [("authorization", &*format!("Bearer {OTHER_KEY}"))];
        fixture.world.get_with(&path(0), &other).await.assert_status(200);
        fixture.all_ended().await;
    }
}

#[tokio::test]
async fn a_large_stored_body_is_rewritten_for_each_client() {
    let fixture = Fixture::new("").await;
    let (plain, v3) = (fixture.rendered("http://weir:8080"), "/api/v3".to_owned() + PATH);
    for headers in ["", BY_SESSION] {
        let mut client = Connection::open(fixture.world.address).await;
        client.send(request("GET", PATH, headers).as_bytes()).await;
        assert!(body_of(&client.read_answer().await) == plain, "{headers}");
        // The connection goes on.
        client.send(request("GET", &v3, headers).as_bytes()).await;
        let rendered = fixture.rendered("http://weir:8080/api/v3");
        assert!(body_of(&client.read_answer().await) == rendered, "{headers}");
        client.send(request("HEAD", PATH, headers).as_bytes()).await;
        let head = client.read_head().await.to_ascii_lowercase();
        assert!(head.contains(&format!("content-length: {}\r\n", plain.len())), "{head}");
        let last = plain.len() - 1;
        for (asked, begin, end) in [
            ("1000-1999".to_owned(), 1000, 1999),
            (format!("{}-", plain.len() / 3), plain.len() / 3, last),
            ("-100000".to_owned(), plain.len() - 100_000, last),
        ] {
            let range = format!("Range: bytes={asked}\r\n{headers}");
            client.send(request("GET", PATH, &range).as_bytes()).await;
            let part = client.read_answer().await;
            let content_range = format!("content-range: bytes {begin}-{end}/{}", plain.len());
            assert!(part.to_ascii_lowercase().contains(&content_range), "{asked}");
            assert!(body_of(&part) == &plain[begin..=end], "{asked} {headers}");
        }
    }
    let answer = http2(1 << 16).request(http2_request(&fixture.world, &[])).await.unwrap();
    let rendered = fixture.rendered(&format!("http://{}", fixture.world.address));
    assert_eq!(answer.headers()["content-length"], rendered.len().to_string());
    assert!(answer.into_body().collect().await.unwrap().to_bytes() == rendered);
}

/// Reads little again and again until the gateway closes; true if the body was complete.
async fn trickle(mut reader: Connection) -> bool {
    reader.read_head().await;
    let (mut pace, mut read) = (interval(Duration::from_millis(50)), 0);
    loop {
        pace.tick().await;
        match reader.read_bytes_or_less(16 * 1024).await.len() {
            0 => return read >= BODY_BYTES - 16 * 1024,
            bytes => read += bytes,
        }
    }
}

#[tokio::test]
async fn a_reader_below_the_floor_rate_is_cut_off() {
    let fixture = Fixture::new("body_timeout = \"1s\"\nanswer_rate_min = \"2MiB\"").await;
    for (pairs, headers) in ["", BY_SESSION].into_iter().enumerate() {
        let reader = fixture.requests(headers).await;
        assert!(!trickle(reader).await, "a third of a MiB each second is too little");
        fixture.all_ended().await;
        assert_eq!(fixture.cut_off(), 2 * pairs as u64 + 1);
        // One that takes nothing.
        let mut reader = fixture.requests(headers).await;
        reader.read_head().await;
        fixture.all_ended().await;
        assert_eq!(fixture.cut_off(), 2 * pairs as u64 + 2);
    }
}

#[tokio::test]
async fn a_stream_below_the_floor_rate_is_reset() {
    let fixture = Fixture::new("body_timeout = \"1s\"\nanswer_rate_min = \"2MiB\"").await;
    let client = http2(16 * 1024);
    let answer = client.request(http2_request(&fixture.world, &[])).await.unwrap();
    let (mut body, mut pace) = (answer.into_body(), interval(Duration::from_millis(50)));
    let reset = loop {
        pace.tick().await;
        match body.frame().await {
            Some(Ok(_)) => {}
            end => break end,
        }
    };
    assert!(reset.is_some_and(|end| end.is_err()), "the stream must not end as if complete");
    fixture.all_ended().await;
    assert_eq!(fixture.cut_off(), 1);
    let blocked = http2(0).request(http2_request(&fixture.world, &[])).await.unwrap();
    fixture.all_ended().await;
    assert_eq!(fixture.cut_off(), 2);
    assert!(blocked.into_body().collect().await.is_err());
    // The connection goes on.
    let answer = client.request(http2_request(&fixture.world, &[("if-none-match", "*")])).await;
    assert_eq!(answer.unwrap().status(), 304);
}

#[tokio::test]
async fn the_log_has_the_bytes_that_a_slow_client_was_sent() {
    let fixture = Fixture::new("body_timeout = \"1s\"\nanswer_rate_min = \"2MiB\"").await;
    captured_log::begin();
    for headers in ["", BY_SESSION] {
        let mut reader = fixture.requests(headers).await;
        reader.read_head().await;
        fixture.all_ended().await;
    }
    let client = http2(64 * 1024);
    let _stuck = client.request(http2_request(&fixture.world, &[])).await.unwrap();
    fixture.all_ended().await;
    let text = captured_log::own();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let ended: Vec<_> = lines.filter(|line| line["message"] == "request").collect();
    assert_eq!(ended.len(), 3, "{text}");
    for line in ended {
        assert_eq!(line["refusal"], "slow_client", "{line}");
        let sent = line["bytes_out"].as_u64().unwrap();
        assert!((16 * 1024..BODY_BYTES as u64).contains(&sent), "{line}");
    }
}

#[tokio::test]
async fn a_slow_reader_above_the_floor_gets_its_whole_answer() {
    let fixture = Fixture::new("body_timeout = \"10s\"\nanswer_rate_min = \"4KiB\"").await;
    for headers in ["", BY_SESSION] {
        let mut reader = fixture.requests(headers).await;
        reader.read_head().await;
        let (mut pace, mut read) = (interval(Duration::from_millis(20)), Vec::new());
        while read.len() < 512 * 1024 {
            pace.tick().await;
            read.extend(reader.read_bytes(16 * 1024).await);
        }
        let rendered = fixture.rendered("http://weir:8080");
        read.extend(reader.read_bytes(rendered.len() - read.len()).await);
        assert!(read == rendered.as_bytes(), "{headers}");
    }
    assert_eq!(fixture.cut_off(), 0);
}
