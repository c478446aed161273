//! The header memo of a connection. Bots repeat their header lines with each request. Equal lines
//! need no second parsing, checking and authentication.
//!
//! Only the header lines are compared. The request line is parsed and checked each time
//! (`fast_path.rs`, `validate/mod.rs`).

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue};
use subtle::ConstantTimeEq;

use crate::gateway::request::clients::{Identified, KEY_HEADER};
use crate::gateway::request::validate::ValidRequest;
use crate::gateway::session::{Head, http2::StreamSession};

/// The most header lines that the fast path reads; ordinary clients send about ten.
const LINES_MAX: usize = 32;
/// The longest header lines that an idle connection keeps. Chosen here: ordinary ones take a tenth,
/// and there may be thousands of connections.
const KEPT_BYTES_MAX: usize = 4 * 1024;
/// Headers about the connection or a body: a session serves such requests.
const SESSION_ONLY: [&str; 6] =
    ["content-length", "transfer-encoding", "expect", "upgrade", "te", "trailer"];
/// Headers with values that are compared in constant time.
const SECRETS: [&str; 4] = ["authorization", "proxy-authorization", "cookie", KEY_HEADER];

/// Header lines as received, with the empty line that ends the head.
pub(super) struct Lines {
    bytes: Bytes,
    /// The credentials' byte ranges, in order.
    secrets: Vec<Range<usize>>,
    pub(super) headers: Arc<HeaderMap>,
}

/// The header lines of an allowed request and the facts derived from them.
pub(super) struct HeaderMemo {
    pub(super) lines: Lines,
    pub(super) known: Arc<KnownHeaders>,
}

pub(super) struct KnownHeaders {
    pub(super) host: String,
    pub(super) identified: Identified,
    /// Computed at the first use.
    pub(super) to_upstream: OnceLock<Arc<HeaderMap>>,
}

impl Lines {
    /// Parses header lines and the empty line after them; `None` if not for the fast path.
    pub(super) fn read(lines: &[u8]) -> Option<Self> {
        let lines = Bytes::copy_from_slice(lines);
        let mut parsed = [httparse::EMPTY_HEADER; LINES_MAX];
        let httparse::Status::Complete((length, parsed)) =
            httparse::parse_headers(&lines, &mut parsed).ok()?
        else {
            return None;
        };
        if length != lines.len() || parsed.iter().any(needs_session) {
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

    /// True if `read` begins with the same lines. Credentials are compared in constant time.
    pub(super) fn begin(&self, read: &[u8]) -> bool {
        let Some(received) = read.get(..self.bytes.len()) else { return false };
        let mut done = 0;
        let mut are_secrets_same = true;
        for secret in &self.secrets {
            if received[done..secret.start] != self.bytes[done..secret.start] {
                return false;
            }
            are_secrets_same &=
                bool::from(received[secret.clone()].ct_eq(&self.bytes[secret.clone()]));
            done = secret.end;
        }
        are_secrets_same && received[done..] == self.bytes[done..]
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

impl HeaderMemo {
    /// Keeps the facts about header lines; `None` if the lines are too long.
    pub(super) fn new(lines: Lines, host: &str, identified: &Identified) -> Option<Self> {
        let known = || KnownHeaders::new(host, identified);
        (lines.len() <= KEPT_BYTES_MAX).then(|| Self { lines, known: known() })
    }
}

impl KnownHeaders {
    fn new(host: &str, identified: &Identified) -> Arc<Self> {
        let (host, identified) = (host.to_owned(), identified.clone());
        Arc::new(Self { host, identified, to_upstream: OnceLock::new() })
    }
}

/// The head of an allowed HTTP/2 request without its target, and the facts derived from it.
pub(super) struct StreamMemo {
    authority: Option<Authority>,
    scheme: Option<Scheme>,
    pub(super) headers: Arc<HeaderMap>,
    pub(super) is_https: bool,
    pub(super) known: Arc<KnownHeaders>,
}

impl StreamMemo {
    /// Keeps the facts about a head; `None` if it is too long.
    pub(super) fn new(
        session: &StreamSession,
        valid: &ValidRequest,
        identified: &Identified,
    ) -> Option<Self> {
        let (target, headers) = (session.head().target, Arc::clone(&session.headers));
        let bytes: usize =
            headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        (bytes <= KEPT_BYTES_MAX).then(|| Self {
            authority: target.authority().cloned(),
            scheme: target.scheme().cloned(),
            headers,
            is_https: valid.is_https,
            known: KnownHeaders::new(&valid.host, identified),
        })
    }

    /// True if all of a head but its method and target is the same. Credentials are compared in
    /// constant time.
    pub(super) fn is_of(&self, head: &Head<'_>) -> bool {
        let has_same_target = head.target.authority() == self.authority.as_ref()
            && head.target.scheme() == self.scheme.as_ref();
        if !has_same_target || head.headers.len() != self.headers.len() {
            return false;
        }
        let mut are_secrets_same = true;
        for ((name, value), (known_name, known)) in head.headers.iter().zip(&*self.headers) {
            if name != known_name {
                return false;
            }
            if SECRETS.contains(&name.as_str()) {
                are_secrets_same &= bool::from(value.as_bytes().ct_eq(known.as_bytes()));
            } else if value != known {
                return false;
            }
        }
        are_secrets_same
    }
}

/// True for headers about the connection or a body, except the default `keep-alive`.
fn needs_session(header: &httparse::Header<'_>) -> bool {
    SESSION_ONLY.iter().any(|other| header.name.eq_ignore_ascii_case(other))
        || header.name.eq_ignore_ascii_case("connection")
            && !header.value.eq_ignore_ascii_case(b"keep-alive")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "Host: a\r\nAuthorization: Bearer one\r\nAccept: */*\r\nCookie: c=1\r\n\r\n";

    #[test]
    fn equal_header_lines_are_recognized() {
        let lines = Lines::read(HEAD.as_bytes()).unwrap();
        assert!(
            lines.begin(HEAD.as_bytes())
                && lines.begin(format!("{HEAD}GET / HTTP/1.1\r\n").as_bytes())
        );
        assert_eq!((lines.headers.len(), lines.secrets.len()), (4, 2));
    }

    #[test]
    fn header_lines_that_differ_in_a_byte_are_not_recognized() {
        let lines = Lines::read(HEAD.as_bytes()).unwrap();
        for at in 0..HEAD.len() {
            let mut other = HEAD.as_bytes().to_vec();
            other[at] ^= 1;
            assert!(!lines.begin(&other), "at {at}");
            assert!(!lines.begin(&HEAD.as_bytes()[..at]), "up to {at}");
        }
    }

    #[test]
    fn headers_about_connection_or_body_leave_the_fast_path() {
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
