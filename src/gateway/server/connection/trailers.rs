//! Trailers of HTTP/2 requests: pseudo-headers in them are refused (RFC 9113 §8.1).
//!
//! The framework ignores a pseudo-header in trailers, but refuses one that follows a regular field.
//! So an empty regular field goes before the fields of all trailers. The framework then resets the
//! stream, and its body never comes to its end. Left out: everything else about frames, which the
//! framework checks.

use bytes::{Buf, BytesMut};

use crate::gateway::server::connection::floods::Frame;
use crate::gateway::server::handler::PREFACE;

/// RFC 9113 §4.1, §6.2.
const HEAD_BYTES: usize = 9;
const HEADERS: u8 = 1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// The field `x` without a value, as a literal that no table remembers (RFC 7541 §6.2.2).
const FIELD: [u8; 4] = [0, 1, b'x', 0];
const FIELD_BYTES: u32 = 4;

/// Rewrites the frames of a client on their way to the framework.
pub struct TrailerMarker {
    next: Next,
    /// The last stream that the client opened; a new one has a higher number (RFC 9113 §5.1.1).
    last_stream: u32,
}

/// The next bytes on the connection.
enum Next {
    Head,
    /// This many bytes need no attention.
    Payload(usize),
    /// The payload of trailers, whose first bytes are not fields yet.
    Trailers {
        before_fields: usize,
        left: usize,
    },
    /// The rest of a size update: it precedes all fields (RFC 7541 §4.2).
    SizeUpdate(usize),
}

impl Default for TrailerMarker {
    fn default() -> Self {
        Self { next: Next::Payload(PREFACE.len()), last_stream: 0 }
    }
}

impl TrailerMarker {
    /// Moves bytes from `read` to `out`. The beginning of a frame stays until it is complete.
    /// `admit` sees the head of each frame; its error ends the passing.
    pub fn pass<E>(
        &mut self,
        read: &mut BytesMut,
        out: &mut BytesMut,
        mut admit: impl FnMut(Frame) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            self.next = match self.next {
                Next::Head => match read.split_at_checked(HEAD_BYTES) {
                    Some((head, _)) => {
                        admit(self.frame(head))?;
                        let next = self.head(head, out);
                        read.advance(HEAD_BYTES);
                        next
                    }
                    None => return Ok(()),
                },
                Next::Payload(0) => Next::Head,
                Next::Payload(left) => match pass_up_to(left, read, out) {
                    0 => return Ok(()),
                    passed => Next::Payload(left - passed),
                },
                Next::Trailers { before_fields: 0, left } => match read.first() {
                    Some(first) if left > 0 && first & 0xe0 == 0x20 => {
                        let is_whole = first & 0x1f != 0x1f;
                        pass_up_to(1, read, out);
                        if is_whole {
                            Next::Trailers { before_fields: 0, left: left - 1 }
                        } else {
                            Next::SizeUpdate(left - 1)
                        }
                    }
                    None if left > 0 => return Ok(()),
                    _ => {
                        out.extend_from_slice(&FIELD);
                        Next::Payload(left)
                    }
                },
                Next::Trailers { before_fields, left } => {
                    match pass_up_to(before_fields, read, out) {
                        0 => return Ok(()),
                        passed => Next::Trailers {
                            before_fields: before_fields - passed,
                            left: left - passed,
                        },
                    }
                }
                Next::SizeUpdate(0) => Next::Trailers { before_fields: 0, left: 0 },
                Next::SizeUpdate(left) => match read.first().map(|byte| byte & 0x80) {
                    None => return Ok(()),
                    Some(more) => {
                        pass_up_to(1, read, out);
                        if more == 0 {
                            Next::Trailers { before_fields: 0, left: left - 1 }
                        } else {
                            Next::SizeUpdate(left - 1)
                        }
                    }
                },
            };
        }
    }

    /// The last stream that the client opened.
    pub fn last_stream(&self) -> u32 {
        self.last_stream
    }

    fn frame(&self, head: &[u8]) -> Frame {
        let (length, kind) = (number(&head[..3]), head[3]);
        Frame { kind, length, opens_stream: kind == HEADERS && stream_of(head) > self.last_stream }
    }

    /// Passes the head of a frame, longer by the field if it begins trailers.
    fn head(&mut self, head: &[u8], out: &mut BytesMut) -> Next {
        let (length, kind, flags) = (number(&head[..3]), head[3], head[4]);
        let stream = stream_of(head);
        let payload = length as usize;
        if kind != HEADERS || stream > self.last_stream {
            if kind == HEADERS {
                self.last_stream = stream;
            }
            out.extend_from_slice(head);
            return Next::Payload(payload);
        }
        // A length beyond three bytes is refused by the framework, as any above its limit.
        let longer = (length + FIELD_BYTES).min(0x00ff_ffff);
        out.extend_from_slice(&longer.to_be_bytes()[1..]);
        out.extend_from_slice(&head[3..]);
        let padded = usize::from(flags & PADDED != 0);
        let priority = if flags & PRIORITY == 0 { 0 } else { 5 };
        Next::Trailers { before_fields: (padded + priority).min(payload), left: payload }
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

/// The stream of a frame's head. The highest bit is reserved.
fn stream_of(head: &[u8]) -> u32 {
    number(&head[5..]) & 0x7fff_ffff
}

/// Moves at most `bytes`. Returns how many there were.
fn pass_up_to(bytes: usize, read: &mut BytesMut, out: &mut BytesMut) -> usize {
    let there = bytes.min(read.len());
    out.extend_from_slice(&read[..there]);
    read.advance(there);
    there
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
    }

    /// The bytes that the framework gets, when they come in pieces of this size.
    fn passed(bytes: &[u8], piece: usize) -> Vec<u8> {
        let (mut marker, mut read, mut out) =
            (TrailerMarker::default(), BytesMut::new(), BytesMut::new());
        for piece in bytes.chunks(piece) {
            read.extend_from_slice(piece);
            marker.pass(&mut read, &mut out, |_| Ok::<_, ()>(())).unwrap();
        }
        assert!(read.is_empty());
        out.to_vec()
    }

    #[test]
    fn trailers_begin_with_a_regular_field_and_the_rest_stays() {
        let field = |before: &[u8], after: &[u8]| [before, &FIELD, after].concat();
        let before = [
            PREFACE.to_vec(),
            frame(4, 0, 0, &[]),
            frame(HEADERS, 4, 1, &[0x82]),
            frame(0, 0, 1, b"body"),
            frame(HEADERS, 4 | PRIORITY, 3, &[0, 0, 0, 0, 1, 0x82]),
        ]
        .concat();
        for (flags, trailers, marked) in [
            (5, vec![0x84], field(&[], &[0x84])),
            (5, vec![], field(&[], &[])),
            (5 | PADDED, vec![1, 0x84, 0], field(&[1], &[0x84, 0])),
            (
                5 | PADDED | PRIORITY,
                vec![1, 0, 0, 0, 0, 9, 0x84, 0],
                field(&[1, 0, 0, 0, 0, 9], &[0x84, 0]),
            ),
            (5, vec![0x20, 0x3f, 0xe1, 0x1f, 0x84], field(&[0x20, 0x3f, 0xe1, 0x1f], &[0x84])),
            (5, vec![0x20], field(&[0x20], &[])),
        ] {
            let after = frame(0, 1, 3, b"end");
            let whole = |trailers: &[u8]| {
                [before.as_slice(), &frame(HEADERS, flags, 1, trailers), &after].concat()
            };
            let (sent, expected) = (whole(&trailers), whole(&marked));
            for piece in [1, 2, 7, 1_000] {
                assert_eq!(passed(&sent, piece), expected, "{trailers:?} {piece}");
            }
        }
    }
}
