//! The secondary limits of one account: concurrency, points, CPU time, content, OAuth token
//! requests, and the distance between writes (SPECIFICATION D5, D7; "Secondary rate limits"). All
//! but the first and the last are [`SlidingWindow`]s.
//!
//! CPU time is the duration of the upstream's answer, which is its upper bound. A request in flight
//! holds the 95th percentile of its endpoint (`elapsed`), then its real duration. An answer that
//! took more than twice that was held up somewhere, not computed: it counts as twice. Otherwise one
//! stall of the upstream would close all accounts for a minute; a lasting change raises the
//! percentile.
//!
//! "Excessive compute in a short time" has no documented figure. A limit of ten seconds, by default
//! half of the minute's, keeps clear of it. A steady caller still uses the whole minute's.

mod capacities;
mod points;
mod saved;
mod sliding_window;
mod slots;
mod spacing;
mod spent;

use std::time::Duration;

use crate::api::EndpointId;
use crate::clock::Timestamp;

use super::block::{Block, both};
use super::elapsed::ELAPSED_MILLIS_MAX;
use crate::decision::types::{ClientId, Demand, LimitKind, SecondaryLimits, WriteSpacing};

pub use capacities::{Capacity, Load};
use points::Points;
pub use saved::SavedSecondary;
pub use sliding_window::TICK;
use sliding_window::{Limit, SlidingWindow};
use slots::{Cpu, Slots};
pub use spacing::Spacing;
use spacing::Writes;
pub use spent::{Known, SpentSecondary};

const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);
/// Short window for compute. Ours, see the module.
const BURST: Duration = Duration::from_secs(10);
/// Time for which a request that was given up keeps its slot: the service ends a request after 10 s
/// (SPECIFICATION, "Limits in practice").
pub const CUT_OFF_GRACE: Duration = Duration::from_secs(10);
/// The same after an answer that was broken off while the upstream waited for its reader. Ours: the
/// closed connection ends such a request, once the upstream notices.
pub const YIELD_GRACE: Duration = Duration::from_millis(250);
/// Factor above the expected duration from which an answer counts as held up. Ours.
const HELD_UP_FROM: u32 = 2;
/// Granularity of the ends of CPU time: a hundredth of each window. Ours.
const CPU_GRAIN: Duration = Duration::from_millis(500);
const BURST_GRAIN: Duration = Duration::from_millis(100);

/// Limits with a window that few requests count in.
const SPECIAL: [LimitKind; 4] = [
    LimitKind::GraphqlPoints,
    LimitKind::ContentPerMinute,
    LimitKind::ContentPerHour,
    LimitKind::OauthTokens,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Possibly sent, with a known end after this many milliseconds.
    For(u32),
    /// Given up after this many milliseconds, while the upstream may go on.
    CutOff(u32),
    /// Broken off after this many milliseconds, while the upstream waited for a slow reader.
    Yielded(u32),
    No,
}

#[derive(Clone, Copy, Debug)]
pub struct Weight {
    pub client: ClientId,
    pub endpoint: EndpointId,
    points: u32,
    graphql: bool,
    content: bool,
    token_request: bool,
    write: WriteSpacing,
    /// Expected upper bound of its CPU time.
    cpu_millis: u32,
}

impl Weight {
    pub fn new(demand: &Demand, cpu_millis: u32) -> Self {
        let Demand { client, endpoint, points, graphql, content, token_request, write, .. } =
            *demand;
        Self { client, endpoint, points, graphql, content, token_request, write, cpu_millis }
    }

    /// Amounts in the windows of [`SPECIAL`].
    fn special(self) -> [Option<u32>; SPECIAL.len()] {
        let content = self.content.then_some(1);
        [self.graphql.then_some(self.points), content, content, self.token_request.then_some(1)]
    }

    /// True when it counts only in the windows of every request.
    fn is_plain(self) -> bool {
        !(self.graphql || self.content || self.token_request) && self.write == WriteSpacing::None
    }
}

#[derive(Debug)]
struct Special {
    /// In the order of [`SPECIAL`].
    windows: [SlidingWindow; SPECIAL.len()],
    graphql_cpu: SlidingWindow,
    writes: Writes,
}

impl Special {
    /// Windows that a request counts in, with its amount.
    fn counted(
        &mut self,
        weight: Weight,
    ) -> impl Iterator<Item = (LimitKind, &mut SlidingWindow, u32)> {
        let windows = SPECIAL.into_iter().zip(&mut self.windows).zip(weight.special());
        windows.filter_map(|((limit, window), amount)| Some((limit, window, amount?)))
    }
}

#[derive(Debug)]
pub struct Secondary {
    pub slots: Slots,
    rest_points: Points,
    /// True after a change of limits, while requests in flight have weights by the earlier limits
    /// or a window exceeds its new one.
    is_adjusting: bool,
    cpu: SlidingWindow,
    cpu_burst: SlidingWindow,
    special: Box<Special>,
}

impl Secondary {
    /// `is_shared`: several clients may use the account.
    pub fn new(limits: SecondaryLimits, spacing: Spacing, is_shared: bool) -> Self {
        let cpu = |seconds| SlidingWindow::new(MINUTE, millis(seconds)).grained(CPU_GRAIN);
        let burst_max = millis(limits.cpu_burst_seconds());
        Self {
            slots: Slots::new(limits.concurrency, is_shared),
            rest_points: Points::new(Limit::new(MINUTE, limits.rest_points_per_minute)),
            is_adjusting: false,
            cpu: cpu(limits.cpu_seconds_per_minute),
            cpu_burst: SlidingWindow::new(BURST, burst_max).grained(BURST_GRAIN),
            special: Box::new(Special {
                windows: [
                    SlidingWindow::new(MINUTE, limits.graphql_points_per_minute),
                    SlidingWindow::new(MINUTE, limits.content_per_minute),
                    SlidingWindow::new(HOUR, limits.content_per_hour),
                    SlidingWindow::new(HOUR, limits.oauth_tokens_per_hour),
                ],
                graphql_cpu: cpu(limits.graphql_cpu_seconds_per_minute),
                writes: Writes::new(spacing),
            }),
        }
    }

    pub fn reconfigure(&mut self, limits: SecondaryLimits, spacing: Spacing, is_shared: bool) {
        let mut new = Self::new(limits, spacing, is_shared);
        self.slots.reconfigure(&new.slots);
        self.rest_points.limit = new.rest_points.limit;
        for (window, new) in self.windows_mut().zip(new.windows_mut()) {
            window.limit = new.limit;
        }
        self.special.writes.reconfigure(spacing);
        self.adjust();
    }

    fn windows_mut(&mut self) -> impl Iterator<Item = &mut SlidingWindow> {
        let Special { windows, graphql_cpu, .. } = &mut *self.special;
        [&mut self.cpu, &mut self.cpu_burst, graphql_cpu].into_iter().chain(windows)
    }

    fn adjust(&mut self) {
        if self.slots.in_flight() == 0 {
            // A request gives back its weight by today's limit, but took it by the earlier one.
            self.windows_mut().for_each(|window| window.tally.nothing_in_flight());
            self.rest_points.nothing_in_flight();
        }
        self.is_adjusting = false;
        self.is_adjusting = self.slots.in_flight() > 0
            || !(self.is_within_concurrency() && self.is_within_windows());
    }

    /// CPU time that a request holds before its endpoint has answered, in milliseconds: REST,
    /// GraphQL. All permitted requests in flight fill half of the short window, which leaves the
    /// other half to the next ones.
    pub fn elapsed_unknown(limits: SecondaryLimits) -> [u32; 2] {
        let part = |seconds: u32| {
            (millis(seconds) / 2 / limits.concurrency.max(1)).clamp(1, ELAPSED_MILLIS_MAX)
        };
        let burst = limits.cpu_burst_seconds();
        [part(burst), part(burst.min(limits.graphql_cpu_seconds_per_minute))]
    }

    pub fn admits(&mut self, now: Timestamp, weight: Weight) -> bool {
        if !weight.is_plain() {
            return self.block(now, weight).is_none();
        }
        // The checks of `block` for plain requests.
        let cpu = self.cpu_for(now, weight);
        self.slots.admits(now, weight.client, cpu)
            && self.points_have_room(now, weight)
            && self.cpu.has_room(now, weight.cpu_millis)
            && self.cpu_burst.has_room(now, weight.cpu_millis)
    }

    pub fn block(&mut self, now: Timestamp, weight: Weight) -> Option<Block> {
        let cpu = self.cpu_for(now, weight);
        let mut block =
            self.slots.block_for(now, weight.client, cpu).map(|block| self.woken(now, block));
        if !weight.graphql {
            block = both(block, self.points_block(now, weight));
        }
        if !weight.is_plain() {
            for (limit, window, amount) in self.special.counted(weight) {
                block = both(block, window.block(now, amount, limit));
            }
        }
        block = both(block, self.cpu.block(now, weight.cpu_millis, LimitKind::Cpu));
        block = both(block, self.cpu_burst.block(now, weight.cpu_millis, LimitKind::Cpu));
        if weight.graphql {
            let cpu = &mut self.special.graphql_cpu;
            block = both(block, cpu.block(now, weight.cpu_millis, LimitKind::GraphqlCpu));
        }
        both(block, self.special.writes.block(now, weight.write))
    }

    /// A client's share grows when CPU time ends, too.
    fn woken(&self, now: Timestamp, block: Block) -> Block {
        if block.limit != LimitKind::ClientShare {
            return block;
        }
        let windows = [&self.cpu, &self.cpu_burst, &self.special.graphql_cpu];
        let ends = windows.into_iter().filter_map(|window| window.next_end(now));
        Block { wake: block.wake.into_iter().chain(ends).min(), ..block }
    }

    /// Returns true if requests without an answer hold half of the CPU time or more, in at least
    /// half of a wait since then.
    pub fn cpu_is_unanswered(&self, now: Timestamp, since: Timestamp) -> bool {
        let max = self.cpu.limit.max.min(self.cpu_burst.limit.max);
        self.slots.unanswered_cpu(now, since).saturating_mul(2) >= max
    }

    /// CPU time that a request wants, and that all its windows have.
    fn cpu_for(&mut self, now: Timestamp, weight: Weight) -> Cpu {
        let mut free = self.cpu.free(now).min(self.cpu_burst.free(now));
        if weight.graphql {
            free = free.min(self.special.graphql_cpu.free(now));
        }
        Cpu { wanted: weight.cpu_millis, free }
    }

    /// Takes an admitted request. Returns false when invariant 4 breaks in its windows.
    pub fn enter(&mut self, now: Timestamp, weight: Weight) -> bool {
        self.slots.take(now, weight.client, weight.cpu_millis);
        self.cpu.enter(weight.cpu_millis);
        self.cpu_burst.enter(weight.cpu_millis);
        if !weight.is_plain() {
            self.enter_special(now, weight);
        }
        let points_are_within =
            weight.graphql || self.rest_points.enter(now, weight.endpoint, weight.points);
        points_are_within && self.special_is_within(weight) || self.is_adjusting
    }

    /// Ends a request, which still counts for as long as the module describes. Returns false when
    /// invariant 4 breaks in its windows.
    pub fn leave(&mut self, now: Timestamp, weight: Weight, sent: Sent) -> bool {
        let grace = match sent {
            Sent::CutOff(_) => Some(CUT_OFF_GRACE),
            Sent::Yielded(_) => Some(YIELD_GRACE),
            Sent::For(_) | Sent::No => None,
        };
        self.slots.leave(now, weight.client, weight.cpu_millis, grace);
        if !weight.is_plain() {
            self.leave_special(now, weight, sent);
        }
        let held = weight.cpu_millis;
        let took = match sent {
            Sent::For(millis) | Sent::CutOff(millis) | Sent::Yielded(millis) => {
                millis.min(held.saturating_mul(HELD_UP_FROM))
            }
            Sent::No => 0,
        };
        self.cpu.leave(now, held, took);
        self.cpu_burst.leave(now, held, took.min(held));
        if weight.graphql {
            self.special.graphql_cpu.leave(now, held, took);
        }
        let points_are_within = weight.graphql || self.leave_points(now, weight, sent);
        let is_within = points_are_within && self.special_is_within(weight) || self.is_adjusting;
        if self.is_adjusting {
            self.adjust();
        }
        is_within
    }

    fn leave_points(&mut self, now: Timestamp, weight: Weight, sent: Sent) -> bool {
        let limit = self.rest_points.limit;
        self.rest_points.get_mut(weight.endpoint).is_none_or(|points| {
            let counted = if sent == Sent::No { 0 } else { limit.weigh(weight.points) };
            points.leave(limit, now, weight.points, counted);
            points.is_within(limit)
        })
    }

    fn enter_special(&mut self, now: Timestamp, weight: Weight) {
        let special = &mut *self.special;
        if weight.graphql {
            special.graphql_cpu.enter(weight.cpu_millis);
        }
        special.counted(weight).for_each(|(_, window, amount)| window.enter(amount));
        special.writes.enter(now, weight.write);
    }

    /// Ends a request in the special windows, except GraphQL's CPU time.
    fn leave_special(&mut self, now: Timestamp, weight: Weight, sent: Sent) {
        for (_, window, amount) in self.special.counted(weight) {
            let counted = if sent == Sent::No { 0 } else { window.limit.weigh(amount) };
            window.leave(now, amount, counted);
        }
        self.special.writes.leave(weight.write, sent);
    }

    /// Use and maximum of each limit; of the points per endpoint the fullest.
    pub fn usage(&self, now: Timestamp) -> impl Iterator<Item = (LimitKind, u32, u32)> {
        let fullest =
            self.rest_points.tallies().map(|points| points.in_use(now)).max().unwrap_or_default();
        let special = SPECIAL
            .into_iter()
            .zip(&self.special.windows)
            .map(move |(limit, window)| (limit, window.tally.in_use(now), window.limit.max));
        // In seconds, as the limits are.
        let cpu = [(LimitKind::Cpu, &self.cpu), (LimitKind::GraphqlCpu, &self.special.graphql_cpu)];
        let cpu = cpu.map(|(limit, window)| {
            (limit, window.tally.in_use(now).div_ceil(1_000), window.limit.max / 1_000)
        });
        [
            (LimitKind::Concurrency, self.slots.in_use(now), self.slots.max()),
            (LimitKind::Points, fullest, self.rest_points.limit.max),
        ]
        .into_iter()
        .chain(special)
        .chain(cpu)
    }

    /// Invariant 3.
    pub fn is_within_concurrency(&self) -> bool {
        self.is_adjusting || self.slots.are_within()
    }

    /// Invariant 4, for the windows that a request touches.
    pub fn is_within(&self, weight: Weight) -> bool {
        let points = self.rest_points.get(weight.endpoint).filter(|_| !weight.graphql);
        self.is_adjusting
            || points.is_none_or(|points| points.is_within(self.rest_points.limit))
                && self.special_is_within(weight)
    }

    fn special_is_within(&self, weight: Weight) -> bool {
        let holds = |(window, amount): (&SlidingWindow, Option<u32>)| {
            amount.is_none() || window.is_within()
        };
        weight.is_plain() || self.special.windows.iter().zip(weight.special()).all(holds)
    }

    /// Invariant 4, for all windows.
    pub fn is_within_windows(&self) -> bool {
        self.is_adjusting
            || self.rest_points.tallies().all(|points| points.is_within(self.rest_points.limit))
                && self.special.windows.iter().all(SlidingWindow::is_within)
    }

    /// Notes an answer to this request, or that the upstream took a piece of its body.
    pub fn answered(&mut self, now: Timestamp, weight: Weight) {
        self.slots.answered(now, weight.client);
        self.special.writes.answered(now, weight.write);
    }

    /// A request that was sent at this time was given up without an answer.
    pub fn lost(&mut self, now: Timestamp, sent_at: Timestamp, weight: Weight) {
        self.slots.lost(now, sent_at, weight.client);
        self.special.writes.lost(now, sent_at, weight.write);
    }

    /// A request waits no longer for the head of an answer.
    pub fn heard(&mut self, weight: Weight) {
        self.slots.heard(weight.client);
        self.special.writes.heard(weight.write);
    }

    /// Returns true if at least half of a wait since then passed behind writes without an answer.
    pub fn writes_are_unanswered(
        &self,
        now: Timestamp,
        since: Timestamp,
        write: WriteSpacing,
    ) -> bool {
        self.special.writes.is_unanswered(now, since, write)
    }

    pub fn would_overlap(&self, weight: Weight) -> bool {
        self.special.writes.would_overlap(weight.write)
    }

    /// Expected time of the next turn of a write, apart from those that wait.
    pub fn next_turn(&self, now: Timestamp, write: WriteSpacing) -> Timestamp {
        self.special.writes.next_turn(now, write)
    }

    /// Distance that this write keeps from the account's others.
    pub fn distance(&self, write: WriteSpacing) -> Duration {
        self.special.writes.distance(write)
    }

    fn points_block(&mut self, now: Timestamp, weight: Weight) -> Option<Block> {
        let limit = self.rest_points.limit;
        let points = self.rest_points.get_mut(weight.endpoint)?;
        points.block(limit, now, weight.points, LimitKind::Points)
    }

    fn points_have_room(&mut self, now: Timestamp, weight: Weight) -> bool {
        let limit = self.rest_points.limit;
        self.rest_points
            .get_mut(weight.endpoint)
            .is_none_or(|points| points.has_room(limit, now, weight.points))
    }
}

fn count(slots: usize) -> u32 {
    u32::try_from(slots).unwrap_or(u32::MAX)
}

fn millis(seconds: u32) -> u32 {
    seconds.max(1).saturating_mul(1_000)
}

#[cfg(test)]
mod tests;
