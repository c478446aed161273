//! A response as tests examine it, with assertions in the words of SPECIFICATION.md.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

/// A response, read to its end.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Reply {
    pub async fn read(response: hyper::Response<Incoming>) -> Self {
        Self::try_read(response).await.expect("a whole body")
    }

    /// The same, which fails if the body does not end well.
    pub async fn try_read(response: hyper::Response<Incoming>) -> hyper::Result<Self> {
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Self { status: head.status, headers: head.headers, body })
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub fn number(&self, name: &str) -> u64 {
        self.header(name)
            .and_then(|value| value.parse().ok())
            .unwrap_or_else(|| panic!("no number in {name}: {self:?}"))
    }

    pub fn cache_status(&self) -> &str {
        self.header("cache-status").unwrap_or("")
    }

    /// The `rel="next"` of `Link`, as path and query.
    pub fn next_page(&self) -> Option<String> {
        let entry =
            self.header("link")?.split(", ").find(|entry| entry.contains("rel=\"next\""))?;
        let url = entry.split_once('<')?.1.split_once('>')?.0;
        let path = url.split_once("://")?.1;
        Some(path[path.find('/')?..].to_owned())
    }

    #[track_caller]
    pub fn assert_status(&self, status: u16) {
        assert_eq!(self.status, status, "{self:?}");
    }

    /// Served from the cache without an upstream request.
    #[track_caller]
    pub fn assert_hit(&self) {
        assert_eq!(self.cache_status(), "weir; hit", "{self:?}");
    }

    /// Served from the cache after a 304.
    #[track_caller]
    pub fn assert_revalidated(&self) {
        assert_eq!(self.cache_status(), "weir; fwd=stale; fwd-status=304", "{self:?}");
    }

    /// Fetched and stored.
    #[track_caller]
    pub fn assert_fetched_and_stored(&self) {
        assert_eq!(self.cache_status(), "weir; fwd=uri-miss; stored", "{self:?}");
    }

    /// Asserts a denial by a primary limit as client libraries recognise it (SPECIFICATION, "Limit
    /// refusals").
    #[track_caller]
    pub fn assert_rate_limited(&self, now_secs: u64) {
        self.assert_status(403);
        assert!(
            self.json()["message"].as_str().unwrap().starts_with("API rate limit exceeded"),
            "{self:?}"
        );
        assert_eq!(self.number("x-ratelimit-remaining"), 0);
        assert!(self.number("x-ratelimit-reset") > now_secs, "{self:?}");
        assert!(self.number("x-ratelimit-limit") > 0 && self.number("retry-after") > 0);
        assert!(
            self.header("x-ratelimit-resource").is_some()
                && self.header("x-ratelimit-used").is_some()
                && self.header("date").is_some()
        );
    }

    /// Asserts a denial by a secondary limit as client libraries recognise it (SPECIFICATION,
    /// "Limit refusals").
    #[track_caller]
    pub fn assert_secondary_limited(&self) {
        self.assert_status(403);
        let body = self.json();
        assert!(
            body["message"]
                .as_str()
                .unwrap()
                .starts_with("You have exceeded a secondary rate limit. "),
            "{self:?}"
        );
        assert!(
            body["documentation_url"].as_str().unwrap().ends_with("#secondary-rate-limits"),
            "{self:?}"
        );
        assert!(
            self.number("retry-after") > 0 && self.number("x-ratelimit-remaining") > 0,
            "{self:?}"
        );
    }
}
