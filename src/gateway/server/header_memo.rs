//! What a connection's last request said beside its request line. Bots say the same in each, and
//! what is said again byte for byte need not be read, checked and identified again.
//!
//! Only the header lines are compared; the request line is read and checked each time (`hit.rs`,
//! `intake.rs`).

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use subtle::ConstantTimeEq;

use crate::gateway::request::clients::{Client, KEY_HEADER};

/// The most header lines that are read here; ordinary clients send about ten.
const LINES_MAX: usize = 32;
/// The longest header lines that are kept with a connection while it is idle. Ours: ordinary ones
/// are a tenth of it, and there may be thousands of connections.
const KEPT_BYTES_MAX: usize = 4 * 1024;
/// Headers about the connection, or a body: whoever sends one is served by the session.
const NOT_HERE: [&str; 6] =
    ["content-length", "transfer-encoding", "expect", "upgrade", "te", "trailer"];
/// Headers whose values are compared in constant time.
const SECRETS: [&str; 4] = ["authorization", "proxy-authorization", "cookie", KEY_HEADER];

/// Header lines as they were read, with the empty one that ends the head.
pub(super) struct Lines {
    bytes: Bytes,
    /// Where in them credentials stand, in order.
    secrets: Vec<Range<usize>>,
    pub(super) headers: Arc<HeaderMap>,
}

/// Lines that an allowed request said, and what was found out about them.
pub(super) struct HeaderMemo {
    lines: Lines,
    pub(super) known: Arc<KnownHeaders>,
}

/// What follows from header lines.
pub(super) struct KnownHeaders {
    /// The one `Host`.
    pub(super) host: String,
    /// Whose key they carry.
    pub(super) client: Arc<Client>,
    /// What of them goes upstream, once something did.
    pub(super) to_upstream: OnceLock<Arc<HeaderMap>>,
}

impl Lines {
    /// Reads header lines and the empty line after them. `None` when they are not for here, or not
    /// well-formed.
    pub(super) fn read(lines: &[u8]) -> Option<Self> {
        let lines = Bytes::copy_from_slice(lines);
        let mut parsed = [httparse::EMPTY_HEADER; LINES_MAX];
        let httparse::Status::Complete((length, parsed)) =
            httparse::parse_headers(&lines, &mut parsed).ok()?
        else {
            return None;
        };
        if length != lines.len() || parsed.iter().any(is_not_for_here) {
            return None;
        }
        let mut headers = HeaderMap::with_capacity(parsed.len());
        let mut secrets = Vec::new();
        for header in parsed {
            let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
            if SECRETS.contains(&name.as_str()) {
                let at = header.value.as_ptr().addr() - lines.as_ptr().addr();
                secrets.push(at..at + header.value.len());
            }
            headers
                .append(name, HeaderValue::from_maybe_shared(lines.slice_ref(header.value)).ok()?);
        }
        Some(Self { bytes: lines, secrets, headers: Arc::new(headers) })
    }

    /// Whether what was read begins with the same lines. How far credentials agree is not to be
    /// told by the time it takes.
    fn are_said_by(&self, read: &[u8]) -> bool {
        let Some(said) = read.get(..self.bytes.len()) else { return false };
        let mut done = 0;
        let mut are_secrets_same = true;
        for secret in &self.secrets {
            if said[done..secret.start] != self.bytes[done..secret.start] {
                return false;
            }
            are_secrets_same &= bool::from(said[secret.clone()].ct_eq(&self.bytes[secret.clone()]));
            done = secret.end;
        }
        are_secrets_same && said[done..] == self.bytes[done..]
    }

    /// Their length in bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

impl HeaderMemo {
    /// Remembers what was found out about lines; `None` where they are too long to be kept.
    pub(super) fn new(lines: Lines, host: &str, client: &Arc<Client>) -> Option<Self> {
        let known = || KnownHeaders {
            host: host.to_owned(),
            client: Arc::clone(client),
            to_upstream: OnceLock::new(),
        };
        (lines.len() <= KEPT_BYTES_MAX).then(|| Self { lines, known: Arc::new(known()) })
    }

    /// The same lines, if what was read begins with them.
    pub(super) fn again(&self, read: &[u8]) -> Option<&Lines> {
        self.lines.are_said_by(read).then_some(&self.lines)
    }
}

/// Whether a header is about the connection or a body. Keeping a connection is what happens here in
/// any case.
fn is_not_for_here(header: &httparse::Header<'_>) -> bool {
    NOT_HERE.iter().any(|other| header.name.eq_ignore_ascii_case(other))
        || header.name.eq_ignore_ascii_case("connection")
            && !header.value.eq_ignore_ascii_case(b"keep-alive")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "Host: a\r\nAuthorization: Bearer one\r\nAccept: */*\r\nCookie: c=1\r\n\r\n";

    #[test]
    fn the_same_lines_are_known_again_whatever_follows() {
        let lines = Lines::read(HEAD.as_bytes()).unwrap();
        assert!(
            lines.are_said_by(HEAD.as_bytes())
                && lines.are_said_by(format!("{HEAD}GET / HTTP/1.1\r\n").as_bytes())
        );
        assert_eq!((lines.headers.len(), lines.secrets.len()), (4, 2));
    }

    #[test]
    fn a_byte_that_differs_anywhere_or_is_missing_makes_other_lines() {
        let lines = Lines::read(HEAD.as_bytes()).unwrap();
        for at in 0..HEAD.len() {
            let mut other = HEAD.as_bytes().to_vec();
            other[at] ^= 1;
            assert!(!lines.are_said_by(&other), "at {at}");
            assert!(!lines.are_said_by(&HEAD.as_bytes()[..at]), "up to {at}");
        }
    }

    #[test]
    fn lines_about_the_connection_or_a_body_are_not_for_here() {
        for line in [
            "Content-Length: 0",
            "transfer-encoding: chunked",
            "Connection: close",
            "TE: trailers",
            "Expect: 100-continue",
        ] {
            assert!(
                Lines::read(format!("Host: a\r\n{line}\r\n\r\n").as_bytes()).is_none(),
                "{line}"
            );
        }
        assert!(Lines::read(b"Host: a\r\nConnection: Keep-Alive\r\n\r\n").is_some());
        assert!(
            Lines::read(b"\r\n").is_some()
                && Lines::read(b"Host a\r\n\r\n").is_none()
                && Lines::read(b"Host: a\r\n\r\n\r\n").is_none()
        );
    }
}
