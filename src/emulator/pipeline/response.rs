//! An answer on the wire: the headers that every answer has, and its conditional form.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use parking_lot::Mutex;

use super::arrival::Incoming;
use crate::api::Dialect;
use crate::clock::Timestamp;
use crate::emulator::accounts::Caller;
use crate::emulator::http::issued_dates::{DateValidity, IssuedDates};
use crate::emulator::http::validators::{Freshness, Validators, validators};
use crate::emulator::http::{Body, Reply, Tag, http_date};

#[derive(Debug)]
pub struct Context<'a> {
    pub incoming: Incoming<'a>,
    pub caller: &'a Caller,
    pub dialect: Dialect,
    pub version: Option<&'static str>,
    pub accepted_permissions: String,
    pub accepted_scopes: String,
    pub issued_dates: Arc<Mutex<IssuedDates>>,
}

impl Context<'_> {
    fn date_validity(&self, changed_at: Timestamp) -> DateValidity {
        // Two accounts may see different content at one address, with different dates of change.
        let address = format!("{} {}", self.caller.account, self.incoming.address());
        self.issued_dates.lock().check(&address, changed_at, self.incoming.now)
    }
}

fn overlay(headers: &mut HeaderMap, own: Vec<(HeaderName, HeaderValue)>) {
    for (name, _) in &own {
        headers.remove(name);
    }
    headers.extend(own);
}

fn every_answer(headers: &mut HeaderMap, context: &Context<'_>) {
    set(headers, header::DATE, Some(&http_date(context.incoming.now)));
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
    let id = format!("EMU0:{:012X}", context.incoming.id.0);
    set_named(headers, &context.dialect.delivery_header("request-id"), &id);
    // Every REST response carries the permission header (SPECIFICATION, "Permissions").
    let permissions = context.dialect.accepted_permissions_header();
    set_named(headers, permissions, &context.accepted_permissions);
    if let Some(version) = context.version {
        let name = context.dialect.version_header().as_str();
        set_named(headers, name, version);
        set_named(headers, &format!("{name}-selected"), version);
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

/// For names that depend on the dialect. Illegal names and values are skipped.
pub fn set_named(headers: &mut HeaderMap, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
        headers.insert(name, value);
    }
}

impl Reply {
    /// Evaluates the request's conditions. The rate headers follow once the cost is known.
    pub fn into_response(self, context: &Context<'_>) -> Response<Bytes> {
        let (content_type, bytes) = match self.body {
            Body::Empty => (None, Bytes::new()),
            // Serializing a `Value` cannot fail; an empty body is the fallback.
            Body::Json(value) => (
                Some("application/json; charset=utf-8".to_owned()),
                serde_json::to_vec(&value).unwrap_or_default().into(),
            ),
            Body::Raw(content_type, bytes) => (content_type, bytes),
        };
        let (request, method) =
            (context.incoming.request.headers(), context.incoming.request.method());
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        let exact = |opaque: String, last_modified| Validators {
            opaque,
            last_modified,
            date_validity: DateValidity::Exact,
        };
        let validators = match &self.tag {
            _ if self.status != StatusCode::OK || !is_read => None,
            Tag::Made => {
                let date_validity =
                    self.changed_at.map_or(DateValidity::None, |at| context.date_validity(at));
                Some(validators(request, &bytes, self.changed_at, date_validity))
            }
            Tag::Recorded(tag) => {
                let opaque = tag.trim_start_matches("W/").trim_matches('"');
                Some(exact(opaque.to_owned(), self.changed_at))
            }
            Tag::None => self.changed_at.map(|at| exact(String::new(), Some(at))),
        };
        let is_unmodified = validators
            .as_ref()
            .is_some_and(|validators| validators.evaluate(request) == Freshness::NotModified);
        let etag = match (self.tag, &validators) {
            (Tag::None, _) | (Tag::Made, None) => None,
            (_, Some(validators)) if is_unmodified => Some(validators.strong_etag()),
            (Tag::Recorded(tag), _) => Some(tag),
            (Tag::Made, Some(validators)) => Some(validators.etag(request)),
        };
        let mut own = self.headers;
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = if is_unmodified { StatusCode::NOT_MODIFIED } else { self.status };
        let headers = response.headers_mut();
        every_answer(headers, context);
        if is_unmodified {
            own.retain(|(name, _)| name != header::LINK && name != header::CONTENT_TYPE);
        } else {
            set(headers, header::CONTENT_TYPE, content_type.as_deref());
        }
        set(headers, header::ETAG, etag.as_deref());
        let last_modified = validators.as_ref().and_then(Validators::last_modified_header);
        set(headers, header::LAST_MODIFIED, last_modified.as_deref());
        overlay(headers, own);
        if is_unmodified {
            return response;
        }
        if method == Method::HEAD {
            // RFC 9110, section 9.3.2: the headers of the GET, without the content.
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
        } else {
            *response.body_mut() = bytes;
        }
        response
    }
}
