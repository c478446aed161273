//! The input of a run: the gateway's settings, its clients and their bots, the upstream's limits,
//! the network between them.
//!
//! The same plan makes the same run, to the last request.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use strum::{EnumString, IntoStaticStr, VariantArray};

use super::rivals::Rules;
use super::workload::Workload;
use crate::api::{AccountKind, ResourceName, default_limit};
use crate::clock::Timestamp;
use crate::config::{Config, Freshness, WAITING_MAX};
use crate::decision::cache::freshness::Mode;
use crate::decision::{AccountId, AccountSettings, ClientSettings, Settings};
use crate::telemetry::access_log::Trace;

/// An ordinary network: the other end is elsewhere, and a few packets are sent twice.
const NETWORK: Network = Network {
    least_millis: 10,
    order: Order::Kept,
    spread_millis: 60,
    slow_millis: (150, 700),
    lost_percent: 0.0,
    wobble: Duration::ZERO,
};
/// Start of every run: a whole hour, for readable times.
pub const BEGINNING: Timestamp = Timestamp::from_secs(1_800_000_000);
/// Bounds of the upstream's latency for an ordinary answer, in milliseconds.
const ANSWERS: (u64, u64) = (15, 80);
/// Bounds of a slow latency: within the 10 s after which the service ends a request (SPECIFICATION,
/// "Limits in practice").
pub(super) const SLOW_ANSWERS: (u64, u64) = (3_000, 6_000);
/// Default of `clients.max_wait`.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Default of `writes.max_attempts`.
const WRITE_ATTEMPTS: NonZeroU32 = NonZeroU32::MIN.saturating_add(7);
/// Defaults of `writes.spacing` and `notify_spacing`.
const SPACING: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];
/// Default of `limits.batch_floor`.
const BATCH_FLOOR: f64 = 0.2;
/// The gateway's bounds for waiting requests and bytes.
const WAITING_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// `retry-after` of the injected limit.
const REFUSED_SECS: u64 = 120;

/// The input of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seed of all randomness.
    pub seed: u64,
    /// Virtual time from the first request to the end.
    pub length: Duration,
    /// The decision core's settings, accounts and clients among them.
    pub settings: Settings,
    /// The clients in the order of the settings.
    pub clients: Vec<Client>,
    /// Number of bots, assigned to the clients in turn.
    pub bots: u32,
    /// Source of the requests: bots or a recorded log.
    pub demand: Demanded,
    /// Accounts, limits and latency of the emulated upstream.
    pub upstream: Upstream,
    /// The network between gateway and upstream.
    pub network: Network,
    /// The gateways, and the requests that each gets.
    pub replicas: Replicas,
    /// Faults of the replicas, with the distance at which each comes again.
    pub faults: Vec<(ReplicaFault, Duration)>,
    /// Another consumer of the first account's budget.
    pub outside: Option<Outside>,
    /// Rule for answers served without a request upstream.
    pub freshness: Mode,
    /// Time for which a confirmation of an answer counts.
    pub revalidate_at_most: Duration,
    /// Most attempts of a write.
    pub write_attempts: NonZeroU32,
    /// Rules for the use of stored answers.
    pub rules: Rules,
    /// Recording of the events before the first denial by the upstream.
    pub narration: Narration,
}

/// Source of the clients of a recorded log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// The config; requests of unknown clients are left out.
    FromConfig,
    /// The log itself.
    FromTrace,
}

/// Source of the requests.
#[derive(Clone, Debug)]
pub enum Demanded {
    /// Bots of this workload.
    Workload(Workload),
    /// A recorded log.
    Trace(Arc<Trace>),
}

/// Recording of the events around the first denial by the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Narration {
    /// None, which is faster.
    Silent,
    /// In words.
    FirstRefusal,
}

/// A client, as far as it matters here.
#[derive(Clone, Debug)]
pub struct Client {
    /// Name in the config or in the recorded log.
    pub name: Arc<str>,
    /// Its pool in the keys of stored answers.
    pub pool: u32,
    /// Accounts that fetch for it.
    pub reads: Arc<[AccountId]>,
    /// Account of its writes and of routes about "me"; `None`: read only.
    pub writes: Option<Arc<[AccountId]>>,
    /// Longest wait of a request in the gateway.
    pub max_wait: Duration,
}

/// Configuration of the emulated upstream: what the emulator grants, refuses and delays.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Accounts in the order of the settings.
    pub accounts: Vec<UpstreamAccount>,
    /// Undocumented limits by the emulator's names; later ones override.
    pub limits: Vec<(String, u64)>,
    /// Bounds of its latency beside the CPU time, in milliseconds.
    pub answers_millis: (u64, u64),
    /// An injected secondary limit.
    pub refusal: Option<InjectedRefusal>,
}

/// An account at the upstream.
#[derive(Clone, Debug)]
pub struct UpstreamAccount {
    /// Name of the account in the settings.
    pub name: Arc<str>,
    /// Primary limit per hour for ordinary requests.
    pub core_limit: u32,
    /// Kind of caller.
    pub duty: Duty,
}

/// Kind of account at the emulator. Kinds differ in their limits, which are set by name;
/// permissions are not simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// A user with a token.
    User,
    /// The seed world's app, which signs its own JWTs.
    App,
}

/// A secondary limit without a cause.
#[derive(Clone, Copy, Debug)]
pub struct InjectedRefusal {
    /// Account whose next request is denied.
    pub account: AccountId,
    /// Earliest time of the denial.
    pub at: Timestamp,
    /// Value of `retry-after`.
    pub retry_after_secs: u64,
}

/// The network between gateway and upstream.
#[derive(Clone, Debug)]
pub struct Network {
    /// Least latency in each direction, in milliseconds.
    pub least_millis: u64,
    /// Order of requests and answers.
    pub order: Order,
    /// If shuffled: greatest additional latency of an ordinary message, in milliseconds.
    pub spread_millis: u64,
    /// If shuffled: bounds of the latency of one message in twenty, in milliseconds.
    pub slow_millis: (u64, u64),
    /// Percentage of exchanges without an answer.
    pub lost_percent: f64,
    /// Greatest error of a `reset`, before it is rounded to seconds.
    pub wobble: Duration,
}

/// Several gateways that share all limits.
#[derive(Clone, Copy, Debug)]
pub struct Replicas {
    /// Number of gateways.
    pub count: NonZeroU32,
    /// The way in which requests are spread over them.
    pub balance: LoadBalance,
    /// The greatest error of their clocks.
    pub skew: Duration,
}

impl Replicas {
    /// One gateway.
    pub const ONE: Self =
        Self { count: NonZeroU32::MIN, balance: LoadBalance::Even, skew: Duration::ZERO };
}

/// A fault of the replicas, or of the records that they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaFault {
    /// The last replica ends at once, and another one begins in its place.
    Killed,
    /// The last replica stands still for longer than its parts last.
    Paused,
    /// The last replica does not reach the records for five minutes.
    CutOff,
    /// No replica reaches the records for five minutes.
    RecordsAway,
    /// The records are lost.
    RecordsLost,
}

/// The way in which requests are spread over the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum LoadBalance {
    /// Every replica gets as many.
    Even,
    /// The first one gets nine of ten.
    Skewed,
    /// One replica gets all of them, each minute another one.
    Moving,
}

/// Order of requests and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Kept: all messages have the same latency.
    Kept,
    /// Shuffled: latencies are random, a few of them long.
    Shuffled,
}

/// Another consumer of an account's budget, with another token and past the gateway.
#[derive(Clone, Copy, Debug)]
pub struct Outside {
    /// Account whose budget it consumes.
    pub account: AccountId,
    /// Mean time between two of its requests.
    pub every: Duration,
}

impl Network {
    /// Makes the network fast, so that elapsed time is nearly the upstream's own.
    pub(super) fn hurry(&mut self) {
        (self.least_millis, self.spread_millis, self.slow_millis) = (1, 4, (10, 30));
    }
}

impl Plan {
    /// Plans accounts of users with the documented limits, and the workload's own clients.
    pub fn new(workload: Workload, accounts: u32, bots: u32) -> Self {
        let names: Vec<Arc<str>> =
            (1..=accounts.max(1)).map(|number| format!("account-{number}").into()).collect();
        let ids: Arc<[AccountId]> = (0..accounts.max(1)).map(AccountId).collect();
        let own: Vec<(Arc<str>, u32)> = match workload.clients() {
            Some(clients) => {
                clients.iter().map(|(name, weight)| (Arc::from(*name), *weight)).collect()
            }
            None => names.iter().map(|name| (Arc::from(format!("bots-of-{name}")), 1)).collect(),
        };
        let is_patient = workload == Workload::Shares;
        let max_wait = if is_patient { Duration::from_secs(600) } else { MAX_WAIT };
        let client = |(place, (name, _)): (usize, &(Arc<str>, u32))| Client {
            name: Arc::clone(name),
            pool: 0,
            reads: Arc::clone(&ids),
            writes: Some(in_turn(&ids, place)),
            max_wait,
        };
        let clients = own.iter().enumerate().map(client).collect();
        let weight = |(_, weight): &(Arc<str>, u32)| ClientSettings {
            weight: NonZeroU32::new(*weight).unwrap_or(NonZeroU32::MIN),
            ..ClientSettings::default()
        };
        let account = |name: &Arc<str>| AccountSettings {
            is_shared: own.len() > 1,
            name: Arc::clone(name),
            kind: AccountKind::User,
            reserve: 0,
            also_spends: None,
        };
        let [spacing, notify_spacing] =
            if workload == Workload::Content { [Duration::ZERO; 2] } else { SPACING };
        let settings = Settings {
            accounts: names.iter().map(account).collect(),
            clients: own.iter().map(weight).collect(),
            batch_floor: BATCH_FLOOR,
            waiting_max: WAITING_MAX,
            waiting_bytes_max: WAITING_BYTES_MAX,
            spacing,
            notify_spacing,
            ..Settings::default()
        };
        Self::with(settings, clients, workload, bots)
    }

    /// Plans the accounts, pools, clients, limits and pacing of a config. Its first pool gets
    /// `accounts` accounts if given.
    pub fn from_config(
        config: &Config,
        workload: Workload,
        accounts: Option<u32>,
        bots: u32,
    ) -> Self {
        let mut settings = Settings { dynamic_accounts: 0, ..config.ledger_settings() };
        // The simulated upstream charges one account for each request.
        settings.accounts.iter_mut().for_each(|account| account.also_spends = None);
        let to_ids = |pool: &crate::config::Pool| -> Vec<AccountId> {
            pool.accounts.iter().map(|place| account_at(*place)).collect()
        };
        let mut pools: Vec<Vec<AccountId>> = config.pools.iter().map(to_ids).collect();
        if let Some(accounts) = accounts {
            vary(&mut settings.accounts, &mut pools, accounts);
        }
        let pools: Vec<Arc<[AccountId]>> = pools.into_iter().map(Arc::from).collect();
        let client = |client: &crate::config::Client| Client {
            name: Arc::clone(&client.name),
            pool: u32::try_from(client.reads).unwrap_or(u32::MAX),
            reads: pools.get(client.reads).cloned().unwrap_or_default(),
            writes: client.writes.map(|place| Arc::from([account_at(place)])),
            max_wait: client.max_wait,
        };
        let mut plan =
            Self::with(settings, config.clients.iter().map(client).collect(), workload, bots);
        plan.freshness = match config.cache.freshness {
            Freshness::Revalidate => Mode::Revalidate,
            Freshness::Rfc9111 => Mode::Rfc9111,
        };
        plan.revalidate_at_most = config.cache.revalidate_at_most;
        plan.write_attempts = config.writes.max_attempts;
        plan
    }

    fn with(settings: Settings, clients: Vec<Client>, workload: Workload, bots: u32) -> Self {
        let of = |account: &AccountSettings| UpstreamAccount {
            name: Arc::clone(&account.name),
            core_limit: core_limit(account.kind),
            duty: Duty::User,
        };
        let upstream = Upstream {
            accounts: settings.accounts.iter().map(of).collect(),
            limits: Vec::new(),
            answers_millis: ANSWERS,
            refusal: None,
        };
        let mut plan = Self {
            seed: 1,
            length: Duration::from_secs(24 * 3_600),
            settings,
            clients,
            bots,
            demand: Demanded::Workload(workload),
            upstream,
            network: NETWORK,
            replicas: Replicas::ONE,
            faults: Vec::new(),
            outside: None,
            freshness: Mode::Revalidate,
            revalidate_at_most: Duration::ZERO,
            write_attempts: WRITE_ATTEMPTS,
            rules: Rules::Weir,
            narration: Narration::Silent,
        };
        workload.prepare(&mut plan);
        plan
    }

    /// Replaces the bots by recorded requests.
    #[must_use]
    pub fn replaying(mut self, trace: Arc<Trace>, clients: Known) -> Self {
        if clients == Known::FromTrace {
            let Some(model) = self.clients.first().cloned() else { return self };
            let client = |(place, name): (usize, &Arc<str>)| Client {
                name: Arc::clone(name),
                writes: Some(in_turn(&model.reads, place)),
                ..model.clone()
            };
            self.clients = trace.clients.iter().enumerate().map(client).collect();
            self.settings.clients =
                self.clients.iter().map(|_| ClientSettings::default()).collect();
        }
        self.bots = 0;
        self.length = trace.length();
        self.demand = Demanded::Trace(trace);
        self
    }

    /// Injects a secondary limit on the first account; the run sets its time by its length.
    pub(super) fn refuse_first_account_halfway(&mut self) {
        self.upstream.refusal = Some(InjectedRefusal {
            account: AccountId(0),
            at: Timestamp::FAR_FUTURE,
            retry_after_secs: REFUSED_SECS,
        });
    }
}

/// Gives the first pool `wanted` accounts: copies of its last one, or fewer than it had.
fn vary(known: &mut Vec<AccountSettings>, pools: &mut [Vec<AccountId>], wanted: u32) {
    let Some(pool) = pools.first_mut() else { return };
    let wanted = usize::try_from(wanted.max(1)).unwrap_or(usize::MAX);
    pool.truncate(wanted);
    let Some(model) =
        pool.last().and_then(|id| known.get(usize::try_from(id.0).unwrap_or(usize::MAX))).cloned()
    else {
        return;
    };
    while pool.len() < wanted {
        let number = known.len() + 1;
        known.push(AccountSettings { name: format!("further-{number}").into(), ..model.clone() });
        pool.push(AccountId(u32::try_from(known.len() - 1).unwrap_or(u32::MAX)));
    }
}

fn account_at(place: usize) -> AccountId {
    AccountId(u32::try_from(place).unwrap_or(u32::MAX))
}

/// Returns the one account that the client at `place` gets when accounts are assigned in turn.
fn in_turn(accounts: &[AccountId], place: usize) -> Arc<[AccountId]> {
    accounts.iter().copied().skip(place % accounts.len().max(1)).take(1).collect()
}

/// Returns the limit of a kind of caller (SPECIFICATION, "Primary rate limits").
fn core_limit(kind: AccountKind) -> u32 {
    match kind {
        AccountKind::Anonymous => 60,
        AccountKind::Workflow => 1_000,
        _ => default_limit(&ResourceName::core()),
    }
}
