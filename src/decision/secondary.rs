//! The secondary limits of one account: concurrency, points, content, and the distance between writes (DESIGN D5, D7).
//!
//! A request holds its place until its answer has come *and* the limit's window has passed since: the upstream may have counted it at any
//! moment in between. Every entry is kept by itself, so that each place is free again exactly when it may be; the limits are small, and
//! they bound the lists. CPU seconds and OAuth token requests have no book here yet; each will be one more [`Window`].

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::api::EndpointId;
use crate::clock::Timestamp;

use super::block::{Block, both};
use super::demand::{Demand, LimitKind, SecondaryLimits, WriteSpacing};

const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);
/// The smallest step of time: a place is free when the window is over, not when it ends.
const TICK: Duration = Duration::from_millis(1);
/// From how many points books on the empty ones are dropped. Ours: a few dozen bytes each.
const SWEEP_FROM: usize = 64;

/// At most `max` in any stretch of `length`.
#[derive(Debug)]
pub(super) struct Window {
    length: Duration,
    max: u32,
    in_flight: u32,
    answered: u32,
    /// The last moment at which each counts, ascending, with its amount.
    entries: VecDeque<(Timestamp, u32)>,
}

impl Window {
    pub(super) fn new(length: Duration, max: u32) -> Self {
        Self { length, max: max.max(1), in_flight: 0, answered: 0, entries: VecDeque::new() }
    }

    /// What forbids `amount` more; `None` when nothing does. More than the whole limit counts as the whole limit.
    fn block(&mut self, now: Timestamp, amount: u32, limit: LimitKind) -> Option<Block> {
        self.expire(now);
        let mut excess = (self.in_flight + self.answered + self.weigh(amount)).checked_sub(self.max).filter(|excess| *excess > 0)?;
        for (last, entry) in &self.entries {
            excess = excess.saturating_sub(*entry);
            if excess == 0 {
                return Some(Block::at(limit, *last + TICK));
            }
        }
        Some(Block::event(limit))
    }

    fn enter(&mut self, amount: u32) {
        self.in_flight += self.weigh(amount);
    }

    fn leave(&mut self, now: Timestamp, amount: u32, sent: Sent) {
        let amount = self.weigh(amount);
        self.in_flight = self.in_flight.saturating_sub(amount);
        self.expire(now);
        if sent == Sent::No || amount == 0 {
            return;
        }
        self.answered += amount;
        let last = now + self.length;
        match self.entries.back_mut() {
            // Time never runs backwards, but nothing breaks if it did.
            Some((latest, sum)) if *latest >= last => *sum += amount,
            _ => self.entries.push_back((last, amount)),
        }
    }

    fn expire(&mut self, now: Timestamp) {
        while let Some((_, amount)) = self.entries.pop_front_if(|(last, _)| *last < now) {
            self.answered -= amount;
        }
    }

    /// In use at `now`, in flight or still counting.
    pub(super) fn in_use(&self, now: Timestamp) -> u32 {
        self.in_flight + self.entries.iter().filter(|(last, _)| *last >= now).map(|(_, amount)| amount).sum::<u32>()
    }

    pub(super) fn max(&self) -> u32 {
        self.max
    }

    /// Whether it holds no more than it may.
    fn is_within(&self) -> bool {
        self.in_flight + self.answered <= self.max
    }

    fn is_empty(&self) -> bool {
        self.in_flight == 0 && self.entries.is_empty()
    }

    fn weigh(&self, amount: u32) -> u32 {
        amount.min(self.max)
    }
}

/// Whether a request may have reached the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// It may.
    Yes,
    /// It provably did not.
    No,
}

/// What a request weighs in the secondary books.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weight {
    endpoint: EndpointId,
    points: u32,
    graphql: bool,
    content: bool,
    write: WriteSpacing,
}

impl From<&Demand> for Weight {
    fn from(demand: &Demand) -> Self {
        let Demand { endpoint, points, graphql, content, write, .. } = *demand;
        Self { endpoint, points, graphql, content, write }
    }
}

/// The least distances between writes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spacing {
    pub(super) any: Duration,
    pub(super) notifying: Duration,
}

/// When the writes of an account were admitted.
#[derive(Clone, Copy, Debug, Default)]
struct Writes {
    any: Option<Timestamp>,
    notifying: Option<Timestamp>,
}

/// The secondary books of one account.
#[derive(Debug)]
pub(super) struct Secondary {
    limits: SecondaryLimits,
    spacing: Spacing,
    in_flight: u32,
    rest_points: HashMap<EndpointId, Window>,
    sweep_at: usize,
    graphql_points: Window,
    content_minute: Window,
    content_hour: Window,
    writes: Writes,
    /// What `writes` was before the write in flight; there is at most one.
    writes_before: Option<Writes>,
}

impl Secondary {
    pub(super) fn new(limits: SecondaryLimits, spacing: Spacing) -> Self {
        Self {
            limits,
            spacing,
            in_flight: 0,
            rest_points: HashMap::new(),
            sweep_at: SWEEP_FROM,
            graphql_points: Window::new(MINUTE, limits.graphql_points_per_minute),
            content_minute: Window::new(MINUTE, limits.content_per_minute),
            content_hour: Window::new(HOUR, limits.content_per_hour),
            writes: Writes::default(),
            writes_before: None,
        }
    }

    /// What forbids a request; `None` when nothing does.
    pub(super) fn block(&mut self, now: Timestamp, weight: Weight) -> Option<Block> {
        let mut block = (self.in_flight >= self.concurrency_max()).then_some(Block::event(LimitKind::Concurrency));
        block = both(block, self.points_block(now, weight));
        if weight.content {
            block = both(block, self.content_minute.block(now, 1, LimitKind::ContentPerMinute));
            block = both(block, self.content_hour.block(now, 1, LimitKind::ContentPerHour));
        }
        both(block, self.write_block(now, weight.write))
    }

    /// Takes a request that nothing forbids.
    pub(super) fn enter(&mut self, now: Timestamp, weight: Weight) {
        self.in_flight += 1;
        if weight.graphql {
            self.graphql_points.enter(weight.points);
        } else {
            self.sweep(now);
            let max = self.limits.rest_points_per_minute;
            self.rest_points.entry(weight.endpoint).or_insert_with(|| Window::new(MINUTE, max)).enter(weight.points);
        }
        if weight.content {
            self.content_minute.enter(1);
            self.content_hour.enter(1);
        }
        if weight.write != WriteSpacing::None {
            self.writes_before = Some(self.writes);
            self.writes.any = Some(now);
            if weight.write == WriteSpacing::Notifies {
                self.writes.notifying = Some(now);
            }
        }
    }

    /// Lets go of a request whose end is known; see the module for how long it still counts.
    pub(super) fn leave(&mut self, now: Timestamp, weight: Weight, sent: Sent) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if weight.graphql {
            self.graphql_points.leave(now, weight.points, sent);
        } else if let Some(window) = self.rest_points.get_mut(&weight.endpoint) {
            window.leave(now, weight.points, sent);
        }
        if weight.content {
            self.content_minute.leave(now, 1, sent);
            self.content_hour.leave(now, 1, sent);
        }
        if weight.write != WriteSpacing::None {
            let before = self.writes_before.take();
            if let (Some(before), Sent::No) = (before, sent) {
                self.writes = before;
            }
        }
    }

    /// Each limit's use and maximum; of the points per endpoint the fullest.
    pub(super) fn usage(&self, now: Timestamp) -> impl Iterator<Item = (LimitKind, u32, u32)> {
        let fullest = self.rest_points.values().map(|window| window.in_use(now)).max().unwrap_or_default();
        let windows = [
            (LimitKind::GraphqlPoints, &self.graphql_points),
            (LimitKind::ContentPerMinute, &self.content_minute),
            (LimitKind::ContentPerHour, &self.content_hour),
        ];
        [
            (LimitKind::Concurrency, self.in_flight, self.concurrency_max()),
            (LimitKind::Points, fullest, self.limits.rest_points_per_minute.max(1)),
        ]
        .into_iter()
        .chain(windows.into_iter().map(move |(limit, window)| (limit, window.in_use(now), window.max())))
    }

    /// Requests in flight.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Invariant 3.
    pub(super) fn is_within_concurrency(&self) -> bool {
        self.in_flight <= self.concurrency_max()
    }

    /// Invariant 4, for the windows that a request touches.
    pub(super) fn is_within(&self, weight: Weight) -> bool {
        let points = if weight.graphql { Some(&self.graphql_points) } else { self.rest_points.get(&weight.endpoint) };
        points.into_iter().chain([&self.content_minute, &self.content_hour]).all(Window::is_within)
    }

    /// Invariant 4, for all windows.
    pub(super) fn is_within_windows(&self) -> bool {
        self.rest_points.values().chain([&self.graphql_points, &self.content_minute, &self.content_hour]).all(Window::is_within)
    }

    /// What invariant 5 forbids.
    pub(super) fn would_be_second_write(&self, weight: Weight) -> bool {
        weight.write != WriteSpacing::None && self.writes_before.is_some()
    }

    fn concurrency_max(&self) -> u32 {
        self.limits.concurrency.max(1)
    }

    fn points_block(&mut self, now: Timestamp, weight: Weight) -> Option<Block> {
        if weight.graphql {
            return self.graphql_points.block(now, weight.points, LimitKind::GraphqlPoints);
        }
        self.rest_points.get_mut(&weight.endpoint)?.block(now, weight.points, LimitKind::Points)
    }

    fn write_block(&self, now: Timestamp, write: WriteSpacing) -> Option<Block> {
        let after = |last: Option<Timestamp>, distance| last.map(|last| last + distance);
        let earliest = match write {
            WriteSpacing::None => return None,
            WriteSpacing::Plain => after(self.writes.any, self.spacing.any),
            WriteSpacing::Notifies => after(self.writes.any, self.spacing.any).max(after(self.writes.notifying, self.spacing.notifying)),
        };
        let by_time = earliest.filter(|earliest| now < *earliest).map(|earliest| Block::at(LimitKind::Spacing, earliest));
        both(by_time, self.writes_before.is_some().then_some(Block::event(LimitKind::Spacing)))
    }

    /// Drops points books that are empty, when there are twice as many as after the last time.
    fn sweep(&mut self, now: Timestamp) {
        if self.rest_points.len() >= self.sweep_at {
            self.rest_points.retain(|_, window| {
                window.expire(now);
                !window.is_empty()
            });
            self.sweep_at = SWEEP_FROM.max(self.rest_points.len() * 2);
        }
    }
}

#[cfg(test)]
mod tests;
