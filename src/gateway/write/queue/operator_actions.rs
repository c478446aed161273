//! Client and operator actions on queued writes: cancel, retry, list (SPECIFICATION, "Asynchronous
//! writes" and "Admin listener").

use std::sync::Arc;

use bytes::Bytes;

use crate::clock::Timestamp;
use crate::writes::record::Reason;
use crate::writes::{Change, Progress, StoreError, Stored, Write, WriteId, WriteState};

use crate::gateway::error::GatewayError;
use crate::gateway::write::queue::live::{Inner, Keyed, Live, Size, WriteGroup, bytes_of};
use crate::gateway::write::queue::loaded::SHORT_BYTES_MAX;
use crate::gateway::write::queue::write_queue::{PATIENCE, Queue};
use crate::gateway::write::turns::Turns;

/// The writes that are searched under one lock. Chosen here: a millisecond.
const SEARCHED_AT_ONCE: u64 = 10_000;

/// The reason why an action changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotChanged {
    /// There is no write with this identifier.
    NoSuchWrite,
    /// The state forbids it.
    State(WriteState),
    /// The queue is full.
    Full,
    /// The store failed.
    Store(StoreError),
}

/// An operator's filter.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Only writes in this state.
    pub state: Option<WriteState>,
    /// Only writes of the client with this index in the config.
    pub client: Option<u32>,
    /// Only writes after this one, which may be gone.
    pub after: Option<WriteId>,
    /// The most results.
    pub at_most: usize,
}

/// An operator's permission to repeat a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// It must not be executed twice: a write with an unknown outcome stays.
    IfNotExecuted,
    /// It may be executed a second time.
    EvenIfExecuted,
}

/// A write as operators see it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The request as it was accepted.
    pub write: Write,
    /// Its state, attempts and outcome.
    pub progress: Progress,
}

impl NotChanged {
    fn by(state: Option<WriteState>) -> Self {
        state.map_or(Self::NoSuchWrite, Self::State)
    }
}

impl From<StoreError> for NotChanged {
    fn from(fault: StoreError) -> Self {
        Self::Store(fault)
    }
}

impl Queue {
    /// Cancels a write that is still queued.
    pub async fn cancel(self: &Arc<Self>, id: WriteId, by: &str) -> Result<(), NotChanged> {
        if !self.is_here(id) {
            return self.cancel_elsewhere(id, by).await;
        }
        if let Some(pending) = self.pending_cancellation(id) {
            // A crash could undo it before it is stored.
            return match self.store.apply(Change::Progress(id.number, pending)).await {
                Ok(()) => Err(NotChanged::State(WriteState::Cancelled)),
                Err(StoreError::Elsewhere) => self.cancel_elsewhere(id, by).await,
                Err(fault) => Err(NotChanged::Store(fault)),
            };
        }
        let (kept, running) = {
            let inner = &mut *self.inner.lock();
            let Some(live) = inner.kept(id) else {
                return Err(NotChanged::by(inner.finished(id).map(|finished| finished.state)));
            };
            if live.latest().state != WriteState::Queued {
                return Err(NotChanged::State(live.latest().state));
            }
            let progress = cancelled(live.progress.clone(), by, self.clock.now());
            let running = live.run.task.clone();
            self.dispatch.lock().withdraw(&live.group, id.number);
            (self.end(inner, id.number, progress), running)
        };
        // It was not sent, and a later attempt finds the write ended.
        if let Some(running) = running {
            running.abort();
        }
        if let Some(kept) = kept {
            // It fails only with the runtime.
            let _ = kept.await;
        }
        match self.write_status(id).map(|status| status.state) {
            Some(WriteState::Cancelled) => Ok(()),
            // This process will not send it, but that is not stored.
            Some(WriteState::Queued) => Err(NotChanged::Store(StoreError::Failed(
                "the cancellation is not kept yet".into(),
            ))),
            // Another replica has taken it.
            None => self.cancel_elsewhere(id, by).await,
            other => Err(NotChanged::by(other)),
        }
    }

    /// The last progress of a write that was cancelled and is not stored as such.
    fn pending_cancellation(&self, id: WriteId) -> Option<Bytes> {
        let inner = self.inner.lock();
        let ending = inner.kept(id)?.ending.as_ref()?;
        (ending.state == WriteState::Cancelled).then(|| ending.encode())
    }

    /// Retries a write that ended without being done; `repetition` permits a second execution. The
    /// group and the lane are those under the current config.
    pub async fn retry(
        self: &Arc<Self>,
        turns: &Arc<Turns>,
        (group, lane): (WriteGroup, &str),
        id: WriteId,
        repetition: Repetition,
    ) -> Result<(), NotChanged> {
        let (Listed { write, progress }, size) =
            self.load(id.number).await?.ok_or(NotChanged::NoSuchWrite)?;
        if !self.is_here(id) {
            self.take_from_elsewhere(group, &write, &progress, size).await?;
        }
        let now = self.clock.now();
        let (kept, before, forgotten_at) = {
            let inner = &mut *self.inner.lock();
            let Some(finished) = inner.finished(id) else {
                let live = inner.live.get(&id.number).filter(|live| live.salt == id.salt);
                return Err(NotChanged::by(live.map(|live| live.progress.state)));
            };
            let may_have_run = may_retry(finished.state, progress.may_have_run, repetition)?;
            let group = finished.group.clone();
            let turn =
                turns.enter_queued(group.client, lane, id.number).map_err(|_| NotChanged::Full)?;
            let forgotten_at = progress.finished.unwrap_or(now) + self.retention;
            if !inner.expiry.remove(&(forgotten_at, id.number)) {
                // An earlier process left it without an end time.
                inner.expiry.retain(|(_, number)| *number != id.number);
            }
            let before = inner.take_finished(id.number);
            if let Some(key) = write.key {
                inner
                    .keys
                    .entry((group.client, key.name))
                    .or_insert(Keyed { number: id.number, meaning: key.meaning });
            }
            // A write that may have been executed cannot be cancelled: `sending` until its end.
            let state = if may_have_run { WriteState::Sending } else { WriteState::Queued };
            let progress =
                Progress { state, may_have_run, ..Progress::queued(now, now + PATIENCE) };
            let encoded = progress.encode();
            let size = Size { progress: bytes_of(&encoded), ..size };
            let kept = match self.store.shared() {
                Some(shared) => shared.again(id.number, encoded),
                None => self.store.apply(Change::Progress(id.number, encoded)),
            };
            let live = Live::new(id, group, now, write.key, progress, turn, size);
            inner.add_live(id.number, live);
            (kept, before, forgotten_at)
        };
        let kept = kept.await;
        let inner = &mut *self.inner.lock();
        if let Err(fault) = kept {
            // Restores the previous state.
            if let Some(taken) = inner.take_live(id.number) {
                taken.notify_waiters();
            }
            if let Some(before) = before {
                inner.add_finished(id.number, before, forgotten_at);
            }
            return Err(NotChanged::Store(fault));
        }
        if let Some(live) = inner.live.get_mut(&id.number) {
            live.is_kept = true;
        }
        self.start_if_due(inner, id.number);
        Ok(())
    }

    /// Removes a waiter of a synchronous write. Without any left, an unsent write is dropped.
    pub fn left(self: &Arc<Self>, id: WriteId) {
        let inner = &mut *self.inner.lock();
        let Some(live) = inner.live.get_mut(&id.number) else { return };
        let Some(waiting) = &mut live.waiters.synchronous else { return };
        *waiting = waiting.saturating_sub(1);
        if *waiting == 0 && live.progress.state == WriteState::Queued && !live.is_ending() {
            self.drop_live(inner, id.number, None);
        }
    }

    /// Drops an unexecuted synchronous write with its error; nothing is stored. False for an
    /// asynchronous write, which is kept with its reason.
    pub(in crate::gateway::write) fn give_up_synchronous(
        &self,
        number: u64,
        refused: &GatewayError,
    ) -> bool {
        let inner = &mut *self.inner.lock();
        let is_synchronous = inner
            .live
            .get(&number)
            .is_some_and(|live| live.waiters.synchronous.is_some() && !live.is_ending());
        if is_synchronous {
            self.drop_live(inner, number, Some(refused));
        }
        is_synchronous
    }

    fn drop_live(&self, inner: &mut Inner, number: u64, error: Option<&GatewayError>) {
        let Some(mut live) = inner.take_live(number) else { return };
        self.end_turn_wait(&mut live);
        inner.forget_key(live.group.client, live.key.map(|key| key.name), number);
        self.dispatch.lock().withdraw(&live.group, number);
        drop(self.store.apply(Change::Remove(vec![number])));
        if let Some(watched) = &live.waiters.watched {
            *watched.refused.lock() = error.cloned();
            watched.changed.notify_waiters();
        }
        // Only a caller other than the write's own task may abort that task.
        if error.is_none()
            && let Some(running) = &live.run.task
        {
            running.abort();
        }
    }

    pub async fn look_up(&self, id: WriteId) -> Result<Option<Listed>, StoreError> {
        let Some(status) = self.write_status(id) else { return self.look_elsewhere(id).await };
        let Some((listed, _)) = self.load(id.number).await? else { return Ok(None) };
        let progress = status.progress.unwrap_or(listed.progress);
        Ok(Some(Listed { progress, ..listed }))
    }

    /// Loads a write from the store. Requests that have the same long answer share its text.
    async fn load_shared(&self, number: u64) -> Result<Option<Stored>, StoreError> {
        if let Some(copied) = self.store.shared().and_then(|shared| shared.copied(number)) {
            return Ok(Some(copied));
        }
        let bytes = {
            let inner = self.inner.lock();
            let live = inner.live.get(&number).map(|live| live.size.all());
            live.or_else(|| Some(inner.finished.get(&number)?.bytes)).unwrap_or_default()
        };
        // Memory has one copy anyway.
        if !self.store.is_durable() || bytes <= SHORT_BYTES_MAX {
            return self.store.load(number).await;
        }
        self.loaded.share(number, || self.store.load(number)).await
    }

    /// Loads a write from the store, with its size there.
    pub(super) async fn load(&self, number: u64) -> Result<Option<(Listed, Size)>, StoreError> {
        let Some(stored) = self.load_shared(number).await? else { return Ok(None) };
        let write = Write::decode(&stored.request)?;
        let progress = Progress::decode(&stored.progress)?;
        Ok(Some((Listed { write, progress }, Size::of(&stored))))
    }

    /// Lists identifiers in ascending order. It releases the lock between parts of the search.
    pub fn select(&self, selection: &Selection) -> Vec<WriteId> {
        let wanted = |state: WriteState, client: u32| {
            selection.state.is_none_or(|wanted| wanted == state)
                && selection.client.is_none_or(|wanted| wanted == client)
        };
        let mut chosen = Vec::new();
        let after = selection.after.map_or(Some(0), |after| after.number.checked_add(1));
        let Some(mut from) = after else { return chosen };
        while chosen.len() < selection.at_most {
            let inner = self.inner.lock();
            let live = inner.live.range(from..).next().map(|(number, _)| *number);
            let finished = inner.finished.range(from..).next().map(|(number, _)| *number);
            let Some(first) = live.into_iter().chain(finished).min() else { break };
            let part = first..=first.saturating_add(SEARCHED_AT_ONCE);
            let live = inner.live.range(part.clone());
            let live = live
                .filter(|(_, live)| live.is_kept && wanted(live.progress.state, live.group.client))
                .map(|(number, live)| WriteId { number: *number, salt: live.salt });
            let finished = inner.finished.range(part.clone());
            let finished = finished
                .filter(|(_, finished)| wanted(finished.state, finished.group.client))
                .map(|(number, finished)| WriteId { number: *number, salt: finished.salt });
            let mut found: Vec<_> = live.chain(finished).collect();
            found.sort_unstable();
            chosen.append(&mut found);
            let Some(next) = part.end().checked_add(1) else { break };
            from = next;
        }
        chosen.truncate(selection.at_most);
        chosen
    }

    /// The newest writes that ended in one of these states, the newest first, among the last
    /// thousands that ended.
    pub fn newest_ended(&self, states: &[WriteState], at_most: usize) -> Vec<WriteId> {
        let last = usize::try_from(SEARCHED_AT_ONCE).unwrap_or(usize::MAX);
        let inner = self.inner.lock();
        let ended = inner.finished.iter().rev().take(last);
        let chosen = ended.filter(|(_, finished)| states.contains(&finished.state));
        chosen
            .take(at_most)
            .map(|(number, finished)| WriteId { number: *number, salt: finished.salt })
            .collect()
    }

    pub async fn outcome(&self, id: WriteId) -> Result<Option<Progress>, StoreError> {
        let Some(status) = self.write_status(id) else {
            return Ok(self.look_elsewhere(id).await?.map(|listed| listed.progress));
        };
        if status.progress.is_some() {
            return Ok(status.progress);
        }
        let Some(stored) = self.load_shared(id.number).await? else { return Ok(None) };
        Ok(Some(Progress::decode(&stored.progress)?))
    }
}

/// The last progress of a write that is cancelled.
pub(super) fn cancelled(progress: Progress, by: &str, now: Timestamp) -> Progress {
    let message = format!("It was cancelled by {by} before anything was sent.");
    let reason = Reason { word: "cancelled".into(), message, status: 409 };
    Progress {
        state: WriteState::Cancelled,
        finished: Some(now),
        reason: Some(Box::new(reason)),
        ..progress
    }
}

/// Checks that a write with this end may be retried; returns true if it may have been executed.
fn may_retry(
    ended: WriteState,
    may_have_run: bool,
    repetition: Repetition,
) -> Result<bool, NotChanged> {
    if matches!(ended, WriteState::Queued | WriteState::Sending | WriteState::Done) {
        return Err(NotChanged::State(ended));
    }
    let may_have_run = may_have_run || ended == WriteState::Unknown;
    if may_have_run && repetition == Repetition::IfNotExecuted {
        return Err(NotChanged::State(WriteState::Unknown));
    }
    Ok(may_have_run)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use futures_util::future::BoxFuture;
    use http::{HeaderMap, Method};

    use super::*;
    use crate::api::ResourceName;
    use crate::clock::Clock;
    use crate::gateway::write::queue::accept::New;
    use crate::gateway::write::queue::live::Finished;
    use crate::telemetry::Metrics;
    use crate::writes::Store;
    use crate::writes::memory::MemoryStore;
    use crate::writes::record::{Address, Shape};

    /// A store that refuses progress for a while.
    #[derive(Default)]
    struct Failing(MemoryStore, AtomicBool);

    impl Store for Failing {
        fn apply(&self, change: Change) -> BoxFuture<'static, Result<(), StoreError>> {
            if matches!(change, Change::Progress(..)) && self.1.load(Ordering::SeqCst) {
                return Box::pin(std::future::ready(Err(StoreError::Failed("a test".into()))));
            }
            self.0.apply(change)
        }

        fn load(&self, number: u64) -> BoxFuture<'static, Result<Option<Stored>, StoreError>> {
            self.0.load(number)
        }

        fn room(&self, kept: u64) -> Option<u64> {
            self.0.room(kept)
        }

        fn is_durable(&self) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn a_cancellation_is_reported_once_it_is_stored() {
        let store = Arc::new(Failing::default());
        let clock = Clock::manual(Timestamp::EPOCH);
        let (retention, metrics) = (Duration::from_hours(1), Arc::new(Metrics::new()));
        let queue = Queue::new(Arc::clone(&store) as _, clock, retention, metrics);
        let (turns, _called) = Turns::new(10);
        let write = Write {
            id: WriteId { number: 0, salt: 0 },
            client: "ci".into(),
            account: "bot".into(),
            method: Method::POST,
            address: Address::Rest,
            shape: Shape::Plain,
            path: "/repos/acme/widgets/issues".into(),
            query: None,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            accepted: Timestamp::EPOCH,
            key: None,
        };
        let group = WriteGroup { client: 0, content: true, resource: ResourceName::core() };
        let (lane, deadline) = ("/repos/acme/widgets".to_owned(), Timestamp::FAR_FUTURE);
        let new = New { write, group, lane, may_go: true, deadline, memory: None, waiter: None };
        let id = queue.accept(&turns, new).await.unwrap().id;
        store.1.store(true, Ordering::SeqCst);
        for _ in 0..2 {
            let cancelled = queue.cancel(id, "a test").await;
            assert!(matches!(cancelled, Err(NotChanged::Store(_))), "{cancelled:?}");
        }
        store.1.store(false, Ordering::SeqCst);
        let cancelled = queue.cancel(id, "a test").await;
        assert_eq!(cancelled, Err(NotChanged::State(WriteState::Cancelled)));
        let stored = store.0.load(id.number).await.unwrap().unwrap();
        assert_eq!(Progress::decode(&stored.progress).unwrap().state, WriteState::Cancelled);
    }

    /// A queue with finished writes: every third failed, every second belongs to client 1.
    fn queue(numbers: impl Iterator<Item = u64>) -> Arc<Queue> {
        let clock = Clock::manual(Timestamp::EPOCH);
        let queue = Queue::new(
            Arc::new(MemoryStore::default()),
            clock,
            Duration::from_secs(1),
            Arc::new(Metrics::new()),
        );
        let inner = &mut *queue.inner.lock();
        for number in numbers {
            let state = if number % 3 == 0 { WriteState::Failed } else { WriteState::Done };
            let group = WriteGroup {
                client: u32::from(number % 2 == 0),
                content: false,
                resource: ResourceName::core(),
            };
            inner.counts.add(number, Timestamp::EPOCH, state);
            inner.finished.insert(number, Finished { salt: 0, group, state, bytes: 0, key: None });
        }
        Arc::clone(&queue)
    }

    fn numbers(queue: &Queue, selection: &Selection) -> Vec<u64> {
        queue.select(selection).iter().map(|id| id.number).collect()
    }

    #[test]
    fn a_page_is_found_after_any_number_of_writes_and_gaps() {
        let queue = queue((1..=25_000).chain([1_000_000, u64::MAX]));
        let page = |after: u64, at_most| {
            let after = Some(WriteId { number: after, salt: 9 });
            numbers(&queue, &Selection { after, at_most, ..Selection::default() })
        };
        assert_eq!(page(0, 3), [1, 2, 3]);
        assert_eq!(page(9_999, 4), [10_000, 10_001, 10_002, 10_003]);
        assert_eq!(page(24_999, 10), [25_000, 1_000_000, u64::MAX]);
        assert_eq!(page(u64::MAX, 10), [u64::MAX; 0]);
        assert_eq!(page(0, 25_002).len(), 25_002);
    }

    #[test]
    fn rare_writes_are_found_among_many_others() {
        let queue = queue(1..=30_000);
        let selection = Selection {
            state: Some(WriteState::Failed),
            client: Some(1),
            at_most: 2,
            ..Selection::default()
        };
        assert_eq!(numbers(&queue, &selection), [6, 12]);
        let after = Some(WriteId { number: 29_990, salt: 0 });
        assert_eq!(
            numbers(&queue, &Selection { after, at_most: 9, ..selection.clone() }),
            [29_994, 30_000]
        );
        assert_eq!(
            numbers(&queue, &Selection { state: Some(WriteState::Unknown), ..selection }),
            [0; 0]
        );
    }
}
