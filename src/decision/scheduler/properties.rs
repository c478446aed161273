//! The wait queue against the simplest queue: a list, scanned from the front at every event.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::{Method, StatusCode};
use proptest::prelude::*;

use super::*;
use crate::api::{
    AccountKind, Dialect, RateHeaders, ResourceName, Table, UpstreamLimit, UpstreamLimitKind,
};
use crate::cases::cases;
use crate::decision::quota::upstream_model::Chance;
use crate::decision::types::{AccountId, AccountSettings, ClientId, SecondaryLimits, WriteSpacing};

const START: Timestamp = Timestamp::from_secs(1_700_000_000);
const ACCOUNTS: u32 = 4;

/// Tight enough that every limit is reached.
fn settings() -> Settings {
    let account = |number: u32| AccountSettings {
        is_shared: false,
        name: format!("account-{number}").into(),
        kind: AccountKind::User,
        reserve: number,
        also_spends: None,
    };
    let limits = SecondaryLimits {
        concurrency: 3,
        rest_points_per_minute: 12,
        content_per_minute: 4,
        content_per_hour: 9,
        // The held CPU time depends on the endpoint, and the plain list has no order among
        // endpoints.
        cpu_seconds_per_minute: 1_000_000,
        graphql_cpu_seconds_per_minute: 1_000_000,
        ..SecondaryLimits::default()
    };
    let (spacing, notify_spacing) = (Duration::from_secs(1), Duration::from_secs(3));
    Settings {
        accounts: (0..ACCOUNTS).map(account).collect(),
        limits,
        spacing,
        notify_spacing,
        ..Settings::default()
    }
}

/// Plain list of waiting requests. Every event tries each kind of demand from the oldest on, until
/// a kind is denied. It never denies by itself: the queue may notice a hopeless wait a little late,
/// but never wrongly. Of two possible accounts it takes the queue's choice, because their ranks
/// depend on the time of the last update.
struct Plain {
    ledger: QuotaLedger,
    next_lease: u64,
    waiting: BTreeMap<Ticket, (Demand, Timestamp)>,
    granted: Vec<(Ticket, Grant)>,
}

impl Plain {
    fn event(&mut self, now: Timestamp, taken: &BTreeMap<Ticket, AccountId>) {
        let mut refused_kinds: Vec<String> = Vec::new();
        let tickets: Vec<Ticket> = self.waiting.keys().copied().collect();
        for ticket in tickets {
            let (demand, _) = &self.waiting[&ticket];
            let kind = kind(demand);
            if refused_kinds.contains(&kind) {
                continue;
            }
            match self.ledger.try_admit(
                now,
                LeaseId(self.next_lease),
                &carried_by(demand, taken.get(&ticket)),
            ) {
                Ok(grant) => {
                    self.next_lease += 1;
                    self.waiting.remove(&ticket);
                    self.granted.push((ticket, grant));
                }
                Err(_) => refused_kinds.push(kind),
            }
        }
    }

    /// True when a request, by the present state, could not be admitted in time.
    fn waits_in_vain(&mut self, now: Timestamp, demand: &Demand, deadline: Timestamp) -> bool {
        match self.ledger.try_admit(now, LeaseId(u64::MAX), demand) {
            Ok(_) => false,
            Err(refusal) => deadline <= now || ends_after_deadline(&refusal, deadline),
        }
    }
}

/// The same demand of this account alone, if one is given.
fn carried_by(demand: &Demand, account: Option<&AccountId>) -> Demand {
    let Some(account) = account else { return demand.clone() };
    assert!(demand.candidates.contains(account));
    Demand { candidates: [*account].into(), prefer: None, ..demand.clone() }
}

fn kind(demand: &Demand) -> String {
    format!("{:?}", Demand { prefer: None, ..demand.clone() })
}

fn any_demand(chance: &mut Chance) -> Demand {
    let pools: [&[u32]; 4] = [&[0], &[1, 2], &[0, 1, 2, 3], &[3]];
    let candidates: Vec<AccountId> =
        pools[chance.index(4)].iter().copied().map(AccountId).collect();
    let path = ["/repos/a/b", "/repos/a/b/issues"][chance.index(2)];
    let write =
        [WriteSpacing::None, WriteSpacing::None, WriteSpacing::Plain, WriteSpacing::Notifies]
            [chance.index(4)];
    Demand {
        client: ClientId(0),
        held_bytes: 0,
        prefer: candidates.first().copied().filter(|_| chance.percent(20)),
        candidates: candidates.into(),
        resource: ResourceName::core(),
        endpoint: Table::embedded(Dialect::Service).classify(&Method::GET, path).endpoint.id,
        cost: 1,
        unproven: 0,
        points: if write == WriteSpacing::None { 1 } else { 5 },
        graphql: chance.percent(10),
        content: write == WriteSpacing::Notifies,
        token_request: false,
        write,
    }
}

/// Ends a lease in a random way.
fn settle_at_random(chance: &mut Chance, now: Timestamp, mut settle: impl FnMut(Settlement<'_>)) {
    let reset = Timestamp::from_secs((now.as_secs() / 60 + 1) * 60);
    let rate = RateHeaders {
        limit: 30,
        remaining: u32::try_from(chance.below(31)).unwrap(),
        used: None,
        reset,
        resource: None,
    };
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
    let answered = |status, refusal| Settlement::Answered { status, rate: Some(&rate), refusal };
    match chance.below(20) {
        0 => settle(Settlement::Unknown),
        1 => settle(Settlement::NeverSent),
        2 => settle(answered(StatusCode::FORBIDDEN, Some(&secondary))),
        3 => settle(answered(StatusCode::TOO_MANY_REQUESTS, Some(&primary))),
        4 => settle(Settlement::Answered {
            status: StatusCode::NOT_MODIFIED,
            rate: None,
            refusal: None,
        }),
        5 => settle(Settlement::CutOff),
        _ => settle(answered(StatusCode::OK, None)),
    }
}

/// Queue and plain list with the same input.
struct Duel {
    queue: Admission,
    plain: Plain,
    open: Vec<Grant>,
}

impl Duel {
    fn new() -> Self {
        let plain = Plain {
            ledger: QuotaLedger::new(settings()),
            next_lease: 0,
            waiting: BTreeMap::new(),
            granted: Vec::new(),
        };
        Self { queue: Admission::new(settings()), plain, open: Vec::new() }
    }

    /// Compares after every event: the same grants in the same order, and only deserved denials.
    fn compare(&mut self, now: Timestamp) {
        let decided: Vec<_> = self.queue.take_decided().collect();
        let taken = decided
            .iter()
            .filter_map(|(ticket, decision)| Some((*ticket, decision.as_ref().ok()?.account)))
            .collect();
        self.plain.event(now, &taken);
        let mut granted = Vec::new();
        for (ticket, decision) in decided {
            if let Ok(grant) = decision {
                granted.push((ticket, grant));
            } else {
                let (demand, deadline) =
                    self.plain.waiting.remove(&ticket).expect("nobody is refused who was admitted");
                assert!(self.plain.waits_in_vain(now, &demand, deadline));
            }
        }
        assert_eq!(granted, std::mem::take(&mut self.plain.granted));
        assert_eq!(self.queue.waiting(), self.plain.waiting.len());
        assert!(self.plain.waiting.values().all(|(_, deadline)| *deadline > now));
        assert_eq!(self.queue.audit(), Vec::new());
        self.open.extend(granted.iter().map(|(_, grant)| *grant));
    }

    fn tick(&mut self, now: Timestamp) {
        self.queue.tick(now);
        self.compare(now);
    }

    fn request(&mut self, now: Timestamp, demand: Demand, deadline: Timestamp) {
        let is_behind_others =
            self.plain.waiting.values().any(|(other, _)| kind(other) == kind(&demand));
        match self.queue.request(now, demand.clone(), deadline) {
            Decision::Granted(grant) => {
                assert!(!is_behind_others);
                let demand = carried_by(&demand, Some(&grant.account));
                assert_eq!(
                    self.plain.ledger.try_admit(now, LeaseId(self.plain.next_lease), &demand),
                    Ok(grant)
                );
                self.plain.next_lease += 1;
                self.open.push(grant);
            }
            Decision::Refused(_) => assert!(self.plain.waits_in_vain(now, &demand, deadline)),
            Decision::Waiting { ticket, .. } => {
                self.plain.waiting.insert(ticket, (demand, deadline));
            }
        }
        // Waiting requests have been tried by now: if the plain list admits one here, the queue has
        // overlooked something.
        self.compare(now);
    }

    fn settle(&mut self, now: Timestamp, grant: Grant, settlement: Settlement<'_>) {
        self.queue.settle(now, grant.lease, settlement, 0.5);
        self.plain.ledger.settle(now, grant.lease, settlement, 0.5);
        self.compare(now);
    }

    fn abandon(&mut self, now: Timestamp, ticket: Ticket) {
        self.plain.waiting.remove(&ticket);
        self.queue.abandon(now, ticket);
        self.compare(now);
    }
}

fn duel(seed: u64) {
    let mut chance = Chance(seed);
    let mut duel = Duel::new();
    let mut now = START;
    for _ in 0..600 {
        now = now + chance.millis(400);
        // Time alone comes first, at the queue's own wake-ups.
        while let Some(at) = duel.queue.next_wakeup().filter(|at| *at <= now) {
            duel.tick(at);
        }
        match chance.below(10) {
            0..5 => duel.request(
                now,
                any_demand(&mut chance),
                now + Duration::from_millis(1 + chance.below(20_000)),
            ),
            5 => {
                let gone = duel.plain.waiting.keys().copied().nth(chance.index(40));
                if let Some(ticket) = gone {
                    duel.abandon(now, ticket);
                }
            }
            _ if duel.open.is_empty() => {}
            _ => {
                let grant = duel.open.swap_remove(chance.index(duel.open.len()));
                settle_at_random(&mut chance, now, |settlement| {
                    duel.settle(now, grant, settlement);
                });
            }
        }
    }
}

/// Cases that once failed.
#[test]
fn seeds_of_former_failures_decide_as_the_plain_list_does() {
    let seeds = [
        12_695_538_524_920_215_744,
        8_960_620_224_587_517_916,
        9_926_975_636_656_181_459,
        10_789_651_965_270_101_893,
    ];
    seeds.into_iter().for_each(duel);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(48), ..ProptestConfig::default() })]

    #[test]
    fn the_queue_decides_as_the_plain_list_does(seed in any::<u64>()) {
        duel(seed);
    }

    #[test]
    fn every_ticket_is_decided_once_and_every_lease_returns(seed in any::<u64>()) {
        let mut chance = Chance(seed);
        let mut queue = Admission::new(Settings { waiting_max: 50, ..settings() });
        let mut now = START;
        let mut open: Vec<Grant> = Vec::new();
        let mut deadlines: BTreeMap<Ticket, Timestamp> = BTreeMap::new();
        let mut ended: BTreeSet<Ticket> = BTreeSet::new();
        for step in 0..900 {
            now = if chance.percent(20) { queue.next_wakeup().unwrap_or(now).max(now) } else { now + chance.millis(300) };
            queue.tick(now);
            if step < 600 && chance.percent(60) {
                let deadline = now + chance.millis(60_000);
                match queue.request(now, any_demand(&mut chance), deadline) {
                    Decision::Granted(grant) => open.push(grant),
                    Decision::Waiting { ticket, .. } => prop_assert!(deadlines.insert(ticket, deadline).is_none()),
                    Decision::Refused(_) => {}
                }
            } else if !open.is_empty() {
                let grant = open.swap_remove(chance.index(open.len()));
                settle_at_random(&mut chance, now, |settlement| {
                    queue.settle(now, grant.lease, settlement, 0.5);
                });
            }
            if chance.percent(5) && let Some(ticket) = deadlines.keys().copied().next() {
                // Either it leaves the queue now, or it was decided in this very step and is
                // settled below like any other.
                let before = queue.waiting();
                queue.abandon(now, ticket);
                if queue.waiting() < before && !queue.decided.iter().any(|(decided, _)| *decided == ticket) {
                    deadlines.remove(&ticket);
                    ended.insert(ticket);
                }
            }
            for (ticket, decision) in queue.take_decided().collect::<Vec<_>>() {
                let deadline = deadlines.remove(&ticket);
                prop_assert!(ended.insert(ticket) && deadline.is_some(), "decided twice, or never asked");
                open.extend(decision.ok());
            }
            prop_assert!(deadlines.values().all(|deadline| *deadline > now), "somebody was left waiting beyond the deadline");
            prop_assert_eq!(deadlines.len(), queue.waiting());
            prop_assert!(queue.waiting() <= 50);
        }
        while let Some(grant) = open.pop() {
            queue.settle(now, grant.lease, Settlement::Unknown, 0.5);
            open.extend(queue.take_decided().filter_map(|(_, decision)| decision.ok()));
        }
        while let Some(at) = queue.next_wakeup() {
            queue.tick(at);
            for (_, decision) in queue.take_decided().collect::<Vec<_>>() {
                if let Ok(grant) = decision {
                    queue.settle(at, grant.lease, Settlement::NeverSent, 0.5);
                }
            }
        }
        prop_assert_eq!((queue.waiting(), queue.ledger().open_leases()), (0, 0));
        prop_assert_eq!(queue.audit(), Vec::new());
        prop_assert_eq!(queue.ledger().broken().map(|(_, count)| count).sum::<u64>(), 0);
    }
}
