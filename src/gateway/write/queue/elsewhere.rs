//! The writes of other replicas: looked up, cancelled and awaited here (SPECIFICATION, "Several
//! replicas"). Left out: those of a replica that is gone (`takeover`).

use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;

use crate::state::WriteNews;
use crate::writes::{Progress, SharedStore, StoreError, Write, WriteId, WriteState};

use crate::gateway::write::queue::accept::{Accepted, NotAccepted};
use crate::gateway::write::queue::live::{Size, WriteGroup};
use crate::gateway::write::queue::operator_actions::{Listed, NotChanged, cancelled};
use crate::gateway::write::queue::write_queue::Queue;

/// The distance of looks at a write of another replica, unless it is heard of. Ours: a message that
/// is lost costs a client a second.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Queue {
    /// True if the store takes new writes: a shared one was reached.
    pub fn is_open(&self) -> bool {
        self.store.shared().is_none_or(SharedStore::is_open)
    }

    /// True if this replica has the write, or has had it to its end.
    pub(super) fn is_here(&self, id: WriteId) -> bool {
        self.store.shared().is_none() || self.write_status(id).is_some()
    }

    /// The state of a write of any replica.
    pub async fn state_of(&self, id: WriteId) -> Result<Option<WriteState>, StoreError> {
        match self.write_status(id) {
            Some(status) => Ok(Some(status.state)),
            None => Ok(self.look_elsewhere(id).await?.map(|listed| listed.progress.state)),
        }
    }

    pub(super) async fn look_elsewhere(&self, id: WriteId) -> Result<Option<Listed>, StoreError> {
        let Some(shared) = self.store.shared() else { return Ok(None) };
        let loaded = self.load(id.number).await?;
        if loaded.is_none() && shared.has_just_lost() {
            return Err(StoreError::Failed("Redis has lost it, and may get it again".to_owned()));
        }
        Ok(loaded.map(|(listed, _)| listed).filter(|listed| listed.write.id == id))
    }

    /// Waits until a write of another replica has ended, or is gone.
    pub(super) async fn ended_elsewhere(&self, id: WriteId) {
        let Some(shared) = self.store.shared() else { return };
        let mut news = shared.news();
        loop {
            match self.look_elsewhere(id).await {
                Ok(Some(listed)) if !listed.progress.state.is_final() => {}
                Ok(_) => return,
                // Redis is away: its end is not known yet.
                Err(_) => self.clock.reach(self.clock.now() + LOOK_EVERY).await,
            }
            let next_look = self.clock.reach(self.clock.now() + LOOK_EVERY);
            tokio::pin!(next_look);
            loop {
                tokio::select! {
                    heard = news.recv() => match heard {
                        Ok(WriteNews::Ended(number)) if number == id.number => break,
                        Ok(_) => {}
                        Err(RecvError::Lagged(_)) => break,
                        Err(RecvError::Closed) => return,
                    },
                    () = &mut next_look => break,
                }
            }
        }
    }

    /// Cancels a write that another replica has, if it is still queued.
    pub(super) async fn cancel_elsewhere(&self, id: WriteId, by: &str) -> Result<(), NotChanged> {
        let found = self.look_elsewhere(id).await?.ok_or(NotChanged::NoSuchWrite)?;
        let Some(shared) = self.store.shared() else { return Err(NotChanged::NoSuchWrite) };
        let now = self.clock.now();
        match shared.cancel(id.number, |progress| cancelled(progress, by, now)).await {
            Ok(()) => {
                let waited = now.since(found.write.accepted);
                self.metrics.write_ended(WriteState::Cancelled.name(), 0, waited);
                Ok(())
            }
            Err(StoreError::Elsewhere) => {
                let state = self.state_of(id).await?;
                Err(state.map_or(NotChanged::NoSuchWrite, NotChanged::State))
            }
            Err(fault) => Err(NotChanged::Store(fault)),
        }
    }

    /// Takes a finished write from the replica that had it.
    pub(super) async fn take_from_elsewhere(
        &self,
        group: WriteGroup,
        write: &Write,
        progress: &Progress,
        size: Size,
    ) -> Result<(), NotChanged> {
        let Some(shared) = self.store.shared() else { return Err(NotChanged::NoSuchWrite) };
        if !shared.take(write.id.number).await? {
            return Err(NotChanged::State(progress.state));
        }
        let ended_at = progress.finished.unwrap_or(self.clock.now());
        self.finished(write, group, progress.state, ended_at, size);
        Ok(())
    }

    /// Finds the write of another replica that has the key of this one.
    pub(super) async fn accepted_elsewhere(
        &self,
        number: u64,
        meaning: [u8; 32],
        write: &Write,
        is_async: bool,
    ) -> Result<Accepted, NotAccepted> {
        if write.key.is_none_or(|key| key.meaning != meaning) {
            return Err(NotAccepted::KeyTaken);
        }
        let gone = || NotAccepted::Store(StoreError::Failed("its first request has failed".into()));
        let loaded = self.load(number).await.map_err(NotAccepted::Store)?;
        let (Listed { write, progress }, _) = loaded.ok_or_else(gone)?;
        if let Some(shared) = self.store.shared()
            && (is_async || progress.has_waiter)
        {
            shared.join(number);
        }
        Ok(Accepted { id: write.id, watched: None, request_progress: None })
    }

    /// Leaves what is queued here to the other replicas.
    pub async fn leave(&self) {
        if let Some(shared) = self.store.shared()
            && let Err(fault) = shared.end().await
        {
            tracing::debug!(error = %fault, "the other replicas find queued writes later");
        }
    }

    /// Gives up a write that another replica has, or that has ended there. What is on its way goes
    /// on to its end.
    pub(in crate::gateway::write) fn lost(&self, number: u64) {
        let inner = &mut *self.inner.lock();
        inner.unkept.remove(&number);
        let Some(mut live) = inner.take_live(number) else { return };
        self.end_turn_wait(&mut live);
        inner.forget_key(live.group.client, live.key.as_deref().map(|key| key.name), number);
        self.dispatch.lock().withdraw(&live.group, number);
        live.notify_waiters();
        if live.run.on_wire.is_none()
            && let Some(running) = &live.run.task
        {
            running.abort();
        }
    }
}
