//! A route: what a request is to the upstream, which accounts may carry it, what it costs.

use crate::api::Endpoint;
use crate::decision::cache::key::Scope;
use crate::decision::{AccountId, WriteSpacing};
use std::sync::Arc;

/// The endpoint that mints installation tokens (UPSTREAM.md, Apps).
pub const MINT: &str = "/app/installations/{installation_id}/access_tokens";

/// Where a request goes and for whom.
#[derive(Clone, Debug)]
pub struct Route {
    /// The endpoint of the table, or a class of unknown routes.
    pub endpoint: &'static Endpoint,
    /// Whose view a read shows.
    pub scope: Scope,
    /// Who may carry it; never empty.
    pub candidates: Arc<[AccountId]>,
    /// Whose budget the client is told about.
    pub view: Arc<[AccountId]>,
    /// What gives writes their order; empty for a read.
    pub lane: String,
    /// Units of the primary budget to reserve.
    pub cost: u32,
    /// Points of the secondary limit.
    pub points: u32,
    /// Whether it counts against the content limits.
    pub content: bool,
    /// Whether it changes something, and how far from others.
    pub spacing: WriteSpacing,
}
