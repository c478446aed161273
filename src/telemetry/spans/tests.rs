//! The spans that an exporter receives.

use std::cell::RefCell;
use std::future::ready;
use std::sync::{Arc, Mutex};

use http::Method;
use opentelemetry::trace::{SpanKind, Status};
use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SimpleSpanProcessor, SpanData, SpanExporter};

use super::*;
use crate::telemetry::controls::{Controls, LevelControl};
use crate::telemetry::init::{LogFormat, LogLevel, subscriber};
use crate::telemetry::otlp::{Exporter, Sampling};

const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const CALLER_TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

thread_local! {
    /// That of the exporter.
    static SAMPLER: RefCell<Option<RequestSampler>> = const { RefCell::new(None) };
}

/// Collects exported spans.
#[derive(Clone, Debug, Default)]
struct CollectingExporter(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for CollectingExporter {
    fn export(&self, batch: Vec<SpanData>) -> impl Future<Output = OTelSdkResult> + Send {
        self.0.lock().unwrap().extend(batch);
        ready(Ok(()))
    }
}

/// Returns the spans that were finished while `act` ran with spans on.
fn exported(sample_ratio: f64, act: impl FnOnce()) -> Vec<SpanData> {
    let kept = CollectingExporter::default();
    let exporter =
        Exporter::with_processor(SimpleSpanProcessor::new(kept.clone()), sampling(sample_ratio));
    SAMPLER.set(exporter.sampler());
    let level = LevelControl::new(LogLevel::default());
    let subscriber = subscriber(LogFormat::Json, &level, Some(&exporter), std::io::sink);
    tracing::subscriber::with_default(subscriber, act);
    kept.0.lock().unwrap().clone()
}

fn sampling(ratio: f64) -> Sampling {
    Sampling { ratio, is_parent_based: true }
}

fn headers(traceparent: &str) -> HeaderMap {
    HeaderMap::from_iter([(
        HeaderName::from_static("traceparent"),
        HeaderValue::from_str(traceparent).unwrap(),
    )])
}

fn outcome(status: u16) -> Outcome {
    let mut outcome = Outcome::new(&Method::GET, "/repos/acme/widgets?token=hunter2", "id");
    outcome.endpoint = "/repos/{owner}/{repo}";
    outcome.client = Some("ci".into());
    outcome.status = status;
    outcome
}

/// Opens the span of a request.
fn request(headers: &HeaderMap) -> TraceSpan {
    let call = ClientCall {
        headers,
        method: (&Method::GET).into(),
        scheme: "http",
        server_address: "weir.internal",
        query: Some("page=2&q=hunter2&token=hunter2"),
    };
    SAMPLER.with_borrow(|sampler| sampled_span(&call, sampler.as_ref().unwrap()))
}

fn upstream_call(resent: u32) -> UpstreamCall<'static> {
    UpstreamCall {
        method: (&Method::GET).into(),
        server_address: "api.example.com",
        target: "/repos/acme/widgets?state=open&q=hunter2",
        resent,
    }
}

fn attribute(span: &SpanData, key: &str) -> Option<Value> {
    span.attributes
        .iter()
        .find(|KeyValue { key: found, .. }| found.as_str() == key)
        .map(|found| found.value.clone())
}

fn named<'s>(spans: &'s [SpanData], name: &str) -> &'s SpanData {
    spans
        .iter()
        .find(|span| span.name == name)
        .unwrap_or_else(|| panic!("no span `{name}` in {spans:?}"))
}

#[test]
fn a_server_span_has_the_names_of_opentelemetry() {
    let spans = exported(1.0, || finish(&request(&HeaderMap::new()), &outcome(200)));
    let span = named(&spans, "GET /repos/{owner}/{repo}");
    assert_eq!(span.span_kind, SpanKind::Server);
    assert_eq!(attribute(span, "http.request.method"), Some("GET".into()));
    assert_eq!(attribute(span, "http.route"), Some("/repos/{owner}/{repo}".into()));
    assert_eq!(attribute(span, "http.response.status_code"), Some(Value::I64(200)));
    assert_eq!(attribute(span, "server.address"), Some("weir.internal".into()));
    assert_eq!(attribute(span, "weir.client"), Some("ci".into()));
    assert_eq!(attribute(span, "weir.account"), None, "no account was asked");
    assert_eq!(span.status, Status::Unset);
}

#[test]
fn a_server_span_names_the_request_and_its_client() {
    let mut finished = outcome(200);
    finished.client_address = Some([192, 0, 2, 7].into());
    finished.user_agent = Some(HeaderValue::from_static("bot/1.0 (linux)"));
    finished.version = http::Version::HTTP_2;
    finished.upstream_request_id = Some(LogText::request_id("1A2B:3C"));
    finished.cost = 2;
    let spans = exported(1.0, || finish(&request(&HeaderMap::new()), &finished));
    for (key, value) in [
        ("url.scheme", "http"),
        ("url.path", "/repos/acme/widgets"),
        ("client.address", "192.0.2.7"),
        ("user_agent.original", "bot/1.0 (linux)"),
        ("network.protocol.version", "2"),
        ("weir.request_id", "id"),
        ("weir.upstream.request_id", "1A2B:3C"),
    ] {
        assert_eq!(attribute(&spans[0], key), Some(value.into()), "{key}");
    }
    assert_eq!(attribute(&spans[0], "weir.cost"), Some(Value::I64(2)));
}

#[test]
fn a_span_has_no_route_where_there_is_none() {
    let mut refused = outcome(401);
    refused.endpoint = NO_ENDPOINT;
    let spans = exported(1.0, || finish(&request(&HeaderMap::new()), &refused));
    assert_eq!(attribute(named(&spans, "GET"), "http.route"), None);
}

#[test]
fn a_span_shows_few_values_of_a_query() {
    let spans = exported(1.0, || {
        let request = request(&HeaderMap::new());
        drop(upstream_span(&request, &upstream_call(0)));
        finish(&request, &outcome(200));
    });
    assert_eq!(attribute(&spans[0], "url.query"), Some("state=open&q=REDACTED".into()));
    let shown = attribute(&spans[1], "url.query");
    assert_eq!(shown, Some("page=2&q=REDACTED&token=REDACTED".into()));
    assert!(!format!("{spans:?}").contains("hunter2"), "{spans:?}");
}

#[test]
fn a_repeated_upstream_request_counts_its_resends() {
    let spans = exported(1.0, || {
        let request = request(&HeaderMap::new());
        for resent in [0, 2] {
            drop(upstream_span(&request, &upstream_call(resent)));
        }
    });
    let counts: Vec<_> =
        spans[..2].iter().map(|span| attribute(span, "http.request.resend_count")).collect();
    assert_eq!(counts, [None, Some(Value::I64(2))]);
}

#[test]
fn a_request_without_a_span_has_the_trace_of_its_caller() {
    let trace = |headers: &HeaderMap| {
        super::trace(&TraceSpan::none(), headers).map(|ids| ids.trace_id().to_string())
    };
    assert_eq!(trace(&headers(CALLER)).as_deref(), Some(CALLER_TRACE));
    assert_eq!(trace(&headers("00-nonsense")), None);
    assert_eq!(trace(&HeaderMap::new()), None);
}

#[test]
fn only_a_5xx_is_an_error_of_the_server() {
    let spans = exported(1.0, || {
        finish(&request(&HeaderMap::new()), &outcome(403));
        finish(&request(&HeaderMap::new()), &outcome(502));
    });
    assert_eq!(spans[0].status, Status::Unset);
    assert!(matches!(spans[1].status, Status::Error { .. }));
    assert_eq!(attribute(&spans[1], "error.type"), Some("502".into()));
}

#[test]
fn an_upstream_that_fails_is_an_error_of_its_span() {
    let spans = exported(1.0, || {
        let request = request(&HeaderMap::new());
        for status in [Some(304), Some(404), None] {
            let upstream = upstream_span(&request, &upstream_call(0));
            inject(&upstream, &mut HeaderMap::new());
            finish_upstream(&upstream, status);
        }
    });
    let failed: Vec<bool> =
        spans[..3].iter().map(|span| matches!(span.status, Status::Error { .. })).collect();
    assert_eq!(failed, [false, true, true]);
}

#[test]
fn the_steps_of_a_request_are_its_children() {
    let spans = exported(1.0, || {
        let request = request(&HeaderMap::new());
        drop(cache_span(&request));
        drop(admission_span(&request));
        finish_upstream(&upstream_span(&request, &upstream_call(0)), Some(200));
        finish(&request, &outcome(200));
    });
    let parent = named(&spans, "GET /repos/{owner}/{repo}");
    for child in ["cache", "admission", "GET"] {
        let child = named(&spans, child);
        assert_eq!(child.parent_span_id, parent.span_context.span_id(), "{child:?}");
        assert_eq!(child.span_context.trace_id(), parent.span_context.trace_id());
    }
    let upstream = named(&spans, "GET");
    assert_eq!(
        (&upstream.span_kind, attribute(upstream, "server.address")),
        (&SpanKind::Client, Some("api.example.com".into()))
    );
}

#[test]
fn a_wait_cause_is_on_the_admission_and_server_spans() {
    let by = WaitCause {
        by: "primary",
        account: Some("bot".into()),
        until: Some(crate::clock::Timestamp::from_secs(1_800_000_000)),
    };
    let spans = exported(1.0, || {
        let request = request(&HeaderMap::new());
        record_wait_cause(&admission_span(&request), &by);
        finish(&request, &Outcome { held: Some(by), ..outcome(403) });
    });
    for name in ["admission", "GET /repos/{owner}/{repo}"] {
        let attributes = ["weir.held.by", "weir.held.account", "weir.held.until"]
            .map(|key| attribute(named(&spans, name), key));
        assert_eq!(
            attributes,
            ["primary", "bot", "2027-01-15T08:00:00Z"].map(|value| Some(value.into())),
            "{name}"
        );
    }
}

#[test]
fn a_detached_fetch_does_not_keep_the_server_span_open() {
    let spans = exported(1.0, || {
        let request = request(&HeaderMap::new());
        let upstream = upstream_span(&request, &upstream_call(0));
        finish(&request, &outcome(200));
        drop(request);
        finish_upstream(&upstream, None);
    });
    assert_eq!(spans[0].name, "GET /repos/{owner}/{repo}", "the request ended first");
    assert_eq!(spans[1].parent_span_id, spans[0].span_context.span_id());
    assert_eq!(attribute(&spans[1], "error.type"), Some("no_answer".into()));
}

#[test]
fn a_callers_trace_goes_on_to_the_upstream() {
    let mut sent = headers(CALLER);
    let spans = exported(1.0, || {
        let request = request(&headers(CALLER));
        let upstream = upstream_span(&request, &upstream_call(0));
        inject(&upstream, &mut sent);
        finish(&request, &outcome(200));
    });
    let upstream = named(&spans, "GET");
    let traceparent = sent["traceparent"].to_str().unwrap();
    assert_eq!(traceparent, format!("00-{CALLER_TRACE}-{}-01", upstream.span_context.span_id()));
    let server = named(&spans, "GET /repos/{owner}/{repo}");
    assert_eq!(server.parent_span_id.to_string(), "b7ad6b7169203331");
    assert!(server.parent_span_is_remote);
}

#[test]
fn an_unsampled_trace_goes_on_but_is_not_exported() {
    let mut sent = HeaderMap::new();
    let spans = exported(1.0, || {
        let request = request(&headers(&CALLER.replace("-01", "-00")));
        inject(&upstream_span(&request, &upstream_call(0)), &mut sent);
    });
    assert!(spans.is_empty(), "{spans:?}");
    let traceparent = sent["traceparent"].to_str().unwrap();
    assert!(
        traceparent.starts_with(&format!("00-{CALLER_TRACE}-")) && traceparent.ends_with("-00"),
        "{traceparent}"
    );
}

#[test]
fn an_unsampled_request_has_ids_and_no_span() {
    let mut sent = HeaderMap::new();
    let mut shown = None;
    let spans = exported(0.0, || {
        let request = request(&HeaderMap::new());
        shown = trace(&request, &HeaderMap::new());
        assert!(cache_span(&request).is_disabled() && admission_span(&request).is_disabled());
        let upstream = upstream_span(&request, &upstream_call(0));
        inject(&upstream, &mut sent);
        finish_upstream(&upstream, Some(200));
        finish(&request, &outcome(200));
    });
    assert!(spans.is_empty(), "{spans:?}");
    let shown = shown.unwrap();
    assert!(!shown.is_sampled);
    let (trace, span) = (shown.trace_id(), shown.span_id().unwrap());
    let traceparent = sent["traceparent"].to_str().unwrap();
    assert!(traceparent.starts_with(&format!("00-{trace}-")), "{traceparent}");
    assert!(!traceparent.contains(span.as_str()), "the upstream's caller is the attempt");
}

#[test]
fn a_traceparent_that_cannot_be_read_begins_a_new_trace() {
    let mut twice = headers(CALLER);
    twice.append("traceparent", HeaderValue::from_static(CALLER));
    for bad in [headers("00-zz-b7ad6b7169203331-01"), headers("garbage"), headers(""), twice] {
        let spans = exported(1.0, || drop(request(&bad)));
        assert_eq!(spans.len(), 1, "{bad:?}");
        assert_ne!(spans[0].span_context.trace_id().to_string(), CALLER_TRACE, "{bad:?}");
    }
}

#[test]
fn the_ratio_decides_only_for_traces_that_begin_here() {
    let own = exported(0.0, || drop(request(&HeaderMap::new())));
    assert!(own.is_empty(), "{own:?}");
    let callers = exported(0.0, || drop(request(&headers(CALLER))));
    assert_eq!(callers.len(), 1);
}

#[test]
fn a_callers_tracestate_does_not_outlive_its_traceparent() {
    let mut sent = HeaderMap::from_iter([(
        HeaderName::from_static("tracestate"),
        HeaderValue::from_static("vendor=1"),
    )]);
    exported(1.0, || inject(&request(&HeaderMap::new()), &mut sent));
    assert!(sent.contains_key("traceparent") && !sent.contains_key("tracestate"), "{sent:?}");
}

#[test]
fn the_sampled_part_changes_while_the_process_runs() {
    let kept = CollectingExporter::default();
    let exporter = Exporter::with_processor(SimpleSpanProcessor::new(kept.clone()), sampling(0.0));
    let level = LevelControl::new(LogLevel::default());
    SAMPLER.set(exporter.sampler());
    let controls = Controls::new(level.clone(), exporter.sampler());
    let subscriber = subscriber(LogFormat::Json, &level, Some(&exporter), std::io::sink);
    tracing::subscriber::with_default(subscriber, || {
        for (ratio, spans) in [(None, 0), (Some(1.0), 1), (Some(0.0), 1), (Some(1.0), 2)] {
            controls.change(None, ratio).unwrap();
            drop(request(&HeaderMap::new()));
            assert_eq!(kept.0.lock().unwrap().len(), spans, "{ratio:?}");
        }
    });
    assert_eq!((controls.at_start().ratio, controls.now().ratio), (Some(0.0), Some(1.0)));
}
