//! Many seeds of one plan, on all cores. Runs share nothing.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Plan, Report, Unplayable, play};

/// Results of many seeds.
#[derive(Debug, Default)]
pub struct Sweep {
    /// Sum of all runs.
    pub total: Report,
    /// The worst seed: most broken invariants, else most denials, else least use of the ordinary
    /// budget.
    pub worst: Option<Worst>,
    /// Seeds that broke an invariant or failed, with the reason.
    pub failures: Vec<(u64, String)>,
}

/// The worst run.
#[derive(Debug)]
pub struct Worst {
    /// Its seed.
    pub seed: u64,
    /// Its figures.
    pub report: Report,
}

/// Plays `seeds` seeds from the plan's own on. `done` gets the number of finished runs after each.
pub fn sweep(
    plan: &Plan,
    seeds: u64,
    threads: usize,
    done: &(impl Fn(u64) + Sync),
) -> Result<Sweep, Unplayable> {
    let (next, ended) = (AtomicU64::new(0), AtomicU64::new(0));
    let outcomes: Mutex<BTreeMap<u64, Outcome>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= seeds {
                        return;
                    }
                    let seed = plan.seed.saturating_add(number);
                    let outcome = play_one(plan, seed);
                    if let Ok(mut outcomes) = outcomes.lock() {
                        outcomes.insert(seed, outcome);
                    }
                    done(ended.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    sum(outcomes)
}

enum Outcome {
    Played(Box<Report>),
    Unplayable(Unplayable),
    Stopped(String),
}

fn play_one(plan: &Plan, seed: u64) -> Outcome {
    let plan = Plan { seed, ..plan.clone() };
    match catch_unwind(AssertUnwindSafe(|| play(&plan))) {
        Ok(Ok(report)) => Outcome::Played(Box::new(report)),
        Ok(Err(unplayable)) => Outcome::Unplayable(unplayable),
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied());
            Outcome::Stopped(text.unwrap_or("it stopped").to_owned())
        }
    }
}

fn sum(outcomes: BTreeMap<u64, Outcome>) -> Result<Sweep, Unplayable> {
    let mut sweep = Sweep::default();
    for (seed, outcome) in outcomes {
        match outcome {
            Outcome::Unplayable(unplayable) => return Err(unplayable),
            Outcome::Stopped(problem) => sweep.failures.push((seed, problem)),
            Outcome::Played(report) => {
                if report.broken() > 0 {
                    let names: Vec<&str> = report.broken.keys().map(String::as_str).collect();
                    sweep.failures.push((seed, format!("broken: {}", names.join(", "))));
                }
                sweep.total.merge(&report);
                let worst = sweep.worst.as_ref();
                if worst.is_none_or(|worst| badness(&report) > badness(&worst.report)) {
                    sweep.worst = Some(Worst { seed, report: *report });
                }
            }
        }
    }
    Ok(sweep)
}

/// Greater is worse.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a million")]
fn badness(report: &Report) -> (u64, u64, u64, u64) {
    let unused = 1.0 - report.used("core").unwrap_or(1.0);
    (report.broken(), report.sent_too_early, report.refusals(), (unused * 1e6) as u64)
}
