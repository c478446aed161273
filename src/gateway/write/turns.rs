//! Turns in the lanes of writes: the I/O shell of `decision/writes/lanes.rs` (SPECIFICATION D7).
//!
//! A write with a connection awaits its turn. A queued write is called by its number, because
//! thousands of them must not need a task each.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::clock::Timestamp;
use crate::decision::silence::Silence;
use crate::decision::writes::lanes::{LaneKey, LanePosition, LaneTicket, Lanes, LanesFull};
use crate::gateway::dispatch::progress::RequestProgress;
use crate::writes::SharedStore;

pub struct Turns {
    /// The lanes of all replicas, which decide instead of those here. `None`: there are none.
    shared: Option<SharedStore>,
    inner: Mutex<Inner>,
    /// Numbers of queued writes with a turn; bounded by the places in lanes.
    calls: mpsc::UnboundedSender<u64>,
}

struct Inner {
    lanes: Lanes,
    waiting: HashMap<LaneTicket, WaitingWrite>,
    /// The places here of those that wait in the lanes of all replicas, by their numbers there.
    shared: HashMap<u64, LaneTicket>,
    /// Of each lane the write that is performed, with its number among all of them.
    heads: HashMap<LaneKey, (u64, RequestProgress)>,
    performed: u64,
}

enum WaitingWrite {
    SyncWaiter(oneshot::Sender<()>),
    Queued(u64),
}

/// Guard: a place in a lane; dropping it lets the next write go.
pub struct Turn {
    turns: Arc<Turns>,
    ticket: LaneTicket,
    called: Option<oneshot::Receiver<()>>,
    shared: Option<SharedPlace>,
}

/// The place of a write in the lane of all replicas.
struct SharedPlace {
    number: u64,
    /// The queued write has it, whose end leaves the lane.
    is_queued: bool,
}

impl Turns {
    /// Creates lanes for `writes_max` writes, and the channel of queued writes with a turn.
    pub fn new(writes_max: usize) -> (Arc<Self>, mpsc::UnboundedReceiver<u64>) {
        Self::among(writes_max, None)
    }

    /// The same with the lanes of all replicas, whose order counts.
    pub fn among(
        writes_max: usize,
        shared: Option<SharedStore>,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<u64>) {
        let (calls, called) = mpsc::unbounded_channel();
        (
            Arc::new(Self {
                shared,
                inner: Mutex::new(Inner {
                    lanes: Lanes::new(writes_max),
                    waiting: HashMap::new(),
                    shared: HashMap::new(),
                    heads: HashMap::new(),
                    performed: 0,
                }),
                calls,
            }),
            called,
        )
    }

    /// Joins the end of a lane: the order of writes is the order of these calls.
    pub fn enter(self: &Arc<Self>, client: u32, resource: &str) -> Result<Turn, LanesFull> {
        let mut inner = self.inner.lock();
        let (ticket, place) =
            inner.lanes.enter(LaneKey { client, resource: resource.to_owned() })?;
        let called = (place == LanePosition::Behind).then(|| {
            let (sender, receiver) = oneshot::channel();
            inner.waiting.insert(ticket, WaitingWrite::SyncWaiter(sender));
            receiver
        });
        Ok(Turn { turns: Arc::clone(self), ticket, called, shared: None })
    }

    /// The same for a client of this name, behind the writes of all replicas.
    pub fn enter_as(
        self: &Arc<Self>,
        client: u32,
        name: &str,
        resource: &str,
    ) -> Result<Turn, LanesFull> {
        let Some(shared) = &self.shared else { return self.enter(client, resource) };
        let (sender, receiver) = oneshot::channel();
        // Without a number the turn never comes: Redis was not reached yet.
        let number = shared.next_number();
        let ticket = {
            let mut inner = self.inner.lock();
            let (ticket, _) =
                inner.lanes.enter(LaneKey { client, resource: resource.to_owned() })?;
            inner.waiting.insert(ticket, WaitingWrite::SyncWaiter(sender));
            inner.shared.extend(number.map(|number| (number, ticket)));
            ticket
        };
        if let Some(number) = number {
            shared.enter(number, shared_lane(name, resource));
        }
        let shared = number.map(|number| SharedPlace { number, is_queued: false });
        Ok(Turn { turns: Arc::clone(self), ticket, called: Some(receiver), shared })
    }

    /// True if the lanes are those of all replicas.
    pub fn are_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Calls a write whose turn has come in the lane of all replicas.
    pub fn call_shared(&self, number: u64) {
        let mut inner = self.inner.lock();
        let ticket = inner.shared.get(&number).copied();
        if let Some(write) = ticket.and_then(|ticket| inner.waiting.remove(&ticket)) {
            self.shared.iter().for_each(|shared| shared.called(number));
            self.call(write);
        }
    }

    /// The same for a queued write; the channel delivers its number when its turn comes.
    pub fn enter_queued(
        self: &Arc<Self>,
        client: u32,
        resource: &str,
        number: u64,
    ) -> Result<Turn, LanesFull> {
        let mut inner = self.inner.lock();
        let (ticket, place) =
            inner.lanes.enter(LaneKey { client, resource: resource.to_owned() })?;
        Ok(self.queued(&mut inner, ticket, place, number))
    }

    /// The same for a write accepted earlier, perhaps under a higher limit.
    pub fn readmit(self: &Arc<Self>, client: u32, resource: &str, number: u64) -> Turn {
        let mut inner = self.inner.lock();
        let (ticket, place) =
            inner.lanes.readmit(LaneKey { client, resource: resource.to_owned() });
        self.queued(&mut inner, ticket, place, number)
    }

    fn queued(
        self: &Arc<Self>,
        inner: &mut Inner,
        ticket: LaneTicket,
        place: LanePosition,
        number: u64,
    ) -> Turn {
        if self.shared.is_some() {
            inner.waiting.insert(ticket, WaitingWrite::Queued(number));
            inner.shared.insert(number, ticket);
        } else if place == LanePosition::Behind {
            inner.waiting.insert(ticket, WaitingWrite::Queued(number));
        } else {
            self.call(WaitingWrite::Queued(number));
        }
        let shared = self.shared.as_ref().map(|_| SharedPlace { number, is_queued: true });
        Turn { turns: Arc::clone(self), ticket, called: None, shared }
    }

    fn call(&self, write: WaitingWrite) {
        match write {
            // The receiver may be gone; then its own drop calls the next.
            WaitingWrite::SyncWaiter(sender) => drop(sender.send(())),
            // The channel closes only at shutdown.
            WaitingWrite::Queued(number) => drop(self.calls.send(number)),
        }
    }

    pub fn writes(&self) -> usize {
        self.inner.lock().lanes.len()
    }

    /// The clients with writes in lanes.
    pub fn clients(&self) -> Vec<u32> {
        self.inner.lock().lanes.clients().collect()
    }

    /// Notes that the first write of a lane is performed, until the guard is dropped.
    pub fn perform(
        self: &Arc<Self>,
        client: u32,
        resource: &str,
        progress: &RequestProgress,
        now: Timestamp,
    ) -> Performed {
        let key = LaneKey { client, resource: resource.to_owned() };
        let mut inner = self.inner.lock();
        inner.performed += 1;
        let number = inner.performed;
        inner.heads.insert(key.clone(), (number, progress.clone()));
        if let Some(silence) = inner.lanes.silence_mut(&key) {
            silence.sent(now);
        }
        Performed { turns: Arc::clone(self), key, number }
    }

    /// The performed write of a lane, if half of a wait or more passed without an answer.
    pub fn silent_head(
        &self,
        client: u32,
        resource: &str,
        now: Timestamp,
        since: Timestamp,
    ) -> Option<RequestProgress> {
        let key = LaneKey { client, resource: resource.to_owned() };
        let inner = self.inner.lock();
        let is_unanswered = inner.lanes.silence(&key)?.is_unanswered(now, since);
        inner.heads.get(&key).filter(|_| is_unanswered).map(|(_, progress)| progress.clone())
    }
}

/// Guard: the first write of a lane is performed.
pub struct Performed {
    turns: Arc<Turns>,
    key: LaneKey,
    number: u64,
}

impl Performed {
    /// Notes an answer, or that the upstream took a piece of the body.
    pub fn answered(&self, now: Timestamp) {
        self.note(|silence| silence.answered(now));
    }

    /// Notes that the write ended without an answer, after this time on the wire.
    pub fn lost(&self, now: Timestamp, on_wire: Duration) {
        self.note(|silence| silence.lost(now, now - on_wire));
    }

    /// A write that was stopped may leave its lane before its guard ends.
    fn note(&self, note: impl FnOnce(&mut Silence)) {
        let mut inner = self.turns.inner.lock();
        if inner.heads.get(&self.key).is_some_and(|(number, _)| *number == self.number) {
            inner.lanes.silence_mut(&self.key).map(note);
        }
    }
}

impl Drop for Performed {
    fn drop(&mut self) {
        self.note(Silence::ended);
        let mut inner = self.turns.inner.lock();
        if let Entry::Occupied(head) = inner.heads.entry(self.key.clone())
            && head.get().0 == self.number
        {
            head.remove();
        }
    }
}

impl Turn {
    pub async fn wait(&mut self) {
        if let Some(called) = &mut self.called {
            // The sender is only dropped by sending.
            let _ = called.await;
            self.called = None;
        }
    }

    /// True if a client waits for a write behind this one in its lane. `has_client` knows it of a
    /// queued write by its number.
    pub fn holds_up_client(&self, has_client: impl Fn(u64) -> bool) -> bool {
        let inner = self.turns.inner.lock();
        inner.lanes.behind(self.ticket).any(|ticket| match inner.waiting.get(&ticket) {
            Some(WaitingWrite::Queued(number)) => has_client(*number),
            Some(WaitingWrite::SyncWaiter(sender)) => !sender.is_closed(),
            None => false,
        })
    }

    pub fn ahead(&self) -> usize {
        self.turns.inner.lock().lanes.ahead(self.ticket)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut inner = self.turns.inner.lock();
        inner.waiting.remove(&self.ticket);
        let next = inner.lanes.leave(self.ticket);
        let Some(shared) = &self.turns.shared else {
            if let Some(called) = next.and_then(|next| inner.waiting.remove(&next)) {
                self.turns.call(called);
            }
            return;
        };
        if let Some(SharedPlace { number, is_queued }) = self.shared {
            inner.shared.remove(&number);
            drop(inner);
            if !is_queued {
                shared.leave(number);
            }
        }
    }
}

/// The name of a lane for all replicas. They may have a client at different places of their
/// configs.
pub fn shared_lane(client: &str, resource: &str) -> String {
    format!("{client}:{resource}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn writes_to_one_resource_take_turns() {
        let (turns, _calls) = Turns::new(10);
        let mut first = turns.enter(1, "/repos/a/b").unwrap();
        let mut second = turns.enter(1, "/repos/a/b").unwrap();
        let mut third = turns.enter(1, "/repos/a/b").unwrap();
        let mut other = turns.enter(2, "/repos/a/b").unwrap();
        assert!(first.wait().now_or_never().is_some());
        assert!(other.wait().now_or_never().is_some());
        assert!(second.wait().now_or_never().is_none());
        drop(second);
        assert!(third.wait().now_or_never().is_none());
        drop(first);
        assert!(third.wait().now_or_never().is_some());
        drop((third, other));
        assert_eq!(turns.writes(), 0);
    }

    #[test]
    fn a_write_that_leaves_when_called_passes_its_turn_on() {
        let (turns, _calls) = Turns::new(10);
        let first = turns.enter(1, "/r").unwrap();
        let second = turns.enter(1, "/r").unwrap();
        let mut third = turns.enter(1, "/r").unwrap();
        drop(first);
        drop(second);
        assert!(third.wait().now_or_never().is_some());
    }

    #[test]
    fn a_guard_that_outlives_its_turn_ends_no_other_write() {
        let (turns, _calls) = Turns::new(10);
        let (progress, at) = (RequestProgress::default(), Timestamp::from_secs);
        let first = turns.enter(1, "/r").unwrap();
        let stopped = turns.perform(1, "/r", &progress, at(0));
        drop(first);
        let _second = turns.enter(1, "/r").unwrap();
        let _performed = turns.perform(1, "/r", &progress, at(1));
        drop(stopped);
        assert!(turns.silent_head(1, "/r", at(9), at(1)).is_some());
    }

    #[test]
    fn a_write_that_a_limit_held_is_no_silence() {
        let (turns, _calls) = Turns::new(10);
        let (progress, at) = (RequestProgress::default(), Timestamp::from_secs);
        let _places = [0; 4].map(|_| turns.enter(1, "/r").unwrap());
        let limited = turns.perform(1, "/r", &progress, at(0));
        limited.lost(at(20), Duration::ZERO);
        drop(limited);
        turns.perform(1, "/r", &progress, at(20)).answered(at(21));
        let _on_wire = turns.perform(1, "/r", &progress, at(21));
        assert!(turns.silent_head(1, "/r", at(22), at(0)).is_none());
    }

    #[test]
    fn queued_and_synchronous_writes_share_a_lane() {
        let (turns, mut calls) = Turns::new(10);
        let mut first = turns.enter(1, "/r").unwrap();
        let second = turns.enter_queued(1, "/r", 2).unwrap();
        let mut third = turns.enter(1, "/r").unwrap();
        let fourth = turns.enter_queued(1, "/r", 4).unwrap();
        assert!(first.wait().now_or_never().is_some() && calls.try_recv().is_err());
        drop(first);
        assert_eq!(calls.try_recv(), Ok(2));
        assert!(third.wait().now_or_never().is_none());
        drop(second);
        assert!(third.wait().now_or_never().is_some() && calls.try_recv().is_err());
        drop(third);
        assert_eq!(calls.try_recv(), Ok(4));
        let other = turns.enter_queued(2, "/r", 5).unwrap();
        assert_eq!(calls.try_recv(), Ok(5), "it is at the head at once");
        drop((fourth, other));
        assert_eq!(turns.writes(), 0);
    }
}
