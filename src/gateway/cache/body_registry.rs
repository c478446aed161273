//! The registry of shared bodies: a later request finds the one that it may join. The body itself
//! decides if it can (`shared_body/mod.rs`).

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::decision::cache::key::CacheKey;
use crate::gateway::cache::shared_body::SharedBody;

/// The shared bodies that a later request can join at the beginning.
#[derive(Default)]
pub struct BodyRegistry {
    by_key: Mutex<HashMap<CacheKey, Weak<SharedBody>, foldhash::fast::RandomState>>,
}

impl BodyRegistry {
    pub fn insert(&self, key: CacheKey, body: &Arc<SharedBody>) {
        let mut by_key = self.by_key.lock();
        by_key.retain(|_, body| body.strong_count() > 0);
        by_key.insert(key, Arc::downgrade(body));
    }

    pub fn find(&self, key: &CacheKey) -> Option<Arc<SharedBody>> {
        let by_key = self.by_key.lock();
        // Usually empty, which saves the hash of the key.
        if by_key.is_empty() { None } else { by_key.get(key)?.upgrade() }
    }
}
