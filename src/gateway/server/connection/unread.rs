//! The bytes of a request that its session has not read yet: the framework never gets a byte of the
//! next request.

use crate::gateway::http::chunks::ChunkReader;
use crate::gateway::request::validate::BodyFraming;

#[derive(Debug)]
pub struct Unread {
    /// A read of the head never returns bytes of the body, so the rest of that is known exactly.
    head_bytes: usize,
    pub body: UnreadBody,
}

#[derive(Debug)]
pub enum UnreadBody {
    Bytes(u64),
    Chunks(ChunkReader),
    /// All that comes: HTTP/2, or a body whose end cannot be found.
    Endless,
}

impl Unread {
    /// The limit of a connection that does not carry single requests.
    pub const ALL: Self = Self { head_bytes: 0, body: UnreadBody::Endless };

    /// A request with a head of this length; `None` for an ambiguous framing, without an end.
    pub fn of(head_bytes: usize, framing: Option<BodyFraming>) -> Self {
        let body = match framing {
            Some(BodyFraming::None) => UnreadBody::Bytes(0),
            Some(BodyFraming::Length(length)) => UnreadBody::Bytes(length),
            Some(BodyFraming::Chunked) => UnreadBody::Chunks(ChunkReader::default()),
            None => UnreadBody::Endless,
        };
        Self { head_bytes, body }
    }

    pub fn is_over(&self) -> bool {
        self.head_bytes == 0
            && match &self.body {
                UnreadBody::Bytes(left) => *left == 0,
                UnreadBody::Chunks(chunks) => chunks.is_done(),
                UnreadBody::Endless => false,
            }
    }

    /// Number of bytes that certainly belong to the request, whatever they are.
    pub(super) fn rest_bytes_min(&self) -> usize {
        match &self.body {
            _ if self.head_bytes > 0 => self.head_bytes,
            UnreadBody::Bytes(left) => usize::try_from(*left).unwrap_or(usize::MAX),
            UnreadBody::Chunks(_) => 0,
            UnreadBody::Endless => usize::MAX,
        }
    }

    /// Takes the bytes of the head or of the body from the beginning of `bytes`; returns how many
    /// they are.
    pub fn take(&mut self, bytes: &[u8]) -> usize {
        if self.head_bytes > 0 {
            let here = bytes.len().min(self.head_bytes);
            self.head_bytes -= here;
            return here;
        }
        match &mut self.body {
            UnreadBody::Endless => bytes.len(),
            UnreadBody::Bytes(left) => {
                let here = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= here as u64;
                here
            }
            UnreadBody::Chunks(chunks) => chunks.skip(bytes).unwrap_or_else(|_| {
                self.body = UnreadBody::Endless;
                bytes.len()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that a session gets of a connection which brings `text` in pieces of this size.
    fn taken(text: &str, piece_bytes: usize, mut unread: Unread) -> (usize, bool) {
        let mut count = 0;
        for piece in text.as_bytes().chunks(piece_bytes) {
            let mut rest = piece;
            while !rest.is_empty() && !unread.is_over() {
                let here = unread.take(rest);
                count += here;
                rest = &rest[here..];
            }
        }
        (count, unread.is_over())
    }

    #[test]
    fn a_request_ends_where_its_framing_ends_it() {
        let chunks = "HEAD5\r\nhello\r\n0\r\nA: 1\r\n\r\nGET";
        for piece_bytes in 1..30 {
            for (text, framing, expected) in [
                ("HEADGET", Some(BodyFraming::None), (4, true)),
                ("HEADhelloGET", Some(BodyFraming::Length(5)), (9, true)),
                ("HEADhel", Some(BodyFraming::Length(5)), (7, false)),
                (chunks, Some(BodyFraming::Chunked), (chunks.len() - 3, true)),
                ("HEAD5\nhello\r\n0\r\n\r\nGET", Some(BodyFraming::Chunked), (21, false)),
                ("HEADhelloGET", None, (12, false)),
            ] {
                let unread = Unread::of(4, framing);
                assert_eq!(taken(text, piece_bytes, unread), expected, "{text:?} {piece_bytes}");
            }
        }
    }
}
