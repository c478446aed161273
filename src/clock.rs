//! Timestamps, and the only place that reads the machine's clock.
//!
//! Decisions take a [`Timestamp`] as an argument; only the shells own a [`Clock`].

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// A point in time: milliseconds since the Unix epoch, UTC.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The epoch itself.
    pub const EPOCH: Self = Self(0);
    /// Later than every other timestamp: "no end is known".
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// Creates a timestamp from milliseconds since the epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Creates a timestamp from whole seconds since the epoch, the form of `x-ratelimit-reset`.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1000))
    }

    /// Milliseconds since the epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Whole seconds since the epoch, rounded down.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1000
    }

    /// Whole seconds since the epoch, rounded up: a reset that a client reads must not lie in its
    /// past.
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1000)
    }

    /// Formats for people and logs: RFC 3339 in UTC, whole seconds, rounded up as in
    /// [`Timestamp::as_secs_ceil`]. A time after the year 9999 is written as the end of that year.
    pub fn rfc3339(self) -> String {
        let secs = i64::try_from(self.as_secs_ceil()).unwrap_or(i64::MAX);
        let at = time::UtcDateTime::from_unix_timestamp(secs).unwrap_or(time::UtcDateTime::MAX);
        let (date, clock) = (at.date(), at.time());
        let (hour, minute, second) = clock.as_hms();
        format!(
            "{:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z",
            date.year(),
            u8::from(date.month()),
            date.day()
        )
    }

    /// Formats a time in the past like [`Timestamp::rfc3339`], rounded down: it must not appear in
    /// the future.
    pub fn rfc3339_past(self) -> String {
        Self::from_secs(self.as_secs()).rfc3339()
    }

    /// Returns the time since `earlier`; zero when `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(millis(rhs)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(millis(rhs)))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}s", self.0 / 1000, self.0 % 1000)
    }
}

/// A reading of a [`Clock`] in microseconds, from which durations are measured. Decisions take
/// [`Timestamp`]s, whose milliseconds would make most hits last no time at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// Returns the time since `earlier`; zero when `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(micros(rhs)))
    }
}

/// A shell's source of the current time. Cheap to clone; clones share their state.
#[derive(Clone, Debug)]
pub struct Clock(Arc<Source>);

#[derive(Debug)]
enum Source {
    /// The machine's wall clock, monotonic when it is set back.
    System { started: Instant, offset: AtomicU64, compared: AtomicU64 },
    /// The machine's clock, `factor` times as fast from `start` on (`weir emulate --speed`).
    Scaled { start: u64, factor: f64 },
    /// Moved by hand.
    Manual { now: AtomicU64, moved: Notify },
}

impl Clock {
    /// Returns the machine's wall clock, which never goes back.
    pub fn system() -> Self {
        Self(Arc::new(Source::System {
            started: machine_instant(),
            offset: AtomicU64::new(machine_millis()),
            compared: AtomicU64::new(0),
        }))
    }

    /// Returns a clock that starts at the machine's time and runs `factor` times as fast.
    pub fn scaled(factor: f64) -> Self {
        Self(Arc::new(Source::Scaled { start: machine_millis(), factor }))
    }

    /// Returns a clock that shows `start` until [`Clock::advance`] moves it.
    pub fn manual(start: Timestamp) -> Self {
        Self(Arc::new(Source::Manual {
            now: AtomicU64::new(start.as_millis()),
            moved: Notify::new(),
        }))
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        Timestamp(match &*self.0 {
            // When the wall clock is set back, time follows the steady clock alone, so that it
            // neither runs backwards nor stands still.
            Source::System { started, offset, compared } => {
                let steady = || {
                    let steady = machine_instant().duration_since(*started);
                    steady.as_secs() * 1000 + u64::from(steady.subsec_millis())
                };
                let now = steady();
                // The two clocks are compared once a millisecond: a request reads the time some
                // twenty times. The steady clock is read last, so that a thread delayed between the
                // reads finds the wall clock behind, not ahead.
                if compared.swap(now, Ordering::Relaxed) != now {
                    let wall = machine_millis();
                    offset.fetch_max(wall.saturating_sub(steady()), Ordering::Relaxed);
                }
                now + offset.load(Ordering::Relaxed)
            }
            Source::Scaled { start, factor } => {
                start + scaled(machine_millis().saturating_sub(*start), *factor)
            }
            Source::Manual { now, .. } => now.load(Ordering::Acquire),
        })
    }

    /// Returns the current moment, to measure a duration.
    pub fn moment(&self) -> Moment {
        Moment(match &*self.0 {
            Source::System { started, .. } => micros(machine_instant().duration_since(*started)),
            Source::Scaled { start, factor } => {
                scaled(machine_micros().saturating_sub(start * 1000), *factor)
            }
            Source::Manual { now, .. } => now.load(Ordering::Acquire).saturating_mul(1000),
        })
    }

    /// Moves a manual clock forward; does nothing to others.
    pub fn advance(&self, by: Duration) {
        if let Source::Manual { now, moved } = &*self.0 {
            now.fetch_add(millis(by), Ordering::AcqRel);
            moved.notify_waiters();
        }
    }

    /// Waits until this clock shows `at`; on a manual clock, until a test moves it there.
    pub async fn reach(&self, at: Timestamp) {
        match &*self.0 {
            Source::System { .. } => tokio::time::sleep(at.since(self.now())).await,
            Source::Scaled { factor, .. } => {
                tokio::time::sleep(at.since(self.now()).div_f64(*factor)).await;
            }
            Source::Manual { moved, .. } => loop {
                let moved = moved.notified();
                if self.now() >= at {
                    return;
                }
                moved.await;
            },
        }
    }
}

/// Returns the machine's steady time, for socket timeouts, which no other clock may change.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place that reads the machine's clock"
)]
pub fn machine_instant() -> Instant {
    Instant::now()
}

/// Returns the steady clock of the system in microseconds, as other processes read it
/// (`CLOCK_MONOTONIC`).
pub fn monotonic_micros() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let secs = u64::try_from(now.tv_sec).unwrap_or_default();
    secs.saturating_mul(1_000_000) + u64::try_from(now.tv_nsec).unwrap_or_default() / 1_000
}

/// Returns the machine's steady time for the runtime's timers.
pub fn timer_now() -> tokio::time::Instant {
    tokio::time::Instant::from_std(machine_instant())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a test clock; a rounding error is fine"
)]
fn scaled(elapsed: u64, factor: f64) -> u64 {
    (elapsed as f64 * factor) as u64
}

fn machine_millis() -> u64 {
    machine_micros() / 1000
}

/// Returns the machine's wall clock in microseconds since the epoch: the time on a log line,
/// whichever clock the gateway uses.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place that reads the machine's clock"
)]
pub fn machine_micros() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |elapsed| u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn a_reset_is_rounded_up_so_that_it_never_lies_in_the_past() {
        assert_eq!(Timestamp::from_millis(1_001).as_secs_ceil(), 2);
        assert_eq!(Timestamp::from_millis(1_001).as_secs(), 1);
    }

    #[test]
    fn an_rfc_3339_time_is_in_utc_and_rounded_up() {
        assert_eq!(Timestamp::from_millis(1_709_164_799_001).rfc3339(), "2024-02-29T00:00:00Z");
        assert_eq!(Timestamp::EPOCH.rfc3339(), "1970-01-01T00:00:00Z");
        assert_eq!(Timestamp::FAR_FUTURE.rfc3339(), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn a_manual_clock_moves_only_by_advance() {
        let clock = Clock::manual(Timestamp::from_secs(10));
        assert_eq!(clock.now(), Timestamp::from_secs(10));
        clock.clone().advance(Duration::from_secs(5));
        assert_eq!(clock.now(), Timestamp::from_secs(15));
    }

    #[tokio::test]
    async fn waiting_on_a_manual_clock_ends_when_it_is_moved() {
        let clock = Clock::manual(Timestamp::from_secs(10));
        let waiting = clock.reach(Timestamp::from_secs(12));
        tokio::pin!(waiting);
        assert!(waiting.as_mut().now_or_never().is_none());
        clock.advance(Duration::from_secs(1));
        assert!(waiting.as_mut().now_or_never().is_none());
        clock.advance(Duration::from_secs(1));
        waiting.await;
    }

    #[test]
    fn the_future_has_no_overflow() {
        assert_eq!(Timestamp::FAR_FUTURE + Duration::from_secs(1), Timestamp::FAR_FUTURE);
        assert_eq!(Timestamp::EPOCH - Duration::from_secs(1), Timestamp::EPOCH);
    }
}
