//! Metrics in papers, alerts and dashboard: each that is named exists, and each that exists is
//! documented.
//!
//! The table of SPECIFICATION, "Metrics", is the list. A unit test compares it with the program
//! (`src/telemetry/metrics/tests.rs`).

use std::collections::BTreeSet;
use std::path::Path;

use super::{File, Finding, Rule, repository};

/// Endings of the series that a histogram has.
const SERIES: [&str; 3] = ["_bucket", "_sum", "_count"];
/// The part of a name by which a text speaks of several metrics: `weir_replica_*`.
const ANY: &str = "*";

/// The names of the table.
fn documented() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("SPECIFICATION.md")).expect("a specification");
    let section = text.split("\n## Metrics\n").nth(1).expect("a section about metrics");
    let section = section.split("\n## ").next().unwrap_or_default();
    let names = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    names.filter(|name| is_metric(name)).map(str::to_owned).collect()
}

fn is_metric(name: &str) -> bool {
    ["weir_", "process_"].iter().any(|prefix| name.starts_with(prefix))
}

/// The words of a line that are names of metrics, or the beginning of several.
fn named(line: &str) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let mut found = Vec::new();
    for prefix in ["weir_", "process_"] {
        for (at, _) in line.match_indices(prefix) {
            let end = line[at..].find(|c| !is_part(c)).map_or(line.len(), |end| at + end);
            let any = if line[end..].starts_with(ANY) { ANY } else { "" };
            // A prefix alone is not a name.
            let is_name = end > at + prefix.len() || any == ANY;
            if is_name && !line[..at].ends_with(is_part) {
                found.push(line[at..end].to_owned() + any);
            }
        }
    }
    found
}

fn exists(name: &str, known: &BTreeSet<String>) -> bool {
    if let Some(beginning) = name.strip_suffix(ANY) {
        return known.iter().any(|known| known.starts_with(beginning));
    }
    let histogram = SERIES.iter().find_map(|ending| name.strip_suffix(ending));
    known.contains(name) || histogram.is_some_and(|name| known.contains(name))
}

fn is_about_metrics(file: &File) -> bool {
    let ending = Path::new(&file.path).extension().and_then(|ending| ending.to_str());
    let is_of_deploy = file.path.starts_with("deploy/")
        && matches!(ending, Some("yaml" | "yml" | "json" | "tpl" | "toml" | "conf"));
    ending == Some("md") || is_of_deploy
}

#[test]
fn metrics_that_are_named_exist() {
    Rule {
        instead: "correct the name: SPECIFICATION, \"Metrics\", has all of them",
        finds: |file| {
            if !is_about_metrics(file) {
                return Vec::new();
            }
            let known = documented();
            let mut findings: Vec<Finding> = Vec::new();
            for (index, line) in file.text.lines().enumerate() {
                let unknown = named(line).into_iter().filter(|name| !exists(name, &known));
                findings.extend(unknown.map(|name| (index + 1, format!("no metric `{name}`"))));
            }
            findings
        },
        exceptions: &[],
        refused: &[
            ("README.md", "`weir_budget_left` says it"),
            ("deploy/a.yaml", "expr: sum(rate(weir_request_total{job=\"weir\"}[5m]))"),
            ("deploy/a.json", "\"expr\": \"weir_nothing{job}\""),
            ("deploy/a.json", "\"expr\": \"process_cpu_total{job}\""),
            ("a.md", "The metrics `weir_replicated_*`."),
        ],
    }
    .check();
}

#[test]
fn each_metric_is_on_the_dashboard_or_in_an_alert() {
    let shown = ["deploy/grafana/weir.json", "deploy/prometheus/weir.rules.yaml"];
    let files = repository();
    let files: Vec<_> = files.iter().filter(|file| shown.contains(&&*file.path)).collect();
    assert_eq!(files.len(), shown.len());
    let named: BTreeSet<_> =
        files.iter().flat_map(|file| file.text.lines().flat_map(named)).collect();
    let is_shown = |metric: &String| {
        named.contains(metric)
            || SERIES.iter().any(|ending| named.contains(&format!("{metric}{ending}")))
    };
    let known = documented();
    assert!(known.len() > 40, "{known:?}");
    let hidden: Vec<_> = known.iter().filter(|metric| !is_shown(metric)).collect();
    assert!(hidden.is_empty(), "neither on the dashboard nor in an alert: {hidden:?}");
}
