//! The parts of the gateway, put together the same way at a start and at a reload.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::config::Config;
use crate::gateway::background::{audit::Audit, webhook_monitor::WebhookMonitor};
use crate::gateway::cache::read_cache::ReadCache;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::environment::Environment;
use crate::gateway::request::{downstream::Downstream, router::Router, webhooks::Webhooks};
use crate::gateway::response::responder::Responder;
use crate::gateway::write::{queue::Queue, turns::Turns, writes::Writes};
use crate::telemetry::Metrics;
use crate::writes::Store as WriteStore;

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
    /// Builds the first gateway of a process. The receiver yields the queued writes whose turn has
    /// come.
    pub(super) fn start(
        config: Arc<Config>,
        clock: Clock,
        metrics: Arc<Metrics>,
        store: Arc<dyn WriteStore>,
    ) -> (Self, mpsc::UnboundedReceiver<u64>) {
        let (turns, called) = Turns::new(config.writes.queue_max.get() as usize);
        let retention = config.writes.retention;
        let queue = Queue::new(store, clock.clone(), retention, Arc::clone(&metrics));
        let env = Environment::new(config, clock, metrics, Arc::default());
        (Self::build(env, turns, queue, None), called)
    }

    /// Builds the gateway of a config that follows this one's.
    pub(super) fn with_config(&self, config: Config) -> Self {
        let env = Environment::new(
            Arc::new(config),
            self.env.clock.clone(),
            Arc::clone(&self.env.metrics),
            Arc::clone(&self.env.active),
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
            monitor: WebhookMonitor::new(&env, &dispatcher, &cache.coverage, &webhooks),
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

    /// The config that the gateway goes by.
    pub fn config(&self) -> &Arc<Config> {
        &self.env.config
    }

    /// The source of `now`.
    pub fn clock(&self) -> &Clock {
        &self.env.clock
    }

    /// Counters and gauges.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.env.metrics
    }

    /// The upstream credentials.
    pub fn tokens(&self) -> &Arc<Tokens> {
        self.dispatcher.tokens()
    }

    /// The quota ledger and the wait queue before it.
    pub fn admissions(&self) -> &Arc<Admissions> {
        self.dispatcher.admissions()
    }

    /// Stored answers.
    pub fn store(&self) -> &Arc<Store> {
        &self.cache.store
    }

    /// Compressed forms of stored answers.
    pub fn compressed_forms(&self) -> &CompressedForms {
        &self.responder.compressed_forms
    }

    /// Fetches under way.
    pub fn single_flight(&self) -> &Arc<SingleFlight> {
        &self.cache.single_flight
    }

    /// Memory for the bodies of waiting writes.
    pub fn bodies(&self) -> &Arc<BodyMemory> {
        self.downstream.bodies()
    }

    /// Room for deliveries of webhooks.
    pub fn deliveries(&self) -> &Deliveries {
        self.webhooks.deliveries()
    }

    /// Writes in their lanes.
    pub fn turns(&self) -> &Arc<Turns> {
        self.writes.turns()
    }

    /// Accepted writes.
    pub fn queue(&self) -> &Arc<Queue> {
        self.writes.queue()
    }

    /// Requests in progress.
    pub fn active(&self) -> &Arc<Active> {
        &self.env.active
    }

    /// The number of each client's requests that wait for a turn or for admission.
    pub fn waiting(&self) -> &[Arc<AtomicU64>] {
        self.dispatcher.waiting()
    }

    /// The number of writes that are on their way upstream.
    pub fn writes_on_wire(&self) -> u64 {
        self.dispatcher.writes_on_wire()
    }

    /// True while the gateway shuts down.
    pub fn is_draining(&self) -> bool {
        self.env.is_draining()
    }

    /// True if some token can be used.
    pub fn has_usable_token(&self) -> bool {
        self.dispatcher.has_usable_token()
    }

    /// The config's name of an account; accounts that the config does not know share one name.
    pub fn account_name(&self, account: AccountId) -> &str {
        self.env.account_name(account)
    }

    /// The number of webhook checks that have ended.
    pub fn webhook_checks(&self) -> u64 {
        self.monitor.checks()
    }

    /// Counts and logs the invariants that were broken since the last report.
    pub fn report_broken_invariants(&self) {
        self.audit.report_broken_invariants();
    }

    /// Invalidates stored answers.
    pub fn invalidate_paths(&self, stale: &[Invalidation], now: Timestamp) {
        self.cache.invalidate_paths(stale, now);
    }

    /// Renders a queued write for operators, in JSON.
    pub fn write_status(&self, listed: crate::gateway::write::queue::Listed) -> bytes::Bytes {
        self.responder.write_status(listed, None)
    }

    /// Puts a write that has ended into the queue again.
    pub async fn retry_write(&self, id: WriteId, repetition: Repetition) -> Result<(), NotRetried> {
        self.writes.retry_write(id, repetition).await
    }
}
