//! The log line of a finished request.
//!
//! Its event carries all fields, as any subscriber expects. The gateway's own writers take them
//! from a `RequestLine` beside it: a visit of thirty fields costs more than the rest of the line.
//! Left out: the format of a line (`format`, `otlp`), and its destination (`init`).

mod deferred;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tracing::{Level, Metadata, info, warn};

pub(super) use self::deferred::{DeferredLines, LineThread};
use super::outcome::{LogText, Outcome, protocol_name};
use super::recent::Story;
use super::trace_ids::{Hex, TraceIds};
use crate::clock::machine_micros;

/// Target of the lines of requests.
pub(super) const TARGET: &str = module_path!();
/// Message of these lines.
const MESSAGE: &str = "request";

/// Takes the fields of a line in their order. Names are identifiers.
pub(super) trait FieldSink {
    /// Takes a text.
    fn text(&mut self, name: &'static str, value: &str);
    /// Takes a whole number.
    fn number(&mut self, name: &'static str, value: u64);
    /// Takes milliseconds.
    fn millis(&mut self, name: &'static str, value: f64);
}

/// The line of a request that is being written. Each form of it has the same texts.
pub(super) struct RequestLine {
    story: Arc<Story>,
    /// End of the request, in microseconds since the epoch.
    pub micros: u64,
    user_agent: Option<LogText>,
    client_address: Option<String>,
    trace_id: Option<Hex<32>>,
    span_id: Option<Hex<16>>,
    cache_key: Option<String>,
    held_until: Option<String>,
}

thread_local! {
    static WRITTEN: RefCell<Option<Rc<RequestLine>>> = const { RefCell::new(None) };
}

/// Writes the line of a finished request, a few milliseconds later.
pub fn emit(story: &Arc<Story>) {
    let is_deferred = DeferredLines::of_process().is_some_and(|lines| lines.push(story));
    if !is_deferred {
        write_line(story, machine_micros());
    }
}

/// Writes the line of a request that ended at this time, in microseconds since the epoch.
pub(super) fn write_line(story: &Arc<Story>, micros: u64) {
    let line = Rc::new(RequestLine::new(Arc::clone(story), micros));
    WRITTEN.set(Some(Rc::clone(&line)));
    line.record();
    WRITTEN.set(None);
}

/// Calls `write` with the line of the request, if the event is one.
pub(super) fn with_line<T>(
    metadata: &Metadata<'_>,
    write: impl FnOnce(Option<&RequestLine>) -> T,
) -> T {
    WRITTEN.with_borrow(|line| write(line.as_deref().filter(|_| metadata.target() == TARGET)))
}

/// The level of a request's line. A refusal and a 5xx are warnings, so that `WEIR_LOG=warn` shows
/// failed requests.
fn level_of(outcome: &Outcome) -> Level {
    if outcome.refusal.is_some() || outcome.status >= 500 { Level::WARN } else { Level::INFO }
}

impl RequestLine {
    fn new(story: Arc<Story>, micros: u64) -> Self {
        let outcome = &story.outcome;
        let held_until = outcome.held.as_ref().and_then(|held| held.until);
        Self {
            user_agent: outcome.user_agent.as_ref().map(LogText::user_agent),
            client_address: outcome.client_address.map(|address| address.to_string()),
            trace_id: outcome.trace.as_ref().map(TraceIds::trace_id),
            span_id: outcome.trace.as_ref().and_then(TraceIds::span_id),
            cache_key: outcome.cache_key.map(|key| format!("{key:016x}")),
            held_until: held_until.map(crate::clock::Timestamp::rfc3339),
            story,
            micros,
        }
    }

    /// Records the event, with the fields in the same order as below.
    fn record(&self) {
        let outcome = &self.story.outcome;
        let held = outcome.held.as_ref();
        // The level of a record is a constant of its call site.
        macro_rules! event {
            ($level:ident) => {
                $level!(
                    target: TARGET,
                    message = MESSAGE,
                    request_id = outcome.request_id.as_str(),
                    client = outcome.client.as_deref(),
                    method = outcome.method.as_str(),
                    endpoint = outcome.endpoint,
                    path = outcome.path.as_str(),
                    protocol = protocol_name(outcome.version),
                    client_address = self.client_address.as_deref(),
                    user_agent = self.user_agent.as_ref().map(LogText::as_str),
                    trace_id = self.trace_id.as_ref().map(Hex::as_str),
                    span_id = self.span_id.as_ref().map(Hex::as_str),
                    status = outcome.status,
                    cache = outcome.cache.label(),
                    cache_key = self.cache_key.as_deref(),
                    operation = outcome.operation.as_ref().map(LogText::as_str),
                    account = outcome.account.as_deref(),
                    resource = outcome.resource.as_deref(),
                    upstream_attempts = outcome.upstream_attempts,
                    upstream_request_id =
                        outcome.upstream_request_id.as_ref().map(LogText::as_str),
                    cost = outcome.cost,
                    upstream_ms = millis(outcome.upstream),
                    queue_ms = millis(outcome.queue),
                    duration_ms = millis(outcome.total),
                    bytes_in = outcome.bytes_in,
                    bytes_out = outcome.bytes_out,
                    refusal = outcome.refusal,
                    shadowed_by = outcome.shadowed,
                    held_by = held.map(|held| held.by),
                    held_account = held.and_then(|held| held.account.as_deref()),
                    held_until = self.held_until.as_deref(),
                    error = outcome.error.as_ref().map(LogText::as_str),
                )
            };
        }
        if level_of(outcome) == Level::WARN { event!(warn) } else { event!(info) }
    }

    /// Passes on the fields. Unknown ones are omitted.
    pub(super) fn pass_to(&self, sink: &mut impl FieldSink) {
        let outcome = &self.story.outcome;
        let held = outcome.held.as_ref();
        known(sink, "message", Some(MESSAGE));
        known(sink, "request_id", Some(outcome.request_id.as_str()));
        known(sink, "client", outcome.client.as_deref());
        known(sink, "method", Some(outcome.method.as_str()));
        known(sink, "endpoint", Some(outcome.endpoint));
        known(sink, "path", Some(outcome.path.as_str()));
        known(sink, "protocol", Some(protocol_name(outcome.version)));
        known(sink, "client_address", self.client_address.as_deref());
        known(sink, "user_agent", self.user_agent.as_ref().map(LogText::as_str));
        known(sink, "trace_id", self.trace_id.as_ref().map(Hex::as_str));
        known(sink, "span_id", self.span_id.as_ref().map(Hex::as_str));
        sink.number("status", outcome.status.into());
        known(sink, "cache", Some(outcome.cache.label()));
        known(sink, "cache_key", self.cache_key.as_deref());
        known(sink, "operation", outcome.operation.as_ref().map(LogText::as_str));
        known(sink, "account", outcome.account.as_deref());
        known(sink, "resource", outcome.resource.as_deref());
        sink.number("upstream_attempts", outcome.upstream_attempts.into());
        known(
            sink,
            "upstream_request_id",
            outcome.upstream_request_id.as_ref().map(LogText::as_str),
        );
        sink.number("cost", outcome.cost.into());
        sink.millis("upstream_ms", millis(outcome.upstream));
        sink.millis("queue_ms", millis(outcome.queue));
        sink.millis("duration_ms", millis(outcome.total));
        sink.number("bytes_in", outcome.bytes_in);
        sink.number("bytes_out", outcome.bytes_out);
        known(sink, "refusal", outcome.refusal);
        known(sink, "shadowed_by", outcome.shadowed);
        known(sink, "held_by", held.map(|held| held.by));
        known(sink, "held_account", held.and_then(|held| held.account.as_deref()));
        known(sink, "held_until", self.held_until.as_deref());
        known(sink, "error", outcome.error.as_ref().map(LogText::as_str));
    }
}

/// Passes on a text, if it is known.
fn known(sink: &mut impl FieldSink, name: &'static str, value: Option<&str>) {
    if let Some(value) = value {
        sink.text(name, value);
    }
}

/// Milliseconds to three places; a hit takes a fraction of one.
#[expect(clippy::cast_precision_loss, reason = "microseconds are exact in an f64 for 285 years")]
fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}

#[cfg(test)]
mod tests;
