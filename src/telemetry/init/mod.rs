//! Start and end of the process's telemetry.
//!
//! Log lines go to stderr: stdout belongs to the output of a command (`weir check`, the live table
//! of `weir demo`). `WEIR_LOG` sets the level of the gateway's own lines only. Dependencies log
//! from `warn` up regardless: pingora and h2 write whole request heads, credentials included, at
//! `debug`. Left out: the format of a line (`format`).

use std::io;

use thiserror::Error;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::DefaultFields;
use tracing_subscriber::layer::{Context, Filter, Layer, SubscriberExt as _};
use tracing_subscriber::registry::Registry;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::controls::{Controls, LevelControl};
use super::format::LineFormat;
use super::log::{self, DeferredLines, LineThread};
use super::otlp::{Exporter, MetricsExport, OtlpSettings};
use super::registry::Snapshot;
use super::writer::{LogWriter, WriterThread};

/// Prefix of the targets of the gateway's own events and spans: the name of the crate.
const OWN: &str = env!("CARGO_CRATE_NAME");

pub const LEVEL_VARIABLE: &str = "WEIR_LOG";
/// The levels by name, the quietest first.
const LEVELS: [(&str, LevelFilter); 5] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
];
/// Most characters of an unknown level in a message.
const LEVEL_SHOWN: usize = 20;

/// Format of log lines (`telemetry.log`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object per line.
    #[default]
    Json,
    /// Text for terminals.
    Text,
}

/// Least severe level of the gateway's own log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLevel(LevelFilter);

/// A text that is no level.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown level {0} (accepted: off, error, warn, info, debug)")]
pub struct UnknownLevel(String);

/// A value of `WEIR_LOG` that is no level.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{LEVEL_VARIABLE}: {0}")]
pub struct UnknownVariable(UnknownLevel);

impl LogLevel {
    /// Reads `WEIR_LOG`: `off`, `error`, `warn`, `info` or `debug`; `unset` if it is absent or
    /// empty.
    ///
    /// # Errors
    /// Anything else: a mistyped level would leave an operator without the expected lines.
    pub fn from_environment(unset: Self) -> Result<Self, UnknownVariable> {
        let value = std::env::var_os(LEVEL_VARIABLE).unwrap_or_default();
        Self::of_variable(&value.to_string_lossy(), unset)
    }

    /// Warnings and errors: for commands with output of their own.
    pub const WARN: Self = Self(LevelFilter::WARN);

    fn of_variable(value: &str, unset: Self) -> Result<Self, UnknownVariable> {
        let name = value.trim();
        if name.is_empty() { Ok(unset) } else { Self::parse(name).map_err(UnknownVariable) }
    }

    /// Reads the name of a level, in either case.
    pub(super) fn parse(name: &str) -> Result<Self, UnknownLevel> {
        let known = LEVELS.iter().find(|(of, _)| of.eq_ignore_ascii_case(name));
        known.map(|(_, level)| Self(*level)).ok_or_else(|| {
            let shown: String = name.chars().take(LEVEL_SHOWN).collect();
            UnknownLevel(format!("{shown:?}"))
        })
    }

    /// Returns true if the gateway's own lines of this level are written.
    pub(super) fn shows(self, level: Level) -> bool {
        level <= self.0
    }

    /// Returns its name, as [`Self::from_environment`] reads it.
    pub fn name(self) -> &'static str {
        LEVELS[usize::from(self.number())].0
    }

    /// Returns its place in the order of levels, from 0.
    pub(super) fn number(self) -> u8 {
        let place = LEVELS.iter().position(|(_, level)| *level == self.0);
        place.and_then(|place| u8::try_from(place).ok()).unwrap_or_default()
    }

    pub(super) fn of_number(number: u8) -> Self {
        LEVELS.get(usize::from(number)).map_or(Self::default(), |(_, level)| Self(*level))
    }
}

impl Default for LogLevel {
    fn default() -> Self {
        Self(LevelFilter::INFO)
    }
}

/// Settings of `[telemetry]`, and the level.
#[derive(Clone, Debug)]
pub struct TelemetrySettings {
    /// Format of log lines.
    pub log: LogFormat,
    /// Level of the gateway's own lines.
    pub level: LogLevel,
    /// Export by OTLP.
    pub otlp: OtlpSettings,
    /// `service.name` of all that is exported.
    pub service_name: String,
}

impl Default for TelemetrySettings {
    fn default() -> Self {
        Self {
            log: LogFormat::default(),
            level: LogLevel::default(),
            otlp: OtlpSettings::default(),
            service_name: "weir".to_owned(),
        }
    }
}

/// Reason why telemetry did not start.
#[derive(Debug, Error)]
pub enum InitError {
    /// A thread could not be started.
    #[error("cannot start the thread that writes the log, or the one that exports by OTLP: {0}")]
    Thread(#[source] io::Error),
    /// The endpoint is unusable; one that is merely down is no error. It is not shown, because a
    /// URL may carry a password.
    #[error("telemetry.otlp_endpoint cannot be used: accepted is http://HOST:PORT, or https")]
    Endpoint,
    /// Logging was set up before in this process.
    #[error("logging has been set up before in this process")]
    AlreadyStarted,
}

/// Keeps telemetry running. Dropping it exports waiting spans and log records and writes waiting
/// log lines, for at most 3 s each. It blocks for that time and needs no runtime.
#[must_use = "the log and the spans end when the guard is dropped"]
#[derive(Debug)]
pub struct Guard {
    /// Ended first: its lines go to the two others.
    lines: Option<LineThread>,
    exporter: Option<Exporter>,
    /// Last, so that it writes the exporter's final lines.
    _writing: WriterThread,
}

impl Guard {
    /// Begins to export the metrics that `read` returns; `None` without a destination for them.
    /// `read` runs on the exporting thread and returns `None` once there is nothing to read.
    pub fn export_metrics(
        &mut self,
        read: impl Fn() -> Option<Snapshot> + Send + 'static,
    ) -> Option<MetricsExport> {
        self.exporter.as_mut()?.export_metrics(Box::new(read))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.lines.take());
        if let Some(exporter) = self.exporter.take() {
            exporter.shutdown();
        }
    }
}

/// Starts telemetry for the whole process. Needs no runtime: the exporter has its own.
///
/// # Errors
/// An unusable endpoint, or a second call. An endpoint that does not answer is no error, at once or
/// later.
pub fn init(settings: &TelemetrySettings) -> Result<Guard, InitError> {
    let otlp = &settings.otlp;
    let is_exporting = otlp.traces.is_some() || otlp.metrics.is_some() || otlp.logs.is_some();
    let start = || Exporter::start(otlp, &settings.service_name);
    let exporter = is_exporting.then(start).transpose()?;
    let left_out = |lines| {
        tracing::warn!(lines, "log lines were left out, because the log was read too slowly");
    };
    let (lines, writing) = LogWriter::start(io::stderr, left_out).map_err(InitError::Thread)?;
    // Created first, so that it is shut down when the next step fails.
    let level = LevelControl::new(settings.level);
    let deferred =
        DeferredLines::start(level.clone(), log::write_line).map_err(InitError::Thread)?;
    let guard = Guard { lines: Some(deferred), exporter, _writing: writing };
    let exporter = guard.exporter.as_ref();
    subscriber(settings.log, &level, exporter, lines)
        .try_init()
        .map_err(|_| InitError::AlreadyStarted)?;
    guard.lines.iter().for_each(LineThread::become_that_of_process);
    Controls::new(level, exporter.and_then(Exporter::sampler)).become_those_of_process();
    Ok(guard)
}

/// Builds the subscriber that writes lines to `writer` and spans to `exporter`.
pub(super) fn subscriber<W>(
    format: LogFormat,
    level: &LevelControl,
    exporter: Option<&Exporter>,
    writer: W,
) -> impl Subscriber + Send + Sync + use<W>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let is_line = || LineFilter(level.clone());
    let lines = tracing_subscriber::fmt::layer()
        .fmt_fields(DefaultFields::new())
        .event_format(LineFormat(format))
        .with_writer(writer)
        .with_filter(is_line());
    // A list instead of an `Option`: an absent layer counts as interested in everything and would
    // enable all spans.
    let mut layers: Vec<Box<dyn Layer<Registry> + Send + Sync>> = vec![lines.boxed()];
    if let Some(records) = exporter.and_then(Exporter::log_records) {
        layers.push(records.with_filter(is_line()).boxed());
    }
    if let Some(tracer) = exporter.and_then(Exporter::tracer) {
        let spans = tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_target(false)
            .with_level(false)
            .with_filter(filter_fn(is_traced).with_max_level_hint(LevelFilter::INFO));
        layers.push(spans.boxed());
    }
    Registry::default().with(layers)
}

/// Lets events pass by the level in force. A span never passes.
struct LineFilter(LevelControl);

impl<S> Filter<S> for LineFilter {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        is_logged(metadata, self.0.get().0)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        // A change of the level asks again.
        let is_logged = is_logged(metadata, self.0.get().0);
        if is_logged { Interest::always() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.0.get().0)
    }
}

/// Libraries that warn of what a peer does, once for each time: the gateway counts and logs it
/// itself, at its own pace.
const OF_PEERS: [&str; 3] = ["h2::", "redis::", "rustls::"];

/// Returns true for events, never spans: the gateway's own from `level` on, all others from `warn`
/// or `error` on.
fn is_logged(metadata: &Metadata<'_>, level: LevelFilter) -> bool {
    let from = if is_own(metadata) {
        level
    } else if OF_PEERS.iter().any(|name| metadata.target().starts_with(name)) {
        level.min(LevelFilter::ERROR)
    } else {
        level.min(LevelFilter::WARN)
    };
    metadata.is_event() && *metadata.level() <= from
}

/// Returns true for the gateway's own spans and no event: a trace carries no log lines.
fn is_traced(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && is_own(metadata) && *metadata.level() <= LevelFilter::INFO
}

fn is_own(metadata: &Metadata<'_>) -> bool {
    let rest = metadata.target().strip_prefix(OWN);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

#[cfg(test)]
mod tests;
