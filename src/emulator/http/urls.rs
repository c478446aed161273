//! The addresses that answers name: API URLs at the address the caller used, pages for people at
//! another host.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Where people would look at things. Not the API's host, so that what rewrites API addresses must
/// leave these alone.
pub const SITE: &str = "https://git.example.com";

/// RFC 3986's unreserved characters stay as they are in a path segment.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The address of the API as one caller uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Urls {
    /// What precedes every API path, such as `http://127.0.0.1:8090/api/v3`; no slash at the end.
    pub api: String,
    /// What precedes the path of an upload. Hosted and self-hosted shapes share `/api/uploads`: one
    /// address cannot be two hosts.
    pub uploads: String,
}

impl Urls {
    /// From the scheme and authority (`http://127.0.0.1:8090`) and the prefix of the shape in use
    /// (`""` or `"/api/v3"`).
    pub fn new(origin: &str, prefix: &str) -> Self {
        let origin = origin.trim_end_matches('/');
        Self { api: format!("{origin}{prefix}"), uploads: format!("{origin}/api/uploads") }
    }
}

/// A name as one segment of a path.
pub fn segment(name: &str) -> String {
    utf8_percent_encode(name, SEGMENT).to_string()
}
