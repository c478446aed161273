//! The log of another gateway, scaled: the answer names a number of accounts, and one less shows
//! the refusals that it warned of (SPECIFICATION, "Recorded logs").

use std::fmt::Write as _;
use std::process::Command;

use serde_json::Value;

/// A log of nginx: so many clients, each with a different read every ten seconds for two hours.
fn nginx(clients: usize) -> String {
    let mut log = String::new();
    for step in 0..720 {
        let (hour, minute, second) = (10 + step / 360, step / 6 % 60, step * 10 % 60);
        for client in 0..clients {
            writeln!(
                log,
                "10.0.0.{client} - - [01/Jul/2026:{hour:02}:{minute:02}:{second:02} +0000] \
                 \"GET /repos/acme/thing-{step}-{client} HTTP/1.1\" 200 512 \"-\" \"bot/1\""
            )
            .unwrap();
        }
    }
    log
}

fn simulate(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("simulate").args(arguments).output();
    let output = output.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn one_account_less_than_advised_shows_the_waits_it_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let (log, svg) = (folder.path().join("access.log"), folder.path().join("run.svg"));
    // 8 clients ask 2,880 times an hour; three times as many need two budgets of 5,000.
    std::fs::write(&log, nginx(8)).unwrap();
    let (log, svg) = (log.to_str().unwrap(), svg.to_str().unwrap());
    let sized = ["--trace", log, "--scale", "3x", "--accounts", "auto"];
    let text = simulate(&[&sized[..], &["--svg", svg]].concat());
    assert!(text.contains("2 accounts would do"), "{text}");
    assert!(text.contains("the next limit is core of account-"), "{text}");
    let json: Value = serde_json::from_str(&simulate(&[&sized[..], &["--json"]].concat())).unwrap();
    assert_eq!(json["enough"], 2);
    let tried = json["tried"].as_array().unwrap();
    let with = |accounts: u64| tried.iter().find(|one| one["accounts"] == accounts).unwrap();
    let warned = with(1)["refused"].as_f64().unwrap();
    assert!(warned > 0.1, "{tried:?}");
    assert!(with(2)["refused"].as_f64().unwrap() <= 0.001, "{tried:?}");
    let played = simulate(&["--trace", log, "--scale", "3x", "--accounts", "1", "--json"]);
    let played: Value = serde_json::from_str(&played).unwrap();
    let clients = played["report"]["clients"].as_array().unwrap();
    let sum = |key: &str| clients.iter().map(|one| one[key].as_u64().unwrap()).sum::<u64>();
    let refused: u64 = clients
        .iter()
        .flat_map(|client| client["refused"].as_object().unwrap().values())
        .map(|count| count.as_u64().unwrap())
        .sum();
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let share = refused as f64 / sum("asked") as f64;
    assert!((share - warned).abs() < 1e-9, "{share} instead of {warned}");
    let picture = std::fs::read_to_string(svg).unwrap();
    assert!(picture.starts_with("<svg ") && picture.contains("core budget of all accounts"));
}

/// A client that asks for the same two reads every ten seconds, and changes one of them every
/// minute.
#[test]
fn repeated_reads_name_the_rule_that_would_save_them() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let mut text = String::new();
    for step in 0..360 {
        let time = format!("01/Jul/2026:10:{:02}:{:02} +0000", step / 6, step * 10 % 60);
        let mut line = |method: &str, path: &str| {
            writeln!(text, "10.0.0.1 - - [{time}] \"{method} {path} HTTP/1.1\" 200 512").unwrap();
        };
        line("GET", "/repos/acme/widgets/commits?per_page=1");
        line("GET", "/repos/acme/widgets/issues/1");
        if step % 6 == 5 {
            line("PATCH", "/repos/acme/widgets/issues/1");
        }
    }
    std::fs::write(&log, text).unwrap();
    let log = log.to_str().unwrap();
    let answer = simulate(&["--trace", log, "--accounts", "auto"]);
    let rule = "for /repos/{owner}/{repo}/commits would save ";
    let line =
        answer.lines().find(|line| line.contains(rule)).unwrap_or_else(|| panic!("{answer}"));
    assert!(line.contains(" of 360 requests upstream"), "{line}");
    let json = simulate(&["--trace", log, "--accounts", "auto", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let rules = json["cache_rules"].as_array().unwrap();
    let of = |route: &str| rules.iter().find(|rule| rule["route"] == route);
    let commits = of("/repos/{owner}/{repo}/commits").unwrap();
    assert!(commits["saved_requests"].as_u64().unwrap() > 300, "{commits}");
    assert_eq!(commits["saved_units"], 0, "an unchanged answer is free without a rule, too");
    // A write ends what was stored.
    let issues = of("/repos/{owner}/{repo}/issues/{issue_number}").unwrap();
    assert!(issues["saved_requests"].as_u64().unwrap() <= 300, "{issues}");
    let advice = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["cache", "advise", "--log", log])
        .output()
        .unwrap();
    let advice = String::from_utf8(advice.stdout).unwrap();
    assert!(advice.contains("/repos/{owner}/{repo}/commits"), "{advice}");
}

/// Clients that each poll a list of their own for a while. The emulator's world has no such
/// repository.
#[test]
fn polls_of_any_repository_are_free_while_nothing_changes() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let mut text = String::new();
    for second in 0..1_400 {
        for client in 0..2 {
            writeln!(
                text,
                "10.0.0.{client} - - [01/Jul/2026:10:{:02}:{:02} +0000] \
                 \"GET /repos/corp/tool/pulls?bot={client} HTTP/1.1\" 200 512",
                second / 60,
                second % 60
            )
            .unwrap();
        }
    }
    std::fs::write(&log, text).unwrap();
    // 5,600 reads, with a budget of 5,000 units.
    let arguments =
        ["--trace", log.to_str().unwrap(), "--scale", "2x", "--accounts", "1", "--json"];
    let played: Value = serde_json::from_str(&simulate(&arguments)).unwrap();
    let clients = played["report"]["clients"].as_array().unwrap();
    let sum = |key: &str| clients.iter().map(|one| one[key].as_u64().unwrap()).sum::<u64>();
    assert!(sum("asked") > 5_000, "{clients:?}");
    assert_eq!(sum("served"), sum("asked"), "{clients:?}");
}
