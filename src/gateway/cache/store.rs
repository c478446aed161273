//! The in-memory store of answers, weighed by their bytes (SPECIFICATION D1 to D3).
//!
//! Entries are immutable except for their validation times (`validation.rs`). A 304 with news
//! stores a new entry that shares the body.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use moka::notification::RemovalCause;

use crate::clock::Timestamp;
use crate::decision::cache::cache_control::vary_names;
use crate::decision::cache::freshness::Stored;
use crate::decision::cache::key::{CacheKey, Scope};
use crate::decision::cache::part::ContentRange;
use crate::decision::cache::selecting::{normalized, prefers};
use crate::decision::cache::settling::Trust;
use crate::decision::cache::validated::Validated;

use crate::gateway::cache::bounded::BoundedCache;
use crate::gateway::cache::bounded::hot::HotValues;
use crate::gateway::cache::invalidation::log::InvalidationLog;
use crate::gateway::cache::invalidation::purge::{Prefix, Purged, Purges};
use crate::gateway::cache::invalidation::snapshot_mark::Level;
use crate::gateway::cache::named::Named;
use crate::gateway::cache::stored_head::{SharedLines, StoredHead};
use crate::gateway::cache::validation::{Fingerprint, Fingerprints, ValidationTimes};
use crate::gateway::url_rewrite::map::Body;
use crate::state::FarCopies;

/// Bytes of an entry in the tables of `moka`: its key, its place, its links and its counts, each an
/// allocation of its own.
const SLOT_BYTES: usize = 290;
/// The part of the memory for answers that the names in them may take beside it. Chosen here: the
/// names in an answer take about an eighth of its bytes.
const NAMED_PART: u64 = 8;
/// The reference counts of a shared allocation.
const COUNTS_BYTES: usize = 2 * size_of::<usize>();

/// `Vary` headers in the key or the scope (SPECIFICATION D2), or never sent upstream.
const VARY_ANSWERED: [&str; 6] =
    ["accept", "accept-encoding", "authorization", "cookie", "x-requested-with", "x-weir-key"];

/// Those of them that are in the scope.
const VARY_BY_VIEW: [&str; 3] = ["authorization", "cookie", "x-weir-key"];

#[derive(Clone)]
pub struct Entry {
    /// The headers for clients, with a validator equal for all tokens, and upstream URLs.
    pub head: StoredHead,
    pub body: Body,
    pub stored: Stored,
    pub validation: ValidationTimes,
    /// The validator fingerprint of the 304 that made it.
    pub fingerprint: Fingerprint,
    /// The variant beyond its key; usually `None`.
    pub vary: Option<Box<Vary>>,
}

/// The request headers that select a variant (RFC 9111 §4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vary {
    /// Their normalized values; `None` for an absent header.
    Headers(Box<[(HeaderName, SelectingValue)]>),
    /// `Vary: *`: unknown criteria, so it answers no other request.
    Everything,
}

type SelectingValue = Option<Box<[u8]>>;

impl Vary {
    /// True for the variant that the upstream would select for a request. `language` is that of the
    /// answer.
    pub fn fits(&self, request: &HeaderMap, language: Option<&[u8]>) -> bool {
        match self {
            Self::Headers(headers) => headers.iter().all(|(name, stored)| {
                let requested = selecting_value(request, name);
                requested == *stored
                    || *name == header::ACCEPT_LANGUAGE
                        && requested
                            .zip(language)
                            .is_some_and(|(requested, language)| prefers(&requested, language))
            }),
            Self::Everything => false,
        }
    }

    fn memory_bytes(&self) -> usize {
        let Self::Headers(headers) = self else { return size_of::<Self>() };
        let values = headers.iter().filter_map(|(_, value)| value.as_ref());
        size_of::<Self>()
            + headers.len() * size_of::<(HeaderName, SelectingValue)>()
            + values.map(|value| value.len()).sum::<usize>()
    }
}

impl Entry {
    pub fn validated(&self) -> Validated<'_> {
        self.stored.validated(self.validation.validated_at(), self.validation.requested_at())
    }

    /// The time of the request that fetched or validated it; a later change invalidates it.
    pub fn requested_at(&self) -> Timestamp {
        self.validation.requested_at()
    }

    pub fn fits(&self, request: &HeaderMap) -> bool {
        let language = || self.head.get(header::CONTENT_LANGUAGE.as_str());
        self.vary.as_deref().is_none_or(|vary| vary.fits(request, language()))
    }

    /// True if it may answer requests other than the one that fetched it (RFC 9111 §5.2.2.5).
    pub fn is_for_others(&self) -> bool {
        !self.stored.no_store
    }

    /// True if its `Vary` names a credential, which is in the scope of its key.
    pub fn varies_by_view(&self) -> bool {
        let lines = self.head.lines().filter(|(name, _)| *name == header::VARY.as_str());
        lines.flat_map(|(_, names)| names.split(|byte| *byte == b',')).any(|name| {
            VARY_BY_VIEW
                .iter()
                .any(|other| name.trim_ascii().eq_ignore_ascii_case(other.as_bytes()))
        })
    }

    /// The place of a stored part in its whole; `None` for a whole answer.
    pub fn content_range(&self) -> Option<ContentRange> {
        let line = self.head.get(header::CONTENT_RANGE.as_str());
        let line = line.filter(|_| self.status() == StatusCode::PARTIAL_CONTENT)?;
        ContentRange::parse(std::str::from_utf8(line).ok()?)
    }

    pub fn status(&self) -> StatusCode {
        self.stored.status()
    }

    /// False if its file had to make room for others.
    pub fn has_body(&self) -> bool {
        self.body.file().is_none_or(|file| !file.is_removed())
    }

    fn has_file_of(&self, other: &Self) -> bool {
        self.body.file().is_some() && self.body.is_same_as(&other.body)
    }

    fn remove_file(&self) {
        if let Some(file) = self.body.file() {
            file.remove();
        }
    }

    pub fn has_same_content(&self, other: &Self) -> bool {
        self.status() == other.status() && self.body.is_same_as(&other.body)
    }

    pub fn vary_of(answer: &HeaderMap, request: &HeaderMap) -> Option<Box<Vary>> {
        let Some(names) = vary_names(answer) else { return Some(Box::new(Vary::Everything)) };
        let further = names.into_iter().filter(|name| {
            !VARY_ANSWERED.contains(&name.as_str()) && !name.as_str().ends_with("-otp")
        });
        let headers: Box<[_]> =
            further.map(|name| (name.clone(), selecting_value(request, &name))).collect();
        (!headers.is_empty()).then(|| Box::new(Vary::Headers(headers)))
    }

    /// Bytes in memory, the key and the table slot included.
    fn memory_bytes(&self, key: &CacheKey) -> usize {
        let [repeated, own] = self.head.own_allocations();
        let [text, offsets] = self.body.allocations();
        let parts = [
            COUNTS_BYTES + size_of::<Self>(),
            repeated,
            own,
            text,
            offsets,
            self.stored.allocation(),
            self.vary.as_deref().map_or(0, Vary::memory_bytes),
            key.allocation(),
        ];
        SLOT_BYTES + parts.into_iter().map(allocated).sum::<usize>()
    }
}

fn selecting_value(request: &HeaderMap, name: &HeaderName) -> SelectingValue {
    normalized(name, request.get_all(name).iter().map(HeaderValue::as_bytes))
}

/// Bytes that the allocator takes: mimalloc's size classes are a quarter of a power of two apart.
fn allocated(bytes: usize) -> usize {
    bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(16))
}

pub struct Store {
    entries: BoundedCache<CacheKey, Arc<Entry>>,
    hot: HotValues<CacheKey, Entry>,
    pub shared_lines: SharedLines,
    pub fingerprints: Fingerprints,
    purges: Purges,
    /// Changes, in every scope.
    pub log: InvalidationLog,
    /// The things that answers to GraphQL queries name, by the keys of their addresses. They are
    /// beside the entries, because most entries have none.
    named: BoundedCache<CacheKey, Arc<Named>>,
    /// Copies of answers that all replicas share.
    pub far: FarCopies,
    /// Of this process, in milliseconds; zero if it took over no entries.
    restarted_at: AtomicU64,
}

impl Store {
    /// Creates a store of at most `bytes_max`. `on_evicted` is called for each evicted entry.
    pub fn new(bytes_max: u64, on_evicted: impl Fn() + Send + Sync + 'static) -> Self {
        let weigh = |key: &CacheKey, entry: &Arc<Entry>| entry.memory_bytes(key);
        let on_gone = move |entry: &Arc<Entry>, cause| {
            if cause == RemovalCause::Size {
                on_evicted();
            }
            // The cache itself drops a value some time later. Its successor may have the same file.
            if cause != RemovalCause::Replaced {
                entry.remove_file();
            }
        };
        Self {
            entries: BoundedCache::new(bytes_max, weigh, on_gone),
            hot: HotValues::new(),
            shared_lines: SharedLines::default(),
            fingerprints: Fingerprints::default(),
            purges: Purges::default(),
            log: InvalidationLog::default(),
            named: BoundedCache::new(
                bytes_max / NAMED_PART,
                |key, named: &Arc<Named>| SLOT_BYTES + key.allocation() + named.memory_bytes(),
                |_, _| (),
            ),
            far: FarCopies::default(),
            restarted_at: AtomicU64::new(0),
        }
    }

    /// Notes the things that an answer names.
    pub fn set_named(&self, address: CacheKey, named: Named) {
        self.named.insert(address, Arc::new(named));
    }

    /// Returns the things that an answer names; `None` if unknown.
    pub fn named(&self, address: &CacheKey, answer: &Entry) -> Option<Arc<Named>> {
        self.named
            .get(address)
            .filter(|named| named.is_of(answer.requested_at(), answer.body.text()))
    }

    /// Looks up the variant for a request with these headers; returns its key too. The first
    /// variant uses the address's own key; the keys of others contain the values that `Vary` names.
    pub fn find<'a>(
        &self,
        address: &'a CacheKey,
        request: &HeaderMap,
    ) -> (Cow<'a, CacheKey>, Option<Arc<Entry>>) {
        let Some(first) = self.get(address) else { return (Cow::Borrowed(address), None) };
        if first.fits(request) {
            return (Cow::Borrowed(address), Some(first));
        }
        let Some(Vary::Headers(headers)) = first.vary.as_deref() else {
            return (Cow::Borrowed(address), None);
        };
        let values: Vec<_> =
            headers.iter().map(|(name, _)| selecting_value(request, name)).collect();
        // An absent header is no empty one.
        let present: Vec<u8> = values.iter().map(|value| value.is_some().into()).collect();
        let values = values.iter().flatten().map(|value| &**value);
        let key = address.variant([present.as_slice()].into_iter().chain(values));
        let entry = self.get(&key).filter(|entry| entry.fits(request));
        (Cow::Owned(key), entry)
    }

    /// Returns the entry under this key, without a check of `Vary`.
    pub fn get(&self, key: &CacheKey) -> Option<Arc<Entry>> {
        self.hot.get(key, || self.entries.get(key)).filter(|entry| entry.has_body())
    }

    /// Stores an answer, unless the stored one has a later request and so a newer state.
    pub fn put(&self, key: CacheKey, entry: Arc<Entry>) {
        let before = self.entries.get(&key);
        if before.as_ref().is_some_and(|before| before.requested_at() > entry.requested_at()) {
            return;
        }
        if let Some(before) = before.filter(|before| !before.has_file_of(&entry)) {
            before.remove_file();
        }
        let changes = self.hot.counter_of(&key);
        self.entries.insert(key, entry);
        self.hot.changed(changes);
    }

    /// Removes the entry under this key, unless its request is later than `requested_at`.
    pub fn remove(&self, key: &CacheKey, requested_at: Timestamp) {
        if !self.has_newer(key, requested_at) {
            self.entries.remove(key);
            self.hot.changed(self.hot.counter_of(key));
        }
    }

    /// Of two concurrent inserts the last one stays; the next request revalidates it.
    fn has_newer(&self, key: &CacheKey, requested_at: Timestamp) -> bool {
        self.entries.get(key).is_some_and(|kept| kept.requested_at() > requested_at)
    }

    /// Rates an answer to `path` (without query) from a request at `requested_at`.
    pub fn trust(&self, path: &str, requested_at: Timestamp) -> Trust {
        if self.purges.covers(path, requested_at) {
            return Trust::Invalidated;
        }
        self.trust_by_changes(path, requested_at)
    }

    /// The same without purges, which do not affect the meaning of upstream answers.
    pub fn trust_by_changes(&self, path: &str, requested_at: Timestamp) -> Trust {
        Trust::after(self.log.last_change(path, requested_at), requested_at)
    }

    /// Removes all entries under a prefix.
    pub fn purge(&self, prefix: &Prefix, now: Timestamp) -> Purged {
        // First: an answer that arrives meanwhile is invalidated, found below or not.
        self.purges.note(prefix.clone(), now);
        self.log.mark.note(Level::Void);
        let (entries, bytes) = self.entries.remove_if(|key| prefix.begins(key.path_and_query()));
        self.hot.all_changed();
        Purged { entries, bytes }
    }

    /// Removes all entries of a scope.
    pub fn remove_scope(&self, scope: Scope) {
        self.entries.remove_if(|key| key.scope() == scope);
        self.hot.all_changed();
    }

    /// Invalidates all answers that were requested before this time.
    pub fn invalidate_before(&self, time: Timestamp) {
        let last = Timestamp::from_millis(time.as_millis().saturating_sub(1));
        self.purges.note(Prefix::everything(), last);
        self.log.mark.note(Level::Void);
    }

    /// Iterates over the entries, for a snapshot.
    pub fn entries(&self) -> impl Iterator<Item = (Arc<CacheKey>, Arc<Entry>)> {
        self.entries.iter()
    }

    /// Takes over an entry of an earlier process. It is not served without a confirmation.
    pub fn restore(&self, key: CacheKey, entry: Arc<Entry>) {
        self.entries.insert(key, entry);
    }

    /// Entries that were requested before this time are of an earlier process.
    pub fn restarted_at(&self, time: Timestamp) {
        self.restarted_at.store(time.as_millis(), Ordering::Release);
    }

    /// True if this process has fetched or confirmed the entry.
    pub fn is_confirmed(&self, entry: &Entry) -> bool {
        entry.requested_at().as_millis() >= self.restarted_at.load(Ordering::Acquire)
    }

    /// Bytes in memory of an entry under this key.
    pub fn bytes_of(key: &CacheKey, entry: &Entry) -> u64 {
        entry.memory_bytes(key) as u64
    }

    /// True if a purge covers an answer to `path` that was requested at `requested_at`.
    pub fn is_purged(&self, path: &str, requested_at: Timestamp) -> bool {
        self.purges.covers(path, requested_at)
    }

    pub fn each(&self, show: impl FnMut(&CacheKey, u64)) {
        self.entries.each(show);
    }

    pub fn size(&self) -> (u64, u64) {
        self.entries.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::cache::freshness::Mode;
    use crate::decision::cache::key::Accept;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn key(scope: Scope, path: &str) -> CacheKey {
        CacheKey::new(scope, path, &Accept::Json, "2022-11-28")
    }

    fn entry(store: &Store, body_bytes: usize) -> Arc<Entry> {
        let headers =
            HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"))]);
        Arc::new(Entry {
            head: StoredHead::new(&headers, None, &store.shared_lines),
            body: Body::opaque(vec![b'x'; body_bytes].into()),
            stored: Stored::new(Mode::Revalidate, NOW, StatusCode::OK, &headers, None, None),
            validation: ValidationTimes::new(NOW, NOW),
            fingerprint: Fingerprint::default(),
            vary: Entry::vary_of(&headers, &headers),
        })
    }

    fn store(bytes_max: u64) -> (Store, Arc<AtomicU64>) {
        let evicted = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&evicted);
        (
            Store::new(bytes_max, move || {
                _ = count.fetch_add(1, Ordering::Relaxed);
            }),
            evicted,
        )
    }

    #[test]
    fn an_entry_weighs_the_memory_that_it_takes() {
        let (store, _) = store(1 << 20);
        store.put(key(Scope::Public, "/a"), entry(&store, 2048));
        let (entries, bytes) = store.size();
        assert_eq!(entries, 1);
        assert!((2048 + 450..2048 + 750).contains(&bytes), "{bytes}");
        // With the two reference counts, an entry fits one size class of the allocator.
        assert!(size_of::<Entry>() + COUNTS_BYTES <= 192, "{}", size_of::<Entry>());
    }

    #[test]
    fn an_evicted_entry_is_counted_and_a_replaced_one_is_not() {
        let (store, evicted) = store(100_000);
        for _ in 0..200 {
            store.put(key(Scope::Public, "/a"), entry(&store, 2048));
        }
        assert_eq!(evicted.load(Ordering::Relaxed), 0);
        for number in 0..200 {
            store.put(key(Scope::Public, &format!("/{number}")), entry(&store, 2048));
        }
        let (entries, bytes) = store.size();
        assert_eq!(entries + evicted.load(Ordering::Relaxed), 201);
        assert!(bytes <= 100_000 && entries > 20, "{entries} {bytes}");
    }

    #[test]
    fn a_purge_removes_a_prefix_in_every_scope_and_nothing_else() {
        let (store, evicted) = store(1 << 20);
        for scope in [Scope::Public, Scope::Pool(0), Scope::Account(3)] {
            for path in [
                "/repos/Acme/widgets?page=2",
                "/repos/acme/sprockets",
                "/repos/acme-labs/x",
                "/users/acme",
            ] {
                store.put(key(scope, path), entry(&store, 100));
            }
        }
        let (_, before) = store.size();
        let purged = store.purge(&Prefix::new("/repos/acme/").unwrap(), NOW);
        assert_eq!((purged.entries, store.size()), (6, (6, before - purged.bytes)));
        assert!(
            store.get(&key(Scope::Pool(0), "/repos/acme/sprockets")).is_none()
                && store.get(&key(Scope::Public, "/users/acme")).is_some()
        );
        assert_eq!(
            (store.trust("/repos/acme/widgets", NOW), store.trust("/users/acme", NOW)),
            (Trust::Invalidated, Trust::Settled)
        );
        assert_eq!(store.purge(&Prefix::new("/").unwrap(), NOW).entries, 6);
        assert_eq!((store.size(), evicted.load(Ordering::Relaxed)), ((0, 0), 0));
    }
}
