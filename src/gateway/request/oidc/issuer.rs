//! An issuer of tokens with its keys. One task fetches them (`background/issuer_keys.rs`); requests
//! only ask for a fetch and wait for its end, for a bounded time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::timeout;

use crate::clock::{Clock, Timestamp};
use crate::config::{Issuer as IssuerConfig, IssuerKeys, Upstream};
use crate::gateway::environment::Environment;
use crate::gateway::request::oidc::fetch::{FETCH_TIME, Fetcher};
use crate::gateway::request::oidc::signing_keys::SigningKeys;

/// Pause between two fetches that nobody asks for. Chosen here: issuers announce a key for longer
/// before they sign with it.
pub const REFRESH: Duration = Duration::from_mins(10);
/// The least distance of two fetches. Chosen here: tokens with names of keys that do not exist cost
/// the issuer no more than this.
pub const DISTANCE_MIN: Duration = Duration::from_secs(10);
/// The most requests that wait for a fetch. Chosen here: the CI jobs of a moment. Strangers with
/// names of no keys hold no more.
const WAITING_MAX: usize = 256;
/// The time for which keys stay in force without a successful fetch. Chosen here: a day's outage.
const KEEP: Duration = Duration::from_hours(24);

/// An issuer in force.
pub struct Issuer {
    pub config: IssuerConfig,
    keys: ArcSwap<SigningKeys>,
    state: Mutex<State>,
    /// `None` if the keys are in a file.
    fetcher: Option<Fetcher>,
    /// Wakes the task that fetches.
    pub wanted: Arc<Notify>,
    /// The number of fetches that have ended.
    ended: watch::Sender<u64>,
    has_task: AtomicBool,
    /// Permits for requests that wait for a fetch.
    waiting: Semaphore,
}

/// The fetched keys of an issuer, for the process that takes over.
#[derive(Debug, Serialize, Deserialize)]
pub struct HandedKeys {
    /// The claim `iss` of its tokens.
    url: String,
    /// The address of the keys, or of the document that names it.
    from: String,
    /// The key set (RFC 7517), without what is of no use here.
    key_set: String,
    fetched_at: Timestamp,
}

#[derive(Default)]
struct State {
    is_under_way: bool,
    began_at: Option<Timestamp>,
    succeeded_at: Option<Timestamp>,
    /// The problem of the last one, which is logged once.
    problem: Option<String>,
}

impl Issuer {
    /// Begins with the keys of `before`, which has them from the same place.
    pub fn new(config: &IssuerConfig, env: &Environment, before: Option<&Self>) -> Self {
        let (keys, fetcher) = match &config.keys {
            IssuerKeys::File(path, text) => {
                let keys = SigningKeys::parse(text.as_bytes()).unwrap_or_else(|problem| {
                    let path = path.display();
                    tracing::warn!(issuer = &*config.name, %path, problem, "the keys of an issuer of tokens cannot be used");
                    SigningKeys::default()
                });
                (keys, None)
            }
            IssuerKeys::Discovery(url) => {
                (SigningKeys::default(), Some(Fetcher::discovering(config, url.clone(), env)))
            }
            IssuerKeys::Url(url) => {
                (SigningKeys::default(), Some(Fetcher::direct(config, url.clone(), env)))
            }
        };
        let before = before.filter(|_| fetcher.is_some());
        let succeeded_at = before.and_then(Self::fetched_at);
        Self {
            config: config.clone(),
            keys: ArcSwap::new(before.map_or_else(|| Arc::new(keys), |it| it.keys.load_full())),
            state: Mutex::new(State { succeeded_at, ..State::default() }),
            fetcher,
            wanted: Arc::default(),
            ended: watch::Sender::new(0),
            has_task: AtomicBool::new(false),
            waiting: Semaphore::new(WAITING_MAX),
        }
    }

    /// True if both the settings and the way to the keys are these.
    pub fn is_same(&self, config: &IssuerConfig, upstream: &Upstream) -> bool {
        self.config == *config
            && self.fetcher.as_ref().is_none_or(|fetcher| fetcher.is_same(upstream))
    }

    /// True if an issuer with these settings has its keys from the same place.
    pub fn has_keys_of(&self, config: &IssuerConfig) -> bool {
        (&self.config.url, &self.config.keys) == (&config.url, &config.keys)
    }

    /// The keys for a successor; `None` if nothing was fetched.
    pub fn handed_keys(&self) -> Option<HandedKeys> {
        let keys = self.keys.load();
        let fetched_at = self.fetched_at().filter(|_| !keys.is_empty())?;
        let from = self.config.keys.address()?;
        Some(HandedKeys {
            url: self.config.url.to_string(),
            from,
            key_set: keys.to_text(),
            fetched_at,
        })
    }

    /// Puts its keys of a predecessor in force, unless it has fetched some itself.
    pub fn take_keys(&self, handed: &[HandedKeys]) {
        let Some(from) = self.config.keys.address() else { return };
        let mut own = handed.iter().filter(|it| *it.url == *self.config.url && it.from == from);
        let mut state = self.state.lock();
        let Some(handed) = own.next().filter(|_| state.succeeded_at.is_none()) else { return };
        // A set that cannot be read is fetched, as without a predecessor.
        if let Ok(keys) = SigningKeys::parse(handed.key_set.as_bytes()) {
            self.keys.store(Arc::new(keys));
            state.succeeded_at = Some(handed.fetched_at);
        }
    }

    pub fn keys(&self) -> arc_swap::Guard<Arc<SigningKeys>> {
        self.keys.load()
    }

    /// The time of the last successful fetch.
    pub fn fetched_at(&self) -> Option<Timestamp> {
        self.state.lock().succeeded_at
    }

    /// True once, for the task that fetches; never if there is nothing to fetch.
    pub fn needs_task(&self) -> bool {
        let needs_task = self.fetcher.is_some() && !self.has_task.swap(true, Ordering::AcqRel);
        if needs_task {
            // Its first fetch: nobody needs to ask for it.
            self.state.lock().is_under_way = true;
        }
        needs_task
    }

    /// Asks for a fetch and waits for its end, for no longer than one may take. It begins at once,
    /// or [`DISTANCE_MIN`] after the last one began; without any key nothing waits that long.
    pub async fn fetched(&self, clock: &Clock) {
        if self.fetcher.is_none() {
            return;
        }
        // Those beyond them find the keys that the fetch of the others brings.
        let Ok(_waits) = self.waiting.try_acquire() else { return };
        let (now, due) = (clock.now(), self.next_fetch());
        if let Some(due) = due.filter(|due| *due > now) {
            if self.keys.load().is_empty() {
                return;
            }
            clock.reach(due).await;
        }
        let mut ended = {
            let mut state = self.state.lock();
            if !state.is_under_way {
                // Another of those who waited has had them fetched.
                if state.began_at.is_some_and(|began| began > now) {
                    return;
                }
                state.is_under_way = true;
                self.wanted.notify_one();
            }
            self.ended.subscribe()
        };
        // In vain if it takes too long: the keys are as they were.
        let _ = timeout(FETCH_TIME, ended.changed()).await;
    }

    /// The first time of the next fetch; `None`: one is under way, or none has begun.
    fn next_fetch(&self) -> Option<Timestamp> {
        let state = self.state.lock();
        state.began_at.filter(|_| !state.is_under_way).map(|began| began + DISTANCE_MIN)
    }

    /// Fetches the keys once. Keys that the issuer has taken back are out of force afterwards.
    pub async fn fetch(&self, now: Timestamp) {
        let Some(fetcher) = &self.fetcher else { return };
        {
            let mut state = self.state.lock();
            (state.is_under_way, state.began_at) = (true, Some(now));
        }
        let result = fetcher.fetch().await;
        self.put_in_force(result, now);
        let mut state = self.state.lock();
        state.is_under_way = false;
        self.ended.send_modify(|ended| *ended += 1);
    }

    fn put_in_force(&self, result: Result<SigningKeys, String>, now: Timestamp) {
        let (issuer, mut state) = (&*self.config.name, self.state.lock());
        match result {
            Ok(keys) => {
                self.keys.store(Arc::new(keys.replacing(&self.keys.load())));
                if state.problem.take().is_some() || state.succeeded_at.is_none() {
                    tracing::info!(issuer, "the keys of an issuer of tokens are there");
                }
                state.succeeded_at = Some(now);
            }
            Err(problem) => {
                let is_too_old = |at: Timestamp| now.since(at) >= KEEP;
                if !self.keys.load().is_empty() && state.succeeded_at.is_none_or(is_too_old) {
                    self.keys.store(Arc::new(SigningKeys::default().replacing(&self.keys.load())));
                    tracing::error!(
                        issuer,
                        "the keys of an issuer of tokens are a day old: none of its tokens is accepted any more"
                    );
                }
                if state.problem.as_ref() != Some(&problem) {
                    tracing::warn!(
                        issuer,
                        problem,
                        "the keys of an issuer of tokens cannot be fetched; the old ones stay in force for a day"
                    );
                    state.problem = Some(problem);
                }
            }
        }
    }

    /// The pause until the next fetch that nobody asks for.
    pub fn pause(&self) -> Duration {
        if self.state.lock().problem.is_some() { DISTANCE_MIN } else { REFRESH }
    }
}
