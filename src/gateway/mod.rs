//! The gateway itself: listeners, the path of a request, the upstream client, the answer. The I/O shell around `decision/`, and the only importer of pingora.
//!
//! In the order in which a request meets them:
//!
//! | module | stage |
//! |---|---|
//! | [`door`] | deadlines of the head, HTTP/1.1 or HTTP/2, keep-alive |
//! | [`service`] | the stages in order, and the one place where a request ends |
//! | [`intake`] | is it exactly one well-formed request |
//! | [`auth`] | whose key is it |
//! | [`route`] | endpoint, view, accounts |
//! | [`read`], [`flight`], [`store`] | what is stored, one fetch for all askers |
//! | [`write`], [`turns`], [`upload`], [`body`] | a write in its lane; a body too large to hold |
//! | [`perform`], [`attempt`], [`admission`], [`effort`] | one attempt after another: account, credential, budget, settling |
//! | [`fetch`], `idle`, [`resolve`] | the upstream's connections |
//! | [`rewrite`], [`headers`], [`respond`], [`refuse`], [`own`] | the answer as this client sees it |

pub mod admission;
pub mod attempt;
pub mod auth;
pub mod body;
mod chunks;
pub mod counted;
pub mod door;
pub mod drain;
pub mod effort;
pub mod fetch;
pub mod flight;
pub mod headers;
mod idle;
pub mod intake;
pub mod listen;
pub mod own;
pub mod perform;
pub mod random;
pub mod read;
pub mod refuse;
pub mod reply;
pub mod resolve;
pub mod respond;
pub mod rewrite;
mod rewrite_stream;
pub mod route;
pub mod service;
pub mod store;
pub mod turns;
pub mod upload;
pub mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;

use crate::api::Table;
use crate::clock::Clock;
use crate::config::Config;
use crate::decision::freshness::Mode;
use crate::decision::retry::Policy;
use crate::decision::{AccountId, AccountSettings, SecondaryLimits, Settings};
use crate::telemetry::Metrics;
use crate::tokens::Tokens;

use admission::Admissions;
use auth::Clients;
use body::BodyMemory;
use drain::Active;
use fetch::Upstream;
use flight::Flights;
use intake::{Intake, Root, Service};
use rewrite::{Origin, UrlMap};
use store::Store;
use turns::Turns;

/// Requests that may wait for admission at once. Each holds a connection and at most one small body; CONTRACT §2 bounds the queue of writes alike.
const WAITING_MAX: usize = 10_000;

/// Everything that requests share.
pub struct Gateway {
    /// The config in force.
    pub config: Arc<Config>,
    /// Where `now` comes from.
    pub clock: Clock,
    /// Counters and gauges.
    pub metrics: Arc<Metrics>,
    /// The upstream credentials.
    pub tokens: Tokens,
    /// The books and the line before them.
    pub admissions: Arc<Admissions>,
    /// Stored answers.
    pub store: Store,
    /// Memory for the bodies of writes that wait.
    pub bodies: BodyMemory,
    /// Writes in their lanes.
    pub turns: Arc<Turns>,
    /// Requests that are being answered.
    pub active: Arc<Active>,
    /// Requests of each client that wait for a turn or for admission.
    pub waiting: Vec<Arc<AtomicU64>>,
    /// Writes that are on their way upstream.
    pub writes_on_wire: Arc<AtomicU64>,
    table: &'static Table,
    roots_about_caller: BTreeSet<String>,
    clients: Clients,
    /// Fetches under way, by what they fetch.
    pub flights: Arc<Flights>,
    upstream: Arc<Upstream>,
    urls: UrlMap,
    retry: Policy,
    mode: Mode,
    pools: Vec<Arc<[AccountId]>>,
    alone: Vec<Arc<[AccountId]>>,
    public_base: Option<String>,
    /// For spans: where clients reach this gateway.
    server_address: String,
    /// How often each invariant was reported broken.
    reported: Mutex<BTreeMap<&'static str, u64>>,
}

impl Gateway {
    /// Builds everything and starts the timer of the books; listens nowhere yet. To be called on a tokio runtime.
    pub fn new(config: Arc<Config>, clock: Clock, metrics: Arc<Metrics>) -> Arc<Self> {
        let account_id = |index: usize| AccountId(u32::try_from(index).unwrap_or(u32::MAX));
        let pools = config.pools.iter().map(|pool| pool.accounts.iter().map(|account| account_id(*account)).collect()).collect();
        let alone = (0..config.accounts.len()).map(|account| Arc::from([account_id(account)])).collect();
        let admissions = Admissions::new(settings(&config), WAITING_MAX, clock.clone());
        tokio::spawn(Arc::clone(&admissions).run());
        let evictions = Arc::clone(&metrics);
        let server_address = match (&config.listen.public_url, config.listen.http.first()) {
            (Some(url), _) => url.host().to_owned(),
            (None, Some(address)) => address.ip().to_string(),
            (None, None) => "weir".into(),
        };
        Arc::new(Self {
            tokens: Tokens::new(&config),
            admissions,
            store: Store::new(config.cache.max_size, move || evictions.evicted(1)),
            bodies: BodyMemory::default(),
            turns: Turns::new(config.writes.queue_max.get() as usize),
            active: Arc::new(Active::default()),
            waiting: config.clients.iter().map(|_| Arc::default()).collect(),
            writes_on_wire: Arc::default(),
            table: Table::embedded(config.upstream.dialect),
            roots_about_caller: route::roots_about_caller(Table::embedded(config.upstream.dialect)),
            clients: Clients::new(&config),
            flights: Arc::default(),
            upstream: Arc::new(Upstream::new(&config.upstream, &clock)),
            urls: UrlMap::new(config.upstream.url.as_str(), config.upstream.graphql_url.as_str(), config.upstream.uploads_url.as_str()),
            retry: Policy { max_attempts: config.writes.max_attempts },
            mode: read::mode_of(config.cache.freshness),
            pools,
            alone,
            public_base: config.listen.public_url.as_ref().map(|url| url.as_str().to_owned()),
            server_address,
            reported: Mutex::default(),
            clock,
            metrics,
            config,
        })
    }

    /// Whether the gateway is shutting down.
    pub fn is_draining(&self) -> bool {
        self.active.is_draining()
    }

    /// Whether some token can be used.
    pub fn has_usable_token(&self) -> bool {
        self.tokens.health(self.clock.now()).iter().any(|(_, _, usable)| *usable)
    }

    /// The config's name of an account.
    pub fn account_name(&self, account: AccountId) -> &str {
        self.config.accounts.get(account.0 as usize).map_or("", |account| &account.name)
    }

    /// Brings `weir_invariant_broken_total` up to the books' own counts.
    pub fn report_broken_invariants(&self) {
        let counts: Vec<_> =
            self.admissions.with_books(|books, _| books.broken().map(|(invariant, count)| (invariant.name(), count)).collect());
        let mut reported = self.reported.lock();
        for (name, count) in counts {
            let before = reported.insert(name, count).unwrap_or(0);
            for _ in before..count {
                self.metrics.invariant_broken(name);
            }
        }
    }

    fn pool(&self, pool: usize) -> Arc<[AccountId]> {
        self.pools.get(pool).map(Arc::clone).unwrap_or_default()
    }

    fn account_alone(&self, account: AccountId) -> Arc<[AccountId]> {
        self.alone.get(account.0 as usize).map(Arc::clone).unwrap_or_default()
    }

    fn origin(&self, scheme: &str, intake: &Intake) -> Origin {
        let base = self.public_base.clone().unwrap_or_else(|| format!("{scheme}://{}", intake.host));
        // Uploads and GraphQL have one address each that is not under /api/v3; answers to them keep the shape the client is known by.
        let root = if intake.service == Service::Uploads { Root::V3 } else { intake.root };
        Origin { base, root }
    }

    fn write_body_max(&self) -> usize {
        usize::try_from(self.config.writes.max_body).unwrap_or(usize::MAX)
    }

    fn hold_max(&self) -> usize {
        usize::try_from(self.config.cache.max_object).unwrap_or(usize::MAX)
    }
}

fn settings(config: &Config) -> Settings {
    let account = |account: &crate::config::Account| AccountSettings {
        name: Arc::clone(&account.name),
        kind: account.kind,
        reserve: account.reserve,
    };
    let limits = &config.limits;
    Settings {
        accounts: config.accounts.iter().map(account).collect(),
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
