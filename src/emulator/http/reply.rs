//! A response before serialization, and the headers that every response carries.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::Value;

use super::error::ApiError;
use crate::clock::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    Empty,
    Json(Value),
    /// With its content type, if any.
    Raw(Option<String>, Bytes),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tag {
    /// Computed from the request and the body.
    Made,
    /// A recorded header value.
    Recorded(String),
    None,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: StatusCode,
    pub body: Body,
    /// The last change of the content; `None` for lists without one.
    pub changed_at: Option<Timestamp>,
    pub tag: Tag,
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl Reply {
    pub fn new(status: StatusCode, body: Body) -> Self {
        Self { status, body, changed_at: None, tag: Tag::Made, headers: Vec::new() }
    }

    pub fn json(status: StatusCode, value: Value) -> Self {
        Self::new(status, Body::Json(value))
    }

    pub fn ok(value: Value) -> Self {
        Self::json(StatusCode::OK, value)
    }

    pub fn created(value: Value, location: &str) -> Self {
        Self::json(StatusCode::CREATED, value).with(header::LOCATION, location)
    }

    /// 201 with the object's own `url` as its location.
    pub fn created_at_url(value: Value) -> Self {
        let location = value.get("url").and_then(Value::as_str).unwrap_or("").to_owned();
        Self::created(value, &location)
    }

    pub fn no_content() -> Self {
        Self::empty(StatusCode::NO_CONTENT)
    }

    /// 204, or 404 when it was not found.
    pub fn no_content_if(found: bool) -> Result<Self, ApiError> {
        ApiError::not_found_unless(found).map(|()| Self::no_content())
    }

    pub fn empty(status: StatusCode) -> Self {
        Self::new(status, Body::Empty)
    }

    pub fn changed_at(self, at: Timestamp) -> Self {
        Self { changed_at: Some(at), ..self }
    }

    /// Adds a header and skips an illegal value.
    pub fn with(mut self, name: HeaderName, value: &str) -> Self {
        self.headers.extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
        self
    }
}
