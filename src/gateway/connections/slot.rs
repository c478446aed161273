//! The state of one connection, which its task and the choice of victims share. No lock is taken.
//!
//! A connection is busy while a request is under way on it. A busy one cannot be evicted, and an
//! evicted one cannot become busy.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;

/// The number of requests of an evicted connection. None has so many streams.
const EVICTED: u32 = u32::MAX;

/// The listener that a connection came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Listener {
    Http,
    Https,
    Unix,
}

impl Listener {
    pub const ALL: [Self; 3] = [Self::Http, Self::Https, Self::Unix];

    /// The word for metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Unix => "unix",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// It has carried no request of a known client, and carries none: a handshake, an unfinished
    /// head, silence, or answers to strangers.
    New,
    Idle,
    Busy,
}

impl State {
    pub const ALL: [Self; 3] = [Self::New, Self::Idle, Self::Busy];

    /// The word for metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Idle => "idle",
            Self::Busy => "busy",
        }
    }
}

pub struct Slot {
    pub(super) listener: Listener,
    /// The begin of all times here.
    origin: Instant,
    /// Requests under way, or [`EVICTED`].
    under_way: AtomicU32,
    /// True once a request came with the key of a client.
    is_known: AtomicBool,
    /// Milliseconds: the begin of the connection, or the end of the last request of a client.
    since: AtomicU64,
    /// Milliseconds: the last head of an HTTP/2 stream, whose request is about to begin.
    head_at: AtomicU64,
    task: OnceLock<AbortHandle>,
}

impl Slot {
    pub(super) fn new(listener: Listener, origin: Instant, now: Instant) -> Self {
        Self {
            listener,
            origin,
            under_way: AtomicU32::new(0),
            is_known: AtomicBool::new(false),
            since: AtomicU64::new(millis(origin, now)),
            head_at: AtomicU64::new(0),
            task: OnceLock::new(),
        }
    }

    /// A connection that no gate counts.
    #[cfg(test)]
    pub fn alone() -> Arc<Self> {
        let now = crate::clock::timer_now();
        Arc::new(Self::new(Listener::Http, now, now))
    }

    /// The task that serves the connection; without one, nothing is evicted.
    pub fn serve_by(&self, task: AbortHandle) {
        // There is one task for each connection.
        let _ = self.task.set(task);
    }

    /// Begins a request. False: the connection was evicted, and ends.
    pub fn begin(&self) -> bool {
        let begun = |requests| (requests != EVICTED).then(|| requests + 1);
        self.under_way.fetch_update(Ordering::AcqRel, Ordering::Acquire, begun).is_ok()
    }

    /// Ends a request that was begun.
    pub fn end(&self, now: Instant) {
        // An idle connection of a stranger stays as old as it is: answers to strangers are cheap,
        // and must not keep its place.
        if self.is_known() {
            self.since.store(millis(self.origin, now), Ordering::Relaxed);
        }
        self.under_way.fetch_sub(1, Ordering::AcqRel);
    }

    /// Notes that a request had the key of a client.
    pub fn know(&self) {
        if !self.is_known() {
            self.is_known.store(true, Ordering::Relaxed);
        }
    }

    pub fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// Notes the head of an HTTP/2 stream. Its request begins in a task of its own.
    pub fn head_came(&self, now: Instant) {
        self.head_at.store(millis(self.origin, now), Ordering::Relaxed);
    }

    /// Requests under way.
    pub fn requests(&self) -> u32 {
        match self.under_way.load(Ordering::Acquire) {
            EVICTED => 0,
            requests => requests,
        }
    }

    pub(super) fn state(&self) -> State {
        match self.under_way.load(Ordering::Acquire) {
            0 | EVICTED if self.is_known() => State::Idle,
            0 | EVICTED => State::New,
            _ => State::Busy,
        }
    }

    /// True if no request is under way and it was not evicted before.
    pub(super) fn may_end(&self) -> bool {
        self.under_way.load(Ordering::Acquire) == 0
    }

    /// The end of the last request of a client, or the begin of the connection.
    pub fn last_end(&self) -> Instant {
        self.origin + Duration::from_millis(self.since())
    }

    pub(super) fn since(&self) -> u64 {
        self.since.load(Ordering::Relaxed)
    }

    pub(super) fn head_at(&self) -> u64 {
        self.head_at.load(Ordering::Relaxed)
    }

    /// Ends the connection unless a request is under way. False: one is, or it was evicted before.
    pub(super) fn evict(&self) -> bool {
        let Some(task) = self.task.get() else { return false };
        let evicted =
            self.under_way.compare_exchange(0, EVICTED, Ordering::AcqRel, Ordering::Acquire);
        if evicted.is_ok() {
            task.abort();
        }
        evicted.is_ok()
    }
}

/// Whole milliseconds of the process's time.
pub(super) fn millis(origin: Instant, now: Instant) -> u64 {
    u64::try_from(now.saturating_duration_since(origin).as_millis()).unwrap_or(u64::MAX)
}

/// Guard: a request of an HTTP/2 stream is under way.
pub struct Busy(Arc<Slot>);

impl Busy {
    /// `None`: the connection was evicted.
    pub fn begin(slot: &Arc<Slot>) -> Option<Self> {
        slot.begin().then(|| Self(Arc::clone(slot)))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.end(crate::clock::timer_now());
    }
}

/// The requests of an HTTP/1.1 connection, one at a time.
pub struct Turn {
    slot: Arc<Slot>,
    is_begun: bool,
}

impl Turn {
    pub fn new(slot: Arc<Slot>) -> Self {
        Self { slot, is_begun: false }
    }

    pub fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    /// Begins a request, unless one has begun. False: the connection was evicted, and ends.
    pub fn begin(&mut self) -> bool {
        self.is_begun = self.is_begun || self.slot.begin();
        self.is_begun
    }

    /// Ends the request that has begun, if one has.
    pub fn end(&mut self, now: Instant) {
        if std::mem::take(&mut self.is_begun) {
            self.slot.end(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::timer_now;

    fn served() -> (Slot, tokio::task::JoinHandle<()>) {
        let now = timer_now();
        let slot = Slot::new(Listener::Http, now, now);
        let task = tokio::spawn(std::future::pending());
        slot.serve_by(task.abort_handle());
        (slot, task)
    }

    #[tokio::test]
    async fn an_idle_connection_is_evicted_and_takes_no_request() {
        let (slot, task) = served();
        assert!(slot.evict() && !slot.evict());
        assert!(!slot.begin());
        assert!(task.await.unwrap_err().is_cancelled());
    }

    #[tokio::test]
    async fn a_busy_connection_is_never_evicted() {
        let (slot, task) = served();
        assert!(slot.begin() && slot.begin());
        slot.end(timer_now());
        assert!(!slot.evict());
        assert!(!task.is_finished() && slot.requests() == 1);
        slot.end(timer_now());
        assert!(slot.evict());
    }

    #[tokio::test]
    async fn answers_to_strangers_do_not_make_a_connection_younger() {
        let (slot, _task) = served();
        let later = timer_now() + Duration::from_secs(5);
        assert!(slot.begin());
        slot.end(later);
        assert_eq!((slot.state(), slot.since()), (State::New, 0));
        assert!(slot.begin());
        slot.know();
        slot.end(later);
        assert_eq!(slot.state(), State::Idle);
        assert!(slot.since() >= 5_000);
    }
}
