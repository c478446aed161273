//! A write with a waiting client: turn, admission, sending, invalidation (SPECIFICATION D7).
//!
//! Once its first byte may have left, a write runs to its end even without its client. The quota
//! ledger, the lane and the cache need the outcome. Queued writes come through here too.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::decision::{ClientId, LimitKind};

use crate::gateway::cache::after_write::Names;
use crate::gateway::cache::read_cache::ReadCache;
use crate::gateway::dispatch::answer::UpstreamAnswer;
use crate::gateway::dispatch::breaker::CircuitBreaker;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::dispatch::job::{Job, Unconditional};
use crate::gateway::dispatch::progress::{HeldBy, Hold, RequestProgress};
use crate::gateway::dispatch::route::Route;
use crate::gateway::environment::Environment;
use crate::gateway::error::GatewayError;
use crate::gateway::request::router::Router;
use crate::gateway::write::queue::{Queue, Watched};
use crate::gateway::write::turns::{Performed, Turn, Turns};
use crate::writes::record::Response;
use crate::writes::{StoreError, WriteId, WriteState};

/// Writes under one config: their lanes, and the queue of those that were accepted.
pub struct Writes {
    pub(super) env: Arc<Environment>,
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) router: Arc<Router>,
    pub(super) cache: Arc<ReadCache>,
    pub(super) turns: Arc<Turns>,
    pub(super) queue: Arc<Queue>,
}

impl Writes {
    /// Builds the writes of one config over the lanes and the queue, which outlive it.
    pub fn new(
        env: &Arc<Environment>,
        router: &Arc<Router>,
        cache: &Arc<ReadCache>,
        turns: Arc<Turns>,
        queue: Arc<Queue>,
    ) -> Arc<Self> {
        Arc::new(Self {
            env: Arc::clone(env),
            dispatcher: Arc::clone(router.dispatcher()),
            router: Arc::clone(router),
            cache: Arc::clone(cache),
            turns,
            queue,
        })
    }

    pub fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Takes a place in the lane of the written resource.
    pub fn take_turn(&self, client: u32, job: &Job) -> Result<Turn, GatewayError> {
        let config = self.env.config.clients.get(client as usize);
        let name = config.map_or("", |client| &client.name);
        let turn = self.turns.enter_as(client, name, &job.route.lane).map_err(|_| {
            let (client, route) = job.client_route();
            self.dispatcher.queue_full(client, &route.view, route.endpoint.resource.clone())
        })?;
        if self.env.is_draining() {
            self.queue.resume_for_clients();
        }
        Ok(turn)
    }

    pub async fn wait_for_turn(
        &self,
        turn: &mut Turn,
        job: &Job,
        request_progress: &RequestProgress,
    ) -> Result<(), GatewayError> {
        let since = self.env.clock.now();
        let waiting = self.dispatcher.waits(job.client, request_progress);
        request_progress.held(self.env.clock.moment(), Hold::TURN);
        let came = tokio::select! {
            // First: a deadline in the past must not fail a write whose turn has come.
            biased;
            () = turn.wait() => Ok(()),
            outage = self.dispatcher.breaker(job).opened() => {
                Err(GatewayError::UpstreamDown(outage))
            }
            () = self.env.wait_until(job.deadline) => {
                let is_away = || self.env.replica.as_ref()?.home().away();
                if self.turns.are_shared() && is_away().is_some() {
                    Err(GatewayError::StateAway)
                } else {
                    Err(self.turn_did_not_come(job.client, &job.route, turn.ahead(), since))
                }
            }
        };
        drop(waiting);
        came
    }

    /// The error of a write whose turn did not come in time. Its `Retry-After` covers the writes
    /// before it, because they run one after the other, and those of others on the account. A write
    /// before it that got no answer is no limit.
    pub fn turn_did_not_come(
        &self,
        client: u32,
        route: &Route,
        ahead: usize,
        since: Timestamp,
    ) -> GatewayError {
        let head = self.turns.silent_head(client, &route.lane, self.env.clock.now(), since);
        let client = ClientId(client);
        if head.is_some_and(|head| self.awaits_answers(&head, client, route, since)) {
            return GatewayError::UpstreamTimeout;
        }
        let spacing = self.dispatcher.distance(route);
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX).max(1);
        let turn = self.dispatcher.admissions().next_turn(&route.view, route.spacing);
        let until = turn + spacing.saturating_mul(ahead - 1);
        self.dispatcher.limited_until((client, route), LimitKind::Spacing, until)
    }

    /// True if a write waits for the answer to its request, or to those that hold it.
    fn awaits_answers(
        &self,
        head: &RequestProgress,
        client: ClientId,
        route: &Route,
        since: Timestamp,
    ) -> bool {
        match head.hold() {
            Some(hold @ Hold { by: HeldBy::Limit(limit), .. }) => {
                self.dispatcher.denied_by(limit, hold, (client, route), since).is_unanswered
            }
            _ => head.awaits_answer(),
        }
    }

    /// Waits for the turn, then performs the write. Run it as a task of its own: dropped before the
    /// first byte, it returns all it holds.
    pub async fn write(
        self: Arc<Self>,
        mut turn: Turn,
        job: Job,
        request_progress: RequestProgress,
    ) -> Result<UpstreamAnswer, GatewayError> {
        self.wait_for_turn(&mut turn, &job, &request_progress).await?;
        self.in_touch(&job).await?;
        let answer = self.perform_in_turn(&job, &request_progress).await;
        // Invalidation precedes the next write of the lane and this write's answer.
        drop(turn);
        answer
    }

    /// Waits until the other replicas can hear of this write.
    pub(super) async fn in_touch(&self, job: &Job) -> Result<(), GatewayError> {
        let Some(replica) = &self.env.replica else { return Ok(()) };
        tokio::select! {
            biased;
            () = replica.in_touch(|| self.env.clock.now()) => Ok(()),
            () = self.env.wait_until(job.deadline) => Err(GatewayError::StateAway),
        }
    }

    /// Performs a write after its turn has come. It invalidates stored answers in every outcome, in
    /// all replicas.
    pub async fn perform_in_turn(
        &self,
        job: &Job,
        request_progress: &RequestProgress,
    ) -> Result<UpstreamAnswer, GatewayError> {
        let answer = self.perform_here(job, request_progress).await;
        self.cache.all_noted().await;
        answer
    }

    async fn perform_here(
        &self,
        job: &Job,
        request_progress: &RequestProgress,
    ) -> Result<UpstreamAnswer, GatewayError> {
        let mut invalidation = InvalidationGuard::new(&self.cache, job, request_progress);
        let now = || self.env.clock.now();
        let performed = self.turns.perform(job.client, &job.route.lane, request_progress, now());
        let answer = self.dispatcher.perform(job, request_progress, &Unconditional).await;
        match &answer {
            Ok(answer) => {
                performed.answered(now());
                invalidation.answered(answer);
                invalidation.named(self.cache.invalidate_named(job, answer));
            }
            Err(_) => self.note_loss(&performed, request_progress),
        }
        answer
    }

    /// Notes the end of a performed write without an answer, unless something else than the wait
    /// for one ended it.
    pub(super) fn note_loss(&self, performed: &Performed, request_progress: &RequestProgress) {
        let figures = request_progress.figures(self.env.clock.moment());
        if figures.error.is_some() {
            performed.lost(self.env.clock.now(), figures.upstream);
        }
    }

    /// Waits until a queued write has ended, or until its turn can no longer come in time.
    pub async fn wait_for_outcome(
        &self,
        wait: SyncWait<'_>,
        client: u32,
        breaker: &CircuitBreaker,
        route: &Route,
        deadline: Timestamp,
    ) -> Result<Response, GatewayError> {
        let (id, since) = (wait.id, self.env.clock.now());
        let ended = self.queue.ended(id);
        tokio::pin!(ended);
        let not_sent = tokio::select! {
            biased;
            () = &mut ended => None,
            outage = breaker.opened() => Some(GatewayError::UpstreamDown(outage)),
            () = self.env.wait_until(deadline) => {
                Some(self.turn_did_not_come(client, route, self.queue.ahead(id), since))
            }
        };
        if let Some(error) = not_sent {
            if self.queue.state_of(id).await.map_err(not_readable)? == Some(WriteState::Queued) {
                return Err(error);
            }
            // The write is on its way.
            ended.await;
        }
        let error = wait.watched.as_ref().and_then(|watched| watched.refused.lock().clone());
        if let Some(error) = error {
            return Err(error);
        }
        let announced = wait.watched.as_ref().and_then(|watched| watched.outcome.lock().clone());
        let progress = if let Some(progress) = announced {
            progress
        } else {
            let kept = self.queue.outcome(id).await.map_err(not_readable)?;
            kept.ok_or(GatewayError::NotReadable)?
        };
        match (progress.state, progress.response, progress.reason) {
            (WriteState::Done | WriteState::Failed, Some(response), _) => Ok(*response),
            (WriteState::Unknown, ..) => Err(GatewayError::OutcomeUnknown),
            (_, _, Some(reason)) => Err(GatewayError::Ended(reason)),
            _ => Err(GatewayError::OutcomeUnknown),
        }
    }
}

/// Guard: counts as one waiter of a write until it is dropped.
pub struct SyncWait<'q> {
    pub queue: &'q Arc<Queue>,
    pub id: WriteId,
    pub watched: Option<Arc<Watched>>,
}

impl Drop for SyncWait<'_> {
    fn drop(&mut self) {
        self.queue.left(self.id);
    }
}

/// Guard: invalidates all that a write may have changed, whatever its outcome.
pub struct InvalidationGuard<'w> {
    cache: &'w ReadCache,
    job: &'w Job,
    request_progress: &'w RequestProgress,
    is_void: bool,
    names: Names,
}

impl<'w> InvalidationGuard<'w> {
    pub fn new(cache: &'w ReadCache, job: &'w Job, request_progress: &'w RequestProgress) -> Self {
        cache.store().log.mark.write_begins();
        Self { cache, job, request_progress, is_void: false, names: Names::Paths }
    }

    /// Notes what the answer names of the things that the write changed.
    pub fn named(&mut self, names: Names) {
        self.names = names;
    }

    /// Takes the answer into account: for a plain HTTP cache an error has changed nothing (RFC 9111
    /// §4.4), unless an earlier attempt may have been executed.
    pub fn answered(&mut self, answer: &UpstreamAnswer) {
        let is_error = answer.status.is_client_error() || answer.status.is_server_error();
        self.is_void = is_error
            && self.cache.is_plain()
            && self.job.journal.is_none()
            && self.request_progress.attempts() == 1;
    }
}

impl Drop for InvalidationGuard<'_> {
    fn drop(&mut self) {
        if self.request_progress.was_sent() && !self.is_void {
            self.cache.invalidate(self.job, self.names);
        }
        self.cache.store().log.mark.write_ended();
    }
}

#[expect(clippy::needless_pass_by_value, reason = "what `map_err` hands over")]
pub fn not_readable(fault: StoreError) -> GatewayError {
    tracing::error!(error = %fault, "the status of a write could not be read");
    GatewayError::NotReadable
}
