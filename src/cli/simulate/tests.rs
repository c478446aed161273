//! Arguments and their errors. `tests/simulation` has the runs.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct TestCommand {
    #[command(flatten)]
    simulate: Simulate,
}

fn parse(arguments: &str) -> Result<Simulate, String> {
    let words = std::iter::once("simulate").chain(arguments.split_whitespace());
    TestCommand::try_parse_from(words)
        .map(|command| command.simulate)
        .map_err(|fault| fault.to_string())
}

fn sources() -> Sources {
    Sources { config: None, trace: None }
}

#[test]
fn the_defaults_are_a_day_of_fifty_bots_on_two_accounts() {
    let simulate = parse("").unwrap();
    let plan = simulate.plan(&sources(), None);
    assert_eq!(
        (plan.seed, plan.bots, plan.settings.accounts.len(), plan.length.as_secs()),
        (1, 50, 2, 86_400)
    );
}

#[test]
fn a_bad_argument_is_reported_with_accepted_values() {
    for (arguments, accepted) in [
        ("--workload none", "mixed, saturating"),
        ("--accounts 0", "auto, or a whole number"),
        ("--hours 0", "hours above 0"),
        ("--lost 101", "0 to 100"),
        ("--outside 5/d", "1/s, 30/m or 500/h"),
        ("--wobble -5", ""),
    ] {
        let fault = parse(arguments).unwrap_err();
        assert!(fault.contains(accepted), "{arguments}: {fault}");
    }
}

#[test]
fn the_printed_command_of_a_seed_makes_the_same_plan() {
    let first = parse(
        "--hours 0.25 --bots 7 --accounts 3 --workload points --outside 30/m --lost 1.5 --wobble 1000 --reorder --strict --spacing 0s",
    )
    .unwrap();
    let again = parse(first.command(1).strip_prefix("weir simulate").unwrap()).unwrap();
    let plan = |simulate: &Simulate| {
        let accounts = Some(3).filter(|_| matches!(simulate.accounts, Some(Accounts::Number(_))));
        format!(
            "{:?}",
            Plan { narration: Narration::Silent, ..simulate.plan(&sources(), accounts) }
        )
    };
    assert_eq!((plan(&first), first.strict), (plan(&again), again.strict));
}

#[test]
fn a_config_is_simulated_without_its_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.toml");
    let text = r#"
        [upstream]
        url = "https://code.corp/api/v3"
        [[accounts]]
        name = "bot"
        kind = "user"
        reserve = 100
        [[tokens]]
        account = "bot"
        kind = "classic"
        secret = { env = "A_VARIABLE_THAT_IS_NOT_SET" }
        [[apps]]
        app_id = 5
        private_key = { file = "not-here.pem" }
        [[clients]]
        name = "ci"
        key_sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
        weight = 3
        max_wait = "7s"
    "#;
    std::fs::write(&path, text).unwrap();
    let simulate = parse(&format!("--config {}", path.display())).unwrap();
    let plan = simulate.plan(&simulate.sources().unwrap(), Some(3));
    // Three accounts of the pool, and the app's own.
    assert_eq!(plan.settings.accounts.len(), 4);
    assert_eq!(plan.settings.accounts.iter().filter(|account| account.reserve == 100).count(), 3);
    assert_eq!((plan.clients[0].max_wait.as_secs(), plan.settings.clients[0].weight.get()), (7, 3));
    assert_eq!(plan.clients[0].reads.len(), 3);
}

#[test]
fn a_log_brings_its_own_bots_and_workload() {
    for arguments in ["--trace log --bots 5", "--trace log --workload points"] {
        let fault = parse(arguments).unwrap_err();
        assert!(fault.contains("cannot be used with"), "{arguments}: {fault}");
    }
    let first = parse("--trace log --hours 1").unwrap();
    let again = first.command(1);
    assert!(parse(again.strip_prefix("weir simulate").unwrap()).is_ok(), "{again}");
}

#[test]
fn a_log_without_a_request_is_bad_usage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    std::fs::write(&path, "nothing\n").unwrap();
    let simulate = parse(&format!("--trace {}", path.display())).unwrap();
    assert!(
        simulate.sources().is_err_and(|problem| problem.contains("no line of it is a request"))
    );
}

#[test]
fn a_log_of_other_clients_than_the_configs_is_bad_usage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let line = r#"{"time":"2026-07-01T10:00:05Z","message":"request","client":"elsewhere","method":"GET","path":"/user"}"#;
    std::fs::write(&path, line).unwrap();
    let simulate =
        parse(&format!("--config config/minimal.toml --trace {}", path.display())).unwrap();
    assert!(
        simulate
            .sources()
            .is_err_and(|problem| problem.contains("1 of 1") && problem.contains("elsewhere"))
    );
}

#[test]
fn a_search_for_accounts_accepts_one_seed_only() {
    for arguments in ["--accounts auto --seeds 2", "--accounts auto --explain"] {
        assert!(
            parse(arguments).unwrap().sources().is_err_and(|problem| problem.contains("one seed")),
            "{arguments}"
        );
    }
}
