//! A request before it is sent: stored answers, a shared fetch, its turn in its lane, admission.

use std::time::Duration;

use bytes::Bytes;
use http::Method;

use super::{Event, Run};
use crate::clock::Timestamp;
use crate::decision::TokenKey;
use crate::decision::cache::freshness::Stored;
use crate::decision::cache::key::{Accept, CacheKey};
use crate::decision::writes::lanes::{LaneKey, LanePosition, LaneTicket};
use crate::decision::{
    AccountId, ClientId, Decision, Demand, LimitDenied, LimitKind, Ticket, Until, WriteSpacing,
};
use crate::simulation::Unplayable;
use crate::simulation::bots::Ask;
use crate::simulation::route::Route;

/// Version of requests without one, which all are.
const VERSION: &str = "2022-11-28";

/// A request on its way to an answer, with all who wait for it.
#[derive(Debug)]
pub(super) struct Job {
    pub waiters: Vec<Waiter>,
    pub client: usize,
    pub method: Method,
    pub path: String,
    pub body: Bytes,
    pub route: Route,
    pub deadline: Timestamp,
    /// Key of its stored answer.
    pub key: Option<CacheKey>,
    pub lane: Option<LaneTicket>,
    pub ticket: Option<Ticket>,
    pub attempt: u32,
    pub refusals: usize,
    /// Time of all attempts at the upstream.
    pub away: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub bot: Option<usize>,
    pub client: usize,
    pub asked_at: Timestamp,
}

impl Job {
    pub fn is_read(&self) -> bool {
        self.route.spacing == WriteSpacing::None
    }
}

impl Run<'_> {
    /// Handles a new request.
    pub(super) fn ask(&mut self, bot: Option<usize>, client: usize, ask: Ask) {
        let waiter = Waiter { bot, client, asked_at: self.now };
        if let Some(report) = self.client(client) {
            report.asked += 1;
        }
        let Some(plan) = self.plan.clients.get(client) else { return };
        let turn = self.turn;
        self.turn += 1;
        let by_rules = |route: Route| Route {
            candidates: self.plan.rules.candidates(&route.candidates, turn),
            ..route
        };
        let Some(route) =
            Route::of(&ask, plan).map(by_rules).filter(|route| !route.candidates.is_empty())
        else {
            return self.turned_away(
                waiter,
                LimitKind::NoAccount,
                self.now + Duration::from_secs(60),
            );
        };
        let key = route.scope.map(|scope| CacheKey::new(scope, &ask.path, &Accept::Json, VERSION));
        if let Some(key) = &key {
            let stored = self.store.get(key);
            if stored.is_some_and(|stored| stored.is_fresh(self.now, self.plan.freshness)) {
                if let Some(report) = self.client(client) {
                    report.hits += 1;
                }
                if let Some(resource) = self.polling.resource(&ask.path) {
                    let shown = self.shown.get(key).copied().unwrap_or(0);
                    self.report.tally.stale += u64::from(shown < self.polling.version(resource));
                }
                return self.served(waiter, Duration::ZERO);
            }
            let fetching = self.fetching.get(key).filter(|_| self.plan.rules.coalesces());
            if let Some(job) = fetching.and_then(|job| self.jobs.get_mut(job)) {
                job.waiters.push(waiter);
                return;
            }
        }
        let id = self.number();
        let deadline = self.now + plan.max_wait;
        let Ask { method, path, body, patience } = ask;
        let mut job = Job {
            waiters: vec![waiter],
            client,
            method,
            path,
            body,
            route,
            deadline,
            key: key.clone(),
            lane: None,
            ticket: None,
            attempt: 0,
            refusals: 0,
            away: Duration::ZERO,
        };
        if let Some(patience) = patience {
            self.event_queue.put(self.now + patience, Event::GivesUp(id));
        }
        let is_its_turn = match job.route.lane.take() {
            None => true,
            Some(resource) => match self
                .lanes
                .enter(LaneKey { client: u32::try_from(client).unwrap_or(u32::MAX), resource })
            {
                Err(_) => {
                    return self.turned_away(
                        waiter,
                        LimitKind::QueueFull,
                        self.now + Duration::from_secs(1),
                    );
                }
                Ok((ticket, place)) => {
                    job.lane = Some(ticket);
                    self.by_lane.insert(ticket, id);
                    place == LanePosition::Head
                }
            },
        };
        self.jobs.insert(id, job);
        if let Some(key) = key {
            self.fetching.insert(key, id);
        }
        if is_its_turn {
            // Fails only for a path that cannot be sent, which the caller has checked.
            let _ = self.admit(id);
        }
    }

    /// Submits a job to the core and carries out the decision.
    pub(super) fn admit(&mut self, id: u64) -> Result<(), Unplayable> {
        let Some(job) = self.jobs.get(&id) else { return Ok(()) };
        let demand = self.demand(job);
        let deadline = job.deadline;
        match self.admission.request(self.now, demand, deadline) {
            Decision::Granted(grant) => self.send(id, grant)?,
            Decision::Refused(refusal) => self.refused(id, &refusal),
            Decision::Waiting { ticket, .. } => {
                self.by_ticket.insert(ticket, id);
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.ticket = Some(ticket);
                }
            }
        }
        Ok(())
    }

    fn demand(&self, job: &Job) -> Demand {
        let route = &job.route;
        let stored = job.key.as_ref().and_then(|key| self.store.get(key));
        let prefer = stored
            .and_then(Stored::preferred_token)
            .map(|TokenKey(token)| AccountId(u32::try_from(token).unwrap_or(0)));
        Demand {
            client: ClientId(u32::try_from(job.client).unwrap_or(u32::MAX)),
            held_bytes: job.body.len() as u64,
            candidates: route.candidates.clone(),
            prefer,
            resource: self
                .admission
                .ledger()
                .resource_for(route.endpoint.id, &route.endpoint.resource),
            endpoint: route.endpoint.id,
            cost: route.endpoint.primary_cost,
            points: route.points,
            graphql: route.graphql,
            content: route.endpoint.content_generating,
            token_request: route.token_request,
            write: route.spacing,
        }
    }

    /// Handles a denial by the core.
    pub(super) fn refused(&mut self, id: u64, refusal: &LimitDenied) {
        let until = match refusal.until {
            Until::Time(until) => until,
            Until::Event => self.now + Duration::from_secs(1),
        };
        let Some(job) = self.close(id) else { return };
        self.narration.tell(self.now, || {
            format!(
                "we refuse {} {} for {} until {}",
                job.method,
                job.path,
                refusal.limit.name(),
                super::narration::clock(until)
            )
        });
        for waiter in job.waiters {
            self.turned_away(waiter, refusal.limit, until);
        }
    }

    fn turned_away(&mut self, waiter: Waiter, limit: LimitKind, until: Timestamp) {
        if let Some(report) = self.client(waiter.client) {
            *report.refused.entry(limit.name()).or_default() += 1;
        }
        // After a denial without an end, or with a distant one, the bot retries in an hour.
        let until = until.min(self.now + Duration::from_secs(3_600));
        if let Some(bot) = waiter.bot.and_then(|bot| self.bots.get_mut(bot)) {
            bot.retry_at = bot.retry_at.max(until);
        }
        self.answered(waiter);
    }

    /// Handles the end of a bot's patience. A job that was sent, or that others wait for,
    /// continues.
    pub(super) fn gives_up(&mut self, id: u64) {
        let Some(job) = self.jobs.get(&id).filter(|job| job.waiters.len() == 1) else { return };
        let Some(ticket) = job.ticket.filter(|ticket| self.by_ticket.contains_key(ticket)) else {
            return;
        };
        self.by_ticket.remove(&ticket);
        self.admission.abandon(self.now, ticket);
        let Some(job) = self.close(id) else { return };
        for waiter in job.waiters {
            if let Some(report) = self.client(waiter.client) {
                report.gave_up += 1;
            }
            self.answered(waiter);
        }
    }
}
