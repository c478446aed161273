//! A request before it is sent: stored answers, a shared fetch, its turn in its lane, admission.

use std::time::Duration;

use bytes::Bytes;
use http::Method;

use super::{Event, Run};
use crate::clock::Timestamp;
use crate::decision::TokenKey;
use crate::decision::cache::key::{Accept, CacheKey};
use crate::decision::writes::lanes::{LaneKey, LanePosition, LaneTicket};
use crate::decision::{
    AccountId, ClientId, Decision, Demand, LimitDenied, LimitKind, Ticket, Until, WriteSpacing,
};
use crate::simulation::Unplayable;
use crate::simulation::bots::BotRequest;
use crate::simulation::plan::BEGINNING;
use crate::simulation::route::Route;

/// Version of requests without one, which all are.
const VERSION: &str = "2022-11-28";

/// A request on its way to an answer, with its waiters.
#[derive(Debug)]
pub(super) struct Job {
    pub replica: usize,
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
    pub requested_at: Timestamp,
}

impl Job {
    pub fn is_read(&self) -> bool {
        self.route.spacing == WriteSpacing::None
    }
}

impl Run<'_> {
    /// Handles a new request.
    pub(super) fn submit(&mut self, bot: Option<usize>, client: usize, request: BotRequest) {
        let waiter = Waiter { bot, client, requested_at: self.now };
        self.count(client, |report| report.requests += 1);
        self.report.course.was_asked(self.now.since(BEGINNING));
        let Some(plan) = self.plan.clients.get(client) else { return };
        let replica = self.replica_for(bot);
        let turn = self.turn;
        self.turn += 1;
        let by_rules = |route: Route| Route {
            candidates: self.plan.rules.candidates(&route.candidates, turn),
            ..route
        };
        let route = Route::of(&request, plan).map(by_rules);
        let Some(mut route) = route.filter(|route| !route.candidates.is_empty()) else {
            let until = self.now + Duration::from_secs(60);
            return self.deny(waiter, LimitKind::NoAccount, until);
        };
        let key =
            route.scope.map(|scope| CacheKey::new(scope, &request.path, &Accept::Json, VERSION));
        if key
            .as_ref()
            .is_some_and(|key| self.is_served_without_job(replica, waiter, &request.path, key))
        {
            return;
        }
        let id = self.number();
        let BotRequest { method, path, body, patience } = request;
        if let Some(patience) = patience {
            self.event_queue.put(self.now + patience, Event::GivesUp(id));
        }
        let (mut lane, mut is_its_turn) = (None, true);
        if let Some(resource) = route.lane.take() {
            let client = u32::try_from(client).unwrap_or(u32::MAX);
            let own = &mut self.replicas[replica];
            let Ok((ticket, place)) = own.lanes.enter(LaneKey { client, resource }) else {
                let until = self.now + Duration::from_secs(1);
                return self.deny(waiter, LimitKind::QueueFull, until);
            };
            own.by_lane.insert(ticket, id);
            (lane, is_its_turn) = (Some(ticket), place == LanePosition::Head);
        }
        if let Some(key) = &key {
            self.replicas[replica].fetching.insert(key.clone(), id);
        }
        let job = Job {
            replica,
            waiters: vec![waiter],
            client,
            method,
            path,
            body,
            route,
            deadline: self.now + plan.max_wait,
            key,
            lane,
            ticket: None,
            attempt: 0,
            refusals: 0,
            away: Duration::ZERO,
        };
        self.jobs.insert(id, job);
        if is_its_turn {
            // Fails only for a path that cannot be sent, which the caller has checked.
            let _ = self.admit(id);
        }
    }

    /// Answers from the store, or joins a fetch in flight. Returns false when neither is possible.
    fn is_served_without_job(
        &mut self,
        replica: usize,
        waiter: Waiter,
        path: &str,
        key: &CacheKey,
    ) -> bool {
        let own = &self.replicas[replica];
        let (mode, at_most) = (self.plan.freshness, self.plan.revalidate_at_most);
        let shown = own.shown.get(key).copied().unwrap_or(0);
        let fetching = own.fetching.get(key).copied();
        if own.store.get(key).is_some_and(|answer| answer.is_fresh(self.now, mode, at_most)) {
            self.count(waiter.client, |report| report.hits += 1);
            if let Some(resource) = self.polling.resource(path) {
                let outdated = self.polling.outdated_for(resource, shown, self.now);
                self.report.tally.add_hit(outdated, at_most);
            }
            self.served(waiter, Duration::ZERO);
            return true;
        }
        let fetching = fetching.filter(|_| self.plan.rules.is_ours());
        let Some(job) = fetching.and_then(|job| self.jobs.get_mut(&job)) else { return false };
        job.waiters.push(waiter);
        true
    }

    /// Submits a job to the core and carries out the decision.
    pub(super) fn admit(&mut self, id: u64) -> Result<(), Unplayable> {
        let Some(job) = self.jobs.get(&id) else { return Ok(()) };
        let demand = self.demand(job);
        let replica = job.replica;
        let (now, deadline) = (self.local(replica), self.shifted(replica, job.deadline, true));
        match self.replicas[replica].admission.request(now, demand, deadline) {
            Decision::Granted(grant) => self.send(id, grant)?,
            Decision::Refused(refusal) => self.refused(id, &refusal),
            Decision::Waiting { ticket, .. } => {
                self.replicas[replica].by_ticket.insert(ticket, id);
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.ticket = Some(ticket);
                }
            }
        }
        Ok(())
    }

    fn demand(&self, job: &Job) -> Demand {
        let own = &self.replicas[job.replica];
        let (route, ledger) = (&job.route, own.admission.ledger());
        let stored = job.key.as_ref().and_then(|key| own.store.get(key));
        let prefer = stored
            .and_then(|answer| answer.stored.preferred_token())
            .map(|TokenKey(token)| AccountId(u32::try_from(token).unwrap_or(0)));
        Demand {
            client: ClientId(u32::try_from(job.client).unwrap_or(u32::MAX)),
            held_bytes: job.body.len() as u64,
            candidates: route.candidates.clone(),
            prefer,
            resource: ledger.resource_for(route.endpoint.id, &route.endpoint.resource),
            endpoint: route.endpoint.id,
            cost: route.endpoint.primary_cost,
            unproven: 0,
            points: route.points,
            graphql: route.graphql,
            content: route.endpoint.content_generating,
            token_request: route.token_request,
            write: route.spacing,
        }
    }

    /// Handles a denial by the core.
    pub(super) fn refused(&mut self, id: u64, refusal: &LimitDenied) {
        let Some(job) = self.close(id) else { return };
        let until = match refusal.until {
            Until::Time(until) => self.global(job.replica, until),
            Until::Event => self.now + Duration::from_secs(1),
        };
        self.narration.log(self.now, || {
            format!(
                "we refuse {} {} for {} until {}",
                job.method,
                job.path,
                refusal.limit.name(),
                super::narration::clock(until)
            )
        });
        for waiter in job.waiters {
            self.deny(waiter, refusal.limit, until);
        }
    }

    fn deny(&mut self, waiter: Waiter, limit: LimitKind, until: Timestamp) {
        self.report.course.was_refused(self.now.since(BEGINNING));
        self.count(waiter.client, |report| *report.refused.entry(limit.name()).or_default() += 1);
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
        let Some(ticket) = job.ticket else { return };
        let now = self.local(job.replica);
        let own = &mut self.replicas[job.replica];
        if own.by_ticket.remove(&ticket).is_some() {
            own.admission.abandon(now, ticket);
            self.end(id, |report| report.gave_up += 1);
        }
    }
}
