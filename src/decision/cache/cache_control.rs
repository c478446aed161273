//! Storability and freshness lifetime by the answer's own headers (RFC 9111 §3, §4.2).
//!
//! `private` does not forbid storing: an answer is only shown within the scope of its key
//! (SPECIFICATION D2). Without a lifetime for shared caches it is validated before each use. There
//! is no heuristic freshness: users of caches that guess complain of stale answers.

use std::time::Duration;

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::conditional::date;
use super::directives::{Directive, Directives};

/// Statuses that are stored: those that RFC 9110 §15.1 calls heuristically cacheable and that
/// answer the whole request. Not 206 (a part), and not 405, 414 and 501 (about the request). A 302
/// leads to an address that expires, so it is not stored either.
const STORED: [StatusCode; 8] = [
    StatusCode::OK,
    StatusCode::NON_AUTHORITATIVE_INFORMATION,
    StatusCode::NO_CONTENT,
    StatusCode::MULTIPLE_CHOICES,
    StatusCode::MOVED_PERMANENTLY,
    StatusCode::PERMANENT_REDIRECT,
    StatusCode::NOT_FOUND,
    StatusCode::GONE,
];

/// Older than any lifetime.
const AGE_UNREADABLE: Duration = Duration::from_secs(1 << 32);

/// Longest interval that is believed. Ours: a minute is usual, more comes under load; an absurd
/// number would freeze the answers that clients see.
pub(super) const POLL_INTERVAL_MAX: Duration = Duration::from_hours(1);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a directive that is there or is not, RFC 9111 §5.2.2"
)]
pub struct CacheControl {
    pub no_store: bool,
    /// `no-cache`, with or without field names.
    pub no_cache: bool,
    /// `must-revalidate`, or `proxy-revalidate`, which binds every shared cache.
    pub must_revalidate: bool,
    /// `private`, with or without field names.
    pub private: bool,
    pub no_transform: bool,
    /// Two lifetimes that differ, or a malformed one: the answer counts as stale (RFC 9111 §4.2.1).
    pub confused: bool,
    pub max_age: Option<Duration>,
    pub s_maxage: Option<Duration>,
    /// `stale-if-error` of RFC 5861 §4. A malformed value allows nothing, and of two values the
    /// shorter counts.
    pub stale_if_error: Option<Duration>,
}

impl CacheControl {
    pub fn parse(headers: &HeaderMap) -> Self {
        Self::of_lines(headers.get_all(header::CACHE_CONTROL).iter().map(HeaderValue::as_bytes))
    }

    pub fn of_lines<'l>(lines: impl Iterator<Item = &'l [u8]>) -> Self {
        let mut read = Self::default();
        for line in lines {
            // A line with other characters than visible ASCII cannot contain a directive that
            // allows anything.
            let Some(mut directives) = Directives::of(line) else {
                read.confused = true;
                continue;
            };
            directives.by_ref().for_each(|(name, value)| read.take(name, value));
            if directives.is_unclosed {
                // The end of the quotes is unknown: prohibitions in the line count, permissions do
                // not.
                (read.confused, read.must_revalidate, read.private) = (true, true, true);
            }
        }
        read
    }

    fn take(&mut self, name: &str, value: Option<&str>) {
        let Ok(directive) = name.parse::<Directive>() else { return };
        let seconds = value.and_then(delta_seconds);
        match directive {
            Directive::NoStore => self.no_store = true,
            Directive::NoCache => self.no_cache = true,
            Directive::MustRevalidate | Directive::ProxyRevalidate => self.must_revalidate = true,
            Directive::Private => self.private = true,
            Directive::NoTransform => self.no_transform = true,
            Directive::MaxAge => self.confused |= !set(&mut self.max_age, seconds),
            Directive::SMaxage => self.confused |= !set(&mut self.s_maxage, seconds),
            Directive::StaleIfError => shorten(&mut self.stale_if_error, seconds),
            Directive::MaxStale | Directive::MinFresh | Directive::OnlyIfCached => {}
        }
    }
}

/// Sets a duration. Returns false when `value` is missing or contradicts the earlier one.
pub(super) fn set(span: &mut Option<Duration>, value: Option<Duration>) -> bool {
    let Some(value) = value else { return false };
    let before = span.replace(value);
    before.is_none_or(|before| before == value)
}

/// Sets a bound of staleness: the shorter of two values is safe, and nothing without a readable
/// value.
pub(super) fn shorten(span: &mut Option<Duration>, value: Option<Duration>) {
    let value = value.unwrap_or_default();
    *span = Some(span.map_or(value, |before| before.min(value)));
}

/// RFC 9111 §1.2.2: a number too large counts as the largest.
pub(super) fn delta_seconds(text: &str) -> Option<Duration> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| Duration::from_secs(text.parse::<u32>().unwrap_or(u32::MAX).into()))
}

/// Returns true for the statuses that are stored. Any other may be about this one request, its
/// headers included.
pub fn is_storable_status(status: StatusCode) -> bool {
    STORED.contains(&status)
}

/// Returns true when an answer may be stored (RFC 9111 §3; `Vary: *` never matches a later request,
/// §4.1).
pub fn storable(status: StatusCode, headers: &HeaderMap) -> bool {
    is_storable_status(status)
        && !CacheControl::parse(headers).no_store
        && vary_names(headers).is_some()
}

/// Returns the headers named by `Vary`, lower case, sorted; `None` for `*` or an invalid name.
pub fn vary_names(headers: &HeaderMap) -> Option<Vec<HeaderName>> {
    let mut names = Vec::new();
    for line in headers.get_all(header::VARY) {
        for name in line.to_str().ok()?.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            // A star is a token and would parse as a name.
            names.push(if name == "*" {
                None
            } else {
                HeaderName::from_bytes(name.as_bytes()).ok()
            }?);
        }
    }
    names.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
    names.dedup();
    Some(names)
}

/// Freshness lifetime, counted from the generation of the answer: `s-maxage`, `max-age`, `Expires`
/// minus `Date`, in this order (RFC 9111 §4.2.1). [`initial_age`] is the age at arrival.
pub fn lifetime(headers: &HeaderMap) -> Duration {
    let control = CacheControl::parse(headers);
    let is_for_others = control.private && control.s_maxage.is_none();
    if control.no_store || control.no_cache || control.confused || is_for_others {
        return Duration::ZERO;
    }
    control.s_maxage.or(control.max_age).or_else(|| expires(headers)).unwrap_or_default()
}

/// Returns true when `Cache-Control` determines the lifetime; `Expires` is then ignored (RFC 9111
/// §5.3).
pub fn names_lifetime(headers: &HeaderMap) -> bool {
    let control = CacheControl::parse(headers);
    control.s_maxage.is_some()
        || control.max_age.is_some()
        || control.no_store
        || control.no_cache
        || control.confused
}

/// Time that an answer spent in other caches: its `Age` (RFC 9111 §4.2.3). An `Age` that is not one
/// number counts as infinite (§5.1): the faulty cache on the way is unknown, and the public suite
/// of cache tests expects it. `Date` is ignored, because the two clocks may differ.
pub fn initial_age(headers: &HeaderMap) -> Duration {
    let mut lines = headers.get_all(header::AGE).iter();
    match (lines.next(), lines.next()) {
        (None, _) => Duration::ZERO,
        (Some(age), None) => age.to_str().ok().and_then(delta_seconds).unwrap_or(AGE_UNREADABLE),
        (Some(_), Some(_)) => AGE_UNREADABLE,
    }
}

/// Returns true when the answer forbids every stale use (RFC 9111 §4.2.4, §5.2.2.10).
pub fn forbids_stale(headers: &HeaderMap) -> bool {
    let control = CacheControl::parse(headers);
    control.must_revalidate || control.no_cache || control.no_store || control.s_maxage.is_some()
}

/// Time after the end of the lifetime in which the answer may replace an error (RFC 5861 §4).
pub fn stale_if_error(headers: &HeaderMap) -> Duration {
    CacheControl::parse(headers).stale_if_error.unwrap_or_default()
}

fn expires(headers: &HeaderMap) -> Option<Duration> {
    let date_of = |name: HeaderName| date(headers.get(name)?);
    date_of(header::EXPIRES)?.duration_since(date_of(header::DATE)?).ok()
}

/// Duration of `X-Poll-Interval`, at most [`POLL_INTERVAL_MAX`].
pub fn poll_interval(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get("x-poll-interval")?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(POLL_INTERVAL_MAX))
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

    fn seconds(pairs: &[(&'static str, &'static str)]) -> u64 {
        lifetime(&headers(pairs)).as_secs()
    }

    #[test]
    fn answers_with_a_cacheable_status_are_stored() {
        for status in [200, 204, 301, 404, 410] {
            assert!(
                storable(
                    StatusCode::from_u16(status).unwrap(),
                    &headers(&[("cache-control", "private, max-age=60")])
                ),
                "{status}"
            );
        }
        for status in [201, 202, 206, 302, 304, 307, 401, 403, 429, 500, 503] {
            assert!(
                !storable(StatusCode::from_u16(status).unwrap(), &HeaderMap::new()),
                "{status}"
            );
        }
    }

    #[test]
    fn answers_with_no_store_or_vary_star_are_not_stored() {
        assert!(!storable(
            StatusCode::OK,
            &headers(&[("cache-control", "max-age=60"), ("cache-control", "No-Store")])
        ));
        assert!(!storable(
            StatusCode::OK,
            &headers(&[("vary", "accept"), ("vary", "authorization, *")])
        ));
        assert!(storable(
            StatusCode::OK,
            &headers(&[("vary", "Accept, Authorization, Cookie, X-Service-OTP")])
        ));
    }

    #[test]
    fn the_shared_cache_lifetime_precedes_max_age() {
        assert_eq!(seconds(&[("cache-control", "private, max-age=60, s-maxage=30")]), 30);
        assert_eq!(seconds(&[("cache-control", "max-age=\"60\"")]), 60);
        assert_eq!(
            seconds(&[
                ("expires", "Tue, 01 Jul 2025 00:01:00 GMT"),
                ("date", "Tue, 01 Jul 2025 00:00:00 GMT")
            ]),
            60
        );
        assert_eq!(seconds(&[("expires", "0"), ("date", "Tue, 01 Jul 2025 00:00:00 GMT")]), 0);
        assert_eq!(
            seconds(&[("last-modified", "Tue, 01 Jul 2025 00:00:00 GMT")]),
            0,
            "nothing is guessed"
        );
    }

    #[test]
    fn the_age_header_is_the_initial_age() {
        let age = |lines: &[(&'static str, &'static str)]| initial_age(&headers(lines));
        assert_eq!(age(&[]), Duration::ZERO);
        assert_eq!(age(&[("age", "20")]), Duration::from_secs(20));
        assert_eq!(age(&[("age", "99999999999999999999")]), Duration::from_secs(u32::MAX.into()));
    }

    #[test]
    fn a_malformed_age_exceeds_any_lifetime() {
        for line in ["abc", "-7200", "7200.0", "7200,0", "0, 0", "7200;foo=bar", ""] {
            assert!(
                initial_age(&headers(&[("age", line)])) > Duration::from_secs(u32::MAX.into()),
                "{line}"
            );
        }
        assert_eq!(initial_age(&headers(&[("age", "0"), ("age", "0")])), AGE_UNREADABLE);
    }

    #[test]
    fn a_quoted_string_contains_no_directive() {
        let control = |line: &'static str| headers(&[("cache-control", line)]);
        for line in [
            r#"max-age=0, ext="x, s-maxage=1000""#,
            r#"ext="a, max-age=1000, b""#,
            r#"private, ext="q\", s-maxage=600""#,
        ] {
            assert_eq!(lifetime(&control(line)), Duration::ZERO, "{line}");
        }
        assert_eq!(lifetime(&control(r#"max-age=60, ext="x, no-store""#)), Duration::from_secs(60));
        for line in
            [r#"max-age=60, ext="x"#, r#"max-age=60, ext="x, stale-if-error=60"#, r#"s-maxage="60"#]
        {
            assert!(lifetime(&control(line)).is_zero() && forbids_stale(&control(line)), "{line}");
        }
        assert!(
            !storable(StatusCode::OK, &control(r#"ext="x, no-store"#)),
            "what it forbids may have been meant"
        );
    }

    #[test]
    fn a_private_answer_is_fresh_only_for_its_s_maxage() {
        assert_eq!(seconds(&[("cache-control", "private, max-age=3600")]), 0);
        assert_eq!(seconds(&[("cache-control", "private=\"x-user\", max-age=3600")]), 0);
        assert_eq!(seconds(&[("cache-control", "private, max-age=60, s-maxage=30")]), 30);
    }

    #[test]
    fn restrictive_directives_forbid_stale_use() {
        for directive in
            ["must-revalidate", "proxy-revalidate", "no-cache", "s-maxage=2", "no-store"]
        {
            let line = HeaderValue::from_str(&format!("max-age=2, {directive}")).unwrap();
            assert!(
                forbids_stale(&HeaderMap::from_iter([(header::CACHE_CONTROL, line)])),
                "{directive}"
            );
        }
        assert!(!forbids_stale(&headers(&[("cache-control", "private, max-age=60")])));
    }

    #[test]
    fn the_shortest_stale_if_error_counts() {
        let read =
            |line: &'static str| stale_if_error(&headers(&[("cache-control", line)])).as_secs();
        for (line, seconds) in [
            ("max-age=1, Stale-If-Error=30", 30),
            ("stale-if-error=\"30\"", 30),
            ("stale-if-error=30, stale-if-error=40", 30),
            ("stale-if-error=99999999999", u32::MAX.into()),
            ("max-age=1", 0),
            ("stale-if-error", 0),
            ("stale-if-error=30, stale-if-error=soon", 0),
            ("stale-if-error=-1", 0),
        ] {
            assert_eq!(read(line), seconds, "{line}");
        }
    }

    #[test]
    fn contradictory_directives_make_an_answer_stale() {
        assert_eq!(seconds(&[("cache-control", "max-age=60, max-age=90")]), 0);
        assert_eq!(seconds(&[("cache-control", "max-age=60, max-age=60")]), 60);
        assert_eq!(seconds(&[("cache-control", "max-age=soon")]), 0);
        assert_eq!(seconds(&[("cache-control", "max-age=60, no-cache")]), 0);
    }
}
