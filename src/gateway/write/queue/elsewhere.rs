//! The writes of other replicas: looked up, cancelled and awaited here, and taken over when their
//! replica is gone (SPECIFICATION, "Several replicas").

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

use crate::clock::Timestamp;
use crate::state::WriteNews;
use crate::writes::record::{Key, Unreadable};
use crate::writes::shared::{Event, Place};
use crate::writes::{
    Change, Progress, SharedStore, StoreError, Stored, Write, WriteId, WriteState,
};

use crate::gateway::write::queue::accept::{Accepted, NotAccepted};
use crate::gateway::write::queue::live::{Size, WriteGroup};
use crate::gateway::write::queue::operator_actions::{Listed, NotChanged, cancelled};
use crate::gateway::write::queue::write_queue::{PATIENCE, Queue, STORE_PAUSE};
use crate::gateway::write::recovery::Recovery;
use crate::gateway::write::turns::{Turns, shared_lane};
use crate::gateway::write::writes::Writes;

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
        if self.store.shared().is_none() {
            return Ok(None);
        }
        let loaded = self.load(id.number).await?;
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
                // What it became is not known yet.
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

    /// Follows what happens in the store of all replicas, for the life of the gateway.
    pub(in crate::gateway::write) async fn follow(
        self: Arc<Self>,
        turns: Arc<Turns>,
        current: impl Fn() -> Option<Arc<Writes>> + Send + Sync,
        mut events: mpsc::UnboundedReceiver<Event>,
    ) {
        while let Some(event) = events.recv().await {
            match event {
                Event::Turn(number) => turns.call_shared(number),
                Event::Lost(number) => self.lost(number),
                Event::Joined(number) => self.joined_elsewhere(number),
                Event::Adopted(numbers) => {
                    for number in numbers {
                        let loaded = self.load_adopted(number).await;
                        let Some(writes) = current() else { return };
                        if let Some((stored, is_joined)) = loaded {
                            self.adopt(&writes, number, stored, is_joined);
                        }
                    }
                }
            }
        }
    }

    /// Loads a write that this replica has taken over; `None`: it is gone.
    async fn load_adopted(&self, number: u64) -> Option<(Stored, bool)> {
        let shared = self.store.shared()?;
        loop {
            match shared.load_adopted(number).await {
                Ok(stored) => return stored,
                Err(fault) => {
                    tracing::warn!(write = number, error = %fault, "a write of another replica could not be read, and is tried again");
                    self.clock.reach(self.clock.now() + STORE_PAUSE).await;
                }
            }
        }
    }

    /// Takes up a write. One that a client of another replica was promised has no waiter any more.
    fn adopt(self: &Arc<Self>, writes: &Writes, number: u64, stored: Stored, is_joined: bool) {
        if self.inner.lock().live.contains_key(&number) {
            return;
        }
        let mut recovery = Recovery::default();
        let taken = promised(stored, is_joined, self.clock.now() + PATIENCE);
        match taken.and_then(|stored| recovery.take(number, &stored)) {
            Ok(()) => {
                self.metrics.write_taken_over();
                self.recover(writes, recovery);
            }
            Err(fault) => {
                tracing::error!(write = number, error = %fault, "a write of another replica cannot be read");
            }
        }
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

    /// Makes a write asynchronous, because a client of another replica was promised it.
    fn joined_elsewhere(&self, number: u64) {
        let inner = &mut *self.inner.lock();
        let Some(live) = inner.live.get_mut(&number) else { return };
        if live.waiters.synchronous.take().is_none() {
            return;
        }
        live.progress.has_waiter = false;
        live.progress.deadline = live.progress.deadline.max(self.clock.now() + PATIENCE);
        let encoded = live.latest().encode();
        // If this fails, the next progress has it.
        drop(self.store.apply(Change::Progress(number, encoded)));
        if !live.is_ending() {
            self.restart_off_wire(inner, number);
        }
    }
}

/// The write with its progress as that of an asynchronous one, if it was promised.
fn promised(stored: Stored, is_joined: bool, until: Timestamp) -> Result<Stored, Unreadable> {
    if !is_joined {
        return Ok(stored);
    }
    let progress = Progress::decode(&stored.progress)?;
    if !progress.has_waiter {
        return Ok(stored);
    }
    let progress = Progress { has_waiter: false, deadline: until, ..progress };
    Ok(Stored { progress: progress.encode(), ..stored })
}

/// The place of a write among those of all replicas.
pub(super) fn place_of(write: &Write, lane: &str) -> Place {
    let key = write.key.map(|Key { name, meaning }| (hex(&name), meaning));
    let (key, meaning) = key.unwrap_or_default();
    Place {
        lane: shared_lane(&write.client, lane),
        key: if key.is_empty() { key } else { format!("{}:{key}", write.client) },
        meaning,
    }
}

fn hex(digest: &[u8]) -> String {
    use std::fmt::Write as _;
    digest.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
