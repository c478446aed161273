//! The settings of telemetry from the config.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Uri};
use rustls::ClientConfig;
use secrecy::ExposeSecret as _;

use crate::config::{self, Config, OtlpHeader};
use crate::gateway::client_tls;
use crate::telemetry::{
    LogFormat, LogLevel, OtlpProtocol, OtlpSettings, OtlpTarget, Sampling, TelemetrySettings,
    Temporality,
};

/// Translates `[telemetry]`.
pub fn telemetry_settings(config: &Config, level: LogLevel) -> TelemetrySettings {
    let config::Telemetry { log, otlp, service_name, sampling } = &config.telemetry;
    let signal = |target: &Option<config::OtlpTarget>, path| {
        target.as_ref().map(|target| target_of(target, path))
    };
    TelemetrySettings {
        log: match log {
            config::LogFormat::Json => LogFormat::Json,
            config::LogFormat::Text => LogFormat::Text,
        },
        level,
        otlp: OtlpSettings {
            traces: signal(&otlp.traces, "/v1/traces"),
            metrics: signal(&otlp.metrics, "/v1/metrics"),
            logs: signal(&otlp.logs, "/v1/logs"),
            sampling: Sampling { ratio: sampling.ratio, is_parent_based: sampling.is_parent_based },
            metrics_interval: otlp.metrics_interval,
            temporality: match otlp.temporality {
                config::Temporality::Cumulative => Temporality::Cumulative,
                config::Temporality::Delta => Temporality::Delta,
            },
            resource: otlp.resource.clone(),
        },
        service_name: service_name.to_string(),
    }
}

fn target_of(target: &config::OtlpTarget, path: &str) -> OtlpTarget {
    let url = &target.endpoint.url;
    let added = if target.endpoint.is_base { path } else { "" };
    let path = format!("{}{added}", url.path_prefix());
    let path = PathAndQuery::try_from(if path.is_empty() { "/".to_owned() } else { path });
    let uri = Uri::builder()
        .scheme(url.scheme().as_str())
        .authority(url.authority())
        .path_and_query(path.unwrap_or_else(|_| PathAndQuery::from_static("/")));
    OtlpTarget {
        // An address of the config has only parts that fit.
        url: uri.build().unwrap_or_default(),
        protocol: match target.protocol {
            config::OtlpProtocol::Grpc => OtlpProtocol::Grpc,
            config::OtlpProtocol::Http => OtlpProtocol::Http,
        },
        is_compressed: target.compression == config::OtlpCompression::Gzip,
        headers: target.headers.iter().filter_map(header).collect::<HeaderMap>(),
        tls: url.is_tls().then(|| tls_of(target)),
        timeout: target.timeout,
    }
}

fn header(header: &OtlpHeader) -> Option<(http::HeaderName, HeaderValue)> {
    let mut value = HeaderValue::try_from(header.value.expose_secret()).ok()?;
    value.set_sensitive(true);
    Some((header.name.clone(), value))
}

fn tls_of(target: &config::OtlpTarget) -> Arc<ClientConfig> {
    Arc::new(client_tls(target.ca_file.as_ref(), target.client_certificate.as_ref()))
}
