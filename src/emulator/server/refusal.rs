//! Refusals by the HTTP implementation itself: a request target or head that is too long, or a head
//! with an illegal byte. It answers with an empty body before any handler runs.
//!
//! Such a refusal is recognised by its bytes, as it is the only head without a content type or
//! request id. A response of the API takes its place.

use bytes::{BufMut, Bytes, BytesMut};
use http::{Response, StatusCode};

use crate::emulator::http::ApiError;

/// Longer than any refusal of the HTTP implementation.
const BYTES_MAX: usize = 256;
const END: &[u8] = b"\r\n\r\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Malformed,
    TargetTooLong,
    HeadTooLarge,
}

impl Refusal {
    pub fn error(self) -> ApiError {
        let (status, message) = match self {
            Self::Malformed => (StatusCode::BAD_REQUEST, "Problems parsing the request head"),
            Self::TargetTooLong => (StatusCode::URI_TOO_LONG, "URI Too Long"),
            Self::HeadTooLarge => {
                (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "Request Header Fields Too Large")
            }
        };
        ApiError::Unreadable(status, message)
    }
}

/// Finds a refusal at the end of the written bytes, and its offset.
pub fn find(bytes: &[u8]) -> Option<(usize, Refusal)> {
    let end = bytes.strip_suffix(END)?;
    let searched = end.len().saturating_sub(BYTES_MAX);
    let last = end[searched..].windows(7).rposition(|window| window == b"HTTP/1.")?;
    let at = searched + last;
    let mut lines = std::str::from_utf8(&end[at..]).ok()?.split("\r\n");
    let refusal = match lines.next()?.split(' ').nth(1)? {
        "400" => Refusal::Malformed,
        "414" => Refusal::TargetTooLong,
        "431" => Refusal::HeadTooLarge,
        _ => return None,
    };
    let mut names: Vec<String> =
        lines.filter_map(|line| Some(line.split_once(':')?.0.to_ascii_lowercase())).collect();
    names.sort_unstable();
    (names == ["connection", "content-length", "date"]).then_some((at, refusal))
}

/// The bytes of a response that ends its connection.
pub fn on_wire(response: &Response<Bytes>) -> Bytes {
    let (status, body) = (response.status(), response.body());
    let mut bytes = BytesMut::new();
    bytes.put(format!("HTTP/1.1 {status}\r\n").as_bytes());
    for (name, value) in response.headers() {
        bytes.put(name.as_str().as_bytes());
        bytes.put(&b": "[..]);
        bytes.put(value.as_bytes());
        bytes.put(&b"\r\n"[..]);
    }
    bytes.put(format!("content-length: {}\r\nconnection: close\r\n\r\n", body.len()).as_bytes());
    bytes.put(&body[..]);
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSAL: &str = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n";

    #[test]
    fn a_refusal_behind_other_bytes_is_found() {
        assert_eq!(find(REFUSAL.as_bytes()), Some((0, Refusal::HeadTooLarge)));
        let behind = format!("HTTP/1.1 200 OK\r\n\r\nbody{REFUSAL}");
        assert_eq!(find(behind.as_bytes()), Some((23, Refusal::HeadTooLarge)));
    }

    #[test]
    fn a_response_of_the_api_is_no_refusal() {
        let typed = REFUSAL.replace("date:", "content-type: a\r\ndate:");
        let found = REFUSAL.replace("431", "404");
        let unfinished = REFUSAL.trim_end();
        for bytes in [typed.as_str(), &found, unfinished, "", "\r\n\r\n"] {
            assert_eq!(find(bytes.as_bytes()), None, "{bytes}");
        }
    }
}
