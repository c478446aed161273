//! The head of a stored answer in wire format: a hit copies lines and builds nothing.
//!
//! Most lines repeat in thousands of answers (caching, scripts, frames); those blocks are stored
//! once. Left out: headers made for each answer (lengths, rate headers, gateway headers).
//! URLs are stored apart and unrewritten.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::ops::Deref;
use std::sync::Arc;

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;

use crate::decision::cache::time::http_date::PackedDate;
use crate::gateway::http::content_coding::ContentCodings;
use crate::gateway::http::content_etag::ContentETag;
use crate::gateway::http::head_writer::{Fields, append_to, lines, push_line};

/// Headers with values that repeat between answers; the others are stored per entry. `Content-Type`
/// comes first, because a 304 omits it.
const REPEATED: [&str; 21] = [
    "content-type",
    "accept-ranges",
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
    "access-control-expose-headers",
    "cache-control",
    "content-language",
    "content-security-policy",
    "permissions-policy",
    "referrer-policy",
    "server",
    "vary",
    "x-accepted-github-permissions",
    "x-accepted-service-permissions",
    "x-content-type-options",
    "x-frame-options",
    "x-github-media-type",
    "x-service-media-type",
    "x-xss-protection",
];
/// Repeats too: the header with the API version of the answer.
const REPEATED_SUFFIX: &str = "-api-version-selected";

/// Rewritten for each client.
const ADDRESSES: [HeaderName; 3] = [header::LINK, header::LOCATION, header::CONTENT_LOCATION];

/// Made for each answer, or passed to [`StoredHead::new`]. `headers.rs` removes most earlier.
const PER_ANSWER: [&str; 10] = [
    "age",
    "cache-status",
    "connection",
    "content-length",
    "etag",
    "server-timing",
    "transfer-encoding",
    "x-from-cache",
    "x-request-id",
    "x-weir-account",
];

/// The limits of shared blocks and of the longest one. Chosen here: an API has a few dozen. Their
/// total of at most 1 MiB is not weighed.
const SHARED_MAX: usize = 512;
const SHARED_BYTES_MAX: usize = 2048;

#[derive(Clone, Debug)]
pub struct StoredHead {
    repeated: Block,
    /// The digest of its [`ContentETag`], its own lines, then those with URLs.
    own: Box<[u8]>,
    addresses_at: u32,
    /// False if it has no `ETag`, or another one in a line.
    has_content_etag: bool,
    /// The `Last-Modified`, which is no line if it has the preferred format. A line is eleven times
    /// as long.
    modified: Option<PackedDate>,
    /// Bytes of the `Content-Type`, at the beginning of `repeated`.
    type_bytes: u16,
    is_shared: bool,
    /// True if the `Date` of the upstream is stored; else an answer has that of the present.
    pub has_date: bool,
    pub codings: ContentCodings,
}

/// The bounded set of shared blocks; further blocks stay with their entry.
#[derive(Default)]
pub struct SharedLines(Mutex<HashSet<Block>>);

/// A block of repeated lines. A thin pointer, because every entry has one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Block(Arc<Box<[u8]>>);

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Block {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl Block {
    fn new(lines: &[u8]) -> Self {
        Self(Arc::new(lines.into()))
    }

    /// Bytes on the heap, in two allocations.
    fn bytes(&self) -> usize {
        self.len() + 2 * size_of::<usize>() + size_of::<Box<[u8]>>()
    }
}

impl StoredHead {
    /// Stores the headers that reach clients. `etag` is the clients' validator.
    pub fn new(headers: &HeaderMap, etag: Option<&HeaderValue>, shared: &SharedLines) -> Self {
        let (mut repeated, mut own, mut addresses) =
            (Vec::with_capacity(1024), Vec::with_capacity(512), Vec::new());
        for value in headers.get_all(header::CONTENT_TYPE) {
            push_line(&mut repeated, header::CONTENT_TYPE.as_str(), value.as_bytes());
        }
        let type_bytes = u16::try_from(repeated.len()).unwrap_or(0);
        let mut dates = headers.get_all(header::LAST_MODIFIED).iter();
        let only = dates.next().filter(|_| dates.next().is_none());
        let modified = only.and_then(|date| PackedDate::of(date.as_bytes()));
        let content_etag = etag.and_then(|etag| ContentETag::packed(etag.as_bytes()));
        if let Some(etag) = &content_etag {
            own.extend_from_slice(etag.bytes());
        } else if let Some(etag) = etag {
            push_line(&mut own, header::ETAG.as_str(), etag.as_bytes());
        }
        for (name, value) in headers {
            let text = name.as_str();
            let is_packed = *name == header::LAST_MODIFIED && modified.is_some();
            if PER_ANSWER.contains(&text) || *name == header::CONTENT_TYPE || is_packed {
                continue;
            }
            let lines = if ADDRESSES.contains(name) {
                &mut addresses
            } else if REPEATED.contains(&text) || text.ends_with(REPEATED_SUFFIX) {
                &mut repeated
            } else {
                &mut own
            };
            push_line(lines, text, value.as_bytes());
        }
        let addresses_at = u32::try_from(own.len()).unwrap_or(u32::MAX);
        own.extend_from_slice(&addresses);
        let (repeated, is_shared) = shared.one_of(&repeated);
        // Not `into_boxed_slice`: a shrink in place keeps the larger size class.
        let own = own.as_slice().into();
        Self {
            repeated,
            own,
            addresses_at,
            has_content_etag: content_etag.is_some(),
            modified,
            type_bytes,
            is_shared,
            has_date: headers.contains_key(header::DATE),
            codings: ContentCodings::of(headers, etag),
        }
    }

    /// The lines that are equal for all clients; the `ETag` and `Last-Modified` that are no lines,
    /// URLs and per-answer headers follow them.
    pub fn wire(&self) -> [&[u8]; 2] {
        [&self.repeated, self.without_addresses()]
    }

    /// The same for a 304, without the description of the body.
    pub fn wire_not_modified(&self) -> [&[u8]; 2] {
        [
            self.repeated.get(usize::from(self.type_bytes)..).unwrap_or_default(),
            self.without_addresses(),
        ]
    }

    /// The `ETag` that is no line.
    pub fn content_etag(&self) -> Option<ContentETag> {
        self.own.first_chunk().filter(|_| self.has_content_etag).map(ContentETag::from_bytes)
    }

    /// The `Last-Modified` that is no line.
    pub fn modified(&self) -> Option<[u8; PackedDate::LENGTH]> {
        self.modified.map(PackedDate::text)
    }

    /// The lines with URLs, unrewritten: `Link`, `Location`, `Content-Location`.
    pub fn addresses(&self) -> impl Iterator<Item = (&str, &[u8])> {
        lines(self.own.get(self.addresses_at as usize..).unwrap_or_default())
    }

    pub fn addresses_map(&self) -> HeaderMap {
        let known = |name: &str| ADDRESSES.iter().find(|known| known.as_str() == name).cloned();
        self.addresses()
            .filter_map(|(name, value)| Some((known(name)?, HeaderValue::from_bytes(value).ok()?)))
            .collect()
    }

    pub fn lines(&self) -> impl Iterator<Item = (&str, &[u8])> {
        lines(&self.repeated).chain(lines(self.own_lines()))
    }

    /// The first value of a name in lower case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.lines().find(|(line, _)| *line == name).map(|(_, value)| value)
    }

    pub fn etag(&self) -> Option<HeaderValue> {
        let line = || lines(self.own_lines()).find(|(name, _)| *name == "etag");
        let given = || HeaderValue::from_bytes(line()?.1).ok();
        self.content_etag().map(HeaderValue::from).or_else(given)
    }

    pub fn to_map(&self) -> HeaderMap {
        let mut map = HeaderMap::new();
        append_to(&mut map, [&self.repeated, self.own_lines()]);
        if let Some(etag) = self.content_etag() {
            map.insert(header::ETAG, etag.into());
        }
        if let Some(date) = self.modified() {
            map.set(header::LAST_MODIFIED.as_str(), &date);
        }
        map
    }

    /// True if all these headers are stored with the same values; per-answer ones are ignored.
    pub fn contains_all(&self, headers: &HeaderMap) -> bool {
        headers.keys().filter(|name| !PER_ANSWER.contains(&name.as_str())).all(|name| {
            if *name == header::LAST_MODIFIED
                && let Some(date) = self.modified()
            {
                return headers.get_all(name).iter().all(|new| new.as_bytes() == date);
            }
            let stored = self.lines().filter(|(line, _)| *line == name.as_str());
            headers
                .get_all(name)
                .iter()
                .map(HeaderValue::as_bytes)
                .eq(stored.map(|(_, value)| value))
        })
    }

    pub fn own_allocations(&self) -> [usize; 2] {
        [if self.is_shared { 0 } else { self.repeated.bytes() }, self.own.len()]
    }

    fn without_addresses(&self) -> &[u8] {
        self.own.get(self.lines_at()..self.addresses_at as usize).unwrap_or_default()
    }

    fn own_lines(&self) -> &[u8] {
        self.own.get(self.lines_at()..).unwrap_or_default()
    }

    fn lines_at(&self) -> usize {
        if self.has_content_etag { ContentETag::BYTES } else { 0 }
    }
}

impl SharedLines {
    /// Returns the block with this text; true if it is shared.
    fn one_of(&self, block: &[u8]) -> (Block, bool) {
        if block.len() > SHARED_BYTES_MAX {
            return (Block::new(block), false);
        }
        let mut known = self.0.lock();
        if let Some(known) = known.get(block) {
            return (known.clone(), true);
        }
        if known.len() >= SHARED_MAX {
            known.retain(|block| Arc::strong_count(&block.0) > 1);
        }
        let made = Block::new(block);
        let has_room = known.len() < SHARED_MAX && known.insert(made.clone());
        (made, has_room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    const DATE: (&str, &str) = ("last-modified", "Tue, 01 Jul 2025 00:00:00 GMT");
    const ANSWER: [(&str, &str); 8] = [
        ("vary", "Accept"),
        DATE,
        ("link", "<https://api.example.com/a?page=2>; rel=\"next\""),
        ("content-type", "application/json"),
        ("x-empty", ""),
        ("link", "<https://api.example.com/a?page=9>; rel=\"last\""),
        ("x-api-version-selected", "2022-11-28"),
        ("vary", "Authorization"),
    ];

    fn head(pairs: &[(&'static str, &'static str)]) -> StoredHead {
        StoredHead::new(
            &map(pairs),
            Some(&HeaderValue::from_static("W/\"a\"")),
            &SharedLines::default(),
        )
    }

    #[test]
    fn a_stored_head_returns_its_headers_and_the_gateways_etag() {
        let mut expected = map(&ANSWER);
        expected.insert("etag", HeaderValue::from_static("W/\"a\""));
        assert_eq!(head(&ANSWER).to_map(), expected);
        assert_eq!(head(&[]).to_map().len(), 1);
    }

    #[test]
    fn the_wire_form_omits_urls_and_a_304_the_content_type() {
        let head = head(&ANSWER);
        let wire = String::from_utf8(head.wire().concat()).unwrap();
        assert_eq!(
            wire,
            "content-type: application/json\r\nvary: Accept\r\nvary: Authorization\r\nx-api-version-selected: 2022-11-28\r\n\
             etag: W/\"a\"\r\nx-empty: \r\n"
        );
        assert_eq!(&head.modified().unwrap(), b"Tue, 01 Jul 2025 00:00:00 GMT");
        assert_eq!(
            head.wire_not_modified().concat(),
            wire.as_bytes()["content-type: application/json\r\n".len()..]
        );
        let addresses: Vec<_> = head.addresses().map(|(name, value)| (name, value.len())).collect();
        assert_eq!(addresses, [("link", 46), ("link", 46)]);
    }

    #[test]
    fn headers_made_for_each_answer_are_not_stored() {
        let head = head(&[
            ("age", "1"),
            ("content-length", "3"),
            ("etag", "\"upstream\""),
            ("cache-status", "x; hit"),
        ]);
        assert_eq!(head.lines().collect::<Vec<_>>(), [("etag", &b"W/\"a\""[..])]);
    }

    #[test]
    fn a_304_that_repeats_stored_headers_brings_no_news() {
        let head =
            head(&[("cache-control", "max-age=1"), ("x-a", "1"), ("x-b", "1"), ("x-b", "2"), DATE]);
        assert!(head.contains_all(&map(&[
            ("cache-control", "max-age=1"),
            ("etag", "\"other\""),
            ("x-a", "1"),
            DATE,
        ])));
        let other = ("last-modified", "Tue, 01 Jul 2025 00:00:01 GMT");
        for news in [[("cache-control", "max-age=2")], [("x-new", "1")], [("x-b", "1")], [other]] {
            assert!(!head.contains_all(&map(&news)), "{news:?}");
        }
    }

    #[test]
    fn equal_blocks_are_shared_while_they_are_in_use() {
        let shared = SharedLines::default();
        let of = |kind: usize| {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from(kind))]);
            StoredHead::new(&headers, None, &shared)
        };
        let (one, other) = (of(0), of(0));
        assert!(Arc::ptr_eq(&one.repeated.0, &other.repeated.0) && one.own_allocations() == [0, 0]);
        let held: Vec<_> = (1..SHARED_MAX).map(of).collect();
        assert!(!of(SHARED_MAX).is_shared, "the number is bounded");
        drop(held);
        assert!(of(SHARED_MAX + 1).is_shared);
        assert_eq!(shared.0.lock().len(), 2);
    }
}
