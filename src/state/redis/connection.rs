//! The connection to Redis: opened in the background, shared by all operations, opened anew when it
//! fails.
//!
//! An operation never waits for a connection. It takes the present one, or fails at once. So a
//! Redis that is away costs a request nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use redis::aio::PubSub;
use redis::{Cmd, FromRedisValue, RedisError};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use super::check::Examined;
use super::fault::{away, is_refusing_changes, is_spoiling, says};
use super::opening::{OPENED_WITHIN, Opened, Opener, Wire};
use crate::clock::{Timestamp, timer_now};
use crate::config;
use crate::state::Away;

/// The distance of attempts to connect, which doubles up to the second value. Ours: a Redis that
/// returns is noticed within a second. After an attempt that hangs, the replica still reports
/// before a new record grants what it holds (`decision::fleet`).
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// The longest time of a long command. Ours: 32 MiB at 32 megabits a second.
const LONGEST: Duration = Duration::from_secs(10);

/// The time for which a Redis counts as full after its last refusal. Ours: a copy or a write a
/// minute tries again.
const FULL_FOR: Duration = Duration::from_mins(1);

/// The longest thing that goes with short commands. Ours: half a millisecond at a gigabit a second.
pub const SHORT_BYTES_MAX: usize = 64 * 1024;
/// Bytes that Redis takes or gives at least in this time. Ours: a link of 32 megabits a second.
const BYTES_PER_MICROSECOND: u64 = 4;

/// The time that a thing of this length takes at most.
pub const fn time_for(bytes: usize) -> Duration {
    Duration::from_micros(bytes as u64 / BYTES_PER_MICROSECOND)
}

/// See the module.
pub struct Connection {
    /// `None`: the settings are of no use.
    opener: Option<Arc<Opener>>,
    op_timeout: Duration,
    /// The openings of another connection to the same server, which finds faults earlier and says
    /// what is wrong.
    first: Option<watch::Receiver<u64>>,
    state: RwLock<State>,
    /// The last refusal of a change, because memory is full.
    full_at: Mutex<Option<Instant>>,
    /// The memory that is left is for queued writes.
    is_short: AtomicBool,
    /// An operation has failed so that the connection is of no use, or all has ended.
    spoilt: Arc<Notify>,
    /// The number of connections opened so far; 0 before the first.
    opened: watch::Sender<u64>,
}

enum State {
    Open(Wire, u64),
    Away(Arc<str>),
}

impl Connection {
    /// Begins to connect. Must run on a tokio runtime.
    pub fn begin(settings: &config::Redis) -> Arc<Self> {
        Self::begin_one(settings, None)
    }

    /// The same for long commands and answers, which would hold up short ones. It is opened anew
    /// whenever the first one is.
    pub fn begin_second(settings: &config::Redis, first: &Self) -> Arc<Self> {
        Self::begin_one(settings, Some(first.opened.subscribe()))
    }

    fn begin_one(settings: &config::Redis, first: Option<watch::Receiver<u64>>) -> Arc<Self> {
        let longest = if first.is_some() { LONGEST } else { settings.op_timeout };
        let (opener, reason) = match Opener::new(settings, longest) {
            Ok(opener) => (Some(Arc::new(opener)), "not connected yet".into()),
            Err(fault) => (None, fault.to_string().into()),
        };
        let connection = Arc::new(Self {
            opener,
            op_timeout: settings.op_timeout,
            first,
            full_at: Mutex::default(),
            is_short: AtomicBool::new(false),
            state: RwLock::new(State::Away(reason)),
            spoilt: Arc::default(),
            opened: watch::channel(0).0,
        });
        tokio::spawn(keep_open(Arc::downgrade(&connection)));
        connection
    }

    /// Connects once, and checks that the server is usable. Returns the time of its clock.
    pub async fn examine(settings: &config::Redis) -> Result<Timestamp, Examined> {
        let opener =
            Opener::new(settings, OPENED_WITHIN).map_err(|fault| Examined::Away(away(&fault)))?;
        let Opened { wire, .. } = opener.open().await?;
        let checked = timeout(OPENED_WITHIN, async {
            opener.check_messages(wire.clone()).await?;
            opener.time(&wire).await
        });
        checked.await.map_err(|_| Away("no answer within a second".to_owned()))?
    }

    /// Runs a command.
    pub async fn run<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Away> {
        self.run_within(self.op_timeout, command).await
    }

    /// The same for a command that may take so much more time.
    pub async fn run_slow<T: FromRedisValue>(
        &self,
        more: Duration,
        command: &Cmd,
    ) -> Result<T, Away> {
        self.run_within(self.op_timeout + more, command).await
    }

    /// Runs a command with such a long argument or answer that it may take so much more time. It
    /// may run twice: the connection may turn out to be of no use.
    pub async fn run_long<T: FromRedisValue>(
        &self,
        more: Duration,
        command: &Cmd,
    ) -> Result<T, Away> {
        let begun = timer_now();
        let mut opened = self.opened.subscribe();
        if self.away().is_none() {
            opened.borrow_and_update();
            let ran = self.run_within(self.op_timeout + more, command).await;
            if ran.is_ok() || self.away().is_none() || timer_now() - begun > self.op_timeout {
                return ran;
            }
        }
        // It fails by itself, if it is not opened in time.
        let _ = timeout(OPENED_WITHIN, opened.changed()).await;
        self.run_within(self.op_timeout + more, command).await
    }

    async fn run_within<T: FromRedisValue>(
        &self,
        time: Duration,
        command: &Cmd,
    ) -> Result<T, Away> {
        let (mut wire, number) = match &*self.state.read() {
            State::Open(wire, number) => (wire.clone(), *number),
            State::Away(reason) => return Err(Away(reason.to_string())),
        };
        match timeout(time, wire.run(command)).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(fault)) => {
                let is_in_cluster = matches!(wire, Wire::Cluster(_));
                if is_spoiling(&fault) || !is_in_cluster && is_refusing_changes(&fault) {
                    self.spoil(number, &fault.to_string());
                } else if says(&fault, "OOM") {
                    self.refused_for_room(&fault);
                }
                Err(away(&fault))
            }
            Err(_) => {
                let reason = format!("no answer within {} ms", time.as_millis());
                self.spoil(number, &reason);
                Err(Away(reason))
            }
        }
    }

    /// Returns the reason for which there is no connection.
    pub fn away(&self) -> Option<String> {
        match &*self.state.read() {
            State::Open(..) => None,
            State::Away(reason) => Some(reason.to_string()),
        }
    }

    /// True if the server has memory for copies: none of them was refused just now, and queued
    /// writes do not need the rest.
    pub fn has_room_for_copies(&self) -> bool {
        let is_full = self.full_at.lock().is_some_and(|at| timer_now() - at < FULL_FOR);
        !is_full && !self.is_short.load(Ordering::Relaxed)
    }

    /// Leaves the memory that is left to queued writes, or not.
    pub fn set_short(&self, is_short: bool) {
        if is_short && !self.is_short.swap(is_short, Ordering::Relaxed) {
            tracing::warn!(
                "Redis keeps no further copies of answers: queued writes need its memory"
            );
        }
        self.is_short.store(is_short, Ordering::Relaxed);
    }

    fn refused_for_room(&self, fault: &RedisError) {
        let now = timer_now();
        let before = self.full_at.lock().replace(now);
        if before.is_none_or(|before| now - before > FULL_FOR) {
            tracing::warn!(error = %fault, "Redis has no memory left: it takes no copies of answers and no new queued writes");
        }
    }

    /// Waits for a connection with another number than this one; `None` when all has ended.
    #[cfg(test)]
    pub async fn opened_after(&self, number: u64) -> Option<u64> {
        let mut opened = self.opened.subscribe();
        let opened = opened.wait_for(|opened| *opened != number).await;
        opened.ok().map(|opened| *opened)
    }

    /// Opens a connection for messages.
    pub async fn open_for_messages(&self) -> Result<PubSub, Away> {
        let Some(opener) = &self.opener else {
            return Err(Away(self.away().unwrap_or_default()));
        };
        match timeout(OPENED_WITHIN, opener.open_for_messages()).await {
            Ok(pubsub) => pubsub.map_err(|fault| away(&fault)),
            Err(_) => Err(Away("no connection for messages within a second".to_owned())),
        }
    }

    fn spoil(&self, number: u64, reason: &str) {
        let mut state = self.state.write();
        if matches!(&*state, State::Open(_, open) if *open == number) {
            *state = State::Away(reason.into());
            self.spoilt.notify_one();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.spoilt.notify_one();
    }
}

/// Keeps a connection open for as long as somebody has it.
async fn keep_open(connection: Weak<Connection>) {
    let (mut pause, mut number) = (PAUSE, 0);
    let mut first = connection.upgrade().and_then(|this| this.first.clone());
    loop {
        if let Some(first) = &mut first {
            // Opened before the first one, it would be opened anew at once.
            let opened = first.wait_for(|opened| *opened > 0).await;
            if opened.is_err() {
                return;
            }
        }
        let Some(this) = connection.upgrade() else { return };
        let Some(opener) = this.opener.clone() else { return };
        match opener.open().await {
            Ok(Opened { wire, primary }) => {
                number += 1;
                // The first one says it to the second one too.
                let primary = primary.filter(|_| first.is_none());
                *this.state.write() = State::Open(wire, number);
                this.opened.send_replace(number);
                let (spoilt, since) = (Arc::clone(&this.spoilt), timer_now());
                drop(this);
                let reason = tokio::select! {
                    () = spoilt.notified() => None,
                    () = opened_anew(&mut first) => Some("it is opened anew"),
                    () = opener.has_moved(primary) => Some("the Sentinels name another primary"),
                };
                if let Some(reason) = reason {
                    let Some(this) = connection.upgrade() else { return };
                    *this.state.write() = State::Away(reason.into());
                } else if timer_now() - since < PAUSE_MAX {
                    // It takes connections, and fails their operations.
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                } else {
                    pause = PAUSE;
                }
            }
            Err(fault) => {
                let reason = fault.to_string();
                if let Examined::Unsuitable(_) = fault {
                    // Once: it stays as it is until an operator changes it.
                    let is_new = this.away().is_none_or(|before| before != reason);
                    if is_new && this.first.is_none() {
                        tracing::error!(problem = reason, "Redis cannot be used");
                    }
                }
                *this.state.write() = State::Away(reason.into());
                drop((this, opener));
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// Waits until the first connection is opened anew, if there is one.
async fn opened_anew(first: &mut Option<watch::Receiver<u64>>) {
    let Some(first) = first else { return std::future::pending().await };
    if first.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
