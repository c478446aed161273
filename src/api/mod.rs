//! The upstream's vocabulary: endpoints, resources, points, token kinds, dialects, rate headers and
//! what a limit refusal looks like.
//!
//! Facts only, no policy: nothing here decides who may call what, or when. The facts come from
//! Documents 1 to 3 of the specification and from UPSTREAM.md; what those leave open stays unknown
//! here instead of being guessed.

mod address;
mod denial;
mod dialect;
mod elsewhere;
mod endpoint;
mod events;
mod graphql;
pub mod headers;
mod kinds;
mod lane;
mod lines;
#[cfg(test)]
mod matrix_tests;
mod rate;
mod refusal;
mod resource;
mod stale;
mod table;
#[cfg(test)]
mod table_tests;
mod told;

pub use address::{WildForm, WildForms, wild_form, wild_forms};
pub use denial::{AcceptedPermission, Denial, accepted_permission};
pub use dialect::Dialect;
pub use endpoint::{Access, Endpoint, EndpointId, Permission, PermissionOwner, Source};
pub use endpoint::{
    GRAPHQL_MUTATION_POINTS, GRAPHQL_QUERY_POINTS, PER_PAGE_DEFAULT, PER_PAGE_MAX, rest_points,
};
pub use events::{Stale, Subject, events_of, is_known_event, stale_after_event};
pub use graphql::{GraphqlEffect, GraphqlRequest, OperationKey};
pub use kinds::{AccountKind, TokenKind, TokenKinds};
pub use lane::lane_of;
pub use rate::{RateHeaders, rate_remaining, rate_reset};
pub use refusal::{LimitKind, LimitRefusal, limit_refusal, retry_after};
pub use resource::{ResourceName, default_limit, window};
pub use stale::{Collections, stale_after_write, stale_by_milestone};
pub use table::{Classified, Params, Table};
