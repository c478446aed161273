//! Accepts writes: a place in the lane, the `Idempotency-Key` and the store precede the client's
//! answer (SPECIFICATION, "Asynchronous writes").

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::clock::{Moment, Timestamp};
use crate::decision::scheduler::fair_share::may_take;
use crate::decision::writes::lanes::LanesFull;
use crate::writes::record::Key;
use crate::writes::redis::{Place, digest_text};
use crate::writes::{Change, Progress, StoreError, Stored, Write, WriteId};

use crate::gateway::dispatch::progress::RequestProgress;
use crate::gateway::random;
use crate::gateway::shared_space::Share;
use crate::gateway::write::queue::live::{
    Inner, Keyed, Live, Size, SyncWaiter, Watched, WriteGroup,
};
use crate::gateway::write::queue::write_queue::{KEPT_MAX, PATIENCE, Queue};
use crate::gateway::write::turns::{Turns, shared_lane};

/// A write to be accepted.
pub struct New {
    /// The request; the queue assigns its identifier.
    pub write: Write,
    /// The group for fair dispatch.
    pub group: WriteGroup,
    /// The lane: the written resource.
    pub lane: String,
    /// True if no limit is known to hold it.
    pub may_go: bool,
    /// The time at which it is given up unsent.
    pub deadline: Timestamp,
    /// Its body's share of memory.
    pub memory: Option<Share>,
    /// The waiting client, if any. Such a write ends with its waiters while it is unsent.
    pub waiter: Option<Box<SyncWaiter>>,
}

/// An accepted write.
#[derive(Clone)]
pub struct Accepted {
    pub id: WriteId,
    pub watched: Option<Arc<Watched>>,
    /// The progress that all waiters share; `None` without a waiter.
    pub request_progress: Option<RequestProgress>,
}

/// The reason why a write is not accepted.
#[derive(Clone, Debug)]
pub enum NotAccepted {
    /// The `Idempotency-Key` belongs to another request.
    KeyTaken,
    /// The queue is full, or the client has used its share of the store.
    Full,
    /// The store failed, with a known or unknown result: see [`StoreError`].
    Store(StoreError),
}

impl From<LanesFull> for NotAccepted {
    fn from(_: LanesFull) -> Self {
        Self::Full
    }
}

impl Queue {
    /// Accepts a write, or finds the one with its key. A dropped future does not stop it.
    pub async fn accept(
        self: &Arc<Self>,
        turns: &Arc<Turns>,
        new: New,
    ) -> Result<Accepted, NotAccepted> {
        let (queue, turns) = (Arc::clone(self), Arc::clone(turns));
        let accepting = tokio::spawn(async move { queue.validate(&turns, new).await });
        let lost = |_| Err(NotAccepted::Store(StoreError::Failed("it was interrupted".into())));
        accepting.await.unwrap_or_else(lost)
    }

    async fn validate(&self, turns: &Arc<Turns>, mut new: New) -> Result<Accepted, NotAccepted> {
        let now = self.clock.now();
        let client = new.group.client;
        let (number, kept) = loop {
            let earlier = {
                let inner = &mut *self.inner.lock();
                let keyed =
                    new.write.key.and_then(|key| Some((key, inner.keys.get(&(client, key.name))?)));
                match keyed {
                    Some((key, keyed)) if keyed.meaning != key.meaning => {
                        return Err(NotAccepted::KeyTaken);
                    }
                    Some((_, keyed)) => keyed.number,
                    None => break self.insert(inner, turns, &mut new, now)?,
                }
            };
            // A concurrent repetition waits until the first write is stored, or replaces it.
            if let Some(accepted) = self.kept(earlier, &mut new.waiter).await?
                && !self.has_lost(earlier).await
            {
                return Ok(accepted);
            }
        };
        let id = new.write.id;
        match kept.await {
            Ok(()) => {
                let inner = &mut *self.inner.lock();
                let mut accepted = Accepted { id, watched: None, request_progress: None };
                if let Some(live) = inner.live.get_mut(&number) {
                    accepted.watched.clone_from(&live.waiters.watched);
                    accepted.request_progress = live.request_progress();
                    live.is_kept = true;
                    if self.store.is_durable() {
                        live.memory = None;
                    }
                    live.notify_waiters();
                }
                self.start_if_due(inner, number);
                Ok(accepted)
            }
            Err(fault) => {
                let gone = {
                    let inner = &mut *self.inner.lock();
                    inner.forget_key(client, new.write.key.map(|key| key.name), number);
                    inner.take_live(number)
                };
                let is_async = gone.as_ref().is_none_or(|gone| gone.waiters.synchronous.is_none());
                if let Some(gone) = gone {
                    gone.notify_waiters();
                }
                if let StoreError::Keyed { number, meaning } = fault {
                    return self.accepted_elsewhere(number, meaning, &new.write, is_async).await;
                }
                // The store may have it, and it must not return at the next start.
                drop(self.store.apply(Change::Remove(vec![number])));
                Err(NotAccepted::Store(fault))
            }
        }
    }

    /// Assigns the number and the place, and stores the write.
    fn insert(
        &self,
        inner: &mut Inner,
        turns: &Arc<Turns>,
        new: &mut New,
        now: Timestamp,
    ) -> Result<(u64, BoxFuture<'static, Result<(), StoreError>>), NotAccepted> {
        let number = self.next_number(inner)?;
        new.write.id = WriteId { number, salt: random::salt() };
        let has_waiter = new.waiter.is_some();
        let progress = Progress { has_waiter, ..Progress::queued(now, new.deadline) };
        let stored = Stored { request: new.write.encode(), progress: progress.encode() };
        let size = Size::of(&stored);
        self.has_room(inner, new.group.client, size)?;
        let turn = turns.enter_queued(new.group.client, &new.lane, number)?;
        let kept = match self.store.shared() {
            Some(shared) => {
                let goes = new.may_go && turn.ahead() == 0;
                let sending = goes.then(|| progress.sending().encode());
                shared.insert(number, &stored, &place_of(&new.write, &new.lane), sending)
            }
            None => self.store.apply(Change::Insert(number, stored)),
        };
        if let Some(key) = new.write.key {
            inner.keys.insert((new.group.client, key.name), Keyed { number, meaning: key.meaning });
        }
        let mut live =
            Live::new(new.write.id, new.group.clone(), now, new.write.key, progress, turn, size);
        live.memory = new.memory.take();
        live.waiters.synchronous = has_waiter.then_some(1);
        live.waiters.waiter = new.waiter.take();
        if live.turn.ahead() > 0 {
            live.begin_turn_wait(self.clock.moment());
        }
        // Created first, so that the waiter cannot miss an early end.
        live.waiters.watched = has_waiter.then(Arc::default);
        inner.add_live(number, live);
        if has_waiter {
            self.resume_stopped(inner);
        }
        Ok((number, kept))
    }

    fn next_number(&self, inner: &mut Inner) -> Result<u64, NotAccepted> {
        let Some(shared) = self.store.shared() else {
            inner.next_number += 1;
            return Ok(inner.next_number - 1);
        };
        let unknown = || StoreError::Away("Redis was not reached yet".into());
        shared.next_number().ok_or_else(|| NotAccepted::Store(unknown()))
    }

    /// Checks a client's share of the store; its finished writes count until they expire.
    fn has_room(&self, inner: &Inner, client: u32, size: Size) -> Result<(), NotAccepted> {
        let (own, all) = (inner.usage.of(client), inner.usage.all());
        let free = self.store.room(all.bytes).unwrap_or(u64::MAX);
        let wanted = u64::from(size.all());
        // If there is no space at all, the store reports that itself.
        let has_own = wanted > free || may_take(own.bytes, wanted, free);
        let may_be = may_take(own.writes, 1, KEPT_MAX.saturating_sub(all.writes));
        if has_own && may_be { Ok(()) } else { Err(NotAccepted::Full) }
    }

    /// Forgets a finished write with its key, if the store of all replicas has it no more.
    async fn has_lost(&self, number: u64) -> bool {
        let is_finished = self.inner.lock().finished.contains_key(&number);
        let Some(shared) = self.store.shared().filter(|_| is_finished) else { return false };
        let Ok(None) = self.store.load(number).await else { return false };
        // After any other fault it may still be added.
        if shared.add_again(number).await != Err(StoreError::Elsewhere) {
            return false;
        }
        let inner = &mut *self.inner.lock();
        if let Some(finished) = inner.take_finished(number) {
            inner.forget_key(finished.group.client, finished.key.map(|key| *key), number);
        }
        true
    }

    /// Returns an earlier write once it is stored; `None` if storing it failed. A request without a
    /// waiter converts it to an asynchronous write.
    async fn kept(
        &self,
        number: u64,
        waiter: &mut Option<Box<SyncWaiter>>,
    ) -> Result<Option<Accepted>, NotAccepted> {
        // It becomes asynchronous here, which must be stored before the answer.
        let (storing, id) = loop {
            let watched = {
                let inner = &mut *self.inner.lock();
                if let Some(finished) = inner.finished.get(&number) {
                    let id = WriteId { number, salt: finished.salt };
                    return Ok(Some(Accepted { id, watched: None, request_progress: None }));
                }
                let Some(live) = inner.live.get_mut(&number) else { return Ok(None) };
                let id = WriteId { number, salt: live.salt };
                match (live.is_kept, &mut live.waiters.synchronous) {
                    (false, _) => Arc::clone(live.waiters.watched.get_or_insert_default()),
                    (true, None) => return Ok(Some(live.joined(id, waiter, self.clock.moment()))),
                    (true, Some(waiting)) if waiter.is_some() => {
                        *waiting += 1;
                        return Ok(Some(live.joined(id, waiter, self.clock.moment())));
                    }
                    (true, Some(_)) => {
                        live.waiters.synchronous = None;
                        live.progress.has_waiter = false;
                        live.progress.deadline =
                            live.progress.deadline.max(self.clock.now() + PATIENCE);
                        let encoded = live.latest().encode();
                        let storing = self.store.apply(Change::Progress(number, encoded));
                        if !live.is_ending() {
                            // It had begun with the deadline of its waiters.
                            self.restart_off_wire(inner, number);
                        }
                        break (storing, id);
                    }
                }
            };
            let mut changed = std::pin::pin!(watched.changed.notified());
            changed.as_mut().enable();
            if self.inner.lock().live.get(&number).is_some_and(|live| !live.is_kept) {
                changed.await;
            }
        };
        storing.await.map_err(NotAccepted::Store)?;
        Ok(Some(Accepted { id, watched: None, request_progress: None }))
    }
}

impl Live {
    /// Adds a waiter, or a request for its status.
    fn joined(
        &mut self,
        id: WriteId,
        waiter: &mut Option<Box<SyncWaiter>>,
        now: Moment,
    ) -> Accepted {
        if self.waiters.waiter.is_none() {
            // It has not started, and had no waiter so far.
            self.waiters.waiter = waiter.take();
            self.begin_turn_wait(now);
        }
        let watched = Arc::clone(self.waiters.watched.get_or_insert_default());
        Accepted { id, watched: Some(watched), request_progress: self.request_progress() }
    }

    fn request_progress(&self) -> Option<RequestProgress> {
        self.waiters.waiter.as_ref().map(|waiter| waiter.request_progress.clone())
    }
}

/// The place of a write among those of all replicas.
fn place_of(write: &Write, lane: &str) -> Place {
    let key = write.key.map(|Key { name, meaning }| (digest_text(&name), meaning));
    let (key, meaning) = key.unwrap_or_default();
    Place {
        lane: shared_lane(&write.client, lane),
        key: if key.is_empty() { key } else { format!("{}:{key}", write.client) },
        meaning,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::{HeaderMap, Method};

    use super::*;
    use crate::api::ResourceName;
    use crate::clock::Clock;
    use crate::telemetry::Metrics;
    use crate::writes::memory::MemoryStore;
    use crate::writes::record::{Address, Shape};

    const ROOM: usize = 100_000;
    const RETENTION: Duration = Duration::from_secs(60);

    fn new(client: u32) -> New {
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
            body: Bytes::from(vec![b'x'; 1_000]),
            accepted: Timestamp::EPOCH,
            key: None,
        };
        let group = WriteGroup { client, content: true, resource: ResourceName::core() };
        New {
            write,
            group,
            lane: "/repos/acme/widgets".into(),
            may_go: true,
            deadline: Timestamp::FAR_FUTURE,
            memory: None,
            waiter: None,
        }
    }

    /// Fills a client's share.
    async fn fill(queue: &Arc<Queue>, turns: &Arc<Turns>, client: u32) -> Vec<WriteId> {
        let mut accepted = Vec::new();
        loop {
            match queue.accept(turns, new(client)).await {
                Ok(one) => accepted.push(one.id),
                Err(refused) => {
                    // The store itself may fill up before the client's share does.
                    assert!(
                        matches!(
                            refused,
                            NotAccepted::Full | NotAccepted::Store(StoreError::Full(_))
                        ),
                        "{refused:?}"
                    );
                    return accepted;
                }
            }
        }
    }

    #[tokio::test]
    async fn finished_writes_count_in_a_clients_share_until_expiry() {
        let clock = Clock::manual(Timestamp::from_secs(1_000));
        let store = Arc::new(MemoryStore::with_room(ROOM));
        let queue = Queue::new(store, clock.clone(), RETENTION, Arc::new(Metrics::new()));
        tokio::spawn(Arc::clone(&queue).forget());
        let (turns, _called) = Turns::new(10_000);
        let first = fill(&queue, &turns, 1).await;
        let others = fill(&queue, &turns, 2).await;
        assert!(first.len() >= 50 && !others.is_empty(), "{} and {}", first.len(), others.len());
        for id in &first {
            queue.cancel(*id, "its client").await.unwrap();
        }
        assert_eq!(fill(&queue, &turns, 1).await, [], "they can be looked up, and take room");
        clock.advance(RETENTION + Duration::from_secs(1));
        while queue.write_status(first[0]).is_some() {
            tokio::task::yield_now().await;
        }
        assert!(fill(&queue, &turns, 1).await.len() >= first.len() / 2);
        queue.counts();
    }
}
