//! An answer before it is on the wire, and the headers that every answer carries.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use serde_json::Value;

use super::call::Context;
use super::dated::Worth;
use super::timestamps::http_date;
use super::validators::{Freshness, Validators, validators};
use crate::api::Dialect;
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

    /// The answer to this request, after the conditions it asks under. The rate headers are added
    /// when its cost is known.
    pub fn into_response(self, context: &Context<'_>) -> Response<Bytes> {
        let (content_type, bytes) = match self.body {
            Body::Empty => (None, Bytes::new()),
            // A `Value` always serialises; were it not so, an empty body is still an answer.
            Body::Json(value) => (
                Some("application/json; charset=utf-8".to_owned()),
                serde_json::to_vec(&value).unwrap_or_default().into(),
            ),
            Body::Raw(content_type, bytes) => (content_type, bytes),
        };
        let validators =
            (self.status == StatusCode::OK && context.is_read()).then(|| match &self.tag {
                Tag::Made => {
                    let worth = self.changed_at.map_or(Worth::None, |at| context.worth(at));
                    Some(validators(context.headers, &bytes, self.changed_at, worth))
                }
                Tag::Recorded(tag) => {
                    let opaque = tag.trim_start_matches("W/").trim_matches('"').to_owned();
                    Some(Validators { opaque, last_modified: self.changed_at, worth: Worth::Exact })
                }
                Tag::None => self.changed_at.map(|at| Validators {
                    opaque: String::new(),
                    last_modified: Some(at),
                    worth: Worth::Exact,
                }),
            });
        let validators = validators.flatten();
        if let Some(validators) = &validators
            && validators.judge(context.headers) == Freshness::NotModified
        {
            let unmodified = self
                .headers
                .into_iter()
                .filter(|(name, _)| name != header::LINK && name != header::CONTENT_TYPE);
            return unmodified_response(validators, &self.tag, unmodified, context);
        }
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        every_answer(headers, context);
        set(headers, header::CONTENT_TYPE, content_type.as_deref());
        match (&self.tag, &validators) {
            (Tag::Recorded(tag), _) => set(headers, header::ETAG, Some(tag)),
            (Tag::Made, Some(validators)) => {
                set(headers, header::ETAG, Some(&validators.etag(context.headers)))
            }
            (Tag::Made, None) | (Tag::None, _) => {}
        }
        set(
            headers,
            header::LAST_MODIFIED,
            validators.as_ref().and_then(Validators::last_modified_header).as_deref(),
        );
        overlay(headers, self.headers);
        if context.is_head() {
            // RFC 9110, section 9.3.2: the headers of the GET, its length included, without the
            // content.
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
        } else {
            *response.body_mut() = bytes;
        }
        response
    }
}

fn unmodified_response(
    validators: &Validators,
    tag: &Tag,
    more: impl Iterator<Item = (HeaderName, HeaderValue)>,
    context: &Context<'_>,
) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    let headers = response.headers_mut();
    every_answer(headers, context);
    if *tag != Tag::None {
        set(headers, header::ETAG, Some(&validators.strong_etag()));
    }
    set(headers, header::LAST_MODIFIED, validators.last_modified_header().as_deref());
    overlay(headers, more.collect());
    response
}

/// What an answer says itself takes the place of what every answer says.
fn overlay(headers: &mut HeaderMap, own: Vec<(HeaderName, HeaderValue)>) {
    for (name, _) in &own {
        headers.remove(name);
    }
    headers.extend(own);
}

/// What every answer says, whatever it is.
fn every_answer(headers: &mut HeaderMap, context: &Context<'_>) {
    set(headers, header::DATE, Some(&http_date(context.now)));
    let caching = if context.caller.is_anonymous() {
        "public, max-age=60, s-maxage=60"
    } else {
        "private, max-age=60, s-maxage=60"
    };
    set(headers, header::CACHE_CONTROL, Some(caching));
    let (otp, media) = match context.dialect {
        Dialect::Service => ("X-Service-OTP", "service.v3; format=json"),
        Dialect::Github => ("X-GitHub-OTP", "github.v3; format=json"),
    };
    set(headers, header::VARY, Some(&format!("Accept, Authorization, Cookie, {otp}")));
    let exposed = "ETag, Link, Location, Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Used, X-RateLimit-Resource, X-RateLimit-Reset, X-OAuth-Scopes, X-Accepted-OAuth-Scopes, X-Poll-Interval";
    set(headers, header::ACCESS_CONTROL_ALLOW_ORIGIN, Some("*"));
    set(headers, header::ACCESS_CONTROL_EXPOSE_HEADERS, Some(exposed));
    set_named(headers, &context.dialect.delivery_header("media-type"), media);
    set_named(
        headers,
        &context.dialect.delivery_header("request-id"),
        &format!("EMU0:{:012X}", context.id.0),
    );
    // Document 1, Permission header: on every REST response.
    set_named(
        headers,
        context.dialect.accepted_permissions_header(),
        &context.accepted_permissions,
    );
    if let Some(version) = context.version {
        set_named(headers, context.dialect.version_header(), version);
        set_named(headers, &format!("{}-selected", context.dialect.version_header()), version);
    }
    if let Some(token) = context.caller.token().filter(|token| token.is_scoped()) {
        set_named(headers, "x-oauth-scopes", &token.scopes.join(", "));
        set_named(headers, "x-accepted-oauth-scopes", &context.accepted_scopes);
    }
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: Option<&str>) {
    if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
        headers.insert(name, value);
    }
}

/// As [`set`], for names that depend on the dialect. Names and values are made by the emulator;
/// what no header can have is left out.
pub fn set_named(headers: &mut HeaderMap, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
        headers.insert(name, value);
    }
}
