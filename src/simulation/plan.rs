//! What a run is made from: the gateway's settings, its clients and their bots, the upstream's
//! limits, the network between them.
//!
//! The same plan makes the same run, to the last request.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::rivals::Rules;
use super::trace::Trace;
use super::workload::Workload;
use crate::api::{AccountKind, ResourceName, default_limit};
use crate::clock::Timestamp;
use crate::config::{Config, Freshness, WAITING_MAX};
use crate::decision::cache::freshness::Mode;
use crate::decision::{AccountId, AccountSettings, ClientSettings, Settings};

/// An ordinary network: the other side is in another place, and a few packets have to be sent
/// twice.
const NETWORK: Network = Network {
    least_millis: 10,
    order: Order::Kept,
    spread_millis: 60,
    slow_millis: (150, 700),
    lost_percent: 0.0,
    wobble: Duration::ZERO,
};
/// When every run begins: a whole hour, so that times read easily.
pub const BEGINNING: Timestamp = Timestamp::from_secs(1_800_000_000);
/// How long the upstream takes for an ordinary answer, in milliseconds, from and to.
const ANSWERS: (u64, u64) = (15, 80);
/// The same where answers are slow: within the 10 s after which the service ends a request
/// (UPSTREAM.md, Limits).
pub(super) const SLOW_ANSWERS: (u64, u64) = (3_000, 6_000);
/// CONTRACT §2, `clients.max_wait`.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// CONTRACT §2, `writes.max_attempts`.
const WRITE_ATTEMPTS: NonZeroU32 = NonZeroU32::MIN.saturating_add(7);
/// CONTRACT §2, `writes.spacing` and `notify_spacing`.
const SPACING: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];
/// CONTRACT §2, `limits.batch_floor`.
const BATCH_FLOOR: f64 = 0.2;
/// As many requests and bytes may wait as in the gateway.
const WAITING_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// `retry-after` of the injected refusal.
const REFUSED_SECS: u64 = 120;

/// What a run is made from.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Chooses everything that looks like chance.
    pub seed: u64,
    /// Virtual time from the first request to the end.
    pub length: Duration,
    /// The decision core's settings, accounts and clients among them.
    pub settings: Settings,
    /// The clients, in the order of the settings.
    pub clients: Vec<Client>,
    /// How many bots there are, dealt to the clients in turn.
    pub bots: u32,
    /// What they do.
    pub demand: Demanded,
    /// The other side.
    pub upstream: Upstream,
    /// What is between.
    pub network: Network,
    /// Somebody else who spends the first account's budget.
    pub outside: Option<Outside>,
    /// When a stored answer is served without asking.
    pub freshness: Mode,
    /// How often a write is tried.
    pub write_attempts: NonZeroU32,
    /// By whose rules stored answers are used.
    pub rules: Rules,
    /// Whether the run remembers what led to the first refusal by the upstream.
    pub narration: Narration,
}

/// Where the clients of a recorded log are known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// The config; requests of others are left out.
    FromConfig,
    /// The log itself.
    FromTrace,
}

/// What is asked.
#[derive(Clone, Debug)]
pub enum Demanded {
    /// By bots of this workload.
    Workload(Workload),
    /// As it was recorded.
    Trace(Arc<Trace>),
}

/// Whether to remember the events around the first refusal by the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Narration {
    /// Not at all, which is faster.
    Silent,
    /// In words.
    FirstRefusal,
}

/// A client, as far as a simulation cares.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its name.
    pub name: Arc<str>,
    /// Names its pool in the keys of stored answers.
    pub pool: u32,
    /// The accounts that fetch for it.
    pub reads: Arc<[AccountId]>,
    /// The account of its writes and of routes about "me"; without it, it only reads.
    pub writes: Option<Arc<[AccountId]>>,
    /// How long one of its requests may be held.
    pub max_wait: Duration,
}

/// The upstream's side.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// The accounts, in the order of the settings.
    pub accounts: Vec<UpstreamAccount>,
    /// Limits that are not the documented ones, by the emulator's names; later ones override.
    pub limits: Vec<(String, u64)>,
    /// How long it takes for an answer beside its CPU time, in milliseconds, from and to.
    pub answers_millis: (u64, u64),
    /// A secondary refusal that nothing asked for.
    pub refusal: Option<InjectedRefusal>,
}

/// An account at the upstream.
#[derive(Clone, Debug)]
pub struct UpstreamAccount {
    /// Its name.
    pub name: Arc<str>,
    /// Its primary limit per hour for ordinary requests.
    pub core_limit: u32,
    /// What it is there for.
    pub duty: Duty,
}

/// What an account is at the emulator. Kinds differ in their limits, which are set by name; rights
/// and reach are not simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// It carries requests by a token.
    User,
    /// It is the seed world's app, which signs for itself.
    App,
}

/// A secondary refusal out of the blue.
#[derive(Clone, Copy, Debug)]
pub struct InjectedRefusal {
    /// Sender next request is refused.
    pub account: AccountId,
    /// From when on.
    pub at: Timestamp,
    /// What `retry-after` says.
    pub retry_after_secs: u64,
}

/// The network between gateway and upstream.
#[derive(Clone, Debug)]
pub struct Network {
    /// The least time in each direction, in milliseconds.
    pub least_millis: u64,
    /// Whether requests and answers can overtake each other.
    pub order: Order,
    /// Where they can: how much longer than the least an ordinary way may take, in milliseconds.
    pub spread_millis: u64,
    /// Where they can: the time of one way in twenty, in milliseconds, from and to.
    pub slow_millis: (u64, u64),
    /// Of a hundred exchanges, how many bring no answer.
    pub lost_percent: f64,
    /// By how much a `reset` is off at most, before it is rounded to seconds.
    pub wobble: Duration,
}

/// Whether requests and answers can overtake each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Each takes as long as the others.
    Kept,
    /// Each takes a random time; a few take long.
    Shuffled,
}

/// Somebody else who spends an account's budget: with another token, and without asking us.
#[derive(Clone, Copy, Debug)]
pub struct Outside {
    /// Sender budget.
    pub account: AccountId,
    /// The mean time between two of its requests.
    pub every: Duration,
}

impl Network {
    /// Next door: the way takes a few milliseconds, so that elapsed time is nearly the upstream's
    /// own.
    pub(super) fn hurry(&mut self) {
        (self.least_millis, self.spread_millis, self.slow_millis) = (1, 4, (10, 30));
    }
}

impl Plan {
    /// Accounts of users with the documented limits, and the workload's own clients.
    pub fn new(workload: Workload, accounts: u32, bots: u32) -> Self {
        let names: Vec<Arc<str>> =
            (1..=accounts.max(1)).map(|number| format!("account-{number}").into()).collect();
        let ids: Arc<[AccountId]> = (0..accounts.max(1)).map(AccountId).collect();
        let alone = |place: usize| -> Arc<[AccountId]> {
            ids.iter().copied().skip(place % ids.len()).take(1).collect()
        };
        let own: Vec<(Arc<str>, u32)> = match workload.clients() {
            Some(clients) => {
                clients.iter().map(|(name, weight)| (Arc::from(*name), *weight)).collect()
            }
            None => names.iter().map(|name| (Arc::from(format!("bots-of-{name}")), 1)).collect(),
        };
        let client = |(place, (name, _)): (usize, &(Arc<str>, u32))| Client {
            name: Arc::clone(name),
            pool: 0,
            reads: Arc::clone(&ids),
            writes: Some(alone(place)),
            max_wait: if workload == Workload::Shares {
                Duration::from_secs(600)
            } else {
                MAX_WAIT
            },
        };
        let clients = own.iter().enumerate().map(client).collect();
        let weight = |(_, weight): &(Arc<str>, u32)| ClientSettings {
            weight: NonZeroU32::new(*weight).unwrap_or(NonZeroU32::MIN),
            ..ClientSettings::default()
        };
        let account = |name: &Arc<str>| AccountSettings {
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

    /// The accounts, pools, clients, limits and pacing of a config; its first pool gets `accounts`
    /// accounts when that is given.
    pub fn from_config(
        config: &Config,
        workload: Workload,
        accounts: Option<u32>,
        bots: u32,
    ) -> Self {
        let mut settings =
            Settings { dynamic_accounts: 0, ..config.ledger_settings(WAITING_BYTES_MAX) };
        // The simulated upstream charges one account for each request.
        settings.accounts.iter_mut().for_each(|account| account.also_spends = None);
        let to_ids = |pool: &crate::config::Pool| -> Vec<AccountId> {
            pool.accounts
                .iter()
                .map(|place| AccountId(u32::try_from(*place).unwrap_or(u32::MAX)))
                .collect()
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
            writes: client
                .writes
                .map(|place| Arc::from([AccountId(u32::try_from(place).unwrap_or(u32::MAX))])),
            max_wait: client.max_wait,
        };
        let mut plan =
            Self::with(settings, config.clients.iter().map(client).collect(), workload, bots);
        plan.freshness = match config.cache.freshness {
            Freshness::Revalidate => Mode::Revalidate,
            Freshness::Rfc9111 => Mode::Rfc9111,
        };
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
            outside: None,
            freshness: Mode::Revalidate,
            write_attempts: WRITE_ATTEMPTS,
            rules: Rules::Weir,
            narration: Narration::Silent,
        };
        workload.prepare(&mut plan);
        plan
    }

    /// The same requests as were recorded, in place of bots. Without a config, the clients are
    /// those of the record.
    #[must_use]
    pub fn replaying(mut self, trace: Arc<Trace>, clients: Known) -> Self {
        if clients == Known::FromTrace {
            let Some(model) = self.clients.first().cloned() else { return self };
            let (accounts, names) = (Arc::clone(&model.reads), trace.clients.iter().enumerate());
            let own = |place: usize| -> Arc<[AccountId]> {
                accounts.iter().copied().skip(place % accounts.len().max(1)).take(1).collect()
            };
            self.clients = names
                .map(|(place, name)| Client {
                    name: Arc::clone(name),
                    writes: Some(own(place)),
                    ..model.clone()
                })
                .collect();
            self.settings.clients =
                self.clients.iter().map(|_| ClientSettings::default()).collect();
        }
        self.bots = 0;
        self.length = trace.length();
        self.demand = Demanded::Trace(trace);
        self
    }

    /// Arms a secondary refusal of the first account; the time is set when the run begins, by its
    /// length.
    pub(super) fn refuse_first_account_halfway(&mut self) {
        self.upstream.refusal = Some(InjectedRefusal {
            account: AccountId(0),
            at: Timestamp::FAR_FUTURE,
            retry_after_secs: REFUSED_SECS,
        });
    }
}

/// The first pool gets `wanted` accounts: copies of its last one, or fewer than it had.
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

/// Document 1, Primary rate limits: by the kind of caller.
fn core_limit(kind: AccountKind) -> u32 {
    match kind {
        AccountKind::Anonymous => 60,
        AccountKind::Workflow => 1_000,
        _ => default_limit(&ResourceName::core()),
    }
}
