//! The result of a lookup, and of a read.

use crate::decision::cache::key::CacheKey;
use crate::gateway::cache::shared_body_reader::Reader;
use crate::gateway::cache::store::Entry;
use crate::telemetry::CacheOutcome;
use std::sync::Arc;

/// A cache lookup without a servable entry.
pub struct CacheLookup {
    /// The key of the address.
    pub(super) address: CacheKey,
    /// The key of the variant.
    pub(super) key: CacheKey,
    pub(super) entry: Option<Arc<Entry>>,
}

pub enum ReadAnswer {
    /// An entry, stored or not.
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
