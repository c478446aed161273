//! The primary budget of one account and resource: reserve, then settle (DESIGN D4).
//!
//! Soundness in one sentence: what is left upstream is never less than `remaining` minus the
//! leases, because every answer shows a moment of the upstream's own count, requests that it does
//! not show yet still hold their lease, and within a window the lowest count seen is kept. So
//! answers may come in any order; what ended without showing a count stays held until a later
//! request's answer must show it (`evidence`). There, too, somebody else is noticed who spends of
//! the same budget.
//!
//! Choices that D4 leaves open:
//! - **An answer without rate headers** counts as spent, a 304 does not (Document 1, Errors). A
//!   *probe* answered so teaches nothing; after [`HEADERLESS_PROBES`] of them in a row the resource
//!   is taken for unmetered (a self-hosted upstream with its limits switched off) and nothing is
//!   held back until an answer carries headers again. Answers of 500 and above come from anywhere
//!   and prove nothing.
//! - **A budget held by leases alone** refuses with "wait for an event": any of them may come back
//!   as a 304 and cost nothing.
//! - **Windows of 2 s and shorter** cannot be told apart by the wobble rule and end as one probe
//!   each.
//!
//! Secondary limits are in `secondary`; a refusal's classification is [`crate::api`]'s.

mod evidence;

use std::time::Duration;

use crate::api::{AccountKind, RateHeaders, ResourceName, default_limit};
use crate::clock::Timestamp;

use super::block::Block;
use crate::decision::types::{LeaseId, LimitKind, Pace, Priority, Until};

pub(in crate::decision::quota) use evidence::Mark;
use evidence::{Count, Evidence};

/// Resets of one window differ by up to this (UPSTREAM.md, Limits: a wobble of a second, either
/// way).
pub(in crate::decision::quota) const WOBBLE: Duration = Duration::from_secs(2);
/// What is added to the reset that a refusal names (UPSTREAM.md, Limits, waiting rule).
pub(in crate::decision::quota) const AFTER_RESET: Duration = Duration::from_secs(1);
/// How long a refusal that names no time closes a window (Document 1, Client behavior after a limit:
/// at least one minute).
const CLOSED_WITHOUT_A_TIME: Duration = Duration::from_mins(1);
/// How many probes in a row must be answered without rate headers to take a resource for unmetered.
/// Ours: one such answer may come from something between us and the upstream.
pub(in crate::decision::quota) const HEADERLESS_PROBES: u32 = 3;
/// A whole budget, in the unit of [`Headroom::share`].
pub(in crate::decision::quota) const WHOLE: u32 = 10_000;

/// What a window knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing yet.
    Unknown,
    /// The window as last seen. Once it is over, nothing but its limit.
    Seen(Seen),
    /// Nothing is counted.
    Unmetered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    limit: u32,
    remaining: u32,
    reset: Timestamp,
}

/// How an answered request is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::decision::quota) enum Charge {
    /// It counts.
    Spent,
    /// It may count, now or a little later.
    Lost,
    /// It costs nothing.
    Free,
    /// It counts, and says that the upstream sends no rate headers.
    SpentWithoutHeaders,
}

/// On which terms a window is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::decision::quota) struct Terms {
    /// Units left to others.
    pub(in crate::decision::quota) reserve: u32,
    /// The part of the limit, in ten-thousandths, that requests of priority `batch` leave to the
    /// others.
    pub(in crate::decision::quota) batch_floor: u32,
    pub(in crate::decision::quota) pace: Pace,
}

/// What a request wants of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::decision::quota) struct WindowDemand {
    pub(in crate::decision::quota) cost: u32,
    pub(in crate::decision::quota) priority: Priority,
}

/// That a window can take a request, and how much it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::decision::quota) struct Headroom {
    /// What is left after leases and reserve, in ten-thousandths of the limit.
    pub(in crate::decision::quota) share: u32,
    /// When the window's own state changes by itself; `None` when it does not.
    pub(in crate::decision::quota) until: Option<Timestamp>,
}

/// The figures of a window, for views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::decision::quota) struct Figures {
    pub(in crate::decision::quota) limit: u32,
    /// Before leases and reserve.
    pub(in crate::decision::quota) remaining: u32,
    pub(in crate::decision::quota) leased: u32,
    /// `None` when the window is not known.
    pub(in crate::decision::quota) reset: Option<Timestamp>,
}

/// How an answer with rate headers is counted.
#[derive(Clone, Copy, Debug)]
pub(in crate::decision::quota) struct Answer<'r> {
    pub(in crate::decision::quota) rate: &'r RateHeaders,
    /// Units that its request cost: none for a 304 and for a refusal (Document 1, Errors).
    pub(in crate::decision::quota) cost: u32,
    /// From its request's admission to this window, if it was admitted to this one.
    pub(in crate::decision::quota) mark: Option<Mark>,
}

/// The window of one account and resource.
#[derive(Debug)]
pub(in crate::decision::quota) struct PrimaryWindow {
    state: State,
    /// The units of all open leases.
    leased: u64,
    /// The request that is finding out the state.
    probe: Option<LeaseId>,
    headerless_probes: u32,
    /// Closed by a refusal until then.
    closed_until: Timestamp,
    /// When the next request may go, where a budget is spread evenly.
    next_at: Timestamp,
    /// Whether every request costs what was reserved for it: then answers bound what is left from
    /// below.
    costs_are_known: bool,
    evidence: Evidence,
}

impl PrimaryWindow {
    pub(in crate::decision::quota) fn new(resource: &ResourceName) -> Self {
        Self {
            state: State::Unknown,
            leased: 0,
            probe: None,
            headerless_probes: 0,
            closed_until: Timestamp::EPOCH,
            next_at: Timestamp::EPOCH,
            // GraphQL counts by the size of the query (UPSTREAM.md, Limits).
            costs_are_known: *resource != ResourceName::graphql(),
            evidence: Evidence::default(),
        }
    }

    /// Whether a request can be taken now, or what forbids it.
    pub(in crate::decision::quota) fn headroom(
        &self,
        now: Timestamp,
        wanted: WindowDemand,
        terms: Terms,
    ) -> Result<Headroom, Block> {
        if now < self.closed_until {
            return Err(Block::at(LimitKind::Primary, self.closed_until));
        }
        match self.current(now) {
            State::Unknown if self.probe.is_some() => Err(Block::event(LimitKind::Probe)),
            State::Unknown | State::Unmetered => Ok(Headroom { share: WHOLE, until: None }),
            State::Seen(seen) => {
                let over = seen.reset + WOBBLE;
                let held = self.held(now, terms.reserve);
                let cost = wanted.cost.max(1);
                let Some(free) = self.left(seen).checked_sub(held).filter(|free| *free >= cost)
                else {
                    let all =
                        seen.remaining.saturating_sub(self.evidence.unseen()).saturating_sub(held);
                    let block = seen.spent(all >= cost);
                    // What is left to others changes every second.
                    let is_only_for_others = self.left(seen).saturating_sub(terms.reserve) >= cost;
                    let wake = if is_only_for_others { over.min(next_second(now)) } else { over };
                    return Err(Block { wake: Some(wake), ..block });
                };
                let share = share(free, seen.limit);
                let is_above_floor = |free| {
                    terms.batch_floor == 0 || self::share(free, seen.limit) > terms.batch_floor
                };
                if wanted.priority == Priority::Batch && !is_above_floor(free) {
                    // A lease may come back as it may when the budget is spent.
                    let until = if is_above_floor(free.saturating_add(self.leased_units())) {
                        Until::Event
                    } else {
                        Until::Time(over)
                    };
                    // As above: what is left to others changes every second.
                    let is_only_for_others =
                        is_above_floor(self.left(seen).saturating_sub(terms.reserve));
                    let wake = if is_only_for_others { over.min(next_second(now)) } else { over };
                    return Err(Block { limit: LimitKind::BatchFloor, until, wake: Some(wake) });
                }
                if terms.pace == Pace::Even && now < self.next_at {
                    return Err(Block::at(LimitKind::Pace, self.next_at.min(over)));
                }
                Ok(Headroom { share, until: Some(over) })
            }
        }
    }

    /// Takes a request. Only after [`PrimaryWindow::headroom`] said that there is headroom.
    pub(in crate::decision::quota) fn lease(
        &mut self,
        now: Timestamp,
        lease: LeaseId,
        cost: u32,
        terms: Terms,
    ) -> Mark {
        if let (Pace::Even, State::Seen(seen)) = (terms.pace, self.current(now)) {
            let free = self.left(seen).saturating_sub(self.held(now, terms.reserve)).max(1);
            self.next_at = now + seen.reset.since(now).saturating_mul(cost) / free;
        }
        let mark = self.encumber(now, cost);
        if self.current(now) == State::Unknown && self.probe.is_none() {
            self.probe = Some(lease);
        }
        mark
    }

    /// Takes a request that another window admitted and that counts here too.
    pub(in crate::decision::quota) fn encumber(&mut self, now: Timestamp, cost: u32) -> Mark {
        self.leased = self.leased.saturating_add(cost.into());
        self.evidence.admitted(now, cost)
    }

    /// Ends a lease that was not sent, that was refused, or that counted elsewhere.
    pub(in crate::decision::quota) fn refund(&mut self, lease: LeaseId, cost: u32) {
        self.release(lease, cost);
        self.evidence.uncharged(cost);
    }

    /// Ends a lease of which only the cost is known.
    pub(in crate::decision::quota) fn charge(
        &mut self,
        now: Timestamp,
        lease: LeaseId,
        cost: u32,
        charge: Charge,
    ) {
        let was_probe = self.release(lease, cost);
        match charge {
            Charge::Free => self.evidence.uncharged(cost),
            Charge::Lost => self.evidence.lost(now, cost),
            Charge::Spent | Charge::SpentWithoutHeaders => self.evidence.counted_unseen(now, cost),
        }
        if was_probe && matches!(charge, Charge::Free | Charge::SpentWithoutHeaders) {
            self.headerless_probes = self.headerless_probes.saturating_add(1);
            if self.headerless_probes >= HEADERLESS_PROBES {
                self.state = State::Unmetered;
            }
        }
    }

    /// Ends a lease whose answer's own count has the request in it, or shows that it was free;
    /// [`PrimaryWindow::observe`] follows.
    pub(in crate::decision::quota) fn answered(&mut self, lease: LeaseId, leased: u32, cost: u32) {
        self.release(lease, leased);
        self.evidence.uncharged(leased.saturating_sub(cost));
        self.evidence.counted(cost.min(leased));
    }

    /// Takes over what an answer says of the window. The lease of that answer has been ended, or
    /// was another window's.
    pub(in crate::decision::quota) fn observe(&mut self, now: Timestamp, answer: Answer<'_>) {
        self.headerless_probes = 0;
        let rate = answer.rate;
        let new = Seen {
            limit: rate.limit,
            remaining: rate.remaining.min(rate.limit),
            reset: rate.reset,
        };
        let (state, sight) = match self.state {
            State::Seen(old) if new.reset > old.reset + WOBBLE => (new, Sight::NewWindow),
            State::Seen(old) if new.reset + WOBBLE >= old.reset => (old.merged(new), Sight::Same),
            State::Seen(old) => (old, Sight::Old),
            State::Unknown | State::Unmetered => (new, Sight::NewWindow),
        };
        self.state = State::Seen(state);
        if sight == Sight::NewWindow {
            self.evidence.new_window(now);
        }
        match answer.mark {
            // What was booked elsewhere is ours too, and no longer in flight.
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

    /// Closes the window after a refusal, until what the upstream named: a reset (one in the past
    /// counts as now) and a pause, the later of both; else until the reset known so far.
    pub(in crate::decision::quota) fn close(
        &mut self,
        now: Timestamp,
        reset: Option<Timestamp>,
        pause: Option<Duration>,
    ) {
        let known = match self.state {
            State::Seen(seen) if seen.reset > now => Some(seen.reset),
            _ => None,
        };
        let by_reset =
            reset.or(known.filter(|_| pause.is_none())).map(|reset| reset.max(now) + AFTER_RESET);
        let by_pause = pause.map(|pause| now + pause);
        let until = by_reset.max(by_pause).unwrap_or(now + CLOSED_WITHOUT_A_TIME);
        self.closed_until = self
            .closed_until
            .max(until.clamp(now + super::cooldown::CLOSED_MIN, now + super::cooldown::CLOSED_MAX));
    }

    /// The figures as a view shows them; what is not known is presumed.
    pub(in crate::decision::quota) fn figures(
        &self,
        now: Timestamp,
        presumed_limit: impl Fn() -> u32,
    ) -> Figures {
        let (limit, remaining, reset) = match (self.current(now), self.state) {
            (State::Seen(seen), _) => (
                seen.limit,
                self.left(seen).saturating_add(self.leased_units()).min(seen.limit),
                Some(seen.reset),
            ),
            (_, State::Seen(over)) => (over.limit, over.limit, None),
            _ => (presumed_limit(), presumed_limit(), None),
        };
        if now < self.closed_until {
            return Figures {
                limit,
                remaining: 0,
                leased: self.leased_units(),
                reset: Some(reset.unwrap_or_default().max(self.closed_until)),
            };
        }
        Figures { limit, remaining, leased: self.leased_units(), reset }
    }

    /// The units of all open leases.
    pub(in crate::decision::quota) fn leased(&self) -> u64 {
        self.leased
    }

    /// The same, as far as a budget goes.
    fn leased_units(&self) -> u32 {
        u32::try_from(self.leased).unwrap_or(u32::MAX)
    }

    /// Whether the window shows no more than it allows.
    pub(in crate::decision::quota) fn is_sane(&self) -> bool {
        !matches!(self.state, State::Seen(seen) if seen.remaining > seen.limit)
    }

    /// Whether a request of `cost` may be taken now as far as the count goes (invariant 2; checked
    /// by another way than [`PrimaryWindow::headroom`] goes).
    pub(in crate::decision::quota) fn covers(
        &self,
        now: Timestamp,
        cost: u32,
        reserve: u32,
    ) -> bool {
        match self.current(now) {
            State::Seen(seen) => {
                let taken = self.leased + u64::from(self.evidence.unseen());
                taken + u64::from(cost) + u64::from(reserve) <= u64::from(seen.remaining)
            }
            State::Unknown => self.probe.is_none(),
            State::Unmetered => true,
        }
    }

    /// Units left for certain, with nothing taken off for others.
    fn left(&self, seen: Seen) -> u32 {
        seen.remaining.saturating_sub(self.leased_units()).saturating_sub(self.evidence.unseen())
    }

    /// Units left to others: what the config reserves, or what others are seen to need.
    fn held(&self, now: Timestamp, reserve: u32) -> u32 {
        if self.costs_are_known { reserve.max(self.evidence.margin(now)) } else { reserve }
    }

    /// The state as it counts at `now`: a window that is over says nothing any more.
    fn current(&self, now: Timestamp) -> State {
        match self.state {
            State::Seen(seen) if now >= seen.reset + WOBBLE => State::Unknown,
            state => state,
        }
    }

    /// Ends a lease; whether it was the probe.
    fn release(&mut self, lease: LeaseId, cost: u32) -> bool {
        self.leased = self.leased.saturating_sub(cost.into());
        self.probe.take_if(|probe| *probe == lease).is_some()
    }
}

/// Which window an answer shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    NewWindow,
    Same,
    Old,
}

impl Seen {
    /// Two sights of one window: the lower count and the later reset.
    fn merged(self, new: Self) -> Self {
        Self {
            limit: new.limit,
            remaining: self.remaining.min(new.remaining),
            reset: self.reset.max(new.reset),
        }
    }

    /// Too little is left: a lease may come back, else the window must end.
    fn spent(self, but_for_leases: bool) -> Block {
        let over = self.reset + WOBBLE;
        if but_for_leases {
            Block { wake: Some(over), ..Block::event(LimitKind::Primary) }
        } else {
            Block::at(LimitKind::Primary, over)
        }
    }
}

/// The beginning of the next whole second.
fn next_second(now: Timestamp) -> Timestamp {
    Timestamp::from_secs(now.as_secs() + 1)
}

/// A part, 0 to 1, in ten-thousandths.
pub(in crate::decision::quota) fn in_ten_thousandths(part: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and 10,000"
    )]
    let units = (part.clamp(0.0, 1.0) * f64::from(WHOLE)).round() as u32;
    units
}

/// `free` in ten-thousandths of `limit`.
fn share(free: u32, limit: u32) -> u32 {
    let share = u64::from(free) * u64::from(WHOLE) / u64::from(limit.max(1));
    u32::try_from(share).unwrap_or(WHOLE).min(WHOLE)
}

/// The limit that an account is thought to have until an answer tells (Document 1, Primary rate
/// limits).
pub(in crate::decision::quota) fn presumed_limit(
    kind: AccountKind,
    resource: &ResourceName,
) -> u32 {
    match kind {
        AccountKind::Anonymous if *resource == ResourceName::core() => 60,
        AccountKind::Workflow if *resource == ResourceName::core() => 1_000,
        _ => default_limit(resource),
    }
}

#[cfg(test)]
mod tests;
