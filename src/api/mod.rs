//! The upstream's vocabulary: endpoints, resources, points, token kinds, dialects, rate headers,
//! limits, denials and invalidations.
//!
//! Facts only, no policy: permissions and admission are in `decision/`. The facts come from
//! SPECIFICATION, "Upstream API" and "Upstream behaviour". Facts that those omit stay unknown here.

mod endpoint;
mod graphql;
mod invalidation;
mod response;

pub use endpoint::dialect::Dialect;
pub use endpoint::kinds::{AccountKind, TokenKind, TokenKinds};
pub use endpoint::lane::lane_of;
pub use endpoint::resource::{ResourceName, default_limit, window};
pub use endpoint::table::{Classified, Params, Table};
pub use endpoint::{
    Access, Endpoint, EndpointId, GRAPHQL_MUTATION_POINTS, GRAPHQL_QUERY_POINTS, PER_PAGE_DEFAULT,
    PER_PAGE_MAX, Permission, PermissionOwner, Source, rest_points,
};
pub use graphql::{
    GraphqlEffect, GraphqlRequest, OperationKey, any_node, each_text, has_errors, meaning,
    node_path, paths_of_page,
};
pub use invalidation::aliases::{WildForm, WildForms, wild_form, wild_forms};
pub use invalidation::events::{
    Invalidation, Subject, events_of, is_known_event, stale_after_event,
};
pub(crate) use invalidation::path_pattern::segments;
pub use invalidation::write_effects::{stale_after_write, stale_by_milestone};
pub use response::denial::{AcceptedPermission, Denial, accepted_permission};
pub use response::headers;
pub use response::rate::{RateHeaders, rate_remaining, rate_reset};
pub use response::stated::{StatedBudget, stated_budgets};
pub use response::upstream_limit::{UpstreamLimit, UpstreamLimitKind, retry_after, upstream_limit};
