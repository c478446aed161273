//! Single flight: one fetch for concurrent requests for the same key (SPECIFICATION D1). The first
//! request is the leader and drives the fetch; followers wait on a channel. If the leader leaves
//! while the fetch is wanted, the fetch becomes a task.
//!
//! A fetch in the wait queue waits behind the other requests of its leader's client. Another client
//! therefore gets its own fetch and its own place (SPECIFICATION D10). The first of them to return
//! serves all, and those still in the wait queue are cancelled. `fetch.rs` has the fetch itself.
//!
//! The headers of a fetch are its leader's. Followers with other headers therefore take no failure
//! of it (`read.rs`).

use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use http::HeaderMap;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

use crate::api::has_errors;
use crate::clock::Timestamp;
use crate::decision::Priority;
use crate::decision::cache::arrived::is_storable_status;
use crate::decision::cache::key::CacheKey;

use crate::gateway::cache::shared_body::JoinGuard;
use crate::gateway::cache::store::Entry;
use crate::gateway::dispatch::progress::RequestProgress;
use crate::gateway::error::GatewayError;
use crate::telemetry::{CacheOutcome, Fetch};

/// The grace period of a fetch without waiters (SPECIFICATION D1).
const ORPHAN_GRACE: Duration = Duration::from_secs(2);

#[derive(Clone)]
pub enum FetchResult {
    Entry(Arc<Entry>, Fetch),
    SharedBody(Arc<JoinGuard>),
    Failed(GatewayError),
}

impl FetchResult {
    /// True if it cannot be due to the headers of the request that fetched it.
    pub fn suits_other_headers(&self) -> bool {
        match self {
            Self::Entry(entry, Fetch::Shared | Fetch::QueryNotStored) => {
                is_storable_status(entry.status()) && !has_errors(entry.body.text())
            }
            Self::Entry(entry, _) => is_storable_status(entry.status()),
            Self::SharedBody(guard) => is_storable_status(guard.0.head.status),
            Self::Failed(error) => !matches!(
                error,
                GatewayError::NoToken(_)
                    | GatewayError::TokensRejected
                    | GatewayError::UpstreamFailed
                    | GatewayError::UpstreamTimeout
                    | GatewayError::OutcomeUnknown
                    | GatewayError::Undecodable(_)
            ),
        }
    }
}

struct OngoingFetch {
    progress: RequestProgress,
    starter: Waiter,
    /// True while the leader drives it.
    is_led: AtomicBool,
    /// The followers' channel, created for the first follower; most fetches have none.
    followers: OnceLock<watch::Sender<Option<SharedResult>>>,
    /// Notified when another fetch has the result, then in `superseded_by`.
    superseded: Notify,
    superseded_by: Mutex<Option<FetchResult>>,
}

#[derive(Clone)]
struct SharedResult {
    fetched_result: FetchResult,
    is_of_other: bool,
}

/// A waiter's share in a fetch. The fetch is abandoned when the last one is dropped.
pub struct Participant {
    pub progress: RequestProgress,
    pub role: Role,
    /// The headers that the fetch sends.
    pub headers: Arc<HeaderMap>,
    handle: FetchHandle,
}

enum FetchHandle {
    Leader(LeadingFetch),
    Follower(watch::Receiver<Option<SharedResult>>),
}

/// A fetch driven by its leader. Dropped early, it becomes a task if it is still wanted.
struct LeadingFetch(Option<(FetchGuard, FetchFuture)>);

/// Boxed, so that a task can take it over midway.
type FetchFuture = Pin<Box<dyn Future<Output = FetchResult> + Send>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Leader,
    Follower,
}

impl Role {
    pub fn outcome(self, fetch: Fetch) -> CacheOutcome {
        match self {
            Self::Leader => CacheOutcome::Fetched(fetch),
            Self::Follower => CacheOutcome::Collapsed(fetch),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Waiter {
    pub now: Timestamp,
    /// The headers that its own fetch would send.
    pub headers: Arc<HeaderMap>,
    /// With `priority`: the place in the wait queue that its own fetch would have.
    pub client: u32,
    pub priority: Priority,
}

/// All fetches in progress; several may share a key.
#[derive(Default)]
pub struct SingleFlight {
    by_key: Mutex<ByKey>,
}

type ByKey = HashMap<CacheKey, Vec<Arc<OngoingFetch>>, foldhash::fast::RandomState>;

impl SingleFlight {
    /// Joins a fetch for `key` that is on its way or has an equal place in the wait queue, or else
    /// runs `start`. Fetches that `is_stale` rejects by their start time accept no more waiters: an
    /// answer to an older request may predate a later write.
    pub fn join<F>(
        self: &Arc<Self>,
        key: &CacheKey,
        waiter: Waiter,
        is_stale: impl Fn(Timestamp) -> bool,
        start: impl FnOnce(RequestProgress) -> F,
    ) -> Participant
    where
        F: Future<Output = FetchResult> + Send + 'static,
    {
        let mut by_key = self.by_key.lock();
        let listed = by_key.entry(key.clone()).or_default();
        listed.retain(|ongoing| !is_stale(ongoing.starter.now));
        if let Some(ongoing) = listed.iter().find(|ongoing| ongoing.is_as_early_as(&waiter)) {
            return ongoing.follow();
        }
        let headers = Arc::clone(&waiter.headers);
        let ongoing = Arc::new(OngoingFetch {
            progress: RequestProgress::default(),
            starter: waiter,
            is_led: AtomicBool::new(true),
            followers: OnceLock::new(),
            superseded: Notify::new(),
            superseded_by: Mutex::default(),
        });
        listed.push(Arc::clone(&ongoing));
        drop(by_key);
        let progress = ongoing.progress.clone();
        let guard = FetchGuard { single_flight: Arc::clone(self), key: key.clone(), ongoing };
        let fetch = Box::pin(start(progress.clone()));
        Participant {
            progress,
            role: Role::Leader,
            headers,
            handle: FetchHandle::Leader(LeadingFetch(Some((guard, fetch)))),
        }
    }

    pub fn waiters(&self) -> usize {
        self.by_key.lock().values().flatten().map(|ongoing| ongoing.waiters()).sum()
    }
}

impl OngoingFetch {
    /// True if it is on its way, or if its place in the wait queue is no worse.
    fn is_as_early_as(&self, waiter: &Waiter) -> bool {
        self.starter.client == waiter.client && self.starter.priority >= waiter.priority
            || !self.progress.is_in_wait_queue()
    }

    fn follow(&self) -> Participant {
        Participant {
            progress: self.progress.clone(),
            role: Role::Follower,
            headers: Arc::clone(&self.starter.headers),
            handle: FetchHandle::Follower(self.channel().subscribe()),
        }
    }

    fn channel(&self) -> &watch::Sender<Option<SharedResult>> {
        self.followers.get_or_init(|| watch::Sender::new(None))
    }

    fn waiters(&self) -> usize {
        self.followers.get().map_or(0, watch::Sender::receiver_count)
            + usize::from(self.is_led.load(Ordering::Relaxed))
    }

    fn notify(&self, fetched_result: &FetchResult, is_of_other: bool) {
        if let Some(followers) = self.followers.get() {
            let fetched_result = fetched_result.clone();
            followers.send_replace(Some(SharedResult { fetched_result, is_of_other }));
        }
    }
}

impl Participant {
    /// Waits for the result. A leader becomes a follower if another fetch has the result first.
    pub async fn fetched_result(&mut self) -> FetchResult {
        let shared = match &mut self.handle {
            FetchHandle::Leader(leading) => leading.fetched_result().await,
            // `None`: the task was cancelled from outside, as at the end of the process.
            FetchHandle::Follower(results) => {
                results.wait_for(Option::is_some).await.ok().and_then(|shared| shared.clone())
            }
        };
        let Some(SharedResult { fetched_result, is_of_other }) = shared else {
            return FetchResult::Failed(GatewayError::UpstreamFailed);
        };
        if is_of_other {
            self.role = Role::Follower;
        }
        fetched_result
    }
}

impl LeadingFetch {
    /// `None`: the fetch panicked.
    async fn fetched_result(&mut self) -> Option<SharedResult> {
        let (guard, fetch) = self.0.as_mut()?;
        let fetched_result = tokio::select! {
            biased;
            fetched_result = AssertUnwindSafe(fetch).catch_unwind() => Some(fetched_result),
            () = guard.ongoing.superseded.notified() => None,
        };
        let (guard, fetch) = self.0.take()?;
        Some(if let Some(fetched_result) = fetched_result {
            let fetched_result = guard.complete(fetched_result.ok()?);
            SharedResult { fetched_result, is_of_other: false }
        } else {
            let superseded_by = guard.ongoing.superseded_by.lock().take();
            guard.give_up(fetch);
            SharedResult { fetched_result: superseded_by?, is_of_other: true }
        })
    }
}

impl Drop for LeadingFetch {
    fn drop(&mut self) {
        let Some((guard, fetch)) = self.0.take() else { return };
        guard.ongoing.is_led.store(false, Ordering::Relaxed);
        // Without a runtime the process is ending.
        if let (true, Ok(runtime)) = (guard.is_wanted(), Handle::try_current()) {
            runtime.spawn(guard.run_detached(fetch));
        }
    }
}

/// Guard: removes a fetch from the list and notifies its waiters on every exit.
struct FetchGuard {
    single_flight: Arc<SingleFlight>,
    key: CacheKey,
    ongoing: Arc<OngoingFetch>,
}

impl FetchGuard {
    async fn run_detached(self, mut fetch: FetchFuture) {
        loop {
            tokio::select! {
                fetched_result = &mut fetch => {
                    self.complete(fetched_result);
                    return;
                }
                () = self.ongoing.superseded.notified() => return self.give_up(fetch),
                () = self.ongoing.channel().closed() => {
                    if self.ongoing.progress.is_on_wire()
                        && let Ok(fetched_result) = tokio::time::timeout(ORPHAN_GRACE, &mut fetch).await
                    {
                        self.complete(fetched_result);
                        return;
                    }
                    // A waiter may have joined meanwhile; under the lock none can.
                    let mut by_key = self.single_flight.by_key.lock();
                    if self.ongoing.waiters() == 0 {
                        self.unlist(&mut by_key);
                        return;
                    }
                }
            }
        }
    }

    /// True if it has waiters or is on its way; otherwise removes it from the list.
    fn is_wanted(&self) -> bool {
        let mut by_key = self.single_flight.by_key.lock();
        let is_wanted = self.ongoing.waiters() > 0 || self.ongoing.progress.is_on_wire();
        if !is_wanted {
            self.unlist(&mut by_key);
        }
        is_wanted
    }

    /// Ends a superseded fetch, unless it has just left for the upstream.
    fn give_up(&self, fetch: FetchFuture) {
        if let (true, Ok(runtime)) = (self.ongoing.progress.is_on_wire(), Handle::try_current()) {
            runtime.spawn(tokio::time::timeout(ORPHAN_GRACE, fetch));
        }
    }

    /// Notifies all followers and returns the result to the driver.
    fn complete(self, fetched_result: FetchResult) -> FetchResult {
        // Removed from the list first, so that later requests find the stored answer.
        let mut by_key = self.single_flight.by_key.lock();
        let is_listed = self.unlist(&mut by_key);
        if is_listed
            && let (FetchResult::Entry(..), Some(others)) =
                (&fetched_result, by_key.get_mut(&self.key))
        {
            let (suits_all, headers) =
                (fetched_result.suits_other_headers(), &self.ongoing.starter.headers);
            let suits = |ongoing: &OngoingFetch| suits_all || ongoing.starter.headers == *headers;
            let is_spared =
                |ongoing: &mut Arc<OngoingFetch>| !ongoing.progress.is_on_wire() && suits(ongoing);
            for waiting in others.extract_if(.., is_spared) {
                waiting.notify(&fetched_result, true);
                *waiting.superseded_by.lock() = Some(fetched_result.clone());
                waiting.superseded.notify_one();
            }
            if others.is_empty() {
                by_key.remove(&self.key);
            }
        }
        drop(by_key);
        self.ongoing.notify(&fetched_result, false);
        fetched_result
    }

    /// Removes it; returns true if it was listed. A fetch that began too early is not.
    fn unlist(&self, by_key: &mut ByKey) -> bool {
        let Some(listed) = by_key.get_mut(&self.key) else { return false };
        let before = listed.len();
        listed.retain(|ongoing| !Arc::ptr_eq(ongoing, &self.ongoing));
        let was_listed = listed.len() < before;
        if listed.is_empty() {
            by_key.remove(&self.key);
        }
        was_listed
    }
}

impl Drop for FetchGuard {
    fn drop(&mut self) {
        self.unlist(&mut self.single_flight.by_key.lock());
        let Some(followers) = self.ongoing.followers.get() else { return };
        followers.send_if_modified(|shared| {
            let died = shared.is_none();
            let fetched_result = FetchResult::Failed(GatewayError::UpstreamFailed);
            shared.get_or_insert(SharedResult { fetched_result, is_of_other: false });
            died
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::decision::cache::key::{Accept, Scope};

    fn waiter() -> Waiter {
        Waiter {
            now: Timestamp::from_secs(1),
            headers: Arc::default(),
            client: 0,
            priority: Priority::Normal,
        }
    }

    /// A sender that ends a fetch, and a receiver that notices its drop.
    type Ends = (oneshot::Sender<()>, oneshot::Receiver<()>);

    /// Joins; a fetch started here panics once its sender is dropped.
    fn join(single_flight: &Arc<SingleFlight>) -> (Participant, Option<Ends>) {
        let mut ends = None;
        let key = CacheKey::new(Scope::Public, "/meta", &Accept::Json, "");
        let participant = single_flight.join(
            &key,
            waiter(),
            |_| false,
            |_| {
                let ((finish, finished), (dropped, drops)) =
                    (oneshot::channel::<()>(), oneshot::channel::<()>());
                ends = Some((finish, drops));
                async move {
                    let _until_dropped = dropped;
                    if finished.await.is_ok() {
                        FetchResult::Failed(GatewayError::Unreachable)
                    } else {
                        panic!("the fetch dies")
                    }
                }
            },
        );
        (participant, ends)
    }

    fn is_unreachable(fetched_result: &FetchResult) -> bool {
        matches!(fetched_result, FetchResult::Failed(GatewayError::Unreachable))
    }

    #[tokio::test]
    async fn a_queued_fetch_ends_at_once_with_its_last_waiter() {
        let single_flight = Arc::<SingleFlight>::default();
        let (mut participant, ends) = join(&single_flight);
        assert!(participant.fetched_result().now_or_never().is_none());
        assert_eq!(single_flight.waiters(), 1);
        drop(participant);
        let (_finish, mut drops) = ends.unwrap();
        assert!(drops.try_recv() == Err(oneshot::error::TryRecvError::Closed), "it is still there");
        assert_eq!(single_flight.waiters(), 0);
    }

    #[tokio::test]
    async fn a_fetch_with_followers_goes_on_without_its_leader() {
        let single_flight = Arc::<SingleFlight>::default();
        let (mut leader, ends) = join(&single_flight);
        let (mut follower, none) = join(&single_flight);
        assert!(none.is_none() && leader.fetched_result().now_or_never().is_none());
        assert_eq!((single_flight.waiters(), follower.role), (2, Role::Follower));
        drop(leader);
        assert_eq!(single_flight.waiters(), 1);
        ends.unwrap().0.send(()).unwrap();
        assert!(is_unreachable(&follower.fetched_result().await));
    }

    #[tokio::test]
    async fn a_fetch_on_the_wire_completes_without_waiters() {
        let single_flight = Arc::<SingleFlight>::default();
        let (mut participant, ends) = join(&single_flight);
        assert!(
            participant.fetched_result().now_or_never().is_none()
                && participant.progress.may_send()
        );
        drop(participant);
        let (finish, drops) = ends.unwrap();
        tokio::task::yield_now().await;
        assert!(finish.send(()).is_ok(), "it was cut off");
        assert!(drops.await.is_err());
    }

    #[tokio::test]
    async fn a_panicking_fetch_fails_for_all_waiters() {
        let single_flight = Arc::<SingleFlight>::default();
        let (mut leader, ends) = join(&single_flight);
        let (mut follower, _) = join(&single_flight);
        drop(ends);
        for participant in [&mut leader, &mut follower] {
            assert!(matches!(
                participant.fetched_result().await,
                FetchResult::Failed(GatewayError::UpstreamFailed)
            ));
        }
        assert_eq!(single_flight.waiters(), 0);
    }
}
