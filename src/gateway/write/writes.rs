//! A write, waiting for its answer: its turn in the lane, admission, sending, and what becomes
//! stale (DESIGN D7).
//!
//! Once its first byte may have left, a write is brought to its end whether or not the client
//! stays: the books, the lane and the cache need the truth. Writes that are accepted without
//! somebody waiting come through here too, from `queue/`.

use std::sync::Arc;

use crate::api::ResourceName;
use crate::decision::{AccountId, LimitDenied, LimitKind, Until, WriteSpacing};

use crate::gateway::cache::read_cache::ReadCache;
use crate::gateway::dispatch::answer::Answer;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::dispatch::job::{Job, Unconditional};
use crate::gateway::dispatch::progress::{Hold, RequestProgress};
use crate::gateway::environment::Environment;
use crate::gateway::error::GatewayError;
use crate::gateway::request::router::Router;
use crate::gateway::write::queue::Queue;
use crate::gateway::write::turns::Turn;
use crate::gateway::write::turns::Turns;

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

    /// Writes in their lanes.
    pub fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    /// Writes that were accepted.
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }
}

impl Writes {
    /// Takes a place in the lane of the written resource; the caller has the whole body.
    pub fn take_turn(&self, client: u32, job: &Job) -> Result<Turn, GatewayError> {
        self.turns.enter(client, &job.route.lane).map_err(|_| {
            self.dispatcher.queue_full(&job.route.view, job.route.endpoint.resource.clone())
        })
    }

    /// Waits for the turn, at most until the job's deadline.
    pub async fn come_to_turn(
        &self,
        turn: &mut Turn,
        job: &Job,
        request_progress: &RequestProgress,
    ) -> Result<(), GatewayError> {
        let waiting = self.dispatcher.waits(job.client, request_progress);
        request_progress.held(self.env.clock.now(), Hold::TURN);
        let came = tokio::select! {
            // First: who will not wait at all is not refused for it when there is nothing to wait
            // for.
            biased;
            () = turn.come() => true,
            () = self.env.wait_until(job.deadline) => false,
        };
        drop(waiting);
        if came {
            return Ok(());
        }
        Err(self.turn_did_not_come(
            &job.route.view,
            job.route.endpoint.resource.clone(),
            job.route.spacing,
            turn.ahead(),
        ))
    }

    /// The refusal of a write that had so many before it until its time was over. They are written
    /// one after the other, so that coming back earlier would be in vain.
    pub fn turn_did_not_come(
        &self,
        view: &Arc<[AccountId]>,
        resource: ResourceName,
        spacing: WriteSpacing,
        ahead: usize,
    ) -> GatewayError {
        let writes = &self.env.config.writes;
        let spacing = if spacing == WriteSpacing::Notifies {
            writes.spacing.max(writes.notify_spacing)
        } else {
            writes.spacing
        };
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX).max(1);
        let until = Until::Time(self.env.clock.now() + spacing.saturating_mul(ahead));
        self.dispatcher.limited_for(
            view,
            &LimitDenied { limit: LimitKind::Spacing, account: None, resource, until },
        )
    }

    /// Waits for the turn, then performs the write. To be run as a task of its own: dropping the
    /// future before anything was sent gives all back.
    pub async fn write(
        self: Arc<Self>,
        mut turn: Turn,
        job: Job,
        request_progress: RequestProgress,
    ) -> Result<Answer, GatewayError> {
        self.come_to_turn(&mut turn, &job, &request_progress).await?;
        let answer = self.carry(&job, &request_progress).await;
        // The next write of the lane, and whoever hears of this one, must find the cache told.
        drop(turn);
        answer
    }

    /// Performs a write whose turn it is. The cache is told, however it ends.
    pub async fn carry(
        &self,
        job: &Job,
        request_progress: &RequestProgress,
    ) -> Result<Answer, GatewayError> {
        let _aftermath = Aftermath { cache: &self.cache, job, request_progress };
        let answer = self.dispatcher.perform(job, request_progress, &Unconditional).await;
        if let Ok(answer) = &answer {
            self.cache.invalidate_named(job, answer);
        }
        answer
    }
}

/// Makes stale what a write may have changed, however its attempt ends: also when the outcome is
/// unknown, and when its task is aborted.
pub struct Aftermath<'w> {
    /// Whose cache.
    pub cache: &'w ReadCache,
    /// The write.
    pub job: &'w Job,
    /// Whether it was sent.
    pub request_progress: &'w RequestProgress,
}

impl Drop for Aftermath<'_> {
    fn drop(&mut self) {
        if self.request_progress.was_sent() {
            self.cache.invalidate(self.job);
        }
    }
}
