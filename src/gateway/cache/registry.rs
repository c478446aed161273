//! The bodies too large to hold that are being read right now, so that who asks for the same a
//! moment later may join at the beginning (`large.rs`).

use crate::decision::cache::key::CacheKey;
use crate::gateway::cache::shared_body::SharedBody;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// Those that others may join. The ones that have ended are forgotten when another begins.
#[derive(Default)]
pub struct BodyRegistry {
    by_key: Mutex<HashMap<CacheKey, Weak<SharedBody>, foldhash::fast::RandomState>>,
}

impl BodyRegistry {
    /// One has begun.
    pub fn begun(&self, key: CacheKey, stream: &Arc<SharedBody>) {
        let mut by_key = self.by_key.lock();
        by_key.retain(|_, stream| stream.strong_count() > 0);
        by_key.insert(key, Arc::downgrade(stream));
    }

    /// The one under this key.
    pub fn find(&self, key: &CacheKey) -> Option<Arc<SharedBody>> {
        let by_key = self.by_key.lock();
        // Mostly there is none, which needs no hash of the key.
        if by_key.is_empty() { None } else { by_key.get(key)?.upgrade() }
    }
}
