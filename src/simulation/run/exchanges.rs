//! The exchange with the upstream: sending, latency, loss, and settlement.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode};

use super::{Event, Run, place_of};
use crate::api::headers::RATE_RESET;
use crate::api::{
    RateHeaders, ResourceName, UpstreamLimit, UpstreamLimitKind, rate_reset, upstream_limit,
};
use crate::clock::Timestamp;
use crate::decision::retry::Failure;
use crate::decision::{AccountId, Grant, LeaseId, Settlement};
use crate::emulator::RequestId;
use crate::simulation::Unplayable;
use crate::simulation::plan::{BEGINNING, Order};
use crate::simulation::truth::Kind;
use crate::simulation::upstream::{PEER, Sender};

/// Percentage of lost exchanges that are lost before the upstream: never executed, which the
/// gateway cannot know.
const LOST_BEFORE: f64 = 20.0;
/// Percentage of lost answers that are noticed at once, by a closed connection; the others take
/// [`TIMEOUT`].
const MISSED_AT_ONCE: f64 = 50.0;
/// Default of `upstream.response_timeout`.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Percentage of slow messages in a shuffled network.
const SLOW: f64 = 5.0;
/// Path of another consumer's requests.
const OUTSIDERS_PATH: &str = "/users/dan";

/// A request between sending and settlement.
#[derive(Debug)]
pub(super) struct Exchange {
    /// `None` for another consumer's request.
    job: Option<(u64, LeaseId)>,
    pub(super) replica: usize,
    /// The replica that sent it, which may be gone.
    sender: u64,
    account: AccountId,
    request: Request<Bytes>,
    kind: Kind,
    sent_at: Timestamp,
    /// Number at the emulator.
    number: Option<RequestId>,
    answer: Option<UpstreamResponse>,
    delivery: Delivery,
    /// Polled resource, and its version when the request left.
    polled: Option<(usize, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    Answered,
    LostBefore,
    LostAfter,
}

#[derive(Debug)]
pub(super) struct UpstreamResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: Bytes,
    /// Versions of a polled resource: when the request left, and in the answer.
    pub versions: Option<(u64, u64)>,
}

impl Exchange {
    /// Creates the exchange of another consumer.
    fn new(account: AccountId, request: Request<Bytes>, kind: Kind, sent_at: Timestamp) -> Self {
        Self {
            job: None,
            replica: 0,
            sender: 0,
            account,
            request,
            kind,
            sent_at,
            number: None,
            answer: None,
            delivery: Delivery::Answered,
            polled: None,
        }
    }
}

impl Run<'_> {
    /// Sends a job on the granted account.
    pub(super) fn send(&mut self, id: u64, grant: Grant) -> Result<(), Unplayable> {
        let Some(job) = self.jobs.get_mut(&id) else { return Ok(()) };
        job.attempt += 1;
        job.ticket = None;
        let replica = job.replica;
        let place = place_of(grant.account);
        let stored = job.key.as_ref().and_then(|key| self.replicas[replica].store.get(key));
        let owner = Some(self.plan.rules.owner(grant.account));
        let validators = stored.and_then(|answer| answer.stored.validators(owner));
        let request = self.upstream.request(
            self.now,
            (place, Sender::Ours),
            (&job.method, &job.path, &job.body),
            validators.as_ref(),
        )?;
        let polled = self.polling.resource(&job.path);
        let polled = polled.map(|resource| (resource, self.polling.version(resource)));
        let route = &job.route;
        let kind = Kind {
            graphql: route.graphql,
            content: route.endpoint.content_generating,
            token_request: route.token_request,
        };
        let costs = route.endpoint.primary_cost > 0;
        let endpoint = route.endpoint;
        let ledger = self.replicas[replica].admission.ledger();
        let resource = ledger.resource_for(endpoint.id, &endpoint.resource);
        self.note_if_early(place, costs.then_some(&resource));
        let delivery = match self.network.percent(self.plan.network.lost_percent) {
            false => Delivery::Answered,
            true if self.network.percent(LOST_BEFORE) => Delivery::LostBefore,
            true => Delivery::LostAfter,
        };
        self.narration.log(self.now, || {
            format!(
                "sent on {place}: {} {} (lease {})",
                endpoint.method, endpoint.template, grant.lease.0
            )
        });
        let way = self.way();
        let exchange = self.number();
        let (after, event) = match delivery {
            Delivery::LostBefore => (TIMEOUT, Event::Missed(exchange)),
            _ => (way, Event::Arrives(exchange)),
        };
        self.event_queue.put(self.now + after, event);
        let job = Some((id, grant.lease));
        let sent = Exchange::new(grant.account, request, kind, self.now);
        let sender = self.replicas[replica].id;
        let sent = Exchange { job, replica, sender, delivery, polled, ..sent };
        self.exchanges.insert(exchange, sent);
        Ok(())
    }

    /// Passes the request to the emulator; its CPU time and a little more is the latency.
    pub(super) fn arrives(&mut self, id: u64) {
        let Some(exchange) = self.exchanges.get_mut(&id) else { return };
        let arrival = self.upstream.emulator.arrive(self.now, &exchange.request, PEER);
        exchange.number = Some(arrival.id);
        let (head, body) = arrival.response.into_parts();
        let versions = exchange
            .polled
            .map(|(resource, requested)| (requested, self.polling.version(resource)));
        exchange.answer =
            Some(UpstreamResponse { status: head.status, headers: head.headers, body, versions });
        let Some(entry) = self.upstream.emulator.latest() else { return };
        let (place, is_ours) = (place_of(exchange.account), exchange.job.is_some());
        if is_ours {
            let tally = &mut self.report.tally;
            tally.sent += 1;
            tally.not_modified += u64::from(entry.status == 304);
            tally.spent += u64::from(entry.cost);
            let since = self.now.since(BEGINNING);
            self.report.course.was_spent(since, entry.cost.into());
        }
        let truth = self.truth.get_mut(place);
        let has_begun =
            truth.is_some_and(|truth| truth.note(self.now, entry, exchange.kind, is_ours));
        let began = has_begun.then_some(entry.resource);
        if let Some(limit) = entry.refused {
            let lease = exchange.job.map(|(_, lease)| lease.0);
            let sender = if is_ours { "OUR request" } else { "somebody else's request" };
            self.narration.log(self.now, || format!("{sender} (lease {lease:?}) on {place} is REFUSED by the upstream: {limit}; {entry:?}"));
            if is_ours && limit != "fault" {
                let ledger = self.replicas[exchange.replica].admission.ledger();
                let snapshot = ledger.snapshot(self.now).into_iter().nth(place);
                self.narration.log(self.now, || format!("our books then: {snapshot:?}"));
                self.narration.mark_denial();
            }
        }
        let cpu = Duration::from_micros(if entry.executed { entry.cpu_micros } else { 0 });
        let (least, most) = self.plan.upstream.answers_millis;
        let takes = cpu + Duration::from_millis(self.network.between(least, most));
        self.event_queue.put(self.now + takes, Event::Finishes(id));
        if let Some(truth) = self.truth.get_mut(place).filter(|_| entry.executed) {
            truth.was_busy(takes.min((BEGINNING + self.plan.length).since(self.now)));
        }
        if let Some(resource) = began {
            self.window_begins(place, resource);
        }
    }

    fn window_begins(&mut self, place: usize, resource: &'static str) {
        let window = self.window(place, resource);
        if let (Some(window), Some(truth)) = (window, self.truth.get_mut(place)) {
            truth.window_began(&window);
            self.narration.log(self.now, || {
                format!(
                    "a window of {resource} begins for {} until {}",
                    truth.name,
                    super::narration::clock(window.reset)
                )
            });
            self.event_queue
                .put(window.reset - Duration::from_millis(1), Event::WindowEnds(place, resource));
        }
    }

    /// Sends the answer off.
    pub(super) fn finishes(&mut self, id: u64) {
        let way = self.way();
        let Some(exchange) = self.exchanges.get(&id) else { return };
        let Some(number) = exchange.number else { return };
        let emulator = &mut self.upstream.emulator;
        match exchange.delivery {
            Delivery::LostAfter => {
                emulator.abandon(self.now, number);
                let noticed = if self.network.percent(MISSED_AT_ONCE) {
                    self.now + way
                } else {
                    exchange.sent_at + TIMEOUT
                };
                self.event_queue.put(noticed.max(self.now), Event::Missed(id));
            }
            Delivery::Answered | Delivery::LostBefore => {
                emulator.finish(self.now, number);
                self.event_queue.put(self.now + way, Event::Returns(id));
            }
        }
        emulator.departed(number);
    }

    /// Settles a lost exchange as spent.
    pub(super) fn missed(&mut self, id: u64) -> Result<(), Unplayable> {
        let Some(Exchange { job: Some((job, lease)), replica, sender, sent_at, .. }) =
            self.exchanges.remove(&id)
        else {
            return Ok(());
        };
        if sender != self.replicas[replica].id {
            return Ok(());
        }
        self.report.lost += 1;
        self.narration.log(self.now, || format!("no answer came for lease {}", lease.0));
        let jitter = self.jitter.unit();
        let now = self.local(replica);
        let admission = &mut self.replicas[replica].admission;
        admission.settle(now, lease, Settlement::Unknown, jitter);
        self.was_away(job, sent_at);
        self.failed(job, Failure::Ambiguous)
    }

    /// Settles the lease of an answer, and passes its headers to the ledger.
    pub(super) fn returns(&mut self, id: u64) -> Result<(), Unplayable> {
        let Some(Exchange {
            job,
            replica,
            sender,
            account,
            sent_at,
            answer: Some(mut answer),
            kind,
            ..
        }) = self.exchanges.remove(&id)
        else {
            return Ok(());
        };
        let Some((job, lease)) = job else {
            self.outsider_heeds_limit(&answer);
            return Ok(());
        };
        if sender != self.replicas[replica].id {
            return Ok(());
        }
        self.wobble(&mut answer.headers);
        self.to_local_clock(replica, &mut answer.headers);
        let rate = RateHeaders::parse(&answer.headers);
        let may_refuse = kind.graphql
            || matches!(answer.status, StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS);
        let refusal = may_refuse
            .then(|| {
                upstream_limit(answer.status, &answer.headers, &answer.body, self.local(replica))
            })
            .flatten();
        self.narration.log(self.now, || {
            let shown =
                rate.as_ref().map(|rate| (rate.remaining, super::narration::clock(rate.reset)));
            format!(
                "lease {} answered {} with {shown:?}{}",
                lease.0,
                answer.status,
                if refusal.is_some() { ", a refusal" } else { "" }
            )
        });
        if let Some(refusal) = &refusal {
            self.record_retry_time(replica, place_of(account), refusal, rate.as_ref());
        }
        let jitter = self.jitter.unit();
        let settlement = Settlement::Answered {
            status: answer.status,
            rate: rate.as_ref(),
            refusal: refusal.as_ref(),
        };
        let now = self.local(replica);
        self.replicas[replica].admission.settle(now, lease, settlement, jitter);
        self.was_away(job, sent_at);
        if refusal.is_some() {
            self.report(replica, account);
            self.limited(job)
        } else {
            self.answer(job, account, &answer, sent_at)
        }
    }

    fn was_away(&mut self, job: u64, sent_at: Timestamp) {
        let away = self.now.since(sent_at);
        if let Some(job) = self.jobs.get_mut(&job) {
            job.away += away;
        }
    }

    /// Sends a request of another consumer, and schedules its next one.
    pub(super) fn outsider_sends(&mut self) -> Result<(), Unplayable> {
        let Some(outside) = self.plan.outside else { return Ok(()) };
        // The intervals of a Poisson process, as of many consumers together.
        let pause = outside.every.mul_f64(-(1.0 - self.network.unit()).ln());
        self.event_queue.put(self.now + pause.max(Duration::from_millis(1)), Event::Outsider);
        if self.now < self.outsider_waits_until {
            return Ok(());
        }
        self.report.outside.sent += 1;
        let request = self.upstream.request(
            self.now,
            (place_of(outside.account), Sender::Others),
            (&http::Method::GET, OUTSIDERS_PATH, &Bytes::new()),
            None,
        )?;
        let id = self.number();
        let kind = Kind { graphql: false, content: false, token_request: false };
        self.exchanges.insert(id, Exchange::new(outside.account, request, kind, self.now));
        let way = self.way();
        self.event_queue.put(self.now + way, Event::Arrives(id));
        Ok(())
    }

    /// Other consumers respect limits, too.
    fn outsider_heeds_limit(&mut self, answer: &UpstreamResponse) {
        let Some(refusal) = upstream_limit(answer.status, &answer.headers, &answer.body, self.now)
        else {
            return;
        };
        self.report.outside.refused += 1;
        let rate = RateHeaders::parse(&answer.headers);
        let until = named_by(self.now, &refusal, rate.as_ref());
        self.outsider_waits_until = self.outsider_waits_until.max(until);
    }

    /// Draws the latency of one direction.
    fn way(&mut self) -> Duration {
        let plan = &self.plan.network;
        let millis = match plan.order {
            Order::Kept => plan.least_millis,
            Order::Shuffled if self.network.percent(SLOW) => {
                self.network.between(plan.slow_millis.0, plan.slow_millis.1)
            }
            Order::Shuffled => plan.least_millis + self.network.below(plan.spread_millis),
        };
        Duration::from_millis(millis)
    }

    /// Distorts the reset of an answer by whole seconds, as in the header.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "a few seconds"
    )]
    fn wobble(&mut self, headers: &mut HeaderMap) {
        let most = self.plan.network.wobble.as_millis() as f64 / 1_000.0;
        let shift = ((self.network.unit() * 2.0 - 1.0) * most).round() as i64;
        let reset = headers.get(RATE_RESET);
        let reset = reset.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if let Some(reset) = reset.filter(|_| shift != 0) {
            headers.insert(RATE_RESET, HeaderValue::from(reset.saturating_add_signed(shift)));
        }
    }

    /// Converts the reset in an answer to the clock of the replica that has it, as a gateway does.
    fn to_local_clock(&self, replica: usize, headers: &mut HeaderMap) {
        if let Some(reset) = rate_reset(headers) {
            let reset = self.shifted(replica, reset, true).as_secs_ceil();
            headers.insert(RATE_RESET, HeaderValue::from(reset));
        }
    }

    /// Records the time until which an answer demands silence.
    fn record_retry_time(
        &mut self,
        replica: usize,
        place: usize,
        refusal: &UpstreamLimit,
        rate: Option<&RateHeaders>,
    ) {
        let until = self.global(replica, named_by(self.local(replica), refusal, rate));
        let Some(retry_times) = self.retry_times.get_mut(place) else { return };
        match (refusal.kind, &refusal.resource) {
            (UpstreamLimitKind::Secondary, _) => {
                retry_times.account_until = retry_times.account_until.max(until);
                self.silence_until = self.silence_until.max(until);
            }
            (UpstreamLimitKind::Primary, Some(resource)) => {
                retry_times.resources.retain(|(named, _)| named != resource);
                retry_times.resources.push((resource.clone(), until));
            }
            (UpstreamLimitKind::Primary, None) => {}
        }
    }

    /// Counts a request sent before the retry time of an answer: a broken promise.
    fn note_if_early(&mut self, place: usize, resource: Option<&ResourceName>) {
        let Some(retry_times) = self.retry_times.get(place) else { return };
        let mut resources = retry_times.resources.iter();
        let of_resource =
            resources.any(|(named, until)| Some(named) == resource && self.now < *until);
        if self.now < retry_times.account_until || of_resource {
            self.report.sent_too_early += 1;
            self.narration
                .log(self.now, || format!("SENT on {place} although we were told to wait"));
        } else if self.now < self.silence_until {
            self.report.sent_elsewhere_meanwhile += 1;
        }
    }
}

/// Returns the end of the silence that a denial demands (SPECIFICATION, "After a limit").
fn named_by(now: Timestamp, refusal: &UpstreamLimit, rate: Option<&RateHeaders>) -> Timestamp {
    let reset = refusal.reset.or(rate.map(|rate| rate.reset));
    let remaining = refusal.remaining.or(rate.map(|rate| rate.remaining));
    let retry_times = refusal.retry_after.map(|pause| now + pause);
    retry_times.max(reset.filter(|_| remaining == Some(0))).unwrap_or(now + Duration::from_secs(60))
}
