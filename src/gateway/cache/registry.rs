//! The registry of shared bodies that a later request can join at the beginning (`shared_body.rs`).

use crate::decision::cache::key::CacheKey;
use crate::gateway::cache::shared_body::SharedBody;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// The registry. An insert removes ended bodies.
#[derive(Default)]
pub struct BodyRegistry {
    by_key: Mutex<HashMap<CacheKey, Weak<SharedBody>, foldhash::fast::RandomState>>,
}

impl BodyRegistry {
    pub fn begun(&self, key: CacheKey, stream: &Arc<SharedBody>) {
        let mut by_key = self.by_key.lock();
        by_key.retain(|_, stream| stream.strong_count() > 0);
        by_key.insert(key, Arc::downgrade(stream));
    }

    pub fn find(&self, key: &CacheKey) -> Option<Arc<SharedBody>> {
        let by_key = self.by_key.lock();
        // Usually empty, which saves the hash of the key.
        if by_key.is_empty() { None } else { by_key.get(key)?.upgrade() }
    }
}
