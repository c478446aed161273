//! A metric family of bounded size.
//!
//! Closed sets bound each label, but their product may be millions. Beyond [`SERIES_MAX`] label
//! sets, new ones share one overflow label set, so that sums stay right. A gauge cannot be summed;
//! one without room is omitted. Left out: the labels (`labels`).

use std::fmt::Debug;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeMetric;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::registry::Registry;

use super::labels::LabelSet;
use super::names::Metric;

/// Most label sets of one family. At some 250 bytes each in memory and 120 in the text, a full
/// family takes 5 MB and 2.4 MB, which a scrape survives. A gateway with 20 clients that use 50
/// endpoints each stays below half of it.
pub(super) const SERIES_MAX: usize = 20_000;

/// A family of at most [`SERIES_MAX`] label sets and the overflow.
pub(super) struct Series<S, M, C = fn() -> M> {
    family: Family<S, M, C>,
    /// Number of label sets. The lock also serialises their creation.
    made: Mutex<usize>,
    max: usize,
}

impl<S: LabelSet, M: Clone + Debug + Send + Sync + 'static> Series<S, M>
where
    Family<S, M, fn() -> M>: EncodeMetric + TypedMetric,
{
    /// Creates a family in `registry`.
    pub(super) fn new(registry: &mut Registry, metric: Metric, constructor: fn() -> M) -> Self {
        Self::with_max(constructor, SERIES_MAX).registered(registry, metric)
    }
}

impl<S: LabelSet, M: Clone, C: MetricConstructor<M> + Clone> Series<S, M, C> {
    fn with_max(constructor: C, max: usize) -> Self {
        Self { family: Family::new_with_constructor(constructor), made: Mutex::new(0), max }
    }

    /// Adds the family to `registry` and returns it.
    pub(super) fn registered(self, registry: &mut Registry, metric: Metric) -> Self
    where
        Family<S, M, C>: EncodeMetric + TypedMetric,
        M: Send + Sync + Debug + 'static,
        C: Send + Sync + 'static,
    {
        registry.register(metric.registered_name(), metric.help(), self.family.clone());
        self
    }

    /// Returns the metric of a label set: a handle that stays valid. An existing one costs a hash,
    /// a read lock and an atomic increment.
    pub(super) fn of(&self, labels: &S) -> M {
        self.fitting(labels).unwrap_or_else(|| self.family.get_or_create_owned(&S::overflow()))
    }

    /// Like [`Series::of`]; `None` when a new label set has no room.
    pub(super) fn fitting(&self, labels: &S) -> Option<M> {
        if let Some(metric) = self.family.get(labels) {
            return Some(metric.clone());
        }
        let mut made = self.made.lock();
        if let Some(metric) = self.family.get(labels) {
            return Some(metric.clone());
        }
        if *made >= self.max {
            return None;
        }
        *made += 1;
        Some(self.family.get_or_create_owned(labels))
    }

    /// Removes every label set, so that what no longer exists is no longer shown.
    pub(super) fn clear(&self) {
        let mut made = self.made.lock();
        self.family.clear();
        *made = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::labels::EndpointLabels;
    use super::*;
    use prometheus_client::metrics::counter::Counter;

    const TEMPLATES: [&str; 4] = ["/a", "/b", "/c", "/d"];

    #[test]
    fn a_full_family_counts_new_label_sets_as_overflow() {
        let mut registry = Registry::default();
        let series = Series::<EndpointLabels, Counter>::with_max(Counter::default, 2)
            .registered(&mut registry, Metric::RequestsTotal);
        for endpoint in TEMPLATES {
            series.of(&EndpointLabels { endpoint }).inc();
        }
        series.of(&EndpointLabels { endpoint: "/a" }).inc();

        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains("{endpoint=\"/a\"} 2\n"), "{text}");
        assert!(text.contains("{endpoint=\"_overflow\"} 2\n"), "{text}");
        assert!(!text.contains("/c") && !text.contains("/d"), "{text}");
    }

    #[test]
    fn a_full_family_has_no_room_for_a_new_gauge() {
        let series = Series::<EndpointLabels, Counter>::with_max(Counter::default, 2);
        let has_room =
            TEMPLATES.map(|endpoint| series.fitting(&EndpointLabels { endpoint }).is_some());
        assert_eq!(has_room, [true, true, false, false]);
        assert!(
            series.fitting(&EndpointLabels { endpoint: "/a" }).is_some(),
            "what is there stays"
        );
    }

    #[test]
    fn a_cleared_family_has_room_again() {
        let series = Series::<EndpointLabels, Counter>::with_max(Counter::default, 1);
        series.of(&EndpointLabels { endpoint: "/a" });
        series.clear();
        series.of(&EndpointLabels { endpoint: "/b" }).inc();
        assert_eq!(
            series.family.get(&EndpointLabels { endpoint: "/b" }).map(|counter| counter.get()),
            Some(1)
        );
    }
}
