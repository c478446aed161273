//! One fetch for all who ask the same at the same time (DESIGN D1): whoever asks first drives it as
//! part of its own request, the others wait on a channel. When the first one leaves while it is
//! wanted all the same, the fetch becomes a task of its own.
//!
//! A fetch that still waits in line waits at the place of the client that started it, behind all
//! else that this client has asked for. Another client gets a fetch and a place of its own beside
//! it (DESIGN D10); the first of them to bring an answer brings it for all, and those still in line
//! are given up.
//!
//! A fetch that nobody waits for any more is dropped at once while it is still in line for
//! admission, and gets [`ORPHAN_GRACE`] to finish into the cache once it is on its way. What is
//! fetched, and how, is in `read.rs`.

use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

use crate::clock::Timestamp;
use crate::decision::Priority;
use crate::decision::cache::key::CacheKey;

use crate::gateway::cache::shared_body::Landing;
use crate::gateway::cache::store::Entry;
use crate::gateway::dispatch::progress::Effort;
use crate::gateway::error::Refused;
use crate::telemetry::Fetch;

/// DESIGN D1: how long a fetch without askers may go on.
const ORPHAN_GRACE: Duration = Duration::from_secs(2);

/// How a fetch ended.
#[derive(Clone)]
pub enum Landed {
    /// With an answer that everyone who waited may have.
    Entry(Arc<Entry>, Fetch),
    /// With a body too large to hold, which is read as it comes by everyone who waited.
    Large(Arc<Landing>),
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
    /// Whether the one who started it still waits, and drives it.
    is_led: AtomicBool,
    /// Where the others wait. Made for the first of them: mostly there is none.
    followers: OnceLock<watch::Sender<Option<Arrival>>>,
    /// Another one has brought the answer, and which.
    superseded: Notify,
    superseded_by: Mutex<Option<Landed>>,
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
    place: Place,
}

enum Place {
    /// It drives the fetch.
    Pilot(Flight),
    /// It waits for another one's.
    Passenger(watch::Receiver<Option<Arrival>>),
}

/// A fetch in the hands of whoever started it; dropped before its end it goes on by itself, as far
/// as it is wanted.
struct Flight(Option<(Departure, FetchFuture)>);

/// Boxed, so that it can be handed over to a task midway.
type FetchFuture = Pin<Box<dyn Future<Output = Landed> + Send>>;

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

type ByKey = HashMap<CacheKey, Vec<Arc<Underway>>, foldhash::fast::RandomState>;

impl Flights {
    /// Joins a fetch for `key` that is on its way or waits where this asker would; else starts the
    /// one that `start` makes. Fetches of which `is_stale` says that they began too early are no
    /// longer joined by anybody.
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
            return underway.follow();
        }
        let underway = Arc::new(Underway {
            effort: Effort::default(),
            started_at: asker.now,
            client: asker.client,
            priority: asker.priority,
            is_led: AtomicBool::new(true),
            followers: OnceLock::new(),
            superseded: Notify::new(),
            superseded_by: Mutex::default(),
        });
        flights.push(Arc::clone(&underway));
        drop(by_key);
        let effort = underway.effort.clone();
        let departure = Departure { flights: Arc::clone(self), key: key.clone(), underway };
        let fetch = Box::pin(start(effort.clone()));
        Seat { effort, role: Role::Leader, place: Place::Pilot(Flight(Some((departure, fetch)))) }
    }

    /// How many requests wait for a fetch, all fetches together.
    pub fn askers(&self) -> usize {
        self.by_key.lock().values().flatten().map(|underway| underway.askers()).sum()
    }
}

impl Underway {
    /// Whether it is on its way, or waits no longer for it than this asker would.
    fn is_as_early_as(&self, asker: Asker) -> bool {
        self.client == asker.client && self.priority >= asker.priority
            || !self.effort.waits_in_line()
    }

    /// A place for one more.
    fn follow(&self) -> Seat {
        Seat {
            effort: self.effort.clone(),
            role: Role::Follower,
            place: Place::Passenger(self.channel().subscribe()),
        }
    }

    fn channel(&self) -> &watch::Sender<Option<Arrival>> {
        self.followers.get_or_init(|| watch::Sender::new(None))
    }

    fn askers(&self) -> usize {
        self.followers.get().map_or(0, watch::Sender::receiver_count)
            + usize::from(self.is_led.load(Ordering::Relaxed))
    }

    /// Tells those who wait for another one's fetch.
    fn tell(&self, arrival: impl FnOnce() -> Arrival) {
        if let Some(followers) = self.followers.get() {
            followers.send_replace(Some(arrival()));
        }
    }
}

impl Seat {
    /// Waits for the end. Who started the fetch follows another one when that brings the answer.
    pub async fn landed(&mut self) -> Landed {
        let arrival = match &mut self.place {
            Place::Pilot(flight) => Some(flight.landed().await),
            // Without one the task was ended from outside, as at the end of the process.
            Place::Passenger(arrivals) => {
                arrivals.wait_for(Option::is_some).await.ok().and_then(|arrival| arrival.clone())
            }
        };
        let Some(Arrival { landed, is_of_other }) = arrival else {
            return Landed::Refused(Refused::UpstreamFailed);
        };
        if is_of_other {
            self.role = Role::Follower;
        }
        landed
    }
}

impl Flight {
    async fn landed(&mut self) -> Arrival {
        let of_own = |landed| Arrival { landed, is_of_other: false };
        let died = of_own(Landed::Refused(Refused::UpstreamFailed));
        let Some((departure, fetch)) = &mut self.0 else { return died };
        let landed = tokio::select! {
            biased;
            // A fetch that panics ends as one that failed, for everybody who waits for it.
            landed = AssertUnwindSafe(fetch).catch_unwind() => Some(landed),
            () = departure.underway.superseded.notified() => None,
        };
        let Some((departure, fetch)) = self.0.take() else { return died };
        match landed {
            Some(Ok(landed)) => of_own(departure.land(landed)),
            Some(Err(_)) => died,
            None => {
                let by = departure.underway.superseded_by.lock().take();
                departure.give_up(fetch);
                by.map_or(died, |landed| Arrival { landed, is_of_other: true })
            }
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let Some((departure, fetch)) = self.0.take() else { return };
        departure.underway.is_led.store(false, Ordering::Relaxed);
        // Where there is no runtime any more, the process ends.
        if let (true, Ok(runtime)) = (departure.is_wanted(), Handle::try_current()) {
            runtime.spawn(departure.fly(fetch));
        }
    }
}

/// The other end of a fetch: takes it off the list and tells the askers, however it ends.
struct Departure {
    flights: Arc<Flights>,
    key: CacheKey,
    underway: Arc<Underway>,
}

impl Departure {
    /// Goes on without the one who started it.
    async fn fly(self, mut fetch: FetchFuture) {
        loop {
            tokio::select! {
                landed = &mut fetch => {
                    self.land(landed);
                    return;
                }
                () = self.underway.superseded.notified() => return self.give_up(fetch),
                () = self.underway.channel().closed() => {
                    if self.underway.effort.is_on_wire()
                        && let Ok(landed) = tokio::time::timeout(ORPHAN_GRACE, &mut fetch).await
                    {
                        self.land(landed);
                        return;
                    }
                    // Somebody may have joined meanwhile; under the lock nobody can.
                    let mut by_key = self.flights.by_key.lock();
                    if self.underway.askers() == 0 {
                        self.strike(&mut by_key);
                        return;
                    }
                }
            }
        }
    }

    /// Whether somebody waits for it, or it is on its way; else it is off the list from now on.
    fn is_wanted(&self) -> bool {
        let mut by_key = self.flights.by_key.lock();
        let is_wanted = self.underway.askers() > 0 || self.underway.effort.is_on_wire();
        if !is_wanted {
            self.strike(&mut by_key);
        }
        is_wanted
    }

    /// Its askers have their answer. What is on its way all the same, by a hair, is not cut off.
    fn give_up(&self, fetch: FetchFuture) {
        if let (true, Ok(runtime)) = (self.underway.effort.is_on_wire(), Handle::try_current()) {
            runtime.spawn(tokio::time::timeout(ORPHAN_GRACE, fetch));
        }
    }

    /// Tells everybody but the one who drives it, to whom the answer is given back.
    fn land(self, landed: Landed) -> Landed {
        // Off the list first: who comes from now on finds the stored answer.
        let mut by_key = self.flights.by_key.lock();
        let is_listed = self.strike(&mut by_key);
        if is_listed && let (Landed::Entry(..), Some(beside)) = (&landed, by_key.get_mut(&self.key))
        {
            for waiting in beside.extract_if(.., |underway| !underway.effort.is_on_wire()) {
                waiting.tell(|| Arrival { landed: landed.clone(), is_of_other: true });
                *waiting.superseded_by.lock() = Some(landed.clone());
                waiting.superseded.notify_one();
            }
            if beside.is_empty() {
                by_key.remove(&self.key);
            }
        }
        drop(by_key);
        self.underway.tell(|| Arrival { landed: landed.clone(), is_of_other: false });
        landed
    }

    /// Takes it off the list; whether it was there. It is not when it was found to have begun too
    /// early.
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
        let Some(followers) = self.underway.followers.get() else { return };
        followers.send_if_modified(|landed| {
            let died = landed.is_none();
            if died {
                *landed = Some(Arrival {
                    landed: Landed::Refused(Refused::UpstreamFailed),
                    is_of_other: false,
                });
            }
            died
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::decision::cache::key::{Accept, Scope};

    fn asker() -> Asker {
        Asker { now: Timestamp::from_secs(1), client: 0, priority: Priority::Normal }
    }

    /// What ends a fetch, and what tells that it was dropped.
    type Ends = (oneshot::Sender<()>, oneshot::Receiver<()>);

    /// Asks; a fetch that is started dies when nobody is left to end it.
    fn ask(flights: &Arc<Flights>) -> (Seat, Option<Ends>) {
        let mut ends = None;
        let key = CacheKey::new(Scope::Public, "/meta", &Accept::Json, "");
        let seat = flights.join(
            &key,
            asker(),
            |_| false,
            |_| {
                let ((tell, told), (dropped, drops)) =
                    (oneshot::channel::<()>(), oneshot::channel::<()>());
                ends = Some((tell, drops));
                async move {
                    let _until_dropped = dropped;
                    if told.await.is_ok() {
                        Landed::Refused(Refused::Unreachable)
                    } else {
                        panic!("the fetch dies")
                    }
                }
            },
        );
        (seat, ends)
    }

    fn is_unreachable(landed: &Landed) -> bool {
        matches!(landed, Landed::Refused(Refused::Unreachable))
    }

    #[tokio::test]
    async fn a_fetch_in_line_ends_at_once_with_its_only_asker() {
        let flights = Arc::<Flights>::default();
        let (mut seat, ends) = ask(&flights);
        assert!(seat.landed().now_or_never().is_none());
        assert_eq!(flights.askers(), 1);
        drop(seat);
        let (_tell, mut drops) = ends.unwrap();
        assert!(drops.try_recv() == Err(oneshot::error::TryRecvError::Closed), "it is still there");
        assert_eq!(flights.askers(), 0);
    }

    #[tokio::test]
    async fn a_fetch_that_others_wait_for_goes_on_without_the_one_who_started_it() {
        let flights = Arc::<Flights>::default();
        let (mut leader, ends) = ask(&flights);
        let (mut follower, none) = ask(&flights);
        assert!(none.is_none() && leader.landed().now_or_never().is_none());
        assert_eq!((flights.askers(), follower.role), (2, Role::Follower));
        drop(leader);
        assert_eq!(flights.askers(), 1);
        ends.unwrap().0.send(()).unwrap();
        assert!(is_unreachable(&follower.landed().await));
    }

    #[tokio::test]
    async fn a_fetch_that_is_on_its_way_is_brought_to_its_end_for_nobody() {
        let flights = Arc::<Flights>::default();
        let (mut seat, ends) = ask(&flights);
        assert!(seat.landed().now_or_never().is_none() && seat.effort.may_send());
        drop(seat);
        let (tell, drops) = ends.unwrap();
        tokio::task::yield_now().await;
        assert!(tell.send(()).is_ok(), "it was cut off");
        assert!(drops.await.is_err());
    }

    #[tokio::test]
    async fn a_fetch_that_dies_is_a_failure_for_everybody() {
        let flights = Arc::<Flights>::default();
        let (mut leader, ends) = ask(&flights);
        let (mut follower, _) = ask(&flights);
        drop(ends);
        for seat in [&mut leader, &mut follower] {
            assert!(matches!(seat.landed().await, Landed::Refused(Refused::UpstreamFailed)));
        }
        assert_eq!(flights.askers(), 0);
    }
}
