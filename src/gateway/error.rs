//! The errors that the gateway answers itself: their words, statuses and messages.
//!
//! The rendering of an error as an answer is left to `response::error`.

use crate::api::ResourceName;
use crate::clock::Timestamp;
use crate::decision::{BudgetView, LimitKind};
use crate::tokens::Lack;
use crate::writes::record::Reason;
use crate::writes::{StoreError, WriteState};
use http::StatusCode;

/// The page behind `documentation_url`, served by the gateway itself.
pub const HELP_PATH: &str = "/_weir/help";

/// A gateway error: the reason why the gateway answers a request itself.
#[derive(Clone, Debug)]
pub enum GatewayError {
    /// Not exactly one well-formed request; the connection closes.
    Malformed(Malformed),
    /// The body or its framing broke off; the connection closes.
    BrokenBody,
    BodyTimeout,
    /// The body exceeds the limit of its kind of request.
    BodyTooLarge,
    HeadTimeout,
    Unauthenticated(Unknown),
    WrongSignature,
    /// The delivery is signed but unreadable.
    MalformedDelivery,
    /// The concurrent deliveries have reached their limit, in number or in bytes.
    DeliveriesFull,
    NotAllowed,
    /// A write, or a route about "me", by a client without an account of its own.
    NoAccount,
    /// No configured token may carry the request; names the requirement.
    NoToken(String),
    /// The upstream rejects every token that could carry the request.
    TokensRejected,
    /// A required installation token cannot be minted now; names the reason.
    TokenUnavailable(Lack),
    NoSuchResource,
    /// No stored answer may be served, and the client forbids a fetch (`only-if-cached`).
    NothingStored,
    /// A budget or a secondary limit denies the request.
    Limited {
        limit: LimitKind,
        /// The earliest time at which a retry may succeed.
        until: Timestamp,
        resource: ResourceName,
        /// The client's view of that resource's budget.
        view: BudgetView,
    },
    /// The upstream could not be reached, so no request was executed.
    Unreachable,
    /// The upstream took a read and gave no proper answer.
    UpstreamFailed,
    /// The upstream did not answer a read in time.
    UpstreamTimeout,
    /// A write may or may not have been executed (SPECIFICATION, "Promises" 3).
    OutcomeUnknown,
    /// The write could not be stored and was not begun.
    NotKept,
    /// The store broke off; the write may or may not be stored.
    MayBeKept,
    /// The store cannot read or record the outcome of a write.
    NotReadable,
    /// An invalid `Idempotency-Key`; names the reason.
    BadKey(&'static str),
    /// An `Idempotency-Key` that belongs to another request.
    KeyTaken,
    /// The write is no longer queued and cannot be cancelled; names its state.
    NotQueued(WriteState),
    /// The reason why a write of an earlier request ended.
    Ended(Box<Reason>),
    /// The client left before any byte was sent, so no client reads the answer.
    ClientGone,
    Draining,
}

/// The reason why validation fails. The connection closes after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// 400, with the fault.
    Bad(&'static str),
    /// 405: a method that is not passed on.
    Method,
    /// 414.
    TargetTooLong,
    /// 431, head above [`HEAD_BYTES_MAX`] or more than [`HEADERS_MAX`] fields.
    HeadTooLarge,
}

/// The reason why a request belongs to no client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    NoKey,
    WrongKey,
}

impl GatewayError {
    /// The word for metrics and logs, from a closed set.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::BrokenBody => "broken_body",
            Self::BodyTimeout => "body_timeout",
            Self::BodyTooLarge => "body_too_large",
            Self::HeadTimeout => "head_timeout",
            Self::Unauthenticated(Unknown::NoKey) => "no_key",
            Self::Unauthenticated(Unknown::WrongKey) => "wrong_key",
            Self::WrongSignature => "wrong_signature",
            Self::MalformedDelivery => "malformed_delivery",
            Self::DeliveriesFull => "deliveries_full",
            Self::NotAllowed => "not_allowed",
            Self::NoAccount => "no_account",
            Self::NoToken(_) => "no_token",
            Self::TokensRejected => "tokens_rejected",
            Self::TokenUnavailable(_) => "token_unavailable",
            Self::NoSuchResource => "no_such_resource",
            Self::NothingStored => "only_if_cached",
            Self::Limited { limit, .. } => limit.name(),
            Self::Unreachable => "upstream_unreachable",
            Self::UpstreamFailed => "upstream_failed",
            Self::UpstreamTimeout => "upstream_timeout",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::NotKept => "not_kept",
            Self::MayBeKept => "may_be_kept",
            Self::NotReadable => "not_readable",
            Self::BadKey(_) => "bad_idempotency_key",
            Self::KeyTaken => "idempotency_key_taken",
            Self::NotQueued(_) => "not_queued",
            Self::Ended(_) => "write_ended",
            Self::ClientGone => "client_gone",
            Self::Draining => "draining",
        }
    }

    /// True if the connection may not be at the start of a request.
    pub const fn closes_connection(&self) -> bool {
        matches!(
            self,
            Self::Malformed(_)
                | Self::BrokenBody
                | Self::BodyTimeout
                | Self::BodyTooLarge
                | Self::HeadTimeout
                | Self::Draining
        )
    }

    pub fn status_and_message(&self) -> (StatusCode, String) {
        let (status, message) = match self {
            Self::BadKey(what) | Self::Malformed(Malformed::Bad(what)) => {
                return (StatusCode::BAD_REQUEST, format!("Bad request: {what}."));
            }
            Self::NoToken(needed) => {
                return (
                    StatusCode::FORBIDDEN,
                    format!("No token of this gateway may carry this request: {needed}."),
                );
            }
            Self::TokenUnavailable(lack) => {
                let message = format!(
                    "This gateway has no token for this request at the moment ({}); nothing was executed.",
                    lack.reason
                );
                return (StatusCode::SERVICE_UNAVAILABLE, message);
            }
            Self::Malformed(Malformed::Method) => {
                (StatusCode::METHOD_NOT_ALLOWED, "This method is not supported.")
            }
            Self::Malformed(Malformed::TargetTooLong) => {
                (StatusCode::URI_TOO_LONG, "The request target is longer than 8192 bytes.")
            }
            Self::Malformed(Malformed::HeadTooLarge) => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "The request head is larger than 32 KiB or has more than 100 headers.",
            ),
            Self::BrokenBody => {
                (StatusCode::BAD_REQUEST, "Bad request: the body broke off or was framed wrongly.")
            }
            Self::BodyTimeout => {
                (StatusCode::REQUEST_TIMEOUT, "The request body did not arrive in time.")
            }
            Self::HeadTimeout => {
                (StatusCode::REQUEST_TIMEOUT, "The request head did not arrive in time.")
            }
            Self::BodyTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "The request body is too large."),
            Self::Unauthenticated(Unknown::NoKey) => (
                StatusCode::UNAUTHORIZED,
                "Requires authentication: send the key that your gateway's operator gave you.",
            ),
            Self::Unauthenticated(Unknown::WrongKey) => (
                StatusCode::UNAUTHORIZED,
                "Bad credentials: this gateway knows no client with this key.",
            ),
            Self::WrongSignature => (
                StatusCode::UNAUTHORIZED,
                "This delivery needs one X-Hub-Signature-256 header, made with the secret of this gateway's webhook.",
            ),
            Self::MalformedDelivery => (
                StatusCode::BAD_REQUEST,
                "Bad request: the body of this delivery is not a JSON object.",
            ),
            Self::DeliveriesFull => (
                StatusCode::SERVICE_UNAVAILABLE,
                "This gateway takes no further deliveries at the moment.",
            ),
            Self::NotAllowed => {
                (StatusCode::FORBIDDEN, "This gateway does not allow this request to this client.")
            }
            Self::NoAccount => (
                StatusCode::FORBIDDEN,
                "This client has no account of its own at this gateway: it cannot write, nor ask for what is about itself.",
            ),
            Self::TokensRejected => (
                StatusCode::BAD_GATEWAY,
                "The upstream accepts none of this gateway's tokens for this request; nothing was executed.",
            ),
            Self::NoSuchResource => (StatusCode::NOT_FOUND, "Not Found"),
            // RFC 9111 §5.2.1.7.
            Self::NothingStored => (
                StatusCode::GATEWAY_TIMEOUT,
                "Nothing stored may be served for this request, which asks for nothing else (only-if-cached); the upstream was not asked.",
            ),
            Self::Unreachable => {
                (StatusCode::BAD_GATEWAY, "The upstream cannot be reached; nothing was executed.")
            }
            Self::UpstreamFailed => (StatusCode::BAD_GATEWAY, "The upstream's answer was lost."),
            Self::UpstreamTimeout => {
                (StatusCode::GATEWAY_TIMEOUT, "The upstream did not answer in time.")
            }
            Self::OutcomeUnknown => (
                StatusCode::BAD_GATEWAY,
                "The upstream's answer was lost: it is unknown whether this request was executed. Look before you send it again.",
            ),
            Self::ClientGone => {
                (StatusCode::SERVICE_UNAVAILABLE, "The client left before anything was sent.")
            }
            Self::Draining => (
                StatusCode::SERVICE_UNAVAILABLE,
                "The gateway is shutting down; nothing was executed.",
            ),
            Self::NotKept
            | Self::MayBeKept
            | Self::NotReadable
            | Self::KeyTaken
            | Self::NotQueued(_)
            | Self::Ended(_) => {
                return self.of_the_queue();
            }
            Self::Limited { .. } => (StatusCode::FORBIDDEN, ""),
        };
        (status, message.to_owned())
    }

    /// The same for errors of the write queue.
    fn of_the_queue(&self) -> (StatusCode, String) {
        let (status, message) = match self {
            Self::NotQueued(state) => {
                return (
                    StatusCode::CONFLICT,
                    format!("This write is {} and cannot be cancelled any more.", state.name()),
                );
            }
            Self::Ended(reason) => {
                return (
                    StatusCode::from_u16(reason.status).unwrap_or(StatusCode::BAD_GATEWAY),
                    reason.message.clone(),
                );
            }
            Self::KeyTaken => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "This Idempotency-Key was used for another request.",
            ),
            Self::NotReadable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "What became of this request cannot be told at the moment; ask again.",
            ),
            Self::MayBeKept => (
                StatusCode::SERVICE_UNAVAILABLE,
                "This gateway could not make sure of this request: it is unknown whether it will be executed. Look before you send it again.",
            ),
            _ => (
                StatusCode::SERVICE_UNAVAILABLE,
                "This gateway cannot keep this request safe at the moment; nothing was executed.",
            ),
        };
        (status, message.to_owned())
    }

    /// The stored reason when an error ends a write.
    pub fn as_reason(&self) -> Reason {
        let (status, message) = self.status_and_message();
        let message = if message.is_empty() {
            format!("The limits left no room for it in time ({}).", self.reason())
        } else {
            message
        };
        Reason { word: self.reason().to_owned(), message, status: status.as_u16() }
    }
}

impl From<StoreError> for GatewayError {
    fn from(fault: StoreError) -> Self {
        // Only debug: the store logs its failure, and the request's line and metric count each.
        tracing::debug!(error = %fault, "a write could not be kept, and was refused");
        match fault {
            StoreError::Full(_) => Self::NotKept,
            StoreError::Failed(_) => Self::MayBeKept,
        }
    }
}
