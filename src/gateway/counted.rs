//! Guards of counters: gauges, and the permits of a semaphore.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Guard: adds one to a gauge until it is dropped.
pub struct Counted(Arc<AtomicU64>);

impl Counted {
    pub fn new(number: &Arc<AtomicU64>) -> Self {
        number.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(number))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Grows `held` to `permits` in all; false if the semaphore has too few.
pub fn grow(
    held: &mut Option<OwnedSemaphorePermit>,
    semaphore: &Arc<Semaphore>,
    permits: usize,
) -> bool {
    let have = held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
    let more = permits.saturating_sub(have);
    if more == 0 {
        return true;
    }
    let Ok(more) = u32::try_from(more) else { return false };
    let Ok(more) = Arc::clone(semaphore).try_acquire_many_owned(more) else { return false };
    match held {
        Some(held) => held.merge(more),
        None => *held = Some(more),
    }
    true
}
