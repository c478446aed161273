//! Chunked bodies: the decoder and the finder of the next request agree about the end, however the
//! bytes arrive, and with an independent parser of chunk sizes.

use bytes::Bytes;

use super::pieces::plans;
use crate::gateway::http::chunks::ChunkReader;
use crate::gateway::request::validate::BodyFraming;
use crate::gateway::server::connection::unread::{Unread, UnreadBody};

/// The result of reading a body.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    data: Vec<u8>,
    /// The bytes of the body, if it is whole.
    end: Option<usize>,
}

/// All readers agree about data and end, and an encoded body is decoded unchanged.
pub fn chunked_body(input: &[u8]) {
    let whole = decode(&[input]);
    for plan in plans(input) {
        assert_eq!(decode(&plan), whole, "the result depends on the pieces");
        assert_eq!(unread_end(&plan), whole.as_ref().and_then(|read| read.end), "two ends");
    }
    for plan in plans(input).iter().rev().take(2) {
        let encoded = encode(plan);
        let next = [&encoded[..], b"GET / HTTP/1.1\r\n"].concat();
        let expected = Read { data: input.to_vec(), end: Some(encoded.len()) };
        assert_eq!(decode(&[&next]), Some(expected), "a body is not decoded as it was encoded");
    }
    if let Some(Read { data, end: Some(end) }) = whole {
        assert_eq!(reference(&input[..end]), Some((data, end)), "a lenient parser disagrees");
        assert!(matches!(decode(&[&input[..end - 1]]), Some(Read { end: None, .. })));
    }
}

fn decode(pieces: &[&[u8]]) -> Option<Read> {
    let mut reader = ChunkReader::default();
    let (mut data, mut bytes) = (Vec::new(), 0);
    for piece in pieces {
        let (decoded, rest) = reader.push(Bytes::copy_from_slice(piece)).ok()?;
        data.extend_from_slice(&decoded);
        bytes += piece.len() - rest.len();
        if reader.is_done() {
            return Some(Read { data, end: Some(bytes) });
        }
        assert!(rest.is_empty(), "bytes after the end of a body that goes on");
    }
    Some(Read { data, end: None })
}

/// The end of the body by the reader that keeps the bytes of the next request back.
fn unread_end(pieces: &[&[u8]]) -> Option<usize> {
    const HEAD: &[u8] = b"head";
    let mut unread = Unread::of(HEAD.len(), Some(BodyFraming::Chunked));
    assert_eq!(unread.take(HEAD), HEAD.len());
    let mut bytes = 0;
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() && !unread.is_over() {
            let taken = unread.take(rest);
            assert!(taken > 0, "no progress");
            bytes += taken;
            rest = &rest[taken..];
        }
    }
    let is_chunked = matches!(unread.body, UnreadBody::Chunks(_));
    (is_chunked && unread.is_over()).then_some(bytes)
}

fn encode(pieces: &[&[u8]]) -> Vec<u8> {
    let mut encoded = Vec::new();
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        encoded.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        encoded.extend_from_slice(piece);
        encoded.extend_from_slice(b"\r\n");
    }
    encoded.extend_from_slice(b"0\r\n\r\n");
    encoded
}

/// The body by a lenient parser of chunk sizes. Trailers end at the first empty line.
fn reference(body: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut data, mut rest) = (Vec::new(), body);
    loop {
        let Ok(httparse::Status::Complete((begin, size))) = httparse::parse_chunk_size(rest) else {
            return None;
        };
        rest = rest.get(begin..)?;
        if size == 0 {
            break;
        }
        let size = usize::try_from(size).ok()?;
        data.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size..)?.strip_prefix(b"\r\n")?;
    }
    let trailers =
        if rest.starts_with(b"\r\n") { 2 } else { memchr::memmem::find(rest, b"\r\n\r\n")? + 4 };
    Some((data, body.len() - rest.len() + trailers))
}
