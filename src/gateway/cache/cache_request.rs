//! A request for a stored or fetched answer.

use crate::decision::cache::key::Scope;
use crate::decision::cache::request_directives::RequestDirectives;
use crate::gateway::dispatch::job::Job;
use http::HeaderMap;
use std::sync::Arc;

/// What a read is asked for.
pub struct CacheRequest {
    /// The request as it would go upstream.
    pub job: Job,
    /// Whose view the answer shows.
    pub scope: Scope,
    /// The client's own headers: conditions, `Accept`, what `Vary` names.
    pub asked: Arc<HeaderMap>,
    /// What they say of stored answers.
    pub directives: RequestDirectives,
}
