//! The waiting line, rule by rule.

use std::time::Duration;

use http::Method;

use super::*;
use crate::api::{AccountKind, Dialect, EndpointId, LimitRefusal, ResourceName, Table};
use crate::decision::demand::{AccountSettings, SecondaryLimits, WriteSpacing};

const NOW: Timestamp = Timestamp::from_secs(10_000);
const RESET: Timestamp = Timestamp::from_secs(12_000);
const SECOND: Duration = Duration::from_secs(1);
/// The default of `clients.max_wait`.
const SOON: Timestamp = Timestamp::from_secs(10_030);

fn endpoint(path: &str) -> EndpointId {
    Table::embedded(Dialect::Service).classify(&Method::GET, path).endpoint.id
}

fn demand(accounts: u32) -> Demand {
    Demand {
        candidates: (0..accounts).map(AccountId).collect(),
        prefer: None,
        resource: ResourceName::core(),
        endpoint: endpoint("/repos/a/b"),
        cost: 1,
        points: 1,
        graphql: false,
        content: false,
        write: WriteSpacing::None,
    }
}

fn write() -> Demand {
    Demand { write: WriteSpacing::Plain, ..demand(1) }
}

fn line(accounts: u32, limits: SecondaryLimits) -> Admission {
    let account = |number: u32| AccountSettings { name: format!("account-{number}").into(), kind: AccountKind::User, reserve: 0 };
    let accounts = (0..accounts).map(account).collect();
    Admission::new(Settings { accounts, limits, spacing: SECOND, notify_spacing: SECOND * 3 }, 100)
}

fn one_at_a_time() -> SecondaryLimits {
    SecondaryLimits { concurrency: 1, ..SecondaryLimits::default() }
}

fn granted(decision: Decision) -> Grant {
    match decision {
        Decision::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

fn waiting(decision: Decision) -> Ticket {
    match decision {
        Decision::Waiting(ticket) => ticket,
        other => panic!("not waiting: {other:?}"),
    }
}

fn refused(decision: Decision) -> Refusal {
    match decision {
        Decision::Refused(refusal) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

fn answer(line: &mut Admission, now: Timestamp, lease: LeaseId, remaining: u32) {
    let rate = RateHeaders { limit: 100, remaining, used: None, reset: RESET, resource: None };
    line.settle(now, lease, Settlement::Answered { status: StatusCode::OK, rate: Some(&rate), refusal: None }, 0.0);
}

/// The tickets decided, with the account or the limit.
fn decided(line: &mut Admission) -> Vec<(Ticket, Result<AccountId, LimitKind>)> {
    let outcome = |decision: Result<Grant, Refusal>| decision.map(|grant| grant.account).map_err(|refusal| refusal.limit);
    line.take_decided().into_iter().map(|(ticket, decision)| (ticket, outcome(decision))).collect()
}

#[test]
fn all_wait_for_the_probe_and_are_admitted_by_its_answer() {
    let mut line = line(1, SecondaryLimits::default());
    let probe = granted(line.request(NOW, demand(1), SOON));
    let tickets = [0; 3].map(|_| waiting(line.request(NOW, demand(1), SOON)));
    assert_eq!(line.next_wakeup(), Some(SOON), "only the deadlines are waited for");
    answer(&mut line, NOW, probe.lease, 50);
    assert_eq!(decided(&mut line), tickets.map(|ticket| (ticket, Ok(AccountId(0)))));
    assert_eq!(line.waiting(), 0);
}

#[test]
fn a_lost_probe_is_followed_by_the_first_who_waits() {
    let mut line = line(1, SecondaryLimits::default());
    let probe = granted(line.request(NOW, demand(1), SOON));
    let [first, _second] = [0; 2].map(|_| waiting(line.request(NOW, demand(1), SOON)));
    line.settle(NOW, probe.lease, Settlement::Unknown, 0.0);
    assert_eq!(decided(&mut line), [(first, Ok(AccountId(0)))]);
    assert_eq!(line.waiting(), 1);
}

#[test]
fn those_who_wait_are_refused_as_soon_as_it_is_clear_that_they_wait_in_vain() {
    let mut line = line(1, SecondaryLimits::default());
    let probe = granted(line.request(NOW, demand(1), SOON));
    let short = waiting(line.request(NOW, demand(1), SOON));
    let long = waiting(line.request(NOW, demand(1), RESET + SECOND * 9));
    answer(&mut line, NOW, probe.lease, 0);
    let [(ticket, Err(refusal))] = &line.take_decided()[..] else { panic!("one is refused") };
    assert_eq!((*ticket, refusal.until), (short, Until::Time(RESET + SECOND * 2)));
    assert_eq!(line.next_wakeup(), Some(RESET + SECOND * 2));
    line.tick(RESET + SECOND * 2);
    assert_eq!(decided(&mut line), [(long, Ok(AccountId(0)))]);
}

#[test]
fn a_reset_nearer_than_the_longest_wait_is_waited_for_and_a_farther_one_refuses_at_once() {
    let mut line = line(1, SecondaryLimits::default());
    let probe = granted(line.request(NOW, demand(1), SOON));
    answer(&mut line, NOW, probe.lease, 0);
    let free = RESET + SECOND * 2;
    assert_eq!(refused(line.request(NOW, demand(1), free - SECOND)).until, Until::Time(free));
    waiting(line.request(NOW, demand(1), free));
    assert_eq!(refused(line.request(NOW, demand(1), free - SECOND)).until, Until::Time(free), "also behind others");
}

#[test]
fn a_request_that_may_not_wait_is_refused_rather_than_queued() {
    let mut line = line(1, one_at_a_time());
    granted(line.request(NOW, demand(1), NOW));
    assert_eq!(refused(line.request(NOW, demand(1), NOW)).until, Until::Event);
    assert_eq!(line.waiting(), 0);
}

#[test]
fn a_deadline_that_comes_is_a_refusal_with_the_limit_that_held() {
    let mut line = line(1, one_at_a_time());
    let busy = granted(line.request(NOW, demand(1), SOON));
    answer(&mut line, NOW, busy.lease, 50);
    granted(line.request(NOW, demand(1), SOON));
    let ticket = waiting(line.request(NOW, demand(1), SOON));
    line.tick(SOON - Duration::from_millis(1));
    assert_eq!(decided(&mut line), []);
    line.tick(SOON);
    assert_eq!(decided(&mut line), [(ticket, Err(LimitKind::Concurrency))]);
}

#[test]
fn the_same_demand_is_served_in_order_of_arrival() {
    let mut line = line(1, one_at_a_time());
    let mut lease = granted(line.request(NOW, demand(1), SOON)).lease;
    let tickets = [0; 4].map(|_| waiting(line.request(NOW, demand(1), SOON)));
    for ticket in tickets {
        answer(&mut line, NOW, lease, 50);
        let [(decided, Ok(grant))] = &line.take_decided()[..] else { panic!("one is granted") };
        assert_eq!(*decided, ticket);
        lease = grant.lease;
    }
}

#[test]
fn of_several_demands_the_one_that_waits_longest_goes_first() {
    let mut line = line(1, one_at_a_time());
    let busy = granted(line.request(NOW, demand(1), SOON));
    let other = Demand { endpoint: endpoint("/repos/a/b/issues"), ..demand(1) };
    let first = waiting(line.request(NOW, other, SOON));
    let second = waiting(line.request(NOW, demand(1), SOON));
    answer(&mut line, NOW, busy.lease, 50);
    assert_eq!(decided(&mut line), [(first, Ok(AccountId(0)))]);
    line.abandon(NOW, second);
    assert_eq!((line.waiting(), line.next_wakeup()), (0, None));
}

#[test]
fn a_full_line_refuses_the_next_one() {
    let mut line = Admission { queue_max: 2, ..line(1, one_at_a_time()) };
    granted(line.request(NOW, demand(1), SOON));
    let [gone, _] = [0; 2].map(|_| waiting(line.request(NOW, demand(1), SOON)));
    assert_eq!(refused(line.request(NOW, demand(1), SOON)).limit, LimitKind::QueueFull);
    line.abandon(NOW, gone);
    waiting(line.request(NOW, demand(1), SOON));
}

#[test]
fn one_who_leaves_does_not_hold_up_those_behind() {
    let mut line = line(1, one_at_a_time());
    let busy = granted(line.request(NOW, demand(1), SOON));
    let [gone, next] = [0; 2].map(|_| waiting(line.request(NOW, demand(1), SOON)));
    line.abandon(NOW, gone);
    answer(&mut line, NOW, busy.lease, 50);
    assert_eq!(decided(&mut line), [(next, Ok(AccountId(0)))]);
}

#[test]
fn a_grant_whose_asker_has_left_goes_to_the_next() {
    let mut line = line(1, one_at_a_time());
    let busy = granted(line.request(NOW, demand(1), SOON));
    let [_gone, next] = [0; 2].map(|_| waiting(line.request(NOW, demand(1), SOON)));
    answer(&mut line, NOW, busy.lease, 50);
    let [(_, Ok(unwanted))] = &line.take_decided()[..] else { panic!("one is granted") };
    line.settle(NOW, unwanted.lease, Settlement::NeverSent, 0.0);
    assert_eq!(decided(&mut line), [(next, Ok(AccountId(0)))]);
}

#[test]
fn writes_wake_when_their_distance_is_kept() {
    let mut line = line(1, SecondaryLimits::default());
    let first = granted(line.request(NOW, write(), SOON));
    let [second, third] = [0; 2].map(|_| waiting(line.request(NOW, write(), SOON)));
    answer(&mut line, NOW, first.lease, 50);
    assert_eq!(line.next_wakeup(), Some(NOW + SECOND));
    line.tick(NOW + SECOND);
    let [(ticket, Ok(grant))] = &line.take_decided()[..] else { panic!("one is granted") };
    assert_eq!(*ticket, second);
    assert_eq!(line.next_wakeup(), Some(NOW + SECOND * 2), "a look at the distance, even if the answer should come first");
    answer(&mut line, NOW + SECOND * 3, grant.lease, 49);
    assert_eq!(decided(&mut line), [(third, Ok(AccountId(0)))]);
}

#[test]
fn an_account_that_becomes_free_by_time_is_seen_while_another_is_waited_for() {
    let mut line = line(2, SecondaryLimits::default());
    let probes = [0; 2].map(|_| granted(line.request(NOW, demand(2), SOON)));
    let pause = Some(SECOND * 5);
    let refusal = LimitRefusal::Secondary { retry_after: pause, reset: None, remaining: None, resource: None };
    let refused = Settlement::Answered { status: StatusCode::FORBIDDEN, rate: None, refusal: Some(&refusal) };
    line.settle(NOW, probes[0].lease, refused, 0.0);
    let ticket = waiting(line.request(NOW, demand(2), SOON));
    assert_eq!(line.next_wakeup(), Some(NOW + SECOND * 5), "the second account's probe may take longer");
    line.tick(NOW + SECOND * 5);
    assert_eq!(decided(&mut line), [(ticket, Ok(AccountId(0)))]);
}

#[test]
fn a_closed_account_refuses_those_whose_deadline_comes_first() {
    let mut line = line(1, one_at_a_time());
    let busy = granted(line.request(NOW, demand(1), SOON));
    let ticket = waiting(line.request(NOW, demand(1), SOON));
    let refusal = LimitRefusal::Secondary { retry_after: None, reset: None, remaining: None, resource: None };
    let refused = Settlement::Answered { status: StatusCode::FORBIDDEN, rate: None, refusal: Some(&refusal) };
    line.settle(NOW, busy.lease, refused, 0.0);
    assert_eq!(decided(&mut line), [(ticket, Err(LimitKind::Cooldown))]);
}

#[test]
fn two_hundred_at_once_on_three_cold_accounts_of_fifty_make_150_requests() {
    let mut line = line(3, SecondaryLimits::default());
    let mut left = [50u32; 3];
    let (mut open, mut refusals, mut sent) = (Vec::new(), 0, 0);
    for _ in 0..200 {
        match line.request(NOW, demand(3), SOON) {
            Decision::Granted(grant) => open.push(grant),
            Decision::Refused(_) => refusals += 1,
            Decision::Waiting(_) => {}
        }
    }
    assert_eq!((open.len(), line.waiting()), (3, 100), "three probes; the line of this test holds a hundred");
    while let Some(grant) = open.pop() {
        sent += 1;
        let remaining = &mut left[grant.account.0 as usize];
        *remaining = remaining.checked_sub(1).expect("never more than fifty of one account");
        answer(&mut line, NOW, grant.lease, *remaining);
        for (_, decision) in line.take_decided() {
            match decision {
                Ok(grant) => open.push(grant),
                Err(_) => refusals += 1,
            }
        }
        while line.waiting() == 0 && sent + open.len() < 150 {
            open.push(granted(line.request(NOW, demand(3), SOON)));
        }
    }
    assert_eq!((sent, left), (150, [0; 3]));
    let refusal = refused(line.request(NOW, demand(3), SOON));
    assert_eq!((refusal.limit, refusal.until), (LimitKind::Primary, Until::Time(RESET + SECOND * 2)));
    assert_eq!(refusals, 97, "those for whom the line had no room");
}

#[test]
fn the_head_of_a_long_answer_lets_those_go_who_waited_for_what_it_says() {
    let mut line = line(1, SecondaryLimits { concurrency: 3, ..SecondaryLimits::default() });
    let probe = granted(line.request(NOW, demand(1), SOON));
    for _ in 0..3 {
        assert!(matches!(line.request(NOW, demand(1), SOON), Decision::Waiting(_)));
    }
    let rate = RateHeaders { limit: 100, remaining: 99, used: None, reset: RESET, resource: Some(ResourceName::core()) };
    line.answer_begun(NOW, probe.lease, StatusCode::OK, Some(&rate));
    assert_eq!(line.take_decided().len(), 2, "the long answer itself still holds its slot");
    line.settle(NOW, probe.lease, Settlement::Answered { status: StatusCode::OK, rate: None, refusal: None }, 0.0);
    assert_eq!(line.take_decided().len(), 1);
    assert_eq!(line.audit(), []);
}
