//! The command `weir simulate` (SPECIFICATION, "Commands").

use std::process::{Command, Output};

fn simulate(arguments: &str) -> Output {
    let program = env!("CARGO_BIN_EXE_weir");
    match Command::new(program).arg("simulate").args(arguments.split_whitespace()).output() {
        Ok(output) => output,
        Err(fault) => panic!("{program}: {fault}"),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_command_prints_a_table_or_json() {
    let table = simulate("--hours 0.02 --bots 8 --workload mixed");
    assert_eq!(table.status.code(), Some(0), "{}", text(&table.stderr));
    let table = text(&table.stdout);
    for part in [
        "seed 1",
        "account-1",
        "pollers",
        "refused by the upstream     0",
        "broken invariants           0",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let json = simulate("--hours 0.02 --bots 8 --workload mixed --seeds 2 --json");
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap_or_default();
    assert_eq!(value["report"]["runs"], 2);
    assert_eq!(value["failures"], serde_json::json!([]));
    assert!(value["report"]["clients"][0]["waits"]["p99_millis"].is_u64(), "{value}");
}

#[test]
fn bad_usage_exits_with_2_and_lists_what_is_accepted() {
    for (arguments, expected) in [
        ("--workload nothing", "saturating"),
        ("--trace /not/here", "cannot be read"),
        ("--config /not/here.toml", "cannot be read"),
        ("--accounts 0", "auto"),
    ] {
        let output = simulate(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(text(&output.stderr).contains(expected), "{arguments}: {}", text(&output.stderr));
    }
}

#[test]
fn the_help_names_every_workload() {
    let help = text(&simulate("--help").stdout);
    for workload in weir::simulation::Workload::ALL {
        assert!(
            help.contains(workload.name()) && help.contains(workload.about()),
            "{}: {help}",
            workload.name()
        );
    }
}

#[test]
fn the_command_finds_the_accounts_that_a_demand_needs() {
    let output = text(&simulate("--hours 0.2 --bots 60 --workload mixed --accounts auto").stdout);
    assert!(output.contains("would do"), "{output}");
}
