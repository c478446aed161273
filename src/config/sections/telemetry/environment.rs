//! OpenTelemetry's standard variables (OpenTelemetry, "Environment Variable Specification" and
//! "OTLP Exporter Configuration"). A value that cannot be used is a fault of the key that it stands
//! for. An empty variable counts as not set.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use secrecy::SecretString;

use super::Sampling;
use super::otlp::{
    OtlpEndpoint, OtlpHeader, OtlpProtocol, OtlpSignal, Temporality, Values, is_reserved,
};
use crate::config::input::document::Secrets;
use crate::config::input::http_url::{self, HttpUrl};
use crate::config::input::reader::{Choice, Read, Reader};
use crate::config::sections::tls::{CaFile, CertificateFault, CertificateFiles, load_certificate};

/// Prefix of the variables of the exporter.
const EXPORTER: &str = "OTEL_EXPORTER_OTLP_";
/// Longest service name, as in the file.
const NAME_BYTES_MAX: usize = 256;
/// Longest duration of a variable: an hour, in milliseconds.
const MILLIS_MAX: u64 = 3_600_000;

/// Reads variables beside the section that they stand for.
pub(super) struct Environment<'r, 'a>(pub &'r Reader<'a>);

impl Environment<'_, '_> {
    /// Returns a variable that has a value. Without secrets the machine is not the gateway's, so
    /// there is none.
    fn variable(&self, name: &str) -> Option<String> {
        if self.0.secrets() == Secrets::Presumed {
            return None;
        }
        let value = self.0.variable(name)?.trim().to_owned();
        (!value.is_empty()).then_some(value)
    }

    /// Parses a variable; a problem is a fault of `key`.
    fn parsed<T>(
        &self,
        name: &str,
        key: &str,
        accepted: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let value = self.variable(name)?;
        parse(&value)
            .or_else(|problem| {
                self.0.refuse(key, format!("variable {name}: {problem}"), accepted).ok_or(())
            })
            .ok()
    }

    fn choice<T: Choice + Read>(&self, name: &str, key: &str) -> Option<T> {
        self.parsed(name, key, &T::accepted(), |value| {
            let found = T::ALL.iter().find(|(name, _)| *name == value);
            found.map(|(_, value)| *value).ok_or_else(|| "unknown value".to_owned())
        })
    }

    fn duration(&self, name: &str, key: &str) -> Option<Duration> {
        let accepted = "milliseconds, from 1 to 3600000";
        self.parsed(name, key, accepted, |value| {
            let millis = value.parse().ok().filter(|millis| (1..=MILLIS_MAX).contains(millis));
            millis.map(Duration::from_millis).ok_or_else(|| "no such duration".to_owned())
        })
    }

    /// `OTEL_SDK_DISABLED`: true if nothing is to be exported.
    pub fn is_disabled(&self) -> bool {
        let name = "OTEL_SDK_DISABLED";
        let parsed = self.parsed(name, "otlp_endpoint", "true or false", |value| {
            match value.to_ascii_lowercase().as_str() {
                "true" => Ok(true),
                "false" => Ok(false),
                _ => Err("unknown value".to_owned()),
            }
        });
        parsed.unwrap_or(false)
    }

    /// `OTEL_SERVICE_NAME`.
    pub fn service_name(&self) -> Option<Arc<str>> {
        let accepted = <Arc<str>>::accepted();
        self.parsed("OTEL_SERVICE_NAME", "service_name", &accepted, |value| {
            let is_plain = value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
            let fits = value.len() <= NAME_BYTES_MAX && is_plain;
            fits.then(|| value.into()).ok_or_else(|| "bad text".to_owned())
        })
    }

    /// `OTEL_RESOURCE_ATTRIBUTES`: facts about the process.
    pub fn resource(&self) -> Option<Vec<(String, String)>> {
        let accepted = "names and values such as deployment.environment=test,team=ci";
        self.parsed("OTEL_RESOURCE_ATTRIBUTES", "service_name", accepted, pairs)
    }

    /// `OTEL_TRACES_SAMPLER` and its argument.
    pub fn sampling(&self) -> Option<Sampling> {
        let accepted = "always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off or parentbased_traceidratio";
        let sampler = self.parsed("OTEL_TRACES_SAMPLER", "sample_ratio", accepted, |value| {
            let (is_parent_based, kind) = match value.strip_prefix("parentbased_") {
                Some(kind) => (true, kind),
                None => (false, value),
            };
            match kind {
                "always_on" => Ok((is_parent_based, Some(1.0))),
                "always_off" => Ok((is_parent_based, Some(0.0))),
                "traceidratio" => Ok((is_parent_based, None)),
                _ => Err("unknown value".to_owned()),
            }
        });
        let (is_parent_based, fixed) = sampler?;
        let argument = || {
            let name = "OTEL_TRACES_SAMPLER_ARG";
            self.parsed(name, "sample_ratio", "a number from 0 to 1", |value| {
                let ratio = value.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
                ratio.ok_or_else(|| "out of bounds".to_owned())
            })
        };
        Some(Sampling { ratio: fixed.or_else(argument).unwrap_or(1.0), is_parent_based })
    }

    /// `OTEL_TRACES_EXPORTER` and its like: the signals that are exported.
    pub fn signals(&self) -> Vec<OtlpSignal> {
        let is_exported = |signal: &OtlpSignal| {
            let name = format!("OTEL_{}_EXPORTER", signal.variable());
            let parsed = self.parsed(&name, "otlp_signals", "otlp or none", |value| match value {
                "otlp" => Ok(true),
                "none" => Ok(false),
                _ => Err("not built in this version".to_owned()),
            });
            parsed.unwrap_or(true)
        };
        OtlpSignal::ALL.iter().map(|(_, signal)| *signal).filter(is_exported).collect()
    }

    /// `OTEL_METRIC_EXPORT_INTERVAL`.
    pub fn metrics_interval(&self) -> Option<Duration> {
        self.duration("OTEL_METRIC_EXPORT_INTERVAL", "otlp_metrics_interval")
    }

    /// `OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE`.
    pub fn temporality(&self) -> Option<Temporality> {
        let name = format!("{EXPORTER}METRICS_TEMPORALITY_PREFERENCE");
        let accepted = Temporality::accepted();
        self.parsed(&name, "otlp_temporality", &accepted, |value| {
            let value = value.to_ascii_lowercase();
            let found = Temporality::ALL.iter().find(|(name, _)| *name == value);
            found.map(|(_, value)| *value).ok_or_else(|| "unknown value".to_owned())
        })
    }

    /// The values of the exporter for all signals, or for one.
    pub fn values(&self, signal: Option<OtlpSignal>) -> Values {
        let infix = signal.map_or_else(String::new, |signal| format!("{}_", signal.variable()));
        let name = |suffix: &str| format!("{EXPORTER}{infix}{suffix}");
        let url = self.parsed(&name("ENDPOINT"), "otlp_endpoint", &HttpUrl::accepted(), |value| {
            http_url::parse(value).map_err(|problem| format!("bad URL: {problem}"))
        });
        // The address for one signal is complete, the one for all is not.
        let endpoint = url.map(|url| OtlpEndpoint { url, is_base: signal.is_none() });
        let accepted = "names and values such as x-api-key=KEY, joined by commas";
        let headers = self.parsed(&name("HEADERS"), "otlp_headers", accepted, headers);
        let accepted = CaFile::accepted();
        let ca_file = self.parsed(&name("CERTIFICATE"), "otlp_ca_file", &accepted, |value| {
            CaFile::load(Path::new(value))
        });
        Values {
            endpoint,
            protocol: self.choice::<OtlpProtocol>(&name("PROTOCOL"), "otlp_protocol"),
            compression: self.choice(&name("COMPRESSION"), "otlp_compression"),
            headers,
            ca_file,
            client_certificate: self.client_certificate(&name),
            timeout: self.duration(&name("TIMEOUT"), "otlp_timeout"),
        }
    }

    fn client_certificate(&self, name: &impl Fn(&str) -> String) -> Option<CertificateFiles> {
        let (cert, key) = (name("CLIENT_CERTIFICATE"), name("CLIENT_KEY"));
        let paths = (self.variable(&cert), self.variable(&key));
        let (Some(chain), Some(own_key)) = paths else {
            let accepted = format!("both {cert} and {key}");
            let refused = |set: &str| {
                let problem = format!("variable {set}: one of two");
                self.0.refuse::<()>("otlp_client_certificate", problem, &accepted);
            };
            if paths.0.is_some() {
                refused(&cert);
            }
            if paths.1.is_some() {
                refused(&key);
            }
            return None;
        };
        match load_certificate(Path::new(&chain), Path::new(&own_key)) {
            Ok(loaded) => Some(CertificateFiles {
                cert: chain.into(),
                key: own_key.into(),
                loaded: Some(Arc::new(loaded)),
            }),
            Err(CertificateFault::Chain(problem) | CertificateFault::Key(problem)) => {
                let problem = format!("variables {cert} and {key}: {problem}");
                let accepted = "files in PEM form: a certificate chain, and its key";
                self.0.refuse("otlp_client_certificate", problem, accepted)
            }
        }
    }
}

/// Parses names and values in the form of W3C Baggage. A problem quotes no value.
fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').ok_or("a part without =")?;
        let value = percent_decode_str(value.trim()).decode_utf8();
        let value = value.map_err(|_| "a value that is no UTF-8")?.into_owned();
        let name = name.trim();
        if name.is_empty() { Err("a part without a name") } else { Ok((name.to_owned(), value)) }
    };
    let parts = text.split(',').filter(|part| !part.trim().is_empty());
    parts.map(|part| pair(part).map_err(str::to_owned)).collect()
}

fn headers(text: &str) -> Result<Vec<OtlpHeader>, String> {
    let header = |(name, value): (String, String)| {
        let name = HeaderName::try_from(name).map_err(|_| "a name that no header has")?;
        if is_reserved(&name) {
            return Err(format!("{name} is set by the export itself"));
        }
        if HeaderValue::try_from(&value).is_err() {
            return Err(format!("the value of {name} cannot be in a header"));
        }
        Ok(OtlpHeader { name, value: SecretString::from(value), shown: None })
    };
    pairs(text)?.into_iter().map(header).collect()
}
