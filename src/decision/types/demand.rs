//! The words in which the shell and the decision core speak: what is asked for, what is granted,
//! what is refused and until when, and how a granted request ended.
//!
//! Data only. What is decided with it is in [`crate::decision::quota`] and [`crate::decision::scheduler`].

use std::sync::Arc;

use http::StatusCode;

use crate::api::{EndpointId, RateHeaders, ResourceName, UpstreamLimit};
use crate::clock::Timestamp;

/// An account: its place among the accounts of the config and the dynamic_accounts, see [`AccountLayout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AccountId(pub u32);

/// One value of the `Authorization` header. A renewed installation token is another one, because
/// its `ETag`s are others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenKey(pub u64);

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
    /// goes before ([`crate::decision::QuotaLedger::resource_for`]); the caller need not correct it.
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
pub struct LimitDenied {
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
        refusal: Option<&'a UpstreamLimit>,
    },
}
