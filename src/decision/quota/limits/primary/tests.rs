//! The rules of one window, one by one.

use super::super::cooldown::AFTER_RESET;
use super::*;

const NOW: Timestamp = Timestamp::from_secs(1_000);
const RESET: Timestamp = Timestamp::from_secs(4_600);

fn rate_headers(limit: u32, remaining: u32, reset: Timestamp) -> RateHeaders {
    RateHeaders { limit, remaining, used: None, reset, resource: None }
}

fn terms(reserve: u32) -> Terms {
    Terms { reserve, batch_floor: 0, pace: Pace::Burst }
}

fn unseen() -> PrimaryWindow {
    PrimaryWindow::new(&ResourceName::core())
}

fn headroom(
    window: &PrimaryWindow,
    now: Timestamp,
    cost: u32,
    reserve: u32,
) -> Result<Headroom, Block> {
    window.headroom(
        now,
        WindowDemand { cost, unproven: 0, priority: Priority::Normal },
        terms(reserve),
    )
}

/// An answer without a known request.
fn observe(window: &mut PrimaryWindow, rate: &RateHeaders) {
    window.observe(NOW, ObservedAnswer { rate, cost: 0, mark: None });
}

fn seen(remaining: u32) -> PrimaryWindow {
    let mut window = unseen();
    observe(&mut window, &rate_headers(100, remaining, RESET));
    window
}

fn lease(window: &mut PrimaryWindow, number: u64) {
    headroom(window, NOW, 1, 0).unwrap();
    window.lease(NOW, LeaseId(number), 1, terms(0));
}

/// Remaining units, with the leases included.
fn remaining(window: &PrimaryWindow) -> u32 {
    window.figures(NOW, || 100).remaining
}

fn answered(window: &mut PrimaryWindow, number: u64, rate: &RateHeaders) {
    window.refund(LeaseId(number), 1);
    observe(window, rate);
}

#[test]
fn leases_reduce_the_remaining_units() {
    let mut window = seen(2);
    lease(&mut window, 1);
    lease(&mut window, 2);
    let block = headroom(&window, NOW, 1, 0).unwrap_err();
    assert_eq!(
        (block.until, block.wake),
        (Until::Event, Some(RESET + WOBBLE)),
        "a lease may come back"
    );
}

#[test]
fn a_spent_window_stays_closed_until_its_reset() {
    let mut window = seen(1);
    lease(&mut window, 1);
    answered(&mut window, 1, &rate_headers(100, 0, RESET));
    assert_eq!(headroom(&window, NOW, 1, 0), Err(Block::at(LimitKind::Primary, RESET + WOBBLE)));
}

#[test]
fn the_reserve_is_left_to_others() {
    let window = seen(11);
    assert!(headroom(&window, NOW, 1, 10).is_ok());
    assert!(headroom(&window, NOW, 1, 11).is_err());
    assert!(headroom(&window, NOW, 2, 10).is_err());
}

#[test]
fn the_lowest_count_and_the_latest_reset_of_a_window_hold() {
    let mut window = seen(50);
    for (remaining_reported, reset) in
        [(40, RESET + WOBBLE), (45, RESET), (48, RESET + Duration::from_secs(1))]
    {
        observe(&mut window, &rate_headers(100, remaining_reported, reset));
    }
    assert_eq!(remaining(&window), 40);
    assert_eq!(window.figures(NOW, || 100).reset, Some(RESET + WOBBLE));
}

#[test]
fn a_reset_over_two_seconds_later_starts_a_new_window() {
    let mut window = seen(3);
    observe(&mut window, &rate_headers(100, 99, RESET + WOBBLE + Duration::from_secs(1)));
    assert_eq!(remaining(&window), 99);
    observe(&mut window, &rate_headers(100, 2, RESET));
    assert_eq!(remaining(&window), 99);
}

#[test]
fn an_unsent_request_is_refunded_and_a_spent_one_is_not() {
    let mut window = seen(10);
    lease(&mut window, 1);
    lease(&mut window, 2);
    window.refund(LeaseId(1), 1);
    assert_eq!((remaining(&window), window.leased), (10, 1));
    window.charge(NOW, LeaseId(2), 1, Charge::Spent);
    assert_eq!((remaining(&window), window.leased), (9, 0));
}

#[test]
fn a_304_without_headers_costs_nothing() {
    let mut window = seen(10);
    lease(&mut window, 1);
    window.charge(NOW, LeaseId(1), 1, Charge::Free);
    assert_eq!(remaining(&window), 10);
    lease(&mut window, 2);
    window.charge(NOW, LeaseId(2), 1, Charge::SpentWithoutHeaders);
    assert_eq!(remaining(&window), 9);
}

#[test]
fn an_unknown_window_admits_one_probe_at_a_time() {
    let mut window = unseen();
    lease(&mut window, 1);
    let block = headroom(&window, NOW, 1, 0).unwrap_err();
    assert_eq!((block.limit, block.until), (LimitKind::Probe, Until::Event));
    window.charge(NOW, LeaseId(1), 1, Charge::Spent);
    lease(&mut window, 2);
    answered(&mut window, 2, &rate_headers(100, 7, RESET));
    assert_eq!(remaining(&window), 6, "the lost one may be counted after it");
}

#[test]
fn a_window_is_unknown_again_two_seconds_after_its_reset() {
    let mut window = seen(0);
    let before = RESET + WOBBLE - Duration::from_millis(1);
    assert!(headroom(&window, before, 1, 0).is_err());
    assert!(headroom(&window, RESET + WOBBLE, 1, 0).is_ok());
    window.lease(RESET + WOBBLE, LeaseId(1), 1, terms(0));
    assert_eq!(headroom(&window, RESET + WOBBLE, 1, 0).unwrap_err().limit, LimitKind::Probe);
}

#[test]
fn leases_of_the_old_window_are_kept_in_the_new_one() {
    let mut window = seen(10);
    lease(&mut window, 1);
    lease(&mut window, 2);
    answered(&mut window, 2, &rate_headers(100, 1, RESET + Duration::from_hours(1)));
    assert!(headroom(&window, NOW, 1, 0).is_err(), "the other one may still be counted in it");
}

#[test]
fn a_resource_without_rate_headers_becomes_unmetered() {
    let mut window = unseen();
    for number in 0..u64::from(HEADERLESS_PROBES) {
        assert!(headroom(&window, NOW, 1, 0).is_ok());
        window.lease(NOW, LeaseId(number), 1, terms(0));
        assert!(headroom(&window, NOW, 1, 0).is_err());
        window.charge(NOW, LeaseId(number), 1, Charge::SpentWithoutHeaders);
    }
    lease(&mut window, 10);
    lease(&mut window, 11);
    answered(&mut window, 10, &rate_headers(100, 1, RESET));
    assert!(
        headroom(&window, NOW, 1, 0).is_err(),
        "headers end it, and the other lease still counts"
    );
}

#[test]
fn a_spent_probe_leaves_the_window_unknown() {
    let mut window = unseen();
    for number in 0..10 {
        lease(&mut window, number);
        window.charge(NOW, LeaseId(number), 1, Charge::Spent);
    }
    lease(&mut window, 10);
    assert!(headroom(&window, NOW, 1, 0).is_err());
}

#[test]
fn a_limit_closes_the_window_until_a_second_past_the_reset() {
    let mut window = seen(50);
    window.close(NOW, Some(RESET), None);
    assert_eq!(
        headroom(&window, NOW, 1, 0),
        Err(Block::at(LimitKind::Primary, RESET + AFTER_RESET))
    );
}

#[test]
fn a_limit_with_a_past_reset_closes_for_a_second() {
    let mut window = unseen();
    window.close(NOW, Some(NOW - Duration::from_hours(1)), None);
    assert_eq!(headroom(&window, NOW, 1, 0), Err(Block::at(LimitKind::Primary, NOW + AFTER_RESET)));
}

#[test]
fn a_limit_without_a_time_closes_until_the_known_reset() {
    let mut window = seen(50);
    window.close(NOW, None, None);
    assert_eq!(
        headroom(&window, NOW, 1, 0),
        Err(Block::at(LimitKind::Primary, RESET + AFTER_RESET))
    );
    let mut window = unseen();
    window.close(NOW, None, None);
    assert_eq!(
        headroom(&window, NOW, 1, 0),
        Err(Block::at(LimitKind::Primary, NOW + Duration::from_mins(1)))
    );
}

#[test]
fn a_limit_with_two_times_closes_until_the_later_one() {
    let mut window = unseen();
    window.close(NOW, Some(RESET), Some(Duration::from_hours(2)));
    assert_eq!(
        headroom(&window, NOW, 1, 0),
        Err(Block::at(LimitKind::Primary, NOW + Duration::from_hours(2)))
    );
}

#[test]
fn absurd_headers_break_nothing() {
    for rate in [
        rate_headers(10, u32::MAX, RESET),
        rate_headers(0, 0, RESET),
        rate_headers(0, 5, Timestamp::FAR_FUTURE),
        rate_headers(u32::MAX, u32::MAX, Timestamp::EPOCH),
    ] {
        let mut window = unseen();
        lease(&mut window, 1);
        answered(&mut window, 1, &rate);
        assert!(window.is_sane());
        if let Ok(headroom) = headroom(&window, NOW, 1, u32::MAX) {
            assert!(headroom.share <= WHOLE);
        }
    }
}

#[test]
fn accounts_without_a_user_have_smaller_presumed_limits() {
    let core = ResourceName::core();
    assert_eq!(presumed_limit(AccountKind::Anonymous, &core), 60);
    assert_eq!(presumed_limit(AccountKind::Workflow, &core), 1_000);
    assert_eq!(presumed_limit(AccountKind::User, &core), 5_000);
    assert_eq!(presumed_limit(AccountKind::Anonymous, &ResourceName::search()), 30);
}

/// Takes a request, and returns the mark for its answer.
fn send(window: &mut PrimaryWindow, now: Timestamp, number: u64) -> Mark {
    headroom(window, now, 1, 0).unwrap();
    window.lease(now, LeaseId(number), 1, terms(0))
}

fn settle(window: &mut PrimaryWindow, now: Timestamp, number: u64, mark: Mark, rate: &RateHeaders) {
    window.answered(LeaseId(number), 1, 1);
    window.observe(now, ObservedAnswer { rate, cost: 1, mark: Some(mark) });
}

#[test]
fn a_lost_request_counts_against_earlier_answers_too() {
    let mut window = seen(2);
    let early = send(&mut window, NOW, 1);
    send(&mut window, NOW, 2);
    window.charge(NOW, LeaseId(2), 1, Charge::Lost);
    settle(&mut window, NOW, 1, early, &rate_headers(100, 1, RESET));
    assert!(
        headroom(&window, NOW, 1, 0).is_err(),
        "the one that is left may have been taken by the lost one"
    );
}

#[test]
fn a_lost_request_is_refunded_by_a_later_answer_without_it() {
    let mut window = seen(10);
    send(&mut window, NOW, 1);
    window.charge(NOW, LeaseId(1), 1, Charge::Lost);
    let soon = NOW + Duration::from_secs(9);
    let mark = send(&mut window, soon, 2);
    settle(&mut window, soon, 2, mark, &rate_headers(100, 9, RESET));
    assert_eq!(remaining(&window), 8, "it may still be executed");
    let later = NOW + Duration::from_secs(10);
    let mark = send(&mut window, later, 3);
    settle(&mut window, later, 3, mark, &rate_headers(100, 8, RESET));
    assert_eq!(remaining(&window), 8, "it never was");
}

#[test]
fn an_unshared_account_holds_nothing_back() {
    let mut window = seen(50);
    let marks: Vec<Mark> = (0..20).map(|number| send(&mut window, NOW, number)).collect();
    for (number, mark) in marks.into_iter().enumerate().rev() {
        let number = number as u64;
        settle(
            &mut window,
            NOW,
            number,
            mark,
            &rate_headers(100, 49 - u32::try_from(number).unwrap(), RESET),
        );
    }
    assert_eq!(window.held(NOW + Duration::from_mins(10), 0), 0);
}

#[test]
fn an_outside_consumer_is_noticed_and_left_a_margin() {
    let mut window = seen(50);
    let mut left = 50;
    for second in 0..20 {
        let now = NOW + Duration::from_secs(second);
        let mark = send(&mut window, now, second);
        // Our request, and a foreign one.
        left -= 2;
        settle(&mut window, now, second, mark, &rate_headers(100, left, RESET));
    }
    let now = NOW + Duration::from_secs(20);
    assert!((2..6).contains(&window.held(now, 0)), "{}", window.held(now, 0));
    assert_eq!(window.held(now, 30), 30, "a reserve is for them too");
    assert!(
        window.held(now + Duration::from_secs(20), 0) > window.held(now, 0),
        "the older the news, the more"
    );
}

#[test]
fn an_even_pace_spreads_the_budget_until_the_reset() {
    let even = Terms { pace: Pace::Even, ..terms(0) };
    let wanted = WindowDemand { cost: 1, unproven: 0, priority: Priority::Normal };
    let mut window = seen(36);
    let (mut now, mut sent) = (NOW, 0_u64);
    while now < RESET {
        match window.headroom(now, wanted, even) {
            Ok(_) => {
                sent += 1;
                let mark = window.lease(now, LeaseId(sent), 1, even);
                settle(
                    &mut window,
                    now,
                    sent,
                    mark,
                    &rate_headers(100, 36 - u32::try_from(sent).unwrap(), RESET),
                );
                assert!(
                    sent < 2
                        || now.since(NOW)
                            >= Duration::from_secs(95) * u32::try_from(sent - 1).unwrap(),
                    "{sent} by {now:?}"
                );
            }
            Err(block) => now = block.wake.unwrap(),
        }
    }
    assert_eq!(sent, 36, "and all of it is used");
}

#[test]
fn batch_requests_stop_below_the_floor() {
    let floor = Terms { batch_floor: 2_000, ..terms(0) };
    let headroom = |remaining, priority| {
        seen(remaining).headroom(NOW, WindowDemand { cost: 1, unproven: 0, priority }, floor)
    };
    assert!(headroom(21, Priority::Batch).is_ok());
    assert_eq!(
        headroom(20, Priority::Batch),
        Err(Block::at(LimitKind::BatchFloor, RESET + WOBBLE))
    );
    assert!(headroom(1, Priority::Normal).is_ok() && headroom(1, Priority::Interactive).is_ok());
}

#[test]
fn batch_requests_spend_the_last_unit_without_a_floor() {
    let mut window = unseen();
    observe(&mut window, &rate_headers(15_000, 1, RESET));
    assert!(
        window
            .headroom(
                NOW,
                WindowDemand { cost: 1, unproven: 0, priority: Priority::Batch },
                terms(0)
            )
            .is_ok()
    );
}

#[test]
fn a_floor_reached_by_leases_blocks_until_an_event() {
    let floor = Terms { batch_floor: 2_000, ..terms(0) };
    let mut window = seen(22);
    lease(&mut window, 1);
    lease(&mut window, 2);
    let block = window
        .headroom(NOW, WindowDemand { cost: 1, unproven: 0, priority: Priority::Batch }, floor)
        .unwrap_err();
    assert_eq!(
        (block.limit, block.until, block.wake),
        (LimitKind::BatchFloor, Until::Event, Some(RESET + WOBBLE))
    );
}

#[test]
fn an_even_pace_counts_units_and_not_requests() {
    let even = Terms { pace: Pace::Even, ..terms(0) };
    let mut window = seen(100);
    window.lease(NOW, LeaseId(1), 10, even);
    let block = window
        .headroom(NOW, WindowDemand { cost: 1, unproven: 0, priority: Priority::Normal }, even)
        .unwrap_err();
    assert_eq!(block, Block::at(LimitKind::Pace, NOW + RESET.since(NOW) / 10));
}

#[test]
fn unseen_units_take_bounded_memory() {
    let mut window = unseen();
    for second in 0..100_000_u32 {
        let now = NOW + Duration::from_secs(second.into());
        window.encumber(now, 1);
        window.charge(now, LeaseId(second.into()), 1, Charge::Lost);
    }
    assert!(window.evidence.held_entries() <= 128);
    assert_eq!(window.evidence.unseen_units, 100_000);
}

#[test]
fn a_very_late_answer_adds_a_bounded_margin() {
    let mut window = seen(100);
    let mark = send(&mut window, NOW, 1);
    settle(&mut window, NOW, 1, mark, &rate_headers(1_000, 900, RESET));
    let mark = send(&mut window, NOW, 2);
    settle(&mut window, NOW + Duration::from_secs(900), 2, mark, &rate_headers(1_000, 880, RESET));
    assert!(window.evidence.margin(NOW + Duration::from_secs(901)) < 40);
}
