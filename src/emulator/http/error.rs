//! Everything that can be wrong with a request, and the one place that turns it into an answer
//! (Document 1, Errors).

use http::{HeaderValue, StatusCode, header};
use percent_encoding::{CONTROLS, utf8_percent_encode};
use serde_json::{Value, json};

use super::reply::Reply;
use crate::emulator::limits::Exceeded;

/// Begins every `documentation_url`; people's pages are not at the API's host.
const DOCUMENTATION: &str = "https://docs.example.com/rest";

/// The most things of one kind in one place, so that no caller can fill the memory.
const THINGS_MAX: usize = 50_000;

/// Why a request is not answered as it wished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiError {
    /// Unknown, or hidden from this caller.
    NotFound,
    BadCredentials,
    RequiresAuthentication,
    /// With the message.
    Forbidden(&'static str),
    /// The body is not JSON.
    MalformedJson,
    /// The request's form is wrong, with what is wrong.
    BadRequest(String),
    /// The request's content is wrong.
    Invalid(Vec<FieldError>),
    TooLarge,
    /// The repository has another name now; the address to use. Reads are told 301, writes 307,
    /// which keeps their method.
    MovedRead(String),
    MovedWrite(String),
    /// The caller is named.
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

/// One field of a body or query that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    pub resource: &'static str,
    pub field: String,
    pub code: Code,
    pub message: String,
}

/// What is wrong with a field.
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
    /// A 422 for one field.
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

    /// Refuses to make more of something that there is too much of already (Document 1, 422: "the
    /// endpoint has been spammed").
    pub fn unless_spammed(resource: &'static str, count: usize) -> Result<(), Self> {
        if count < THINGS_MAX {
            Ok(())
        } else {
            Err(Self::field(resource, "base", Code::Invalid, "there are too many already"))
        }
    }

    /// The answer.
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
    // UPSTREAM.md, Limits: "Newer bodies add `status`".
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
    // A path may have been sent with characters that no header takes.
    let address = utf8_percent_encode(address, CONTROLS).to_string();
    if let Ok(value) = HeaderValue::from_str(&address) {
        reply.headers.push((header::LOCATION, value));
    }
    reply
}

/// The `message`, which is all of an error's body that the documents show: it names the fields
/// itself.
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
