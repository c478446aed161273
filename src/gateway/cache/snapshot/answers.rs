//! One stored answer in a file: its metadata as JSON, then its key, its headers and its body.
//!
//! Left out is what follows from these: the places of the URLs in the body, the `ETag` that the
//! gateway makes, the codings. What nothing can revalidate is not written at all.

use std::num::NonZeroU16;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::decision::cache::freshness::Stored;
use crate::decision::cache::key::{CacheKey, Scope};
use crate::decision::cache::saved::SavedAnswer;
use crate::decision::{Mode, TokenKey};

use crate::gateway::cache::store::{Entry, Vary};
use crate::gateway::cache::stored_head::{SharedLines, StoredHead};
use crate::gateway::cache::validation::{Fingerprint, ValidationTimes};
use crate::gateway::http::content_etag::ContentETag;
use crate::gateway::http::head_writer::{append_to, push_line};
use crate::gateway::http::media_type::is_json;
use crate::gateway::url_rewrite::map::{Body, UrlMap};

/// The largest body that is kept. Chosen here: it is held in memory twice while it is written.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Metadata {
    scope: u32,
    requested_at: u64,
    validated_at: u64,
    /// The latest change that the answer may not show.
    changed_at: Option<u64>,
    etag: SavedEtag,
    vary: Vec<(String, Option<String>)>,
    /// The number of the rule that watches it.
    watched_by: Option<u16>,
    stored: SavedAnswer,
}

/// The `ETag` for clients.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
enum SavedEtag {
    None,
    /// Made by the gateway.
    Own,
    Given(String),
}

/// The parts of an entry in the file.
const PARTS: usize = 4;

/// Appends an entry. Returns false for one that is not kept. `changed_at` is the latest change
/// that it may not show.
pub fn push(
    out: &mut Vec<u8>,
    key: &CacheKey,
    entry: &Entry,
    changed_at: Option<Timestamp>,
    scope: impl Fn(Scope) -> Option<u32>,
    token: impl Fn(TokenKey) -> Option<u64>,
) -> bool {
    let metadata = || {
        let is_whole = entry.status() != StatusCode::PARTIAL_CONTENT;
        let body = entry.body.text();
        let map = entry.head.to_map();
        let etag = match map.get(header::ETAG) {
            None => SavedEtag::None,
            Some(etag) => {
                let mut rest = map.clone();
                rest.remove(header::ETAG);
                let is_own = *etag == HeaderValue::from(ContentETag::of(body, &rest));
                if is_own { SavedEtag::Own } else { SavedEtag::Given(etag.to_str().ok()?.into()) }
            }
        };
        let is_in_memory = entry.body.file().is_none();
        (is_whole && is_in_memory && body.len() <= BODY_BYTES_MAX).then_some(())?;
        Some(Metadata {
            scope: scope(key.scope())?,
            requested_at: entry.validation.requested_at().as_millis(),
            validated_at: entry.validation.validated_at().as_millis(),
            changed_at: changed_at.map(Timestamp::as_millis),
            etag,
            vary: saved_vary(entry)?,
            watched_by: entry.stored.watched_by.map(NonZeroU16::get),
            stored: entry.stored.saved(token)?,
        })
    };
    let Some(metadata) = metadata().and_then(|metadata| serde_json::to_vec(&metadata).ok()) else {
        return false;
    };
    let mut lines = Vec::new();
    for (name, value) in entry.head.lines().filter(|(name, _)| *name != header::ETAG.as_str()) {
        push_line(&mut lines, name, value);
    }
    if let Some(date) = entry.head.modified() {
        push_line(&mut lines, header::LAST_MODIFIED.as_str(), &date);
    }
    let parts: [&[u8]; PARTS] = [&metadata, key.text(), &lines, entry.body.text()];
    let lengths = parts.map(|part| u32::try_from(part.len()).ok());
    if lengths.contains(&None) {
        return false;
    }
    for (part, length) in parts.iter().zip(lengths.into_iter().flatten()) {
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(part);
    }
    true
}

/// The selecting headers of a variant; `None` for one that fits no request.
fn saved_vary(entry: &Entry) -> Option<Vec<(String, Option<String>)>> {
    let headers = match entry.vary.as_deref() {
        None => return Some(Vec::new()),
        Some(Vary::Everything) => return None,
        Some(Vary::Headers(headers)) => headers,
    };
    let text = |value: &[u8]| std::str::from_utf8(value).map(ToOwned::to_owned).ok();
    headers
        .iter()
        .map(|(name, value)| match value {
            None => Some((name.as_str().to_owned(), None)),
            Some(value) => Some((name.as_str().to_owned(), Some(text(value)?))),
        })
        .collect()
}

/// The meaning that the names in the file have in this process.
pub struct Known<'k> {
    pub mode: Mode,
    pub urls: &'k UrlMap,
    pub shared_lines: &'k SharedLines,
    /// By their numbers in the file.
    pub scopes: &'k [Option<Scope>],
    pub tokens: &'k [Option<TokenKey>],
    pub rules: &'k [Option<NonZeroU16>],
    /// Every entry counts as requested before this time.
    pub restarted_at: Timestamp,
}

/// An entry of an earlier process.
pub struct Restored {
    pub key: CacheKey,
    pub entry: Arc<Entry>,
    pub changed_at: Option<Timestamp>,
}

/// Takes the next entry from the plain text of a frame. `Ok(None)` is one of another view, or one
/// that nothing can revalidate. Fails if the text is not what [`push`] writes.
pub fn take(text: &mut &[u8], known: &Known<'_>) -> Result<Option<Restored>, ()> {
    let mut part = || -> Option<&[u8]> {
        let (length, rest) = text.split_first_chunk()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (part, rest) = rest.split_at_checked(length)?;
        *text = rest;
        Some(part)
    };
    let (Some(metadata), Some(key), Some(lines), Some(body)) = (part(), part(), part(), part())
    else {
        return Err(());
    };
    let metadata: Metadata = serde_json::from_slice(metadata).map_err(|_| ())?;
    Ok(restored(metadata, key, lines, body, known))
}

fn restored(
    metadata: Metadata,
    key: &[u8],
    lines: &[u8],
    body: &[u8],
    known: &Known<'_>,
) -> Option<Restored> {
    let scope = (*known.scopes.get(usize::try_from(metadata.scope).ok()?)?)?;
    let rule =
        metadata.watched_by.and_then(|rule| known.rules.get(usize::from(rule).checked_sub(1)?));
    let token = |number| *known.tokens.get(usize::try_from(number).ok()?)?;
    let stored = Stored::restored(&metadata.stored, known.mode, token, rule.copied().flatten())?;
    let mut headers = HeaderMap::new();
    append_to(&mut headers, [lines, &[]]);
    let text = Bytes::copy_from_slice(body);
    let body =
        if is_json(&headers) { known.urls.with_url_offsets(text) } else { Body::opaque(text) };
    let etag = match metadata.etag {
        SavedEtag::None => None,
        SavedEtag::Own => Some(ContentETag::of(body.text(), &headers).into()),
        SavedEtag::Given(etag) => Some(HeaderValue::from_str(&etag).ok()?),
    };
    let vary: Option<Box<[_]>> = metadata
        .vary
        .into_iter()
        .map(|(name, value)| {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            Some((name, value.map(|value| value.into_bytes().into())))
        })
        .collect();
    let before = Timestamp::from_millis(known.restarted_at.as_millis().saturating_sub(1));
    let [requested_at, validated_at] = [metadata.requested_at, metadata.validated_at]
        .map(|time| Timestamp::from_millis(time).min(before));
    let entry = Entry {
        head: StoredHead::new(&headers, etag.as_ref(), known.shared_lines),
        body,
        stored,
        validation: ValidationTimes::new(requested_at, validated_at),
        fingerprint: Fingerprint::default(),
        vary: vary.filter(|headers| !headers.is_empty()).map(|all| Box::new(Vary::Headers(all))),
    };
    Some(Restored {
        key: CacheKey::of_text(scope, key)?,
        entry: Arc::new(entry),
        changed_at: metadata.changed_at.map(Timestamp::from_millis),
    })
}
