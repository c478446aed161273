//! The routes that a client may call: rules such as `GET *` and `POST /repos/acme/*/issues`
//! (SPECIFICATION, "Configuration", `clients.allow`).
//!
//! A rule is a method and a pattern. `GET` includes HEAD, `*` includes every method. A pattern is
//! compared segment by segment, on the decoded bytes of the canonical path. So another spelling of
//! a segment neither evades a rule nor misses it:
//!
//! - `*` alone: every path;
//! - `*` as a segment: exactly one segment of any content (an encoded slash is data);
//! - `**` as the last segment: any rest, none included;
//! - anything else: itself, letter for letter.
//!
//! Validation rejects dot segments, raw or encoded, before they reach this module.

use std::borrow::Cow;

use http::Method;
use percent_encoding::percent_decode_str;

/// Permitted kind of request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    method: Methods,
    path: Pattern,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Methods {
    Any,
    Only(Method),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Everything,
    Segments { head: Vec<Piece>, rest: PathRest },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(Box<[u8]>),
    AnyOne,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathRest {
    Nothing,
    Anything,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("a rule is a method and a path, such as \"GET /repos/acme/*/issues\"")]
    Shape,
    #[error("the method is written in capitals, such as GET, or is * for every method")]
    Method,
    #[error("the path is * or begins with /")]
    Path,
    #[error("a rule says nothing about the query: leave out ? and #")]
    Query,
    #[error("a path has no empty segments, no . and no .., and no slash at its end")]
    Segment,
    #[error("* stands for a whole segment, and ** for the rest at the end")]
    Star,
    /// A percent sign without two hexadecimal digits, or an encoded slash.
    #[error("a percent sign is followed by two hexadecimal digits, and not by those of a slash")]
    Encoding,
}

impl Rule {
    /// Parses a rule; the module describes the syntax.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let mut words = text.split_ascii_whitespace();
        let (Some(method), Some(path), None) = (words.next(), words.next(), words.next()) else {
            return Err(RuleError::Shape);
        };
        Ok(Self { method: parse_method(method)?, path: parse_path(path)? })
    }

    /// Returns true when the rule permits `method` on the canonical `path` (begins with `/`, no
    /// query).
    pub fn permits(&self, method: &Method, path: &str) -> bool {
        let method = if *method == Method::HEAD { &Method::GET } else { method };
        let method_fits = match &self.method {
            Methods::Any => true,
            Methods::Only(own) => method == if *own == Method::HEAD { &Method::GET } else { own },
        };
        method_fits && self.path.fits(path)
    }
}

/// Returns true when any of `rules` permits `method` on the canonical `path`.
pub fn permitted(rules: &[Rule], method: &Method, path: &str) -> bool {
    rules.iter().any(|rule| rule.permits(method, path))
}

fn parse_method(word: &str) -> Result<Methods, RuleError> {
    match word {
        "*" => Ok(Methods::Any),
        _ if word.bytes().all(|byte| byte.is_ascii_uppercase()) => {
            Method::from_bytes(word.as_bytes()).map(Methods::Only).map_err(|_| RuleError::Method)
        }
        _ => Err(RuleError::Method),
    }
}

fn parse_path(word: &str) -> Result<Pattern, RuleError> {
    if word == "*" {
        return Ok(Pattern::Everything);
    }
    if word.contains(['?', '#']) {
        return Err(RuleError::Query);
    }
    let inner = word.strip_prefix('/').ok_or(RuleError::Path)?;
    let (inner, rest) = match inner.strip_suffix("**") {
        Some("") => ("", PathRest::Anything),
        Some(before) => (before.strip_suffix('/').ok_or(RuleError::Star)?, PathRest::Anything),
        None => (inner, PathRest::Nothing),
    };
    if inner.is_empty() && word != "/" && word != "/**" {
        return Err(RuleError::Segment);
    }
    let head = segments(inner).map(parse_segment).collect::<Result<_, _>>()?;
    Ok(Pattern::Segments { head, rest })
}

fn parse_segment(segment: &str) -> Result<Piece, RuleError> {
    if segment == "*" {
        return Ok(Piece::AnyOne);
    }
    if segment.contains('*') {
        return Err(RuleError::Star);
    }
    let bytes =
        decode(segment).filter(|bytes| !bytes.contains(&b'/')).ok_or(RuleError::Encoding)?;
    match &*bytes {
        b"" | b"." | b".." => Err(RuleError::Segment),
        _ => Ok(Piece::Literal(bytes.into())),
    }
}

impl Pattern {
    fn fits(&self, path: &str) -> bool {
        let Self::Segments { head, rest } = self else { return true };
        let Some(inner) = path.strip_prefix('/') else { return false };
        let mut requested = segments(inner);
        head.iter().all(|piece| requested.next().is_some_and(|segment| piece.fits(segment)))
            && (*rest == PathRest::Anything || requested.next().is_none())
    }
}

impl Piece {
    /// A segment that cannot be decoded fits nothing, because its meaning to the upstream is
    /// unknown.
    fn fits(&self, segment: &str) -> bool {
        let Some(bytes) = decode(segment) else { return false };
        match self {
            Self::AnyOne => !bytes.is_empty(),
            Self::Literal(own) => **own == *bytes,
        }
    }
}

/// Segments of a path without its leading slash; the root has none.
fn segments(inner: &str) -> impl Iterator<Item = &str> {
    inner.split('/').filter(move |_| !inner.is_empty())
}

/// Decodes once, as the upstream does. Returns `None` when a percent sign is not followed by two
/// hexadecimal digits.
fn decode(segment: &str) -> Option<Cow<'_, [u8]>> {
    let bytes = segment.as_bytes();
    let well_formed =
        bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%').all(|(place, _)| {
            bytes.get(place + 1).is_some_and(u8::is_ascii_hexdigit)
                && bytes.get(place + 2).is_some_and(u8::is_ascii_hexdigit)
        });
    well_formed.then(|| percent_decode_str(segment).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(rule: &str, method: &str, path: &str) -> bool {
        Rule::parse(rule).unwrap().permits(&method.parse().unwrap(), path)
    }

    #[test]
    fn a_lone_star_matches_every_path() {
        assert!(permits("GET *", "GET", "/"));
        assert!(permits("GET *", "GET", "/repos/a/b%2Fc"));
        assert!(!permits("GET *", "POST", "/repos"));
        assert!(permits("* *", "DELETE", "/repos/a/b"));
    }

    #[test]
    fn a_star_segment_matches_exactly_one_segment() {
        assert!(permits("POST /repos/acme/*/issues", "POST", "/repos/acme/widgets/issues"));
        assert!(!permits("POST /repos/acme/*/issues", "POST", "/repos/acme/widgets/x/issues"));
        assert!(!permits("POST /repos/acme/*/issues", "POST", "/repos/acme/issues"));
        assert!(!permits("POST /repos/acme/*/issues", "POST", "/repos/acme//issues"));
        assert!(!permits("POST /repos/acme/*/issues", "POST", "/repos/acme/widgets/issues/1"));
        assert!(permits("GET /repos/*", "GET", "/repos/a"));
        assert!(!permits("GET /repos/*", "GET", "/repos/a/b"));
    }

    #[test]
    fn a_final_double_star_matches_any_rest() {
        for path in ["/repos/acme", "/repos/acme/a", "/repos/acme/a/b/c"] {
            assert!(permits("GET /repos/acme/**", "GET", path), "{path}");
        }
        assert!(!permits("GET /repos/acme/**", "GET", "/repos/acmes/a"));
        assert!(permits("GET /**", "GET", "/"));
    }

    #[test]
    fn head_is_permitted_where_get_is() {
        assert!(permits("GET /meta", "HEAD", "/meta"));
        assert!(!permits("POST /meta", "HEAD", "/meta"));
    }

    #[test]
    fn an_encoded_segment_equals_its_decoded_form() {
        assert!(permits("GET /repos/acme/*", "GET", "/repos/%61cme/w"));
        assert!(permits("GET /repos/%61cme/*", "GET", "/repos/acme/w"));
    }

    #[test]
    fn an_encoded_slash_does_not_split_a_segment() {
        assert!(!permits("GET /repos/acme/w", "GET", "/repos/acme%2Fw"));
        assert!(!permits("GET /repos/acme", "GET", "/repos/acme%2f"));
        assert!(permits("GET /repos/a/b/branches/*", "GET", "/repos/a/b/branches/feature%2Fx"));
        assert!(!permits("GET /repos/%2561cme", "GET", "/repos/acme"), "decoded once");
    }

    #[test]
    fn an_undecodable_segment_matches_no_rule() {
        for path in ["/repos/%", "/repos/%z1", "/repos/a%4"] {
            assert!(!permits("GET /repos/*", "GET", path), "{path}");
        }
    }

    #[test]
    fn a_malformed_rule_names_its_fault() {
        for (text, error) in [
            ("", RuleError::Shape),
            ("GET", RuleError::Shape),
            ("GET /a b", RuleError::Shape),
            ("get /a", RuleError::Method),
            ("GET a", RuleError::Path),
            ("GET ./a", RuleError::Path),
            ("GET /a?b=c", RuleError::Query),
            ("GET /a//b", RuleError::Segment),
            ("GET /a/", RuleError::Segment),
            ("GET /a/%2e%2E/b", RuleError::Segment),
            ("GET //**", RuleError::Segment),
            ("GET /a*/b", RuleError::Star),
            ("GET /a/**/b", RuleError::Star),
            ("GET /a**", RuleError::Star),
            ("GET /a%2fb", RuleError::Encoding),
            ("GET /a%4", RuleError::Encoding),
        ] {
            assert_eq!(Rule::parse(text), Err(error), "{text}");
        }
    }
}
