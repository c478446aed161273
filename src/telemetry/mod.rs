//! The operator's view of the gateway: one log line, the metrics and the spans of each request.
//!
//! All three are made from one value, [`Outcome`] (SPECIFICATION D11), so that they never disagree.
//! A request ends with
//!
//! ```text
//! metrics.record(&outcome);         // counters and histograms
//! spans::finish(&span, &outcome);   // the server span's attributes
//! log::emit(&story);                // the log line
//! ```
//!
//! The metrics are read from one `registry`, by a scrape and by the export (`otlp`) alike.
//! Left out: decisions, clock readings other than the time on a log line, and the dashboard
//! (`admin`).

pub mod access_log;
mod controls;
mod init;
pub mod log;
mod metrics;
mod names;
mod outcome;
mod recent;
mod redaction;
pub mod spans;

#[cfg(test)]
#[path = "../../tests/support/collector.rs"]
pub(crate) mod collector;
mod format;
mod labels;
mod otlp;
mod registry;
mod sampler;
mod series;
mod tally;
mod trace_ids;
mod writer;
#[cfg(test)]
#[path = "../../tests/support/log.rs"]
pub(crate) mod written;

pub use controls::{Controls, Unchangeable, Values};
pub use init::{Guard, InitError, LogFormat, LogLevel, TelemetrySettings, UnknownLevel, init};
pub use metrics::{BUILD_COMMIT, Metrics, RecentRefusal, Spent, SpentSum, UpstreamOutcome};
pub use otlp::{MetricsExport, OtlpProtocol, OtlpSettings, OtlpTarget, Sampling, Temporality};
pub use outcome::{CacheOutcome, Fetch, LogText, MethodName, NO_ENDPOINT, Outcome, WaitCause};
pub use recent::{Chosen, Event, RecentRequests, STEPS_MAX, Step, Story};
pub use redaction::begins_object;
pub use registry::{Snapshot, TextFormat};
pub use tally::ClientFigures;
pub use trace_ids::{Hex, TraceIds};
