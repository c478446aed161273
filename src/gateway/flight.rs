//! One fetch for all who ask the same at the same time (DESIGN D1): the fetch is a task of its own, its askers wait on a channel.
//!
//! A fetch that still waits in line waits at the place of the client that started it, behind all else that this client has asked for. Another client gets a fetch and a
//! place of its own beside it (DESIGN D10); the first of them to bring an answer brings it for all, and those still in line are given up.
//!
//! A fetch that nobody waits for any more is dropped at once while it is still in line for admission, and gets [`ORPHAN_GRACE`] to finish into the cache
//! once it is on its way. What is fetched, and how, is in `read.rs`.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::clock::Timestamp;
use crate::decision::Priority;
use crate::decision::cache_key::CacheKey;

use super::attempt::Answer;
use super::effort::Effort;
use super::refuse::Refused;
use super::store::Entry;
use crate::telemetry::Fetch;

/// DESIGN D1: how long a fetch without askers may go on.
const ORPHAN_GRACE: Duration = Duration::from_secs(2);

/// How a fetch ended.
#[derive(Clone)]
pub enum Landed {
    /// With an answer that everyone who waited may have.
    Entry(Arc<Entry>, Fetch),
    /// With a body too large to hold: the first to take it streams it, the others fetch for themselves.
    Large(Arc<Mutex<Option<Answer>>>),
    /// Without an answer.
    Refused(Refused),
}

/// A fetch that is under way.
struct Underway {
    effort: Effort,
    /// When it was started: it may show a state from before a later write.
    started_at: Timestamp,
    /// Whose place it waits at, and with which priority.
    client: u32,
    priority: Priority,
    landed: watch::Sender<Option<Arrival>>,
    /// Another one has brought the answer.
    superseded: Notify,
}

/// The end of a fetch, and whether it is that of another one.
#[derive(Clone)]
struct Arrival {
    landed: Landed,
    is_of_other: bool,
}

/// An asker's place in a fetch; the fetch is deserted when the last one is dropped.
pub struct Seat {
    /// What the fetch has cost.
    pub effort: Effort,
    /// Whether this asker started it.
    pub role: Role,
    landed: watch::Receiver<Option<Arrival>>,
}

/// Whether an asker started the fetch it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It did.
    Leader,
    /// Another one did.
    Follower,
}

/// Who wants to take part.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// When it asks.
    pub now: Timestamp,
    /// At whose place it would wait for a fetch of its own, and with which priority.
    pub client: u32,
    /// See `client`.
    pub priority: Priority,
}

/// All fetches that are under way, those for the same beside each other.
#[derive(Default)]
pub struct Flights {
    by_key: Mutex<ByKey>,
}

type ByKey = HashMap<CacheKey, Vec<Arc<Underway>>>;

impl Flights {
    /// Joins a fetch for `key` that is on its way or waits where this asker would; else starts the one that `start` makes. Fetches of which `is_stale` says that they
    /// began too early are no longer joined by anybody.
    pub fn join<F>(
        self: &Arc<Self>,
        key: &CacheKey,
        asker: Asker,
        is_stale: impl Fn(Timestamp) -> bool,
        start: impl FnOnce(Effort) -> F,
    ) -> Seat
    where
        F: Future<Output = Landed> + Send + 'static,
    {
        let mut by_key = self.by_key.lock();
        let flights = by_key.entry(key.clone()).or_default();
        flights.retain(|underway| !is_stale(underway.started_at));
        if let Some(underway) = flights.iter().find(|underway| underway.is_as_early_as(asker)) {
            return underway.seat(Role::Follower);
        }
        let underway = Arc::new(Underway {
            effort: Effort::default(),
            started_at: asker.now,
            client: asker.client,
            priority: asker.priority,
            landed: watch::Sender::new(None),
            superseded: Notify::new(),
        });
        let seat = underway.seat(Role::Leader);
        flights.push(Arc::clone(&underway));
        drop(by_key);
        let fetch = start(underway.effort.clone());
        let departure = Departure { flights: Arc::clone(self), key: key.clone(), underway };
        tokio::spawn(departure.fly(fetch));
        seat
    }

    /// How many requests wait for a fetch, all fetches together.
    pub fn askers(&self) -> usize {
        self.by_key.lock().values().flatten().map(|underway| underway.landed.receiver_count()).sum()
    }
}

impl Underway {
    /// Whether it is on its way, or waits no longer for it than this asker would.
    fn is_as_early_as(&self, asker: Asker) -> bool {
        self.client == asker.client && self.priority >= asker.priority || !self.effort.waits_in_line()
    }

    fn seat(&self, role: Role) -> Seat {
        Seat { effort: self.effort.clone(), role, landed: self.landed.subscribe() }
    }
}

impl Seat {
    /// Waits for the end. Who started the fetch follows another one when that brings the answer.
    pub async fn landed(&mut self) -> Landed {
        // Without one the task was ended from outside, as at the end of the process.
        let arrival = self.landed.wait_for(Option::is_some).await.ok().and_then(|arrival| arrival.clone());
        let Some(Arrival { landed, is_of_other }) = arrival else { return Landed::Refused(Refused::UpstreamFailed) };
        if is_of_other {
            self.role = Role::Follower;
        }
        landed
    }
}

/// The task's end of a fetch: takes it off the list and tells the askers, however the task ends.
struct Departure {
    flights: Arc<Flights>,
    key: CacheKey,
    underway: Arc<Underway>,
}

impl Departure {
    async fn fly(self, fetch: impl Future<Output = Landed>) {
        tokio::pin!(fetch);
        loop {
            tokio::select! {
                landed = &mut fetch => return self.land(landed),
                // Its askers have their answer. What is on its way all the same, by a hair, is not cut off.
                () = self.underway.superseded.notified() => {
                    if self.underway.effort.is_on_wire() {
                        let _ = tokio::time::timeout(ORPHAN_GRACE, &mut fetch).await;
                    }
                    return;
                }
                () = self.underway.landed.closed() => {
                    if self.underway.effort.is_on_wire()
                        && let Ok(landed) = tokio::time::timeout(ORPHAN_GRACE, &mut fetch).await
                    {
                        return self.land(landed);
                    }
                    let mut by_key = self.flights.by_key.lock();
                    // Somebody may have joined meanwhile; under the lock nobody can.
                    if self.underway.landed.is_closed() {
                        self.strike(&mut by_key);
                        return;
                    }
                }
            }
        }
    }

    fn land(self, landed: Landed) {
        // Off the list first: who comes from now on finds the stored answer.
        let mut by_key = self.flights.by_key.lock();
        let is_listed = self.strike(&mut by_key);
        if is_listed && let (Landed::Entry(..), Some(beside)) = (&landed, by_key.get_mut(&self.key)) {
            for waiting in beside.extract_if(.., |underway| !underway.effort.is_on_wire()) {
                waiting.landed.send_replace(Some(Arrival { landed: landed.clone(), is_of_other: true }));
                waiting.superseded.notify_one();
            }
            if beside.is_empty() {
                by_key.remove(&self.key);
            }
        }
        drop(by_key);
        self.underway.landed.send_replace(Some(Arrival { landed, is_of_other: false }));
    }

    /// Takes it off the list; whether it was there. It is not when it was found to have begun too early.
    fn strike(&self, by_key: &mut ByKey) -> bool {
        let Some(flights) = by_key.get_mut(&self.key) else { return false };
        let before = flights.len();
        flights.retain(|listed| !Arc::ptr_eq(listed, &self.underway));
        let is_listed = flights.len() < before;
        if flights.is_empty() {
            by_key.remove(&self.key);
        }
        is_listed
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        self.strike(&mut self.flights.by_key.lock());
        self.underway.landed.send_if_modified(|landed| {
            let died = landed.is_none();
            if died {
                *landed = Some(Arrival { landed: Landed::Refused(Refused::UpstreamFailed), is_of_other: false });
            }
            died
        });
    }
}
