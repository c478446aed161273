//! `[telemetry]`: logs and traces.

use std::sync::Arc;

use crate::config::input::http_url::HttpUrl;
use crate::config::input::reader::{Choice, Reader};
use crate::config::input::scalars::Ratio;
use crate::config::printer::{Printer, float, text};

/// The section `[telemetry]`.
#[derive(Clone, Debug)]
pub struct Telemetry {
    /// Format of the log lines.
    pub log: LogFormat,
    /// Collector of traces, by OTLP/gRPC.
    pub otlp_endpoint: Option<HttpUrl>,
    /// Service name in traces.
    pub service_name: Arc<str>,
    /// Fraction of requests, 0 to 1, that are traced.
    pub sample_ratio: f64,
}

/// Format of the log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// Text for terminals.
    Text,
}

impl Choice for LogFormat {
    const ALL: &'static [(&'static str, Self)] = &[("json", Self::Json), ("text", Self::Text)];
}

impl Telemetry {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Self {
        let telemetry = Self {
            log: reader.or("log", LogFormat::Json),
            otlp_endpoint: reader.optional("otlp_endpoint"),
            service_name: reader.or("service_name", "weir".into()),
            sample_ratio: reader.or("sample_ratio", Ratio(1.0)).0,
        };
        if telemetry.otlp_endpoint.as_ref().is_some_and(HttpUrl::is_tls) {
            // Traces go to a collector on the same machine or network; the exporter is built
            // without TLS.
            reader.refuse::<()>(
                "otlp_endpoint",
                "not built in this version: export over TLS",
                "an address such as \"http://127.0.0.1:4317\"",
            );
        }
        telemetry
    }

    pub(crate) fn print(&self, printer: &mut Printer) {
        printer.section("telemetry");
        printer.set("log", text(self.log.name()));
        printer.set_some("otlp_endpoint", self.otlp_endpoint.as_ref().map(text));
        printer.set("service_name", text(&self.service_name));
        printer.set("sample_ratio", float(self.sample_ratio));
    }
}
