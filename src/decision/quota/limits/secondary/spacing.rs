//! The distance between the writes of one account (SPECIFICATION D21). A distance of zero keeps
//! nothing apart: such writes run side by side.

use std::time::Duration;

use super::Sent;
use crate::clock::Timestamp;
use crate::decision::quota::limits::block::{Block, both};
use crate::decision::silence::Silence;
use crate::decision::types::{LimitKind, WriteSpacing};

/// Distances of an account's writes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spacing {
    pub any: Duration,
    pub notifying: Duration,
}

/// Writes of one account, by the distances that hold for them.
#[derive(Debug, Default)]
pub struct Writes {
    any: SpacedWrites,
    notifying: SpacedWrites,
}

/// Writes that keep one distance.
#[derive(Debug, Default)]
struct SpacedWrites {
    distance: Duration,
    last: Option<Timestamp>,
    /// `last` before the newest write.
    before: Option<Timestamp>,
    in_flight: u32,
    /// Those without the head of an answer.
    silence: Silence,
}

impl Writes {
    pub fn new(spacing: Spacing) -> Self {
        let mut writes = Self::default();
        writes.reconfigure(spacing);
        writes
    }

    pub fn reconfigure(&mut self, spacing: Spacing) {
        (self.any.distance, self.notifying.distance) = (spacing.any, spacing.notifying);
    }

    /// Times of the last write, and of the last one that notifies.
    pub fn last(&self) -> [Option<Timestamp>; 2] {
        [self.any.last, self.notifying.last]
    }

    /// Takes over the times of the last writes.
    pub fn restore(&mut self, [any, notifying]: [Option<Timestamp>; 2]) {
        (self.any.last, self.notifying.last) = (any, notifying);
    }

    /// Notes the last writes of all replicas.
    pub fn reported(&mut self, [any, notifying]: [Option<Timestamp>; 2]) {
        self.any.last = self.any.last.max(any);
        self.notifying.last = self.notifying.last.max(notifying);
    }

    /// Returns true while a write is in flight that keeps a distance.
    pub fn is_any_in_flight(&self) -> bool {
        self.any.is_taken() || self.notifying.is_taken()
    }

    pub fn block(&self, now: Timestamp, write: WriteSpacing) -> Option<Block> {
        self.holding(write).fold(None, |block, writes| both(block, writes.block(now)))
    }

    /// Expected time of the next turn, at least the distance from now.
    pub fn next_turn(&self, now: Timestamp, write: WriteSpacing) -> Timestamp {
        self.holding(write).map(|writes| writes.next_turn(now)).max().unwrap_or(now)
    }

    /// Distance that this write keeps from those before it.
    pub fn distance(&self, write: WriteSpacing) -> Duration {
        self.holding(write).map(|writes| writes.distance).max().unwrap_or_default()
    }

    pub fn enter(&mut self, now: Timestamp, write: WriteSpacing) {
        self.holding_mut(write).for_each(|writes| writes.enter(now));
    }

    pub fn leave(&mut self, write: WriteSpacing, sent: Sent) {
        self.holding_mut(write).for_each(|writes| writes.leave(sent));
    }

    pub fn answered(&mut self, now: Timestamp, write: WriteSpacing) {
        self.holding_mut(write).for_each(|writes| writes.silence.answered(now));
    }

    /// A write that was sent at this time was given up without an answer.
    pub fn lost(&mut self, now: Timestamp, sent_at: Timestamp, write: WriteSpacing) {
        self.holding_mut(write).for_each(|writes| writes.silence.lost(now, sent_at));
    }

    /// A write waits no longer for the head of an answer.
    pub fn heard(&mut self, write: WriteSpacing) {
        self.holding_mut(write).for_each(|writes| writes.silence.ended());
    }

    /// Returns true if at least half of a wait since then passed behind writes without an answer.
    pub fn is_unanswered(&self, now: Timestamp, since: Timestamp, write: WriteSpacing) -> bool {
        let mut spaced = self.holding(write).filter(|writes| !writes.distance.is_zero());
        spaced.any(|writes| writes.silence.is_unanswered(now, since))
    }

    /// Returns true when a spaced write is in flight, which this one must not join.
    pub fn would_overlap(&self, write: WriteSpacing) -> bool {
        self.holding(write).any(SpacedWrites::is_taken)
    }

    fn holding(&self, write: WriteSpacing) -> impl Iterator<Item = &SpacedWrites> {
        [&self.any, &self.notifying].into_iter().take(distances(write))
    }

    fn holding_mut(&mut self, write: WriteSpacing) -> impl Iterator<Item = &mut SpacedWrites> {
        [&mut self.any, &mut self.notifying].into_iter().take(distances(write))
    }
}

/// Number of distances that hold for a write; the wider one is the second.
fn distances(write: WriteSpacing) -> usize {
    match write {
        WriteSpacing::None => 0,
        WriteSpacing::Plain => 1,
        WriteSpacing::Notifies => 2,
    }
}

impl SpacedWrites {
    fn is_taken(&self) -> bool {
        !self.distance.is_zero() && self.in_flight > 0
    }

    fn block(&self, now: Timestamp) -> Option<Block> {
        let earliest = self.last.map(|last| last + self.distance);
        let by_time = earliest
            .filter(|earliest| now < *earliest)
            .map(|earliest| Block::at(LimitKind::Spacing, earliest));
        both(by_time, self.is_taken().then_some(Block::event(LimitKind::Spacing)))
    }

    /// A write in flight is expected to take as long again as it has taken.
    fn next_turn(&self, now: Timestamp) -> Timestamp {
        let taken = self.last.filter(|_| self.is_taken()).map(|last| now.since(last));
        now + taken.unwrap_or_default().max(self.distance)
    }

    fn enter(&mut self, now: Timestamp) {
        self.before = self.last.replace(now);
        self.in_flight += 1;
        self.silence.sent(now);
    }

    fn leave(&mut self, sent: Sent) {
        self.in_flight = self.in_flight.saturating_sub(1);
        // Among several, the newest write may be another one.
        if sent == Sent::No && self.in_flight == 0 {
            self.last = self.before;
        }
    }
}
