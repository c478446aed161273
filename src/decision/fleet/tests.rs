//! The record of an account: parts, budgets, turns of writes, replicas that are gone.

use super::*;

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
const READY: Timestamp = Timestamp::from_secs(1_800_000_010);
const GATHERED: Duration = Duration::from_secs(2);
const MINUTE: Duration = Duration::from_secs(60);
const ONE: ReplicaId = ReplicaId(1);
const TWO: ReplicaId = ReplicaId(2);

/// A replica of the test, with the number of its last report.
struct Replica(ReplicaId, u64);

impl Replica {
    fn report(&mut self, at: Timestamp, usage: Use) -> Report {
        self.1 += 1;
        let points =
            CapacityReport { name: "points".into(), max: 100, floor: 0, counts_for: MINUTE, usage };
        Report { number: self.1, at, capacities: vec![points], ..Report::default() }
    }

    /// Reports on a capacity of 100, and returns the part.
    fn sync(&mut self, record: &mut Record, now: Timestamp, usage: Use) -> Part {
        let report = self.report(now, usage);
        record.sync(now, self.0, &report).unwrap().capacities[0]
    }

    /// The same on a budget.
    fn spend(&mut self, record: &mut Record, now: Timestamp, budget: BudgetReport) -> BudgetAnswer {
        self.spend_at(record, now, now, budget)
    }

    /// The same by a replica whose clock shows `at`.
    fn spend_at(
        &mut self,
        record: &mut Record,
        now: Timestamp,
        at: Timestamp,
        budget: BudgetReport,
    ) -> BudgetAnswer {
        self.1 += 1;
        let report = Report { number: self.1, at, budgets: vec![budget], ..Report::default() };
        record.sync(now, self.0, &report).unwrap().budgets[0]
    }

    fn writes(&mut self, record: &mut Record, now: Timestamp, writes: WritesReport) -> bool {
        self.1 += 1;
        let report = Report { number: self.1, writes, ..Report::default() };
        record.sync(now, self.0, &report).unwrap().may_write
    }
}

fn two() -> (Record, Replica, Replica) {
    (Record::new(NOW), Replica(ONE, 0), Replica(TWO, 0))
}

fn wants(held: u32, in_use: u32, wants: u32) -> Use {
    Use { held, in_use, wants }
}

fn window(remaining: u32, reset: u64) -> Sight {
    Sight { limit: 1_000, remaining, reset: NOW + Duration::from_secs(reset) }
}

fn budget(seen: impl Into<Option<Sight>>, usage: Use) -> BudgetReport {
    BudgetReport {
        resource: "core".into(),
        seen: seen.into(),
        is_unmetered: false,
        reserve: 0,
        floor: 0,
        usage,
        in_flight: 0,
        wants_probe: false,
        closed_for: Duration::ZERO,
    }
}

#[test]
fn replicas_never_hold_more_than_the_whole() {
    let (mut record, mut one, mut two) = two();
    assert_eq!(one.sync(&mut record, READY, wants(0, 0, 80)), Part { held: 80, bound: 80 });
    assert_eq!(two.sync(&mut record, READY, wants(0, 0, 80)), Part { held: 20, bound: 20 });
    assert_eq!(record.taken("points"), 100);
}

#[test]
fn a_replica_gives_up_what_it_does_not_use_before_what_it_uses() {
    let (mut record, mut one, mut two) = two();
    one.sync(&mut record, READY, wants(0, 0, 100));
    two.sync(&mut record, READY, wants(0, 0, 100));
    // It uses all, and is to use no more than its share from now on.
    let part = one.sync(&mut record, READY, wants(100, 100, 0));
    assert_eq!(part, Part { held: 100, bound: 50 });
    // Use that ends does not come back.
    let part = one.sync(&mut record, READY, wants(70, 70, 0));
    assert_eq!(part.held, 70);
    assert_eq!(two.sync(&mut record, READY, wants(0, 0, 100)).held, 30);
}

#[test]
fn a_late_report_changes_nothing() {
    let (mut record, mut one, _) = two();
    let late = one.report(READY, wants(0, 0, 10));
    one.sync(&mut record, READY, wants(0, 0, 50));
    assert_eq!(record.sync(READY, ONE, &late), None);
    assert_eq!(record.taken("points"), 50);
}

#[test]
fn parts_of_a_lost_replica_count_until_their_window_is_over() {
    let (mut record, mut one, mut two) = two();
    one.sync(&mut record, READY, wants(0, 0, 60));
    let over = READY + HELD_FOR;
    assert_eq!(two.sync(&mut record, over, wants(0, 0, 100)).held, 40);
    for seconds in (5..60).step_by(5) {
        let later = over + Duration::from_secs(seconds);
        assert_eq!(two.sync(&mut record, later, wants(40, 0, 60)).held, 40);
    }
    assert_eq!(two.sync(&mut record, over + MINUTE, wants(40, 0, 60)).held, 100);
}

#[test]
fn a_new_record_grants_nothing_before_all_have_reported() {
    let (mut record, mut one, mut two) = two();
    assert_eq!(two.sync(&mut record, NOW, wants(0, 0, 100)).held, 0);
    assert_eq!(one.sync(&mut record, NOW, wants(60, 10, 0)).held, 60);
    assert_eq!(two.sync(&mut record, READY, wants(0, 0, 100)).held, 40);
}

#[test]
fn an_older_state_of_a_record_waits_for_all_reports() {
    let (mut record, mut one, mut two) = two();
    record.kept_by("first", NOW);
    one.sync(&mut record, READY, wants(0, 0, 10));
    let copy = record.clone();
    record.kept_by("first", READY);
    assert_eq!(one.sync(&mut record, READY, wants(10, 10, 50)).held, 60);
    // The server was restarted with what its disk had.
    let (mut record, back) = (copy, READY + Duration::from_secs(5));
    record.kept_by("second", back);
    assert_eq!(two.sync(&mut record, back, wants(0, 0, 100)).held, 0);
    assert_eq!(one.sync(&mut record, back, wants(60, 40, 0)).held, 60);
    let ready = back + GATHERED;
    record.kept_by("second", ready);
    assert_eq!(two.sync(&mut record, ready, wants(0, 0, 100)).held, 40);
}

#[test]
fn a_turn_to_write_waits_for_all_reports_to_a_new_record() {
    let (mut record, mut one, mut two) = two();
    let asks = WritesReport { wants: true, ..WritesReport::default() };
    let sends = WritesReport { in_flight: true, last: [Some(Duration::ZERO), None], ..asks };
    assert!(!two.writes(&mut record, NOW, asks));
    assert!(one.writes(&mut record, NOW, sends), "its write is on its way");
    let ready = NOW + GATHERED;
    assert!(!two.writes(&mut record, ready, asks));
    one.writes(&mut record, ready, asks);
    assert!(two.writes(&mut record, ready, asks));
}

#[test]
fn replicas_share_a_budget_to_the_last_unit() {
    let (mut record, mut one, mut two) = two();
    let first = one.spend(&mut record, READY, budget(window(999, 3_600), wants(1, 1, 500)));
    assert_eq!(first.part.held, 501);
    let second = two.spend(&mut record, READY, budget(None, wants(0, 0, 800)));
    assert_eq!((second.part.held, second.seen), (499, Some(window(999, 3_600))));
}

#[test]
fn spending_of_others_is_in_no_part() {
    let (mut record, mut one, mut two) = two();
    one.spend(&mut record, READY, budget(window(700, 3_600), wants(1, 1, 0)));
    let part = two.spend(&mut record, READY, budget(None, wants(0, 0, 1_000))).part;
    assert_eq!(part.held, 700);
}

#[test]
fn a_new_window_sets_aside_what_others_may_spend_of_the_old_one() {
    let (mut record, mut one, mut two) = two();
    one.spend(&mut record, READY, budget(window(999, 100), wants(1, 1, 300)));
    two.spend(&mut record, READY, budget(window(990, 100), wants(0, 0, 200)));
    let later = NOW + Duration::from_secs(105);
    two.spend(&mut record, later, budget(window(990, 100), wants(200, 50, 0)));
    // The first one finds the next window; the second one knows of none.
    let part = one.spend(&mut record, later, budget(window(999, 3_700), wants(1, 1, 1_000))).part;
    assert_eq!(part.held, 850, "150 units of the second one's old part are set aside");
    let part = two.spend(&mut record, later, budget(window(990, 100), wants(150, 50, 10)));
    assert_eq!((part.part.held, part.seen), (0, Some(window(999, 3_700))));
}

#[test]
fn one_replica_at_a_time_shows_a_window_that_is_over() {
    let (mut record, mut one, mut two) = two();
    let probe = || BudgetReport { wants_probe: true, ..budget(None, Use::default()) };
    assert!(one.spend(&mut record, READY, probe()).may_probe);
    assert!(!two.spend(&mut record, READY, probe()).may_probe);
    let later = READY + Duration::from_secs(6);
    assert!(two.spend(&mut record, later, probe()).may_probe, "the first one took too long");
    assert!(!one.spend(&mut record, later, probe()).may_probe);
}

#[test]
fn spending_of_a_replica_that_a_lost_record_knew_counts_once() {
    let (mut record, mut one, mut two) = two();
    // The other one has spent 60 of 100 units, and reports after everything was granted.
    one.spend(&mut record, NOW, budget(window(900, 3_600), wants(40, 40, 0)));
    assert_eq!(record.budget("core").unwrap().taken(), 100);
    one.spend(&mut record, READY, budget(window(900, 3_600), wants(40, 40, 1_000)));
    let late = BudgetReport { in_flight: 5, ..budget(window(900, 3_600), wants(120, 65, 0)) };
    let answer = two.spend(&mut record, READY, late);
    assert_eq!(answer.part, Part { held: 120, bound: 65 }, "its spare units are another's now");
    let back = BudgetReport { in_flight: 5, ..budget(window(900, 3_600), wants(65, 65, 0)) };
    two.spend(&mut record, READY, back);
    one.spend(&mut record, READY, budget(window(900, 3_600), wants(40, 40, 0)));
    assert_eq!(record.budget("core").unwrap().taken(), 105, "with those in flight");
}

#[test]
fn spending_that_an_older_state_of_a_record_lacks_counts_once() {
    let (mut record, mut one, mut two) = two();
    record.kept_by("first", NOW);
    one.spend(&mut record, READY, budget(window(950, 3_600), wants(20, 5, 0)));
    let mut record = record.clone();
    record.kept_by("second", READY);
    // The other one has heard of what the first one has spent since.
    two.spend(&mut record, READY, budget(window(850, 3_600), wants(0, 0, 10)));
    one.spend(&mut record, READY, budget(window(850, 3_600), wants(105, 105, 0)));
    assert_eq!(record.budget("core").unwrap().taken(), 150, "45 of them were spent by others");
}

#[test]
fn units_that_others_spend_are_taken_from_the_spare_ones() {
    let (mut record, mut one, _) = two();
    one.spend(&mut record, READY, budget(window(1_000, 3_600), wants(0, 0, 1_000)));
    let part = one.spend(&mut record, READY, budget(window(700, 3_600), wants(1_000, 100, 0))).part;
    assert_eq!(part, Part { held: 1_000, bound: 1_000 }, "spent within what it holds");
    one.spend(&mut record, READY, budget(window(700, 3_600), wants(100, 100, 0)));
    let part = one.spend(&mut record, READY, budget(window(700, 3_600), wants(900, 100, 0))).part;
    assert_eq!(part.bound, 800, "200 units were spent by others");
}

#[test]
fn a_later_replica_changes_nothing_of_what_others_spent() {
    let (mut record, mut one, mut two) = two();
    one.spend(&mut record, READY, budget(window(900, 3_600), wants(0, 0, 500)));
    let part = two.spend(&mut record, READY, budget(None, wants(0, 0, 1_000))).part;
    assert_eq!(part.held, 400, "100 units were spent before");
}

#[test]
fn a_probe_without_an_answer_is_set_aside() {
    let (mut record, mut one, mut two) = two();
    let probe = BudgetReport { in_flight: 1, ..budget(None, Use::default()) };
    one.spend(&mut record, READY, probe);
    let part = two.spend(&mut record, READY, budget(window(999, 3_600), wants(1, 1, 1_000))).part;
    assert_eq!(part.held, 999);
}

#[test]
fn spaced_writes_go_by_turns() {
    let (mut record, mut one, mut two) = two();
    let asks = WritesReport { wants: true, ..WritesReport::default() };
    let sends = WritesReport { wants: true, in_flight: true, ..WritesReport::default() };
    assert!(one.writes(&mut record, READY, asks));
    assert!(!two.writes(&mut record, READY, asks));
    assert!(one.writes(&mut record, READY, sends), "one write ends before the next turn");
    assert!(!one.writes(&mut record, READY, asks));
    assert!(two.writes(&mut record, READY, asks));
    assert!(!one.writes(&mut record, READY, asks));
}

#[test]
fn a_refusal_of_one_silences_the_others() {
    let (mut record, _, mut two) = two();
    let refused = Report { number: 1, cooldown: MINUTE, ..Report::default() };
    record.sync(READY, ONE, &refused);
    let report = two.report(READY, Use::default());
    assert_eq!(record.sync(READY, TWO, &report).unwrap().cooldown, MINUTE);
}

#[test]
fn a_lost_replica_keeps_a_floor_for_a_while() {
    let (mut record, mut one, mut two) = two();
    let mut report = one.report(READY, wants(0, 0, 60));
    report.capacities[0].floor = 3;
    record.sync(READY, ONE, &report);
    let over = READY + HELD_FOR;
    assert_eq!(two.sync(&mut record, over + MINUTE, wants(0, 0, 100)).held, 97);
    let later = over + FLOOR_FOR + MINUTE;
    assert_eq!(two.sync(&mut record, later, wants(97, 0, 3)).held, 100);
}

#[test]
fn a_replica_that_comes_back_counts_once() {
    let (mut record, mut one, mut two) = two();
    one.sync(&mut record, READY, wants(0, 0, 60));
    let over = READY + HELD_FOR;
    two.sync(&mut record, over, wants(0, 0, 10));
    assert_eq!(record.taken("points"), 70);
    one.sync(&mut record, over, wants(20, 20, 0));
    assert_eq!(record.taken("points"), 30);
}

#[test]
fn a_budget_stays_with_a_silent_replica_until_the_reset() {
    let (mut record, mut one, mut two) = two();
    let spends = |usage| BudgetReport { floor: 33, ..budget(window(999, 60), usage) };
    one.spend(&mut record, READY, spends(wants(1, 1, 399)));
    let silent = READY + HELD_FOR;
    let part = two.spend(&mut record, silent, spends(wants(0, 0, 1_000))).part;
    assert_eq!(part.held, 600, "the other 400 may be spent");
    // In the next window it may spend the rest of them, if it does not know of the window, or its
    // floor.
    let next = BudgetReport { floor: 33, ..budget(window(999, 3_660), wants(1, 1, 1_000)) };
    let part = two.spend(&mut record, silent + MINUTE, next).part;
    assert_eq!(part.held, 1_000 - 399 - 33);
    // It is back, and has spent ten units of the next window.
    let back = BudgetReport { floor: 33, ..budget(window(980, 3_660), wants(10, 10, 0)) };
    one.spend(&mut record, silent + MINUTE, back);
    assert_eq!(record.budget("core").unwrap().taken(), 1_000 - 33 + 10);
}

#[test]
fn a_replica_that_is_back_adds_nothing_to_what_others_hold() {
    let (mut record, mut one, mut two) = two();
    assert_eq!(one.sync(&mut record, READY, wants(0, 0, 100)), Part { held: 100, bound: 100 });
    let over = READY + HELD_FOR + MINUTE;
    assert_eq!(two.sync(&mut record, over, wants(0, 0, 90)), Part { held: 90, bound: 90 });
    // It has not noticed yet that most of its requests have ended.
    let back = one.sync(&mut record, over, wants(100, 60, 20));
    assert_eq!(back.bound, 10);
    assert_eq!(one.sync(&mut record, over, wants(5, 5, 20)), Part { held: 10, bound: 10 });
}

#[test]
fn a_reset_is_known_to_each_replica_by_its_own_clock() {
    let (mut record, mut one, mut two) = two();
    one.spend(&mut record, READY, budget(window(999, 60), wants(1, 1, 0)));
    for (at, reset) in [(READY + MINUTE, 120), (READY - MINUTE, 0)] {
        let answer = two.spend_at(&mut record, READY, at, budget(None, wants(0, 0, 1)));
        assert_eq!(answer.seen, Some(window(999, reset)));
    }
    // Its own sight of the same window begins no other one.
    let seen = budget(window(998, 120), wants(1, 1, 1));
    let answer = two.spend_at(&mut record, READY, READY + MINUTE, seen);
    assert_eq!(answer.seen, Some(window(998, 120)));
    assert_eq!(answer.part.held, 2);
}
