//! The floor rate of a client that takes an answer: a slower one is cut off.

use std::time::Duration;

/// The longest piece of an answer, and so the most that a slow client keeps in memory.
const PIECE_BYTES_MAX: usize = 64 * 1024;
/// The shortest piece, where the floor rate is very low.
const PIECE_BYTES_MIN: usize = 1024;

/// The patience with one client. Waiting uses it up, what the client takes earns it back, and it
/// never exceeds the window. A client that takes less than the floor rate therefore loses it.
#[derive(Clone, Copy, Debug)]
pub struct FloorRate {
    bytes_per_second: u64,
    window: Duration,
    patience: Duration,
}

impl FloorRate {
    /// Begins with the patience of a whole window.
    pub fn new(bytes_per_second: u64, window: Duration) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), window, patience: window }
    }

    /// The longest wait from now until the client takes more.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// The time by which the client is late now.
    pub fn late(&self) -> Duration {
        self.window.saturating_sub(self.patience)
    }

    /// Records that the client took `bytes` after a wait.
    pub fn took(&mut self, bytes: usize, waited: Duration) {
        if waited.is_zero() && self.patience == self.window {
            return;
        }
        let nanos = bytes as u128 * 1_000_000_000 / u128::from(self.bytes_per_second);
        let earned = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let left = self.patience.saturating_sub(waited);
        self.patience = left.saturating_add(earned).min(self.window);
    }

    /// The length of a piece: a client at the floor rate takes two within the window.
    pub fn piece_bytes(&self) -> usize {
        let window = u64::try_from(self.window.as_millis()).unwrap_or(u64::MAX);
        let bytes = self.bytes_per_second.saturating_mul(window) / 2_000;
        usize::try_from(bytes).unwrap_or(usize::MAX).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn rate() -> FloorRate {
        FloorRate::new(4096, 30 * SECOND)
    }

    #[test]
    fn a_client_above_the_floor_keeps_its_patience() {
        let mut rate = rate();
        for _ in 0..10_000 {
            rate.took(5000, SECOND);
        }
        assert_eq!(rate.patience(), 30 * SECOND);
    }

    #[test]
    fn a_client_below_the_floor_loses_its_patience() {
        let mut rate = rate();
        // 64 KiB in 30 seconds.
        rate.took(64 * 1024, 30 * SECOND);
        assert_eq!(rate.patience(), 16 * SECOND);
        rate.took(32 * 1024, 15 * SECOND);
        assert_eq!(rate.patience(), 9 * SECOND);
    }

    #[test]
    fn a_client_that_takes_nothing_has_one_window() {
        let mut rate = rate();
        rate.took(usize::MAX, Duration::ZERO);
        assert_eq!(rate.patience(), 30 * SECOND, "it saves up no more");
        rate.took(0, 31 * SECOND);
        assert_eq!(rate.patience(), Duration::ZERO);
    }

    #[test]
    fn a_piece_fits_twice_into_the_window() {
        assert_eq!(rate().piece_bytes(), 60 * 1024);
        assert_eq!(FloorRate::new(1, SECOND).piece_bytes(), PIECE_BYTES_MIN);
        assert_eq!(FloorRate::new(u64::MAX, SECOND).piece_bytes(), PIECE_BYTES_MAX);
    }
}
