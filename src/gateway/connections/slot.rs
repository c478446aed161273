//! The state of one connection, which its task and the choice of victims share. No lock is taken.
//!
//! A connection is busy while a request is under way on it. A busy one cannot be evicted once it
//! has carried a request of a client, unless all of its requests wait for a slow client: a
//! stranger's request protects nothing. An evicted one carries no further request, and a client's
//! request that it has begun does not go on.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout};

/// The flag of an evicted connection.
const EVICTED: u32 = 1 << 31;
/// The flag of a connection that has carried a request of a client.
const KNOWN: u32 = 1 << 30;
/// The bits that count the requests under way. No connection has so many streams.
const REQUESTS: u32 = ONE_SLOW - 1;
/// One of those that wait for a slow client, in the bits above.
const ONE_SLOW: u32 = 1 << 15;
/// The bits of their number.
const SLOW: u32 = KNOWN - ONE_SLOW;

/// The time that a client may be late, by its floor rate, before its connection may make room for
/// another one. Chosen here: many round trips, and a fraction of the usual patience.
pub const SLOW_AFTER: Duration = Duration::from_secs(5);

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
    /// The number of requests under way, and the flags. One value: an eviction and a client's
    /// request exclude each other.
    state: AtomicU32,
    /// Milliseconds: the begin of the connection, or the end of the last request of a client.
    since: AtomicU64,
    /// Milliseconds: the head of an HTTP/2 stream whose request is about to begin, the last one of
    /// a client or the first one of a stranger.
    head_at: AtomicU64,
    has_sent: AtomicBool,
    task: OnceLock<AbortHandle>,
}

impl Slot {
    pub(super) fn new(listener: Listener, origin: Instant, now: Instant) -> Self {
        Self {
            listener,
            origin,
            state: AtomicU32::new(0),
            since: AtomicU64::new(millis(origin, now)),
            head_at: AtomicU64::new(0),
            // The bytes of a handshake are read elsewhere.
            has_sent: AtomicBool::new(listener == Listener::Https),
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
        self.changed(|state| (state & EVICTED == 0).then(|| state + 1))
    }

    /// Ends a request that was begun.
    pub fn end(&self, now: Instant) {
        // An idle connection of a stranger stays as old as it is: answers to strangers are cheap,
        // and must not keep its place.
        if self.is_known() {
            self.since.store(millis(self.origin, now), Ordering::Relaxed);
        }
        self.state.fetch_sub(1, Ordering::AcqRel);
    }

    /// Notes that the request under way is one of a client: the connection is not evicted before
    /// its end. No effect if it was evicted before.
    pub fn know(&self) {
        if !self.is_known() {
            self.changed(|state| (state & EVICTED == 0).then_some(state | KNOWN));
        }
    }

    pub fn is_known(&self) -> bool {
        self.state.load(Ordering::Relaxed) & KNOWN != 0
    }

    /// Notes that a request under way waits for its client, who is slow.
    pub fn waits_slow(self: &Arc<Self>) -> Slow {
        self.state.fetch_add(ONE_SLOW, Ordering::AcqRel);
        Slow(Arc::clone(self))
    }

    /// Awaits what a client has to do for its request, within a time. `late`: the time by which the
    /// client is late already.
    pub async fn awaits_client<T>(
        self: &Arc<Self>,
        late: Duration,
        within: Duration,
        what: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        let mut what = pin!(what);
        let not_slow = SLOW_AFTER.saturating_sub(late).min(within);
        match timeout(not_slow, &mut what).await {
            Err(_) if not_slow < within => {
                let _slow = self.waits_slow();
                timeout(within.saturating_sub(not_slow), what).await
            }
            ended => ended,
        }
    }

    /// True if the connection makes room for another one, and ends.
    pub fn is_evicted(&self) -> bool {
        self.state.load(Ordering::Acquire) & EVICTED != 0
    }

    /// Notes that the client has sent bytes.
    pub fn sends(&self) {
        self.has_sent.store(true, Ordering::Relaxed);
    }

    /// True unless the client is known to have sent nothing.
    pub(super) fn has_sent(&self) -> bool {
        self.has_sent.load(Ordering::Relaxed)
    }

    /// Notes the head of an HTTP/2 stream. Its request begins in a task of its own.
    pub fn head_came(&self, now: Instant) {
        // With one head after another, a stranger would keep its place.
        if self.is_known() || self.head_at() == 0 {
            self.head_at.store(millis(self.origin, now), Ordering::Relaxed);
        }
    }

    /// Requests under way.
    pub fn requests(&self) -> u32 {
        self.state.load(Ordering::Acquire) & REQUESTS
    }

    pub(super) fn state(&self) -> State {
        let state = self.state.load(Ordering::Acquire);
        if state & EVICTED == 0 && state & REQUESTS > 0 {
            State::Busy
        } else if state & KNOWN != 0 {
            State::Idle
        } else {
            State::New
        }
    }

    /// True if no request of a client is under way that does not wait for it, and it was not
    /// evicted before.
    pub(super) fn may_end(&self) -> bool {
        may_end(self.state.load(Ordering::Acquire))
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

    /// Ends the connection unless a request of a client is under way that does not wait for it.
    /// False: one is, or it was evicted before.
    pub(super) fn evict(&self) -> bool {
        let Some(task) = self.task.get() else { return false };
        let is_evicted = self.changed(|state| may_end(state).then_some(state | EVICTED));
        if is_evicted {
            task.abort();
        }
        is_evicted
    }

    /// Changes the state, unless `change` has none for it.
    fn changed(&self, change: impl FnMut(u32) -> Option<u32>) -> bool {
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_ok()
    }
}

/// True if a connection in this state may be evicted.
const fn may_end(state: u32) -> bool {
    let is_slow = (state & SLOW) / ONE_SLOW == state & REQUESTS;
    state & EVICTED == 0 && (state & KNOWN == 0 || is_slow)
}

/// Whole milliseconds of the process's time.
pub(super) fn millis(origin: Instant, now: Instant) -> u64 {
    u64::try_from(now.saturating_duration_since(origin).as_millis()).unwrap_or(u64::MAX)
}

/// Guard: a request under way waits for a slow client.
pub struct Slow(Arc<Slot>);

impl Drop for Slow {
    fn drop(&mut self) {
        self.0.state.fetch_sub(ONE_SLOW, Ordering::AcqRel);
    }
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
    async fn a_busy_connection_of_a_client_is_never_evicted() {
        let (slot, task) = served();
        assert!(slot.begin() && slot.begin());
        slot.know();
        slot.end(timer_now());
        assert!(!slot.evict());
        assert!(!task.is_finished() && slot.requests() == 1);
        slot.end(timer_now());
        assert!(slot.evict());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_whose_requests_all_wait_for_it_may_be_evicted() {
        let (slot, _task) = served();
        let slot = Arc::new(slot);
        assert!(slot.begin() && slot.begin());
        slot.know();
        let first = slot.waits_slow();
        assert!(!slot.evict());
        let never = std::future::pending::<()>();
        let mut waits = pin!(slot.awaits_client(SLOW_AFTER / 2, 6 * SLOW_AFTER, never));
        let instant = Duration::from_millis(1);
        assert!(timeout((SLOW_AFTER / 2).saturating_sub(instant), &mut waits).await.is_err());
        assert!(!slot.may_end());
        assert!(timeout(2 * instant, &mut waits).await.is_err());
        assert!(slot.may_end());
        assert!(waits.await.is_err() && !slot.may_end());
        drop(first);
        slot.end(timer_now());
        let _second = slot.waits_slow();
        assert!(slot.evict());
    }

    #[tokio::test]
    async fn a_strangers_request_does_not_protect_its_connection() {
        let (slot, task) = served();
        assert!(slot.begin() && slot.evict());
        assert!(task.await.unwrap_err().is_cancelled());
        // A key that is read too late does not bring it back.
        slot.know();
        assert!(slot.is_evicted() && !slot.is_known());
        slot.end(timer_now());
        assert!(!slot.begin());
    }

    #[tokio::test]
    async fn only_the_first_head_of_a_stranger_counts() {
        let (slot, _task) = served();
        let at = |seconds| timer_now() + Duration::from_secs(seconds);
        slot.head_came(at(5));
        let first = slot.head_at();
        slot.head_came(at(50));
        assert_eq!(slot.head_at(), first);
        assert!(slot.begin());
        slot.know();
        slot.head_came(at(500));
        assert!(slot.head_at() > first);
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
