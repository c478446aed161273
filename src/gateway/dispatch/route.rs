//! A route: the endpoint of a request, the accounts that may carry it, and its cost.

use std::sync::Arc;

use crate::api::Endpoint;
use crate::decision::cache::key::Scope;
use crate::decision::{AccountId, WriteSpacing};
use crate::gateway::dispatch::graphql_prices::Operation;

/// The endpoint that mints installation tokens (SPECIFICATION, "Apps").
pub const MINT: &str = "/app/installations/{installation_id}/access_tokens";

#[derive(Clone, Debug)]
pub struct Route {
    /// The endpoint of the table, or a class of unknown routes.
    pub endpoint: &'static Endpoint,
    /// The cache scope of a read.
    pub scope: Scope,
    /// True if the answer may depend on the account although the request does not.
    pub about_caller: bool,
    /// The accounts that may carry it; never empty.
    pub candidates: Arc<[AccountId]>,
    /// The accounts behind the client's budget headers.
    pub view: Arc<[AccountId]>,
    /// The lane that orders writes; empty for a read.
    pub lane: String,
    /// Units of the primary budget to reserve.
    pub cost: u32,
    /// Points of the secondary limit.
    pub points: u32,
    /// True if it counts against the content limits.
    pub content: bool,
    /// The kind of write and its distance from others.
    pub spacing: WriteSpacing,
    /// Set for a GraphQL operation whose price can be learned.
    pub operation: Option<Operation>,
}
