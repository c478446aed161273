//! At most so much in any stretch of time: an exact list of what still counts (DESIGN D5).
//!
//! An amount holds its place until its request's answer has come *and* the window has passed since:
//! the upstream may have counted it at any moment in between. Every entry is kept by itself, so
//! that each place is free again exactly when it may be; where the amounts are so small that the
//! list would be long (milliseconds of CPU time), neighbours within a grain of time share the later
//! one's end.
//!
//! What counts (a [`Tally`]) is apart from what it counts against (a [`Limit`]), which many of them
//! have in common.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::decision::quota::limits::block::Block;
use crate::decision::types::LimitKind;

/// The smallest step of time: a place is free when the window is over, not when it ends.
pub(in crate::decision) const TICK: Duration = Duration::from_millis(1);

/// At most `max` in any stretch of `length`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// In milliseconds, as `grain` is.
    length: u32,
    grain: u32,
    max: u32,
}

impl Limit {
    pub(super) fn new(length: Duration, max: u32) -> Self {
        Self { length: whole_millis(length), grain: 1, max: max.max(1) }
    }

    /// An amount as it counts here: at most the whole limit.
    pub(super) fn weigh(self, amount: u32) -> u32 {
        amount.min(self.max)
    }

    pub(super) fn max(self) -> u32 {
        self.max
    }

    /// Another maximum, from now on.
    pub(super) fn set_max(&mut self, max: u32) {
        self.max = max.max(1);
    }
}

/// The last moment at which something counts, and its amount. Of the moment the lower bits, which
/// say it all: none is more than a length before the newest.
type Entry = (u32, u32);

/// Where a tally keeps all entries but the newest, ascending.
pub(super) trait Earlier: Default {
    fn list(&self) -> Option<&VecDeque<Entry>>;
    fn list_mut(&mut self) -> Option<&mut VecDeque<Entry>>;
    fn made(&mut self) -> &mut VecDeque<Entry>;
}

/// For those that mostly have some.
impl Earlier for VecDeque<Entry> {
    fn list(&self) -> Option<&Self> {
        Some(self)
    }

    fn list_mut(&mut self) -> Option<&mut Self> {
        Some(self)
    }

    fn made(&mut self) -> &mut Self {
        self
    }
}

/// For those that mostly have none: small, because there are many of them.
#[derive(Debug, Default)]
#[expect(clippy::box_collection, reason = "a quarter of the size as long as there are none")]
pub(super) struct Seldom(Option<Box<VecDeque<Entry>>>);

impl Earlier for Seldom {
    fn list(&self) -> Option<&VecDeque<Entry>> {
        self.0.as_deref()
    }

    fn list_mut(&mut self) -> Option<&mut VecDeque<Entry>> {
        self.0.as_deref_mut()
    }

    fn made(&mut self) -> &mut VecDeque<Entry> {
        self.0.get_or_insert_default()
    }
}

/// What counts.
#[derive(Debug, Default)]
pub(super) struct Tally<E> {
    /// The last moment at which the newest entry counts, and its amount: 0 when there is none.
    /// Beside the others' list, because most points windows never have more than one, and what has to
    /// be fetched from elsewhere in memory is what an account's windows cost.
    newest: Timestamp,
    newest_amount: u32,
    in_flight: u32,
    answered: u32,
    earlier: E,
}

impl<E: Earlier> Tally<E> {
    /// Whether nothing forbids `amount` more. More than the whole limit counts as the whole limit.
    pub(super) fn has_room(&mut self, limit: Limit, now: Timestamp, amount: u32) -> bool {
        self.expire(now);
        self.in_flight.saturating_add(self.answered).saturating_add(limit.weigh(amount))
            <= limit.max
    }

    /// What forbids `amount` more; `None` when nothing does.
    pub(super) fn block(
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

    pub(super) fn enter(&mut self, limit: Limit, amount: u32) {
        self.in_flight = self.in_flight.saturating_add(limit.weigh(amount));
    }

    /// Ends the place of `held` as an amount of `counted`, which counts from now on for a whole
    /// window; 0 for what was never sent.
    pub(super) fn leave(&mut self, limit: Limit, now: Timestamp, held: u32, counted: u32) {
        self.in_flight = self.in_flight.saturating_sub(limit.weigh(held));
        self.expire(now);
        if counted == 0 {
            return;
        }
        self.answered = self.answered.saturating_add(counted);
        let last = Timestamp::from_millis(now.as_millis().saturating_add(limit.length.into()));
        if self.newest_amount == 0 {
            (self.newest, self.newest_amount) = (last, counted);
        } else if self.is_as_newest(limit, last) {
            self.newest = last.max(self.newest);
            self.newest_amount = self.newest_amount.saturating_add(counted);
        } else {
            self.earlier.made().push_back((lower_bits(self.newest), self.newest_amount));
            (self.newest, self.newest_amount) = (last, counted);
        }
    }

    /// Whether what ends then is kept with the newest entry; also when time runs backwards, which
    /// it never does.
    fn is_as_newest(&self, limit: Limit, last: Timestamp) -> bool {
        let (apart, grain) =
            (last.as_millis().saturating_sub(self.newest.as_millis()), u64::from(limit.grain));
        // Who is further apart needs no division.
        apart == 0 || apart < grain && last.as_millis() / grain == self.newest.as_millis() / grain
    }

    fn expire(&mut self, now: Timestamp) {
        if let Some(earlier) = self.earlier.list_mut() {
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

    /// The last moment at which each counts, ascending, with its amount.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Timestamp, u32)> {
        let newest = (self.newest_amount > 0).then_some((self.newest, self.newest_amount));
        let earlier = self.earlier.list().into_iter().flatten();
        earlier.map(|(last, amount)| (at_or_before(self.newest, *last), *amount)).chain(newest)
    }

    /// In use at `now`, in flight or still counting.
    pub(super) fn in_use(&self, now: Timestamp) -> u32 {
        let counting = self.entries().filter(|(last, _)| *last >= now).map(|(_, amount)| amount);
        counting.fold(self.in_flight, u32::saturating_add)
    }

    /// Whether it holds no more than it may.
    pub(super) fn is_within(&self, limit: Limit) -> bool {
        self.in_flight.saturating_add(self.answered) <= limit.max
    }

    /// No request is in flight, whatever is noted.
    pub(super) fn nothing_in_flight(&mut self) {
        self.in_flight = 0;
    }

    pub(super) fn is_empty(&mut self, now: Timestamp) -> bool {
        self.expire(now);
        self.in_flight == 0 && self.newest_amount == 0
    }
}

/// A tally with a limit of its own.
#[derive(Debug)]
pub(super) struct SlidingWindow {
    limit: Limit,
    tally: Tally<VecDeque<Entry>>,
}

impl SlidingWindow {
    pub(super) fn new(length: Duration, max: u32) -> Self {
        Self { limit: Limit::new(length, max), tally: Tally::default() }
    }

    /// The same, with entries that are at most `grain` apart kept as one: never free too early, and
    /// late by at most that.
    pub(super) fn grained(mut self, grain: Duration) -> Self {
        self.limit.grain = whole_millis(grain);
        self
    }

    pub(super) fn has_room(&mut self, now: Timestamp, amount: u32) -> bool {
        self.tally.has_room(self.limit, now, amount)
    }

    pub(super) fn block(&mut self, now: Timestamp, amount: u32, kind: LimitKind) -> Option<Block> {
        self.tally.block(self.limit, now, amount, kind)
    }

    pub(super) fn enter(&mut self, amount: u32) {
        self.tally.enter(self.limit, amount);
    }

    pub(super) fn leave(&mut self, now: Timestamp, held: u32, counted: u32) {
        self.tally.leave(self.limit, now, held, counted);
    }

    pub(super) fn in_use(&self, now: Timestamp) -> u32 {
        self.tally.in_use(now)
    }

    pub(super) fn is_within(&self) -> bool {
        self.tally.is_within(self.limit)
    }

    pub(super) fn limit(&self) -> Limit {
        self.limit
    }

    /// Another maximum, from now on.
    pub(super) fn set_max(&mut self, max: u32) {
        self.limit.set_max(max);
    }

    /// No request is in flight, whatever is noted.
    pub(super) fn nothing_in_flight(&mut self) {
        self.tally.nothing_in_flight();
    }

    #[cfg(test)]
    pub(super) fn entries_held(&self) -> usize {
        self.tally.entries().count()
    }
}

fn lower_bits(time: Timestamp) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the lower bits are meant")]
    let bits = time.as_millis() as u32;
    bits
}

/// The last time with these lower bits that is not after `end`.
fn at_or_before(end: Timestamp, bits: u32) -> Timestamp {
    Timestamp::from_millis(
        end.as_millis().saturating_sub(lower_bits(end).wrapping_sub(bits).into()),
    )
}

/// At least one: no length and no grain here is shorter.
fn whole_millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1)
}
