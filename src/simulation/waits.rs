//! Waiting times in buckets: percentiles over many runs in bounded memory.

/// Buckets per doubling: a percentile is at most a 32nd too low.
const PARTS: u64 = 32;
/// Doublings above [`PARTS`]: enough for 2^37 ms, four years.
const DOUBLINGS: usize = 32;

/// Waiting times in milliseconds.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Waits {
    /// Adds a wait.
    pub fn add(&mut self, millis: u64) {
        let bucket = bucket_of(millis);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.total += 1;
        self.max = self.max.max(millis);
    }

    /// Adds the waits of another run.
    pub fn merge(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    /// Returns a percentile in milliseconds; 0 without waits.
    pub fn percentile(&self, of_hundred: u64) -> u64 {
        let wanted = (self.total * of_hundred).div_ceil(100).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map_or(0, start_of)
    }

    /// Returns the longest wait in milliseconds.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns the number of waits.
    pub fn count(&self) -> u64 {
        self.total
    }
}

/// Exact below [`PARTS`]; above, [`PARTS`] buckets per doubling.
fn bucket_of(millis: u64) -> usize {
    let doubling =
        (millis / PARTS).checked_ilog2().map_or(0, |log| log as usize + 1).min(DOUBLINGS);
    let first = doubling * 32;
    if doubling == 0 {
        return usize::try_from(millis).unwrap_or(0);
    }
    let width = 1_u64 << (doubling - 1);
    let within = (millis - PARTS * width) / width;
    first + usize::try_from(within.min(PARTS - 1)).unwrap_or(0)
}

fn start_of(bucket: usize) -> u64 {
    let (doubling, within) = (bucket / 32, (bucket % 32) as u64);
    if doubling == 0 { within } else { (PARTS + within) << (doubling - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_starts_at_most_a_32nd_below_its_values() {
        for millis in (0..5_000).chain([30_000, 59_999, 3_600_000, 86_400_000]) {
            let start = start_of(bucket_of(millis));
            assert!(start <= millis && millis - start <= millis / 32, "{millis} begins at {start}");
        }
    }

    #[test]
    fn merged_waits_have_the_percentiles_of_both_runs() {
        let (mut one, mut other) = (Waits::default(), Waits::default());
        (1..=50).for_each(|millis| one.add(millis));
        (51..=100).for_each(|millis| other.add(millis));
        one.merge(&other);
        assert_eq!((one.count(), one.max(), one.percentile(50)), (100, 100, 50));
        assert!((96..=99).contains(&one.percentile(99)));
        assert_eq!(Waits::default().percentile(99), 0);
    }
}
