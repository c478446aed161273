//! All request errors, and the one place that turns them into responses (SPECIFICATION, "Errors").

use http::{HeaderValue, StatusCode, header};
use percent_encoding::{CONTROLS, utf8_percent_encode};
use serde_json::{Value, json};

use super::reply::Reply;
use crate::emulator::limits::Exceeded;

/// The prefix of every `documentation_url`; pages for humans have another host than the API.
const DOCUMENTATION: &str = "https://docs.example.com/rest";

/// The most objects of one kind in one place, which bounds the memory.
const THINGS_MAX: usize = 50_000;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    MissingField,
    Invalid,
    AlreadyExists,
}

impl Code {
    fn name(self) -> &'static str {
        match self {
            Self::MissingField => "missing_field",
            Self::Invalid => "invalid",
            Self::AlreadyExists => "already_exists",
        }
    }
}

impl ApiError {
    pub fn field(
        resource: &'static str,
        field: &str,
        code: Code,
        message: impl Into<String>,
    ) -> Self {
        Self::Invalid(vec![FieldError {
            resource,
            field: field.to_owned(),
            code,
            message: message.into(),
        }])
    }

    /// A 422 for one field with an invalid value.
    pub fn invalid(resource: &'static str, field: &str, message: impl Into<String>) -> Self {
        Self::field(resource, field, Code::Invalid, message)
    }

    /// Bounds the memory; the upstream answers 422 for a spammed endpoint.
    pub fn unless_spammed(resource: &'static str, count: usize) -> Result<(), Self> {
        if count < THINGS_MAX {
            Ok(())
        } else {
            Err(Self::field(resource, "base", Code::Invalid, "there are too many already"))
        }
    }

    pub fn into_reply(self) -> Reply {
        match self {
            Self::NotFound => error(StatusCode::NOT_FOUND, "Not Found", ""),
            Self::BadCredentials => error(StatusCode::UNAUTHORIZED, "Bad credentials", ""),
            Self::RequiresAuthentication => {
                error(StatusCode::UNAUTHORIZED, "Requires authentication", "")
            }
            Self::Forbidden(message) => error(StatusCode::FORBIDDEN, message, ""),
            Self::MalformedJson => error(StatusCode::BAD_REQUEST, "Problems parsing JSON", ""),
            Self::BadRequest(message) => error(StatusCode::BAD_REQUEST, &message, ""),
            Self::Invalid(fields) => invalid(&fields),
            Self::TooLarge => {
                error(StatusCode::PAYLOAD_TOO_LARGE, "The request body is too large", "")
            }
            Self::MovedRead(address) => moved(StatusCode::MOVED_PERMANENTLY, &address),
            Self::MovedWrite(address) => moved(StatusCode::TEMPORARY_REDIRECT, &address),
            Self::PrimaryLimit { account, status } => error(
                status,
                &format!("API rate limit exceeded for {account}."),
                "/overview/rate-limits-for-the-rest-api#primary-rate-limits",
            ),
            Self::SecondaryLimit { exceeded, status, retry_after_secs } => {
                secondary(exceeded, status, retry_after_secs)
            }
            Self::Banned => error(StatusCode::FORBIDDEN, "Sorry. Your account was suspended.", ""),
        }
    }
}

fn error(status: StatusCode, message: &str, documentation: &str) -> Reply {
    // The running service includes `status` in newer bodies (SPECIFICATION, "Limits in practice").
    Reply::json(
        status,
        json!({ "message": message, "documentation_url": format!("{DOCUMENTATION}{documentation}"), "status": status.as_str() }),
    )
}

fn secondary(exceeded: Exceeded, status: StatusCode, retry_after_secs: Option<u64>) -> Reply {
    let message = match exceeded {
        Exceeded::Content => {
            "You have exceeded a secondary rate limit and have been temporarily blocked from content creation. Please retry your request again later."
        }
        Exceeded::Concurrency
        | Exceeded::Points
        | Exceeded::Cpu
        | Exceeded::OauthTokens
        | Exceeded::Waiting => {
            "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
        }
    };
    let mut reply =
        error(status, message, "/overview/rate-limits-for-the-rest-api#secondary-rate-limits");
    if let Some(secs) = retry_after_secs {
        reply.headers.push((header::RETRY_AFTER, HeaderValue::from(secs)));
    }
    reply
}

fn moved(status: StatusCode, address: &str) -> Reply {
    let message = if status == StatusCode::MOVED_PERMANENTLY {
        "Moved Permanently"
    } else {
        "Temporary Redirect"
    };
    let mut reply = Reply::json(
        status,
        json!({ "message": message, "url": address, "documentation_url": DOCUMENTATION }),
    );
    // The path may contain characters that are illegal in a header.
    let address = utf8_percent_encode(address, CONTROLS).to_string();
    if let Ok(value) = HeaderValue::from_str(&address) {
        reply.headers.push((header::LOCATION, value));
    }
    reply
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
        .map(|fault| json!({ "resource": fault.resource, "field": fault.field, "code": fault.code.name(), "message": fault.message }))
        .collect();
    let status = StatusCode::UNPROCESSABLE_ENTITY;
    Reply::json(
        status,
        json!({ "message": summary(fields), "errors": errors, "documentation_url": DOCUMENTATION, "status": status.as_str() }),
    )
}
