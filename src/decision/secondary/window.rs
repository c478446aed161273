//! At most so much in any stretch of time: an exact list of what still counts (DESIGN D5).
//!
//! An amount holds its place until its request's answer has come *and* the window has passed since: the upstream may have counted it at any
//! moment in between. Every entry is kept by itself, so that each place is free again exactly when it may be; where the amounts are so small that
//! the list would be long (milliseconds of CPU time), neighbours within a grain of time share the later one's end.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::decision::block::Block;
use crate::decision::demand::LimitKind;

/// The smallest step of time: a place is free when the window is over, not when it ends.
pub(in crate::decision) const TICK: Duration = Duration::from_millis(1);

/// At most `max` in any stretch of `length`.
#[derive(Debug)]
pub(in crate::decision) struct Window {
    /// In milliseconds, as `grain` is: an account has many windows.
    length: u32,
    grain: u32,
    max: u32,
    in_flight: u32,
    answered: u32,
    /// The last moment at which the newest entry counts, and its amount: 0 when there is none. Beside the others' list, because most points books never have
    /// more than one, and what has to be fetched from elsewhere in memory is what an account's books cost.
    newest: Timestamp,
    newest_amount: u32,
    /// The same of those before it, ascending.
    earlier: VecDeque<(Timestamp, u32)>,
}

impl Window {
    pub(in crate::decision) fn new(length: Duration, max: u32) -> Self {
        let (newest, earlier) = (Timestamp::EPOCH, VecDeque::new());
        Self { length: whole_millis(length), grain: 1, max: max.max(1), in_flight: 0, answered: 0, newest, newest_amount: 0, earlier }
    }

    /// The same, with entries that are at most `grain` apart kept as one: never free too early, and late by at most that.
    pub(in crate::decision) fn grained(self, grain: Duration) -> Self {
        Self { grain: whole_millis(grain), ..self }
    }

    /// What forbids `amount` more; `None` when nothing does. More than the whole limit counts as the whole limit.
    pub(in crate::decision) fn block(&mut self, now: Timestamp, amount: u32, limit: LimitKind) -> Option<Block> {
        self.expire(now);
        let wanted = self.in_flight.saturating_add(self.answered).saturating_add(self.weigh(amount));
        let mut excess = wanted.checked_sub(self.max).filter(|excess| *excess > 0)?;
        for (last, entry) in self.entries() {
            excess = excess.saturating_sub(entry);
            if excess == 0 {
                return Some(Block::at(limit, last + TICK));
            }
        }
        Some(Block::event(limit))
    }

    pub(in crate::decision) fn enter(&mut self, amount: u32) {
        self.in_flight = self.in_flight.saturating_add(self.weigh(amount));
    }

    /// Ends the place of `held` as an amount of `counted`, which counts from now on for a whole window; 0 for what was never sent.
    pub(in crate::decision) fn leave(&mut self, now: Timestamp, held: u32, counted: u32) {
        self.in_flight = self.in_flight.saturating_sub(self.weigh(held));
        self.expire(now);
        if counted == 0 {
            return;
        }
        self.answered = self.answered.saturating_add(counted);
        let last = now + Duration::from_millis(self.length.into());
        if self.newest_amount == 0 {
            (self.newest, self.newest_amount) = (last, counted);
        } else if self.is_as_newest(last) {
            self.newest = last.max(self.newest);
            self.newest_amount = self.newest_amount.saturating_add(counted);
        } else {
            self.earlier.push_back((self.newest, self.newest_amount));
            (self.newest, self.newest_amount) = (last, counted);
        }
    }

    /// Whether what ends then is kept with the newest entry; also when time runs backwards, which it never does.
    fn is_as_newest(&self, last: Timestamp) -> bool {
        let (apart, grain) = (last.as_millis().saturating_sub(self.newest.as_millis()), u64::from(self.grain));
        // Who is further apart needs no division.
        apart == 0 || apart < grain && last.as_millis() / grain == self.newest.as_millis() / grain
    }

    fn expire(&mut self, now: Timestamp) {
        while let Some((_, amount)) = self.earlier.pop_front_if(|(last, _)| *last < now) {
            self.answered = self.answered.saturating_sub(amount);
        }
        if self.newest < now {
            self.answered = self.answered.saturating_sub(std::mem::take(&mut self.newest_amount));
        }
    }

    /// The last moment at which each counts, ascending, with its amount.
    fn entries(&self) -> impl Iterator<Item = (Timestamp, u32)> {
        let newest = (self.newest_amount > 0).then_some((self.newest, self.newest_amount));
        self.earlier.iter().copied().chain(newest)
    }

    /// In use at `now`, in flight or still counting.
    pub(in crate::decision) fn in_use(&self, now: Timestamp) -> u32 {
        let counting = self.entries().filter(|(last, _)| *last >= now).map(|(_, amount)| amount);
        counting.fold(self.in_flight, u32::saturating_add)
    }

    pub(in crate::decision) fn max(&self) -> u32 {
        self.max
    }

    /// Another limit, from now on.
    pub(in crate::decision) fn set_max(&mut self, max: u32) {
        self.max = max.max(1);
    }

    /// Whether it holds no more than it may.
    pub(in crate::decision) fn is_within(&self) -> bool {
        self.in_flight.saturating_add(self.answered) <= self.max
    }

    pub(in crate::decision) fn is_empty(&mut self, now: Timestamp) -> bool {
        self.expire(now);
        self.in_flight == 0 && self.newest_amount == 0
    }

    #[cfg(test)]
    pub(in crate::decision) fn entries_held(&self) -> usize {
        self.entries().count()
    }

    /// An amount as it counts here: at most the whole limit.
    pub(in crate::decision) fn weigh(&self, amount: u32) -> u32 {
        amount.min(self.max)
    }
}

/// At least one: no length and no grain here is shorter.
fn whole_millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1)
}
