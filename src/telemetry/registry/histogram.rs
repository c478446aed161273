//! A histogram that is read in two forms from one tally: with the explicit bounds of `/metrics`,
//! and with the exponential buckets of OTLP.
//!
//! Its buckets lie between the bounds of both forms, so that each form is an exact sum of them. An
//! observation is one atomic increment and one addition; it takes no lock, unless it belongs to a
//! trace. Left out: the smallest and the largest observation.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::{Kind, Measured, Value};
use crate::clock::machine_micros;
use crate::telemetry::trace_ids::TraceIds;

/// Scale of the exponential buckets: eight to a power of two, so that a quantile is at most 4.5 %
/// off.
pub(crate) const SCALE: i32 = 3;
/// Exponential buckets to a power of two.
const STEPS: i32 = 1 << SCALE;
/// Observations up to 2^-20, about a microsecond, count as zero.
const LEAST_EXPONENT: i32 = -20;
/// Largest bound: 2^17 seconds, more than a day.
const MOST_EXPONENT: i32 = 17;
/// Buckets that are allocated together: those of two powers of two.
const CHUNK: usize = 16;

/// The bounds of a histogram in both forms.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Upper bounds of `/metrics`, without infinity.
    pub explicit: Vec<f64>,
    /// Upper bounds of the buckets; one more bucket has all above.
    edges: Vec<f64>,
    /// For each bucket its place among the explicit bounds; their number stands for infinity.
    explicit_of: Vec<usize>,
    /// For each bucket its exponential one; `None` stands for zero.
    exponential_of: Vec<Option<i32>>,
}

impl Layout {
    /// Creates the buckets for these explicit bounds, in ascending order.
    pub fn new(explicit: &[f64]) -> Self {
        let exponents = LEAST_EXPONENT * STEPS..=MOST_EXPONENT * STEPS;
        let exponential: Vec<(f64, i32)> = exponents.map(|step| (bound(step), step)).collect();
        let mut edges: Vec<f64> = exponential.iter().map(|(edge, _)| *edge).collect();
        edges.extend(explicit);
        edges.sort_by(f64::total_cmp);
        edges.dedup();
        let infinite = edges.iter().copied().chain([f64::INFINITY]);
        let explicit_of =
            infinite.clone().map(|edge| explicit.partition_point(|bound| *bound < edge)).collect();
        let exponential_of = infinite.map(|edge| {
            let place = exponential.partition_point(|(bound, _)| *bound < edge);
            // The bucket with the index i lies between the bounds of i and of i + 1.
            let above = exponential.get(place).map_or(MOST_EXPONENT * STEPS, |(_, step)| step - 1);
            (place > 0).then_some(above)
        });
        Self {
            explicit: explicit.to_vec(),
            exponential_of: exponential_of.collect(),
            explicit_of,
            edges,
        }
    }

    fn bucket_of(&self, value: f64) -> usize {
        self.edges.partition_point(|edge| *edge < value)
    }
}

/// Returns the bound of an exponential bucket; exact for a power of two.
fn bound(step: i32) -> f64 {
    let whole = f64::from(step.div_euclid(STEPS)).exp2();
    whole * (f64::from(step.rem_euclid(STEPS)) / f64::from(STEPS)).exp2()
}

/// An observation with its trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Exemplar {
    /// The trace.
    pub ids: TraceIds,
    /// The observation.
    pub value: f64,
    /// Microseconds since the epoch.
    pub micros: u64,
}

type Chunk = [AtomicU64; CHUNK];
type Exemplars = Box<[Mutex<Option<Exemplar>>]>;

#[derive(Debug)]
struct Tally {
    layout: &'static Layout,
    chunks: Box<[OnceLock<Box<Chunk>>]>,
    /// The bits of the sum.
    sum: AtomicU64,
    /// The latest for each explicit bound, once there was one.
    exemplars: OnceLock<Exemplars>,
}

/// See the module. A clone counts into the same buckets.
#[derive(Clone, Debug)]
pub(crate) struct Histogram(Arc<Tally>);

impl Histogram {
    /// Creates an empty histogram.
    pub fn new(layout: &'static Layout) -> Self {
        let chunks = (layout.edges.len() + 1).div_ceil(CHUNK);
        Self(Arc::new(Tally {
            layout,
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
            sum: AtomicU64::new(0.0_f64.to_bits()),
            exemplars: OnceLock::new(),
        }))
    }

    /// Adds an observation.
    pub fn observe(&self, value: f64) {
        self.add(value, self.0.layout.bucket_of(value));
    }

    /// Adds an observation, and keeps its trace as an example of its bucket if the spans of the
    /// trace are exported.
    pub fn observe_traced(&self, value: f64, trace: Option<&TraceIds>) {
        let layout = self.0.layout;
        let bucket = layout.bucket_of(value);
        self.add(value, bucket);
        let Some(ids) = trace.filter(|ids| ids.is_sampled) else { return };
        let exemplars = self
            .0
            .exemplars
            .get_or_init(|| (0..=layout.explicit.len()).map(|_| Mutex::new(None)).collect());
        let place = layout.explicit_of.get(bucket).and_then(|place| exemplars.get(*place));
        // An example may be lost, a request may not wait for one.
        let Some(mut kept) = place.and_then(|place| place.try_lock()) else { return };
        *kept = Some(Exemplar { ids: *ids, value, micros: machine_micros() });
    }

    fn add(&self, value: f64, bucket: usize) {
        let Some(chunk) = self.0.chunks.get(bucket / CHUNK) else { return };
        let chunk = chunk.get_or_init(|| Box::new([const { AtomicU64::new(0) }; CHUNK]));
        chunk[bucket % CHUNK].fetch_add(1, Ordering::Relaxed);
        let added = |sum| Some((f64::from_bits(sum) + value).to_bits());
        // Always succeeds, because `added` does.
        let _ = self.0.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added);
    }

    /// Reads the buckets.
    pub fn buckets(&self) -> Buckets {
        let layout = self.0.layout;
        let counts = (0..=layout.edges.len()).map(|bucket| {
            let chunk = self.0.chunks.get(bucket / CHUNK).and_then(OnceLock::get);
            chunk.map_or(0, |chunk| chunk[bucket % CHUNK].load(Ordering::Relaxed))
        });
        let exemplars = self.0.exemplars.get().map_or_else(Vec::new, |exemplars| {
            exemplars.iter().map(|exemplar| *exemplar.lock()).collect()
        });
        Buckets {
            layout,
            counts: counts.collect(),
            sum: f64::from_bits(self.0.sum.load(Ordering::Relaxed)),
            exemplars,
        }
    }
}

impl Measured for Histogram {
    const KIND: Kind = Kind::Histogram;

    fn value(&self) -> Value {
        Value::Buckets(self.buckets())
    }
}

/// A histogram at one moment, or the difference of two moments.
#[derive(Clone, Debug)]
pub(crate) struct Buckets {
    layout: &'static Layout,
    counts: Vec<u64>,
    /// Sum of the observations.
    pub sum: f64,
    /// By explicit bound; empty without any.
    pub exemplars: Vec<Option<Exemplar>>,
}

/// The exponential form.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Exponential {
    /// Observations up to [`Exponential::zero_threshold`].
    pub zeros: u64,
    /// Index of the first bucket.
    pub offset: i32,
    /// From the first to the last bucket that has any.
    pub counts: Vec<u64>,
}

impl Buckets {
    /// Returns the number of observations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns each explicit bound, the last being infinite, with the observations since the bound
    /// before.
    pub fn explicit(&self) -> Vec<(f64, u64)> {
        let bounds = self.layout.explicit.iter().copied().chain([f64::INFINITY]);
        let mut buckets: Vec<(f64, u64)> = bounds.map(|bound| (bound, 0)).collect();
        for (place, count) in self.layout.explicit_of.iter().zip(&self.counts) {
            if let Some((_, sum)) = buckets.get_mut(*place) {
                *sum += count;
            }
        }
        buckets
    }

    /// Returns the exponential form, at [`SCALE`].
    pub fn exponential(&self) -> Exponential {
        let mut form = Exponential { zeros: 0, offset: 0, counts: Vec::new() };
        for (index, count) in self.layout.exponential_of.iter().zip(&self.counts) {
            let Some(index) = index else {
                form.zeros += count;
                continue;
            };
            if form.counts.is_empty() {
                if *count == 0 {
                    continue;
                }
                form.offset = *index;
            }
            let place = usize::try_from(index - form.offset).unwrap_or_default();
            if form.counts.len() <= place {
                form.counts.resize(place + 1, 0);
            }
            form.counts[place] += count;
        }
        let used = form.counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        form.counts.truncate(used);
        form
    }

    /// Adds the observations of another with the same bounds.
    pub fn merge(&mut self, other: Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum += other.sum;
        if self.exemplars.is_empty() {
            self.exemplars = other.exemplars;
            return;
        }
        for (kept, more) in self.exemplars.iter_mut().zip(other.exemplars) {
            let at = |exemplar: &Option<Exemplar>| exemplar.as_ref().map(|one| one.micros);
            if at(&more) > at(kept) {
                *kept = more;
            }
        }
    }

    /// Returns the observations since an earlier moment.
    pub fn since(&self, earlier: &Self) -> Self {
        let counts = self.counts.iter().zip(&earlier.counts);
        // Examples are those since then.
        let last = earlier.exemplars.iter().flatten().map(|one| one.micros).max().unwrap_or(0);
        let is_new = |one: &Exemplar| one.micros > last;
        let exemplars = self.exemplars.iter().map(|one| one.filter(is_new));
        Self {
            layout: self.layout,
            counts: counts.map(|(now, then)| now.saturating_sub(*then)).collect(),
            sum: self.sum - earlier.sum,
            exemplars: exemplars.collect(),
        }
    }
}

impl Exponential {
    /// Observations up to this count as zero.
    pub fn zero_threshold() -> f64 {
        f64::from(LEAST_EXPONENT).exp2()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    static LAYOUT: LazyLock<Layout> = LazyLock::new(|| Layout::new(&[0.0, 0.001, 0.5, 1.0, 30.0]));

    fn trace(number: u8) -> TraceIds {
        TraceIds { trace: [number; 16], span: Some([number; 8]), is_sampled: true }
    }

    fn observed(values: &[f64]) -> Buckets {
        let histogram = Histogram::new(&LAYOUT);
        for value in values {
            histogram.observe(*value);
        }
        histogram.buckets()
    }

    #[test]
    fn explicit_bounds_are_inclusive() {
        let buckets = observed(&[0.0, 0.001, 0.0011, 0.5, 1.0, 1.0001, 30.0, 1e6]);
        let counts: Vec<u64> = buckets.explicit().iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [1, 1, 2, 1, 2, 1]);
        assert_eq!(buckets.count(), 8);
        assert!((buckets.sum - 1_000_032.502_2).abs() < 1e-6, "{}", buckets.sum);
    }

    #[test]
    fn exponential_buckets_contain_their_observations() {
        for value in [0.000_002, 0.0011, 0.3, 1.0, 1.0001, 1.5, 2.0, 86_000.0] {
            let form = observed(&[value]).exponential();
            assert_eq!((form.zeros, form.counts.as_slice()), (0, [1].as_slice()), "{value}");
            let (below, above) = (bound(form.offset), bound(form.offset + 1));
            assert!(below < value && value <= above, "{value} between {below} and {above}");
        }
        let form = observed(&[0.0, 1e-7]).exponential();
        assert_eq!((form.zeros, form.counts.len()), (2, 0));
    }

    #[test]
    fn both_forms_count_the_same_observations() {
        let values: Vec<f64> = (0..2_000).map(|number| f64::from(number).powi(2) / 1e4).collect();
        let buckets = observed(&values);
        let form = buckets.exponential();
        let explicit: u64 = buckets.explicit().iter().map(|(_, count)| count).sum();
        assert_eq!(explicit, 2_000);
        assert_eq!(form.zeros + form.counts.iter().sum::<u64>(), 2_000);
        assert!(form.counts.len() > 100, "{}", form.counts.len());
    }

    #[test]
    fn a_difference_has_the_new_observations_alone() {
        let histogram = Histogram::new(&LAYOUT);
        histogram.observe_traced(0.2, Some(&trace(1)));
        let earlier = histogram.buckets();
        histogram.observe_traced(20.0, Some(&trace(2)));
        let difference = histogram.buckets().since(&earlier);
        assert_eq!(difference.count(), 1);
        assert!((difference.sum - 20.0).abs() < 1e-9, "{}", difference.sum);
        assert!(difference.exemplars[2].is_none(), "{difference:?}");
    }

    #[test]
    fn a_merge_keeps_the_sums_and_the_latest_examples() {
        let histograms = [Histogram::new(&LAYOUT), Histogram::new(&LAYOUT)];
        histograms[0].observe_traced(0.2, Some(&trace(1)));
        histograms[1].observe(0.3);
        let [mut merged, other] = histograms.each_ref().map(Histogram::buckets);
        merged.merge(other);
        assert_eq!((merged.count(), merged.explicit()[2]), (2, (0.5, 2)));
        assert_eq!(merged.exemplars[2].unwrap().ids, trace(1));
    }

    #[test]
    fn a_trace_that_is_not_exported_is_no_example() {
        let histogram = Histogram::new(&LAYOUT);
        histogram.observe_traced(0.2, Some(&TraceIds { is_sampled: false, ..trace(1) }));
        let buckets = histogram.buckets();
        assert_eq!((buckets.count(), buckets.exemplars.iter().flatten().count()), (1, 0));
    }
}
