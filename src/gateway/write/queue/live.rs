//! A write as the queue holds it in memory, while it is live and when it has ended, and the
//! requests that wait for it. A waiter reports the write's waits, costs and outcome like those of
//! any other request (SPECIFICATION, "Promises" and "Metrics").

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::api::ResourceName;
use crate::clock::{Moment, Timestamp};
use crate::gateway::active::ActiveGuard;
use crate::gateway::counted::Counted;
use crate::gateway::dispatch::progress::{Hold, RequestProgress};
use crate::gateway::error::GatewayError;
use crate::gateway::http::interim::Interims;
use crate::gateway::shared_space::Share;
use crate::gateway::write::queue::counts::{Counts, Usage};
use crate::gateway::write::turns::Turn;
use crate::telemetry::spans::TraceSpan;
use crate::writes::record::Key;
use crate::writes::{Progress, Stored, WriteId, WriteState};

/// A group of writes with the same limits: of one client and one budget, content or not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WriteGroup {
    /// The client's index in the config.
    pub client: u32,
    /// True if they count against the content limits.
    pub content: bool,
    /// The resource of their budget.
    pub resource: ResourceName,
}

/// The state of the store, as far as requests are concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    #[default]
    Open,
    /// A predecessor has it.
    Awaited,
    /// A successor may have it.
    Closed,
}

#[derive(Default)]
pub struct Inner {
    pub next_number: u64,
    /// Boxed: sequential inserts leave a tree of large values half empty.
    pub live: BTreeMap<u64, Box<Live>>,
    pub finished: BTreeMap<u64, Finished>,
    pub counts: Counts,
    pub usage: Usage,
    /// By client and key.
    pub keys: HashMap<(u32, [u8; 32]), Keyed>,
    pub expiry: BTreeSet<(Timestamp, u64)>,
    /// Live writes with an outcome that is not stored yet.
    pub unkept: BTreeSet<u64>,
    pub access: Access,
    /// The clients with writes at a predecessor that has the store.
    pub held_clients: Vec<u32>,
    /// The requests that use the store.
    pub users: usize,
    /// The writes that a drain stopped before they were sent.
    pub stopped: Vec<u64>,
}

/// A write without an outcome, or with one that is not stored yet.
pub struct Live {
    pub salt: u64,
    pub group: WriteGroup,
    pub accepted: Timestamp,
    pub size: Size,
    pub key: Option<Box<Key>>,
    pub progress: Progress,
    /// The outcome while it is being stored; it is final.
    pub ending: Option<Box<Progress>>,
    pub turn: Turn,
    /// True once the store has accepted it.
    pub is_kept: bool,
    /// The body's share of memory, for an in-memory store.
    pub memory: Option<Share>,
    pub run: Run,
    pub waiters: Waiters,
}

#[derive(Default)]
pub struct Run {
    /// True once its turn has come.
    pub is_called: bool,
    pub task: Option<AbortHandle>,
    /// Counts restarts; results of earlier runs are ignored.
    pub number: u32,
    /// Restart it once it is off the wire.
    pub is_overtaken: bool,
    /// Delays shutdown while it may be executing upstream.
    pub on_wire: Option<ActiveGuard>,
}

#[derive(Default)]
pub struct Waiters {
    /// The number of waiters of a synchronous write, dropped at zero. `None`: asynchronous.
    pub synchronous: Option<u32>,
    /// The waiting request; set once there is one or the write runs.
    pub waiter: Option<Box<SyncWaiter>>,
    pub watched: Option<Arc<Watched>>,
}

/// The request that a write is executed for. Without a waiter it has only its progress.
#[derive(Default)]
pub struct SyncWaiter {
    /// Shared by all waiters.
    pub request_progress: RequestProgress,
    /// The first waiter's span, for the spans of attempts.
    pub span: Option<TraceSpan>,
    pub interims: Option<Arc<Interims>>,
    /// Counts its client as waiting until its turn.
    pub waits: Option<Counted>,
    /// True while other writes go first.
    pub is_held: bool,
}

/// The stored size of a write in bytes.
#[derive(Clone, Copy, Default)]
pub struct Size {
    pub request: u32,
    pub progress: u32,
}

pub struct Finished {
    pub salt: u64,
    pub group: WriteGroup,
    pub state: WriteState,
    pub bytes: u32,
    pub key: Option<Box<[u8; 32]>>,
}

/// The write of an `Idempotency-Key`.
pub struct Keyed {
    pub number: u64,
    pub meaning: [u8; 32],
}

#[derive(Default)]
pub struct Watched {
    pub changed: Notify,
    /// The error of a synchronous write that was dropped without a trace.
    pub refused: Mutex<Option<GatewayError>>,
    /// The end of the write.
    pub outcome: Mutex<Option<Progress>>,
}

impl Live {
    pub fn new(
        id: WriteId,
        group: WriteGroup,
        accepted: Timestamp,
        key: Option<Key>,
        progress: Progress,
        turn: Turn,
        size: Size,
    ) -> Self {
        Self {
            salt: id.salt,
            group,
            accepted,
            size,
            key: key.map(Box::new),
            progress,
            ending: None,
            turn,
            is_kept: false,
            memory: None,
            run: Run::default(),
            waiters: Waiters::default(),
        }
    }

    pub fn is_ending(&self) -> bool {
        self.latest().state.is_final()
    }

    /// The stored progress, or the outcome that is being stored.
    pub fn latest(&self) -> &Progress {
        self.ending.as_deref().unwrap_or(&self.progress)
    }

    pub fn set_state(&mut self, counts: &mut Counts, number: u64, state: WriteState) {
        counts.change(number, self.accepted, self.progress.state, state);
        self.progress.state = state;
    }

    pub fn notify_waiters(&self) {
        if let Some(watched) = &self.waiters.watched {
            watched.changed.notify_waiters();
        }
    }

    /// Begins the wait for its turn in the progress of its waiter, once.
    pub fn begin_turn_wait(&mut self, now: Moment) {
        if let Some(waiter) = &mut self.waiters.waiter
            && !std::mem::replace(&mut waiter.is_held, true)
        {
            waiter.request_progress.held(now, Hold::TURN);
        }
    }
}

impl Inner {
    pub fn add_live(&mut self, number: u64, live: Live) {
        self.counts.add(number, live.accepted, live.progress.state);
        self.usage.add(live.group.client, live.size.all());
        self.live.insert(number, Box::new(live));
    }

    pub fn take_live(&mut self, number: u64) -> Option<Box<Live>> {
        let live = self.live.remove(&number)?;
        self.counts.remove(number, live.accepted, live.progress.state);
        self.usage.remove(live.group.client, live.size.all());
        Some(live)
    }

    /// Adds a finished write, which is forgotten at this time.
    pub fn add_finished(&mut self, number: u64, finished: Finished, forgotten_at: Timestamp) {
        self.counts.add(number, Timestamp::EPOCH, finished.state);
        self.usage.add(finished.group.client, finished.bytes);
        self.finished.insert(number, finished);
        self.expiry.insert((forgotten_at, number));
    }

    /// Takes a finished write out; its expiry stays.
    pub fn take_finished(&mut self, number: u64) -> Option<Finished> {
        let finished = self.finished.remove(&number)?;
        self.counts.forget(finished.state);
        self.usage.remove(finished.group.client, finished.bytes);
        Some(finished)
    }

    /// A live write that the store has accepted.
    pub fn kept(&self, id: WriteId) -> Option<&Live> {
        let live = self.live.get(&id.number)?;
        (live.salt == id.salt && live.is_kept).then_some(live)
    }

    pub fn finished(&self, id: WriteId) -> Option<&Finished> {
        self.finished.get(&id.number).filter(|finished| finished.salt == id.salt)
    }

    pub fn counted(&self) -> (Counts, Usage) {
        let (mut counts, mut usage) = (Counts::default(), Usage::default());
        for (number, live) in &self.live {
            counts.add(*number, live.accepted, live.progress.state);
            usage.add(live.group.client, live.size.all());
        }
        for (number, finished) in &self.finished {
            counts.add(*number, Timestamp::EPOCH, finished.state);
            usage.add(finished.group.client, finished.bytes);
        }
        (counts, usage)
    }

    pub fn forget_key(&mut self, client: u32, key: Option<[u8; 32]>, number: u64) {
        let Some(name) = key else { return };
        if self.keys.get(&(client, name)).is_some_and(|keyed| keyed.number == number) {
            self.keys.remove(&(client, name));
        }
    }
}

impl Size {
    pub fn of(stored: &Stored) -> Self {
        Self { request: bytes_of(&stored.request), progress: bytes_of(&stored.progress) }
    }

    pub const fn all(self) -> u32 {
        self.request.saturating_add(self.progress)
    }
}

pub fn bytes_of(text: &Bytes) -> u32 {
    u32::try_from(text.len()).unwrap_or(u32::MAX)
}
