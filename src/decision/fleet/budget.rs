//! A primary budget in the record of an account.
//!
//! The first report of a new window begins it here. Until the other replicas know of it, they may
//! spend what is left of their earlier parts, which the upstream then counts in the new window.
//! That much is set aside.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{BudgetAnswer, BudgetReport, Part, ReplicaId, Use, end_of, fair_part};
use crate::clock::Timestamp;

/// Largest difference between resets of one window (SPECIFICATION, "Limits in practice": a wobble
/// of a second, either way).
pub const WOBBLE: Duration = Duration::from_secs(2);
/// The time after which another replica may probe. Ours: longer than an answer usually takes.
const PROBE_WITHIN: Duration = Duration::from_secs(5);

/// A window as an answer shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sight {
    /// Units of the whole window.
    pub limit: u32,
    /// Units left upstream.
    pub remaining: u32,
    /// The end of the window, by the clock of its holder.
    pub reset: Timestamp,
}

impl Sight {
    /// Converts the reset from the clock that shows `from` to the one that shows `to`.
    pub(super) fn moved(self, from: Timestamp, to: Timestamp) -> Self {
        Self { reset: self.reset + to.since(from) - from.since(to), ..self }
    }

    /// Returns true if a window with this reset is the same one.
    pub(crate) fn is_of(self, reset: Timestamp) -> bool {
        self.reset <= reset + WOBBLE && reset <= self.reset + WOBBLE
    }
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    seen: Option<Sight>,
    is_unmetered: bool,
    parts: BTreeMap<ReplicaId, Units>,
    /// Units that replicas which did not know of the window may have spent in it.
    carried: u64,
    /// Units that other consumers have certainly spent.
    others: u64,
    prober: Option<(ReplicaId, Timestamp)>,
    closed_until: Timestamp,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Units {
    held: u32,
    in_use: u32,
    wants: u32,
    in_flight: u32,
    floor: u32,
    /// The replica has left, or is silent; then the end of the time in which it uses its floor.
    gone_until: Option<Timestamp>,
}

impl Units {
    /// Units that may be spent in a next window by a replica that does not know of it.
    fn carried(self) -> u64 {
        u64::from(self.held.saturating_sub(self.in_use)) + u64::from(self.in_flight)
    }
}

/// The window of a report beside that of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Epoch {
    Earlier,
    Same,
    Next,
}

impl Budget {
    /// The window as last seen.
    pub fn seen(&self) -> Option<Sight> {
        self.seen
    }

    /// The parts of all replicas.
    pub(super) fn parts(&self) -> impl Iterator<Item = (ReplicaId, Use)> + '_ {
        self.parts.iter().map(|(id, part)| {
            (*id, Use { held: part.held, in_use: part.in_use, wants: part.wants })
        })
    }

    /// Units that are held, or may have been spent.
    pub fn taken(&self) -> u64 {
        let held = self.parts.values().map(|part| u64::from(part.held)).sum::<u64>();
        held + self.carried + self.others
    }

    /// True if another replica wants units.
    pub(super) fn is_wanted_beside(&self, id: ReplicaId) -> bool {
        self.parts.iter().any(|(other, part)| *other != id && part.wants > 0)
    }

    /// Goes on to count all that a replica held, which it may spend until the reset.
    pub(super) fn left(&mut self, id: ReplicaId, floor_until: Timestamp) {
        if let Some(part) = self.parts.get_mut(&id) {
            (part.wants, part.gone_until) = (0, Some(floor_until));
        }
        self.prober = self.prober.filter(|(prober, _)| *prober != id);
    }

    pub(super) fn sync(
        &mut self,
        now: Timestamp,
        id: ReplicaId,
        report: &BudgetReport,
        may_grant: bool,
    ) -> BudgetAnswer {
        self.closed_until = self.closed_until.max(end_of(now, report.closed_for));
        let epoch = self.learn(now, id, report);
        let Use { held, in_use, wants } = report.usage;
        // A record that was lost, or that is an older state, knows less of it.
        let known = match self.parts.get(&id) {
            Some(_) if may_grant => None,
            part => Some(part.map_or(0, |part| part.held)),
        };
        if known.is_some() {
            self.find_others();
        }
        // The part of an earlier window is set aside already.
        let held = if epoch == Epoch::Earlier { 0 } else { held.max(in_use) };
        let in_use = in_use.min(held);
        let in_flight = report.in_flight;
        let floor = report.floor;
        self.parts.insert(id, Units { held, in_use, wants, in_flight, floor, gone_until: None });
        if let Some(known) = known {
            // So far its answered requests beyond that were taken for those of others.
            let unknown = in_use.saturating_sub(in_flight).saturating_sub(known);
            self.others = self.others.saturating_sub(unknown.into());
        }
        self.find_others();
        let grant = if may_grant { self.grant(id, report.reserve, wants) } else { 0 };
        let wanted = self.wanted_beside(id);
        let left = self.free(report.reserve).saturating_sub(grant);
        if let Some(part) = self.parts.get_mut(&id) {
            part.held += grant;
            part.wants -= grant.min(part.wants);
        }
        let held = held + grant;
        let bound = if wanted > 0 && left == 0 {
            let present = self.parts.values().filter(|part| part.gone_until.is_none());
            let unspent = present.map(|part| part.held.saturating_sub(part.in_use));
            let unspent = unspent.fold(0, u32::saturating_add);
            held.min(in_use.saturating_add(fair_part(unspent, wants, wanted)))
        } else {
            held
        };
        // Spare units that others have got, or have spent, meanwhile.
        let bound =
            bound.min(in_use + (held - in_use).saturating_sub(self.missing(report.reserve)));
        let may_probe = self.may_probe(now, id, report.wants_probe);
        if held == 0 && wants == 0 && in_flight == 0 {
            self.parts.remove(&id);
        }
        BudgetAnswer {
            seen: self.seen,
            is_unmetered: self.is_unmetered,
            part: Part { held, bound },
            may_probe,
            closed_for: self.closed_until.since(now),
        }
    }

    /// Takes over what the answers of a replica have shown.
    fn learn(&mut self, now: Timestamp, id: ReplicaId, report: &BudgetReport) -> Epoch {
        let Some(new) = report.seen else {
            if report.is_unmetered && self.seen.is_none() {
                self.is_unmetered = true;
            }
            return if self.seen.is_some() { Epoch::Earlier } else { Epoch::Same };
        };
        self.is_unmetered = false;
        let epoch = match self.seen {
            Some(old) if new.reset > old.reset + WOBBLE => Epoch::Next,
            Some(old) if new.reset + WOBBLE < old.reset => Epoch::Earlier,
            Some(_) => Epoch::Same,
            None => Epoch::Next,
        };
        match (&mut self.seen, epoch) {
            (Some(old), Epoch::Same) => {
                old.limit = new.limit;
                old.remaining = old.remaining.min(new.remaining);
                old.reset = old.reset.max(new.reset);
            }
            (_, Epoch::Earlier) => {}
            (seen, _) => {
                *seen = Some(new);
                self.prober = None;
                let others = self.parts.iter().filter(|(other, _)| **other != id);
                self.carried = others.map(|(_, part)| part.carried()).sum();
                self.others = 0;
                self.parts.retain(|_, part| part.gone_until.is_none_or(|until| now < until));
                for part in self.parts.values_mut() {
                    let Units { wants, floor, gone_until, .. } = *part;
                    // One that is silent may find the window too, and spend its floor.
                    let held = if gone_until.is_some() { floor } else { 0 };
                    *part = Units { held, wants, floor, gone_until, ..Units::default() };
                }
            }
        }
        epoch
    }

    /// Units that are spent beyond all parts were spent by others.
    fn find_others(&mut self) {
        let Some(seen) = self.seen else { return };
        let used = u64::from(seen.limit.saturating_sub(seen.remaining));
        let ours = self.taken() - self.others;
        self.others = self.others.max(used.saturating_sub(ours));
    }

    fn free(&self, reserve: u32) -> u32 {
        let Some(seen) = self.seen else { return 0 };
        let all = u64::from(seen.limit.saturating_sub(reserve));
        u32::try_from(all.saturating_sub(self.taken())).unwrap_or(u32::MAX)
    }

    /// Units that are taken beyond all that there are.
    fn missing(&self, reserve: u32) -> u32 {
        let Some(seen) = self.seen else { return 0 };
        let all = u64::from(seen.limit.saturating_sub(reserve));
        u32::try_from(self.taken().saturating_sub(all)).unwrap_or(u32::MAX)
    }

    fn wanted_beside(&self, id: ReplicaId) -> u64 {
        let others = self.parts.iter().filter(|(other, _)| **other != id);
        others.map(|(_, part)| u64::from(part.wants)).sum()
    }

    fn grant(&self, id: ReplicaId, reserve: u32, wants: u32) -> u32 {
        fair_part(self.free(reserve), wants, self.wanted_beside(id)).min(wants)
    }

    /// One replica at a time shows a window that is unknown, or over.
    fn may_probe(&mut self, now: Timestamp, id: ReplicaId, wants: bool) -> bool {
        let is_known = self.seen.is_some_and(|seen| now < seen.reset + WOBBLE);
        if is_known || self.is_unmetered {
            return false;
        }
        let other = self.prober.filter(|(prober, until)| *prober != id && now < *until);
        if wants && other.is_none() {
            self.prober = Some((id, now + PROBE_WITHIN));
        }
        self.prober.is_some_and(|(prober, _)| prober == id)
    }
}
