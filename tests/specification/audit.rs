//! The audit: every line of every table has tests, and these tests really exercise it.
//!
//! Each test runs here once more under a fresh record. A row fails without a test, with a failing
//! test, or when its tests together leave too little evidence. A table fails when its number of
//! lines differs from the document's.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::evidence::Evidence;
use crate::recorder::{self, Event};
use crate::table::{Row, Table, Test};
use crate::{rows, template};

/// The record of a test, or its failure.
type Run = Result<Vec<Event>, String>;
type Runs = BTreeMap<&'static str, Arc<OnceLock<Run>>>;

/// The runs of all tests; each test runs once for all audits.
static RUNS: Mutex<Runs> = Mutex::new(Runs::new());

/// The faults of these tables.
fn complaints(tables: &[Table]) -> Vec<String> {
    let runs = run_all(tables);
    let failures = runs
        .iter()
        .filter_map(|(name, run)| Some(format!("{name} fails: {}", run.get()?.as_ref().err()?)));
    let mut complaints: Vec<String> = failures.collect();
    for table in tables {
        let name = format!("Document {}, {}", table.document, table.name);
        let lines: BTreeSet<&str> = table.rows.iter().map(|row| row.line.as_str()).collect();
        if lines.len() != table.lines {
            complaints.push(format!("{name}: {} lines of {}", lines.len(), table.lines));
        }
        for row in &table.rows {
            complaints.extend(
                faults(row, &runs)
                    .into_iter()
                    .map(|fault| format!("{name}: {} ({}): {fault}", row.line, row.part)),
            );
        }
    }
    complaints
}

fn faults(row: &Row, runs: &Runs) -> Vec<String> {
    if row.tests.is_empty() {
        return vec!["no test exercises it".to_owned()];
    }
    if row.evidence.is_empty() {
        return vec!["nothing would show that it was exercised".to_owned()];
    }
    let mut faults = Vec::new();
    let mut records: Vec<&[Event]> = Vec::new();
    for test in &row.tests {
        match runs.get(test.name).and_then(|run| run.get()) {
            Some(Ok(record)) => records.push(record),
            Some(Err(_)) => faults.push(format!("{} fails", test.name)),
            None => faults.push(format!("{} was not run", test.name)),
        }
    }
    if !faults.is_empty() {
        // Evidence of the other tests would only hide the failure.
        return faults;
    }
    let missing =
        row.evidence.iter().filter(|evidence| !records.iter().any(|record| evidence.is_in(record)));
    faults.extend(missing.map(|evidence| format!("its tests leave no evidence of {evidence:?}")));
    faults
}

/// Runs each test of the tables that has not run yet, on as many threads as there are processors.
fn run_all(tables: &[Table]) -> Runs {
    let tests: BTreeMap<&'static str, fn()> = tables
        .iter()
        .flat_map(|table| &table.rows)
        .flat_map(|row| &row.tests)
        .map(|test| (test.name, test.run))
        .collect();
    let runs: Runs = {
        let mut known = RUNS.lock().unwrap_or_else(PoisonError::into_inner);
        tests.keys().map(|name| (*name, Arc::clone(known.entry(name).or_default()))).collect()
    };
    let (next, queue) = (AtomicUsize::new(0), tests.into_iter().collect::<Vec<_>>());
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((name, test)) = queue.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Some(cell) = runs.get(name) {
                        cell.get_or_init(|| run(*test));
                    }
                }
            });
        }
    });
    runs
}

fn run(test: fn()) -> Run {
    recorder::take();
    let outcome = catch_unwind(test);
    let record = recorder::take();
    outcome.map(|()| record).map_err(|panic| {
        let message = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        message.unwrap_or("it panicked").chars().take(300).collect()
    })
}

fn assert_document(document: u8) {
    let tables: Vec<Table> =
        rows::tables().into_iter().filter(|table| table.document == document).collect();
    let complaints = complaints(&tables);
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

#[test]
fn every_row_of_document_1_is_exercised_by_its_tests() {
    assert_document(1);
}

#[test]
fn every_row_of_document_2_is_exercised_by_its_tests() {
    assert_document(2);
}

#[test]
fn every_row_of_document_3_is_exercised_by_its_tests() {
    assert_document(3);
}

/// "Each endpoint … lists the statuses it returns" (SPECIFICATION, "Errors"). In all tests
/// together, an endpoint succeeds or redirects only with statuses of its rows. Error statuses are
/// common to all endpoints and not checked; neither is 304.
fn unlisted(tables: &[Table], runs: &Runs) -> BTreeSet<String> {
    let mut listed: BTreeMap<(&str, &str), BTreeSet<u16>> = BTreeMap::new();
    for evidence in tables
        .iter()
        .filter(|table| table.document > 1)
        .flat_map(|table| &table.rows)
        .flat_map(|row| &row.evidence)
    {
        if let Evidence::Answer { method, template, status } = evidence {
            listed.entry((method, template)).or_default().insert(*status);
        }
    }
    let mut unlisted = BTreeSet::new();
    for (test, run) in runs {
        let answers = run.get().into_iter().flatten().flatten().filter_map(Event::answered);
        // 301 concerns a renamed repository, on every route.
        let succeeded =
            answers.filter(|answer| (200..304).contains(&answer.status) && answer.status != 301);
        for answer in succeeded {
            let route = listed.iter().find(|((method, template), _)| {
                *method == answer.method && template::is_best(method, template, &answer.path)
            });
            if let Some(((method, template), statuses)) =
                route.filter(|(_, statuses)| !statuses.contains(&answer.status))
            {
                unlisted.insert(format!(
                    "{test}: {method} {template} answered {}, its rows list {statuses:?}",
                    answer.status
                ));
            }
        }
    }
    unlisted
}

#[test]
fn endpoints_succeed_only_with_the_statuses_of_their_rows() {
    let tables = rows::tables();
    let unlisted = unlisted(&tables, &run_all(&tables));
    assert!(unlisted.is_empty(), "{}", unlisted.into_iter().collect::<Vec<_>>().join("\n"));
}

#[test]
fn no_part_of_a_line_disappears() {
    let tables = rows::tables();
    let size = |(document, _, _): (u8, usize, usize)| {
        let parts = || {
            tables.iter().filter(|table| table.document == document).flat_map(|table| &table.rows)
        };
        (document, parts().count(), parts().map(|row| row.evidence.len()).sum())
    };
    assert_eq!(
        rows::SIZES.map(size),
        rows::SIZES,
        "rows and pieces of evidence by document; a change belongs into rows::SIZES"
    );
}

#[test]
fn no_two_tables_have_the_same_name() {
    let tables = rows::tables();
    let names: BTreeSet<(u8, &str)> =
        tables.iter().map(|table| (table.document, table.name)).collect();
    assert_eq!(names.len(), tables.len());
}

/// The audit itself, on tables that it must refuse.
mod tests {
    use serde_json::json;

    use super::{Table, Test, complaints};
    use crate::evidence::{Evidence, Outcome, Trigger};
    use crate::kit::{ANONYMOUS, Upstream};
    use crate::recorder::observe;
    use crate::shape::{Object, Type, assert_shape, field};
    use crate::table::{credential, endpoint, rule, transition, value};
    use crate::tests;

    fn requests_the_limits() {
        Upstream::new().get(ANONYMOUS, "/rate_limit").expect_status(200);
    }

    fn fails() {
        panic!("as it should");
    }

    fn does_nothing() {}

    static LAMP: Object = Object {
        name: "lamp",
        fields: &[field("state", Type::OneOf(&["on", "off"])), field("watts", Type::Integer)],
    };

    fn switches_a_lamp() {
        assert_shape(&json!({ "state": "on", "watts": 4 }), &LAMP);
        observe("lamp", "off");
        requests_the_limits();
        observe("lamp", "on");
    }

    /// The complaint about a table of one row.
    fn complaint<T: Copy + Into<Vec<crate::table::Row>>>(row: T) -> String {
        complaints(&[Table::new(9, "a table", 1, &[row])]).join("\n")
    }

    const ROUTE: &str = "/rate_limit";

    #[test]
    fn the_table_refuses_a_row_without_a_test() {
        assert!(
            complaint(endpoint("GET /rate_limit", "GET", ROUTE, &[200], &[]))
                .contains("no test exercises it")
        );
        assert!(complaint(rule("a", "b", &[], tests![])).contains("no test exercises it"));
    }

    #[test]
    fn the_table_refuses_a_row_whose_test_fails_or_does_nothing() {
        assert!(complaint(rule("a", "b", &[], tests![fails])).contains("as it should"));
        assert!(
            complaint(rule("a", "b", &[], tests![does_nothing])).contains("no evidence of Ran")
        );
        assert_eq!(complaint(rule("a", "b", &[], tests![requests_the_limits])), "");
    }

    #[test]
    fn the_table_refuses_an_endpoint_with_an_untested_status() {
        const TESTS: &[Test] = tests![requests_the_limits];
        assert_eq!(complaint(endpoint("a", "GET", ROUTE, &[200], TESTS)), "");
        assert!(complaint(endpoint("a", "GET", ROUTE, &[200, 404], TESTS)).contains("status: 404"));
        assert!(complaint(endpoint("a", "PUT", ROUTE, &[200], TESTS)).contains("PUT"));
        assert!(
            complaint(endpoint("a", "GET", "/elsewhere", &[200], TESTS)).contains("/elsewhere")
        );
    }

    #[test]
    fn the_table_refuses_fields_and_values_that_were_not_compared() {
        const TESTS: &[Test] = tests![switches_a_lamp];
        assert_eq!(complaints(&[Table::fields(9, 2, &LAMP, TESTS)]), Vec::<String>::new());
        assert_eq!(complaints(&[Table::fields(9, 2, &LAMP, tests![requests_the_limits])]).len(), 2);
        assert_eq!(complaint(value("lamp", "state", "on", TESTS)), "");
        assert!(complaint(value("lamp", "state", "off", TESTS)).contains("off"));
    }

    #[test]
    fn the_table_refuses_a_transition_unseen_around_its_trigger() {
        const TESTS: &[Test] = tests![switches_a_lamp];
        const REQUESTED: Trigger = Trigger::Request("GET", ROUTE);
        assert_eq!(complaint(transition("a", "lamp", &["off"], REQUESTED, "on", TESTS)), "");
        assert!(
            complaint(transition("a", "lamp", &["on"], REQUESTED, "off", TESTS))
                .contains("Transition")
        );
        assert!(
            complaint(transition("a", "lamp", &["off"], Trigger::Passing(60), "on", TESTS))
                .contains("Transition")
        );
        assert!(
            complaint(transition("a", "lamp", &["off", "on"], REQUESTED, "on", TESTS))
                .contains("Transition")
        );
    }

    #[test]
    fn the_table_refuses_a_credential_that_was_not_tried_both_ways() {
        const TESTS: &[Test] = tests![requests_the_limits];
        assert_eq!(complaint(credential("a", "b", &[("", "none")], &[], TESTS)), "");
        assert!(
            complaint(credential("a", "b", &[("", "none")], &[("bearer", "jwt")], TESTS))
                .contains("Refused")
        );
        let refused = Evidence::Credential { scheme: "", kind: "none", outcome: Outcome::Refused };
        assert!(!refused.is_in(&[]));
    }

    #[test]
    fn the_table_refuses_a_line_too_few_or_too_many() {
        let row = rule("a", "b", &[], tests![requests_the_limits]);
        assert!(
            complaints(&[Table::new(9, "a table", 2, &[row])]).join("").contains("1 lines of 2")
        );
        assert!(
            complaints(&[Table::new(9, "a table", 0, &[row])]).join("").contains("1 lines of 0")
        );
    }
}
