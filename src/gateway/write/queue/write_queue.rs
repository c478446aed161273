//! The queue itself: its writes, their outcomes and their expiry.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use crate::clock::{Clock, Timestamp};
use crate::decision::writes::dispatch::Dispatch;
use crate::gateway::write::queue::live::{Finished, Inner, Live, Watched, WriteGroup, bytes_of};
use crate::gateway::write::queue::loaded::LoadedTexts;
use crate::telemetry::Metrics;
use crate::writes::{Change, Progress, Store, StoreError, WriteId, WriteState};

/// The writes of one group in the admission queue at once. Chosen here: more than an account sends
/// at a distance of a second. Ten thousand queued writes then need no ten thousand tasks.
pub(in crate::gateway::write) const AT_ONCE: NonZeroUsize = NonZeroUsize::MIN.saturating_add(15);
/// The longest wait of an accepted write. Chosen here: longer than any window of the upstream's
/// limits; an older write needs its author's attention.
pub const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);
/// The limit of remembered writes, nearly all finished. Chosen here: the writes of a hundred
/// accounts in a day, at a hundred bytes each.
pub(in crate::gateway::write) const KEPT_MAX: u64 = 1_000_000;
/// The pause after a failure of the store. Chosen here.
pub(in crate::gateway::write) const STORE_PAUSE: Duration = Duration::from_secs(5);
/// The finished writes that one store operation removes.
pub(in crate::gateway::write) const FORGOTTEN_AT_ONCE: usize = 1_000;

/// Memory for bodies from the store. Chosen here: twenty-five of the largest by default.
const CARRIED_BYTES_MAX: usize = 256 * 1024 * 1024;
const UNIT_BYTES: usize = 1024;

pub struct Queue {
    pub(in crate::gateway::write) store: Arc<dyn Store>,
    pub(in crate::gateway::write) clock: Clock,
    pub(in crate::gateway::write) retention: Duration,
    pub(in crate::gateway::write) metrics: Arc<Metrics>,
    pub(in crate::gateway::write) inner: Mutex<Inner>,
    /// The writes that may start. A lock of its own, taken after `inner`: a task that is dropped at
    /// shutdown may return its place while `inner` is locked.
    pub(in crate::gateway::write) dispatch: Mutex<Dispatch<WriteGroup>>,
    /// Memory for bodies from the store. It is not that of requests, which may wait for a write.
    carried: Arc<Semaphore>,
    /// Notified when a write may start.
    pub(in crate::gateway::write) startable: Notify,
    /// Notified when the next expiry moves forward.
    pub(in crate::gateway::write) expiring: Notify,
    /// Notified when the store of a predecessor was opened.
    pub(super) store_opened: Notify,
    /// Notified when an outcome could not be stored.
    pub(in crate::gateway::write) unkept: Notify,
    pub(super) loaded: LoadedTexts,
}

/// The status of a write.
#[derive(Clone, Debug)]
pub struct WriteStatus {
    /// Its identifier.
    pub id: WriteId,
    /// Its client's index in the config.
    pub client: u32,
    /// The state, also of a finished write.
    pub state: WriteState,
    /// Attempts and deadline; `None` once it has finished.
    pub progress: Option<Progress>,
}

impl Queue {
    pub fn new(
        store: Arc<dyn Store>,
        clock: Clock,
        retention: Duration,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            clock,
            retention,
            metrics,
            inner: Mutex::new(Inner { next_number: 1, ..Inner::default() }),
            dispatch: Mutex::new(Dispatch::new(AT_ONCE)),
            carried: Arc::new(Semaphore::new(CARRIED_BYTES_MAX / UNIT_BYTES)),
            startable: Notify::new(),
            expiring: Notify::new(),
            store_opened: Notify::new(),
            unkept: Notify::new(),
            loaded: LoadedTexts::default(),
        })
    }

    /// Waits for memory for a stored body; at most, it takes the whole memory.
    pub(in crate::gateway::write) async fn carry(
        &self,
        bytes: usize,
    ) -> Option<OwnedSemaphorePermit> {
        let units = bytes.min(CARRIED_BYTES_MAX).div_ceil(UNIT_BYTES);
        // The semaphore is never closed.
        Arc::clone(&self.carried).acquire_many_owned(u32::try_from(units).ok()?).await.ok()
    }

    /// True if accepted writes survive the process.
    pub fn is_durable(&self) -> bool {
        self.store.is_durable()
    }

    /// The number of writes in each state, without synchronous writes that have no key.
    pub fn counts(&self) -> [(WriteState, u64); WriteState::ALL.len()] {
        let inner = self.inner.lock();
        debug_assert_eq!(
            (&inner.counts, &inner.usage),
            (&inner.counted().0, &inner.counted().1),
            "a state was changed and not counted"
        );
        inner.counts.counts()
    }

    pub fn unfinished(&self) -> usize {
        self.inner.lock().live.len()
    }

    /// The number of live writes that had a waiter.
    pub fn watched(&self) -> usize {
        self.inner.lock().live.values().filter(|live| live.waiters.watched.is_some()).count()
    }

    /// The acceptance time of the oldest unfinished write.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.inner.lock().counts.oldest()
    }

    /// Returns the status of a write; `None` if there is no such write.
    pub fn write_status(&self, id: WriteId) -> Option<WriteStatus> {
        let inner = self.inner.lock();
        if let Some(live) = inner.kept(id) {
            let (client, progress) = (live.group.client, live.progress.clone());
            return Some(WriteStatus {
                id,
                client,
                state: progress.state,
                progress: Some(progress),
            });
        }
        let finished = inner.finished(id)?;
        Some(WriteStatus {
            id,
            client: finished.group.client,
            state: finished.state,
            progress: None,
        })
    }

    /// The number of writes before this one in its lane.
    pub fn ahead(&self, id: WriteId) -> usize {
        self.inner.lock().live.get(&id.number).map_or(0, |live| live.turn.ahead())
    }

    /// Returns the notifier of a write; `None` once it has finished.
    pub(in crate::gateway::write) fn watch(&self, number: u64) -> Option<Arc<Watched>> {
        let live = &mut self.inner.lock().live;
        live.get_mut(&number).map(|live| Arc::clone(live.waiters.watched.get_or_insert_default()))
    }

    pub async fn ended(&self, id: WriteId) {
        while let Some(watched) = self.watch(id.number) {
            // Registered before the check, so that no change is missed in between.
            let mut changed = std::pin::pin!(watched.changed.notified());
            changed.as_mut().enable();
            if self.write_status(id).is_none_or(|status| status.state.is_final()) {
                break;
            }
            changed.await;
        }
        if self.write_status(id).is_none() {
            self.ended_elsewhere(id).await;
        }
    }

    /// Ends a write with a final outcome, which is stored first and then announced. An outcome that
    /// cannot be stored is announced all the same and stored later. `None`: it has one already.
    pub(in crate::gateway::write) fn end(
        self: &Arc<Self>,
        inner: &mut Inner,
        number: u64,
        progress: Progress,
    ) -> Option<JoinHandle<()>> {
        let live = inner.live.get_mut(&number).filter(|live| !live.is_ending())?;
        let encoded = progress.encode();
        inner.usage.remove(live.group.client, live.size.all());
        live.size.progress = bytes_of(&encoded);
        inner.usage.add(live.group.client, live.size.all());
        let kept = self.store.apply(Change::Progress(number, encoded));
        self.metrics.write_ended(
            progress.state.name(),
            progress.attempts,
            self.clock.now().since(live.accepted),
        );
        live.ending = Some(Box::new(progress));
        self.end_turn_wait(live);
        let queue = Arc::clone(self);
        Some(tokio::spawn(async move {
            let kept = kept.await;
            if kept == Err(StoreError::Elsewhere) {
                return queue.lost(number);
            }
            if let Err(fault) = &kept {
                tracing::error!(write = number, error = %fault, "what became of a write could not be kept, and is tried again");
                queue.inner.lock().unkept.insert(number);
                queue.unkept.notify_one();
            }
            queue.announce(number, kept.is_ok());
        }))
    }

    /// Announces the state of a write to its waiters. A finished and stored write leaves its lane.
    pub(in crate::gateway::write) fn announce(&self, number: u64, is_kept: bool) {
        let inner = &mut *self.inner.lock();
        let Some(live) = inner.live.get_mut(&number) else { return };
        live.run.on_wire = None;
        // A crash could undo an unstored cancellation. Any other outcome has happened already.
        if !is_kept
            && live.ending.as_ref().is_some_and(|ending| ending.state == WriteState::Cancelled)
        {
            return;
        }
        if let Some(ending) = live.ending.take() {
            live.set_state(&mut inner.counts, number, ending.state);
            live.progress = *ending;
        }
        let watched = live.waiters.watched.clone();
        if let Some(watched) = &watched {
            *watched.outcome.lock() = Some(live.progress.clone());
        }
        let state = live.progress.state;
        if state.is_final()
            && is_kept
            && let Some(live) = inner.take_live(number)
        {
            let forgotten_at = live.progress.finished.unwrap_or(self.clock.now()) + self.retention;
            let finished = Finished {
                salt: live.salt,
                bytes: live.size.all(),
                group: live.group,
                state,
                key: live.key.map(|key| Box::new(key.name)),
            };
            inner.add_finished(number, finished, forgotten_at);
            if inner.expiry.first() == Some(&(forgotten_at, number)) {
                self.expiring.notify_one();
            }
        }
        if let Some(watched) = watched {
            watched.changed.notify_waiters();
        }
    }

    /// Removes expired writes for the life of the gateway.
    pub(in crate::gateway::write) async fn forget(self: Arc<Self>) {
        loop {
            let now = self.clock.now();
            let (old, next) = {
                let inner = &mut *self.inner.lock();
                let mut old = Vec::new();
                let is_old = |(at, _): &(Timestamp, u64)| *at <= now;
                while old.len() < FORGOTTEN_AT_ONCE && inner.expiry.first().is_some_and(is_old) {
                    old.extend(inner.expiry.pop_first().map(|(_, number)| number));
                }
                for number in &old {
                    let Some(finished) = inner.take_finished(*number) else { continue };
                    inner.forget_key(finished.group.client, finished.key.map(|key| *key), *number);
                }
                (old, inner.expiry.first().map(|(at, _)| *at))
            };
            if !old.is_empty() {
                let many = old.len();
                if let Err(fault) = self.store.apply(Change::Remove(old)).await {
                    // They return at the next start and expire then.
                    tracing::warn!(writes = many, error = %fault, "old writes could not be taken out of the store");
                }
                continue;
            }
            match next {
                Some(at) => tokio::select! {
                    () = self.clock.reach(at) => {}
                    () = self.expiring.notified() => {}
                },
                None => self.expiring.notified().await,
            }
        }
    }

    /// Retries to store outcomes for the life of the gateway.
    pub(in crate::gateway::write) async fn keep_unkept(self: Arc<Self>) {
        loop {
            self.unkept.notified().await;
            loop {
                self.clock.reach(self.clock.now() + STORE_PAUSE).await;
                let pending: Vec<_> = {
                    let inner = self.inner.lock();
                    let progress =
                        |number: &u64| Some((*number, inner.live.get(number)?.latest().encode()));
                    inner.unkept.iter().filter_map(progress).collect()
                };
                for (number, progress) in pending {
                    match self.store.apply(Change::Progress(number, progress)).await {
                        Ok(()) => {
                            self.inner.lock().unkept.remove(&number);
                            self.announce(number, true);
                        }
                        Err(StoreError::Elsewhere) => self.lost(number),
                        Err(_) => {}
                    }
                }
                if self.inner.lock().unkept.is_empty() {
                    break;
                }
            }
        }
    }

    /// Marks a stored write as ready if its turn has come.
    pub(in crate::gateway::write) fn start_if_due(&self, inner: &mut Inner, number: u64) {
        let Some(live) = inner.live.get_mut(&number) else { return };
        if live.run.is_called && live.is_kept && !live.is_ending() && live.run.task.is_none() {
            if !self.dispatch.lock().ready(&live.group, number) {
                live.begin_turn_wait(self.clock.moment());
            }
            self.startable.notify_one();
        }
    }

    /// Restarts a write once it is off the wire.
    pub(in crate::gateway::write) fn restart_off_wire(&self, inner: &mut Inner, number: u64) {
        match inner.live.get_mut(&number) {
            Some(live) if live.run.on_wire.is_some() => live.run.is_overtaken = true,
            _ => self.restart(inner, number),
        }
    }

    /// Restarts a write and invalidates its current run.
    pub(in crate::gateway::write) fn restart(&self, inner: &mut Inner, number: u64) {
        let Some(live) = inner.live.get_mut(&number) else { return };
        live.run.is_overtaken = false;
        if let Some(running) = live.run.task.take() {
            // The old task may be about to send; it then finds that its run is over.
            live.run.number += 1;
            running.abort();
        }
        self.start_if_due(inner, number);
    }

    /// Ends the wait for the turn: it has come, or the write is gone.
    pub(in crate::gateway::write) fn end_turn_wait(&self, live: &mut Live) {
        let Some(waiter) = &mut live.waiters.waiter else { return };
        waiter.waits = None;
        if std::mem::take(&mut waiter.is_held)
            && let Some((by, waited)) = waiter.request_progress.released(self.clock.moment())
        {
            self.metrics.wait(by.name(), waited);
        }
    }
}
