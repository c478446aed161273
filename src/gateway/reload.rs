//! The gateway by one config after another, without a restart (CONTRACT §1, SIGHUP; §5, `POST
//! /api/reload`).
//!
//! What goes by a config is never changed: another config makes another [`Gateway`], and
//! [`Current`] says which one new requests get. Those under way end by the one they began with.
//! Both share everything that must not begin anew: books, stored answers, queued writes,
//! connections that are counted. Who is who in both is settled by `config/succession.rs`.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use crate::api::Table;
use crate::clock::Clock;
use crate::config::{self, Config, Faults, Reload};
use crate::decision::{AccountId, AccountSettings, ClientSettings, Settings};
use crate::telemetry::Metrics;
use crate::tokens::Tokens;
use crate::writes::Store as WriteStore;
use crate::writes::memory::MemoryStore;

use crate::gateway::Gateway;
use crate::gateway::background::{mint, webhook_monitor as hooks};
use crate::gateway::cache::invalidation::purge::Prefix;
use crate::gateway::cache::predicted_etags::Predictor;
use crate::gateway::cache::read;
use crate::gateway::cache::store::Store;
use crate::gateway::dispatch::admission::Admissions;
use crate::gateway::dispatch::candidates::{Accounts, Candidates};
use crate::gateway::request::clients::Clients;
use crate::gateway::request::passthrough::Guests;
use crate::gateway::request::{body, router as route};
use crate::gateway::response::compression::Encodings;
use crate::gateway::server::deliveries;
use crate::gateway::upstream::fetch::Upstream;
use crate::gateway::url_rewrite::map::UrlMap;
use crate::gateway::write::queue::{Queue, Recovery};
use crate::gateway::write::turns::Turns;

/// Requests that may wait for admission at once. Each holds a connection and at most one small
/// body; CONTRACT §2 bounds the queue of writes alike.
const WAITING_MAX: usize = 10_000;
/// Bytes of bodies that requests waiting for admission may hold together: three quarters of the
/// memory there is for bodies. Ours: the last quarter stays free for those that need not wait,
/// whose bodies would else be refused at the door.
const WAITING_BYTES_MAX: u64 = (body::HELD_BYTES_MAX / 4 * 3) as u64;

/// How long a reload waits for the one before it. Ours: as long as an operator waits for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The gateway by the config in force.
pub struct Current {
    gateway: ArcSwap<Gateway>,
    /// The file that the config is read from.
    source: OnceLock<PathBuf>,
    /// Held while one config takes the place of another.
    succession: Mutex<()>,
}

/// What came of reading the config again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloaded {
    /// Keys whose new values take effect at the next start only.
    pub at_next_start: Vec<&'static str>,
}

/// Why the config in force stays.
#[derive(Debug)]
pub enum NotReloaded {
    /// The new one has these faults.
    Faults(Faults),
    /// It was not read from a file.
    NoFile,
    /// An earlier reload has not come to its end.
    Busy,
}

impl fmt::Display for NotReloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Faults(faults) => faults.fmt(f),
            Self::NoFile => f.write_str("the config was not read from a file"),
            Self::Busy => f.write_str("an earlier reload has not come to its end"),
        }
    }
}

impl Current {
    /// [`Current::with_writes`] with queued writes in memory.
    pub fn new(config: Arc<Config>, clock: Clock, metrics: Arc<Metrics>) -> Arc<Self> {
        Self::with_writes(
            config,
            clock,
            metrics,
            Arc::new(MemoryStore::default()),
            Recovery::default(),
        )
    }

    /// Builds everything, starts the timer of the books and the watch over them, and goes on with
    /// the writes that an earlier process left; listens nowhere yet. To be called on a tokio
    /// runtime.
    pub fn with_writes(
        config: Arc<Config>,
        clock: Clock,
        metrics: Arc<Metrics>,
        store: Arc<dyn WriteStore>,
        recovery: Recovery,
    ) -> Arc<Self> {
        let mut config = Arc::unwrap_or_clone(config);
        config.remember_clients(recovery.clients());
        let (gateway, called) = Gateway::first(Arc::new(config), clock, metrics, store);
        let gateway = Arc::new(gateway);
        tokio::spawn(Arc::clone(&gateway.admissions).run());
        let current = ArcSwap::from(Arc::clone(&gateway));
        let current = Arc::new(Self {
            gateway: current,
            source: OnceLock::new(),
            succession: Mutex::new(()),
        });
        // Weak: none of these tasks must be what keeps an abandoned gateway.
        let weak = Arc::downgrade(&current);
        gateway.queue.start(&gateway, &weak, recovery, called);
        tokio::spawn(mint::keep_minting(Weak::clone(&weak)));
        tokio::spawn(Gateway::watch(Weak::clone(&weak)));
        hooks::keep_checking_all(&gateway, &weak);
        current
    }

    /// By the config in force now.
    pub fn gateway(&self) -> Arc<Gateway> {
        self.gateway.load_full()
    }

    /// Whether a gateway is the one by the config in force.
    pub fn is(&self, gateway: &Arc<Gateway>) -> bool {
        Arc::ptr_eq(&self.gateway.load(), gateway)
    }

    /// Where [`Current::reload`] finds the config.
    pub fn read_from(&self, source: PathBuf) {
        // The first one stays: there is one config file.
        let _ = self.source.set(source);
    }

    /// Reads the config's file again, and puts what it says in force. Takes as long as reading it
    /// and its secrets does.
    pub fn reload(self: &Arc<Self>) -> Result<Reloaded, NotReloaded> {
        let source = self.source.get().ok_or(NotReloaded::NoFile)?;
        // One after the other, also from reading on: the last word is that of whoever read last. A
        // file that cannot be read to its end must not gather all who try.
        let Some(_alone) = self.succession.try_lock_for(PATIENCE) else {
            tracing::error!(
                "the config was not read again: an earlier reload has not come to its end"
            );
            return Err(NotReloaded::Busy);
        };
        match config::load(source) {
            Ok(config) => {
                tell_doubts(&config);
                Ok(self.put_in_force(config))
            }
            Err(faults) => {
                tracing::error!(faults = %faults, "the config has faults; the old one stays in force");
                Err(NotReloaded::Faults(faults))
            }
        }
    }

    /// Puts a config in the place of the one in force.
    pub fn succeed(self: &Arc<Self>, config: Config) -> Reloaded {
        let _alone = self.succession.lock();
        self.put_in_force(config)
    }

    fn put_in_force(self: &Arc<Self>, config: Config) -> Reloaded {
        let before = self.gateway();
        let Reload { config, at_next_start } = config.reloaded_over(&before.config);
        let has_other_rules = config.cache.rules != before.config.cache.rules;
        let is_other_mode = config.cache.freshness != before.config.cache.freshness;
        let gateway = Arc::new(before.succeed(config));
        // The books first: they know everybody whom a request by the new config may name.
        gateway.admissions.reconfigure(settings(&gateway.config));
        self.gateway.store(Arc::clone(&gateway));
        if is_other_mode {
            // The two modes do not keep the same of an answer.
            gateway.store.purge(&Prefix::everything(), gateway.clock.now());
        }
        if has_other_rules {
            // How long an answer is good without asking was settled when it came.
            gateway.store.make_doubtful_below("/", gateway.clock.now());
        }
        hooks::keep_checking_all(&gateway, &Arc::downgrade(self));
        gateway.tokens.reevaluate();
        gateway.queue.look_anew();
        for key in &at_next_start {
            tracing::warn!(key, "has changed in the config, which takes effect at the next start");
        }
        tracing::info!("the config was reloaded");
        Reloaded { at_next_start }
    }
}

/// Logs what is accepted in a config, and is not active yet or worth a second look.
pub fn tell_doubts(config: &Config) {
    for inactive in config.inactive() {
        tracing::warn!(key = inactive.key, "accepted, not active yet: {}", inactive.why);
    }
    for warning in config.warnings() {
        tracing::warn!(key = warning.key, "{}", warning.problem);
    }
}

impl Gateway {
    /// With nothing stored, booked or under way; and where the numbers of queued writes come out
    /// whose turn it is.
    fn first(
        config: Arc<Config>,
        clock: Clock,
        metrics: Arc<Metrics>,
        store: Arc<dyn WriteStore>,
    ) -> (Self, mpsc::UnboundedReceiver<u64>) {
        let table = Table::embedded(config.upstream.dialect);
        let (turns, called) = Turns::new(config.writes.queue_max.get() as usize);
        let evictions = Arc::clone(&metrics);
        let lists = Lists::of(&config);
        let gateway = Self {
            tokens: Arc::new(Tokens::new(&config)),
            admissions: Admissions::new(settings(&config), clock.clone()),
            store: Arc::new(Store::new(
                config.cache.max_size,
                config.cache.max_object,
                move |entries| evictions.evicted(entries),
            )),
            bodies: Arc::default(),
            deliveries: Arc::default(),
            turns,
            queue: Queue::new(store, clock.clone(), config.writes.retention, Arc::clone(&metrics)),
            active: Arc::default(),
            waiting: config.clients.iter().map(|_| Arc::default()).collect(),
            writes_on_wire: Arc::default(),
            table,
            roots_about_caller: Arc::new(route::roots_about_caller(table)),
            clients: Clients::new(&config),
            guests: Arc::new(Guests::new(&config)),
            flights: Arc::default(),
            streams: Arc::default(),
            graphql_prices: Arc::default(),
            upstream: Arc::new(Upstream::new(&config.upstream, &clock)),
            urls: UrlMap::new(
                config.upstream.url.as_str(),
                config.upstream.graphql_url.as_str(),
                config.upstream.uploads_url.as_str(),
            ),
            mode: read::mode_of(config.cache.freshness),
            candidates: lists.candidates,
            rights: Arc::default(),
            look_ended: Arc::new(Notify::new()),
            pools: lists.pools,
            alone: lists.alone,
            public_base: public_base(&config),
            server_address: server_address(&config),
            watch: Arc::default(),
            webhooks: deliveries::receiver(&config),
            hooks: hooks::Hooks::new(&config),
            neighbours: Arc::default(),
            predictor: Predictor::of(&config),
            encodings: Arc::new(Encodings::new(config.cache.max_size, config.cache.max_object)),
            clock,
            metrics,
            config,
        };
        (gateway, called)
    }

    /// By another config, in the place of this one: what does not go by the config is shared.
    fn succeed(&self, config: Config) -> Self {
        let lists = Lists::of(&config);
        let webhooks = deliveries::receiver(&config).map(|receiver| match &self.webhooks {
            Some(before) => receiver.after(before),
            None => receiver,
        });
        let waiting = |index: usize| self.waiting.get(index).map(Arc::clone).unwrap_or_default();
        Self {
            tokens: Arc::new(self.tokens.with_config(&self.config, &config)),
            admissions: Arc::clone(&self.admissions),
            store: Arc::clone(&self.store),
            bodies: Arc::clone(&self.bodies),
            deliveries: Arc::clone(&self.deliveries),
            turns: Arc::clone(&self.turns),
            queue: Arc::clone(&self.queue),
            active: Arc::clone(&self.active),
            waiting: (0..config.clients.len()).map(waiting).collect(),
            writes_on_wire: Arc::clone(&self.writes_on_wire),
            table: self.table,
            roots_about_caller: Arc::clone(&self.roots_about_caller),
            clients: Clients::new(&config),
            guests: Arc::clone(&self.guests),
            flights: Arc::clone(&self.flights),
            streams: Arc::clone(&self.streams),
            graphql_prices: Arc::clone(&self.graphql_prices),
            upstream: Arc::new(Upstream::new(&config.upstream, &self.clock)),
            urls: self.urls.clone(),
            mode: read::mode_of(config.cache.freshness),
            candidates: lists.candidates,
            rights: Arc::clone(&self.rights),
            look_ended: Arc::clone(&self.look_ended),
            pools: lists.pools,
            alone: lists.alone,
            public_base: public_base(&config),
            server_address: server_address(&config),
            watch: Arc::clone(&self.watch),
            webhooks,
            hooks: hooks::Hooks::new(&config),
            neighbours: Arc::clone(&self.neighbours),
            predictor: Predictor::of(&config).map(|new| self.predictor.clone().unwrap_or(new)),
            encodings: Arc::clone(&self.encodings),
            clock: self.clock.clone(),
            metrics: Arc::clone(&self.metrics),
            config: Arc::new(config),
        }
    }
}

/// The lists of accounts that requests begin with.
struct Lists {
    candidates: Candidates,
    pools: Vec<Accounts>,
    alone: Vec<Accounts>,
}

impl Lists {
    fn of(config: &Config) -> Self {
        let candidates = Candidates::new(config);
        let pools = config.pools.iter().map(|pool| {
            candidates.list(pool.accounts.iter().map(|account| config.account_id(*account)))
        });
        let pools = pools.collect();
        // The guests' are among them.
        let places = config.accounts.len() + config.places.guests as usize;
        let alone = (0..places)
            .map(|number| candidates.list([AccountId(u32::try_from(number).unwrap_or(u32::MAX))]))
            .collect();
        Self { candidates, pools, alone }
    }
}

fn public_base(config: &Config) -> Option<String> {
    config.listen.public_url.as_ref().map(|url| url.as_str().to_owned())
}

/// For spans: where clients reach this gateway.
fn server_address(config: &Config) -> String {
    match (&config.listen.public_url, config.listen.http.first()) {
        (Some(url), _) => url.host().to_owned(),
        (None, Some(address)) => address.ip().to_string(),
        (None, None) => "weir".into(),
    }
}

fn settings(config: &Config) -> Settings {
    let account = |account: &config::Account| AccountSettings {
        name: Arc::clone(&account.name),
        kind: account.kind,
        reserve: account.reserve,
        also_spends: account.also_spends.map(|index| config.account_id(index)),
    };
    let limits = &config.limits;
    let client = |client: &config::Client| ClientSettings {
        weight: client.weight,
        priority: client.priority,
    };
    Settings {
        accounts: config.accounts.iter().map(account).collect(),
        guests: config.places.guests,
        clients: config.clients.iter().map(client).collect(),
        pace: limits.pace,
        batch_floor: limits.batch_floor,
        waiting_max: WAITING_MAX,
        waiting_bytes_max: WAITING_BYTES_MAX,
        limits: limits.secondary(),
        spacing: config.writes.spacing,
        notify_spacing: config.writes.notify_spacing,
    }
}
