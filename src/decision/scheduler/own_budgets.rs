//! Own budgets of clients, and rules in shadow mode (SPECIFICATION, "Budgets of clients" and
//! "Shadow mode").

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::tests::{
    NOW, SECOND, SOON, answer, decided, demand, granted, one_at_a_time, refused, settings, waiting,
    write,
};
use super::*;
use crate::cases::cases;
use crate::decision::quota::upstream_model::Chance;
use crate::decision::types::{
    BudgetAmount, ClientBudget, Priority, Recovered, SecondaryLimits, Shadow,
};

const HOUR: Duration = Duration::from_secs(3_600);
const RESET: Timestamp = Timestamp::from_secs(12_000);

fn units(client: u32, units: u32) -> ClientBudget {
    of(client, BudgetAmount::Units { units, per: HOUR })
}

fn percent(client: u32, percent: u32) -> ClientBudget {
    of(client, BudgetAmount::Share { millionths: percent * 10_000 })
}

fn of(client: u32, amount: BudgetAmount) -> ClientBudget {
    ClientBudget {
        client: ClientId(client),
        name: format!("client-{client}").into(),
        resource: ResourceName::core(),
        amount,
        accounts: [AccountId(0)].into(),
        is_hard: true,
    }
}

fn queue_with(client_budgets: Vec<ClientBudget>, shadow: Shadow) -> Admission {
    let settings = settings(1, SecondaryLimits::default());
    let mut queue = Admission::new(Settings { client_budgets, shadow, ..settings });
    // The answer shows the budget of the account.
    let probe = granted(queue.request(NOW, by(9), SOON));
    answer(&mut queue, NOW, probe.lease, 100);
    queue
}

fn queue(client_budgets: Vec<ClientBudget>) -> Admission {
    queue_with(client_budgets, Shadow::default())
}

fn by(client: u32) -> Demand {
    Demand { client: ClientId(client), ..demand(1) }
}

fn unchanged(queue: &mut Admission, now: Timestamp, lease: LeaseId) {
    let status = StatusCode::NOT_MODIFIED;
    queue.settle(now, lease, Settlement::Answered { status, rate: None, refusal: None }, 0.0);
}

fn used(queue: &mut Admission, now: Timestamp) -> Vec<(u32, u32)> {
    queue.client_budgets(now).iter().map(|budget| (budget.used, budget.limit)).collect()
}

#[test]
fn a_hard_budget_denies_what_is_beyond_it() {
    let mut queue = queue(vec![units(0, 2)]);
    for left in [99, 98] {
        let grant = granted(queue.request(NOW, by(0), SOON));
        answer(&mut queue, NOW, grant.lease, left);
    }
    let denied = refused(queue.request(NOW, by(0), SOON));
    assert_eq!((denied.limit, denied.account), (LimitKind::ClientBudget, None));
    assert_eq!(denied.until, Until::Time(NOW + HOUR));
    granted(queue.request(NOW, by(1), SOON));
    let free = Demand { cost: 0, ..by(0) };
    granted(queue.request(NOW, free, SOON));
    granted(queue.request(NOW + HOUR, by(0), NOW + HOUR));
    assert_eq!(queue.audit(), []);
}

#[test]
fn an_unchanged_answer_costs_the_client_nothing() {
    let mut queue = queue(vec![units(0, 1)]);
    for _ in 0..3 {
        let grant = granted(queue.request(NOW, by(0), SOON));
        unchanged(&mut queue, NOW, grant.lease);
    }
    let grant = granted(queue.request(NOW, by(0), SOON));
    queue.settle(NOW, grant.lease, Settlement::NeverSent, 0.0);
    assert_eq!(used(&mut queue, NOW), [(0, 1)]);
}

#[test]
fn a_lost_answer_costs_the_client_its_units() {
    for settlement in [Settlement::Unknown, Settlement::CutOff, Settlement::Yielded] {
        let mut queue = queue(vec![units(0, 1)]);
        let grant = granted(queue.request(NOW, by(0), SOON));
        queue.settle(NOW, grant.lease, settlement, 0.0);
        assert_eq!(used(&mut queue, NOW), [(1, 1)], "{settlement:?}");
    }
}

#[test]
fn the_head_of_a_long_answer_charges_it_once() {
    let mut queue = queue(vec![units(0, 5)]);
    let grant = granted(queue.request(NOW, by(0), SOON));
    queue.answer_begun(NOW, grant.lease, StatusCode::OK, None);
    assert_eq!(used(&mut queue, NOW), [(1, 5)]);
    answer(&mut queue, NOW, grant.lease, 99);
    assert_eq!(used(&mut queue, NOW), [(1, 5)]);
}

#[test]
fn requests_in_flight_hold_the_last_unit_until_their_answers() {
    let mut queue = queue(vec![units(0, 1)]);
    let first = granted(queue.request(NOW, by(0), SOON));
    let ticket = waiting(queue.request(NOW, by(0), SOON));
    unchanged(&mut queue, NOW, first.lease);
    assert_eq!(decided(&mut queue), [(ticket, Ok(AccountId(0)))]);
    let last = waiting(queue.request(NOW, by(0), SOON));
    let second = Some(NOW + SECOND);
    assert_eq!(queue.next_wakeup(), second, "an answer on another account may free it");
    queue.tick(SOON);
    assert_eq!(decided(&mut queue), [(last, Err(LimitKind::ClientBudget))]);
}

#[test]
fn a_patient_request_waits_for_the_next_window() {
    let mut queue = queue(vec![units(0, 1)]);
    let first = granted(queue.request(NOW, by(0), SOON));
    let late = NOW + HOUR + SECOND;
    let behind = waiting(queue.request(NOW, by(0), late));
    answer(&mut queue, NOW, first.lease, 99);
    assert_eq!(decided(&mut queue), []);
    let hopeless = refused(queue.request(NOW, by(0), NOW + HOUR - SECOND));
    assert_eq!(hopeless.until, Until::Time(NOW + HOUR));
    granted(queue.request(NOW, by(1), SOON));
    queue.tick(NOW + HOUR);
    assert_eq!(decided(&mut queue), [(behind, Ok(AccountId(0)))]);
}

#[test]
fn a_spent_budget_lets_the_requests_behind_it_pass() {
    let mut settings = settings(1, one_at_a_time());
    settings.client_budgets = vec![units(0, 1)];
    let mut queue = Admission::new(settings);
    let probe = granted(queue.request(NOW, by(9), SOON));
    let own = [0; 3].map(|_| waiting(queue.request(NOW, by(0), NOW + HOUR * 2)));
    let short = waiting(queue.request(NOW, by(0), SOON));
    let other = waiting(queue.request(NOW, by(1), SOON));
    answer(&mut queue, NOW, probe.lease, 100);
    let in_flight = |queue: &mut Admission| {
        let decided: Vec<_> = queue.take_decided().collect();
        let [(ticket, Ok(grant))] = decided[..] else { panic!("{decided:?}") };
        (ticket, grant.lease)
    };
    let (first, lease) = in_flight(&mut queue);
    assert_eq!(first, own[0]);
    answer(&mut queue, NOW, lease, 99);
    // The next of the client are beyond its budget, and do not stand in the way.
    let (second, lease) = in_flight(&mut queue);
    assert_eq!(second, other);
    answer(&mut queue, NOW, lease, 98);
    assert_eq!(decided(&mut queue), [(short, Err(LimitKind::ClientBudget))]);
    queue.tick(NOW + HOUR);
    assert_eq!(queue.waiting(), 1, "one unit in each window");
    assert_eq!(queue.audit(), []);
}

#[test]
fn a_share_is_of_the_limit_and_ends_with_the_accounts_window() {
    let mut settings = settings(1, SecondaryLimits::default());
    settings.accounts[0].reserve = 20;
    settings.client_budgets = vec![percent(0, 25)];
    let mut queue = Admission::new(settings);
    assert_eq!(used(&mut queue, NOW), [(0, 1_245)], "of the presumed limit");
    let probe = granted(queue.request(NOW, by(0), SOON));
    answer(&mut queue, NOW, probe.lease, 99);
    let budgets = queue.client_budgets(NOW);
    assert_eq!((budgets[0].limit, budgets[0].used, budgets[0].reset), (20, 1, RESET));
    // The account has another window of the same length.
    assert_eq!(used(&mut queue, RESET), [(0, 20)]);
}

#[test]
fn a_soft_budget_puts_requests_last() {
    let mut settings = settings(1, one_at_a_time());
    settings.client_budgets = vec![ClientBudget { is_hard: false, ..units(0, 1) }];
    let mut queue = Admission::new(settings);
    let probe = granted(queue.request(NOW, by(0), SOON));
    answer(&mut queue, NOW, probe.lease, 100);
    let first = granted(queue.request(NOW, by(0), SOON));
    let beyond = waiting(queue.request(NOW, by(0), SOON));
    let others = [1, 1, 2].map(|client| waiting(queue.request(NOW, by(client), SOON)));
    let mut order = Vec::new();
    let mut lease = first.lease;
    for left in (90..94).rev() {
        answer(&mut queue, NOW, lease, left);
        for (ticket, decision) in queue.take_decided() {
            lease = decision.expect("granted").lease;
            order.push(ticket);
        }
    }
    assert_eq!(order.last(), Some(&beyond), "{order:?}");
    assert_eq!(order.len(), others.len() + 1);
}

#[test]
fn a_spent_soft_budget_leaves_the_floor_to_others() {
    let mut settings = settings(1, one_at_a_time());
    settings.client_budgets = vec![ClientBudget { is_hard: false, ..units(0, 2) }];
    settings.batch_floor = 0.5;
    let mut queue = Admission::new(settings);
    let probe = granted(queue.request(NOW, by(9), SOON));
    answer(&mut queue, NOW, probe.lease, 40);
    let free = granted(queue.request(NOW, Demand { cost: 0, ..by(9) }, SOON));
    // All wait in one queue, before the budget is spent.
    let [own, others] =
        [0, 1].map(|client| [0; 3].map(|_| waiting(queue.request(NOW, by(client), NOW + HOUR))));
    unchanged(&mut queue, NOW, free.lease);
    let mut served = Vec::new();
    for left in (35..40).rev() {
        let decided: Vec<_> = queue.take_decided().collect();
        let [(ticket, Ok(grant))] = decided[..] else { panic!("{served:?}: {decided:?}") };
        served.push(ticket);
        answer(&mut queue, NOW, grant.lease, left);
    }
    assert_eq!(served, [own[0], others[0], own[1], others[1], others[2]], "nobody waits behind it");
    queue.abandon(NOW, own[2]);
    let denied = refused(queue.request(NOW, by(0), SOON));
    assert_eq!(denied.limit, LimitKind::BatchFloor);
    assert_eq!(queue.audit(), []);
}

#[test]
fn a_client_sees_its_own_budget() {
    let mut queue = queue(vec![units(0, 10), percent(1, 50)]);
    let accounts = demand(1).candidates;
    let core = ResourceName::core();
    let view = |queue: &mut Admission, client| {
        let view = queue.view(NOW, client, &accounts, &core);
        (view.limit, view.remaining, view.used, view.reset)
    };
    let grant = granted(queue.request(NOW, by(0), SOON));
    assert_eq!(view(&mut queue, Some(ClientId(0))), (10, 9, 1, NOW + HOUR));
    assert_eq!(view(&mut queue, Some(ClientId(1))), (50, 50, 0, RESET));
    assert_eq!(view(&mut queue, Some(ClientId(2))), (100, 99, 1, RESET));
    assert_eq!(view(&mut queue, None), (100, 99, 1, RESET));
    answer(&mut queue, NOW, grant.lease, 3);
    assert_eq!(view(&mut queue, Some(ClientId(0))), (10, 3, 7, RESET), "no more than there is");
}

#[test]
fn budgets_in_shadow_deny_nothing_and_name_what_they_would() {
    let shadow = Shadow { client_budgets: true, ..Shadow::default() };
    let mut queue = queue_with(vec![units(0, 2)], shadow);
    let mut shadowed = Vec::new();
    for left in (95..100).rev() {
        let grant = granted(queue.request(NOW, by(0), SOON));
        shadowed.push(grant.shadowed.map(|shadowed| (shadowed.limit, shadowed.is_denial)));
        answer(&mut queue, NOW, grant.lease, left);
    }
    let denial = Some((LimitKind::ClientBudget, true));
    assert_eq!(shadowed, [None, None, denial, denial, denial]);
    assert_eq!(used(&mut queue, NOW), [(2, 2)]);
    let patient = granted(queue.request(NOW, by(0), NOW + HOUR));
    assert!(!patient.shadowed.expect("beyond").is_denial, "it would have waited");
    let accounts = std::sync::Arc::from([AccountId(0)]);
    let shown = queue.view(NOW, Some(ClientId(0)), &accounts, &ResourceName::core());
    assert_eq!(shown.limit, 100, "a client sees nothing of a budget in shadow mode");
}

#[test]
fn limits_in_shadow_hold_nothing_but_what_the_upstream_says() {
    let mut settings = settings(1, one_at_a_time());
    settings.shadow.limits = true;
    let mut queue = Admission::new(settings);
    let probe = granted(queue.request(NOW, demand(1), SOON));
    waiting(queue.request(NOW, demand(1), SOON));
    answer(&mut queue, NOW, probe.lease, 3);
    assert_eq!(queue.take_decided().count(), 1);
    let grants = [demand(1), write()].map(|demand| granted(queue.request(NOW, demand, SOON)));
    let limits = grants.map(|grant| grant.shadowed.map(|shadowed| shadowed.limit));
    assert_eq!(limits, [Some(LimitKind::Concurrency); 2]);
    waiting(queue.request(NOW, demand(1), SOON));
    for grant in grants {
        answer(&mut queue, NOW, grant.lease, 0);
    }
    assert_eq!(refused(queue.request(NOW, demand(1), SOON)).limit, LimitKind::Primary);
    assert_eq!(queue.audit(), []);
    assert_eq!(queue.ledger().broken().map(|(_, count)| count).sum::<u64>(), 0);
}

#[test]
fn a_reload_keeps_what_was_used() {
    let mut queue = queue(vec![units(0, 2), units(1, 2)]);
    let open = [0, 1].map(|client| granted(queue.request(NOW, by(client), SOON)).lease);
    let reload = |queue: &mut Admission, client_budgets| {
        let settings = settings(1, SecondaryLimits::default());
        queue.reconfigure(NOW, Settings { client_budgets, ..settings });
    };
    reload(&mut queue, vec![units(0, 1)]);
    assert_eq!(used(&mut queue, NOW), [(1, 1)]);
    assert_eq!(refused(queue.request(NOW, by(0), NOW)).limit, LimitKind::ClientBudget);
    reload(&mut queue, vec![units(1, 5), units(0, 3)]);
    for lease in open {
        answer(&mut queue, NOW, lease, 90);
    }
    assert_eq!(used(&mut queue, NOW), [(1, 3), (1, 5)]);
}

#[test]
fn a_waiting_request_goes_when_a_reload_raises_its_budget() {
    let mut queue = queue(vec![units(0, 1)]);
    let first = granted(queue.request(NOW, by(0), SOON));
    answer(&mut queue, NOW, first.lease, 99);
    let ticket = waiting(queue.request(NOW, by(0), NOW + HOUR));
    let settings = settings(1, SecondaryLimits::default());
    queue.reconfigure(NOW, Settings { client_budgets: vec![units(0, 2)], ..settings });
    assert_eq!(decided(&mut queue), [(ticket, Ok(AccountId(0)))]);
}

#[test]
fn a_restart_and_a_takeover_keep_what_was_used() {
    let budgets = || vec![units(0, 10)];
    let mut old = queue(budgets());
    let open = granted(old.request(NOW, by(0), SOON));
    let mut mark = old.spending_mark(NOW);
    let saved = old.saved(NOW, &|endpoint| format!("{endpoint:?}"));
    let text = serde_json::to_string(&saved).unwrap();
    let saved = serde_json::from_str(&text).unwrap();
    let mut new = queue(budgets());
    new.restore(NOW, &saved, Recovered::Last, &|_| None);
    assert_eq!(used(&mut new, NOW), [(1, 10)], "in flight");
    answer(&mut old, NOW, open.lease, 99);
    for left in [98, 97] {
        let grant = granted(old.request(NOW, by(0), SOON));
        answer(&mut old, NOW, grant.lease, left);
    }
    for _ in 0..2 {
        let spent = old.spent_since(NOW, &mut mark, &|endpoint| format!("{endpoint:?}"));
        new.add_spent(NOW, &spent, &|_| None);
        assert_eq!(used(&mut new, NOW), [(3, 10)]);
    }
    let later = NOW + HOUR;
    let mut late = queue(budgets());
    late.restore(later, &saved, Recovered::Last, &|_| None);
    assert_eq!(used(&mut late, later), [(0, 10)]);
}

#[test]
fn replicas_add_up_what_they_spend() {
    let mut replicas = [queue(vec![units(0, 10)]), queue(vec![units(0, 10)])];
    for left in [99, 98, 97] {
        let grant = granted(replicas[0].request(NOW, by(0), SOON));
        answer(&mut replicas[0], NOW, grant.lease, left);
    }
    for _ in 0..3 {
        // Nothing comes back to the one that said it.
        for (from, to) in [(0, 1), (1, 0)] {
            let news = replicas[from].own_news();
            replicas[to].add_own_spent(NOW, &news);
        }
    }
    for queue in &mut replicas {
        assert_eq!(used(queue, NOW), [(3, 10)]);
    }
    // Free answers do not add up.
    for _ in 0..4 {
        let grant = granted(replicas[1].request(NOW, by(0), SOON));
        let news = replicas[1].own_news();
        replicas[0].add_own_spent(NOW, &news);
        unchanged(&mut replicas[1], NOW, grant.lease);
    }
    assert_eq!(used(&mut replicas[0], NOW), [(4, 10)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(64), ..ProptestConfig::default() })]

    /// Clients that could each spend all of it share an account by their percentages.
    #[test]
    fn saturating_clients_get_their_shares(seed in any::<u64>()) {
        const LIMIT: u32 = 1_000;
        const SHARES: [u32; 3] = [20, 30, 50];
        let mut chance = Chance(seed);
        let limits = SecondaryLimits { rest_points_per_minute: u32::MAX, ..SecondaryLimits::default() };
        let mut settings = settings(1, limits);
        settings.client_budgets = (0..).zip(SHARES).map(|(client, share)| percent(client, share)).collect();
        let mut queue = Admission::new(settings);
        let (mut now, mut open, mut spent) = (NOW, Vec::new(), BTreeMap::<u32, u32>::new());
        let mut upstream = 0;
        for _ in 0..40_000 {
            now = now + chance.millis(80);
            if now >= RESET {
                break;
            }
            let client = u32::try_from(chance.below(3)).unwrap();
            match queue.request(now, by(client), now) {
                Decision::Granted(grant) => open.push((client, grant.lease)),
                Decision::Waiting { .. } => unreachable!("it may not wait"),
                Decision::Refused(_) => {}
            }
            if open.len() > 5 || chance.percent(30) && !open.is_empty() {
                let (client, lease) = open.swap_remove(chance.index(open.len()));
                let rate = |remaining| RateHeaders {
                    limit: LIMIT, remaining, used: None, reset: RESET, resource: None,
                };
                let (status, is_spent) = [(StatusCode::OK, true), (StatusCode::NOT_MODIFIED, false)][chance.index(2)];
                upstream += u32::from(is_spent);
                *spent.entry(client).or_default() += u32::from(is_spent);
                let rate = rate(LIMIT - upstream);
                queue.settle(now, lease, Settlement::Answered { status, rate: Some(&rate), refusal: None }, 0.0);
            }
            for ((used, limit), share) in used(&mut queue, now).into_iter().zip(SHARES) {
                prop_assert!(limit != share * 10 || used <= limit);
            }
        }
        for (client, share) in (0..).zip(SHARES) {
            prop_assert_eq!(spent.get(&client).copied().unwrap_or(0), share * 10);
        }
        prop_assert_eq!(queue.audit(), []);
    }
}

#[test]
fn the_priority_of_a_client_within_its_soft_budget_stays() {
    let soft = ClientBudget { is_hard: false, ..units(0, 1) };
    let mut queue = queue(vec![soft]);
    assert_eq!(queue.ledger.priority(NOW, &by(0)), Priority::Normal);
    let grant = granted(queue.request(NOW, by(0), SOON));
    assert_eq!(queue.ledger.priority(NOW, &by(0)), Priority::Batch);
    unchanged(&mut queue, NOW, grant.lease);
    assert_eq!(queue.ledger.priority(NOW, &by(0)), Priority::Normal);
}

#[test]
fn an_answer_from_one_account_frees_the_budget_for_another() {
    let mut settings = settings(2, SecondaryLimits::default());
    settings.client_budgets = vec![units(0, 1)];
    let mut queue = Admission::new(settings);
    let on = |account: u32| Demand { candidates: [AccountId(account)].into(), ..by(0) };
    let grant = granted(queue.request(NOW, on(0), SOON));
    let beyond = waiting(queue.request(NOW, on(1), SOON));
    unchanged(&mut queue, NOW, grant.lease);
    assert_eq!(decided(&mut queue), [(beyond, Ok(AccountId(1)))]);
    assert_eq!(queue.audit(), []);
}

#[test]
fn a_new_window_of_a_soft_budget_ends_a_wait_for_the_floor() {
    const MINUTE: Duration = Duration::from_secs(60);
    let mut settings = settings(1, SecondaryLimits::default());
    let amount = BudgetAmount::Units { units: 1, per: MINUTE };
    settings.client_budgets = vec![ClientBudget { is_hard: false, ..of(0, amount) }];
    settings.batch_floor = 0.5;
    let mut queue = Admission::new(settings);
    let probe = granted(queue.request(NOW, by(0), SOON));
    answer(&mut queue, NOW, probe.lease, 40);
    let beyond = waiting(queue.request(NOW, by(0), NOW + HOUR));
    assert_eq!(queue.next_wakeup(), Some(NOW + MINUTE));
    queue.tick(NOW + MINUTE);
    assert_eq!(decided(&mut queue), [(beyond, Ok(AccountId(0)))]);
}
