//! The log line of a finished request.
//!
//! Left out: the format of a line (`format`), and its destination (`init`).

use std::time::Duration;

use tracing::{info, warn};

use super::outcome::{LogText, Outcome, protocol_name};
use super::trace_ids::{Hex, TraceIds};

/// Target of the lines of requests.
pub(super) const TARGET: &str = module_path!();

/// Writes the line of a finished request, message `request`. Unknown fields are omitted. A refusal
/// and a 5xx are warnings, so that `WEIR_LOG=warn` shows failed requests.
pub fn emit(outcome: &Outcome) {
    let user_agent = outcome.user_agent.as_ref().map(LogText::user_agent);
    let trace_id = outcome.trace.as_ref().map(TraceIds::trace_id);
    let span_id = outcome.trace.as_ref().and_then(TraceIds::span_id);
    // The level of a record is a constant of its call site.
    macro_rules! line {
        ($level:ident) => {
            $level!(
                message = "request",
                request_id = outcome.request_id.as_str(),
                client = outcome.client.as_deref(),
                method = outcome.method.as_str(),
                endpoint = outcome.endpoint,
                path = outcome.path.as_str(),
                protocol = protocol_name(outcome.version),
                client_address = outcome.client_address.map(tracing::field::display),
                user_agent = user_agent.as_ref().map(LogText::as_str),
                trace_id = trace_id.as_ref().map(Hex::as_str),
                span_id = span_id.as_ref().map(Hex::as_str),
                status = outcome.status,
                cache = outcome.cache.label(),
                cache_key = outcome.cache_key.map(|key| format!("{key:016x}")),
                operation = outcome.operation.as_ref().map(LogText::as_str),
                account = outcome.account.as_deref(),
                resource = outcome.resource.as_deref(),
                upstream_attempts = outcome.upstream_attempts,
                upstream_request_id = outcome.upstream_request_id.as_ref().map(LogText::as_str),
                cost = outcome.cost,
                upstream_ms = millis(outcome.upstream),
                queue_ms = millis(outcome.queue),
                duration_ms = millis(outcome.total),
                bytes_in = outcome.bytes_in,
                bytes_out = outcome.bytes_out,
                refusal = outcome.refusal,
                shadowed_by = outcome.shadowed,
                held_by = outcome.held.as_ref().map(|held| held.by),
                held_account = outcome.held.as_ref().and_then(|held| held.account.as_deref()),
                held_until = outcome
                    .held
                    .as_ref()
                    .and_then(|held| held.until)
                    .map(crate::clock::Timestamp::rfc3339),
                error = outcome.error.as_ref().map(LogText::as_str),
            )
        };
    }
    if outcome.refusal.is_some() || outcome.status >= 500 { line!(warn) } else { line!(info) }
}

/// Milliseconds to three places; a hit takes a fraction of one.
#[expect(clippy::cast_precision_loss, reason = "microseconds are exact in an f64 for 285 years")]
fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}

#[cfg(test)]
mod tests;
