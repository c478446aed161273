//! Range requests (RFC 9110 §14): one byte range. For several ranges or an invalid one, the whole
//! body is sent, as §14.2 allows.

use std::ops::RangeInclusive;

use http::HeaderMap;
use http::header::{self, HeaderValue};

use crate::decision::cache::part::ByteRange;
use crate::gateway::http::headers::only_value;

/// The requested part of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Whole,
    /// These existing bytes: 206.
    Bytes(RangeInclusive<usize>),
    /// Bytes beyond the body: 416.
    Unsatisfiable,
}

/// The one byte range that a request names; `None` too if it depends on a condition.
pub fn plain_range(request_headers: &HeaderMap) -> Option<(&HeaderValue, ByteRange)> {
    let line = only_value(request_headers, header::RANGE).ok().flatten()?;
    let range = line.to_str().ok().and_then(ByteRange::parse)?;
    (!request_headers.contains_key(header::IF_RANGE)).then_some((line, range))
}

/// Returns the part of a body of `length` bytes that a GET requests. `etag` is the body's
/// validator; an `If-Range` not strongly equal to it requests the whole (RFC 9110 §13.1.5).
pub fn part_of(request_headers: &HeaderMap, length: usize, etag: Option<&HeaderValue>) -> Part {
    let Ok(Some(line)) = only_value(request_headers, header::RANGE) else { return Part::Whole };
    let is_same = |condition: &HeaderValue| {
        Some(condition) == etag && !condition.as_bytes().starts_with(b"W/")
    };
    if !request_headers.get_all(header::IF_RANGE).iter().all(is_same) {
        return Part::Whole;
    }
    match (line.to_str().ok().and_then(ByteRange::parse), length.checked_sub(1)) {
        (None, _) => Part::Whole,
        (Some(ByteRange::Suffix(bytes)), Some(end)) if bytes > 0 => {
            Part::Bytes(length.saturating_sub(clamped(bytes))..=end)
        }
        (Some(ByteRange::Between(first, last)), Some(end)) if clamped(first) <= end => {
            Part::Bytes(clamped(first)..=clamped(last).min(end))
        }
        _ => Part::Unsatisfiable,
    }
}

/// A number beyond the range becomes the largest one.
fn clamped(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(range: &'static str) -> Part {
        part_of(&HeaderMap::from_iter([(header::RANGE, HeaderValue::from_static(range))]), 10, None)
    }

    #[test]
    fn a_single_range_is_served() {
        for (range, bytes) in [
            ("bytes=0-1", 0..=1),
            ("bytes=9-", 9..=9),
            ("Bytes=3-99999999999999999999999", 3..=9),
            ("bytes=-4", 6..=9),
            ("bytes=-40", 0..=9),
        ] {
            assert_eq!(part(range), Part::Bytes(bytes), "{range}");
        }
    }

    #[test]
    fn a_range_beyond_the_end_is_unsatisfiable() {
        for range in ["bytes=10-", "bytes=10-11", "bytes=-0"] {
            assert_eq!(part(range), Part::Unsatisfiable, "{range}");
        }
        assert_eq!(
            part_of(
                &HeaderMap::from_iter([(header::RANGE, HeaderValue::from_static("bytes=0-0"))]),
                0,
                None
            ),
            Part::Unsatisfiable
        );
    }

    #[test]
    fn several_or_invalid_ranges_get_the_whole_body() {
        for range in ["bytes=0-1,3-4", "bytes=2-1"] {
            assert_eq!(part(range), Part::Whole, "{range}");
        }
    }

    #[test]
    fn a_range_of_another_version_is_never_served() {
        let request = |condition: &'static str| {
            HeaderMap::from_iter([
                (header::RANGE, HeaderValue::from_static("bytes=0-1")),
                (header::IF_RANGE, HeaderValue::from_static(condition)),
            ])
        };
        let etag = HeaderValue::from_static("\"a\"");
        assert_eq!(part_of(&request("\"a\""), 10, Some(&etag)), Part::Bytes(0..=1));
        for condition in ["\"b\"", "W/\"a\"", "Tue, 01 Jul 2025 00:00:00 GMT"] {
            assert_eq!(part_of(&request(condition), 10, Some(&etag)), Part::Whole, "{condition}");
        }
        let weak = HeaderValue::from_static("W/\"a\"");
        assert_eq!(part_of(&request("W/\"a\""), 10, Some(&weak)), Part::Whole);
    }
}
