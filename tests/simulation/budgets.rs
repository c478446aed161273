//! Primary budgets: used up and never overdrawn. No upstream refusal, and at least 99 % used.

use std::time::Duration;

use weir::decision::AccountId;
use weir::simulation::Workload;
use weir::simulation::plan::Outside;

use crate::kit::{SEEDS, assert_used, minutes, played, played_without_refusal, stormy, with_core};

#[test]
fn saturated_budgets_are_99_percent_used_without_a_limit() {
    let plan = minutes(with_core(stormy(Workload::Saturating), 400), 130);
    let report = played_without_refusal(&plan, SEEDS);
    assert!(report.windows("core") >= 2 * SEEDS, "windows end within the run");
    assert_used(&report, "core", 0.99);
    assert!(report.lost > 0, "answers were lost");
}

#[test]
fn an_outside_consumer_causes_few_limits_and_little_waste() {
    // One outside request a second on a budget of 5,000 an hour; budget and consumer are scaled
    // down alike.
    let mut plan = minutes(with_core(stormy(Workload::Saturating), 500), 130);
    plan.outside = Some(Outside { account: AccountId(0), every: Duration::from_secs(10) });
    let report = played(&plan, SEEDS / 2);
    assert!(report.outside.sent > 0);
    let refusals = report.refusals();
    let windows = report.windows("core");
    assert!(
        refusals * 5 <= windows,
        "{refusals} refusals in {windows} windows; at most 0.2 a window are allowed"
    );
    assert_used(&report, "core", 0.97);
}

#[test]
fn everyday_bots_meet_no_upstream_limit_and_few_denials() {
    let report = played_without_refusal(&minutes(stormy(Workload::Mixed), 20), 2);
    assert!(report.refused_share() < 0.01, "{:.2} % refused by us", report.refused_share() * 100.0);
    let saved: u64 = report.clients.iter().map(weir::simulation::report::ClientReport::saved).sum();
    assert!(saved > 0, "polling costs nothing while nothing changes");
}

#[test]
fn a_write_with_a_lost_response_is_never_executed_twice() {
    // A POST with a lost response ends as unknown and is not repeated. The emulator executes no
    // more than the demand.
    let mut plan = minutes(stormy(Workload::Content), 60);
    plan.network.lost_percent = 5.0;
    let report = played_without_refusal(&plan, 3);
    let (requested, refused) =
        report.clients.iter().fold((0, 0), |(requested, refused), client| {
            (requested + client.requests, refused + client.denied())
        });
    let sent: u64 = report.accounts.iter().map(|account| account.sent).sum();
    assert!(report.clients.iter().any(|client| client.unknown > 0));
    assert!(
        sent <= requested - refused,
        "{sent} sent of {requested} asked, {refused} of them refused"
    );
}
