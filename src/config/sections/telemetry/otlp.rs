//! The export by OTLP: keys `otlp_…` of `[telemetry]`, and OpenTelemetry's variables where a key
//! is absent.

use std::time::Duration;

use http::HeaderName;
use secrecy::{ExposeSecret as _, SecretString};

use super::environment::Environment;
use crate::config::input::http_url::HttpUrl;
use crate::config::input::reader::{Choice, Entry, Read, Reader};
use crate::config::input::scalars::duration_text;
use crate::config::input::secret::Secret;
use crate::config::printer::{Printer, inline, list, text};
use crate::config::sections::tls::{CaFile, CertificateFiles};

/// Default of OpenTelemetry for one export.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Default of OpenTelemetry between two exports of metrics.
const METRICS_INTERVAL: Duration = Duration::from_secs(60);
/// Longest name of a header.
const NAME_BYTES_MAX: usize = 64;

/// The export by OTLP. Signals without a target are not exported.
#[derive(Clone, Debug, PartialEq)]
pub struct Otlp {
    /// Destination of spans.
    pub traces: Option<OtlpTarget>,
    /// Destination of metrics.
    pub metrics: Option<OtlpTarget>,
    /// Destination of log records.
    pub logs: Option<OtlpTarget>,
    /// Time between two exports of metrics.
    pub metrics_interval: Duration,
    /// Meaning of sums and histograms.
    pub temporality: Temporality,
    /// Facts about the process besides its name.
    pub resource: Vec<(String, String)>,
    /// The target of all signals, as far as it is known, for the effective config.
    common: Values,
    signals: Vec<OtlpSignal>,
}

/// The destination of a signal.
#[derive(Clone, Debug)]
pub struct OtlpTarget {
    /// Its address.
    pub endpoint: OtlpEndpoint,
    /// The form of the exchange.
    pub protocol: OtlpProtocol,
    /// How its messages are compressed.
    pub compression: OtlpCompression,
    /// Headers of each request.
    pub headers: Vec<OtlpHeader>,
    /// Certificate authorities to trust instead of the system's.
    pub ca_file: Option<CaFile>,
    /// The gateway's own certificate.
    pub client_certificate: Option<CertificateFiles>,
    /// Timeout of one export.
    pub timeout: Duration,
}

/// An address of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpEndpoint {
    /// The address.
    pub url: HttpUrl,
    /// True if the path of the signal, such as `/v1/traces`, is to be added for HTTP.
    pub is_base: bool,
}

/// A header of the requests to a collector.
#[derive(Clone, Debug)]
pub struct OtlpHeader {
    /// Its name.
    pub name: HeaderName,
    /// Its value.
    pub value: SecretString,
    /// The source of its value in the file.
    pub(super) shown: Option<String>,
}

/// A signal of OpenTelemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpSignal {
    /// Spans.
    Traces,
    /// The metrics of `/metrics`.
    Metrics,
    /// Log records.
    Logs,
}

/// The form of the exchange with a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// gRPC.
    Grpc,
    /// HTTP with messages of Protocol Buffers.
    Http,
}

/// How messages to a collector are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpCompression {
    /// Not at all.
    None,
    /// By gzip.
    Gzip,
}

/// Meaning of the sums of two exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Temporality {
    /// Sums since the start.
    Cumulative,
    /// Sums since the export before.
    Delta,
}

impl Choice for OtlpSignal {
    const ALL: &'static [(&'static str, Self)] =
        &[("traces", Self::Traces), ("metrics", Self::Metrics), ("logs", Self::Logs)];
}

impl Choice for OtlpProtocol {
    const ALL: &'static [(&'static str, Self)] =
        &[("grpc", Self::Grpc), ("http/protobuf", Self::Http)];
}

impl Choice for OtlpCompression {
    const ALL: &'static [(&'static str, Self)] = &[("none", Self::None), ("gzip", Self::Gzip)];
}

impl Choice for Temporality {
    const ALL: &'static [(&'static str, Self)] =
        &[("cumulative", Self::Cumulative), ("delta", Self::Delta)];
}

impl OtlpSignal {
    /// Returns its part in the names of variables.
    pub(super) fn variable(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
            Self::Logs => "LOGS",
        }
    }
}

/// Values of a target from one source.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    pub endpoint: Option<OtlpEndpoint>,
    pub protocol: Option<OtlpProtocol>,
    pub compression: Option<OtlpCompression>,
    pub headers: Option<Vec<OtlpHeader>>,
    pub ca_file: Option<CaFile>,
    pub client_certificate: Option<CertificateFiles>,
    pub timeout: Option<Duration>,
}

impl Values {
    fn of_file(reader: &mut Reader<'_>) -> Self {
        let endpoint = reader.optional("otlp_endpoint");
        let certificate =
            reader.if_set("otlp_client_certificate", |entry| entry.table(CertificateFiles::read));
        let timeout = reader.is_set("otlp_timeout");
        let read = reader.positive("otlp_timeout", TIMEOUT);
        Self {
            endpoint: endpoint.map(|url| OtlpEndpoint { url, is_base: true }),
            protocol: reader.optional("otlp_protocol"),
            compression: reader.optional("otlp_compression"),
            headers: reader.optional::<Headers>("otlp_headers").map(|Headers(headers)| headers),
            ca_file: reader.optional("otlp_ca_file"),
            client_certificate: certificate.flatten(),
            timeout: timeout.then_some(read),
        }
    }

    /// Adds what only `other` has.
    fn or(self, other: Self) -> Self {
        Self {
            endpoint: self.endpoint.or(other.endpoint),
            protocol: self.protocol.or(other.protocol),
            compression: self.compression.or(other.compression),
            headers: self.headers.or(other.headers),
            ca_file: self.ca_file.or(other.ca_file),
            client_certificate: self.client_certificate.or(other.client_certificate),
            timeout: self.timeout.or(other.timeout),
        }
    }

    fn target(self) -> Option<OtlpTarget> {
        Some(OtlpTarget {
            endpoint: self.endpoint?,
            protocol: self.protocol.unwrap_or(OtlpProtocol::Grpc),
            compression: self.compression.unwrap_or(OtlpCompression::None),
            headers: self.headers.unwrap_or_default(),
            ca_file: self.ca_file,
            client_certificate: self.client_certificate,
            timeout: self.timeout.unwrap_or(TIMEOUT),
        })
    }
}

impl Otlp {
    pub(super) fn read(reader: &mut Reader<'_>, resource: Vec<(String, String)>) -> Self {
        let file = Values::of_file(reader);
        let signals = reader.optional::<Vec<OtlpSignal>>("otlp_signals");
        let is_interval_set = reader.is_set("otlp_metrics_interval");
        let interval = reader.positive("otlp_metrics_interval", METRICS_INTERVAL);
        let temporality = reader.optional("otlp_temporality");
        if let Some(OtlpEndpoint { url, .. }) = &file.endpoint
            && !url.is_tls()
        {
            let accepted = "an otlp_endpoint with https";
            for key in ["otlp_ca_file", "otlp_client_certificate"] {
                if reader.is_set(key) {
                    reader.refuse::<()>(key, "without TLS", accepted);
                }
            }
        }
        let environment = Environment(reader);
        let signals = signals.unwrap_or_else(|| environment.signals());
        let common = file.clone().or(environment.values(None));
        let target = |signal: OtlpSignal| {
            let own = file.clone().or(environment.values(Some(signal)));
            own.or(common.clone()).target().filter(|_| signals.contains(&signal))
        };
        let is_on = !environment.is_disabled();
        let interval = Some(interval).filter(|_| is_interval_set);
        Self {
            traces: target(OtlpSignal::Traces).filter(|_| is_on),
            metrics: target(OtlpSignal::Metrics).filter(|_| is_on),
            logs: target(OtlpSignal::Logs).filter(|_| is_on),
            metrics_interval: interval
                .or_else(|| environment.metrics_interval())
                .unwrap_or(METRICS_INTERVAL),
            temporality: temporality
                .or_else(|| environment.temporality())
                .unwrap_or(Temporality::Cumulative),
            resource,
            common,
            signals,
        }
    }

    pub(super) fn print(&self, printer: &mut Printer) {
        let common = &self.common;
        let endpoint = common.endpoint.as_ref().map(|endpoint| text(&endpoint.url));
        printer.set_some("otlp_endpoint", endpoint);
        let protocol = common.protocol.unwrap_or(OtlpProtocol::Grpc);
        printer.set("otlp_protocol", text(protocol.name()));
        let compression = common.compression.unwrap_or(OtlpCompression::None);
        printer.set("otlp_compression", text(compression.name()));
        printer.set("otlp_signals", list(self.signals.iter().map(|signal| text(signal.name()))));
        let headers = common.headers.iter().flatten();
        let headers: Vec<(&str, String)> = headers
            .filter_map(|header| Some((header.name.as_str(), header.shown.clone()?)))
            .collect();
        if !headers.is_empty() {
            printer.set("otlp_headers", inline(&headers));
        }
        let ca_file = common.ca_file.as_ref().map(|file| text(file.path().display()));
        printer.set_some("otlp_ca_file", ca_file);
        let certificate = common.client_certificate.as_ref().map(CertificateFiles::printed);
        printer.set_some("otlp_client_certificate", certificate);
        let timeout = common.timeout.unwrap_or(TIMEOUT);
        printer.set("otlp_timeout", text(duration_text(timeout)));
        let interval = duration_text(self.metrics_interval);
        printer.set("otlp_metrics_interval", text(interval));
        printer.set("otlp_temporality", text(self.temporality.name()));
    }
}

/// Equal if a reload changes nothing: the values of headers count, their sources do not.
impl PartialEq for OtlpTarget {
    fn eq(&self, other: &Self) -> bool {
        let of = |target: &Self| {
            let form = (target.protocol, target.compression, target.timeout);
            (target.endpoint.clone(), form, target.ca_file.clone())
        };
        let files = |target: &Self| {
            let files = target.client_certificate.as_ref();
            files.map(|files| (files.cert.clone(), files.key.clone()))
        };
        of(self) == of(other) && files(self) == files(other) && self.headers == other.headers
    }
}

impl PartialEq for OtlpHeader {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.value.expose_secret() == other.value.expose_secret()
    }
}

/// The targets of the signals have all that counts.
impl PartialEq for Values {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Returns true for headers that belong to the exchange itself.
pub(super) fn is_reserved(name: &HeaderName) -> bool {
    const RESERVED: [&str; 7] = [
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "host",
        "te",
        "transfer-encoding",
    ];
    RESERVED.contains(&name.as_str()) || name.as_str().starts_with("grpc-")
}

/// The headers of the requests to a collector.
struct Headers(Vec<OtlpHeader>);

impl Read for Headers {
    fn accepted() -> String {
        "headers with secrets as values, such as { x-api-key = { env = \"NAME\" } }".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        let header = |(name, value): (&str, Entry<'_>)| {
            let accepted = "a name of a header that the export does not set itself";
            let parsed = HeaderName::try_from(name).ok();
            let parsed =
                parsed.filter(|parsed| name.len() <= NAME_BYTES_MAX && !is_reserved(parsed));
            let Some(parsed) = parsed else {
                return value.refuse("this header cannot be set", accepted);
            };
            let secret = Secret::read(&value)?;
            let shown = Some(secret.printed());
            Some(OtlpHeader { name: parsed, value: secret.into_value(), shown })
        };
        // Every header is read before the first `None` is returned, because each may have a fault.
        let headers: Vec<_> = entry.members::<Self>()?.into_iter().map(header).collect();
        headers.into_iter().collect::<Option<_>>().map(Self)
    }
}
