//! The files of `deploy/prometheus/` by promtool, and what a text can show about the alerts.

use std::path::Path;
use std::process::Command;

use super::{ROOT, file};

/// The alerts.
pub const RULES: &str = "deploy/prometheus/weir.rules.yaml";
/// Their tests, for promtool.
const TESTS: &str = "deploy/prometheus/weir.rules.test.yaml";

/// Runs promtool in the folder of the rules.
#[track_caller]
fn promtool(arguments: &[&str]) {
    let folder = Path::new(ROOT).join("deploy/prometheus");
    let output = Command::new("promtool").args(arguments).current_dir(folder).output();
    let output = output.expect("promtool (deploy/setup.sh test installs it)");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "promtool {arguments:?}\n{out}\n{err}");
}

/// The text of each alert, with its name first.
fn alerts(rules: &str) -> Vec<(&str, &str)> {
    let alerts = rules.split("- alert: ").skip(1);
    alerts.map(|text| (text.lines().next().unwrap_or_default(), text)).collect()
}

#[test]
fn the_alerts_are_well_formed() {
    promtool(&["check", "rules", "--lint=all", "--lint-fatal", "weir.rules.yaml"]);
    promtool(&["check", "config", "--syntax-only", "prometheus.yaml"]);
}

#[test]
fn each_alert_fires_and_ends() {
    promtool(&["test", "rules", "weir.rules.test.yaml"]);
    let (rules, tests) = (file(RULES), file(TESTS));
    let cases: Vec<_> = tests.split("  - name: ").skip(1).collect();
    for (alert, _) in alerts(&rules) {
        let firing = format!("alertname=\"{alert}\"");
        let tested = cases.iter().any(|case| {
            case.rsplit_once(&firing).is_some_and(|(_, after)| after.contains("exp_samples: []"))
        });
        assert!(tested, "{TESTS} has no case in which {alert} fires and ends");
    }
}

#[test]
fn each_alert_has_a_severity_and_a_remedy() {
    let rules = file(RULES);
    let alerts = alerts(&rules);
    assert!(alerts.len() > 15, "{} alerts", alerts.len());
    for (name, text) in alerts {
        for part in ["severity: ", "summary: ", "description: ", "runbook: "] {
            assert!(text.contains(part), "{name} has no `{part}`");
        }
    }
}

/// Checks that the commands in backquotes exist, with their options. Returns how many there are.
fn commands(name: &str, text: &str) -> usize {
    let quoted = text.split('`').skip(1).step_by(2).filter(|text| text.starts_with("weir "));
    quoted.map(|quoted| check(name, quoted)).count()
}

fn check(name: &str, quoted: &str) {
    // An example's own values: a name, an address, an id, a path.
    let words = quoted.split(' ').skip(1).filter(|word| !word.starts_with("{{"));
    let words: Vec<_> = words.filter(|word| !word.contains(['$', '}'])).collect();
    let subcommands = words
        .iter()
        .take_while(|word| word.chars().all(|c| c.is_ascii_lowercase()) && !word.starts_with('-'));
    let mut help = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = help.args(subcommands).arg("--help").output().expect("the program");
    assert!(output.status.success(), "{name}: `{quoted}` is no command");
    let text = String::from_utf8_lossy(&output.stdout);
    for option in words.iter().filter(|word| word.starts_with("--")) {
        assert!(text.contains(option), "{name}: `{quoted}`: no option {option}");
    }
}

#[test]
fn remedies_name_commands_that_exist() {
    let rules = file(RULES);
    let found: usize = alerts(&rules).into_iter().map(|(name, text)| commands(name, text)).sum();
    assert!(found > 15, "only {found} commands were found");
}

#[test]
fn questions_name_commands_that_exist() {
    let found = commands("deploy/questions.md", &file("deploy/questions.md"));
    assert!(found >= 20, "only {found} commands were found");
}
