//! A stored answer at the time of its last validation: its age, and whether it may be served
//! without a request.

use std::time::Duration;

use crate::clock::Timestamp;

use super::freshness::{Mode, Stored};
use super::settling::Trust;

/// Stored answer with the time of its last validation.
#[derive(Clone, Copy, Debug)]
pub struct Validated<'s> {
    pub(super) stored: &'s Stored,
    pub(super) at: Timestamp,
    pub(super) requested_at: Timestamp,
}

impl Validated<'_> {
    /// Returns true when it may be served without a request. In both modes the upstream's poll
    /// interval counts too (SPECIFICATION, "Conventions").
    pub fn is_fresh(self, now: Timestamp, mode: Mode) -> bool {
        self.is_polled_already(now)
            || match (self.stored.ttl.span(), mode) {
                (Some(ttl), _) => now.since(self.requested_at) < ttl,
                (None, Mode::Rfc9111) => self.age(now, mode) < Duration::from(self.stored.lifetime),
                (None, Mode::Revalidate) => false,
            }
    }

    /// Returns true when it may be served although a change left only this `trust`. The change
    /// itself ends a poll interval; rechecks after it do not. The answer is also fresh for
    /// `granted` after its last validation: a webhook covers it, or a confirmation counts.
    pub fn is_fresh_after(
        self,
        now: Timestamp,
        mode: Mode,
        trust: impl FnOnce() -> Trust,
        granted: Option<Duration>,
    ) -> bool {
        // The cheap check comes first: most answers are revalidated each time.
        if !self.is_fresh(now, mode)
            && granted.is_none_or(|ttl| now.since(self.requested_at) >= ttl)
        {
            return false;
        }
        match trust() {
            Trust::Invalidated => false,
            trust => trust.holds(now) || self.is_polled_already(now),
        }
    }

    /// The time for which a confirmation of this answer counts: at most `span`, and never longer
    /// than the upstream calls it fresh. `None`: not at all, as where a rule names a ttl.
    pub fn confirmed_for(self, span: Duration, mode: Mode) -> Option<Duration> {
        let lifetime = Duration::from(self.stored.lifetime);
        let left = lifetime.saturating_sub(self.stored.initial_age.into());
        let has_rule = self.stored.ttl.span().is_some();
        (mode == Mode::Revalidate && !has_rule && !left.is_zero()).then(|| span.min(left))
    }

    /// Age since the request of its last validation; by RFC 9111 §4.2.3 plus its age at that time.
    /// The delay of the response is unknown, so all lifetimes count from the request.
    pub fn age(self, now: Timestamp, mode: Mode) -> Duration {
        let since = now.since(self.requested_at);
        if mode == Mode::Rfc9111 { since + Duration::from(self.stored.initial_age) } else { since }
    }

    pub(super) fn is_polled_already(self, now: Timestamp) -> bool {
        now.since(self.at) < Duration::from(self.stored.poll_interval)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

    use super::*;

    /// Fri, 15 Jan 2027 08:00:00 GMT.
    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
    const DATE: (&str, &str) = ("date", "Fri, 15 Jan 2027 07:00:00 GMT");

    fn is_fresh(mode: Mode, lines: &[(&'static str, &'static str)]) -> bool {
        let line = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let headers: HeaderMap = lines.iter().map(line).collect();
        Stored::new(mode, NOW, StatusCode::OK, &headers, None, None).is_fresh(NOW, mode)
    }

    #[test]
    fn the_time_since_the_date_is_part_of_the_age() {
        for (lifetime, fresh) in [
            (("cache-control", "max-age=3601"), true),
            (("cache-control", "max-age=3600"), false),
            (("expires", "Fri, 15 Jan 2027 08:00:01 GMT"), true),
            (("expires", "Fri, 15 Jan 2027 07:50:00 GMT"), false),
        ] {
            assert_eq!(is_fresh(Mode::Rfc9111, &[DATE, lifetime]), fresh, "{lifetime:?}");
        }
        let aged = [DATE, ("age", "7200"), ("cache-control", "max-age=7200")];
        assert!(!is_fresh(Mode::Rfc9111, &aged), "the larger age counts");
    }
}
