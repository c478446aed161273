//! Splits a request's path before routing: the base address, the API surface, the query and the
//! segments.

use std::borrow::Cow;

use bytes::Bytes;
use http::{Method, Request};
use percent_encoding::percent_decode_str;

/// The largest request body, uploads excepted. Undocumented; the default of `writes.max_body`.
pub const BODY_BYTES_MAX: usize = 10 * 1024 * 1024;
/// The base path of a self-hosted instance (SPECIFICATION, "Conventions").
const SELF_HOSTED: &str = "/api/v3";
/// In every dialect.
const UPLOADS: &str = "/api/uploads";
const CONTROL: &str = "/_emulator";
/// More pairs than any documented query has; the rest is dropped.
const QUERY_PAIRS_MAX: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiArea {
    Rest,
    Graphql,
    Uploads,
    Control,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Canonical<'a> {
    pub area: ApiArea,
    /// The path prefix of addresses in the response: empty or `/api/v3`.
    pub prefix: &'static str,
    /// Begins with a slash.
    pub path: &'a str,
}

pub fn canonical(path: &str) -> Canonical<'_> {
    if let Some(rest) = under(path, CONTROL) {
        return Canonical { area: ApiArea::Control, prefix: "", path: rest };
    }
    if let Some(rest) = under(path, UPLOADS) {
        return Canonical { area: ApiArea::Uploads, prefix: "", path: rest };
    }
    let (prefix, rest) = match under(path, SELF_HOSTED) {
        Some(rest) => (SELF_HOSTED, rest),
        None => ("", path),
    };
    let area =
        if rest == "/graphql" || path == "/api/graphql" { ApiArea::Graphql } else { ApiArea::Rest };
    // GraphQL responses contain no API addresses, but a self-hosted caller keeps its prefix.
    Canonical { area, prefix, path: if area == ApiArea::Graphql { "/graphql" } else { rest } }
}

/// Returns the part of `path` below `base`; `/` for the base itself.
fn under<'a>(path: &'a str, base: &str) -> Option<&'a str> {
    match path.strip_prefix(base)? {
        "" => Some("/"),
        rest if rest.starts_with('/') => Some(rest),
        _ => None,
    }
}

/// Returns true for the upload of a release asset, the body of which may have any size.
pub fn is_upload(method: &Method, path: &str) -> bool {
    let canonical = canonical(path);
    if method != Method::POST || !matches!(canonical.area, ApiArea::Rest | ApiArea::Uploads) {
        return false;
    }
    let segments: Vec<&str> = canonical.path.split('/').skip(1).collect();
    match *segments {
        ["repos", _, _, "releases", _, "assets"] | ["repositories", _, "releases", _, "assets"] => {
            true
        }
        _ => canonical.area == ApiArea::Uploads,
    }
}

/// The announced body is larger than the maximum and was not read. A request extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread;

/// The request came through a socket and names a host that is neither an IP address nor
/// `localhost`. A request extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignHost;

pub fn has_foreign_host(request: &Request<Bytes>) -> bool {
    request.extensions().get::<ForeignHost>().is_some()
}

/// True for read and unread bodies.
pub fn is_too_large(request: &Request<Bytes>, bytes_max: usize) -> bool {
    request.body().len() > bytes_max || request.extensions().get::<Unread>().is_some()
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(query: Option<&str>) -> Self {
        let pairs =
            query.unwrap_or("").split('&').filter(|pair| !pair.is_empty()).take(QUERY_PAIRS_MAX);
        Self(
            pairs
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode_query(name), decode_query(value))
                })
                .collect(),
        )
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Sorts the pairs, so that the sender's order does not matter.
    pub fn sorted(mut self) -> Vec<(String, String)> {
        self.0.sort();
        self.0
    }
}

fn decode_query(text: &str) -> String {
    let spaced: Cow<'_, str> =
        if text.contains('+') { Cow::Owned(text.replace('+', " ")) } else { Cow::Borrowed(text) };
    percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

/// `%2F` becomes data (SPECIFICATION, "Conditional requests in practice").
pub fn decode_segment(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// The size of an upload that the server counted instead of keeping. A request extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadBytes(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_base_paths_lead_to_the_same_route() {
        assert_eq!(
            canonical("/user"),
            Canonical { area: ApiArea::Rest, prefix: "", path: "/user" }
        );
        assert_eq!(
            canonical("/api/v3/user"),
            Canonical { area: ApiArea::Rest, prefix: "/api/v3", path: "/user" }
        );
        assert_eq!(canonical("/api/v3").path, "/");
        assert_eq!(canonical("/api/v3x").path, "/api/v3x");
    }

    #[test]
    fn graphql_has_three_addresses() {
        for path in ["/graphql", "/api/graphql", "/api/v3/graphql"] {
            assert_eq!(canonical(path).area, ApiArea::Graphql, "{path}");
        }
    }

    #[test]
    fn an_upload_is_recognized_under_every_base_path() {
        for path in [
            "/repos/a/b/releases/1/assets",
            "/api/v3/repos/a/b/releases/1/assets",
            "/api/uploads/repos/a/b/releases/1/assets",
        ] {
            assert!(is_upload(&Method::POST, path), "{path}");
            assert!(!is_upload(&Method::GET, path), "{path}");
        }
        assert!(!is_upload(&Method::POST, "/repos/a/b/issues"));
    }

    #[test]
    fn a_query_is_decoded() {
        let query = Query::parse(Some("q=a+b%20c&flag&x=1&x=2"));
        assert_eq!(query.get("q"), Some("a b c"));
        assert_eq!(query.get("flag"), Some(""));
        assert_eq!(query.get("x"), Some("1"));
        assert_eq!(query.get("none"), None);
    }
}
