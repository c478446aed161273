//! `weir telemetry`: the level of a running gateway's log and the part of its requests that is
//! traced.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;

use super::api::{AdminApi, Fault, GatewayOptions};
use super::plain;
use crate::admin::telemetry::{TelemetryChange, TelemetryReport};

#[derive(Args)]
pub struct Telemetry {
    /// Log from this level on, until the next start: off, error, warn, info or debug
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Trace this part of the requests, until the next start: 0 to 1
    #[arg(long, value_name = "RATIO")]
    sample_ratio: Option<f64>,
    #[command(flatten)]
    options: GatewayOptions,
}

impl Telemetry {
    pub fn run(self) -> ExitCode {
        let GatewayOptions { gateway, json } = self.options;
        let Self { log_level, sample_ratio, .. } = self;
        let change = TelemetryChange { log_level, sample_ratio };
        gateway.run("weir telemetry", async |api| fetch(api, json, &change).await)
    }
}

async fn fetch(api: &AdminApi, json: bool, change: &TelemetryChange) -> Result<String, Fault> {
    const PATH: &str = "/api/telemetry";
    let body = if change.log_level.is_none() && change.sample_ratio.is_none() {
        api.get(PATH).await?
    } else {
        api.post(PATH, &serde_json::json!(change)).await?
    };
    api.printed(&body, json, "its answer is not about telemetry", render)
}

fn render(report: &TelemetryReport) -> String {
    let TelemetryReport { log_level, sample_ratio, at_start } = report;
    let since_start = |now: &str, at_start: &str| {
        if now == at_start { String::new() } else { format!(" ({at_start} at the start)") }
    };
    let level = plain(log_level);
    let mut text =
        format!("log level {level}{}\n", since_start(&level, &plain(&at_start.log_level)));
    let ratio = sample_ratio.map(|ratio| ratio.to_string());
    let _ = match ratio {
        Some(ratio) => {
            let before = at_start.sample_ratio.unwrap_or_default().to_string();
            let before = since_start(&ratio, &before);
            writeln!(text, "traced part of the requests {ratio}{before}")
        }
        None => writeln!(text, "traces have no destination"),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::telemetry::TelemetryValues;

    #[test]
    fn a_changed_value_stands_beside_that_of_the_start() {
        let values = |log_level: &str, sample_ratio| TelemetryValues {
            log_level: log_level.to_owned(),
            sample_ratio,
        };
        let report = |now: TelemetryValues, at_start| {
            let TelemetryValues { log_level, sample_ratio } = now;
            render(&TelemetryReport { log_level, sample_ratio, at_start })
        };
        assert_eq!(
            report(values("debug", Some(1.0)), values("info", Some(0.1))),
            "log level debug (info at the start)\n\
             traced part of the requests 1 (0.1 at the start)\n"
        );
        assert_eq!(
            report(values("info", None), values("info", None)),
            "log level info\ntraces have no destination\n"
        );
    }
}
