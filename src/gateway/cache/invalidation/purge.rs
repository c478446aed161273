//! Purges stored answers by path prefix, for operators (SPECIFICATION, "Admin listener"): in all
//! scopes and representations.
//!
//! A fetch in progress during the purge may still be stored; it is revalidated before its first
//! use. Owner names are case-insensitive upstream, so letter case is ignored. So is
//! percent-encoding: the upstream may treat `:` and `%3A` as equal (RFC 3986 §3.3).

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use percent_encoding::percent_decode_str;

use crate::clock::Timestamp;

/// The purges that are remembered individually. Overflow counts as a purge of everything. Chosen
/// here: an operator types them, and a fetch ends within minutes.
const PURGES_MAX: usize = 64;

/// A path prefix to purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix(Box<str>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    pub entries: u64,
    pub bytes: u64,
}

impl Prefix {
    /// The prefix of every path.
    pub fn everything() -> Self {
        Self("/".into())
    }

    /// Parses a prefix, which begins with a slash; `/` alone matches everything.
    pub fn new(text: &str) -> Option<Self> {
        text.starts_with('/').then(|| Self(text.into()))
    }

    /// Returns its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if the path, with or without a query, begins with the prefix.
    pub fn begins(&self, path_and_query: &str) -> bool {
        let begins = |text: &[u8], prefix: &[u8]| {
            text.get(..prefix.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(prefix))
        };
        // Raw and decoded, because a prefix may end inside an escape.
        begins(path_and_query.as_bytes(), self.0.as_bytes())
            || begins(&decoded(path_and_query), &decoded(&self.0))
    }
}

#[derive(Default)]
pub struct Purges {
    recent: Mutex<Vec<(Prefix, Timestamp)>>,
    /// The time of the last purge in milliseconds plus one: usually the only check.
    last: AtomicU64,
}

impl Purges {
    /// Records a purge at `now`; earlier requests below `prefix` are invalidated.
    pub fn note(&self, prefix: Prefix, now: Timestamp) {
        let mut recent = self.recent.lock();
        recent.retain(|(other, _)| *other != prefix);
        if recent.len() >= PURGES_MAX {
            recent.clear();
            recent.push((Prefix::everything(), now));
        } else {
            recent.push((prefix, now));
        }
        self.last.fetch_max(now.as_millis().saturating_add(1), Ordering::AcqRel);
    }

    /// True if a later purge covers an answer requested at `requested_at`. `path` has no query.
    pub fn covers(&self, path: &str, requested_at: Timestamp) -> bool {
        if self.last.load(Ordering::Acquire) <= requested_at.as_millis() {
            return false;
        }
        let is_same = |purged: &str| decoded(purged).eq_ignore_ascii_case(&decoded(path));
        let of_path = |prefix: &Prefix| {
            prefix.begins(path) || prefix.0.split_once('?').is_some_and(|(path, _)| is_same(path))
        };
        self.recent.lock().iter().any(|(prefix, at)| *at >= requested_at && of_path(prefix))
    }
}

fn decoded(text: &str) -> Cow<'_, [u8]> {
    percent_decode_str(text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn prefix(text: &str) -> Prefix {
        Prefix::new(text).unwrap()
    }

    #[test]
    fn a_prefix_begins_with_a_slash() {
        assert_eq!(Prefix::new(""), None);
        assert_eq!(Prefix::new("repos/acme"), None);
        assert!(prefix("/").begins("/repos/acme/widgets?page=2"));
    }

    #[test]
    fn a_prefix_ignores_letter_case_and_ends_where_it_is_written() {
        assert!(prefix("/repos/acme/").begins("/repos/Acme/widgets"));
        assert!(
            !prefix("/repos/acme/").begins("/repos/acme-labs/widgets")
                && !prefix("/repos/acme/").begins("/repos/acme")
        );
    }

    #[test]
    fn the_spelling_of_a_path_makes_no_difference() {
        let [plain, encoded] =
            ["/enterprises/e/teams/ent:core/", "/enterprises/e/teams/ent%3acore/"];
        for (purged, stored) in [(plain, encoded), (encoded, plain), (encoded, encoded)] {
            assert!(
                prefix(purged).begins(&format!("{stored}organizations?page=2")),
                "{purged} {stored}"
            );
        }
        assert!(
            prefix("/enterprises/e/teams/ent%3").begins("/enterprises/e/teams/ent%3Acore"),
            "an encoded letter may be cut off"
        );
        let purges = Purges::default();
        purges.note(prefix("/enterprises/e/teams/ent%3Acore?page=2"), NOW);
        assert!(purges.covers("/enterprises/e/teams/Ent:core", NOW));
    }

    #[test]
    fn a_purge_covers_answers_requested_before_it() {
        let purges = Purges::default();
        let later = Timestamp::from_secs(1_001);
        assert!(!purges.covers("/repos/acme/widgets", NOW));
        purges.note(prefix("/repos/acme/"), NOW);
        assert!(
            purges.covers("/repos/acme/widgets", NOW)
                && !purges.covers("/repos/acme/widgets", later)
        );
        assert!(!purges.covers("/repos/other/widgets", NOW));
        purges.note(prefix("/search/code?q=a"), NOW);
        assert!(purges.covers("/search/code", NOW));
    }

    #[test]
    fn a_full_list_of_purges_counts_as_a_purge_of_everything() {
        let purges = Purges::default();
        for number in 0..=PURGES_MAX {
            purges.note(prefix(&format!("/repos/a/{number}/")), NOW);
        }
        assert!(
            purges.covers("/repos/other/widgets", NOW) && purges.recent.lock().len() <= PURGES_MAX
        );
    }
}
