//! The export of traces, metrics and logs by the built program (SPECIFICATION, "Export by OTLP").

use std::path::PathBuf;

use rustix::process::Signal;

use opentelemetry_proto::tonic::metrics::v1::{Metric, metric};

use crate::support::collector::{Collector, Received, attribute};
use crate::support::process::{Process, serve};
use crate::support::raw::Connection;
use crate::support::{KEY, Setup, World};

const REPOSITORY: &str = "/repos/acme/widgets";
const CALLER_TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// An emulator, and a config for a process in front of it.
struct Stage {
    _world: World,
    _folder: tempfile::TempDir,
    config: PathBuf,
}

impl Stage {
    async fn new(telemetry: &str) -> Self {
        let world = Setup::new().listen("admin = \"127.0.0.1:0\"").start().await;
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("weir.toml");
        std::fs::write(&config, format!("{}\n[telemetry]\n{telemetry}\n", world.text)).unwrap();
        Self { _world: world, _folder: folder, config }
    }

    fn start(&self, variables: &[(&str, &str)]) -> Process {
        let mut command = serve(&self.config);
        command.envs(variables.iter().copied());
        Process::start(command)
    }
}

/// Asks for the repository as part of a caller's trace.
async fn ask(process: &Process) {
    let mut client = Connection::open(process.address("listening").await).await;
    let request = format!(
        "GET {REPOSITORY} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\ntraceparent: 00-{CALLER_TRACE}-b7ad6b7169203331-01\r\n\r\n"
    );
    client.send(request.as_bytes()).await;
    let answer = client.read_answer().await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

async fn scrape(process: &Process, accept: &str) -> String {
    let mut client = Connection::open(process.address("admin listening").await).await;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {accept}\r\n\r\n");
    client.send(request.as_bytes()).await;
    client.read_answer().await
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"))
}

fn find<'r>(received: &'r Received, name: &str) -> Option<&'r Metric> {
    received.metrics.iter().rev().find(|metric| metric.name == name)
}

/// Ends the process, which sends what is left.
async fn end(process: &Process) {
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_in_all_three_signals_with_one_trace() {
    for protocol in ["grpc", "http/protobuf"] {
        let collector = Collector::start().await;
        let endpoint = format!("otlp_endpoint = \"http://{}\"", collector.address);
        let stage = Stage::new(&endpoint).await;
        let process = stage.start(&[
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=s3cret%20key"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "5000"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "3600000"),
            ("OTEL_RESOURCE_ATTRIBUTES", "team=ci,service.name=unused"),
            ("OTEL_SERVICE_NAME", "weir-under-test"),
        ]);
        ask(&process).await;
        let text = scrape(&process, "*/*").await;
        let exemplar = format!("# {{trace_id=\"{CALLER_TRACE}\"}}");
        assert!(text.contains(&exemplar) && text.contains("# EOF"), "{text}");
        let plain = scrape(&process, "text/plain").await;
        assert!(plain.contains("text/plain; version=0.0.4"), "{plain}");
        assert!(!plain.contains("trace_id") && !plain.contains("# EOF"), "{plain}");
        end(&process).await;

        let of_request = |received: &Received| {
            let is_it = |record: &&_| has_path(record);
            received.records.iter().find(is_it).cloned()
        };
        let record = collector.until(of_request).await;
        assert_eq!(hex(&record.trace_id), CALLER_TRACE);
        let spans = collector.until(|received| Some(received.spans.clone())).await;
        let server = spans.iter().find(|span| span.span_id == record.span_id);
        let server = server.unwrap_or_else(|| panic!("{spans:#?}"));
        assert_eq!(server.name, "GET /repos/{owner}/{repo}");
        let children = spans.iter().filter(|span| span.parent_span_id == server.span_id);
        assert!(children.count() >= 3, "{spans:#?}");
        for name in ["http.server.request.duration", "http.client.request.duration"] {
            let metric = collector.until(|received| find(received, name).cloned()).await;
            let Some(metric::Data::ExponentialHistogram(histogram)) = metric.data else {
                panic!("{name}: {metric:?}")
            };
            let of_route = histogram.data_points.iter().find(|point| {
                let route = ["http.route", "url.template"];
                let mut route = route.iter().filter_map(|name| attribute(&point.attributes, name));
                route.any(|route| route == "/repos/{owner}/{repo}")
            });
            let point = of_route.unwrap_or_else(|| panic!("{name}: {histogram:#?}"));
            assert_eq!(attribute(&point.attributes, "http.request.method").unwrap(), "GET");
            assert_eq!(
                (point.count, hex(&point.exemplars[0].trace_id).as_str()),
                (1, CALLER_TRACE)
            );
        }
        assert_named(&collector, protocol).await;
        let log = format!("{:?}", process.log());
        assert!(!log.contains("s3cret") && !log.contains("collector"), "{log}");
    }
}

fn has_path(record: &opentelemetry_proto::tonic::logs::v1::LogRecord) -> bool {
    attribute(&record.attributes, "path").as_deref() == Some(REPOSITORY)
}

/// Everything has the facts about the process and the header, and went to the path of its signal.
async fn assert_named(collector: &Collector, protocol: &str) {
    let received = collector.until(|received| Some(received.clone())).await;
    for resource in &received.resources {
        let fact = |name| attribute(&resource.attributes, name);
        assert_eq!(fact("service.name").as_deref(), Some("weir-under-test"));
        assert_eq!(fact("team").as_deref(), Some("ci"));
    }
    for (path, headers) in &received.heads {
        assert_eq!(headers["x-api-key"], "s3cret key");
        let is_http = protocol == "http/protobuf";
        assert_eq!(path.starts_with("/v1/"), is_http, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_is_one_line_and_its_return_another() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoint =
        format!("otlp_endpoint = \"http://{address}\"\notlp_metrics_interval = \"100ms\"");
    let stage = Stage::new(&endpoint).await;
    let process = stage.start(&[]);
    ask(&process).await;
    let away = process.logged("the collector is away, the export goes on").await;
    assert_eq!(away["collector"], format!("http://{address}"));
    assert!(away["error"].as_str().unwrap().contains("cannot connect"), "{away}");
    ask(&process).await;
    let failed = "weir_otlp_exports_total{signal=\"metrics\",result=\"failed\"} ";
    let is_counted = async {
        loop {
            let text = scrape(&process, "*/*").await;
            let line = text.lines().find_map(|line| line.strip_prefix(failed));
            if line.is_some_and(|count| count.parse::<u64>().unwrap() > 2) {
                return;
            }
        }
    };
    crate::support::bounded(is_counted).await;
    let collector = Collector::start_at(address, None).await;
    let back = process.logged("the collector is back").await;
    assert!(back["away_ms"].as_u64().is_some() && back["dropped"] == 0, "{back}");
    collector
        .until(|received| received.records.iter().find(|record| has_path(record)).cloned())
        .await;
    collector.until(|received| received.spans.first().cloned()).await;
    collector.until(|received| find(received, "weir_requests_total").cloned()).await;
    end(&process).await;
    let lines = process.log();
    let about = |message: &str| lines.iter().filter(|line| line["message"] == message).count();
    assert_eq!(about("the collector is away, the export goes on"), 1, "{lines:#?}");
    assert_eq!(about("the collector is back"), 1, "{lines:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_refuses_a_signal_is_one_line() {
    let collector = Collector::start().await;
    collector.answer_with(400);
    let keys = "otlp_signals = [\"metrics\"]\notlp_metrics_interval = \"50ms\"";
    let stage =
        Stage::new(&format!("otlp_endpoint = \"http://{}\"\n{keys}", collector.address)).await;
    let process = stage.start(&[]);
    let refused = process.logged("the collector refuses an export").await;
    assert_eq!(refused["signal"], "metrics");
    assert_eq!(refused["error"], "HTTP status 400");
    collector.until(|received| (received.heads.len() > 3).then_some(())).await;
    collector.answer_with(200);
    process.logged("the collector takes the export again").await;
    end(&process).await;
    let lines = process.log();
    let refused = lines.iter().filter(|line| line["message"] == refused["message"]);
    assert_eq!(refused.count(), 1, "{lines:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_sdk_exports_nothing() {
    let collector = Collector::start().await;
    let endpoint = format!("otlp_endpoint = \"http://{}\"", collector.address);
    let stage = Stage::new(&endpoint).await;
    let process = stage.start(&[("OTEL_SDK_DISABLED", "true")]);
    ask(&process).await;
    end(&process).await;
    assert_eq!(collector.until(|received| Some(received.heads.len())).await, 0);
}
