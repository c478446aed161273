//! One run: takes events in the order of their time and handles each.
//!
//! `jobs` has a request before it is sent, `exchanges` its way to the upstream and back, `ends` its
//! end, `narration` the log, `replicas` the reports of several gateways to each other. They are the
//! gateway's shell in virtual time and repeat no decision of `decision/`.

mod ends;
mod exchanges;
mod jobs;
mod narration;
mod replicas;

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use bytes::Bytes;
use http::Method;

use super::bots::{Bot, BotRequest};
use super::course::Course;
use super::event_queue::EventQueue;
use super::plan::{BEGINNING, Demanded, Plan};
use super::polling::Polling;
use super::report::{ClientReport, Report};
use super::truth::Truth;
use super::upstream::Upstream;
use super::{Unplayable, Workload, trace};
use crate::api::ResourceName;
use crate::clock::Timestamp;
use crate::decision::retry::{Patience, Policy};
use crate::decision::{AccountId, Admission, QuotaLedger};
use crate::emulator::BudgetWindow;
use crate::random::Rng;
use exchanges::Exchange;
use jobs::Job;
use narration::EventLog;
use replicas::{Replica, Shared, replica_settings};

/// Body in place of an unrecorded one: a GraphQL query, which is invalid on other routes.
const UNRECORDED_BODY: &[u8] = b"{\"query\":\"{ viewer { login } }\"}";
/// Default of `writes.queue_max`.
const LANES_MAX: usize = 10_000;
/// Retries of a read, as in the gateway.
const READS: Policy =
    Policy { max_attempts: NonZeroU32::MIN.saturating_add(2), patience: Patience::Waiting };
/// Leases and waiting requests checked per step, on average. A full check comes after as many steps
/// as it costs, so that checking takes a fixed fraction of the time. With no more leases than this,
/// as in most debug runs, that is after every step.
const CHECKED_A_STEP: usize = if cfg!(debug_assertions) { 64 } else { 4 };

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A bot sends its next requests.
    Wakes(usize),
    /// The recorded request at this index comes.
    Recorded(usize),
    /// The poll at this index of the trace comes.
    Polls(usize),
    /// The change at this index happens.
    Changes(usize),
    /// A request arrives at the upstream.
    Arrives(u64),
    /// The upstream has its answer.
    Finishes(u64),
    /// The answer reaches the gateway.
    Returns(u64),
    /// The gateway notices that no answer will come.
    Missed(u64),
    /// The pause before another attempt ends.
    Retries(u64),
    /// A bot leaves if its request still waits.
    GivesUp(u64),
    /// The decision core of a replica reaches its next wake-up.
    Tick(usize),
    /// A replica reports on its accounts.
    Reports(usize),
    /// A report reaches the record of its account.
    Synced(u64),
    /// The answer to a report reaches its replica.
    SyncAnswered(u64),
    /// A replica is to report on an account at once.
    Published(usize, AccountId),
    /// The fault at this index of the plan begins.
    Fault(usize),
    /// Another consumer sends a request.
    Outsider,
    /// A window of a primary budget of this account is about to end.
    WindowEnds(usize, &'static str),
    /// The injected limit begins.
    Refuses,
}

/// Times until which an account's answers demand silence.
#[derive(Debug, Default)]
struct RetryTimes {
    account_until: Timestamp,
    resources: Vec<(ResourceName, Timestamp)>,
}

pub(super) struct Run<'p> {
    plan: &'p Plan,
    now: Timestamp,
    event_queue: EventQueue<Event>,
    bots: Vec<Bot>,
    replicas: Vec<Replica>,
    shared: Shared,
    polling: Polling,
    /// Number of requests so far, for round robin.
    turn: u64,
    upstream: Upstream,
    jobs: HashMap<u64, Job>,
    exchanges: HashMap<u64, Exchange>,
    next_number: u64,
    unchecked: usize,
    network: Rng,
    jitter: Rng,
    balance: Rng,
    truth: Vec<Truth>,
    retry_times: Vec<RetryTimes>,
    /// End of the latest silence of any account.
    silence_until: Timestamp,
    outsider_waits_until: Timestamp,
    report: Report,
    narration: EventLog,
}

impl<'p> Run<'p> {
    /// Prepares everything at the beginning of virtual time.
    pub fn new(plan: &'p Plan) -> Result<Self, Unplayable> {
        let clients = plan.clients.iter().map(|client| client.name.to_string());
        let clients = clients.map(|name| ClientReport { name, ..ClientReport::default() });
        let count = plan.replicas.count.get();
        let settings = replica_settings(plan);
        let mut run = Self {
            plan,
            now: BEGINNING,
            event_queue: EventQueue::new(),
            bots: Vec::new(),
            replicas: (0..count).map(|id| Replica::new(id.into(), settings.clone())).collect(),
            shared: Shared::default(),
            polling: Polling::default(),
            turn: 0,
            upstream: Upstream::new(plan, BEGINNING - Duration::from_secs(3_600))?,
            jobs: HashMap::new(),
            exchanges: HashMap::new(),
            next_number: 0,
            unchecked: 0,
            network: Rng::for_purpose(plan.seed, 1),
            jitter: Rng::for_purpose(plan.seed, 2),
            balance: Rng::for_purpose(plan.seed, 3),
            truth: plan.upstream.accounts.iter().map(|account| Truth::new(&account.name)).collect(),
            retry_times: plan.upstream.accounts.iter().map(|_| RetryTimes::default()).collect(),
            silence_until: Timestamp::EPOCH,
            outsider_waits_until: Timestamp::EPOCH,
            report: Report {
                runs: 1,
                hours: plan.length.as_secs_f64() / 3_600.0,
                clients: clients.collect(),
                course: Course::of(plan.length),
                ..Report::default()
            },
            narration: EventLog::new(plan.narration),
        };
        run.begin();
        Ok(run)
    }

    /// Plays to the end.
    pub fn play(mut self) -> Result<Report, Unplayable> {
        let end = BEGINNING + self.plan.length;
        while let Some((at, event)) = self.event_queue.take_before(end) {
            self.now = at;
            if let Some(later) = self.waits_for_replica(event) {
                self.event_queue.put(later, event);
                continue;
            }
            self.happen(event)?;
            self.deliver()?;
            self.report_short();
            self.check();
        }
        self.now = end;
        Ok(self.into_report(end))
    }

    fn begin(&mut self) {
        match &self.plan.demand {
            Demanded::Workload(workload @ (Workload::Polling | Workload::DensePolling)) => {
                let Plan { seed, bots, length, .. } = *self.plan;
                self.polling = match workload {
                    Workload::DensePolling => Polling::dense(seed, bots, length),
                    _ => Polling::new(seed, bots, length),
                };
                for (place, request) in self.polling.polls.iter().enumerate() {
                    self.event_queue.put(self.now + request.after, Event::Polls(place));
                }
                for (place, (after, _)) in self.polling.changes.iter().enumerate() {
                    self.event_queue.put(self.now + *after, Event::Changes(place));
                }
            }
            Demanded::Workload(workload) => {
                let (habits, clients) = (workload.habits(), self.plan.clients.len().max(1));
                for number in 0..self.plan.bots {
                    let place = usize::try_from(number).unwrap_or(0);
                    // A workload's own clients are named after its habits; other clients have bots
                    // of every habit.
                    let habit = if workload.clients().is_some() && clients == habits.len() {
                        place
                    } else {
                        place / clients
                    };
                    let habit = habits[habit % habits.len()];
                    let mut bot = Bot::new(number, place % clients, habit, self.plan.seed);
                    self.event_queue.put(self.now + bot.first(), Event::Wakes(place));
                    self.bots.push(bot);
                }
            }
            Demanded::Trace(trace) => {
                for (place, recorded) in trace.requests.iter().enumerate() {
                    self.event_queue.put(self.now + recorded.after, Event::Recorded(place));
                }
            }
        }
        self.begin_reports();
        for (place, (_, every)) in self.plan.faults.iter().enumerate() {
            self.event_queue.put(self.now + *every, Event::Fault(place));
        }
        if self.plan.outside.is_some() {
            self.event_queue.put(self.now, Event::Outsider);
        }
        if let Some(refusal) = self.plan.upstream.refusal {
            let halfway = self.now + self.plan.length / 2;
            self.event_queue.put(refusal.at.min(halfway), Event::Refuses);
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), Unplayable> {
        match event {
            Event::Wakes(bot) => self.bot_sends(bot),
            Event::Recorded(place) => self.replay_recorded(place),
            Event::Polls(place) => self.polls(place),
            Event::Changes(place) => return self.changes(place),
            Event::Arrives(exchange) => self.arrives(exchange),
            Event::Finishes(exchange) => self.finishes(exchange),
            Event::Returns(exchange) => return self.returns(exchange),
            Event::Missed(exchange) => return self.missed(exchange),
            Event::Retries(job) => return self.admit(job),
            Event::GivesUp(job) => self.gives_up(job),
            Event::Tick(replica) => {
                let now = self.local(replica);
                let replica = &mut self.replicas[replica];
                if replica.wakes_at <= self.now {
                    replica.wakes_at = Timestamp::FAR_FUTURE;
                }
                replica.admission.tick(now);
            }
            Event::Reports(replica) => self.reports(replica),
            Event::Synced(number) => self.synced(number),
            Event::SyncAnswered(number) => self.sync_answered(number),
            Event::Published(replica, account) => self.report(replica, account),
            Event::Fault(fault) => self.fault(fault),
            Event::Outsider => return self.outsider_sends(),
            Event::WindowEnds(account, resource) => self.window_ends(account, resource),
            Event::Refuses => {
                if let Some(refusal) = self.plan.upstream.refusal {
                    self.upstream
                        .refuse_next_of(place_of(refusal.account), refusal.retry_after_secs);
                }
            }
        }
        Ok(())
    }

    fn bot_sends(&mut self, place: usize) {
        let installation = self.upstream.installation();
        let Some(bot) = self.bots.get_mut(place) else { return };
        let (client, requests) = (bot.client, bot.requests(installation));
        bot.pending += u32::try_from(requests.len()).unwrap_or(u32::MAX);
        for request in requests {
            self.submit(Some(place), client, request);
        }
    }

    fn replay_recorded(&mut self, place: usize) {
        let Demanded::Trace(trace) = &self.plan.demand else { return };
        let Some(recorded) = trace.requests.get(place).cloned() else { return };
        let name = trace.clients.get(recorded.client);
        // A client outside the plan has no budget in it.
        let known = self.plan.clients.iter().position(|known| Some(&known.name) == name);
        let trace::Recorded { method, path, .. } = recorded;
        if let Some(client) = known {
            let is_read = matches!(method, Method::GET | Method::HEAD);
            let body = Bytes::from_static(if is_read { b"" } else { UNRECORDED_BODY });
            self.submit(None, client, BotRequest { method, path, body, patience: None });
        }
    }

    fn polls(&mut self, place: usize) {
        let Some(polled) = self.polling.polls.get(place).copied() else { return };
        let client = polled.bot % self.plan.clients.len().max(1);
        let Some(path) = self.polling.path(polled.resource) else { return };
        let request = BotRequest {
            method: http::Method::GET,
            path: path.to_owned(),
            body: bytes::Bytes::new(),
            patience: None,
        };
        self.submit(None, client, request);
    }

    fn changes(&mut self, place: usize) -> Result<(), Unplayable> {
        let Some((_, resource)) = self.polling.changes.get(place).copied() else { return Ok(()) };
        self.report.tally.changes += 1;
        self.polling.change(self.now, &mut self.upstream.emulator, resource)
    }

    /// Carries out the cores' decisions, and schedules their next wake-ups.
    fn deliver(&mut self) -> Result<(), Unplayable> {
        for at in 0..self.replicas.len() {
            while let Some((ticket, decision)) = self.replicas[at].admission.next_decided() {
                let Some(job) = self.replicas[at].by_ticket.remove(&ticket) else { continue };
                match decision {
                    Ok(grant) => self.send(job, grant)?,
                    Err(refusal) => self.refused(job, &refusal),
                }
            }
            if let Some(wakes_at) = self.replicas[at].admission.next_wakeup() {
                let wakes_at = self.global(at, wakes_at);
                let replica = &mut self.replicas[at];
                // Decisions advance in steps of a millisecond, as in the gateway.
                let wakes_at = wakes_at.max(self.now + Duration::from_millis(1));
                if wakes_at < replica.wakes_at {
                    replica.wakes_at = wakes_at;
                    self.event_queue.put(wakes_at, Event::Tick(at));
                }
            }
        }
        Ok(())
    }

    /// Audits the ledger, as often as a fixed fraction of the time permits.
    fn check(&mut self) {
        self.unchecked = self.unchecked.saturating_add(CHECKED_A_STEP / self.replicas.len());
        let admissions = || self.replicas.iter().map(|replica| &replica.admission);
        let size = admissions().map(|one| one.ledger().open_leases() + one.waiting()).sum();
        if self.unchecked <= size {
            return;
        }
        let broken: Vec<_> = admissions().flat_map(Admission::audit).collect();
        self.unchecked = 0;
        for invariant in &broken {
            let name = format!("{} {}", invariant.number(), invariant.name());
            *self.report.broken.entry(name).or_default() += 1;
            self.narration.log(self.now, || {
                format!("INVARIANT {} is broken: {}", invariant.number(), invariant.name())
            });
        }
        debug_assert!(broken.is_empty(), "broken invariants: {broken:?}");
    }

    fn window_ends(&mut self, account: usize, resource: &'static str) {
        let window = self.window(account, resource);
        if let (Some(window), Some(truth)) = (window, self.truth.get_mut(account)) {
            truth.window_ended(&window);
            self.narration.log(self.now, || {
                format!(
                    "the window of {resource} ends for {}: {} of {} used",
                    truth.name, window.used, window.limit
                )
            });
        }
    }

    /// Returns the current window of an account's budget.
    fn window(&mut self, account: usize, resource: &str) -> Option<BudgetWindow> {
        let login = &self.truth.get(account)?.login;
        let mut windows = self.upstream.emulator.budget_windows(self.now).into_iter();
        windows.find(|window| window.account == *login && window.resource == resource)
    }

    fn into_report(mut self, end: Timestamp) -> Report {
        let ledgers = self.replicas.iter().map(|replica| replica.admission.ledger());
        for (invariant, count) in
            ledgers.flat_map(QuotaLedger::broken).filter(|(_, count)| *count > 0)
        {
            let name = format!("{} {}", invariant.number(), invariant.name());
            *self.report.broken.entry(name).or_default() += count;
        }
        let (sent_while_limited, banned) = self.upstream.final_counts(end);
        let limits = self.plan.settings.limits;
        let accounts =
            self.truth.into_iter().map(|truth| truth.report(self.plan.length, &limits)).collect();
        Report {
            accounts,
            sent_while_limited,
            banned,
            story: self.narration.into_lines(),
            ..self.report
        }
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Counts something in the figures of a client.
    fn count(&mut self, client: usize, add: impl FnOnce(&mut ClientReport)) {
        if let Some(report) = self.report.clients.get_mut(client) {
            add(report);
        }
    }
}

/// Returns an account's index in the lists of the plan.
fn place_of(account: AccountId) -> usize {
    usize::try_from(account.0).unwrap_or(usize::MAX)
}
