//! The cost of polling: the same bots, changes and upstream, through Weir and through the usual
//! caches.
//!
//! The figures are those of `weir simulate --workload polling --hours 1 --accounts 5`, and of
//! `weir simulate --workload dense-polling --hours 0.1 --accounts 12 --bots 100`.

use std::time::Duration;

use weir::simulation::report::{ClientReport, Tally};
use weir::simulation::rivals::{Rules, compare};
use weir::simulation::{Plan, Workload, play};

/// An hour of 50 bots over five accounts with a token each.
fn hour() -> Plan {
    Plan { length: Duration::from_hours(1), ..Plan::new(Workload::Polling, 5, 50) }
}

fn requests(report: &weir::simulation::Report) -> u64 {
    report.clients.iter().map(|client| client.requests).sum()
}

#[test]
fn polling_costs_a_fraction_of_its_cost_through_other_caches() {
    let rivals = compare(&hour(), 1, 1).unwrap_or_else(|unplayable| panic!("{unplayable}"));
    let [weir, every, per_token] = [0, 1, 2].map(|place| rivals[place].report());
    for rival in &rivals {
        let report = rival.report();
        let denied: u64 = report.clients.iter().map(ClientReport::denied).sum();
        assert_eq!(
            (report.tally.stale, report.refusals(), denied),
            (0, 0, 0),
            "{}",
            rival.rules.name()
        );
        assert_eq!(
            (requests(report), report.tally.changes),
            (requests(weir), 120),
            "all are asked the same"
        );
    }
    let [weir, every, per_token] = [weir, every, per_token].map(|report| report.tally);
    // Each version of each resource costs one request, and little more.
    let versions = 40 + weir.changes;
    assert!(weir.spent >= versions - 40 && weir.spent <= versions + versions / 4, "{weir:?}");
    assert!(weir.spent * 3 <= per_token.spent, "{weir:?} {per_token:?}");
    assert!(weir.spent * 80 <= every.spent, "{weir:?} {every:?}");
    assert!(
        weir.sent < every.sent && weir.sent < per_token.sent,
        "those who ask at once share a request"
    );
}

/// Half a minute of 100 bots that poll one list, and four others between them, each second.
fn dense() -> Plan {
    Plan { length: Duration::from_secs(30), ..Plan::new(Workload::DensePolling, 12, 100) }
}

#[test]
fn confirmations_of_a_second_save_dense_polls_upstream() {
    let played = |rules: Rules| {
        play(&rules.of(&dense())).unwrap_or_else(|unplayable| panic!("{unplayable}"))
    };
    let (today, at_most) = (played(Rules::Weir), played(Rules::WeirAtMost));
    assert_eq!(requests(&today), requests(&at_most));
    for report in [&today, &at_most] {
        let denied: u64 = report.clients.iter().map(ClientReport::denied).sum();
        assert_eq!((report.tally.stale, report.refusals(), denied), (0, 0, 0));
    }
    let [today, at_most] = [today.tally, at_most.tally];
    assert!(at_most.sent * 20 <= today.sent, "{at_most:?} {today:?}");
    assert!(at_most.spent <= today.spent, "{at_most:?} {today:?}");
    // Answers are outdated, for less than a second.
    assert!(at_most.changes > 5, "{at_most:?}");
    assert!((1..1_000).contains(&at_most.outdated_millis), "{at_most:?}");
    assert_eq!(today.outdated_millis, 0);
}

#[test]
fn an_answer_older_than_a_confirmation_would_be_detected() {
    // The upstream's `max-age` of a minute counts in place of the confirmation's second.
    let plan = Plan {
        freshness: weir::decision::Mode::Rfc9111,
        revalidate_at_most: Duration::from_secs(1),
        ..dense()
    };
    let Tally { stale, outdated_millis, .. } =
        play(&plan).unwrap_or_else(|unplayable| panic!("{unplayable}")).tally;
    assert!(stale > 0 && outdated_millis > 1_000, "{stale} {outdated_millis}");
}

#[test]
fn a_gateway_that_missed_a_change_would_be_detected() {
    // Responses served without revalidation for the upstream's `max-age` miss changes, and the
    // checker reports them.
    let mut plan = Plan { length: Duration::from_mins(10), ..hour() };
    plan.freshness = weir::decision::Mode::Rfc9111;
    let Tally { stale, .. } = play(&plan).unwrap_or_else(|unplayable| panic!("{unplayable}")).tally;
    assert!(stale > 0);
    assert_eq!(
        play(&Rules::Weir.of(&Plan { freshness: weir::decision::Mode::Revalidate, ..plan }))
            .map(|report| report.tally.stale),
        Ok(0)
    );
}
