//! The spans of a request (SPECIFICATION, "Traces"): one server span `request` with the children
//! `cache`, `admission` and `upstream`, by OpenTelemetry's names for HTTP, and W3C Trace Context in
//! and out.
//!
//! Without an OTLP endpoint no span is made: the functions here return disabled spans, which cost a
//! load and a branch. An unsampled request has none either, but its trace goes on. Left out: the
//! choice (`sampler`), the exporter (`otlp`), and bodies, headers and most values of queries, which
//! no span carries.

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::{SpanContext, TraceContextExt as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{IdGenerator as _, RandomIdGenerator};
use tracing::field::Empty;
use tracing::{Span, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::controls::Controls;
use super::outcome::{LogText, MethodName, NO_ENDPOINT, Outcome, WaitCause, protocol_name};
use super::sampler::{Choice, RequestSampler};
use super::trace_ids::TraceIds;

/// Query parameters whose values are on spans; the value of any other one may be private.
const SHOWN_PARAMETERS: [&str; 5] = ["page", "per_page", "sort", "direction", "state"];
/// The value of another one, by OpenTelemetry's name.
const REDACTED: &str = "REDACTED";
static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The known facts about a client request when its server span opens.
#[derive(Clone, Copy, Debug)]
pub struct ClientCall<'r> {
    /// Headers of the request; `traceparent` and `tracestate` are read.
    pub headers: &'r HeaderMap,
    /// Request method.
    pub method: MethodName,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// Host of the gateway.
    pub server_address: &'r str,
    /// Query of the target, without `?`.
    pub query: Option<&'r str>,
}

/// The known facts about a request to the upstream when its client span opens.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamCall<'r> {
    /// Request method.
    pub method: MethodName,
    /// Host of the upstream.
    pub server_address: &'r str,
    /// Path and query.
    pub target: &'r str,
    /// Number of attempts of the same client request before this one.
    pub resent: u32,
}

/// A span, or the context of one that is not sampled. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TraceSpan {
    span: Span,
    /// Set only for a disabled span.
    unsampled: Option<SpanContext>,
}

impl TraceSpan {
    /// The span of work that no request waits for, and of any without an exporter.
    pub fn none() -> Self {
        Span::none().into()
    }

    /// The span to enter; disabled if it is not exported.
    pub fn as_tracing(&self) -> &Span {
        &self.span
    }

    /// Returns true if nothing of it is exported.
    pub(super) fn is_disabled(&self) -> bool {
        self.span.is_disabled()
    }

    /// A context with the span; empty without one.
    fn context(&self) -> Context {
        match &self.unsampled {
            Some(unsampled) => Context::new().with_remote_span_context(unsampled.clone()),
            None => self.span.context(),
        }
    }
}

impl From<Span> for TraceSpan {
    fn from(span: Span) -> Self {
        Self { span, unsampled: None }
    }
}

impl From<SpanContext> for TraceSpan {
    fn from(unsampled: SpanContext) -> Self {
        Self { span: Span::none(), unsampled: Some(unsampled) }
    }
}

/// Opens the server span of a client request. It joins the caller's trace if the headers carry a
/// `traceparent`. [`finish`] adds what is known later.
pub fn server_span(call: &ClientCall<'_>) -> TraceSpan {
    let Some(sampler) = Controls::of_process().and_then(Controls::sampler) else {
        return TraceSpan::none();
    };
    sampled_span(call, sampler)
}

/// Opens the span if the sampler chooses the request.
pub(super) fn sampled_span(call: &ClientCall<'_>, sampler: &RequestSampler) -> TraceSpan {
    // Most callers have no trace.
    let caller = call
        .headers
        .contains_key(&TRACEPARENT)
        .then(|| TraceContextPropagator::new().extract(&Headers(call.headers)));
    let caller = match sampler.choose(caller) {
        Choice::Sampled(caller) => caller,
        Choice::Unsampled(context) => return context.into(),
    };
    let span = info_span!(
        parent: None,
        "request",
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = call.method.as_str(),
        http.route = Empty,
        http.response.status_code = Empty,
        url.scheme = call.scheme,
        url.path = Empty,
        url.query = Empty,
        network.protocol.version = Empty,
        client.address = Empty,
        user_agent.original = Empty,
        server.address = call.server_address,
        error.type = Empty,
        weir.request_id = Empty,
        weir.client = Empty,
        weir.account = Empty,
        weir.resource = Empty,
        weir.cache = Empty,
        weir.refusal = Empty,
        weir.shadowed_by = Empty,
        weir.held.by = Empty,
        weir.held.account = Empty,
        weir.held.until = Empty,
        weir.upstream.attempts = Empty,
        weir.upstream.request_id = Empty,
        weir.cost = Empty,
    );
    if !span.is_disabled() {
        record_name(&span, "url.query", call.query.map(redacted_query).as_deref());
        // Fails only for a span that no exporter sees.
        let _ = span.set_parent(caller);
    }
    span.into()
}

/// Opens the child that covers the cache lookup.
pub fn cache_span(request: &TraceSpan) -> Span {
    if request.is_disabled() {
        return Span::none();
    }
    info_span!(parent: &request.span, "cache", otel.kind = "internal")
}

/// Opens the child that covers the choice of an account and the wait for its budget.
pub fn admission_span(request: &TraceSpan) -> Span {
    if request.is_disabled() {
        return Span::none();
    }
    info_span!(
        parent: &request.span,
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

/// Opens the child that covers one request to the upstream. A fetch outlives the request that
/// started it (SPECIFICATION D1), so this span refers to its parent without keeping it open.
pub fn upstream_span(request: &TraceSpan, call: &UpstreamCall<'_>) -> TraceSpan {
    if let Some(of_request) = &request.unsampled {
        let own = RandomIdGenerator::default().new_span_id();
        let (trace, flags) = (of_request.trace_id(), of_request.trace_flags());
        let state = of_request.trace_state().clone();
        return SpanContext::new(trace, own, flags, false, state).into();
    }
    let span = info_span!(
        parent: None,
        "upstream",
        otel.kind = "client",
        otel.name = call.method.as_str(),
        otel.status_code = Empty,
        http.request.method = call.method.as_str(),
        http.request.resend_count = Empty,
        http.response.status_code = Empty,
        url.path = Empty,
        url.query = Empty,
        server.address = call.server_address,
        error.type = Empty,
    );
    if !span.is_disabled() {
        let (path, query) = call.target.split_once('?').unzip();
        span.record("url.path", LogText::path(path.unwrap_or(call.target)).as_str());
        record_name(&span, "url.query", query.map(redacted_query).as_deref());
        if call.resent > 0 {
            span.record("http.request.resend_count", i64::from(call.resent));
        }
        let _ = span.set_parent(request.context());
    }
    span.into()
}

// Numbers are recorded as `i64`, OpenTelemetry's only integer type: the bridge turns an unsigned
// one into text.

/// Records the upstream's answer on its span; `None` without an answer.
pub fn finish_upstream(upstream: &TraceSpan, status: Option<u16>) {
    let upstream = &upstream.span;
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
pub fn finish(request: &TraceSpan, outcome: &Outcome) {
    let request = &request.span;
    if request.is_disabled() {
        return;
    }
    // `otel.name` would count only until the span has its first child.
    let method = outcome.method.as_str();
    let route = Some(outcome.endpoint).filter(|endpoint| *endpoint != NO_ENDPOINT);
    let name = route.map_or_else(|| method.to_owned(), |route| format!("{method} {route}"));
    request.context().span().update_name(name);
    record_name(request, "http.route", route);
    request.record("url.path", outcome.path.as_str());
    let version = protocol_name(outcome.version).strip_prefix("HTTP/");
    record_name(request, "network.protocol.version", version);
    record_name(
        request,
        "client.address",
        outcome.client_address.map(|address| address.to_string()).as_deref(),
    );
    let user_agent = outcome.user_agent.as_ref().map(LogText::user_agent);
    record_name(request, "user_agent.original", user_agent.as_ref().map(LogText::as_str));
    request.record("weir.request_id", outcome.request_id.as_str());
    let upstream_id = outcome.upstream_request_id.as_ref().map(LogText::as_str);
    record_name(request, "weir.upstream.request_id", upstream_id);
    request.record("weir.cost", i64::from(outcome.cost));
    request.record("http.response.status_code", i64::from(outcome.status));
    request.record("weir.cache", outcome.cache.label());
    request.record("weir.upstream.attempts", i64::from(outcome.upstream_attempts));
    record_name(request, "weir.client", outcome.client.as_deref());
    record_name(request, "weir.account", outcome.account.as_deref());
    record_name(request, "weir.resource", outcome.resource.as_deref());
    record_name(request, "weir.refusal", outcome.refusal);
    record_name(request, "weir.shadowed_by", outcome.shadowed);
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
pub fn inject(span: &TraceSpan, headers: &mut HeaderMap) {
    if span.unsampled.is_some() || !span.is_disabled() {
        TraceContextPropagator::new().inject_context(&span.context(), &mut HeadersMut(headers));
    }
}

/// Returns the trace of a span; `None` with spans off.
pub fn ids(span: &TraceSpan) -> Option<TraceIds> {
    if let Some(unsampled) = &span.unsampled {
        return TraceIds::of(unsampled);
    }
    if span.is_disabled() {
        return None;
    }
    TraceIds::of(span.context().span().span_context())
}

/// Returns the trace of a request: that of its span, else the one in the caller's `traceparent`,
/// so that log lines lead to the caller's trace without an endpoint too.
pub fn trace(span: &TraceSpan, headers: &HeaderMap) -> Option<TraceIds> {
    ids(span).or_else(|| {
        if !headers.contains_key(&TRACEPARENT) {
            // Nearly every request without an endpoint.
            return None;
        }
        let caller = TraceContextPropagator::new().extract(&Headers(headers));
        TraceIds::of(caller.span().span_context())
    })
}

/// Replaces the values of all parameters but a few harmless ones.
fn redacted_query(query: &str) -> String {
    let mut shown = String::with_capacity(query.len());
    for parameter in query.split('&') {
        if !shown.is_empty() {
            shown.push('&');
        }
        match parameter.split_once('=') {
            Some((name, _)) if !SHOWN_PARAMETERS.contains(&name) => {
                shown.extend([name, "=", REDACTED]);
            }
            _ => shown.push_str(parameter),
        }
    }
    LogText::path(&shown).as_str().to_owned()
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
