//! Gzip for clients that accept it (RFC 9110 §8.4, §12.5.3). The compressed forms are cached, each
//! for a text and the client's address in it, so that a hit compresses nothing.
//!
//! The upstream is always asked for plain text (`headers.rs`). Left out: streamed and partial
//! bodies, the gateway's own short answers, and other codings, because every client library with
//! compression accepts gzip.

use std::hash::Hash;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header;
use moka::Equivalent;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::decision::cache::request_directives::RequestDirectives;
use crate::gateway::cache::bounded::BoundedCache;
use crate::gateway::cache::store::Entry;
use crate::gateway::environment::Environment;
use crate::gateway::http::content_coding::{ContentCodings, accepts_gzip};
use crate::gateway::response::form::{Form, is_not_modified};
use crate::gateway::url_rewrite::map::{Body, Origin};
use crate::gateway::url_rewrite::rendering::Rendering;

/// Shorter texts stay plain. Chosen here: with the service's usual head, a shorter answer fits into
/// one packet, so compression saves no time.
const TEXT_BYTES_MIN: usize = 1024;
/// Longer texts are compressed off the serving threads. Chosen here: a fifth of a millisecond.
const INLINE_BYTES_MAX: usize = 64 * 1024;
/// The level of zlib-ng. A list of a hundred issues (149 kB) takes 310 µs and shrinks to 10.8 kB.
/// Level 1: 200 µs, 14.2 kB. Level 6: 690 µs, 7.9 kB.
const LEVEL: u32 = 2;
/// The compressed forms' memory as a divisor of the cache's memory. Each form also counts its text,
/// which is about seven times as long.
const SHARE_OF_CACHE: u64 = 8;
/// Overhead of a form: its key with an address of usual length, and its slot.
const FORM_BYTES: usize = 500;

struct CompressedForm {
    /// `None` if compression does not shorten it.
    bytes: Option<Bytes>,
    /// Keeps the source text alive, so that no other text gets its memory address.
    text: Bytes,
}

/// The bytes of a form, counted while the cache or a client has them.
struct Counted {
    bytes: Box<[u8]>,
    live: Arc<AtomicU64>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.live.fetch_sub(self.bytes.len() as u64, Ordering::Relaxed);
    }
}

impl CompressedForm {
    fn of(rendering: Rendering, text: Bytes, live: &Arc<AtomicU64>) -> Self {
        let rendered_bytes = rendering.bytes_left();
        // Writing to memory does not fail.
        let bytes = gzip(rendering).ok().filter(|bytes| bytes.len() < rendered_bytes);
        let bytes = bytes.map(|bytes| {
            live.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            let (bytes, live) = (bytes.into_boxed_slice(), Arc::clone(live));
            Bytes::from_owner(Counted { bytes, live })
        });
        Self { bytes, text }
    }

    fn memory_bytes(&self) -> usize {
        FORM_BYTES + self.text.len() + self.bytes.as_ref().map_or(0, Bytes::len)
    }

    fn sent(&self) -> Sent {
        self.bytes.clone().map_or(Sent::Identity, Sent::Gzip)
    }
}

fn gzip(mut rendering: Rendering) -> io::Result<Vec<u8>> {
    let buffer = Vec::with_capacity(rendering.bytes_left() / 4);
    let mut encoder = GzEncoder::new(buffer, Compression::new(LEVEL));
    let mut piece = Vec::new();
    while rendering.bytes_left() > 0 {
        piece.clear();
        rendering.fill(&mut piece, INLINE_BYTES_MAX);
        encoder.write_all(&piece)?;
    }
    encoder.finish()
}

pub enum Sent {
    Identity,
    Gzip(Bytes),
    /// It must be compressed first, off the serving threads.
    Later,
}

pub struct CompressedForms {
    kept: BoundedCache<Key, Arc<CompressedForm>>,
    /// Bounds the compressions off the serving threads.
    background: Semaphore,
    /// Bytes of all forms that the cache or a client has.
    live: Arc<AtomicU64>,
    /// The bound of `live`, for long texts: a slow client keeps its form when the cache drops it.
    live_max: u64,
}

/// A text by its memory address, and the client's address if the text depends on it.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    at: usize,
    length: usize,
    origin: Option<Origin>,
}

/// The borrowed form of [`Key`] for lookups.
#[derive(Hash)]
struct KeyRef<'o> {
    at: usize,
    length: usize,
    origin: Option<&'o Origin>,
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        (self.at, self.length, self.origin) == (key.at, key.length, key.origin.as_ref())
    }
}

impl<'o> KeyRef<'o> {
    fn of(body: &Body, origin: &'o Origin) -> Self {
        let text = body.text();
        let origin = (!body.is_alike_for_all()).then_some(origin);
        Self { at: text.as_ptr().addr(), length: text.len(), origin }
    }
}

/// True if the answer has several forms. Depends on the answer, not on the request.
pub fn is_negotiated(entry: &Entry) -> bool {
    entry.head.codings != ContentCodings::IdentityOnly && entry.body.text().len() >= TEXT_BYTES_MIN
}

impl CompressedForms {
    /// Sizes the cache beside an answer cache of `cache_bytes`.
    pub fn new(cache_bytes: u64) -> Self {
        let bytes_max = cache_bytes / SHARE_OF_CACHE;
        let weigh = |_: &Key, form: &Arc<CompressedForm>| form.memory_bytes();
        let kept = BoundedCache::new(bytes_max, weigh, |_, _| {});
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        // The others serve those who do not wait for a compression.
        let background = Semaphore::new((processors / 2).max(1));
        // The cache alone never has as much: no form is longer than its text, and both count there.
        let live_max = bytes_max / 2;
        Self { kept, background, live: Arc::default(), live_max }
    }

    /// Drops all forms, so that a purge leaves nothing behind.
    pub fn forget(&self) {
        self.kept.remove_if(|_| true);
    }

    fn get(&self, body: &Body, origin: &Origin) -> Option<Sent> {
        self.kept.get(&KeyRef::of(body, origin)).map(|form| form.sent())
    }

    fn keep(&self, body: &Body, origin: &Origin, form: CompressedForm) -> Sent {
        let sent = form.sent();
        let KeyRef { at, length, origin } = KeyRef::of(body, origin);
        self.kept.insert(Key { at, length, origin: origin.cloned() }, Arc::new(form));
        sent
    }

    /// Chooses the form of a whole body for this client.
    pub fn sent(&self, env: &Environment, entry: &Entry, form: &Form<'_>) -> Sent {
        let (body, origin) = (&entry.body, form.origin);
        // RFC 9111 §5.2.1.6. The cheapest test comes first.
        if !is_negotiated(entry)
            || !accepts_gzip(form.headers)
            || RequestDirectives::of(form.headers, env.mode).no_transform
        {
            return Sent::Identity;
        }
        if let Some(sent) = self.get(body, origin) {
            return sent;
        }
        if body.text().len() > INLINE_BYTES_MAX {
            return Sent::Later;
        }
        let rendering = env.urls.rendering(body, origin);
        let made = CompressedForm::of(rendering, body.shared_text(), &self.live);
        self.keep(body, origin, made)
    }

    /// The same, but waits for a compression. `None`: plain text, or no whole body is sent.
    pub async fn gzipped(
        &self,
        env: &Environment,
        entry: &Entry,
        form: &Form<'_>,
    ) -> Option<Bytes> {
        if form.headers.contains_key(header::RANGE) || is_not_modified(entry, form.headers) {
            return None;
        }
        let sent = match self.sent(env, entry, form) {
            Sent::Later => self.compress_in_background(env, &entry.body, form.origin).await?,
            sent => sent,
        };
        if let Sent::Gzip(bytes) = sent { Some(bytes) } else { None }
    }

    async fn compress_in_background(
        &self,
        env: &Environment,
        body: &Body,
        origin: &Origin,
    ) -> Option<Sent> {
        let _turn = self.background.acquire().await.ok()?;
        // Another task may have compressed the same text meanwhile.
        if let Some(sent) = self.get(body, origin) {
            return Some(sent);
        }
        if self.live.load(Ordering::Relaxed) >= self.live_max {
            return Some(Sent::Identity);
        }
        let (rendering, text) = (env.urls.rendering(body, origin), body.shared_text());
        let live = Arc::clone(&self.live);
        let made = spawn_blocking(move || CompressedForm::of(rendering, text, &live)).await.ok()?;
        Some(self.keep(body, origin, made))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::address::Root;

    fn origin(base: &str) -> Origin {
        Origin { base: base.to_owned(), root: Root::Plain }
    }

    fn form(text: Bytes, forms: &CompressedForms) -> CompressedForm {
        CompressedForm::of(Rendering::opaque(text.clone()), text, &forms.live)
    }

    #[test]
    fn a_form_is_found_only_for_the_text_it_was_made_of() {
        let forms = CompressedForms::new(1 << 20);
        let [one, same] = [(); 2].map(|()| Body::opaque(vec![b'x'; 4096].into()));
        forms.keep(&one, &origin("a"), form(one.shared_text(), &forms));
        assert!(forms.get(&one.clone(), &origin("b")).is_some(), "it is alike for all");
        assert!(forms.get(&same, &origin("a")).is_none());
        // A kept form keeps its text alive, so its address is not reused.
        let at = one.text().as_ptr();
        drop(one);
        let later: Vec<_> = (0..64).map(|_| Body::opaque(vec![b'y'; 4096].into())).collect();
        assert!(
            later
                .iter()
                .all(|body| body.text().as_ptr() != at && forms.get(body, &origin("a")).is_none())
        );
        forms.forget();
        assert_eq!(forms.kept.size(), (0, 0));
    }

    #[test]
    fn a_text_with_urls_has_a_form_for_each_client_address() {
        let urls = crate::gateway::url_rewrite::map::UrlMap::new(
            "https://api.example.com",
            "https://api.example.com/graphql",
            "https://uploads.example.com",
        );
        let body =
            urls.with_url_offsets(Bytes::from_static(b"{\"url\":\"https://api.example.com/a\"}"));
        let forms = CompressedForms::new(1 << 20);
        forms.keep(&body, &origin("http://a"), form(body.shared_text(), &forms));
        assert!(
            forms.get(&body, &origin("http://a")).is_some()
                && forms.get(&body, &origin("http://b")).is_none()
        );
    }

    #[test]
    fn forms_are_bounded_and_incompressible_text_stays_plain() {
        let forms = CompressedForms::new(1 << 20);
        for _ in 0..100 {
            let body = Body::opaque(vec![b'x'; 4096].into());
            forms.keep(&body, &origin("a"), form(body.shared_text(), &forms));
        }
        let (kept, bytes) = forms.kept.size();
        assert!(bytes <= 1 << 17 && kept > 10);
        let noise = ring::digest::digest(&ring::digest::SHA512, b"noise");
        let noise = Bytes::copy_from_slice(noise.as_ref());
        assert!(matches!(form(noise, &forms).sent(), Sent::Identity));
        // Removed values are dropped some steps later.
        let is_empty = || forms.live.load(Ordering::Relaxed) == 0;
        assert!((0..100_000).any(|_| {
            forms.forget();
            std::thread::yield_now();
            is_empty()
        }));
    }
}
