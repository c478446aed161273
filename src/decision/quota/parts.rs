//! The parts of one account's capacities that this replica holds (`decision::fleet`). They bound
//! what the limits of the account would admit.
//!
//! A report gives back at once what is not needed: it never says less than the replica may still
//! use. What is needed is what is in use, and twice what was taken between two reports.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use super::limits::block::Block;
use super::limits::primary::{PrimaryWindow, WindowDemand};
use super::limits::secondary::{Capacity, Load, Secondary, Weight};
use crate::api::{EndpointId, ResourceName};
use crate::clock::Timestamp;
use crate::decision::fleet::{
    Answer, BudgetReport, CapacityReport, FLOOR_FOR, HELD_FOR, Part, REPORTED_WITHIN, Report, Use,
    WritesReport, floor,
};
use crate::decision::types::LimitKind;

/// The usual distance of two reports.
const REPORTED_EVERY: Duration = Duration::from_millis(250);
/// What is held beside what is in use, by what was taken between two reports.
const AHEAD: u32 = 2;
/// Counts in which nothing is left of any usual amount.
const COUNTS_MAX: u128 = 100;

/// See the module.
#[derive(Debug)]
pub struct Parts {
    replicas_max: NonZeroU32,
    number: u64,
    /// Nothing is granted from this time on.
    until: Timestamp,
    capacities: Vec<(Capacity, Held)>,
    budgets: Vec<(ResourceName, BudgetPart)>,
    writes: WriteTurn,
    is_used: bool,
    is_short: bool,
    /// True if another replica wants more than there is.
    is_contested: bool,
    reported_at: Timestamp,
    /// Beginning of the time in which `taken` is counted.
    counted_from: Timestamp,
    /// What the report under way is about.
    reported: Option<Reported>,
}

/// The right to send spaced writes, which one replica at a time has.
#[derive(Clone, Copy, Debug, Default)]
struct WriteTurn {
    is_granted: bool,
    is_wanted: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    part: Part,
    /// Amount taken since the last count, and the usual one.
    taken: u32,
    usual: u32,
    /// Amount that a waiting request needs of it.
    needed: u32,
    /// Amount that may be in use without an answer, some time after the end of the part.
    floor: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct BudgetPart {
    held: Held,
    /// Reset of the window that it is of.
    reset: Timestamp,
    may_probe: bool,
    wants_probe: bool,
}

/// The capacities and budgets of a report, each with its floor.
#[derive(Debug)]
struct Reported {
    capacities: Vec<(Capacity, u32)>,
    budgets: Vec<(ResourceName, u32)>,
}

impl Held {
    fn admits(&self, in_use: u32, amount: u32) -> bool {
        in_use.saturating_add(amount) <= self.part.bound
    }

    fn took(&mut self, amount: u32) {
        self.taken = self.taken.saturating_add(amount);
        self.needed = 0;
    }

    /// Counts so many spans of [`REPORTED_EVERY`]: what was taken, in the last one of them.
    fn count(&mut self, spans: u128) {
        for _ in 0..spans {
            self.usual -= self.usual.div_ceil(4);
        }
        self.usual = self.usual.max(self.taken);
        self.taken = 0;
    }

    /// Gives back what is not needed, and says what is. `waiting`: requests that wait.
    fn report(&mut self, in_use: u32, max: u32, waiting: u32) -> Use {
        let ahead = self.usual.max(self.taken).saturating_mul(AHEAD);
        let needed = in_use.saturating_add(ahead.max(self.needed.saturating_mul(waiting))).min(max);
        if waiting == 0 {
            self.needed = 0;
        }
        let kept = self.part.bound.min(needed);
        let held = self.part.held.min(kept.max(in_use)).max(in_use);
        self.part = Part { held, bound: self.part.bound.min(held) };
        Use { held, in_use, wants: needed.saturating_sub(held) }
    }

    /// Returns true if there is more to use than before.
    fn set(&mut self, part: Part, floor: u32) -> bool {
        let is_more = part.bound > self.part.bound;
        // The record keeps a floor of what is held only.
        self.floor = if part.held > 0 { floor } else { 0 };
        self.part = part;
        is_more
    }

    fn is_idle(&self) -> bool {
        self.part.held == 0 && self.taken == 0 && self.usual == 0 && self.needed == 0
    }
}

impl Parts {
    /// The parts of an account that no replica has reported on; `None` without other replicas.
    pub fn of(replicas_max: Option<NonZeroU32>) -> Option<Box<Self>> {
        let parts = |replicas_max| {
            Box::new(Self {
                replicas_max,
                number: 0,
                until: Timestamp::EPOCH,
                capacities: Vec::new(),
                budgets: Vec::new(),
                writes: WriteTurn::default(),
                is_used: false,
                is_short: false,
                is_contested: false,
                reported_at: Timestamp::EPOCH,
                counted_from: Timestamp::EPOCH,
                reported: None,
            })
        };
        replicas_max.map(parts)
    }

    /// Returns the block of a request that the limits of the account admit.
    pub fn block(
        &mut self,
        now: Timestamp,
        weight: Weight,
        wanted: WindowDemand,
        resource: &ResourceName,
        secondary: &mut Secondary,
        window: Option<&PrimaryWindow>,
    ) -> Option<Block> {
        if now >= self.until {
            self.forget();
        }
        let mut blocked: Option<Block> = None;
        let mut block = |limit, wake: Option<Timestamp>| {
            let wake = wake.into_iter().chain(blocked.and_then(|earlier| earlier.wake)).min();
            blocked = Some(Block { wake, ..Block::event(limit) });
        };
        let loads = secondary.loads(now, weight);
        for Load { capacity, in_use, amount } in &loads {
            let (capacity, amount) = (*capacity, *amount);
            let floor_from = self.until + capacity.counts_for();
            let is_on_floor = self.is_on_floor(now) && now >= floor_from;
            let held = self.held(capacity);
            let is_admitted = if is_on_floor {
                in_use.saturating_add(amount) <= held.floor
            } else {
                held.admits(*in_use, amount)
            };
            if !is_admitted {
                // Its own use ends without an event, and so does the wait for a floor.
                let floor = Some(floor_from).filter(|from| now < *from && held.floor > 0);
                let ends = secondary.next_end(now, capacity).into_iter().chain(floor).min();
                block(capacity.limit(), ends);
            }
        }
        let is_on_floor = self.is_on_floor(now);
        if wanted.cost > 0 && !self.budget(resource).admits(now, window, wanted.cost, is_on_floor) {
            block(LimitKind::Primary, None);
        }
        if secondary.is_spaced(weight) && !self.writes.is_granted {
            self.writes.is_wanted = true;
            block(LimitKind::Spacing, None);
        }
        if blocked.is_some() {
            // It needs all of them at once.
            self.is_short = true;
            for Load { capacity, amount, .. } in loads {
                let held = self.held(capacity);
                held.needed = held.needed.max(amount);
            }
            if wanted.cost > 0 {
                let held = &mut self.budget(resource).held;
                held.needed = held.needed.max(wanted.cost);
            }
        }
        blocked
    }

    /// Notes an admitted request.
    pub fn took(
        &mut self,
        now: Timestamp,
        weight: Weight,
        cost: u32,
        resource: &ResourceName,
        secondary: &mut Secondary,
    ) {
        self.is_used = true;
        for Load { capacity, amount, .. } in secondary.loads(now, weight) {
            self.held(capacity).took(amount);
        }
        if cost > 0 {
            self.budget(resource).held.took(cost);
        }
        // It is in flight, which says so.
        self.writes.is_wanted &= !secondary.is_spaced(weight);
    }

    /// True if there was a report, so that a record may know of parts.
    pub fn has_reported(&self) -> bool {
        self.number > 0
    }

    /// True if a request waits for more than the parts.
    pub fn is_short(&self) -> bool {
        self.is_short
    }

    /// True if a report would say something.
    pub fn is_to_be_reported(&self, now: Timestamp) -> bool {
        let holds = || {
            self.capacities.iter().any(|(_, held)| !held.is_idle())
                || self.budgets.iter().any(|(_, budget)| !budget.is_idle())
        };
        let is_due = self.is_contested || now >= self.reported_at + REPORTED_WITHIN;
        self.is_used || self.is_short || self.writes.is_wanted || is_due && holds()
    }

    /// The amounts that this replica holds, by the name of the limit, or `budget` and its resource.
    /// Those of all endpoints are one.
    pub fn amounts_held(&self, now: Timestamp) -> BTreeMap<String, u32> {
        let mut held = BTreeMap::new();
        if now >= self.until {
            return held;
        }
        for (capacity, of) in self.capacities.iter().filter(|(one, _)| *one != Capacity::CpuBurst) {
            let sum = held.entry(capacity.limit().name().to_owned()).or_insert(0_u32);
            *sum = sum.saturating_add(of.part.held);
        }
        let budgets = self.budgets.iter().filter(|(_, budget)| now < budget.reset);
        held.extend(budgets.map(|(resource, budget)| {
            (format!("budget {}", resource.as_str()), budget.held.part.held)
        }));
        held
    }

    /// Reports to the others, and gives back what is not needed. `waiting`: requests that wait for
    /// the account.
    pub fn report(
        &mut self,
        now: Timestamp,
        waiting: u32,
        (secondary, windows): (&mut Secondary, &[(ResourceName, PrimaryWindow)]),
        (cooldown, reserve): (Option<Timestamp>, u32),
        name: &dyn Fn(EndpointId) -> String,
    ) -> Report {
        if now >= self.until {
            self.forget();
        }
        self.count(now);
        self.number += 1;
        self.reported_at = now;
        (self.is_used, self.is_short) = (false, self.is_short && waiting > 0);
        let mut reported = Reported { capacities: Vec::new(), budgets: Vec::new() };
        let mut capacities = Vec::new();
        for (capacity, held) in &mut self.capacities {
            let (in_use, max) = secondary.in_use(now, *capacity);
            let usage = held.report(in_use, max, waiting);
            reported.capacities.push((*capacity, floor(max, self.replicas_max)));
            capacities.push(CapacityReport {
                name: capacity.name(name),
                max,
                floor: floor(max, self.replicas_max),
                counts_for: capacity.counts_for(),
                usage,
            });
        }
        let mut budgets = Vec::new();
        for (resource, budget) in &mut self.budgets {
            let window = windows.iter().find(|(name, _)| name == resource);
            let floor_of = |limit| floor(limit, self.replicas_max);
            let about = (window.map(|(_, it)| it), reserve);
            let report = budget.report(now, resource, about, waiting, floor_of);
            reported.budgets.push((resource.clone(), report.floor));
            budgets.push(report);
        }
        self.reported = Some(reported);
        let in_flight = secondary.spaced_in_flight();
        self.writes.is_wanted &= waiting > 0;
        let wants = self.writes.is_wanted || in_flight;
        // A part of the right to write is none.
        self.writes.is_granted &= wants;
        Report {
            number: self.number,
            at: now,
            capacities,
            budgets,
            cooldown: cooldown.map_or(Duration::ZERO, |until| until.since(now)),
            writes: WritesReport {
                wants,
                in_flight,
                last: secondary.last_writes().map(|last| last.map(|last| now.since(last))),
            },
        }
    }

    /// Takes over the parts that answer the report under way, which was sent at this time. Returns
    /// the resources of its budgets, and true if there is more to use than before.
    pub fn take(&mut self, sent_at: Timestamp, answer: &Answer) -> (Vec<ResourceName>, bool) {
        let Some(reported) = self.reported.take() else { return (Vec::new(), false) };
        self.until = sent_at + HELD_FOR;
        let mut is_more = answer.may_write && !self.writes.is_granted;
        for ((capacity, floor), part) in reported.capacities.into_iter().zip(&answer.capacities) {
            is_more |= self.held(capacity).set(*part, floor);
        }
        for ((resource, floor), granted) in reported.budgets.iter().zip(&answer.budgets) {
            let budget = self.budget(resource);
            is_more |= budget.held.set(granted.part, *floor);
            is_more |= granted.may_probe && !budget.may_probe;
            budget.wants_probe &= !granted.may_probe;
            budget.reset = granted.seen.map_or(budget.reset, |seen| seen.reset);
            budget.may_probe = granted.may_probe;
        }
        self.writes.is_granted = answer.may_write;
        self.is_contested = answer.is_contested;
        self.capacities.retain(|(_, held)| !held.is_idle());
        self.budgets.retain(|(_, budget)| !budget.is_idle());
        // Who still waits for more finds out again.
        self.is_short &= !is_more;
        let resources = reported.budgets.into_iter().map(|(resource, _)| resource).collect();
        (resources, is_more)
    }

    /// Counts what was taken since the last count. While reports have no answer, nothing is given
    /// back: nobody would get it, and this replica gets nothing new.
    fn count(&mut self, now: Timestamp) {
        let passed = now.since(self.counted_from).as_millis();
        let spans = (passed / REPORTED_EVERY.as_millis()).min(COUNTS_MAX);
        if self.reported_at == Timestamp::EPOCH {
            self.counted_from = now;
        } else if spans > 0 {
            self.counted_from = now;
            let capacities = self.capacities.iter_mut().map(|(_, held)| held);
            let budgets = self.budgets.iter_mut().map(|(_, budget)| &mut budget.held);
            capacities.chain(budgets).for_each(|held| held.count(spans));
        }
    }

    /// Gives back all that is not in use, at the end of this replica. What is in use still counts.
    pub fn give_back(&mut self) {
        let capacities = self.capacities.iter_mut().map(|(_, held)| held);
        let budgets = self.budgets.iter_mut().map(|(_, budget)| &mut budget.held);
        for held in capacities.chain(budgets) {
            (held.taken, held.usual, held.needed) = (0, 0, 0);
        }
        self.writes = WriteTurn::default();
    }

    /// The report under way has no answer. The next one is due at once, because the record may be
    /// lost.
    pub fn unanswered(&mut self) {
        self.reported = None;
        self.reported_at = Timestamp::EPOCH;
    }

    /// True if this replica is cut off, and may use its floors.
    fn is_on_floor(&self, now: Timestamp) -> bool {
        self.until <= now && now < self.until + FLOOR_FOR
    }

    /// Ends all parts whose time is over: all but those of budgets, which end with their windows.
    fn forget(&mut self) {
        self.capacities.iter_mut().for_each(|(_, held)| held.part = Part::default());
        self.budgets.iter_mut().for_each(|(_, budget)| budget.may_probe = false);
        self.writes.is_granted = false;
    }

    fn held(&mut self, capacity: Capacity) -> &mut Held {
        let found = self.capacities.iter().position(|(other, _)| *other == capacity);
        let at = found.unwrap_or_else(|| {
            self.capacities.push((capacity, Held::default()));
            self.capacities.len() - 1
        });
        &mut self.capacities[at].1
    }

    fn budget(&mut self, resource: &ResourceName) -> &mut BudgetPart {
        let found = self.budgets.iter().position(|(other, _)| other == resource);
        let at = found.unwrap_or_else(|| {
            self.budgets.push((resource.clone(), BudgetPart::default()));
            self.budgets.len() - 1
        });
        &mut self.budgets[at].1
    }
}

impl BudgetPart {
    fn is_idle(&self) -> bool {
        self.held.is_idle() && !self.may_probe && !self.wants_probe
    }

    fn admits(
        &mut self,
        now: Timestamp,
        window: Option<&PrimaryWindow>,
        cost: u32,
        is_on_floor: bool,
    ) -> bool {
        let Some(window) = window.filter(|window| !window.is_unknown(now)) else {
            self.wants_probe |= !self.may_probe;
            return self.may_probe || is_on_floor && cost <= self.held.floor;
        };
        let Some((seen, spent)) = window.spent_by_us() else { return true };
        if seen.is_of(self.reset) {
            return self.held.admits(spent, cost);
        }
        self.held.part = Part::default();
        is_on_floor && spent.saturating_add(cost) <= self.held.floor
    }

    fn report(
        &mut self,
        now: Timestamp,
        resource: &ResourceName,
        (window, reserve): (Option<&PrimaryWindow>, u32),
        waiting: u32,
        floor_of: impl Fn(u32) -> u32,
    ) -> BudgetReport {
        self.wants_probe &= waiting > 0;
        let seen = window.and_then(PrimaryWindow::spent_by_us);
        if seen.is_none_or(|(seen, _)| !seen.is_of(self.reset)) {
            self.held.part = Part::default();
        }
        let (spent, max) = seen.map_or((0, 0), |(seen, spent)| (spent, seen.limit));
        BudgetReport {
            resource: resource.as_str().to_owned(),
            seen: seen.map(|(seen, _)| seen),
            is_unmetered: window.is_some_and(PrimaryWindow::is_unmetered),
            reserve,
            floor: floor_of(max),
            usage: self.held.report(spent, max, waiting),
            in_flight: window.map_or(0, PrimaryWindow::in_flight),
            wants_probe: self.wants_probe,
            closed_for: window.map_or(Duration::ZERO, |window| window.closed_for(now)),
        }
    }
}
