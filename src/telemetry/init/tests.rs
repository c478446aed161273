//! Log levels by target, and the existence of spans.

use std::sync::{Arc, Mutex};

use super::*;
use crate::telemetry::otlp::{OtlpProtocol, OtlpTarget};
use crate::telemetry::spans::{self, ClientCall, UpstreamCall};

fn parsed(level: &str) -> Result<LogLevel, UnknownLevel> {
    LogLevel::parse(level, LogLevel::default())
}

/// Returns what a subscriber with this level wrote while `act` ran.
fn logged_at(level: &str, act: impl FnOnce()) -> String {
    let written = Arc::new(Mutex::new(Vec::new()));
    let settings =
        TelemetrySettings { level: parsed(level).unwrap(), ..TelemetrySettings::default() };
    let sink = Arc::clone(&written);
    tracing::subscriber::with_default(
        subscriber(&settings, None, move || Sink(Arc::clone(&sink))),
        act,
    );
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
    assert_eq!(LogLevel::parse("", LogLevel::WARN), Ok(LogLevel::WARN));
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
