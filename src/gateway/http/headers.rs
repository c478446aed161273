//! Which headers cross the gateway, in both directions (CONTRACT §3; RFC 9110 §7.6.1; CLIENTS.md,
//! 9, 15 and 17).
//!
//! Everything end-to-end passes, but for what belongs to one hop, to a credential, or to the
//! gateway itself. Values are not interpreted here.

use http::header::{self, HeaderMap, HeaderValue};

use crate::api::Dialect;
use crate::api::headers::{ACCEPTED_OAUTH_SCOPES, OAUTH_SCOPES, RATE_HEADERS};
use crate::decision::cache::cache_control::CacheControl;
use crate::decision::cache::freshness::Mode;
use crate::decision::cache::key::Accept;

/// RFC 9110 §7.6.1, and the older names that proxies still see.
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

/// Request headers that end at the gateway: credentials, framing, and what the gateway says itself.
const REQUEST_ENDS_HERE: [&str; 18] = [
    "accept-encoding",
    "authorization",
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
    "via",
    // An upstream that honours these would see another method than the one that was allowed.
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-request-id",
    "x-weir-key",
];

/// Those of a read that do as well: conditions, because the cache answers them and asks with its
/// own; and what would make the upstream choose another answer than the one that is found by the
/// cache's key (one-time passwords too, which are of no use with a token). A write's conditions are
/// for the upstream to weigh (RFC 9110 §13.2).
const READ_ENDS_HERE: [&str; 6] = [
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "x-requested-with",
];

/// Answer headers that describe a pool token, the connection, or that the gateway writes anew.
const ANSWER_ENDS_HERE: [&str; 14] = [
    "age",
    "alt-svc",
    "content-length",
    "date",
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

/// Digests of what is sent: they would be wrong of anything else (RFC 9530, RFC 3230, RFC 1864).
pub const DIGESTS: [&str; 4] = ["content-digest", "repr-digest", "digest", "content-md5"];

/// What the gateway adds, for scripts in a browser (CLIENTS.md, 15).
const EXPOSED: &str =
    "Cache-Status, Age, X-From-Cache, X-Weir-Account, X-Request-Id, Server-Timing, Retry-After";

/// The headers of a client's request that go upstream. `traceparent` among them; where spans are
/// made, each attempt writes its own over it.
pub fn to_upstream(from: &HeaderMap, is_read: bool) -> HeaderMap {
    let named = named_by_connection(from);
    let mut out = HeaderMap::with_capacity(from.len());
    for (name, value) in from {
        let text = name.as_str();
        let stays = HOP_BY_HOP.contains(&text)
            || REQUEST_ENDS_HERE.contains(&text)
            || text.starts_with("x-forwarded-")
            || text == "x-real-ip"
            || is_read && (READ_ENDS_HERE.contains(&text) || text.ends_with("-otp"))
            || named.iter().any(|other| other.eq_ignore_ascii_case(text));
        if !stays {
            out.append(name.clone(), value.clone());
        }
    }
    out
}

/// Makes sure of what the upstream wants of every request: a user agent and a media type.
pub fn complete(headers: &mut HeaderMap, dialect: Dialect) {
    headers
        .entry(header::USER_AGENT)
        .or_insert(HeaderValue::from_static(concat!("weir/", env!("CARGO_PKG_VERSION"))));
    // Bodies are rewritten per client, so they are asked for as they are.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let any = headers.get(header::ACCEPT).is_none_or(|accept| accept.is_empty() || accept == "*/*");
    if any {
        headers.insert(header::ACCEPT, HeaderValue::from_static(dialect.media_type()));
    }
}

/// The answer that a request prefers. `intake` has seen to it that the lines are ASCII.
pub fn accept_of(headers: &HeaderMap) -> Accept {
    let mut lines = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    match (lines.next(), lines.next()) {
        (first, None) => Accept::normalise(first),
        (Some(first), Some(second)) => Accept::normalise(Some(
            &lines.fold(format!("{first},{second}"), |list, line| list + "," + line),
        )),
        (None, Some(_)) => Accept::Json,
    }
}

/// Spells a read's `Accept` as everybody's is spelled who gets the same stored answer. The
/// upstream's `ETag` depends on its bytes (UPSTREAM.md, Conditional requests): by as many spellings
/// as there are client libraries, each would defeat what another one's confirmation taught.
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

/// The headers of the upstream's answer that reach a client; addresses in them are rewritten when
/// the answer is rendered. A cookie belongs to the account that asked; where the gateway is a plain
/// HTTP cache, what the upstream tells such caches to repeat is repeated (RFC 9111 §7.3), unless it
/// says that it is for one user (§5.2.2.7): what goes to one goes to the others.
pub fn to_client(from: &HeaderMap, mode: Mode) -> HeaderMap {
    let named = named_by_connection(from);
    let hides_cookies = mode == Mode::Revalidate
        || from.contains_key(header::SET_COOKIE) && CacheControl::parse(from).private;
    let mut out = HeaderMap::with_capacity(from.len());
    for (name, value) in from {
        let text = name.as_str();
        let stays = HOP_BY_HOP.contains(&text)
            || ANSWER_ENDS_HERE.contains(&text)
            || RATE_HEADERS.contains(&text)
            || text == "set-cookie" && hides_cookies
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

/// Of an answer whose body is not passed on byte for byte.
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

/// Headers that `Connection` declares to be for this hop only.
fn named_by_connection(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}

/// The answer to a browser's preflight, which carries no key (CLIENTS.md, 15).
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

/// The seconds of `Prefer: wait=N` (RFC 7240 §4.3): the shortest when several are given.
pub fn prefer_wait(headers: &HeaderMap) -> Option<std::time::Duration> {
    let values = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let preferences = values
        .flat_map(|value| value.split([',', ';']))
        .filter_map(|preference| preference.trim().split_once('='));
    let waits = preferences.filter(|(name, _)| name.trim().eq_ignore_ascii_case("wait"));
    let seconds = waits.filter_map(|(_, value)| value.trim().trim_matches('"').parse::<u32>().ok());
    seconds.min().map(|seconds| std::time::Duration::from_secs(seconds.into()))
}

/// Whether a client would rather have a write accepted than wait for it (RFC 7240 §4.1). An empty
/// value is none (§2).
pub fn prefers_async(headers: &HeaderMap) -> bool {
    let values = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let mut preferences = values
        .flat_map(|value| split_unquoted(value, ','))
        .filter_map(|preference| split_unquoted(preference, ';').next());
    preferences.any(|preference| {
        let (name, value) = preference.split_once('=').unwrap_or((preference, ""));
        name.trim().eq_ignore_ascii_case("respond-async") && matches!(value.trim(), "" | "\"\"")
    })
}

/// The parts of a text between separators that do not stand in a quoted string (RFC 9110 §5.6.4).
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

/// The request id that a client sent, when it is fit to be repeated in a header and a log.
pub fn request_id(headers: &HeaderMap) -> Option<&HeaderValue> {
    let value = headers.get("x-request-id")?;
    (!value.is_empty() && value.len() <= 128 && value.as_bytes().iter().all(u8::is_ascii_graphic))
        .then_some(value)
}

/// The length that the answer's head declares.
pub fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
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

    #[test]
    fn a_writes_conditions_are_for_the_upstream_to_weigh() {
        for condition in ["if-match", "if-none-match", "if-unmodified-since", "if-modified-since"] {
            let asked = map(&[(condition, "\"a\"")]);
            assert!(
                to_upstream(&asked, false).contains_key(condition)
                    && to_upstream(&asked, true).is_empty(),
                "{condition}"
            );
        }
    }

    #[test]
    fn hop_by_hop_headers_and_credentials_stop_at_the_gateway() {
        let sent = to_upstream(
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
            true,
        );
        let names: Vec<_> = sent.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["accept", "x-github-api-version"]);
    }

    #[test]
    fn what_describes_a_pool_token_never_reaches_a_client() {
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
    fn a_preference_for_an_asynchronous_answer_is_read_in_every_spelling() {
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
    fn a_client_without_a_media_type_asks_for_the_recommended_one() {
        let mut headers = map(&[("accept", "*/*")]);
        complete(&mut headers, Dialect::Github);
        assert_eq!(headers["accept"], "application/vnd.github+json");
        assert!(headers.contains_key("user-agent"));
    }

    #[test]
    fn who_gets_the_same_stored_answer_asks_in_the_same_words() {
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
            assert_eq!(spelled(&[other]), [other], "it asks for something, and is left alone");
        }
    }

    #[test]
    fn a_request_id_that_could_break_a_log_is_replaced() {
        assert_eq!(
            request_id(&map(&[("x-request-id", "abc-1")])),
            Some(&HeaderValue::from_static("abc-1"))
        );
        assert_eq!(request_id(&map(&[("x-request-id", "a b")])), None);
        assert_eq!(request_id(&map(&[("x-request-id", "")])), None);
    }
}
