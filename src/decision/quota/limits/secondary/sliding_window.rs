//! A sliding window: at most an amount in any stretch of time, by an exact list of entries
//! (SPECIFICATION D5).
//!
//! An amount holds its place until its answer has come *and* the window has passed since, because
//! the upstream may have counted it at any moment in between. Every entry is separate, so each
//! place is free exactly when it may be. Lists of small amounts (milliseconds of CPU time) would be
//! long: there, entries within a grain of time share the later end.
//!
//! The entries (a [`Tally`]) are separate from the limit (a [`Limit`]), which many tallies share.

use std::borrow::BorrowMut;
use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::decision::quota::limits::block::Block;
use crate::decision::types::LimitKind;

/// Smallest step of time: a place is free after the end of the window.
pub const TICK: Duration = Duration::from_millis(1);

/// At most `max` in any stretch of `length`.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// In milliseconds, like `grain`.
    length: u32,
    grain: u32,
    pub max: u32,
}

impl Limit {
    pub fn new(length: Duration, max: u32) -> Self {
        Self { length: whole_millis(length), grain: 1, max: max.max(1) }
    }

    /// The last moment at which an amount counts that ends at this time.
    pub fn end(self, ended: Timestamp) -> Timestamp {
        Timestamp::from_millis(ended.as_millis().saturating_add(self.length.into()))
    }

    /// Caps an amount to the whole limit.
    pub fn weigh(self, amount: u32) -> u32 {
        amount.min(self.max)
    }
}

/// Last moment at which an entry counts, and its amount. The lower bits of the moment suffice: no
/// entry is more than a length before the newest.
type Entry = (u32, u32);

/// Entries of tallies that mostly have one at most, inline. An absent box is a quarter of the size
/// of a list, and there are many tallies.
pub type Seldom = Box<VecDeque<Entry>>;

#[derive(Debug, Default)]
pub struct Tally<L> {
    /// Last moment of the newest entry, and its amount (0 for none). It is stored inline, because
    /// most tallies of points have one entry and cache misses dominate the cost.
    newest: Timestamp,
    newest_amount: u32,
    in_flight: u32,
    answered: u32,
    /// The other entries, ascending.
    earlier: Option<L>,
}

impl<L: BorrowMut<VecDeque<Entry>> + Default> Tally<L> {
    /// Returns true when the limit admits `amount` more. An amount above the whole limit counts as
    /// the whole limit.
    pub fn has_room(&mut self, limit: Limit, now: Timestamp, amount: u32) -> bool {
        self.expire(now);
        self.in_flight.saturating_add(self.answered).saturating_add(limit.weigh(amount))
            <= limit.max
    }

    /// Amount in flight, or still counting.
    pub fn used(&mut self, now: Timestamp) -> u32 {
        self.expire(now);
        self.in_flight.saturating_add(self.answered)
    }

    fn free(&mut self, limit: Limit, now: Timestamp) -> u32 {
        self.expire(now);
        limit.max.saturating_sub(self.in_flight.saturating_add(self.answered))
    }

    pub fn block(
        &mut self,
        limit: Limit,
        now: Timestamp,
        amount: u32,
        kind: LimitKind,
    ) -> Option<Block> {
        if self.has_room(limit, now, amount) {
            return None;
        }
        let wanted =
            self.in_flight.saturating_add(self.answered).saturating_add(limit.weigh(amount));
        let mut excess = wanted.saturating_sub(limit.max);
        for (last, entry) in self.entries() {
            excess = excess.saturating_sub(entry);
            if excess == 0 {
                return Some(Block::at(kind, last + TICK));
            }
        }
        Some(Block::event(kind))
    }

    pub fn enter(&mut self, limit: Limit, amount: u32) {
        self.in_flight = self.in_flight.saturating_add(limit.weigh(amount));
    }

    /// Ends the place of `held`. From now on `counted` counts for a whole window; 0 for a request
    /// that was never sent.
    pub fn leave(&mut self, limit: Limit, now: Timestamp, held: u32, counted: u32) {
        self.in_flight = self.in_flight.saturating_sub(limit.weigh(held));
        self.expire(now);
        if counted == 0 {
            return;
        }
        self.count(limit, limit.end(now), counted);
    }

    /// Adds an entry that is not earlier than the others.
    pub fn count(&mut self, limit: Limit, last: Timestamp, counted: u32) {
        self.answered = self.answered.saturating_add(counted);
        if self.newest_amount == 0 {
            (self.newest, self.newest_amount) = (last, counted);
        } else if self.is_as_newest(limit, last) {
            self.newest = last.max(self.newest);
            self.newest_amount = self.newest_amount.saturating_add(counted);
        } else {
            let earlier = self.earlier.get_or_insert_default().borrow_mut();
            earlier.push_back((lower_bits(self.newest), self.newest_amount));
            (self.newest, self.newest_amount) = (last, counted);
        }
    }

    /// Returns true when an entry joins the newest one; also if time ran backwards.
    fn is_as_newest(&self, limit: Limit, last: Timestamp) -> bool {
        let (apart, grain) =
            (last.as_millis().saturating_sub(self.newest.as_millis()), u64::from(limit.grain));
        // A larger distance needs no division.
        apart == 0 || apart < grain && last.as_millis() / grain == self.newest.as_millis() / grain
    }

    fn expire(&mut self, now: Timestamp) {
        if let Some(earlier) = &mut self.earlier {
            let earlier: &mut VecDeque<Entry> = earlier.borrow_mut();
            while let Some((_, amount)) =
                earlier.pop_front_if(|(last, _)| at_or_before(self.newest, *last) < now)
            {
                self.answered = self.answered.saturating_sub(amount);
            }
        }
        if self.newest < now {
            self.answered = self.answered.saturating_sub(std::mem::take(&mut self.newest_amount));
        }
    }

    pub fn entries(&self) -> impl Iterator<Item = (Timestamp, u32)> {
        let newest = (self.newest_amount > 0).then_some((self.newest, self.newest_amount));
        let earlier =
            self.earlier.iter().flat_map(|earlier| -> &VecDeque<Entry> { earlier.borrow() });
        earlier.map(|(last, amount)| (at_or_before(self.newest, *last), *amount)).chain(newest)
    }

    /// Amount in use at `now`, in flight or still counting.
    pub fn in_use(&self, now: Timestamp) -> u32 {
        let counting = self.entries().filter(|(last, _)| *last >= now).map(|(_, amount)| amount);
        counting.fold(self.in_flight, u32::saturating_add)
    }

    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Time at which the first of the amounts that count no longer does.
    pub fn next_end(&self, now: Timestamp) -> Option<Timestamp> {
        let mut counting = self.entries().map(|(last, _)| last);
        counting.find(|last| *last >= now).map(|last| last + TICK)
    }

    pub fn is_within(&self, limit: Limit) -> bool {
        self.in_flight.saturating_add(self.answered) <= limit.max
    }

    pub fn nothing_in_flight(&mut self) {
        self.in_flight = 0;
    }

    pub fn is_empty(&mut self, now: Timestamp) -> bool {
        self.expire(now);
        self.in_flight == 0 && self.newest_amount == 0
    }
}

#[derive(Debug)]
pub struct SlidingWindow {
    pub limit: Limit,
    pub tally: Tally<VecDeque<Entry>>,
}

impl SlidingWindow {
    pub fn new(length: Duration, max: u32) -> Self {
        Self { limit: Limit::new(length, max), tally: Tally::default() }
    }

    /// Merges entries within `grain`: never free too early, and late by at most that.
    pub fn grained(mut self, grain: Duration) -> Self {
        self.limit.grain = whole_millis(grain);
        self
    }

    pub fn has_room(&mut self, now: Timestamp, amount: u32) -> bool {
        self.tally.has_room(self.limit, now, amount)
    }

    /// Time at which the first of the amounts that count no longer does.
    pub fn next_end(&self, now: Timestamp) -> Option<Timestamp> {
        self.tally.next_end(now)
    }

    /// Amount in flight, or still counting.
    pub fn used(&mut self, now: Timestamp) -> u32 {
        self.tally.used(now)
    }

    /// Amount that the limit still admits.
    pub fn free(&mut self, now: Timestamp) -> u32 {
        self.tally.free(self.limit, now)
    }

    pub fn block(&mut self, now: Timestamp, amount: u32, kind: LimitKind) -> Option<Block> {
        self.tally.block(self.limit, now, amount, kind)
    }

    pub fn enter(&mut self, amount: u32) {
        self.tally.enter(self.limit, amount);
    }

    pub fn leave(&mut self, now: Timestamp, held: u32, counted: u32) {
        self.tally.leave(self.limit, now, held, counted);
    }

    pub fn is_within(&self) -> bool {
        self.tally.is_within(self.limit)
    }

    #[cfg(test)]
    pub fn entries_held(&self) -> usize {
        self.tally.entries().count()
    }
}

fn lower_bits(time: Timestamp) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the lower bits are meant")]
    let bits = time.as_millis() as u32;
    bits
}

/// Last time with these lower bits that is not after `end`.
fn at_or_before(end: Timestamp, bits: u32) -> Timestamp {
    Timestamp::from_millis(
        end.as_millis().saturating_sub(lower_bits(end).wrapping_sub(bits).into()),
    )
}

fn whole_millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1)
}
