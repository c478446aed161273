//! The wait queue, rule by rule.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::Method;

use super::*;
use crate::api::{
    AccountKind, Dialect, EndpointId, ResourceName, Table, UpstreamLimit, UpstreamLimitKind,
};
use crate::decision::quota::limits::secondary::CUT_OFF_GRACE;
use crate::decision::types::{AccountSettings, ClientId, SecondaryLimits, WriteSpacing};

pub const NOW: Timestamp = Timestamp::from_secs(10_000);
const RESET: Timestamp = Timestamp::from_secs(12_000);
pub const SECOND: Duration = Duration::from_secs(1);
/// Default of `clients.max_wait`.
pub const SOON: Timestamp = Timestamp::from_secs(10_030);

fn endpoint(path: &str) -> EndpointId {
    Table::embedded(Dialect::Service).classify(&Method::GET, path).endpoint.id
}

pub fn demand(accounts: u32) -> Demand {
    Demand::read((0..accounts).map(AccountId).collect::<Vec<_>>(), "/repos/a/b")
}

pub fn write() -> Demand {
    Demand { write: WriteSpacing::Plain, ..demand(1) }
}

pub fn queue(accounts: u32, limits: SecondaryLimits) -> Admission {
    Admission::new(settings(accounts, limits))
}

/// An account that several clients may use.
pub fn shared_queue(limits: SecondaryLimits) -> Admission {
    let mut settings = settings(1, limits);
    settings.accounts[0].is_shared = true;
    Admission::new(settings)
}

pub fn settings(accounts: u32, limits: SecondaryLimits) -> Settings {
    let account = |number: u32| AccountSettings {
        is_shared: false,
        name: format!("account-{number}").into(),
        kind: AccountKind::User,
        reserve: 0,
        also_spends: None,
    };
    let accounts = (0..accounts).map(account).collect();
    Settings {
        accounts,
        limits,
        spacing: SECOND,
        notify_spacing: SECOND * 3,
        waiting_max: 100,
        ..Settings::default()
    }
}

pub fn one_at_a_time() -> SecondaryLimits {
    SecondaryLimits { concurrency: 1, ..SecondaryLimits::default() }
}

pub fn granted(decision: Decision) -> Grant {
    match decision {
        Decision::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

pub fn waiting(decision: Decision) -> Ticket {
    match decision {
        Decision::Waiting { ticket, .. } => ticket,
        other => panic!("not waiting: {other:?}"),
    }
}

pub fn refused(decision: Decision) -> LimitDenied {
    match decision {
        Decision::Refused(refusal) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

pub fn answer(queue: &mut Admission, now: Timestamp, lease: LeaseId, remaining: u32) {
    let rate = RateHeaders {
        limit: 100.max(remaining),
        remaining,
        used: None,
        reset: RESET,
        resource: None,
    };
    queue.settle(
        now,
        lease,
        Settlement::Answered { status: StatusCode::OK, rate: Some(&rate), refusal: None },
        0.0,
    );
}

/// Decided tickets, with the account or the limit.
pub fn decided(queue: &mut Admission) -> Vec<(Ticket, Result<AccountId, LimitKind>)> {
    let outcome = |decision: Result<Grant, LimitDenied>| {
        decision.map(|grant| grant.account).map_err(|refusal| refusal.limit)
    };
    queue.take_decided().map(|(ticket, decision)| (ticket, outcome(decision))).collect()
}

#[test]
fn requests_wait_for_the_probe_and_its_answer_admits_them() {
    let mut queue = queue(1, SecondaryLimits::default());
    let probe = granted(queue.request(NOW, demand(1), SOON));
    let tickets = [0; 3].map(|_| waiting(queue.request(NOW, demand(1), SOON)));
    assert_eq!(queue.next_wakeup(), Some(NOW + SECOND * 2), "a slow answer holds nobody longer");
    answer(&mut queue, NOW, probe.lease, 50);
    assert_eq!(decided(&mut queue), tickets.map(|ticket| (ticket, Ok(AccountId(0)))));
    assert_eq!(queue.waiting(), 0);
}

#[test]
fn a_waiting_request_gets_a_given_up_slot_after_its_grace() {
    let mut queue = queue(1, one_at_a_time());
    let probe = granted(queue.request(NOW, demand(1), SOON));
    answer(&mut queue, NOW, probe.lease, 50);
    let given_up = granted(queue.request(NOW, demand(1), SOON));
    let ticket = waiting(queue.request(NOW, demand(1), SOON));
    queue.settle(NOW, given_up.lease, Settlement::CutOff, 0.0);
    assert_eq!(decided(&mut queue), []);
    let end = NOW + CUT_OFF_GRACE;
    assert_eq!(queue.next_wakeup(), Some(end));
    let impatient = refused(queue.request(NOW, demand(1), NOW + SECOND * 9));
    assert_eq!((impatient.limit, impatient.until), (LimitKind::Concurrency, Until::Time(end)));
    queue.tick(end);
    assert_eq!(decided(&mut queue), [(ticket, Ok(AccountId(0)))]);
}

#[test]
fn the_first_waiting_request_follows_a_lost_probe() {
    let mut queue = queue(1, SecondaryLimits::default());
    let probe = granted(queue.request(NOW, demand(1), SOON));
    let [first, _second] = [0; 2].map(|_| waiting(queue.request(NOW, demand(1), SOON)));
    queue.settle(NOW, probe.lease, Settlement::Unknown, 0.0);
    assert_eq!(decided(&mut queue), [(first, Ok(AccountId(0)))]);
    assert_eq!(queue.waiting(), 1);
}

#[test]
fn a_waiting_request_is_denied_once_its_wait_is_hopeless() {
    let mut queue = queue(1, SecondaryLimits::default());
    let probe = granted(queue.request(NOW, demand(1), SOON));
    let short = waiting(queue.request(NOW, demand(1), SOON));
    let long = waiting(queue.request(NOW, demand(1), RESET + SECOND * 9));
    answer(&mut queue, NOW, probe.lease, 0);
    let [(ticket, Err(refusal))] = &queue.take_decided().collect::<Vec<_>>()[..] else {
        panic!("one is refused")
    };
    assert_eq!((*ticket, refusal.until), (short, Until::Time(RESET + SECOND * 2)));
    assert_eq!(queue.next_wakeup(), Some(RESET + SECOND * 2));
    queue.tick(RESET + SECOND * 2);
    assert_eq!(decided(&mut queue), [(long, Ok(AccountId(0)))]);
}

#[test]
fn a_reset_after_the_deadline_denies_at_once() {
    let mut queue = queue(1, SecondaryLimits::default());
    let probe = granted(queue.request(NOW, demand(1), SOON));
    answer(&mut queue, NOW, probe.lease, 0);
    let free = RESET + SECOND * 2;
    assert_eq!(refused(queue.request(NOW, demand(1), free - SECOND)).until, Until::Time(free));
    waiting(queue.request(NOW, demand(1), free));
    assert_eq!(
        refused(queue.request(NOW, demand(1), free - SECOND)).until,
        Until::Time(free),
        "also behind others"
    );
}

#[test]
fn a_request_that_may_not_wait_is_denied() {
    let mut queue = queue(1, one_at_a_time());
    granted(queue.request(NOW, demand(1), NOW));
    assert_eq!(refused(queue.request(NOW, demand(1), NOW)).until, Until::Event);
    assert_eq!(queue.waiting(), 0);
}

#[test]
fn an_expired_wait_names_the_blocking_limit() {
    let mut queue = queue(1, one_at_a_time());
    let busy = granted(queue.request(NOW, demand(1), SOON));
    answer(&mut queue, NOW, busy.lease, 50);
    granted(queue.request(NOW, demand(1), SOON));
    let ticket = waiting(queue.request(NOW, demand(1), SOON));
    queue.tick(SOON - Duration::from_millis(1));
    assert_eq!(decided(&mut queue), []);
    queue.tick(SOON);
    assert_eq!(decided(&mut queue), [(ticket, Err(LimitKind::Concurrency))]);
}

#[test]
fn equal_demands_are_served_in_order_of_arrival() {
    let mut queue = queue(1, one_at_a_time());
    let mut lease = granted(queue.request(NOW, demand(1), SOON)).lease;
    let tickets = [0; 4].map(|_| waiting(queue.request(NOW, demand(1), SOON)));
    for ticket in tickets {
        answer(&mut queue, NOW, lease, 50);
        let [(decided, Ok(grant))] = &queue.take_decided().collect::<Vec<_>>()[..] else {
            panic!("one is granted")
        };
        assert_eq!(*decided, ticket);
        lease = grant.lease;
    }
}

#[test]
fn the_demand_that_has_waited_longest_goes_first() {
    let mut queue = queue(1, one_at_a_time());
    let busy = granted(queue.request(NOW, demand(1), SOON));
    let other = Demand { endpoint: endpoint("/repos/a/b/issues"), ..demand(1) };
    let first = waiting(queue.request(NOW, other, SOON));
    let second = waiting(queue.request(NOW, demand(1), SOON));
    answer(&mut queue, NOW, busy.lease, 50);
    assert_eq!(decided(&mut queue), [(first, Ok(AccountId(0)))]);
    queue.abandon(NOW, second);
    assert_eq!((queue.waiting(), queue.next_wakeup()), (0, None));
}

#[test]
fn a_full_queue_denies_the_next_request() {
    let mut queue = Admission { waiting_max: 2, ..queue(1, one_at_a_time()) };
    granted(queue.request(NOW, demand(1), SOON));
    let [gone, _] = [0; 2].map(|_| waiting(queue.request(NOW, demand(1), SOON)));
    assert_eq!(refused(queue.request(NOW, demand(1), SOON)).limit, LimitKind::QueueFull);
    queue.abandon(NOW, gone);
    waiting(queue.request(NOW, demand(1), SOON));
}

#[test]
fn an_abandoned_request_does_not_block_the_next() {
    let mut queue = queue(1, one_at_a_time());
    let busy = granted(queue.request(NOW, demand(1), SOON));
    let [gone, next] = [0; 2].map(|_| waiting(queue.request(NOW, demand(1), SOON)));
    queue.abandon(NOW, gone);
    answer(&mut queue, NOW, busy.lease, 50);
    assert_eq!(decided(&mut queue), [(next, Ok(AccountId(0)))]);
}

#[test]
fn an_unused_grant_goes_to_the_next_request() {
    let mut queue = queue(1, one_at_a_time());
    let busy = granted(queue.request(NOW, demand(1), SOON));
    let [_gone, next] = [0; 2].map(|_| waiting(queue.request(NOW, demand(1), SOON)));
    answer(&mut queue, NOW, busy.lease, 50);
    let [(_, Ok(unwanted))] = &queue.take_decided().collect::<Vec<_>>()[..] else {
        panic!("one is granted")
    };
    queue.settle(NOW, unwanted.lease, Settlement::NeverSent, 0.0);
    assert_eq!(decided(&mut queue), [(next, Ok(AccountId(0)))]);
}

#[test]
fn writes_wake_when_their_spacing_has_passed() {
    let mut queue = queue(1, SecondaryLimits::default());
    let first = granted(queue.request(NOW, write(), SOON));
    let [second, third] = [0; 2].map(|_| waiting(queue.request(NOW, write(), SOON)));
    answer(&mut queue, NOW, first.lease, 50);
    assert_eq!(queue.next_wakeup(), Some(NOW + SECOND));
    queue.tick(NOW + SECOND);
    let [(ticket, Ok(grant))] = &queue.take_decided().collect::<Vec<_>>()[..] else {
        panic!("one is granted")
    };
    assert_eq!(*ticket, second);
    assert_eq!(
        queue.next_wakeup(),
        Some(NOW + SECOND * 2),
        "a look at the distance, even if the answer should come first"
    );
    answer(&mut queue, NOW + SECOND * 3, grant.lease, 49);
    assert_eq!(decided(&mut queue), [(third, Ok(AccountId(0)))]);
}

#[test]
fn an_account_that_opens_by_time_admits_a_waiting_request() {
    let mut queue = queue(2, SecondaryLimits::default());
    let probes = [0; 2].map(|_| granted(queue.request(NOW, demand(2), SOON)));
    let pause = Some(SECOND);
    let refusal = UpstreamLimit {
        kind: UpstreamLimitKind::Secondary,
        retry_after: pause,
        reset: None,
        remaining: None,
        resource: None,
    };
    let refused =
        Settlement::Answered { status: StatusCode::FORBIDDEN, rate: None, refusal: Some(&refusal) };
    queue.settle(NOW, probes[0].lease, refused, 0.0);
    let ticket = waiting(queue.request(NOW, demand(2), SOON));
    assert_eq!(
        queue.next_wakeup(),
        Some(NOW + SECOND),
        "the second account's probe may take longer"
    );
    queue.tick(NOW + SECOND);
    assert_eq!(decided(&mut queue), [(ticket, Ok(AccountId(0)))]);
}

#[test]
fn a_cooldown_denies_requests_with_earlier_deadlines() {
    let mut queue = queue(1, one_at_a_time());
    let busy = granted(queue.request(NOW, demand(1), SOON));
    let ticket = waiting(queue.request(NOW, demand(1), SOON));
    let refusal = UpstreamLimit {
        kind: UpstreamLimitKind::Secondary,
        retry_after: None,
        reset: None,
        remaining: None,
        resource: None,
    };
    let refused =
        Settlement::Answered { status: StatusCode::FORBIDDEN, rate: None, refusal: Some(&refusal) };
    queue.settle(NOW, busy.lease, refused, 0.0);
    assert_eq!(decided(&mut queue), [(ticket, Err(LimitKind::Cooldown))]);
}

#[test]
fn three_cold_accounts_of_50_units_make_150_requests() {
    let mut queue = queue(3, SecondaryLimits::default());
    let mut left = [50u32; 3];
    let (mut open, mut refusals, mut sent) = (Vec::new(), 0, 0);
    for _ in 0..200 {
        match queue.request(NOW, demand(3), SOON) {
            Decision::Granted(grant) => open.push(grant),
            Decision::Refused(_) => refusals += 1,
            Decision::Waiting { .. } => {}
        }
    }
    assert_eq!(
        (open.len(), queue.waiting()),
        (3, 100),
        "three probes; the queue of this test holds a hundred"
    );
    while let Some(grant) = open.pop() {
        sent += 1;
        let remaining = &mut left[grant.account.0 as usize];
        *remaining = remaining.checked_sub(1).expect("never more than fifty of one account");
        answer(&mut queue, NOW, grant.lease, *remaining);
        for (_, decision) in queue.take_decided().collect::<Vec<_>>() {
            match decision {
                Ok(grant) => open.push(grant),
                Err(_) => refusals += 1,
            }
        }
        while queue.waiting() == 0 && sent + open.len() < 150 {
            open.push(granted(queue.request(NOW, demand(3), SOON)));
        }
    }
    assert_eq!((sent, left), (150, [0; 3]));
    let refusal = refused(queue.request(NOW, demand(3), SOON));
    assert_eq!(
        (refusal.limit, refusal.until),
        (LimitKind::Primary, Until::Time(RESET + SECOND * 2))
    );
    assert_eq!(refusals, 97, "those for whom the queue had no room");
}

#[test]
fn the_head_of_a_long_answer_admits_waiting_requests() {
    let mut queue = queue(1, SecondaryLimits { concurrency: 3, ..SecondaryLimits::default() });
    let probe = granted(queue.request(NOW, demand(1), SOON));
    for _ in 0..3 {
        assert!(matches!(queue.request(NOW, demand(1), SOON), Decision::Waiting { .. }));
    }
    let rate = RateHeaders {
        limit: 100,
        remaining: 99,
        used: None,
        reset: RESET,
        resource: Some(ResourceName::core()),
    };
    queue.answer_begun(NOW, probe.lease, StatusCode::OK, Some(&rate));
    assert_eq!(queue.take_decided().len(), 2, "the long answer itself still holds its slot");
    queue.settle(
        NOW,
        probe.lease,
        Settlement::Answered { status: StatusCode::OK, rate: None, refusal: None },
        0.0,
    );
    assert_eq!(queue.take_decided().len(), 1);
    assert_eq!(queue.audit(), []);
}

#[test]
fn clients_with_unequal_demand_get_equal_shares() {
    let mut queue = queue(1, one_at_a_time());
    let mut served = [0; 3];
    let mut open: Option<(Grant, usize)> = None;
    let mut client_of = BTreeMap::new();
    for step in 0..4_000_u64 {
        let now = NOW + Duration::from_millis(50) * u32::try_from(step).unwrap();
        // Two answers a second are shared by clients that send twenty, ten and one request a
        // second.
        for (client, every) in [(0, 1), (1, 2), (2, 20)] {
            if step % every == 0 {
                let number = u32::try_from(client).unwrap();
                match queue.request(
                    now,
                    Demand { client: ClientId(number), ..demand(1) },
                    now + SECOND * 5,
                ) {
                    Decision::Granted(grant) => open = Some((grant, client)),
                    Decision::Waiting { ticket, .. } => drop(client_of.insert(ticket, client)),
                    Decision::Refused(_) => {}
                }
            }
        }
        queue.tick(now);
        if step % 10 == 0
            && let Some((grant, client)) = open.take()
        {
            served[client] += 1;
            answer(&mut queue, now, grant.lease, 5_000);
        }
        for (ticket, decision) in queue.take_decided().collect::<Vec<_>>() {
            open = decision.ok().map(|grant| (grant, client_of[&ticket])).or(open);
        }
    }
    assert!(served.iter().all(|count| (105..=155).contains(count)), "{served:?}");
}

#[test]
fn an_expensive_request_does_not_block_a_cheap_one() {
    let mut queue = queue(1, SecondaryLimits::default());
    let probe = granted(queue.request(NOW, demand(1), SOON));
    answer(&mut queue, NOW, probe.lease, 50);
    let big = Demand { cost: 60, ..demand(1) };
    waiting(queue.request(NOW, big, RESET + SECOND * 10));
    granted(queue.request(NOW, demand(1), SOON));
}

#[test]
fn a_free_request_does_not_wait_behind_counted_ones() {
    let mut queue = queue(1, SecondaryLimits { concurrency: 2, ..SecondaryLimits::default() });
    let free = || Demand { cost: 0, ..demand(1) };
    let probe = granted(queue.request(NOW, demand(1), SOON));
    waiting(queue.request(NOW, demand(1), SOON));
    let second = granted(queue.request(NOW, free(), SOON));
    let third = waiting(queue.request(NOW, free(), SOON));
    queue.settle(NOW, second.lease, Settlement::Unknown, 0.5);
    assert_eq!(decided(&mut queue), [(third, Ok(AccountId(0)))]);
    answer(&mut queue, NOW, probe.lease, 0);
}

#[test]
fn a_smaller_request_is_tried_when_the_first_leaves() {
    let mut queue =
        queue(1, SecondaryLimits { graphql_points_per_minute: 10, ..SecondaryLimits::default() });
    let query =
        |points| Demand { graphql: true, points, resource: ResourceName::graphql(), ..demand(1) };
    let first = granted(queue.request(NOW, query(8), SOON));
    answer(&mut queue, NOW, first.lease, 5_000);
    let late = NOW + SECOND * 90;
    let big = waiting(queue.request(NOW, query(5), late));
    let small = waiting(queue.request(NOW, query(2), late));
    queue.abandon(NOW + SECOND, big);
    assert_eq!(decided(&mut queue), [(small, Ok(AccountId(0)))]);
}

#[test]
fn a_refunded_unit_wakes_requests_of_the_paying_account() {
    let account = |name: &str, also_spends| AccountSettings {
        is_shared: false,
        name: name.into(),
        kind: AccountKind::User,
        reserve: 0,
        also_spends,
    };
    let accounts = vec![account("user", None), account("app", Some(AccountId(0)))];
    let mut queue = Admission::new(Settings { accounts, waiting_max: 100, ..Settings::default() });
    let on = |account| Demand { candidates: Arc::from([AccountId(account)]), ..demand(1) };
    let probe = granted(queue.request(NOW, on(0), SOON));
    answer(&mut queue, NOW, probe.lease, 1);
    let through_app = granted(queue.request(NOW, on(1), SOON));
    let user = waiting(queue.request(NOW, on(0), SOON));
    queue.settle(NOW, through_app.lease, Settlement::NeverSent, 0.5);
    assert_eq!(decided(&mut queue), [(user, Ok(AccountId(0)))]);
}

#[test]
fn an_app_continues_when_the_paying_user_is_spent() {
    let account = |name: &str, also_spends| AccountSettings {
        is_shared: false,
        name: name.into(),
        kind: AccountKind::User,
        reserve: 0,
        also_spends,
    };
    let accounts = vec![account("user", None), account("app", Some(AccountId(0)))];
    let mut queue = Admission::new(Settings { accounts, waiting_max: 100, ..Settings::default() });
    let on = |account| Demand { candidates: Arc::from([AccountId(account)]), ..demand(1) };
    let probe = granted(queue.request(NOW, on(0), SOON));
    answer(&mut queue, NOW, probe.lease, 0);
    granted(queue.request(NOW, on(1), SOON));
    assert_eq!(refused(queue.request(NOW, on(0), SOON)).limit, LimitKind::Primary);
}

#[test]
fn the_last_timestamp_breaks_nothing() {
    let mut queue = queue(1, one_at_a_time());
    let first = granted(queue.request(NOW, demand(1), SOON));
    waiting(queue.request(NOW, demand(1), Timestamp::FAR_FUTURE));
    queue.tick(Timestamp::FAR_FUTURE);
    answer(&mut queue, Timestamp::FAR_FUTURE, first.lease, 10);
    queue.request(Timestamp::FAR_FUTURE, demand(1), Timestamp::FAR_FUTURE);
}

#[test]
fn an_unsent_write_does_not_space_the_next_one() {
    let mut queue = queue(1, one_at_a_time());
    let unwanted = granted(queue.request(NOW, write(), SOON));
    waiting(queue.request(NOW, demand(1), SOON));
    waiting(queue.request(NOW, write(), SOON));
    queue.settle(NOW, unwanted.lease, Settlement::NeverSent, 0.0);
    let read: Vec<_> = queue.take_decided().collect();
    assert!(matches!(&read[..], [(_, Ok(_))]), "the read has the place: {read:?}");
    let soon = NOW + SECOND / 2;
    assert!(
        matches!(queue.request(NOW, write(), soon), Decision::Waiting { .. }),
        "the read may be answered before then"
    );
}
