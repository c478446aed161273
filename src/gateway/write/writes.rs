//! A write, waiting for its answer: its turn in the lane, admission, sending, and what becomes
//! stale (DESIGN D7).
//!
//! Once its first byte may have left, a write is brought to its end whether or not the client
//! stays: the books, the lane and the cache need the truth. Writes that are accepted without
//! somebody waiting come through here too, from `queue/`.

use std::sync::Arc;
use std::time::Duration;

use crate::api::ResourceName;
use crate::decision::{AccountId, LimitKind, Refusal, Until, WriteSpacing};

use crate::gateway::Gateway;
use crate::gateway::dispatch::answer::Answer;
use crate::gateway::dispatch::job::{Job, Unconditional};
use crate::gateway::dispatch::progress::{Effort, Hold};
use crate::gateway::error::Refused;
use crate::gateway::write::turns::Turn;

/// When a client may try again that found the queue full. Ours: a queue of writes that are a second
/// apart moves that fast.
const QUEUE_FULL_PAUSE_MIN: Duration = Duration::from_secs(1);

impl Gateway {
    /// Takes a place in the lane of the written resource; the caller has the whole body.
    pub fn take_turn(&self, client: u32, lane: &str, job: &Job) -> Result<Turn, Refused> {
        self.turns
            .enter(client, lane)
            .map_err(|_| self.queue_full(&job.view, job.endpoint.resource.clone()))
    }

    /// Waits for the turn, at most until the job's deadline.
    pub async fn come_to_turn(
        &self,
        turn: &mut Turn,
        job: &Job,
        effort: &Effort,
    ) -> Result<(), Refused> {
        let waiting = self.waits(job.client, effort);
        effort.held(self.clock.now(), Hold::TURN);
        let came = tokio::select! {
            // First: who will not wait at all is not refused for it when there is nothing to wait
            // for.
            biased;
            () = turn.come() => true,
            () = self.wait_until(job.deadline) => false,
        };
        drop(waiting);
        if came {
            return Ok(());
        }
        Err(self.turn_did_not_come(
            &job.view,
            job.endpoint.resource.clone(),
            job.spacing,
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
    ) -> Refused {
        let writes = &self.config.writes;
        let spacing = if spacing == WriteSpacing::Notifies {
            writes.spacing.max(writes.notify_spacing)
        } else {
            writes.spacing
        };
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX).max(1);
        let until = Until::Time(self.clock.now() + spacing.saturating_mul(ahead));
        self.limited_for(
            view,
            &Refusal { limit: LimitKind::Spacing, account: None, resource, until },
        )
    }

    /// As many writes wait as may, in number or in bytes.
    pub fn queue_full(&self, view: &Arc<[AccountId]>, resource: ResourceName) -> Refused {
        let view = self.admissions.view(view, &resource).0;
        let until = self.clock.now() + self.config.writes.spacing.max(QUEUE_FULL_PAUSE_MIN);
        Refused::Limited { limit: LimitKind::QueueFull, until, resource, view }
    }

    /// Waits for the turn, then performs the write. To be run as a task of its own: dropping the
    /// future before anything was sent gives all back.
    pub async fn write(
        self: Arc<Self>,
        mut turn: Turn,
        job: Job,
        effort: Effort,
    ) -> Result<Answer, Refused> {
        self.come_to_turn(&mut turn, &job, &effort).await?;
        let answer = self.carry(&job, &effort).await;
        // The next write of the lane, and whoever hears of this one, must find the cache told.
        drop(turn);
        answer
    }

    /// Performs a write whose turn it is. The cache is told, however it ends.
    pub async fn carry(self: &Arc<Self>, job: &Job, effort: &Effort) -> Result<Answer, Refused> {
        let _aftermath = Aftermath { gateway: self, job, effort };
        let answer = self.perform(job, effort, &Unconditional).await;
        if let Ok(answer) = &answer {
            self.invalidate_named(job, answer);
        }
        answer
    }
}

/// Makes stale what a write may have changed, however its attempt ends: also when the outcome is
/// unknown, and when its task is aborted.
pub struct Aftermath<'w> {
    /// Whose cache.
    pub gateway: &'w Gateway,
    /// The write.
    pub job: &'w Job,
    /// Whether it was sent.
    pub effort: &'w Effort,
}

impl Drop for Aftermath<'_> {
    fn drop(&mut self) {
        if self.effort.was_sent() {
            self.gateway.invalidate(self.job);
        }
    }
}
