//! All request errors, and the one place that turns them into responses (SPECIFICATION, "Errors").

use http::{HeaderValue, StatusCode, header};
use percent_encoding::{CONTROLS, utf8_percent_encode};
use serde_json::{Value, json};

use super::reply::Reply;
use crate::emulator::limits::Exceeded;

/// The prefix of every `documentation_url`; pages for humans have another host than the API.
const DOCUMENTATION: &str = "https://docs.example.com/rest";

/// The most objects of one kind in one place, which bounds the memory.
const OBJECTS_MAX: usize = 50_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiError {
    /// Unknown, or hidden from this caller.
    NotFound,
    BadCredentials,
    RequiresAuthentication,
    Forbidden(&'static str),
    MalformedJson,
    /// The request is malformed; with the detail.
    BadRequest(String),
    Invalid(Vec<FieldError>),
    TooLarge,
    /// The request could not be read, so neither its route nor its caller is known.
    Unreadable(StatusCode, &'static str),
    /// With the new address. Reads get 301, writes 307, which keeps their method.
    MovedRead(String),
    MovedWrite(String),
    PrimaryLimit {
        account: String,
        status: StatusCode,
    },
    SecondaryLimit {
        exceeded: Exceeded,
        status: StatusCode,
        retry_after_secs: Option<u64>,
    },
    Banned,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    pub resource: &'static str,
    pub field: String,
    pub code: Code,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "snake_case")]
pub enum Code {
    MissingField,
    Invalid,
    AlreadyExists,
}

impl ApiError {
    pub fn field(
        resource: &'static str,
        field: &str,
        code: Code,
        message: impl Into<String>,
    ) -> Self {
        let (field, message) = (field.to_owned(), message.into());
        Self::Invalid(vec![FieldError { resource, field, code, message }])
    }

    /// A 422 for one field with an invalid value.
    pub fn invalid(resource: &'static str, field: &str, message: impl Into<String>) -> Self {
        Self::field(resource, field, Code::Invalid, message)
    }

    pub fn not_found_unless(found: bool) -> Result<(), Self> {
        if found { Ok(()) } else { Err(Self::NotFound) }
    }

    /// Bounds the memory; the upstream answers 422 for a spammed endpoint.
    pub fn unless_spammed(resource: &'static str, count: usize) -> Result<(), Self> {
        if count < OBJECTS_MAX {
            Ok(())
        } else {
            Err(Self::invalid(resource, "base", "there are too many already"))
        }
    }

    pub fn into_reply(self) -> Reply {
        let (status, message) = match self {
            Self::NotFound => (StatusCode::NOT_FOUND, "Not Found"),
            Self::BadCredentials => (StatusCode::UNAUTHORIZED, "Bad credentials"),
            Self::RequiresAuthentication => (StatusCode::UNAUTHORIZED, "Requires authentication"),
            Self::Forbidden(message) => (StatusCode::FORBIDDEN, message),
            Self::MalformedJson => (StatusCode::BAD_REQUEST, "Problems parsing JSON"),
            Self::BadRequest(message) => return error(StatusCode::BAD_REQUEST, &message, ""),
            Self::Invalid(fields) => return invalid(&fields),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "The request body is too large"),
            Self::Unreadable(status, message) => (status, message),
            Self::MovedRead(address) => {
                return moved(StatusCode::MOVED_PERMANENTLY, "Moved Permanently", &address);
            }
            Self::MovedWrite(address) => {
                return moved(StatusCode::TEMPORARY_REDIRECT, "Temporary Redirect", &address);
            }
            Self::PrimaryLimit { account, status } => {
                let message = format!("API rate limit exceeded for {account}.");
                let page = "/overview/rate-limits-for-the-rest-api#primary-rate-limits";
                return error(status, &message, page);
            }
            Self::SecondaryLimit { exceeded, status, retry_after_secs } => {
                return secondary(exceeded, status, retry_after_secs);
            }
            Self::Banned => (StatusCode::FORBIDDEN, "Sorry. Your account was suspended."),
        };
        error(status, message, "")
    }
}

fn error(status: StatusCode, message: &str, documentation: &str) -> Reply {
    // The running service includes `status` in newer bodies (SPECIFICATION, "Limits in practice").
    let documentation = format!("{DOCUMENTATION}{documentation}");
    Reply::json(
        status,
        json!({ "message": message, "documentation_url": documentation, "status": status.as_str() }),
    )
}

fn secondary(exceeded: Exceeded, status: StatusCode, retry_after_secs: Option<u64>) -> Reply {
    let message = match exceeded {
        Exceeded::Content => {
            "You have exceeded a secondary rate limit and have been temporarily blocked from content creation. Please retry your request again later."
        }
        _ => {
            "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
        }
    };
    let page = "/overview/rate-limits-for-the-rest-api#secondary-rate-limits";
    let mut reply = error(status, message, page);
    reply
        .headers
        .extend(retry_after_secs.map(|secs| (header::RETRY_AFTER, HeaderValue::from(secs))));
    reply
}

fn moved(status: StatusCode, message: &str, address: &str) -> Reply {
    let reply = Reply::json(
        status,
        json!({ "message": message, "url": address, "documentation_url": DOCUMENTATION }),
    );
    // The path may contain characters that are illegal in a header.
    reply.with(header::LOCATION, &utf8_percent_encode(address, CONTROLS).to_string())
}

/// `message` is the only documented member of an error body, so it names the fields itself.
fn summary(fields: &[FieldError]) -> String {
    const NAMED_MAX: usize = 10;
    let named = |fault: &FieldError| {
        let name = fault.field.rsplit('.').next().unwrap_or("");
        if fault.message.contains(name) {
            fault.message.clone()
        } else {
            format!("{}: {}", fault.field, fault.message)
        }
    };
    let named: Vec<String> = fields.iter().take(NAMED_MAX).map(named).collect();
    format!("Validation Failed: {}", named.join("; "))
}

fn invalid(fields: &[FieldError]) -> Reply {
    let errors: Vec<Value> = fields
        .iter()
        .map(|fault| json!({ "resource": fault.resource, "field": fault.field, "code": fault.code.into_str(), "message": fault.message }))
        .collect();
    let status = StatusCode::UNPROCESSABLE_ENTITY;
    Reply::json(
        status,
        json!({ "message": summary(fields), "errors": errors, "documentation_url": DOCUMENTATION, "status": status.as_str() }),
    )
}
