//! Counts of the export by OTLP since the process began, for `/metrics`.
//!
//! Static, because the export begins before the metrics exist.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Signal;

static DROPPED: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
static SENT: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
static FAILED: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// Counts spans or log records that were dropped.
pub(super) fn drop_records(signal: Signal, records: u64) {
    DROPPED[signal as usize].fetch_add(records, Ordering::Relaxed);
}

/// Counts an export that the collector took.
pub(super) fn sent(signal: Signal) {
    SENT[signal as usize].fetch_add(1, Ordering::Relaxed);
}

/// Counts an export that the collector did not take.
pub(super) fn failed(signal: Signal) {
    FAILED[signal as usize].fetch_add(1, Ordering::Relaxed);
}

/// Returns the number of spans or log records that were dropped.
pub(in crate::telemetry) fn dropped(signal: Signal) -> u64 {
    DROPPED[signal as usize].load(Ordering::Relaxed)
}

/// Returns the number of exports by result.
pub(in crate::telemetry) fn exports(signal: Signal) -> [(&'static str, u64); 2] {
    let read = |counts: &[AtomicU64; 3]| counts[signal as usize].load(Ordering::Relaxed);
    [("sent", read(&SENT)), ("failed", read(&FAILED))]
}
