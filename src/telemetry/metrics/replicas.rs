//! Figures about the state that replicas of the gateway share.

use std::sync::LazyLock;
use std::time::Duration;

use super::{Count, Level, Metrics, Series, counts, set, single};
use crate::telemetry::labels::{PartLabels, ResultLabels};
use crate::telemetry::names::Metric;
use crate::telemetry::registry::{Counter, Gauge, Histogram, Layout, Registry};

/// Upper bounds in seconds: Redis answers in a millisecond, and is given up after 50 ms.
const SYNC_BUCKETS_S: [f64; 9] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25];
static SYNC_LAYOUT: LazyLock<Layout> = LazyLock::new(|| Layout::new(&SYNC_BUCKETS_S));

/// See the module.
pub(super) struct ReplicaFigures {
    syncs: Count<ResultLabels>,
    conflicts: Counter,
    sync_duration: Histogram,
    leases_lost: Counter,
    parts: Level<PartLabels>,
    heard: Gauge,
    far_lookups: Count<ResultLabels>,
    writes_taken_over: Counter,
    is_up: Gauge,
}

impl ReplicaFigures {
    /// Drops the parts before a scrape sets them anew.
    pub fn clear(&self) {
        self.parts.clear();
    }

    pub fn registered(registry: &mut Registry) -> Self {
        let sync_duration = Histogram::new(&SYNC_LAYOUT);
        registry.single(Metric::ReplicaSyncSeconds, sync_duration.clone());
        Self {
            syncs: counts(registry, Metric::ReplicaSyncsTotal),
            conflicts: single(registry, Metric::ReplicaSyncConflictsTotal),
            sync_duration,
            leases_lost: single(registry, Metric::ReplicaLeasesLostTotal),
            parts: Series::new(registry, Metric::ReplicaPart, Gauge::default),
            heard: single(registry, Metric::ReplicasHeard),
            far_lookups: counts(registry, Metric::FarLookupsTotal),
            writes_taken_over: single(registry, Metric::WritesTakenOverTotal),
            is_up: single(registry, Metric::RedisUp),
        }
    }
}

impl Metrics {
    /// Counts a report to the shared record of an account. `result` comes from a closed set:
    /// `answered`, `late` or `away`.
    pub fn synced(&self, result: &'static str, conflicts: u32, took: Duration) {
        let figures = &self.counts.replicas;
        figures.syncs.of(&ResultLabels { result }).inc();
        figures.conflicts.inc_by(conflicts.into());
        figures.sync_duration.observe(took.as_secs_f64());
    }

    /// Counts accounts whose parts have ended without an answer.
    pub fn leases_lost(&self, accounts: u64) {
        self.counts.replicas.leases_lost.inc_by(accounts);
    }

    /// Sets the part of an account's limit that this replica holds, in the limit's own unit.
    pub fn set_part(&self, account: &str, limit: &str, held: u64) {
        let labels = PartLabels { account: account.into(), limit: limit.into() };
        set(&self.counts.replicas.parts, &labels, held);
    }

    /// Sets the number of replicas that were heard.
    pub fn set_replicas_heard(&self, heard: u64) {
        self.counts.replicas.heard.set(heard);
    }

    /// Counts a look for an answer that another replica has. `result` comes from a closed set:
    /// `answer`, `copy` or `nothing`.
    pub fn looked_far(&self, result: &'static str) {
        self.counts.replicas.far_lookups.of(&ResultLabels { result }).inc();
    }

    /// Counts a queued write of a replica that is gone.
    pub fn write_taken_over(&self) {
        self.counts.replicas.writes_taken_over.inc();
    }

    /// Sets whether the shared state is in reach.
    pub fn set_redis_up(&self, is_up: bool) {
        self.counts.replicas.is_up.set(is_up.into());
    }
}
