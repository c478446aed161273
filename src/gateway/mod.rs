//! The gateway itself: listeners, the path of a request, the upstream client, the answer. The I/O
//! shell around `decision/`, and the only importer of pingora.
//!
//! In the order in which a request meets them:
//!
//! | module | stage |
//! |---|---|
//! | [`generations`] | the gateway by the config in force |
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
pub mod generations;
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
mod second_look;
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
use crate::decision::{AccountId, Until};
use crate::telemetry::{Held, Metrics};
use crate::tokens::{Source, Tokens};
use crate::webhooks::Receiver;

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
use queue::Queue;
use rewrite::{Origin, UrlMap};
use store::Store;
use streams::Streams;
use turns::Turns;

/// Everything that requests share, by one config. What goes on from one config to the next is
/// shared with the gateways before and after it (`generations`).
pub struct Gateway {
    /// The config that it goes by.
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
    pub store: Arc<Store>,
    /// Memory for the bodies of writes that wait.
    pub bodies: Arc<BodyMemory>,
    /// Room for deliveries.
    pub deliveries: Arc<deliveries::Deliveries>,
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
    roots_about_caller: Arc<BTreeSet<String>>,
    clients: Clients,
    guests: Arc<Guests>,
    /// Fetches under way, by what they fetch.
    pub flights: Arc<Flights>,
    /// The bodies too large to hold that are being read.
    pub streams: Arc<Streams>,
    graphql_prices: Arc<GraphqlPrices>,
    upstream: Arc<Upstream>,
    urls: UrlMap,
    mode: Mode,
    /// Lists of accounts.
    candidates: Candidates,
    /// What answers have taught about tokens' rights.
    rights: Arc<Mutex<Rights>>,
    /// Told when a second look has ended.
    look_ended: Arc<Notify>,
    pools: Vec<Accounts>,
    alone: Vec<Accounts>,
    public_base: Option<String>,
    /// For spans: where clients reach this gateway.
    server_address: String,
    watch: Arc<watch::Watch>,
    webhooks: Option<Receiver>,
    /// The webhooks that are watched.
    hooks: hooks::Hooks,
    /// Where answers were seen to change.
    neighbours: Arc<neighbours::Neighbours>,
    /// Where the config asks for it.
    predictor: Option<Arc<predicted::Predictor>>,
    /// Compressed forms of stored answers.
    pub encodings: Arc<Encodings>,
}

impl Gateway {
    /// Whether the gateway is shutting down.
    pub fn is_draining(&self) -> bool {
        self.active.is_draining()
    }

    /// Whether some token can be used. An app's own credential serves few routes and does not count
    /// where there is another account.
    pub fn has_usable_token(&self) -> bool {
        let now = self.clock.now();
        let health = self.tokens.health(now);
        let only_apps = health.iter().all(|token| matches!(token.token, Source::App(_)));
        health.iter().any(|token| {
            token.may_serve(now) && (only_apps || !matches!(token.token, Source::App(_)))
        })
    }

    /// The config's name of an account; all those that the config does not know have one together.
    pub fn account_name(&self, account: AccountId) -> &str {
        self.shared_name(account)
    }

    fn shared_name(&self, account: AccountId) -> &Arc<str> {
        self.config.account(account).map_or(self.guests.name(), |account| &account.name)
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
        let base =
            self.public_base.clone().unwrap_or_else(|| [scheme, "://", &intake.host].concat());
        // Uploads and GraphQL have one address each that is not under /api/v3; answers to them keep
        // the shape the client is known by.
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
