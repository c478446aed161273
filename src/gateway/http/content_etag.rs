//! The gateway's validator of an answer, equal for all tokens and replicas. Weak, because URLs
//! differ per client. It covers the page links: otherwise a 304 would hide a new next page.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::header::{self, HeaderMap, HeaderValue};

/// An `ETag` made of the content, as its digest: its text is longer, and every entry has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentETag([u8; Self::BYTES]);

const BEGIN: &[u8; 3] = b"W/\"";

impl ContentETag {
    pub const BYTES: usize = 16;
    /// The bytes of its text.
    pub const LENGTH: usize = BEGIN.len() + 22 + 1;

    pub fn of(body: &[u8], headers: &HeaderMap) -> Self {
        let mut digest = ring::digest::Context::new(&ring::digest::SHA256);
        digest.update(body);
        for link in headers.get_all(header::LINK) {
            // No JSON contains this byte, so no body can imitate another one with links.
            digest.update(&[0]);
            digest.update(link.as_bytes());
        }
        Self(digest.finish().as_ref().first_chunk().copied().unwrap_or_default())
    }

    /// Packs a text that [`ContentETag::text`] restores; `None` for any other.
    pub fn packed(text: &[u8]) -> Option<Self> {
        let digest = text.strip_prefix(BEGIN)?.strip_suffix(b"\"")?;
        BASE64_URL_SAFE_NO_PAD.decode(digest).ok()?.try_into().ok().map(Self)
    }

    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        Self(*bytes)
    }

    pub fn bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// For example `W/"47DEQpj8HBSa-_TImW-5JA"`.
    pub fn text(self) -> [u8; Self::LENGTH] {
        let mut text = [b'"'; Self::LENGTH];
        if let Some((begin, rest)) = text.split_first_chunk_mut() {
            *begin = *BEGIN;
            // It fits: the quote at the end is left.
            _ = BASE64_URL_SAFE_NO_PAD.encode_slice(self.0, rest);
        }
        text
    }
}

impl From<ContentETag> for HeaderValue {
    fn from(etag: ContentETag) -> Self {
        // Only visible characters.
        Self::from_bytes(&etag.text()).unwrap_or_else(|_| Self::from_static("W/\"\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packed_form_restores_the_text() {
        let etag = ContentETag::of(b"{}", &HeaderMap::new());
        let text = etag.text();
        assert!(text.starts_with(b"W/\"") && text.ends_with(b"\""), "{text:?}");
        assert!(
            text[3..25].iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte))
        );
        assert_eq!(ContentETag::packed(&text), Some(etag));
    }

    #[test]
    fn texts_of_other_forms_are_not_packed() {
        let etag = ContentETag::of(b"", &HeaderMap::new()).text();
        let strong = &etag[2..];
        let mut other_end = etag;
        // Of the last character, only two bits belong to the digest.
        other_end[24] = b'B';
        for text in [strong, &etag[..25], &other_end, b"W/\"a\"", b"W/\"\"", b""] {
            assert_eq!(ContentETag::packed(text), None, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn page_links_are_a_part_of_the_content() {
        let mut linked = HeaderMap::new();
        linked.insert(header::LINK, HeaderValue::from_static("<https://a.example/?page=2>"));
        let plain = ContentETag::of(b"[]", &HeaderMap::new());
        assert_ne!(ContentETag::of(b"[]", &linked), plain);
        assert_ne!(ContentETag::of(b"[] ", &HeaderMap::new()), plain);
    }
}
