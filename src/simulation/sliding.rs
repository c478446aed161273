//! A sliding window for the upstream's limits per minute and per hour: its peak, and its total.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Timestamp;

#[derive(Clone, Debug)]
pub struct Sliding {
    pub window: Duration,
    recent: VecDeque<(Timestamp, u64)>,
    sum: u64,
    /// Highest sum within one window.
    pub most: u64,
    /// Sum of all amounts.
    pub total: u64,
}

impl Sliding {
    /// Creates an empty window of this length.
    pub fn new(window: Duration) -> Self {
        Self { window, recent: VecDeque::new(), sum: 0, most: 0, total: 0 }
    }

    /// Adds an amount at `now`, which never goes back.
    pub fn add(&mut self, now: Timestamp, amount: u64) {
        while let Some((_, gone)) = self.recent.pop_front_if(|(at, _)| *at + self.window <= now) {
            self.sum -= gone;
        }
        self.recent.push_back((now, amount));
        self.sum += amount;
        self.total += amount;
        self.most = self.most.max(self.sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_as_old_as_the_window_is_dropped() {
        let mut sliding = Sliding::new(Duration::from_secs(60));
        for at in [0, 30, 59, 60, 90] {
            sliding.add(Timestamp::from_secs(at), 2);
        }
        assert_eq!((sliding.most, sliding.total), (6, 10));
    }
}
