//! Names of the upstream's headers that are the same in every dialect, in lower case as
//! `http::HeaderName` keeps them.
//!
//! [`Dialect`](crate::api::Dialect) makes the names that carry the maker's brand.

/// Most requests in the window (SPECIFICATION, "Rate limit headers").
pub const RATE_LIMIT: &str = "x-ratelimit-limit";
/// Requests left in the window.
pub const RATE_REMAINING: &str = "x-ratelimit-remaining";
/// Requests used in the window.
pub const RATE_USED: &str = "x-ratelimit-used";
/// End of the window, in UTC epoch seconds.
pub const RATE_RESET: &str = "x-ratelimit-reset";
/// Resource that the request counted against.
pub const RATE_RESOURCE: &str = "x-ratelimit-resource";
/// All rate headers.
pub const RATE_HEADERS: [&str; 5] =
    [RATE_LIMIT, RATE_REMAINING, RATE_USED, RATE_RESET, RATE_RESOURCE];
/// Time to stay away: seconds or an HTTP date (RFC 9110 §10.2.3).
pub const RETRY_AFTER: &str = "retry-after";
/// Seconds between two polls of the same route. The interval can grow under load and is mandatory.
pub const POLL_INTERVAL: &str = "x-poll-interval";
/// Scopes of the classic or OAuth token of the request. They describe a pool token, so clients
/// never see them (SPECIFICATION, "Client libraries" 17).
pub const OAUTH_SCOPES: &str = "x-oauth-scopes";
/// Scopes that the endpoint accepts from classic and OAuth tokens.
pub const ACCEPTED_OAUTH_SCOPES: &str = "x-accepted-oauth-scopes";
/// HMAC-SHA-256 of a webhook delivery's raw body, as `sha256=<hex>`.
pub const HUB_SIGNATURE_256: &str = "x-hub-signature-256";
/// Legacy HMAC-SHA-1 of a delivery; never enough on its own (SPECIFICATION, "Webhooks in
/// practice").
pub const HUB_SIGNATURE: &str = "x-hub-signature";
