//! Several replicas of the gateway, one set of limits: each replica holds a part of every capacity
//! that it uses, and decides inside its parts alone.
//!
//! A capacity is what a limit grants: slots, points of an endpoint in a minute, units of a budget
//! until its reset. The sum of all parts, and of what replicas that are gone may have used, never
//! exceeds it. The parts of one account stand in a [`Record`], which the replicas change one after
//! the other. A replica says what it uses, gives back what it does not need, and gets more as far
//! as there is more ([`Record::sync`]).
//!
//! - **Times** in reports and answers are spans, because the clocks of replicas differ. Only the
//!   resets of budgets are times, by the replica's clock. The record keeps them by its own.
//! - **A part lasts** for [`HELD_FOR`] after the report that it answers. A replica that hears
//!   nothing for so long uses no more of it. Its part stays taken for as long as the limit counts
//!   what it may have sent until then. After that it may use a small floor for [`FLOOR_FOR`].
//! - **A budget's part** bounds what a replica spends until the reset, and lasts as long. What is
//!   spent beyond all parts was spent by other consumers.
//! - **A lost answer** is harmless: the record then says more than the replica believes, until its
//!   next report. A report that comes late changes nothing, because reports are numbered.

mod budget;
mod record;

use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

pub use budget::{Budget, Sight, WOBBLE};
pub use record::Record;

/// The time for which a replica may use its parts without another answer. Ours: twenty times the
/// usual distance of two reports.
pub const HELD_FOR: Duration = Duration::from_secs(10);

/// The longest time between two reports of a replica on an account of which it holds or has used
/// something. Ours: long beside an operation of the store, and a part lasts for ten of them.
pub const REPORTED_WITHIN: Duration = Duration::from_secs(1);

/// The time for which a replica without an answer may use its floors, after the end of its parts.
/// Ours: long enough for the repair of a store, and a lost replica's floors are soon free again.
pub const FLOOR_FOR: Duration = Duration::from_mins(10);
/// A floor is a limit divided by the most replicas and by this. Ours: what lost replicas may still
/// use must be little.
const FLOOR_PART: u32 = 10;

/// One replica, for the life of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReplicaId(pub u64);

/// A replica's use of one capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// The part that it goes on to hold; never less than what is in use.
    pub held: u32,
    /// Amount in use.
    pub in_use: u32,
    /// Amount that it would use beside what it holds.
    pub wants: u32,
}

/// A part that was granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Amount that the replica holds in the record.
    pub held: u32,
    /// Amount up to which it may take more. It is less than `held` where others want a part that
    /// this replica still uses.
    pub bound: u32,
}

/// A part in a record, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldPart {
    /// Name of the capacity, or `budget` and the resource.
    pub limit: String,
    /// Its holder.
    pub replica: ReplicaId,
    /// Amount that it holds.
    pub held: u32,
    /// Amount in use at its last report.
    pub in_use: u32,
    /// Amount that it wants beside.
    pub wants: u32,
    /// Time of its last report; `None` for one that is silent or has left.
    pub reported_at: Option<Timestamp>,
}

/// A capacity that use frees after a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapacityReport {
    /// Name of the capacity, equal for all replicas.
    pub name: String,
    /// The whole capacity, by the replica's config.
    pub max: u32,
    /// The amount that the replica may use without an answer.
    pub floor: u32,
    /// The time for which use counts after it has ended.
    pub counts_for: Duration,
    /// Use by the replica.
    pub usage: Use,
}

/// A primary budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetReport {
    /// Name of the resource.
    pub resource: String,
    /// The window as the replica's answers have shown it; the usage belongs to it.
    pub seen: Option<Sight>,
    /// True if the upstream counts no such budget.
    pub is_unmetered: bool,
    /// Units to be left to others, by the replica's config.
    pub reserve: u32,
    /// The units of each window that the replica may use without an answer.
    pub floor: u32,
    /// Units that the replica has spent in this window, with its requests in flight.
    pub usage: Use,
    /// Units of its requests in flight, which an upstream may count in the next window.
    pub in_flight: u32,
    /// True if it would send a request that shows an unknown window.
    pub wants_probe: bool,
    /// Rest of a closure by an upstream limit.
    pub closed_for: Duration,
}

/// What one replica says of an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of the report among those of its replica.
    pub number: u64,
    /// Time of the report by the replica's clock, like the resets in it and in its answer.
    pub at: Timestamp,
    /// The capacities in use, or wanted.
    pub capacities: Vec<CapacityReport>,
    /// The budgets in use, or wanted.
    pub budgets: Vec<BudgetReport>,
    /// Rest of the cooldown after a secondary limit.
    pub cooldown: Duration,
    /// Its spaced writes.
    pub writes: WritesReport,
}

/// What one replica says of an account's spaced writes. One replica at a time sends them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WritesReport {
    /// True if it has writes to send, or one in flight.
    pub wants: bool,
    /// True if one is in flight.
    pub in_flight: bool,
    /// Age of its last write, and of its last one that notifies.
    pub last: [Option<Duration>; 2],
}

/// What a replica learns of an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Its part of each capacity that it reported, in the same order.
    pub capacities: Vec<Part>,
    /// The same of each budget.
    pub budgets: Vec<BudgetAnswer>,
    /// Rest of the cooldown after a secondary limit on any replica.
    pub cooldown: Duration,
    /// True if it may send spaced writes.
    pub may_write: bool,
    /// Age of the last write of any replica, and of the last one that notifies.
    pub last_writes: [Option<Duration>; 2],
    /// True if another replica wants more than it got.
    pub is_contested: bool,
}

/// What a replica learns of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetAnswer {
    /// The window as any replica has seen it.
    pub seen: Option<Sight>,
    /// True if the upstream counts no such budget.
    pub is_unmetered: bool,
    /// The part of this window.
    pub part: Part,
    /// True if the replica may send requests that show an unknown window.
    pub may_probe: bool,
    /// Rest of a closure by an upstream limit.
    pub closed_for: Duration,
}

/// Returns the floor of a limit.
pub fn floor(max: u32, replicas_max: NonZeroU32) -> u32 {
    let floor = max / replicas_max.get().saturating_mul(FLOOR_PART);
    floor.max(1).min(max / replicas_max)
}

/// Returns the end of a span that begins now.
fn end_of(now: Timestamp, span: Duration) -> Timestamp {
    if span.is_zero() { Timestamp::EPOCH } else { now + span }
}

/// Returns this replica's part of an amount, by what it and the others want. It gets at least one
/// unit, so that the last one is used too.
fn fair_part(amount: u32, own: u32, others: u64) -> u32 {
    if amount == 0 || own == 0 {
        return 0;
    }
    let part = u64::from(amount) * u64::from(own) / (u64::from(own) + others);
    u32::try_from(part).unwrap_or(u32::MAX).clamp(1, amount)
}

#[cfg(test)]
mod tests;
