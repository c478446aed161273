//! The one table from a refusal to an HTTP answer (CONTRACT §3). Nothing else picks the status of
//! the gateway's own errors.
//!
//! The wording and the headers of limit refusals are those that client libraries act on
//! (CLIENTS.md, 4 and 5); why a request is refused is decided elsewhere.

use http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde_json::json;

use crate::api::ResourceName;
use crate::clock::Timestamp;
use crate::decision::{BudgetView, LimitKind};
use crate::tokens::Lack;
use crate::writes::State;
use crate::writes::record::Reason;

use super::added::Head;
use super::auth::Unknown;
use super::intake::Malformed;
use super::reply::Reply;
use super::rewrite::Origin;

/// The page that `documentation_url` points at, served by the gateway itself.
pub const HELP_PATH: &str = "/_weir/help";

/// The longest wait that a client is told. Ours: a day, longer than any window of the upstream's
/// limits.
const WAIT_SECS_MAX: u64 = 24 * 60 * 60;

/// Why the gateway answers a request itself.
#[derive(Clone, Debug)]
pub enum Refused {
    /// Not exactly one well-formed request; the connection is closed.
    Malformed(Malformed),
    /// The body broke off, or its framing did; the connection is closed.
    BrokenBody,
    /// The body did not arrive in time; the connection is closed.
    BodyTimeout,
    /// The body is larger than any request of its kind may be.
    BodyTooLarge,
    /// The head did not arrive in time; the connection is closed.
    HeadTimeout,
    /// No client has this key.
    Unauthenticated(Unknown),
    /// A delivery that is not signed with a secret of this gateway.
    WrongSignature,
    /// A delivery that is signed and cannot be read.
    MalformedDelivery,
    /// As many deliveries are under way, or as many bytes of them, as may be.
    DeliveriesFull,
    /// The client's `allow` does not cover it.
    NotAllowed,
    /// A write, or a route about "me", of a client without an account of its own.
    NoAccount,
    /// No configured token may carry it; with what would be needed.
    NoToken(String),
    /// The upstream accepts none of the tokens that could carry it any more.
    TokensRejected,
    /// A token that would have to be minted cannot be had now; with what is in the way.
    TokenUnavailable(Lack),
    /// A resource of the gateway's own that does not exist.
    NoSuchResource,
    /// Nothing stored may be served, and the client wants nothing else (`only-if-cached`).
    NothingStored,
    /// A budget or a secondary limit stands in the way.
    Limited {
        /// Which limit.
        limit: LimitKind,
        /// The earliest time at which it may be different.
        until: Timestamp,
        /// The resource asked for.
        resource: ResourceName,
        /// The client's view of that resource's budget.
        view: BudgetView,
    },
    /// The upstream could not be reached: nothing was executed.
    Unreachable,
    /// The upstream took the request and did not answer properly, and the request was a read.
    UpstreamFailed,
    /// The upstream did not answer a read in time.
    UpstreamTimeout,
    /// A write may or may not have been executed (CONTRACT §4, 3).
    OutcomeUnknown,
    /// A write could not be kept, and was not begun.
    NotKept,
    /// Nobody knows whether a write is kept: the store broke off.
    MayBeKept,
    /// The store cannot say, or keep, what became of a write.
    NotReadable,
    /// An `Idempotency-Key` that cannot be used here; with the reason.
    BadKey(&'static str),
    /// An `Idempotency-Key` that stands for another request.
    KeyTaken,
    /// A write that is not queued any more cannot be cancelled; with its state.
    NotQueued(State),
    /// What ended a write that an earlier request had asked for.
    Ended(Box<Reason>),
    /// The client left before anything was sent; nobody reads the answer.
    ClientGone,
    /// The gateway is shutting down.
    Draining,
}

impl Refused {
    /// A word for metrics and logs, out of a closed set.
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

    /// Whether the connection cannot be trusted to be at the start of another request.
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

    /// The answer. `origin` is the gateway's address as the client knows it.
    pub fn answer(&self, origin: &Origin, now: Timestamp) -> Reply {
        if let Self::Limited { limit, until, resource, view } = self {
            return limited(*limit, *until, resource, view, origin, now);
        }
        let (status, message) = self.status_and_message();
        let reply = error(status, &message, origin, self.reason());
        match self {
            Self::Malformed(Malformed::Method) => reply.with(
                ALLOW,
                HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
            ),
            Self::Unauthenticated(_) => {
                reply.with(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"weir\""))
            }
            Self::TokenUnavailable(Lack { until: Some(until), .. }) => {
                reply.with(RETRY_AFTER, HeaderValue::from(secs_until(*until, now)))
            }
            Self::Unreachable
            | Self::Draining
            | Self::DeliveriesFull
            | Self::NotKept
            | Self::MayBeKept
            | Self::NotReadable
            | Self::TokenUnavailable(_) => reply.with(RETRY_AFTER, HeaderValue::from_static("5")),
            _ => reply,
        }
    }

    pub(super) fn status_and_message(&self) -> (StatusCode, String) {
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

    /// The same for what the queue of writes says.
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
}

fn error(status: StatusCode, message: &str, origin: &Origin, anchor: &str) -> Reply {
    let documentation = format!("{}{HELP_PATH}#{anchor}", origin.base);
    Reply::json(status, &json!({ "message": message, "documentation_url": documentation }))
}

/// Whether a limit is, for this client, a budget with nothing left until the reset; every other
/// passes sooner, and leaves the budget as it is.
const fn is_budget(limit: LimitKind) -> bool {
    match limit {
        // What is below the floor is not this client's.
        LimitKind::Primary | LimitKind::BatchFloor => true,
        LimitKind::Probe
        | LimitKind::Cooldown
        | LimitKind::Concurrency
        | LimitKind::Points
        | LimitKind::GraphqlPoints
        | LimitKind::ContentPerMinute
        | LimitKind::ContentPerHour
        | LimitKind::Cpu
        | LimitKind::GraphqlCpu
        | LimitKind::OauthTokens
        | LimitKind::Spacing
        | LimitKind::Pace
        | LimitKind::QueueFull
        | LimitKind::NoAccount => false,
    }
}

/// Never in the past, never "now": a client that trusts it would spin. Never beyond what a client
/// can count: "never" comes from the books too.
fn secs_until(until: Timestamp, now: Timestamp) -> u64 {
    until.as_secs_ceil().saturating_sub(now.as_secs()).clamp(1, WAIT_SECS_MAX)
}

/// 403 and not 429: on 429 some clients multiply their retries and others do not see a rate limit
/// (CLIENTS.md, 4).
fn limited(
    limit: LimitKind,
    until: Timestamp,
    resource: &ResourceName,
    view: &BudgetView,
    origin: &Origin,
    now: Timestamp,
) -> Reply {
    let retry_after = secs_until(until, now);
    let reset = now.as_secs() + retry_after;
    let (reply, shown) = if is_budget(limit) {
        let message = format!("API rate limit exceeded for this client's pool ({resource}).");
        let shown = RateView { limit: view.limit, remaining: 0, used: view.limit, reset };
        (error(StatusCode::FORBIDDEN, &message, origin, "rate-limit"), shown)
    } else {
        let message = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.";
        let shown = RateView::served(view, now);
        (error(StatusCode::FORBIDDEN, message, origin, "secondary-rate-limits"), shown)
    };
    let mut reply = reply.with(RETRY_AFTER, HeaderValue::from(retry_after));
    shown.write(&mut reply.headers, resource);
    reply
}

/// The five rate headers of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateView {
    limit: u32,
    remaining: u32,
    used: u32,
    reset: u64,
}

impl RateView {
    /// For an answer that was served: `remaining` is never 0 there, or some clients stop asking
    /// (CLIENTS.md, 3).
    pub fn served(view: &BudgetView, now: Timestamp) -> Self {
        let remaining = view.remaining.max(1);
        Self {
            limit: view.limit.max(1),
            remaining,
            used: view.limit.max(1).saturating_sub(remaining),
            reset: view.reset.as_secs_ceil().max(now.as_secs() + 1),
        }
    }

    /// As it is: an empty budget is shown as empty.
    pub fn plain(view: &BudgetView, now: Timestamp) -> Self {
        let used = view.limit.saturating_sub(view.remaining);
        Self {
            limit: view.limit,
            remaining: view.remaining,
            used,
            reset: view.reset.as_secs_ceil().max(now.as_secs() + 1),
        }
    }

    /// As the value of a resource in `GET /rate_limit`.
    pub fn json(self) -> serde_json::Value {
        json!({ "limit": self.limit, "remaining": self.remaining, "used": self.used, "reset": self.reset })
    }

    /// Says the headers, each exactly once.
    pub fn write(self, head: &mut impl Head, resource: &ResourceName) {
        use crate::api::headers::{
            RATE_LIMIT, RATE_REMAINING, RATE_RESET, RATE_RESOURCE, RATE_USED,
        };
        let numbers = [
            (RATE_LIMIT, u64::from(self.limit)),
            (RATE_REMAINING, u64::from(self.remaining)),
            (RATE_USED, u64::from(self.used)),
            (RATE_RESET, self.reset),
        ];
        for (name, number) in numbers {
            head.say_number(name, number);
        }
        head.say(RATE_RESOURCE, resource.as_str().as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::super::intake::Root;
    use super::super::reply::ReplyBody;
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    /// All but those that are budgets.
    const OTHER_LIMITS: [LimitKind; 14] = [
        LimitKind::Probe,
        LimitKind::Cooldown,
        LimitKind::Concurrency,
        LimitKind::Points,
        LimitKind::GraphqlPoints,
        LimitKind::ContentPerMinute,
        LimitKind::ContentPerHour,
        LimitKind::Cpu,
        LimitKind::GraphqlCpu,
        LimitKind::OauthTokens,
        LimitKind::Spacing,
        LimitKind::Pace,
        LimitKind::QueueFull,
        LimitKind::NoAccount,
    ];

    fn view() -> BudgetView {
        BudgetView { limit: 150, remaining: 40, used: 110, reset: Timestamp::from_secs(4_600) }
    }

    fn origin() -> Origin {
        Origin { base: "http://weir:8080".into(), root: Root::Plain }
    }

    fn limited(limit: LimitKind, until: Timestamp) -> (Reply, serde_json::Value) {
        let reply = Refused::Limited { limit, until, resource: ResourceName::core(), view: view() }
            .answer(&origin(), NOW);
        let ReplyBody::Whole(body) = &reply.body else { panic!("refusals are small") };
        let body = serde_json::from_slice(body).unwrap();
        (reply, body)
    }

    fn header<'r>(reply: &'r Reply, name: &str) -> &'r str {
        reply.headers.get(name).unwrap().to_str().unwrap()
    }

    #[test]
    fn an_exhausted_budget_is_a_403_that_client_libraries_know() {
        for limit in [LimitKind::Primary, LimitKind::BatchFloor] {
            let (reply, body) = limited(limit, Timestamp::from_secs(4_600));
            assert_eq!(reply.status, StatusCode::FORBIDDEN);
            assert!(body["message"].as_str().unwrap().starts_with("API rate limit exceeded"));
            assert_eq!(header(&reply, "x-ratelimit-remaining"), "0");
            assert_eq!(header(&reply, "x-ratelimit-limit"), "150");
            assert_eq!(header(&reply, "x-ratelimit-used"), "150");
            assert_eq!(header(&reply, "x-ratelimit-reset"), "4600");
            assert_eq!(header(&reply, "x-ratelimit-resource"), "core");
            assert_eq!(header(&reply, "retry-after"), "3600");
        }
    }

    #[test]
    fn a_reset_is_never_in_the_past() {
        let (reply, _) = limited(LimitKind::Primary, Timestamp::from_secs(10));
        assert_eq!(header(&reply, "x-ratelimit-reset"), "1001");
        assert_eq!(header(&reply, "retry-after"), "1");
    }

    #[test]
    fn every_other_limit_leaves_something_remaining_and_links_where_clients_look() {
        for limit in OTHER_LIMITS {
            let (reply, body) = limited(limit, Timestamp::from_secs(1_007));
            assert_eq!(reply.status, StatusCode::FORBIDDEN, "{limit:?}");
            assert!(
                body["message"]
                    .as_str()
                    .unwrap()
                    .starts_with("You have exceeded a secondary rate limit. "),
                "{limit:?}"
            );
            assert!(
                body["documentation_url"].as_str().unwrap().ends_with("#secondary-rate-limits"),
                "{limit:?}"
            );
            assert_eq!(
                (header(&reply, "retry-after"), header(&reply, "x-ratelimit-remaining")),
                ("7", "40"),
                "{limit:?}"
            );
        }
    }

    #[test]
    fn a_client_is_told_to_wait_whole_seconds_and_never_none() {
        for limit in [LimitKind::Primary, LimitKind::BatchFloor].into_iter().chain(OTHER_LIMITS) {
            for (until_millis, told) in [
                (0, "1"),
                (1_000_000, "1"),
                (1_000_001, "1"),
                (1_001_000, "1"),
                (1_001_001, "2"),
                (1_059_999, "60"),
                (u64::MAX, "86400"),
            ] {
                let (reply, _) = limited(limit, Timestamp::from_millis(until_millis));
                assert_eq!(header(&reply, "retry-after"), told, "{limit:?} until {until_millis}");
            }
        }
    }

    #[test]
    fn every_limit_has_a_word_of_its_own_in_metrics_and_logs() {
        let all = [LimitKind::Primary, LimitKind::BatchFloor].into_iter().chain(OTHER_LIMITS);
        let word = |limit| {
            Refused::Limited { limit, until: NOW, resource: ResourceName::core(), view: view() }
                .reason()
        };
        let words: std::collections::BTreeSet<_> = all.map(word).collect();
        assert_eq!(words.len(), 2 + OTHER_LIMITS.len());
        for expected in ["cpu", "graphql_cpu", "oauth_tokens", "pace", "batch_floor"] {
            assert!(words.contains(expected), "{expected}");
        }
    }

    #[test]
    fn a_served_answer_never_shows_an_empty_budget() {
        let view = BudgetView { limit: 50, remaining: 0, used: 50, reset: Timestamp::EPOCH };
        assert_eq!(
            RateView::served(&view, NOW),
            RateView { limit: 50, remaining: 1, used: 49, reset: 1_001 }
        );
    }
}
