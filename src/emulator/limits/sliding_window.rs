//! An amount in a sliding window: it counts from a request's arrival until a whole window after its
//! completion.

use std::collections::VecDeque;
use std::time::Duration;

use super::secondary::{Exceeded, LimitDenial};
use crate::clock::Timestamp;

/// The amounts of requests in flight and of recently completed ones.
#[derive(Debug, Default)]
pub struct SlidingWindow {
    in_flight: u64,
    completed: VecDeque<Completed>,
    /// The amount of all requests ever completed; too wide to overflow.
    total: u128,
}

/// The requests completed at one time. Two running sums make the window's content one subtraction,
/// however many requests there are.
#[derive(Clone, Copy, Debug)]
struct Completed {
    at: Timestamp,
    /// The amount of all requests completed before these, and including them.
    before: u128,
    with: u128,
}

impl SlidingWindow {
    pub fn count(&self, now: Timestamp, window: Duration) -> u64 {
        let recent = self.total.saturating_sub(self.left(now, window));
        u64::try_from(recent).unwrap_or(u64::MAX).saturating_add(self.in_flight)
    }

    /// Returns the amount that has left the window.
    fn left(&self, now: Timestamp, window: Duration) -> u128 {
        let first = self.completed.partition_point(|completed| completed.at + window <= now);
        self.completed.get(first).map_or(self.total, |completed| completed.before)
    }

    /// Refuses `more` above `max` until enough has left: a whole window from now when the amount in
    /// flight alone is too much.
    pub fn check(
        &self,
        now: Timestamp,
        window: Duration,
        more: u64,
        max: u64,
        exceeded: Exceeded,
    ) -> Result<(), LimitDenial> {
        let excess = self.count(now, window).saturating_add(more).saturating_sub(max);
        if excess == 0 {
            return Ok(());
        }
        let wanted = self.left(now, window) + u128::from(excess);
        let last = self.completed.partition_point(|completed| completed.with < wanted);
        let until = self.completed.get(last).map_or(now + window, |last| last.at + window);
        Err(LimitDenial { exceeded, until })
    }

    pub fn begin(&mut self, amount: u64) {
        self.in_flight = self.in_flight.saturating_add(amount);
    }

    pub fn complete(&mut self, now: Timestamp, amount: u64, keep: Duration) {
        self.in_flight = self.in_flight.saturating_sub(amount);
        let before = self.total;
        self.total += u128::from(amount);
        match self.completed.back_mut() {
            Some(last) if last.at == now => last.with = self.total,
            _ => self.completed.push_back(Completed { at: now, before, with: self.total }),
        }
        while self.completed.pop_front_if(|completed| completed.at + keep <= now).is_some() {}
    }

    pub fn is_idle(&self, now: Timestamp, keep: Duration) -> bool {
        self.in_flight == 0
            && self.completed.back().is_none_or(|completed| completed.at + keep <= now)
    }
}
