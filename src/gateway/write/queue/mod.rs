//! The queue of writes that were accepted: what is there, what becomes of each, and who is told
//! (DESIGN D7; CONTRACT §3, §4).
//!
//! The queue holds of each write what decides about it, some hundred bytes; what it says and what
//! was answered is with its store (`writes/`). Nothing becomes visible here, and nothing is sent,
//! before the store has it. In `accept` writes come in, in `runner` they are brought on their way,
//! `journal` is where an attempt says so before its first byte, `recovery` takes over what an
//! earlier process left, `orders` has what clients and operators may still want. Left out: HTTP
//! (`asynchronous`).

mod accept;
mod counts;
mod journal;
mod operator_actions;
mod recovery;
mod runner;
mod sync_waiter;
mod usage;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::task::{AbortHandle, JoinHandle};

use crate::api::ResourceName;
use crate::clock::{Clock, Timestamp};
use crate::decision::writes::dispatch::Dispatch;
use crate::telemetry::Metrics;
use crate::writes::record::Key;
use crate::writes::{Change, Progress, Store, Stored, WriteId, WriteState};

use crate::gateway::active::Entered;
use crate::gateway::error::Refused;
use crate::gateway::request::body::BodyMemory;
use crate::gateway::write::queue::counts::Census;
use crate::gateway::write::queue::usage::Holdings;
use crate::gateway::write::turns::Turn;

pub use accept::{Accepted, New, NotAccepted};
pub use journal::Journal;
pub use operator_actions::{Listed, NotChanged, Repetition, Selection};
pub use recovery::Recovery;
pub use sync_waiter::Asker;

/// Writes of one class that stand in the line before the books at once. Ours: more than an account
/// may have under way where it sends them a second apart, few enough that ten thousand queued ones
/// cost no ten thousand tasks.
const AT_ONCE: NonZeroUsize = NonZeroUsize::MIN.saturating_add(15);
/// How long an accepted write may wait to be sent. Ours: longer than any window of the upstream's
/// limits; what is older is better looked at by its author.
pub const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);
/// Writes that are remembered, nearly all of them finished. Ours: what a hundred accounts write in
/// a day, for a hundred bytes each.
const KEPT_MAX: u64 = 1_000_000;
/// How long the queue rests after its store failed. Ours.
const STORE_PAUSE: Duration = Duration::from_secs(5);
/// Finished writes that are forgotten with one change of the store.
const FORGOTTEN_AT_ONCE: usize = 1_000;

/// What shares its obstacles: one client's writes that count as content or do not, against one
/// budget.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Class {
    /// The client's place in the config.
    pub client: u32,
    /// Whether they count against the content limits.
    pub content: bool,
    /// The budget they spend.
    pub resource: ResourceName,
}

/// The queue.
pub struct Queue {
    store: Arc<dyn Store>,
    clock: Clock,
    retention: Duration,
    metrics: Arc<Metrics>,
    inner: Mutex<Inner>,
    /// Which may start. A lock of its own, taken after that of `inner`: a place among those under
    /// way may be given back while `inner` is locked, by a task that is begun when the runtime
    /// ends.
    dispatch: Mutex<Dispatch<Class>>,
    /// Memory for the bodies that come from the store to be sent. Apart from that of requests:
    /// those may wait for the turn that a write here has.
    carried: BodyMemory,
    /// Told when something may start.
    startable: Notify,
    /// Told when something may be forgotten earlier than was known.
    expiring: Notify,
    /// Told when an outcome could not be kept.
    unkept: Notify,
}

struct Inner {
    next_number: u64,
    /// Boxed: a tree of large values is half empty where they come in order.
    live: BTreeMap<u64, Box<Live>>,
    finished: BTreeMap<u64, Finished>,
    /// Of both.
    census: Census,
    /// Of both, too: what they take of the store.
    holdings: Holdings,
    /// By client and key.
    keys: HashMap<(u32, [u8; 32]), Keyed>,
    /// When finished writes are forgotten.
    expiry: BTreeSet<(Timestamp, u64)>,
    /// Live writes whose outcome the store has not taken.
    unkept: BTreeSet<u64>,
}

/// A write that has not come to its end, or whose end is not kept yet.
struct Live {
    salt: u64,
    class: Class,
    accepted: Timestamp,
    size: Size,
    key: Option<Box<Key>>,
    /// Its state as the store has it.
    progress: Progress,
    /// Its end, while the store is being told. Nothing else can become of it any more.
    ending: Option<Box<Progress>>,
    /// Holds its place as long as it lives.
    turn: Turn,
    /// Whether it is its turn.
    is_called: bool,
    /// Whether the store has it.
    is_kept: bool,
    running: Option<AbortHandle>,
    /// How often it was to be begun anew: what an earlier run says counts no more.
    run: u32,
    /// It is to be begun anew when it comes off the wire.
    is_overtaken: bool,
    /// While it may be executed upstream, the gateway does not end.
    on_wire: Option<Entered>,
    /// The body's part of the memory for bodies, where the store keeps it in memory.
    memory: Option<OwnedSemaphorePermit>,
    /// `None`: it was accepted and belongs to nobody's connection. Else how many wait for it:
    /// without any, it is given up.
    attended: Option<u32>,
    /// Whom it is carried out for, once somebody waits for it or it is under way.
    asker: Option<Box<Asker>>,
    watched: Option<Arc<Watched>>,
}

/// What the store keeps of a write, in bytes.
#[derive(Clone, Copy, Default)]
struct Size {
    request: u32,
    progress: u32,
}

/// One that has.
struct Finished {
    salt: u64,
    class: Class,
    state: WriteState,
    /// What the store keeps of it.
    bytes: u32,
    key: Option<Box<[u8; 32]>>,
}

/// What an `Idempotency-Key` stands for.
struct Keyed {
    number: u64,
    meaning: [u8; 32],
}

/// For those who wait for a write.
#[derive(Default)]
pub struct Watched {
    changed: Notify,
    /// Why it was given up without a trace, where it was attended.
    refused: Mutex<Option<Refused>>,
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
            census: Census::default(),
            holdings: Holdings::default(),
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
            (&inner.census, &inner.holdings),
            (&inner.counted().0, &inner.counted().1),
            "a state was changed and not counted"
        );
        inner.census.counts()
    }

    /// How many writes have not come to their end.
    pub fn unfinished(&self) -> usize {
        self.inner.lock().live.len()
    }

    /// How many writes there are that somebody has waited for.
    pub fn watched(&self) -> usize {
        self.inner.lock().live.values().filter(|live| live.watched.is_some()).count()
    }

    /// When the oldest write was accepted that has not come to its end.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.inner.lock().census.oldest()
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
    fn watch(&self, number: u64) -> Option<Arc<Watched>> {
        let mut inner = self.inner.lock();
        inner.live.get_mut(&number).map(|live| Arc::clone(live.watched.get_or_insert_default()))
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
    fn end(
        self: &Arc<Self>,
        inner: &mut Inner,
        number: u64,
        progress: Progress,
    ) -> Option<JoinHandle<()>> {
        let live = inner.live.get_mut(&number).filter(|live| !live.is_ending())?;
        let encoded = progress.encode();
        inner.holdings.remove(live.class.client, live.size.all());
        live.size.progress = bytes_of(&encoded);
        inner.holdings.add(live.class.client, live.size.all());
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
    fn told(&self, number: u64, is_kept: bool) {
        let inner = &mut *self.inner.lock();
        let Some(live) = inner.live.get_mut(&number) else { return };
        live.on_wire = None;
        // A cancellation that a crash could undo is none yet. Anything else has happened already.
        if !is_kept
            && live.ending.as_ref().is_some_and(|ending| ending.state == WriteState::Cancelled)
        {
            return;
        }
        if let Some(ending) = live.ending.take() {
            inner.census.change(number, live.accepted, live.progress.state, ending.state);
            live.progress = *ending;
        }
        let watched = live.watched.clone();
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
    async fn forget(self: Arc<Self>) {
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
                    inner.census.forget(finished.state);
                    inner.holdings.remove(finished.class.client, finished.bytes);
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
    async fn keep_unkept(self: Arc<Self>) {
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
}

impl Live {
    /// One that is in its lane and nowhere else yet.
    fn new(
        id: WriteId,
        class: Class,
        accepted: Timestamp,
        key: Option<Key>,
        progress: Progress,
        turn: Turn,
        size: Size,
    ) -> Self {
        Self {
            salt: id.salt,
            class,
            accepted,
            size,
            key: key.map(Box::new),
            progress,
            ending: None,
            turn,
            is_called: false,
            is_kept: false,
            running: None,
            run: 0,
            is_overtaken: false,
            on_wire: None,
            memory: None,
            attended: None,
            asker: None,
            watched: None,
        }
    }

    /// Whether nothing else can become of it.
    fn is_ending(&self) -> bool {
        self.ending.is_some() || self.progress.state.is_final()
    }

    /// Something has become of it.
    fn tell(&self) {
        if let Some(watched) = &self.watched {
            watched.changed.notify_waiters();
        }
    }
}

impl Inner {
    /// A write comes in.
    fn add_live(&mut self, number: u64, live: Live) {
        self.census.add(number, live.accepted, live.progress.state);
        self.holdings.add(live.class.client, live.size.all());
        self.live.insert(number, Box::new(live));
    }

    /// A write is gone as if it had never been.
    fn take_live(&mut self, number: u64) -> Option<Box<Live>> {
        let live = self.live.remove(&number)?;
        self.census.remove(number, live.accepted, live.progress.state);
        self.holdings.remove(live.class.client, live.size.all());
        Some(live)
    }

    /// Census and holdings, counted anew.
    fn counted(&self) -> (Census, Holdings) {
        let (mut census, mut holdings) = (Census::default(), Holdings::default());
        for (number, live) in &self.live {
            census.add(*number, live.accepted, live.progress.state);
            holdings.add(live.class.client, live.size.all());
        }
        for (number, finished) in &self.finished {
            census.add(*number, Timestamp::EPOCH, finished.state);
            holdings.add(finished.class.client, finished.bytes);
        }
        (census, holdings)
    }

    fn forget_key(&mut self, client: u32, key: Option<[u8; 32]>, number: u64) {
        let Some(name) = key else { return };
        if self.keys.get(&(client, name)).is_some_and(|keyed| keyed.number == number) {
            self.keys.remove(&(client, name));
        }
    }
}

impl Size {
    fn of(stored: &Stored) -> Self {
        Self { request: bytes_of(&stored.request), progress: bytes_of(&stored.progress) }
    }

    const fn all(self) -> u32 {
        self.request.saturating_add(self.progress)
    }
}

/// How long a text of the store is.
fn bytes_of(text: &Bytes) -> u32 {
    u32::try_from(text.len()).unwrap_or(u32::MAX)
}
