//! A counter guard for gauges.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
