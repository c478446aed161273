//! Hits over HTTP/2, which are answered before a task exists. They equal those over HTTP/1.1.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use h2::client::{Builder, SendRequest};
use http::{HeaderMap, Request, Response, StatusCode};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::trailers::{frame, head};
use crate::support::origin::Origin;
use crate::support::raw::Connection;
use crate::support::{KEY, OTHER_KEY, Setup, World, bounded, eventually};

const REPOSITORY: &str = "/repos/acme/widgets";
const ISSUES: &str = "/repos/acme/widgets/issues?per_page=2";
const MALFORMED: &str = "/repos/acme/widgets?a=%01";
/// A window that no answer fits into.
const SMALL_WINDOW: u32 = 1_000;
/// The usual one (RFC 9113 §6.5.2).
const WINDOW: u32 = 65_535;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Status, header lines without what differs by the protocol, and body.
type Parts = (StatusCode, BTreeMap<String, String>, String);

/// A connection to the gateway.
struct Client {
    requests: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
    host: String,
}

impl Client {
    async fn open(world: &World, window_bytes: u32) -> Self {
        let stream = TcpStream::connect(world.address).await.unwrap();
        let mut builder = Builder::new();
        builder.initial_window_size(window_bytes);
        let (requests, connection) = builder.handshake(stream).await.unwrap();
        Self { requests, connection: tokio::spawn(connection), host: world.address.to_string() }
    }

    /// Sends a request with the key of `ci`, unless the headers have another credential.
    async fn asks(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Response<h2::RecvStream> {
        let host = headers.iter().find(|(name, _)| *name == "host").map(|(_, host)| *host);
        let host = host.unwrap_or(&self.host);
        let mut request = Request::builder().method(method).uri(format!("http://{host}{path}"));
        let own = [("authorization", format!("Bearer {KEY}")), ("x-request-id", "same".into())];
        for (name, value) in &own {
            if !headers.iter().any(|(other, _)| other == name) {
                request = request.header(*name, value);
            }
        }
        for (name, value) in headers.iter().filter(|(name, _)| *name != "host") {
            request = request.header(*name, *value);
        }
        let mut requests = bounded(self.requests.clone().ready()).await.unwrap();
        let (answer, _) = requests.send_request(request.body(()).unwrap(), true).unwrap();
        bounded(answer).await.unwrap()
    }

    async fn parts(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Parts {
        let (head, mut body) = self.asks(method, path, headers).await.into_parts();
        let mut text = Vec::new();
        while let Some(piece) = bounded(body.data()).await {
            let piece = piece.unwrap();
            body.flow_control().release_capacity(piece.len()).unwrap();
            text.extend_from_slice(&piece);
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        (head.status, lines(&head.headers), text)
    }
}

fn lines(headers: &HeaderMap) -> BTreeMap<String, String> {
    let kept = headers.iter().filter(|(name, _)| !["date", "connection"].contains(&name.as_str()));
    let mut lines = BTreeMap::<String, String>::new();
    for (name, value) in kept {
        let all = lines.entry(name.to_string()).or_default();
        all.push_str(&String::from_utf8_lossy(value.as_bytes()));
        all.push('\n');
    }
    lines
}

/// A world with stored answers of some age.
async fn filled() -> World {
    let routes = ["/repos/{owner}/{repo}", "/repos/{owner}/{repo}/issues", "/user"];
    let setup = Setup::new().manual_clock();
    let setup = routes.into_iter().fold(setup, |setup, route| setup.cache_ttl(route, "1h"));
    let world = setup.start().await;
    for path in [REPOSITORY, ISSUES, "/user"] {
        world.get(path).await.assert_status(200);
    }
    world.advance_both(Duration::from_secs(7));
    world
}

/// The same request over HTTP/1.1.
async fn by_http1(world: &World, method: &str, path: &str, headers: &[(&str, &str)]) -> Parts {
    let headers: Vec<_> = headers.iter().copied().chain([("x-request-id", "same")]).collect();
    let answer = world.send(method.parse().unwrap(), path, &headers, "").await;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    (answer.status, lines(&answer.headers), text)
}

#[tokio::test]
async fn a_hit_over_http2_equals_one_over_http1() {
    let world = filled().await;
    let client = Client::open(&world, WINDOW).await;
    let etag = world.get(REPOSITORY).await.header("etag").unwrap().to_owned();
    let mut hits = 0;
    for path in [REPOSITORY, ISSUES, "/user", "/api/v3/repos/acme/widgets", "//repos/acme/widgets"]
    {
        for method in ["GET", "HEAD"] {
            for headers in [
                &[][..],
                &[("if-none-match", &*etag)],
                &[("if-none-match", "\"x\"")],
                &[("if-modified-since", "Thu, 01 Jan 2099 00:00:00 GMT")],
                &[("range", "bytes=0-9")],
                &[("range", "bytes=99999999-")],
                &[("accept-encoding", "gzip")],
                &[("accept", "application/vnd.github.raw+json")],
                &[("if-match", "\"x\"")],
                &[("cache-control", "only-if-cached")],
            ] {
                by_http1(&world, method, path, headers).await;
                let before = world.upstream_requests().len();
                let other = by_http1(&world, method, path, headers).await;
                let answer = client.parts(method, path, headers).await;
                // A fetched answer differs in its cost.
                if world.upstream_requests().len() == before {
                    assert_eq!(answer, other, "{method} {path} {headers:?}");
                }
                let status = answer.1.get("cache-status");
                hits += usize::from(status.is_some_and(|status| status.contains("hit")));
            }
        }
    }
    assert!(hits > 50, "{hits} hits were compared");
}

#[tokio::test]
async fn earlier_streams_of_a_connection_change_no_answer() {
    let world = filled().await;
    // A key of the right length that differs in its last letter.
    let last = if KEY.ends_with('0') { '1' } else { '0' };
    let [own, other, wrong] = [KEY, OTHER_KEY, &format!("{}{last}", &KEY[..KEY.len() - 1])]
        .map(|key| format!("Bearer {key}"));
    let heads: [&[(&str, &str)]; 6] = [
        &[("authorization", &own)],
        &[("authorization", &other)],
        &[("authorization", &wrong)],
        &[("authorization", &own), ("accept", "*/*")],
        &[("authorization", &own), ("if-none-match", "*")],
        &[("authorization", &own), ("host", "other.example")],
    ];
    let mut fresh = Vec::new();
    for head in heads {
        fresh.push(Client::open(&world, WINDOW).await.parts("GET", REPOSITORY, head).await);
    }
    assert!(
        fresh[0].2.contains(&world.address.to_string()) && fresh[5].2.contains("other.example")
    );
    assert_eq!(fresh[2].0, 401);
    for (first, before) in heads.into_iter().enumerate() {
        for (second, head) in heads.into_iter().enumerate() {
            let client = Client::open(&world, WINDOW).await;
            assert_eq!(client.parts("GET", REPOSITORY, before).await, fresh[first]);
            for _ in 0..2 {
                let answer = client.parts("GET", REPOSITORY, head).await;
                assert_eq!(answer, fresh[second], "{head:?} after {before:?}");
            }
        }
    }
}

#[tokio::test]
async fn many_hits_at_once_are_all_answered() {
    let world = filled().await;
    let client = Client::open(&world, WINDOW).await;
    let refused = client.parts("GET", MALFORMED, &[]).await;
    let alone = client.parts("GET", REPOSITORY, &[]).await;
    let paths = [REPOSITORY, MALFORMED];
    let all = join_all((0..200).map(|number| client.parts("GET", paths[number % 2], &[]))).await;
    for (number, answer) in all.iter().enumerate() {
        assert_eq!(answer, [&alone, &refused][number % 2], "{number}");
    }
}

#[tokio::test]
async fn a_hit_that_no_window_holds_is_sent_as_the_window_opens() {
    let world = filled().await;
    let alone = Client::open(&world, WINDOW).await.parts("GET", REPOSITORY, &[]).await;
    let client = Client::open(&world, SMALL_WINDOW).await;
    for answer in join_all((0..20).map(|_| client.parts("GET", REPOSITORY, &[]))).await {
        assert_eq!(answer, alone);
    }
    // A client that reads nothing gets as much as it has room for.
    let mut body = client.asks("GET", REPOSITORY, &[]).await.into_body();
    let first = bounded(body.data()).await.unwrap().unwrap();
    assert_eq!(first.len(), SMALL_WINDOW as usize);
    assert_eq!(world.gateway.env.active.count(), 1, "its answer is under way");
    drop((first, body));
    eventually(|| world.gateway.env.active.count() == 0).await;
}

#[tokio::test]
async fn a_reload_is_in_force_on_open_connections() {
    let world = filled().await;
    let client = Client::open(&world, WINDOW).await;
    assert_eq!(client.parts("GET", REPOSITORY, &[]).await.0, 200);
    world.reload(|text| text.replace("name = \"ci\"", "name = \"ci\"\nallow = [\"GET /user\"]"));
    assert_eq!(client.parts("GET", REPOSITORY, &[]).await.0, 403);
    assert_eq!(client.parts("GET", "/user", &[]).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_ends_with_a_farewell() {
    let world = Setup::new().listen("idle_timeout = \"1s\"").start().await;
    let gate = world.close_gate("GET", REPOSITORY);
    let busy = Client::open(&world, WINDOW).await;
    let (answer, ()) = tokio::join!(busy.parts("GET", REPOSITORY, &[]), async {
        world.held(gate, 1).await;
        let idle = Client::open(&world, WINDOW).await;
        // GOAWAY without an error, and then the end.
        bounded(idle.connection).await.unwrap().unwrap();
        world.open_gate(gate);
    });
    assert_eq!(answer.0, 200);
    bounded(busy.connection).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_long_answer_takes_a_task_of_its_own() {
    const BYTES: usize = 300_000;
    let origin = Origin::start(|_| async move {
        let body = Bytes::from(format!("\"{}\"", "x".repeat(BYTES - 2)));
        Response::builder().header("content-type", "application/json").body(body).unwrap()
    })
    .await;
    let setup = Setup::new().upstream(origin.url()).cache_ttl("/repos/{owner}/{repo}", "1h");
    let world = setup.start().await;
    let client = Client::open(&world, WINDOW).await;
    for status in ["weir; fwd=uri-miss", "weir; hit"] {
        let answer = client.parts("GET", REPOSITORY, &[]).await;
        assert!(answer.1["cache-status"].starts_with(status), "{:?}", answer.1["cache-status"]);
        assert_eq!(answer.2.len(), BYTES);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_takes_none_of_its_hits_is_ended() {
    const STREAMS: u32 = 250;
    let setup = Setup::new().listen("body_timeout = \"1s\"");
    let world = setup.cache_ttl("/repos/{owner}/{repo}", "1h").start().await;
    world.get(REPOSITORY).await.assert_status(200);
    let mut connection = Connection::open(world.address).await;
    // Windows for all answers, and none of them is read.
    let windows = [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        &frame(0, SETTINGS, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]),
        &frame(0, WINDOW_UPDATE, 0, &[0x7f, 0, 0, 0]),
    ];
    connection.send(&windows.concat()).await;
    for number in 0..STREAMS {
        let mut request = frame(0, HEADERS, END_STREAM | END_HEADERS, &head("GET", REPOSITORY));
        request[5..9].copy_from_slice(&(2 * number + 1).to_be_bytes());
        connection.send(&request).await;
    }
    let is_ended = || world.gateway.env.metrics.encode().contains("reason=\"slow_client\"} 1");
    eventually(is_ended).await;
    eventually(|| world.gateway.env.active.count() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_before_the_body_resets_no_stream() {
    let world = Setup::new().start().await;
    let client = Client::open(&world, WINDOW).await;
    let request = Request::post(format!("http://{}{REPOSITORY}/issues", client.host))
        .header("authorization", "Bearer wrong")
        .body(())
        .unwrap();
    let mut requests = bounded(client.requests.clone().ready()).await.unwrap();
    let (answer, mut body) = requests.send_request(request, false).unwrap();
    let mut refused = bounded(answer).await.unwrap();
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    while bounded(refused.body_mut().data()).await.is_some() {}
    // A reset would have come before this answer.
    assert_eq!(client.parts("GET", REPOSITORY, &[]).await.0, StatusCode::OK);
    body.send_data(Bytes::from_static(b"{}"), true).unwrap();
    // More than the rest that is taken.
    let request = Request::post(format!("http://{}{REPOSITORY}/issues", client.host))
        .header("authorization", "Bearer wrong")
        .header("content-length", "1000000")
        .body(())
        .unwrap();
    let mut requests = bounded(client.requests.clone().ready()).await.unwrap();
    let (_answer, mut long) = requests.send_request(request, false).unwrap();
    let reset = bounded(std::future::poll_fn(|context| long.poll_reset(context))).await;
    assert_eq!(reset.unwrap(), h2::Reason::NO_ERROR);
}
