//! The pace of a request body: the longest pause, the least rate, and the time in total.
//!
//! The rate counts after the first pause, so a slow start is forgiven. Only the time in which the
//! gateway reads counts: a body that the gateway keeps waiting is not slow.

use std::time::Duration;

/// Bounds of the time that one body may take.
#[derive(Clone, Copy, Debug)]
pub struct BodyPace {
    pub pause_max: Duration,
    /// Least bytes per second on average, above zero.
    pub rate_min: u64,
    pub total_max: Duration,
}

impl BodyPace {
    /// The time for the next piece of a body with `received` bytes after `taken` in all; zero: it
    /// is too slow.
    pub fn next_within(self, received: u64, taken: Duration) -> Duration {
        let micros = u128::from(received) * 1_000_000 / u128::from(self.rate_min.max(1));
        let earned = Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
        let until = self.pause_max.saturating_add(earned).min(self.total_max);
        until.saturating_sub(taken).min(self.pause_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;
    const PACE: BodyPace = BodyPace {
        pause_max: Duration::from_secs(30),
        rate_min: 8 * KIB,
        total_max: Duration::from_hours(2),
    };

    /// Receives `bytes` in pieces at this rate; returns the bytes that came before it was too slow.
    fn received(bytes: u64, rate: u64, piece: u64) -> u64 {
        let (mut received, mut taken) = (0, Duration::ZERO);
        while received < bytes {
            let pause = Duration::from_micros(piece * 1_000_000 / rate);
            if pause > PACE.next_within(received, taken) {
                break;
            }
            taken += pause;
            received += piece;
        }
        received
    }

    #[test]
    fn an_honest_slow_body_arrives_whole() {
        for (bytes, rate) in [(64, 100), (64, 12), (10, 8), (1024, 200)] {
            let bytes = bytes * KIB * KIB;
            assert_eq!(received(bytes, rate * KIB, KIB), bytes, "{rate} KiB/s");
            assert_eq!(received(bytes, rate * KIB, 128 * KIB), bytes, "{rate} KiB/s");
        }
    }

    #[test]
    fn a_body_below_the_floor_rate_ends_soon() {
        assert_eq!(received(10 * KIB * KIB, 1, 1), 30);
        assert!(received(10 * KIB * KIB, 7 * KIB, KIB) < 2 * KIB * KIB);
    }

    #[test]
    fn a_pause_and_the_total_have_an_end() {
        let seconds = Duration::from_secs;
        assert_eq!(PACE.next_within(0, Duration::ZERO), seconds(30));
        assert_eq!(PACE.next_within(u64::MAX, seconds(100)), seconds(30));
        assert_eq!(PACE.next_within(u64::MAX, seconds(7_190)), seconds(10));
        assert_eq!(PACE.next_within(u64::MAX, seconds(7_200)), Duration::ZERO);
        assert_eq!(PACE.next_within(8 * KIB, seconds(31)), Duration::ZERO);
    }
}
