//! What a measurement asks of the system about its own process.

use std::time::Duration;

use weir::clock::{Clock, Timestamp};

/// Time that this process was on a core, so that a busy machine does not spoil the figures; where
/// the system does not tell it, the clock's.
pub fn busy(clock: &Clock) -> Duration {
    let told = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanos = told.split_whitespace().next().and_then(|first| first.parse().ok());
    nanos.map_or_else(|| clock.now().since(Timestamp::EPOCH), Duration::from_nanos)
}
