//! Detects requests that carry a credential. They are never queued (SPECIFICATION, "Promises" 6),
//! because the store keeps a write's headers, query and body.
//!
//! The endpoint table marks the routes with a credential in their body or answer. For other routes,
//! the names of headers and query parameters decide; for routes in no table, also those in the
//! path. Each name is decoded as the upstream decodes it and compared without separators, so
//! `X-Api-Key`, `api_key` and `ap%69key` are equal. A key of this gateway never comes this far
//! (`request/misplaced_key.rs`). Left out: the body, which is the client's text.

use http::{HeaderMap, HeaderName, header};
use percent_encoding::percent_decode_str;

use crate::api::{Endpoint, Table};
use crate::gateway::request::clients::KEY_HEADER;

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
/// Segments of routes whose body or answer has a secret under another name, for routes in no table.
const SEGMENTS: [&str; 7] =
    ["generate-jitconfig", "hook", "hooks", "hub", "import", "manage", "setup"];
/// Headers that end at the gateway and are not stored; their values need no check.
const END_HERE: [HeaderName; 4] = [
    header::AUTHORIZATION,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static(KEY_HEADER),
    HeaderName::from_static("idempotency-key"),
];

pub(super) fn carries_credential(
    endpoint: &Endpoint,
    path: &str,
    headers: &HeaderMap,
    query: Option<&str>,
) -> bool {
    let mut kept = headers.keys().filter(|name| !END_HERE.contains(name));
    endpoint.carries_credential
        || endpoint.generic && path_names_credential(path)
        || kept.any(|name| names_credential(name.as_str()))
        || query.is_some_and(query_names_credential)
}

/// True for a path like those of the marked routes. The name of a repository or owner says nothing.
fn path_names_credential(path: &str) -> bool {
    let below = path.strip_prefix(Table::place(path).unwrap_or_default()).unwrap_or(path);
    let decoded = percent_decode_str(below).decode_utf8_lossy().to_ascii_lowercase();
    decoded.split('/').any(|segment| names_credential(segment) || SEGMENTS.contains(&segment))
}

fn query_names_credential(query: &str) -> bool {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    // Some parsers read `;` as `&`.
    let names: Vec<_> = query
        .split(['&', ';'])
        .map(|part| decoded(part.split('=').next().unwrap_or_default()))
        .collect();
    let is_there = |wanted: &str| names.iter().any(|name| name.eq_ignore_ascii_case(wanted));
    names.iter().any(|name| names_credential(name))
        || is_there("code") && BESIDE_CODE.iter().any(|other| is_there(other))
}

fn names_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words: Vec<_> = name.split(|letter: char| !letter.is_alphanumeric()).collect();
    let whole = words.concat();
    NAMED.iter().any(|part| whole.contains(part)) || words.iter().any(|word| WORDS.contains(word))
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

    #[test]
    fn a_route_in_no_table_is_judged_by_the_names_in_its_path() {
        for path in [
            "/repos/acme/widgets/hooks/",
            "/Repos/acme/widgets/Hooks",
            "/hub/",
            "/repos/acme/widgets/import/authors",
            "/enterprises/acme/actions/runners/registration-token",
            "/login/oauth/access_token",
            "/credentials%2Frevoke",
        ] {
            assert!(path_names_credential(path), "{path}");
        }
        for path in ["/repos/acme/auth-service/issues/5/pins", "/orgs/import/pins", "/hubs"] {
            assert!(!path_names_credential(path), "{path}");
        }
    }
}
