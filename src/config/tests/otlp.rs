//! The export by OTLP: keys of `[telemetry]`, and OpenTelemetry's variables where they are absent.

use secrecy::ExposeSecret;

use super::*;

/// Reads `VALID` with these keys of `[telemetry]` and these variables.
fn read(keys: &str, variables: &[(&str, &str)]) -> Result<Config, Faults> {
    let text = spoilt("[cache]", &format!("[telemetry]\n{keys}\n[cache]"));
    let variable = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned()).or_else(|| environment(name))
    };
    parse(&text, "weir.toml", &variable, Path::new(FILES))
}

fn target(of: Option<&OtlpTarget>) -> (String, OtlpProtocol, Duration) {
    let target = of.expect("it is exported");
    let OtlpEndpoint { url, is_base } = &target.endpoint;
    let base = if *is_base { " and a path" } else { "" };
    (format!("{url}{base}"), target.protocol, target.timeout)
}

#[test]
fn nothing_is_exported_without_an_endpoint() {
    let otlp = read("", &[]).unwrap().telemetry.otlp;
    assert!(otlp.traces.is_none() && otlp.metrics.is_none() && otlp.logs.is_none());
}

#[test]
fn variables_of_a_signal_win_over_those_of_all() {
    let config = read(
        "",
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4318/base/"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "none"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2000"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=a%20b, x-team=ci"),
            ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://logs/own"),
            ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "500"),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", ""),
            ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "Delta"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "15000"),
            ("OTEL_SERVICE_NAME", "edge"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,team=c%2Fi"),
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ],
    );
    let Telemetry { otlp, service_name, sampling, .. } = config.unwrap().telemetry;
    let (all, two) = ("http://all:4318/base and a path".to_owned(), Duration::from_secs(2));
    assert_eq!(target(otlp.traces.as_ref()), (all.clone(), OtlpProtocol::Http, two));
    let half = Duration::from_millis(500);
    assert_eq!(target(otlp.metrics.as_ref()), (all, OtlpProtocol::Grpc, half));
    let own = "http://logs/own".to_owned();
    assert_eq!(target(otlp.logs.as_ref()), (own, OtlpProtocol::Http, two));
    let compression = |target: &Option<OtlpTarget>| target.as_ref().unwrap().compression;
    assert_eq!(compression(&otlp.traces), OtlpCompression::None);
    assert_eq!(compression(&otlp.logs), OtlpCompression::Gzip);
    let headers = &otlp.logs.as_ref().unwrap().headers;
    let headers = headers.iter().map(|header| (header.name.as_str(), header.value.expose_secret()));
    assert_eq!(headers.collect::<Vec<_>>(), [("x-api-key", "a b"), ("x-team", "ci")]);
    assert_eq!(otlp.temporality, Temporality::Delta);
    assert_eq!(otlp.metrics_interval, Duration::from_secs(15));
    assert_eq!(&*service_name, "edge");
    assert_eq!(otlp.resource, [("team".to_owned(), "c/i".to_owned())]);
    assert_eq!(sampling, Sampling { ratio: 0.25, is_parent_based: false });
}

#[test]
fn keys_of_the_file_win_over_all_variables() {
    let keys = r#"otlp_endpoint = "http://file:4317"
otlp_protocol = "grpc"
otlp_signals = ["traces", "metrics"]
otlp_headers = { x-api-key = { env = "BOT_TOKEN" } }
otlp_timeout = "3s"
otlp_metrics_interval = "30s"
otlp_temporality = "cumulative"
service_name = "file"
sample_ratio = 0.5"#;
    let config = read(
        keys,
        &[
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-api-key=other"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1"),
            ("OTEL_TRACES_EXPORTER", "none"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "1"),
            ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta"),
            ("OTEL_SERVICE_NAME", "variable"),
            ("OTEL_TRACES_SAMPLER", "always_off"),
        ],
    )
    .unwrap();
    let Telemetry { otlp, service_name, sampling, .. } = &config.telemetry;
    let file =
        ("http://file:4317 and a path".to_owned(), OtlpProtocol::Grpc, Duration::from_secs(3));
    assert_eq!(target(otlp.traces.as_ref()), file);
    assert!(otlp.logs.is_none());
    let header = &otlp.traces.as_ref().unwrap().headers[0];
    assert_eq!(header.value.expose_secret(), "env-s3cret");
    assert_eq!(otlp.temporality, Temporality::Cumulative);
    assert_eq!(otlp.metrics_interval, Duration::from_secs(30));
    assert_eq!((&**service_name, sampling.ratio), ("file", 0.5));
    let shown = config.redacted_toml();
    assert!(shown.contains("otlp_headers = { x-api-key = { env = \"BOT_TOKEN\" } }"), "{shown}");
    assert!(!format!("{shown}{config:?}").contains("env-s3cret"));
}

#[test]
fn a_disabled_sdk_wins_over_the_file() {
    let endpoint = "otlp_endpoint = \"http://file:4317\"";
    let otlp = read(endpoint, &[("OTEL_SDK_DISABLED", "TRUE")]).unwrap().telemetry.otlp;
    assert!(otlp.traces.is_none() && otlp.metrics.is_none() && otlp.logs.is_none());
    let otlp = read(endpoint, &[("OTEL_SDK_DISABLED", "false")]).unwrap().telemetry.otlp;
    assert!(otlp.traces.is_some());
}

#[test]
fn a_signal_may_be_switched_off_by_its_variable() {
    let otlp = read(
        "otlp_endpoint = \"http://file:4317\"",
        &[("OTEL_LOGS_EXPORTER", "none"), ("OTEL_METRICS_EXPORTER", "otlp")],
    );
    let otlp = otlp.unwrap().telemetry.otlp;
    assert!(otlp.traces.is_some() && otlp.metrics.is_some() && otlp.logs.is_none());
}

#[test]
fn a_wrong_variable_is_a_fault_that_names_it() {
    for (name, value, key, accepted) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "hunter2:4317", "otlp_endpoint", "http or https"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://me:hunter2@a", "otlp_endpoint", "http or"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "otlp_protocol", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "otlp_compression", "none, gzip"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "hunter2", "otlp_headers", "x-api-key=KEY"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "host=hunter2", "otlp_headers", "x-api-key=KEY"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere.pem", "otlp_ca_file", "PEM"),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "key.pem", "otlp_client_certificate", "both"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "otlp_timeout", "milliseconds"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0", "otlp_metrics_interval", "milliseconds"),
        (
            "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
            "lowmemory",
            "otlp_temporality",
            "cumulative",
        ),
        ("OTEL_TRACES_EXPORTER", "jaeger", "otlp_signals", "otlp or none"),
        ("OTEL_SERVICE_NAME", "wé", "service_name", "printable"),
        ("OTEL_RESOURCE_ATTRIBUTES", "hunter2", "service_name", "team=ci"),
        ("OTEL_SDK_DISABLED", "yes", "otlp_endpoint", "true or false"),
        ("OTEL_TRACES_SAMPLER", "jaeger_remote", "sample_ratio", "parentbased_traceidratio"),
    ] {
        let faults = read("", &[(name, value)]).unwrap_err();
        let [fault] = faults.0.as_slice() else { panic!("one fault for {name}: {faults}") };
        let text = fault.to_string();
        assert!(fault.key == format!("telemetry.{key}") && text.contains(accepted), "{text}");
        assert!(text.contains(name) && !text.contains("hunter2"), "{text}");
    }
}

#[test]
fn a_header_of_the_exchange_itself_is_refused() {
    let keys = "otlp_headers = { content-type = { value = \"text\" } }";
    let faults = read(keys, &[]).unwrap_err();
    let [fault] = faults.0.as_slice() else { panic!("one fault: {faults}") };
    assert_eq!(fault.key, "telemetry.otlp_headers.content-type");
}
