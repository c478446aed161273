//! A recorded access log as demand.

use std::fmt::Write as _;
use std::sync::Arc;

use weir::simulation::plan::Known;
use weir::simulation::trace::Trace;
use weir::simulation::{Plan, Workload, play};

/// A log of `count` requests, one each second.
fn log(count: u64) -> String {
    (0..count).fold(String::new(), |mut log, number| {
        let (minute, second) = (number / 60, number % 60);
        let client = if number.is_multiple_of(3) { "ci" } else { "scan" };
        let _ = writeln!(
            log,
            r#"{{"time":"2026-07-01T10:{minute:02}:{second:02}.000000Z","level":"INFO","target":"weir","message":"request","client":"{client}","method":"GET","path":"/repos/acme/thing-{number}","status":200,"duration_ms":12.5}}"#
        );
        log
    })
}

#[test]
fn every_recorded_request_is_made_by_its_own_client() {
    let trace = Trace::read(log(600).as_bytes()).unwrap_or_default();
    let plan = Plan::new(Workload::Mixed, 1, 50).replaying(Arc::new(trace), Known::FromTrace);
    let report = play(&plan).unwrap_or_default();
    let figures: Vec<(&str, u64, u64)> = report
        .clients
        .iter()
        .map(|client| (client.name.as_str(), client.requests, client.served))
        .collect();
    assert_eq!(figures, [("ci", 200, 200), ("scan", 400, 400)]);
    assert_eq!(report.accounts[0].sent, 600);
}

#[test]
fn a_log_beyond_the_budget_shows_how_much_was_denied() {
    let trace = Arc::new(Trace::read(log(600).as_bytes()).unwrap_or_default());
    let share = |accounts: u32| {
        let mut plan =
            Plan::new(Workload::Mixed, accounts, 0).replaying(Arc::clone(&trace), Known::FromTrace);
        plan.upstream.accounts.iter_mut().for_each(|account| account.core_limit = 200);
        play(&plan).unwrap_or_default().refused_share()
    };
    assert!(share(1) > 0.6 && share(2) > 0.3, "{} {}", share(1), share(2));
    assert!(share(3) < 0.01, "{}", share(3));
}
