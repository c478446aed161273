//! Ledger and queue across a change of settings.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::api::AccountKind;
use crate::decision::types::{
    AccountLayout, AccountSettings, ClientId, ClientSettings, Priority, SecondaryLimits,
};

const NOW: Timestamp = Timestamp::from_secs(10_000);
const LATER: Timestamp = Timestamp::from_secs(10_030);

fn settings(accounts: u32, dynamic_accounts: u32, concurrency: u32) -> Settings {
    let account = |number: u32| AccountSettings {
        is_shared: false,
        name: format!("account-{number}").into(),
        kind: AccountKind::User,
        reserve: 0,
        also_spends: None,
    };
    Settings {
        accounts: (0..accounts).map(account).collect(),
        dynamic_accounts,
        limits: SecondaryLimits { concurrency, ..SecondaryLimits::default() },
        waiting_max: 100,
        ..Settings::default()
    }
}

fn demand(accounts: impl IntoIterator<Item = AccountId>) -> Demand {
    Demand::read(accounts.into_iter().collect::<Vec<_>>(), "/repos/a/b")
}

/// Queue before an account with a known budget.
fn queue(settings: Settings) -> Admission {
    let mut queue = Admission::new(settings);
    let first = grant(&mut queue, demand([AccountId(0)]));
    let reset = NOW + Duration::from_mins(30);
    let rate = RateHeaders { limit: 5_000, remaining: 4_999, used: None, reset, resource: None };
    queue.settle(
        NOW,
        first.lease,
        Settlement::Answered { status: StatusCode::OK, rate: Some(&rate), refusal: None },
        0.0,
    );
    queue
}

fn grant(queue: &mut Admission, demand: Demand) -> Grant {
    match queue.request(NOW, demand, NOW) {
        Decision::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

fn waits(queue: &mut Admission, demand: Demand) -> Ticket {
    match queue.request(NOW, demand, LATER) {
        Decision::Waiting { ticket, .. } => ticket,
        other => panic!("does not wait: {other:?}"),
    }
}

#[test]
fn later_accounts_get_ids_behind_the_dynamic_ones() {
    let layout = AccountLayout { first: 2, dynamic: 3 };
    let ids = [0, 1, 2, 3].map(|index| layout.id(index));
    assert_eq!(ids, [0, 1, 5, 6].map(AccountId));
    assert_eq!(ids.map(|id| layout.index(id)), [0, 1, 2, 3].map(Some));
    assert!([2, 3, 4].map(AccountId).iter().all(|id| layout.is_dynamic(*id)));
    assert_eq!(AccountLayout { first: 2, dynamic: 0 }.id(2), AccountId(2));
}

#[test]
fn a_new_account_serves_and_the_old_ones_keep_their_usage() {
    let mut queue = Admission::new(settings(1, 2, 1));
    let first = grant(&mut queue, demand([AccountId(0)]));
    queue.reconfigure(NOW, settings(2, 2, 1));
    let new = AccountLayout { first: 1, dynamic: 2 }.id(1);
    assert_eq!(
        grant(&mut queue, demand([AccountId(0), new])).account,
        new,
        "the old one is full still"
    );
    let names: Vec<_> =
        queue.ledger().snapshot(NOW).into_iter().map(|account| account.account).collect();
    assert_eq!(names, [AccountId(0), new]);
    queue.settle(NOW, first.lease, Settlement::NeverSent, 0.0);
    assert_eq!(queue.audit(), []);
    assert!(!queue.vacate(NOW, new), "it is no guest");
}

#[test]
fn a_raised_limit_admits_waiting_requests_at_once() {
    let mut queue = queue(settings(1, 0, 1));
    grant(&mut queue, demand([AccountId(0)]));
    let ticket = waits(&mut queue, demand([AccountId(0)]));
    queue.reconfigure(NOW, settings(1, 0, 2));
    let decided: Vec<_> = queue.take_decided().collect();
    assert!(matches!(decided.as_slice(), [(decided, Ok(_))] if *decided == ticket), "{decided:?}");
}

#[test]
fn raised_points_admit_waiting_requests_at_once() {
    let settings = |rest_points_per_minute| Settings {
        limits: SecondaryLimits { rest_points_per_minute, ..SecondaryLimits::default() },
        ..settings(1, 0, 10)
    };
    let mut queue = queue(settings(2));
    grant(&mut queue, demand([AccountId(0)]));
    let deadline = NOW + Duration::from_mins(2);
    let Decision::Waiting { ticket, .. } = queue.request(NOW, demand([AccountId(0)]), deadline)
    else {
        panic!("the points of the minute are spent");
    };
    queue.reconfigure(NOW, settings(3));
    let decided: Vec<_> = queue.take_decided().collect();
    assert!(matches!(decided.as_slice(), [(decided, Ok(_))] if *decided == ticket), "{decided:?}");
}

#[test]
fn a_lowered_limit_holds_from_now_on() {
    let mut queue = queue(settings(1, 0, 3));
    let open: Vec<_> = (0..3).map(|_| grant(&mut queue, demand([AccountId(0)]))).collect();
    queue.reconfigure(NOW, settings(1, 0, 1));
    assert_eq!(queue.audit(), []);
    let ticket = waits(&mut queue, demand([AccountId(0)]));
    for (left, grant) in (0..3).rev().zip(open) {
        assert!(queue.next_decided().is_none());
        queue.settle(NOW, grant.lease, Settlement::NeverSent, 0.0);
        assert_eq!(queue.audit(), [], "{left} left");
    }
    assert!(
        matches!(queue.take_decided().collect::<Vec<_>>()[..], [(decided, Ok(_))] if decided == ticket)
    );
    assert_eq!(queue.ledger().broken().map(|(_, count)| count).sum::<u64>(), 0);
}

#[test]
fn a_lease_above_a_lowered_limit_is_released_fully() {
    let mut queue = Admission::new(settings(1, 0, 3));
    let heavy = Demand { points: 5, ..demand([AccountId(0)]) };
    let open = grant(&mut queue, heavy.clone());
    let light = |points| {
        let settings = settings(1, 0, 3);
        Settings {
            limits: SecondaryLimits { rest_points_per_minute: points, ..settings.limits },
            ..settings
        }
    };
    queue.reconfigure(NOW, light(2));
    queue.settle(NOW, open.lease, Settlement::NeverSent, 0.0);
    let again = grant(&mut queue, heavy);
    queue.settle(NOW, again.lease, Settlement::NeverSent, 0.0);
    assert_eq!(queue.audit(), []);
}

#[test]
fn a_reload_applies_new_weights_and_priorities() {
    let mut queue = Admission::new(settings(1, 0, 1));
    let client =
        ClientSettings { weight: NonZeroU32::new(4).unwrap(), priority: Priority::Interactive };
    queue.reconfigure(
        NOW,
        Settings { clients: vec![ClientSettings::default(), client], ..settings(1, 0, 1) },
    );
    assert_eq!(queue.ledger().client(ClientId(1)), client);
    assert_eq!(queue.ledger().client(ClientId::BACKGROUND).priority, Priority::Batch);
    let first = grant(&mut queue, demand([AccountId(0)]));
    let [behind, before] = [0, 1].map(|client| {
        waits(&mut queue, Demand { client: ClientId(client), ..demand([AccountId(0)]) })
    });
    queue.settle(NOW + Duration::from_secs(1), first.lease, Settlement::NeverSent, 0.0);
    let decided: Vec<_> = queue.take_decided().map(|(ticket, _)| ticket).collect();
    assert_eq!(decided, [before]);
    queue.abandon(NOW, behind);
}

#[test]
fn lists_without_a_known_account_compete_with_none() {
    let mut queue = Admission::new(settings(1, 0, 1));
    let unknown_accounts = Arc::from([AccountId(9)]);
    let unknown_list = queue.ledger.candidates.find(&unknown_accounts);
    let before = queue.ledger.candidates.component_of(unknown_list);
    queue.reconfigure(NOW, settings(3, 0, 1));
    let new = queue.ledger.candidates.find(&demand([AccountId(1)]).candidates);
    assert_eq!(queue.ledger.candidates.component_of(unknown_list), before);
    assert_ne!(queue.ledger.candidates.component_of(new), before);
}
