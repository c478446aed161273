//! The primary budget of one account and resource: reserve, then settle (DESIGN D4).
//!
//! Soundness in one sentence: what is left upstream is never less than `remaining` minus the leases, because every answer shows a moment
//! of the upstream's own count, requests that it does not show yet still hold their lease, and within a window the lowest count seen is
//! kept. So answers may come in any order and any of them may be lost.
//!
//! Choices that D4 leaves open:
//! - **An answer without rate headers** counts as spent, a 304 does not (Document 1, Errors). A *probe* answered so teaches nothing; after
//!   [`HEADERLESS_PROBES`] of them in a row the resource is taken for unmetered (a self-hosted upstream with its limits switched off) and
//!   nothing is held back until an answer carries headers again. Answers of 500 and above come from anywhere and prove nothing.
//! - **A budget held by leases alone** refuses with "wait for an event": any of them may come back as a 304 and cost nothing.
//! - **Windows of 2 s and shorter** cannot be told apart by the wobble rule and end as one probe each.
//!
//! Secondary limits are in `secondary`; a refusal's classification is [`crate::api`]'s.

use std::time::Duration;

use crate::api::{AccountKind, RateHeaders, ResourceName, default_limit};
use crate::clock::Timestamp;

use super::block::Block;
use super::demand::{LeaseId, LimitKind};

/// Resets of one window differ by up to this (UPSTREAM.md, Limits: a wobble of a second, either way).
pub(super) const WOBBLE: Duration = Duration::from_secs(2);
/// What is added to the reset that a refusal names (UPSTREAM.md, Limits, waiting rule).
pub(super) const AFTER_RESET: Duration = Duration::from_secs(1);
/// How long a refusal that names no time closes a book (Document 1, Client behavior after a limit: at least one minute).
const CLOSED_WITHOUT_A_TIME: Duration = Duration::from_mins(1);
/// How many probes in a row must be answered without rate headers to take a resource for unmetered. Ours: one such answer may come from
/// something between us and the upstream.
pub(super) const HEADERLESS_PROBES: u32 = 3;
/// A whole budget, in the unit of [`Room::share`].
pub(super) const WHOLE: u32 = 10_000;

/// What a book knows.
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
pub(super) enum Charge {
    /// It counts.
    Spent,
    /// It costs nothing.
    Free,
    /// It counts, and says that the upstream sends no rate headers.
    SpentWithoutHeaders,
}

/// That a book can take a request, and how much it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// What is left after leases and reserve, in ten-thousandths of the limit.
    pub(super) share: u32,
}

/// The figures of a book, for views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) limit: u32,
    /// Before leases and reserve.
    pub(super) remaining: u32,
    pub(super) leased: u32,
    /// `None` when the window is not known.
    pub(super) reset: Option<Timestamp>,
}

/// The book of one account and resource.
#[derive(Debug)]
pub(super) struct Book {
    state: State,
    /// The units of all open leases.
    leased: u32,
    /// The request that is finding out the state.
    probe: Option<LeaseId>,
    headerless_probes: u32,
    /// Closed by a refusal until then.
    closed_until: Timestamp,
}

impl Book {
    pub(super) fn new() -> Self {
        Self { state: State::Unknown, leased: 0, probe: None, headerless_probes: 0, closed_until: Timestamp::EPOCH }
    }

    /// Whether a request of `cost` units can be taken now, or what forbids it.
    pub(super) fn room(&self, now: Timestamp, cost: u32, reserve: u32) -> Result<Room, Block> {
        if now < self.closed_until {
            return Err(Block::at(LimitKind::Primary, self.closed_until));
        }
        match self.current(now) {
            State::Unknown if self.probe.is_some() => Err(Block::event(LimitKind::Probe)),
            State::Unknown | State::Unmetered => Ok(Room { share: WHOLE }),
            State::Seen(seen) => {
                let ours = seen.remaining.saturating_sub(reserve);
                match ours.checked_sub(self.leased).filter(|free| *free >= cost) {
                    Some(free) => Ok(Room { share: share(free, seen.limit) }),
                    None => Err(seen.spent(ours >= cost)),
                }
            }
        }
    }

    /// Takes a request. Only after [`Book::room`] said that there is room.
    pub(super) fn lease(&mut self, now: Timestamp, lease: LeaseId, cost: u32) {
        self.leased = self.leased.saturating_add(cost);
        if self.current(now) == State::Unknown && self.probe.is_none() {
            self.probe = Some(lease);
        }
    }

    /// Ends a lease that was not sent, or that counted elsewhere.
    pub(super) fn refund(&mut self, lease: LeaseId, cost: u32) {
        self.release(lease, cost);
    }

    /// Ends a lease of which only the cost is known.
    pub(super) fn charge(&mut self, lease: LeaseId, cost: u32, charge: Charge) {
        let was_probe = self.release(lease, cost);
        if let (Charge::Spent | Charge::SpentWithoutHeaders, State::Seen(seen)) = (charge, &mut self.state) {
            seen.remaining = seen.remaining.saturating_sub(cost);
        }
        if was_probe && charge != Charge::Spent {
            self.headerless_probes = self.headerless_probes.saturating_add(1);
            if self.headerless_probes >= HEADERLESS_PROBES {
                self.state = State::Unmetered;
            }
        }
    }

    /// Takes over what an answer says of the window. The lease of that answer has been ended, or was another book's.
    pub(super) fn observe(&mut self, rate: &RateHeaders) {
        self.headerless_probes = 0;
        let new = Seen { limit: rate.limit, remaining: rate.remaining.min(rate.limit), reset: rate.reset };
        self.state = match self.state {
            State::Seen(old) if new.reset > old.reset + WOBBLE => State::Seen(new),
            State::Seen(old) if new.reset + WOBBLE >= old.reset => State::Seen(old.merged(new)),
            State::Seen(old) => State::Seen(old),
            State::Unknown | State::Unmetered => State::Seen(new),
        };
    }

    /// Closes the book after a refusal, until what the upstream named: a reset (one in the past counts as now) and a pause, the later of
    /// both; else until the reset known so far.
    pub(super) fn close(&mut self, now: Timestamp, reset: Option<Timestamp>, pause: Option<Duration>) {
        let known = match self.state {
            State::Seen(seen) if seen.reset > now => Some(seen.reset),
            _ => None,
        };
        let by_reset = reset.or(known.filter(|_| pause.is_none())).map(|reset| reset.max(now) + AFTER_RESET);
        let by_pause = pause.map(|pause| now + pause);
        let until = by_reset.max(by_pause).unwrap_or(now + CLOSED_WITHOUT_A_TIME);
        self.closed_until = self.closed_until.max(until.clamp(now + super::cooldown::CLOSED_MIN, now + super::cooldown::CLOSED_MAX));
    }

    /// The figures as a view shows them; what is not known is presumed.
    pub(super) fn figures(&self, now: Timestamp, presumed_limit: u32) -> Figures {
        let (limit, remaining, reset) = match (self.current(now), self.state) {
            (State::Seen(seen), _) => (seen.limit, seen.remaining, Some(seen.reset)),
            (_, State::Seen(over)) => (over.limit, over.limit, None),
            _ => (presumed_limit, presumed_limit, None),
        };
        if now < self.closed_until {
            return Figures { limit, remaining: 0, leased: self.leased, reset: Some(reset.unwrap_or_default().max(self.closed_until)) };
        }
        Figures { limit, remaining, leased: self.leased, reset }
    }

    /// The units of all open leases.
    pub(super) fn leased(&self) -> u32 {
        self.leased
    }

    /// Whether the window shows no more than it allows.
    pub(super) fn is_sane(&self) -> bool {
        !matches!(self.state, State::Seen(seen) if seen.remaining > seen.limit)
    }

    /// Whether what was admitted is covered by what is left, as it must be right after an admission.
    pub(super) fn covers(&self, now: Timestamp, reserve: u32) -> bool {
        match self.current(now) {
            State::Seen(seen) => u64::from(self.leased) + u64::from(reserve) <= u64::from(seen.remaining),
            State::Unknown => self.probe.is_some(),
            State::Unmetered => true,
        }
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
        self.leased = self.leased.saturating_sub(cost);
        self.probe.take_if(|probe| *probe == lease).is_some()
    }
}

impl Seen {
    /// Two sights of one window: the lower count and the later reset.
    fn merged(self, new: Self) -> Self {
        Self { limit: new.limit, remaining: self.remaining.min(new.remaining), reset: self.reset.max(new.reset) }
    }

    /// Too little is left: a lease may come back, else the window must end.
    fn spent(self, but_for_leases: bool) -> Block {
        let over = self.reset + WOBBLE;
        if but_for_leases { Block { wake: Some(over), ..Block::event(LimitKind::Primary) } } else { Block::at(LimitKind::Primary, over) }
    }
}

/// `free` in ten-thousandths of `limit`.
fn share(free: u32, limit: u32) -> u32 {
    let share = u64::from(free) * u64::from(WHOLE) / u64::from(limit.max(1));
    u32::try_from(share).unwrap_or(WHOLE).min(WHOLE)
}

/// The limit that an account is thought to have until an answer tells (Document 1, Primary rate limits).
pub(super) fn presumed_limit(kind: AccountKind, resource: &ResourceName) -> u32 {
    match kind {
        AccountKind::Anonymous if *resource == ResourceName::core() => 60,
        AccountKind::Workflow if *resource == ResourceName::core() => 1_000,
        _ => default_limit(resource),
    }
}

#[cfg(test)]
mod tests;
