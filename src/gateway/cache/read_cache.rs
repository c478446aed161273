//! The read cache as a part of the gateway: what is stored, and the fetches that fill it.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::quality::RandomState;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::clock::Timestamp;
use crate::decision::advice::Advisor;
use crate::decision::{AccountId, Mode};
use crate::gateway::cache::body_registry::BodyRegistry;
use crate::gateway::cache::invalidation::pagination::PaginationChanges;
use crate::gateway::cache::predicted_etags::Predictor;
use crate::gateway::cache::single_flight::SingleFlight;
use crate::gateway::cache::store::Store;
use crate::gateway::cache::webhook_coverage::WebhookCoverage;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::environment::Environment;

/// The most revalidations in the background at once; beyond that a client waits for its own. Chosen
/// here: they are requests like any other, and each waits for admission.
const BACKGROUND_MAX: usize = 64;

pub struct ReadCache {
    pub(super) env: Arc<Environment>,
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) store: Arc<Store>,
    pub(super) single_flight: Arc<SingleFlight>,
    pub(super) registry: Arc<BodyRegistry>,
    pub(super) coverage: Arc<WebhookCoverage>,
    pub(super) pagination: Arc<PaginationChanges>,
    pub(super) predictor: Option<Arc<Predictor>>,
    /// The upstream's number of the owner of each account, where an answer has shown it.
    pub(super) owners: Arc<Mutex<HashMap<AccountId, u64>>>,
    /// Advice on rules, by the fetches so far.
    pub(super) advisor: Arc<Mutex<Advisor>>,
    /// Makes numbers of keys that nobody outside can compute.
    pub(super) key_numbers: RandomState,
    /// Bounds the revalidations that no client waits for.
    pub(super) background: Arc<Semaphore>,
}

impl ReadCache {
    /// Builds the read cache of one config; the stored state of `before` is kept.
    pub fn new(
        env: &Arc<Environment>,
        dispatcher: &Arc<Dispatcher>,
        before: Option<&Self>,
    ) -> Arc<Self> {
        let config = &env.config;
        let store = || {
            let metrics = Arc::clone(&env.metrics);
            Arc::new(Store::new(config.cache.max_size, move || metrics.evicted(1)))
        };
        let earlier = before.and_then(|before| before.predictor.clone());
        Arc::new(Self {
            env: Arc::clone(env),
            dispatcher: Arc::clone(dispatcher),
            store: before.map_or_else(store, |before| Arc::clone(&before.store)),
            single_flight: before
                .map_or_else(Arc::default, |before| Arc::clone(&before.single_flight)),
            registry: before.map_or_else(Arc::default, |before| Arc::clone(&before.registry)),
            coverage: Arc::new(WebhookCoverage::new(config)),
            pagination: before.map_or_else(Arc::default, |before| Arc::clone(&before.pagination)),
            owners: before.map_or_else(Arc::default, |before| Arc::clone(&before.owners)),
            advisor: before.map_or_else(Arc::default, |before| Arc::clone(&before.advisor)),
            key_numbers: before
                .map_or_else(RandomState::default, |before| before.key_numbers.clone()),
            background: before.map_or_else(
                || Arc::new(Semaphore::new(BACKGROUND_MAX)),
                |before| Arc::clone(&before.background),
            ),
            predictor: Predictor::of(config).map(|new| earlier.unwrap_or(new)),
        })
    }

    /// True for a plain HTTP cache.
    pub fn is_plain(&self) -> bool {
        self.env.mode == Mode::Rfc9111
    }

    pub fn now(&self) -> Timestamp {
        self.env.clock.now()
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn single_flight(&self) -> &SingleFlight {
        &self.single_flight
    }

    /// The webhooks that stored answers depend on, with their health.
    pub fn coverage(&self) -> &Arc<WebhookCoverage> {
        &self.coverage
    }
}
