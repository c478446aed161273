//! The replicas of a run, and the records that they share: every replica has its own decision core
//! and its own stored answers. A report goes to the record of its account and comes back, as with
//! a store on another machine.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::{Event, LANES_MAX, Run};
use crate::api::EndpointId;
use crate::clock::Timestamp;
use crate::decision::cache::key::CacheKey;
use crate::decision::fleet::{Answer, Record, ReplicaId, Report};
use crate::decision::writes::lanes::{LaneTicket, Lanes};
use crate::decision::{AccountId, Admission, Settings, Ticket};
use crate::simulation::plan::{BEGINNING, LoadBalance, Plan, ReplicaFault, Replicas};
use crate::simulation::store::Store;

/// The distance of the reports of one replica about one account.
const REPORTED_EVERY: Duration = Duration::from_millis(250);
/// The least distance while requests wait for more than its part.
const SHORT_EVERY: Duration = Duration::from_millis(25);
/// The way to the record, or back.
const WAY_MILLIS: u64 = 1;
/// The time for which a moving load stays on one replica.
const MOVES_EVERY: u64 = 60;
/// Percentage of the requests of a skewed load that go to the first replica.
const SKEWED_PERCENT: f64 = 90.0;

/// The time after which a report counts as lost.
const REPORT_TIMEOUT: Duration = Duration::from_millis(50);
/// Percentage of lost reports that have reached their record.
const LOST_AFTER: f64 = 50.0;
/// The time for which records are out of reach.
const AWAY_FOR: Duration = Duration::from_secs(300);
/// The time for which a replica stands still: longer than its parts last.
const PAUSED_FOR: Duration = Duration::from_secs(15);

/// One gateway.
#[derive(Debug)]
pub(super) struct Replica {
    /// Differs from the replica that was here before.
    pub id: u64,
    paused_until: Timestamp,
    pub admission: Admission,
    pub lanes: Lanes,
    pub store: Store,
    /// Version of a polled resource in its stored answer.
    pub shown: HashMap<CacheKey, u64>,
    pub by_ticket: HashMap<Ticket, u64>,
    pub by_lane: HashMap<LaneTicket, u64>,
    pub fetching: HashMap<CacheKey, u64>,
    pub wakes_at: Timestamp,
    /// Accounts with a report under way.
    reporting: BTreeMap<AccountId, u64>,
    /// The last report about each account.
    reported_at: BTreeMap<AccountId, Timestamp>,
}

/// A report under way.
#[derive(Debug)]
pub(super) struct Sync {
    replica: usize,
    id: u64,
    account: AccountId,
    sent_at: Timestamp,
    report: Report,
    answer: Option<Answer>,
}

/// What all replicas share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    records: BTreeMap<AccountId, Record>,
    /// The end of the time in which nobody reaches them, and the last replica does not.
    away_until: Timestamp,
    cut_off_until: Timestamp,
    syncs: HashMap<u64, Sync>,
}

impl Replica {
    pub fn new(id: u64, settings: Settings) -> Self {
        Self {
            id,
            paused_until: Timestamp::EPOCH,
            admission: Admission::new(settings),
            lanes: Lanes::new(LANES_MAX),
            store: Store::default(),
            shown: HashMap::new(),
            by_ticket: HashMap::new(),
            by_lane: HashMap::new(),
            fetching: HashMap::new(),
            wakes_at: Timestamp::FAR_FUTURE,
            reporting: BTreeMap::new(),
            reported_at: BTreeMap::new(),
        }
    }
}

/// The settings of each replica.
pub(super) fn replica_settings(plan: &Plan) -> Settings {
    let count = plan.replicas.count;
    let replicas_max = (count.get() > 1).then_some(count);
    Settings { replicas_max, ..plan.settings.clone() }
}

impl Run<'_> {
    /// The replica to which the load balancer sends a request of a bot.
    pub(super) fn replica_for(&mut self, bot: Option<usize>) -> usize {
        let Replicas { balance, .. } = self.plan.replicas;
        let count = self.replicas.len();
        let in_turn = bot.unwrap_or_else(|| usize::try_from(self.turn).unwrap_or(0)) % count;
        let wanted = match balance {
            LoadBalance::Skewed if self.balance.percent(SKEWED_PERCENT) => 0,
            LoadBalance::Even | LoadBalance::Skewed => in_turn,
            LoadBalance::Moving => {
                let minutes = self.now.since(BEGINNING).as_secs() / MOVES_EVERY;
                usize::try_from(minutes).unwrap_or(0) % count
            }
        };
        // One that does not answer gets nothing.
        if self.is_paused(wanted) { (wanted + 1) % count } else { wanted }
    }

    /// The time by the clock of a replica.
    pub(super) fn local(&self, replica: usize) -> Timestamp {
        self.shifted(replica, self.now, true)
    }

    /// Converts a time by a replica's clock.
    pub(super) fn global(&self, replica: usize, local: Timestamp) -> Timestamp {
        self.shifted(replica, local, false)
    }

    /// Every third clock is right, the others are ahead or behind.
    pub(super) fn shifted(&self, replica: usize, time: Timestamp, to_local: bool) -> Timestamp {
        match (replica % 3, to_local) {
            (1, true) | (2, false) => time + self.plan.replicas.skew,
            (2, true) | (1, false) => time - self.plan.replicas.skew,
            _ => time,
        }
    }

    fn is_paused(&self, replica: usize) -> bool {
        self.replicas[replica].paused_until > self.now
    }

    /// The end of the pause of the replica that an event is for, if it stands still.
    pub(super) fn waits_for_replica(&self, event: Event) -> Option<Timestamp> {
        let exchange = |id: u64| self.exchanges.get(&id).map(|exchange| exchange.replica);
        let job = |id: u64| self.jobs.get(&id).map(|job| job.replica);
        let replica = match event {
            Event::Tick(replica) | Event::Reports(replica) | Event::Published(replica, _) => {
                Some(replica)
            }
            Event::SyncAnswered(number) => self.shared.syncs.get(&number).map(|sync| sync.replica),
            Event::Returns(id) | Event::Missed(id) => exchange(id),
            Event::Retries(id) | Event::GivesUp(id) => job(id),
            _ => None,
        };
        let until = self.replicas[replica?].paused_until;
        (until > self.now).then_some(until)
    }

    /// A fault begins, and comes again.
    pub(super) fn fault(&mut self, at: usize) {
        let Some((fault, every)) = self.plan.faults.get(at).copied() else { return };
        let last = self.replicas.len() - 1;
        match fault {
            ReplicaFault::Killed => self.kill(last),
            ReplicaFault::Paused => self.replicas[last].paused_until = self.now + PAUSED_FOR,
            ReplicaFault::CutOff => self.shared.cut_off_until = self.now + AWAY_FOR,
            ReplicaFault::RecordsAway => self.shared.away_until = self.now + AWAY_FOR,
            ReplicaFault::RecordsLost => self.shared.records.clear(),
        }
        self.event_queue.put(self.now + every, Event::Fault(at));
    }

    /// Ends a replica with all its requests, and begins another one.
    fn kill(&mut self, replica: usize) {
        let own = self.jobs.iter().filter(|(_, job)| job.replica == replica);
        let mut own: Vec<u64> = own.map(|(id, _)| *id).collect();
        own.sort_unstable();
        for id in own {
            self.end(id, |report| report.failed += 1);
        }
        let id = self.number();
        let settings = replica_settings(self.plan);
        self.replicas[replica] = Replica::new(id, settings);
    }

    fn reaches_records(&self, replica: usize) -> bool {
        let is_cut_off = replica + 1 == self.replicas.len() && self.now < self.shared.cut_off_until;
        self.now >= self.shared.away_until && !is_cut_off
    }

    /// Begins the reports of all replicas, one after the other.
    pub(super) fn begin_reports(&mut self) {
        if self.replicas.len() > 1 {
            for replica in 0..self.replicas.len() {
                let after = REPORTED_EVERY * u32::try_from(replica).unwrap_or(0)
                    / u32::try_from(self.replicas.len()).unwrap_or(1);
                self.event_queue.put(self.now + after, Event::Reports(replica));
            }
        }
    }

    /// Reports on all accounts in use.
    pub(super) fn reports(&mut self, replica: usize) {
        let now = self.local(replica);
        for account in self.replicas[replica].admission.to_report(now) {
            self.report(replica, account);
        }
        self.event_queue.put(self.now + REPORTED_EVERY, Event::Reports(replica));
    }

    /// Reports on an account, unless a report is under way.
    pub(super) fn report(&mut self, replica: usize, account: AccountId) {
        let (number, now) = (self.number(), self.local(replica));
        let own = &mut self.replicas[replica];
        if own.reporting.contains_key(&account) {
            return;
        }
        let name = |endpoint: EndpointId| format!("{endpoint:?}");
        let Some(report) = own.admission.report(now, account, &name) else { return };
        own.reporting.insert(account, number);
        own.reported_at.insert(account, self.now);
        let sync = Sync { replica, id: own.id, account, sent_at: self.now, report, answer: None };
        self.shared.syncs.insert(number, sync);
        self.event_queue.put(self.now + Duration::from_millis(WAY_MILLIS), Event::Synced(number));
    }

    /// A report reaches the record of its account.
    pub(super) fn synced(&mut self, number: u64) {
        let Some(replica) = self.shared.syncs.get(&number).map(|sync| sync.replica) else { return };
        let is_reached = self.reaches_records(replica);
        let is_lost_after = !is_reached && self.network.percent(LOST_AFTER);
        let Some(sync) = self.shared.syncs.get_mut(&number) else { return };
        if !is_reached {
            self.event_queue.put(sync.sent_at + REPORT_TIMEOUT, Event::SyncAnswered(number));
        }
        if !is_reached && !is_lost_after {
            return;
        }
        let record =
            self.shared.records.entry(sync.account).or_insert_with(|| Record::new(self.now));
        let answer = record.sync(self.now, ReplicaId(sync.id), &sync.report);
        if !is_reached {
            return;
        }
        sync.answer = answer;
        let (replica, account) = (sync.replica, sync.account);
        let is_refused = !sync.report.cooldown.is_zero();
        self.report.reports += 1;
        self.event_queue
            .put(self.now + Duration::from_millis(WAY_MILLIS), Event::SyncAnswered(number));
        if is_refused {
            // Published to the others.
            for other in (0..self.replicas.len()).filter(|other| *other != replica) {
                let after = Duration::from_millis(WAY_MILLIS);
                self.event_queue.put(self.now + after, Event::Published(other, account));
            }
        }
    }

    /// The answer of the record reaches the replica.
    pub(super) fn sync_answered(&mut self, number: u64) {
        let Some(sync) = self.shared.syncs.remove(&number) else { return };
        let Sync { replica, id, account, sent_at, answer, .. } = sync;
        let (now, sent_at) = (self.local(replica), self.shifted(replica, sent_at, true));
        let own = &mut self.replicas[replica];
        if own.id == id {
            own.reporting.remove(&account);
            own.admission.reported(now, sent_at, account, answer.as_ref());
        }
    }

    /// Reports at once on accounts on which requests wait for more.
    pub(super) fn report_short(&mut self) {
        for replica in 0..self.replicas.len() {
            for account in self.replicas[replica].admission.take_short() {
                let last = self.replicas[replica].reported_at.get(&account);
                let earliest = last.map_or(self.now, |last| *last + SHORT_EVERY);
                if earliest <= self.now {
                    self.report(replica, account);
                } else {
                    self.event_queue.put(earliest, Event::Published(replica, account));
                }
            }
        }
    }
}
