//! Heads of requests are read within bounds: of bytes, of time, and up to the first byte that no
//! request has there (SPECIFICATION, "Well-formed requests").

use serde_json::{Value, json};

use crate::support::raw::Connection;
use crate::support::{KEY, Setup, World};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Kinds of HTTP/2 frames, and a flag of theirs (RFC 9113 §6).
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// Everything that the gateway sends before it closes, after it got these bytes and no more.
async fn answer_to(world: &World, bytes: &[u8]) -> String {
    let mut connection = Connection::open(world.address).await;
    connection.send(bytes).await;
    connection.read_to_close().await
}

/// Asserts one whole error answer, in the API's form, with the end of its connection.
#[track_caller]
fn assert_last_answer(answer: &str, status: u16) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let head = head.to_ascii_lowercase();
    assert!(head.starts_with(&format!("http/1.1 {status} ")), "{answer:?}");
    for line in ["\r\nconnection: close", "\r\ndate: ", "\r\ncontent-type: application/json"] {
        assert!(head.contains(line), "no {line:?}: {answer:?}");
    }
    assert!(head.contains(&format!("\r\ncontent-length: {}", body.len())), "{answer:?}");
    let body: Value = serde_json::from_str(body).unwrap();
    assert!(body["message"].is_string() && body["documentation_url"].is_string(), "{body}");
}

fn head_of(bytes: usize) -> Vec<u8> {
    let mut head = format!(
        "GET /repos/acme/widgets HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n"
    );
    while head.len() < bytes {
        head.push_str("X-Fill: ");
        head.push_str(&"x".repeat(1_000));
        head.push_str("\r\n");
    }
    head.truncate(bytes);
    head.into_bytes()
}

#[tokio::test]
async fn an_unfinished_head_is_refused_at_its_limit() {
    let world = Setup::new().start().await;
    // The deadline of a head is far away, and nothing more comes.
    for bytes in [32 * 1024, 40_000, 1_000_000] {
        assert_last_answer(&answer_to(&world, &head_of(bytes)).await, 431);
    }
    for target in [8 * 1024 + 1, 40_000] {
        let line = format!("GET {:a<target$}", "/");
        assert_last_answer(&answer_to(&world, line.as_bytes()).await, 414);
    }
    let fields = "X: 1\r\n".repeat(101);
    let many = format!("GET / HTTP/1.1\r\n{fields}");
    assert_last_answer(&answer_to(&world, many.as_bytes()).await, 431);
    assert!(world.upstream_requests().is_empty());
}

#[tokio::test]
async fn a_head_of_the_longest_size_is_served() {
    let world = Setup::new().start().await;
    let end = b"\r\nX-Last: 1\r\n\r\n";
    for (more, status) in [(0, 200), (1, 431)] {
        let mut head = head_of(32 * 1024 + more - end.len());
        head.extend_from_slice(end);
        let mut connection = Connection::open(world.address).await;
        connection.send(&head).await;
        let answer = connection.read_answer().await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}

/// RFC 9112 §2.2: some clients send an empty line after a body.
#[tokio::test]
async fn an_empty_line_before_a_request_is_ignored() {
    let world = Setup::new().start().await;
    let get = format!("GET /meta HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n\r\n");
    let issue = json!({ "title": "with an empty line" }).to_string();
    let post = format!(
        "POST /repos/acme/widgets/issues HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n\
         Content-Length: {}\r\n\r\n{issue}",
        issue.len()
    );
    let mut connection = Connection::open(world.address).await;
    for piece in ["\r", "\n", &get[..1], &get[1..]] {
        connection.send(piece.as_bytes()).await;
    }
    assert!(connection.read_answer().await.starts_with("HTTP/1.1 200 "));
    // Pipelined, the second after a body.
    connection.send(format!("\r\n{post}\r\n{get}\r\n{get}").as_bytes()).await;
    for status in [201, 200, 200] {
        let answer = connection.read_answer().await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    for nonsense in ["\r\n\r\n", "\r\r", "\n", "\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        assert_last_answer(&answer_to(&world, nonsense.as_bytes()).await, 400);
    }
}

#[tokio::test]
async fn nonsense_is_refused_at_its_first_impossible_byte() {
    let world = Setup::new().start().await;
    // None ends a line or a head; the deadline of a head is far away.
    for begin in [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice(),
        b"\x80\x2e\x01",
        b"\0",
        b"\rG",
        b"\n",
        b" GET",
        b"SSH-2.0-OpenSSH_9.9\r",
        b"EHLO a",
        b"GET\t",
        b"GET  ",
        b"GET x",
        b"GET httpx",
        b"GET /\x01",
        b"GET /\xc3",
        b"GET /\r",
        b"GET / H\n",
        b"GET / HTTP/2",
        b"GET / HTTP/1.1 ",
        b"GET / HTTP/1.1\n",
        b"GET / HTTP/1.1\r\r",
        b"GET / HTTP/1.1\r\n ",
        b"GET / HTTP/1.1\r\nHost\t",
        b"GET / HTTP/1.1\r\nHost :",
        b"GET / HTTP/1.1\r\n:",
        b"GET / HTTP/1.1\r\nHost: a\n",
        b"GET / HTTP/1.1\r\nHost: a\0",
        b"GET / HTTP/1.1\r\nHost: a\x7f",
        b"GET / HTTP/1.1\r\nHost: a\rb",
        b"GET / HTTP/1.1\r\nHost: a\r\n\t",
        b"GET / HTTP/1.1\r\nHost: a\r\n\rx",
        b"PRI * HTTP/2.0\r\n\r\nSX",
        b"PRI * HTTP/3",
    ] {
        let answer = answer_to(&world, begin).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{:?}: {answer:?}", begin.escape_ascii());
        assert_last_answer(&answer, 400);
    }
    assert!(world.upstream_requests().is_empty());
}

#[tokio::test]
async fn a_trickled_head_has_one_deadline() {
    let world = Setup::new().listen("header_timeout = \"300ms\"").start().await;
    for served_before in [false, true] {
        let mut connection = Connection::open(world.address).await;
        if served_before {
            connection.send(&[&head_of(90), b"\r\n\r\n".as_slice()].concat()).await;
            connection.read_answer().await;
        }
        connection.send(b"GET /repos/acme/widgets HTTP/1.1\r\nX: ").await;
        let answer = loop {
            connection.send_unless_full(b"x").await;
            if let Some(answer) = connection.read_unless_open().await {
                break answer;
            }
        };
        assert_last_answer(&answer, 408);
    }
}

#[tokio::test]
async fn an_http2_preface_in_pieces_is_recognized() {
    let world = Setup::new().start().await;
    for split in 1..PREFACE.len() {
        let mut connection = Connection::open(world.address).await;
        connection.send(&PREFACE[..split]).await;
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        connection.send(&[&PREFACE[split..], &frame(SETTINGS, 0, 0, &[])].concat()).await;
        let (kind, _) = read_frame(&mut connection).await.unwrap();
        assert_eq!(kind, SETTINGS, "split at {split}");
    }
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

/// The kind and the payload of the next frame; `None` if the connection ended.
async fn read_frame(connection: &mut Connection) -> Option<(u8, Vec<u8>)> {
    let head = connection.read_bytes_or_less(9).await;
    let (length, rest) = head.split_at_checked(3)?;
    let length = length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    Some((*rest.first()?, connection.read_bytes_or_less(length).await))
}

/// A literal field that no table remembers (RFC 7541 §6.2.2).
fn field(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| {
        let length = text.len();
        let prefix = if length < 127 {
            vec![u8::try_from(length).unwrap()]
        } else {
            let (low, high) = ((length - 127) % 128, (length - 127) / 128);
            vec![127, u8::try_from(low | 128).unwrap(), u8::try_from(high).unwrap()]
        };
        [prefix.as_slice(), text.as_bytes()].concat()
    };
    [vec![0], text(name), text(value)].concat()
}

#[tokio::test]
async fn http2_header_lists_are_bounded() {
    let world = Setup::new().start().await;
    let fill = field("x-fill", &"x".repeat(8_000));
    // A list without an end: many small pieces, and fewer large ones.
    for piece in [field("x", ""), fill.clone()] {
        let mut connection = Connection::open(world.address).await;
        connection.send(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await;
        let (kind, settings) = read_frame(&mut connection).await.unwrap();
        let most = settings.chunks(6).find(|setting| setting[..2] == [0, 6]).unwrap();
        assert_eq!((kind, &most[2..]), (SETTINGS, (32 * 1024_u32).to_be_bytes().as_slice()));
        connection.send(&frame(HEADERS, 0, 1, &field("x", ""))).await;
        while connection.send_unless_full(&frame(CONTINUATION, 0, 1, &piece)).await {}
        let mut is_ended = false;
        while let Some((kind, _)) = read_frame(&mut connection).await {
            is_ended |= kind == GOAWAY;
        }
        assert!(is_ended, "no GOAWAY for pieces of {} bytes", piece.len());
    }
    // A whole list above the limit is answered, and its connection goes on.
    let mut connection = Connection::open(world.address).await;
    connection.send(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await;
    let start = [[0x82, 0x86, 0x84].as_slice(), &field(":authority", "weir")].concat();
    connection.send(&frame(HEADERS, 1, 1, &start)).await;
    for number in 0..5 {
        let flags = if number == 4 { END_HEADERS } else { 0 };
        connection.send(&frame(CONTINUATION, flags, 1, &fill)).await;
    }
    loop {
        let (kind, payload) = read_frame(&mut connection).await.unwrap();
        assert_ne!(kind, GOAWAY);
        if kind == HEADERS {
            // 431 in the code of RFC 7541, appendix B.
            assert!(payload.windows(3).any(|text| text == [0x69, 0x90, 0xff]), "{payload:02x?}");
            break;
        }
    }
    assert!(world.upstream_requests().is_empty());
}
