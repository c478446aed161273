//! Stored answers, as far as they decide what is sent: validators and lifetimes, no bodies.

use std::collections::{HashMap, VecDeque};

use crate::decision::cache::freshness::Stored;
use crate::decision::cache::key::CacheKey;

/// Most answers kept; the oldest go first. Our choice: more than the everyday workloads repeat, and
/// little memory.
const ENTRIES_MAX: usize = 8_192;

#[derive(Debug, Default)]
pub(super) struct Store {
    entries: HashMap<CacheKey, Stored>,
    order: VecDeque<CacheKey>,
}

impl Store {
    pub fn get(&self, key: &CacheKey) -> Option<&Stored> {
        self.entries.get(key)
    }

    pub fn get_mut(&mut self, key: &CacheKey) -> Option<&mut Stored> {
        self.entries.get_mut(key)
    }

    pub fn put(&mut self, key: &CacheKey, stored: Stored) {
        if self.entries.insert(key.clone(), stored).is_none() {
            self.order.push_back(key.clone());
            if self.order.len() > ENTRIES_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.entries.remove(&oldest);
            }
        }
    }
}
