//! Slots that slow readers hold, and the turns of writes, as the requests that wait see them.

use super::tests::{NOW, SECOND, SOON};
use super::tests::{
    answer, decided, demand, granted, one_at_a_time, queue, refused, shared_queue, waiting, write,
};
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
    let limits = SecondaryLimits { concurrency: 8, ..SecondaryLimits::default() };
    let mut queue = shared_queue(limits);
    let slow = long_answers(&mut queue, &[0; 8]);
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
    // Before the tick that is due.
    assert_eq!(yielded(&mut queue, NOW + YIELD_GRACE), 0);
    assert_eq!(decided(&mut queue), [(first, Ok(AccountId(0)))]);
    for _ in 0..5 {
        waiting(queue.request(NOW + YIELD_GRACE, other.clone(), SOON));
    }
    assert_eq!(yielded(&mut queue, NOW + YIELD_GRACE), 3, "four are its share");
    queue.tick(NOW + YIELD_GRACE * 2);
    assert_eq!(decided(&mut queue).len(), 2, "the last slot is for a client with none");
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

/// The denial of a write that waits from `NOW` on, while the writes before it end as given, each at
/// its time. Reads of the account are answered all the time.
fn denial_behind(writes: &[(u64, Settlement<'static>)], wait: u64) -> LimitDenied {
    let mut queue = queue(1, SecondaryLimits::default());
    let probe = granted(queue.request(NOW, demand(1), SOON));
    answer(&mut queue, NOW, probe.lease, 500);
    let mut in_flight = granted(queue.request(NOW, write(), SOON)).lease;
    let before: Vec<Ticket> =
        writes.iter().map(|_| waiting(queue.request(NOW, write(), NOW + SECOND * 600))).collect();
    let last = waiting(queue.request(NOW, write(), NOW + Duration::from_secs(wait)));
    let (mut writes, mut before) = (writes.iter().peekable(), before.into_iter());
    for second in 0.. {
        let now = NOW + Duration::from_secs(second);
        let read = granted(queue.request(now, demand(1), now + SECOND));
        answer(&mut queue, now, read.lease, 400);
        if let Some((_, settlement)) = writes.next_if(|(end, _)| *end == second) {
            queue.settle(now, in_flight, *settlement, 0.0);
        }
        queue.tick(now);
        for (ticket, decision) in queue.take_decided().collect::<Vec<_>>() {
            match decision {
                Ok(grant) => {
                    assert_eq!(Some(ticket), before.next());
                    in_flight = grant.lease;
                }
                Err(denied) if ticket == last => return denied,
                Err(denied) => panic!("{denied:?}"),
            }
        }
    }
    unreachable!()
}

const ANSWERED: Settlement<'static> =
    Settlement::Answered { status: StatusCode::CREATED, rate: None, refusal: None };

#[test]
fn a_write_behind_writes_without_answers_is_unanswered() {
    let cases: [(&[(u64, Settlement<'static>)], u64); 6] = [
        (&[], 10),
        (&[(5, Settlement::CutOff), (6, ANSWERED), (7, ANSWERED)], 9),
        (&[(6, Settlement::CutOff)], 10),
        (&[(4, Settlement::CutOff), (8, Settlement::Unknown)], 10),
        (&[(2, ANSWERED)], 10),
        (&[(2, ANSWERED), (6, Settlement::CutOff)], 10),
    ];
    for (writes, wait) in cases {
        let denied = denial_behind(writes, wait);
        assert_eq!(denied.limit, LimitKind::Spacing);
        assert!(denied.is_unanswered, "{writes:?}: {denied:?}");
    }
}

#[test]
fn a_write_behind_answered_writes_is_held_by_the_distance() {
    let cases: [&[(u64, Settlement<'static>)]; 3] = [
        &[(1, ANSWERED), (3, ANSWERED), (5, ANSWERED), (7, ANSWERED), (9, ANSWERED)],
        &[(3, ANSWERED), (6, ANSWERED), (9, ANSWERED)],
        &[(3, Settlement::CutOff), (5, ANSWERED), (7, ANSWERED), (9, ANSWERED)],
    ];
    for writes in cases {
        let denied = denial_behind(writes, 10);
        assert_eq!(denied.limit, LimitKind::Spacing);
        assert!(!denied.is_unanswered, "{writes:?}: {denied:?}");
    }
}

#[test]
fn a_write_that_cannot_wait_behind_silence_is_unanswered() {
    for (age, is_unanswered) in [(500, false), (1_500, true)] {
        let mut queue = queue(1, SecondaryLimits::default());
        let probe = granted(queue.request(NOW, demand(1), SOON));
        answer(&mut queue, NOW, probe.lease, 500);
        granted(queue.request(NOW, write(), SOON));
        let now = NOW + Duration::from_millis(age);
        let denied = refused(queue.request(now, write(), now));
        assert_eq!(denied.limit, LimitKind::Spacing);
        assert_eq!(denied.is_unanswered, is_unanswered, "{age}");
    }
}

#[test]
fn a_long_answer_that_is_read_is_no_silence() {
    let mut queue = queue(1, one_at_a_time());
    let long = long_answers(&mut queue, &[0]);
    let now = NOW + SECOND * 20;
    let denied = refused(queue.request(now, demand(1), now));
    assert_eq!((denied.limit, denied.is_unanswered), (LimitKind::Concurrency, false));
    queue.settle(now, long[0], Settlement::Yielded, 0.0);
    let denied = refused(queue.request(now, demand(1), now));
    assert_eq!((denied.limit, denied.is_unanswered), (LimitKind::Concurrency, false));
}

#[test]
fn an_upload_that_the_upstream_takes_is_no_silence() {
    let mut queue = queue(1, SecondaryLimits::default());
    let probe = granted(queue.request(NOW, demand(1), SOON));
    answer(&mut queue, NOW, probe.lease, 500);
    let upload = granted(queue.request(NOW, write(), SOON)).lease;
    waiting(queue.request(NOW, write(), NOW + SECOND * 10));
    queue.body_taken(NOW + SECOND * 8, upload);
    queue.tick(NOW + SECOND * 10);
    let denied = queue.take_decided().next().expect("denied").1.unwrap_err();
    assert!(!denied.is_unanswered, "{denied:?}");
}

#[test]
fn slots_held_without_answers_are_no_limit() {
    let limits = SecondaryLimits { concurrency: 2, ..SecondaryLimits::default() };
    // The second slot changes hands, or both hang; the first hangs and is given up in the end.
    for (is_answered, is_given_up) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut queue = queue(1, limits);
        let probe = granted(queue.request(NOW, demand(1), SOON));
        answer(&mut queue, NOW, probe.lease, 500);
        let slots = [0; 2].map(|_| granted(queue.request(NOW, demand(1), SOON)).lease);
        let [next, last] = [20, 10]
            .map(|wait| waiting(queue.request(NOW, demand(1), NOW + Duration::from_secs(wait))));
        if is_answered {
            answer(&mut queue, NOW + SECOND * 8, slots[1], 400);
            assert_eq!(decided(&mut queue), [(next, Ok(AccountId(0)))]);
        }
        if is_given_up {
            for slot in slots {
                queue.settle(NOW + SECOND * 9, slot, Settlement::CutOff, 0.0);
            }
        }
        queue.tick(NOW + SECOND * 10);
        let denied: Vec<_> = queue.take_decided().collect();
        let (_, denial) = denied.into_iter().find(|(ticket, _)| *ticket == last).expect("denied");
        let denial = denial.unwrap_err();
        // A slot of one that was given up is held for its grace.
        let is_unanswered = !is_answered || is_given_up;
        assert_eq!((denial.limit, denial.is_unanswered), (LimitKind::Concurrency, is_unanswered));
    }
}

#[test]
fn an_account_that_answers_makes_the_wait_a_limit() {
    let mut queue = queue(2, one_at_a_time());
    let probes = [0; 2].map(|_| granted(queue.request(NOW, demand(2), SOON)));
    for probe in probes {
        answer(&mut queue, NOW, probe.lease, 500);
    }
    let [_hangs, answers] = [0; 2].map(|_| granted(queue.request(NOW, demand(2), SOON)));
    let [_next, last] =
        [20, 10].map(|wait| waiting(queue.request(NOW, demand(2), NOW + SECOND * wait)));
    answer(&mut queue, NOW + SECOND * 8, answers.lease, 400);
    queue.tick(NOW + SECOND * 10);
    let denied = queue.take_decided().find(|(ticket, _)| *ticket == last).expect("denied");
    assert!(!denied.1.unwrap_err().is_unanswered);
}
