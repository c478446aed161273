//! A Prometheus that scrapes gateways several times in a second.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tempfile::TempDir;

use super::http;
use super::programs::{Program, free_address, path, until};

/// The time between two scrapes, and between two evaluations of the alerts.
pub const INTERVAL_MS: u64 = 200;

/// A running Prometheus.
pub struct Prometheus {
    address: String,
    process: Program,
    _folder: TempDir,
}

impl Prometheus {
    /// Scrapes these targets as the job `weir`, and evaluates the alerts of this text.
    pub fn start(targets: &[&str], rules: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder for Prometheus");
        let config = config(targets);
        std::fs::write(folder.path().join("weir.rules.yaml"), rules).expect("the rules");
        std::fs::write(folder.path().join("prometheus.yaml"), config).expect("the config");
        let address = free_address();
        let process = Program::start(command(folder.path(), &address));
        let prometheus = Self { address, process, _folder: folder };
        until("a Prometheus that is ready", || {
            http::get(&prometheus.address, "/-/ready").filter(|answer| answer.status == 200)
        });
        prometheus
    }

    /// The samples of an instant query.
    pub fn query(&self, expression: &str) -> Vec<Value> {
        let encoded = utf8_percent_encode(expression, NON_ALPHANUMERIC);
        let answer = self.answer(&format!("/api/v1/query?query={encoded}"));
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        answer["data"]["result"].as_array().expect("samples").clone()
    }

    /// The names of the alerts that fire, each once and in order.
    pub fn firing(&self) -> Vec<String> {
        let answer = self.answer("/api/v1/alerts");
        let alerts = answer["data"]["alerts"].as_array().expect("alerts").iter();
        let firing = alerts.filter(|alert| alert["state"] == "firing");
        let names = firing.filter_map(|alert| alert["labels"]["alertname"].as_str());
        let mut names: Vec<_> = names.map(str::to_owned).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Waits until the rules have been evaluated with these data: `expression` has samples.
    pub fn has(&self, expression: &str) {
        until(expression, || (!self.query(expression).is_empty()).then_some(()));
    }

    fn answer(&self, path: &str) -> Value {
        let answer = http::get(&self.address, path);
        let output = || panic!("Prometheus does not answer:\n{}", self.process.output());
        answer.unwrap_or_else(output).json()
    }
}

fn config(targets: &[&str]) -> String {
    let mut text = format!(
        "global: {{ scrape_interval: {INTERVAL_MS}ms, scrape_timeout: {INTERVAL_MS}ms, \
         evaluation_interval: {INTERVAL_MS}ms }}\nrule_files: [weir.rules.yaml]\n\
         scrape_configs:\n  - job_name: weir\n    static_configs:\n      - targets:\n"
    );
    for target in targets {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "          - \"{target}\"");
    }
    text
}

fn command(folder: &Path, address: &str) -> Command {
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", path(&folder.join("prometheus.yaml"))));
    command.arg(format!("--storage.tsdb.path={}", path(&folder.join("data"))));
    command.arg(format!("--web.listen-address={address}"));
    command.args(["--log.level=warn", "--rules.alert.resend-delay=1s"]);
    command
}
