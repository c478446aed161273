//! Plans and the words that tests use about what came of them.

use std::time::Duration;

use weir::simulation::plan::{Narration, Network, Order};
use weir::simulation::sweep::sweep;
use weir::simulation::{Plan, Report, Workload, play};

/// Seeds of `make test`; `make soak` plays a thousand.
pub const SEEDS: u64 = 20;

/// A workload on two accounts, over a network that reorders, loses one exchange in a hundred and
/// whose resets wobble by a second.
pub fn stormy(workload: Workload) -> Plan {
    let mut plan = Plan::new(workload, 2, 50);
    plan.network = Network {
        order: Order::Shuffled,
        lost_percent: 1.0,
        wobble: Duration::from_secs(1),
        ..plan.network
    };
    plan
}

/// The same over a network that only reorders: for limits whose use is to be measured.
pub fn reordered(workload: Workload) -> Plan {
    let mut plan = Plan::new(workload, 2, 50);
    plan.network.order = Order::Shuffled;
    plan
}

/// So many minutes of virtual time.
pub fn minutes(mut plan: Plan, minutes: u64) -> Plan {
    plan.length = Duration::from_secs(minutes * 60);
    plan
}

/// Smaller primary budgets: as many windows' ends in fewer requests.
pub fn with_core(mut plan: Plan, limit: u32) -> Plan {
    plan.upstream.accounts.iter_mut().for_each(|account| account.core_limit = limit);
    plan
}

/// A smaller secondary limit, at the upstream and in our settings alike: as full a minute in fewer
/// requests.
pub fn with_points(mut plan: Plan, limit: u32) -> Plan {
    let limits = &mut plan.settings.limits;
    (limits.rest_points_per_minute, limits.graphql_points_per_minute) = (limit, limit);
    plan.upstream
        .limits
        .extend(["points.rest", "points.graphql"].map(|name| (name.to_owned(), u64::from(limit))));
    plan
}

/// Plays this many seeds; none may break an invariant, send what it was told not to send, or get an
/// account banned.
pub fn played(plan: &Plan, seeds: u64) -> Report {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let swept = match sweep(plan, seeds, threads, &|_| ()) {
        Ok(swept) => swept,
        Err(unplayable) => panic!("{unplayable}"),
    };
    assert!(swept.failures.is_empty(), "failed seeds: {:?}", swept.failures);
    assert_eq!(
        (swept.total.sent_while_told, swept.total.banned),
        (0, 0),
        "worst seed {:?}",
        swept.worst.map(|worst| worst.seed)
    );
    swept.total
}

/// The same, and the upstream may refuse nothing at all.
pub fn played_without_refusal(plan: &Plan, seeds: u64) -> Report {
    let report = played(plan, seeds);
    if report.refusals() > 0 {
        let worst = (plan.seed..plan.seed + seeds).find_map(|seed| {
            let reported =
                play(&Plan { seed, narration: Narration::FirstRefusal, ..plan.clone() }).ok()?;
            (reported.refusals() > 0).then(|| (seed, reported.story.join("\n")))
        });
        let (seed, story) = worst.unwrap_or_default();
        panic!(
            "{} refusals by the upstream in {seeds} seeds; seed {seed}:\n{story}",
            report.refusals()
        );
    }
    report
}

/// The part of a resource's budgets that was used is at least this.
#[track_caller]
pub fn assert_used(report: &Report, resource: &str, at_least: f64) {
    let used = report.used(resource).unwrap_or(0.0);
    assert!(
        used >= at_least,
        "{:.2} % of {resource} used in {} windows",
        used * 100.0,
        report.windows(resource)
    );
}

/// No account ever had more of a limit than it allows, and the least busy one used at least this
/// part of what the whole time allowed.
#[track_caller]
pub fn assert_saturated(report: &Report, limit: &str, max: u64, at_least: f64) {
    let (most, used) = (report.most(limit), report.used_of_limit(limit).unwrap_or(0.0));
    assert!(most <= max, "{most} of {limit}, {max} are allowed");
    assert!(used >= at_least, "{:.2} % of {limit} used", used * 100.0);
}
