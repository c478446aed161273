//! An answer as it arrived: its storability and its freshness lifetime by its own headers (RFC 9111
//! §3, §4.2).
//!
//! `private` does not forbid storing: an answer is only shown within the scope of its key
//! (SPECIFICATION D2). Without a lifetime for shared caches it is validated before each use.
//!
//! Only [`Mode::Rfc9111`] guesses a lifetime, by the date of the last change, as the standard
//! proposes. An answer that is private, or that names any lifetime, is never guessed about.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::clock::Timestamp;

use super::cache_control::{CacheControl, vary_names};
use super::freshness::Mode;
use super::time::http_date::date;

/// Statuses that are always stored: those that RFC 9110 §15.1 calls heuristically cacheable and
/// that answer the whole request. Not 206 (a part), and not 405, 414 and 501 (about the request). A
/// 302 leads to an address that expires, so it is not stored without a lifetime either.
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

/// Heuristically cacheable too (RFC 9110 §15.1).
const ABOUT_THE_REQUEST: [StatusCode; 3] =
    [StatusCode::METHOD_NOT_ALLOWED, StatusCode::URI_TOO_LONG, StatusCode::NOT_IMPLEMENTED];

/// Statuses that are never stored, whatever lifetime they name: a part, an answer to a condition or
/// a range, and a judgement on the credential or the rate of one client.
const NEVER_STORED: [StatusCode; 7] = [
    StatusCode::PARTIAL_CONTENT,
    StatusCode::NOT_MODIFIED,
    StatusCode::UNAUTHORIZED,
    StatusCode::PROXY_AUTHENTICATION_REQUIRED,
    StatusCode::PRECONDITION_FAILED,
    StatusCode::RANGE_NOT_SATISFIABLE,
    StatusCode::TOO_MANY_REQUESTS,
];

/// The part of the time since the last change for which an answer counts as fresh (RFC 9111
/// §4.2.2).
const GUESSED_PART: u32 = 10;
/// The longest guess. Chosen here: RFC 7234 wanted a warning for more.
const GUESSED_MAX: Duration = Duration::from_hours(24);

/// The facts about an answer that its lifetime depends on.
#[derive(Clone, Copy)]
pub struct Arrived<'h> {
    pub status: StatusCode,
    pub headers: &'h HeaderMap,
    pub at: Timestamp,
    pub mode: Mode,
}

/// Returns true for the statuses that are always stored. Any other may be about this one request,
/// its headers included.
pub fn is_storable_status(status: StatusCode) -> bool {
    STORED.contains(&status)
}

impl Arrived<'_> {
    pub fn control(self) -> CacheControl {
        CacheControl::of(self.status, self.headers, self.mode)
    }

    /// Returns true when the answer may be stored (RFC 9111 §3). A plain HTTP cache stores any
    /// final status with a lifetime.
    pub fn is_storable(self) -> bool {
        let has_lifetime = || {
            let last_modified = self.headers.get(header::LAST_MODIFIED);
            self.mode == Mode::Rfc9111
                && !self.status.is_informational()
                && !NEVER_STORED.contains(&self.status)
                && !self.lifetime(&self.control(), last_modified).is_zero()
        };
        self.permits_storing() && (is_storable_status(self.status) || has_lifetime())
    }

    /// Returns true when no header forbids storing (`Vary: *` never matches a later request, §4.1).
    pub fn permits_storing(self) -> bool {
        !self.control().no_store && vary_names(self.headers).is_some()
    }

    /// Freshness lifetime, counted from the generation of the answer: `s-maxage`, `max-age`,
    /// `Expires` minus `Date`, in this order (RFC 9111 §4.2.1); else a guess by `last_modified`,
    /// where it is known.
    pub fn lifetime(self, control: &CacheControl, last_modified: Option<&HeaderValue>) -> Duration {
        // By default an answer stays in its view, which is no shared cache to the upstream.
        let is_for_others =
            self.mode == Mode::Rfc9111 && control.private && control.s_maxage.is_none();
        if control.no_store || control.no_cache || control.confused || is_for_others {
            return Duration::ZERO;
        }
        if let Some(named) = control.s_maxage.or(control.max_age) {
            return named;
        }
        match self.headers.get(header::EXPIRES).filter(|_| !control.is_targeted) {
            // An invalid date is in the past (RFC 9111 §5.3).
            Some(expires) => date(expires)
                .and_then(|expires| expires.duration_since(self.date()).ok())
                .unwrap_or_default(),
            None if !self.may_be_guessed(control) => Duration::ZERO,
            None => last_modified.and_then(date).map_or(Duration::ZERO, |date| self.guessed(date)),
        }
    }

    /// RFC 9111 §4.2.2: for a status that is heuristically cacheable, or marked as public.
    fn may_be_guessed(self, control: &CacheControl) -> bool {
        self.mode == Mode::Rfc9111
            && (STORED.contains(&self.status)
                || ABOUT_THE_REQUEST.contains(&self.status)
                || control.public)
            && !control.private
    }

    fn guessed(self, last_modified: SystemTime) -> Duration {
        let age = self.date().duration_since(last_modified).unwrap_or_default();
        (age / GUESSED_PART).min(GUESSED_MAX)
    }

    /// `Date`; without a readable one the time of arrival (RFC 9110 §6.6.1).
    fn date(self) -> SystemTime {
        let arrived = SystemTime::UNIX_EPOCH + Duration::from_millis(self.at.as_millis());
        self.headers.get(header::DATE).and_then(date).unwrap_or(arrived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 July 2025.
    const NOW: Timestamp = Timestamp::from_secs(1_751_328_000);
    const DATE: &str = "Tue, 01 Jul 2025 00:00:00 GMT";
    /// 20 hours earlier.
    const CHANGED: &str = "Mon, 30 Jun 2025 04:00:00 GMT";

    type Pairs<'p> = &'p [(&'static str, &'static str)];

    fn arrived<T>(mode: Mode, status: u16, pairs: Pairs<'_>, of: impl Fn(Arrived<'_>) -> T) -> T {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        let status = StatusCode::from_u16(status).unwrap();
        of(Arrived { status, headers: &headers, at: NOW, mode })
    }

    fn in_mode(mode: Mode, status: u16, pairs: Pairs<'_>) -> u64 {
        arrived(mode, status, pairs, |arrived| {
            let last_modified = arrived.headers.get(header::LAST_MODIFIED);
            arrived.lifetime(&arrived.control(), last_modified).as_secs()
        })
    }

    fn is_storable(mode: Mode, status: u16, pairs: Pairs<'_>) -> bool {
        fn of(arrived: Arrived<'_>) -> bool {
            arrived.is_storable()
        }
        arrived(mode, status, pairs, of)
    }

    fn seconds(pairs: Pairs<'_>) -> u64 {
        in_mode(Mode::Rfc9111, 200, pairs)
    }

    #[test]
    fn answers_with_a_cacheable_status_are_stored() {
        for mode in [Mode::Revalidate, Mode::Rfc9111] {
            for status in [200, 203, 204, 300, 301, 308, 404, 410] {
                assert!(is_storable(mode, status, &[]), "{status}");
                let private = [("cache-control", "private, max-age=60")];
                assert!(is_storable(mode, status, &private), "{status}");
            }
            for status in [201, 202, 206, 302, 304, 307, 401, 403, 405, 429, 500, 503] {
                assert!(!is_storable(mode, status, &[]), "{status}");
            }
        }
    }

    #[test]
    fn any_final_status_with_a_lifetime_is_stored() {
        let fresh = [("cache-control", "max-age=60")];
        for status in [201, 299, 302, 303, 307, 400, 403, 405, 418, 499, 500, 502, 503, 504, 599] {
            assert!(is_storable(Mode::Rfc9111, status, &fresh), "{status}");
            assert!(!is_storable(Mode::Revalidate, status, &fresh), "{status}");
            let stale = [("expires", "0"), ("last-modified", CHANGED), ("date", DATE)];
            assert!(!is_storable(Mode::Rfc9111, status, &stale), "{status}");
            let of_one = [("cache-control", "private, max-age=60")];
            assert!(!is_storable(Mode::Rfc9111, status, &of_one), "{status}");
        }
        for status in [103, 206, 304, 401, 407, 412, 416, 429] {
            assert!(!is_storable(Mode::Rfc9111, status, &fresh), "{status}");
        }
    }

    #[test]
    fn answers_with_no_store_or_vary_star_are_not_stored() {
        for mode in [Mode::Revalidate, Mode::Rfc9111] {
            let lines = [("cache-control", "max-age=60"), ("cache-control", "No-Store")];
            assert!(!is_storable(mode, 200, &lines));
            assert!(!is_storable(mode, 200, &[("vary", "accept"), ("vary", "authorization, *")]));
            let named = [("vary", "Accept, Authorization, Cookie, X-Service-OTP")];
            assert!(is_storable(mode, 200, &named));
        }
    }

    #[test]
    fn the_shared_cache_lifetime_precedes_max_age() {
        assert_eq!(seconds(&[("cache-control", "private, max-age=60, s-maxage=30")]), 30);
        assert_eq!(seconds(&[("cache-control", "max-age=\"60\"")]), 60);
        assert_eq!(seconds(&[("expires", "Tue, 01 Jul 2025 00:01:00 GMT"), ("date", DATE)]), 60);
        assert_eq!(seconds(&[("expires", "0"), ("date", DATE), ("last-modified", CHANGED)]), 0);
    }

    #[test]
    fn an_expires_counts_from_the_arrival_without_a_readable_date() {
        for date in ["foo", "0"] {
            assert_eq!(
                seconds(&[("expires", "Tue, 01 Jul 2025 00:01:00 GMT"), ("date", date)]),
                60
            );
        }
        assert_eq!(seconds(&[("expires", "Tue, 01 Jul 2025 00:01:00 GMT")]), 60);
    }

    #[test]
    fn a_private_answer_is_fresh_only_for_its_s_maxage() {
        assert_eq!(seconds(&[("cache-control", "private, max-age=3600")]), 0);
        assert_eq!(seconds(&[("cache-control", "private=\"x-user\", max-age=3600")]), 0);
        assert_eq!(seconds(&[("cache-control", "private"), ("last-modified", CHANGED)]), 0);
        let private = [("cache-control", "private, max-age=3600")];
        assert_eq!(in_mode(Mode::Revalidate, 200, &private), 3600, "in its view");
    }

    #[test]
    fn contradictory_directives_make_an_answer_stale() {
        assert_eq!(seconds(&[("cache-control", "max-age=60, max-age=90")]), 0);
        assert_eq!(seconds(&[("cache-control", "max-age=60, max-age=60")]), 60);
        assert_eq!(seconds(&[("cache-control", "max-age=soon")]), 0);
        assert_eq!(seconds(&[("cache-control", "max-age=60, no-cache")]), 0);
    }

    #[test]
    fn a_targeted_field_replaces_cache_control_and_expires() {
        let target = "cdn-cache-control";
        let later = ("expires", "Tue, 01 Jul 2025 00:01:00 GMT");
        assert_eq!(seconds(&[(target, "max-age=60"), ("cache-control", "no-store")]), 60);
        assert_eq!(seconds(&[(target, "max-age=0"), ("date", DATE), later]), 0);
        assert_eq!(seconds(&[(target, "x"), ("date", DATE), later]), 0);
        assert_eq!(seconds(&[(target, "no-store"), ("cache-control", "max-age=60")]), 0);
        assert_eq!(seconds(&[(target, "max-age=60, &"), ("cache-control", "max-age=9")]), 9);
        let lines = [(target, "max-age=60"), ("cache-control", "max-age=9")];
        assert_eq!(in_mode(Mode::Revalidate, 200, &lines), 9, "a plain HTTP cache alone");
    }

    #[test]
    fn a_tenth_of_the_time_since_the_last_change_is_guessed() {
        let changed = [("last-modified", CHANGED), ("date", DATE)];
        for status in [200, 203, 204, 404, 405, 410, 414, 501] {
            assert_eq!(in_mode(Mode::Rfc9111, status, &changed), 7_200, "{status}");
            assert_eq!(in_mode(Mode::Revalidate, status, &changed), 0, "{status}");
        }
        for status in [201, 202, 206, 302, 403, 500, 502, 503, 504, 599] {
            assert_eq!(in_mode(Mode::Rfc9111, status, &changed), 0, "{status}");
        }
        let public = [changed[0], changed[1], ("cache-control", "public")];
        assert_eq!(in_mode(Mode::Rfc9111, 599, &public), 7_200);
        assert_eq!(seconds(&[("last-modified", "Wed, 02 Jul 2025 00:00:00 GMT")]), 0);
        assert_eq!(seconds(&[("last-modified", "Tue, 01 Jul 2003 00:00:00 GMT")]), 86_400);
    }
}
