//! A write as the queue holds it in memory, while it is live and when it has ended.

use crate::api::ResourceName;
use crate::clock::Timestamp;
use crate::gateway::active::Entered;
use crate::gateway::error::GatewayError;
use crate::gateway::write::queue::counts::Counts;
use crate::gateway::write::queue::sync_waiter::SyncWaiter;
use crate::gateway::write::queue::usage::Usage;
use crate::gateway::write::turns::Turn;
use crate::writes::record::Key;
use crate::writes::{Progress, Stored, WriteId, WriteState};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::task::AbortHandle;

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

pub struct Inner {
    pub next_number: u64,
    /// Boxed: a tree of large values is half empty where they come in order.
    pub live: BTreeMap<u64, Box<Live>>,
    pub finished: BTreeMap<u64, Finished>,
    /// Of both.
    pub counts: Counts,
    /// Of both, too: what they take of the store.
    pub usage: Usage,
    /// By client and key.
    pub keys: HashMap<(u32, [u8; 32]), Keyed>,
    /// When finished writes are forgotten.
    pub expiry: BTreeSet<(Timestamp, u64)>,
    /// Live writes whose outcome the store has not taken.
    pub unkept: BTreeSet<u64>,
}

/// A write that has not come to its end, or whose end is not kept yet.
pub struct Live {
    pub salt: u64,
    pub class: Class,
    pub accepted: Timestamp,
    pub size: Size,
    pub key: Option<Box<Key>>,
    /// Its state as the store has it.
    pub progress: Progress,
    /// Its end, while the store is being told. Nothing else can become of it any more.
    pub ending: Option<Box<Progress>>,
    /// Holds its place as long as it lives.
    pub turn: Turn,
    /// Whether the store has it.
    pub is_kept: bool,
    /// The body's part of the memory for bodies, where the store keeps it in memory.
    pub memory: Option<OwnedSemaphorePermit>,
    pub run: Run,
    pub waiters: Waiters,
}

/// The attempts of one live write.
#[derive(Default)]
pub struct Run {
    /// Whether it is its turn.
    pub is_called: bool,
    pub task: Option<AbortHandle>,
    /// How often it was to be begun anew: what an earlier run says counts no more.
    pub number: u32,
    /// It is to be begun anew when it comes off the wire.
    pub is_overtaken: bool,
    /// While it may be executed upstream, the gateway does not end.
    pub on_wire: Option<Entered>,
}

/// Requests that wait for one live write.
#[derive(Default)]
pub struct Waiters {
    /// `None`: it was accepted and belongs to nobody's connection. Else how many wait for it:
    /// without any, it is given up.
    pub attended: Option<u32>,
    /// Whom it is carried out for, once somebody waits for it or it is under way.
    pub waiter: Option<Box<SyncWaiter>>,
    pub watched: Option<Arc<Watched>>,
}

/// What the store keeps of a write, in bytes.
#[derive(Clone, Copy, Default)]
pub struct Size {
    pub request: u32,
    pub progress: u32,
}

/// One that has.
pub struct Finished {
    pub salt: u64,
    pub class: Class,
    pub state: WriteState,
    /// What the store keeps of it.
    pub bytes: u32,
    pub key: Option<Box<[u8; 32]>>,
}

/// What an `Idempotency-Key` stands for.
pub struct Keyed {
    pub number: u64,
    pub meaning: [u8; 32],
}

/// For those who wait for a write.
#[derive(Default)]
pub struct Watched {
    pub changed: Notify,
    /// Why it was given up without a trace, where it was attended.
    pub refused: Mutex<Option<GatewayError>>,
}

impl Live {
    /// One that is in its lane and nowhere else yet.
    pub fn new(
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
            is_kept: false,
            memory: None,
            run: Run::default(),
            waiters: Waiters::default(),
        }
    }

    /// Whether nothing else can become of it.
    pub fn is_ending(&self) -> bool {
        self.ending.is_some() || self.progress.state.is_final()
    }

    /// Something has become of it.
    pub fn tell(&self) {
        if let Some(watched) = &self.waiters.watched {
            watched.changed.notify_waiters();
        }
    }

    /// Others go first, which whoever waits for it is to know.
    pub fn is_behind(&mut self, now: Timestamp) {
        self.waiters.waiter.iter_mut().for_each(|waiter| waiter.is_behind(now));
    }
}

impl Inner {
    /// A write comes in.
    pub fn add_live(&mut self, number: u64, live: Live) {
        self.counts.add(number, live.accepted, live.progress.state);
        self.usage.add(live.class.client, live.size.all());
        self.live.insert(number, Box::new(live));
    }

    /// A write is gone as if it had never been.
    pub fn take_live(&mut self, number: u64) -> Option<Box<Live>> {
        let live = self.live.remove(&number)?;
        self.counts.remove(number, live.accepted, live.progress.state);
        self.usage.remove(live.class.client, live.size.all());
        Some(live)
    }

    /// Census and holdings, counted anew.
    pub fn counted(&self) -> (Counts, Usage) {
        let (mut counts, mut usage) = (Counts::default(), Usage::default());
        for (number, live) in &self.live {
            counts.add(*number, live.accepted, live.progress.state);
            usage.add(live.class.client, live.size.all());
        }
        for (number, finished) in &self.finished {
            counts.add(*number, Timestamp::EPOCH, finished.state);
            usage.add(finished.class.client, finished.bytes);
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

/// How long a text of the store is.
pub fn bytes_of(text: &Bytes) -> u32 {
    u32::try_from(text.len()).unwrap_or(u32::MAX)
}
