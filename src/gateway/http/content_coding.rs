//! Content codings: those that a stored answer permits, and those that a client accepts.

use http::header::{self, HeaderMap, HeaderValue};

use crate::decision::cache::cache_control::{CacheControl, vary_names};
use crate::gateway::http::headers::DIGESTS;
use crate::gateway::http::media_type::{content_type, has_json_type};

/// The codings that an answer permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentCodings {
    /// Only its own.
    IdentityOnly,
    /// Others too; its `Vary` names the header already.
    Negotiated,
    /// Others too; `Vary` must be added.
    NegotiatedWithoutVary,
}

impl ContentCodings {
    /// Returns the codings of an answer with these headers and this `ETag`. A strong `ETag`
    /// identifies bytes (RFC 9110 §8.8.3.3), so its answer stays plain. An answer that must not be
    /// stored stays plain too, because its compressed form would be stored.
    pub fn of(headers: &HeaderMap, etag: Option<&HeaderValue>) -> Self {
        let is_weak = etag.is_some_and(|etag| etag.as_bytes().starts_with(b"W/"));
        if !is_weak || !is_text(headers) || headers.contains_key(header::CONTENT_ENCODING) {
            return Self::IdentityOnly;
        }
        // RFC 9110 §7.7, RFC 9111 §5.2.2.6.
        let control = CacheControl::parse(headers);
        if control.no_transform
            || control.no_store
            || DIGESTS.iter().any(|name| headers.contains_key(*name))
        {
            return Self::IdentityOnly;
        }
        match vary_names(headers) {
            None => Self::IdentityOnly,
            Some(names) if names.contains(&header::ACCEPT_ENCODING) => Self::Negotiated,
            Some(_) => Self::NegotiatedWithoutVary,
        }
    }
}

/// True for JSON, text, and types with a charset, such as diffs.
fn is_text(headers: &HeaderMap) -> bool {
    let content_type = content_type(headers).to_ascii_lowercase();
    content_type.starts_with("text/") || content_type.contains("charset=") || has_json_type(headers)
}

/// True if a client accepts gzip and ranks it no lower than plain text (RFC 9110 §12.5.3). A
/// missing header formally accepts every coding, but such a client may not decode gzip.
pub fn accepts_gzip(request_headers: &HeaderMap) -> bool {
    let (mut gzip, mut identity, mut any) = (None, None, None);
    for line in request_headers.get_all(header::ACCEPT_ENCODING) {
        let Ok(line) = line.to_str() else { return false };
        for item in line.split(',') {
            let (coding, parameters) = item
                .split_once(';')
                .map_or((item, None), |(coding, parameters)| (coding, Some(parameters)));
            let coding = coding.trim();
            let weight =
                if coding.eq_ignore_ascii_case("gzip") || coding.eq_ignore_ascii_case("x-gzip") {
                    &mut gzip
                } else if coding.eq_ignore_ascii_case("identity") {
                    &mut identity
                } else if coding == "*" {
                    &mut any
                } else {
                    continue;
                };
            let stated = parameters.map_or(WEIGHT_MAX, weight_of);
            // Of two weights for one coding, the lower is safe.
            *weight = Some(weight.map_or(stated, |before: u16| before.min(stated)));
        }
    }
    let gzip = gzip.or(any).unwrap_or(0);
    gzip > 0 && identity.is_none_or(|identity| gzip >= identity)
}

/// A weight of 1, in thousandths.
const WEIGHT_MAX: u16 = 1000;

/// Parses a weight in thousandths (RFC 9110 §12.4.2). An unreadable weight counts as 0.
fn weight_of(parameters: &str) -> u16 {
    let Some((name, value)) = parameters.split_once('=') else { return 0 };
    if !name.trim().eq_ignore_ascii_case("q") {
        return 0;
    }
    let (whole, decimals) = value.trim().split_once('.').unwrap_or((value.trim(), ""));
    if decimals.len() > 3 || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return 0;
    }
    let thousandths = decimals
        .bytes()
        .zip([100, 10, 1])
        .map(|(digit, unit)| u16::from(digit - b'0') * unit)
        .sum();
    match (whole, thousandths) {
        ("1", 0) => WEIGHT_MAX,
        ("0", thousandths) => thousandths,
        _ => 0,
    }
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

    fn accepts(line: &'static str) -> bool {
        accepts_gzip(&headers(&[("accept-encoding", line)]))
    }

    #[test]
    fn a_client_that_accepts_gzip_gets_it() {
        for line in [
            "gzip",
            "gzip, deflate, br",
            "deflate,GZip",
            "x-gzip",
            "*",
            "br;q=1.0, *;q=0.1",
            "gzip;q=0.001",
            "gzip ; q = 1.000",
            "gzip, identity",
            "identity;q=0, gzip;q=0.5",
            "identity;q=0.5, gzip;q=0.50",
            "*;q=0, gzip",
        ] {
            assert!(accepts(line), "{line}");
        }
        assert!(accepts_gzip(&headers(&[("accept-encoding", "br"), ("accept-encoding", "gzip")])));
    }

    #[test]
    fn gzip_is_not_sent_if_absent_excluded_or_ranked_below_text() {
        for line in [
            "",
            ",",
            "identity",
            "br, deflate, zstd",
            "gzip;q=0",
            "gzip;q=0.000",
            "*, gzip;q=0",
            "*;q=0",
            "identity;q=1, gzip;q=0.999",
            "gzip;q=2",
            "gzip;q=1.1",
            "gzip;q=0.0001",
            "gzip;q=",
            "gzip;q=-1",
            "gzip;level=9",
            "gzip;q",
            "gzip, gzip;q=0",
            "gzipped",
        ] {
            assert!(!accepts(line), "{line}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
        let unreadable = HeaderMap::from_iter([(
            header::ACCEPT_ENCODING,
            HeaderValue::from_bytes(b"gzip\x80").unwrap(),
        )]);
        assert!(!accepts_gzip(&unreadable));
    }

    fn codings(pairs: &[(&'static str, &'static str)]) -> ContentCodings {
        ContentCodings::of(&headers(pairs), Some(&HeaderValue::from_static("W/\"a\"")))
    }

    #[test]
    fn texts_may_be_compressed_and_vary_by_accept_encoding() {
        for content_type in [
            "application/json",
            "application/problem+json; charset=utf-8",
            "text/plain",
            "application/vnd.x.diff; charset=UTF-8",
        ] {
            assert_eq!(
                codings(&[("content-type", content_type)]),
                ContentCodings::NegotiatedWithoutVary,
                "{content_type}"
            );
        }
        let with_vary =
            [("content-type", "text/plain"), ("vary", "Accept"), ("vary", "x, Accept-Encoding")];
        assert_eq!(codings(&with_vary), ContentCodings::Negotiated);
    }

    #[test]
    fn binary_protected_or_unstorable_answers_stay_plain() {
        for content_type in ["image/png", "application/octet-stream", "application/zip"] {
            assert_eq!(
                codings(&[("content-type", content_type)]),
                ContentCodings::IdentityOnly,
                "{content_type}"
            );
        }
        for other in [
            ("content-encoding", "br"),
            ("content-digest", "sha-256=:x=:"),
            ("repr-digest", "sha-256=:x=:"),
            ("cache-control", "max-age=1, No-Transform"),
            ("cache-control", "no-store"),
            ("vary", "*"),
        ] {
            assert_eq!(
                codings(&[("content-type", "text/plain"), other]),
                ContentCodings::IdentityOnly,
                "{other:?}"
            );
        }
        let text = headers(&[("content-type", "text/plain")]);
        for etag in [None, Some(&HeaderValue::from_static("\"a\""))] {
            assert_eq!(ContentCodings::of(&text, etag), ContentCodings::IdentityOnly, "{etag:?}");
        }
    }
}
