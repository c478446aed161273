//! The words in which the shell and the decision core speak: what is asked for, what is granted,
//! what is refused and until when, and how a granted request ended.
//!
//! Data only. What is decided with it is in [`super::books`] and [`super::admission`].

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use crate::api::{AccountKind, EndpointId, LimitRefusal, RateHeaders, ResourceName};
use crate::clock::Timestamp;

/// An account: its place among the accounts of the config and the guests, see [`Places`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AccountId(pub u32);

/// Which [`AccountId`]s the accounts of a list have: those that it began with, then the guests,
/// then those that a later config added. So nobody's changes while the books are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// How many accounts the list began with.
    pub first: u32,
    /// Places for accounts that no config names.
    pub guests: u32,
}

impl Places {
    /// The account at this place of the list.
    pub fn id(self, index: usize) -> AccountId {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        AccountId(if index < self.first { index } else { index.saturating_add(self.guests) })
    }

    /// An account's place in the list; a guest has none.
    pub fn index(self, account: AccountId) -> Option<usize> {
        let beyond = account.0.checked_sub(self.first);
        let index = beyond
            .map_or(Some(account.0), |beyond| Some(beyond.checked_sub(self.guests)? + self.first));
        index.and_then(|index| usize::try_from(index).ok())
    }

    /// Whether an account is a guest.
    pub fn is_guest(self, account: AccountId) -> bool {
        self.index(account).is_none()
    }
}

/// Names one admitted request until it is settled. Given by the caller, so that asking twice for
/// the same lease admits once and settling it twice settles once (DESIGN D8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(pub u64);

/// A place in the waiting line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A client: its place in the config's list of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u32);

impl ClientId {
    /// Nobody waits for its requests: they have the lowest priority.
    pub const BACKGROUND: Self = Self(u32::MAX - 1);
}

/// The order in which waiting requests are served; greater goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Stops while less than [`Settings::batch_floor`] of a budget is left.
    Batch,
    /// The ordinary one.
    #[default]
    Normal,
    /// Somebody is waiting for the answer.
    Interactive,
}

/// How a budget is spread over its window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// First come, first served.
    #[default]
    Burst,
    /// Evenly until the reset.
    Even,
}

/// What the books must know of the config.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The accounts, whose [`AccountId`]s are by [`Places`].
    pub accounts: Vec<AccountSettings>,
    /// Places for accounts that no config names, those of the credentials that clients bring.
    pub guests: u32,
    /// The clients; a [`ClientId`] is a place in this list. One that is not in it has the default
    /// share and priority.
    pub clients: Vec<ClientSettings>,
    /// How a primary budget is spread over its window.
    pub pace: Pace,
    /// The part of a budget, 0 to 1, below which requests of priority [`Priority::Batch`] stop.
    pub batch_floor: f64,
    /// Most requests that may wait at once.
    pub waiting_max: usize,
    /// Most bytes that all those who wait may hold together ([`Demand::held_bytes`]).
    pub waiting_bytes_max: u64,
    /// The secondary limits of every account.
    pub limits: SecondaryLimits,
    /// The least time between two writes of one account.
    pub spacing: Duration,
    /// The least time between two writes of one account that both trigger notifications.
    pub notify_spacing: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            accounts: Vec::new(),
            guests: 0,
            clients: Vec::new(),
            pace: Pace::Burst,
            batch_floor: 0.0,
            waiting_max: usize::MAX,
            waiting_bytes_max: u64::MAX,
            limits: SecondaryLimits::default(),
            spacing: Duration::ZERO,
            notify_spacing: Duration::ZERO,
        }
    }
}

/// One client, as far as the waiting line cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// Its share when requests wait, against the other clients' weights.
    pub weight: NonZeroU32,
    /// Whether its waiting requests go before or after those of others.
    pub priority: Priority,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self { weight: NonZeroU32::MIN, priority: Priority::Normal }
    }
}

/// One account, as far as the books care.
#[derive(Clone, Debug)]
pub struct AccountSettings {
    /// Its name in the config.
    pub name: Arc<str>,
    /// What it is at the upstream.
    pub kind: AccountKind,
    /// Units of each window that are left to others.
    pub reserve: u32,
    /// The account whose budgets its requests also consume, as those of an app that acts for a user
    /// do (Document 1, Primary rate limits).
    pub also_spends: Option<AccountId>,
}

/// The upstream's secondary limits, per account. The defaults are the documented ones (Document 1,
/// Limits). A limit of 0 counts as 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecondaryLimits {
    /// Requests at once, REST and GraphQL together.
    pub concurrency: u32,
    /// REST points per endpoint and minute.
    pub rest_points_per_minute: u32,
    /// GraphQL points per minute.
    pub graphql_points_per_minute: u32,
    /// Seconds of upstream CPU time per minute, REST and GraphQL together.
    pub cpu_seconds_per_minute: u32,
    /// Seconds of upstream CPU time per minute that GraphQL may take.
    pub graphql_cpu_seconds_per_minute: u32,
    /// Content-generating requests per minute.
    pub content_per_minute: u32,
    /// Content-generating requests per hour.
    pub content_per_hour: u32,
    /// OAuth token requests per hour.
    pub oauth_tokens_per_hour: u32,
}

impl Default for SecondaryLimits {
    fn default() -> Self {
        Self {
            concurrency: 100,
            rest_points_per_minute: 900,
            graphql_points_per_minute: 2_000,
            cpu_seconds_per_minute: 90,
            graphql_cpu_seconds_per_minute: 60,
            content_per_minute: 80,
            content_per_hour: 500,
            oauth_tokens_per_hour: 2_000,
        }
    }
}

/// A request that wants to be sent: who may carry it and what it will weigh.
#[derive(Clone, Debug)]
pub struct Demand {
    /// Who asks: decides about its share while it waits.
    pub client: ClientId,
    /// Bytes of memory that it holds as long as it waits.
    pub held_bytes: u64,
    /// The accounts that may carry it. Share one allocation between all demands of a pool: it makes
    /// comparing them cheap.
    pub candidates: Arc<[AccountId]>,
    /// The owner of a validator: taken when several accounts are equally good (DESIGN D3).
    pub prefer: Option<AccountId>,
    /// The primary resource it is thought to count against. What answers of its endpoint have said
    /// goes before ([`super::Books::resource_for`]); the caller need not correct it.
    pub resource: ResourceName,
    /// Its endpoint, which has a points book of its own.
    pub endpoint: EndpointId,
    /// Units of the primary budget: 1 for REST, 0 for what the upstream does not count (`GET
    /// /rate_limit`).
    pub cost: u32,
    /// Points of the secondary limit.
    pub points: u32,
    /// Which of the points books it counts in.
    pub graphql: bool,
    /// Whether it creates content that people see, which has limits of its own.
    pub content: bool,
    /// Whether it is an OAuth access token request, of which an app may make a number per hour
    /// (Document 1, Secondary rate limits).
    pub token_request: bool,
    /// Whether it must keep its distance from other writes of the account.
    pub write: WriteSpacing,
}

#[cfg(test)]
impl Demand {
    /// A plain read by the first client that these accounts may carry; what a test is about it
    /// changes.
    pub(crate) fn read(candidates: impl Into<Arc<[AccountId]>>, path: &str) -> Self {
        Self {
            client: ClientId(0),
            held_bytes: 0,
            candidates: candidates.into(),
            prefer: None,
            resource: ResourceName::core(),
            endpoint: crate::api::Table::embedded(crate::api::Dialect::Service)
                .classify(&http::Method::GET, path)
                .endpoint
                .id,
            cost: 1,
            points: 1,
            graphql: false,
            content: false,
            token_request: false,
            write: WriteSpacing::None,
        }
    }
}

/// The distance that a request keeps from the account's other writes (UPSTREAM.md, Limits:
/// mutations of one account one after the other).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteSpacing {
    /// Not a write: none.
    None,
    /// A write nobody is notified of: [`Settings::spacing`] after any other write.
    Plain,
    /// A write that triggers notifications: also [`Settings::notify_spacing`] after the last such
    /// write.
    Notifies,
}

/// A permission to send one request; ends with a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// What to settle.
    pub lease: LeaseId,
    /// Who carries it.
    pub account: AccountId,
}

/// A "no", which is a decision: which limit, whose, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The limit that says no.
    pub limit: LimitKind,
    /// Whose limit it is; of several accounts the one that will be free first. `None` when it is no
    /// account's.
    pub account: Option<AccountId>,
    /// The resource the request would have counted against.
    pub resource: ResourceName,
    /// When it could be admitted at the earliest.
    pub until: Until,
}

/// The end of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Not before this time. [`Timestamp::FAR_FUTURE`]: never.
    Time(Timestamp),
    /// With the next answer that frees a place; when that comes is not known.
    Event,
}

/// Every limit that can refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LimitKind {
    /// The budget of a resource is spent or leased out.
    Primary,
    /// The state of a budget is unknown and one request is finding it out.
    Probe,
    /// The upstream refused the account for a secondary limit.
    Cooldown,
    /// Too many requests at once.
    Concurrency,
    /// Points per endpoint and minute.
    Points,
    /// GraphQL points per minute.
    GraphqlPoints,
    /// Content-generating requests per minute.
    ContentPerMinute,
    /// Content-generating requests per hour.
    ContentPerHour,
    /// Upstream CPU time per minute.
    Cpu,
    /// Upstream CPU time per minute that GraphQL may take.
    GraphqlCpu,
    /// OAuth access token requests per hour.
    OauthTokens,
    /// The distance between writes.
    Spacing,
    /// The even spread of a budget over its window.
    Pace,
    /// The part of a budget that batch clients leave to others.
    BatchFloor,
    /// Too many requests wait already.
    QueueFull,
    /// No account may carry the request.
    NoAccount,
}

impl LimitKind {
    /// Its name in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Probe => "probe",
            Self::Cooldown => "cooldown",
            Self::Concurrency => "concurrency",
            Self::Points => "points",
            Self::GraphqlPoints => "graphql_points",
            Self::ContentPerMinute => "content_per_minute",
            Self::ContentPerHour => "content_per_hour",
            Self::Cpu => "cpu",
            Self::GraphqlCpu => "graphql_cpu",
            Self::OauthTokens => "oauth_tokens",
            Self::Spacing => "spacing",
            Self::Pace => "pace",
            Self::BatchFloor => "batch_floor",
            Self::QueueFull => "queue_full",
            Self::NoAccount => "no_account",
        }
    }
}

/// How a granted request ended, as far as limits care.
#[derive(Clone, Copy, Debug)]
pub enum Settlement<'a> {
    /// Provably not executed: no byte was sent, or the upstream said that it did not look at it.
    NeverSent,
    /// Sent, and no answer came.
    Unknown,
    /// Answered. Settle when the whole answer has come: that is when the upstream counts the
    /// request as no longer running.
    Answered {
        /// The answer's status.
        status: StatusCode,
        /// Its rate headers, if it had any.
        rate: Option<&'a RateHeaders>,
        /// What it says when it refuses for a limit.
        refusal: Option<&'a LimitRefusal>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_documented_limits() {
        let limits = SecondaryLimits::default();
        assert_eq!(
            (limits.concurrency, limits.rest_points_per_minute, limits.graphql_points_per_minute),
            (100, 900, 2_000)
        );
        assert_eq!(
            (limits.cpu_seconds_per_minute, limits.graphql_cpu_seconds_per_minute),
            (90, 60)
        );
        assert_eq!(
            (limits.content_per_minute, limits.content_per_hour, limits.oauth_tokens_per_hour),
            (80, 500, 2_000)
        );
    }
}
