//! Export of spans, metrics and log records by OTLP (SPECIFICATION, "Export by OTLP").
//!
//! One thread with a runtime of its own exports all signals. So it does not delay the gateway, and
//! it can still flush when the gateway's runtime is gone. Finished spans and log records wait in
//! bounded queues; one without room is dropped and counted. Metrics are read from the registry of
//! `/metrics` at intervals. Left out: the spans (`spans`), the metrics (`metrics`), and the texts
//! of lines (`format`).

mod batches;
pub(in crate::telemetry) mod counts;
mod health;
mod log_queue;
mod metrics;
mod settings;
mod span_queue;
mod transport;

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_proto::tonic::Attributes;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, SpanProcessor};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use self::health::Health;
use self::log_queue::LogQueue;
pub(super) use self::log_queue::LogRecords;
pub use self::settings::{OtlpProtocol, OtlpSettings, OtlpTarget, Sampling, Temporality};
use self::span_queue::{QueueingProcessor, SpanQueue};
use self::transport::Client;
use super::init::InitError;
use super::registry::Snapshot;
use super::sampler::RequestSampler;

/// Longest wait for the last exports at exit: within the 30 s of `listen.drain`, and short enough
/// for Ctrl-C.
const FLUSH_MAX: Duration = Duration::from_secs(3);
/// Name of the instrumentation.
const SCOPE: &str = "weir";

/// Reads all metrics; `None` once the gateway is gone.
type ReadMetrics = Box<dyn Fn() -> Option<Snapshot> + Send>;

/// A signal of OpenTelemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Signal {
    Traces,
    Metrics,
    Logs,
}

impl Signal {
    /// In the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Traces, Self::Metrics, Self::Logs];

    /// Returns the word for it in settings, metrics and log lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
            Self::Logs => "logs",
        }
    }
}

/// The exporting thread, and the ends of the queues that it empties.
#[derive(Debug)]
pub(super) struct Exporter {
    spans: Option<(SdkTracerProvider, RequestSampler)>,
    logs: Option<Arc<LogQueue>>,
    thread: Option<ExportThread>,
    metrics: Option<oneshot::Sender<Readings>>,
}

#[derive(Debug)]
struct ExportThread {
    ending: watch::Sender<bool>,
    ended: Receiver<()>,
}

/// The metrics to export, and the end of their export.
struct Readings {
    read: ReadMetrics,
    ending: watch::Receiver<bool>,
    ended: oneshot::Sender<()>,
}

impl fmt::Debug for Readings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Readings")
    }
}

/// Ends the export of metrics while the gateway is still there to be read.
#[derive(Debug)]
pub struct MetricsExport {
    ending: watch::Sender<bool>,
    ended: oneshot::Receiver<()>,
}

impl MetricsExport {
    /// Exports the metrics for a last time, within 3 s.
    pub async fn finish(self) {
        self.ending.send_replace(true);
        // A collector that is away is in the log, and the metrics of the last seconds are lost.
        let _ = timeout(FLUSH_MAX, self.ended).await;
    }
}

/// The parts that the thread works on.
struct Work {
    traces: Option<(Arc<SpanQueue>, Client)>,
    logs: Option<(Arc<LogQueue>, Client)>,
    metrics: Option<(metrics::Exports, Client, oneshot::Receiver<Readings>)>,
    ending: watch::Receiver<bool>,
}

impl Exporter {
    /// Starts exporting the signals that have a target. Connects with the first export.
    ///
    /// # Errors
    /// A thread that cannot be started, or an unusable address.
    pub(super) fn start(settings: &OtlpSettings, service_name: &str) -> Result<Self, InitError> {
        let resource = Resource {
            attributes: Attributes::from(resource(settings, service_name)).0,
            ..Resource::default()
        };
        let client = |signal, target: &Option<OtlpTarget>| {
            target.as_ref().map(|target| Client::new(signal, target)).transpose()
        };
        let spans = client(Signal::Traces, &settings.traces)?
            .map(|client| (Arc::new(SpanQueue::new(resource.clone())), client));
        let records = client(Signal::Logs, &settings.logs)?
            .map(|client| (Arc::new(LogQueue::new(&resource)), client));
        let (metrics_to, metrics_from) = oneshot::channel();
        let figures = client(Signal::Metrics, &settings.metrics)?.map(|client| {
            (metrics::Exports::new(resource.clone(), settings), client, metrics_from)
        });
        let provider = spans
            .as_ref()
            .map(|(queue, _)| provider(QueueingProcessor(Arc::clone(queue)), settings.sampling));
        let logs = records.as_ref().map(|(queue, _)| Arc::clone(queue));
        let (ending, ending_seen) = watch::channel(false);
        let metrics = figures.is_some().then_some(metrics_to);
        let work = Work { traces: spans, logs: records, metrics: figures, ending: ending_seen };
        let ended = start_thread(work)?;
        Ok(Self { spans: provider, logs, thread: Some(ExportThread { ending, ended }), metrics })
    }

    /// Exports spans by `processor` alone.
    #[cfg(test)]
    pub(super) fn with_processor(
        processor: impl SpanProcessor + 'static,
        sampling: Sampling,
    ) -> Self {
        let provider = Some(provider(processor, sampling));
        Self { spans: provider, logs: None, thread: None, metrics: None }
    }

    /// Returns the maker of spans, if they are exported.
    pub(super) fn tracer(&self) -> Option<SdkTracer> {
        self.spans.as_ref().map(|(provider, _)| provider.tracer(SCOPE))
    }

    /// Returns the choice of the requests whose spans are made, if they are exported.
    pub(super) fn sampler(&self) -> Option<RequestSampler> {
        self.spans.as_ref().map(|(_, sampler)| sampler.clone())
    }

    /// Returns the taker of log records, if they are exported.
    pub(super) fn log_records(&self) -> Option<LogRecords> {
        self.logs.as_ref().map(|queue| LogRecords(Arc::clone(queue)))
    }

    /// Begins to export the metrics that `read` returns; `None` if they are not to be exported, or
    /// are already.
    pub(super) fn export_metrics(&mut self, read: ReadMetrics) -> Option<MetricsExport> {
        let sender = self.metrics.take()?;
        let ((ending, ending_seen), (ended, ended_seen)) =
            (watch::channel(false), oneshot::channel());
        sender.send(Readings { read, ending: ending_seen, ended }).ok()?;
        Some(MetricsExport { ending, ended: ended_seen })
    }

    /// Exports the queues, for at most [`FLUSH_MAX`], and ends.
    pub(super) fn shutdown(self) {
        drop(self.metrics);
        if let Some(thread) = self.thread {
            thread.ending.send_replace(true);
            // Records that are not sent by then are lost: no log is left to report them.
            let _ = thread.ended.recv_timeout(FLUSH_MAX);
        }
    }
}

/// Starts the thread; the receiver learns of its end.
fn start_thread(work: Work) -> Result<Receiver<()>, InitError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(InitError::Thread)?;
    let (sender, ended) = channel();
    let exporting = move || {
        runtime.block_on(work.done());
        // Nobody waits for it after the flush.
        let _ = sender.send(());
    };
    thread::Builder::new().name("weir-otlp".into()).spawn(exporting).map_err(InitError::Thread)?;
    Ok(ended)
}

impl Work {
    /// Exports until the end.
    async fn done(self) {
        let health = Health::default();
        let traces = async {
            if let Some((queue, client)) = self.traces {
                batches::export(&*queue, client, &health, self.ending.clone()).await;
            }
        };
        let logs = async {
            if let Some((queue, client)) = self.logs {
                batches::export(&*queue, client, &health, self.ending.clone()).await;
            }
        };
        let figures = async {
            let Some((exports, client, readings)) = self.metrics else { return };
            // The sender is dropped when there is nothing to read.
            let Ok(readings) = readings.await else { return };
            exports.run(client, &health, readings).await;
        };
        tokio::join!(traces, logs, figures);
    }
}

fn provider(
    processor: impl SpanProcessor + 'static,
    sampling: Sampling,
) -> (SdkTracerProvider, RequestSampler) {
    let sampler = RequestSampler::new(sampling);
    let builder = SdkTracerProvider::builder().with_span_processor(processor);
    (builder.with_sampler(sampler.clone()).build(), sampler)
}

/// Returns the facts about this process. Those of the settings come first, and the first of a name
/// counts.
fn resource(settings: &OtlpSettings, service_name: &str) -> Vec<KeyValue> {
    let own = [
        ("service.name", service_name.to_owned()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("service.instance.id", instance_id()),
    ];
    let set = settings.resource.iter().filter(|(name, _)| name != "service.name");
    let mut facts: Vec<KeyValue> =
        set.map(|(name, value)| KeyValue::new(name.clone(), value.clone())).collect();
    for (name, value) in own {
        if facts.iter().all(|fact| fact.key.as_str() != name) {
            facts.push(KeyValue::new(name, value));
        }
    }
    facts
}

/// Returns a new name for this process, so that the counters of replicas stay apart: a random UUID
/// (RFC 9562 §5.4).
fn instance_id() -> String {
    use ring::rand::{SecureRandom as _, SystemRandom};
    let mut bytes = [0; 16];
    // Without randomness the replicas share a name, which only the collector minds.
    let _ = SystemRandom::new().fill(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let number = u128::from_be_bytes(bytes);
    let digits = format!("{number:032x}");
    let groups = [0..8, 8..12, 12..16, 16..20, 20..32];
    groups.map(|group| digits.get(group).unwrap_or_default().to_owned()).join("-")
}

#[cfg(test)]
mod tests;
