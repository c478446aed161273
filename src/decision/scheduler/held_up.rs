//! Slots that slow readers hold, and the turns of writes, as the requests that wait see them.

use super::tests::{NOW, SECOND, SOON};
use super::tests::{answer, decided, demand, granted, one_at_a_time, queue, waiting, write};
use super::*;
use crate::decision::quota::limits::secondary::YIELD_GRACE;
use crate::decision::types::{ClientId, SecondaryLimits, WriteSpacing};

/// Admits requests of clients on an account, whose long answers have begun.
fn long_answers(queue: &mut Admission, clients: &[u32]) -> Vec<LeaseId> {
    let probe = granted(queue.request(NOW, demand(1), SOON));
    answer(queue, NOW, probe.lease, 500);
    let admit = |client: &u32| {
        let demand = Demand { client: ClientId(*client), ..demand(1) };
        let lease = granted(queue.request(NOW, demand, SOON)).lease;
        queue.answer_begun(NOW, lease, StatusCode::OK, None);
        lease
    };
    clients.iter().map(admit).collect()
}

#[test]
fn slow_readers_yield_as_many_slots_as_others_wait_for() {
    let mut queue = queue(1, SecondaryLimits { concurrency: 4, ..SecondaryLimits::default() });
    let slow = long_answers(&mut queue, &[0; 4]);
    let yielded = |queue: &mut Admission, now| {
        slow.iter().filter(|lease| queue.yield_slot(now, **lease)).count()
    };
    assert_eq!(yielded(&mut queue, NOW), 0, "nobody waits");
    waiting(queue.request(NOW, demand(1), SOON));
    assert_eq!(yielded(&mut queue, NOW), 0, "only the client itself waits");
    let other = Demand { client: ClientId(1), ..demand(1) };
    let first = waiting(queue.request(NOW, other.clone(), SOON));
    assert_eq!(yielded(&mut queue, NOW), 1);
    assert_eq!(decided(&mut queue), [], "the upstream has not noticed yet");
    queue.tick(NOW + YIELD_GRACE);
    assert_eq!(decided(&mut queue), [(first, Ok(AccountId(0)))]);
    for _ in 0..3 {
        waiting(queue.request(NOW + YIELD_GRACE, other.clone(), SOON));
    }
    assert_eq!(yielded(&mut queue, NOW + YIELD_GRACE), 1, "two are its share");
    queue.tick(NOW + YIELD_GRACE * 2);
    assert_eq!(decided(&mut queue).len(), 1);
    assert_eq!(yielded(&mut queue, NOW + YIELD_GRACE * 2), 0);
    assert_eq!(queue.audit(), []);
}

#[test]
fn a_wait_for_another_limit_takes_no_slot_of_a_slow_reader() {
    let limits = SecondaryLimits { rest_points_per_minute: 2, ..one_at_a_time() };
    let mut queue = queue(1, limits);
    let slow = long_answers(&mut queue, &[0]);
    let other = Demand { client: ClientId(1), ..demand(1) };
    waiting(queue.request(NOW, other, NOW + SECOND * 70));
    assert!(!queue.yield_slot(NOW, slow[0]), "the points are spent for a minute");
}

#[test]
fn the_next_turn_of_a_write_is_after_all_that_wait() {
    let mut queue = queue(1, SecondaryLimits::default());
    let turn = |queue: &Admission, now, write| queue.next_turn(now, &[AccountId(0)], write);
    assert_eq!(turn(&queue, NOW, WriteSpacing::Plain), NOW + SECOND);
    assert_eq!(turn(&queue, NOW, WriteSpacing::Notifies), NOW + SECOND * 3);
    let probe = granted(queue.request(NOW, demand(1), SOON));
    answer(&mut queue, NOW, probe.lease, 500);
    let upload = granted(queue.request(NOW, write(), SOON));
    let later = NOW + SECOND * 20;
    assert_eq!(turn(&queue, later, WriteSpacing::Plain), later + SECOND * 20, "as long again");
    let notifying = Demand { write: WriteSpacing::Notifies, ..write() };
    waiting(queue.request(later, write(), later + SECOND * 30));
    waiting(queue.request(later, notifying, later + SECOND * 30));
    granted(queue.request(later, demand(1), later + SECOND * 30));
    assert_eq!(turn(&queue, later, WriteSpacing::Plain), later + SECOND * 24);
    answer(&mut queue, later, upload.lease, 499);
    assert_eq!(queue.next_turn(later, &[], WriteSpacing::Plain), later);
}

#[test]
fn several_accounts_share_the_waiting_writes() {
    let mut queue = queue(2, SecondaryLimits::default());
    let both = Demand { write: WriteSpacing::Plain, ..demand(2) };
    for _ in 0..2 {
        let probe = granted(queue.request(NOW, demand(2), SOON));
        answer(&mut queue, NOW, probe.lease, 500);
    }
    let _sent = [0; 2].map(|_| granted(queue.request(NOW, both.clone(), SOON)));
    let _waiting = [0; 5].map(|_| waiting(queue.request(NOW, both.clone(), SOON)));
    let accounts = [AccountId(0), AccountId(1)];
    assert_eq!(queue.next_turn(NOW, &accounts, WriteSpacing::Plain), NOW + SECOND * 4);
}
