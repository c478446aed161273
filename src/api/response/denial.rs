//! Denials: answers about the permissions of their token (SPECIFICATION, "Permissions" and
//! "Conditional requests in practice").
//!
//! A denial is a 403 without a limit, or a 404, which also hides resources from a token.
//! `permissions/` draws conclusions; `upstream_limit` reads limits. A 401 is about the token
//! itself.

use std::borrow::Cow;

use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use super::headers::{ACCEPTED_OAUTH_SCOPES, OAUTH_SCOPES};
use super::rate::single;
use crate::api::endpoint::Access;
use crate::api::endpoint::dialect::Dialect;

/// Prefixes of the messages for a missing permission, role or scope, in lower case. Other 403s can
/// be about the resource: a blocked repository, a file that is too large.
const PERMISSION_WORDS: [&str; 6] = [
    "resource not accessible by",
    "must have ",
    "must be an organization ",
    "the token lacks a scope",
    "missing the '",
    "resource protected by ",
];
/// The prefix that is about the token's permission, not about its user's role.
const TOKEN_WORDS: &str = "resource not accessible by";

/// Answer that denies access or existence, which can mean the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// The token lacks a permission or scope, or its user lacks a role.
    MissingPermission {
        /// True when the token itself lacks the permission that the endpoint accepts.
        by_token: bool,
    },
    /// 403 for an unknown reason.
    Forbidden,
    /// 404: missing, or hidden from this token.
    NotFound,
}

impl Denial {
    /// Parses the head and the known part of the body of an answer without a limit. Returns `None`
    /// when it denies nothing.
    pub fn read(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Option<Self> {
        match status {
            StatusCode::NOT_FOUND if lacks_scope(headers) => {
                Some(Self::MissingPermission { by_token: false })
            }
            StatusCode::NOT_FOUND => Some(Self::NotFound),
            StatusCode::FORBIDDEN => {
                let message = message(body);
                let by_token = message.starts_with(TOKEN_WORDS);
                let is_permission = lacks_scope(headers)
                    || PERMISSION_WORDS.iter().any(|words| message.starts_with(words));
                Some(if is_permission {
                    Self::MissingPermission { by_token }
                } else {
                    Self::Forbidden
                })
            }
            _ => None,
        }
    }
}

/// Permission as the header of accepted permissions names it; the table's name may differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedPermission<'h> {
    /// Name, such as `contents`.
    pub name: &'h str,
    /// Lowest level that suffices.
    pub access: Access,
}

/// Returns the one permission that an endpoint requires, which each answer names. Returns `None`
/// without the header, and for several permissions or a choice (a comma is "and", a semicolon
/// "or"): the missing one is then unknown.
pub fn accepted_permission(
    headers: &HeaderMap,
    dialect: Dialect,
) -> Option<AcceptedPermission<'_>> {
    let text = single(headers, dialect.accepted_permissions_header())?.trim();
    if text.contains([',', ';']) {
        return None;
    }
    let (name, level) = text.split_once('=')?;
    let access = level.parse().ok()?;
    (!name.is_empty()).then_some(AcceptedPermission { name, access })
}

/// Returns true when the token has scopes, and none that the endpoint accepts. Public data is shown
/// all the same, so this explains a denial and predicts none.
fn lacks_scope(headers: &HeaderMap) -> bool {
    let (Some(has), Some(accepts)) =
        (single(headers, OAUTH_SCOPES), single(headers, ACCEPTED_OAUTH_SCOPES))
    else {
        return false;
    };
    let mut accepted = scopes(accepts).peekable();
    accepted.peek().is_some()
        && !accepted.any(|accepted| scopes(has).any(|scope| includes(scope, accepted)))
}

fn scopes(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|scope| !scope.is_empty())
}

/// Returns true when a scope equals or includes another: `admin:org` includes `write:org`, which
/// includes `read:org`. `repo` includes `repo:status` and `public_repo`.
fn includes(scope: &str, wanted: &str) -> bool {
    let level = |scope: &str| ["read", "write", "admin"].iter().position(|level| *level == scope);
    let above = match (scope.split_once(':'), wanted.split_once(':')) {
        (Some((has, of)), Some((wants, other))) if of == other => {
            level(has).zip(level(wants)).is_some_and(|(has, wants)| has >= wants)
        }
        _ => false,
    };
    let below = wanted.strip_prefix(scope).is_some_and(|rest| rest.starts_with(':'));
    scope == wanted || above || below || (scope == "repo" && wanted == "public_repo")
}

#[derive(Deserialize)]
struct ErrorBody<'b> {
    #[serde(borrow, default)]
    message: Option<Cow<'b, str>>,
}

/// Message of an error body in lower case; empty without one.
fn message(body: &[u8]) -> String {
    let error = serde_json::from_slice::<ErrorBody<'_>>(body).ok();
    error.and_then(|error| error.message).unwrap_or_default().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn with(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    fn forbidden(message: &str) -> Option<Denial> {
        let body = serde_json::json!({ "message": message }).to_string();
        Denial::read(StatusCode::FORBIDDEN, &HeaderMap::new(), body.as_bytes())
    }

    #[test]
    fn a_403_is_classified_by_its_message() {
        assert_eq!(
            forbidden("Resource not accessible by integration"),
            Some(Denial::MissingPermission { by_token: true })
        );
        assert_eq!(
            forbidden("Resource not accessible by personal access token"),
            Some(Denial::MissingPermission { by_token: true })
        );
        assert_eq!(
            forbidden("Must have admin rights to Repository."),
            Some(Denial::MissingPermission { by_token: false })
        );
        assert_eq!(
            forbidden("Resource protected by organization SAML enforcement."),
            Some(Denial::MissingPermission { by_token: false })
        );
        assert_eq!(forbidden("Repository access blocked"), Some(Denial::Forbidden));
        assert_eq!(
            Denial::read(StatusCode::FORBIDDEN, &HeaderMap::new(), b"<html>"),
            Some(Denial::Forbidden)
        );
    }

    #[test]
    fn a_404_without_an_accepted_scope_is_a_missing_permission() {
        let denial = |has, accepts| {
            Denial::read(
                StatusCode::NOT_FOUND,
                &with(&[("x-oauth-scopes", has), ("x-accepted-oauth-scopes", accepts)]),
                b"",
            )
        };
        assert_eq!(denial("", "repo"), Some(Denial::MissingPermission { by_token: false }));
        assert_eq!(
            denial("read:org, gist", "admin:org"),
            Some(Denial::MissingPermission { by_token: false })
        );
        for (has, accepts) in [
            ("repo", "repo"),
            ("admin:org", "read:org"),
            ("repo", "public_repo, x"),
            ("", ""),
            ("repo", "repo:status"),
        ] {
            assert_eq!(denial(has, accepts), Some(Denial::NotFound), "{has} for {accepts}");
        }
        assert_eq!(
            Denial::read(StatusCode::NOT_FOUND, &HeaderMap::new(), b""),
            Some(Denial::NotFound)
        );
    }

    #[test]
    fn no_other_status_denies() {
        for status in [200, 304, 401, 410, 422, 451, 500, 503] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(
                Denial::read(
                    status,
                    &HeaderMap::new(),
                    b"{\"message\":\"Must have admin rights\"}"
                ),
                None
            );
        }
    }

    #[test]
    fn one_accepted_permission_is_read_and_a_choice_of_them_is_not() {
        let read = |text| {
            let headers = with(&[("x-accepted-github-permissions", text)]);
            accepted_permission(&headers, Dialect::Github)
                .map(|found| (found.name.to_owned(), found.access))
        };
        assert_eq!(read("contents=read"), Some(("contents".to_owned(), Access::Read)));
        assert_eq!(
            read("organization_custom_properties=admin"),
            Some(("organization_custom_properties".to_owned(), Access::Admin))
        );
        for text in
            ["", "allows_permissionless_access=true", "a=read,b=read", "a=read; b=read", "=read"]
        {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(
            accepted_permission(
                &with(&[("x-accepted-github-permissions", "contents=read")]),
                Dialect::Service
            ),
            None
        );
    }
}
