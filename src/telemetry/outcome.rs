//! The end of one client request: the single source of its log line, metrics and span attributes
//! (SPECIFICATION D11).
//!
//! The types exclude what must never be shown. A path has no query, text from outside cannot break
//! a line or carry a likely credential, and labels come from closed sets. Left out: bodies and
//! headers.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Version};

use super::redaction::redacted;
use super::trace_ids::TraceIds;
use crate::clock::Timestamp;

/// Endpoint of a request that was refused before its classification.
pub const NO_ENDPOINT: &str = "_none";

/// Longest path or error in a log line. A longer one adds no information and costs every reader of
/// the log.
const TEXT_BYTES_MAX: usize = 512;
/// Longest request id in a log line: four times a UUID.
const REQUEST_ID_BYTES_MAX: usize = 128;
/// Longest `User-Agent` in a log line; a browser's has half of it.
const USER_AGENT_BYTES_MAX: usize = 256;
/// The end of one client request.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// `X-Request-Id`, the client's or a new one.
    pub request_id: LogText,
    /// Client name in the config; `None` when no key was accepted.
    pub client: Option<Arc<str>>,
    /// Request method.
    pub method: MethodName,
    /// Route template of the endpoint table, or [`NO_ENDPOINT`].
    pub endpoint: &'static str,
    /// Path without its query.
    pub path: LogText,
    /// Address of the connection's other end; `None` on a Unix socket.
    pub client_address: Option<IpAddr>,
    /// `User-Agent` as the client sent it; see [`LogText::user_agent`].
    pub user_agent: Option<HeaderValue>,
    /// Version of HTTP between client and gateway.
    pub version: Version,
    /// `http` or `https`, between client and gateway.
    pub scheme: &'static str,
    /// Trace that the request belongs to.
    pub trace: Option<TraceIds>,
    /// Status of the answer; 0 when the client left before there was one.
    pub status: u16,
    /// Outcome at the cache.
    pub cache: CacheOutcome,
    /// Number that stands for the key of the answer that the upstream was asked for. Another
    /// process has others.
    pub cache_key: Option<u64>,
    /// Name of a GraphQL query's operation.
    pub operation: Option<LogText>,
    /// Account that served it, if any.
    pub account: Option<Arc<str>>,
    /// Upstream resource (budget) that it was charged to, or waited for.
    pub resource: Option<Arc<str>>,
    /// Requests sent upstream for it.
    pub upstream_attempts: u32,
    /// Units of the resource's budget that these requests spent, or may have spent.
    pub cost: u32,
    /// Request id of the upstream's last answer.
    pub upstream_request_id: Option<LogText>,
    /// Time of all exchanges with the upstream.
    pub upstream: Duration,
    /// Time spent waiting for budget, a slot, or a lane.
    pub queue: Duration,
    /// Time from the request's head to the end of the answer.
    pub total: Duration,
    /// Bytes of the request's body.
    pub bytes_in: u64,
    /// Bytes of the answer's body.
    pub bytes_out: u64,
    /// Reason of a gateway error, from a closed set.
    pub refusal: Option<&'static str>,
    /// Rule in shadow mode that would have refused or held it.
    pub shadowed: Option<&'static str>,
    /// Cause of its longest wait, or of its denial.
    pub held: Option<WaitCause>,
    /// Error for the operator.
    pub error: Option<LogText>,
}

impl Outcome {
    /// The place of an outcome that was taken; allocates nothing.
    pub fn ended() -> Self {
        Self::new(&http::Method::GET, "", "")
    }

    /// Creates the outcome of a request of which only the head is known: no client, endpoint or
    /// answer yet.
    pub fn new(method: &http::Method, path: &str, request_id: &str) -> Self {
        Self {
            request_id: LogText::request_id(request_id),
            client: None,
            method: MethodName::from(method),
            endpoint: NO_ENDPOINT,
            path: LogText::path(path),
            client_address: None,
            user_agent: None,
            version: Version::HTTP_11,
            scheme: "http",
            trace: None,
            status: 0,
            cache: CacheOutcome::None,
            cache_key: None,
            operation: None,
            account: None,
            resource: None,
            upstream_attempts: 0,
            cost: 0,
            upstream_request_id: None,
            upstream: Duration::ZERO,
            queue: Duration::ZERO,
            total: Duration::ZERO,
            bytes_in: 0,
            bytes_out: 0,
            refusal: None,
            shadowed: None,
            held: None,
            error: None,
        }
    }
}

/// Cause of a request's wait, in the log line and on the spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitCause {
    /// The limit, from a closed set.
    pub by: &'static str,
    /// Account of the limit; `None` when it belongs to none.
    pub account: Option<Arc<str>>,
    /// End of the limit as known when the wait began; `None` when only an answer to another request
    /// could end it.
    pub until: Option<Timestamp>,
}

/// Outcome of a request at the cache. Each is named here once, for the `Cache-Status` header, the
/// log and the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheOutcome {
    /// A stored answer, without a request upstream.
    Hit,
    /// The answer of this request's own fetch.
    Fetched(Fetch),
    /// The answer of another request's fetch.
    Collapsed(Fetch),
    /// A stored answer, because no budget was left.
    StaleIfLimited,
    /// A stored answer, because the upstream failed.
    StaleIfError,
    /// A stored answer, while it is revalidated in the background.
    StaleWhileRevalidate,
    /// The cache has no part in this kind of request, such as a write.
    Bypass,
    /// The gateway's own answer, without `Cache-Status`.
    None,
}

/// Result of a fetch for the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fetch {
    /// A 304: the stored answer is still valid.
    Revalidated,
    /// The stored answer was no longer valid.
    Changed {
        /// The upstream's status, usually 200.
        status: u16,
    },
    /// The stored answer was fresh, but the request asked for another one.
    Requested {
        /// The upstream's status, 304 for the same answer.
        status: u16,
    },
    /// Only answers to other request headers were stored.
    OtherVariant {
        /// This one is stored now.
        stored: bool,
    },
    /// No answer was stored; this one is now.
    Stored,
    /// No answer was stored, and this one may not be.
    NotStored,
    /// No answer was stored. A 304 to a predicted `ETag` showed that the list is empty.
    EmptyList {
        /// It is stored now.
        is_stored: bool,
    },
    /// Another replica has fetched it meanwhile.
    OfReplica,
    /// The body is too large to store and is streamed.
    TooLarge,
    /// A rule covers this GraphQL query; its answer is stored now.
    QueryStored,
    /// A rule covers this GraphQL query, but this answer may not be stored.
    QueryNotStored,
    /// No rule covers this GraphQL query; its answer is only shared.
    Shared,
}

impl CacheOutcome {
    /// Returns the value of `Cache-Status` (RFC 9211 §2; SPECIFICATION, "Cache headers"); `None`
    /// for the gateway's own answers.
    pub fn cache_status(self) -> Option<Cow<'static, str>> {
        Some(match self {
            Self::Hit => "weir; hit".into(),
            Self::Fetched(fetch) => fetch.cache_status(),
            Self::Collapsed(fetch) => fetch.cache_status() + "; collapsed",
            Self::StaleIfLimited => "weir; hit; detail=stale-if-limited".into(),
            Self::StaleIfError => "weir; hit; detail=stale-if-error".into(),
            Self::StaleWhileRevalidate => "weir; hit; detail=stale-while-revalidate".into(),
            Self::Bypass => "weir; fwd=bypass".into(),
            Self::None => return None,
        })
    }

    /// Returns its name in the log, the metrics and the spans.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Fetched(Fetch::Revalidated | Fetch::Requested { status: 304 }) => "revalidated",
            Self::Fetched(Fetch::Changed { .. } | Fetch::Requested { .. }) => "changed",
            Self::Fetched(Fetch::EmptyList { .. }) => "empty_list",
            Self::Fetched(
                Fetch::Stored | Fetch::QueryStored | Fetch::OtherVariant { stored: true },
            ) => "stored",
            Self::Fetched(
                Fetch::NotStored | Fetch::QueryNotStored | Fetch::OtherVariant { stored: false },
            ) => "not_stored",
            Self::Collapsed(_) | Self::Fetched(Fetch::OfReplica) => "collapsed",
            Self::StaleIfLimited => "stale_if_limited",
            Self::StaleIfError => "stale_if_error",
            Self::StaleWhileRevalidate => "stale_while_revalidate",
            Self::Bypass | Self::Fetched(Fetch::TooLarge | Fetch::Shared) => "bypass",
            Self::None => "none",
        }
    }
}

impl Fetch {
    /// True for an answer by a 304, which cost no budget.
    pub const fn is_free(self) -> bool {
        matches!(
            self,
            Self::Revalidated
                | Self::Requested { status: 304 }
                | Self::EmptyList { .. }
                | Self::OfReplica
        )
    }

    fn cache_status(self) -> Cow<'static, str> {
        match self {
            Self::Revalidated => "weir; fwd=stale; fwd-status=304".into(),
            Self::Changed { status: 200 } => "weir; fwd=stale; fwd-status=200".into(),
            Self::Changed { status } => format!("weir; fwd=stale; fwd-status={status}").into(),
            Self::Requested { status } => format!("weir; fwd=request; fwd-status={status}").into(),
            Self::OtherVariant { stored: true } => "weir; fwd=vary-miss; stored".into(),
            Self::OtherVariant { stored: false } => "weir; fwd=vary-miss".into(),
            Self::Stored => "weir; fwd=uri-miss; stored".into(),
            Self::NotStored => "weir; fwd=uri-miss".into(),
            Self::EmptyList { is_stored: true } => {
                "weir; fwd=uri-miss; fwd-status=304; stored".into()
            }
            Self::EmptyList { is_stored: false } => "weir; fwd=uri-miss; fwd-status=304".into(),
            Self::OfReplica => "weir; fwd=uri-miss; stored; collapsed".into(),
            Self::QueryStored => "weir; fwd=miss; stored".into(),
            Self::QueryNotStored => "weir; fwd=miss".into(),
            Self::TooLarge | Self::Shared => "weir; fwd=bypass".into(),
        }
    }
}

/// Returns the name of a version of HTTP. After the slash it is OpenTelemetry's
/// `network.protocol.version`.
pub const fn protocol_name(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    }
}

/// A request method from a closed set, so that clients cannot invent labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MethodName(&'static str);

impl MethodName {
    /// Every method outside RFC 9110 §9 and RFC 5789, by OpenTelemetry's name.
    pub const OTHER: Self = Self("_OTHER");

    /// Returns the name.
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl From<&http::Method> for MethodName {
    fn from(method: &http::Method) -> Self {
        const KNOWN: [&str; 9] =
            ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
        KNOWN.into_iter().find(|known| *known == method.as_str()).map_or(Self::OTHER, Self)
    }
}

/// Text from outside, made safe for a log line: printable ASCII, bounded, without likely
/// credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct LogText(String);

impl LogText {
    /// Sanitises a request's path: everything from `?` or `#` on is cut off, and characters that a
    /// path shows only in escaped form are escaped.
    pub fn path(raw: &str) -> Self {
        let end = raw.bytes().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(raw.len());
        Self::printable(&raw[..end], TEXT_BYTES_MAX, |character| character.is_ascii_graphic())
    }

    /// Sanitises the text of an error. Callers never pass a header or a body.
    pub fn error(raw: &str) -> Self {
        Self::printable(raw, TEXT_BYTES_MAX, |character| {
            character == ' ' || character.is_ascii_graphic()
        })
    }

    /// Sanitises the name of a GraphQL operation, which is the client's own.
    pub fn operation(raw: &str) -> Self {
        Self::printable(raw, REQUEST_ID_BYTES_MAX, |character| character.is_ascii_graphic())
    }

    /// Sanitises a request id, which may be the client's own.
    pub fn request_id(raw: &str) -> Self {
        Self::printable(raw, REQUEST_ID_BYTES_MAX, |character| character.is_ascii_graphic())
    }

    /// Sanitises a `User-Agent`, which is free text.
    pub fn user_agent(raw: &HeaderValue) -> Self {
        let text = String::from_utf8_lossy(raw.as_bytes());
        Self::printable(&text, USER_AGENT_BYTES_MAX, |character| {
            character == ' ' || character.is_ascii_graphic()
        })
    }

    /// Copies the part of a `User-Agent` that a log line shows.
    pub(super) fn short_user_agent(raw: &HeaderValue) -> Option<HeaderValue> {
        if raw.len() <= USER_AGENT_BYTES_MAX {
            return HeaderValue::from_bytes(raw.as_bytes()).ok();
        }
        // Redacted before it is cut, as below.
        HeaderValue::from_str(Self::user_agent(raw).as_str()).ok()
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn printable(raw: &str, bytes_max: usize, keep: impl Fn(char) -> bool) -> Self {
        // Nearly every text is plain and short. Checks all bytes without an early exit, so that the
        // compiler compares several at once.
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'_' | b'.');
        if raw.len() <= bytes_max && raw.bytes().fold(true, |all, byte| all & is_plain(byte)) {
            return Self(raw.to_owned());
        }
        // Redacted before it is cut: half a credential would no longer be recognised.
        let redacted = redacted(raw);
        if redacted.len() <= bytes_max
            && redacted.bytes().all(|byte| byte.is_ascii() && keep(char::from(byte)))
        {
            return Self(redacted.into_owned());
        }
        let mut text = String::with_capacity(redacted.len().min(bytes_max));
        for character in redacted.chars() {
            let before = text.len();
            if keep(character) {
                text.push(character);
            } else {
                text.extend(character.escape_unicode());
            }
            if text.len() > bytes_max {
                text.truncate(before);
                break;
            }
        }
        Self(text)
    }
}

impl fmt::Debug for LogText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_the_cache_status_of_the_contract() {
        let texts = [
            (CacheOutcome::Hit, "weir; hit"),
            (CacheOutcome::Fetched(Fetch::Revalidated), "weir; fwd=stale; fwd-status=304"),
            (
                CacheOutcome::Fetched(Fetch::Changed { status: 200 }),
                "weir; fwd=stale; fwd-status=200",
            ),
            (
                CacheOutcome::Fetched(Fetch::Changed { status: 404 }),
                "weir; fwd=stale; fwd-status=404",
            ),
            (CacheOutcome::Fetched(Fetch::Stored), "weir; fwd=uri-miss; stored"),
            (CacheOutcome::Fetched(Fetch::NotStored), "weir; fwd=uri-miss"),
            (
                CacheOutcome::Fetched(Fetch::EmptyList { is_stored: true }),
                "weir; fwd=uri-miss; fwd-status=304; stored",
            ),
            (CacheOutcome::Collapsed(Fetch::Stored), "weir; fwd=uri-miss; stored; collapsed"),
            (CacheOutcome::Collapsed(Fetch::NotStored), "weir; fwd=uri-miss; collapsed"),
            (CacheOutcome::Fetched(Fetch::QueryStored), "weir; fwd=miss; stored"),
            (CacheOutcome::Collapsed(Fetch::QueryNotStored), "weir; fwd=miss; collapsed"),
            (CacheOutcome::Fetched(Fetch::Shared), "weir; fwd=bypass"),
            (CacheOutcome::Fetched(Fetch::TooLarge), "weir; fwd=bypass"),
            (CacheOutcome::Collapsed(Fetch::TooLarge), "weir; fwd=bypass; collapsed"),
            (
                CacheOutcome::Collapsed(Fetch::Revalidated),
                "weir; fwd=stale; fwd-status=304; collapsed",
            ),
            (CacheOutcome::StaleIfLimited, "weir; hit; detail=stale-if-limited"),
            (CacheOutcome::StaleIfError, "weir; hit; detail=stale-if-error"),
            (CacheOutcome::StaleWhileRevalidate, "weir; hit; detail=stale-while-revalidate"),
            (CacheOutcome::Bypass, "weir; fwd=bypass"),
        ];
        for (outcome, text) in texts {
            assert_eq!(outcome.cache_status().as_deref(), Some(text), "{outcome:?}");
        }
        assert_eq!(
            CacheOutcome::None.cache_status(),
            None,
            "the gateway's own answers say nothing of a cache"
        );
    }

    #[test]
    fn an_invented_method_is_called_other() {
        let invented = http::Method::from_bytes(b"BREW").unwrap();
        assert_eq!(MethodName::from(&invented), MethodName::OTHER);
        assert_eq!(MethodName::from(&http::Method::PATCH).as_str(), "PATCH");
    }

    #[test]
    fn a_logged_path_has_no_query() {
        assert_eq!(LogText::path("/search?q=secret").as_str(), "/search");
        assert_eq!(LogText::path("/a#b").as_str(), "/a");
    }

    #[test]
    fn a_logged_path_has_no_control_characters() {
        assert_eq!(
            LogText::path("/a\n{}\u{1b}[2J\u{2028}").as_str(),
            r"/a\u{a}{}\u{1b}[2J\u{2028}"
        );
    }

    #[test]
    fn a_logged_path_ends_at_its_limit_and_never_inside_an_escape() {
        assert_eq!(LogText::path(&"a".repeat(600)).as_str().len(), TEXT_BYTES_MAX);
        let escaped = LogText::path(&"\n".repeat(600));
        assert!(escaped.as_str().len() <= TEXT_BYTES_MAX && escaped.as_str().ends_with("\\u{a}"));
    }

    #[test]
    fn a_likely_credential_is_not_logged() {
        let token = format!("ghp_{}", "a1B2".repeat(9));
        assert_eq!(LogText::path(&format!("/x/{token}/y")).as_str(), "/x/[redacted]/y");
        assert_eq!(LogText::error(&format!("bad key `{token}`")).as_str(), "bad key `[redacted]`");
        let at_the_cut = LogText::path(&format!("/{}/{token}", "a".repeat(TEXT_BYTES_MAX - 10)));
        assert!(!at_the_cut.as_str().contains("ghp_"), "half a credential is one too");
        assert_eq!(LogText::path("/repos/acme/weir_docs").as_str(), "/repos/acme/weir_docs");
        let jwt = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJhIn0.c2lnbmF0dXJl";
        assert_eq!(LogText::path(&format!("/x/{jwt}/y")).as_str(), "/x/[redacted]/y");
    }
}
