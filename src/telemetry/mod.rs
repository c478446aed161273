//! What an operator can see of the gateway: one log line, the metrics and the spans of each
//! request.
//!
//! Everything is made from one value, [`Outcome`] (DESIGN D11), so that the three can never
//! disagree. A request ends with
//!
//! ```text
//! metrics.record(&outcome);         // counters and histograms
//! log::emit(&outcome);              // the one line
//! spans::finish(&span, &outcome);   // the server span's attributes
//! ```
//!
//! Left out: deciding anything, reading the clock for anything but the time printed on a log line,
//! and the dashboard (`admin`).

pub mod init;
pub mod log;
pub mod metrics;
pub mod names;
pub mod outcome;
pub mod spans;

mod format;
mod labels;
mod otlp;
mod series;
mod tally;
mod writer;
#[cfg(test)]
#[path = "../../tests/support/log.rs"]
pub(crate) mod written;

pub use init::{Guard, InitError, LogFormat, LogLevel, TelemetrySettings, init};
pub use metrics::{Metrics, UpstreamOutcome};
pub use outcome::{CacheOutcome, Fetch, LogText, MethodName, NO_ENDPOINT, Outcome, WaitCause};
pub use tally::ClientFigures;
