//! The change of the store from one process to the next: requests about queued writes wait for it
//! here, and are refused after it (SPECIFICATION, "Commands").

use std::sync::Arc;
use std::time::Duration;

use crate::gateway::error::GatewayError;
use crate::gateway::write::queue::live::{Access, Inner};
use crate::gateway::write::queue::write_queue::Queue;

/// The longest wait of a request for the store of a predecessor. Chosen here: the default of
/// `listen.drain`, within which a predecessor ends.
const STORE_WITHIN: Duration = Duration::from_secs(30);

impl Inner {
    /// True if a client waits for a write behind this one in its lane.
    pub fn holds_up_client(&self, number: u64) -> bool {
        let has_client = |number: u64| {
            let waiters = self.live.get(&number).and_then(|live| live.waiters.synchronous);
            waiters.is_some_and(|waiters| waiters > 0)
        };
        self.live.get(&number).is_some_and(|live| live.turn.holds_up_client(has_client))
    }
}

impl Queue {
    /// Lets go on what a drain stopped, where a client has come to wait behind it.
    pub fn resume_for_clients(&self) {
        self.resume_stopped(&mut self.inner.lock());
    }

    pub(super) fn resume_stopped(&self, inner: &mut Inner) {
        for number in std::mem::take(&mut inner.stopped) {
            if inner.holds_up_client(number) {
                self.restart(inner, number);
            } else if inner.live.contains_key(&number) {
                inner.stopped.push(number);
            }
        }
    }
}

/// Guard: a request that needs the store.
pub struct StoreUse(Arc<Queue>);

impl Queue {
    /// Lets requests wait until [`Queue::opened`].
    pub fn await_store(&self) {
        self.inner.lock().access = Access::Awaited;
    }

    /// Holds the writes of these clients until the store of the predecessor is open, because queued
    /// ones may go first in their lanes.
    pub fn hold_clients(&self, clients: Vec<u32>) {
        self.inner.lock().held_clients = clients;
    }

    /// Waits until no write of the predecessor goes first.
    pub async fn in_order(self: &Arc<Self>, client: u32) -> Result<(), GatewayError> {
        let is_held = {
            let inner = self.inner.lock();
            inner.access == Access::Awaited && inner.held_clients.contains(&client)
        };
        if is_held { self.enter().await.map(drop) } else { Ok(()) }
    }

    pub(in crate::gateway::write) fn opened(&self) {
        self.inner.lock().access = Access::Open;
        self.store_opened.notify_waiters();
    }

    /// Waits for the store of a predecessor. Fails with 503 after a bound, and once a successor has
    /// the store.
    pub async fn enter(self: &Arc<Self>) -> Result<StoreUse, GatewayError> {
        let until = self.clock.now() + STORE_WITHIN;
        loop {
            let mut opened = std::pin::pin!(self.store_opened.notified());
            // Registered before the check, so that no notification is lost in between.
            opened.as_mut().enable();
            {
                let inner = &mut *self.inner.lock();
                match inner.access {
                    Access::Open => {
                        inner.users += 1;
                        return Ok(StoreUse(Arc::clone(self)));
                    }
                    Access::Closed => return Err(GatewayError::Draining),
                    Access::Awaited => {}
                }
            }
            tokio::select! {
                () = opened => {}
                () = self.clock.reach(until) => return Err(GatewayError::NotKept),
            }
        }
    }

    /// Closes the store to requests, unless one uses it, a write is on its way, or an outcome is
    /// being stored. Call it in a drain, in which no write begins without a client.
    pub fn close_if_quiet(&self) -> bool {
        let inner = &mut *self.inner.lock();
        let is_quiet = inner.users == 0
            && inner.unkept.is_empty()
            && inner.live.values().all(|live| {
                live.is_kept
                    && live.ending.is_none()
                    && live.run.on_wire.is_none()
                    && live.waiters.synchronous.is_none()
            });
        if is_quiet {
            inner.access = Access::Closed;
        }
        is_quiet
    }
}

impl Drop for StoreUse {
    fn drop(&mut self) {
        self.0.inner.lock().users -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use futures_util::poll;

    use super::*;
    use crate::clock::{Clock, Timestamp};
    use crate::telemetry::Metrics;
    use crate::writes::memory::MemoryStore;

    fn queue() -> (Arc<Queue>, Clock) {
        let clock = Clock::manual(Timestamp::from_secs(1_000));
        let (store, metrics) = (Arc::new(MemoryStore::default()), Arc::new(Metrics::new()));
        (Queue::new(store, clock.clone(), Duration::from_secs(60), metrics), clock)
    }

    #[tokio::test]
    async fn a_request_waits_for_the_store_of_a_predecessor() {
        let (queue, clock) = queue();
        queue.await_store();
        queue.hold_clients(vec![1]);
        assert!(queue.in_order(2).await.is_ok());
        assert!(poll!(Box::pin(queue.in_order(1))).is_pending());
        let mut waiting = Box::pin(queue.enter());
        assert!(poll!(waiting.as_mut()).is_pending());
        queue.opened();
        let Poll::Ready(Ok(using)) = poll!(waiting.as_mut()) else { panic!("it goes on waiting") };
        assert!(!queue.close_if_quiet());
        drop(using);
        assert!(queue.close_if_quiet());
        assert!(matches!(queue.enter().await, Err(GatewayError::Draining)));
        queue.await_store();
        let waiting = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { queue.enter().await.err() }
        });
        tokio::task::yield_now().await;
        clock.advance(STORE_WITHIN);
        assert!(matches!(waiting.await.unwrap(), Some(GatewayError::NotKept)));
    }
}
