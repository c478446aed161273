//! What an answer's rate headers say (Document 1, Rate limit response headers).
//!
//! Read strictly: a book settled from a half-understood header would be wrong for an hour. What the
//! numbers mean for a budget is decided elsewhere.

use http::header::{AsHeaderName, HeaderMap, HeaderName};

use super::headers;
use crate::api::endpoint::resource::ResourceName;
use crate::clock::Timestamp;

/// Epoch seconds have ten digits until the year 2286; thirteen would be milliseconds, and close a
/// book for millennia.
const RESET_DIGITS_MAX: usize = 10;

// As names rather than text, which would be checked again for each look-up: they are looked for in
// every answer.
static LIMIT: HeaderName = HeaderName::from_static(headers::RATE_LIMIT);
static REMAINING: HeaderName = HeaderName::from_static(headers::RATE_REMAINING);
static USED: HeaderName = HeaderName::from_static(headers::RATE_USED);
static RESET: HeaderName = HeaderName::from_static(headers::RATE_RESET);
static RESOURCE: HeaderName = HeaderName::from_static(headers::RATE_RESOURCE);

/// The rate headers of one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateHeaders {
    /// Most requests the window allows.
    pub limit: u32,
    /// Requests left in the window, this one taken off.
    pub remaining: u32,
    /// Requests used in the window; `None` when missing or malformed.
    pub used: Option<u32>,
    /// When the window ends.
    pub reset: Timestamp,
    /// The resource that was counted against; `None` when missing or malformed.
    pub resource: Option<ResourceName>,
}

impl RateHeaders {
    /// Reads the headers; `None` unless limit, remaining and reset are each there, plain digits,
    /// and said once or always the same.
    pub fn parse(headers: &HeaderMap) -> Option<Self> {
        Some(Self {
            limit: number(headers, &LIMIT)?,
            remaining: rate_remaining(headers)?,
            used: number(headers, &USED),
            reset: rate_reset(headers)?,
            resource: single(headers, &RESOURCE).and_then(ResourceName::parse),
        })
    }
}

/// `x-ratelimit-remaining` alone, for answers that carry only part of the headers; `None` when
/// missing, malformed or contradictory.
pub fn rate_remaining(headers: &HeaderMap) -> Option<u32> {
    number(headers, &REMAINING)
}

/// `x-ratelimit-reset` alone; `None` when missing, malformed or contradictory.
pub fn rate_reset(headers: &HeaderMap) -> Option<Timestamp> {
    let text = single(headers, &RESET).filter(|text| text.len() <= RESET_DIGITS_MAX)?;
    digits::<u64>(text).map(Timestamp::from_secs)
}

/// A number written as digits only: no sign, no fraction, no space.
pub(super) fn digits<N: std::str::FromStr>(text: &str) -> Option<N> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Option<u32> {
    single(headers, name).and_then(digits)
}

/// The header's value when every line of it says the same.
pub(super) fn single(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    values.all(|value| value == first).then(|| first.to_str().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn with(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let good = [
            ("x-ratelimit-limit", "5000"),
            ("x-ratelimit-remaining", "4999"),
            ("x-ratelimit-used", "1"),
            ("x-ratelimit-reset", "1700000000"),
            ("x-ratelimit-resource", "core"),
        ];
        let kept =
            good.into_iter().filter(|(name, _)| !lines.iter().any(|(other, _)| other == name));
        kept.chain(lines.iter().copied()).filter(|(_, value)| *value != "-").fold(
            HeaderMap::new(),
            |mut map, (name, value)| {
                map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
                map
            },
        )
    }

    #[test]
    fn all_five_headers_are_read() {
        let expected = RateHeaders {
            limit: 5000,
            remaining: 4999,
            used: Some(1),
            reset: Timestamp::from_secs(1_700_000_000),
            resource: Some(ResourceName::core()),
        };
        assert_eq!(RateHeaders::parse(&with(&[])), Some(expected));
    }

    #[test]
    fn a_missing_or_malformed_number_spoils_the_whole() {
        for name in ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"] {
            for bad in [
                "-",
                "",
                "+1",
                "-1",
                "1.0",
                " 1 2",
                "1e3",
                "0x10",
                "99999999999999999999",
                "1, 1",
                "\u{7f}",
            ] {
                if let Ok(value) = HeaderValue::from_str(bad) {
                    let mut headers = with(&[(name, "-")]);
                    if bad != "-" {
                        headers.append(name, value);
                    }
                    assert_eq!(RateHeaders::parse(&headers), None, "{name}: {bad}");
                }
            }
        }
        assert_eq!(RateHeaders::parse(&HeaderMap::new()), None);
    }

    #[test]
    fn a_reset_in_milliseconds_is_not_believed() {
        assert_eq!(RateHeaders::parse(&with(&[("x-ratelimit-reset", "1700000000000")])), None);
    }

    #[test]
    fn duplicates_must_agree() {
        let agreeing = with(&[("x-ratelimit-remaining", "7"), ("x-ratelimit-remaining", "7")]);
        assert_eq!(RateHeaders::parse(&agreeing).map(|rate| rate.remaining), Some(7));
        let contradicting = with(&[("x-ratelimit-remaining", "7"), ("x-ratelimit-remaining", "8")]);
        assert_eq!(RateHeaders::parse(&contradicting), None);
    }

    #[test]
    fn used_and_resource_may_be_missing_or_malformed() {
        let rate = RateHeaders::parse(&with(&[
            ("x-ratelimit-used", "-"),
            ("x-ratelimit-resource", "Not A Name"),
        ]));
        assert_eq!(rate.map(|rate| (rate.used, rate.resource)), Some((None, None)));
    }
}
