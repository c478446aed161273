//! Trailers of HTTP/2 requests: pseudo-headers in them are refused, others pass (RFC 9113 §8.1).

use crate::support::raw::Connection;
use crate::support::{KEY, Setup};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;

/// Both flags of a frame that is a whole block of trailers.
const WHOLE: u8 = END_STREAM | END_HEADERS;

pub fn frame(stream: u8, kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

/// A field as a literal that no table remembers (RFC 7541 §6.2.2).
pub fn field(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| [u8::try_from(text.len()).unwrap()];
    [&[0], &length(name)[..], name.as_bytes(), &length(value)[..], value.as_bytes()].concat()
}

/// The end of the first stream: the kind of its frame, with the error code of a reset.
async fn end_of_stream(connection: &mut Connection) -> (u8, Vec<u8>) {
    loop {
        let head = connection.read_bytes(9).await;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let payload = connection.read_bytes(length as usize).await;
        if head[8] == 1 && head[3] == RESET || head[3] == GOAWAY {
            // A fault in an unfinished block of fields may end the connection (§5.4.1).
            return (RESET, payload[payload.len() - 4..].to_vec());
        }
        if head[8] == 1 && matches!(head[3], DATA | HEADERS) && head[4] & END_STREAM != 0 {
            return (head[3], Vec::new());
        }
    }
}

pub fn head(method: &str, path: &str) -> Vec<u8> {
    let authorization = format!("Bearer {KEY}");
    let fields = [
        (":method", method),
        (":scheme", "http"),
        (":path", path),
        (":authority", "weir"),
        ("authorization", &authorization),
        ("content-type", "application/json"),
    ];
    fields.map(|(name, value)| field(name, value)).concat()
}

/// The ways to send trailers on the first stream.
fn forms(trailers: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let (first, rest) = trailers.split_at(1.min(trailers.len()));
    let other = head("GET", "/repos/acme/widgets");
    vec![
        vec![frame(1, HEADERS, WHOLE, trailers)],
        vec![frame(1, HEADERS, WHOLE | PADDED, &[&[2], trailers, &[0, 0]].concat())],
        vec![frame(1, HEADERS, WHOLE | PRIORITY, &[&[0, 0, 0, 0, 15], trailers].concat())],
        vec![frame(1, DATA, 0, b""), frame(1, DATA, 0, b""), frame(1, HEADERS, WHOLE, trailers)],
        vec![frame(1, HEADERS, END_STREAM, first), frame(1, CONTINUATION, END_HEADERS, rest)],
        vec![frame(1, HEADERS, END_STREAM, b""), frame(1, CONTINUATION, END_HEADERS, trailers)],
        // Between frames of another stream.
        vec![
            frame(3, HEADERS, END_HEADERS, &other),
            frame(1, DATA, 0, b""),
            frame(1, HEADERS, WHOLE, trailers),
            frame(3, HEADERS, WHOLE, &field("checksum", "2")),
        ],
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn pseudo_headers_in_http2_trailers_are_refused() {
    let world = Setup::new().unspaced_writes().start().await;
    for (trailers, is_refused) in [
        (field("checksum", "1"), false),
        (Vec::new(), false),
        (field(":path", "/user"), true),
        ([field("checksum", "1"), field(":path", "/user")].concat(), true),
        // Indexed: `:method: GET`, and `:path` with another value.
        (vec![0x82], true),
        ([&[0x04, 5][..], b"/user"].concat(), true),
    ] {
        for (form, frames) in forms(&trailers).into_iter().enumerate() {
            for piece in [usize::MAX, 1] {
                let mut connection = Connection::open(world.address).await;
                let before = world.upstream_requests().len();
                let begin = [
                    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
                    frame(0, SETTINGS, 0, &[]),
                    frame(1, HEADERS, END_HEADERS, &head("POST", "/repos/acme/widgets/issues")),
                    frame(1, DATA, 0, b"{\"title\":\"with trailers\"}"),
                ];
                let bytes = [begin.concat(), frames.concat()].concat();
                for piece in bytes.chunks(piece) {
                    connection.send(piece).await;
                }
                let (kind, payload) = end_of_stream(&mut connection).await;
                let posts = world.upstream_requests()[before..]
                    .iter()
                    .filter(|entry| entry.method == "POST")
                    .count();
                let case = format!("{trailers:?} as {form}, {piece}");
                if is_refused {
                    // PROTOCOL_ERROR.
                    assert_eq!((kind, payload, posts), (RESET, vec![0, 0, 0, 1], 0), "{case}");
                } else {
                    assert_eq!((kind, posts), (DATA, 1), "{case}");
                }
            }
        }
    }
}
