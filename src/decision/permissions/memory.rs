//! Records about tokens, bounded in number and time.
//!
//! There are two generations of entries. A full young generation becomes the old one, and the old
//! entries are dropped. An old entry that changes becomes young again, so entries in use stay. The
//! meaning of marks is in the parent module.

use std::time::Duration;

use crate::api::{Access, EndpointId};
use crate::clock::Timestamp;

use super::{Holder, ResourceScope};

/// Seeded, because clients choose the keys.
type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

/// Time for which a token without a permission is avoided. Ours: a newly granted permission is used
/// within minutes, and a retry every ten minutes costs six requests an hour.
const LACKING_FOR: Duration = Duration::from_mins(10);
/// Time for which a token that found nothing is avoided. Ours: shorter, because resources are
/// created, and a lagging replica answers 404 for seconds (SPECIFICATION, "Conditional requests in
/// practice").
const DENIED_FOR: Duration = Duration::from_mins(5);
/// Time for which a served token counts as good. Ours: the first denial reveals a revoked
/// permission at once; this only bounds the memory.
const GOOD_FOR: Duration = Duration::from_mins(30);
/// Time after a repeated denial until the account is tried again as a last resort. Ours: otherwise
/// every request would try it while budgets are spent. A single denial allows a retry at once, so
/// that a mistake blocks nothing.
const REPEATED_AFTER: Duration = Duration::from_mins(1);
/// Entries in a generation. Ours: both generations cover the places that a crawler visits in ten
/// minutes at full speed; some megabytes.
pub(super) const ENTRIES_MAX: usize = 16_384;
/// Tokens in an entry; the oldest record goes first. Ours: in larger pools the walk through tokens
/// without access may start again.
pub(super) const TOKENS_MAX: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    Endpoint(EndpointId),
    /// All endpoints with this permission at this level; the name as a fingerprint.
    Permission(u64, Access),
    ResourceScope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) subject: Subject,
    pub(super) place: ResourceScope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Good,
    /// Lacks a permission, by the upstream's message or because another token was served.
    Lacking,
    /// Denied, possibly for another reason than the token.
    Denied,
}

/// Mark, its time, and the time from which a bad token may be tried as a last resort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) mark: Mark,
    pub(super) at: Timestamp,
    pub(super) again: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    holder: Holder,
    record: Record,
}

#[derive(Debug, Default)]
pub(super) struct Records {
    young: HashMap<Key, Vec<Line>>,
    old: HashMap<Key, Vec<Line>>,
}

impl Mark {
    const fn lasts(self) -> Duration {
        match self {
            Self::Good => GOOD_FOR,
            Self::Lacking => LACKING_FOR,
            Self::Denied => DENIED_FOR,
        }
    }
}

impl Line {
    fn holds(&self, now: Timestamp) -> bool {
        now.since(self.record.at) < self.record.mark.lasts()
    }

    fn is_bad(&self, now: Timestamp) -> bool {
        self.record.mark != Mark::Good && self.holds(now)
    }
}

impl Records {
    pub(super) fn put(&mut self, now: Timestamp, key: Key, holder: Holder, mark: Mark) {
        let lines = self.lines_mut(key);
        let was_bad = lines.iter().any(|line| line.holder == holder && line.is_bad(now));
        lines.retain(|line| line.holder != holder && line.holds(now));
        if lines.len() >= TOKENS_MAX {
            let oldest = lines
                .iter()
                .enumerate()
                .min_by_key(|(_, line)| line.record.at)
                .map(|(index, _)| index);
            oldest.map(|index| lines.swap_remove(index));
        }
        let again = if was_bad { now + REPEATED_AFTER } else { now };
        lines.push(Line { holder, record: Record { mark, at: now, again } });
    }

    pub(super) fn forget_holder(&mut self, key: Key, holder: Holder) {
        self.lines_mut(key).retain(|line| line.holder != holder);
    }

    pub(super) fn forget(&mut self, key: Key, mark: Mark) {
        self.lines_mut(key).retain(|line| line.record.mark != mark);
    }

    pub(super) fn of(&self, now: Timestamp, key: Key, holder: Holder) -> Option<Record> {
        let mut lines = self.lines(key).iter();
        lines.find(|line| line.holder == holder && line.holds(now)).map(|line| line.record)
    }

    pub(super) fn is(&self, now: Timestamp, key: Key, holder: Holder, mark: Mark) -> bool {
        self.of(now, key, holder).is_some_and(|remembered| remembered.mark == mark)
    }

    /// Returns true with any record, expired ones included.
    pub(super) fn knows(&self, key: Key) -> bool {
        !self.lines(key).is_empty()
    }

    pub(super) fn has_bad(&self, now: Timestamp, key: Key) -> bool {
        self.lines(key).iter().any(|line| line.is_bad(now))
    }

    pub(super) fn holders(&self, key: Key) -> impl Iterator<Item = Holder> {
        self.lines(key).iter().map(|line| line.holder)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    fn lines(&self, key: Key) -> &[Line] {
        self.young.get(&key).or_else(|| self.old.get(&key)).map_or(&[], Vec::as_slice)
    }

    fn lines_mut(&mut self, key: Key) -> &mut Vec<Line> {
        let kept = self.old.remove(&key);
        if self.young.len() >= ENTRIES_MAX && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        let lines = self.young.entry(key).or_default();
        lines.extend(kept.into_iter().flatten());
        lines
    }
}
