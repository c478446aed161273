//! The stored answers in memory, weighed by their bytes (DESIGN D1–D3); a second level shared
//! between replicas would stand behind this one.
//!
//! Of an entry only the times of its last confirmation change (`confirmation.rs`); a 304 that says
//! more than the last one stores a new one that shares its body. When an entry may be used is
//! decided by `decision/freshness.rs`.

use std::cell::Cell;
use std::sync::Arc;

use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};

use crate::clock::Timestamp;
use crate::decision::cache::cache_control::{CacheControl, vary_names};
use crate::decision::cache::freshness::Stored;
use crate::decision::cache::freshness::Validated;
use crate::decision::cache::key::CacheKey;
use crate::decision::cache::settling::Trust;

use crate::gateway::cache::invalidation::log::InvalidationLog;
use crate::gateway::cache::invalidation::purge::{Prefix, Purged, Purges};
use crate::gateway::cache::stored_head::{SharedLines, StoredHead};
use crate::gateway::cache::validation::{Fingerprint, Fingerprints, ValidationTimes};
use crate::gateway::url_rewrite::map::Body;

/// What the table takes for an entry: a slot (the key, the entry's address, its state and its
/// neighbours) and a place in the index (5), in tables that double when they are full and are three
/// quarters full on average.
const SLOT_BYTES: usize = (size_of::<CacheKey>() + 8 + 8 + 8 + 5) * 4 / 3;
/// The counts of references before a shared allocation.
const COUNTS_BYTES: usize = 2 * size_of::<usize>();
/// Parts of the store that are locked by themselves, at most. Ours: more than there are workers on
/// most machines.
const SHARDS_MAX: u64 = 64;
/// Each part has room for this many of the largest bodies, so that one of them does not push out
/// all the rest.
const LARGEST_PER_SHARD: u64 = 4;
/// A usual answer, to size what is remembered of the evicted ones. Ours.
const ANSWER_BYTES: u64 = 4096;

/// Headers of `Vary` that the key or the scope answers already (DESIGN D2), or that never reach the
/// upstream.
const VARY_ANSWERED: [&str; 6] =
    ["accept", "accept-encoding", "authorization", "cookie", "x-requested-with", "x-weir-key"];

/// An answer as it is kept.
pub struct Entry {
    /// The headers a client may see, the gateway's own validator among them (the same whichever
    /// token fetched the body); addresses still point upstream.
    pub head: StoredHead,
    /// The body, with the places of its URLs.
    pub body: Body,
    /// Status, validators and age.
    pub stored: Stored,
    /// When it was last confirmed.
    pub validation: ValidationTimes,
    /// What the 304 said that made it.
    pub fingerprint: Fingerprint,
    /// What it depends on beyond its key; mostly nothing.
    pub vary: Option<Box<Vary>>,
}

/// What an answer depends on, for the request that brought it (RFC 9111 §4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vary {
    /// These request headers, each with all its values.
    Headers(Box<[(HeaderName, Vec<HeaderValue>)]>),
    /// `Vary: *`: on something that cannot be known, so it answers nobody else.
    Everything,
}

impl Vary {
    /// Whether an answer that depends on this is one for another request with these headers.
    pub fn fits(&self, request: &HeaderMap) -> bool {
        match self {
            Self::Headers(headers) => {
                headers.iter().all(|(name, values)| request.get_all(name).iter().eq(values))
            }
            Self::Everything => false,
        }
    }
}

impl Entry {
    /// What its last confirmation makes of it.
    pub fn validated(&self) -> Validated<'_> {
        self.stored.validated(self.validation.validated_at(), self.validation.requested_at())
    }

    /// When the request left that brought or confirmed it: a later change makes it doubtful.
    pub fn requested_at(&self) -> Timestamp {
        self.validation.requested_at()
    }

    /// Whether it answers another request with these headers.
    pub fn fits(&self, request: &HeaderMap) -> bool {
        self.vary.as_deref().is_none_or(|vary| vary.fits(request))
    }

    /// Whether it may answer another request than the one that brought it (RFC 9111 §5.2.2.5).
    pub fn is_for_others(&self) -> bool {
        let controls = self.head.lines().filter(|(name, _)| *name == "cache-control");
        !CacheControl::of_lines(controls.map(|(_, value)| value)).no_store
    }

    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.stored.status()
    }

    /// What `Vary` makes an answer depend on.
    pub fn vary_of(answer: &HeaderMap, request: &HeaderMap) -> Option<Box<Vary>> {
        let Some(names) = vary_names(answer) else { return Some(Box::new(Vary::Everything)) };
        let further = names.into_iter().filter(|name| {
            !VARY_ANSWERED.contains(&name.as_str()) && !name.as_str().ends_with("-otp")
        });
        // Copies: the values of a request share the buffer that its whole head was read into.
        let copy = |value: &HeaderValue| {
            HeaderValue::from_bytes(value.as_bytes()).unwrap_or_else(|_| value.clone())
        };
        let headers: Box<[_]> = further
            .map(|name| (name.clone(), request.get_all(&name).iter().map(copy).collect()))
            .collect();
        (!headers.is_empty()).then(|| Box::new(Vary::Headers(headers)))
    }

    /// Bytes it takes in memory, its key and its place in the table included.
    fn memory_bytes(&self, key: &CacheKey) -> usize {
        let [repeated, own] = self.head.own_allocations();
        let [text, marks] = self.body.allocations();
        let of_vary = match self.vary.as_deref() {
            Some(Vary::Headers(headers)) => {
                let values = |values: &[HeaderValue]| {
                    values.iter().map(|value| size_of::<HeaderValue>() + value.len()).sum::<usize>()
                };
                let lines = headers.iter().map(|(_, of_name)| {
                    size_of::<(HeaderName, Vec<HeaderValue>)>() + values(of_name)
                });
                size_of::<Vary>() + lines.sum::<usize>()
            }
            Some(Vary::Everything) => size_of::<Vary>(),
            None => 0,
        };
        let parts = [
            COUNTS_BYTES + size_of::<Self>(),
            repeated,
            own,
            text,
            marks,
            self.stored.allocation(),
            of_vary,
            key.allocation(),
        ];
        SLOT_BYTES + parts.into_iter().map(allocated).sum::<usize>()
    }
}

/// What the allocator takes for an allocation of so many bytes: its size classes are a quarter of a
/// power of two apart (mimalloc), so a fifth may be lost.
fn allocated(bytes: usize) -> usize {
    bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(16))
}

/// All entries, and what changed lately.
pub struct Store {
    entries: Cache<CacheKey, Arc<Entry>, ByMemory, DefaultHashBuilder, Displaced>,
    /// Lines that many heads have.
    pub shared_lines: SharedLines,
    /// Knows 304s again.
    pub fingerprints: Fingerprints,
    purges: Purges,
    log: InvalidationLog,
    on_evicted: Box<dyn Fn(u64) + Send + Sync>,
}

/// Weighs entries by the bytes they take.
#[derive(Clone)]
struct ByMemory;

impl Weighter<CacheKey, Arc<Entry>> for ByMemory {
    fn weight(&self, key: &CacheKey, entry: &Arc<Entry>) -> u64 {
        entry.memory_bytes(key) as u64
    }
}

/// Collects what had to make room, so that it is dropped outside the lock.
#[derive(Clone)]
struct Displaced;

impl Lifecycle<CacheKey, Arc<Entry>> for Displaced {
    type RequestState = Vec<(CacheKey, Arc<Entry>)>;

    fn on_evict(&self, displaced: &mut Self::RequestState, key: CacheKey, entry: Arc<Entry>) {
        displaced.push((key, entry));
    }
}

impl Store {
    /// Empty, for at most `bytes_max`, of which one body takes up to `object_max`. `on_evicted` is
    /// told how many entries had to go.
    pub fn new(
        bytes_max: u64,
        object_max: u64,
        on_evicted: impl Fn(u64) + Send + Sync + 'static,
    ) -> Self {
        let shards =
            (bytes_max / object_max.saturating_mul(LARGEST_PER_SHARD).max(1)).clamp(1, SHARDS_MAX);
        // The next power of two is what it becomes.
        let shards = 1_usize << shards.ilog2();
        let entries = usize::try_from(bytes_max / ANSWER_BYTES).unwrap_or(usize::MAX);
        let entries = match OptionsBuilder::new()
            .shards(shards)
            .weight_capacity(bytes_max)
            .estimated_items_capacity(entries)
            .build()
        {
            Ok(options) => {
                Cache::with_options(options, ByMemory, DefaultHashBuilder::default(), Displaced)
            }
            // Only an option that is missing is an error.
            Err(_) => {
                Cache::with(entries, bytes_max, ByMemory, DefaultHashBuilder::default(), Displaced)
            }
        };
        Self {
            entries,
            shared_lines: SharedLines::default(),
            fingerprints: Fingerprints::default(),
            purges: Purges::default(),
            log: InvalidationLog::default(),
            on_evicted: Box::new(on_evicted),
        }
    }

    /// The answer to a request with these headers, and the key that it is, or is to be, kept under:
    /// the first at an address has the address's own, the others have in theirs the values of what
    /// that one depends on.
    pub fn find(&self, key: CacheKey, asked: &HeaderMap) -> (CacheKey, Option<Arc<Entry>>) {
        let Some(first) = self.get(&key) else { return (key, None) };
        let Some(Vary::Headers(headers)) = first.vary.as_deref().filter(|vary| !vary.fits(asked))
        else {
            let fits = first.fits(asked);
            return (key, fits.then_some(first));
        };
        // How many values each has tells where the next begins.
        let counts: Vec<u8> = headers
            .iter()
            .map(|(name, _)| u8::try_from(asked.get_all(name).iter().count()).unwrap_or(u8::MAX))
            .collect();
        let values =
            headers.iter().flat_map(|(name, _)| asked.get_all(name)).map(HeaderValue::as_bytes);
        let key = key.variant([counts.as_slice()].into_iter().chain(values));
        let entry = self.get(&key).filter(|entry| entry.fits(asked));
        (key, entry)
    }

    /// The entry under this key, whoever may use it.
    pub fn get(&self, key: &CacheKey) -> Option<Arc<Entry>> {
        self.entries.get(key)
    }

    /// Keeps an answer, unless what is kept was asked for later: an answer may be on its way for
    /// long, and shows what was so when its request left.
    pub fn put(&self, key: CacheKey, entry: Arc<Entry>) {
        if self.has_newer(&key, entry.requested_at()) {
            return;
        }
        let (mut displaced, own) = (Vec::new(), key.clone());
        self.entries.insert_with_lifecycle(key, entry, &mut displaced);
        // What it replaces, and itself when it is too large, is not evicted.
        let evicted = displaced.iter().filter(|(other, _)| *other != own).count();
        if evicted > 0 {
            (self.on_evicted)(evicted as u64);
        }
    }

    /// Drops what is under this key, unless it was asked for later than at `requested_at`.
    pub fn remove(&self, key: &CacheKey, requested_at: Timestamp) {
        if !self.has_newer(key, requested_at) {
            self.entries.remove(key);
        }
    }

    /// Two that land in the same instant may both find nothing newer. Then the later one of them to
    /// be kept is, and the next to ask has it confirmed.
    fn has_newer(&self, key: &CacheKey, requested_at: Timestamp) -> bool {
        self.entries.peek(key).is_some_and(|kept| kept.requested_at() > requested_at)
    }

    /// `path` changed, or may have changed, at `now`: what was asked for before is doubtful, with
    /// any query and for everyone.
    pub fn written(&self, path: &str, now: Timestamp) {
        self.log.changed(path, now);
    }

    /// `prefix` and all paths below it changed, or may have changed, at `now`; `/`: all that is
    /// stored. It ends with a whole segment.
    pub fn invalidate_prefix(&self, prefix: &str, now: Timestamp) {
        self.log.changed_below(prefix, now);
    }

    /// How far an answer to `path` (without query) may be trusted whose request left at
    /// `requested_at`.
    pub fn trust(&self, path: &str, requested_at: Timestamp) -> Trust {
        if self.purges.covers(path, requested_at) {
            return Trust::Invalidated;
        }
        self.trust_by_changes(path, requested_at)
    }

    /// The same but for purges, after which the upstream's answers mean what they meant before.
    pub fn trust_by_changes(&self, path: &str, requested_at: Timestamp) -> Trust {
        Trust::after(self.log.last_change(path, requested_at), requested_at)
    }

    /// Takes out what begins so. One part of the store after the other is locked meanwhile, each
    /// for as long as its own entries take.
    pub fn purge(&self, prefix: &Prefix, now: Timestamp) -> Purged {
        let (entries, bytes) = (Cell::new(0), Cell::new(0));
        // First: an answer that lands meanwhile is doubtful, whether it is found below or not.
        self.purges.note(prefix.clone(), now);
        self.entries.retain(|key, entry| {
            let goes = prefix.begins(key.path_and_query());
            if goes {
                entries.set(entries.get() + 1);
                bytes.set(bytes.get() + entry.memory_bytes(key) as u64);
            }
            !goes
        });
        Purged { entries: entries.get(), bytes: bytes.get() }
    }

    /// Shows every key with the bytes of its entry.
    pub fn each(&self, mut show: impl FnMut(&CacheKey, u64)) {
        for (key, entry) in self.entries.iter() {
            show(&key, entry.memory_bytes(&key) as u64);
        }
    }

    /// Entries and their bytes, for the metrics.
    pub fn size(&self) -> (u64, u64) {
        (self.entries.len() as u64, self.entries.weight())
    }
}

/// The gateway's validator of an answer: the same for every token and every replica. Weak, because
/// each client gets its own addresses in the body. It stands for the links to other pages as well:
/// who holds the page and is told that it has not changed goes on believing that no page comes
/// after it.
pub fn etag_of(body: &[u8], headers: &HeaderMap) -> Option<HeaderValue> {
    let mut digest = ring::digest::Context::new(&ring::digest::SHA256);
    digest.update(body);
    for link in headers.get_all(header::LINK) {
        // No JSON has it, so that no body can pass for another one with links.
        digest.update(&[0]);
        digest.update(link.as_bytes());
    }
    let digest = digest.finish();
    let hex = digest.as_ref()[..16].iter().fold(String::with_capacity(36), |mut text, byte| {
        use std::fmt::Write;
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    });
    HeaderValue::from_str(&format!("W/\"{hex}\"")).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::decision::cache::key::{Accept, Scope};

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
                _ = count.fetch_add(entries, Ordering::Relaxed)
            }),
            evicted,
        )
    }

    #[test]
    fn an_entry_weighs_what_it_takes() {
        let (store, _) = store(1 << 20);
        store.put(key(Scope::Public, "/a"), entry(&store, 2048));
        let (entries, bytes) = store.size();
        assert_eq!(entries, 1);
        assert!((2048 + 250..2048 + 500).contains(&bytes), "{bytes}");
        // Two counts before it, and no more than a size class of the allocator.
        assert!(size_of::<Entry>() + COUNTS_BYTES <= 192, "{}", size_of::<Entry>());
    }

    #[test]
    fn what_makes_room_is_counted_as_evicted_and_what_is_replaced_is_not() {
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
    fn a_purge_takes_out_what_begins_so_of_every_view_and_nothing_else() {
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
