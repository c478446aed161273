//! The journal of a queued write: each attempt before its first byte, and each failure.
//!
//! After a crash, a write without a `sending` record was never sent (SPECIFICATION D7).

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::clock::Timestamp;
use crate::decision::retry::Patience;
use crate::writes::{Change, Progress, StoreError, WriteState};

use crate::gateway::active::Active;
use crate::gateway::dispatch::job::{Journal, MustNotBeSent, QueuedTerms};
use crate::gateway::write::queue::live::Live;
use crate::gateway::write::queue::write_queue::{Queue, STORE_PAUSE};

/// The journal of one run of a write.
pub struct QueueJournal {
    queue: Arc<Queue>,
    active: Arc<Active>,
    number: u64,
    run: u32,
    terms: QueuedTerms,
}

impl QueueJournal {
    pub(in crate::gateway::write) fn new(
        queue: &Arc<Queue>,
        active: &Arc<Active>,
        number: u64,
        live: &Live,
    ) -> Self {
        let Progress { attempts, may_have_run, .. } = live.progress;
        let patience =
            if live.waiters.synchronous.is_some() { Patience::Waiting } else { Patience::Queued };
        Self {
            queue: Arc::clone(queue),
            active: Arc::clone(active),
            number,
            run: live.run.number,
            terms: QueuedTerms { patience, attempts, may_have_run },
        }
    }

    pub(in crate::gateway::write) fn run(&self) -> u32 {
        self.run
    }

    fn back(
        &self,
        not_before: Timestamp,
        may_have_run: bool,
        unmade: u32,
    ) -> Option<BoxFuture<'static, Result<(), StoreError>>> {
        let inner = &mut *self.queue.inner.lock();
        let live = inner.live.get_mut(&self.number).filter(|live| !live.is_ending())?;
        live.run.on_wire = None;
        live.progress.attempts = live.progress.attempts.saturating_sub(unmade);
        live.progress.not_before = not_before;
        live.progress.may_have_run |= may_have_run;
        // A write that may have been executed cannot be cancelled: `sending` until its end.
        if !live.progress.may_have_run {
            live.set_state(&mut inner.counts, self.number, WriteState::Queued);
        }
        live.notify_waiters();
        let kept = self.queue.store.apply(Change::Progress(self.number, live.progress.encode()));
        if live.run.is_overtaken {
            // The next attempt uses the current config.
            self.queue.restart(inner, self.number);
        }
        Some(kept)
    }
}

impl Journal for QueueJournal {
    fn terms(&self) -> QueuedTerms {
        self.terms
    }

    fn sending(&self) -> BoxFuture<'_, Result<(), MustNotBeSent>> {
        Box::pin(async move {
            // Counted before the check: a drain that begins in between waits for this attempt.
            let on_wire = self.active.enter();
            let storing = {
                let inner = &mut *self.queue.inner.lock();
                // A drain finishes only writes with a waiting client, and those ahead of them.
                let is_stopped = self.active.is_draining() && !inner.holds_up_client(self.number);
                let live = inner.live.get_mut(&self.number).ok_or(MustNotBeSent)?;
                let is_too_late = match live.waiters.synchronous {
                    None => is_stopped,
                    // A write that may have been executed continues without waiters.
                    Some(waiting) => waiting == 0 && live.progress.state == WriteState::Queued,
                };
                if live.is_ending() || is_too_late || live.run.number != self.run {
                    if is_stopped {
                        inner.stopped.push(self.number);
                    }
                    return Err(MustNotBeSent);
                }
                live.run.on_wire = Some(on_wire);
                let sending = live.progress.sending();
                live.set_state(&mut inner.counts, self.number, sending.state);
                live.progress = sending;
                live.notify_waiters();
                self.queue.store.apply(Change::Progress(self.number, live.progress.encode()))
            };
            let Err(fault) = storing.await else { return Ok(()) };
            if fault == StoreError::Elsewhere {
                tracing::info!(
                    write = self.number,
                    "a write is not sent: another replica has it, or it has ended"
                );
                return Err(MustNotBeSent);
            }
            tracing::error!(write = self.number, error = %fault, "a write is not sent while that cannot be kept");
            drop(self.back(self.queue.clock.now() + STORE_PAUSE, false, 1));
            Err(MustNotBeSent)
        })
    }

    fn failed(&self, not_before: Timestamp, may_have_run: bool) {
        // If this is not stored, a crash leaves the write as `sending`, which is safe.
        drop(self.back(not_before, may_have_run, 0));
    }
}
