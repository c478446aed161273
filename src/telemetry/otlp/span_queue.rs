//! Finished spans that wait for their export.

use std::collections::VecDeque;
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use parking_lot::Mutex;
use prost::Message as _;
use tokio::sync::Notify;

use std::sync::Arc;

use super::batches::{Batch, Queue};
use super::{Signal, counts, log_queue};

/// Most finished spans in the queue. With 4 spans per request and an export per second this
/// suffices for 2,000 requests a second; a full queue takes some 10 MB.
pub(super) const QUEUE_SPANS_MAX: usize = 8_192;
/// Spans per export; the SDK's default.
const BATCH_SPANS_MAX: usize = 512;

/// See the module.
#[derive(Debug)]
pub(super) struct SpanQueue {
    spans: Mutex<VecDeque<SpanData>>,
    filled: Notify,
    resource: Resource,
}

impl SpanQueue {
    pub fn new(resource: Resource) -> Self {
        Self { spans: Mutex::default(), filled: Notify::new(), resource }
    }

    fn push(&self, span: SpanData) {
        let mut spans = self.spans.lock();
        if spans.len() >= QUEUE_SPANS_MAX {
            drop(spans);
            counts::drop_records(Signal::Traces, 1);
            return;
        }
        spans.push_back(span);
        let is_filled = spans.len() == BATCH_SPANS_MAX;
        drop(spans);
        if is_filled {
            self.filled.notify_one();
        }
    }
}

impl Queue for SpanQueue {
    fn take(&self) -> Option<Batch> {
        let taken: Vec<SpanData> = {
            let mut spans = self.spans.lock();
            let count = spans.len().min(BATCH_SPANS_MAX);
            spans.drain(..count).collect()
        };
        if taken.is_empty() {
            return None;
        }
        let records = taken.len() as u64;
        let scope_spans = ScopeSpans {
            scope: Some(log_queue::scope()),
            spans: taken.into_iter().map(Into::into).collect(),
            ..ScopeSpans::default()
        };
        let resource_spans = vec![ResourceSpans {
            resource: Some(self.resource.clone()),
            scope_spans: vec![scope_spans],
            ..ResourceSpans::default()
        }];
        let message = ExportTraceServiceRequest { resource_spans };
        Some(Batch { message: message.encode_to_vec().into(), records })
    }

    fn is_filled(&self) -> &Notify {
        &self.filled
    }
}

/// Puts finished spans into the queue.
#[derive(Debug)]
pub(super) struct QueueingProcessor(pub Arc<SpanQueue>);

impl SpanProcessor for QueueingProcessor {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() {
            self.0.push(span);
        }
    }

    /// The exporting thread flushes at its end.
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}
