//! Detects requests that carry a credential. They are never queued (SPECIFICATION, "Promises" 6),
//! because the store keeps a write's headers, query and body.
//!
//! The names decide: those of the route, the headers and the query parameters. Each is decoded as
//! the upstream decodes it and compared without separators, so `X-Api-Key`, `api_key` and
//! `ap%69key` are equal. Values are searched only for this gateway's own keys. Left out: the body,
//! which is the client's text; a route with a credential in its body is known by its name.

use http::{HeaderMap, HeaderName, header};
use percent_encoding::percent_decode_str;

use crate::api::Endpoint;
use crate::config::KEY_PREFIX;
use crate::gateway::request::clients::{Clients, KEY_HEADER};

/// Parts of a credential's name.
const NAMED: [&str; 10] = [
    "token",
    "secret",
    "password",
    "passwd",
    "auth",
    "apikey",
    "accesskey",
    "session",
    "signature",
    "credential",
];
/// Words too short to be searched inside others.
const WORDS: [&str; 4] = ["otp", "sig", "jwt", "pwd"];
/// Beside one of these, `code` is an OAuth code (RFC 6749 §4.1.2, §4.1.3). Alone it may be
/// anything, such as a code of a secret scan or a country.
const BESIDE_CODE: [&str; 5] =
    ["client_id", "redirect_uri", "grant_type", "code_verifier", "state"];
/// Parts of the templates of routes with a credential in the request or the answer, beside the
/// access-token routes: for runners, app manifests and webhooks.
const ROUTES: [&str; 6] = [
    "registration-token",
    "remove-token",
    "generate-jitconfig",
    "/app-manifests/",
    "/hooks",
    "/hook/",
];
/// Headers that end at the gateway and are not stored; their values need no check.
const END_HERE: [HeaderName; 4] = [
    header::AUTHORIZATION,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static(KEY_HEADER),
    HeaderName::from_static("idempotency-key"),
];

pub(super) fn carries_credential(
    endpoint: &Endpoint,
    headers: &HeaderMap,
    query: Option<&str>,
    clients: &Clients,
) -> bool {
    let by_route =
        || endpoint.token_request || ROUTES.iter().any(|part| endpoint.template.contains(part));
    let mut kept = headers.iter().filter(|(name, _)| !END_HERE.contains(name));
    by_route()
        || kept.any(|(name, value)| {
            names_credential(name.as_str()) || has_key(value.as_bytes(), clients)
        })
        || query.is_some_and(|query| query_carries_credential(query, clients))
}

fn query_carries_credential(query: &str, clients: &Clients) -> bool {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    // Some parsers read `;` as `&`.
    let names: Vec<_> = query
        .split(['&', ';'])
        .map(|part| decoded(part.split('=').next().unwrap_or_default()))
        .collect();
    let is_there = |wanted: &str| names.iter().any(|name| name.eq_ignore_ascii_case(wanted));
    names.iter().any(|name| names_credential(name))
        || is_there("code") && BESIDE_CODE.iter().any(|other| is_there(other))
        || has_key(&percent_decode_str(query).collect::<Vec<_>>(), clients)
}

fn names_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words: Vec<_> = name.split(|letter: char| !letter.is_alphanumeric()).collect();
    let whole = words.concat();
    NAMED.iter().any(|part| whole.contains(part)) || words.iter().any(|word| WORDS.contains(word))
}

/// True if the text contains a client's key with the prefix of generated keys.
fn has_key(text: &[u8], clients: &Clients) -> bool {
    memchr::memmem::find_iter(text, KEY_PREFIX).any(|start| {
        let from = text.get(start..).unwrap_or_default();
        let end = from
            .iter()
            .position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_')
            .unwrap_or(from.len());
        from.get(..end).is_some_and(|key| clients.have_key(key))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_known_by_any_spelling_of_its_name() {
        for name in [
            "access_token",
            "Access-Token",
            "X-Apikey",
            "x-api-key",
            "API_KEY",
            "api.key",
            "X-Access-Key",
            "X-Session-Id",
            "client_secret",
            "x-github-otp",
            "sig",
            "signature",
            "X-Amz-Signature",
            "X-Amz-Credential",
            "user[password]",
            "private-token",
        ] {
            assert!(names_credential(name), "{name}");
        }
        for name in [
            "accept",
            "content-type",
            "x-github-api-version",
            "if-match",
            "design",
            "sigma",
            "key",
            "per_page",
            "user-agent",
            "code",
        ] {
            assert!(!names_credential(name), "{name}");
        }
    }
}
