//! Several replicas with one set of limits: what the upstream counts stays within each limit, and
//! nearly all of it is used, however the requests are spread over them. `make soak` plays whole
//! days.

use std::num::NonZeroU32;
use std::time::Duration;

use weir::simulation::plan::{LoadBalance, ReplicaFault, Replicas};
use weir::simulation::{Plan, Report, Workload};

use crate::kit::{
    assert_saturated, assert_used, minutes, played_without_refusal, reordered, stormy, with_core,
    with_points,
};

const POINTS: &str = "points of the busiest endpoint";
const BALANCES: [LoadBalance; 3] = [LoadBalance::Even, LoadBalance::Skewed, LoadBalance::Moving];

fn spread(mut plan: Plan, count: u32, balance: LoadBalance) -> Plan {
    plan.replicas = Replicas { count: NonZeroU32::new(count).unwrap(), balance, ..Replicas::ONE };
    plan
}

/// Plays a workload with three replicas under each kind of load.
fn played_by_three(plan: &Plan, mut judge: impl FnMut(&Report)) {
    for balance in BALANCES {
        judge(&played_without_refusal(&spread(plan.clone(), 3, balance), 1));
    }
}

#[test]
fn replicas_use_a_budget_up_without_a_limit() {
    let plan = minutes(with_core(stormy(Workload::Saturating), 300), 65);
    let report = played_without_refusal(&spread(plan, 3, LoadBalance::Skewed), 1);
    assert_used(&report, "core", 0.97);
}

#[test]
fn faults_of_replicas_exceed_no_limit() {
    let faults = [
        (ReplicaFault::Killed, 0.7),
        (ReplicaFault::Paused, 0.7),
        (ReplicaFault::CutOff, 0.9),
        // Each replica has its parts for ten seconds.
        (ReplicaFault::RecordsAway, 0.3),
        (ReplicaFault::RecordsLost, 0.9),
    ];
    for (fault, least) in faults {
        let mut points = with_points(minutes(reordered(Workload::Points), 6), 60);
        points.faults = vec![(fault, Duration::from_secs(150))];
        let report = played_without_refusal(&spread(points, 3, LoadBalance::Even), 1);
        assert_saturated(&report, POINTS, 60, least);
    }
}

#[test]
fn lost_records_exceed_no_budget_wherever_the_load_is() {
    for balance in BALANCES {
        let mut plan = minutes(with_core(reordered(Workload::Saturating), 300), 65);
        plan.faults = vec![(ReplicaFault::RecordsLost, Duration::from_mins(4))];
        let report = played_without_refusal(&spread(plan, 3, balance), 1);
        assert_used(&report, "core", 0.95);
    }
}

#[test]
fn replicas_share_the_content_of_a_minute() {
    played_by_three(&minutes(reordered(Workload::Content), 5), |report| {
        assert_saturated(report, "content per minute", 80, 0.95);
    });
}

#[test]
fn replicas_keep_the_distance_of_writes_together() {
    let mut plan = minutes(reordered(Workload::Content), 5);
    plan.settings.spacing = Duration::from_secs(1);
    plan.settings.notify_spacing = Duration::from_secs(3);
    played_by_three(&plan, |report| {
        let most = report.most("content per minute");
        assert!((18..=22).contains(&most), "{most} of 20 in a minute");
    });
}

#[test]
fn replicas_share_the_points_of_an_endpoint() {
    played_by_three(&with_points(minutes(reordered(Workload::Points), 3), 200), |report| {
        assert_saturated(report, POINTS, 200, 0.95);
    });
}

#[test]
fn replicas_share_the_points_of_graphql() {
    let plan = with_points(minutes(reordered(Workload::GraphqlPoints), 3), 200);
    played_by_three(&plan, |report| assert_saturated(report, "graphql points", 200, 0.95));
}

#[test]
fn replicas_share_the_cpu_time() {
    played_by_three(&minutes(reordered(Workload::Cpu), 5), |report| {
        assert_saturated(report, "cpu seconds", 90, 0.95);
    });
    played_by_three(&minutes(reordered(Workload::GraphqlCpu), 5), |report| {
        assert_saturated(report, "graphql cpu seconds", 60, 0.95);
    });
}

#[test]
fn replicas_share_the_slots() {
    // The first two seconds grant nothing, while the replicas report to a new record.
    let mut plan = minutes(reordered(Workload::Concurrency), 4);
    plan.bots = 300;
    played_by_three(&plan, |report| assert_saturated(report, "concurrency", 100, 0.9));
}
