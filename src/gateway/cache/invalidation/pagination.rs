//! Pagination: records seen changes of lists, because a 304 of a full last page may hide a next
//! page (`decision/cache/pagination.rs`).
//!
//! An entry has a path hash without the query, and the last two fetches of different keys that saw
//! a change. A page is thus not its own evidence. Hash collisions and dropped entries only cause
//! more unconditional requests.

use std::borrow::Cow;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;

use crate::clock::Timestamp;
use crate::decision::cache::key::CacheKey;
use crate::gateway::cache::invalidation::generations::Generations;

/// Entries of one generation; two are kept. Chosen here: 2 MiB at most.
const GENERATION_MAX: usize = 16 * 1024;

#[derive(Default)]
pub struct PaginationChanges {
    /// By path hash, with the time of the latest dropped change.
    by_path: Mutex<(Generations<PathChanges>, Timestamp)>,
    hasher: RandomState,
}

/// The latest change, and the latest seen by another key.
#[derive(Clone, Copy, Default)]
struct PathChanges {
    latest: Seen,
    other: Seen,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    by: u64,
    at: Timestamp,
}

impl PathChanges {
    fn note(&mut self, by: u64, at: Timestamp) {
        if self.latest.by != by {
            self.other = self.latest;
        }
        self.latest = Seen { by, at: self.latest.at.max(at) };
    }

    /// The latest change that was not seen by this key.
    fn by_others(&self, by: u64) -> Timestamp {
        if self.latest.by == by { self.other.at } else { self.latest.at }
    }
}

impl PaginationChanges {
    /// Records that a fetch for `key` saw a change at this path, which has no query.
    pub fn changed(&self, path: &str, key: &CacheKey, now: Timestamp) {
        let (path, by) = (self.hash_path(path), self.hasher.hash_one(key));
        let (by_path, floor) = &mut *self.by_path.lock();
        let (changes, dropped) = by_path.entry(path, GENERATION_MAX);
        changes.note(by, now);
        *floor = dropped.map(|changes| changes.latest.at).fold(*floor, Timestamp::max);
    }

    /// The latest change that another key saw at this path, or any key at its parent.
    pub fn latest_change_by_others(&self, path: &str, key: &CacheKey) -> Option<Timestamp> {
        let above = path.trim_end_matches('/').rsplit_once('/').map_or("", |(above, _)| above);
        let [here, above] = [path, above].map(|path| self.hash_path(path));
        let by = self.hasher.hash_one(key);
        let (by_path, floor) = &*self.by_path.lock();
        let latest = by_path.get(here).by_others(by).max(by_path.get(above).latest.at).max(*floor);
        (latest > Timestamp::EPOCH).then_some(latest)
    }

    /// Ignores case and percent-encoding, as `invalidation/log.rs` does.
    fn hash_path(&self, path: &str) -> u64 {
        let decoded: Cow<'_, [u8]> = percent_decode_str(path.trim_end_matches('/')).into();
        self.hasher.hash_one(decoded.to_ascii_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::decision::cache::key::{Accept, Scope};

    const LIST: &str = "/repos/acme/widgets/issues/5/comments";
    const AT: Timestamp = Timestamp::from_secs(1_000);

    fn key(target: &str) -> CacheKey {
        CacheKey::new(Scope::Public, target, &Accept::Json, "")
    }

    #[test]
    fn a_page_counts_changes_of_other_pages_and_the_parent_only() {
        let (pagination, [one, two, three]) = (
            PaginationChanges::default(),
            [1, 2, 3].map(|page| key(&format!("{LIST}?page={page}"))),
        );
        let later = AT + Duration::from_secs(1);
        pagination.changed(LIST, &one, AT);
        assert_eq!(
            [&one, &two].map(|key| pagination.latest_change_by_others(LIST, key)),
            [None, Some(AT)]
        );
        pagination.changed("/repos/ACME/widgets/issues/5/comments", &two, later);
        pagination.changed(LIST, &two, later);
        assert_eq!(
            [&one, &two, &three].map(|key| pagination.latest_change_by_others(LIST, key)),
            [Some(later), Some(AT), Some(later)]
        );
        pagination.changed(
            "/repos/acme/widgets/issues/5",
            &key("/repos/acme/widgets/issues/5"),
            later + Duration::from_secs(1),
        );
        assert_eq!(
            pagination.latest_change_by_others(LIST, &two),
            Some(later + Duration::from_secs(1))
        );
        for path in
            ["/repos/acme/widgets/issues", "/repos/acme/widgets/issues/6/comments", "/repos/acme"]
        {
            assert_eq!(pagination.latest_change_by_others(path, &one), None, "{path}");
        }
    }

    #[test]
    fn entries_are_bounded_and_a_dropped_one_counts_as_a_change() {
        let pagination = PaginationChanges::default();
        for number in 0..GENERATION_MAX * 3 {
            pagination.changed(
                &format!("/gists/{number}"),
                &key("/x"),
                AT + Duration::from_secs(number as u64),
            );
        }
        let by_path = pagination.by_path.lock();
        assert!(by_path.0.young.len() <= GENERATION_MAX && by_path.0.old.len() <= GENERATION_MAX);
        drop(by_path);
        for number in (0..GENERATION_MAX * 3).step_by(97) {
            let seen = pagination.latest_change_by_others(&format!("/gists/{number}"), &key("/y"));
            assert!(seen >= Some(AT + Duration::from_secs(number as u64)), "{number}: {seen:?}");
        }
    }
}
