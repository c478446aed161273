//! Request directives: `Cache-Control` and `Pragma` of a client's request (RFC 9111 §5.2.1, §5.4).
//!
//! A cache may ignore them (§5.2.1). This one honours all of them in both modes, with one
//! exception: the upstream's poll interval overrides a client's demand for a newer answer. In
//! [`Mode::Revalidate`] a `no-cache` beside a condition is ignored: runtimes add it to each
//! conditional request (SPECIFICATION, "Client libraries" 9). The gateway answers an unmet
//! `only-if-cached`.

use std::time::Duration;

use http::HeaderMap;
use http::header;

use crate::clock::Timestamp;

use super::cache_control::{delta_seconds, set, shorten};
use super::directives::{Directive, Directives};
use super::freshness::Mode;
use super::settling::Trust;
use super::validated::Validated;

/// Directives of a request; mostly none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a directive that is there or is not, RFC 9111 §5.2.1"
)]
pub struct RequestDirectives {
    /// `no-cache`, or an equivalent.
    pub no_cache: bool,
    pub no_store: bool,
    pub only_if_cached: bool,
    pub no_transform: bool,
    /// `max-age`; not zero.
    pub max_age: Option<Duration>,
    pub min_fresh: Option<Duration>,
    /// `max-stale`; unlimited without a number.
    pub max_stale: Option<Duration>,
    /// `stale-if-error` (RFC 5861 §4); absent when malformed.
    pub stale_if_error: Option<Duration>,
}

impl RequestDirectives {
    /// Parses all lines of the headers. Most requests have neither, which one pass over their names
    /// shows.
    pub fn of(request: &HeaderMap, mode: Mode) -> Self {
        let (mut has_cache_control, mut has_pragma, mut is_conditional) = (false, false, false);
        for name in request.keys() {
            has_cache_control |= *name == header::CACHE_CONTROL;
            has_pragma |= *name == header::PRAGMA;
            is_conditional |= *name == header::IF_NONE_MATCH || *name == header::IF_MODIFIED_SINCE;
        }
        let no_cache_counts = mode == Mode::Rfc9111 || !is_conditional;
        if has_cache_control {
            Self::of_cache_control(request, no_cache_counts)
        } else if has_pragma && no_cache_counts {
            // §5.4: `Pragma` counts only without `Cache-Control`, and only `no-cache` of it.
            let lines =
                request.get_all(header::PRAGMA).iter().filter_map(|line| line.to_str().ok());
            let no_cache = lines
                .flat_map(|line| line.split(','))
                .any(|directive| directive.trim().eq_ignore_ascii_case("no-cache"));
            Self { no_cache, ..Self::default() }
        } else {
            Self::default()
        }
    }

    fn of_cache_control(request: &HeaderMap, no_cache_counts: bool) -> Self {
        let (mut read, mut max_stale_is_malformed) = (Self::default(), false);
        for line in request.get_all(header::CACHE_CONTROL) {
            // A line with other characters than visible ASCII may mean anything; a validated answer
            // is always right.
            let Some(mut directives) = Directives::of(line.as_bytes()) else {
                read.no_cache = true;
                continue;
            };
            for (name, value) in directives.by_ref() {
                max_stale_is_malformed |= !read.take(name, value, no_cache_counts);
            }
            // The intent of unclosed quotes is unknown.
            read.no_cache |= directives.is_unclosed;
        }
        if max_stale_is_malformed {
            read.max_stale = None;
        }
        // §5.2.1.1: no stored answer is younger than its validation, so this demands a validation.
        read.no_cache |= read.max_age == Some(Duration::ZERO);
        read
    }

    /// Takes one directive. Returns false for a malformed `max-stale`. A strict directive that is
    /// malformed or contradictory demands a validation (§4.2.1 treats answers so).
    fn take(&mut self, name: &str, value: Option<&str>, no_cache_counts: bool) -> bool {
        let Ok(directive) = name.parse::<Directive>() else { return true };
        let seconds = value.and_then(delta_seconds);
        match directive {
            Directive::NoCache => self.no_cache |= no_cache_counts,
            Directive::NoStore => self.no_store = true,
            Directive::OnlyIfCached => self.only_if_cached = true,
            Directive::NoTransform => self.no_transform = true,
            Directive::MaxAge => self.no_cache |= !set(&mut self.max_age, seconds),
            Directive::MinFresh => self.no_cache |= !set(&mut self.min_fresh, seconds),
            Directive::StaleIfError => shorten(&mut self.stale_if_error, seconds),
            Directive::MaxStale => {
                return set(&mut self.max_stale, value.map_or(Some(Duration::MAX), delta_seconds));
            }
            Directive::MustRevalidate
            | Directive::MustUnderstand
            | Directive::Private
            | Directive::ProxyRevalidate
            | Directive::Public
            | Directive::SMaxage
            | Directive::StaleWhileRevalidate => {}
        }
        true
    }
}

impl Validated<'_> {
    /// Returns true when it may be served without a request to a client with these directives. The
    /// other parameters are those of [`Validated::is_fresh_after`], which decides without
    /// directives.
    pub fn answers(
        self,
        directives: &RequestDirectives,
        now: Timestamp,
        mode: Mode,
        trust: impl FnOnce() -> Trust,
        granted: Option<Duration>,
    ) -> bool {
        if *directives == RequestDirectives::default() {
            return self.is_fresh_after(now, mode, trust, granted);
        }
        // Ours: otherwise a client could poll at any rate by adding `no-cache` (SPECIFICATION,
        // "Conventions").
        if self.is_polled_already(now) {
            return trust() != Trust::Invalidated;
        }
        // RFC 9111 §5.2.1.4: no answer without a validation for this request.
        if directives.no_cache {
            return false;
        }
        // §5.2.1.1: no older answer.
        if directives.max_age.is_some_and(|age_max| self.age(now, mode) > age_max) {
            return false;
        }
        let freshness = self.freshness(now, mode, granted);
        let left = match trust() {
            Trust::Invalidated => return false,
            Trust::Until(end) if end <= now => return false,
            Trust::Until(end) => freshness.left.min(end.since(now)),
            Trust::Settled => freshness.left,
        };
        if left.is_zero() {
            return self.may_be_stale_for(directives, freshness);
        }
        // §5.2.1.3: fresh for this long still.
        directives.min_fresh.is_none_or(|left_min| left >= left_min)
    }

    /// Returns true when the client accepts it without validation. By §5.2.1.1 a client that names
    /// an age wants nothing stale, unless it names `max-stale`.
    pub fn accepts_stale(self, directives: &RequestDirectives, now: Timestamp, mode: Mode) -> bool {
        let is_strict =
            directives.no_cache || directives.max_age.or(directives.min_fresh).is_some();
        match directives.max_stale {
            None => !is_strict,
            Some(over_max) => {
                !directives.no_cache
                    && directives.min_fresh.is_none()
                    && directives.max_age.is_none_or(|age_max| self.age(now, mode) <= age_max)
                    && self.freshness(now, mode, None).over <= over_max
            }
        }
    }

    /// §5.2.1.2: stale by no more than this, unless the answer forbids it (§4.2.4), in both modes.
    /// A client's directive is not the operator's.
    fn may_be_stale_for(self, directives: &RequestDirectives, freshness: Freshness) -> bool {
        let is_taken = directives.min_fresh.is_none()
            && directives.max_stale.is_some_and(|over_max| freshness.over <= over_max);
        is_taken && !self.stored.forbids_stale
    }

    pub(super) fn over(self, now: Timestamp, mode: Mode) -> Duration {
        self.freshness(now, mode, None).over
    }

    fn freshness(self, now: Timestamp, mode: Mode, granted: Option<Duration>) -> Freshness {
        let since = now.since(self.requested_at);
        let of = |lifetime: Duration, age: Duration| Freshness {
            left: lifetime.saturating_sub(age),
            over: age.saturating_sub(lifetime),
        };
        let own = match (self.stored.ttl.span(), mode) {
            (Some(ttl), _) => of(ttl, since),
            (None, Mode::Rfc9111) => of(self.stored.lifetime.into(), self.age(now, mode)),
            (None, Mode::Revalidate) => of(Duration::ZERO, since),
        };
        let Some(granted) = granted.map(|ttl| of(ttl, since)) else { return own };
        Freshness { left: own.left.max(granted.left), over: own.over.min(granted.over) }
    }
}

#[derive(Clone, Copy, Debug)]
struct Freshness {
    left: Duration,
    over: Duration,
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, StatusCode};

    use super::*;
    use crate::decision::cache::freshness::Stored;
    use crate::decision::types::TokenKey;

    const NOW: Timestamp = Timestamp::from_secs(1_000);
    const PLAIN: &[(&str, &str)] = &[("cache-control", "max-age=60")];
    const SHARED: &[(&str, &str)] = &[("cache-control", "s-maxage=60")];

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    fn of(request: &HeaderMap) -> RequestDirectives {
        RequestDirectives::of(request, Mode::Rfc9111)
    }

    fn directives(line: &'static str) -> RequestDirectives {
        of(&headers(&[("cache-control", line)]))
    }

    fn stored(pairs: &[(&'static str, &'static str)], ttl: Option<u64>) -> Stored {
        Stored::new(
            Mode::Rfc9111,
            NOW,
            StatusCode::OK,
            &headers(pairs),
            Some(TokenKey(1)),
            ttl.map(Duration::from_secs),
        )
    }

    /// Evaluates a client's line this many seconds after storage.
    fn answers(stored: &Stored, line: &'static str, after: u64, mode: Mode, trust: Trust) -> bool {
        stored.validated(NOW, NOW).answers(
            &directives(line),
            NOW + Duration::from_secs(after),
            mode,
            || trust,
            None,
        )
    }

    fn answers_in_a_plain_cache(
        pairs: &[(&'static str, &'static str)],
        line: &'static str,
        after: u64,
    ) -> bool {
        answers(&stored(pairs, None), line, after, Mode::Rfc9111, Trust::Settled)
    }

    #[test]
    fn pragma_counts_only_without_cache_control() {
        assert!(of(&headers(&[("pragma", "foo"), ("pragma", "x, No-Cache")])).no_cache);
        assert!(!of(&headers(&[("pragma", "no-cache"), ("cache-control", "max-stale")])).no_cache);
        assert_eq!(
            of(&headers(&[("pragma", "no-cache=1"), ("accept", "no-cache")])),
            RequestDirectives::default()
        );
    }

    #[test]
    fn no_cache_with_a_condition_counts_only_in_rfc9111_mode() {
        for condition in
            [("if-none-match", "\"a\""), ("if-modified-since", "Tue, 01 Jul 2025 00:00:00 GMT")]
        {
            for no_cache in [("cache-control", "no-cache"), ("pragma", "no-cache")] {
                let request = headers(&[condition, no_cache]);
                assert_eq!(
                    RequestDirectives::of(&request, Mode::Revalidate),
                    RequestDirectives::default(),
                    "{condition:?} {no_cache:?}"
                );
                assert!(
                    of(&request).no_cache
                        && RequestDirectives::of(&headers(&[no_cache]), Mode::Revalidate).no_cache
                );
            }
            let meant = headers(&[condition, ("cache-control", "no-cache, max-age=0, no-store")]);
            let read = RequestDirectives::of(&meant, Mode::Revalidate);
            assert!(read.no_cache && read.no_store, "nobody's runtime says that: {read:?}");
        }
    }

    #[test]
    fn unknown_directives_are_ignored() {
        for line in [
            "",
            ",",
            "nothing-to-see-here",
            "private, immutable, s-maxage=0, stale-while-revalidate=5",
        ] {
            assert_eq!(directives(line), RequestDirectives::default(), "{line}");
        }
        assert!(
            answers_in_a_plain_cache(PLAIN, "", 59) && !answers_in_a_plain_cache(PLAIN, "", 60)
        );
    }

    #[test]
    fn directive_values_are_parsed_strictly() {
        for (line, seconds) in [
            ("Max-Age=5", 5),
            ("max-age = \"5\"", 5),
            ("max-age=5,max-age=5", 5),
            ("max-age=99999999999", u32::MAX),
        ] {
            let read = directives(line);
            assert_eq!(
                (read.max_age, read.no_cache),
                (Some(Duration::from_secs(seconds.into())), false),
                "{line}"
            );
        }
        for line in [
            "max-age",
            "max-age=",
            "max-age=soon",
            "max-age=-1",
            "max-age=5, max-age=6",
            "min-fresh=x",
            "max-age=0",
        ] {
            assert!(directives(line).no_cache, "{line}");
        }
        assert_eq!(
            directives(r#"ext="a, no-cache, max-stale""#),
            RequestDirectives::default(),
            "what stands between quotes is no directive"
        );
        assert!(
            directives(r#"ext="a, max-stale"#).no_cache,
            "who does not end the quotes may want anything"
        );
        let unreadable = HeaderValue::from_bytes(b"x\x80").unwrap();
        assert!(of(&HeaderMap::from_iter([(header::CACHE_CONTROL, unreadable)])).no_cache);
        for line in [
            "max-stale=soon",
            "max-stale=",
            "max-stale, max-stale=5",
            "max-stale=5, max-stale=6, max-stale=7",
        ] {
            assert_eq!(
                directives(line),
                RequestDirectives::default(),
                "{line}: nothing stale is allowed by it"
            );
        }
        assert_eq!(directives("max-stale").max_stale, Some(Duration::MAX));
    }

    #[test]
    fn no_cache_demands_a_validation_in_both_modes() {
        for line in ["no-cache", "max-age=0", "no-cache, max-stale", "max-age=0, max-stale"] {
            assert!(!answers_in_a_plain_cache(PLAIN, line, 0), "{line}");
            assert!(
                !answers(&stored(&[], Some(600)), line, 0, Mode::Revalidate, Trust::Settled),
                "{line}"
            );
        }
        assert!(answers_in_a_plain_cache(PLAIN, "no-store", 0), "what is stored may be used");
    }

    #[test]
    fn the_poll_interval_overrides_request_directives() {
        let polled = stored(&[("x-poll-interval", "60")], None);
        for line in ["no-cache", "max-age=1", "min-fresh=600"] {
            assert!(answers(&polled, line, 59, Mode::Revalidate, Trust::Until(NOW)), "{line}");
            assert!(
                !answers(&polled, line, 59, Mode::Revalidate, Trust::Invalidated),
                "{line}: a client sees what it has done"
            );
            assert!(!answers(&polled, line, 60, Mode::Revalidate, Trust::Settled), "{line}");
        }
    }

    #[test]
    fn a_requested_max_age_only_shortens_a_lifetime() {
        assert!(
            answers_in_a_plain_cache(PLAIN, "max-age=30", 30)
                && !answers_in_a_plain_cache(PLAIN, "max-age=30", 31)
        );
        assert!(!answers_in_a_plain_cache(PLAIN, "max-age=600", 60));
        let aged = [("cache-control", "max-age=60"), ("age", "25")];
        assert!(
            answers_in_a_plain_cache(&aged, "max-age=30", 5)
                && !answers_in_a_plain_cache(&aged, "max-age=30", 6)
        );
        let ruled = stored(&[], Some(600));
        assert!(answers(&ruled, "max-age=30", 30, Mode::Revalidate, Trust::Settled));
        assert!(!answers(&ruled, "max-age=30", 31, Mode::Revalidate, Trust::Settled));
        assert!(
            !answers(&stored(&[], None), "max-age=30", 1, Mode::Revalidate, Trust::Settled),
            "there every hit is validated"
        );
    }

    #[test]
    fn min_fresh_counts_from_now() {
        assert!(
            answers_in_a_plain_cache(PLAIN, "min-fresh=10", 50)
                && !answers_in_a_plain_cache(PLAIN, "min-fresh=10", 51)
        );
        assert!(
            !answers_in_a_plain_cache(PLAIN, "min-fresh=0, max-stale", 60),
            "it asks for a fresh one"
        );
        let until = Trust::Until(NOW + Duration::from_secs(10));
        let ruled = stored(&[], Some(600));
        assert!(
            answers(&ruled, "min-fresh=5", 5, Mode::Revalidate, until)
                && !answers(&ruled, "min-fresh=5", 6, Mode::Revalidate, until)
        );
        let watched = |left: &'static str| {
            let validated = stored(&[], None);
            let hour = Some(Duration::from_hours(1));
            validated.validated(NOW, NOW).answers(
                &directives(left),
                NOW,
                Mode::Revalidate,
                || Trust::Settled,
                hour,
            )
        };
        assert!(watched("min-fresh=3600") && !watched("min-fresh=3601"));
    }

    #[test]
    fn max_stale_is_honoured_unless_the_answer_forbids_it() {
        assert!(
            answers_in_a_plain_cache(PLAIN, "max-stale=30", 90)
                && !answers_in_a_plain_cache(PLAIN, "max-stale=30", 91)
        );
        assert!(answers_in_a_plain_cache(PLAIN, "max-stale", 1_000_000));
        assert!(!answers_in_a_plain_cache(PLAIN, "max-stale, max-age=70", 71));
        for forbids in
            ["max-age=1, must-revalidate", "max-age=1, proxy-revalidate", "s-maxage=1", "no-cache"]
        {
            let pairs: &[(&'static str, &'static str)] = &[("cache-control", forbids)];
            for mode in [Mode::Rfc9111, Mode::Revalidate] {
                assert!(
                    !answers(&stored(pairs, None), "max-stale", 5, mode, Trust::Settled),
                    "{forbids} {mode:?}"
                );
            }
        }
        let untrusted = [Trust::Invalidated, Trust::Until(NOW)];
        assert!(untrusted.into_iter().all(|trust| !answers(
            &stored(PLAIN, None),
            "max-stale",
            90,
            Mode::Rfc9111,
            trust
        )));
        let ruled = stored(&[], Some(60));
        assert!(answers(&ruled, "max-stale=30", 90, Mode::Revalidate, Trust::Settled));
        assert!(!answers(&ruled, "max-stale=30", 91, Mode::Revalidate, Trust::Settled));
        assert!(answers(&stored(&[], None), "max-stale=30", 30, Mode::Revalidate, Trust::Settled));
    }

    #[test]
    fn strict_directives_reject_a_stale_answer() {
        let may_serve_stale = |line, pairs| {
            let stored = stored(pairs, None);
            stored.validated(NOW, NOW).accepts_stale(
                &directives(line),
                NOW + Duration::from_secs(70),
                Mode::Rfc9111,
            )
        };
        for line in ["", "no-store", "max-stale", "max-stale=10", "max-stale=10, max-age=70"] {
            assert!(may_serve_stale(line, PLAIN), "{line}");
        }
        for line in [
            "no-cache",
            "max-age=0",
            "max-age=600",
            "min-fresh=1",
            "max-stale=9",
            "max-stale, no-cache",
            "max-stale, max-age=69",
        ] {
            assert!(!may_serve_stale(line, PLAIN), "{line}");
        }
        assert!(may_serve_stale("", SHARED), "what the answer forbids is asked beside this");
    }
}
