//! Plans of the tests, and assertions about their reports.

use std::time::Duration;

use weir::simulation::plan::{Narration, Network, Order};
use weir::simulation::sweep::sweep;
use weir::simulation::{Plan, Report, Workload, play};

/// Seeds of `make test`; `make soak` plays a thousand.
pub const SEEDS: u64 = 20;

/// A workload on two accounts over a network that reorders, loses one exchange in a hundred, and
/// shifts resets by up to a second.
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

/// The same over a network that only reorders, for measurements of use.
pub fn reordered(workload: Workload) -> Plan {
    let mut plan = Plan::new(workload, 2, 50);
    plan.network.order = Order::Shuffled;
    plan
}

/// This many minutes of virtual time.
pub fn minutes(mut plan: Plan, minutes: u64) -> Plan {
    plan.length = Duration::from_secs(minutes * 60);
    plan
}

/// Smaller primary budgets: the same number of window ends in fewer requests.
pub fn with_core(mut plan: Plan, limit: u32) -> Plan {
    plan.upstream.accounts.iter_mut().for_each(|account| account.core_limit = limit);
    plan
}

/// A smaller secondary limit upstream and in the gateway's settings: a full minute in fewer
/// requests.
pub fn with_points(mut plan: Plan, limit: u32) -> Plan {
    let limits = &mut plan.settings.limits;
    (limits.rest_points_per_minute, limits.graphql_points_per_minute) = (limit, limit);
    plan.upstream
        .limits
        .extend(["points.rest", "points.graphql"].map(|name| (name.to_owned(), u64::from(limit))));
    plan
}

/// Plays this many seeds. None may break an invariant, send during a denial, or get an account
/// banned.
pub fn played(plan: &Plan, seeds: u64) -> Report {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let swept = match sweep(plan, seeds, threads, &|_| ()) {
        Ok(swept) => swept,
        Err(unplayable) => panic!("{unplayable}"),
    };
    assert!(swept.failures.is_empty(), "failed seeds: {:?}", swept.failures);
    assert_eq!(
        (swept.total.sent_too_early, swept.total.banned),
        (0, 0),
        "worst seed {:?}",
        swept.worst.map(|worst| worst.seed)
    );
    swept.total
}

/// The same without a single upstream refusal.
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

/// Asserts the used part of a resource's budgets.
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

/// Asserts that no account exceeded a limit, and that the least busy one used at least this part of
/// it over the whole time.
#[track_caller]
pub fn assert_saturated(report: &Report, limit: &str, max: u64, at_least: f64) {
    let (most, used) = (report.most(limit), report.used_of_limit(limit).unwrap_or(0.0));
    assert!(most <= max, "{most} of {limit}, {max} are allowed");
    assert!(used >= at_least, "{:.2} % of {limit} used", used * 100.0);
}
