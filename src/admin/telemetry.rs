//! `/api/telemetry`: the level of the log and the part of the requests that is traced, changed
//! without a restart (SPECIFICATION, "Admin listener").

use bytes::Bytes;
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};

use super::{NO_BODY, Reply, not_allowed, pages};
use crate::telemetry::{Controls, Values};

/// The values in force, and those of the start of the process.
#[derive(Debug, Serialize, Deserialize)]
pub struct TelemetryReport {
    pub log_level: String,
    /// `None`: traces have no destination.
    pub sample_ratio: Option<f64>,
    pub at_start: TelemetryValues,
}

/// Values of both.
#[derive(Debug, Serialize, Deserialize)]
pub struct TelemetryValues {
    pub log_level: String,
    pub sample_ratio: Option<f64>,
}

/// A change; absent values stay.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TelemetryChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_level: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_ratio: Option<f64>,
}

/// Answers GET with what is in force, and POST after a change of it.
pub fn answer(method: &Method, body: Option<&Bytes>) -> Reply {
    let Some(controls) = Controls::of_process() else {
        let message = "the log of this process is not the gateway's";
        return pages::error(StatusCode::CONFLICT, message);
    };
    match *method {
        Method::GET | Method::HEAD => {}
        Method::POST => {
            let Some(body) = body else {
                return pages::error(StatusCode::PAYLOAD_TOO_LARGE, NO_BODY);
            };
            let Ok(TelemetryChange { log_level, sample_ratio }) = serde_json::from_slice(body)
            else {
                let form = "the body is {\"log_level\": \"debug\", \"sample_ratio\": 0.1}, or one of the two";
                return pages::unprocessable(form);
            };
            let before = controls.now();
            if let Err(fault) = controls.change(log_level.as_deref(), sample_ratio) {
                return pages::unprocessable(&fault.to_string());
            }
            log_change(before, controls.now());
        }
        _ => return not_allowed("GET, HEAD and POST are answered here", "GET, HEAD, POST"),
    }
    let values = |of: Values| (of.level.name().to_owned(), of.ratio);
    let (log_level, sample_ratio) = values(controls.at_start());
    let at_start = TelemetryValues { log_level, sample_ratio };
    let (log_level, sample_ratio) = values(controls.now());
    pages::json(StatusCode::OK, &TelemetryReport { log_level, sample_ratio, at_start })
}

/// Warns, because fewer lines or traces than an operator expects look like a quiet gateway.
fn log_change(before: Values, now: Values) {
    if before.level != now.level {
        let (from, to) = (before.level.name(), now.level.name());
        tracing::warn!(from, to, "the level of the log was changed by the admin API");
    }
    if let (Some(from), Some(to)) = (before.ratio, now.ratio)
        && before.ratio != now.ratio
    {
        tracing::warn!(from, to, "the traced part of the requests was changed by the admin API");
    }
}
