//! A request for a stored or fetched answer, and the results of its lookup and its read.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};

use crate::decision::cache::key::{CacheKey, Scope};
use crate::decision::cache::part::ByteRange;
use crate::decision::cache::request_directives::RequestDirectives;
use crate::gateway::cache::shared_body::Reader;
use crate::gateway::cache::store::Entry;
use crate::gateway::dispatch::job::Job;
use crate::telemetry::CacheOutcome;

pub struct CacheRequest {
    pub job: Job,
    pub scope: Scope,
    pub directives: RequestDirectives,
    /// Set for a GraphQL query.
    pub query: Option<Query>,
    /// The byte range that a plain HTTP cache may ask for in place of a body that is not stored.
    pub range: Option<(HeaderValue, ByteRange)>,
}

/// A GraphQL query in place of an address.
pub struct Query {
    /// The name of its operation.
    pub(super) name: Option<Arc<str>>,
    /// The path that its answers are purged by.
    pub(super) path: String,
    /// Of its body's meaning, and of the headers that may choose the answer.
    pub(super) digest: [u8; 32],
    /// Lifetime of its answers; `None`: no rule stores them.
    pub ttl: Option<Duration>,
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
