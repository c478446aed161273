//! The address of a request: its shape, the upstream service behind it, and the path.

use std::borrow::Cow;

/// The upstream root that the client used; decides the base of rewritten URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Root {
    /// `http://HOST/…`: the hosted service's shape.
    Plain,
    /// `http://HOST/api/v3/…`: the self-hosted shape.
    V3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    Rest,
    Graphql,
    /// The upload host: bodies are streamed.
    Uploads,
    /// The gateway's own resources under `/_weir/`.
    Weir,
}

/// RFC 3986 §6.2.2.2: an encoded letter equals the letter. Left encoded, `/%75ser` would be another
/// route here and the same one upstream.
pub fn decode_unreserved(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let Some((escape, after)) = rest[at..].split_at_checked(3) else { break };
        let digits = escape.as_bytes();
        match hex_digit(digits[1]).zip(hex_digit(digits[2])).map(|(high, low)| high * 16 + low) {
            Some(byte)
                if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') =>
            {
                out.push(char::from(byte));
            }
            // RFC 3986 §6.2.2.1: one spelling for the cache key.
            _ => out.push_str(&escape.to_ascii_uppercase()),
        }
        rest = after;
    }
    // Half an escape is left only in unvalidated input.
    out.push_str(rest);
    Cow::Owned(out)
}

pub fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// The rest of `path` below `prefix`, which must end with a whole segment.
pub fn below<'p>(path: &'p str, prefix: &str) -> Option<&'p str> {
    path.strip_prefix(prefix).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

pub fn path_of(target: &str) -> &str {
    target.split(['?', '#']).next().unwrap_or(target)
}
