//! Offset between the upstream's clock and ours, from the `Date` of its answers.
//!
//! The upstream judges an app's JWT, the end of a token and the end of a rate-limit window by its
//! own clock; the gateway waits by ours. Pure: time is an argument. An error of a second does no
//! harm; a single wrong `Date` must do none.

use std::time::{Duration, UNIX_EPOCH};

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::api::{headers, rate_reset};
use crate::clock::Timestamp;

/// Two offsets within this distance count as equal: `Date` has whole seconds (RFC 9110 §5.6.7), and
/// an answer takes a while.
const SAME_MILLIS: i64 = 2_500;
/// An ordinary answer moves the estimate by this fraction of the difference. Our choice: the
/// rounding errors level out over a handful of answers.
const SMOOTHING: i64 = 8;
/// The `Date` of a slower answer is too inexact to count. Our choice.
const TOOK_MAX: Duration = Duration::from_secs(5);

/// Smaller offsets leave limit times alone: the quota ledger tolerates that much (SPECIFICATION
/// D4).
const NOTICED_MILLIS: u64 = 1_500;
/// A larger offset comes from a recorded answer, not from a clock, and moves no times. Our choice.
const CREDIBLE_MILLIS: u64 = 24 * 60 * 60 * 1_000;

/// Estimate of the upstream's clock.
#[derive(Debug, Default)]
pub struct ClockOffset {
    is_known: bool,
    /// Added to our time.
    millis: i64,
    /// The last answer's offset if it differed: taken over when the next answer agrees.
    candidate: Option<i64>,
}

pub fn date_of(headers: &HeaderMap) -> Option<Timestamp> {
    date_in(headers, DATE)
}

fn date_in(headers: &HeaderMap, name: HeaderName) -> Option<Timestamp> {
    let date = httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok()?;
    Some(Timestamp::from_secs(date.duration_since(UNIX_EPOCH).ok()?.as_secs()))
}

impl ClockOffset {
    /// Records an answer with this `Date` that came `took` after its request was sent.
    pub fn observe(&mut self, date: Timestamp, now: Timestamp, took: Duration) {
        if took > TOOK_MAX {
            return;
        }
        let seen = offset(date, now - took / 2);
        if !self.is_known {
            *self = Self { is_known: true, millis: seen, candidate: None };
            return;
        }
        if (seen - self.millis).abs() <= SAME_MILLIS {
            self.millis += (seen - self.millis) / SMOOTHING;
            self.candidate = None;
            return;
        }
        match self.candidate {
            Some(before) if (seen - before).abs() <= SAME_MILLIS => {
                self.millis = i64::midpoint(seen, before);
                self.candidate = None;
            }
            _ => self.candidate = Some(seen),
        }
    }

    /// Takes over the `Date` of an answer that rejected a JWT for its time: at once, because no
    /// request of the app succeeds otherwise.
    pub fn correct(&mut self, date: Timestamp, now: Timestamp) {
        *self = Self { is_known: true, millis: offset(date, now), candidate: None };
    }

    pub fn upstream(&self, ours: Timestamp) -> Timestamp {
        moved(ours, self.millis)
    }

    pub fn ours(&self, upstream: Timestamp) -> Timestamp {
        moved(upstream, self.millis.saturating_neg())
    }

    /// Converts the times of an answer's limits to our clock: `x-ratelimit-reset`, and a
    /// `retry-after` that is a date.
    pub fn to_local_clock(&self, answer: &mut HeaderMap) {
        if !self.moves_times() {
            return;
        }
        if let Some(reset) = rate_reset(answer) {
            answer.insert(headers::RATE_RESET, HeaderValue::from(self.ours(reset).as_secs_ceil()));
        }
        if let Some(date) = date_in(answer, RETRY_AFTER) {
            let ours = self.ours(date).as_secs_ceil();
            let text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(ours));
            answer.extend(HeaderValue::try_from(text).ok().map(|value| (RETRY_AFTER, value)));
        }
    }

    /// Converts a time of the upstream's clock to ours, in whole seconds.
    pub fn local_time(&self, upstream: Timestamp) -> Timestamp {
        if self.moves_times() {
            Timestamp::from_secs(self.ours(upstream).as_secs_ceil())
        } else {
            upstream
        }
    }

    fn moves_times(&self) -> bool {
        (NOTICED_MILLIS..=CREDIBLE_MILLIS).contains(&self.millis.unsigned_abs())
    }

    /// Returns the milliseconds that the upstream is ahead of us.
    #[cfg(test)]
    pub fn millis(&self) -> i64 {
        self.millis
    }
}

fn offset(date: Timestamp, ours: Timestamp) -> i64 {
    // A `Date` is truncated: on average it is half a second old.
    let (theirs, ours) = (date.as_millis().saturating_add(500), ours.as_millis());
    i64::try_from(theirs)
        .unwrap_or(i64::MAX)
        .saturating_sub(i64::try_from(ours).unwrap_or(i64::MAX))
}

fn moved(time: Timestamp, millis: i64) -> Timestamp {
    let by = Duration::from_millis(millis.unsigned_abs());
    if millis < 0 { time - by } else { time + by }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
    const AHEAD: Timestamp = Timestamp::from_secs(1_800_000_300);

    fn secs(offset: &ClockOffset) -> i64 {
        offset.millis() / 1_000
    }

    #[test]
    fn a_single_wrong_date_changes_nothing() {
        let mut offset = ClockOffset::default();
        for date in [NOW, AHEAD, NOW, NOW] {
            offset.observe(date, NOW, Duration::ZERO);
            assert_eq!(secs(&offset), 0);
        }
    }

    #[test]
    fn two_answers_that_agree_move_the_offset() {
        let mut offset = ClockOffset::default();
        offset.observe(AHEAD, NOW, Duration::ZERO);
        offset.observe(AHEAD, NOW + Duration::from_millis(900), Duration::ZERO);
        assert_eq!(secs(&offset), 300);
        assert_eq!(offset.ours(offset.upstream(NOW)), NOW);
    }

    #[test]
    fn a_slow_answer_moves_no_offset() {
        let mut offset = ClockOffset::default();
        for _ in 0..3 {
            offset.observe(AHEAD, NOW, Duration::from_secs(6));
        }
        assert_eq!(secs(&offset), 0);
    }

    #[test]
    fn a_clock_that_drifts_is_followed() {
        let mut offset = ClockOffset::default();
        for second in 0..300_u64 {
            // Ours loses a second in ten.
            offset.observe(
                NOW + Duration::from_secs(second),
                NOW + Duration::from_millis(second * 900),
                Duration::ZERO,
            );
        }
        assert!((25..=31).contains(&secs(&offset)), "{}", secs(&offset));
    }

    #[test]
    fn a_missing_or_malformed_date_is_none() {
        let mut headers = HeaderMap::new();
        assert_eq!(date_of(&headers), None);
        headers.insert(DATE, http::HeaderValue::from_static("Tue, 01 Jul 2025 00:00:00 GMT"));
        assert_eq!(date_of(&headers), Some(Timestamp::from_secs(1_751_328_000)));
        headers.insert(DATE, http::HeaderValue::from_static("yesterday"));
        assert_eq!(date_of(&headers), None);
    }
}
