//! The in-memory store of answers, weighed by their bytes (SPECIFICATION D1 to D3).
//!
//! Entries are immutable except for their validation times (`validation.rs`). A 304 with news
//! stores a new entry that shares the body.

use std::cell::Cell;
use std::hash::Hash;
use std::sync::Arc;

use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};

use crate::clock::Timestamp;
use crate::decision::cache::cache_control::{CacheControl, vary_names};
use crate::decision::cache::freshness::{Stored, Validated};
use crate::decision::cache::key::{CacheKey, Scope};
use crate::decision::cache::settling::Trust;

use crate::gateway::cache::invalidation::log::InvalidationLog;
use crate::gateway::cache::invalidation::purge::{Prefix, Purged, Purges};
use crate::gateway::cache::stored_head::{SharedLines, StoredHead};
use crate::gateway::cache::validation::{Fingerprint, Fingerprints, ValidationTimes};
use crate::gateway::url_rewrite::map::Body;

/// Table bytes per entry: a slot (key, pointer, state, links) and an index place of 5 bytes. The
/// tables double when full, so they are three quarters full on average.
const SLOT_BYTES: usize = (size_of::<CacheKey>() + 8 + 8 + 8 + 5) * 4 / 3;
/// The reference counts of a shared allocation.
const COUNTS_BYTES: usize = 2 * size_of::<usize>();
/// Several of the largest bodies fit into a shard, so that one does not evict all other entries.
/// Chosen here: more shards than most machines have workers.
const SHARDING: Sharding = Sharding { largest_per_shard: 4, shards_max: 64 };
/// A usual answer, to size the memory of evicted keys. Chosen here.
const ANSWER_BYTES: u64 = 4096;

/// `Vary` headers in the key or the scope (SPECIFICATION D2), or never sent upstream.
const VARY_ANSWERED: [&str; 6] =
    ["accept", "accept-encoding", "authorization", "cookie", "x-requested-with", "x-weir-key"];

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
    Headers(Box<[(HeaderName, Vec<HeaderValue>)]>),
    /// `Vary: *`: unknown criteria, so it answers no other request.
    Everything,
}

impl Vary {
    pub fn fits(&self, request: &HeaderMap) -> bool {
        match self {
            Self::Headers(headers) => {
                headers.iter().all(|(name, values)| request.get_all(name).iter().eq(values))
            }
            Self::Everything => false,
        }
    }

    fn memory_bytes(&self) -> usize {
        let Self::Headers(headers) = self else { return size_of::<Self>() };
        let values = headers.iter().flat_map(|(_, values)| values);
        size_of::<Self>()
            + headers.len() * size_of::<(HeaderName, Vec<HeaderValue>)>()
            + values.map(|value| size_of::<HeaderValue>() + value.len()).sum::<usize>()
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
        self.vary.as_deref().is_none_or(|vary| vary.fits(request))
    }

    /// True if it may answer requests other than the one that fetched it (RFC 9111 §5.2.2.5).
    pub fn is_for_others(&self) -> bool {
        let controls = self.head.lines().filter(|(name, _)| *name == "cache-control");
        !CacheControl::of_lines(controls.map(|(_, value)| value)).no_store
    }

    pub fn status(&self) -> StatusCode {
        self.stored.status()
    }

    pub fn has_same_content(&self, other: &Self) -> bool {
        self.status() == other.status() && self.body.text() == other.body.text()
    }

    pub fn vary_of(answer: &HeaderMap, request: &HeaderMap) -> Option<Box<Vary>> {
        let Some(names) = vary_names(answer) else { return Some(Box::new(Vary::Everything)) };
        let further = names.into_iter().filter(|name| {
            !VARY_ANSWERED.contains(&name.as_str()) && !name.as_str().ends_with("-otp")
        });
        // Copied, because a request's values share the buffer of its whole head.
        let copy = |value: &HeaderValue| {
            HeaderValue::from_bytes(value.as_bytes()).unwrap_or_else(|_| value.clone())
        };
        let headers: Box<[_]> = further
            .map(|name| (name.clone(), request.get_all(&name).iter().map(copy).collect()))
            .collect();
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

/// Bytes that the allocator takes: mimalloc's size classes are a quarter of a power of two apart.
fn allocated(bytes: usize) -> usize {
    bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(16))
}

pub struct Store {
    entries: Cache<CacheKey, Arc<Entry>, ByMemory, DefaultHashBuilder, Displaced>,
    pub shared_lines: SharedLines,
    pub fingerprints: Fingerprints,
    purges: Purges,
    /// Changes, in every scope.
    pub log: InvalidationLog,
    on_evicted: Box<dyn Fn(u64) + Send + Sync>,
}

/// The division of a cache into independently locked shards.
pub struct Sharding {
    pub largest_per_shard: u64,
    pub shards_max: u64,
}

impl Sharding {
    /// Creates a cache of at most `bytes_max` with objects of `object_max` and of usual size.
    pub fn cache<K: Eq + Hash, V: Clone, W: Weighter<K, V> + Clone, L: Lifecycle<K, V> + Clone>(
        &self,
        bytes_max: u64,
        object_max: u64,
        usual_bytes: u64,
        weighter: W,
        lifecycle: L,
    ) -> Cache<K, V, W, DefaultHashBuilder, L> {
        let shard_bytes = object_max.saturating_mul(self.largest_per_shard).max(1);
        // The cache rounds up to a power of two; this rounds down.
        let shards = 1_usize << (bytes_max / shard_bytes).clamp(1, self.shards_max).ilog2();
        let objects = usize::try_from(bytes_max / usual_bytes).unwrap_or(usize::MAX);
        let options = OptionsBuilder::new()
            .shards(shards)
            .weight_capacity(bytes_max)
            .estimated_items_capacity(objects)
            .build();
        let hasher = DefaultHashBuilder::default();
        match options {
            Ok(options) => Cache::with_options(options, weighter, hasher, lifecycle),
            // Only a missing option is an error.
            Err(_) => Cache::with(objects, bytes_max, weighter, hasher, lifecycle),
        }
    }
}

#[derive(Clone)]
struct ByMemory;

impl Weighter<CacheKey, Arc<Entry>> for ByMemory {
    fn weight(&self, key: &CacheKey, entry: &Arc<Entry>) -> u64 {
        entry.memory_bytes(key) as u64
    }
}

/// Collects evicted entries, so that they are dropped outside the lock.
#[derive(Clone)]
struct Displaced;

impl Lifecycle<CacheKey, Arc<Entry>> for Displaced {
    type RequestState = Vec<(CacheKey, Arc<Entry>)>;

    fn on_evict(&self, displaced: &mut Self::RequestState, key: CacheKey, entry: Arc<Entry>) {
        displaced.push((key, entry));
    }
}

impl Store {
    /// Creates a store of at most `bytes_max` with bodies of up to `object_max`. `on_evicted`
    /// receives the number of evicted entries.
    pub fn new(
        bytes_max: u64,
        object_max: u64,
        on_evicted: impl Fn(u64) + Send + Sync + 'static,
    ) -> Self {
        Self {
            entries: SHARDING.cache(bytes_max, object_max, ANSWER_BYTES, ByMemory, Displaced),
            shared_lines: SharedLines::default(),
            fingerprints: Fingerprints::default(),
            purges: Purges::default(),
            log: InvalidationLog::default(),
            on_evicted: Box::new(on_evicted),
        }
    }

    /// Looks up the variant for a request with these headers; returns its key too. The first
    /// variant uses the address's own key; the keys of others contain the values that `Vary` names.
    pub fn find(&self, key: CacheKey, request: &HeaderMap) -> (CacheKey, Option<Arc<Entry>>) {
        let Some(first) = self.get(&key) else { return (key, None) };
        let Some(Vary::Headers(headers)) = first.vary.as_deref().filter(|vary| !vary.fits(request))
        else {
            let fits = first.fits(request);
            return (key, fits.then_some(first));
        };
        // Value counts per header make the concatenation unambiguous.
        let counts: Vec<u8> = headers
            .iter()
            .map(|(name, _)| u8::try_from(request.get_all(name).iter().count()).unwrap_or(u8::MAX))
            .collect();
        let values = headers.iter().flat_map(|(name, _)| request.get_all(name));
        let values = values.map(HeaderValue::as_bytes);
        let key = key.variant([counts.as_slice()].into_iter().chain(values));
        let entry = self.get(&key).filter(|entry| entry.fits(request));
        (key, entry)
    }

    /// Returns the entry under this key, without a check of `Vary`.
    pub fn get(&self, key: &CacheKey) -> Option<Arc<Entry>> {
        self.entries.get(key)
    }

    /// Stores an answer, unless the stored one has a later request and so a newer state.
    pub fn put(&self, key: CacheKey, entry: Arc<Entry>) {
        if self.has_newer(&key, entry.requested_at()) {
            return;
        }
        let (mut displaced, own) = (Vec::new(), key.clone());
        self.entries.insert_with_lifecycle(key, entry, &mut displaced);
        // A replaced entry, or a new one that is too large, does not count as evicted.
        let evicted = displaced.iter().filter(|(other, _)| *other != own).count();
        if evicted > 0 {
            (self.on_evicted)(evicted as u64);
        }
    }

    /// Removes the entry under this key, unless its request is later than `requested_at`.
    pub fn remove(&self, key: &CacheKey, requested_at: Timestamp) {
        if !self.has_newer(key, requested_at) {
            self.entries.remove(key);
        }
    }

    /// Of two concurrent inserts the last one stays; the next request revalidates it.
    fn has_newer(&self, key: &CacheKey, requested_at: Timestamp) -> bool {
        self.entries.peek(key).is_some_and(|kept| kept.requested_at() > requested_at)
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

    /// Removes all entries under a prefix, with one shard locked at a time.
    pub fn purge(&self, prefix: &Prefix, now: Timestamp) -> Purged {
        let (entries, bytes) = (Cell::new(0), Cell::new(0));
        // First: an answer that arrives meanwhile is invalidated, found below or not.
        self.purges.note(prefix.clone(), now);
        self.entries.retain(|key, entry| {
            let is_covered = prefix.begins(key.path_and_query());
            if is_covered {
                entries.set(entries.get() + 1);
                bytes.set(bytes.get() + entry.memory_bytes(key) as u64);
            }
            !is_covered
        });
        Purged { entries: entries.get(), bytes: bytes.get() }
    }

    /// Removes all entries of a scope.
    pub fn remove_scope(&self, scope: Scope) {
        self.entries.retain(|key, _| key.scope() != scope);
    }

    /// Invalidates all answers that were requested before this time.
    pub fn invalidate_before(&self, time: Timestamp) {
        let last = Timestamp::from_millis(time.as_millis().saturating_sub(1));
        self.purges.note(Prefix::everything(), last);
    }

    pub fn each(&self, mut show: impl FnMut(&CacheKey, u64)) {
        for (key, entry) in self.entries.iter() {
            show(&key, entry.memory_bytes(&key) as u64);
        }
    }

    pub fn size(&self) -> (u64, u64) {
        (self.entries.len() as u64, self.entries.weight())
    }
}

/// The gateway's validator of an answer, equal for all tokens and replicas. Weak, because URLs
/// differ per client. It covers the page links: otherwise a 304 would hide a new next page.
pub fn etag_of(body: &[u8], headers: &HeaderMap) -> Option<HeaderValue> {
    let mut digest = ring::digest::Context::new(&ring::digest::SHA256);
    digest.update(body);
    for link in headers.get_all(header::LINK) {
        // No JSON contains this byte, so no body can imitate another one with links.
        digest.update(&[0]);
        digest.update(link.as_bytes());
    }
    let digest = u128::from_be_bytes(*digest.finish().as_ref().first_chunk()?);
    HeaderValue::from_str(&format!("W/\"{digest:032x}\"")).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
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
            stored: Stored::new(NOW, StatusCode::OK, &headers, None, None),
            validation: ValidationTimes::new(NOW, NOW),
            fingerprint: Fingerprint::default(),
            vary: Entry::vary_of(&headers, &headers),
        })
    }

    fn store(bytes_max: u64) -> (Store, Arc<AtomicU64>) {
        let evicted = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&evicted);
        (
            Store::new(bytes_max, bytes_max / 4, move |entries| {
                _ = count.fetch_add(entries, Ordering::Relaxed);
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
        assert!((2048 + 250..2048 + 500).contains(&bytes), "{bytes}");
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
