//! Errors inside a query: `errors[].type` and message, beside partial data.

use apollo_compiler::resolvers::FieldError;
use apollo_compiler::response::GraphQLError;
use serde_json::{Value, json};
use strum::{EnumString, IntoStaticStr};

use super::entry;
use crate::emulator::http::ApiError;

/// The library's prefix of a field error's message.
const PREFIX: &str = "resolver error: ";

#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE", const_into_str)]
pub enum Kind {
    /// Unknown, or hidden from this caller.
    NotFound,
    Forbidden,
    Unprocessable,
    #[strum(serialize = "INVALID_CURSOR_ARGUMENTS")]
    InvalidCursor,
    MissingPaginationBoundaries,
    ExcessivePagination,
    MaxNodeLimitExceeded,
    ResourceLimitsExceeded,
    Undefined,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub kind: Kind,
    pub message: String,
}

impl Problem {
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, message)
    }

    /// An object that an earlier mutation of the same request has deleted or hidden.
    pub fn gone(what: &str) -> Self {
        Self::not_found(format!("{what} does not exist any more."))
    }

    pub fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(Kind::Unprocessable, message)
    }

    /// Returns an entry of `errors` that belongs to no field.
    pub fn entry(&self) -> Value {
        json!({ "type": self.kind.into_str(), "message": self.message })
    }
}

impl From<ApiError> for Problem {
    fn from(fault: ApiError) -> Self {
        match fault {
            ApiError::NotFound => {
                Self::not_found("Could not resolve to a node that the viewer may see.")
            }
            ApiError::Forbidden(message) => Self::new(Kind::Forbidden, message),
            ApiError::Invalid(faults) => {
                let messages: Vec<String> = faults.into_iter().map(|fault| fault.message).collect();
                Self::unprocessable(messages.join(", "))
            }
            _ => Self::unprocessable("The request could not be processed."),
        }
    }
}

/// The library's errors have only a message, so the type is prefixed to it.
impl From<Problem> for FieldError {
    fn from(problem: Problem) -> Self {
        Self { message: format!("{}: {}", problem.kind.into_str(), problem.message) }
    }
}

/// Splits the message into type and message again.
pub fn of_execution(error: &GraphQLError) -> Value {
    let text = error.message.strip_prefix(PREFIX).unwrap_or(&error.message);
    let typed = text.split_once(": ");
    let (kind, message) = typed
        .and_then(|(kind, message)| Some((kind.parse().ok()?, message)))
        .unwrap_or((Kind::Undefined, text));
    entry(kind.into_str(), &GraphQLError { message: message.to_owned(), ..error.clone() })
}

/// The response exceeds its byte budget.
pub fn too_much() -> Problem {
    Problem::new(
        Kind::ResourceLimitsExceeded,
        "The query asks for more than can be answered at once; ask for fewer nodes or fields.",
    )
}
