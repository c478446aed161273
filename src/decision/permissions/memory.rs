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

/// A mark, its time, and the time from which a bad token may be tried as a last resort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) mark: Mark,
    pub(super) at: Timestamp,
    pub(super) again: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct TokenRecord {
    holder: Holder,
    record: Record,
}

#[derive(Debug, Default)]
pub(super) struct Records {
    young: HashMap<Key, Vec<TokenRecord>>,
    old: HashMap<Key, Vec<TokenRecord>>,
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

impl TokenRecord {
    fn holds(&self, now: Timestamp) -> bool {
        now.since(self.record.at) < self.record.mark.lasts()
    }

    fn is_bad(&self, now: Timestamp) -> bool {
        self.record.mark != Mark::Good && self.holds(now)
    }
}

impl Records {
    pub(super) fn put(&mut self, now: Timestamp, key: Key, holder: Holder, mark: Mark) {
        let records = self.records_mut(key);
        let was_bad = records.iter().any(|one| one.holder == holder && one.is_bad(now));
        records.retain(|one| one.holder != holder && one.holds(now));
        if records.len() >= TOKENS_MAX {
            let oldest = records
                .iter()
                .enumerate()
                .min_by_key(|(_, one)| one.record.at)
                .map(|(index, _)| index);
            oldest.map(|index| records.swap_remove(index));
        }
        let again = if was_bad { now + REPEATED_AFTER } else { now };
        records.push(TokenRecord { holder, record: Record { mark, at: now, again } });
    }

    pub(super) fn forget_holder(&mut self, key: Key, holder: Holder) {
        self.records_mut(key).retain(|one| one.holder != holder);
    }

    pub(super) fn forget(&mut self, key: Key, mark: Mark) {
        self.records_mut(key).retain(|one| one.record.mark != mark);
    }

    pub(super) fn of(&self, now: Timestamp, key: Key, holder: Holder) -> Option<Record> {
        let mut records = self.records(key).iter();
        records.find(|one| one.holder == holder && one.holds(now)).map(|one| one.record)
    }

    pub(super) fn is(&self, now: Timestamp, key: Key, holder: Holder, mark: Mark) -> bool {
        self.of(now, key, holder).is_some_and(|remembered| remembered.mark == mark)
    }

    /// Returns true with any record, expired ones included.
    pub(super) fn knows(&self, key: Key) -> bool {
        !self.records(key).is_empty()
    }

    pub(super) fn has_bad(&self, now: Timestamp, key: Key) -> bool {
        self.records(key).iter().any(|one| one.is_bad(now))
    }

    pub(super) fn holders(&self, key: Key) -> impl Iterator<Item = Holder> {
        self.records(key).iter().map(|one| one.holder)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    fn records(&self, key: Key) -> &[TokenRecord] {
        self.young.get(&key).or_else(|| self.old.get(&key)).map_or(&[], Vec::as_slice)
    }

    fn records_mut(&mut self, key: Key) -> &mut Vec<TokenRecord> {
        let kept = self.old.remove(&key);
        if self.young.len() >= ENTRIES_MAX && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        let records = self.young.entry(key).or_default();
        records.extend(kept.into_iter().flatten());
        records
    }
}
