//! The ledger against a model upstream: saturated, with reordered answers, wobbling resets, losses,
//! free answers and ending windows.

use std::time::Duration;

use proptest::prelude::*;

use super::upstream_model::{Ending, Upstream, World, most_in_any};
use super::*;
use crate::api::{AccountKind, UpstreamLimit, UpstreamLimitKind};
use crate::cases::cases;
use crate::decision::types::{AccountSettings, SecondaryLimits};

const START: Timestamp = Timestamp::from_secs(1_700_000_000);

fn settings(accounts: u32, limits: SecondaryLimits) -> Settings {
    let account = |number: u32| AccountSettings {
        is_shared: false,
        name: format!("account-{number}").into(),
        kind: AccountKind::User,
        reserve: 0,
        also_spends: None,
    };
    Settings { accounts: (0..accounts).map(account).collect(), limits, ..Settings::default() }
}

fn demand(accounts: u32) -> Demand {
    Demand::read((0..accounts).map(AccountId).collect::<Vec<_>>(), "/repos/a/b")
}

/// Only concurrency limits.
fn wide() -> SecondaryLimits {
    SecondaryLimits { rest_points_per_minute: 1_000_000, ..SecondaryLimits::default() }
}

/// A client always sends one more request, until `end`.
struct Saturation {
    ledger: QuotaLedger,
    upstream: Upstream,
    demand: Demand,
    now: Timestamp,
    next_lease: u64,
    sent: u32,
    /// End of the last closure by an upstream limit, by account.
    closed: Vec<Timestamp>,
}

impl Saturation {
    fn new(accounts: u32, limits: SecondaryLimits, world: World, seed: u64) -> Self {
        Self {
            ledger: QuotaLedger::new(settings(accounts, limits)),
            upstream: Upstream::new(world, seed),
            demand: demand(accounts),
            now: START,
            next_lease: 0,
            sent: 0,
            closed: vec![Timestamp::EPOCH; accounts as usize],
        }
    }

    fn run(&mut self, end: Timestamp) {
        while self.now < end {
            let refused_until = self.admit_all();
            let next = [self.upstream.next(), refused_until]
                .into_iter()
                .flatten()
                .min()
                .expect("something always comes");
            self.now = self.now.max(next);
            while self.upstream.next().is_some_and(|at| at <= self.now) {
                if let Some((at, lease, ending)) = self.upstream.step() {
                    self.settle(at, lease, &ending);
                }
            }
            if self.upstream.chance.percent(1) {
                assert_eq!(self.ledger.audit(), Vec::new());
            }
        }
        assert_eq!(self.ledger.audit(), Vec::new());
    }

    fn admit_all(&mut self) -> Option<Timestamp> {
        loop {
            let lease = LeaseId(self.next_lease);
            let list = self.ledger.candidates.find(&self.demand.candidates);
            match self.ledger.admit(self.now, lease, &self.demand, list, self.now) {
                Ok(grant) => {
                    self.next_lease += 1;
                    assert!(
                        self.now >= self.closed[grant.account.0 as usize],
                        "sent to a closed account"
                    );
                    if self.upstream.chance.percent(2) {
                        self.ledger.settle(self.now, lease, Settlement::NeverSent, 0.5);
                        continue;
                    }
                    self.sent += 1;
                    self.upstream.send(self.now, grant.account, lease);
                }
                Err(blocked) => return blocked.wake,
            }
        }
    }

    fn settle(&mut self, at: Timestamp, lease: LeaseId, ending: &Ending) {
        let account = self.ledger.leases.get(lease.0).expect("every lease ends once").account;
        match ending {
            Ending::Lost => {
                self.ledger.settle(at, lease, Settlement::Unknown, 0.5);
            }
            Ending::Answered { status, rate, refusal } => {
                let settlement = Settlement::Answered {
                    status: *status,
                    rate: Some(rate),
                    refusal: refusal.as_ref(),
                };
                self.ledger.settle(at, lease, settlement, 0.5);
            }
        }
        if let Ending::Answered {
            refusal:
                Some(UpstreamLimit {
                    kind: UpstreamLimitKind::Secondary, retry_after: Some(pause), ..
                }),
            ..
        } = ending
        {
            let closed = &mut self.closed[account.0 as usize];
            *closed = (*closed).max(at + *pause);
        }
    }
}

fn hourly(limit: u32) -> World {
    World {
        limit,
        window: Duration::from_hours(1),
        lost: 1,
        free: 0,
        sudden: 0,
        outside_per_second: 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(8), ..ProptestConfig::default() })]

    #[test]
    fn a_saturated_ledger_meets_no_limit_and_wastes_little(seed in any::<u64>(), accounts in 1u32..4) {
        let mut run = Saturation::new(accounts, wide(), hourly(1_000), seed);
        run.run(START + Duration::from_hours(3) + Duration::from_mins(10));
        prop_assert_eq!(run.upstream.refused, 0);
        prop_assert!(run.upstream.windows_over() >= 2);
        prop_assert!(run.upstream.utilisation() >= 0.98, "only {} of the budget was used", run.upstream.utilisation());
    }

    #[test]
    fn short_windows_end_without_an_upstream_limit(seed in any::<u64>(), limit in 5u32..60, lost in 0u64..10) {
        let world = World { limit, window: Duration::from_mins(1), lost, free: 20, ..hourly(0) };
        let mut run = Saturation::new(2, wide(), world, seed);
        run.run(START + Duration::from_mins(30));
        prop_assert_eq!(run.upstream.refused, 0);
        prop_assert!(run.upstream.windows_over() >= 20);
    }

    #[test]
    fn free_answers_do_not_use_up_the_budget(seed in any::<u64>()) {
        let world = World { free: 60, lost: 0, ..hourly(500) };
        let mut run = Saturation::new(1, wide(), world, seed);
        run.run(START + Duration::from_hours(2) + Duration::from_mins(10));
        prop_assert_eq!(run.upstream.refused, 0);
        prop_assert!(run.upstream.utilisation() >= 0.999, "{}", run.upstream.utilisation());
        prop_assert!(run.sent > run.upstream.counted * 2);
    }

    #[test]
    fn an_account_is_silent_until_a_sudden_limit_ends(seed in any::<u64>()) {
        let world = World { sudden: 1, ..hourly(1_000) };
        let mut run = Saturation::new(3, wide(), world, seed);
        run.run(START + Duration::from_hours(2));
        prop_assert_eq!(run.upstream.refused, 0);
        prop_assert!(run.closed.iter().any(|closed| *closed > START));
    }

    #[test]
    fn an_outside_consumer_causes_few_upstream_limits(seed in any::<u64>()) {
        let world = World { outside_per_second: 1, ..hourly(4_000) };
        let mut run = Saturation::new(1, wide(), world, seed);
        run.run(START + Duration::from_hours(3) + Duration::from_mins(10));
        let windows = u32::try_from(run.upstream.windows_over()).unwrap() + 1;
        prop_assert!(run.upstream.refused <= windows * 2, "{} refusals in {} windows", run.upstream.refused, windows);
    }

    #[test]
    fn points_and_concurrency_hold_by_the_upstreams_count(seed in any::<u64>(), points in 10u32..60, concurrency in 1u32..20) {
        let limits = SecondaryLimits { concurrency, rest_points_per_minute: points, ..SecondaryLimits::default() };
        let mut ledger = QuotaLedger::new(settings(1, limits));
        let mut upstream = Upstream::new(World { lost: 0, ..hourly(1_000_000) }, seed);
        let (mut now, mut arrivals, mut in_flight) = (START, Vec::new(), Vec::<(Timestamp, LeaseId)>::new());
        for number in 0..600 {
            let demand = demand(1);
            let list = ledger.candidates.find(&demand.candidates);
            match ledger.admit(now, LeaseId(number), &demand, list, now) {
                Ok(grant) => {
                    let arrival = now + upstream.chance.millis(3_000);
                    arrivals.push(arrival);
                    in_flight.push((arrival + upstream.chance.millis(3_000), grant.lease));
                    prop_assert!(in_flight.len() <= concurrency as usize);
                }
                Err(blocked) => {
                    in_flight.sort_unstable();
                    let answer = in_flight.first().map(|(at, _)| *at);
                    now = [answer, blocked.wake].into_iter().flatten().min().expect("something always comes").max(now);
                    while let Some((at, lease)) = in_flight.first().copied().filter(|(at, _)| *at <= now) {
                        in_flight.remove(0);
                        let rate = RateHeaders { limit: 5_000, remaining: 4_000, used: None, reset: START + Duration::from_hours(9), resource: None };
                        ledger.settle(at, lease, Settlement::Answered { status: StatusCode::OK, rate: Some(&rate), refusal: None }, 0.0);
                    }
                }
            }
        }
        prop_assert!(most_in_any(Duration::from_mins(1), &mut arrivals) <= points as usize);
        prop_assert_eq!(ledger.audit(), Vec::new());
    }
}
