//! Durations of requests, of clients and to the upstream.
//!
//! Each duration is counted once, by the labels of both its metrics: the gateway's own and
//! OpenTelemetry's. A reading adds up the label sets that differ in other labels only.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use crate::telemetry::labels::{RequestDurationLabels, Status, UpstreamDurationLabels};
use crate::telemetry::names::{Metric, SemanticMetric};
use crate::telemetry::outcome::{MethodName, NO_ENDPOINT};
use crate::telemetry::registry::{
    Histogram, Kind, LabelText, Labels, Layout, Measured as _, Named, Point, Registry, Value,
};
use crate::telemetry::series::{SERIES_MAX, Series};
use crate::telemetry::trace_ids::TraceIds;

/// One exchange with the upstream, successful or not.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamOutcome<'a> {
    /// Account name in the config.
    pub account: &'a str,
    /// Resource of the budget that it was charged to.
    pub resource: &'a str,
    /// Route template of the endpoint table.
    pub endpoint: &'static str,
    /// Request method.
    pub method: MethodName,
    /// Host of the upstream.
    pub server_address: &'a str,
    /// The upstream's status; `None` without an answer.
    pub status: Option<u16>,
    /// Time from sending the request to the head of its answer, or to giving up.
    pub duration: Duration,
    /// The trace that it belongs to.
    pub trace: Option<&'a TraceIds>,
}

/// Upper bounds in seconds. A hit takes well under a millisecond; the upstream gives up after 10 s
/// (SPECIFICATION, "Limits in practice"); 30 s is the default of both `response_timeout` and
/// `max_wait`.
const DURATION_BUCKETS_S: [f64; 16] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];

/// Buckets of durations.
pub(super) static DURATIONS: LazyLock<Layout> = LazyLock::new(|| Layout::new(&DURATION_BUCKETS_S));

/// The durations of requests of clients.
pub(super) type RequestDurations = Series<RequestDurationLabels, Histogram>;
/// The durations of requests to the upstream.
pub(super) type UpstreamDurations = Series<UpstreamDurationLabels, Histogram>;

fn histogram() -> Histogram {
    Histogram::new(&DURATIONS)
}

/// Creates the durations of clients' requests.
pub(super) fn of_requests(registry: &mut Registry) -> RequestDurations {
    let series = RequestDurations::unregistered(histogram, SERIES_MAX);
    view(registry, Metric::RequestDurationSeconds, &series, |labels| {
        let endpoint = LabelText::Word(labels.endpoint);
        vec![("endpoint", endpoint), ("cache", LabelText::Word(labels.cache))]
    });
    view(registry, SemanticMetric::ServerRequestDuration, &series, |labels| {
        let mut shown = vec![
            ("http.request.method", LabelText::Word(labels.method)),
            ("url.scheme", LabelText::Word(labels.scheme)),
        ];
        if labels.endpoint != NO_ENDPOINT {
            shown.push(("http.route", LabelText::Word(labels.endpoint)));
        }
        // A client's mistake is no error of the server (OpenTelemetry, HTTP metrics).
        push_status(&mut shown, labels.status, 500);
        shown
    });
    series
}

/// Creates the durations of requests to the upstream.
pub(super) fn of_upstream(registry: &mut Registry) -> UpstreamDurations {
    let series = UpstreamDurations::unregistered(histogram, SERIES_MAX);
    view(registry, Metric::UpstreamDurationSeconds, &series, |labels| {
        vec![("endpoint", LabelText::Word(labels.endpoint))]
    });
    view(registry, SemanticMetric::ClientRequestDuration, &series, |labels| {
        let mut shown = vec![
            ("http.request.method", LabelText::Word(labels.method)),
            ("server.address", LabelText::Name(labels.upstream.shared())),
            ("url.template", LabelText::Word(labels.endpoint)),
        ];
        push_status(&mut shown, labels.status, 400);
        shown
    });
    series
}

/// Adds the status, and the kind of an error from `errors_from` on.
fn push_status(labels: &mut Labels, status: Status, errors_from: u32) {
    match status.number() {
        Some(number) => {
            labels.push(("http.response.status_code", LabelText::Number(number)));
            if number >= errors_from {
                labels.push(("error.type", LabelText::Name(number.to_string().into())));
            }
        }
        None => labels.push(("error.type", LabelText::Word("no_answer"))),
    }
}

/// Adds a metric that has the sums of a family by other labels.
fn view<S: crate::telemetry::labels::LabelSet>(
    registry: &mut Registry,
    metric: impl Named,
    series: &Series<S, Histogram>,
    shown: fn(&S) -> Labels,
) {
    let series = series.clone();
    registry.of_kind(metric, Kind::Histogram, move || {
        let mut sums: HashMap<Labels, Value> = HashMap::new();
        for (labels, histogram) in series.entries() {
            let value = histogram.value();
            match (sums.entry(shown(&labels)).or_insert(Value::Whole(0)), value) {
                (Value::Buckets(sum), Value::Buckets(more)) => sum.merge(more),
                (first, value) => *first = value,
            }
        }
        sums.into_iter().map(|(labels, value)| Point { labels, value }).collect()
    });
}
