//! The read cache as a part of the gateway: what is stored, and the fetches that fill it.

use crate::gateway::cache::invalidation::pagination::Neighbours;
use crate::gateway::cache::predicted_etags::Predictor;
use crate::gateway::cache::registry::Streams;
use crate::gateway::cache::single_flight::Flights;
use crate::gateway::cache::store::Store;
use crate::gateway::cache::webhook_coverage::Hooks;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::environment::Environment;
use std::sync::Arc;

/// Stored answers under one config, and what keeps them true.
pub struct ReadCache {
    pub(super) env: Arc<Environment>,
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) store: Arc<Store>,
    /// Fetches under way, by what they fetch.
    pub(super) flights: Arc<Flights>,
    /// Bodies too large to hold that are being read.
    pub(super) streams: Arc<Streams>,
    /// Routes that webhooks cover.
    pub(super) coverage: Arc<Hooks>,
    /// Lists that were seen to change.
    pub(super) pagination: Arc<Neighbours>,
    /// Present where the config asks for predicted ETags.
    pub(super) predictor: Option<Arc<Predictor>>,
}

impl ReadCache {
    /// Builds the read cache of one config; everything stored goes on from `before`.
    pub fn new(
        env: &Arc<Environment>,
        dispatcher: &Arc<Dispatcher>,
        before: Option<&Self>,
    ) -> Arc<Self> {
        let config = &env.config;
        let store = || {
            let metrics = Arc::clone(&env.metrics);
            let on_evicted = move |entries| metrics.evicted(entries);
            Arc::new(Store::new(config.cache.max_size, config.cache.max_object, on_evicted))
        };
        let earlier = before.and_then(|before| before.predictor.clone());
        Arc::new(Self {
            env: Arc::clone(env),
            dispatcher: Arc::clone(dispatcher),
            store: before.map_or_else(store, |before| Arc::clone(&before.store)),
            flights: before.map_or_else(Arc::default, |before| Arc::clone(&before.flights)),
            streams: before.map_or_else(Arc::default, |before| Arc::clone(&before.streams)),
            coverage: Arc::new(Hooks::new(config)),
            pagination: before.map_or_else(Arc::default, |before| Arc::clone(&before.pagination)),
            predictor: Predictor::of(config).map(|new| earlier.unwrap_or(new)),
        })
    }

    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    pub fn flights(&self) -> &Arc<Flights> {
        &self.flights
    }

    pub fn coverage(&self) -> &Arc<Hooks> {
        &self.coverage
    }
}
