//! Stored answers, as far as they decide what is sent: validators and lifetimes, no bodies.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::clock::Timestamp;
use crate::decision::cache::freshness::{Mode, Stored};
use crate::decision::cache::key::CacheKey;
use crate::decision::cache::settling::Trust;

/// Most answers kept; the oldest go first. Our choice: more than the everyday workloads repeat, and
/// little memory.
const ENTRIES_MAX: usize = 8_192;

/// A stored answer, and the time of the request that fetched or confirmed it.
#[derive(Debug)]
pub(super) struct Answer {
    pub stored: Stored,
    pub requested_at: Timestamp,
}

impl Answer {
    /// Returns true when the gateway serves it without asking. Changes are made around the gateway,
    /// so it knows of none.
    pub fn is_fresh(&self, now: Timestamp, mode: Mode, revalidate_at_most: Duration) -> bool {
        let validated = self.stored.validated(self.stored.validated_at(), self.requested_at);
        let granted = validated.confirmed_for(revalidate_at_most, mode);
        validated.is_fresh_after(now, mode, || Trust::Settled, granted)
    }
}

#[derive(Debug, Default)]
pub(super) struct Store {
    entries: HashMap<CacheKey, Answer>,
    order: VecDeque<CacheKey>,
}

impl Store {
    pub fn get(&self, key: &CacheKey) -> Option<&Answer> {
        self.entries.get(key)
    }

    pub fn get_mut(&mut self, key: &CacheKey) -> Option<&mut Answer> {
        self.entries.get_mut(key)
    }

    pub fn put(&mut self, key: &CacheKey, answer: Answer) {
        if self.entries.insert(key.clone(), answer).is_none() {
            self.order.push_back(key.clone());
            if self.order.len() > ENTRIES_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.entries.remove(&oldest);
            }
        }
    }
}
