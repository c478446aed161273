//! The queue itself: what is there, what becomes of each write, and when it is forgotten.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::gateway::write::queue::live::{Class, Finished, Inner, Live, Watched, bytes_of};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::clock::{Clock, Timestamp};
use crate::decision::writes::dispatch::Dispatch;
use crate::telemetry::Metrics;
use crate::writes::{Change, Progress, Store, WriteId, WriteState};

use crate::gateway::request::body::BodyMemory;
use crate::gateway::write::queue::counts::Counts;
use crate::gateway::write::queue::usage::Usage;

/// Writes of one class that stand in the line before the books at once. Ours: more than an account
/// may have under way where it sends them a second apart, few enough that ten thousand queued ones
/// cost no ten thousand tasks.
pub(in crate::gateway::write) const AT_ONCE: NonZeroUsize = NonZeroUsize::MIN.saturating_add(15);
/// How long an accepted write may wait to be sent. Ours: longer than any window of the upstream's
/// limits; what is older is better looked at by its author.
pub const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);
/// Writes that are remembered, nearly all of them finished. Ours: what a hundred accounts write in
/// a day, for a hundred bytes each.
pub(in crate::gateway::write) const KEPT_MAX: u64 = 1_000_000;
/// How long the queue rests after its store failed. Ours.
pub(in crate::gateway::write) const STORE_PAUSE: Duration = Duration::from_secs(5);
/// Finished writes that are forgotten with one change of the store.
pub(in crate::gateway::write) const FORGOTTEN_AT_ONCE: usize = 1_000;

/// The queue.
pub struct Queue {
    pub(in crate::gateway::write) store: Arc<dyn Store>,
    pub(in crate::gateway::write) clock: Clock,
    pub(in crate::gateway::write) retention: Duration,
    pub(in crate::gateway::write) metrics: Arc<Metrics>,
    pub(in crate::gateway::write) inner: Mutex<Inner>,
    /// Which may start. A lock of its own, taken after that of `inner`: a place among those under
    /// way may be given back while `inner` is locked, by a task that is begun when the runtime
    /// ends.
    pub(in crate::gateway::write) dispatch: Mutex<Dispatch<Class>>,
    /// Memory for the bodies that come from the store to be sent. Apart from that of requests:
    /// those may wait for the turn that a write here has.
    pub(in crate::gateway::write) carried: BodyMemory,
    /// Told when something may start.
    pub(in crate::gateway::write) startable: Notify,
    /// Told when something may be forgotten earlier than was known.
    pub(in crate::gateway::write) expiring: Notify,
    /// Told when an outcome could not be kept.
    pub(in crate::gateway::write) unkept: Notify,
}

/// Where a write stands.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Its name.
    pub id: WriteId,
    /// Its client's place in the config.
    pub client: u32,
    /// Its state.
    pub state: WriteState,
    /// What is known beside, while it is not final and kept.
    pub progress: Option<Progress>,
}

impl Queue {
    /// An empty queue over a store.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Clock,
        retention: Duration,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        let inner = Inner {
            next_number: 1,
            live: BTreeMap::new(),
            finished: BTreeMap::new(),
            counts: Counts::default(),
            usage: Usage::default(),
            keys: HashMap::new(),
            expiry: BTreeSet::new(),
            unkept: BTreeSet::new(),
        };
        let inner = Mutex::new(inner);
        let dispatch = Mutex::new(Dispatch::new(AT_ONCE));
        let (carried, startable, expiring, unkept) = Default::default();
        Arc::new(Self {
            store,
            clock,
            retention,
            metrics,
            inner,
            dispatch,
            carried,
            startable,
            expiring,
            unkept,
        })
    }

    /// Whether what it accepts survives the process.
    pub fn is_durable(&self) -> bool {
        self.store.is_durable()
    }

    /// How many writes are in each state, those that wait on a connection without a key not among
    /// them.
    pub fn counts(&self) -> [(WriteState, u64); WriteState::ALL.len()] {
        let inner = self.inner.lock();
        debug_assert_eq!(
            (&inner.counts, &inner.usage),
            (&inner.counted().0, &inner.counted().1),
            "a state was changed and not counted"
        );
        inner.counts.counts()
    }

    /// How many writes have not come to their end.
    pub fn unfinished(&self) -> usize {
        self.inner.lock().live.len()
    }

    /// How many writes there are that somebody has waited for.
    pub fn watched(&self) -> usize {
        self.inner.lock().live.values().filter(|live| live.waiters.watched.is_some()).count()
    }

    /// When the oldest write was accepted that has not come to its end.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.inner.lock().counts.oldest()
    }

    /// Where a write stands; `None` when there is none of this name.
    pub fn standing(&self, id: WriteId) -> Option<Standing> {
        let inner = self.inner.lock();
        if let Some(live) =
            inner.live.get(&id.number).filter(|live| live.salt == id.salt && live.is_kept)
        {
            let progress = Some(live.progress.clone());
            return Some(Standing {
                id,
                client: live.class.client,
                state: live.progress.state,
                progress,
            });
        }
        let finished =
            inner.finished.get(&id.number).filter(|finished| finished.salt == id.salt)?;
        Some(Standing { id, client: finished.class.client, state: finished.state, progress: None })
    }

    /// How many writes of its lane stand before a write.
    pub fn ahead(&self, id: WriteId) -> usize {
        self.inner.lock().live.get(&id.number).map_or(0, |live| live.turn.ahead())
    }

    /// Told when something becomes of a write; `None` when nothing more will.
    pub(in crate::gateway::write) fn watch(&self, number: u64) -> Option<Arc<Watched>> {
        let mut inner = self.inner.lock();
        inner
            .live
            .get_mut(&number)
            .map(|live| Arc::clone(live.waiters.watched.get_or_insert_default()))
    }

    /// Until a write has come to its end. Dropped, it waits no longer.
    pub async fn ended(&self, id: WriteId) {
        while let Some(watched) = self.watch(id.number) {
            // Listening before looking, so that no change is missed between the two.
            let mut changed = std::pin::pin!(watched.changed.notified());
            changed.as_mut().enable();
            if self.standing(id).is_none_or(|standing| standing.state.is_final()) {
                return;
            }
            changed.await;
        }
    }

    /// A write comes to its end: kept first, then told. Nothing else can become of it from here on.
    /// What cannot be kept is told all the same, and kept as soon as it can be. `None`: it has one
    /// already.
    pub(in crate::gateway::write) fn end(
        self: &Arc<Self>,
        inner: &mut Inner,
        number: u64,
        progress: Progress,
    ) -> Option<JoinHandle<()>> {
        let live = inner.live.get_mut(&number).filter(|live| !live.is_ending())?;
        let encoded = progress.encode();
        inner.usage.remove(live.class.client, live.size.all());
        live.size.progress = bytes_of(&encoded);
        inner.usage.add(live.class.client, live.size.all());
        let kept = self.store.apply(Change::Progress(number, encoded));
        self.metrics.write_ended(
            progress.state.name(),
            progress.attempts,
            self.clock.now().since(live.accepted),
        );
        live.ending = Some(Box::new(progress));
        self.turn_is_over(live);
        let queue = Arc::clone(self);
        Some(tokio::spawn(async move {
            let kept = kept.await;
            if let Err(fault) = &kept {
                tracing::error!(write = number, error = %fault, "what became of a write could not be kept, and is tried again");
                queue.inner.lock().unkept.insert(number);
                queue.unkept.notify_one();
            }
            queue.told(number, kept.is_ok());
        }))
    }

    /// Whoever waits for a write hears of it; one that has come to its end, and is kept, leaves its
    /// lane.
    pub(in crate::gateway::write) fn told(&self, number: u64, is_kept: bool) {
        let inner = &mut *self.inner.lock();
        let Some(live) = inner.live.get_mut(&number) else { return };
        live.run.on_wire = None;
        // A cancellation that a crash could undo is none yet. Anything else has happened already.
        if !is_kept
            && live.ending.as_ref().is_some_and(|ending| ending.state == WriteState::Cancelled)
        {
            return;
        }
        if let Some(ending) = live.ending.take() {
            inner.counts.change(number, live.accepted, live.progress.state, ending.state);
            live.progress = *ending;
        }
        let watched = live.waiters.watched.clone();
        let state = live.progress.state;
        if state.is_final()
            && is_kept
            && let Some(live) = inner.live.remove(&number)
        {
            let forgotten_at = live.progress.finished.unwrap_or(self.clock.now()) + self.retention;
            inner.finished.insert(
                number,
                Finished {
                    salt: live.salt,
                    class: live.class,
                    state,
                    bytes: live.size.all(),
                    key: live.key.map(|key| Box::new(key.name)),
                },
            );
            inner.expiry.insert((forgotten_at, number));
            if inner.expiry.first() == Some(&(forgotten_at, number)) {
                self.expiring.notify_one();
            }
        }
        if let Some(watched) = watched {
            watched.changed.notify_waiters();
        }
    }

    /// Forgets what is older than the retention. Runs as long as the gateway does.
    pub(in crate::gateway::write) async fn forget(self: Arc<Self>) {
        loop {
            let now = self.clock.now();
            let (old, next) = {
                let inner = &mut *self.inner.lock();
                let mut old = Vec::new();
                while let Some((at, number)) = inner
                    .expiry
                    .first()
                    .copied()
                    .filter(|(at, _)| *at <= now && old.len() < FORGOTTEN_AT_ONCE)
                {
                    inner.expiry.remove(&(at, number));
                    old.push(number);
                }
                for number in &old {
                    let Some(finished) = inner.finished.remove(number) else { continue };
                    inner.counts.forget(finished.state);
                    inner.usage.remove(finished.class.client, finished.bytes);
                    inner.forget_key(finished.class.client, finished.key.map(|key| *key), *number);
                }
                (old, inner.expiry.first().map(|(at, _)| *at))
            };
            if !old.is_empty() {
                let many = old.len();
                if let Err(fault) = self.store.apply(Change::Remove(old)).await {
                    // They come back at the next start, and go then.
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

    /// Has the store take the outcomes that it could not. Runs as long as the gateway does.
    pub(in crate::gateway::write) async fn keep_unkept(self: Arc<Self>) {
        loop {
            self.unkept.notified().await;
            loop {
                self.clock.reach(self.clock.now() + STORE_PAUSE).await;
                let pending: Vec<_> = {
                    let inner = self.inner.lock();
                    let progress = |number: &u64| {
                        inner.live.get(number).map(|live| {
                            (*number, live.ending.as_deref().unwrap_or(&live.progress).encode())
                        })
                    };
                    inner.unkept.iter().filter_map(progress).collect()
                };
                for (number, progress) in pending {
                    if self.store.apply(Change::Progress(number, progress)).await.is_ok() {
                        self.inner.lock().unkept.remove(&number);
                        self.told(number, true);
                    }
                }
                if self.inner.lock().unkept.is_empty() {
                    break;
                }
            }
        }
    }

    /// A write waits for its turn no more: it has come, or the write is no more.
    pub(in crate::gateway::write) fn turn_is_over(&self, live: &mut Live) {
        let Some(waiter) = &mut live.waiters.waiter else { return };
        waiter.waits = None;
        if std::mem::take(&mut waiter.is_held)
            && let Some((by, waited)) = waiter.request_progress.released(self.clock.now())
        {
            self.metrics.wait(by.name(), waited);
        }
    }
}
