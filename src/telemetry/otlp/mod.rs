//! Export of spans by OTLP/gRPC.
//!
//! The exporter has a runtime of its own with one thread. So it does not delay the gateway, and it
//! can still flush when the gateway's runtime is gone. Finished spans wait in a bounded queue. When
//! the endpoint is down the queue fills and spans are dropped silently: the exporter's own
//! diagnostics are compiled out. Left out: the spans (`spans`).

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider, SpanProcessor,
};
use tokio::runtime::{Builder, Runtime};

use super::init::InitError;

/// Longest wait for the last spans at exit: within the 30 s of `listen.drain`, and short enough for
/// Ctrl-C.
pub(super) const FLUSH_MAX: Duration = Duration::from_secs(3);
/// Timeout of one export. OTLP's default of 10 s would exceed [`FLUSH_MAX`].
const EXPORT_MAX: Duration = Duration::from_secs(2);
/// Most finished spans in the queue. With 4 spans per request and an export per second this
/// suffices for 2,000 requests a second; a full queue takes some 10 MB.
const QUEUE_SPANS_MAX: usize = 8_192;
/// Spans per export; the SDK's default.
const BATCH_SPANS_MAX: usize = 512;
/// Longest wait of a finished span for others to share its export.
const BATCH_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Exporter {
    provider: SdkTracerProvider,
    runtime: Option<Runtime>,
}

impl Exporter {
    /// Starts exporting to `endpoint`. Connects with the first export.
    pub(super) fn start(
        endpoint: &str,
        service_name: &str,
        sample_ratio: f64,
    ) -> Result<Self, InitError> {
        // Checked here, because the exporter's own error would repeat the URL.
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
            // The connection's task is spawned on the runtime current at this point.
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

    pub(super) fn with_processor(
        processor: impl SpanProcessor + 'static,
        service_name: &str,
        sample_ratio: f64,
    ) -> Self {
        let provider = SdkTracerProvider::builder()
            .with_span_processor(processor)
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(sample_ratio))))
            .with_resource(
                Resource::builder()
                    .with_service_name(service_name.to_owned())
                    .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
                    .build(),
            )
            .build();
        Self { provider, runtime: None }
    }

    pub(super) fn tracer(&self) -> SdkTracer {
        self.provider.tracer("weir")
    }

    /// Exports the queue, for at most [`FLUSH_MAX`], and ends.
    pub(super) fn shutdown(self) {
        // Spans that are not sent by then are lost: no log is left to report them.
        let _ = self.provider.shutdown_with_timeout(FLUSH_MAX);
        if let Some(runtime) = self.runtime {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests;
