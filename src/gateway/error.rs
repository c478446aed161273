//! The errors that the gateway answers itself: their words, statuses and messages.
//!
//! Left out: the rendering of an error as an answer (`response/error.rs`).

use http::StatusCode;

use crate::api::ResourceName;
use crate::clock::Timestamp;
use crate::decision::breaker::Outage;
use crate::decision::{BudgetView, LimitKind};
use crate::tokens::Lack;
use crate::writes::{StoreError, WriteState, record::Reason};

/// The page behind `documentation_url`, served by the gateway itself.
pub const HELP_PATH: &str = "/_weir/help";

/// The reason of an answer that was broken off because its client took too little of it. It has no
/// status of its own, because the head was sent.
pub const SLOW_CLIENT: &str = "slow_client";

/// The same for a slow client that held a slot of the upstream's concurrency while others waited.
pub const SLOT_NEEDED: &str = "slot_needed";

/// The reason of a connection that ended in its TLS handshake.
pub const TLS_HANDSHAKE: &str = "tls_handshake";

/// The same for a slow client of a long answer whose memory others need.
pub const MEMORY_NEEDED: &str = "memory_needed";

/// A gateway error: the reason why the gateway answers a request itself. Displays its message for
/// the client.
#[derive(Clone, Debug, thiserror::Error, strum::IntoStaticStr)]
#[cfg_attr(test, derive(strum::VariantNames))]
#[strum(serialize_all = "snake_case")]
pub enum GatewayError {
    /// Not exactly one well-formed request; the connection closes.
    #[error(transparent)]
    Malformed(Malformed),
    #[error("Bad request: the body broke off or was framed wrongly.")]
    BrokenBody,
    #[error("The request body did not arrive in time.")]
    BodyTimeout,
    #[error("The request body is too large.")]
    BodyTooLarge,
    #[error("The request head did not arrive in time.")]
    HeadTimeout,
    #[error(transparent)]
    Unauthenticated(Unknown),
    /// A key of this gateway where the upstream could see it; the text names the position.
    #[error(
        "Bad request: a key of this gateway stands in {0}. Its place is Authorization or X-Weir-Key."
    )]
    MisplacedKey(String),
    #[error(
        "This delivery needs one X-Hub-Signature-256 header, made with the secret of this gateway's webhook."
    )]
    WrongSignature,
    #[error("Bad request: the body of this delivery is not a JSON object.")]
    MalformedDelivery,
    /// The bodies of concurrent deliveries fill their memory.
    #[error("This gateway takes no further deliveries at the moment.")]
    DeliveriesFull,
    #[error("This gateway does not allow this request to this client.")]
    NotAllowed,
    /// A write, or a route about "me", by a client without an account of its own.
    #[error(
        "This client has no account of its own at this gateway: it cannot write, nor ask for what is about itself."
    )]
    NoAccount,
    #[error("No token of this gateway may carry this request: {0}.")]
    NoToken(String),
    #[error(
        "The upstream accepts none of this gateway's tokens for this request; nothing was executed."
    )]
    TokensRejected,
    #[error(
        "This gateway has no token for this request at the moment ({}); nothing was executed.",
        .0.reason
    )]
    TokenUnavailable(Lack),
    #[error("Not Found")]
    NoSuchResource,
    /// No stored answer may be served, and the client forbids a fetch (`only-if-cached`).
    #[strum(serialize = "only_if_cached")]
    #[error(
        "Nothing stored may be served for this request, which asks for nothing else (only-if-cached); the upstream was not asked."
    )]
    NothingStored,
    #[error("The limits left no room for it in time ({}).", limit.name())]
    Limited {
        limit: LimitKind,
        /// The earliest time at which a retry may succeed.
        until: Timestamp,
        resource: ResourceName,
        /// The client's view of that resource's budget.
        view: BudgetView,
    },
    #[strum(serialize = "upstream_unreachable")]
    #[error("The upstream cannot be reached; nothing was executed.")]
    Unreachable,
    /// The circuit breaker is open, so nothing was sent.
    #[error("The upstream does not answer at the moment; nothing was executed.")]
    UpstreamDown(Outage),
    /// The upstream took a read and gave no proper answer.
    #[error("The upstream's answer was lost.")]
    UpstreamFailed,
    /// The upstream took a read, and encoded its answer although asked not to.
    #[strum(serialize = "upstream_undecodable")]
    #[error("The upstream's answer cannot be decoded: {0}.")]
    Undecodable(String),
    #[error("The upstream did not answer in time.")]
    UpstreamTimeout,
    /// A write may or may not have been executed (SPECIFICATION, "Promises" 3).
    #[error(
        "The upstream's answer was lost: it is unknown whether this request was executed. Look before you send it again."
    )]
    OutcomeUnknown,
    #[error("This gateway cannot keep this request safe at the moment; nothing was executed.")]
    NotKept,
    /// The other replicas could not hear of a write.
    #[error(
        "The replicas of this gateway cannot reach each other at the moment; nothing was executed."
    )]
    StateAway,
    #[error(
        "This gateway could not make sure of this request: it is unknown whether it will be executed. Look before you send it again."
    )]
    MayBeKept,
    /// The store cannot read or record the outcome of a write.
    #[error("What became of this request cannot be told at the moment; ask again.")]
    NotReadable,
    #[strum(serialize = "bad_idempotency_key")]
    #[error("Bad request: {0}.")]
    BadKey(&'static str),
    #[strum(serialize = "idempotency_key_taken")]
    #[error("This Idempotency-Key was used for another request.")]
    KeyTaken,
    #[error("This write is {} and cannot be cancelled any more.", .0.name())]
    NotQueued(WriteState),
    /// The reason why a write of an earlier request ended.
    #[strum(serialize = "write_ended")]
    #[error("{}", .0.message)]
    Ended(Box<Reason>),
    /// The client left before any byte was sent, so no client reads the answer.
    #[error("The client left before anything was sent.")]
    ClientGone,
    #[error("The gateway is shutting down; nothing was executed.")]
    Draining,
}

/// The reason why validation fails. The connection closes after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("Bad request: {0}.")]
    Bad(&'static str),
    #[error("This method is not supported.")]
    Method,
    #[error("The request target is longer than 8192 bytes.")]
    TargetTooLong,
    /// 431.
    #[error("The request head is larger than 32 KiB or has more than 100 headers.")]
    HeadTooLarge,
}

/// The reason why a request belongs to no client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr)]
#[cfg_attr(test, derive(strum::VariantNames))]
#[strum(serialize_all = "snake_case")]
pub enum Unknown {
    #[error("Requires authentication: send the key that your gateway's operator gave you.")]
    NoKey,
    #[error("Bad credentials: this gateway knows no client with this key.")]
    WrongKey,
    /// The key and the certificate of a request belong to two clients.
    #[error("Bad credentials: the key and the certificate belong to different clients.")]
    OtherCertificate,
    /// The names of a certificate belong to several clients.
    #[error("Bad credentials: the names of this certificate belong to several clients.")]
    AmbiguousCertificate,
    #[error(
        "Bad credentials: this key has expired at {}. Ask your gateway's operator for another one.",
        .0.rfc3339_past()
    )]
    ExpiredKey(Timestamp),
    #[error("Bad credentials: this token is of no use: {0}.")]
    MalformedToken(&'static str),
    #[error("Bad credentials: this gateway accepts no tokens of the issuer (iss) of this token.")]
    WrongIssuer,
    #[error("Bad credentials: this token is for another audience (aud) than this gateway.")]
    WrongAudience,
    #[error("Bad credentials: this token has expired at {}.", .0.rfc3339_past())]
    ExpiredToken(Timestamp),
    #[error("Bad credentials: this token is not valid yet (nbf, iat). Is a clock wrong?")]
    EarlyToken,
    #[error("Bad credentials: the issuer of this token publishes no key of this name (kid).")]
    WrongSigner,
    #[error("Bad credentials: the signature of this token does not fit.")]
    ForgedToken,
    #[error("Bad credentials: no client of this gateway has the claims of this token.")]
    WrongClaims,
    #[error(
        "Bad credentials: several clients of this gateway have the claims of this token. Tell the gateway's operator."
    )]
    AmbiguousToken,
    #[error("The keys of the issuer of this token cannot be fetched at the moment.")]
    IssuerUnavailable,
}

impl Unknown {
    fn status(self) -> StatusCode {
        match self {
            Self::IssuerUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::UNAUTHORIZED,
        }
    }
}

impl GatewayError {
    /// The word for metrics and logs, from a closed set.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unauthenticated(unknown) => unknown.into(),
            Self::Limited { limit, .. } => limit.name(),
            other => other.into(),
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

    pub fn status(&self) -> StatusCode {
        match self {
            Self::BadKey(_)
            | Self::Malformed(Malformed::Bad(_))
            | Self::BrokenBody
            | Self::MisplacedKey(_)
            | Self::MalformedDelivery => StatusCode::BAD_REQUEST,
            Self::Unauthenticated(unknown) => unknown.status(),
            Self::WrongSignature => StatusCode::UNAUTHORIZED,
            Self::NoToken(_) | Self::NotAllowed | Self::NoAccount | Self::Limited { .. } => {
                StatusCode::FORBIDDEN
            }
            Self::NoSuchResource => StatusCode::NOT_FOUND,
            Self::Malformed(Malformed::Method) => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodyTimeout | Self::HeadTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::NotQueued(_) => StatusCode::CONFLICT,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Malformed(Malformed::TargetTooLong) => StatusCode::URI_TOO_LONG,
            Self::KeyTaken => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Malformed(Malformed::HeadTooLarge) => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::TokensRejected
            | Self::Unreachable
            | Self::UpstreamDown(Outage::Unreachable)
            | Self::UpstreamFailed
            | Self::Undecodable(_)
            | Self::OutcomeUnknown => StatusCode::BAD_GATEWAY,
            Self::TokenUnavailable(_)
            | Self::DeliveriesFull
            | Self::ClientGone
            | Self::Draining
            | Self::NotKept
            | Self::StateAway
            | Self::MayBeKept
            | Self::NotReadable => StatusCode::SERVICE_UNAVAILABLE,
            // RFC 9111 §5.2.1.7.
            Self::NothingStored | Self::UpstreamTimeout | Self::UpstreamDown(Outage::Silent) => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Self::Ended(reason) => {
                StatusCode::from_u16(reason.status).unwrap_or(StatusCode::BAD_GATEWAY)
            }
        }
    }

    /// The stored reason when an error ends a write.
    pub fn as_reason(&self) -> Reason {
        Reason {
            word: self.reason().to_owned(),
            message: self.to_string(),
            status: self.status().as_u16(),
        }
    }
}

impl From<StoreError> for GatewayError {
    fn from(fault: StoreError) -> Self {
        // Only debug: the store logs its failure, and the request's line and metric count each.
        tracing::debug!(error = %fault, "a write could not be kept, and was refused");
        match fault {
            StoreError::Full(_) => Self::NotKept,
            StoreError::Away(_) => Self::StateAway,
            StoreError::Failed(_)
            | StoreError::Sealed
            | StoreError::Elsewhere
            | StoreError::Keyed { .. } => Self::MayBeKept,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use strum::VariantNames;

    use super::*;

    /// Others rely on these words, which follow from the names of variants.
    #[test]
    fn the_specification_lists_every_reason_and_no_other() {
        let paper = include_str!("../../SPECIFICATION.md");
        let (_, section) = paper.split_once("### Gateway errors\n").unwrap();
        let (section, _) = section.split_once("### Limit refusals").unwrap();
        let words = |text: &'static str| text.split('`').skip(1).step_by(2);
        let table = section.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
        let own: BTreeSet<&str> = GatewayError::VARIANTS
            .iter()
            .chain(Unknown::VARIANTS)
            .copied()
            // Both have the reasons of their contents.
            .filter(|word| !["unauthenticated", "limited"].contains(word))
            .collect();
        let listed: BTreeSet<&str> = words(section).collect();
        assert_eq!(own.difference(&listed).next(), None);
        assert_eq!(table.flat_map(words).find(|word| !own.contains(word)), None);
    }
}
