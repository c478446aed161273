//! Outages as a breaker hears of them, in virtual time.

use super::*;

const NOW: Timestamp = Timestamp::from_secs(1_000);
const LOST: Heard = Heard::Nothing(Outage::Silent);

fn after(millis: u64) -> Timestamp {
    NOW + Duration::from_millis(millis)
}

/// Silent for three seconds, with a probe on its way.
fn suspecting() -> Breaker {
    let mut breaker = Breaker::default();
    assert!(breaker.begun(NOW));
    assert_eq!(breaker.next(NOW), Next::At(after(3_000)));
    assert_eq!(breaker.next(after(3_000)), Next::Probe(CONFIRMATION, Target::Free));
    breaker
}

fn is_open(breaker: &Breaker) -> bool {
    matches!(breaker.state(), State::Open { .. })
}

#[test]
fn silence_and_an_unanswered_probe_open_it() {
    let mut breaker = suspecting();
    assert_eq!(breaker.state(), State::Suspected);
    assert!(!breaker.is_probe_late(after(3_999)) && breaker.is_probe_late(after(4_000)));
    breaker.probed(after(6_000), Target::Free, LOST, Duration::ZERO);
    assert_eq!(breaker.state(), State::Suspected, "the budgets may hang alone");
    assert_eq!(breaker.next(after(6_000)), Next::Probe(CONFIRMATION, Target::Root));
    breaker.probed(after(9_000), Target::Root, LOST, Duration::ZERO);
    let open = State::Open { since: after(9_000), outage: Outage::Silent };
    assert_eq!(breaker.state(), open);
    assert_eq!(breaker.next(after(9_000)), Next::Probe(QUICK, Target::Free));
}

/// Open, because nothing was answered; it still has an attempt that waits.
fn open_since(breaker: &mut Breaker, at: Timestamp) {
    breaker.probed(at, Target::Free, LOST, Duration::ZERO);
    breaker.next(at);
    breaker.probed(at, Target::Root, LOST, Duration::ZERO);
    assert!(is_open(breaker));
}

#[test]
fn budgets_that_hang_alone_open_nothing() {
    let mut breaker = suspecting();
    breaker.probed(after(6_000), Target::Free, LOST, Duration::ZERO);
    breaker.next(after(6_000));
    breaker.probed(after(6_100), Target::Root, Heard::Answer, Duration::ZERO);
    assert_eq!(breaker.state(), State::Closed);
}

#[test]
fn a_late_answer_about_the_budgets_ends_the_suspicion() {
    let mut breaker = suspecting();
    breaker.probed(after(6_000), Target::Free, LOST, Duration::ZERO);
    breaker.next(after(6_000));
    breaker.probed(after(7_000), Target::Free, Heard::Answer, Duration::from_secs(4));
    assert_eq!(breaker.state(), State::Closed);
    breaker.probed(after(9_000), Target::Root, LOST, Duration::ZERO);
    assert_eq!(breaker.state(), State::Closed);
}

#[test]
fn requests_are_tried_again_while_all_probes_hang() {
    let mut breaker = suspecting();
    let mut now = after(9_000);
    open_since(&mut breaker, now);
    for seconds in [30, 60, 120, 240, 240] {
        let since = now;
        while is_open(&breaker) {
            match breaker.next(now) {
                Next::At(at) => now = at,
                Next::Probe(patience, target) => {
                    assert_eq!(target, Target::Free);
                    now = now + patience;
                    breaker.probed(now, target, LOST, patience);
                }
                Next::Idle => panic!("{breaker:?}"),
            }
        }
        assert!(now.since(since).abs_diff(Duration::from_secs(seconds)) < Duration::from_secs(2));
        assert!(breaker.has_lapsed());
        assert_eq!(breaker.next(now), Next::At(now + SILENCE));
        now = now + SILENCE;
        breaker.next(now);
        assert!(is_open(&breaker), "requests are not answered either");
    }
    breaker.ended(now, Heard::Answer);
    assert!(breaker.state() == State::Closed && !breaker.has_lapsed());
}

#[test]
fn failures_in_a_row_are_probed_at_once() {
    let mut breaker = Breaker::default();
    for attempt in 1..=5 {
        breaker.begun(NOW);
        let may_be_due = breaker.ended(NOW, Heard::Nothing(Outage::Unreachable));
        assert_eq!(may_be_due, attempt == 5);
    }
    assert_eq!(breaker.next(NOW), Next::Probe(CONFIRMATION, Target::Free));
    breaker.probed(NOW, Target::Free, Heard::Nothing(Outage::Unreachable), Duration::ZERO);
    assert!(is_open(&breaker));
}

#[test]
fn an_answer_between_failures_starts_the_count_anew() {
    let mut breaker = Breaker::default();
    for _ in 0..3 {
        for heard in [LOST, LOST, LOST, LOST, Heard::Answer] {
            breaker.begun(NOW);
            assert!(!breaker.ended(NOW, heard));
        }
    }
    assert_eq!(breaker.next(NOW), Next::Idle);
}

#[test]
fn a_path_that_always_hangs_never_opens_it() {
    let mut breaker = suspecting();
    breaker.probed(after(3_100), Target::Free, Heard::Answer, Duration::ZERO);
    for second in 4..100 {
        let now = after(second * 1_000);
        breaker.begun(now);
        assert!(!breaker.ended(now, Heard::Neutral));
        if let Next::Probe(..) = breaker.next(now) {
            breaker.probed(now, Target::Free, Heard::Answer, Duration::ZERO);
        }
        assert!(!is_open(&breaker));
    }
}

/// Five attempts, none of which is answered; free probes are. Returns the time of the probe of
/// the root.
fn unheard(breaker: &mut Breaker) -> Timestamp {
    for _ in 0..FAILURES {
        breaker.begun(NOW);
    }
    let mut now = NOW;
    loop {
        match breaker.next(now) {
            Next::At(at) => now = at,
            Next::Probe(_, Target::Free) => {
                breaker.probed(now, Target::Free, Heard::Answer, Duration::ZERO);
            }
            Next::Probe(_, Target::Root) => return now,
            Next::Idle => panic!("{breaker:?}"),
        }
    }
}

#[test]
fn a_service_of_which_only_the_budgets_answer_is_down() {
    let mut breaker = Breaker::default();
    let now = unheard(&mut breaker);
    assert_eq!(now, after(15_000));
    let lost = now + CONFIRMATION;
    breaker.probed(lost, Target::Root, LOST, CONFIRMATION);
    assert!(is_open(&breaker));
    assert_eq!(breaker.next(lost), Next::Probe(QUICK, Target::Root));
    breaker.probed(lost, Target::Root, Heard::Answer, Duration::ZERO);
    assert_eq!(breaker.state(), State::Closed);
}

#[test]
fn requests_that_hang_beside_an_answering_root_open_nothing() {
    let mut breaker = Breaker::default();
    let now = unheard(&mut breaker);
    breaker.probed(now, Target::Root, Heard::Answer, Duration::ZERO);
    for second in 0..200 {
        let now = now + Duration::from_secs(second);
        breaker.begun(now);
        breaker.ended(now, LOST);
        if let Next::Probe(_, target) = breaker.next(now) {
            assert_eq!(target, Target::Free, "the root is asked seldom");
            breaker.probed(now, Target::Free, Heard::Answer, Duration::ZERO);
        }
        assert!(!is_open(&breaker));
    }
}

#[test]
fn a_question_about_the_budgets_is_no_answer_of_the_api() {
    let mut breaker = Breaker::default();
    let now = unheard(&mut breaker);
    breaker.begun(now);
    breaker.ended(now, Heard::BudgetsAnswer);
    assert_eq!(breaker.state(), State::Suspected);
    breaker.probed(now + CONFIRMATION, Target::Root, LOST, CONFIRMATION);
    breaker.ended(now + CONFIRMATION, Heard::BudgetsAnswer);
    breaker.probed(now + CONFIRMATION, Target::Free, Heard::Answer, Duration::ZERO);
    assert!(is_open(&breaker));
    breaker.ended(now + CONFIRMATION, Heard::Answer);
    assert!(!is_open(&breaker));
}

#[test]
fn probes_of_the_root_keep_no_breaker_open_for_long() {
    let mut breaker = Breaker::default();
    let (mut roots, mut open, mut now) = (0, Duration::ZERO, NOW);
    let mut has_lapsed = false;
    for _ in 0..FAILURES {
        breaker.begun(NOW);
    }
    while now < NOW + ROOTS_PERIOD {
        let since = now;
        match breaker.next(now) {
            Next::At(at) => now = at,
            Next::Probe(patience, target @ Target::Root) => {
                roots += 1;
                now = now + patience;
                breaker.probed(now, target, LOST, patience);
            }
            Next::Probe(_, target) => {
                now = now + Duration::from_millis(50);
                breaker.probed(now, target, Heard::Answer, Duration::ZERO);
            }
            Next::Idle => panic!("{breaker:?}"),
        }
        has_lapsed |= breaker.has_lapsed();
        open += if is_open(&breaker) { now.since(since) } else { Duration::ZERO };
    }
    assert!((20..=ROOTS_MAX).contains(&roots), "{roots}");
    assert!(open < OPEN * 4 && has_lapsed, "{open:?}");
}

#[test]
fn a_root_that_is_always_slow_is_waited_for() {
    let mut breaker = Breaker::default();
    let now = unheard(&mut breaker);
    let slow = Duration::from_secs(7);
    breaker.probed(now + CONFIRMATION, Target::Root, LOST, CONFIRMATION);
    let mut now = now + slow;
    breaker.probed(now, Target::Root, Heard::Answer, slow);
    let patience = loop {
        match breaker.next(now) {
            Next::At(at) => now = at,
            Next::Probe(_, Target::Free) => {
                breaker.probed(now, Target::Free, Heard::Answer, Duration::ZERO);
            }
            Next::Probe(patience, Target::Root) => break patience,
            Next::Idle => panic!("{breaker:?}"),
        }
    };
    assert!(patience > slow, "{patience:?}");
}

#[test]
fn losses_of_long_ago_do_not_count() {
    let mut breaker = Breaker::default();
    for _ in 1..FAILURES {
        breaker.begun(NOW);
        breaker.ended(after(500), LOST);
    }
    let later = NOW + Duration::from_hours(6);
    breaker.begun(later);
    assert_eq!(breaker.next(later + SILENCE), Next::Probe(CONFIRMATION, Target::Free));
}

#[test]
fn few_or_answered_requests_leave_the_root_alone() {
    let mut few = Breaker::default();
    few.begun(NOW);
    let mut answered = Breaker::default();
    for _ in 0..FAILURES {
        answered.begun(NOW);
    }
    answered.begun(after(14_000));
    answered.ended(after(14_100), Heard::Answer);
    for breaker in [&mut few, &mut answered] {
        breaker.next(after(17_100));
        breaker.probed(after(17_100), Target::Free, Heard::Answer, Duration::ZERO);
        assert_eq!(breaker.next(after(25_000)), Next::Probe(CONFIRMATION, Target::Free));
    }
}

#[test]
fn an_answer_of_another_request_outweighs_a_lost_probe() {
    let mut breaker = suspecting();
    breaker.begun(after(4_000));
    breaker.ended(after(4_100), Heard::Answer);
    breaker.probed(after(6_000), Target::Free, LOST, Duration::ZERO);
    assert_eq!(breaker.state(), State::Closed);
    assert_eq!(breaker.next(after(6_000)), Next::At(after(7_100)), "one still waits");
}

#[test]
fn an_open_one_is_probed_each_second_until_an_answer() {
    let mut breaker = suspecting();
    open_since(&mut breaker, after(4_000));
    breaker.probed_at = after(3_000);
    assert_eq!(breaker.next(after(3_000)), Next::At(after(4_000)));
    assert_eq!(breaker.next(after(4_000)), Next::Probe(QUICK, Target::Free));
    breaker.probed(after(5_500), Target::Free, LOST, Duration::ZERO);
    assert_eq!(
        breaker.next(after(5_500)),
        Next::Probe(QUICK, Target::Free),
        "a late probe is followed at once"
    );
    breaker.probed(after(5_600), Target::Free, Heard::Answer, Duration::ZERO);
    assert_eq!(breaker.state(), State::Closed);
}

/// The breaker of an upstream whose first probe was answered after 6.5 s.
fn slow() -> Breaker {
    let mut breaker = suspecting();
    open_since(&mut breaker, after(6_000));
    breaker.ended(after(6_000), Heard::Neutral);
    breaker.probed(after(9_500), Target::Free, Heard::Answer, Duration::from_millis(6_500));
    assert_eq!(breaker.state(), State::Closed);
    breaker
}

#[test]
fn a_late_answer_to_a_probe_closes_it_for_good() {
    let mut breaker = slow();
    for round in 1..100 {
        let began = after(round * 10_000);
        breaker.begun(began);
        let Next::At(at) = breaker.next(began) else { panic!("{breaker:?}") };
        let Next::Probe(patience, _) = breaker.next(at) else { panic!("{breaker:?}") };
        assert!(patience > Duration::from_millis(6_500) && patience < CONFIRMATION * 4);
        assert!(!breaker.is_probe_late(at + Duration::from_millis(6_500)));
        breaker.ended(began + Duration::from_millis(6_500), Heard::Answer);
        let took = Duration::from_millis(6_500);
        breaker.probed(at + took, Target::Free, Heard::Answer, took);
        assert!(!is_open(&breaker));
    }
}

#[test]
fn a_slow_upstream_that_hangs_opens_it() {
    let mut breaker = slow();
    breaker.begun(after(20_000));
    assert_eq!(breaker.next(after(20_000)), Next::At(after(23_000)));
    let Next::Probe(patience, _) = breaker.next(after(23_000)) else { panic!("{breaker:?}") };
    open_since(&mut breaker, after(23_000) + patience);
}

#[test]
fn the_length_of_answers_is_forgotten() {
    let mut quick_again = slow();
    quick_again.begun(after(20_000));
    quick_again.next(after(23_000));
    quick_again.probed(after(23_100), Target::Free, Heard::Answer, Duration::from_millis(100));
    assert_eq!(quick_again.next(after(26_100)), Next::Probe(CONFIRMATION, Target::Free));
    let mut idle = slow();
    let later = after(9_500) + REMEMBERED;
    idle.begun(later);
    assert_eq!(idle.next(later + SILENCE), Next::Probe(CONFIRMATION, Target::Free));
}

#[test]
fn probes_of_a_living_upstream_keep_their_distance() {
    let mut breaker = Breaker::default();
    let mut probes = 0;
    for millis in (0..10_000).step_by(10) {
        breaker.begun(after(millis));
        breaker.ended(after(millis), LOST);
        if let Next::Probe(..) = breaker.next(after(millis)) {
            probes += 1;
            breaker.probed(after(millis), Target::Free, Heard::Answer, Duration::ZERO);
        }
    }
    assert!(probes <= 10, "{probes} probes in ten seconds");
}

#[test]
fn an_idle_gateway_probes_nothing() {
    let mut breaker = Breaker::default();
    breaker.begun(NOW);
    breaker.ended(NOW, Heard::Answer);
    assert_eq!(breaker.next(after(100_000)), Next::Idle);
    breaker.begun(NOW);
    breaker.ended(NOW, LOST);
    assert_eq!(breaker.next(after(100_000)), Next::Idle);
}
