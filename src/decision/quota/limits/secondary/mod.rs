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
//! "Excessive compute in a short time" has no documented figure. At most a quarter of the minute's
//! CPU time in ten seconds keeps clear of it, and a steady caller still uses the whole minute's.

mod points;
mod sliding_window;

use std::time::Duration;

use crate::api::EndpointId;
use crate::clock::Timestamp;

use super::block::{Block, both};
use super::elapsed::ELAPSED_MILLIS_MAX;
use crate::decision::types::{Demand, LimitKind, SecondaryLimits, WriteSpacing};

use points::Points;
pub use sliding_window::TICK;
use sliding_window::{Limit, SlidingWindow};

const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);
/// Short window for compute, and the part of the minute's CPU time that it may use. Ours, see the
/// module.
const BURST: Duration = Duration::from_secs(10);
const BURST_PART: u32 = 4;
/// Factor above the expected duration from which an answer counts as held up. Ours.
const HELD_UP_FROM: u32 = 2;
/// Granularity of the ends of CPU time: a hundredth of each window. Ours.
const CPU_GRAIN: Duration = Duration::from_millis(500);
const BURST_GRAIN: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Possibly sent, with a known end after this many milliseconds.
    For(u32),
    No,
}

#[derive(Clone, Copy, Debug)]
pub struct Weight {
    endpoint: EndpointId,
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
        let Demand { endpoint, points, graphql, content, token_request, write, .. } = *demand;
        Self { endpoint, points, graphql, content, token_request, write, cpu_millis }
    }

    pub fn endpoint(self) -> EndpointId {
        self.endpoint
    }

    /// True when it counts only in the windows of every request.
    fn is_plain(self) -> bool {
        !(self.graphql || self.content || self.token_request) && self.write == WriteSpacing::None
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Spacing {
    pub any: Duration,
    pub notifying: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Writes {
    any: Option<Timestamp>,
    notifying: Option<Timestamp>,
}

#[derive(Debug)]
struct Special {
    graphql_points: SlidingWindow,
    graphql_cpu: SlidingWindow,
    content_minute: SlidingWindow,
    content_hour: SlidingWindow,
    token_requests: SlidingWindow,
    spacing: Spacing,
    writes: Writes,
    /// State of `writes` before the write in flight; there is at most one.
    writes_before: Option<Writes>,
}

#[derive(Debug)]
pub struct Secondary {
    concurrency_max: u32,
    in_flight: u32,
    rest_points: Points,
    /// True after a change of limits, while requests in flight have weights by the earlier limits
    /// or a window exceeds its new one.
    is_adjusting: bool,
    cpu: SlidingWindow,
    cpu_burst: SlidingWindow,
    special: Box<Special>,
}

impl Secondary {
    pub fn new(limits: SecondaryLimits, spacing: Spacing) -> Self {
        Self {
            concurrency_max: limits.concurrency.max(1),
            in_flight: 0,
            rest_points: Points::new(Limit::new(MINUTE, limits.rest_points_per_minute)),
            is_adjusting: false,
            cpu: SlidingWindow::new(MINUTE, millis(limits.cpu_seconds_per_minute))
                .grained(CPU_GRAIN),
            cpu_burst: SlidingWindow::new(
                BURST,
                millis(limits.cpu_seconds_per_minute) / BURST_PART,
            )
            .grained(BURST_GRAIN),
            special: Box::new(Special {
                graphql_points: SlidingWindow::new(MINUTE, limits.graphql_points_per_minute),
                graphql_cpu: SlidingWindow::new(
                    MINUTE,
                    millis(limits.graphql_cpu_seconds_per_minute),
                )
                .grained(CPU_GRAIN),
                content_minute: SlidingWindow::new(MINUTE, limits.content_per_minute),
                content_hour: SlidingWindow::new(HOUR, limits.content_per_hour),
                token_requests: SlidingWindow::new(HOUR, limits.oauth_tokens_per_hour),
                spacing,
                writes: Writes::default(),
                writes_before: None,
            }),
        }
    }

    pub fn reconfigure(&mut self, limits: SecondaryLimits, spacing: Spacing) {
        let new = Self::new(limits, spacing);
        self.concurrency_max = new.concurrency_max;
        self.rest_points.set_max(limits.rest_points_per_minute);
        self.cpu.set_max(new.cpu.limit().max());
        self.cpu_burst.set_max(new.cpu_burst.limit().max());
        let (special, new) = (&mut *self.special, new.special);
        special.graphql_points.set_max(new.graphql_points.limit().max());
        special.graphql_cpu.set_max(new.graphql_cpu.limit().max());
        special.content_minute.set_max(new.content_minute.limit().max());
        special.content_hour.set_max(new.content_hour.limit().max());
        special.token_requests.set_max(new.token_requests.limit().max());
        special.spacing = spacing;
        self.adjust();
    }

    fn adjust(&mut self) {
        if self.in_flight == 0 {
            // A request gives back its weight by today's limit, but took it by the earlier one.
            let special = &mut *self.special;
            let Special {
                graphql_points,
                graphql_cpu,
                content_minute,
                content_hour,
                token_requests,
                ..
            } = special;
            for window in [
                &mut self.cpu,
                &mut self.cpu_burst,
                graphql_points,
                graphql_cpu,
                content_minute,
                content_hour,
                token_requests,
            ] {
                window.nothing_in_flight();
            }
            self.rest_points.nothing_in_flight();
        }
        self.is_adjusting = false;
        self.is_adjusting =
            self.in_flight > 0 || !(self.is_within_concurrency() && self.is_within_windows());
    }

    /// CPU time that a request holds before its endpoint has answered, in milliseconds: REST,
    /// GraphQL. All permitted requests in flight fill half of the short window, which leaves the
    /// other half to the next ones.
    pub fn elapsed_unknown(limits: SecondaryLimits) -> [u32; 2] {
        let part = |seconds: u32| {
            (millis(seconds) / BURST_PART / 2 / limits.concurrency.max(1))
                .clamp(1, ELAPSED_MILLIS_MAX)
        };
        [
            part(limits.cpu_seconds_per_minute),
            part(limits.graphql_cpu_seconds_per_minute.min(limits.cpu_seconds_per_minute)),
        ]
    }

    pub fn admits(&mut self, now: Timestamp, weight: Weight) -> bool {
        if !weight.is_plain() {
            return self.block(now, weight).is_none();
        }
        // The checks of `block` for plain requests.
        self.has_slot()
            && self.points_have_room(now, weight)
            && self.cpu.has_room(now, weight.cpu_millis)
            && self.cpu_burst.has_room(now, weight.cpu_millis)
    }

    pub fn block(&mut self, now: Timestamp, weight: Weight) -> Option<Block> {
        let mut block = (self.in_flight >= self.concurrency_max)
            .then_some(Block::event(LimitKind::Concurrency));
        block = both(block, self.points_block(now, weight));
        if weight.content {
            block =
                both(block, self.special.content_minute.block(now, 1, LimitKind::ContentPerMinute));
            block = both(block, self.special.content_hour.block(now, 1, LimitKind::ContentPerHour));
        }
        if weight.token_request {
            block = both(block, self.special.token_requests.block(now, 1, LimitKind::OauthTokens));
        }
        block = both(block, self.cpu.block(now, weight.cpu_millis, LimitKind::Cpu));
        block = both(block, self.cpu_burst.block(now, weight.cpu_millis, LimitKind::Cpu));
        if weight.graphql {
            block = both(
                block,
                self.special.graphql_cpu.block(now, weight.cpu_millis, LimitKind::GraphqlCpu),
            );
        }
        both(block, self.write_block(now, weight.write))
    }

    /// Returns true unless concurrency denies every request.
    pub fn has_slot(&self) -> bool {
        self.in_flight < self.concurrency_max
    }

    /// Takes an admitted request. Returns false when invariant 4 breaks in its windows.
    pub fn enter(&mut self, now: Timestamp, weight: Weight) -> bool {
        self.in_flight += 1;
        self.cpu.enter(weight.cpu_millis);
        self.cpu_burst.enter(weight.cpu_millis);
        if weight.graphql {
            self.special.graphql_points.enter(weight.points);
            self.special.graphql_cpu.enter(weight.cpu_millis);
        }
        if weight.content {
            self.special.content_minute.enter(1);
            self.special.content_hour.enter(1);
        }
        if weight.token_request {
            self.special.token_requests.enter(1);
        }
        if weight.write != WriteSpacing::None {
            let Special { writes, writes_before, .. } = &mut *self.special;
            *writes_before = Some(*writes);
            writes.any = Some(now);
            if weight.write == WriteSpacing::Notifies {
                writes.notifying = Some(now);
            }
        }
        let points_are_within =
            weight.graphql || self.rest_points.enter(now, weight.endpoint, weight.points);
        points_are_within && self.special_is_within(weight) || self.is_adjusting
    }

    /// Ends a request; the module says how long it still counts. Returns false when invariant 4
    /// breaks in its windows.
    pub fn leave(&mut self, now: Timestamp, weight: Weight, sent: Sent) -> bool {
        self.in_flight = self.in_flight.saturating_sub(1);
        if !weight.is_plain() {
            self.leave_special(now, weight, sent);
        }
        let held = weight.cpu_millis;
        let took = match sent {
            Sent::For(millis) => millis.min(held.saturating_mul(HELD_UP_FROM)),
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
        let limit = self.rest_points.limit();
        self.rest_points.get_mut(weight.endpoint).is_none_or(|points| {
            points.leave(
                limit,
                now,
                weight.points,
                if sent == Sent::No { 0 } else { limit.weigh(weight.points) },
            );
            points.is_within(limit)
        })
    }

    /// Ends a request in the special windows, except GraphQL's CPU time.
    fn leave_special(&mut self, now: Timestamp, weight: Weight, sent: Sent) {
        let counted = |amount: u32| if sent == Sent::No { 0 } else { amount };
        if weight.graphql {
            self.special.graphql_points.leave(
                now,
                weight.points,
                counted(self.special.graphql_points.limit().weigh(weight.points)),
            );
        }
        if weight.content {
            self.special.content_minute.leave(now, 1, counted(1));
            self.special.content_hour.leave(now, 1, counted(1));
        }
        if weight.token_request {
            self.special.token_requests.leave(now, 1, counted(1));
        }
        if weight.write != WriteSpacing::None {
            let before = self.special.writes_before.take();
            if let (Some(before), Sent::No) = (before, sent) {
                self.special.writes = before;
            }
        }
    }

    /// Use and maximum of each limit; of the points per endpoint the fullest.
    pub fn usage(&self, now: Timestamp) -> impl Iterator<Item = (LimitKind, u32, u32)> {
        let fullest =
            self.rest_points.tallies().map(|points| points.in_use(now)).max().unwrap_or_default();
        let windows = [
            (LimitKind::GraphqlPoints, &self.special.graphql_points),
            (LimitKind::ContentPerMinute, &self.special.content_minute),
            (LimitKind::ContentPerHour, &self.special.content_hour),
            (LimitKind::OauthTokens, &self.special.token_requests),
        ];
        // In seconds, as the limits are.
        let cpu = [(LimitKind::Cpu, &self.cpu), (LimitKind::GraphqlCpu, &self.special.graphql_cpu)];
        let cpu = cpu.map(|(limit, window)| {
            (limit, window.in_use(now).div_ceil(1_000), window.limit().max() / 1_000)
        });
        [
            (LimitKind::Concurrency, self.in_flight, self.concurrency_max),
            (LimitKind::Points, fullest, self.rest_points.limit().max()),
        ]
        .into_iter()
        .chain(
            windows
                .into_iter()
                .map(move |(limit, window)| (limit, window.in_use(now), window.limit().max())),
        )
        .chain(cpu)
    }

    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Invariant 3.
    pub fn is_within_concurrency(&self) -> bool {
        self.is_adjusting || self.in_flight <= self.concurrency_max
    }

    /// Invariant 4, for the windows that a request touches.
    pub fn is_within(&self, weight: Weight) -> bool {
        let points = self.rest_points.get(weight.endpoint).filter(|_| !weight.graphql);
        self.is_adjusting
            || points.is_none_or(|points| points.is_within(self.rest_points.limit()))
                && self.special_is_within(weight)
    }

    fn special_is_within(&self, weight: Weight) -> bool {
        weight.is_plain()
            || (!weight.graphql || self.special.graphql_points.is_within())
                && (!weight.content
                    || self.special.content_minute.is_within()
                        && self.special.content_hour.is_within())
                && (!weight.token_request || self.special.token_requests.is_within())
    }

    /// Invariant 4, for all windows.
    pub fn is_within_windows(&self) -> bool {
        let Special { graphql_points, content_minute, content_hour, token_requests, .. } =
            &*self.special;
        self.is_adjusting
            || self.rest_points.tallies().all(|points| points.is_within(self.rest_points.limit()))
                && [graphql_points, content_minute, content_hour, token_requests]
                    .into_iter()
                    .all(SlidingWindow::is_within)
    }

    pub fn would_be_second_write(&self, weight: Weight) -> bool {
        weight.write != WriteSpacing::None && self.special.writes_before.is_some()
    }

    fn points_block(&mut self, now: Timestamp, weight: Weight) -> Option<Block> {
        if weight.graphql {
            return self.special.graphql_points.block(now, weight.points, LimitKind::GraphqlPoints);
        }
        let limit = self.rest_points.limit();
        self.rest_points.get_mut(weight.endpoint)?.block(
            limit,
            now,
            weight.points,
            LimitKind::Points,
        )
    }

    fn points_have_room(&mut self, now: Timestamp, weight: Weight) -> bool {
        let limit = self.rest_points.limit();
        self.rest_points
            .get_mut(weight.endpoint)
            .is_none_or(|points| points.has_room(limit, now, weight.points))
    }

    fn write_block(&self, now: Timestamp, write: WriteSpacing) -> Option<Block> {
        if write == WriteSpacing::None {
            return None;
        }
        let Special { spacing, writes, writes_before, .. } = &*self.special;
        let after = |last: Option<Timestamp>, distance| last.map(|last| last + distance);
        let any = after(writes.any, spacing.any);
        let earliest = if write == WriteSpacing::Notifies {
            any.max(after(writes.notifying, spacing.notifying))
        } else {
            any
        };
        let by_time = earliest
            .filter(|earliest| now < *earliest)
            .map(|earliest| Block::at(LimitKind::Spacing, earliest));
        both(by_time, writes_before.is_some().then_some(Block::event(LimitKind::Spacing)))
    }
}

fn millis(seconds: u32) -> u32 {
    seconds.max(1).saturating_mul(1_000)
}

#[cfg(test)]
mod tests;
