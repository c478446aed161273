//! The record of one account, as all replicas change it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::budget::Budget;
use super::{
    Answer, BudgetReport, CapacityReport, FLOOR_FOR, HELD_FOR, HeldPart, Part, REPORTED_WITHIN,
    ReplicaId, Report, Use, WritesReport, end_of, fair_part,
};
use crate::clock::Timestamp;

/// The time after the begin of a record in which nothing is granted. Every replica reports within
/// it what it holds, if an earlier record was lost. Ours: twice the time between two reports,
/// because a replica may lose its connection with the record.
const GATHERING: Duration = Duration::from_secs(2 * REPORTED_WITHIN.as_secs());

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    began: Timestamp,
    /// The run of the server that keeps it.
    kept_by: String,
    replicas: BTreeMap<ReplicaId, Replica>,
    /// Amounts that silent replicas may have used or may use, until they count no more.
    gone: BTreeMap<String, Vec<Gone>>,
    budgets: BTreeMap<String, Budget>,
    cooldown_until: Timestamp,
    writes: Writes,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Replica {
    number: u64,
    until: Timestamp,
    parts: BTreeMap<String, Share>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Gone {
    of: ReplicaId,
    until: Timestamp,
    amount: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Share {
    held: u32,
    floor: u32,
    in_use: u32,
    wants: u32,
    counts_for: Duration,
}

/// Sums over all replicas but one.
struct Others {
    /// Held, or may still count.
    held: u64,
    in_use: u64,
    wants: u64,
}

/// The spaced writes, of which one replica at a time sends some.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Writes {
    holder: Option<ReplicaId>,
    /// Replicas with writes to send, in the order in which they asked.
    waiting: Vec<ReplicaId>,
    last: [Option<Timestamp>; 2],
}

impl Record {
    /// Returns a record without knowledge.
    pub fn new(now: Timestamp) -> Self {
        Self { began: now, ..Self::default() }
    }

    /// Notes which run of a server keeps the record. Another one may have an older state of it, as
    /// after a restart from a copy on disk. So it begins again, with what is known.
    pub fn kept_by(&mut self, run: &str, now: Timestamp) {
        if self.kept_by != run {
            run.clone_into(&mut self.kept_by);
            self.began = now;
            self.writes.holder = None;
        }
    }

    /// Notes what a replica reports, and grants it what is free. `now` is the time of the shared
    /// clock. `None`: a later report of the replica has come before.
    pub fn sync(&mut self, now: Timestamp, id: ReplicaId, report: &Report) -> Option<Answer> {
        self.end_parts(now);
        if !self.replicas.contains_key(&id) {
            // It says itself what is in use.
            self.gone.values_mut().for_each(|gone| gone.retain(|gone| gone.of != id));
        }
        let known = self.replicas.entry(id).or_default();
        if known.number >= report.number {
            return None;
        }
        (known.number, known.until) = (report.number, now + HELD_FOR);
        let may_grant = now >= self.began + GATHERING;
        let capacities = report.capacities.iter();
        let capacities =
            capacities.map(|capacity| self.sync_capacity(id, capacity, may_grant)).collect();
        let budgets = report.budgets.iter().map(|budget| {
            let seen = budget.seen.map(|seen| seen.moved(report.at, now));
            let moved = BudgetReport { seen, ..budget.clone() };
            let mut answer = self.sync_budget(now, id, &moved, may_grant);
            answer.seen = answer.seen.map(|seen| seen.moved(now, report.at));
            answer
        });
        let budgets = budgets.collect();
        self.cooldown_until = self.cooldown_until.max(end_of(now, report.cooldown));
        self.writes.sync(now, id, report.writes, may_grant);
        Some(Answer {
            capacities,
            budgets,
            cooldown: self.cooldown_until.since(now),
            may_write: self.writes.holder == Some(id),
            last_writes: self.writes.last.map(|last| last.map(|last| now.since(last))),
            is_contested: self.is_contested_for(id),
        })
    }

    /// Ends the parts of a replica that stops in order, and uses no more of them.
    pub fn leave(&mut self, now: Timestamp, id: ReplicaId) {
        if let Some(replica) = self.replicas.remove(&id) {
            self.keep_use_of(now, id, &replica, false);
        }
        self.end_parts(now);
    }

    /// Amount of a capacity that is held, or may still count.
    pub fn taken(&self, name: &str) -> u64 {
        let held = self.replicas.values().filter_map(|replica| replica.parts.get(name));
        let held = held.map(|part| u64::from(part.held));
        let gone = self.gone.get(name).into_iter().flatten();
        held.sum::<u64>() + gone.map(|gone| u64::from(gone.amount)).sum::<u64>()
    }

    /// All parts, for operators.
    pub fn parts(&self) -> impl Iterator<Item = HeldPart> + '_ {
        let reported_at = |id: ReplicaId| Some(self.replicas.get(&id)?.until - HELD_FOR);
        let capacities = self.replicas.iter().flat_map(move |(id, replica)| {
            replica.parts.iter().map(move |(name, part)| HeldPart {
                limit: name.clone(),
                replica: *id,
                held: part.held,
                in_use: part.in_use,
                wants: part.wants,
                reported_at: reported_at(*id),
            })
        });
        let budgets = self.budgets.iter().flat_map(move |(resource, budget)| {
            budget.parts().map(move |(replica, Use { held, in_use, wants })| HeldPart {
                limit: format!("budget {resource}"),
                replica,
                held,
                in_use,
                wants,
                reported_at: reported_at(replica),
            })
        });
        capacities.chain(budgets)
    }

    /// A budget of the account.
    pub fn budget(&self, resource: &str) -> Option<&Budget> {
        self.budgets.get(resource)
    }

    fn sync_capacity(&mut self, id: ReplicaId, report: &CapacityReport, may_grant: bool) -> Part {
        let CapacityReport { name, max, floor, counts_for, usage } = report;
        let Use { held, in_use, wants } = *usage;
        let held = held.max(in_use);
        let others = self.others(name, id);
        // A silent replica that is back may still use what others have got meanwhile.
        let left = u32::try_from(u64::from(*max).saturating_sub(others.held)).unwrap_or(u32::MAX);
        let free = left.saturating_sub(held);
        let grant = if may_grant { fair_part(free, wants, others.wants).min(wants) } else { 0 };
        if let Some(replica) = self.replicas.get_mut(&id) {
            if held == 0 && wants == 0 {
                replica.parts.remove(name);
            } else {
                let held = held.saturating_add(grant);
                let (floor, counts_for, wants) = (*floor, *counts_for, wants - grant);
                let part = Share { held, floor, in_use, wants, counts_for };
                replica.parts.insert(name.clone(), part);
            }
        }
        let held = held.saturating_add(grant);
        let is_short = others.wants > 0 && free == grant;
        let needed = others.in_use + others.wants;
        let bound = if is_short { held.min(fair_part(*max, in_use + wants, needed)) } else { held };
        Part { held, bound: bound.min(left) }
    }

    /// Amounts of a capacity beside those of a replica.
    fn others(&self, name: &str, id: ReplicaId) -> Others {
        let gone = self.gone.get(name).into_iter().flatten();
        let gone = gone.map(|gone| u64::from(gone.amount)).sum();
        let mut others = Others { held: gone, in_use: 0, wants: 0 };
        for (_, replica) in self.replicas.iter().filter(|(other, _)| **other != id) {
            if let Some(part) = replica.parts.get(name) {
                others.held += u64::from(part.held);
                others.in_use += u64::from(part.in_use);
                others.wants += u64::from(part.wants);
            }
        }
        others
    }

    fn sync_budget(
        &mut self,
        now: Timestamp,
        id: ReplicaId,
        report: &BudgetReport,
        may_grant: bool,
    ) -> super::BudgetAnswer {
        let budget = self.budgets.entry(report.resource.clone()).or_default();
        budget.sync(now, id, report, may_grant)
    }

    /// Moves the parts of replicas without a report to those that are gone, and forgets what counts
    /// no more.
    fn end_parts(&mut self, now: Timestamp) {
        let silent = |(id, replica): (&ReplicaId, &Replica)| (replica.until <= now).then_some(*id);
        let silent: Vec<_> = self.replicas.iter().filter_map(silent).collect();
        for id in silent {
            if let Some(replica) = self.replicas.remove(&id) {
                self.keep_use_of(replica.until, id, &replica, true);
            }
        }
        self.gone.retain(|_, gone| {
            gone.retain(|gone| gone.until > now);
            !gone.is_empty()
        });
    }

    /// Keeps what a replica may have used until a time, and if it is silent, what it may use of its
    /// floors.
    fn keep_use_of(&mut self, until: Timestamp, id: ReplicaId, replica: &Replica, is_silent: bool) {
        for (name, part) in replica.parts.iter().filter(|(_, part)| part.held > 0) {
            let floor = if is_silent { part.floor } else { 0 };
            let gone = self.gone.entry(name.clone()).or_default();
            let used = part.held.saturating_sub(floor);
            gone.push(Gone { of: id, until: until + part.counts_for, amount: used });
            let last = until + FLOOR_FOR + part.counts_for;
            gone.push(Gone { of: id, until: last, amount: floor });
            gone.retain(|gone| gone.amount > 0);
        }
        let floor_until = if is_silent { until + FLOOR_FOR } else { Timestamp::EPOCH };
        self.budgets.values_mut().for_each(|budget| budget.left(id, floor_until));
        self.writes.left(until, id);
    }

    fn is_contested_for(&self, id: ReplicaId) -> bool {
        let others = self.replicas.iter().filter(|(other, _)| **other != id);
        let mut parts = others.flat_map(|(_, replica)| replica.parts.values());
        parts.any(|part| part.wants > 0)
            || self.budgets.values().any(|budget| budget.is_wanted_beside(id))
            || self.writes.waiting.iter().any(|other| *other != id)
    }
}

impl Writes {
    fn sync(&mut self, now: Timestamp, id: ReplicaId, report: WritesReport, may_grant: bool) {
        for (last, age) in self.last.iter_mut().zip(report.last) {
            *last = (*last).max(age.map(|age| now - age));
        }
        if self.holder.is_none() && report.wants && report.in_flight {
            // A lost record knew that it has the turn.
            self.waiting.retain(|other| *other != id);
            self.holder = Some(id);
        }
        let is_waiting = self.waiting.contains(&id);
        match (report.wants, self.holder == Some(id)) {
            (false, _) => {
                self.waiting.retain(|other| *other != id);
                self.holder = self.holder.filter(|holder| *holder != id);
            }
            // Others have their turn between two of its writes.
            (true, true) if !report.in_flight && !self.waiting.is_empty() => {
                self.waiting.push(id);
                self.holder = None;
            }
            (true, false) if !is_waiting => self.waiting.push(id),
            (true, _) => {}
        }
        if may_grant && self.holder.is_none() && self.waiting.first() == Some(&id) {
            self.waiting.remove(0);
            self.holder = Some(id);
        }
    }

    /// A replica without a report may have sent a write until this time.
    fn left(&mut self, until: Timestamp, id: ReplicaId) {
        self.waiting.retain(|other| *other != id);
        if self.holder == Some(id) {
            self.holder = None;
            self.last = self.last.map(|last| last.max(Some(until)));
        }
    }
}
