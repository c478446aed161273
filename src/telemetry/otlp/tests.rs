//! Export to a collector that listens, to an absent one, and to one that never answers.

use std::path::Path;

use http::{HeaderMap, HeaderValue, Uri};
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric, number_data_point};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use super::span_queue::QUEUE_SPANS_MAX;
use super::*;
use crate::clock::Timestamp;
use crate::telemetry::collector::{Collector, Received, attribute};
use crate::telemetry::controls::LevelControl;
use crate::telemetry::init::{LogFormat, LogLevel, subscriber};
use crate::telemetry::log;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::tests::everything_once;
use crate::telemetry::outcome::{CacheOutcome, Fetch, LogText, Outcome, WaitCause};
use crate::telemetry::sampler::RequestSampler;
use crate::telemetry::spans::{self, ClientCall, UpstreamCall};

const PAPER: &str = include_str!("../../../SPECIFICATION.md");

fn target(url: &str, protocol: OtlpProtocol) -> OtlpTarget {
    OtlpTarget {
        url: url.parse::<Uri>().unwrap(),
        protocol,
        headers: HeaderMap::new(),
        tls: None,
        is_compressed: false,
        timeout: Duration::from_secs(10),
    }
}

/// Exports everything to an address.
fn settings(address: &str, protocol: OtlpProtocol) -> OtlpSettings {
    let to = |path: &str| {
        let path = if protocol == OtlpProtocol::Http { path } else { "" };
        Some(target(&format!("http://{address}{path}"), protocol))
    };
    OtlpSettings {
        traces: to("/v1/traces"),
        metrics: to("/v1/metrics"),
        logs: to("/v1/logs"),
        metrics_interval: Duration::from_secs(3_600),
        ..OtlpSettings::default()
    }
}

/// Spans alone, by gRPC.
fn spans_to(address: &str) -> OtlpSettings {
    OtlpSettings { metrics: None, logs: None, ..settings(address, OtlpProtocol::Grpc) }
}

fn traced(exporter: &Exporter, act: impl FnOnce()) {
    let level = LevelControl::new(LogLevel::default());
    let subscriber = subscriber(LogFormat::Json, &level, Some(exporter), std::io::sink);
    tracing::subscriber::with_default(subscriber, act);
}

fn request_span() -> spans::TraceSpan {
    let call = ClientCall {
        headers: &HeaderMap::new(),
        method: (&http::Method::GET).into(),
        scheme: "http",
        server_address: "weir.internal",
        query: Some("page=2"),
    };
    spans::sampled_span(&call, &RequestSampler::new(Sampling::default()))
}

fn finish_spans(exporter: &Exporter, spans: usize) {
    traced(exporter, || (0..spans).for_each(|_| drop(request_span())));
}

/// An outcome in which nothing is unknown.
fn full_outcome() -> Outcome {
    let mut outcome = Outcome::new(&http::Method::GET, "/repos/acme/widgets?q=hunter2", "id-1");
    outcome.client = Some("ci".into());
    outcome.endpoint = "/repos/{owner}/{repo}";
    outcome.status = 502;
    outcome.cache = CacheOutcome::Fetched(Fetch::NotStored);
    outcome.cache_key = Some(42);
    outcome.operation = Some(LogText::operation("OpenIssues"));
    outcome.account = Some("bot".into());
    outcome.resource = Some("core".into());
    outcome.refusal = Some("upstream");
    outcome.shadowed = Some("points");
    outcome.held = Some(WaitCause {
        by: "primary",
        account: Some("bot".into()),
        until: Some(Timestamp::from_secs(1_800_000_000)),
    });
    outcome.error = Some(LogText::error("connection refused"));
    outcome.client_address = Some([192, 0, 2, 7].into());
    outcome.user_agent = Some(HeaderValue::from_static("bot/1.0"));
    outcome.upstream_request_id = Some(LogText::request_id("1A2B:3C"));
    outcome
}

/// A finished request with a repeated request upstream; returns its trace.
fn finish_request() -> crate::telemetry::TraceIds {
    let request = request_span();
    let mut outcome = full_outcome();
    outcome.trace = spans::trace(&request, &HeaderMap::new());
    let upstream = spans::upstream_span(
        &request,
        &UpstreamCall {
            method: (&http::Method::GET).into(),
            server_address: "api.example.com",
            target: "/repos/acme/widgets?page=2",
            resent: 1,
        },
    );
    spans::finish_upstream(&upstream, Some(502));
    let recent = crate::telemetry::RecentRequests::default();
    log::emit(&recent.add(Timestamp::EPOCH, outcome.clone(), Vec::new()));
    spans::finish(&request, &outcome);
    outcome.trace.unwrap()
}

async fn shut_down(exporter: Exporter) {
    tokio::task::spawn_blocking(move || exporter.shutdown()).await.unwrap();
}

/// The words in backticks of a part of the specification.
fn words(part: &str) -> Vec<&str> {
    part.split('`').skip(1).step_by(2).collect()
}

fn section(title: &str) -> &'static str {
    let (_, section) = PAPER.split_once(&format!("\n## {title}\n")).unwrap();
    section.split_once("\n## ").unwrap().0
}

fn find<'r>(received: &'r Received, name: &str) -> Option<&'r Metric> {
    received.metrics.iter().rev().find(|metric| metric.name == name)
}

/// The sum of the points of a counter, and its temporality.
fn sum(metric: &Metric) -> (i64, i32) {
    let Some(metric::Data::Sum(sum)) = &metric.data else { panic!("no sum: {metric:?}") };
    let values = sum.data_points.iter().map(|point| match point.value {
        Some(number_data_point::Value::AsInt(value)) => value,
        ref other => panic!("no integer: {other:?}"),
    });
    (values.sum(), sum.aggregation_temporality)
}

#[tokio::test]
async fn all_signals_reach_a_collector_by_grpc_and_by_http() {
    for (protocol, is_compressed) in [
        (OtlpProtocol::Grpc, false),
        (OtlpProtocol::Grpc, true),
        (OtlpProtocol::Http, false),
        (OtlpProtocol::Http, true),
    ] {
        let collector = Collector::start().await;
        let address = collector.address.to_string();
        let mut settings = settings(&address, protocol);
        for target in [&mut settings.traces, &mut settings.metrics, &mut settings.logs] {
            target.as_mut().unwrap().is_compressed = is_compressed;
        }
        let mut exporter = Exporter::start(&settings, "weir-test").unwrap();
        let metrics = exporter.export_metrics(Box::new(|| Some(everything_once().snapshot())));
        let mut ids = None;
        traced(&exporter, || ids = Some(finish_request()));
        metrics.unwrap().finish().await;
        shut_down(exporter).await;
        let ids = ids.unwrap();
        let record = collector.until(|received| received.records.first().cloned()).await;
        assert_eq!(
            (record.trace_id, Some(record.span_id)),
            (ids.trace.to_vec(), ids.span.map(|span| span.to_vec()))
        );
        let spans = collector.until(|received| Some(received.spans.clone())).await;
        assert!(spans.len() == 2 && spans.iter().all(|span| span.trace_id == ids.trace));
        let metric = collector.until(|received| find(received, "weir_requests_total").cloned());
        assert_eq!(sum(&metric.await), (1, 2), "cumulative");
        let heads = collector.until(|received| Some(received.heads.clone())).await;
        let encoded = |headers: &HeaderMap| {
            headers.contains_key("grpc-encoding") || headers.contains_key("content-encoding")
        };
        assert!(heads.iter().all(|(_, headers)| encoded(headers) == is_compressed));
        let resources = collector.until(|received| Some(received.resources.clone())).await;
        assert!(resources.len() >= 3, "{resources:?}");
        for resource in resources {
            let fact = |name| attribute(&resource.attributes, name);
            assert_eq!(fact("service.name").as_deref(), Some("weir-test"));
            assert_eq!(fact("service.version").as_deref(), Some(env!("CARGO_PKG_VERSION")));
            assert_eq!(fact("service.instance.id").map(|id| id.len()), Some(36));
        }
    }
}

#[tokio::test]
async fn every_metric_of_the_specification_is_exported() {
    let collector = Collector::start().await;
    let address = collector.address.to_string();
    let mut exporter =
        Exporter::start(&settings(&address, OtlpProtocol::Grpc), "weir-test").unwrap();
    let metrics = exporter.export_metrics(Box::new(|| Some(everything_once().snapshot())));
    metrics.unwrap().finish().await;
    let rows = section("Metrics").lines().filter_map(|line| line.strip_prefix("| `"));
    let mut named: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    let mut received = collector
        .until(|received| {
            let metrics = received.metrics.iter().map(|metric| metric.name.clone());
            let metrics: Vec<String> = metrics.collect();
            (!metrics.is_empty()).then_some(metrics)
        })
        .await;
    named.sort_unstable();
    received.sort_unstable();
    assert_eq!(received, named);
}

#[tokio::test]
async fn every_span_attribute_of_the_specification_is_exported() {
    let collector = Collector::start().await;
    let exporter = Exporter::start(&spans_to(&collector.address.to_string()), "weir").unwrap();
    traced(&exporter, || {
        finish_request();
    });
    shut_down(exporter).await;
    let spans = collector.until(|received| Some(received.spans.clone())).await;
    let is_attribute = |word: &&str| {
        word.contains('.') && !word.contains("telemetry.") && !word.starts_with("service.")
    };
    let named: Vec<&str> = words(section("Traces")).into_iter().filter(is_attribute).collect();
    assert!(named.len() > 20, "{named:?}");
    for name in named {
        let has_it = spans.iter().any(|span| attribute(&span.attributes, name).is_some());
        assert!(has_it, "no `{name}` in {spans:#?}");
    }
}

#[tokio::test]
async fn every_log_field_of_the_specification_is_exported() {
    let collector = Collector::start().await;
    let address = collector.address.to_string();
    let exporter = Exporter::start(&settings(&address, OtlpProtocol::Http), "weir").unwrap();
    traced(&exporter, || {
        finish_request();
    });
    shut_down(exporter).await;
    let record = collector.until(|received| received.records.first().cloned()).await;
    let (_, fields) = section("Logs").split_once("`request` with:\n").unwrap();
    let (fields, _) = fields.trim_start().split_once("\n\n").unwrap();
    let named = words(fields);
    assert!(named.len() > 20, "{named:?}");
    for name in named {
        let is_there = match name {
            "trace_id" => record.trace_id.len() == 16,
            "span_id" => record.span_id.len() == 8,
            name => attribute(&record.attributes, name).is_some(),
        };
        assert!(is_there, "no `{name}` in {record:#?}");
    }
    let has = |name: &str| attribute(&record.attributes, name).unwrap();
    assert_eq!(
        (has("status"), has("client"), has("duration_ms")),
        ("502".into(), "ci".into(), "0".into())
    );
    assert_eq!((record.severity_number, record.severity_text.as_str()), (13, "WARN"));
    let body = record.body.and_then(|body| body.value);
    assert!(format!("{body:?}").contains("\"request\""), "{body:?}");
    assert!(record.time_unix_nano > 1_700_000_000_000_000_000);
}

#[tokio::test]
async fn figures_of_both_exports_are_equal() {
    let metrics = Arc::new(Metrics::new());
    let mut outcome = full_outcome();
    outcome.status = 200;
    outcome.refusal = None;
    for millis in [1, 3, 700] {
        outcome.total = Duration::from_millis(millis);
        metrics.record(&outcome);
    }
    let collector = Collector::start().await;
    let address = collector.address.to_string();
    let mut exporter =
        Exporter::start(&settings(&address, OtlpProtocol::Grpc), "weir-test").unwrap();
    let read = Arc::clone(&metrics);
    let export = exporter.export_metrics(Box::new(move || Some(read.snapshot())));
    export.unwrap().finish().await;
    let text = metrics.encode();
    assert!(
        text.contains(
            "_seconds_count{endpoint=\"/repos/{owner}/{repo}\",cache=\"not_stored\"} 3\n"
        )
    );
    for (name, labels) in [
        ("weir_request_duration_seconds", vec![("cache", "not_stored")]),
        (
            "http.server.request.duration",
            vec![
                ("http.request.method", "GET"),
                ("http.response.status_code", "200"),
                ("http.route", "/repos/{owner}/{repo}"),
                ("url.scheme", "http"),
            ],
        ),
    ] {
        let metric = collector.until(|received| find(received, name).cloned()).await;
        assert_eq!(metric.unit, "s");
        let Some(metric::Data::ExponentialHistogram(histogram)) = &metric.data else {
            panic!("{metric:?}")
        };
        let [point] = histogram.data_points.as_slice() else { panic!("{histogram:?}") };
        for (label, value) in labels {
            assert_eq!(attribute(&point.attributes, label).as_deref(), Some(value));
        }
        let buckets = point.positive.as_ref().unwrap();
        assert_eq!((point.count, buckets.bucket_counts.iter().sum::<u64>()), (3, 3));
        assert!((point.sum.unwrap() - 0.704).abs() < 1e-9, "{point:?}");
    }
}

#[tokio::test]
async fn a_delta_has_only_what_is_new() {
    let metrics = Arc::new(Metrics::new());
    let collector = Collector::start().await;
    let settings = OtlpSettings {
        temporality: Temporality::Delta,
        metrics_interval: Duration::from_millis(20),
        ..settings(&collector.address.to_string(), OtlpProtocol::Http)
    };
    let mut exporter = Exporter::start(&settings, "weir-test").unwrap();
    let read = Arc::clone(&metrics);
    let export = exporter.export_metrics(Box::new(move || Some(read.snapshot()))).unwrap();
    metrics.evicted(5);
    let evicted = |received: &Received| {
        let found = received.metrics.iter();
        let found = found.filter(|metric| metric.name == "weir_cache_evictions_total");
        found.map(sum).filter(|(count, _)| *count > 0).collect::<Vec<_>>()
    };
    let seen = collector.until(|received| Some(evicted(received)).filter(|all| !all.is_empty()));
    assert_eq!(seen.await, [(5, 1)]);
    metrics.evicted(2);
    let seen = collector.until(|received| Some(evicted(received)).filter(|all| all.len() > 1));
    assert_eq!(seen.await, [(5, 1), (2, 1)]);
    export.finish().await;
    assert_eq!(collector.until(|received| Some(evicted(received))).await.len(), 2);
}

#[tokio::test]
async fn headers_are_sent_and_never_shown() {
    let collector = Collector::start().await;
    let mut settings = spans_to(&collector.address.to_string());
    let mut value = HeaderValue::from_static("hunter2");
    value.set_sensitive(true);
    let headers = HeaderMap::from_iter([("x-api-key".parse().unwrap(), value)]);
    settings.traces = settings.traces.map(|target| OtlpTarget { headers, ..target });
    assert!(!format!("{settings:?}").contains("hunter2"));
    let exporter = Exporter::start(&settings, "weir").unwrap();
    finish_spans(&exporter, 1);
    shut_down(exporter).await;
    let (path, headers) = collector.until(|received| received.heads.first().cloned()).await;
    assert_eq!(path, "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    assert_eq!(
        (&headers["x-api-key"], &headers["content-type"]),
        (&HeaderValue::from_static("hunter2"), &HeaderValue::from_static("application/grpc"))
    );
}

fn pem(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/certificates").join(name)
}

fn roots(name: &str) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(pem(name)).unwrap()).unwrap();
    roots
}

fn identity(name: &str) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let chain = vec![CertificateDer::from_pem_file(pem(name)).unwrap()];
    (chain, PrivateKeyDer::from_pem_file(pem(name)).unwrap())
}

#[tokio::test]
async fn a_collector_by_tls_may_demand_a_certificate() {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(
        Arc::new(roots("client_authority.pem")),
        Arc::clone(&provider),
    );
    let (chain, key) = identity("server.pem");
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(chain, key)
        .unwrap();
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let (chain, key) = identity("ci_client.pem");
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots("authority.pem"))
        .with_client_auth_cert(chain, key)
        .unwrap();
    let tls = Some(Arc::new(client));
    for protocol in [OtlpProtocol::Grpc, OtlpProtocol::Http] {
        let free = "127.0.0.1:0".parse().unwrap();
        let collector = Collector::start_at(free, Some(acceptor.clone())).await;
        let url = format!("https://localhost:{}/v1/traces", collector.address.port());
        let traces = Some(OtlpTarget { tls: tls.clone(), ..target(&url, protocol) });
        let settings = OtlpSettings { traces, ..OtlpSettings::default() };
        let exporter = Exporter::start(&settings, "weir").unwrap();
        finish_spans(&exporter, 1);
        shut_down(exporter).await;
        assert_eq!(collector.until(|received| Some(received.spans.len())).await, 1, "{protocol:?}");
    }
}

#[tokio::test]
async fn a_refused_batch_is_dropped_and_counted() {
    let collector = Collector::start().await;
    collector.answer_with(400);
    let exporter = Exporter::start(&spans_to(&collector.address.to_string()), "weir").unwrap();
    let before = (counts::dropped(Signal::Traces), counts::exports(Signal::Traces)[1].1);
    // One, because on a slow machine several are no single batch.
    finish_spans(&exporter, 1);
    shut_down(exporter).await;
    assert_eq!(collector.until(|received| Some(received.heads.len())).await, 1);
    let after = (counts::dropped(Signal::Traces), counts::exports(Signal::Traces)[1].1);
    // Other tests drop spans, too.
    assert!(after.0 > before.0 && after.1 > before.1, "{before:?} {after:?}");
}

#[test]
fn an_absent_collector_neither_blocks_nor_fails_the_exporter() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .unwrap();
    let exporter = Exporter::start(&spans_to(&closed.to_string()), "weir").unwrap();
    let before = counts::dropped(Signal::Traces);
    finish_spans(&exporter, QUEUE_SPANS_MAX * 2);
    exporter.shutdown();
    let dropped = counts::dropped(Signal::Traces) - before;
    let all = u64::try_from(QUEUE_SPANS_MAX * 2).unwrap();
    assert!(dropped >= all, "{dropped} of {all}");
}

#[test]
fn a_silent_collector_delays_the_end_by_the_flush_at_most() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let exporter = Exporter::start(&spans_to(&address), "weir").unwrap();
    finish_spans(&exporter, QUEUE_SPANS_MAX * 2);
    let clock = crate::clock::Clock::system();
    let start = clock.now();
    exporter.shutdown();
    let took = clock.now().since(start);
    assert!(took <= FLUSH_MAX + Duration::from_secs(1), "{took:?}");
}

#[test]
fn full_queues_of_log_records_drop_and_count() {
    let queue = Arc::new(LogQueue::new(&Resource::default()));
    let before = counts::dropped(Signal::Logs);
    let subscriber = tracing_subscriber::layer::SubscriberExt::with(
        tracing_subscriber::registry::Registry::default(),
        LogRecords(Arc::clone(&queue)),
    );
    let long = "x".repeat(4_000);
    let records = 1_500;
    tracing::subscriber::with_default(subscriber, || {
        for _ in 0..records {
            tracing::info!(text = long, "a record");
        }
    });
    let mut kept = 0;
    while let Some(batch) = batches::Queue::take(&*queue) {
        assert!(batch.message.len() < 1024 * 1024, "{}", batch.message.len());
        kept += batch.records;
    }
    let dropped = counts::dropped(Signal::Logs) - before;
    assert!(kept > 900 && kept < records && kept + dropped >= records, "{kept} {dropped}");
}

#[tokio::test]
async fn an_export_can_end_on_a_thread_of_the_gateways_runtime() {
    let collector = Collector::start().await;
    let exporter = Exporter::start(&spans_to(&collector.address.to_string()), "weir").unwrap();
    finish_spans(&exporter, 1);
    let ended = std::thread::spawn(move || exporter.shutdown());
    collector.until(|received| received.spans.first().cloned()).await;
    ended.join().unwrap();
    // Built and dropped inside a runtime: neither may panic.
    Exporter::start(&spans_to("127.0.0.1:9"), "weir").unwrap().shutdown();
}
