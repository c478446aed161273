//! The rules of one book, one by one.

use super::super::demand::Until;
use super::*;

const NOW: Timestamp = Timestamp::from_secs(1_000);
const RESET: Timestamp = Timestamp::from_secs(4_600);

fn says(limit: u32, remaining: u32, reset: Timestamp) -> RateHeaders {
    RateHeaders { limit, remaining, used: None, reset, resource: None }
}

fn seen(remaining: u32) -> Book {
    let mut book = Book::new();
    book.observe(&says(100, remaining, RESET));
    book
}

fn lease(book: &mut Book, number: u64) {
    book.room(NOW, 1, 0).unwrap();
    book.lease(NOW, LeaseId(number), 1);
}

/// What is left by the book, leases not taken off.
fn remaining(book: &Book) -> u32 {
    book.figures(NOW, 100).remaining
}

fn answered(book: &mut Book, number: u64, rate: &RateHeaders) {
    book.refund(LeaseId(number), 1);
    book.observe(rate);
}

#[test]
fn leases_are_taken_off_what_is_left() {
    let mut book = seen(2);
    lease(&mut book, 1);
    lease(&mut book, 2);
    let block = book.room(NOW, 1, 0).unwrap_err();
    assert_eq!((block.until, block.wake), (Until::Event, Some(RESET + WOBBLE)), "a lease may come back");
}

#[test]
fn the_last_unit_is_spent_and_then_the_book_is_closed_until_the_window_is_over() {
    let mut book = seen(1);
    lease(&mut book, 1);
    answered(&mut book, 1, &says(100, 0, RESET));
    assert_eq!(book.room(NOW, 1, 0), Err(Block::at(LimitKind::Primary, RESET + WOBBLE)));
}

#[test]
fn the_reserve_is_left_to_others() {
    let book = seen(11);
    assert!(book.room(NOW, 1, 10).is_ok());
    assert!(book.room(NOW, 1, 11).is_err());
    assert!(book.room(NOW, 2, 10).is_err());
}

#[test]
fn within_a_window_the_lowest_count_and_the_latest_reset_stay() {
    let mut book = seen(50);
    for (remaining_said, reset) in [(40, RESET + WOBBLE), (45, RESET), (48, RESET + Duration::from_secs(1))] {
        book.observe(&says(100, remaining_said, reset));
    }
    assert_eq!(remaining(&book), 40);
    assert_eq!(book.figures(NOW, 100).reset, Some(RESET + WOBBLE));
}

#[test]
fn a_reset_more_than_two_seconds_later_is_a_new_window_and_an_older_one_says_nothing() {
    let mut book = seen(3);
    book.observe(&says(100, 99, RESET + WOBBLE + Duration::from_secs(1)));
    assert_eq!(remaining(&book), 99);
    book.observe(&says(100, 2, RESET));
    assert_eq!(remaining(&book), 99);
}

#[test]
fn what_was_never_sent_is_given_back_and_what_became_of_nothing_known_is_spent() {
    let mut book = seen(10);
    lease(&mut book, 1);
    lease(&mut book, 2);
    book.refund(LeaseId(1), 1);
    assert_eq!((remaining(&book), book.leased()), (10, 1));
    book.charge(LeaseId(2), 1, Charge::Spent);
    assert_eq!((remaining(&book), book.leased()), (9, 0));
}

#[test]
fn a_304_without_headers_costs_nothing_and_another_answer_costs() {
    let mut book = seen(10);
    lease(&mut book, 1);
    book.charge(LeaseId(1), 1, Charge::Free);
    assert_eq!(remaining(&book), 10);
    lease(&mut book, 2);
    book.charge(LeaseId(2), 1, Charge::SpentWithoutHeaders);
    assert_eq!(remaining(&book), 9);
}

#[test]
fn an_unknown_state_lets_one_probe_out_and_a_lost_one_is_followed_by_another() {
    let mut book = Book::new();
    lease(&mut book, 1);
    assert_eq!(book.room(NOW, 1, 0), Err(Block::event(LimitKind::Probe)));
    book.charge(LeaseId(1), 1, Charge::Spent);
    lease(&mut book, 2);
    answered(&mut book, 2, &says(100, 7, RESET));
    assert_eq!(remaining(&book), 7);
}

#[test]
fn two_seconds_after_the_reset_the_state_is_unknown_again() {
    let mut book = seen(0);
    let before = RESET + WOBBLE - Duration::from_millis(1);
    assert!(book.room(before, 1, 0).is_err());
    assert!(book.room(RESET + WOBBLE, 1, 0).is_ok());
    book.lease(RESET + WOBBLE, LeaseId(1), 1);
    assert_eq!(book.room(RESET + WOBBLE, 1, 0).unwrap_err().limit, LimitKind::Probe);
}

#[test]
fn leases_of_the_old_window_are_kept_in_the_new_one() {
    let mut book = seen(10);
    lease(&mut book, 1);
    lease(&mut book, 2);
    answered(&mut book, 2, &says(100, 1, RESET + Duration::from_hours(1)));
    assert!(book.room(NOW, 1, 0).is_err(), "the other one may still be counted in it");
}

#[test]
fn an_upstream_without_rate_headers_is_taken_for_unmetered_after_three_probes() {
    let mut book = Book::new();
    for number in 0..u64::from(HEADERLESS_PROBES) {
        assert!(book.room(NOW, 1, 0).is_ok());
        book.lease(NOW, LeaseId(number), 1);
        assert!(book.room(NOW, 1, 0).is_err());
        book.charge(LeaseId(number), 1, Charge::SpentWithoutHeaders);
    }
    lease(&mut book, 10);
    lease(&mut book, 11);
    answered(&mut book, 10, &says(100, 1, RESET));
    assert!(book.room(NOW, 1, 0).is_err(), "headers end it, and the other lease still counts");
}

#[test]
fn an_answer_of_500_proves_nothing_about_headers() {
    let mut book = Book::new();
    for number in 0..10 {
        lease(&mut book, number);
        book.charge(LeaseId(number), 1, Charge::Spent);
    }
    lease(&mut book, 10);
    assert!(book.room(NOW, 1, 0).is_err());
}

#[test]
fn a_refusal_closes_until_the_reset_and_a_second_more() {
    let mut book = seen(50);
    book.close(NOW, Some(RESET), None);
    assert_eq!(book.room(NOW, 1, 0), Err(Block::at(LimitKind::Primary, RESET + AFTER_RESET)));
}

#[test]
fn a_refusal_with_a_reset_in_the_past_closes_for_a_second() {
    let mut book = Book::new();
    book.close(NOW, Some(NOW - Duration::from_hours(1)), None);
    assert_eq!(book.room(NOW, 1, 0), Err(Block::at(LimitKind::Primary, NOW + AFTER_RESET)));
}

#[test]
fn a_refusal_without_a_time_closes_until_the_known_reset_or_for_a_minute() {
    let mut book = seen(50);
    book.close(NOW, None, None);
    assert_eq!(book.room(NOW, 1, 0), Err(Block::at(LimitKind::Primary, RESET + AFTER_RESET)));
    let mut book = Book::new();
    book.close(NOW, None, None);
    assert_eq!(book.room(NOW, 1, 0), Err(Block::at(LimitKind::Primary, NOW + Duration::from_mins(1))));
}

#[test]
fn a_refusal_with_two_times_closes_until_the_later() {
    let mut book = Book::new();
    book.close(NOW, Some(RESET), Some(Duration::from_hours(2)));
    assert_eq!(book.room(NOW, 1, 0), Err(Block::at(LimitKind::Primary, NOW + Duration::from_hours(2))));
}

#[test]
fn absurd_headers_break_nothing() {
    for rate in
        [says(10, u32::MAX, RESET), says(0, 0, RESET), says(0, 5, Timestamp::FAR_FUTURE), says(u32::MAX, u32::MAX, Timestamp::EPOCH)]
    {
        let mut book = Book::new();
        lease(&mut book, 1);
        answered(&mut book, 1, &rate);
        assert!(book.is_sane());
        if let Ok(room) = book.room(NOW, 1, u32::MAX) {
            assert!(room.share <= WHOLE);
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
