//! What was learned of tokens, for a while: bounded in number and in time.
//!
//! Two generations of entries: when the young one is full, it becomes the old one, and what was old
//! is forgotten. What is retry_ended at again to be changed becomes young, so that what is in use stays.
//! What the marks mean for a request is not known here.

use std::time::Duration;

use crate::api::{Access, EndpointId};
use crate::clock::Timestamp;

use super::{Holder, ResourceScope};

/// Seeded: its keys come from what clients ask for.
type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

/// How long a token that lacks a right is not query while another may be. Ours: an operator who
/// grants a permission sees it used within minutes; asking every ten minutes costs six requests an
/// hour.
const LACKING_FOR: Duration = Duration::from_mins(10);
/// How long a token that found nothing is not query while another may be. Ours: shorter, because
/// things are made (a repository, a release), and a replica that lags answers 404 for seconds
/// (UPSTREAM.md, Conditional requests).
const DENIED_FOR: Duration = Duration::from_mins(5);
/// How long a served token is thought to be good. Ours: a right that is taken away is noticed at
/// once by its first denial; this only bounds what is kept.
const GOOD_FOR: Duration = Duration::from_mins(30);
/// How long after a observation that was repeated its account is tried again when nobody else can carry
/// the request. Ours: while budgets are spent every request would try it; once is tried at once, so
/// that a mistaken memory refuses nothing.
const REPEATED_AFTER: Duration = Duration::from_mins(1);
/// Entries in a generation. Ours: with both generations about as many places as a crawler goes
/// through in ten minutes at full speed; some megabytes.
pub(super) const ENTRIES_MAX: usize = 16_384;
/// Tokens remembered in an entry; the oldest observation goes first. Ours: in larger pools the walk
/// through those that see nothing may begin anew.
pub(super) const TOKENS_MAX: usize = 32;

/// Of what something is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    /// One endpoint.
    Endpoint(EndpointId),
    /// Whatever wants this permission at this level; the name as a fingerprint.
    Permission(u64, Access),
    /// The place as a whole.
    ResourceScope,
}

/// Of what and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) subject: Subject,
    pub(super) place: ResourceScope,
}

/// What is remembered of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// It was served.
    Good,
    /// It lacks a right, by the upstream's word or because another was served.
    Lacking,
    /// It was denied, and it is not certain that the token is the reason.
    Denied,
}

/// A mark, since when, and from when on a bad one may be tried as a last resort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) mark: Mark,
    pub(super) at: Timestamp,
    pub(super) again: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    holder: Holder,
    mark: Mark,
    at: Timestamp,
    again: Timestamp,
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
        now.since(self.at) < self.mark.lasts()
    }
}

impl Records {
    /// Remembers `mark` in place of what was known.
    pub(super) fn put(&mut self, now: Timestamp, key: Key, holder: Holder, mark: Mark) {
        let lines = self.lines_mut(key);
        let was_bad = lines
            .iter()
            .any(|line| line.holder == holder && line.mark != Mark::Good && line.holds(now));
        lines.retain(|line| line.holder != holder && line.holds(now));
        if lines.len() >= TOKENS_MAX {
            let oldest =
                lines.iter().enumerate().min_by_key(|(_, line)| line.at).map(|(index, _)| index);
            oldest.map(|index| lines.swap_remove(index));
        }
        lines.push(Line {
            holder,
            mark,
            at: now,
            again: if was_bad { now + REPEATED_AFTER } else { now },
        });
    }

    /// Forgets what is remembered of a token.
    pub(super) fn forget_holder(&mut self, key: Key, holder: Holder) {
        self.lines_mut(key).retain(|line| line.holder != holder);
    }

    /// Forgets this of everybody.
    pub(super) fn forget(&mut self, key: Key, mark: Mark) {
        self.lines_mut(key).retain(|line| line.mark != mark);
    }

    /// What is remembered of a token.
    pub(super) fn of(&self, now: Timestamp, key: Key, holder: Holder) -> Option<Record> {
        let line = self.lines(key).iter().find(|line| line.holder == holder && line.holds(now))?;
        Some(Record { mark: line.mark, at: line.at, again: line.again })
    }

    /// Whether this is remembered of a token.
    pub(super) fn is(&self, now: Timestamp, key: Key, holder: Holder, mark: Mark) -> bool {
        self.of(now, key, holder).is_some_and(|remembered| remembered.mark == mark)
    }

    /// Whether anything was ever remembered there and is not forgotten yet.
    pub(super) fn knows(&self, key: Key) -> bool {
        !self.lines(key).is_empty()
    }

    /// Whether something bad is remembered of somebody.
    pub(super) fn has_bad(&self, now: Timestamp, key: Key) -> bool {
        self.lines(key).iter().any(|line| line.mark != Mark::Good && line.holds(now))
    }

    /// Everybody of whom something is or was remembered.
    pub(super) fn holders(&self, key: Key) -> impl Iterator<Item = Holder> {
        self.lines(key).iter().map(|line| line.holder)
    }

    /// How many entries there are.
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
