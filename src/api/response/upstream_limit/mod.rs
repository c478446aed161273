//! The upstream's limits: recognizes an answer that reports one, its kind, and the time to wait.
//!
//! The order of the checks is that of SPECIFICATION D6. A 429 always is a limit. A 403 is one only
//! by its message, its documentation address, `retry-after` or a remaining of 0, so that a missing
//! permission closes nothing.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use super::headers;
use super::rate::{digits, rate_remaining, rate_reset, single};
use crate::api::endpoint::resource::ResourceName;
use crate::clock::Timestamp;

/// Phrases of a secondary limit, in lower case (SPECIFICATION, "Limits in practice", newest form
/// first).
const SECONDARY_WORDS: [&str; 3] = [
    "secondary rate limit",
    "abuse detection mechanism",
    "temporarily blocked from content creation",
];
const PRIMARY_WORDS: [&str; 1] = ["api rate limit exceeded"];
/// Suffixes of the documentation address of a secondary limit, in lower case.
const SECONDARY_ADDRESSES: [&str; 2] = ["secondary-rate-limits", "#abuse-rate-limits"];
/// Types of a GraphQL error that reports an exhausted primary limit.
const GRAPHQL_TYPES: [&str; 2] = ["RATE_LIMITED", "RATE_LIMIT"];
/// Prefix of a GraphQL answer of 200 that reports a secondary limit, in lower case. Other errors
/// may repeat the caller's own words further on.
const GRAPHQL_SECONDARY_BEGINS: &str = "you have exceeded a secondary rate limit";
/// Bytes of a body other than JSON that are searched. Limits seen as HTML are pages of a few
/// kilobytes.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Kind of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpstreamLimitKind {
    /// The budget of a resource is spent.
    Primary,
    /// Too many requests at once, whatever is left of the budget.
    Secondary,
}

/// Limit that an answer reports. Of two named times the later holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamLimit {
    /// Kind of the limit.
    pub kind: UpstreamLimitKind,
    /// Time to stay away by `retry-after`, counted from now.
    pub retry_after: Option<Duration>,
    /// End of the window.
    pub reset: Option<Timestamp>,
    /// Units left of the budget; can be 0 for a secondary limit too.
    pub remaining: Option<u32>,
    /// Resource that the request counted against.
    pub resource: Option<ResourceName>,
}

/// Returns the limit that an answer reports, if any. `body` is the decoded body, or a part of it.
///
/// A 200 is parsed only when it can be GraphQL's: its content type is plain JSON and its resource,
/// when named, is `graphql`. So a repository's file, served raw, never counts as a limit. Callers
/// should still pass only 200s of GraphQL.
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
    kind.map(|kind| UpstreamLimit {
        kind,
        retry_after: retry_after(headers, now),
        reset: rate_reset(headers),
        remaining: rate_remaining(headers),
        resource: resource(headers),
    })
}

/// Parses `retry-after`, in seconds or as a date (RFC 9110 §10.2.3). Of several values the longest
/// holds. Returns `None` when it is missing or malformed.
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

/// Members of an error body that the upstream words itself; the others can repeat a user's text.
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
        let is_linked = SECONDARY_ADDRESSES.iter().any(|end| address.ends_with(end));
        return kind_of_text(&message).or(is_linked.then_some(UpstreamLimitKind::Secondary));
    }
    if serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok() {
        return None;
    }
    let text =
        String::from_utf8_lossy(body.get(..TEXT_BYTES_MAX).unwrap_or(body)).to_ascii_lowercase();
    let is_linked = SECONDARY_ADDRESSES.iter().any(|end| text.contains(end));
    kind_of_text(&text).or(is_linked.then_some(UpstreamLimitKind::Secondary))
}

fn kind_of_text(lower: &str) -> Option<UpstreamLimitKind> {
    let contains_any = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    // Secondary first: some of these answers mention the primary limit too. A mistake this way
    // costs a minute, the other way an hour.
    if contains_any(&SECONDARY_WORDS) {
        Some(UpstreamLimitKind::Secondary)
    } else if contains_any(&PRIMARY_WORDS) {
        Some(UpstreamLimitKind::Primary)
    } else {
        None
    }
}

/// Members of a GraphQL answer that report a limit.
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
    // Most answers report no limit; this check saves the parser.
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
