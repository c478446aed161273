//! Where answers were seen to change, and by whose fetch: for full last pages, of which a 304 may
//! hide the next (`decision/freshness/pages.rs`).
//!
//! A mark is a hash of a path without its query, and of the two fetches of different things that
//! last saw a change there: the page that is asked about is not its own neighbour. Paths that share
//! a hash share their marks, and what has to be forgotten counts as seen: both only ask more often
//! without conditions.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;

use crate::clock::Timestamp;
use crate::decision::cache::key::CacheKey;

/// Marks of one generation; two are kept. Ours: 2 MiB at most.
const GENERATION_MAX: usize = 16 * 1024;

/// All marks.
#[derive(Default)]
pub struct PaginationChanges {
    marks: Mutex<UrlOffsets>,
    hasher: RandomState,
}

/// When the young generation is full, the old one is forgotten.
#[derive(Default)]
struct UrlOffsets {
    young: HashMap<u64, Mark>,
    old: HashMap<u64, Mark>,
    /// The latest change that was forgotten.
    floor: Timestamp,
}

/// The latest change, and the latest that something else saw.
#[derive(Clone, Copy, Default)]
struct Mark {
    latest: Seen,
    other: Seen,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    by: u64,
    at: Timestamp,
}

impl Mark {
    fn note(&mut self, by: u64, at: Timestamp) {
        if self.latest.by != by {
            self.other = self.latest;
        }
        self.latest = Seen { by, at: self.latest.at.max(at) };
    }

    /// The latest that was not seen by the fetch of this.
    fn beside(&self, by: u64) -> Timestamp {
        if self.latest.by == by { self.other.at } else { self.latest.at }
    }
}

impl PaginationChanges {
    /// A fetch for `key` showed at `now` that something at this path, which has no query, is no
    /// longer what was stored.
    pub fn changed(&self, path: &str, key: &CacheKey, now: Timestamp) {
        let (path, by) = (self.hash_path(path), self.hasher.hash_one(key));
        let mut marks = self.marks.lock();
        if marks.young.len() >= GENERATION_MAX && !marks.young.contains_key(&path) {
            let young = std::mem::take(&mut marks.young);
            let forgotten = std::mem::replace(&mut marks.old, young);
            marks.floor =
                forgotten.values().map(|mark| mark.latest.at).fold(marks.floor, Timestamp::max);
        }
        let before = marks.old.get(&path).copied().unwrap_or_default();
        marks.young.entry(path).or_insert(before).note(by, now);
    }

    /// When something else at this path, or what is above it, was last seen to change.
    pub fn change_beside(&self, path: &str, key: &CacheKey) -> Option<Timestamp> {
        let above = path.trim_end_matches('/').rsplit_once('/').map_or("", |(above, _)| above);
        let (here, above, by) =
            (self.hash_path(path), self.hash_path(above), self.hasher.hash_one(key));
        let marks = self.marks.lock();
        let mark = |path| {
            marks.young.get(&path).or_else(|| marks.old.get(&path)).copied().unwrap_or_default()
        };
        let latest = mark(here).beside(by).max(mark(above).latest.at).max(marks.floor);
        (latest > Timestamp::EPOCH).then_some(latest)
    }

    /// Without regard to case, which the upstream's names have not either, and to what is
    /// percent-encoded, as in `doubt.rs`.
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
    fn a_page_is_no_neighbour_of_itself_and_the_others_and_what_is_above_are() {
        let (neighbours, [one, two, three]) = (
            PaginationChanges::default(),
            [1, 2, 3].map(|page| key(&format!("{LIST}?page={page}"))),
        );
        let later = AT + Duration::from_secs(1);
        neighbours.changed(LIST, &one, AT);
        assert_eq!([&one, &two].map(|key| neighbours.change_beside(LIST, key)), [None, Some(AT)]);
        neighbours.changed("/repos/ACME/widgets/issues/5/comments", &two, later);
        neighbours.changed(LIST, &two, later);
        assert_eq!(
            [&one, &two, &three].map(|key| neighbours.change_beside(LIST, key)),
            [Some(later), Some(AT), Some(later)]
        );
        neighbours.changed(
            "/repos/acme/widgets/issues/5",
            &key("/repos/acme/widgets/issues/5"),
            later + Duration::from_secs(1),
        );
        assert_eq!(neighbours.change_beside(LIST, &two), Some(later + Duration::from_secs(1)));
        for path in
            ["/repos/acme/widgets/issues", "/repos/acme/widgets/issues/6/comments", "/repos/acme"]
        {
            assert_eq!(neighbours.change_beside(path, &one), None, "{path}");
        }
    }

    #[test]
    fn marks_are_bounded_and_what_is_forgotten_counts_as_seen() {
        let neighbours = PaginationChanges::default();
        for number in 0..GENERATION_MAX * 3 {
            neighbours.changed(
                &format!("/gists/{number}"),
                &key("/x"),
                AT + Duration::from_secs(number as u64),
            );
        }
        let marks = neighbours.marks.lock();
        assert!(marks.young.len() <= GENERATION_MAX && marks.old.len() <= GENERATION_MAX);
        drop(marks);
        for number in (0..GENERATION_MAX * 3).step_by(97) {
            let seen = neighbours.change_beside(&format!("/gists/{number}"), &key("/y"));
            assert!(seen >= Some(AT + Duration::from_secs(number as u64)), "{number}: {seen:?}");
        }
    }
}
