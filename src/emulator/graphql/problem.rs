//! Errors inside a query: `errors[].type` and message, beside partial data.

use apollo_compiler::resolvers::FieldError;
use apollo_compiler::response::GraphQLError;
use serde_json::{Value, json};

use super::entry;
use crate::emulator::http::ApiError;

/// The library's prefix of a field error's message.
const PREFIX: &str = "resolver error: ";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Unknown, or hidden from this caller.
    NotFound,
    Forbidden,
    Unprocessable,
    InvalidCursor,
    MissingPaginationBoundaries,
    ExcessivePagination,
    MaxNodeLimitExceeded,
    ResourceLimitsExceeded,
    Undefined,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::NotFound,
        Self::Forbidden,
        Self::Unprocessable,
        Self::InvalidCursor,
        Self::MissingPaginationBoundaries,
        Self::ExcessivePagination,
        Self::MaxNodeLimitExceeded,
        Self::ResourceLimitsExceeded,
        Self::Undefined,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::NotFound => "NOT_FOUND",
            Self::Forbidden => "FORBIDDEN",
            Self::Unprocessable => "UNPROCESSABLE",
            Self::InvalidCursor => "INVALID_CURSOR_ARGUMENTS",
            Self::MissingPaginationBoundaries => "MISSING_PAGINATION_BOUNDARIES",
            Self::ExcessivePagination => "EXCESSIVE_PAGINATION",
            Self::MaxNodeLimitExceeded => "MAX_NODE_LIMIT_EXCEEDED",
            Self::ResourceLimitsExceeded => "RESOURCE_LIMITS_EXCEEDED",
            Self::Undefined => "UNDEFINED",
        }
    }
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

    /// Returns an entry of `errors` that belongs to no field.
    pub fn entry(&self) -> Value {
        json!({ "type": self.kind.name(), "message": self.message })
    }
}

impl From<ApiError> for Problem {
    fn from(fault: ApiError) -> Self {
        match fault {
            ApiError::NotFound => {
                Self::new(Kind::NotFound, "Could not resolve to a node that the viewer may see.")
            }
            ApiError::Forbidden(message) => Self::new(Kind::Forbidden, message),
            ApiError::Invalid(faults) => {
                let messages: Vec<String> = faults.into_iter().map(|fault| fault.message).collect();
                Self::new(Kind::Unprocessable, messages.join(", "))
            }
            _ => Self::new(Kind::Unprocessable, "The request could not be processed."),
        }
    }
}

/// The library's errors have only a message, so the type is prefixed to it.
impl From<Problem> for FieldError {
    fn from(problem: Problem) -> Self {
        Self { message: format!("{}: {}", problem.kind.name(), problem.message) }
    }
}

/// Splits the message into type and message again.
pub fn of_execution(error: &GraphQLError) -> Value {
    let said = error.message.strip_prefix(PREFIX).unwrap_or(&error.message);
    let typed = Kind::ALL
        .into_iter()
        .find_map(|kind| Some((kind, said.strip_prefix(kind.name())?.strip_prefix(": ")?)));
    let (kind, message) = typed.unwrap_or((Kind::Undefined, said));
    entry(kind.name(), &GraphQLError { message: message.to_owned(), ..error.clone() })
}

/// The response exceeds its byte budget.
pub fn too_much() -> Problem {
    Problem::new(
        Kind::ResourceLimitsExceeded,
        "The query asks for more than can be answered at once; ask for fewer nodes or fields.",
    )
}
