//! A metric family of bounded size.
//!
//! Closed sets bound each label, but their product may be millions. Beyond [`SERIES_MAX`] label
//! sets, new ones share one overflow label set, so that sums stay right. A gauge cannot be summed;
//! one without room is omitted. Left out: the labels (`labels`).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use super::labels::LabelSet;
use super::registry::{Measured, Named, Point, Registry};

/// Labels are names from the config and words of closed sets, so no outsider can choose them to
/// collide.
type Hasher = foldhash::fast::RandomState;

/// Most label sets of one family. At some 250 bytes each in memory and 120 in the text, a full
/// family takes 5 MB and 2.4 MB, which a scrape survives. A gateway with 20 clients that use 50
/// endpoints each stays below half of it.
pub(super) const SERIES_MAX: usize = 20_000;

/// A family of at most [`SERIES_MAX`] label sets and the overflow. A clone is the same family.
pub(super) struct Series<S, M>(Arc<Family<S, M>>);

struct Family<S, M> {
    metrics: RwLock<HashMap<S, M, Hasher>>,
    constructor: fn() -> M,
    max: usize,
}

impl<S, M> Clone for Series<S, M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: LabelSet, M: Measured> Series<S, M> {
    /// Creates a family in `registry`.
    pub(super) fn new(registry: &mut Registry, metric: impl Named, constructor: fn() -> M) -> Self {
        Self::unregistered(constructor, SERIES_MAX).registered(registry, metric)
    }

    /// Creates a family of at most `max` label sets that no registry reads yet.
    pub(super) fn unregistered(constructor: fn() -> M, max: usize) -> Self {
        Self(Arc::new(Family { metrics: RwLock::default(), constructor, max }))
    }

    /// Adds the family to `registry` and returns it.
    fn registered(self, registry: &mut Registry, metric: impl Named) -> Self {
        let read = self.clone();
        registry.of_kind(metric, M::KIND, move || {
            let point =
                |(labels, metric): (S, M)| Point { labels: labels.labels(), value: metric.value() };
            read.entries().into_iter().map(point).collect()
        });
        self
    }

    /// Returns the handles of all label sets. The values are read without the lock.
    pub(super) fn entries(&self) -> Vec<(S, M)> {
        let metrics = self.0.metrics.read();
        metrics.iter().map(|(labels, metric)| (labels.clone(), metric.clone())).collect()
    }

    /// Returns the metric of a label set: a handle that stays valid. An existing one costs a hash,
    /// a read lock and an atomic increment.
    pub(super) fn of(&self, labels: &S) -> M {
        self.fitting(labels).unwrap_or_else(|| {
            let mut metrics = self.0.metrics.write();
            metrics.entry(S::overflow()).or_insert_with(self.0.constructor).clone()
        })
    }

    /// Like [`Series::of`]; `None` when a new label set has no room.
    pub(super) fn fitting(&self, labels: &S) -> Option<M> {
        {
            let metrics = self.0.metrics.read();
            if let Some(metric) = metrics.get(labels) {
                return Some(metric.clone());
            }
            if self.is_full(&metrics) {
                return None;
            }
        }
        let mut metrics = self.0.metrics.write();
        if let Some(metric) = metrics.get(labels) {
            return Some(metric.clone());
        }
        if self.is_full(&metrics) {
            return None;
        }
        let metric = (self.0.constructor)();
        metrics.insert(labels.clone(), metric.clone());
        Some(metric)
    }

    /// The overflow has a place of its own.
    fn is_full(&self, metrics: &HashMap<S, M, Hasher>) -> bool {
        let made = metrics.len();
        made >= self.0.max && (made > self.0.max || !metrics.contains_key(&S::overflow()))
    }

    /// Removes every label set, so that what no longer exists is no longer shown.
    pub(super) fn clear(&self) {
        self.0.metrics.write().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::labels::ReasonLabels;
    use crate::telemetry::names::Metric;
    use crate::telemetry::registry::{Counter, TextFormat};

    const REASONS: [&str; 4] = ["/a", "/b", "/c", "/d"];

    #[test]
    fn a_full_family_counts_new_label_sets_as_overflow() {
        let mut registry = Registry::default();
        let series = Series::<ReasonLabels, Counter>::unregistered(Counter::default, 2)
            .registered(&mut registry, Metric::RequestsTotal);
        for reason in REASONS {
            series.of(&ReasonLabels { reason }).inc();
        }
        series.of(&ReasonLabels { reason: "/a" }).inc();

        let text = registry.snapshot().text(TextFormat::OpenMetrics);
        assert!(text.contains("{reason=\"/a\"} 2\n"), "{text}");
        assert!(text.contains("{reason=\"_overflow\"} 2\n"), "{text}");
        assert!(!text.contains("/c") && !text.contains("/d"), "{text}");
    }

    #[test]
    fn a_full_family_has_no_room_for_a_new_gauge() {
        let series = Series::<ReasonLabels, Counter>::unregistered(Counter::default, 2);
        let has_room = REASONS.map(|reason| series.fitting(&ReasonLabels { reason }).is_some());
        assert_eq!(has_room, [true, true, false, false]);
        assert!(series.fitting(&ReasonLabels { reason: "/a" }).is_some(), "what is there stays");
    }

    #[test]
    fn a_cleared_family_has_room_again() {
        let series = Series::<ReasonLabels, Counter>::unregistered(Counter::default, 1);
        series.of(&ReasonLabels { reason: "/a" });
        series.clear();
        series.of(&ReasonLabels { reason: "/b" }).inc();
        let left = series.entries();
        let [(labels, counter)] = left.as_slice() else { panic!("one label set: {left:?}") };
        assert_eq!((labels.reason, counter.get()), ("/b", 1));
    }
}
