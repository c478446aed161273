//! An answer before it is written: status, headers, body; and the client's address for URLs in it.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::gateway::cache::shared_body_reader::Reader;
use crate::gateway::url_rewrite::json_stream::JsonStream;

/// What goes to the client.
pub struct Reply {
    /// The status.
    pub status: StatusCode,
    /// End-to-end headers; the framing is added when it is written.
    pub headers: HeaderMap,
    /// The body.
    pub body: ReplyBody,
}

/// The body of a [`Reply`].
pub enum ReplyBody {
    /// Held in memory.
    Whole(Bytes),
    /// Passed on as it arrives.
    Streamed {
        /// Rewrites its addresses, when it is JSON.
        rewriting: Option<Box<JsonStream>>,
        /// Where it comes from.
        reader: Box<Reader>,
    },
}

impl Reply {
    /// An answer without a body.
    pub fn empty(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::new(), body: ReplyBody::Whole(Bytes::new()) }
    }

    /// A JSON answer of the gateway's own.
    pub fn json(status: StatusCode, value: &serde_json::Value) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(
            http::header::CONTENT_TYPE,
            HeaderValue::from_static("application/json; charset=utf-8"),
        );
        headers.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Self { status, headers, body: ReplyBody::Whole(Bytes::from(value.to_string())) }
    }

    /// The same with one more header; a value that no header can hold is left out.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: impl TryInto<HeaderValue>) -> Self {
        if let Ok(value) = value.try_into() {
            self.headers.insert(name, value);
        }
        self
    }
}
