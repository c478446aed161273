//! The things that a stored answer names: by their changes it ends.

use parking_lot::Mutex;

use crate::clock::Timestamp;
use crate::gateway::cache::invalidation::log::{InvalidationLog, PathKeys};

/// Named things, with the last known result of the search for their changes: hits are more frequent
/// than changes.
#[derive(Debug)]
pub struct Named {
    /// The time of the answer's request, and the place of its body.
    requested_at: Timestamp,
    place: usize,
    exact: Box<[u64]>,
    above: Box<[u64]>,
    found: Mutex<Option<Found>>,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    /// The number of changes that were searched.
    changes: u64,
    last: Option<Timestamp>,
}

impl Named {
    /// Notes the things with these keys, found in the body of an answer.
    pub fn new(requested_at: Timestamp, body: &[u8], keys: PathKeys) -> Self {
        let place = body.as_ptr().addr();
        let [exact, above] = [keys.exact, keys.above].map(|keys| keys.into_iter().collect());
        Self { requested_at, place, exact, above, found: Mutex::default() }
    }

    /// True for the answer that these things were found in, false for another variant.
    pub fn is_of(&self, requested_at: Timestamp, body: &[u8]) -> bool {
        (self.requested_at, self.place) == (requested_at, body.as_ptr().addr())
    }

    /// Returns the latest change of one of them.
    pub fn last_change(&self, log: &InvalidationLog) -> Option<Timestamp> {
        // Read first: a change meanwhile causes another search.
        let changes = log.changes();
        let found = *self.found.lock();
        if let Some(Found { last, .. }) = found.filter(|found| found.changes == changes) {
            return last;
        }
        // Without the lock: other hits do not wait for a long search.
        let last = log.last_change_of(&self.exact, &self.above, self.requested_at);
        *self.found.lock() = Some(Found { changes, last });
        last
    }

    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.exact) + size_of_val(&*self.above)
    }
}
