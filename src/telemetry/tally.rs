//! One client's requests, waits and gateway errors since the process began (`/api/clients`;
//! SPECIFICATION, "Admin listener").
//!
//! Made from the same [`Outcome`](super::Outcome) as the log line, the metrics and the span. Left
//! out: requests that wait right now, which the gateway counts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// Steps per octave of [`Waits`]: a quantile is at most a quarter too high.
const STEPS: usize = 4;
/// Octaves of [`Waits`], from a millisecond to somewhat more than an hour, the longest window.
const OCTAVES: usize = 22;

#[derive(Default)]
pub(super) struct Tally {
    requests: AtomicU64,
    waits: Waits,
    /// By reason from a closed set.
    refused: Mutex<BTreeMap<&'static str, u64>>,
}

/// Totals of one client.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientFigures {
    /// Requests finished.
    pub requests: u64,
    /// Requests among them that waited for a millisecond or more.
    pub waited: u64,
    /// Sum of their waits.
    pub waited_total: Duration,
    /// Median of their waits, at most a quarter too high.
    pub wait_p50: Duration,
    /// 99th percentile of their waits, at most a quarter too high.
    pub wait_p99: Duration,
    /// Gateway errors by reason.
    pub refused: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// Counts a finished request that waited for `queue`. Without a wait it costs one atomic
    /// increment.
    pub(super) fn request(&self, queue: Duration) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.waits.add(queue);
    }

    pub(super) fn refused(&self, reason: &'static str) {
        *self.refused.lock().entry(reason).or_default() += 1;
    }

    pub(super) fn figures(&self) -> ClientFigures {
        let counts = self.waits.counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        ClientFigures {
            requests: self.requests.load(Ordering::Relaxed),
            waited: counts.iter().sum(),
            waited_total: Duration::from_micros(self.waits.total_us.load(Ordering::Relaxed)),
            wait_p50: quantile(&counts, 50),
            wait_p99: quantile(&counts, 99),
            refused: self.refused.lock().clone(),
        }
    }
}

/// A histogram of waits whose steps grow with the duration.
struct Waits {
    counts: [AtomicU64; STEPS * OCTAVES],
    total_us: AtomicU64,
}

impl Default for Waits {
    fn default() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; STEPS * OCTAVES], total_us: AtomicU64::new(0) }
    }
}

impl Waits {
    fn add(&self, wait: Duration) {
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        if millis > 0 {
            self.counts[step(millis)].fetch_add(1, Ordering::Relaxed);
            let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
            self.total_us.fetch_add(micros, Ordering::Relaxed);
        }
    }
}

/// Returns the step of a duration of at least one millisecond.
fn step(millis: u64) -> usize {
    let octave = millis.ilog2() as usize;
    // The two bits below the highest one.
    let within = usize::try_from((millis << 2 >> octave) & 3).unwrap_or(0);
    if octave < OCTAVES { octave * STEPS + within } else { STEPS * OCTAVES - 1 }
}

/// Returns the longest duration counted in a step.
fn upper_ms(step: usize) -> u64 {
    let (octave, within) = (step / STEPS, (step % STEPS) as u64);
    ((5 + within) << octave).div_ceil(4).saturating_sub(1).max(1)
}

fn quantile(counts: &[u64; STEPS * OCTAVES], percent: u64) -> Duration {
    let wanted = (counts.iter().sum::<u64>() * percent).div_ceil(100).max(1);
    let mut seen = 0;
    let found = counts.iter().position(|count| {
        seen += count;
        seen >= wanted
    });
    found.map_or(Duration::ZERO, |step| Duration::from_millis(upper_ms(step)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_never_too_low_and_at_most_a_quarter_too_high() {
        for millis in (1..5_000).chain([20_000, 59_999, 60_000, 3_599_999, 4_000_000]) {
            let upper = upper_ms(step(millis));
            assert!(
                upper >= millis && upper * 4 <= millis * 5,
                "{millis} ms is told as {upper} ms"
            );
        }
    }

    #[test]
    fn steps_follow_one_another() {
        let mut last = 0;
        for millis in 1..100_000 {
            let step = step(millis);
            assert!(step >= last, "{millis}");
            last = step;
        }
        assert_eq!(step(u64::MAX), STEPS * OCTAVES - 1);
    }

    #[test]
    fn figures_have_the_median_and_the_99th_percentile() {
        let tally = Tally::default();
        for _ in 0..98 {
            tally.request(Duration::from_millis(10));
        }
        tally.request(Duration::from_secs(20));
        tally.request(Duration::from_secs(20));
        tally.request(Duration::ZERO);
        tally.refused("primary");
        let figures = tally.figures();
        assert_eq!((figures.requests, figures.waited), (101, 100));
        assert_eq!(figures.waited_total, Duration::from_millis(98 * 10 + 40_000));
        assert!(
            figures.wait_p50 < Duration::from_millis(13)
                && figures.wait_p99 >= Duration::from_secs(20),
            "{figures:?}"
        );
        assert_eq!(figures.refused, BTreeMap::from([("primary", 1)]));
    }

    #[test]
    fn a_client_without_waits_has_zero_quantiles() {
        let tally = Tally::default();
        tally.request(Duration::ZERO);
        assert_eq!(tally.figures(), ClientFigures { requests: 1, ..ClientFigures::default() });
    }
}
