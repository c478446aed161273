//! Log levels by target, and the existence of spans.

use std::sync::{Arc, Mutex};

use super::*;
use crate::telemetry::otlp::{OtlpProtocol, OtlpTarget};
use crate::telemetry::spans::{self, ClientCall, UpstreamCall};
use crate::telemetry::written::Written;

fn parsed(level: &str) -> Result<LogLevel, UnknownVariable> {
    LogLevel::of_variable(level, LogLevel::default())
}

/// Returns what a subscriber with this level wrote while `act` ran.
fn logged_at(level: &str, act: impl FnOnce()) -> String {
    let written = Arc::new(Mutex::new(Vec::new()));
    let level = LevelControl::new(parsed(level).unwrap());
    let sink = Arc::clone(&written);
    let writer = move || Sink(Arc::clone(&sink));
    tracing::subscriber::with_default(subscriber(LogFormat::Json, &level, None, writer), act);
    let bytes = written.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

struct Sink(Arc<Mutex<Vec<u8>>>);

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_dependency_logs_nothing_below_warn_at_any_level() {
    for level in ["info", "debug"] {
        let text = logged_at(level, || {
            tracing::debug!(target: "pingora_proxy::proxy_h1", "Request header: authorization: Bearer hunter2");
            tracing::trace!(target: "h2::hpack", "authorization: hunter2");
            tracing::info!(target: "pingora_core::server", "hunter2");
            tracing::debug!(target: "weird", "hunter2");
            tracing::warn!(target: "pingora_core::server", "heard");
        });
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains("heard"), "{text}");
    }
}

#[test]
fn the_level_filters_the_gateways_own_lines() {
    let log_at_each_level = || {
        tracing::debug!("own debug");
        tracing::info!("own info");
        tracing::error!("own error");
    };
    assert!(logged_at("debug", log_at_each_level).contains("own debug"));
    let usual = logged_at("", log_at_each_level);
    assert!(!usual.contains("own debug") && usual.contains("own info"), "{usual}");
    let quiet = logged_at("error", log_at_each_level);
    assert!(!quiet.contains("own info") && quiet.contains("own error"), "{quiet}");
}

#[test]
fn the_level_changes_while_the_process_runs() {
    let written = Written::default();
    let level = LevelControl::new(LogLevel::default());
    let controls = Controls::new(level.clone(), None);
    let log = |step| {
        tracing::debug!(step, "own debug");
        tracing::warn!(step, "own warning");
        tracing::debug!(target: "pingora_proxy", step, "theirs");
    };
    let subscriber = subscriber(LogFormat::Text, &level, None, written.clone());
    tracing::subscriber::with_default(subscriber, || {
        for (step, level) in ["info", "DEBUG", "error", "warn"].into_iter().enumerate() {
            controls.change(Some(level), None).unwrap();
            log(step);
        }
    });
    let text = written.text();
    let steps = |message: &str| {
        let lines = text.lines().filter(|line| line.contains(message));
        lines.filter_map(|line| line.chars().last()).collect::<String>()
    };
    assert_eq!((steps("own debug"), steps("own warning")), ("1".into(), "013".into()), "{text}");
    assert_eq!(steps("theirs"), "", "{text}");
    let (at_start, now) = (controls.at_start(), controls.now());
    assert_eq!((at_start.level.name(), now.level.name()), ("info", "warn"));
}

#[test]
fn a_change_that_cannot_be_made_changes_nothing() {
    let controls = Controls::new(LevelControl::new(LogLevel::WARN), None);
    for (level, ratio, problem) in [
        (Some("loud"), None, "log_level: unknown level \"loud\" (accepted: off, error"),
        (Some("info"), Some(0.5), "traces have no destination"),
        (Some("info"), Some(1.5), "sample_ratio is 1.5: accepted is a number from 0 to 1"),
        (None, Some(f64::NAN), "sample_ratio is NaN"),
    ] {
        let fault = controls.change(level, ratio).unwrap_err().to_string();
        assert!(fault.starts_with(problem), "{fault}");
        assert_eq!(controls.now(), controls.at_start());
    }
}

#[test]
fn level_off_silences_dependencies_too() {
    let text = logged_at("off", || {
        tracing::error!("own");
        tracing::error!(target: "pingora_core", "theirs");
    });
    assert_eq!(text, "");
}

#[test]
fn an_unknown_level_is_refused_with_those_that_exist() {
    assert_eq!(parsed(""), Ok(LogLevel::default()));
    assert_eq!(parsed(" WARN "), Ok(LogLevel::WARN));
    assert_eq!(LogLevel::of_variable("", LogLevel::WARN), Ok(LogLevel::WARN));
    for mistyped in ["loud", "warning", "trace", "weir=debug", "2"] {
        let refused = parsed(mistyped).unwrap_err().to_string();
        assert_eq!(
            refused,
            format!(
                "WEIR_LOG: unknown level \"{mistyped}\" (accepted: off, error, warn, info, debug)"
            )
        );
    }
}

#[test]
fn spans_are_disabled_without_an_endpoint() {
    logged_at("debug", || {
        let span = spans::server_span(&ClientCall {
            headers: &http::HeaderMap::new(),
            method: (&http::Method::GET).into(),
            scheme: "http",
            server_address: "weir.internal",
            query: None,
        });
        assert!(span.is_disabled());
        let call = UpstreamCall {
            method: (&http::Method::GET).into(),
            server_address: "api.example.com",
            target: "/",
            resent: 0,
        };
        assert!(spans::upstream_span(&span, &call).is_disabled());
    });
}

#[test]
fn an_unusable_endpoint_is_refused_and_not_shown() {
    for endpoint in ["https://user:hunter2@otel:4317", "otel:4317", "ftp://otel", "/hunter2"] {
        let target = OtlpTarget {
            url: endpoint.parse().unwrap(),
            protocol: OtlpProtocol::Grpc,
            headers: http::HeaderMap::new(),
            tls: None,
            is_compressed: false,
            timeout: std::time::Duration::from_secs(1),
        };
        let otlp = OtlpSettings { traces: Some(target), ..OtlpSettings::default() };
        let settings = TelemetrySettings { otlp, ..TelemetrySettings::default() };
        let fault =
            init(&settings).err().map(|fault| format!("{fault} {fault:?}")).unwrap_or_default();
        assert!(
            fault.contains("http://HOST:PORT") && !fault.contains("hunter2"),
            "{endpoint}: {fault}"
        );
    }
}
