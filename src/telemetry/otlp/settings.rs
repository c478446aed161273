//! Settings of the export by OTLP, as `config` has them.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Uri};
use rustls::ClientConfig;

/// The signals to export, and how.
#[derive(Clone, Debug, Default)]
pub struct OtlpSettings {
    /// Destination of spans; without it none are made.
    pub traces: Option<OtlpTarget>,
    /// Destination of metrics.
    pub metrics: Option<OtlpTarget>,
    /// Destination of log records.
    pub logs: Option<OtlpTarget>,
    /// Traces that are kept.
    pub sampling: Sampling,
    /// Time between two exports of metrics.
    pub metrics_interval: Duration,
    /// Meaning of sums and histograms.
    pub temporality: Temporality,
    /// Facts about this process besides its name and version.
    pub resource: Vec<(String, String)>,
}

/// Destination of one signal.
#[derive(Clone, Debug)]
pub struct OtlpTarget {
    /// Scheme, host and port; for HTTP also the path.
    pub url: Uri,
    /// The form of the exchange.
    pub protocol: OtlpProtocol,
    /// True if messages are compressed by gzip.
    pub is_compressed: bool,
    /// Headers of each request; values are marked as sensitive.
    pub headers: HeaderMap,
    /// Settings of TLS; used for `https` alone.
    pub tls: Option<Arc<ClientConfig>>,
    /// Timeout of one export.
    pub timeout: Duration,
}

/// The form of the exchange with a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// Over HTTP/2 as gRPC.
    Grpc,
    /// Over HTTP/1.1, with a message of Protocol Buffers as the body.
    Http,
}

/// Meaning of the sums of two exports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Temporality {
    /// Each is the sum since the start.
    #[default]
    Cumulative,
    /// Each is the sum since the export before.
    Delta,
}

/// The traces that are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Fraction of traces, 0 to 1.
    pub ratio: f64,
    /// True if a caller's decision in its `traceparent` takes precedence.
    pub is_parent_based: bool,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { ratio: 1.0, is_parent_based: true }
    }
}
