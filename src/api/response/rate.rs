//! The parser of rate headers (SPECIFICATION, "Rate limit headers").
//!
//! It is strict: a window settled from a malformed header would be wrong for an hour. The quota
//! ledger interprets the numbers.

use http::header::{AsHeaderName, HeaderMap, HeaderName};

use super::headers;
use crate::api::endpoint::resource::ResourceName;
use crate::clock::Timestamp;

/// Epoch seconds have ten digits until the year 2286. Thirteen digits would be milliseconds and
/// close a window for millennia.
const RESET_DIGITS_MAX: usize = 10;

// Typed names: a lookup by text would validate the name again for every answer.
static LIMIT: HeaderName = HeaderName::from_static(headers::RATE_LIMIT);
static REMAINING: HeaderName = HeaderName::from_static(headers::RATE_REMAINING);
static USED: HeaderName = HeaderName::from_static(headers::RATE_USED);
static RESET: HeaderName = HeaderName::from_static(headers::RATE_RESET);
static RESOURCE: HeaderName = HeaderName::from_static(headers::RATE_RESOURCE);

/// Rate headers of one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateHeaders {
    /// Most requests in the window.
    pub limit: u32,
    /// Requests left in the window after this one.
    pub remaining: u32,
    /// Requests used in the window; `None` when missing or malformed.
    pub used: Option<u32>,
    /// End of the window.
    pub reset: Timestamp,
    /// Resource that was counted against; `None` when missing or malformed.
    pub resource: Option<ResourceName>,
}

impl RateHeaders {
    /// Parses the headers. Returns `None` unless limit, remaining and reset are present, plain
    /// digits, and consistent.
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

/// Returns `x-ratelimit-remaining` alone, for answers with only some of the headers; `None` when
/// missing, malformed or contradictory.
pub fn rate_remaining(headers: &HeaderMap) -> Option<u32> {
    number(headers, &REMAINING)
}

/// Returns `x-ratelimit-reset` alone; `None` when missing, malformed or contradictory.
pub fn rate_reset(headers: &HeaderMap) -> Option<Timestamp> {
    let text = single(headers, &RESET).filter(|text| text.len() <= RESET_DIGITS_MAX)?;
    digits::<u64>(text).map(Timestamp::from_secs)
}

/// Parses digits only: no sign, no fraction, no space.
pub(super) fn digits<N: std::str::FromStr>(text: &str) -> Option<N> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Option<u32> {
    single(headers, name).and_then(digits)
}

/// Returns the value of a header when all its lines agree.
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
    fn a_missing_or_malformed_number_rejects_all_headers() {
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
    fn a_reset_in_milliseconds_is_rejected() {
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
