//! A client's own conditions on a GET or HEAD: the choice between 200, 304 and 412 (RFC 9110 §13.1,
//! §13.2.2).
//!
//! A stored answer has several `ETag`s, one per token that fetched it, all for the same body; a
//! client may hold any of them.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::clock::Timestamp;

use super::settling::SECOND_RECHECK;
use super::time::http_date::date;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// 304: the client has the answer already.
    NotModified,
    Full,
}

/// Evaluates the conditions of `request` against an answer. `If-None-Match` is compared weakly and
/// overrides `If-Modified-Since` (RFC 9110 §13.1.3). Answers other than 2xx are never 304.
pub fn evaluate(
    request: &HeaderMap,
    status: StatusCode,
    etags: impl Iterator<Item: AsRef<[u8]>>,
    last_modified: Option<&HeaderValue>,
) -> Outcome {
    if !status.is_success() {
        return Outcome::Full;
    }
    let matches = if request.contains_key(header::IF_NONE_MATCH) {
        none_match(request, etags)
    } else {
        not_modified_since(request.get(header::IF_MODIFIED_SINCE), last_modified)
    };
    if matches { Outcome::NotModified } else { Outcome::Full }
}

/// Returns true when a precondition fails. `If-Match` is compared strongly with the `ETag` that
/// clients receive. Without it `If-Unmodified-Since` counts, unless the answer has no date (RFC
/// 9110 §13.1.1, §13.1.4). Preconditions come before the other conditions.
pub fn fails(
    request: &HeaderMap,
    status: StatusCode,
    etag: Option<&[u8]>,
    last_modified: Option<&HeaderValue>,
) -> bool {
    if !status.is_success() {
        return false;
    }
    if !request.contains_key(header::IF_MATCH) {
        let requested = request.get(header::IF_UNMODIFIED_SINCE).and_then(date);
        return requested
            .zip(last_modified.and_then(date))
            .is_some_and(|(requested, last_modified)| last_modified > requested);
    }
    let strong = etag.filter(|etag| !etag.starts_with(b"W/"));
    let mut lines = request.get_all(header::IF_MATCH).iter().map(HeaderValue::as_bytes);
    !lines.any(|line| line.trim_ascii() == b"*" || list(line).any(|listed| Some(listed) == strong))
}

/// Weak comparison: ignores the `W/` (RFC 9110 §8.8.3.2).
pub fn weakly_equal(one: &[u8], other: &[u8]) -> bool {
    opaque(one) == opaque(other)
}

fn opaque(etag: &[u8]) -> &[u8] {
    etag.strip_prefix(b"W/").unwrap_or(etag)
}

fn none_match(request: &HeaderMap, mut etags: impl Iterator<Item: AsRef<[u8]>>) -> bool {
    let lines = || request.get_all(header::IF_NONE_MATCH).iter().map(HeaderValue::as_bytes);
    if lines().any(|line| line.trim_ascii() == b"*") {
        return true;
    }
    etags.any(|etag| {
        lines().any(|line| list(line).any(|listed| weakly_equal(listed, etag.as_ref())))
    })
}

/// `ETag`s of one line. A comma inside the quotes belongs to the `ETag`. An `ETag` without quotes,
/// as some clients send it, ends at a comma.
fn list(mut line: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        while let [b' ' | b'\t' | b',', rest @ ..] = line {
            line = rest;
        }
        if line.is_empty() {
            return None;
        }
        let quotes_from =
            if line.starts_with(b"W/\"") { 3 } else { usize::from(line.starts_with(b"\"")) };
        let end = if quotes_from > 0 {
            line[quotes_from..]
                .iter()
                .position(|byte| *byte == b'"')
                .map(|place| quotes_from + place + 1)
        } else {
            line.iter().position(|byte| *byte == b',')
        };
        let (etag, rest) = line.split_at(end.unwrap_or(line.len()));
        line = rest;
        Some(etag.trim_ascii_end())
    })
}

/// The same value as ours, or a date that is not before it.
fn not_modified_since(
    requested: Option<&HeaderValue>,
    last_modified: Option<&HeaderValue>,
) -> bool {
    let (Some(requested), Some(last_modified)) = (requested, last_modified) else { return false };
    requested == last_modified
        || date(last_modified)
            .zip(date(requested))
            .is_some_and(|(last_modified, requested)| last_modified <= requested)
}

/// Returns true when a `Last-Modified` identifies this state of the resource and no later one. A
/// date has whole seconds, and a resource may change twice within a second (RFC 9110 §8.8.2.2:
/// strong when the `Date` is at least a second later).
///
/// A lagging replica sends an old state with a current `Date`, so the margin is the time in which
/// replicas catch up. Without a readable `Date` the time of receipt counts (RFC 9110 §6.6.1). A
/// missing `Last-Modified` is exact.
pub fn is_exact(
    headers: &HeaderMap,
    last_modified: Option<&HeaderValue>,
    received_at: Timestamp,
) -> bool {
    let Some(last_modified) = last_modified else { return true };
    let received_at =
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(received_at.as_millis()));
    let made_at = headers.get(header::DATE).and_then(date).or(received_at);
    date(last_modified)
        .zip(made_at)
        .is_some_and(|(last_modified, made_at)| last_modified + SECOND_RECHECK < made_at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "Tue, 01 Jul 2025 00:00:00 GMT";

    fn outcome(request: &[(&'static str, &'static str)]) -> Outcome {
        with_status(request, StatusCode::OK)
    }

    fn with_status(request: &[(&'static str, &'static str)], status: StatusCode) -> Outcome {
        let mut headers = HeaderMap::new();
        for (name, value) in request {
            headers.append(*name, HeaderValue::from_static(value));
        }
        let etags = [HeaderValue::from_static("W/\"a\""), HeaderValue::from_static("\"b,c\"")];
        evaluate(&headers, status, etags.iter(), Some(&HeaderValue::from_static(DATE)))
    }

    #[test]
    fn any_etag_of_the_answer_matches_weakly() {
        for value in ["\"a\"", "W/\"a\"", "\"x\", W/\"a\"", "\"b,c\"", "\"x\" ,\"b,c\"", "*"] {
            assert_eq!(outcome(&[("if-none-match", value)]), Outcome::NotModified, "{value}");
        }
        for value in ["\"x\"", "", ",", "a", "\"a", "\"b\"", "W/", "\"x,W/\"a\""] {
            assert_eq!(outcome(&[("if-none-match", value)]), Outcome::Full, "{value}");
        }
        assert_eq!(
            outcome(&[("if-none-match", "\"x\""), ("if-none-match", "\"a\"")]),
            Outcome::NotModified
        );
    }

    #[test]
    fn if_none_match_overrides_if_modified_since() {
        assert_eq!(
            outcome(&[("if-none-match", "\"x\""), ("if-modified-since", DATE)]),
            Outcome::Full
        );
        assert_eq!(
            outcome(&[
                ("if-none-match", "\"a\""),
                ("if-modified-since", "Mon, 30 Jun 2025 00:00:00 GMT")
            ]),
            Outcome::NotModified
        );
    }

    #[test]
    fn a_date_matches_when_nothing_changed_after_it() {
        for (date, expected) in [
            (DATE, Outcome::NotModified),
            ("Wed, 02 Jul 2025 00:00:00 GMT", Outcome::NotModified),
            ("Mon, 30 Jun 2025 00:00:00 GMT", Outcome::Full),
            ("yesterday", Outcome::Full),
        ] {
            assert_eq!(outcome(&[("if-modified-since", date)]), expected, "{date}");
        }
    }

    #[test]
    fn if_match_compares_etags_strongly() {
        let fails_with = |name: &'static str, value: &'static str, etag: Option<&str>, status| {
            let headers = HeaderMap::from_iter([(
                name.parse::<http::HeaderName>().unwrap(),
                HeaderValue::from_static(value),
            )]);
            fails(&headers, status, etag.map(str::as_bytes), Some(&HeaderValue::from_static(DATE)))
        };
        for (value, etag, expected) in [
            ("\"a\"", Some("\"a\""), false),
            ("\"x\", \"a\"", Some("\"a\""), false),
            ("*", Some("W/\"a\""), false),
            ("*", None, false),
            ("\"x\"", Some("\"a\""), true),
            ("W/\"a\"", Some("W/\"a\""), true),
            ("\"a\"", Some("W/\"a\""), true),
            ("\"a\"", None, true),
            ("", Some("\"a\""), true),
        ] {
            assert_eq!(
                fails_with("if-match", value, etag, StatusCode::OK),
                expected,
                "{value} {etag:?}"
            );
            assert!(
                !fails_with("if-match", value, etag, StatusCode::NOT_FOUND),
                "there is no answer to be refused"
            );
        }
        for (date, expected) in
            [(DATE, false), ("Mon, 30 Jun 2025 00:00:00 GMT", true), ("yesterday", false)]
        {
            assert_eq!(
                fails_with("if-unmodified-since", date, None, StatusCode::OK),
                expected,
                "{date}"
            );
        }
    }

    #[test]
    fn a_date_is_exact_once_ten_seconds_have_passed() {
        let with_header = |name: &'static str, value: &'static str| {
            HeaderMap::from_iter([(
                name.parse::<http::HeaderName>().unwrap(),
                value.parse().unwrap(),
            )])
        };
        let [modified, unreadable] = [DATE, "yesterday"].map(HeaderValue::from_static);
        let [soon, later] = [5, 11].map(|seconds| Timestamp::from_secs(1_751_328_000 + seconds));
        for (headers, received_at, expected) in [
            (HeaderMap::new(), soon, false),
            (HeaderMap::new(), later, true),
            (with_header("date", "now"), soon, false),
            (with_header("date", "Tue, 01 Jul 2025 00:00:05 GMT"), later, false),
            (with_header("date", "Tue, 01 Jul 2025 00:00:11 GMT"), soon, true),
        ] {
            assert_eq!(is_exact(&headers, Some(&modified), received_at), expected, "{headers:?}");
            assert!(
                !is_exact(&headers, Some(&unreadable), received_at)
                    && is_exact(&headers, None, received_at)
            );
        }
    }

    #[test]
    fn a_304_needs_a_condition_and_a_success() {
        assert_eq!(outcome(&[]), Outcome::Full);
        assert_eq!(with_status(&[("if-none-match", "*")], StatusCode::NOT_FOUND), Outcome::Full);
    }
}
