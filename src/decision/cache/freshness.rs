//! Freshness: whether to serve a stored answer, revalidate it upstream, or fetch it anew
//! (SPECIFICATION D1 to D3).
//!
//! Validators belong to tokens: a `Last-Modified` works with every token, an `ETag` only with the
//! token that received it. The upstream computes it over the credential (SPECIFICATION,
//! "Conditional requests in practice"). Bodies and headers are in the store.

use std::num::NonZeroU16;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

use super::arrived::Arrived;
use super::cache_control::{self, CacheControl};
use super::conditional::{is_exact, weakly_equal};
use super::packed_validators::PackedValidators;
use super::pagination::Page;
use super::time::seconds::{Seconds, Ttl};
use super::validated::Validated;
use crate::decision::types::TokenKey;

/// Rule by which a stored answer is served without a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Only within the ttl of a rule of the config.
    #[default]
    Revalidate,
    /// Within that ttl, else while it is fresh by RFC 9111 §4.2.
    Rfc9111,
}

/// The header that a lifetime comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LifetimeSource {
    /// None: it is zero, or a guess.
    #[default]
    Guess,
    Expires,
    CacheControl,
    /// `CDN-Cache-Control`.
    Targeted,
}

/// Metadata of a stored answer.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of the answer's own")]
pub struct Stored {
    pub(super) status: StatusCode,
    pub(super) mode: Mode,
    pub(super) validated_at: Timestamp,
    /// Age at `validated_at`.
    pub(super) initial_age: Seconds,
    pub(super) lifetime: Seconds,
    pub(super) forbids_stale: bool,
    /// Time after its lifetime in which it may replace an error.
    pub(super) stale_if_error: Seconds,
    /// Time after its lifetime in which it is served while it is revalidated.
    pub(super) stale_while_revalidate: Seconds,
    pub(super) is_private: bool,
    /// True if it may answer the request that fetched it and no other.
    pub no_store: bool,
    /// True if it may be shown beyond its view (RFC 9111 §3.5).
    pub(super) is_shareable: bool,
    pub(super) lifetime_source: LifetimeSource,
    /// See [`is_exact`].
    pub(super) is_date_exact: bool,
    pub(super) ttl: Ttl,
    pub(super) poll_interval: Seconds,
    pub page: Page,
    /// Rule of the config that bounds its age while a webhook covers it.
    pub watched_by: Option<NonZeroU16>,
    /// `Last-Modified`, and the `ETag` of each token.
    pub(super) known: PackedValidators,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    Serve,
    Revalidate(Validators),
    /// Fetch it upstream without conditions.
    Fetch,
}

/// Conditions of a revalidation; at least one is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validators {
    pub if_none_match: Option<HeaderValue>,
    pub if_modified_since: Option<HeaderValue>,
}

impl Stored {
    /// Creates the metadata of a new answer that came with `token` (`None`: without a credential).
    /// `ttl` is that of the config's rule for its route.
    pub fn new(
        mode: Mode,
        now: Timestamp,
        status: StatusCode,
        headers: &HeaderMap,
        token: Option<TokenKey>,
        ttl: Option<Duration>,
    ) -> Self {
        let mut stored = Self { status, mode, ..Self::default() };
        stored.revalidate(now, headers, token, ttl);
        stored.is_date_exact = is_exact(headers, headers.get(header::LAST_MODIFIED), now);
        stored
    }

    /// Updates the metadata by a 304; `ttl` as in [`Stored::new`]. The answer counts as new from
    /// now on (RFC 9111 §4.3.4).
    pub fn revalidate(
        &mut self,
        now: Timestamp,
        headers: &HeaderMap,
        token: Option<TokenKey>,
        ttl: Option<Duration>,
    ) {
        self.validated_at = now;
        let age = cache_control::initial_age(headers);
        self.initial_age = match self.mode {
            // The clocks of the two may differ, and by default lifetimes do not count.
            Mode::Revalidate => age,
            Mode::Rfc9111 => age.max(cache_control::apparent_age(headers, now)),
        }
        .into();
        self.ttl = ttl.into();
        self.poll_interval =
            cache_control::poll_interval(headers).map_or(self.poll_interval, Seconds::from);
        let has_new_date = headers
            .get(header::LAST_MODIFIED)
            .is_some_and(|date| self.known.date().as_ref() != Some(date));
        self.record_validators(token, headers);
        self.read_directives(Arrived { status: self.status, headers, at: now, mode: self.mode });
        // Exactness of another date, or of none, proves nothing about this one. Until it is exact,
        // only owners of an `ETag` revalidate, so the `ETag` has matched.
        self.is_date_exact = self.is_date_exact && !has_new_date
            || is_exact(headers, self.known.date().as_ref(), now);
    }

    /// A 304 may leave out unchanged headers. What an earlier `Cache-Control` says then stays, and
    /// overrides an `Expires`.
    fn read_directives(&mut self, arrived: Arrived<'_>) {
        let (headers, control) = (arrived.headers, arrived.control());
        if self.lifetime_source == LifetimeSource::Targeted && !control.is_targeted {
            return;
        }
        let has_directives = control.is_targeted || headers.contains_key(header::CACHE_CONTROL);
        if has_directives {
            self.forbids_stale = control.forbids_stale();
            self.stale_if_error = control.stale_if_error.unwrap_or_default().into();
            self.stale_while_revalidate = control.stale_while_revalidate.unwrap_or_default().into();
            self.is_private = control.private;
            self.no_store = control.no_store;
            self.is_shareable = control.is_shareable();
        } else if self.lifetime_source == LifetimeSource::CacheControl {
            return;
        }
        let named = if control.is_targeted {
            LifetimeSource::Targeted
        } else if control.names_lifetime() {
            LifetimeSource::CacheControl
        } else if headers.contains_key(header::EXPIRES) {
            LifetimeSource::Expires
        } else {
            LifetimeSource::Guess
        };
        // No guess replaces a lifetime that was named: it has ended.
        let was_named = self.lifetime_source != LifetimeSource::Guess;
        let is_guess = named == LifetimeSource::Guess;
        self.lifetime_source = if is_guess { self.lifetime_source } else { named };
        let control = CacheControl { private: self.is_private, ..control };
        self.lifetime = if is_guess && was_named {
            Seconds::default()
        } else {
            arrived.lifetime(&control, self.known.date().as_ref()).into()
        };
    }

    /// Takes over the `ETag`s of other tokens for the same body.
    pub fn remember_etags(&mut self, earlier: &Self) {
        self.known.remember(&earlier.known);
    }

    /// Invalidates the answer after a write or an event: it is revalidated before its next use,
    /// whatever its ttl (SPECIFICATION D2).
    pub fn invalidate(&mut self) {
        self.lifetime = Seconds::default();
        self.ttl = Ttl::default();
        self.poll_interval = Seconds::default();
        self.watched_by = None;
    }

    /// Returns true when the upstream names a poll interval, now or earlier.
    pub fn is_polled(&self, headers: &HeaderMap) -> bool {
        self.poll_interval > Seconds::default() || cache_control::poll_interval(headers).is_some()
    }

    /// Returns true when a second 304 with these headers changes only the time of validation, apart
    /// from dates and counters. A plain HTTP cache stores the `Date` of each.
    pub fn is_repeated_by(&self, headers: &HeaderMap) -> bool {
        self.is_date_exact
            && (self.mode == Mode::Revalidate || headers.contains_key(header::DATE))
            && !headers.contains_key(header::AGE)
            && !headers.contains_key(header::EXPIRES)
    }

    /// Views the answer as last validated at `at`, by a 304 that changed nothing else.
    pub fn validated(&self, at: Timestamp, requested_at: Timestamp) -> Validated<'_> {
        Validated { stored: self, at, requested_at }
    }

    pub fn is_fresh(&self, now: Timestamp, mode: Mode) -> bool {
        self.current().is_fresh(now, mode)
    }

    fn current(&self) -> Validated<'_> {
        self.validated(self.validated_at, self.validated_at)
    }

    /// Time of storage, or of the last [`Stored::revalidate`].
    pub fn validated_at(&self) -> Timestamp {
        self.validated_at
    }

    /// Returns true for an answer from another cache.
    pub fn came_aged(&self) -> bool {
        self.initial_age > Seconds::default()
    }

    /// Returns true when the answer itself permits stale use. In [`Mode::Revalidate`] its
    /// directives do not count, and the config alone decides.
    pub fn permits_stale(&self, mode: Mode) -> bool {
        mode == Mode::Revalidate || !self.forbids_stale
    }

    /// Returns the action when `token` would send the request.
    pub fn plan(&self, now: Timestamp, mode: Mode, token: Option<TokenKey>) -> Plan {
        if self.is_fresh(now, mode) {
            return Plan::Serve;
        }
        self.validators(token).map_or(Plan::Fetch, Plan::Revalidate)
    }

    /// Returns the conditions for `token`. An owner of an `ETag` sends the date too: a date alone
    /// can miss a change, and both cost the same.
    pub fn validators(&self, token: Option<TokenKey>) -> Option<Validators> {
        let if_none_match = token.and_then(|token| self.known.of(token));
        let may_be_dated = self.has_date() && (self.is_date_exact || if_none_match.is_some());
        let if_modified_since = if may_be_dated { self.known.date() } else { None };
        (if_none_match.is_some() || if_modified_since.is_some())
            .then_some(Validators { if_none_match, if_modified_since })
    }

    /// Returns the preferred token among equally good ones: the latest owner of an `ETag`, unless a
    /// date works for every token.
    pub fn preferred_token(&self) -> Option<TokenKey> {
        if self.has_date() && self.is_date_exact { None } else { self.known.last_owner() }
    }

    /// All `ETag`s of the stored answer; a client may hold any of them.
    pub fn etags(&self) -> impl Iterator<Item = HeaderValue> {
        self.known.etags().map(|(_, etag)| etag)
    }

    /// Tokens with a known `ETag` of this answer.
    pub fn owners(&self) -> impl Iterator<Item = TokenKey> {
        self.known.owners()
    }

    pub fn last_modified(&self) -> Option<HeaderValue> {
        self.known.date()
    }

    /// `Last-Modified`, if it identifies the stored state exactly.
    pub fn exact_date(&self) -> Option<HeaderValue> {
        if self.is_date_exact { self.known.date() } else { None }
    }

    /// Returns true when others than its view may see the answer while it is fresh: the upstream
    /// says so, although the request carried a credential (RFC 9111 §3.5).
    pub fn is_shareable(&self, now: Timestamp) -> bool {
        self.mode == Mode::Rfc9111 && self.is_shareable && self.is_fresh(now, self.mode)
    }

    /// Bytes on the heap.
    pub fn allocation(&self) -> usize {
        self.known.bytes()
    }

    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// True when a date can be used as a condition. Only for 2xx: a resource that was missing (404)
    /// may be older than the date when it appears (SPECIFICATION, "Conditional requests in
    /// practice").
    fn has_date(&self) -> bool {
        self.status.is_success() && self.known.has_date()
    }

    fn record_validators(&mut self, token: Option<TokenKey>, headers: &HeaderMap) {
        let last_modified = headers.get(header::LAST_MODIFIED);
        let token_etag = token.zip(headers.get(header::ETAG));
        let is_known = |token, etag: &HeaderValue| {
            self.known.last_owner() == Some(token)
                && self
                    .known
                    .of(token)
                    .is_some_and(|known| weakly_equal(known.as_bytes(), etag.as_bytes()))
        };
        if last_modified.is_none_or(|date| self.known.date().as_ref() == Some(date))
            && token_etag.is_none_or(|(token, etag)| is_known(token, etag))
        {
            return;
        }
        self.known.record(last_modified, token_etag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::cache::cache_control::POLL_INTERVAL_MAX;
    use crate::decision::cache::packed_validators::ETAGS_MAX;
    use crate::decision::cache::settling::Trust;

    /// In 2027.
    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
    const DATE: &str = "Tue, 01 Jul 2025 00:00:00 GMT";
    const MINE: Option<TokenKey> = Some(TokenKey(1));
    const OTHER: Option<TokenKey> = Some(TokenKey(2));

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
            .collect()
    }

    fn stored(status: u16, pairs: &[(&'static str, &'static str)]) -> Stored {
        Stored::new(
            Mode::Rfc9111,
            NOW,
            StatusCode::from_u16(status).unwrap(),
            &headers(pairs),
            MINE,
            None,
        )
    }

    fn revalidate(
        if_none_match: Option<&'static str>,
        if_modified_since: Option<&'static str>,
    ) -> Plan {
        Plan::Revalidate(Validators {
            if_none_match: if_none_match.map(HeaderValue::from_static),
            if_modified_since: if_modified_since.map(HeaderValue::from_static),
        })
    }

    #[test]
    fn the_owner_of_an_etag_sends_both_validators() {
        let entry = stored(200, &[("etag", "\"a\""), ("last-modified", DATE)]);
        assert_eq!(entry.plan(NOW, Mode::Revalidate, MINE), revalidate(Some("\"a\""), Some(DATE)));
    }

    #[test]
    fn another_token_sends_the_date_alone() {
        let entry = stored(200, &[("etag", "\"a\""), ("last-modified", DATE)]);
        assert_eq!(entry.plan(NOW, Mode::Revalidate, OTHER), revalidate(None, Some(DATE)));
        assert_eq!(entry.plan(NOW, Mode::Revalidate, None), revalidate(None, Some(DATE)));
    }

    #[test]
    fn an_answer_without_a_date_prefers_the_etag_owner() {
        let entry = stored(200, &[("etag", "\"a\"")]);
        assert_eq!(entry.plan(NOW, Mode::Revalidate, OTHER), Plan::Fetch);
        assert_eq!(entry.preferred_token(), MINE);
        assert_eq!(
            stored(200, &[("etag", "\"a\""), ("last-modified", DATE)]).preferred_token(),
            None
        );
    }

    #[test]
    fn an_inexact_date_is_no_condition_of_its_own() {
        let fresh = [("etag", "\"a\""), ("last-modified", DATE), ("date", DATE)];
        let mut entry = stored(200, &fresh);
        assert_eq!(
            (entry.plan(NOW, Mode::Revalidate, OTHER), entry.preferred_token()),
            (Plan::Fetch, MINE)
        );
        assert_eq!(entry.plan(NOW, Mode::Revalidate, MINE), revalidate(Some("\"a\""), Some(DATE)));
        // A replica may lag by ten seconds.
        for date in [DATE, "Tue, 01 Jul 2025 00:00:01 GMT", "Tue, 01 Jul 2025 00:00:10 GMT"] {
            entry.revalidate(NOW, &headers(&[("date", date)]), MINE, None);
            assert_eq!(entry.plan(NOW, Mode::Revalidate, OTHER), Plan::Fetch, "{date}");
        }
        entry.revalidate(NOW, &headers(&[("date", "Tue, 01 Jul 2025 00:00:11 GMT")]), MINE, None);
        assert_eq!(
            (entry.plan(NOW, Mode::Revalidate, OTHER), entry.preferred_token()),
            (revalidate(None, Some(DATE)), None)
        );
    }

    #[test]
    fn a_date_from_a_304_is_checked_for_exactness_too() {
        let mut entry = stored(200, &[("etag", "\"a\""), ("date", DATE)]);
        entry.revalidate(
            NOW,
            &headers(&[("last-modified", DATE), ("date", "Tue, 01 Jul 2025 00:00:02 GMT")]),
            MINE,
            None,
        );
        assert_eq!(entry.plan(NOW, Mode::Revalidate, OTHER), Plan::Fetch);
        entry.revalidate(
            NOW,
            &headers(&[("last-modified", DATE), ("date", "Tue, 01 Jul 2025 00:00:11 GMT")]),
            MINE,
            None,
        );
        assert_eq!(entry.plan(NOW, Mode::Revalidate, OTHER), revalidate(None, Some(DATE)));
    }

    #[test]
    fn a_stored_404_is_never_revalidated_by_its_date() {
        let entry = stored(404, &[("last-modified", DATE)]);
        assert_eq!(entry.plan(NOW, Mode::Revalidate, MINE), Plan::Fetch);
        let entry = stored(404, &[("etag", "\"a\""), ("last-modified", DATE)]);
        assert_eq!(entry.plan(NOW, Mode::Revalidate, MINE), revalidate(Some("\"a\""), None));
    }

    #[test]
    fn a_hit_is_revalidated_unless_its_mode_or_ttl_makes_it_fresh() {
        let cache_control = [("cache-control", "private, max-age=60, s-maxage=60")];
        let entry = stored(200, &cache_control);
        assert!(!entry.is_fresh(NOW, Mode::Revalidate));
        assert!(entry.is_fresh(NOW + Duration::from_secs(59), Mode::Rfc9111));
        assert!(!entry.is_fresh(NOW + Duration::from_mins(1), Mode::Rfc9111));
        let aged = stored(200, &[("cache-control", "max-age=60"), ("age", "20")]);
        assert!(
            aged.is_fresh(NOW + Duration::from_secs(39), Mode::Rfc9111)
                && !aged.is_fresh(NOW + Duration::from_secs(40), Mode::Rfc9111)
        );
        let ruled = Stored::new(
            Mode::Rfc9111,
            NOW,
            StatusCode::OK,
            &headers(&cache_control),
            MINE,
            Some(Duration::from_mins(10)),
        );
        for mode in [Mode::Revalidate, Mode::Rfc9111] {
            assert_eq!(ruled.plan(NOW + Duration::from_mins(9), mode, MINE), Plan::Serve);
            assert!(!ruled.is_fresh(NOW + Duration::from_mins(10), mode));
        }
    }

    #[test]
    fn an_answer_stays_fresh_for_its_poll_interval() {
        let mut polled = stored(200, &[("x-poll-interval", "60"), ("last-modified", DATE)]);
        let after = |secs| NOW + Duration::from_secs(secs);
        assert!(
            polled.is_fresh(after(59), Mode::Revalidate)
                && !polled.is_fresh(after(60), Mode::Revalidate)
        );
        polled.revalidate(after(60), &headers(&[("x-poll-interval", "120")]), MINE, None);
        assert!(
            polled.is_fresh(after(179), Mode::Revalidate)
                && !polled.is_fresh(after(180), Mode::Revalidate)
        );
        polled.revalidate(after(180), &headers(&[]), MINE, None);
        assert!(polled.is_fresh(after(299), Mode::Revalidate), "what a 304 leaves out stays");
        polled.revalidate(
            after(300),
            &headers(&[("x-poll-interval", "99999999999999")]),
            MINE,
            None,
        );
        assert!(!polled.is_fresh(after(300) + POLL_INTERVAL_MAX, Mode::Revalidate));
        polled.revalidate(after(4_000), &headers(&[("x-poll-interval", "-1")]), MINE, None);
        polled.invalidate();
        assert!(!polled.is_fresh(after(4_000), Mode::Revalidate));
    }

    #[test]
    fn trust_after_a_change_only_shortens_freshness() {
        let ruled = Stored::new(
            Mode::Rfc9111,
            NOW,
            StatusCode::OK,
            &headers(&[]),
            MINE,
            Some(Duration::from_secs(60)),
        );
        let (after, until) =
            (|secs| NOW + Duration::from_secs(secs), Trust::Until(NOW + Duration::from_secs(2)));
        let is_fresh =
            |now, trust| ruled.current().is_fresh_after(now, Mode::Revalidate, || trust, None);
        assert!(!is_fresh(NOW, Trust::Invalidated));
        assert!(is_fresh(after(1), until) && !is_fresh(after(2), until));
        assert!(is_fresh(after(59), Trust::Settled) && !is_fresh(after(60), Trust::Settled));
        let plain = stored(200, &[]);
        assert!(
            !plain.current().is_fresh_after(NOW, Mode::Revalidate, || until, None),
            "where every hit is validated, trust serves nothing"
        );
    }

    #[test]
    fn rechecks_after_a_change_keep_to_the_poll_interval() {
        let polled = stored(200, &[("x-poll-interval", "60")]);
        let now = NOW + Duration::from_secs(3);
        assert!(polled.current().is_fresh_after(now, Mode::Revalidate, || Trust::Until(NOW), None));
        assert!(
            !polled.current().is_fresh_after(now, Mode::Revalidate, || Trust::Invalidated, None),
            "a client sees what it has done"
        );
    }

    #[test]
    fn a_webhook_gives_a_covered_answer_its_own_lifetime() {
        let (plain, six_hours) = (stored(200, &[]), Some(Duration::from_hours(6)));
        let is_fresh = |after, trust| {
            plain.current().is_fresh_after(NOW + after, Mode::Revalidate, || trust, six_hours)
        };
        assert!(
            is_fresh(Duration::from_hours(5), Trust::Settled)
                && !is_fresh(Duration::from_hours(6), Trust::Settled)
        );
        assert!(!is_fresh(Duration::ZERO, Trust::Invalidated));
    }

    #[test]
    fn an_invalidation_ends_a_ttl() {
        let mut entry = Stored::new(
            Mode::Rfc9111,
            NOW,
            StatusCode::OK,
            &headers(&[("cache-control", "max-age=60")]),
            MINE,
            Some(Duration::from_mins(10)),
        );
        entry.invalidate();
        assert!(!entry.is_fresh(NOW, Mode::Rfc9111));
    }

    #[test]
    fn a_304_restarts_freshness_and_adds_the_tokens_etag() {
        let mut entry = stored(
            200,
            &[("etag", "W/\"a\""), ("last-modified", DATE), ("cache-control", "max-age=60")],
        );
        let later = NOW + Duration::from_mins(2);
        entry.revalidate(later, &headers(&[("etag", "\"b\"")]), OTHER, None);
        entry.revalidate(later, &headers(&[("etag", "\"a\"")]), MINE, None);
        assert!(entry.is_fresh(later + Duration::from_secs(59), Mode::Rfc9111));
        assert_eq!(entry.validators(OTHER).unwrap().if_none_match.unwrap(), "\"b\"");
        assert_eq!(entry.validators(MINE).unwrap().if_none_match.unwrap(), "W/\"a\"");
    }

    #[test]
    fn an_expires_in_a_304_does_not_override_cache_control() {
        let late = headers(&[
            ("expires", "Fri, 15 Jan 2027 09:00:00 GMT"),
            ("date", "Fri, 15 Jan 2027 08:00:00 GMT"),
        ]);
        let mut private = stored(200, &[("cache-control", "private, max-age=60, must-revalidate")]);
        private.revalidate(NOW, &late, MINE, None);
        assert!(!private.is_fresh(NOW, Mode::Rfc9111) && !private.permits_stale(Mode::Rfc9111));
        let mut plain = stored(200, &[]);
        plain.revalidate(NOW, &late, MINE, None);
        assert!(plain.is_fresh(NOW + Duration::from_secs(3_599), Mode::Rfc9111));
    }

    #[test]
    fn the_age_header_counts_only_in_rfc9111_mode() {
        let aged = stored(200, &[("age", "7200")]);
        assert_eq!(
            aged.current().age(NOW + Duration::from_secs(1), Mode::Revalidate),
            Duration::from_secs(1)
        );
        assert_eq!(
            aged.current().age(NOW + Duration::from_secs(1), Mode::Rfc9111),
            Duration::from_secs(7_201)
        );
    }

    #[test]
    fn the_oldest_etag_is_dropped_beyond_the_maximum() {
        let mut entry = stored(200, &[("etag", "\"a\"")]);
        for token in 2..40 {
            entry.revalidate(NOW, &headers(&[("etag", "\"b\"")]), Some(TokenKey(token)), None);
        }
        assert_eq!(entry.etags().count(), ETAGS_MAX);
        assert_eq!(entry.validators(MINE), None);
    }
}
