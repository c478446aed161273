//! A request for a stored or fetched answer.

use crate::decision::cache::key::Scope;
use crate::decision::cache::request_directives::RequestDirectives;
use crate::gateway::dispatch::job::Job;
use http::HeaderMap;
use std::sync::Arc;

/// A cache request.
pub struct CacheRequest {
    pub job: Job,
    pub scope: Scope,
    /// The client's headers: conditions, `Accept`, and the headers that `Vary` names.
    pub asked: Arc<HeaderMap>,
    pub directives: RequestDirectives,
}
