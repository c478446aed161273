//! Timestamps on the wire: ISO 8601 in bodies and queries, HTTP dates in headers.

use std::time::{Duration, UNIX_EPOCH};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

use crate::clock::Timestamp;

/// The last second that both forms can express; later times are clamped to it.
const LATEST: Timestamp = Timestamp::from_secs(253_402_300_799);

/// Returns `YYYY-MM-DDTHH:MM:SSZ` (SPECIFICATION, "Conventions").
pub fn iso(at: Timestamp) -> String {
    let seconds = i64::try_from(at.min(LATEST).as_secs()).unwrap_or(0);
    OffsetDateTime::from_unix_timestamp(seconds)
        .ok()
        .and_then(|at| {
            at.format(format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z")).ok()
        })
        .unwrap_or_default()
}

/// Accepts `Z` or a numeric offset. Times before 1970 become the epoch.
pub fn parse_iso(text: &str) -> Option<Timestamp> {
    // An unescaped `+` in a query arrives as a space.
    let at = OffsetDateTime::parse(&text.trim().replace(' ', "+"), &Rfc3339).ok()?;
    let millis = at.unix_timestamp_nanos() / 1_000_000;
    // The world has no events before the epoch, so all earlier times are equivalent.
    u64::try_from(millis.max(0)).ok().map(Timestamp::from_millis)
}

/// Returns the form of `Date` and `Last-Modified` (RFC 9110, section 5.6.7).
pub fn http_date(at: Timestamp) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(at.min(LATEST).as_secs()))
}

/// Parses an HTTP date; a malformed one counts as absent (RFC 9110, section 13.1.3).
pub fn parse_http_date(text: &str) -> Option<Timestamp> {
    let at = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(Timestamp::from_secs(at.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_iso_8601_with_z() {
        assert_eq!(iso(Timestamp::from_secs(1_700_000_000)), "2023-11-14T22:13:20Z");
        assert_eq!(iso(Timestamp::FAR_FUTURE), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn a_numeric_offset_is_read_too() {
        assert_eq!(
            parse_iso("2023-11-14T23:13:20+01:00"),
            Some(Timestamp::from_secs(1_700_000_000))
        );
        assert_eq!(
            parse_iso("2023-11-14T23:13:20 01:00"),
            Some(Timestamp::from_secs(1_700_000_000))
        );
        assert_eq!(parse_iso("yesterday"), None);
        assert_eq!(parse_iso("1969-11-14T23:13:20Z"), Some(Timestamp::EPOCH));
    }

    #[test]
    fn an_http_date_survives_the_round_trip() {
        let at = Timestamp::from_secs(1_700_000_000);
        assert_eq!(parse_http_date(&http_date(at)), Some(at));
        assert!(http_date(Timestamp::FAR_FUTURE).contains("9999"));
    }
}
