//! Names of the upstream's headers that are the same in every dialect, in lower case as
//! `http::HeaderName` keeps them.
//!
//! Names that carry the maker's brand are made by [`Dialect`](crate::api::Dialect).

/// Most requests the window allows (Document 1, Rate limit response headers).
pub const RATE_LIMIT: &str = "x-ratelimit-limit";
/// Requests left in the window.
pub const RATE_REMAINING: &str = "x-ratelimit-remaining";
/// Requests used in the window.
pub const RATE_USED: &str = "x-ratelimit-used";
/// When the window ends, in UTC epoch seconds.
pub const RATE_RESET: &str = "x-ratelimit-reset";
/// The resource that the request counted against.
pub const RATE_RESOURCE: &str = "x-ratelimit-resource";
/// Every rate header, for those who strip or write all of them.
pub const RATE_HEADERS: [&str; 5] =
    [RATE_LIMIT, RATE_REMAINING, RATE_USED, RATE_RESET, RATE_RESOURCE];
/// How long to keep away: seconds or an HTTP date (RFC 9110 §10.2.3).
pub const RETRY_AFTER: &str = "retry-after";
/// Seconds between two polls of the same route; can grow under load and must be obeyed (Document 1,
/// Poll interval).
pub const POLL_INTERVAL: &str = "x-poll-interval";
/// Scopes of the classic or OAuth token that asked: describes a pool token, so it is never passed
/// on (CLIENTS.md 17).
pub const OAUTH_SCOPES: &str = "x-oauth-scopes";
/// Scopes that the endpoint accepts from classic and OAuth tokens.
pub const ACCEPTED_OAUTH_SCOPES: &str = "x-accepted-oauth-scopes";
/// HMAC-SHA-256 of a webhook delivery's raw body, as `sha256=<hex>` (Document 3, Events).
pub const HUB_SIGNATURE_256: &str = "x-hub-signature-256";
/// The legacy HMAC-SHA-1 of a delivery; never enough on its own (UPSTREAM.md, Webhooks).
pub const HUB_SIGNATURE: &str = "x-hub-signature";
