//! The headers that cross the gateway in each direction (RFC 9110 §7.6.1; SPECIFICATION, "Client
//! interface" and "Client libraries" 9, 15 and 17).
//!
//! Answers pass end-to-end headers, except those of a credential or of the gateway itself. So do
//! writes, except headers that would make another request of them. Reads, which share their
//! answers, pass only listed headers. Values are not interpreted here.

use http::StatusCode;
use http::header::{self, AsHeaderName, HeaderMap, HeaderName, HeaderValue};

use crate::api::Dialect;
use crate::api::headers::{ACCEPTED_OAUTH_SCOPES, OAUTH_SCOPES, RATE_HEADERS};
use crate::decision::{
    cache::cache_control::CacheControl, cache::freshness::Mode, cache::key::Accept,
};
use crate::gateway::http::overriding::{identifies, makes_another_request};

/// RFC 9110 §7.6.1, and older names that proxies still see.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Request headers that end at the gateway: credentials, framing, and its own headers. A caller's
/// trace ends there too; with tracing on, each attempt carries the gateway's own (`telemetry`).
const REQUEST_ENDS_HERE: [&str; 17] = [
    "accept-encoding",
    "authorization",
    "baggage",
    "cache-control",
    "content-length",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "idempotency-key",
    "pragma",
    "prefer",
    "range",
    "traceparent",
    "tracestate",
    "via",
    "x-request-id",
];

/// The headers that pass with a read, beside the API version. The key of a stored answer has
/// `Accept` and the version. The others may vary an answer only if its `Vary` says so.
const READ_PASSES: [&str; 3] = ["accept", "accept-language", "user-agent"];

/// Further headers of reads that end here where the cache trusts `Vary` alone. The cache evaluates
/// conditions itself and sends its own. One-time passwords have no use with a token. The upstream
/// evaluates a write's conditions (RFC 9110 §13.2).
const READ_ENDS_HERE: [&str; 6] = [
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "x-requested-with",
];

/// The mark of a plain HTTP cache on the messages that it passes on (RFC 9110 §7.6.3). The marks of
/// proxies before the gateway end there: a request may serve several clients.
pub const VIA_WEIR: HeaderValue = HeaderValue::from_static("1.1 weir");

static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The rule by which the headers of a request pass upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// A write shares its answer with nobody.
    Write,
    /// A read shares its answer with all who have its key. A plain HTTP cache relies on the
    /// upstream's `Vary` (RFC 9111 §4.1); otherwise a list says what passes.
    Read(Mode),
}

/// Response headers that describe a pool token or the connection, or that the gateway writes anew.
const ANSWER_ENDS_HERE: [&str; 13] = [
    "age",
    "alt-svc",
    "content-length",
    "github-authentication-token-expiration",
    "server-timing",
    "service-authentication-token-expiration",
    "strict-transport-security",
    "x-from-cache",
    "x-github-enterprise-version",
    "x-github-sso",
    "x-oauth-client-id",
    "x-request-id",
    "x-service-sso",
];

/// Digests of content, wrong for any other content (RFC 9530, RFC 3230, RFC 1864).
pub const DIGESTS: [&str; 4] = ["content-digest", "repr-digest", "digest", "content-md5"];

/// The gateway's headers that scripts in a browser may read (SPECIFICATION, "Client libraries" 15).
const EXPOSED: &str =
    "Cache-Status, Age, X-From-Cache, X-Weir-Account, X-Request-Id, Server-Timing, Retry-After";

/// Returns the request headers that go upstream. The cache key and `Vary` are evaluated on the same
/// headers: otherwise a header that counts here and is lost there would poison the cache.
pub fn to_upstream(from: &HeaderMap, passing: Passing, dialect: Dialect) -> HeaderMap {
    let named: Vec<_> = list_items(from, header::CONNECTION).collect();
    let passes = |name: &str| match passing {
        Passing::Write => true,
        Passing::Read(Mode::Rfc9111) => {
            READ_PASSES.contains(&name)
                || name == header::AUTHORIZATION.as_str()
                || !READ_ENDS_HERE.contains(&name) && !name.ends_with("-otp") && !identifies(name)
        }
        Passing::Read(Mode::Revalidate) => {
            READ_PASSES.contains(&name) || name == dialect.version_header().as_str()
        }
    };
    let mut out = HeaderMap::with_capacity(from.len());
    for (name, value) in from {
        let text = name.as_str();
        let stays = !passes(text)
            || HOP_BY_HOP.contains(&text)
            || REQUEST_ENDS_HERE.contains(&text)
            || makes_another_request(text)
            || named.iter().any(|other| other.eq_ignore_ascii_case(text));
        if !stays {
            out.append(name.clone(), value.clone());
        }
    }
    out
}

/// Adds the user agent and the media type that the upstream requires of every request.
pub fn complete(headers: &mut HeaderMap, dialect: Dialect) {
    if headers.get(header::USER_AGENT).is_none_or(HeaderValue::is_empty) {
        let own = HeaderValue::from_static(concat!("weir/", env!("CARGO_PKG_VERSION")));
        headers.insert(header::USER_AGENT, own);
    }
    // Bodies are rewritten per client, so they are requested uncompressed.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let any = headers.get(header::ACCEPT).is_none_or(|accept| accept.is_empty() || accept == "*/*");
    if any {
        headers.insert(header::ACCEPT, HeaderValue::from_static(dialect.media_type()));
    }
}

/// The preferred media type of a request. Validation has ensured that the lines are ASCII.
pub fn accept_of(headers: &HeaderMap) -> Accept {
    let mut lines = texts(headers, header::ACCEPT);
    match (lines.next(), lines.next()) {
        (first, None) => Accept::normalise(first),
        (Some(first), Some(second)) => Accept::normalise(Some(
            &lines.fold(format!("{first},{second}"), |list, line| list + "," + line),
        )),
        (None, Some(_)) => Accept::Json,
    }
}

/// Gives a read's `Accept` the one spelling of its cache key. The upstream's `ETag` depends on its
/// bytes (SPECIFICATION, "Conditional requests in practice"), so spellings would compete.
pub fn spell_accept(headers: &mut HeaderMap, dialect: Dialect) {
    let spelled = match &accept_of(headers) {
        Accept::Json => HeaderValue::from_static(dialect.media_type()),
        accept @ Accept::Other(_) => match accept.set().map(HeaderValue::from_str) {
            Some(Ok(set)) => set,
            _ => return,
        },
    };
    headers.insert(header::ACCEPT, spelled);
}

/// Returns the upstream headers that reach a client; rendering rewrites their URLs. A cookie
/// belongs to the account of the request and is dropped. A plain HTTP cache repeats it (RFC 9111
/// §7.3) unless the answer is private (§5.2.2.7). It also keeps the `Date` (RFC 9110 §6.6.1).
pub fn to_client(from: &HeaderMap, mode: Mode) -> HeaderMap {
    let named: Vec<_> = list_items(from, header::CONNECTION).collect();
    let hides_cookies = mode == Mode::Revalidate
        || from.contains_key(header::SET_COOKIE)
            && (CacheControl::parse(from).private
                || CacheControl::of(StatusCode::OK, from, mode).private);
    let mut out = HeaderMap::with_capacity(from.len());
    for (name, value) in from {
        let text = name.as_str();
        let stays = HOP_BY_HOP.contains(&text)
            || ANSWER_ENDS_HERE.contains(&text)
            || RATE_HEADERS.contains(&text)
            || text == "set-cookie" && hides_cookies
            || text == "date" && mode == Mode::Revalidate
            || text == OAUTH_SCOPES
            || text == ACCEPTED_OAUTH_SCOPES
            || named.iter().any(|other| other.eq_ignore_ascii_case(text));
        if !stays {
            out.append(name.clone(), value.clone());
        }
    }
    if let Some(exposed) =
        out.get(header::ACCESS_CONTROL_EXPOSE_HEADERS).and_then(|value| value.to_str().ok())
        && let Ok(extended) = HeaderValue::from_str(&with_exposed(exposed))
    {
        out.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, extended);
    }
    out
}

/// Removes the digests of a body that is not passed on byte for byte.
pub fn remove_digests(headers: &mut HeaderMap) {
    for name in DIGESTS {
        headers.remove(name);
    }
}

/// The upstream's list of exposed headers and the gateway's, each name once.
fn with_exposed(list: &str) -> String {
    let known: Vec<&str> = list.split(',').map(str::trim).collect();
    let added = EXPOSED
        .split(", ")
        .filter(|name| !known.iter().any(|other| other.eq_ignore_ascii_case(name)));
    known.iter().copied().chain(added).collect::<Vec<_>>().join(", ")
}

/// The lines of a header that are text.
fn texts(headers: &HeaderMap, name: impl AsHeaderName) -> impl Iterator<Item = &str> {
    headers.get_all(name).iter().filter_map(|value| value.to_str().ok())
}

/// The items of a header that is a list (RFC 9110 §5.6.1).
pub fn list_items(headers: &HeaderMap, name: impl AsHeaderName) -> impl Iterator<Item = &str> {
    texts(headers, name).flat_map(|line| line.split(',')).map(str::trim)
}

/// The only value of a header, or `None` if it is absent.
pub fn only_value(
    headers: &HeaderMap,
    name: impl AsHeaderName,
) -> Result<Option<&HeaderValue>, Repeated> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    if values.next().is_some() { Err(Repeated) } else { Ok(value) }
}

/// A header that must be unique occurs more than once.
pub struct Repeated;

/// The answer to a preflight, which carries no key (SPECIFICATION, "Client libraries" 15).
pub fn preflight() -> HeaderMap {
    let mut headers = HeaderMap::new();
    let values = [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST, PUT, PATCH, DELETE"),
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "Authorization, Content-Type, Accept, If-Match, If-Modified-Since, If-None-Match, If-Unmodified-Since, X-Requested-With, User-Agent, \
             X-Weir-Key, X-Service-Api-Version, X-GitHub-Api-Version, Prefer, Idempotency-Key",
        ),
        (header::ACCESS_CONTROL_MAX_AGE, "86400"),
        (header::ALLOW, "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
    ];
    for (name, value) in values {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
}

/// The seconds of `Prefer: wait=N` (RFC 7240 §4.3); the shortest of several.
pub fn prefer_wait(headers: &HeaderMap) -> Option<std::time::Duration> {
    let preferences = texts(headers, "prefer")
        .flat_map(|value| value.split([',', ';']))
        .filter_map(|preference| preference.trim().split_once('='));
    let waits = preferences.filter(|(name, _)| name.trim().eq_ignore_ascii_case("wait"));
    let seconds = waits.filter_map(|(_, value)| value.trim().trim_matches('"').parse::<u32>().ok());
    seconds.min().map(|seconds| std::time::Duration::from_secs(seconds.into()))
}

/// True for `Prefer: respond-async` (RFC 7240 §4.1). An empty value counts as none (§2).
pub fn prefers_async(headers: &HeaderMap) -> bool {
    let mut preferences = texts(headers, "prefer")
        .flat_map(|value| split_unquoted(value, ','))
        .filter_map(|preference| split_unquoted(preference, ';').next());
    preferences.any(|preference| {
        let (name, value) = preference.split_once('=').unwrap_or((preference, ""));
        name.trim().eq_ignore_ascii_case("respond-async") && matches!(value.trim(), "" | "\"\"")
    })
}

/// Splits a text at separators outside quoted strings (RFC 9110 §5.6.4).
fn split_unquoted(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.split(move |c| {
        let is_plain = !std::mem::take(&mut is_escaped);
        match c {
            '"' if is_plain => is_quoted = !is_quoted,
            '\\' if is_plain && is_quoted => is_escaped = true,
            _ => {}
        }
        c == separator && !is_quoted
    })
}

/// Returns the client's request id if it is fit for a header and a log.
pub fn request_id(headers: &HeaderMap) -> Option<&HeaderValue> {
    let value = headers.get(&X_REQUEST_ID)?;
    (!value.is_empty() && value.len() <= 128 && value.as_bytes().iter().all(u8::is_ascii_graphic))
        .then_some(value)
}

pub fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The upstream's own id of a request, in both spellings of its name.
pub fn upstream_request_id(headers: &HeaderMap) -> Option<&str> {
    let id = headers.get("x-github-request-id").or_else(|| headers.get("x-service-request-id"))?;
    id.to_str().ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;
    use std::time::Duration;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    fn sent(request: &HeaderMap, passing: Passing) -> HeaderMap {
        to_upstream(request, passing, Dialect::Github)
    }

    #[test]
    fn the_conditions_of_a_write_pass_and_those_of_a_read_do_not() {
        for condition in ["if-match", "if-none-match", "if-unmodified-since", "if-modified-since"] {
            let request = map(&[(condition, "\"a\"")]);
            assert!(sent(&request, Passing::Write).contains_key(condition), "{condition}");
            for mode in [Mode::Revalidate, Mode::Rfc9111] {
                assert!(sent(&request, Passing::Read(mode)).is_empty(), "{condition}");
            }
        }
    }

    #[test]
    fn hop_by_hop_headers_and_credentials_stop_at_the_gateway() {
        let sent = sent(
            &map(&[
                ("connection", "close, X-Secret-Hop"),
                ("x-secret-hop", "1"),
                ("authorization", "Bearer weir_key"),
                ("x-weir-key", "weir_key"),
                ("cookie", "a=b"),
                ("x-forwarded-for", "10.0.0.1"),
                ("upgrade", "h2c"),
                ("range", "bytes=0-1"),
                ("if-none-match", "\"x\""),
                ("accept", "application/vnd.github.raw"),
                ("x-github-api-version", "2022-11-28"),
            ]),
            Passing::Read(Mode::Revalidate),
        );
        let names: Vec<_> = sent.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["accept", "x-github-api-version"]);
    }

    #[test]
    fn no_rule_passes_a_header_that_makes_another_request() {
        for name in [
            "sudo",
            "x_http_method_override",
            "x.http.method",
            "x-method-override",
            "x-method",
            "x-http-verb",
            "x-http-methodoverride",
            "http-method",
            "x-http-host-override",
            "x-original-url",
            "x-rewrite-url",
            "x-host",
            "x-forwarded",
            "x-real-ip",
            "true-client-ip",
            "cf-connecting-ip",
            "x-weir-account",
            "baggage",
            "traceparent",
        ] {
            for passing in
                [Passing::Write, Passing::Read(Mode::Revalidate), Passing::Read(Mode::Rfc9111)]
            {
                assert!(sent(&map(&[(name, "1")]), passing).is_empty(), "{name} {passing:?}");
            }
        }
    }

    #[test]
    fn the_version_header_of_another_dialect_does_not_pass() {
        let request = map(&[("x-service-api-version", "1"), ("x-github-api-version", "2")]);
        let sent = sent(&request, Passing::Read(Mode::Revalidate));
        assert_eq!(
            sent.keys().map(HeaderName::as_str).collect::<Vec<_>>(),
            ["x-github-api-version"]
        );
    }

    #[test]
    fn headers_about_a_pool_token_never_reach_a_client() {
        let seen = to_client(
            &map(&[
                ("x-oauth-scopes", "repo, admin:org"),
                ("x-accepted-oauth-scopes", "repo"),
                ("github-authentication-token-expiration", "2030-01-01"),
                ("x-ratelimit-remaining", "0"),
                ("set-cookie", "a=b"),
                ("connection", "keep-alive, x-other"),
                ("x-other", "1"),
                ("etag", "\"a\""),
                ("content-type", "application/json"),
            ]),
            Mode::Revalidate,
        );
        let names: Vec<_> = seen.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["etag", "content-type"]);
    }

    #[test]
    fn exposed_headers_are_the_upstreams_and_the_gateways_each_once() {
        let seen = to_client(
            &map(&[("access-control-expose-headers", "ETag, retry-after")]),
            Mode::Revalidate,
        );
        let list = seen["access-control-expose-headers"].to_str().unwrap();
        assert!(
            list.starts_with("ETag, retry-after, Cache-Status") && !list.contains("Retry-After"),
            "{list}"
        );
    }

    #[test]
    fn prefer_wait_is_read_in_every_spelling() {
        assert_eq!(prefer_wait(&map(&[("prefer", "wait=5")])), Some(Duration::from_secs(5)));
        assert_eq!(
            prefer_wait(&map(&[("prefer", "respond-async, Wait = \"7\"")])),
            Some(Duration::from_secs(7))
        );
        assert_eq!(
            prefer_wait(&map(&[("prefer", "wait=9"), ("prefer", "wait=3")])),
            Some(Duration::from_secs(3))
        );
        assert_eq!(prefer_wait(&map(&[("prefer", "wait=-1")])), None);
        assert_eq!(prefer_wait(&HeaderMap::new()), None);
    }

    #[test]
    fn respond_async_is_read_in_every_spelling() {
        for value in [
            "respond-async",
            "wait=5, Respond-Async",
            "respond-async; x=1, wait=3",
            "respond-async=\"\"",
            "x=\"a, b\\\", \", respond-async = \"\" ;y",
        ] {
            assert!(prefers_async(&map(&[("prefer", value)])), "{value}");
        }
        for value in [
            "wait=respond-async",
            "respond-asynchronously",
            "x; respond-async",
            "respond-async=no",
            "x=\"a, respond-async, b\"",
        ] {
            assert!(!prefers_async(&map(&[("prefer", value)])), "{value}");
        }
    }

    #[test]
    fn a_request_without_a_media_type_gets_the_recommended_one() {
        let mut headers = map(&[("accept", "*/*"), ("user-agent", "")]);
        complete(&mut headers, Dialect::Github);
        assert_eq!(headers["accept"], "application/vnd.github+json");
        assert!(headers["user-agent"].to_str().unwrap().starts_with("weir/"));
    }

    #[test]
    fn equivalent_accept_headers_are_sent_in_one_spelling() {
        let spelled = |lines: &[&'static str]| {
            let mut headers = map(&lines.iter().map(|line| ("accept", *line)).collect::<Vec<_>>());
            spell_accept(&mut headers, Dialect::Github);
            headers
                .get_all(header::ACCEPT)
                .iter()
                .map(|value| value.to_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        for plain in [
            &[][..],
            &[""],
            &["*/*"],
            &["application/json"],
            &["Application/Vnd.GitHub.v3+json"],
            &["application/json", "*/*"],
        ] {
            assert_eq!(spelled(plain), ["application/vnd.github+json"], "{plain:?}");
        }
        let set = "application/vnd.github.a-preview+json,application/vnd.github.b-preview+json";
        for previews in [
            &["application/vnd.github.b-preview+json, application/vnd.github.a-preview+json"][..],
            &[
                "application/vnd.github.a-preview+json",
                "application/json",
                "application/vnd.github.b-preview+json",
            ],
        ] {
            assert_eq!(spelled(previews), [set], "{previews:?}");
        }
        for other in [
            "application/vnd.github.raw+json",
            "application/vnd.github.v3.diff",
            "application/vnd.github.v4+json",
            "text/html; charset=utf-8, Application/JSON",
            "application/json;q=0.5, application/vnd.github.a-preview+json",
        ] {
            assert_eq!(spelled(&[other]), [other], "another media type stays unchanged");
        }
    }

    #[test]
    fn a_request_id_that_could_break_a_log_is_ignored() {
        assert_eq!(
            request_id(&map(&[("x-request-id", "abc-1")])),
            Some(&HeaderValue::from_static("abc-1"))
        );
        assert_eq!(request_id(&map(&[("x-request-id", "a b")])), None);
        assert_eq!(request_id(&map(&[("x-request-id", "")])), None);
    }
}
