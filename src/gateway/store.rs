//! The stored answers in memory, weighed by their bytes (DESIGN D1–D3); a second level shared between replicas would stand behind this one.
//!
//! An entry never changes: a confirmation stores a new one that shares its body. When an entry may be used is decided by `decision/freshness.rs`.

use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use moka::sync::Cache;

use crate::clock::Timestamp;
use crate::decision::cache_key::CacheKey;
use crate::decision::freshness::Stored;
use crate::decision::freshness::cache_control::vary_names;

use super::rewrite::Body;

/// What an entry takes beside its key, headers and body: the struct itself, two reference counts, and the table's own slot (moka's documentation puts it at
/// about 150 bytes).
const ENTRY_OVERHEAD_BYTES: usize = size_of::<Entry>() + 200;
/// How many written paths are remembered; one that is forgotten early would leave an entry fresh, so the bound is far above what is written within a ttl.
const WRITTEN_PATHS_MAX: u64 = 100_000;
/// Longer than any sensible ttl of a rule.
const WRITTEN_PATHS_KEPT: Duration = Duration::from_secs(24 * 3600);

/// Headers of `Vary` that the key or the scope answers already (DESIGN D2), or that never reach the upstream.
const VARY_ANSWERED: [&str; 7] =
    ["accept", "accept-encoding", "authorization", "cookie", "x-service-api-version", "x-github-api-version", "x-requested-with"];

/// An answer as it is kept.
pub struct Entry {
    /// The status.
    pub status: StatusCode,
    /// The headers a client may see; addresses in them still point upstream.
    pub headers: HeaderMap,
    /// The body, with the places of its URLs.
    pub body: Body,
    /// The gateway's own validator, the same whichever token fetched the body.
    pub etag: Option<HeaderValue>,
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

    fn memory_bytes(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 64).sum();
        ENTRY_OVERHEAD_BYTES + headers + self.body.memory_bytes()
    }
}

/// All entries, and the paths that were written lately.
pub struct Store {
    entries: Cache<CacheKey, Arc<Entry>>,
    written: Cache<Box<str>, Timestamp>,
}

impl Store {
    /// Empty, for at most `bytes_max`. `on_evicted` is told of each entry that had to go.
    pub fn new(bytes_max: u64, on_evicted: impl Fn() + Send + Sync + 'static) -> Self {
        let entries = Cache::builder()
            .max_capacity(bytes_max)
            .weigher(|key: &CacheKey, entry: &Arc<Entry>| u32::try_from(key.bytes() + entry.memory_bytes()).unwrap_or(u32::MAX))
            .eviction_listener(move |_, _, cause| {
                if cause.was_evicted() {
                    on_evicted();
                }
            })
            .build();
        let written = Cache::builder().max_capacity(WRITTEN_PATHS_MAX).time_to_live(WRITTEN_PATHS_KEPT).build();
        Self { entries, written }
    }

    /// The entry under this key, whoever may use it.
    pub fn get(&self, key: &CacheKey) -> Option<Arc<Entry>> {
        self.entries.get(key)
    }

    /// Keeps an answer.
    pub fn put(&self, key: CacheKey, entry: Arc<Entry>) {
        self.entries.insert(key, entry);
    }

    /// Drops what is under this key.
    pub fn remove(&self, key: &CacheKey) {
        self.entries.invalidate(key);
    }

    /// A write to `path` ended, or may have been executed, at `now`: what was asked for before is doubtful, with any query and for everyone.
    pub fn written(&self, path: &str, now: Timestamp) {
        self.written.insert(path.into(), now);
    }

    /// Whether what was asked for at `requested_at` may show a state from before a write to `path` (without query).
    pub fn is_doubtful(&self, path: &str, requested_at: Timestamp) -> bool {
        self.written.get(path).is_some_and(|at| at >= requested_at)
    }

    /// Entries and their bytes, for the metrics.
    pub fn size(&self) -> (u64, u64) {
        self.entries.run_pending_tasks();
        (self.entries.entry_count(), self.entries.weighted_size())
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
