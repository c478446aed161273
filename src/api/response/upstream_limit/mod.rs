//! Whether an upstream's answer is a refusal for a limit, which kind, and what it says about when
//! to come back.
//!
//! The order is DESIGN D6's: a 429 is always one; a 403 only by its message, its documentation
//! address, `retry-after` or a remaining of 0, so that a missing permission closes nothing. What to
//! do about a refusal is decided elsewhere.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use super::headers;
use super::rate::{digits, rate_remaining, rate_reset, single};
use crate::api::endpoint::resource::ResourceName;
use crate::clock::Timestamp;

/// Words of a secondary refusal, in lower case (UPSTREAM.md, Limits, newest form first).
const SECONDARY_WORDS: [&str; 3] = [
    "secondary rate limit",
    "abuse detection mechanism",
    "temporarily blocked from content creation",
];
/// Words of a primary refusal, in lower case (UPSTREAM.md, Limits).
const PRIMARY_WORDS: [&str; 1] = ["api rate limit exceeded"];
/// How the documentation address of a secondary refusal ends, in lower case (UPSTREAM.md, Limits).
const SECONDARY_ADDRESSES: [&str; 2] = ["secondary-rate-limits", "#abuse-rate-limits"];
/// Types of a GraphQL error that says the primary limit is exhausted (UPSTREAM.md, Limits).
const GRAPHQL_TYPES: [&str; 2] = ["RATE_LIMITED", "RATE_LIMIT"];
/// How a GraphQL answer of 200 words a secondary refusal, in lower case. It must *begin* so: other
/// errors repeat the caller's own words.
const GRAPHQL_SECONDARY_BEGINS: &str = "you have exceeded a secondary rate limit";
/// How much of a body that is not JSON is searched. The refusals seen as HTML are pages of a few
/// kilobytes; this bounds the work.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Which of the two sorts of limit refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpstreamLimitKind {
    /// The budget of a resource is used up.
    Primary,
    /// Too much at once, whatever is left of the budget.
    Secondary,
}

/// What an answer says when it refuses for a limit. Both kinds carry the same; the times are as
/// sent and may both be given: the later holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamLimit {
    /// The budget of `resource` is used up.
    Primary {
        /// From `retry-after`, counted from `now`.
        retry_after: Option<Duration>,
        /// When the window ends.
        reset: Option<Timestamp>,
        /// What is left of the budget.
        remaining: Option<u32>,
        /// The budget's resource.
        resource: Option<ResourceName>,
    },
    /// Too much at once: the whole account is to keep away.
    Secondary {
        /// From `retry-after`, counted from `now`.
        retry_after: Option<Duration>,
        /// When the window ends.
        reset: Option<Timestamp>,
        /// What is left of the budget; can be 0 here too.
        remaining: Option<u32>,
        /// The resource that the request counted against.
        resource: Option<ResourceName>,
    },
}

impl UpstreamLimit {
    /// Which sort of limit refused.
    pub const fn kind(&self) -> UpstreamLimitKind {
        match self {
            Self::Primary { .. } => UpstreamLimitKind::Primary,
            Self::Secondary { .. } => UpstreamLimitKind::Secondary,
        }
    }

    /// How long to keep away by `retry-after`.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Primary { retry_after, .. } | Self::Secondary { retry_after, .. } => *retry_after,
        }
    }

    /// When the window ends.
    pub const fn reset(&self) -> Option<Timestamp> {
        match self {
            Self::Primary { reset, .. } | Self::Secondary { reset, .. } => *reset,
        }
    }

    /// What is left of the budget.
    pub const fn remaining(&self) -> Option<u32> {
        match self {
            Self::Primary { remaining, .. } | Self::Secondary { remaining, .. } => *remaining,
        }
    }

    /// The resource that the request counted against.
    pub const fn resource(&self) -> Option<&ResourceName> {
        match self {
            Self::Primary { resource, .. } | Self::Secondary { resource, .. } => resource.as_ref(),
        }
    }

    fn new(kind: UpstreamLimitKind, headers: &HeaderMap, now: Timestamp) -> Self {
        let (retry_after, reset) = (retry_after(headers, now), rate_reset(headers));
        let (remaining, resource) = (rate_remaining(headers), resource(headers));
        match kind {
            UpstreamLimitKind::Primary => Self::Primary { retry_after, reset, remaining, resource },
            UpstreamLimitKind::Secondary => {
                Self::Secondary { retry_after, reset, remaining, resource }
            }
        }
    }
}

/// Whether an answer refuses for a limit; `None` when it does not. `body` is the decoded body, or
/// as much of it as was read.
///
/// A 200 is looked into only when it can be GraphQL's: its content type is plain JSON and its
/// resource, when named, is `graphql`. So no file of a repository, served raw, can pass for a
/// refusal. Still, callers that know their endpoint should ask about 200s of GraphQL only.
pub fn upstream_limit(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> Option<UpstreamLimit> {
    let kind = match status {
        StatusCode::OK => kind_of_graphql(headers, body),
        StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS => {
            kind_by_words(body).or_else(|| {
                if rate_remaining(headers) == Some(0) {
                    Some(UpstreamLimitKind::Primary)
                } else if status == StatusCode::TOO_MANY_REQUESTS
                    || headers.contains_key(headers::RETRY_AFTER)
                {
                    Some(UpstreamLimitKind::Secondary)
                } else {
                    None
                }
            })
        }
        _ => None,
    };
    kind.map(|kind| UpstreamLimit::new(kind, headers, now))
}

/// How long `retry-after` says to keep away, as seconds or as a date (RFC 9110 §10.2.3); the
/// longest when it is said more than once, `None` when it is missing or nothing of it can be read.
pub fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let read = |text: &str| {
        digits::<u64>(text).map(Duration::from_secs).or_else(|| {
            let date = httpdate::parse_http_date(text).ok()?;
            let since_epoch = date.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            Some((Timestamp::EPOCH + since_epoch).since(now))
        })
    };
    headers
        .get_all(headers::RETRY_AFTER)
        .iter()
        .filter_map(|value| read(value.to_str().ok()?.trim()))
        .max()
}

/// The parts of an error body that the upstream words itself; the rest can repeat what a user
/// wrote.
#[derive(Deserialize)]
struct ErrorBody<'b> {
    #[serde(borrow, default)]
    message: Option<Cow<'b, str>>,
    #[serde(borrow, default)]
    documentation_url: Option<Cow<'b, str>>,
}

fn kind_by_words(body: &[u8]) -> Option<UpstreamLimitKind> {
    if let Ok(error) = serde_json::from_slice::<ErrorBody<'_>>(body) {
        let message = error.message.unwrap_or_default().to_ascii_lowercase();
        let address = error.documentation_url.unwrap_or_default().to_ascii_lowercase();
        return kind_of_text(&message).or_else(|| {
            SECONDARY_ADDRESSES
                .iter()
                .any(|end| address.ends_with(end))
                .then_some(UpstreamLimitKind::Secondary)
        });
    }
    if serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok() {
        return None;
    }
    let text =
        String::from_utf8_lossy(body.get(..TEXT_BYTES_MAX).unwrap_or(body)).to_ascii_lowercase();
    let linked = || {
        SECONDARY_ADDRESSES
            .iter()
            .any(|end| text.contains(end))
            .then_some(UpstreamLimitKind::Secondary)
    };
    kind_of_text(&text).or_else(linked)
}

fn kind_of_text(lower: &str) -> Option<UpstreamLimitKind> {
    let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    // Secondary first: some of these answers mention the primary limit too, and a mistake this way
    // costs a minute, the other way an hour.
    if says(&SECONDARY_WORDS) {
        Some(UpstreamLimitKind::Secondary)
    } else if says(&PRIMARY_WORDS) {
        Some(UpstreamLimitKind::Primary)
    } else {
        None
    }
}

/// The parts of a GraphQL answer that tell a refusal.
#[derive(Deserialize)]
struct GraphqlBody<'b> {
    #[serde(borrow, default)]
    errors: Option<Vec<GraphqlError<'b>>>,
    #[serde(borrow, default)]
    message: Option<Cow<'b, str>>,
}

#[derive(Deserialize)]
struct GraphqlError<'b> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'b, str>>,
    #[serde(borrow, default)]
    message: Option<Cow<'b, str>>,
}

fn kind_of_graphql(headers: &HeaderMap, body: &[u8]) -> Option<UpstreamLimitKind> {
    let plain_json = single(headers, CONTENT_TYPE.as_str()).is_none_or(|kind| {
        kind.split(';').next().is_some_and(|kind| kind.trim() == "application/json")
    });
    let other_resource =
        resource(headers).is_some_and(|resource| resource != ResourceName::graphql());
    // Most answers are no refusal; this spares them the parser.
    if !plain_json || other_resource || !mentions_a_limit(body) {
        return None;
    }
    let answer = serde_json::from_slice::<GraphqlBody<'_>>(body).ok()?;
    let secondary = |message: &Option<Cow<'_, str>>| {
        message.as_ref().is_some_and(|message| {
            message.to_ascii_lowercase().starts_with(GRAPHQL_SECONDARY_BEGINS)
        })
    };
    let primary = |error: &GraphqlError<'_>| {
        error.kind.as_ref().is_some_and(|kind| GRAPHQL_TYPES.contains(&kind.as_ref()))
    };
    let errors = answer.errors.unwrap_or_default();
    if secondary(&answer.message) || errors.iter().any(|error| secondary(&error.message)) {
        Some(UpstreamLimitKind::Secondary)
    } else if errors.iter().any(primary) {
        Some(UpstreamLimitKind::Primary)
    } else {
        None
    }
}

fn mentions_a_limit(body: &[u8]) -> bool {
    let mentions =
        |words: &[u8]| body.windows(words.len()).any(|window| window.eq_ignore_ascii_case(words));
    mentions(b"RATE_LIMIT") || mentions(b"secondary rate limit")
}

fn resource(headers: &HeaderMap) -> Option<ResourceName> {
    single(headers, headers::RATE_RESOURCE).and_then(ResourceName::parse)
}

#[cfg(test)]
mod tests;
