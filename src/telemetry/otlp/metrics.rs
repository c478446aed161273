//! Export of metrics: what `/metrics` shows, at intervals, with histograms in exponential form.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets as Positive;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Exemplar as ProtoExemplar, ExponentialHistogram,
    ExponentialHistogramDataPoint, Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics,
    Sum, exemplar, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use tokio::time::sleep;

use super::Readings;
use super::batches::sent_once;
use super::health::Health;
use super::log_queue::scope;
use super::settings::{OtlpSettings, Temporality};
use super::transport::Client;
use crate::clock::machine_micros;
use crate::telemetry::registry::{
    Buckets, Description, Exemplar, Exponential, Kind, LabelText, Labels, Point, SCALE, Sample,
    Snapshot, Value,
};

/// Points of one message. Collectors take 4 MiB by default, and a point has some 200 bytes.
const POINTS_MAX: usize = 5_000;

/// A metric with its labels.
type Key = (&'static str, Labels);

/// See the module.
pub(super) struct Exports {
    resource: Resource,
    interval: Duration,
    temporality: Temporality,
    /// Start of all sums, in nanoseconds since the epoch.
    started_at: u64,
    /// The part of each sum that the collector has, with the time of that.
    before: HashMap<Key, (Value, u64)>,
}

/// A part of an export that is sent at once.
struct Part {
    metrics: Vec<Metric>,
    /// The sums that the collector has once it took the part.
    taken: Vec<(Key, Value)>,
}

impl Exports {
    pub fn new(resource: Resource, settings: &OtlpSettings) -> Self {
        Self {
            resource,
            interval: settings.metrics_interval,
            temporality: settings.temporality,
            started_at: now_nanos(),
            before: HashMap::new(),
        }
    }

    /// Exports until the end of the readings, and once more then.
    pub(super) async fn run(mut self, mut client: Client, health: &Health, readings: Readings) {
        let Readings { read, mut ending, ended } = readings;
        loop {
            let is_last = tokio::select! {
                () = sleep(self.interval) => false,
                changed = ending.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    true
                }
            };
            let Some(snapshot) = read() else { return };
            self.export(&snapshot, &mut client, health).await;
            if is_last {
                // Nobody waits for it after the flush.
                let _ = ended.send(());
                return;
            }
        }
    }

    async fn export(&mut self, snapshot: &Snapshot, client: &mut Client, health: &Health) {
        let now = now_nanos();
        for part in self.parts(snapshot, now) {
            let message = self.message(part.metrics);
            // The next export has the same sums, or the difference that the collector lacks.
            if sent_once(&message, client, health).await.is_err() {
                return;
            }
            for (key, value) in part.taken {
                self.before.insert(key, (value, now));
            }
        }
    }

    fn message(&self, metrics: Vec<Metric>) -> Bytes {
        let scope_metrics =
            vec![ScopeMetrics { scope: Some(scope()), metrics, ..ScopeMetrics::default() }];
        let resource_metrics = vec![ResourceMetrics {
            resource: Some(self.resource.clone()),
            scope_metrics,
            ..ResourceMetrics::default()
        }];
        ExportMetricsServiceRequest { resource_metrics }.encode_to_vec().into()
    }

    fn parts(&self, snapshot: &Snapshot, now: u64) -> Vec<Part> {
        let mut parts = vec![Part { metrics: Vec::new(), taken: Vec::new() }];
        let mut points = 0;
        for sample in &snapshot.samples {
            for some in sample.points.chunks(POINTS_MAX) {
                if points > 0 && points + some.len() > POINTS_MAX {
                    parts.push(Part { metrics: Vec::new(), taken: Vec::new() });
                    points = 0;
                }
                points += some.len();
                let Some(part) = parts.last_mut() else { return parts };
                part.metrics.push(self.metric(sample, some, now));
                if self.temporality == Temporality::Delta && is_sum(sample.kind) {
                    let taken = some.iter().map(|point| {
                        ((sample.described.name, point.labels.clone()), point.value.clone())
                    });
                    part.taken.extend(taken);
                }
            }
        }
        parts
    }

    fn metric(&self, sample: &Sample, points: &[Point], now: u64) -> Metric {
        let Description { name, help, is_semantic } = sample.described;
        let temporality = match self.temporality {
            Temporality::Cumulative => AggregationTemporality::Cumulative,
            Temporality::Delta => AggregationTemporality::Delta,
        };
        let numbers = || points.iter().map(|point| self.number(sample, point, now)).collect();
        let data = match sample.kind {
            Kind::Counter => metric::Data::Sum(Sum {
                data_points: numbers(),
                aggregation_temporality: temporality.into(),
                is_monotonic: true,
            }),
            // OpenTelemetry counts what is used, where Prometheus measures it.
            Kind::Gauge if is_semantic => metric::Data::Sum(Sum {
                data_points: numbers(),
                aggregation_temporality: AggregationTemporality::Cumulative.into(),
                is_monotonic: false,
            }),
            Kind::Gauge | Kind::Info => metric::Data::Gauge(Gauge { data_points: numbers() }),
            Kind::Histogram => metric::Data::ExponentialHistogram(ExponentialHistogram {
                data_points: points
                    .iter()
                    .filter_map(|point| self.histogram(sample, point, now))
                    .collect(),
                aggregation_temporality: temporality.into(),
            }),
        };
        Metric {
            name: name.to_owned(),
            description: help.to_owned(),
            unit: unit(name).to_owned(),
            metadata: Vec::new(),
            data: Some(data),
        }
    }

    /// Returns the value that the collector has of a sum, and the time from which the next counts.
    fn earlier(&self, sample: &Sample, point: &Point) -> (Option<&Value>, u64) {
        if self.temporality == Temporality::Cumulative || !is_sum(sample.kind) {
            return (None, self.started_at);
        }
        let key = (sample.described.name, point.labels.clone());
        let before = self.before.get(&key);
        before.map_or((None, self.started_at), |(value, at)| (Some(value), *at))
    }

    fn number(&self, sample: &Sample, point: &Point, now: u64) -> NumberDataPoint {
        let (earlier, since) = self.earlier(sample, point);
        let value = match (&point.value, earlier) {
            (Value::Whole(now), Some(Value::Whole(then))) => {
                number_data_point::Value::AsInt(whole(now.saturating_sub(*then)))
            }
            (Value::Float(now), Some(Value::Float(then))) => {
                number_data_point::Value::AsDouble(now - then)
            }
            (Value::Whole(number), _) => number_data_point::Value::AsInt(whole(*number)),
            (Value::Signed(number), _) => number_data_point::Value::AsInt(*number),
            (Value::Float(number), _) => number_data_point::Value::AsDouble(*number),
            (Value::Buckets(buckets), _) => number_data_point::Value::AsInt(whole(buckets.count())),
        };
        NumberDataPoint {
            attributes: attributes(&point.labels, sample.described),
            start_time_unix_nano: if is_sum(sample.kind) { since } else { 0 },
            time_unix_nano: now,
            value: Some(value),
            ..NumberDataPoint::default()
        }
    }

    fn histogram(
        &self,
        sample: &Sample,
        point: &Point,
        now: u64,
    ) -> Option<ExponentialHistogramDataPoint> {
        let Value::Buckets(buckets) = &point.value else { return None };
        let (earlier, since) = self.earlier(sample, point);
        let difference = match earlier {
            Some(Value::Buckets(earlier)) => Some(buckets.since(earlier)),
            _ => None,
        };
        let buckets: &Buckets = difference.as_ref().unwrap_or(buckets);
        let Exponential { zeros, offset, counts } = buckets.exponential();
        Some(ExponentialHistogramDataPoint {
            attributes: attributes(&point.labels, sample.described),
            start_time_unix_nano: since,
            time_unix_nano: now,
            count: buckets.count(),
            sum: Some(buckets.sum),
            scale: SCALE,
            zero_count: zeros,
            zero_threshold: Exponential::zero_threshold(),
            positive: Some(Positive { offset, bucket_counts: counts }),
            exemplars: buckets.exemplars.iter().flatten().map(example).collect(),
            ..ExponentialHistogramDataPoint::default()
        })
    }
}

fn example(of: &Exemplar) -> ProtoExemplar {
    ProtoExemplar {
        time_unix_nano: of.micros.saturating_mul(1_000),
        trace_id: of.ids.trace.to_vec(),
        span_id: of.ids.span.map_or_else(Vec::new, |span| span.to_vec()),
        value: Some(exemplar::Value::AsDouble(of.value)),
        ..ProtoExemplar::default()
    }
}

/// Returns true for what is counted since a time.
fn is_sum(kind: Kind) -> bool {
    matches!(kind, Kind::Counter | Kind::Histogram)
}

/// The largest integer of OTLP stands for larger ones.
fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the labels as attributes. The gateway's own are the texts of `/metrics`; a number of
/// OpenTelemetry's is one.
fn attributes(labels: &Labels, described: Description) -> Vec<KeyValue> {
    let attribute = |(name, text): &(&'static str, LabelText)| {
        let value = match text {
            LabelText::Number(number) if described.is_semantic => {
                any_value::Value::IntValue((*number).into())
            }
            text => any_value::Value::StringValue(text.to_string()),
        };
        KeyValue {
            key: (*name).to_owned(),
            value: Some(AnyValue { value: Some(value) }),
            ..KeyValue::default()
        }
    };
    labels.iter().map(attribute).collect()
}

/// Returns the unit of a metric (UCUM), which the names of the gateway's own end in.
fn unit(name: &str) -> &'static str {
    let base = name.strip_suffix("_total").unwrap_or(name);
    let ends = |suffixes: &[&str]| suffixes.iter().any(|suffix| base.ends_with(suffix));
    if ends(&["_seconds", ".duration", ".time"]) {
        "s"
    } else if ends(&["_bytes", "memory.usage", "memory.virtual"]) {
        "By"
    } else if ends(&["_days_left"]) {
        "d"
    } else if ends(&["file_descriptor.count"]) {
        "{file_descriptor}"
    } else {
        "1"
    }
}

fn now_nanos() -> u64 {
    machine_micros().saturating_mul(1_000)
}
