//! This replica among the others: its home, its id, and what is known of both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, broadcast};

use crate::clock::{Timestamp, timer_now};
use crate::config;
use crate::decision::fleet::ReplicaId;

use super::redis::{Connection, RedisHome};
use super::{Away, Changes, Home, Peers, Seal};
use crate::state::message::{Content, Message, WriteNews};

/// The time after a message of its own, once heard, for which a replica relies on what it has
/// heard. Ours: four of these messages.
pub const TOUCH: Duration = Duration::from_secs(1);

/// News of writes that are not taken up yet. Ours: more than replicas say in a second. A replica
/// that misses some looks again within a second.
const NEWS_MAX: usize = 4_096;

/// This replica.
pub struct Replica {
    home: Arc<dyn Home>,
    connection: Arc<Connection>,
    long: Arc<Connection>,
    id: ReplicaId,
    since: Timestamp,
    prefix: Arc<str>,
    reach: Mutex<Reach>,
    /// The end of the time in which nothing that the others said can be unheard, in milliseconds.
    touched_until: AtomicU64,
    /// The same for all replicas that are known: as long as none of them is silent.
    heard_until: AtomicU64,
    touched: Notify,
    has_left: AtomicBool,
    seal: RwLock<Seal>,
    /// Changes that the others are to hear of.
    pub changes: Changes,
    /// The other replicas.
    pub peers: Peers,
    /// News of queued writes, from the others and from here.
    pub write_news: broadcast::Sender<WriteNews>,
}

/// The reach of what the replicas share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It has not been reached yet, for this reason.
    Never(String),
    /// It is in reach.
    In,
    /// It is out of reach since this time, for this reason.
    Out(Timestamp, String),
}

impl Replica {
    /// A replica with this Redis, which begins to connect; `number` is random. Must run on a tokio
    /// runtime.
    pub fn begin(settings: &config::Redis, number: u64, now: Timestamp) -> Arc<Self> {
        let home = Arc::new(RedisHome::begin(settings));
        let connection = home.connection();
        let reach = Mutex::new(Reach::Never("not connected yet".to_owned()));
        Arc::new(Self {
            long: home.long_connection(),
            connection,
            home,
            id: ReplicaId(number),
            since: now,
            prefix: Arc::clone(&settings.prefix),
            reach,
            touched_until: AtomicU64::new(0),
            heard_until: AtomicU64::new(0),
            touched: Notify::new(),
            has_left: AtomicBool::new(false),
            seal: RwLock::default(),
            changes: Changes::default(),
            peers: Peers::default(),
            write_news: broadcast::channel(NEWS_MAX).0,
        })
    }

    /// The state that it shares with the others.
    pub fn home(&self) -> &Arc<dyn Home> {
        &self.home
    }

    /// The connection of the home.
    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// The connection for long commands and answers.
    pub fn long_connection(&self) -> &Arc<Connection> {
        &self.long
    }

    /// Differs from that of every other replica.
    pub fn id(&self) -> ReplicaId {
        self.id
    }

    /// The beginning of all names that the replicas share.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Uses the keys of a config from now on.
    pub fn use_keys_of(&self, state: &config::State) {
        *self.seal.write() = Seal::of(state);
    }

    /// The keys for what is kept in Redis.
    pub fn seal(&self) -> Seal {
        self.seal.read().clone()
    }

    /// Begin of this replica.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// The reach at the last [`Replica::look`].
    pub fn reach(&self) -> Reach {
        self.reach.lock().clone()
    }

    /// Notes whether the home is in reach. Returns the reach before, if that has changed.
    pub fn look(&self, now: Timestamp) -> Option<Reach> {
        let away = self.home.away();
        let mut reach = self.reach.lock();
        let new = match (&*reach, away) {
            (_, None) => Reach::In,
            (Reach::Never(_), Some(reason)) => Reach::Never(reason),
            (Reach::In, Some(reason)) => Reach::Out(now, reason),
            (Reach::Out(since, _), Some(reason)) => Reach::Out(*since, reason),
        };
        let is_other = std::mem::discriminant(&*reach) != std::mem::discriminant(&new);
        let before = std::mem::replace(&mut *reach, new);
        is_other.then_some(before)
    }

    /// Notes that this replica has heard its own message of `sent_at`, and so all before it.
    pub fn touch(&self, sent_at: Timestamp) {
        self.touched_until.fetch_max((sent_at + TOUCH).as_millis(), Ordering::AcqRel);
        self.touched.notify_waiters();
    }

    /// Returns true if the others may have said something that this replica has not heard.
    pub fn is_out_of_touch(&self, now: Timestamp) -> bool {
        now.as_millis() >= self.touched_until.load(Ordering::Acquire)
    }

    /// Notes that some time may have passed since the last word of a replica.
    pub fn look_for_silence(&self, now: Timestamp) {
        let until = now + TOUCH - self.peers.silence(timer_now());
        self.heard_until.store(until.as_millis(), Ordering::Release);
    }

    /// Returns true if a replica may have completed a change since `at` that is unheard here. A
    /// silent one completes none within [`TOUCH`]: it waits longer for the others to note it.
    pub fn may_have_missed(&self, at: Timestamp, now: Timestamp) -> bool {
        let is_silent = || now.as_millis() >= self.heard_until.load(Ordering::Acquire);
        self.is_out_of_touch(now) || at + TOUCH <= now && is_silent()
    }

    /// Waits until this replica hears the others.
    pub async fn in_touch(&self, now: impl Fn() -> Timestamp) {
        loop {
            let mut touched = std::pin::pin!(self.touched.notified());
            // Registered before the check, so that no touch is missed in between.
            touched.as_mut().enable();
            if !self.is_out_of_touch(now()) {
                return;
            }
            touched.await;
        }
    }

    /// Notes that this replica stops.
    pub fn leave(&self) {
        self.has_left.store(true, Ordering::Release);
    }

    /// True if this replica stops, and is to say no more that it is there.
    pub fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Acquire)
    }

    /// Sends a message to the others.
    pub async fn tell(&self, content: Content) -> Result<(), Away> {
        self.home.publish(&Message { from: self.id, content }).await
    }
}
