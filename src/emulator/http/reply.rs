//! An answer before it is on the wire, and the headers that every answer carries.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::Value;

use crate::clock::Timestamp;

/// What is sent as the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    Empty,
    Json(Value),
    /// With its content type, or without one.
    Raw(Option<String>, Bytes),
}

/// Where an answer's `ETag` comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tag {
    /// Made from the request and the body.
    Made,
    /// A recorded one, as the header had it.
    Recorded(String),
    None,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: StatusCode,
    pub body: Body,
    /// When what it shows last changed; none for lists that do not say.
    pub changed_at: Option<Timestamp>,
    pub tag: Tag,
    /// What this answer has beyond the headers of every answer.
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

    /// 201 with the address of what was made.
    pub fn created(value: Value, location: &str) -> Self {
        Self::json(StatusCode::CREATED, value).with(header::LOCATION, location)
    }

    pub fn empty(status: StatusCode) -> Self {
        Self::new(status, Body::Empty)
    }

    pub fn changed_at(self, at: Timestamp) -> Self {
        Self { changed_at: Some(at), ..self }
    }

    /// Adds a header; a value that no header can have is left out.
    pub fn with(mut self, name: HeaderName, value: &str) -> Self {
        self.headers.extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
        self
    }
}
