//! Waiting for one's turn to write: the shell around `decision/lanes.rs` (DESIGN D7, CONTRACT §4,
//! 4).
//!
//! Who holds a connection waits for its turn; a queued write is called by its number, so that
//! thousands may stand in lanes without a task each.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::decision::writes::lanes::{LaneKey, LanePosition, LaneTicket, Lanes, LanesFull};

/// All lanes, shared by all writes.
pub struct Turns {
    inner: Mutex<Inner>,
    /// Queued writes whose turn has come. As many as there are places in lanes, at most.
    calls: mpsc::UnboundedSender<u64>,
}

struct Inner {
    lanes: Lanes,
    waiting: HashMap<LaneTicket, Called>,
}

/// Who is told when a turn comes.
enum Called {
    SyncWaiter(oneshot::Sender<()>),
    Queued(u64),
}

/// A place in a lane; dropping it lets the next one go.
pub struct Turn {
    turns: Arc<Turns>,
    ticket: LaneTicket,
    called: Option<oneshot::Receiver<()>>,
}

impl Turns {
    /// No lanes, and room for `writes_max` writes; and where the numbers of queued ones come out
    /// whose turn it is.
    pub fn new(writes_max: usize) -> (Arc<Self>, mpsc::UnboundedReceiver<u64>) {
        let (calls, called) = mpsc::unbounded_channel();
        (
            Arc::new(Self {
                inner: Mutex::new(Inner { lanes: Lanes::new(writes_max), waiting: HashMap::new() }),
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
            inner.waiting.insert(ticket, Called::SyncWaiter(sender));
            receiver
        });
        Ok(Turn { turns: Arc::clone(self), ticket, called })
    }

    /// The same for a queued write. Its number comes out of the channel when it is its turn, also
    /// when that is at once.
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

    /// The same for one that was accepted before, when there may have been more room.
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
        match place {
            LanePosition::Behind => drop(inner.waiting.insert(ticket, Called::Queued(number))),
            LanePosition::Head => self.call(Called::Queued(number)),
        }
        Turn { turns: Arc::clone(self), ticket, called: None }
    }

    fn call(&self, called: Called) {
        match called {
            // Its receiver may have gone; then its own drop calls the one after it.
            Called::SyncWaiter(sender) => drop(sender.send(())),
            // Nobody listens only while the gateway ends.
            Called::Queued(number) => drop(self.calls.send(number)),
        }
    }

    /// How many writes are in lanes.
    pub fn writes(&self) -> usize {
        self.inner.lock().lanes.len()
    }
}

impl Turn {
    /// Until it is this write's turn.
    pub async fn come(&mut self) {
        if let Some(called) = &mut self.called {
            // The sender is dropped only by being used.
            let _ = called.await;
            self.called = None;
        }
    }

    /// How many writes have their turn before this one.
    pub fn ahead(&self) -> usize {
        self.turns.inner.lock().lanes.ahead(self.ticket)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut inner = self.turns.inner.lock();
        inner.waiting.remove(&self.ticket);
        if let Some(next) = inner.lanes.leave(self.ticket)
            && let Some(called) = inner.waiting.remove(&next)
        {
            self.turns.call(called);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn writes_to_one_resource_take_turns_and_a_leaver_is_skipped() {
        let (turns, _calls) = Turns::new(10);
        let mut first = turns.enter(1, "/repos/a/b").unwrap();
        let mut second = turns.enter(1, "/repos/a/b").unwrap();
        let mut third = turns.enter(1, "/repos/a/b").unwrap();
        let mut other = turns.enter(2, "/repos/a/b").unwrap();
        assert!(first.come().now_or_never().is_some());
        assert!(other.come().now_or_never().is_some());
        assert!(second.come().now_or_never().is_none());
        drop(second);
        assert!(third.come().now_or_never().is_none());
        drop(first);
        assert!(third.come().now_or_never().is_some());
        drop((third, other));
        assert_eq!(turns.writes(), 0);
    }

    #[test]
    fn leaving_while_being_called_calls_the_next() {
        let (turns, _calls) = Turns::new(10);
        let first = turns.enter(1, "/r").unwrap();
        let second = turns.enter(1, "/r").unwrap();
        let mut third = turns.enter(1, "/r").unwrap();
        drop(first);
        drop(second);
        assert!(third.come().now_or_never().is_some());
    }

    #[test]
    fn queued_writes_and_those_that_wait_share_a_lane() {
        let (turns, mut calls) = Turns::new(10);
        let mut first = turns.enter(1, "/r").unwrap();
        let second = turns.enter_queued(1, "/r", 2).unwrap();
        let mut third = turns.enter(1, "/r").unwrap();
        let fourth = turns.enter_queued(1, "/r", 4).unwrap();
        assert!(first.come().now_or_never().is_some() && calls.try_recv().is_err());
        drop(first);
        assert_eq!(calls.try_recv(), Ok(2));
        assert!(third.come().now_or_never().is_none());
        drop(second);
        assert!(third.come().now_or_never().is_some() && calls.try_recv().is_err());
        drop(third);
        assert_eq!(calls.try_recv(), Ok(4));
        let other = turns.enter_queued(2, "/r", 5).unwrap();
        assert_eq!(calls.try_recv(), Ok(5), "it is at the head at once");
        drop((fourth, other));
        assert_eq!(turns.writes(), 0);
    }
}
