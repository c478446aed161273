//! Events of the queue that all replicas share: turns, and the writes of a replica that is gone
//! (SPECIFICATION, "Several replicas").

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::clock::Timestamp;
use crate::gateway::write::queue::write_queue::{PATIENCE, Queue, STORE_PAUSE};
use crate::gateway::write::recovery::Recovery;
use crate::gateway::write::turns::Turns;
use crate::gateway::write::writes::Writes;
use crate::writes::record::Unreadable;
use crate::writes::redis::Event;
use crate::writes::{Change, Progress, StoreError, Stored};

impl Queue {
    /// Follows what happens in the store of all replicas, for the life of the gateway.
    pub(in crate::gateway::write) async fn follow(
        self: Arc<Self>,
        turns: Arc<Turns>,
        current: impl Fn() -> Option<Arc<Writes>> + Send + Sync,
        mut events: mpsc::UnboundedReceiver<Event>,
    ) {
        while let Some(event) = events.recv().await {
            match event {
                Event::Turn(number) => turns.call_shared(number),
                Event::Lost(number) => self.lost(number),
                Event::Joined(number) => self.joined_elsewhere(number),
                Event::Adopted(numbers) => {
                    for number in numbers {
                        let loaded = self.load_adopted(number).await;
                        let Some(writes) = current() else { return };
                        if let Some((stored, is_joined)) = loaded {
                            self.adopt(&writes, number, stored, is_joined);
                        }
                    }
                }
            }
        }
    }

    /// Loads a write that this replica has taken over; `None`: it is gone.
    async fn load_adopted(&self, number: u64) -> Option<(Stored, bool)> {
        let shared = self.store.shared()?;
        loop {
            match shared.load_adopted(number).await {
                Ok(stored) => return stored,
                Err(fault @ StoreError::Sealed) => {
                    tracing::error!(write = number, error = %fault, "a write of another replica cannot be read");
                    return None;
                }
                Err(fault) => {
                    tracing::warn!(write = number, error = %fault, "a write of another replica could not be read, and is tried again");
                    self.clock.reach(self.clock.now() + STORE_PAUSE).await;
                }
            }
        }
    }

    /// Takes up a write. One that a client of another replica was promised has no waiter any more.
    fn adopt(self: &Arc<Self>, writes: &Writes, number: u64, stored: Stored, is_joined: bool) {
        if self.inner.lock().live.contains_key(&number) {
            return;
        }
        let mut recovery = Recovery::default();
        let taken = promised(stored, is_joined, self.clock.now() + PATIENCE);
        match taken.and_then(|stored| recovery.take(number, &stored)) {
            Ok(()) => {
                self.metrics.write_taken_over();
                self.recover(writes, recovery);
            }
            Err(fault) => {
                tracing::error!(write = number, error = %fault, "a write of another replica cannot be read");
            }
        }
    }

    /// Makes a write asynchronous, because a client of another replica was promised it.
    fn joined_elsewhere(&self, number: u64) {
        let inner = &mut *self.inner.lock();
        let Some(live) = inner.live.get_mut(&number) else { return };
        if live.waiters.synchronous.take().is_none() {
            return;
        }
        live.progress.has_waiter = false;
        live.progress.deadline = live.progress.deadline.max(self.clock.now() + PATIENCE);
        let encoded = live.latest().encode();
        // If this fails, the next progress has it.
        drop(self.store.apply(Change::Progress(number, encoded)));
        if !live.is_ending() {
            self.restart_off_wire(inner, number);
        }
    }
}

/// The write with its progress as that of an asynchronous one, if it was promised.
fn promised(stored: Stored, is_joined: bool, until: Timestamp) -> Result<Stored, Unreadable> {
    if !is_joined {
        return Ok(stored);
    }
    let progress = Progress::decode(&stored.progress)?;
    if !progress.has_waiter {
        return Ok(stored);
    }
    let progress = Progress { has_waiter: false, deadline: until, ..progress };
    Ok(Stored { progress: progress.encode(), ..stored })
}
