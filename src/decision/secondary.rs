//! The secondary limits of one account: concurrency, points, CPU time, content, OAuth token requests, and the distance between writes
//! (DESIGN D5, D7; Document 1, Secondary rate limits). Each but the first and the last is a [`Window`].
//!
//! CPU time is what the upstream's answer took, which is the most that it can have cost: while a request is in flight it holds what nineteen of
//! twenty of its endpoint take (`elapsed`), then what it took. An answer that took more than twice that was held up somewhere, not computed: it counts as twice, or one stall
//! of the upstream would close all accounts for a minute; if it is the endpoint's new habit, the next ones hold more. "Excessive compute in a short time" has no figure in the document; here the
//! quarter of a minute's CPU time in the sixth of a minute keeps clear of it, and still lets a steady caller use the whole minute's.

mod window;

use std::time::Duration;

use crate::api::EndpointId;
use crate::clock::Timestamp;

use super::HashMap;
use super::block::{Block, both};
use super::demand::{Demand, LimitKind, SecondaryLimits, WriteSpacing};
use super::elapsed::ELAPSED_MILLIS_MAX;

pub(super) use window::TICK;
use window::Window;

const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);
/// The short stretch in which compute must not be excessive, and the part of the minute's CPU time that may be spent in it. Ours, see the module.
const BURST: Duration = Duration::from_secs(10);
const BURST_PART: u32 = 4;
/// An answer that takes so many times what it was expected to take at most was not computed all the time. Ours.
const HELD_UP_FROM: u32 = 2;
/// How exactly the ends of CPU time are kept: a hundredth of each window. Ours.
const CPU_GRAIN: Duration = Duration::from_millis(500);
const BURST_GRAIN: Duration = Duration::from_millis(100);
/// From how many points books on the empty ones are dropped. Ours: a few dozen bytes each.
const SWEEP_FROM: usize = 8;

/// Whether a request may have reached the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// It may, and its end is known after this many milliseconds.
    For(u32),
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
    token_request: bool,
    write: WriteSpacing,
    /// CPU time that it is expected to take at most.
    cpu_millis: u32,
}

impl Weight {
    pub(super) fn new(demand: &Demand, cpu_millis: u32) -> Self {
        let Demand { endpoint, points, graphql, content, token_request, write, .. } = *demand;
        Self { endpoint, points, graphql, content, token_request, write, cpu_millis }
    }

    pub(super) fn endpoint(self) -> EndpointId {
        self.endpoint
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

/// The books of what most requests are not, apart from those that each one needs.
#[derive(Debug)]
struct Special {
    graphql_points: Window,
    graphql_cpu: Window,
    content_minute: Window,
    content_hour: Window,
    token_requests: Window,
    spacing: Spacing,
    writes: Writes,
    /// What `writes` was before the write in flight; there is at most one.
    writes_before: Option<Writes>,
}

/// The secondary books of one account.
#[derive(Debug)]
pub(super) struct Secondary {
    concurrency_max: u32,
    in_flight: u32,
    /// Of an endpoint.
    points_max: u32,
    rest_points: HashMap<EndpointId, Window>,
    sweep_at: usize,
    /// A limit was lowered below what counted by then, which has not all ended yet.
    is_adjusting: bool,
    cpu: Window,
    cpu_burst: Window,
    special: Box<Special>,
}

impl Secondary {
    pub(super) fn new(limits: SecondaryLimits, spacing: Spacing) -> Self {
        Self {
            concurrency_max: limits.concurrency.max(1),
            in_flight: 0,
            points_max: limits.rest_points_per_minute,
            rest_points: HashMap::default(),
            sweep_at: SWEEP_FROM,
            is_adjusting: false,
            cpu: Window::new(MINUTE, millis(limits.cpu_seconds_per_minute)).grained(CPU_GRAIN),
            cpu_burst: Window::new(BURST, millis(limits.cpu_seconds_per_minute) / BURST_PART).grained(BURST_GRAIN),
            special: Box::new(Special {
                graphql_points: Window::new(MINUTE, limits.graphql_points_per_minute),
                graphql_cpu: Window::new(MINUTE, millis(limits.graphql_cpu_seconds_per_minute)).grained(CPU_GRAIN),
                content_minute: Window::new(MINUTE, limits.content_per_minute),
                content_hour: Window::new(HOUR, limits.content_per_hour),
                token_requests: Window::new(HOUR, limits.oauth_tokens_per_hour),
                spacing,
                writes: Writes::default(),
                writes_before: None,
            }),
        }
    }

    /// Other limits from now on; what counts already goes on counting, also where it is more than they allow.
    pub(super) fn reconfigure(&mut self, limits: SecondaryLimits, spacing: Spacing) {
        let limit = Self::new(limits, spacing);
        self.concurrency_max = limit.concurrency_max;
        self.points_max = limit.points_max;
        for window in self.rest_points.values_mut() {
            window.set_max(limits.rest_points_per_minute);
        }
        self.cpu.set_max(limit.cpu.max());
        self.cpu_burst.set_max(limit.cpu_burst.max());
        let (special, limit) = (&mut *self.special, limit.special);
        special.graphql_points.set_max(limit.graphql_points.max());
        special.graphql_cpu.set_max(limit.graphql_cpu.max());
        special.content_minute.set_max(limit.content_minute.max());
        special.content_hour.set_max(limit.content_hour.max());
        special.token_requests.set_max(limit.token_requests.max());
        special.spacing = spacing;
        self.adjust();
    }

    /// Whether a lowered limit is kept by now.
    fn adjust(&mut self) {
        self.is_adjusting = false;
        self.is_adjusting = !(self.is_within_concurrency() && self.is_within_windows());
    }

    /// What a request holds of the CPU time, in milliseconds, before its endpoint has ever answered: REST, GraphQL. So much that as many as may be in
    /// flight fill half of a short stretch: the other half is for those that come next.
    pub(super) fn elapsed_unknown(limits: SecondaryLimits) -> [u32; 2] {
        let part = |seconds: u32| (millis(seconds) / BURST_PART / 2 / limits.concurrency.max(1)).clamp(1, ELAPSED_MILLIS_MAX);
        [part(limits.cpu_seconds_per_minute), part(limits.graphql_cpu_seconds_per_minute.min(limits.cpu_seconds_per_minute))]
    }

    /// What forbids a request; `None` when nothing does.
    pub(super) fn block(&mut self, now: Timestamp, weight: Weight) -> Option<Block> {
        let mut block = (self.in_flight >= self.concurrency_max).then_some(Block::event(LimitKind::Concurrency));
        block = both(block, self.points_block(now, weight));
        if weight.content {
            block = both(block, self.special.content_minute.block(now, 1, LimitKind::ContentPerMinute));
            block = both(block, self.special.content_hour.block(now, 1, LimitKind::ContentPerHour));
        }
        if weight.token_request {
            block = both(block, self.special.token_requests.block(now, 1, LimitKind::OauthTokens));
        }
        block = both(block, self.cpu.block(now, weight.cpu_millis, LimitKind::Cpu));
        block = both(block, self.cpu_burst.block(now, weight.cpu_millis, LimitKind::Cpu));
        if weight.graphql {
            block = both(block, self.special.graphql_cpu.block(now, weight.cpu_millis, LimitKind::GraphqlCpu));
        }
        both(block, self.write_block(now, weight.write))
    }

    /// Whether nothing that is the same for all requests forbids one more.
    pub(super) fn has_slot(&self) -> bool {
        self.in_flight < self.concurrency_max
    }

    /// Takes a request that nothing forbids.
    pub(super) fn enter(&mut self, now: Timestamp, weight: Weight) {
        self.in_flight += 1;
        if weight.graphql {
            self.special.graphql_points.enter(weight.points);
        } else {
            self.sweep(now);
            let max = self.points_max;
            self.rest_points.entry(weight.endpoint).or_insert_with(|| Window::new(MINUTE, max)).enter(weight.points);
        }
        if weight.content {
            self.special.content_minute.enter(1);
            self.special.content_hour.enter(1);
        }
        if weight.token_request {
            self.special.token_requests.enter(1);
        }
        self.cpu.enter(weight.cpu_millis);
        self.cpu_burst.enter(weight.cpu_millis);
        if weight.graphql {
            self.special.graphql_cpu.enter(weight.cpu_millis);
        }
        if weight.write != WriteSpacing::None {
            let Special { writes, writes_before, .. } = &mut *self.special;
            *writes_before = Some(*writes);
            writes.any = Some(now);
            if weight.write == WriteSpacing::Notifies {
                writes.notifying = Some(now);
            }
        }
    }

    /// Lets go of a request whose end is known; see the module for how long it still counts.
    pub(super) fn leave(&mut self, now: Timestamp, weight: Weight, sent: Sent) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let counted = |amount: u32| if sent == Sent::No { 0 } else { amount };
        if weight.graphql {
            self.special.graphql_points.leave(now, weight.points, counted(self.special.graphql_points.weigh(weight.points)));
        } else if let Some(window) = self.rest_points.get_mut(&weight.endpoint) {
            window.leave(now, weight.points, counted(window.weigh(weight.points)));
        }
        if weight.content {
            self.special.content_minute.leave(now, 1, counted(1));
            self.special.content_hour.leave(now, 1, counted(1));
        }
        if weight.token_request {
            self.special.token_requests.leave(now, 1, counted(1));
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
        if weight.write != WriteSpacing::None {
            let before = self.special.writes_before.take();
            if let (Some(before), Sent::No) = (before, sent) {
                self.special.writes = before;
            }
        }
        if self.is_adjusting {
            self.adjust();
        }
    }

    /// Each limit's use and maximum; of the points per endpoint the fullest.
    pub(super) fn usage(&self, now: Timestamp) -> impl Iterator<Item = (LimitKind, u32, u32)> {
        let fullest = self.rest_points.values().map(|window| window.in_use(now)).max().unwrap_or_default();
        let windows = [
            (LimitKind::GraphqlPoints, &self.special.graphql_points),
            (LimitKind::ContentPerMinute, &self.special.content_minute),
            (LimitKind::ContentPerHour, &self.special.content_hour),
            (LimitKind::OauthTokens, &self.special.token_requests),
        ];
        // In seconds, as the limits are.
        let cpu = [(LimitKind::Cpu, &self.cpu), (LimitKind::GraphqlCpu, &self.special.graphql_cpu)];
        let cpu = cpu.map(|(limit, window)| (limit, window.in_use(now).div_ceil(1_000), window.max() / 1_000));
        [(LimitKind::Concurrency, self.in_flight, self.concurrency_max), (LimitKind::Points, fullest, self.points_max.max(1))]
            .into_iter()
            .chain(windows.into_iter().map(move |(limit, window)| (limit, window.in_use(now), window.max())))
            .chain(cpu)
    }

    /// Requests in flight.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Invariant 3.
    pub(super) fn is_within_concurrency(&self) -> bool {
        self.is_adjusting || self.in_flight <= self.concurrency_max
    }

    /// Invariant 4, for the windows that a request touches.
    pub(super) fn is_within(&self, weight: Weight) -> bool {
        let points = if weight.graphql { Some(&self.special.graphql_points) } else { self.rest_points.get(&weight.endpoint) };
        self.is_adjusting
            || points.is_none_or(Window::is_within)
                && (!weight.content || self.special.content_minute.is_within() && self.special.content_hour.is_within())
                && (!weight.token_request || self.special.token_requests.is_within())
    }

    /// Invariant 4, for all windows.
    pub(super) fn is_within_windows(&self) -> bool {
        let Special { graphql_points, content_minute, content_hour, token_requests, .. } = &*self.special;
        let mut all = self.rest_points.values().chain([graphql_points, content_minute, content_hour, token_requests]);
        self.is_adjusting || all.all(Window::is_within)
    }

    /// What invariant 5 forbids.
    pub(super) fn would_be_second_write(&self, weight: Weight) -> bool {
        weight.write != WriteSpacing::None && self.special.writes_before.is_some()
    }

    fn points_block(&mut self, now: Timestamp, weight: Weight) -> Option<Block> {
        if weight.graphql {
            return self.special.graphql_points.block(now, weight.points, LimitKind::GraphqlPoints);
        }
        self.rest_points.get_mut(&weight.endpoint)?.block(now, weight.points, LimitKind::Points)
    }

    fn write_block(&self, now: Timestamp, write: WriteSpacing) -> Option<Block> {
        if write == WriteSpacing::None {
            return None;
        }
        let Special { spacing, writes, writes_before, .. } = &*self.special;
        let after = |last: Option<Timestamp>, distance| last.map(|last| last + distance);
        let any = after(writes.any, spacing.any);
        let earliest = if write == WriteSpacing::Notifies { any.max(after(writes.notifying, spacing.notifying)) } else { any };
        let by_time = earliest.filter(|earliest| now < *earliest).map(|earliest| Block::at(LimitKind::Spacing, earliest));
        both(by_time, writes_before.is_some().then_some(Block::event(LimitKind::Spacing)))
    }

    /// Drops points books that are empty, when there are twice as many as after the last time.
    fn sweep(&mut self, now: Timestamp) {
        if self.rest_points.len() >= self.sweep_at {
            self.rest_points.retain(|_, window| !window.is_empty(now));
            self.sweep_at = SWEEP_FROM.max(self.rest_points.len() * 2);
        }
    }
}

/// Seconds as milliseconds.
fn millis(seconds: u32) -> u32 {
    seconds.max(1).saturating_mul(1_000)
}

#[cfg(test)]
mod tests;
