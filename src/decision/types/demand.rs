//! The vocabulary between the gateway and the decision core: demands, grants, denied limits, and
//! settlements.
//!
//! Data only. [`crate::decision::quota`] and [`crate::decision::scheduler`] decide with it.

use std::sync::Arc;

use http::StatusCode;

use crate::api::{EndpointId, RateHeaders, ResourceName, UpstreamLimit};
use crate::clock::Timestamp;

/// Account: its index among the accounts of the config and the dynamic accounts, see
/// [`AccountLayout`](crate::decision::AccountLayout).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AccountId(pub u32);

/// One value of the `Authorization` header. A renewed installation token has another key, because
/// its `ETag`s differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenKey(pub u64);

/// Name of an admitted request until it is settled. The caller gives it: two requests for the same
/// lease admit once, and two settlements settle once (SPECIFICATION D8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(pub u64);

/// Place in the wait queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Client: its index in the config's list of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u32);

impl ClientId {
    /// Background requests, without a waiting client: lowest priority.
    pub const BACKGROUND: Self = Self(u32::MAX - 1);
}

/// Request for admission: the accounts that may send it, and its weight in each limit.
#[derive(Clone, Debug)]
pub struct Demand {
    /// Client; determines the share while waiting.
    pub client: ClientId,
    /// Bytes of memory that the request holds while it waits.
    pub held_bytes: u64,
    /// Accounts that may send the request. All demands of a pool should share one allocation, which
    /// makes comparisons cheap.
    pub candidates: Arc<[AccountId]>,
    /// Owner of a validator: preferred among equally good accounts (SPECIFICATION D3).
    pub prefer: Option<AccountId>,
    /// Expected primary resource. Observed resources of the endpoint override it
    /// ([`resource_for`](crate::decision::QuotaLedger::resource_for)).
    pub resource: ResourceName,
    /// Endpoint; has its own points window.
    pub endpoint: EndpointId,
    /// Units of the primary budget: 1 for REST, 0 for uncounted requests (`GET /rate_limit`).
    pub cost: u32,
    /// Part of the cost that a single measurement shows, which may be wrong. A request that goes
    /// alone does without it.
    pub unproven: u32,
    /// Points of the secondary limit.
    pub points: u32,
    /// True for GraphQL requests, which have their own points window.
    pub graphql: bool,
    /// True for requests that create visible content, which has its own limits.
    pub content: bool,
    /// True for requests for an OAuth access token, which have an hourly limit (SPECIFICATION,
    /// "Secondary rate limits").
    pub token_request: bool,
    /// Distance from the account's other writes.
    pub write: WriteSpacing,
}

#[cfg(test)]
impl Demand {
    /// Plain read by the first client on these accounts; tests change the fields that they are
    /// about.
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
            unproven: 0,
            points: 1,
            graphql: false,
            content: false,
            token_request: false,
            write: WriteSpacing::None,
        }
    }
}

/// Distance between a request and the account's other writes (SPECIFICATION, "Limits in practice":
/// a second between mutations of one account). Writes at a distance go one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteSpacing {
    /// Not a write: no distance.
    None,
    /// Write without notifications: [`Settings::spacing`](crate::decision::Settings::spacing) after
    /// any other write.
    Plain,
    /// Write with notifications: also [`notify_spacing`](crate::decision::Settings::notify_spacing)
    /// after the last such write.
    Notifies,
}

/// Permission to send one request; ends with a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Lease to settle.
    pub lease: LeaseId,
    /// Account that sends the request.
    pub account: AccountId,
    /// Rule in shadow mode that would have denied or held it.
    pub shadowed: Option<Shadowed>,
}

/// The effect of a rule that only counts ([`Shadow`](crate::decision::Shadow)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shadowed {
    /// Limit that it is about.
    pub limit: LimitKind,
    /// True if the request would have been denied; else it would have waited.
    pub is_denial: bool,
}

/// Denial by a limit: the limit, its account, and the earliest time of admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitDenied {
    /// The denying limit.
    pub limit: LimitKind,
    /// Account of the limit; of several accounts the one that opens first. `None` for limits
    /// without an account.
    pub account: Option<AccountId>,
    /// Resource that the request would have counted against.
    pub resource: ResourceName,
    /// Earliest time of admission.
    pub until: Until,
    /// True if it waited for the upstream's answers to other requests, and none came: no limit of
    /// the upstream is at fault.
    pub is_unanswered: bool,
}

/// End of a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Not before this time. [`Timestamp::FAR_FUTURE`] means never.
    Time(Timestamp),
    /// With the next answer that frees a place, at an unknown time.
    Event,
}

/// Limits that can deny a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::IntoStaticStr)]
#[cfg_attr(test, derive(strum::VariantArray))]
#[strum(serialize_all = "snake_case")]
pub enum LimitKind {
    /// The budget of a resource is spent or leased out.
    Primary,
    /// The state of a budget is unknown, and a probe is on its way.
    Probe,
    /// The upstream closed the account for a secondary limit.
    Cooldown,
    /// Too many requests at once.
    Concurrency,
    /// The client's requests under way hold its share of an account: the free slots, and the free
    /// CPU time, are for others.
    ClientShare,
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
    /// Distance between writes.
    Spacing,
    /// Even spread of a budget over its window.
    Pace,
    /// Part of a budget that batch clients leave to others.
    BatchFloor,
    /// The client's own budget is spent.
    ClientBudget,
    /// The wait queue is full.
    QueueFull,
    /// No account may send the request.
    NoAccount,
}

impl LimitKind {
    /// All limits.
    #[cfg(test)]
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Name in metrics and logs.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// End of a granted request, as the limits see it.
#[derive(Clone, Copy, Debug)]
pub enum Settlement<'a> {
    /// Provably not executed: no byte was sent, or the upstream reported that it ignored the
    /// request.
    NeverSent,
    /// Sent, and ended by the upstream without an answer.
    Unknown,
    /// Sent, and given up before the end of the answer. The upstream may go on with it, so it keeps
    /// its slot of the concurrency for a grace period.
    CutOff,
    /// Answered, and broken off because others waited for the slot that its slow reader held. The
    /// slot is free once the upstream can have noticed.
    Yielded,
    /// Answered. Settle at the end of the whole answer, because the upstream counts the request as
    /// running until then.
    Answered {
        /// Status of the answer.
        status: StatusCode,
        /// Rate headers of the answer, if any.
        rate: Option<&'a RateHeaders>,
        /// Limit that the answer reports, if any.
        refusal: Option<&'a UpstreamLimit>,
    },
}
