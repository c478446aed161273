//! The primary budget of one account and resource: reserve before sending, settle by the answer
//! (SPECIFICATION D4).
//!
//! The units left upstream are never fewer than `remaining` minus the leases. Every answer shows a
//! moment of the upstream's own count, requests that it does not include still hold their leases,
//! and the lowest count in a window is kept. So answers may arrive in any order. A request that
//! ended without a count stays held until a later answer must include it (`evidence`). There the
//! spending of others is detected too.
//!
//! Choices that D4 leaves open:
//! - **An answer without rate headers** counts as spent, except a 304. A *probe* with such an
//!   answer reveals nothing. After [`HEADERLESS_PROBES`] of them in a row the resource counts as
//!   unmetered (a self-hosted upstream without limits), until an answer carries headers again.
//!   Answers of 500 and above prove nothing.
//! - **A budget held by leases alone** denies until an event: any of them may end as a free 304.
//! - **Windows of 2 s and shorter** are within the wobble and end as one probe each.

mod evidence;
mod fleet;
mod measure;
mod probes;
mod saved;
mod stated;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::api::{AccountKind, RateHeaders, ResourceName, default_limit};
use crate::clock::Timestamp;

use super::block::Block;
use super::cooldown::closed_until;
use crate::decision::silence::Silence;
use crate::decision::types::{LeaseId, LimitKind, Pace, Priority, Until};

pub use crate::decision::fleet::WOBBLE;
pub use evidence::Mark;
use evidence::{Count, Evidence};
use probes::Probes;
pub use saved::SavedWindow;
pub use stated::Asked;
use stated::StatementTrust;

/// Closure by a limit that names no time (SPECIFICATION, "After a limit": at least one minute).
const CLOSED_WITHOUT_A_TIME: Duration = Duration::from_mins(1);
/// Probes in a row without rate headers after which a resource counts as unmetered. Ours: one such
/// answer may come from something on the way.
pub const HEADERLESS_PROBES: u32 = 3;
/// Whole budget, in the unit of [`Headroom::share`].
pub const WHOLE: u32 = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WindowState {
    Unknown,
    /// The window as last seen. After its end only its limit counts.
    Seen(Seen),
    Unmetered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    limit: u32,
    remaining: u32,
    reset: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    Spent,
    /// Possibly counted, now or a little later.
    Lost,
    Free,
    /// Counted, by an upstream without rate headers.
    SpentWithoutHeaders,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    pub reserve: u32,
    /// Part of the limit, in ten-thousandths, that requests of priority `batch` leave to the
    /// others.
    pub batch_floor: u32,
    pub pace: Pace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowDemand {
    pub cost: u32,
    /// See [`Demand::unproven`](crate::decision::Demand::unproven).
    pub unproven: u32,
    pub priority: Priority,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headroom {
    /// Remaining part after leases and reserve, in ten-thousandths of the limit.
    pub share: u32,
    /// Time at which the window changes by itself, if any.
    pub until: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    pub limit: u32,
    /// Before leases and reserve.
    pub remaining: u32,
    pub leased: u32,
    /// `None` for an unknown window.
    pub reset: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
pub struct ObservedAnswer<'r> {
    pub rate: &'r RateHeaders,
    /// Cost of its request: none for a 304 or a limit (SPECIFICATION, "Errors").
    pub cost: u32,
    /// From its request's admission, if that was to this window.
    pub mark: Option<Mark>,
}

#[derive(Debug)]
pub struct PrimaryWindow {
    state: WindowState,
    pub leased: u64,
    /// Its requests without the head of an answer.
    pub silence: Silence,
    probes: Probes,
    headerless_probes: u32,
    /// Experience with what the upstream states about it by `GET /rate_limit`.
    trust: StatementTrust,
    /// End of a closure by an upstream limit, and its beginning.
    closed_until: Timestamp,
    closed_at: Timestamp,
    /// Earliest time of the next request, where the budget is spread evenly.
    next_at: Timestamp,
    /// True when every request costs what was reserved for it: answers then bound the rest from
    /// below.
    costs_are_known: bool,
    /// Number of requests admitted so far, and the time of the last count.
    admitted: u64,
    counted_at: Timestamp,
    /// True if other replicas may have spent what is missing: their records find the spending of
    /// others.
    pub has_replicas: bool,
    evidence: Evidence,
}

impl PrimaryWindow {
    pub fn new(resource: &ResourceName) -> Self {
        Self {
            has_replicas: false,
            state: WindowState::Unknown,
            leased: 0,
            silence: Silence::default(),
            probes: Probes::default(),
            headerless_probes: 0,
            trust: StatementTrust::default(),
            closed_until: Timestamp::EPOCH,
            closed_at: Timestamp::EPOCH,
            next_at: Timestamp::EPOCH,
            // GraphQL costs depend on the size of the query (SPECIFICATION, "Limits in practice").
            costs_are_known: *resource != ResourceName::graphql(),
            admitted: 0,
            counted_at: Timestamp::EPOCH,
            evidence: Evidence::default(),
        }
    }

    pub fn headroom(
        &self,
        now: Timestamp,
        wanted: WindowDemand,
        terms: Terms,
    ) -> Result<Headroom, Block> {
        if now < self.closed_until {
            return Err(Block::at(LimitKind::Primary, self.closed_until));
        }
        match self.current(now) {
            WindowState::Unknown => match self.probe_block(now, wanted.cost) {
                Some(block) => Err(block),
                None => Ok(Headroom { share: WHOLE, until: None }),
            },
            WindowState::Unmetered => Ok(Headroom { share: WHOLE, until: None }),
            WindowState::Seen(seen) => {
                let over = seen.reset + WOBBLE;
                let held = self.held(now, terms.reserve);
                // The margin for others changes every second.
                let wake = |is_only_for_others| {
                    Some(if is_only_for_others { over.min(next_second(now)) } else { over })
                };
                let [beside, alone] = wanted.units(seen, terms.reserve);
                let cost = if self.leased == 0 { alone } else { beside };
                let Some(free) = self.left(seen).checked_sub(held).filter(|free| *free >= cost)
                else {
                    let all = seen
                        .remaining
                        .saturating_sub(self.evidence.unseen_units)
                        .saturating_sub(held);
                    let block = seen.spent(all >= alone);
                    let is_only_for_others = self.left(seen).saturating_sub(terms.reserve) >= cost;
                    return Err(Block { wake: wake(is_only_for_others), ..block });
                };
                let share = share(free, seen.limit);
                let is_above_floor = |free| {
                    terms.batch_floor == 0 || self::share(free, seen.limit) > terms.batch_floor
                };
                if wanted.priority == Priority::Batch && !is_above_floor(free) {
                    // A lease may come back as a free 304.
                    let until = if is_above_floor(free.saturating_add(self.leased_units())) {
                        Until::Event
                    } else {
                        Until::Time(over)
                    };
                    let wake = wake(is_above_floor(self.left(seen).saturating_sub(terms.reserve)));
                    return Err(Block { limit: LimitKind::BatchFloor, until, wake });
                }
                if terms.pace == Pace::Even && now < self.next_at {
                    return Err(Block::at(LimitKind::Pace, self.next_at.min(over)));
                }
                Ok(Headroom { share, until: Some(over) })
            }
        }
    }

    /// Takes a request, after [`PrimaryWindow::headroom`] has granted it.
    pub fn lease(&mut self, now: Timestamp, lease: LeaseId, cost: u32, terms: Terms) -> Mark {
        if let (Pace::Even, WindowState::Seen(seen)) = (terms.pace, self.current(now)) {
            let free = self.left(seen).saturating_sub(self.held(now, terms.reserve)).max(1);
            self.next_at = now + seen.reset.since(now).saturating_mul(cost) / free;
        }
        let alone = self.alone(now);
        let mark = self.encumber(now, cost).with(alone);
        if self.current(now) == WindowState::Unknown {
            self.probes.admitted(now, lease, cost);
        }
        mark
    }

    /// Takes a request that another account's window admitted and that counts here too.
    pub fn encumber(&mut self, now: Timestamp, cost: u32) -> Mark {
        self.leased = self.leased.saturating_add(cost.into());
        self.admitted = self.admitted.wrapping_add(1);
        self.evidence.admitted(now, cost)
    }

    /// Ends a lease that was not sent, was denied, or counted elsewhere.
    pub fn refund(&mut self, lease: LeaseId, cost: u32) {
        self.release(lease, cost);
        self.evidence.uncharged(cost);
    }

    pub fn charge(&mut self, now: Timestamp, lease: LeaseId, cost: u32, charge: Charge) {
        let was_probe = self.release(lease, cost);
        match charge {
            Charge::Free => self.evidence.uncharged(cost),
            Charge::Lost => self.evidence.lost(now, cost),
            Charge::Spent | Charge::SpentWithoutHeaders => self.evidence.counted_unseen(now, cost),
        }
        if was_probe && matches!(charge, Charge::Free | Charge::SpentWithoutHeaders) {
            self.headerless_probes = self.headerless_probes.saturating_add(1);
            if self.headerless_probes >= HEADERLESS_PROBES {
                self.state = WindowState::Unmetered;
            }
        }
    }

    /// Ends a lease whose answer includes it in its count, or shows that it was free;
    /// [`PrimaryWindow::observe`] follows.
    pub fn answered(&mut self, lease: LeaseId, leased: u32, cost: u32) {
        self.release(lease, leased);
        self.evidence.uncharged(leased.saturating_sub(cost));
        self.evidence.counted(cost.min(leased));
    }

    /// Updates the window by an answer. The answer's lease has ended, or was another window's.
    pub fn observe(&mut self, now: Timestamp, answer: ObservedAnswer<'_>) {
        self.headerless_probes = 0;
        self.counted_at = now;
        let rate = answer.rate;
        let new = Seen {
            limit: rate.limit,
            remaining: rate.remaining.min(rate.limit),
            reset: rate.reset,
        };
        let is_confirmed = self.confirms(answer.mark);
        let (state, sight) = match self.state {
            WindowState::Seen(_) if is_confirmed => (new, Sight::NewWindow),
            WindowState::Seen(old) if new.reset > old.reset + WOBBLE => (new, Sight::NewWindow),
            WindowState::Seen(old) if new.reset + WOBBLE >= old.reset => {
                (old.merged(new), Sight::Same)
            }
            WindowState::Seen(old) => (old, Sight::Old),
            WindowState::Unknown | WindowState::Unmetered => (new, Sight::NewWindow),
        };
        self.state = WindowState::Seen(state);
        self.probes.learned();
        if sight == Sight::NewWindow {
            let is_refuted = is_confirmed && answer.cost == 0 && new.remaining == 0;
            self.trust = if is_refuted { StatementTrust::Wrong(now) } else { StatementTrust::Open };
            let own = answer.mark.map_or(0, |_| answer.cost);
            self.evidence.new_window(now, self.leased_units().saturating_add(own));
        }
        match answer.mark {
            // A request that was booked elsewhere is ours too, and no longer in flight.
            None => {
                self.evidence.admitted(now, answer.cost);
                self.evidence.counted(answer.cost);
            }
            Some(mark) if sight != Sight::Old => {
                self.evidence.shown(
                    now,
                    mark,
                    Count { limit: new.limit, remaining: new.remaining, cost: answer.cost },
                );
            }
            Some(_) => {}
        }
    }

    /// Closes the window after an upstream limit. Of a named reset and a pause the later holds; a
    /// reset in the past counts as now. Without both the known reset holds.
    pub fn close(&mut self, now: Timestamp, reset: Option<Timestamp>, pause: Option<Duration>) {
        if matches!(self.trust, StatementTrust::Raised(_) | StatementTrust::Tried(_)) {
            self.trust = StatementTrust::Wrong(now);
        }
        let known = match self.state {
            WindowState::Seen(seen) if seen.reset > now => Some(seen.reset),
            _ => None,
        };
        let reset = reset.or(known.filter(|_| pause.is_none()));
        let until = closed_until(now, reset, pause, || CLOSED_WITHOUT_A_TIME);
        self.closed_until = self.closed_until.max(until);
        self.closed_at = now;
    }

    pub fn figures(&self, now: Timestamp, presumed_limit: impl Fn() -> u32) -> Figures {
        let (limit, remaining, reset) = match (self.current(now), self.state) {
            (WindowState::Seen(seen), _) => (
                seen.limit,
                seen.remaining.saturating_sub(self.evidence.unseen_units),
                Some(seen.reset),
            ),
            (_, WindowState::Seen(over)) => (over.limit, over.limit, None),
            _ => (presumed_limit(), presumed_limit(), None),
        };
        let mut figures = Figures { limit, remaining, leased: self.leased_units(), reset };
        if now < self.closed_until {
            figures.remaining = 0;
            figures.reset = Some(reset.unwrap_or_default().max(self.closed_until));
        }
        figures
    }

    /// Leased units, capped to a window's range.
    fn leased_units(&self) -> u32 {
        u32::try_from(self.leased).unwrap_or(u32::MAX)
    }

    /// Invariant 1.
    pub fn is_sane(&self) -> bool {
        !matches!(self.state, WindowState::Seen(seen) if seen.remaining > seen.limit)
    }

    /// Returns true when the count covers a request of this cost, of which a part is unproven
    /// (invariant 2; computed differently from [`PrimaryWindow::headroom`]).
    pub fn covers(&self, now: Timestamp, [cost, unproven]: [u32; 2], reserve: u32) -> bool {
        match self.current(now) {
            WindowState::Seen(seen) => {
                let proven = if self.leased == 0 { cost.saturating_sub(unproven) } else { cost };
                let cost = proven.min(seen.limit.saturating_sub(reserve)).max(1);
                let taken = self.leased + u64::from(self.evidence.unseen_units);
                taken + u64::from(cost) + u64::from(reserve) <= u64::from(seen.remaining)
            }
            WindowState::Unknown => self.probe_block(now, cost).is_none(),
            WindowState::Unmetered => true,
        }
    }

    /// Units that are certainly left, before the margin for others.
    fn left(&self, seen: Seen) -> u32 {
        seen.remaining
            .saturating_sub(self.leased_units())
            .saturating_sub(self.evidence.unseen_units)
    }

    /// Units left to others: the reserve of the config, or the observed margin.
    fn held(&self, now: Timestamp, reserve: u32) -> u32 {
        self.held_as_of(self.held_at(now), reserve)
    }

    /// The same with the margin of that time.
    fn held_as_of(&self, at: Timestamp, reserve: u32) -> u32 {
        if self.costs_are_known && !self.has_replicas {
            reserve.max(self.evidence.margin(at))
        } else {
            reserve
        }
    }

    /// Returns the state at `now`: a past window is unknown.
    fn current(&self, now: Timestamp) -> WindowState {
        match self.state {
            WindowState::Seen(seen) if now >= seen.reset + WOBBLE => WindowState::Unknown,
            state => state,
        }
    }

    fn release(&mut self, lease: LeaseId, cost: u32) -> bool {
        self.leased = self.leased.saturating_sub(cost.into());
        self.probes.ended(lease)
    }

    /// Denial of a request while the window is unknown.
    fn probe_block(&self, now: Timestamp, cost: u32) -> Option<Block> {
        self.probes.block(now, cost, self.limit_before())
    }

    /// Limit of the window before, while the current one is unknown.
    fn limit_before(&self) -> Option<u32> {
        if let WindowState::Seen(over) = self.state { Some(over.limit) } else { None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    NewWindow,
    Same,
    Old,
}

impl WindowDemand {
    /// Units that must be left beside other requests, and for the only one. No price is above the
    /// whole budget, or its request could never be sent.
    fn units(self, seen: Seen, reserve: u32) -> [u32; 2] {
        let whole = seen.limit.saturating_sub(reserve);
        [self.cost, self.cost.saturating_sub(self.unproven)].map(|units| units.min(whole).max(1))
    }
}

impl Seen {
    /// Merges two sights of one window: the lower count and the later reset.
    fn merged(self, new: Self) -> Self {
        Self {
            limit: new.limit,
            remaining: self.remaining.min(new.remaining),
            reset: self.reset.max(new.reset),
        }
    }

    /// Denial for too few units: a lease may come back, else the window must end.
    fn spent(self, but_for_leases: bool) -> Block {
        let over = self.reset + WOBBLE;
        if but_for_leases {
            Block { wake: Some(over), ..Block::event(LimitKind::Primary) }
        } else {
            Block::at(LimitKind::Primary, over)
        }
    }
}

fn next_second(now: Timestamp) -> Timestamp {
    Timestamp::from_secs(now.as_secs() + 1)
}

pub fn in_ten_thousandths(part: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and 10,000"
    )]
    let units = (part.clamp(0.0, 1.0) * f64::from(WHOLE)).round() as u32;
    units
}

fn share(free: u32, limit: u32) -> u32 {
    let share = u64::from(free) * u64::from(WHOLE) / u64::from(limit.max(1));
    u32::try_from(share).unwrap_or(WHOLE).min(WHOLE)
}

/// Presumed limit of an account until an answer names it (SPECIFICATION, "Primary rate limits").
pub fn presumed_limit(kind: AccountKind, resource: &ResourceName) -> u32 {
    match kind {
        AccountKind::Anonymous if *resource == ResourceName::core() => 60,
        AccountKind::Workflow if *resource == ResourceName::core() => 1_000,
        _ => default_limit(resource),
    }
}

#[cfg(test)]
mod tests;
