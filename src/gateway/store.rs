//! The stored answers in memory, weighed by their bytes (DESIGN D1–D3); a second level shared between replicas would stand behind this one.
//!
//! An entry never changes: a confirmation stores a new one that shares its body. When an entry may be used is decided by `decision/freshness.rs`.

use std::sync::Arc;

use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};

use crate::clock::Timestamp;
use crate::decision::cache_key::CacheKey;
use crate::decision::freshness::Stored;
use crate::decision::freshness::cache_control::vary_names;
use crate::decision::freshness::settling::Trust;

use super::doubt::Doubt;
use super::head::{SharedLines, StoredHead};
use super::rewrite::Body;

/// What the table takes for an entry: its slot (48 bytes) and its place in the index (5), in tables that double when they are full and are three quarters full on
/// average.
const SLOT_BYTES: usize = 72;
/// The counts of references before a shared allocation.
const COUNTS_BYTES: usize = 2 * size_of::<usize>();
/// Parts of the store that are locked by themselves, at most. Ours: more than there are workers on most machines.
const SHARDS_MAX: u64 = 64;
/// Each part has room for this many of the largest bodies, so that one of them does not push out all the rest.
const LARGEST_PER_SHARD: u64 = 4;
/// A usual answer, to size what is remembered of the evicted ones. Ours.
const ANSWER_BYTES: u64 = 4096;

/// Headers of `Vary` that the key or the scope answers already (DESIGN D2), or that never reach the upstream.
const VARY_ANSWERED: [&str; 7] =
    ["accept", "accept-encoding", "authorization", "cookie", "x-service-api-version", "x-github-api-version", "x-requested-with"];

/// An answer as it is kept.
pub struct Entry {
    /// The status.
    pub status: StatusCode,
    /// The headers a client may see, the gateway's own validator among them (the same whichever token fetched the body); addresses still point upstream.
    pub head: StoredHead,
    /// The body, with the places of its URLs.
    pub body: Body,
    /// Validators and age.
    pub stored: Stored,
    /// When the request left that brought or confirmed it: a later write makes it doubtful.
    pub requested_at: Timestamp,
    /// What it depends on beyond its key.
    pub vary: Vary,
}

/// What an answer depends on, for the request that brought it (RFC 9111 §4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vary {
    /// These request headers, each with all its values.
    Headers(Box<[(HeaderName, Vec<HeaderValue>)]>),
    /// `Vary: *`: on something that cannot be known, so it answers nobody else.
    Everything,
}

impl Entry {
    /// Whether it answers another request with these headers.
    pub fn fits(&self, request: &HeaderMap) -> bool {
        match &self.vary {
            Vary::Headers(headers) => headers.iter().all(|(name, values)| request.get_all(name).iter().eq(values)),
            Vary::Everything => false,
        }
    }

    /// What `Vary` makes an answer depend on.
    pub fn vary_of(answer: &HeaderMap, request: &HeaderMap) -> Vary {
        let Some(names) = vary_names(answer) else { return Vary::Everything };
        let further = names.into_iter().filter(|name| !VARY_ANSWERED.contains(&name.as_str()) && !name.as_str().ends_with("-otp"));
        Vary::Headers(further.map(|name| (name.clone(), request.get_all(&name).iter().cloned().collect())).collect())
    }

    /// Bytes it takes in memory, its key and its place in the table included.
    fn memory_bytes(&self, key: &CacheKey) -> usize {
        let [repeated, own] = self.head.own_allocations();
        let [text, marks] = self.body.allocations();
        let of_vary = match &self.vary {
            Vary::Headers(headers) => headers.len() * size_of::<(HeaderName, Vec<HeaderValue>)>(),
            Vary::Everything => 0,
        };
        let parts = [COUNTS_BYTES + size_of::<Self>(), repeated, own, text, marks, self.stored.allocation(), of_vary, key.allocation()];
        SLOT_BYTES + parts.into_iter().map(allocated).sum::<usize>()
    }
}

/// What the allocator takes for an allocation of so many bytes: its size classes are a quarter of a power of two apart (mimalloc), so a fifth may be lost.
fn allocated(bytes: usize) -> usize {
    bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(16))
}

/// All entries, and what changed lately.
pub struct Store {
    entries: Cache<CacheKey, Arc<Entry>, ByMemory, DefaultHashBuilder, Displaced>,
    /// Lines that many heads have.
    pub shared_lines: SharedLines,
    doubt: Doubt,
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
    /// Empty, for at most `bytes_max`, of which one body takes up to `object_max`. `on_evicted` is told how many entries had to go.
    pub fn new(bytes_max: u64, object_max: u64, on_evicted: impl Fn(u64) + Send + Sync + 'static) -> Self {
        let shards = (bytes_max / object_max.saturating_mul(LARGEST_PER_SHARD).max(1)).clamp(1, SHARDS_MAX);
        // The next power of two is what it becomes.
        let shards = 1_usize << shards.ilog2();
        let entries = usize::try_from(bytes_max / ANSWER_BYTES).unwrap_or(usize::MAX);
        let entries = match OptionsBuilder::new().shards(shards).weight_capacity(bytes_max).estimated_items_capacity(entries).build() {
            Ok(options) => Cache::with_options(options, ByMemory, DefaultHashBuilder::default(), Displaced),
            // Only an option that is missing is an error.
            Err(_) => Cache::with(entries, bytes_max, ByMemory, DefaultHashBuilder::default(), Displaced),
        };
        Self { entries, shared_lines: SharedLines::default(), doubt: Doubt::default(), on_evicted: Box::new(on_evicted) }
    }

    /// The entry under this key, whoever may use it.
    pub fn get(&self, key: &CacheKey) -> Option<Arc<Entry>> {
        self.entries.get(key)
    }

    /// Keeps an answer.
    pub fn put(&self, key: CacheKey, entry: Arc<Entry>) {
        let mut displaced = Vec::new();
        self.entries.insert_with_lifecycle(key.clone(), entry, &mut displaced);
        // What it replaces, and itself when it is too large, is not evicted.
        let evicted = displaced.iter().filter(|(other, _)| *other != key).count();
        if evicted > 0 {
            (self.on_evicted)(evicted as u64);
        }
    }

    /// Drops what is under this key.
    pub fn remove(&self, key: &CacheKey) {
        self.entries.remove(key);
    }

    /// `path` changed, or may have changed, at `now`: what was asked for before is doubtful, with any query and for everyone.
    pub fn written(&self, path: &str, now: Timestamp) {
        self.doubt.changed(path, now);
    }

    /// `prefix` and all paths below it changed, or may have changed, at `now`; `/`: all that is stored. It ends with a whole segment.
    pub fn make_doubtful_below(&self, prefix: &str, now: Timestamp) {
        self.doubt.changed_below(prefix, now);
    }

    /// How far an answer to `path` (without query) may be trusted whose request left at `requested_at`.
    pub fn trust(&self, path: &str, requested_at: Timestamp) -> Trust {
        Trust::after(self.doubt.last_change(path, requested_at), requested_at)
    }

    /// Entries and their bytes, for the metrics.
    pub fn size(&self) -> (u64, u64) {
        (self.entries.len() as u64, self.entries.weight())
    }
}

/// The gateway's validator of a body: the same for every token and every replica. Weak, because each client gets its own addresses in the body.
pub fn etag_of(body: &[u8]) -> Option<HeaderValue> {
    let digest = ring::digest::digest(&ring::digest::SHA256, body);
    let hex = digest.as_ref()[..16].iter().fold(String::with_capacity(36), |mut text, byte| {
        use std::fmt::Write;
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    });
    HeaderValue::from_str(&format!("W/\"{hex}\"")).ok()
}

/// Whether a body is JSON that can be read, and so may hold URLs to rewrite.
pub fn is_json(headers: &HeaderMap) -> bool {
    !headers.contains_key(header::CONTENT_ENCODING) && has_json_type(headers)
}

/// Whether a body is JSON, encoded or not.
pub fn has_json_type(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}
