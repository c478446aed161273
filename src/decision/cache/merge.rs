//! The update of stored headers by those of a 304 (RFC 9111 §3.2).
//!
//! Every header of the 304 replaces the stored one of its name; the others stay, `Link` too
//! (SPECIFICATION, "Conditional requests in practice"). Headers that depend on the bytes of the
//! stored body stay, and so do those of the connection.

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue};

use super::freshness::Mode;

/// Never taken from a 304: headers about the body (RFC 9111 §3.2, first and second exception) or
/// the connection (§3.1). The `ETag` is kept per token
/// ([`crate::decision::cache::freshness::Stored`]).
const KEPT: [HeaderName; 17] = [
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("repr-digest"),
    header::CONTENT_RANGE,
    header::ETAG,
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Updates the stored headers by those of a 304. `Content-Type` stays in [`Mode::Revalidate`] and
/// for JSON, because the body was parsed by it. A proxy in front of the upstream may send a type of
/// its own with every 304.
pub fn merge_not_modified(stored: &mut HeaderMap, not_modified: &HeaderMap, mode: Mode) {
    let named_by_connection = connection_names(not_modified);
    let content_type =
        stored.get(header::CONTENT_TYPE).map(|value| value.as_bytes().to_ascii_lowercase());
    let keeps_type = mode == Mode::Revalidate
        || content_type.is_some_and(|value| value.windows(4).any(|part| part == b"json"));
    let is_kept =
        |name: &HeaderName| KEPT.contains(name) || keeps_type && *name == header::CONTENT_TYPE;
    for name in
        not_modified.keys().filter(|name| !is_kept(name) && !named_by_connection.contains(name))
    {
        stored.remove(name);
        for value in not_modified.get_all(name) {
            stored.append(name, value.clone());
        }
    }
}

/// Headers that `Connection` makes hop-by-hop (RFC 9110 §7.6.1).
fn connection_names(headers: &HeaderMap) -> Vec<HeaderName> {
    let lines = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|line: &HeaderValue| line.to_str().ok());
    lines
        .flat_map(|line| line.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    #[test]
    fn a_304_updates_its_headers_and_keeps_the_others() {
        let mut stored = headers(&[
            ("link", "<old>"),
            ("date", "old"),
            ("x-ratelimit-remaining", "9"),
            ("x-poll", "old"),
            ("x-poll", "older"),
        ]);
        merge_not_modified(
            &mut stored,
            &headers(&[("date", "new"), ("x-ratelimit-remaining", "8"), ("x-poll", "new")]),
            Mode::Revalidate,
        );
        assert_eq!(
            stored,
            headers(&[
                ("link", "<old>"),
                ("date", "new"),
                ("x-ratelimit-remaining", "8"),
                ("x-poll", "new")
            ])
        );
    }

    #[test]
    fn headers_about_the_stored_body_are_kept() {
        let own = [
            ("content-type", "Application/JSON"),
            ("content-length", "9"),
            ("content-encoding", "gzip"),
            ("content-md5", "a"),
            ("repr-digest", "a"),
            ("etag", "W/\"a\""),
        ];
        let mut stored = headers(&own);
        merge_not_modified(
            &mut stored,
            &headers(&[
                ("content-type", "c/d"),
                ("content-length", "0"),
                ("content-encoding", "br"),
                ("content-md5", "b"),
                ("repr-digest", "b"),
                ("content-digest", "b"),
                ("etag", "\"a\""),
            ]),
            Mode::Rfc9111,
        );
        assert_eq!(stored, headers(&own));
    }

    #[test]
    fn a_304_updates_a_non_json_type_only_in_rfc9111_mode() {
        let mut stored = headers(&[("content-type", "text/plain")]);
        let not_modified = headers(&[("content-type", "text/plain;charset=utf-8")]);
        merge_not_modified(&mut stored, &not_modified, Mode::Revalidate);
        assert_eq!(stored["content-type"], "text/plain", "but for a plain HTTP cache alone");
        merge_not_modified(&mut stored, &not_modified, Mode::Rfc9111);
        assert_eq!(stored["content-type"], "text/plain;charset=utf-8");
    }

    #[test]
    fn hop_by_hop_headers_of_a_304_are_not_stored() {
        let mut stored = HeaderMap::new();
        merge_not_modified(
            &mut stored,
            &headers(&[
                ("connection", "close, x-hop"),
                ("x-hop", "1"),
                ("keep-alive", "5"),
                ("x-end", "2"),
            ]),
            Mode::Rfc9111,
        );
        assert_eq!(stored, headers(&[("x-end", "2")]));
    }
}
