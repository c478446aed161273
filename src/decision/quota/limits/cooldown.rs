//! The cooldown after a secondary limit: the account stays away from the upstream until the named
//! time (SPECIFICATION D6).
//!
//! The time is `retry-after`, or the reset when nothing remains, the later of both; else a minute,
//! doubling (SPECIFICATION, "After a limit"). [`crate::api`] recognizes secondary limits.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// Shortest pause without a named time (SPECIFICATION, "After a limit").
const PAUSE_FIRST: Duration = Duration::from_mins(1);
/// Longest pause without a named time. Ours: long against a window of a minute, short against one
/// of an hour.
const PAUSE_MAX: Duration = Duration::from_mins(15);
/// Largest random addition to a pause, as a part of it. Ours: it spreads accounts that were limited
/// together.
const JITTER: f64 = 0.25;
/// Addition to the reset that an upstream limit names (SPECIFICATION, "After a limit").
pub const AFTER_RESET: Duration = Duration::from_secs(1);
/// Longest closure of any kind. Ours: no documented window exceeds an hour. A time beyond a day is
/// the upstream's mistake and would disable an account until the next restart.
const CLOSED_MAX: Duration = Duration::from_hours(24);

/// Shortest closure of any kind. Ours: an upstream that names "now", or a time in the past, has
/// denied all the same. A retry at once would loop at the speed of the network.
const CLOSED_MIN: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// `retry-after`.
    pub pause: Option<Duration>,
    /// Reset, when nothing remained.
    pub reset: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cooldown {
    closed_until: Timestamp,
    refused_at: Option<Timestamp>,
    /// Limits since the last success; those of one burst count once.
    strikes: u32,
}

impl Cooldown {
    /// Returns what a file kept. It ends no later than a cooldown that begins now.
    pub fn restored(&self, now: Timestamp) -> Self {
        Self {
            closed_until: self.closed_until.min(now + CLOSED_MAX),
            refused_at: self.refused_at.map(|at| at.min(now)),
            strikes: self.strikes,
        }
    }

    /// Another replica was refused.
    pub fn extend(&mut self, until: Timestamp) {
        self.closed_until = self.closed_until.max(until);
    }

    /// A predecessor was refused, perhaps.
    pub fn extend_to(&mut self, other: &Self) {
        self.extend(other.closed_until);
    }

    pub fn until(&self, now: Timestamp) -> Option<Timestamp> {
        (now < self.closed_until).then_some(self.closed_until)
    }

    pub fn refused(&mut self, now: Timestamp, admitted_at: Timestamp, named: Named, jitter: f64) {
        // Requests in flight at the first limit were denied for the same reason.
        if self.is_later_than_refusal(admitted_at) {
            self.strikes = self.strikes.saturating_add(1);
        }
        self.refused_at = Some(now);
        let until = closed_until(now, named.reset, named.pause, || self.pause(jitter));
        self.closed_until = self.closed_until.max(until);
    }

    /// Records a success. If the request was admitted after the last limit, the next pause is short
    /// again.
    pub fn served(&mut self, admitted_at: Timestamp) {
        if self.is_later_than_refusal(admitted_at) {
            self.strikes = 0;
        }
    }

    fn is_later_than_refusal(&self, admitted_at: Timestamp) -> bool {
        self.refused_at.is_none_or(|refused_at| admitted_at > refused_at)
    }

    fn pause(&self, jitter: f64) -> Duration {
        let doubled = PAUSE_FIRST.saturating_mul(1 << self.strikes.saturating_sub(1).min(8));
        doubled.mul_f64(1.0 + JITTER * unit(jitter)).min(PAUSE_MAX)
    }
}

/// End of a closure: of a named reset and pause the later, else after `otherwise`.
pub fn closed_until(
    now: Timestamp,
    reset: Option<Timestamp>,
    pause: Option<Duration>,
    otherwise: impl FnOnce() -> Duration,
) -> Timestamp {
    let by_reset = reset.map(|reset| reset.max(now) + AFTER_RESET);
    let by_pause = pause.map(|pause| now + pause);
    let until = by_reset.max(by_pause).unwrap_or_else(|| now + otherwise());
    until.clamp(now + CLOSED_MIN, now + CLOSED_MAX)
}

/// Clamps a caller's random number to 0 to 1.
pub fn unit(jitter: f64) -> f64 {
    if jitter.is_nan() { 0.0 } else { jitter.clamp(0.0, 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);
    const MINUTE: Duration = Duration::from_mins(1);

    fn closed_for(named: Named) -> Duration {
        let mut cooldown = Cooldown::default();
        cooldown.refused(NOW, NOW, named, 0.0);
        cooldown.until(NOW).unwrap().since(NOW)
    }

    #[test]
    fn a_zero_pause_closes_for_a_second() {
        assert_eq!(closed_for(Named { pause: Some(Duration::ZERO), reset: None }), CLOSED_MIN);
    }

    #[test]
    fn the_later_of_pause_and_reset_holds() {
        let pause = Some(Duration::from_secs(30));
        let reset = Some(NOW + Duration::from_secs(90));
        assert_eq!(closed_for(Named { pause, reset: None }), Duration::from_secs(30));
        assert_eq!(closed_for(Named { pause: None, reset }), Duration::from_secs(91));
        assert_eq!(closed_for(Named { pause, reset }), Duration::from_secs(91));
        assert_eq!(
            closed_for(Named { pause: None, reset: Some(NOW - MINUTE) }),
            Duration::from_secs(1)
        );
    }

    #[test]
    fn the_pause_without_a_time_doubles_up_to_a_bound() {
        let mut cooldown = Cooldown::default();
        let mut now = NOW;
        for minutes in [1, 2, 4, 8, 15, 15] {
            cooldown.refused(now, now, Named::default(), 0.0);
            assert_eq!(cooldown.until(now).unwrap().since(now), MINUTE * minutes);
            now = now + MINUTE * 20;
        }
    }

    #[test]
    fn limits_of_one_burst_count_once() {
        let mut cooldown = Cooldown::default();
        for _ in 0..10 {
            cooldown.refused(NOW, NOW - Duration::from_secs(1), Named::default(), 0.0);
        }
        assert_eq!(cooldown.until(NOW), Some(NOW + MINUTE));
    }

    #[test]
    fn a_success_after_a_limit_resets_the_pause() {
        let mut cooldown = Cooldown::default();
        cooldown.refused(NOW, NOW, Named::default(), 0.0);
        let later = NOW + MINUTE * 2;
        cooldown.refused(later, later, Named::default(), 0.0);
        cooldown.served(later);
        assert_eq!(cooldown.strikes, 2, "it was on its way already");
        let last = later + MINUTE * 3;
        cooldown.served(last);
        cooldown.refused(last, last, Named::default(), 0.0);
        assert_eq!(cooldown.until(last), Some(last + MINUTE));
    }

    #[test]
    fn a_shorter_limit_does_not_open_the_account() {
        let mut cooldown = Cooldown::default();
        cooldown.refused(NOW, NOW, Named { pause: Some(MINUTE * 10), reset: None }, 0.0);
        cooldown.refused(NOW, NOW, Named { pause: Some(MINUTE), reset: None }, 0.0);
        assert_eq!(cooldown.until(NOW), Some(NOW + MINUTE * 10));
    }

    #[test]
    fn a_closure_is_bounded_and_jitter_adds_at_most_a_quarter() {
        assert_eq!(
            closed_for(Named { pause: Some(Duration::MAX), reset: Some(Timestamp::FAR_FUTURE) }),
            CLOSED_MAX
        );
        let mut cooldown = Cooldown::default();
        cooldown.refused(NOW, NOW, Named::default(), f64::INFINITY);
        assert_eq!(cooldown.until(NOW), Some(NOW + Duration::from_secs(75)));
    }
}
