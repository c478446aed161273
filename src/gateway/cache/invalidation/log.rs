//! The invalidation log: recent changes by path, which invalidate stored answers untouched.
//!
//! An entry is a hash of a path and the time of a change. A lookup hashes its path segment by
//! segment and checks for entries of the whole path and of "everything below" each prefix. The cost
//! grows with the depth of the path, not with the number of changes or answers.
//!
//! Errors only invalidate more. Paths with equal hashes share entries; letter case and
//! percent-encoding are ignored. A dropped entry raises the `floor`, below which everything is
//! invalidated.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use foldhash::fast::{FoldHasher, RandomState};
use parking_lot::RwLock;
use percent_encoding::percent_decode_str;

use crate::api::{Invalidation, WildForm, WildForms, segments, wild_form, wild_forms};
use crate::clock::Timestamp;
use crate::decision::cache::settling::SECOND_RECHECK;
use crate::gateway::cache::invalidation::generations::Generations;
use crate::gateway::cache::invalidation::snapshot_mark::{Level, SnapshotMark};

/// Avoids contention between repositories. A power of two.
const SHARDS: usize = 16;
/// Entries of one generation per shard; two are kept. Chosen here: 17 MiB, the changes of hours.
const GENERATION_MAX: usize = 16 * 1024;
/// The deepest "below" entry; deeper paths are cut. Chosen here: more segments than any route.
const DEPTH_MAX: usize = 32;
/// The bytes of a segment that are lowered at once.
const CHUNK_BYTES: usize = 32;

/// Recent changes by path.
pub struct InvalidationLog {
    shards: [RwLock<Generations<LogEntry>>; SHARDS],
    hasher: RandomState,
    /// The latest change in milliseconds; zero: none yet.
    latest: AtomicU64,
    /// The number of changes.
    changes: AtomicU64,
    /// Every answer requested up to this time is invalidated.
    floor: AtomicU64,
    /// A bit for each depth with "below" entries.
    depths: AtomicU32,
    /// A bit for each wildcard form with entries.
    forms: AtomicU32,
    assumed: Assumed,
    /// Learns of each change.
    pub mark: Arc<SnapshotMark>,
    generation_max: usize,
}

/// A change before a restart whose path is unknown: any answer from after the restart may not show
/// it yet. In milliseconds.
#[derive(Default)]
struct Assumed {
    changed_at: AtomicU64,
    restarted_at: AtomicU64,
}

/// The latest changes of a path; zero: none.
#[derive(Clone, Copy, Default)]
struct LogEntry {
    exactly: u64,
    below: u64,
}

/// The keys of the entries that may name one of several paths.
#[derive(Debug, Default)]
pub struct PathKeys {
    /// Of the paths themselves.
    pub exact: HashSet<u64, foldhash::fast::RandomState>,
    /// Of the same and of all above them.
    pub above: HashSet<u64, foldhash::fast::RandomState>,
}

impl PathKeys {
    pub fn len(&self) -> usize {
        self.exact.len() + self.above.len()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Exactly,
    Below,
}

impl Default for InvalidationLog {
    fn default() -> Self {
        Self::bounded(GENERATION_MAX)
    }
}

impl InvalidationLog {
    fn bounded(generation_max: usize) -> Self {
        Self {
            shards: std::array::from_fn(|_| RwLock::default()),
            hasher: RandomState::default(),
            latest: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            depths: AtomicU32::new(0),
            forms: AtomicU32::new(0),
            assumed: Assumed::default(),
            mark: Arc::default(),
            generation_max,
        }
    }

    /// Records what a write or an event invalidates.
    pub fn note(&self, stale: &[Invalidation], now: Timestamp) {
        for stale in stale {
            match stale {
                Invalidation::Exactly(path) => self.changed(path, now),
                Invalidation::Below(path) => self.changed_below(path, now),
                Invalidation::Everything => self.changed_below("/", now),
            }
        }
    }

    /// Records a change of the path with any query. `*` may stand where
    /// `api/invalidation/aliases.rs` allows it.
    pub fn changed(&self, path: &str, now: Timestamp) {
        match (path.contains('*'), wild_form(path)) {
            (true, None) => self.changed_below(path, now),
            (_, form) => self.record(path, form, Extent::Exactly, now),
        }
    }

    /// Records a change of the path and everything below it. It ends with a whole segment; `/`
    /// covers everything.
    pub fn changed_below(&self, path: &str, now: Timestamp) {
        let form = wild_form(path);
        // For a wildcard that lookups do not know, everything below its parent is invalidated.
        let known = if form.is_none() { path.split("/*").next().unwrap_or_default() } else { path };
        let end = known.match_indices('/').nth(DEPTH_MAX - 1).map_or(known.len(), |(end, _)| end);
        let bounded = &known[..end];
        if segments_of(bounded).next().is_none() {
            self.floor.fetch_max(now.as_millis(), Ordering::AcqRel);
            self.count(now.as_millis());
        } else {
            self.record(bounded, form, Extent::Below, now);
        }
    }

    /// Assumes that something changed at this time, before a restart at `restarted_at`. Answers
    /// from before the restart are rated by the changes that are known of them.
    pub fn assume(&self, changed_at: Timestamp, restarted_at: Timestamp) {
        self.assumed.restarted_at.store(restarted_at.as_millis(), Ordering::Release);
        self.assumed.changed_at.store(changed_at.as_millis(), Ordering::Release);
        self.latest.fetch_max(changed_at.as_millis(), Ordering::AcqRel);
    }

    /// Returns the latest change that an answer to `path` (without query), requested at
    /// `requested_at`, may or may not show. `None` if all changes had settled by then.
    pub fn last_change(&self, path: &str, requested_at: Timestamp) -> Option<Timestamp> {
        let latest = self.latest.load(Ordering::Acquire);
        if latest == 0 || Timestamp::from_millis(latest) + SECOND_RECHECK <= requested_at {
            return None;
        }
        let floor = self.floor_for(requested_at);
        let plain = self.latest_entry(path, 0).max(floor);
        let wild = wild_forms(path, self.forms.load(Ordering::Acquire))
            .map(|form| self.latest_entry(path, form.segments));
        let found = wild.fold(plain, u64::max);
        (found > 0).then(|| Timestamp::from_millis(found))
    }

    /// The latest change that may concern any answer requested at `requested_at`, in milliseconds;
    /// zero: none.
    fn floor_for(&self, requested_at: Timestamp) -> u64 {
        let is_later =
            self.assumed.restarted_at.load(Ordering::Acquire) <= requested_at.as_millis();
        let assumed = if is_later { self.assumed.changed_at.load(Ordering::Acquire) } else { 0 };
        self.floor.load(Ordering::Acquire).max(assumed)
    }

    /// Returns the number of changes so far.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Adds the keys of all entries that may name a path.
    pub fn add_keys(&self, path: &str, keys: &mut PathKeys) {
        let every_form = wild_forms(path, WildForms::MAX).map(|form| form.segments);
        for wild in std::iter::once(0).chain(every_form) {
            let whole = self.each_prefix(path, wild, |_, key| {
                keys.above.insert(key);
            });
            keys.exact.insert(whole);
            keys.above.insert(whole);
        }
    }

    /// Returns the latest change of the paths with these keys, see `PathKeys`, that concerns an
    /// answer requested at `requested_at`; `None`: no known one.
    pub fn last_change_of(
        &self,
        exact: &[u64],
        above: &[u64],
        requested_at: Timestamp,
    ) -> Option<Timestamp> {
        let above = above.iter().map(|key| self.entry_of(*key).below);
        let exact = exact.iter().map(|key| self.entry_of(*key).exactly);
        let found = above.chain(exact).fold(self.floor_for(requested_at), u64::max);
        (found > 0).then(|| Timestamp::from_millis(found))
    }

    /// Returns the time of the latest change of anything.
    pub fn latest(&self) -> Option<Timestamp> {
        let latest = self.latest.load(Ordering::Acquire);
        (latest > 0).then(|| Timestamp::from_millis(latest))
    }

    fn record(&self, path: &str, form: Option<WildForm>, extent: Extent, now: Timestamp) {
        let at = now.as_millis();
        let mut hash = self.begin();
        let mut depth = 0;
        for segment in segments_of(path) {
            hash.segment(segment);
            depth += 1;
        }
        let dropped = self.insert(hash.key(), extent, at);
        self.floor.fetch_max(dropped, Ordering::AcqRel);
        if extent == Extent::Below {
            self.depths.fetch_or(1_u32.checked_shl(depth).unwrap_or(0), Ordering::AcqRel);
        }
        self.forms.fetch_or(form.map_or(0, |form| form.bit), Ordering::AcqRel);
        self.count(at);
    }

    /// Counts a change last, so that a reader that sees it sees the rest.
    fn count(&self, at: u64) {
        self.latest.fetch_max(at, Ordering::AcqRel);
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.mark.note(Level::Changed);
    }

    /// Returns the time of the latest entry dropped for it; zero: none.
    fn insert(&self, key: u64, extent: Extent, at: u64) -> u64 {
        let mut shard = self.shard(key).write();
        let (entry, dropped) = shard.entry(key, self.generation_max);
        match extent {
            Extent::Exactly => entry.exactly = entry.exactly.max(at),
            Extent::Below => entry.below = entry.below.max(at),
        }
        dropped.map(|entry| entry.exactly.max(entry.below)).max().unwrap_or(0)
    }

    /// The latest entry for a path with these segments as wildcards.
    fn latest_entry(&self, path: &str, wild: u32) -> u64 {
        let depths = self.depths.load(Ordering::Acquire);
        let mut found = 0;
        let whole = self.each_prefix(path, wild, |depth, key| {
            if depths >> depth & 1 == 1 {
                found = self.entry_of(key).below.max(found);
            }
        });
        let whole = self.entry_of(whole);
        found.max(whole.exactly).max(whole.below)
    }

    /// Calls `prefix` with the depth and the key of each prefix of a path with these segments as
    /// wildcards, and returns the key of the whole.
    fn each_prefix(&self, path: &str, wild: u32, mut prefix: impl FnMut(u32, u64)) -> u64 {
        let (mut hash, mut depth) = (self.begin(), 0_u32);
        for segment in segments_of(path) {
            let is_wild = depth < 32 && wild >> depth & 1 == 1;
            hash.segment(if is_wild { "*" } else { segment });
            depth += 1;
            if depth < 32 {
                prefix(depth, hash.key());
            }
        }
        hash.key()
    }

    fn entry_of(&self, key: u64) -> LogEntry {
        self.shard(key).read().get(key)
    }

    fn shard(&self, key: u64) -> &RwLock<Generations<LogEntry>> {
        // The tables use the low bits, so the high ones choose.
        let [first, ..] = key.to_be_bytes();
        &self.shards[usize::from(first) % SHARDS]
    }

    fn begin(&self) -> PathHash<'_> {
        PathHash(self.hasher.build_hasher())
    }
}

/// An incremental path hash that ignores case and percent-encoding. Upstream names are
/// case-insensitive (SPECIFICATION, "Dialects"). `:` and `%3A` may be one resource or two (RFC 3986
/// §3.3), so a change of one invalidates both.
#[derive(Clone)]
struct PathHash<'h>(FoldHasher<'h>);

impl PathHash<'_> {
    fn segment(&mut self, segment: &str) {
        self.0.write_u8(b'/');
        let decoded: Cow<'_, [u8]> = percent_decode_str(segment).into();
        for chunk in decoded.chunks(CHUNK_BYTES) {
            let mut lower = [0; CHUNK_BYTES];
            for (to, from) in lower.iter_mut().zip(chunk) {
                *to = from.to_ascii_lowercase();
            }
            self.0.write(&lower);
        }
    }

    fn key(&self) -> u64 {
        self.0.clone().finish()
    }
}

/// Omits the empty segment after a trailing slash.
fn segments_of(path: &str) -> impl Iterator<Item = &str> {
    segments(path.strip_suffix('/').unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const EARLY: Timestamp = Timestamp::from_secs(1_000);
    const CHANGE: Timestamp = Timestamp::from_secs(2_000);
    const LIST: &str = "/repos/acme/widgets/issues";

    fn change_of(log: &InvalidationLog, path: &str) -> Option<Timestamp> {
        log.last_change(path, EARLY)
    }

    #[test]
    fn a_change_is_found_at_its_path_and_nowhere_else() {
        let log = InvalidationLog::default();
        assert_eq!(change_of(&log, LIST), None);
        log.changed(LIST, CHANGE);
        for path in [LIST, "/repos/Acme/WIDGETS/issues", "/repos/acme/widgets/issues/"] {
            assert_eq!(change_of(&log, path), Some(CHANGE), "{path}");
        }
        for path in [
            "/repos/acme/widgets",
            "/repos/acme/widgets/issues/5",
            "/repos/acme/gadgets/issues",
            "/repos/acmewidgets/issues",
            "/",
        ] {
            assert_eq!(change_of(&log, path), None, "{path}");
        }
    }

    #[test]
    fn every_spelling_of_a_path_has_the_same_changes() {
        for (written, read) in [
            ("ent:core", "ent%3Acore"),
            ("a%40b%2c", "a@b%2C"),
            ("%21$&'()*+,;=", "!%24%26%27%28%29%2a%2B%2C%3B%3D"),
        ] {
            for (written, read) in [(written, read), (read, written)] {
                let log = InvalidationLog::default();
                log.changed(&format!("/enterprises/e/teams/{written}"), CHANGE);
                assert_eq!(
                    change_of(&log, &format!("/enterprises/e/teams/{read}")),
                    Some(CHANGE),
                    "{written} {read}"
                );
                let log = InvalidationLog::default();
                log.changed_below(&format!("/enterprises/e/teams/{written}"), CHANGE);
                assert_eq!(
                    change_of(&log, &format!("/enterprises/e/teams/{read}/organizations")),
                    Some(CHANGE),
                    "{written} {read}"
                );
            }
        }
    }

    #[test]
    fn a_change_below_a_path_is_found_at_every_depth_below_it() {
        let log = InvalidationLog::default();
        log.changed_below("/repos/acme/widgets", CHANGE);
        for path in [
            "/repos/acme/widgets",
            LIST,
            "/repos/acme/widgets/issues/5/comments",
            "/repos/ACME/widgets/contents/a/b/c",
        ] {
            assert_eq!(change_of(&log, path), Some(CHANGE), "{path}");
        }
        for path in
            ["/repos/acme", "/repos/acme/widgets2", "/repos/acme/gadgets/issues", "/orgs/acme"]
        {
            assert_eq!(change_of(&log, path), None, "{path}");
        }
    }

    #[test]
    fn the_latest_unsettled_change_counts() {
        let log = InvalidationLog::default();
        log.changed(LIST, CHANGE);
        log.changed_below("/repos/acme", CHANGE + Duration::from_secs(5));
        log.changed(LIST, CHANGE + Duration::from_secs(1));
        assert_eq!(change_of(&log, LIST), Some(CHANGE + Duration::from_secs(5)));
        assert_eq!(log.last_change(LIST, CHANGE + Duration::from_secs(15)), None);
        assert!(log.last_change(LIST, CHANGE + Duration::from_millis(14_999)).is_some());
    }

    #[test]
    fn a_wildcard_covers_every_path_that_it_may_stand_for() {
        let log = InvalidationLog::default();
        log.changed("/repositories/*/issues/5", CHANGE);
        log.changed_below("/repos/acme/widgets/issues/*/timeline", CHANGE);
        for path in ["/repositories/7/issues/5", "/repos/acme/widgets/issues/8/timeline"] {
            assert_eq!(change_of(&log, path), Some(CHANGE), "{path}");
        }
        for path in [
            "/repositories/7/issues/6",
            "/repositories/x/issues/5",
            "/repos/acme/widgets/issues/8",
            "/repos/acme/gadgets/issues/8/timeline",
        ] {
            assert_eq!(change_of(&log, path), None, "{path}");
        }
        log.changed("/gists/*/comments", CHANGE);
        assert_eq!(
            change_of(&log, "/gists/5/forks"),
            Some(CHANGE),
            "an unknown wildcard invalidates more, not less"
        );
        assert_eq!(change_of(&log, "/users/ada"), None);
    }

    #[test]
    fn the_keys_of_paths_find_what_the_paths_find() {
        for (changed, is_below) in [
            (LIST, false),
            ("/repos/acme/widgets", true),
            ("/repos/acme/widgets/", false),
            ("/repos/*/*/issues/5", true),
            ("/repositories/*/issues/5", false),
            ("/repos/acme/widgets/issues/*/timeline", true),
            ("/graphql/node", true),
            ("/graphql/node/I_1", false),
            ("/", true),
        ] {
            let log = InvalidationLog::default();
            let before = log.changes();
            let record =
                if is_below { InvalidationLog::changed_below } else { InvalidationLog::changed };
            record(&log, changed, CHANGE);
            assert!(log.changes() > before, "{changed}");
            for path in [
                LIST,
                "/repos/acme/widgets/issues/5",
                "/repositories/7/issues/5",
                "/repos/acme/widgets/issues/5/timeline",
                "/graphql/node/I_1",
                "/graphql/node/i_1",
                "/users/ada",
                "/repos/ACME/Widgets",
            ] {
                let mut keys = PathKeys::default();
                log.add_keys(path, &mut keys);
                let [exact, above] =
                    [keys.exact, keys.above].map(|keys| keys.into_iter().collect::<Vec<_>>());
                let found = log.last_change_of(&exact, &above, CHANGE);
                assert_eq!(found, change_of(&log, path), "{changed} {path}");
            }
        }
    }

    #[test]
    fn a_change_assumed_at_a_restart_concerns_later_answers() {
        let log = InvalidationLog::default();
        let restarted_at = CHANGE + Duration::from_secs(1);
        log.assume(CHANGE, restarted_at);
        let mut keys = PathKeys::default();
        log.add_keys(LIST, &mut keys);
        let [exact, above] =
            [keys.exact, keys.above].map(|keys| keys.into_iter().collect::<Vec<_>>());
        for (requested_at, change) in [(CHANGE, None), (restarted_at, Some(CHANGE))] {
            assert_eq!(log.last_change(LIST, requested_at), change);
            assert_eq!(log.last_change_of(&exact, &above, requested_at), change);
        }
    }

    #[test]
    fn a_change_of_the_root_invalidates_everything() {
        for root in ["", "/", "*", "/*"] {
            let log = InvalidationLog::default();
            log.changed_below(root, CHANGE);
            assert_eq!(change_of(&log, LIST), Some(CHANGE), "{root:?}");
        }
    }

    #[test]
    fn the_log_is_bounded_and_a_dropped_entry_still_invalidates() {
        let log = InvalidationLog::bounded(8);
        let last = CHANGE + Duration::from_secs(20_000);
        for number in 0..20_000 {
            log.changed(&format!("/gists/{number}"), CHANGE + Duration::from_secs(number));
        }
        let kept: usize =
            log.shards.iter().map(|shard| shard.read().young.len() + shard.read().old.len()).sum();
        assert!(kept <= SHARDS * 2 * 8, "{kept}");
        for number in (0..20_000).step_by(97) {
            let change = change_of(&log, &format!("/gists/{number}"));
            assert!(change >= Some(CHANGE + Duration::from_secs(number)), "{number}: {change:?}");
        }
        assert_eq!(
            log.last_change("/user", last + SECOND_RECHECK),
            None,
            "a recent answer is trusted"
        );
    }

    #[test]
    fn a_very_deep_path_is_covered_by_a_shorter_prefix() {
        let log = InvalidationLog::default();
        let deep = format!("/repos/acme/widgets/contents{}", "/x".repeat(100));
        log.changed_below(&deep, CHANGE);
        assert_eq!(change_of(&log, &format!("{deep}/y")), Some(CHANGE));
        log.changed(&format!("{deep}/z"), CHANGE + Duration::from_secs(1));
        assert_eq!(change_of(&log, &format!("{deep}/z")), Some(CHANGE + Duration::from_secs(1)));
    }
}
