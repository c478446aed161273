//! The head of an answer while it is written: as a map for the framework, or as lines of HTTP/1.1,
//! which can be read again.

use std::collections::HashMap;
use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};
use foldhash::fast::RandomState;
use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::api::headers::{RATE_LIMIT, RATE_REMAINING, RATE_RESET, RATE_RESOURCE, RATE_USED};

const DIGITS_MAX: usize = 20;

/// Names that most answers have, and that the `http` crate does not know.
const USUAL_NAMES: [&str; 20] = [
    "cache-status",
    "permissions-policy",
    "server-timing",
    "x-accepted-github-permissions",
    "x-accepted-oauth-scopes",
    "x-accepted-service-permissions",
    "x-from-cache",
    "x-github-api-version-selected",
    "x-github-media-type",
    "x-github-request-id",
    "x-oauth-scopes",
    RATE_LIMIT,
    RATE_REMAINING,
    RATE_RESET,
    RATE_RESOURCE,
    RATE_USED,
    "x-request-id",
    "x-service-media-type",
    "x-service-request-id",
    "x-weir-account",
];

/// Fields of a head that is being put together.
pub trait Fields {
    /// Adds `name: value`, name in lower case and unique unless the head can replace values.
    fn set(&mut self, name: &str, value: &[u8]);

    /// The same for a value that the next answer does not repeat.
    fn set_varying(&mut self, name: &str, value: &[u8]) {
        self.set(name, value);
    }

    fn set_number(&mut self, name: &str, number: u64) {
        with_digits(number, |digits| self.set(name, digits));
    }
}

/// The head of an answer that is being put together.
pub trait Head: Fields {
    /// Begins the head. `bytes` is the space to reserve for fields and body.
    fn begin(&mut self, status: StatusCode, bytes: usize);

    /// Adds one more field of this name.
    fn add(&mut self, name: &HeaderName, value: &HeaderValue);

    /// Adds stored lines, except those with a name in `omitted`. Those of the second block differ
    /// from answer to answer.
    fn add_lines(&mut self, blocks: [&[u8]; 2], omitted: &[&str]);

    /// Adds the fields of a map; call it before any other addition.
    fn add_map(&mut self, fields: HeaderMap);
}

/// Passes a number's digits to `take`, without the formatting machinery: answers have ten numbers.
pub fn with_digits<T>(number: u64, take: impl FnOnce(&[u8]) -> T) -> T {
    let mut digits = [0; DIGITS_MAX];
    let mut rest = number;
    let mut begin = DIGITS_MAX;
    for (place, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        begin = place;
        if rest == 0 {
            break;
        }
    }
    take(digits.get(begin..).unwrap_or_default())
}

/// A head as the framework takes it.
#[derive(Default)]
pub struct MapHead {
    pub status: StatusCode,
    pub fields: HeaderMap,
}

/// A head in HTTP/1.1's wire format.
pub struct OnWire<'b>(pub &'b mut Vec<u8>);

impl Fields for HeaderMap {
    /// Ignores a value that no header can hold; replaces an earlier value.
    fn set(&mut self, name: &str, value: &[u8]) {
        if let (Some(name), Ok(value)) = (name_of(name), HeaderValue::from_bytes(value)) {
            self.insert(name, value);
        }
    }
}

impl Fields for MapHead {
    fn set(&mut self, name: &str, value: &[u8]) {
        self.fields.set(name, value);
    }

    /// HTTP/2 remembers no such value: it would displace those that repeat (RFC 7541 §6.2.3).
    fn set_varying(&mut self, name: &str, value: &[u8]) {
        if let (Some(name), Ok(mut value)) = (name_of(name), HeaderValue::from_bytes(value)) {
            value.set_sensitive(true);
            self.fields.insert(name, value);
        }
    }
}

impl Head for MapHead {
    fn begin(&mut self, status: StatusCode, _: usize) {
        self.status = status;
    }

    fn add(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.fields.append(name, value.clone());
    }

    fn add_lines(&mut self, blocks: [&[u8]; 2], omitted: &[&str]) {
        append_lines(&mut self.fields, blocks, omitted, true);
    }

    fn add_map(&mut self, fields: HeaderMap) {
        self.fields = fields;
    }
}

impl Fields for OnWire<'_> {
    fn set(&mut self, name: &str, value: &[u8]) {
        self.0.reserve(name.len() + value.len() + 4);
        push_line(self.0, name, value);
    }
}

impl Head for OnWire<'_> {
    fn begin(&mut self, status: StatusCode, bytes: usize) {
        self.0.reserve(bytes);
        push_status(self.0, status);
    }

    fn add(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.set(name.as_str(), value.as_bytes());
    }

    fn add_lines(&mut self, blocks: [&[u8]; 2], omitted: &[&str]) {
        for block in blocks {
            if omitted.is_empty() {
                self.0.extend_from_slice(block);
                continue;
            }
            for (name, value) in lines(block).filter(|(name, _)| !omitted.contains(name)) {
                push_line(self.0, name, value);
            }
        }
    }

    fn add_map(&mut self, fields: HeaderMap) {
        fields.iter().for_each(|(name, value)| self.add(name, value));
    }
}

/// The status line of HTTP/1.1.
pub fn push_status(into: &mut Vec<u8>, status: StatusCode) {
    for part in
        ["HTTP/1.1 ", status.as_str(), " ", status.canonical_reason().unwrap_or_default(), "\r\n"]
    {
        into.extend_from_slice(part.as_bytes());
    }
}

pub fn push_line(lines: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        lines.extend_from_slice(part);
    }
}

/// Splits into lines. The `http` crate excludes `\r` and `\n` from values and colons from names.
pub fn lines(text: &[u8]) -> impl Iterator<Item = (&str, &[u8])> {
    text.split(|byte| *byte == b'\n').filter_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        let name = std::str::from_utf8(line.get(..colon)?).ok()?;
        Some((name, line.get(colon + 2..line.len().checked_sub(1)?)?))
    })
}

/// Appends the fields of two blocks of lines to a map, which shares one copy of their text.
pub fn append_to(map: &mut HeaderMap, blocks: [&[u8]; 2]) {
    append_lines(map, blocks, &[], false);
}

/// The same, with the values of the second block as varying ones where `has_varying` says so.
fn append_lines(map: &mut HeaderMap, blocks: [&[u8]; 2], omitted: &[&str], has_varying: bool) {
    /// Fields that an answer gains beside those of the blocks.
    const FURTHER: usize = 10;
    let mut text = BytesMut::with_capacity(blocks.iter().map(|block| block.len()).sum());
    for block in blocks {
        text.extend_from_slice(block);
    }
    let text = text.freeze();
    map.reserve(lines(&text).count() + FURTHER);
    let [repeated, _] = blocks;
    let varying_at = text.as_ptr().addr() + repeated.len();
    for (name, value) in lines(&text).filter(|(name, _)| !omitted.contains(name)) {
        let is_varying = has_varying && value.as_ptr().addr() >= varying_at;
        let value = text.slice_ref(value);
        if let (Some(name), Ok(mut value)) =
            (name_of(name), HeaderValue::from_maybe_shared::<Bytes>(value))
        {
            value.set_sensitive(is_varying);
            map.append(name, value);
        }
    }
}

/// The name of a field; `None` if no field can have it. Usual names take no allocation.
fn name_of(name: &str) -> Option<HeaderName> {
    static USUAL: LazyLock<HashMap<&str, HeaderName, RandomState>> = LazyLock::new(|| {
        USUAL_NAMES.into_iter().map(|name| (name, HeaderName::from_static(name))).collect()
    });
    let usual = USUAL.get(name).cloned();
    usual.or_else(|| HeaderName::from_bytes(name.as_bytes()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_written_in_plain_digits() {
        for number in [0, 7, 10, 4_999_999, u64::MAX] {
            let (mut map, mut wire) = (HeaderMap::new(), Vec::new());
            map.set_number("x-n", number);
            OnWire(&mut wire).set_number("x-n", number);
            assert_eq!(map["x-n"], number.to_string());
            assert_eq!(wire, format!("x-n: {number}\r\n").into_bytes());
        }
    }
}
