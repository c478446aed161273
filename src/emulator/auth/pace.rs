//! The pace of the emulator's clock, for tokens that a client dates by its own.
//!
//! A client signs a JWT by the machine's clock, or by the `Date` of an answer. With `--speed 60`
//! ten minutes of the first are ten hours of the second, so either may be right.

use std::time::Duration;

use crate::clock::Timestamp;

#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The time at which both clocks were equal.
    pub started: Timestamp,
    pub factor: f64,
}

impl Pace {
    /// Returns the time by the machine's clock; `now` is the emulator's.
    pub fn machine_time(self, now: Timestamp) -> Timestamp {
        if self.factor <= 0.0 {
            return now;
        }
        let elapsed = now.since(self.started).as_secs_f64() / self.factor;
        let elapsed = Duration::try_from_secs_f64(elapsed).unwrap_or(Duration::MAX);
        self.started + elapsed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emulated_hour_is_a_minute_at_speed_60() {
        let started = Timestamp::from_secs(1_800_000_000);
        let at = |factor| {
            let now = started + Duration::from_hours(1);
            Pace { started, factor }.machine_time(now).since(started).as_secs()
        };
        assert_eq!((at(60.0), at(1.0), at(0.5)), (60, 3_600, 7_200));
        let before = Pace { started, factor: 60.0 };
        assert_eq!(before.machine_time(started), started);
    }
}
