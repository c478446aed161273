//! An answer before it is written: status, headers and body.

use std::future::pending;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::gateway::cache::shared_body::{Lost, Reader, SlotNeeded};
use crate::gateway::response::enclosed::Enclosed;
use crate::gateway::spool::kept::{FileReader, Unreadable};
use crate::gateway::url_rewrite::json_stream::JsonStream;
use crate::gateway::url_rewrite::rendering::Rendering;

pub struct Reply {
    pub status: StatusCode,
    /// End-to-end headers; the framing comes with the write.
    pub headers: HeaderMap,
    pub body: ReplyBody,
}

pub enum ReplyBody {
    Whole(Bytes),
    /// Shared with other clients, and rendered for this one as it is written.
    Rendered(Box<Rendering>),
    /// The same within a JSON text.
    Enclosed(Box<Enclosed>),
    /// Passed on as it arrives.
    Streamed {
        /// The URL rewriter, for JSON.
        rewriting: Option<Box<JsonStream>>,
        source: BodySource,
    },
}

/// The source of a body that is passed on piece by piece.
pub enum BodySource {
    Shared(Box<Reader>),
    File(Box<FileReader>),
}

impl BodySource {
    /// Returns the next piece; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Lost> {
        match self {
            Self::Shared(reader) => reader.next().await,
            Self::File(reader) => reader.next().await.map_err(|Unreadable| Lost),
        }
    }

    /// Reads on from the upstream while the client takes nothing ([`Reader::read_ahead`]).
    pub async fn read_ahead(&self) -> SlotNeeded {
        match self {
            Self::Shared(reader) => reader.read_ahead().await,
            Self::File(_) => pending().await,
        }
    }
}

impl ReplyBody {
    /// The length, if it is known.
    pub fn length(&self) -> Option<usize> {
        match self {
            Self::Whole(body) => Some(body.len()),
            Self::Rendered(body) => Some(body.bytes_left()),
            Self::Enclosed(body) => Some(body.bytes_left()),
            Self::Streamed { .. } => None,
        }
    }

    /// The text that it is made from; none of a streamed body.
    pub fn text(&self) -> &[u8] {
        match self {
            Self::Whole(body) => body,
            Self::Rendered(body) => body.text(),
            Self::Enclosed(body) => body.body().text(),
            Self::Streamed { .. } => &[],
        }
    }

    /// The next bytes of a body that is not streamed, not many more than `bytes_max`.
    pub fn piece(&mut self, bytes_max: usize) -> Bytes {
        match self {
            Self::Whole(body) => body.split_to(body.len().min(bytes_max)),
            Self::Rendered(body) => body.piece(bytes_max),
            Self::Enclosed(body) => body.piece(bytes_max),
            Self::Streamed { .. } => Bytes::new(),
        }
    }
}

impl Reply {
    pub fn empty(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::new(), body: ReplyBody::Whole(Bytes::new()) }
    }

    pub fn json(status: StatusCode, value: &serde_json::Value) -> Self {
        let json = HeaderValue::from_static("application/json; charset=utf-8");
        let no_store = HeaderValue::from_static("no-store");
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, json), (CACHE_CONTROL, no_store)]);
        Self { status, headers, body: ReplyBody::Whole(Bytes::from(value.to_string())) }
    }

    /// Adds a header; ignores a value that no header can hold.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: impl TryInto<HeaderValue>) -> Self {
        if let Ok(value) = value.try_into() {
            self.headers.insert(name, value);
        }
        self
    }
}
