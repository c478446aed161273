//! Determinism: one seed, one run.

use weir::simulation::{Plan, Workload, play};

use crate::kit::{minutes, stormy, with_points};

fn figures(plan: &Plan) -> String {
    match play(plan) {
        Ok(report) => serde_json::to_string(&report).unwrap_or_default(),
        Err(unplayable) => panic!("{unplayable}"),
    }
}

#[test]
fn equal_seeds_make_equal_runs() {
    for workload in [Workload::Mixed, Workload::Saturating, Workload::Content] {
        let plan = minutes(stormy(workload), 1);
        assert_eq!(figures(&plan), figures(&plan), "{}", workload.name());
        assert_ne!(
            figures(&plan),
            figures(&Plan { seed: 2, ..plan.clone() }),
            "{}",
            workload.name()
        );
    }
}

#[test]
fn an_upstream_limit_is_reported_with_its_history() {
    // Settings that allow more than the upstream does.
    let mut plan = with_points(minutes(stormy(Workload::Points), 3), 300);
    plan.settings.limits.rest_points_per_minute = 400;
    plan.narration = weir::simulation::plan::Narration::FirstRefusal;
    let report = play(&plan).unwrap_or_default();
    assert!(report.refusals() > 0);
    assert!(
        report.story.iter().any(|line| line.contains("REFUSED by the upstream: points")),
        "{:?}",
        report.story
    );
}
