//! Recovery of the writes that an earlier process left in the store (SPECIFICATION D7).
//!
//! Queued writes are queued again, in order. A write in `sending` may have been executed: an
//! idempotent method is repeated, any other ends as unknown. A write without its client, account or
//! permission in the config ends with that reason.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::api::ResourceName;
use crate::clock::Timestamp;
use crate::gateway::error::GatewayError;
use crate::gateway::write::writes::Writes;
use crate::writes::record::{Address, Reason, Unreadable};
use crate::writes::{Change, Progress, SharedStore, Stored, Write, WriteState};

use crate::gateway::write::queue::live::{Finished, Keyed, Live, Size, WriteGroup};
use crate::gateway::write::queue::write_queue::Queue;

/// The contents of a store, to be sorted by number.
#[derive(Default)]
pub struct Recovery {
    writes: Vec<(Write, Progress, Size)>,
    /// Above every number in the store.
    pub next_number: u64,
}

/// The numbers of recovered writes by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// They continue.
    pub queued: usize,
    /// They are repeated, without further effect if they were executed.
    pub repeated: usize,
    /// They may have been executed and are not repeated.
    pub unknown: usize,
    /// The config no longer allows them.
    pub failed: usize,
    /// They had finished.
    pub finished: usize,
}

impl Recovery {
    /// Adds a stored write.
    pub fn take(&mut self, number: u64, stored: &Stored) -> Result<(), Unreadable> {
        // The rest is loaded from the store when it is needed.
        let write = Write::decode_outline(&stored.request)?;
        let progress = Progress::decode_state(&stored.progress)?;
        self.next_number = self.next_number.max(number + 1);
        self.writes.push((write, progress, Size::of(stored)));
        Ok(())
    }

    /// The clients of these writes.
    pub fn clients(&self) -> BTreeSet<Arc<str>> {
        self.writes.iter().map(|(write, ..)| Arc::clone(&write.client)).collect()
    }
}

impl Recovered {
    /// Counts an unfinished write. Returns its lane, or the state and the reason of its end.
    fn resume_or_end(
        &mut self,
        write: &Write,
        progress: &Progress,
        lane: Result<String, GatewayError>,
    ) -> Result<String, (WriteState, Reason)> {
        let was_sending = progress.state == WriteState::Sending;
        if was_sending && !write.is_idempotent() {
            self.unknown += 1;
            let message =
                "The gateway ended while it was being sent: it may have been executed or not."
                    .to_owned();
            let reason = Reason { word: "interrupted".into(), message, status: 502 };
            return Err((WriteState::Unknown, reason));
        }
        let lane = lane.map_err(|error| {
            self.failed += 1;
            let may_have_run = progress.may_have_run || was_sending;
            let state = if may_have_run { WriteState::Unknown } else { WriteState::Failed };
            (state, error.as_reason())
        })?;
        if was_sending {
            self.repeated += 1;
        } else {
            self.queued += 1;
        }
        Ok(lane)
    }
}

impl Queue {
    /// Resumes the recovered writes and starts the queue's tasks.
    pub fn start(
        self: &Arc<Self>,
        writes: &Writes,
        current: impl Fn() -> Option<Arc<Writes>> + Clone + Send + Sync + 'static,
        recovery: Recovery,
        called: mpsc::UnboundedReceiver<u64>,
    ) {
        let recovered = self.recover(writes, recovery);
        if recovered != Recovered::default() {
            let Recovered { queued, repeated, unknown, failed, finished } = recovered;
            tracing::info!(
                queued,
                repeated,
                unknown,
                failed,
                finished,
                "writes of an earlier run were found"
            );
        }
        if let Some(events) = self.store.shared().and_then(SharedStore::events) {
            let (turns, current) = (Arc::clone(&writes.turns), current.clone());
            tokio::spawn(Arc::clone(self).follow(turns, current, events));
        }
        tokio::spawn(Arc::clone(self).run(current, called));
        tokio::spawn(Arc::clone(self).forget());
        tokio::spawn(Arc::clone(self).keep_unkept());
        self.opened();
    }

    /// Takes up the writes of an earlier process, or of another replica.
    pub(super) fn recover(self: &Arc<Self>, writes: &Writes, mut recovery: Recovery) -> Recovered {
        recovery.writes.sort_by_key(|(write, ..)| write.id.number);
        let now = self.clock.now();
        let mut counts = Recovered::default();
        {
            let inner = &mut *self.inner.lock();
            inner.next_number = inner.next_number.max(recovery.next_number);
        }
        for (write, progress, size) in recovery.writes {
            // A synchronous write without a waiter, whose acceptance was never announced.
            if progress.state == WriteState::Queued && progress.has_waiter {
                drop(self.store.apply(Change::Remove(vec![write.id.number])));
                continue;
            }
            // Nothing more is sent for a write that is done, and most are.
            let is_done = progress.state == WriteState::Done;
            let group_and_lane = (!is_done).then(|| writes.group_and_lane(&write));
            let group = match &group_and_lane {
                Some(Ok((group, _))) => group.clone(),
                // Without a client, only operators see it.
                Some(Err(_)) | None => WriteGroup {
                    client: writes.client_named(&write.client),
                    content: false,
                    resource: ResourceName::core(),
                },
            };
            if let Some(key) = write.key {
                let keyed = Keyed { number: write.id.number, meaning: key.meaning };
                self.inner.lock().keys.insert((group.client, key.name), keyed);
            }
            let Some(group_and_lane) = group_and_lane.filter(|_| !progress.state.is_final()) else {
                counts.finished += 1;
                let ended_at = progress.finished.unwrap_or(now);
                self.finished(&write, group, progress.state, ended_at, size);
                continue;
            };
            match counts.resume_or_end(&write, &progress, group_and_lane.map(|(_, lane)| lane)) {
                Ok(lane) => self.resume(writes, &write, group, &lane, progress, size),
                Err((state, reason)) => {
                    self.end_recovered(&write, group, Progress { state, ..progress }, reason, size);
                }
            }
        }
        counts
    }

    /// Ends a write that cannot be resumed.
    fn end_recovered(
        &self,
        write: &Write,
        group: WriteGroup,
        progress: Progress,
        why: Reason,
        size: Size,
    ) {
        let (now, state) = (self.clock.now(), progress.state);
        tracing::warn!(write = %write.id, client = &*write.client, state = state.name(), why = why.message, "a write of an earlier run does not go on");
        let progress = Progress { finished: Some(now), reason: Some(Box::new(why)), ..progress };
        // If this is not stored, the next start repeats it.
        drop(self.store.apply(Change::Progress(write.id.number, progress.encode())));
        self.metrics.write_ended(state.name(), progress.attempts, now.since(write.accepted));
        self.finished(write, group, state, now, size);
    }

    pub(super) fn finished(
        &self,
        write: &Write,
        group: WriteGroup,
        state: WriteState,
        at: Timestamp,
        size: Size,
    ) {
        let key = write.key.map(|key| Box::new(key.name));
        let finished = Finished { salt: write.id.salt, group, state, bytes: size.all(), key };
        self.inner.lock().add_finished(write.id.number, finished, at + self.retention);
    }

    fn resume(
        &self,
        writes: &Writes,
        write: &Write,
        group: WriteGroup,
        lane: &str,
        progress: Progress,
        size: Size,
    ) {
        let inner = &mut *self.inner.lock();
        let number = write.id.number;
        let turn = writes.turns.readmit(group.client, lane, number);
        let may_have_run = progress.may_have_run || progress.state == WriteState::Sending;
        let state = if may_have_run { WriteState::Sending } else { WriteState::Queued };
        let progress = Progress { state, may_have_run, ..progress };
        let mut live = Live::new(write.id, group, write.accepted, write.key, progress, turn, size);
        live.is_kept = true;
        inner.add_live(number, live);
    }
}

impl Writes {
    /// The group and the lane of a recovered write under the current config.
    pub(super) fn group_and_lane(
        &self,
        write: &Write,
    ) -> Result<(WriteGroup, String), GatewayError> {
        let (route, client) = self.queued_route(write, None)?;
        let content = route.content || write.address == Address::Graphql;
        Ok((WriteGroup { client, content, resource: route.endpoint.resource.clone() }, route.lane))
    }

    /// A client's index in the config, removed ones included; else an index without a client.
    fn client_named(&self, name: &str) -> u32 {
        if let Some(client) = self.router.clients().named(name) {
            return client.index;
        }
        let place = self.env.config.clients.iter().position(|client| &*client.name == name);
        place.and_then(|place| u32::try_from(place).ok()).unwrap_or(u32::MAX)
    }
}
