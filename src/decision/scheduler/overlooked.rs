//! A check that the queue overlooks no request: after every event each waiting request is tried
//! again, with many accounts, clients, endpoints and resources.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use proptest::prelude::*;

use super::*;
use crate::api::{AccountKind, Dialect, RateHeaders, Table, UpstreamLimit, UpstreamLimitKind};
use crate::cases::cases;
use crate::decision::quota::upstream_model::Chance;
use crate::decision::types::{
    AccountSettings, BudgetAmount, ClientBudget, ClientId, ClientSettings, Pace, Priority,
    SecondaryLimits, Shadow, WriteSpacing,
};

const START: Timestamp = Timestamp::from_secs(1_700_000_000);
const PATHS: [&str; 8] = [
    "/repos/a/b",
    "/repos/a/b/issues",
    "/repos/a/b/pulls",
    "/repos/a/b/commits",
    "/repos/a/b/branches",
    "/orgs/a/repos",
    "/users/a",
    "/repos/a/b/releases",
];

/// Own budgets of some of the clients.
fn own_budgets(accounts: u32) -> Vec<ClientBudget> {
    let budget = |(client, amount, is_hard)| ClientBudget {
        client: ClientId(client),
        name: format!("client-{client}").into(),
        resource: ResourceName::core(),
        amount,
        accounts: (0..accounts).map(AccountId).collect(),
        is_hard,
    };
    let units = |units| BudgetAmount::Units { units, per: Duration::from_secs(20) };
    let budgets = [
        (0, units(8), true),
        (1, BudgetAmount::Share { millionths: 100_000 }, true),
        (4, units(3), false),
        (5, units(1), true),
    ];
    budgets.map(budget).into()
}

/// World that reaches every limit, and its events.
struct Scene {
    chance: Chance,
    queue: Admission,
    pools: Vec<Arc<[AccountId]>>,
    waiting: BTreeMap<Ticket, (Demand, Timestamp)>,
    open: Vec<Grant>,
    now: Timestamp,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let mut chance = Chance(seed);
        let accounts = [3, 6, 24][chance.index(3)];
        let payer = chance.percent(50).then_some(AccountId(0));
        let account = |number: u32| AccountSettings {
            is_shared: true,
            name: format!("account-{number}").into(),
            kind: AccountKind::User,
            reserve: number % 3,
            also_spends: payer.filter(|_| number % 3 == 1),
        };
        let client = |number: u32| ClientSettings {
            weight: NonZeroU32::new(number % 4 + 1).unwrap(),
            priority: [Priority::Normal, Priority::Normal, Priority::Batch, Priority::Interactive]
                [number as usize % 4],
        };
        let limits = SecondaryLimits {
            concurrency: 3,
            rest_points_per_minute: 12,
            graphql_points_per_minute: 20,
            content_per_minute: 4,
            content_per_hour: 9,
            oauth_tokens_per_hour: 30,
            // The expected CPU time changes with every answer of an endpoint; waiting requests are
            // not tried again for that.
            cpu_seconds_per_minute: 1_000_000,
            cpu_seconds_per_ten_seconds: None,
            graphql_cpu_seconds_per_minute: 1_000_000,
        };
        let settings = Settings {
            dynamic_accounts: 0,
            accounts: (0..accounts).map(account).collect(),
            clients: (0..6).map(client).collect(),
            client_budgets: if chance.percent(50) { own_budgets(accounts) } else { Vec::new() },
            shadow: Shadow::default(),
            pace: if chance.percent(25) { Pace::Even } else { Pace::Burst },
            batch_floor: if chance.percent(30) { 0.3 } else { 0.0 },
            waiting_max: 60,
            waiting_bytes_max: 4_000,
            limits,
            spacing: Duration::from_secs(1),
            notify_spacing: Duration::from_secs(3),
            replicas_max: None,
        };
        let all = (0..accounts).map(AccountId);
        let pools = [
            all.clone().collect(),
            all.clone().skip(1).collect(),
            Arc::from([AccountId(0)]),
            Arc::from([AccountId(1), AccountId(2)]),
        ];
        let queue = Admission::new(settings);
        Self {
            chance,
            queue,
            pools: pools.into(),
            waiting: BTreeMap::new(),
            open: Vec::new(),
            now: START,
        }
    }

    fn demand(&mut self) -> Demand {
        let chance = &mut self.chance;
        let write =
            [WriteSpacing::None, WriteSpacing::None, WriteSpacing::Plain, WriteSpacing::Notifies]
                [chance.index(4)];
        let graphql = chance.percent(15);
        let resource = if graphql {
            ResourceName::graphql()
        } else {
            [ResourceName::core(), ResourceName::search()][chance.index(2)].clone()
        };
        let candidates = Arc::clone(&self.pools[chance.index(self.pools.len())]);
        let cost =
            if graphql { [1, 4, 25][chance.index(3)] } else { [1, 1, 1, 0][chance.index(4)] };
        Demand {
            client: ClientId(u32::try_from(chance.below(7)).unwrap()),
            held_bytes: chance.below(200),
            prefer: candidates.first().copied().filter(|_| chance.percent(20)),
            candidates,
            resource,
            endpoint: Table::embedded(Dialect::Service)
                .classify(&Method::GET, PATHS[chance.index(8)])
                .endpoint
                .id,
            cost,
            unproven: if chance.percent(30) { cost.saturating_sub(1) } else { 0 },
            points: if write == WriteSpacing::None { 1 } else { 5 },
            graphql,
            content: write == WriteSpacing::Notifies,
            token_request: chance.percent(3),
            write,
        }
    }

    fn settle(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let (chance, now) = (&mut self.chance, self.now);
        let lease = self.open.swap_remove(chance.index(self.open.len())).lease;
        let reset = Timestamp::from_secs((now.as_secs() / 60 + 1) * 60);
        let remaining = u32::try_from(chance.below(31)).unwrap();
        let rate = RateHeaders { limit: 30, remaining, used: None, reset, resource: None };
        let secondary = UpstreamLimit {
            kind: UpstreamLimitKind::Secondary,
            retry_after: Some(chance.millis(40_000)),
            reset: None,
            remaining: None,
            resource: None,
        };
        let primary = UpstreamLimit {
            kind: UpstreamLimitKind::Primary,
            retry_after: None,
            reset: Some(reset),
            remaining: Some(0),
            resource: None,
        };
        let answered = |status, rate, refusal| Settlement::Answered { status, rate, refusal };
        let settlement = match chance.below(40) {
            0 => Settlement::Unknown,
            1 => Settlement::NeverSent,
            2 => answered(StatusCode::FORBIDDEN, Some(&rate), Some(&secondary)),
            3 => answered(StatusCode::FORBIDDEN, None, Some(&primary)),
            4 => answered(StatusCode::NOT_MODIFIED, None, None),
            5 => answered(StatusCode::BAD_GATEWAY, None, None),
            6 => answered(StatusCode::UNAUTHORIZED, Some(&rate), None),
            7 => Settlement::CutOff,
            8 => Settlement::Yielded,
            _ => answered(StatusCode::OK, Some(&rate), None),
        };
        if chance.percent(10) {
            self.queue.answer_begun(now, lease, StatusCode::OK, Some(&rate));
            self.assert_none_overlooked();
        }
        self.queue.settle(now, lease, settlement, 0.5);
        self.assert_none_overlooked();
    }

    fn event(&mut self) {
        match self.chance.below(10) {
            0..5 => {
                let (demand, wait) = (self.demand(), self.chance.millis(30_000));
                match self.queue.request(self.now, demand.clone(), self.now + wait) {
                    Decision::Granted(grant) => self.open.push(grant),
                    Decision::Waiting { ticket, .. } => {
                        drop(self.waiting.insert(ticket, (demand, self.now + wait)));
                    }
                    Decision::Refused(refusal)
                        if refusal.limit != LimitKind::QueueFull && wait > Duration::ZERO =>
                    {
                        self.assert_denied_rightly(&demand);
                    }
                    Decision::Refused(_) => {}
                }
            }
            5 => {
                if let Some(ticket) = self.waiting.keys().copied().nth(self.chance.index(40)) {
                    self.waiting.remove(&ticket);
                    self.queue.abandon(self.now, ticket);
                }
            }
            _ => return self.settle(),
        }
        self.assert_none_overlooked();
    }

    /// A request that could be sent now is never denied, unless it stands behind one with the same
    /// needs.
    fn assert_denied_rightly(&mut self, demand: &Demand) {
        if self.waiting.is_empty() {
            assert!(
                self.queue.try_one(self.now, demand).is_err(),
                "refused though it could be sent"
            );
        }
    }

    fn assert_none_overlooked(&mut self) {
        for (ticket, decision) in self.queue.take_decided().collect::<Vec<_>>() {
            assert!(self.waiting.remove(&ticket).is_some(), "decided twice, or never asked");
            self.open.extend(decision.ok());
        }
        assert_eq!(self.queue.waiting(), self.waiting.len());
        assert!(
            self.queue.next_wakeup().is_none_or(|at| at > self.now),
            "it would be called again at once for ever"
        );
        assert_eq!(self.queue.audit(), Vec::new());
        for (ticket, (demand, deadline)) in &self.waiting {
            assert!(*deadline > self.now);
            // No request with the same needs is before it.
            let could_go = self.queue.queue.is_first_of_queue(*ticket)
                && self.queue.try_one(self.now, demand).is_ok();
            assert!(!could_go, "{ticket:?} waits though it could be sent: {demand:?}");
        }
    }
}

impl Admission {
    /// Tries a demand without changing anything.
    fn try_one(&mut self, now: Timestamp, demand: &Demand) -> Result<Grant, LimitDenied> {
        let list = self.ledger.candidates.find(&demand.candidates);
        self.ledger.could_admit(now, demand, list).map_err(|blocked| blocked.refusal)
    }
}

/// Plays 400 events, and looks for overlooked requests after each.
fn play(seed: u64) {
    let mut scene = Scene::new(seed);
    for _ in 0..400 {
        let step = scene.chance.millis(400);
        let until = scene.now + step;
        while let Some(at) = scene.queue.next_wakeup().filter(|at| *at <= until) {
            scene.now = at;
            scene.queue.tick(at);
            scene.assert_none_overlooked();
        }
        scene.now = until;
        scene.event();
    }
}

#[test]
fn worlds_that_once_failed_overlook_nothing() {
    for seed in [5_751_466_820_011_939_364, 3_547_601_377_606_330_446, 12_038_588_891_996_776_196] {
        play(seed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(24), ..ProptestConfig::default() })]

    #[test]
    fn no_admissible_head_of_a_queue_waits(seed in any::<u64>()) {
        play(seed);
    }
}
