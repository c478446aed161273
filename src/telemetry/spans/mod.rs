//! The spans of a request (SPECIFICATION, "Traces"): one server span `request` with the children
//! `cache`, `admission` and `upstream`, by OpenTelemetry's names for HTTP, and W3C Trace Context in
//! and out.
//!
//! Without an OTLP endpoint no span is made: the functions here return disabled spans, which cost a
//! load and a branch. Left out: the exporter (`otlp`), and paths, queries and headers, which no
//! span carries.

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::field::Empty;
use tracing::{Span, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::outcome::{MethodName, Outcome, WaitCause};

/// Opens the server span of a client request. It joins the caller's trace if `headers` carry a
/// `traceparent`. [`finish`] adds what is known later.
pub fn server_span(headers: &HeaderMap, method: MethodName, server_address: &str) -> Span {
    let span = info_span!(
        parent: None,
        "request",
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method.as_str(),
        http.route = Empty,
        http.response.status_code = Empty,
        server.address = server_address,
        error.type = Empty,
        weir.client = Empty,
        weir.account = Empty,
        weir.resource = Empty,
        weir.cache = Empty,
        weir.refusal = Empty,
        weir.held.by = Empty,
        weir.held.account = Empty,
        weir.held.until = Empty,
        weir.upstream.attempts = Empty,
    );
    if !span.is_disabled() {
        let caller = TraceContextPropagator::new().extract(&Headers(headers));
        // Fails only for a span that no exporter sees.
        let _ = span.set_parent(caller);
    }
    span
}

/// Opens the child that covers the cache lookup.
pub fn cache_span(request: &Span) -> Span {
    info_span!(parent: request, "cache", otel.kind = "internal")
}

/// Opens the child that covers the choice of an account and the wait for its budget.
pub fn admission_span(request: &Span) -> Span {
    info_span!(
        parent: request,
        "admission",
        otel.kind = "internal",
        weir.held.by = Empty,
        weir.held.account = Empty,
        weir.held.until = Empty,
    )
}

/// Records on a server or admission span why the request waited.
pub fn record_wait_cause(span: &Span, cause: &WaitCause) {
    if span.is_disabled() {
        return;
    }
    span.record("weir.held.by", cause.by);
    record_name(span, "weir.held.account", cause.account.as_deref());
    record_name(
        span,
        "weir.held.until",
        cause.until.map(crate::clock::Timestamp::rfc3339).as_deref(),
    );
}

/// Opens the child that covers one request to the upstream at `server_address`. A fetch outlives
/// the request that started it (SPECIFICATION D1), so this span refers to its parent without
/// keeping it open.
pub fn upstream_span(request: &Span, method: MethodName, server_address: &str) -> Span {
    let span = info_span!(
        parent: None,
        "upstream",
        otel.kind = "client",
        otel.name = method.as_str(),
        otel.status_code = Empty,
        http.request.method = method.as_str(),
        http.response.status_code = Empty,
        server.address = server_address,
        error.type = Empty,
    );
    if !span.is_disabled() {
        let _ = span.set_parent(request.context());
    }
    span
}

// Numbers are recorded as `i64`, OpenTelemetry's only integer type: the bridge turns an unsigned
// one into text.

/// Records the upstream's answer on its span; `None` without an answer.
pub fn finish_upstream(upstream: &Span, status: Option<u16>) {
    if upstream.is_disabled() {
        return;
    }
    if let Some(status) = status {
        upstream.record("http.response.status_code", i64::from(status));
        // A client span counts 4xx as errors too, a server span only 5xx (OpenTelemetry, HTTP
        // spans, Status).
        if status >= 400 {
            upstream.record("otel.status_code", "ERROR");
            upstream.record("error.type", status.to_string().as_str());
        }
    } else {
        upstream.record("otel.status_code", "ERROR");
        upstream.record("error.type", "no_answer");
    }
}

/// Records the outcome of a request on its server span. The span ends when it is dropped.
pub fn finish(request: &Span, outcome: &Outcome) {
    if request.is_disabled() {
        return;
    }
    // `otel.name` would count only until the span has its first child.
    request.context().span().update_name(format!(
        "{} {}",
        outcome.method.as_str(),
        outcome.endpoint
    ));
    request.record("http.route", outcome.endpoint);
    request.record("http.response.status_code", i64::from(outcome.status));
    request.record("weir.cache", outcome.cache.label());
    request.record("weir.upstream.attempts", i64::from(outcome.upstream_attempts));
    record_name(request, "weir.client", outcome.client.as_deref());
    record_name(request, "weir.account", outcome.account.as_deref());
    record_name(request, "weir.resource", outcome.resource.as_deref());
    record_name(request, "weir.refusal", outcome.refusal);
    if let Some(by) = &outcome.held {
        record_wait_cause(request, by);
    }
    if outcome.status >= 500 {
        request.record("otel.status_code", "ERROR");
        request.record("error.type", outcome.status.to_string().as_str());
    }
}

fn record_name(span: &Span, field: &str, name: Option<&str>) {
    if let Some(name) = name {
        span.record(field, name);
    }
}

/// Writes `traceparent` and `tracestate` of `span` into the headers of a request to the upstream,
/// replacing any. With spans off it does nothing: the caller's own never go on.
pub fn inject(span: &Span, headers: &mut HeaderMap) {
    if !span.is_disabled() {
        TraceContextPropagator::new().inject_context(&span.context(), &mut HeadersMut(headers));
    }
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    /// A repeated header cannot be parsed and counts as absent (W3C Trace Context, section 3.2).
    fn get(&self, key: &str) -> Option<&str> {
        let mut values = self.0.get_all(key).iter();
        let first = values.next()?;
        if values.next().is_some() { None } else { first.to_str().ok() }
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct HeadersMut<'a>(&'a mut HeaderMap);

impl Injector for HeadersMut<'_> {
    fn set(&mut self, key: &str, value: String) {
        let Ok(name) = HeaderName::try_from(key) else { return };
        // The caller's `tracestate` belongs to the replaced `traceparent`, so an empty new value
        // removes it.
        self.0.remove(&name);
        if let (false, Ok(value)) = (value.is_empty(), HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}

#[cfg(test)]
mod tests;
