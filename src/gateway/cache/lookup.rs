//! The result of a lookup, and of a read.

use crate::decision::cache::key::CacheKey;
use crate::gateway::cache::shared_body_reader::Reader;
use crate::gateway::cache::store::Entry;
use crate::telemetry::CacheOutcome;
use std::sync::Arc;

/// What a look into the store has found that may not be served without asking.
pub struct CacheLookup {
    /// The address's.
    pub(super) address: CacheKey,
    /// That of the answer.
    pub(super) key: CacheKey,
    pub(super) entry: Option<Arc<Entry>>,
}

/// How a read was answered.
pub enum ReadAnswer {
    /// From an entry, stored or not.
    Entry(Arc<Entry>, CacheOutcome),
    /// By a body too large to hold.
    Streamed(Box<Reader>, CacheOutcome),
}

impl ReadAnswer {
    /// What it means for the cache.
    pub fn outcome(&self) -> CacheOutcome {
        match self {
            Self::Entry(_, cache) | Self::Streamed(_, cache) => *cache,
        }
    }
}
