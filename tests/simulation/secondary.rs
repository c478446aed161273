//! The secondary limits, each saturated alone: never exceeded, and at least 95 % used.

use weir::simulation::Workload;

use crate::kit::{
    assert_saturated, minutes, played, played_without_refusal, reordered, stormy, with_points,
};

const POINTS: &str = "points of the busiest endpoint";

#[test]
fn content_stays_within_80_a_minute_and_uses_the_hour() {
    let report = played_without_refusal(&minutes(reordered(Workload::Content), 120), 3);
    assert!(report.most("content per minute") <= 80);
    assert!(report.most("content per minute") > 70, "the minute was saturated");
    assert_saturated(&report, "content per hour", 500, 0.95);
}

#[test]
fn content_with_the_default_spacing_also_uses_the_hour() {
    let mut plan = minutes(reordered(Workload::Content), 120);
    plan.settings.spacing = std::time::Duration::from_secs(1);
    plan.settings.notify_spacing = std::time::Duration::from_secs(3);
    let report = played_without_refusal(&plan, 2);
    // One every three seconds, with arrivals a little earlier or later.
    assert!(
        report.most("content per minute") <= 22,
        "{} within a minute",
        report.most("content per minute")
    );
    assert_saturated(&report, "content per hour", 500, 0.95);
}

#[test]
fn an_endpoint_never_takes_more_than_its_points() {
    let report =
        played_without_refusal(&with_points(minutes(reordered(Workload::Points), 6), 300), 2);
    assert_saturated(&report, POINTS, 300, 0.95);
}

#[test]
fn graphql_never_takes_more_than_its_points() {
    let report = played_without_refusal(
        &with_points(minutes(reordered(Workload::GraphqlPoints), 6), 400),
        2,
    );
    assert_saturated(&report, "graphql points", 400, 0.95);
}

#[test]
fn reads_never_take_more_than_their_cpu_time() {
    let report = played_without_refusal(&minutes(reordered(Workload::Cpu), 10), 2);
    assert_saturated(&report, "cpu seconds", 90, 0.95);
}

#[test]
fn graphql_never_takes_more_than_its_cpu_time() {
    let report = played_without_refusal(&minutes(reordered(Workload::GraphqlCpu), 10), 2);
    assert_saturated(&report, "graphql cpu seconds", 60, 0.95);
}

#[test]
fn an_app_requests_at_most_2000_tokens_an_hour() {
    let mut plan = minutes(reordered(Workload::Oauth), 90);
    plan.settings.accounts.truncate(1);
    plan.upstream.accounts.truncate(1);
    let report = played_without_refusal(&plan, 2);
    assert_saturated(&report, "oauth token requests", 2_000, 0.95);
}

#[test]
fn in_flight_requests_reach_but_never_exceed_100() {
    let mut plan = minutes(reordered(Workload::Concurrency), 3);
    plan.bots = 300;
    let report = played_without_refusal(&plan, 1);
    assert_saturated(&report, "concurrency", 100, 0.95);
}

#[test]
fn other_accounts_carry_the_reads_after_a_secondary_limit() {
    let mut plan = minutes(stormy(Workload::Secondary), 4);
    plan.bots = 10;
    let report = played(&plan, 5);
    let struck: u64 =
        report.accounts.iter().filter_map(|account| account.refusals.get("fault")).sum();
    assert_eq!(struck, 5, "each run was refused once");
    assert_eq!(report.sent_too_early, 0);
    assert!(
        report.sent_elsewhere_meanwhile > 5 * 100,
        "{} carried by others",
        report.sent_elsewhere_meanwhile
    );
}
