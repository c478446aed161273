//! A request for a stored or fetched answer, and the results of its lookup and its read.

use std::sync::Arc;

use http::HeaderMap;

use crate::decision::cache::key::{CacheKey, Scope};
use crate::decision::cache::request_directives::RequestDirectives;
use crate::gateway::cache::shared_body::Reader;
use crate::gateway::cache::store::Entry;
use crate::gateway::dispatch::job::Job;
use crate::telemetry::CacheOutcome;

pub struct CacheRequest {
    pub job: Job,
    pub scope: Scope,
    pub directives: RequestDirectives,
}

impl CacheRequest {
    /// The headers that key and `Vary` are evaluated on: those that the upstream sees.
    pub fn headers(&self) -> &Arc<HeaderMap> {
        &self.job.request.headers
    }
}

/// A cache lookup without a servable entry.
pub struct CacheLookup {
    /// The key of the address.
    pub(super) address: CacheKey,
    /// The key of the variant.
    pub(super) key: CacheKey,
    pub(super) entry: Option<Arc<Entry>>,
}

pub enum ReadAnswer {
    Entry(Arc<Entry>, CacheOutcome),
    Streamed(Box<Reader>, CacheOutcome),
}

impl ReadAnswer {
    pub fn outcome(&self) -> CacheOutcome {
        match self {
            Self::Entry(_, cache) | Self::Streamed(_, cache) => *cache,
        }
    }
}
