//! The directives of an answer (RFC 9111 §5.2.2), and other headers that a cache reads.
//! `arrived.rs` decides by them.

use std::time::{Duration, SystemTime};

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::clock::Timestamp;

use super::directives::{Directive, Directives};
use super::freshness::Mode;
use super::targeted;
use super::time::http_date::date;

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
    pub must_revalidate: bool,
    /// The same for every shared cache.
    pub proxy_revalidate: bool,
    pub must_understand: bool,
    /// `private`, with or without field names.
    pub private: bool,
    pub public: bool,
    pub no_transform: bool,
    /// From `CDN-Cache-Control`, beside which `Expires` has no meaning.
    pub is_targeted: bool,
    /// Two lifetimes that differ, or a malformed one: the answer counts as stale (RFC 9111 §4.2.1).
    pub confused: bool,
    pub max_age: Option<Duration>,
    pub s_maxage: Option<Duration>,
    /// `stale-if-error` of RFC 5861 §4. A malformed value allows nothing, and of two values the
    /// shorter counts.
    pub stale_if_error: Option<Duration>,
    /// `stale-while-revalidate` of RFC 5861 §3, with the same rules.
    pub stale_while_revalidate: Option<Duration>,
}

impl CacheControl {
    /// The directives that count in this mode. A plain HTTP cache prefers those for shared caches
    /// (RFC 9213 §2.2). With `must-understand` the status decides on storing, and not `no-store`
    /// (RFC 9111 §5.2.2.3).
    pub fn of(status: StatusCode, headers: &HeaderMap, mode: Mode) -> Self {
        if mode == Mode::Revalidate {
            return Self::parse(headers);
        }
        let read = targeted::control(headers).unwrap_or_else(|| Self::parse(headers));
        let is_understood = status.canonical_reason().is_some();
        let no_store = if read.must_understand { !is_understood } else { read.no_store };
        Self { no_store, ..read }
    }

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
            Directive::MustRevalidate => self.must_revalidate = true,
            Directive::ProxyRevalidate => self.proxy_revalidate = true,
            Directive::MustUnderstand => self.must_understand = true,
            Directive::Private => self.private = true,
            Directive::Public => self.public = true,
            Directive::NoTransform => self.no_transform = true,
            Directive::MaxAge => self.confused |= !set(&mut self.max_age, seconds),
            Directive::SMaxage => self.confused |= !set(&mut self.s_maxage, seconds),
            Directive::StaleIfError => shorten(&mut self.stale_if_error, seconds),
            Directive::StaleWhileRevalidate => shorten(&mut self.stale_while_revalidate, seconds),
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

impl CacheControl {
    /// Returns true when it determines the lifetime; `Expires` is then ignored (RFC 9111 §5.3).
    pub fn names_lifetime(&self) -> bool {
        self.s_maxage.or(self.max_age).is_some()
            || self.no_store
            || self.no_cache
            || self.confused
            || self.is_targeted
    }

    /// Returns true for an answer that is meant for others too, although its request carried a
    /// credential (RFC 9111 §3.5).
    pub fn is_shareable(&self) -> bool {
        let is_meant = self.public || self.must_revalidate || self.s_maxage.is_some();
        is_meant && !self.private && !self.no_store
    }

    /// Returns true when the answer forbids every stale use (RFC 9111 §4.2.4, §5.2.2.10).
    pub fn forbids_stale(&self) -> bool {
        self.must_revalidate
            || self.proxy_revalidate
            || self.no_cache
            || self.no_store
            || self.s_maxage.is_some()
    }
}

/// Time since the generation of an answer, by its `Date` (RFC 9111 §4.2.3); zero without one, or if
/// it is in the future. Parts of a second are the network's.
pub fn apparent_age(headers: &HeaderMap, now: Timestamp) -> Duration {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(now.as_secs());
    let generated = headers.get(header::DATE).and_then(date);
    generated.and_then(|generated| now.duration_since(generated).ok()).unwrap_or_default()
}

/// Time that an answer spent in other caches: its `Age` (RFC 9111 §4.2.3). Of several the first
/// counts, and one that is no number is ignored (§5.1).
pub fn initial_age(headers: &HeaderMap) -> Duration {
    let line = headers.get(header::AGE).and_then(|line| line.to_str().ok());
    let first = line.and_then(|line| line.split(',').next());
    first.and_then(|age| delta_seconds(age.trim())).unwrap_or_default()
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

    #[test]
    fn the_age_header_is_the_initial_age() {
        let age = |lines: &[(&'static str, &'static str)]| initial_age(&headers(lines));
        assert_eq!(age(&[]), Duration::ZERO);
        assert_eq!(age(&[("age", "20")]), Duration::from_secs(20));
        assert_eq!(age(&[("age", "99999999999999999999")]), Duration::from_secs(u32::MAX.into()));
    }

    #[test]
    fn the_time_since_the_date_is_the_apparent_age() {
        let date = headers(&[("date", "Sun, 06 Nov 1994 08:49:37 GMT")]);
        for (now, seconds) in [(784_111_777, 0), (784_111_900, 123), (784_111_000, 0)] {
            assert_eq!(apparent_age(&date, Timestamp::from_secs(now)).as_secs(), seconds);
        }
        let none = headers(&[("date", "yesterday")]);
        assert!(apparent_age(&none, Timestamp::from_secs(784_111_777)).is_zero());
    }

    #[test]
    fn the_first_of_several_ages_counts() {
        let age = |lines: &[(&'static str, &'static str)]| initial_age(&headers(lines)).as_secs();
        for (line, seconds) in [("7200, 0", 7_200), ("0, 7200", 0), ("0, 0", 0), (" 7 ,x", 7)] {
            assert_eq!(age(&[("age", line)]), seconds, "{line}");
        }
        assert_eq!(age(&[("age", "7200"), ("age", "0")]), 7_200);
        assert_eq!(age(&[("age", "0"), ("age", "7200")]), 0);
    }

    #[test]
    fn an_age_that_is_no_number_is_ignored() {
        for line in ["abc", "-7200", "+7200", "7200.0", "7200;foo=bar", "", ",7200", "7 200"] {
            assert!(initial_age(&headers(&[("age", line)])).is_zero(), "{line}");
        }
    }

    #[test]
    fn a_quoted_string_contains_no_directive() {
        let read = |line: &'static str| CacheControl::parse(&headers(&[("cache-control", line)]));
        let control = read(r#"max-age=0, ext="x, s-maxage=1000""#);
        assert_eq!((control.max_age, control.s_maxage), (Some(Duration::ZERO), None));
        assert_eq!(read(r#"ext="a, max-age=1000, b""#), CacheControl::default());
        assert_eq!(read(r#"private, ext="q\", s-maxage=600""#).s_maxage, None);
        assert!(!read(r#"max-age=60, ext="x, no-store""#).no_store);
        for line in
            [r#"max-age=60, ext="x"#, r#"max-age=60, ext="x, stale-if-error=60"#, r#"s-maxage="60"#]
        {
            assert!(read(line).confused && read(line).forbids_stale(), "{line}");
        }
        assert!(read(r#"ext="x, no-store"#).no_store, "what it forbids may have been meant");
    }

    #[test]
    fn restrictive_directives_forbid_stale_use() {
        for directive in
            ["must-revalidate", "proxy-revalidate", "no-cache", "s-maxage=2", "no-store"]
        {
            let line = format!("max-age=2, {directive}");
            assert!(
                CacheControl::of_lines([line.as_bytes()].into_iter()).forbids_stale(),
                "{line}"
            );
        }
        let plain = CacheControl::parse(&headers(&[("cache-control", "private, max-age=60")]));
        assert!(!plain.forbids_stale());
    }

    #[test]
    fn an_answer_is_shared_only_where_the_upstream_says_so() {
        let is_shareable =
            |line: &str| CacheControl::of_lines([line.as_bytes()].into_iter()).is_shareable();
        for line in ["max-age=60, public", "max-age=60, must-revalidate", "s-maxage=60"] {
            assert!(is_shareable(line), "{line}");
            for forbidden in ["private", "private=\"a\"", "no-store"] {
                assert!(!is_shareable(&format!("{line}, {forbidden}")), "{line}, {forbidden}");
            }
        }
        assert!(!is_shareable("max-age=60") && !is_shareable("max-age=60, proxy-revalidate"));
    }

    #[test]
    fn the_shortest_bound_of_staleness_counts() {
        for (line, seconds) in [
            ("max-age=1, Stale-If-Error=30", Some(30)),
            ("stale-if-error=\"30\"", Some(30)),
            ("stale-if-error=30, stale-if-error=40", Some(30)),
            ("stale-if-error=99999999999", Some(u32::MAX.into())),
            ("max-age=1", None),
            ("stale-if-error", Some(0)),
            ("stale-if-error=30, stale-if-error=soon", Some(0)),
            ("stale-if-error=-1", Some(0)),
        ] {
            let read = CacheControl::of_lines([line.as_bytes()].into_iter());
            assert_eq!(read.stale_if_error.map(|span| span.as_secs()), seconds, "{line}");
            let line = line.to_ascii_lowercase().replace("if-error", "while-revalidate");
            let read = CacheControl::of_lines([line.as_bytes()].into_iter());
            assert_eq!(read.stale_while_revalidate.map(|span| span.as_secs()), seconds, "{line}");
        }
    }

    #[test]
    fn a_known_status_is_stored_with_must_understand() {
        let headers = headers(&[("cache-control", "max-age=60, no-store, must-understand")]);
        let no_store = |status, mode| {
            CacheControl::of(StatusCode::from_u16(status).unwrap(), &headers, mode).no_store
        };
        assert!(!no_store(200, Mode::Rfc9111) && no_store(599, Mode::Rfc9111));
        assert!(no_store(200, Mode::Revalidate), "for a plain HTTP cache alone");
    }
}
