//! The export of spans by OTLP/gRPC.
//!
//! It has a runtime of its own, with one thread, so that it neither needs nor holds up the
//! gateway's, and can still flush when that is gone. Finished spans wait in a bounded queue; when
//! the endpoint is down the queue fills, and spans are dropped without a word: the exporter's own
//! diagnostics are compiled out. Left out: which spans there are (`spans`).

use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider, SpanProcessor,
};
use tokio::runtime::{Builder, Runtime};

use super::init::InitError;

/// How long ending the process may wait for the last spans. Within the 30 s of `listen.drain`, and
/// short enough for a Ctrl-C.
pub(super) const FLUSH_MAX: Duration = Duration::from_secs(3);
/// How long one export may take; OTLP's default of 10 s would hold up a flush for longer than it
/// may take.
const EXPORT_MAX: Duration = Duration::from_secs(2);
/// How many finished spans may wait. At 4 spans a request and an export every second this covers
/// 2,000 requests a second; some 10 MB when full.
const QUEUE_SPANS_MAX: usize = 8_192;
/// How many spans one export carries; the SDK's default.
const BATCH_SPANS_MAX: usize = 512;
/// How long a finished span waits at most for others to go with it.
const BATCH_EVERY: Duration = Duration::from_secs(1);

/// The running export.
#[derive(Debug)]
pub(super) struct Exporter {
    provider: SdkTracerProvider,
    runtime: Option<Runtime>,
}

impl Exporter {
    /// Starts exporting to `endpoint`. Connects only when there is something to send.
    pub(super) fn start(
        endpoint: &str,
        service_name: &str,
        sample_ratio: f64,
    ) -> Result<Self, InitError> {
        // Checked here because the exporter's own complaint would repeat the URL.
        let uri: http::Uri = endpoint.parse().map_err(|_| InitError::Endpoint)?;
        if uri.scheme_str() != Some("http") || uri.authority().is_none() {
            return Err(InitError::Endpoint);
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("weir-otlp")
            .enable_all()
            .build()
            .map_err(InitError::Thread)?;
        let exporter = {
            // The connection's task is spawned on the runtime that is current while it is built.
            let _current = runtime.enter();
            SpanExporter::builder()
                .with_tonic()
                .with_endpoint(endpoint)
                .with_timeout(EXPORT_MAX)
                .build()
        };
        let Ok(exporter) = exporter else {
            runtime.shutdown_background();
            return Err(InitError::Endpoint);
        };
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE_SPANS_MAX)
            .with_max_export_batch_size(BATCH_SPANS_MAX)
            .with_scheduled_delay(BATCH_EVERY)
            .build();
        let processor = BatchSpanProcessor::builder(exporter).with_batch_config(config).build();
        Ok(Self {
            runtime: Some(runtime),
            ..Self::with_processor(processor, service_name, sample_ratio)
        })
    }

    /// An exporter that hands finished spans to `processor`.
    pub(super) fn with_processor(
        processor: impl SpanProcessor + 'static,
        service_name: &str,
        sample_ratio: f64,
    ) -> Self {
        let provider = SdkTracerProvider::builder()
            .with_span_processor(processor)
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(sample_ratio))))
            .with_resource(Resource::builder().with_service_name(service_name.to_owned()).build())
            .build();
        Self { provider, runtime: None }
    }

    pub(super) fn tracer(&self) -> SdkTracer {
        self.provider.tracer("weir")
    }

    /// Exports what is waiting, for at most [`FLUSH_MAX`], and ends.
    pub(super) fn shutdown(self) {
        // What is not sent by then is lost: nobody is left to tell.
        let _ = self.provider.shutdown_with_timeout(FLUSH_MAX);
        if let Some(runtime) = self.runtime {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests;
