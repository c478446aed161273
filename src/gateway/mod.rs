//! The gateway itself: listeners, the path of a request, the upstream client, the answer. The I/O shell around `decision/`, and the only importer of pingora.
//!
//! In the order in which a request meets them:
//!
//! | module | stage |
//! |---|---|
//! | [`door`], `connection` | deadlines of the head, HTTP/1.1 or HTTP/2, keep-alive |
//! | `hit`, `asking` | reads, read and written without a session of the framework |
//! | [`service`], `request` | the stages in order, and the one place where a request ends |
//! | [`intake`] | is it exactly one well-formed request |
//! | [`auth`], [`passthrough`] | whose key is it, and does it bring an upstream credential of its own |
//! | [`route`], [`candidates`], [`graphql_prices`] | endpoint, view, accounts, cost |
//! | [`read`], [`flight`], [`store`], `confirmation`, `predicted` | what is stored, one fetch for all askers |
//! | [`stale`], `doubt`, [`deliveries`], `neighbours` | what changed, by a write, as a webhook tells or as an answer shows, and what that makes doubtful |
//! | [`write`], [`turns`], [`upload`], [`body`] | a write in its lane; a body too large to hold |
//! | [`asynchronous`], [`queue`] | a write that is accepted and kept until it is done |
//! | [`perform`], [`attempt`], [`rights`], [`admission`], [`effort`], `waiting` | one attempt after another: account, credential, budget, settling |
//! | `hooks` | beside the requests: webhooks whose deliveries are looked through |
//! | `mint`, `awaited` | beside the requests: installation tokens, through the same admission; and who waits for them |
//! | [`fetch`], `idle`, [`resolve`] | the upstream's connections |
//! | `watch` | the invariants of the books, once a minute |
//! | [`rewrite`], [`headers`], [`respond`], [`added`], `range`, [`encoding`], [`refuse`], [`own`] | the answer as this client sees it |

pub mod added;
pub mod admission;
pub mod again;
mod asking;
pub mod asynchronous;
pub mod attempt;
pub mod auth;
mod awaited;
pub mod body;
pub mod candidates;
mod chunks;
mod conditions;
mod confirmation;
mod connection;
pub mod counted;
pub mod deliveries;
pub mod door;
mod doubt;
pub mod drain;
pub mod effort;
pub mod encoding;
pub mod fetch;
pub mod flight;
pub mod graphql_prices;
pub mod head;
pub mod headers;
mod hit;
mod hooks;
mod http1;
mod idle;
pub mod intake;
pub mod interim;
mod job;
pub mod large;
pub mod listen;
mod marks;
mod mint;
mod neighbours;
pub mod own;
pub mod passthrough;
pub mod perform;
mod predicted;
pub mod purge;
pub mod queue;
pub mod random;
mod range;
pub mod read;
mod reference;
pub mod refuse;
pub mod reply;
mod request;
pub mod resolve;
pub mod respond;
pub mod rewrite;
mod rewrite_stream;
pub mod rights;
pub mod route;
mod said;
pub mod service;
pub mod stale;
pub mod store;
pub mod streams;
pub mod turns;
pub mod upload;
mod waiting;
mod watch;
pub mod write;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::api::Table;
use crate::clock::Clock;
use crate::config::Config;
use crate::decision::freshness::Mode;
use crate::decision::rights::Rights;
use crate::decision::{AccountId, AccountSettings, ClientSettings, Priority, SecondaryLimits, Settings, Until};
use crate::telemetry::{Held, Metrics};
use crate::tokens::{Source, Tokens};
use crate::webhooks::Receiver;
use crate::writes::Store as WriteStore;
use crate::writes::memory::MemoryStore;

use admission::Admissions;
use auth::Clients;
use body::BodyMemory;
use candidates::{Accounts, Candidates};
use drain::Active;
use effort::Hold;
use encoding::Encodings;
use fetch::Upstream;
use flight::Flights;
use graphql_prices::GraphqlPrices;
use intake::{Intake, Root, Service};
use passthrough::Guests;
use queue::{Queue, Recovery};
use rewrite::{Origin, UrlMap};
use store::Store;
use streams::Streams;
use turns::Turns;

/// Requests that may wait for admission at once. Each holds a connection and at most one small body; CONTRACT §2 bounds the queue of writes alike.
const WAITING_MAX: usize = 10_000;
/// Bytes of bodies that requests waiting for admission may hold together: three quarters of the memory there is for bodies. Ours: the last quarter stays free for
/// those that need not wait, whose bodies would else be refused at the door.
const WAITING_BYTES_MAX: u64 = (body::HELD_BYTES_MAX / 4 * 3) as u64;

/// Everything that requests share.
pub struct Gateway {
    /// The config in force.
    pub config: Arc<Config>,
    /// Where `now` comes from.
    pub clock: Clock,
    /// Counters and gauges.
    pub metrics: Arc<Metrics>,
    /// The upstream credentials.
    pub tokens: Arc<Tokens>,
    /// The books and the line before them.
    pub admissions: Arc<Admissions>,
    /// Stored answers.
    pub store: Store,
    /// Memory for the bodies of writes that wait.
    pub bodies: BodyMemory,
    /// Room for deliveries.
    pub deliveries: deliveries::Deliveries,
    /// Writes in their lanes.
    pub turns: Arc<Turns>,
    /// Writes that were accepted.
    pub queue: Arc<Queue>,
    /// Requests that are being answered.
    pub active: Arc<Active>,
    /// Requests of each client that wait for a turn or for admission.
    pub waiting: Vec<Arc<AtomicU64>>,
    /// Writes that are on their way upstream.
    pub writes_on_wire: Arc<AtomicU64>,
    table: &'static Table,
    roots_about_caller: BTreeSet<String>,
    clients: Clients,
    guests: Guests,
    /// Fetches under way, by what they fetch.
    pub flights: Arc<Flights>,
    /// The bodies too large to hold that are being read.
    pub streams: Streams,
    graphql_prices: GraphqlPrices,
    upstream: Arc<Upstream>,
    urls: UrlMap,
    mode: Mode,
    /// Lists of accounts.
    candidates: Candidates,
    /// What answers have taught about tokens' rights.
    rights: Mutex<Rights>,
    /// Told when a second look has ended.
    look_ended: Notify,
    pools: Vec<Accounts>,
    alone: Vec<Accounts>,
    public_base: Option<String>,
    /// For spans: where clients reach this gateway.
    server_address: String,
    watch: watch::Watch,
    webhooks: Option<Receiver>,
    /// The webhooks that are watched.
    hooks: hooks::Hooks,
    /// Where answers were seen to change.
    neighbours: neighbours::Neighbours,
    /// Where the config asks for it.
    predictor: Option<predicted::Predictor>,
    /// Compressed forms of stored answers.
    pub encodings: Encodings,
}

impl Gateway {
    /// [`Gateway::with_writes`] with queued writes in memory.
    pub fn new(config: Arc<Config>, clock: Clock, metrics: Arc<Metrics>) -> Arc<Self> {
        Self::with_writes(config, clock, metrics, Arc::new(MemoryStore::default()), Recovery::default())
    }

    /// Builds everything, starts the timer of the books and the watch over them, and goes on with the writes that an earlier process left; listens nowhere yet. To be
    /// called on a tokio runtime.
    pub fn with_writes(
        config: Arc<Config>,
        clock: Clock,
        metrics: Arc<Metrics>,
        store: Arc<dyn WriteStore>,
        recovery: Recovery,
    ) -> Arc<Self> {
        let account_id = |index: usize| AccountId(u32::try_from(index).unwrap_or(u32::MAX));
        let candidates = Candidates::new(&config);
        let pools = config.pools.iter().map(|pool| candidates.list(pool.accounts.iter().map(|account| account_id(*account)))).collect();
        let alone = (0..config.accounts.len() + config.passthrough.places() as usize)
            .map(|account| candidates.list([account_id(account)]))
            .collect();
        let admissions = Admissions::new(settings(&config), clock.clone());
        tokio::spawn(Arc::clone(&admissions).run());
        let evictions = Arc::clone(&metrics);
        let server_address = match (&config.listen.public_url, config.listen.http.first()) {
            (Some(url), _) => url.host().to_owned(),
            (None, Some(address)) => address.ip().to_string(),
            (None, None) => "weir".into(),
        };
        let (turns, called) = Turns::new(config.writes.queue_max.get() as usize);
        let gateway = Arc::new(Self {
            tokens: Arc::new(Tokens::new(&config)),
            admissions,
            store: Store::new(config.cache.max_size, config.cache.max_object, move |entries| evictions.evicted(entries)),
            bodies: BodyMemory::default(),
            deliveries: deliveries::Deliveries::default(),
            turns,
            queue: Queue::new(store, clock.clone(), config.writes.retention, Arc::clone(&metrics)),
            active: Arc::new(Active::default()),
            waiting: config.clients.iter().map(|_| Arc::default()).collect(),
            writes_on_wire: Arc::default(),
            table: Table::embedded(config.upstream.dialect),
            roots_about_caller: route::roots_about_caller(Table::embedded(config.upstream.dialect)),
            clients: Clients::new(&config),
            guests: Guests::new(&config),
            flights: Arc::default(),
            streams: Streams::default(),
            graphql_prices: GraphqlPrices::default(),
            upstream: Arc::new(Upstream::new(&config.upstream, &clock)),
            urls: UrlMap::new(config.upstream.url.as_str(), config.upstream.graphql_url.as_str(), config.upstream.uploads_url.as_str()),
            mode: read::mode_of(config.cache.freshness),
            candidates,
            rights: Mutex::default(),
            look_ended: Notify::new(),
            pools,
            alone,
            public_base: config.listen.public_url.as_ref().map(|url| url.as_str().to_owned()),
            server_address,
            watch: watch::Watch::default(),
            webhooks: deliveries::receiver(&config),
            hooks: hooks::Hooks::new(&config),
            neighbours: neighbours::Neighbours::default(),
            predictor: predicted::Predictor::of(&config),
            encodings: Encodings::new(config.cache.max_size, config.cache.max_object),
            clock,
            metrics,
            config,
        });
        gateway.queue.start(&gateway, recovery, called);
        if gateway.tokens.mints() {
            tokio::spawn(mint::keep_minting(&gateway));
        }
        for place in 0..gateway.config.webhooks.as_ref().map_or(0, |webhooks| webhooks.hooks.len()) {
            tokio::spawn(hooks::keep_checking(&gateway, place));
        }
        tokio::spawn(Self::watch(Arc::downgrade(&gateway)));
        gateway
    }

    /// Whether the gateway is shutting down.
    pub fn is_draining(&self) -> bool {
        self.active.is_draining()
    }

    /// Whether some token can be used. An app's own credential serves few routes and does not count where there is another account.
    pub fn has_usable_token(&self) -> bool {
        let now = self.clock.now();
        let health = self.tokens.health(now);
        let only_apps = health.iter().all(|token| matches!(token.token, Source::App(_)));
        health.iter().any(|token| token.may_serve(now) && (only_apps || !matches!(token.token, Source::App(_))))
    }

    /// The config's name of an account; all those that the config does not know have one together.
    pub fn account_name(&self, account: AccountId) -> &str {
        self.shared_name(account)
    }

    fn shared_name(&self, account: AccountId) -> &Arc<str> {
        self.config.accounts.get(account.0 as usize).map_or(self.guests.name(), |account| &account.name)
    }

    /// What holds a request, in the words of the log.
    fn held(&self, hold: Hold) -> Held {
        let until = if let Until::Time(until) = hold.until { Some(until) } else { None };
        let account = hold.account.map(|account| Arc::clone(self.shared_name(account)));
        Held { by: hold.by.name(), account, until }
    }

    fn pool(&self, pool: usize) -> Accounts {
        self.pools.get(pool).map(Arc::clone).unwrap_or_default()
    }

    fn account_alone(&self, account: AccountId) -> Accounts {
        self.alone.get(account.0 as usize).map(Arc::clone).unwrap_or_default()
    }

    fn origin(&self, scheme: &str, intake: &Intake) -> Origin {
        let base = self.public_base.clone().unwrap_or_else(|| [scheme, "://", &intake.host].concat());
        // Uploads and GraphQL have one address each that is not under /api/v3; answers to them keep the shape the client is known by.
        let root = if intake.service == Service::Uploads { Root::V3 } else { intake.root };
        Origin { base, root }
    }

    /// Which methods there are: those that the service documents, or, for a plain HTTP cache, all.
    fn methods(&self) -> intake::Methods {
        if self.mode == Mode::Rfc9111 { intake::Methods::All } else { intake::Methods::Documented }
    }

    fn write_body_max(&self) -> usize {
        usize::try_from(self.config.writes.max_body).unwrap_or(usize::MAX)
    }

    fn hold_max(&self) -> usize {
        usize::try_from(self.config.cache.max_object).unwrap_or(usize::MAX)
    }
}

/// The place, behind those of the clients, of what the gateway asks for itself when there is time.
fn background_client(config: &Config) -> u32 {
    u32::try_from(config.clients.len()).unwrap_or(u32::MAX)
}

fn settings(config: &Config) -> Settings {
    let account = |account: &crate::config::Account| AccountSettings {
        name: Arc::clone(&account.name),
        kind: account.kind,
        reserve: account.reserve,
        also_spends: account.also_spends.map(|index| AccountId(u32::try_from(index).unwrap_or(u32::MAX))),
    };
    let limits = &config.limits;
    let client = |client: &crate::config::Client| ClientSettings { weight: client.weight, priority: client.priority };
    // Whose requests nobody waits for.
    let background = ClientSettings { priority: Priority::Batch, ..ClientSettings::default() };
    Settings {
        accounts: config.accounts.iter().map(account).collect(),
        guests: config.passthrough.places(),
        clients: config.clients.iter().map(client).chain([background]).collect(),
        pace: limits.pace,
        batch_floor: limits.batch_floor,
        waiting_max: WAITING_MAX,
        waiting_bytes_max: WAITING_BYTES_MAX,
        limits: SecondaryLimits {
            concurrency: limits.concurrency.get(),
            rest_points_per_minute: limits.rest_points_per_minute.get(),
            graphql_points_per_minute: limits.graphql_points_per_minute.get(),
            content_per_minute: limits.content_per_minute.get(),
            content_per_hour: limits.content_per_hour.get(),
            cpu_seconds_per_minute: limits.cpu_seconds_per_minute.get(),
            graphql_cpu_seconds_per_minute: limits.graphql_cpu_seconds_per_minute.get(),
            oauth_tokens_per_hour: limits.oauth_tokens_per_hour.get(),
        },
        spacing: config.writes.spacing,
        notify_spacing: config.writes.notify_spacing,
    }
}
