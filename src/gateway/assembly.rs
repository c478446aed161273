//! The parts of the gateway, put together the same way at a start and at a reload.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::config::{Config, WriteStore as WriteStoreKind};
use crate::gateway::background::{audit::Audit, webhook_monitor::WebhookMonitor};
use crate::gateway::cache::read_cache::ReadCache;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::environment::Environment;
use crate::gateway::request::oidc::issuer::Issuer;
use crate::gateway::request::{downstream::Downstream, router::Router, webhooks::Webhooks};
use crate::gateway::response::responder::Responder;
use crate::gateway::write::{queue::Queue, turns::Turns, writes::Writes};
use crate::telemetry::Metrics;
use crate::writes::{SharedStore, Store as WriteStore};

/// Everything that requests share, by one config. State that outlives a config is shared with the
/// gateways before and after it.
pub struct Gateway {
    /// The config, the clock, the metrics, and the requests in progress.
    pub env: Arc<Environment>,
    /// Credentials, budgets and connections to the upstream.
    pub dispatcher: Arc<Dispatcher>,
    pub(super) router: Arc<Router>,
    /// Stored answers, and the fetches under way.
    pub cache: Arc<ReadCache>,
    /// Writes in their lanes, and the queue of accepted ones.
    pub writes: Arc<Writes>,
    /// The renderer of answers, and their compressed forms.
    pub responder: Responder,
    /// The public address, and the memory for bodies of requests.
    pub downstream: Downstream,
    /// The receiving side of webhooks.
    pub webhooks: Arc<Webhooks>,
    /// The checks of webhooks for lost deliveries.
    pub monitor: Arc<WebhookMonitor>,
    /// The checks of the invariants of the quota ledger.
    pub audit: Arc<Audit>,
}

impl Gateway {
    /// The issuers of tokens by which clients are known.
    pub fn issuers(&self) -> &[Arc<Issuer>] {
        self.router.clients().issuers()
    }

    /// Builds the first gateway of a process. `store` has the writes unless all replicas share
    /// them. The receiver yields the queued writes whose turn has come.
    pub(super) fn start(
        config: Arc<Config>,
        clock: Clock,
        metrics: Arc<Metrics>,
        store: Arc<dyn WriteStore>,
    ) -> (Self, mpsc::UnboundedReceiver<u64>) {
        let (writes_max, retention) = (config.writes.queue_max, config.writes.retention);
        let is_shared = config.writes.store == WriteStoreKind::Redis;
        let env = Environment::new(config, clock, metrics, None);
        let shared = env.replica.as_ref().filter(|_| is_shared);
        let shared = shared.map(|replica| SharedStore::begin(replica, retention));
        let store = shared.clone().map_or(store, |shared| Arc::new(shared) as _);
        let (turns, called) = Turns::among(writes_max.get() as usize, shared);
        let queue = Queue::new(store, env.clock.clone(), retention, Arc::clone(&env.metrics));
        (Self::build(env, turns, queue, None), called)
    }

    /// Builds the gateway of a config that follows this one's.
    pub(super) fn with_config(&self, config: Config) -> Self {
        let env = Environment::new(
            Arc::new(config),
            self.env.clock.clone(),
            Arc::clone(&self.env.metrics),
            Some(&self.env),
        );
        let (turns, queue) = (Arc::clone(self.writes.turns()), Arc::clone(self.writes.queue()));
        Self::build(env, turns, queue, Some(self))
    }

    fn build(
        env: Arc<Environment>,
        turns: Arc<Turns>,
        queue: Arc<Queue>,
        before: Option<&Self>,
    ) -> Self {
        let dispatcher = Dispatcher::new(&env, before.map(|before| &*before.dispatcher));
        let router = Router::new(&env, &dispatcher, before.map(|before| &*before.router));
        let cache = ReadCache::new(&env, &dispatcher, before.map(|before| &*before.cache));
        let webhooks = Webhooks::new(&env.config, before.map(|before| &*before.webhooks));
        Self {
            writes: Writes::new(&env, &router, &cache, turns, queue),
            responder: Responder::new(&env, before.map(|before| &before.responder)),
            downstream: Downstream::new(&env.config, before.map(|before| &before.downstream)),
            monitor: WebhookMonitor::new(&env, &dispatcher, cache.coverage(), &webhooks),
            audit: before.map_or_else(
                || Audit::new(&env, dispatcher.admissions()),
                |before| Arc::clone(&before.audit),
            ),
            dispatcher,
            router,
            cache,
            webhooks,
            env,
        }
    }
}
