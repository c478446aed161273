//! The share of each client in the slots of an account, while requests wait (SPECIFICATION D5).

use super::tests::{NOW, SECOND, SOON, answer, decided, demand, granted, shared_queue, waiting};
use super::*;
use crate::decision::types::{ClientId, SecondaryLimits};

fn of(client: u32) -> Demand {
    Demand { client: ClientId(client), ..demand(1) }
}

/// A queue with this many slots, in which two clients have asked lately.
fn contested(concurrency: u32) -> Admission {
    let limits = SecondaryLimits { concurrency, ..SecondaryLimits::default() };
    let mut queue = shared_queue(limits);
    for client in [0, 1] {
        let probe = granted(queue.request(NOW, of(client), SOON));
        answer(&mut queue, NOW, probe.lease, 5_000);
    }
    queue
}

fn leases<const N: usize>(queue: &mut Admission, client: u32) -> [LeaseId; N] {
    [0; N].map(|_| granted(queue.request(NOW, of(client), SOON)).lease)
}

fn limit_of(decision: &Decision) -> LimitKind {
    let Decision::Waiting { by, .. } = decision else { panic!("not waiting: {decision:?}") };
    by.limit
}

#[test]
fn a_client_whose_requests_hang_leaves_a_slot_to_the_others() {
    let mut queue = contested(4);
    let hanging: [LeaseId; 3] = leases(&mut queue, 0);
    let waits = queue.request(NOW, of(0), SOON);
    assert_eq!(limit_of(&waits), LimitKind::ClientShare);
    for _ in 0..5 {
        let [other] = leases(&mut queue, 1);
        answer(&mut queue, NOW, other, 5_000);
    }
    assert_eq!(decided(&mut queue), []);
    answer(&mut queue, NOW, hanging[0], 5_000);
    assert_eq!(decided(&mut queue), [(waiting(waits), Ok(AccountId(0)))]);
}

#[test]
fn requests_given_up_count_in_the_share_of_their_client() {
    let mut queue = contested(4);
    for lease in leases::<3>(&mut queue, 0) {
        queue.settle(NOW, lease, Settlement::CutOff, 0.0);
    }
    let own = queue.request(NOW, of(0), SOON);
    assert_eq!(limit_of(&own), LimitKind::ClientShare);
    let [_other] = leases(&mut queue, 1);
    let end = NOW + SECOND * 10;
    assert_eq!(queue.next_wakeup(), Some(end));
    queue.tick(end);
    assert_eq!(decided(&mut queue), [(waiting(own), Ok(AccountId(0)))]);
}

#[test]
fn nobody_waits_behind_a_client_that_has_its_share() {
    let mut queue = contested(4);
    let own: [LeaseId; 3] = leases(&mut queue, 0);
    let [other] = leases(&mut queue, 1);
    let first = [0; 3].map(|_| waiting(queue.request(NOW, of(0), SOON)));
    // The shares order the two other clients behind the first request.
    let third = waiting(queue.request(NOW, of(2), SOON));
    let second = waiting(queue.request(NOW, of(1), SOON));
    answer(&mut queue, NOW, other, 5_000);
    let got: Vec<_> = decided(&mut queue).into_iter().map(|(ticket, _)| ticket).collect();
    assert!(got == [third] || got == [second], "{got:?}");
    assert!(queue.audit().is_empty());
    answer(&mut queue, NOW, own[0], 5_000);
    assert_eq!(decided(&mut queue).len(), 1, "the other of the two");
    // The client keeps its order, and leaves the last slot.
    answer(&mut queue, NOW, own[1], 5_000);
    assert_eq!(decided(&mut queue), []);
    answer(&mut queue, NOW, own[2], 5_000);
    assert_eq!(decided(&mut queue), [(first[0], Ok(AccountId(0)))]);
    assert!(queue.audit().is_empty());
}

#[test]
fn a_wait_behind_own_requests_without_answers_is_no_limit() {
    for (is_answered, is_unanswered) in [(false, true), (true, false)] {
        let mut queue = contested(4);
        let [hanging, _, _]: [LeaseId; 3] = leases(&mut queue, 0);
        let ticket = waiting(queue.request(NOW, of(0), NOW + SECOND * 9));
        for second in 1..9 {
            let now = NOW + SECOND * second;
            let other = granted(queue.request(now, of(1), now)).lease;
            answer(&mut queue, now, other, 4_000);
            if is_answered {
                queue.body_taken(now, hanging);
            }
        }
        queue.tick(NOW + SECOND * 9);
        let (denied, denial) = queue.take_decided().next().expect("denied");
        let denial = denial.unwrap_err();
        let found = (denied, denial.limit, denial.is_unanswered);
        assert_eq!(found, (ticket, LimitKind::ClientShare, is_unanswered));
    }
}

#[test]
fn a_moved_request_is_found_by_all_that_end_it() {
    let mut queue = contested(4);
    let _own: [LeaseId; 3] = leases(&mut queue, 0);
    let [other] = leases(&mut queue, 1);
    let [left, late] = [20, 9].map(|wait| waiting(queue.request(NOW, of(0), NOW + SECOND * wait)));
    answer(&mut queue, NOW, other, 5_000);
    assert_eq!(decided(&mut queue), [], "both wait for the share");
    queue.abandon(NOW, left);
    queue.tick(NOW + SECOND * 9);
    assert_eq!(decided(&mut queue), [(late, Err(LimitKind::ClientShare))]);
    assert_eq!((queue.waiting(), queue.audit()), (0, Vec::new()));
}

const SLOW: &str = "/repos/a/b/issues";
const OTHER: &str = "/repos/a/b/commits";

fn at(path: &str, client: u32) -> Demand {
    Demand { client: ClientId(client), ..Demand::read([AccountId(0)], path) }
}

/// Time at which the account's requests for the slow endpoint are known to take five seconds.
const KNOWN: Timestamp = Timestamp::from_secs(10_200);

/// A queue in which this many of the slow requests of a client are under way, as many as its share
/// of the CPU time permits.
fn with_slow_requests() -> (Admission, Vec<LeaseId>) {
    let mut queue = shared_queue(SecondaryLimits::default());
    for path in [SLOW, OTHER] {
        let took = if path == SLOW { SECOND * 5 } else { SECOND / 100 };
        let probe = granted(queue.request(NOW, at(path, 0), SOON)).lease;
        answer(&mut queue, NOW + took, probe, 5_000);
    }
    let mut slow = Vec::new();
    let until = KNOWN + SECOND * 30;
    while let Decision::Granted(grant) = queue.request(KNOWN, at(SLOW, 0), until) {
        slow.push(grant.lease);
    }
    (queue, slow)
}

#[test]
fn a_client_with_hanging_requests_leaves_cpu_time() {
    let (mut queue, slow) = with_slow_requests();
    assert!((7..=8).contains(&slow.len()), "of 45 seconds: {}", slow.len());
    let waits = queue.request(KNOWN, at(SLOW, 0), KNOWN + SECOND * 30);
    assert_eq!(limit_of(&waits), LimitKind::ClientShare);
    for _ in 0..20 {
        let other = granted(queue.request(KNOWN, at(OTHER, 1), KNOWN)).lease;
        answer(&mut queue, KNOWN + SECOND / 100, other, 5_000);
    }
    let later = KNOWN + SECOND * 28;
    for lease in slow {
        queue.settle(later, lease, Settlement::CutOff, 0.0);
    }
    assert!(queue.audit().is_empty());
}

#[test]
fn nobody_waits_behind_a_request_without_cpu_time() {
    let (mut queue, _slow) = with_slow_requests();
    let end = KNOWN + SECOND * 9;
    let waits = queue.request(KNOWN, at(SLOW, 1), end);
    assert_eq!(limit_of(&waits), LimitKind::Cpu);
    for second in 1..9 {
        let now = KNOWN + SECOND * second;
        let other = granted(queue.request(now, at(OTHER, 2), now)).lease;
        answer(&mut queue, now, other, 5_000);
    }
    queue.tick(end);
    let (ticket, denial) = queue.take_decided().next().expect("denied");
    let denial = denial.unwrap_err();
    let found = (ticket, denial.limit, denial.is_unanswered);
    assert_eq!(found, (waiting(waits), LimitKind::Cpu, true));
}
