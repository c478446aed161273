//! Addresses in responses: API URLs have the address that the caller used, pages for humans another
//! host.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Not the API's host, because URL rewriting must leave these addresses alone.
pub const SITE: &str = "https://git.example.com";

/// Keeps RFC 3986's unreserved characters in a path segment.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Urls {
    /// Such as `http://127.0.0.1:8090/api/v3`; without a trailing slash.
    pub api: String,
    /// Both dialects share `/api/uploads`, because one address cannot be two hosts.
    pub uploads: String,
}

impl Urls {
    /// The origin is `http://127.0.0.1:8090`, the prefix `""` or `"/api/v3"`.
    pub fn new(origin: &str, prefix: &str) -> Self {
        let origin = origin.trim_end_matches('/');
        Self { api: format!("{origin}{prefix}"), uploads: format!("{origin}/api/uploads") }
    }
}

/// Encodes a name as one path segment.
pub fn segment(name: &str) -> String {
    utf8_percent_encode(name, SEGMENT).to_string()
}
