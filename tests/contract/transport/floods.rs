//! Floods of HTTP/2 frames end their connection; honest clients of HTTP/2 are served
//! (SPECIFICATION, "Connections").

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout;
use weir::clock::machine_instant;

use super::trailers::{field, frame, head};
use crate::support::origin::Origin;
use crate::support::raw::Connection;
use crate::support::{KEY, Reply, Setup, World, captured_log, eventually};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const REPOSITORY: &str = "/repos/acme/widgets";
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// The most frames of a flood. A connection ends long before.
const FRAMES_MAX: u32 = 100_000;

/// A client that begins with the preface and its settings.
async fn begun(world: &World) -> Connection {
    let mut connection = Connection::open(world.address).await;
    connection.send(&[PREFACE, &frame(0, SETTINGS, 0, b"")].concat()).await;
    connection
}

/// A stream's frame, with a number above 127.
fn frame_of(stream: u32, kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = frame(0, kind, flags, payload);
    frame[5..9].copy_from_slice(&stream.to_be_bytes());
    frame
}

/// Sends the frames of a flood until the gateway ends the connection.
async fn flood(world: &World, frames: impl Fn(u32) -> Vec<u8>) {
    let mut connection = begun(world).await;
    for round in 0..FRAMES_MAX {
        if !connection.send_unless_full(&frames(round)).await {
            // Written bytes may have met the end as a reset.
            let _ = connection.read_to_close().await;
            return;
        }
    }
    panic!("the flood goes on");
}

fn ended_for(world: &World, reason: &str) -> bool {
    let text = world.gateway.env.metrics.encode();
    let line = format!("weir_connections_ended_total{{reason=\"{reason}\"}} 1");
    text.lines().any(|counted| counted == line)
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_of_control_frames_end_their_connection() {
    captured_log::begin();
    for (reason, frames) in [
        ("http2_ping", frame(0, PING, 0, &[0; 8])),
        ("http2_settings", frame(0, SETTINGS, 0, b"")),
        ("http2_window_update", frame(0, WINDOW_UPDATE, 0, &[0, 0, 0, 1])),
        ("http2_priority", frame(1, PRIORITY, 0, &[0, 0, 0, 0, 9])),
        ("http2_other_frames", frame(0, 0xfa, 0, b"")),
    ] {
        let world = Setup::new().start().await;
        flood(&world, |_| frames.repeat(10)).await;
        eventually(|| ended_for(&world, reason)).await;
        world.get(REPOSITORY).await.assert_status(200);
        assert!(captured_log::all().contains(&format!("\"reason\":\"{reason}\"")), "{reason}");
    }
}

/// The codec resets the stream at the second one, and ignores the others.
#[tokio::test(flavor = "multi_thread")]
async fn headers_of_one_stream_without_end_end_their_connection() {
    let world = Setup::new().start().await;
    let request = head("POST", "/repos/acme/widgets/issues");
    flood(&world, |round| {
        // A new one each time would be a reset each time.
        let head = if round == 0 { &request[..] } else { b"" };
        let more = frame_of(1, HEADERS, END_HEADERS, b"").repeat(10);
        [frame_of(1, HEADERS, END_HEADERS, head), more].concat()
    })
    .await;
    eventually(|| ended_for(&world, "http2_headers")).await;
    world.get(REPOSITORY).await.assert_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn rapid_resets_end_their_connection() {
    let world = Setup::new().start().await;
    let request = head("GET", REPOSITORY);
    flood(&world, |round| {
        let stream = 2 * round + 1;
        let open = frame_of(stream, HEADERS, END_STREAM | END_HEADERS, &request);
        [open, frame_of(stream, RESET, 0, &[0, 0, 0, 8])].concat()
    })
    .await;
    // The codec ends those whose streams it has not handed over yet, with the same words.
    eventually(|| world.gateway.env.active.count() == 0).await;
    world.get(REPOSITORY).await.assert_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn resets_of_streams_under_way_end_their_connection() {
    let world = Setup::new().start().await;
    let mut connection = begun(&world).await;
    // Its body never comes, so it is under way until the reset.
    let request = head("POST", "/repos/acme/widgets/issues");
    let active = || world.gateway.env.active.count();
    for stream in (1..).step_by(2) {
        assert!(stream < 4_000, "the flood goes on");
        connection.send_unless_full(&frame_of(stream, HEADERS, END_HEADERS, &request)).await;
        eventually(|| active() == 1 || ended_for(&world, "http2_reset")).await;
        if ended_for(&world, "http2_reset") {
            break;
        }
        connection.send_unless_full(&frame_of(stream, RESET, 0, &[0, 0, 0, 8])).await;
        eventually(|| active() == 0).await;
    }
}

/// The codec bounds heads.
#[tokio::test(flavor = "multi_thread")]
async fn a_head_of_endless_continuations_ends_its_connection() {
    let world = Setup::new().start().await;
    let mut connection = begun(&world).await;
    connection.send(&frame(1, HEADERS, END_STREAM, &head("GET", REPOSITORY))).await;
    let more = frame(1, CONTINUATION, 0, &field("x", &"y".repeat(200)));
    let mut sent = 0;
    while connection.send_unless_full(&more).await {
        sent += 1;
        // Far more than the buffers between the two hold.
        assert!(sent < 500_000, "the head goes on");
    }
    world.get(REPOSITORY).await.assert_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_flood_is_a_goaway() {
    let world = Setup::new().start().await;
    let mut connection = begun(&world).await;
    // One at a time: unread bytes would reset the connection, and take the frame away.
    let last = timeout(Duration::from_secs(20), async {
        loop {
            let head = connection.read_bytes(9).await;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let payload = connection.read_bytes(length as usize).await;
            match head[3] {
                GOAWAY => return payload,
                SETTINGS if head[4] == 0 => connection.send(&frame(0, SETTINGS, 1, b"")).await,
                _ => connection.send(&frame(0, PING, 0, &[0; 8])).await,
            }
        }
    });
    // ENHANCE_YOUR_CALM, after no stream.
    assert_eq!(last.await.expect("it comes")[..8], [0, 0, 0, 0, 0, 0, 0, 0xb]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_flooded_stays_open_for_a_while() {
    let world = Setup::new().start().await;
    let mut connection = begun(&world).await;
    connection.send(&frame(0, PING, 0, &[0; 8]).repeat(1_000)).await;
    eventually(|| ended_for(&world, "http2_ping")).await;
    let ended_at = machine_instant();
    connection.read_to_close().await;
    // Half a second, of which this task may have noticed a part late.
    assert!(ended_at.elapsed() > Duration::from_millis(250));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_small_windows_reads_large_answers() {
    const BYTES: usize = 3_000_000;
    let origin = Origin::start(|_| async move {
        let body = Bytes::from(format!("\"{}\"", "x".repeat(BYTES - 2)));
        Response::builder().header("content-type", "application/json").body(body).unwrap()
    })
    .await;
    let world = Setup::new().upstream(origin.url()).start().await;
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .http2_initial_stream_window_size(4 * 1024)
        .http2_initial_connection_window_size(16 * 1024)
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(Duration::from_millis(100))
        .build_http();
    // All at once: an answer that waits for the others to be read may be cut off as unread.
    let read = async || {
        let answer = client.request(request(&world, REPOSITORY)).await.unwrap();
        answer.into_body().collect().await.unwrap().to_bytes().len()
    };
    assert_eq!(join_all((0..4).map(|_| read())).await, [BYTES; 4]);
    assert!(!world.gateway.env.metrics.encode().contains("http2_"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_cancels_now_and_then_is_served() {
    let world = Setup::new().start().await;
    let client: Client<_, Full<Bytes>> =
        Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    for _ in 0..600 {
        // Dropped while it is under way.
        let cancelled = client.request(request(&world, REPOSITORY));
        let _ = timeout(Duration::from_micros(1), cancelled).await;
        let answer = client.request(request(&world, REPOSITORY)).await.unwrap();
        Reply::read(answer).await.assert_status(200);
    }
    assert!(!world.gateway.env.metrics.encode().contains("http2_"));
}

fn request(world: &World, path: &str) -> Request<Full<Bytes>> {
    Request::get(format!("http://{}{path}", world.address))
        .header("authorization", format!("Bearer {KEY}"))
        .body(Full::default())
        .unwrap()
}
