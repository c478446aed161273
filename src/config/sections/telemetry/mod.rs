//! `[telemetry]`: logs, and the export of traces, metrics and logs by OTLP.

mod environment;
mod otlp;

use std::sync::Arc;

pub use otlp::{
    Otlp, OtlpCompression, OtlpEndpoint, OtlpHeader, OtlpProtocol, OtlpSignal, OtlpTarget,
    Temporality,
};

use crate::config::input::reader::{Choice, Reader};
use crate::config::input::scalars::Ratio;
use crate::config::printer::{Printer, float, text};
use environment::Environment;

/// Name of the service without any other.
const SERVICE_NAME: &str = "weir";

/// The section `[telemetry]`.
#[derive(Clone, Debug)]
pub struct Telemetry {
    /// Format of the log lines.
    pub log: LogFormat,
    /// Export by OTLP.
    pub otlp: Otlp,
    /// Service name in all that is exported.
    pub service_name: Arc<str>,
    /// Traces that are kept.
    pub sampling: Sampling,
}

/// The traces that are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Fraction of requests, 0 to 1, that are traced.
    pub ratio: f64,
    /// True if a caller's decision takes precedence.
    pub is_parent_based: bool,
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
    /// Reads the section. OpenTelemetry's variables count where the section has no key.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Self {
        let log = reader.or("log", LogFormat::Json);
        let service_name = reader.optional::<Arc<str>>("service_name");
        let ratio = reader.optional::<Ratio>("sample_ratio");
        let mut resource = Environment(reader).resource().unwrap_or_default();
        let place = resource.iter().position(|(name, _)| name == "service.name");
        let named = place.map(|place| resource.remove(place).1.into());
        let service_name = service_name
            .or_else(|| Environment(reader).service_name())
            .or(named)
            .unwrap_or_else(|| SERVICE_NAME.into());
        let sampling = match ratio {
            Some(Ratio(ratio)) => Some(Sampling { ratio, is_parent_based: true }),
            None => Environment(reader).sampling(),
        };
        Self {
            log,
            otlp: Otlp::read(reader, resource),
            service_name,
            sampling: sampling.unwrap_or(Sampling { ratio: 1.0, is_parent_based: true }),
        }
    }

    pub(crate) fn print(&self, printer: &mut Printer) {
        printer.section("telemetry");
        printer.set("log", text(self.log.name()));
        self.otlp.print(printer);
        printer.set("service_name", text(&self.service_name));
        printer.set("sample_ratio", float(self.sampling.ratio));
    }
}
