//! Header fields as lines of HTTP/1.1: written, and read again.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

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
pub fn append_to(map: &mut HeaderMap, blocks: [&[u8]; 2], omitted: &[&str]) {
    /// Fields that an answer gains beside those of the blocks.
    const FURTHER: usize = 10;
    let mut text = BytesMut::with_capacity(blocks.iter().map(|block| block.len()).sum());
    for block in blocks {
        text.extend_from_slice(block);
    }
    let text = text.freeze();
    map.reserve(lines(&text).count() + FURTHER);
    for (name, value) in lines(&text).filter(|(name, _)| !omitted.contains(name)) {
        let value = text.slice_ref(value);
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(name.as_bytes()),
            HeaderValue::from_maybe_shared::<Bytes>(value),
        ) {
            map.append(name, value);
        }
    }
}
