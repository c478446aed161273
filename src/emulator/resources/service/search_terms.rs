//! The terms of a search: words, phrases and qualifiers (`label:bug`, `-is:pr`, `comments:>5`).
//!
//! An unknown qualifier is refused. Taken for a word, it would change what the search finds, and
//! the client would not notice.

use crate::clock::Timestamp;
use crate::emulator::http::ApiError;
use crate::emulator::http::timestamps::parse_iso;

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

/// A range of numbers or days: `5`, `>5`, `>=5`, `<5`, `<=5`, `1..5`, `*..5`, `1..*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    from: u64,
    /// Not part of the range.
    until: u64,
}

impl Range {
    pub fn has(self, value: u64) -> bool {
        (self.from..self.until).contains(&value)
    }

    pub fn of_numbers(name: &str, text: &str) -> Result<Self, ApiError> {
        let number =
            |text: &str| text.parse().ok().map(|number: u64| (number, number.saturating_add(1)));
        Self::read(text, number).ok_or_else(|| wrong(name, "a number such as >=10 or 1..5"))
    }

    /// Of seconds since the epoch; a date stands for its whole day.
    pub fn of_days(name: &str, text: &str) -> Result<Self, ApiError> {
        const DAY_SECS: u64 = 24 * 3_600;
        let day = |text: &str| {
            let midnight = parse_iso(&format!("{text}T00:00:00Z")).map(Timestamp::as_secs);
            let moment = || parse_iso(&text.to_uppercase()).map(Timestamp::as_secs);
            let whole = midnight.map(|at| (at, at + DAY_SECS));
            whole.or_else(|| moment().map(|at| (at, at + 1)))
        };
        Self::read(text, day).ok_or_else(|| wrong(name, "a date such as >=2026-01-31"))
    }

    fn read(text: &str, one: impl Fn(&str) -> Option<(u64, u64)>) -> Option<Self> {
        let end = |text: &str, open| if text == "*" { Some((open, open)) } else { one(text) };
        if let Some((from, until)) = text.split_once("..") {
            return Some(Self { from: end(from, 0)?.0, until: end(until, u64::MAX)?.1 });
        }
        let (from, until) = (0, u64::MAX);
        Some(if let Some(rest) = text.strip_prefix(">=") {
            Self { from: one(rest)?.0, until }
        } else if let Some(rest) = text.strip_prefix("<=") {
            Self { from, until: one(rest)?.1 }
        } else if let Some(rest) = text.strip_prefix('>') {
            Self { from: one(rest)?.1, until }
        } else if let Some(rest) = text.strip_prefix('<') {
            Self { from, until: one(rest)?.0 }
        } else {
            let (from, until) = one(text)?;
            Self { from, until }
        })
    }
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

    #[test]
    fn a_range_has_its_bounds() {
        for (text, inside, outside) in [
            ("5", 5, 6),
            (">5", 6, 5),
            (">=5", 5, 4),
            ("<5", 4, 5),
            ("<=5", 5, 6),
            ("1..5", 5, 6),
            ("*..5", 0, 6),
            ("5..*", 9, 4),
        ] {
            let range = Range::of_numbers("comments", text).expect("a range");
            assert!(range.has(inside) && !range.has(outside), "{text}");
        }
        assert!(Range::of_numbers("comments", "many").is_err());
        let huge = Range::of_numbers("comments", ">18446744073709551615").expect("a range");
        assert!(!huge.has(5));
        let day = Range::of_days("created", "2027-01-15").expect("a day");
        assert!(day.has(1_800_000_000) && !day.has(1_800_100_000));
    }
}
