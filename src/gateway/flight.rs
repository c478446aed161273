//! One fetch for all who ask the same at the same time (DESIGN D1): the fetch is a task of its own, its askers wait on a channel.
//!
//! A fetch that nobody waits for any more is dropped at once while it is still in line for admission, and gets [`ORPHAN_GRACE`] to finish into the cache
//! once it is on its way. What is fetched, and how, is in `read.rs`.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::clock::Timestamp;
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
    landed: watch::Sender<Option<Landed>>,
}

/// An asker's place in a fetch; the fetch is deserted when the last one is dropped.
pub struct Seat {
    /// What the fetch has cost.
    pub effort: Effort,
    /// Whether this asker started it.
    pub role: Role,
    landed: watch::Receiver<Option<Landed>>,
}

/// Whether an asker started the fetch it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It did.
    Leader,
    /// Another one did.
    Follower,
}

/// All fetches that are under way.
#[derive(Default)]
pub struct Flights {
    by_key: Mutex<HashMap<CacheKey, Arc<Underway>>>,
}

impl Flights {
    /// Joins the fetch for `key` unless `is_stale` says that it began too early, else starts the one that `start` makes.
    pub fn join<F>(
        self: &Arc<Self>,
        key: &CacheKey,
        now: Timestamp,
        is_stale: impl Fn(Timestamp) -> bool,
        start: impl FnOnce(Effort) -> F,
    ) -> Seat
    where
        F: Future<Output = Landed> + Send + 'static,
    {
        let mut by_key = self.by_key.lock();
        if let Some(underway) = by_key.get(key).filter(|underway| !is_stale(underway.started_at)) {
            return underway.seat(Role::Follower);
        }
        let underway = Arc::new(Underway { effort: Effort::default(), started_at: now, landed: watch::Sender::new(None) });
        let seat = underway.seat(Role::Leader);
        by_key.insert(key.clone(), Arc::clone(&underway));
        drop(by_key);
        let fetch = start(underway.effort.clone());
        let departure = Departure { flights: Arc::clone(self), key: key.clone(), underway };
        tokio::spawn(departure.fly(fetch));
        seat
    }

    /// How many requests wait for a fetch, all fetches together.
    pub fn askers(&self) -> usize {
        self.by_key.lock().values().map(|underway| underway.landed.receiver_count()).sum()
    }
}

impl Underway {
    fn seat(&self, role: Role) -> Seat {
        Seat { effort: self.effort.clone(), role, landed: self.landed.subscribe() }
    }
}

impl Seat {
    /// Waits for the end.
    pub async fn landed(&mut self) -> Landed {
        match self.landed.wait_for(Option::is_some).await {
            Ok(landed) => landed.clone().unwrap_or(Landed::Refused(Refused::UpstreamFailed)),
            // The task was ended from outside, as at the end of the process.
            Err(_) => Landed::Refused(Refused::UpstreamFailed),
        }
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
        self.strike(&mut self.flights.by_key.lock());
        self.underway.landed.send_replace(Some(landed));
    }

    fn strike(&self, by_key: &mut HashMap<CacheKey, Arc<Underway>>) {
        // A newer fetch for the same key is not ours to take off.
        if by_key.get(&self.key).is_some_and(|listed| Arc::ptr_eq(listed, &self.underway)) {
            by_key.remove(&self.key);
        }
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        self.strike(&mut self.flights.by_key.lock());
        self.underway.landed.send_if_modified(|landed| {
            let died = landed.is_none();
            if died {
                *landed = Some(Landed::Refused(Refused::UpstreamFailed));
            }
            died
        });
    }
}
