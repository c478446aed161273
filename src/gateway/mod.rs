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

pub mod active;
pub mod address;
mod background;
pub mod cache;
pub mod counted;
pub mod dispatch;
pub mod error;
mod http;
pub mod random;
pub mod reload;
pub mod request;
pub mod response;
pub mod server;
mod upstream;
pub mod url_rewrite;
pub mod write;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::api::Table;
use crate::clock::Clock;
use crate::config::Config;
use crate::decision::cache::freshness::Mode;
use crate::decision::permissions::Rights;
use crate::decision::{AccountId, Until};
use crate::telemetry::{Metrics, WaitCause};
use crate::tokens::{Source, Tokens};
use crate::webhooks::Receiver;

use crate::gateway::active::Active;
use crate::gateway::address::{Root, Service};
use crate::gateway::cache::registry::Streams;
use crate::gateway::cache::single_flight::Flights;
use crate::gateway::cache::store::Store;
use crate::gateway::dispatch::admission::Admissions;
use crate::gateway::dispatch::candidates::{Accounts, Candidates};
use crate::gateway::dispatch::progress::Hold;
use crate::gateway::request::body::BodyMemory;
use crate::gateway::request::clients::Clients;
use crate::gateway::request::graphql_prices::GraphqlPrices;
use crate::gateway::request::passthrough::Guests;
use crate::gateway::request::validate::Intake;
use crate::gateway::response::compression::Encodings;
use crate::gateway::upstream::fetch::Upstream;
use crate::gateway::url_rewrite::map::{Origin, UrlMap};
use crate::gateway::write::queue::Queue;
use crate::gateway::write::turns::Turns;

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
    pub deliveries: Arc<server::deliveries::Deliveries>,
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
    pub table: &'static Table,
    pub roots_about_caller: Arc<BTreeSet<String>>,
    pub clients: Clients,
    pub guests: Arc<Guests>,
    /// Fetches under way, by what they fetch.
    pub flights: Arc<Flights>,
    /// The bodies too large to hold that are being read.
    pub streams: Arc<Streams>,
    pub graphql_prices: Arc<GraphqlPrices>,
    pub upstream: Arc<Upstream>,
    pub urls: UrlMap,
    pub mode: Mode,
    /// Lists of accounts.
    pub candidates: Candidates,
    /// What answers have taught about tokens' rights.
    pub rights: Arc<Mutex<Rights>>,
    /// Told when a second look has ended.
    pub look_ended: Arc<Notify>,
    pub pools: Vec<Accounts>,
    pub alone: Vec<Accounts>,
    pub public_base: Option<String>,
    /// For spans: where clients reach this gateway.
    pub server_address: String,
    pub watch: Arc<background::audit::Watch>,
    pub webhooks: Option<Receiver>,
    /// The webhooks that are watched.
    pub hooks: background::webhook_monitor::Hooks,
    /// Where answers were seen to change.
    pub neighbours: Arc<cache::pagination::Neighbours>,
    /// Where the config asks for it.
    pub predictor: Option<Arc<cache::predicted_etags::Predictor>>,
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

    pub fn shared_name(&self, account: AccountId) -> &Arc<str> {
        self.config.account(account).map_or(self.guests.name(), |account| &account.name)
    }

    /// What holds a request, in the words of the log.
    pub fn held(&self, hold: Hold) -> WaitCause {
        let until = if let Until::Time(until) = hold.until { Some(until) } else { None };
        let account = hold.account.map(|account| Arc::clone(self.shared_name(account)));
        WaitCause { by: hold.by.name(), account, until }
    }

    pub fn pool(&self, pool: usize) -> Accounts {
        self.pools.get(pool).map(Arc::clone).unwrap_or_default()
    }

    pub fn account_alone(&self, account: AccountId) -> Accounts {
        self.alone.get(account.0 as usize).map(Arc::clone).unwrap_or_default()
    }

    pub fn origin(&self, scheme: &str, intake: &Intake) -> Origin {
        let base =
            self.public_base.clone().unwrap_or_else(|| [scheme, "://", &intake.host].concat());
        // Uploads and GraphQL have one address each that is not under /api/v3; answers to them keep
        // the shape the client is known by.
        let root = if intake.service == Service::Uploads { Root::V3 } else { intake.root };
        Origin { base, root }
    }

    /// Which methods there are: those that the service documents, or, for a plain HTTP cache, all.
    pub fn methods(&self) -> crate::gateway::request::validate::Methods {
        if self.mode == Mode::Rfc9111 {
            crate::gateway::request::validate::Methods::All
        } else {
            crate::gateway::request::validate::Methods::Documented
        }
    }

    pub fn write_body_max(&self) -> usize {
        usize::try_from(self.config.writes.max_body).unwrap_or(usize::MAX)
    }

    pub fn hold_max(&self) -> usize {
        usize::try_from(self.config.cache.max_object).unwrap_or(usize::MAX)
    }
}
