//! The terms of a search: words, phrases and qualifiers (`label:bug`, `-is:pr`, `comments:>5`).
//!
//! An unknown qualifier is refused. Taken for a word, it would change what the search finds, and
//! the client would not notice.

use crate::emulator::http::ApiError;
use crate::emulator::http::ranges::Range;
use crate::emulator::routing::Call;

/// A term, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    pub negated: bool,
    /// `None` for a word or phrase.
    pub qualifier: Option<String>,
    pub value: String,
}

pub fn invalid(message: String) -> ApiError {
    ApiError::invalid("Search", "q", message)
}

/// Splits a search into its terms; quotes keep a phrase or a value together.
pub fn parse(search: &str, qualifiers: &[&str]) -> Result<Vec<Term>, ApiError> {
    let mut terms = Vec::new();
    let mut rest = search.trim_start();
    while !rest.is_empty() {
        let mut is_quoted = false;
        let end = rest.find(|c: char| {
            is_quoted ^= c == '"';
            c.is_whitespace() && !is_quoted
        });
        let (text, beyond) = rest.split_at(end.unwrap_or(rest.len()));
        rest = beyond.trim_start();
        terms.push(term(text, qualifiers)?);
    }
    terms.retain(|term| term.qualifier.is_some() || !term.value.is_empty());
    Ok(terms)
}

fn term(text: &str, qualifiers: &[&str]) -> Result<Term, ApiError> {
    let (negated, text) = match text.strip_prefix('-').filter(|rest| !rest.is_empty()) {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let unquoted = |text: &str| text.replace('"', "").to_lowercase();
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-')
    };
    let Some((name, value)) = text.split_once(':').filter(|(name, _)| is_name(name)) else {
        return Ok(Term { negated, qualifier: None, value: unquoted(text) });
    };
    let (name, value) = (name.to_lowercase(), unquoted(value));
    if !qualifiers.contains(&name.as_str()) {
        let known = qualifiers.join(", ");
        return Err(invalid(format!("The qualifier {name} is not supported; supported: {known}")));
    }
    if value.is_empty() {
        return Err(invalid(format!("The qualifier {name} has no value")));
    }
    Ok(Term { negated, qualifier: Some(name), value })
}

pub fn numbers(name: &str, text: &str) -> Result<Range, ApiError> {
    Range::of_numbers(text).ok_or_else(|| wrong(name, "a number such as >=10 or 1..5"))
}

pub fn days(name: &str, text: &str) -> Result<Range, ApiError> {
    Range::of_days(text).ok_or_else(|| wrong(name, "a date such as >=2026-01-31"))
}

/// Reads the parameter `order`; the default is `desc`.
pub fn descends(call: &Call<'_>) -> Result<bool, ApiError> {
    let named = |name: &str| matches!(name, "asc" | "desc").then_some(name == "desc");
    let order = call.choice("Search", "order", named, "order must be asc or desc")?;
    Ok(order.unwrap_or(true))
}

/// Reads a value that is true or false.
pub fn flag(name: &str, value: &str) -> Result<bool, ApiError> {
    value.parse().map_err(|_| wrong(name, "true or false"))
}

pub fn wrong(name: &str, accepted: &str) -> ApiError {
    invalid(format!("The value of {name} is not supported; supported: {accepted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_a_value_together_and_a_minus_negates() {
        let terms = parse(r#"-label:"Good First" crash "a b:c" repo:a/B"#, &["label", "repo"]);
        let shown: Vec<_> = terms.expect("terms").into_iter().collect();
        let term = |negated, qualifier: Option<&str>, value: &str| Term {
            negated,
            qualifier: qualifier.map(str::to_owned),
            value: value.to_owned(),
        };
        assert_eq!(
            shown,
            [
                term(true, Some("label"), "good first"),
                term(false, None, "crash"),
                term(false, None, "a b:c"),
                term(false, Some("repo"), "a/b"),
            ]
        );
        for text in ["colour:red", "repo:", "-lable:x", "http://a"] {
            assert!(parse(text, &["label", "repo"]).is_err(), "{text}");
        }
    }
}
