//! Waiting for one's turn to write: the shell around `decision/lanes.rs` (DESIGN D7, CONTRACT §4, 4).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::decision::lanes::{LaneKey, LaneTicket, Lanes, LanesFull, Place};

/// All lanes, shared by all writes.
pub struct Turns {
    inner: Mutex<Inner>,
}

struct Inner {
    lanes: Lanes,
    waiting: HashMap<LaneTicket, oneshot::Sender<()>>,
}

/// A place in a lane; dropping it lets the next one go.
pub struct Turn {
    turns: Arc<Turns>,
    ticket: LaneTicket,
    called: Option<oneshot::Receiver<()>>,
}

impl Turns {
    /// No lanes, and room for `writes_max` writes.
    pub fn new(writes_max: usize) -> Arc<Self> {
        Arc::new(Self { inner: Mutex::new(Inner { lanes: Lanes::new(writes_max), waiting: HashMap::new() }) })
    }

    /// Joins the end of a lane: the order of writes is the order of these calls.
    pub fn enter(self: &Arc<Self>, client: u32, resource: &str) -> Result<Turn, LanesFull> {
        let mut inner = self.inner.lock();
        let (ticket, place) = inner.lanes.enter(LaneKey { client, resource: resource.to_owned() })?;
        let called = (place == Place::Behind).then(|| {
            let (sender, receiver) = oneshot::channel();
            inner.waiting.insert(ticket, sender);
            receiver
        });
        Ok(Turn { turns: Arc::clone(self), ticket, called })
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
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut inner = self.turns.inner.lock();
        inner.waiting.remove(&self.ticket);
        if let Some(next) = inner.lanes.leave(self.ticket)
            && let Some(sender) = inner.waiting.remove(&next)
        {
            // Its receiver may have gone; then its own drop calls the one after it.
            let _ = sender.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn writes_to_one_resource_take_turns_and_a_leaver_is_skipped() {
        let turns = Turns::new(10);
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
        let turns = Turns::new(10);
        let first = turns.enter(1, "/r").unwrap();
        let second = turns.enter(1, "/r").unwrap();
        let mut third = turns.enter(1, "/r").unwrap();
        drop(first);
        drop(second);
        assert!(third.come().now_or_never().is_some());
    }
}
