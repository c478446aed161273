//! `${NAME}` in strings: the value of a variable of the environment.
//!
//! `${NAME:-default}` has a default, for a variable that is not set or empty. `$${` is a plain
//! `${`. Any other dollar is a plain one.

use std::borrow::Cow;

/// Values in place of `${NAME}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum References {
    /// None: the text stays as it is.
    Literal,
    /// Those of the environment. A variable that is not set is a fault.
    Resolved,
    /// The same, and a variable that is not set is left out: for a config that is examined on
    /// another machine than the gateway's.
    Examined,
}

/// A reference without a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unresolved {
    /// The variable of this name is not set, or is not text in UTF-8.
    Unset(String),
    /// The text after `${` is no reference.
    Malformed,
}

impl Unresolved {
    pub(super) fn problem(&self) -> String {
        match self {
            Self::Unset(name) => format!("environment variable {name} is not set"),
            Self::Malformed => "bad reference to an environment variable".to_owned(),
        }
    }

    pub(super) const fn accepted(&self) -> &'static str {
        match self {
            Self::Unset(_) => "a variable that is set, or a default: `${NAME:-default}`",
            Self::Malformed => {
                "`${NAME}` or `${NAME:-default}`, with letters, digits and `_` in the name; `$${` is a plain `${`"
            }
        }
    }
}

/// Replaces the references in `text`.
pub(super) fn resolved<'t>(
    text: &'t str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Cow<'t, str>, Unresolved> {
    if !text.contains("${") {
        return Ok(text.into());
    }
    let (mut done, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("${") {
        let (before, reference) = rest.split_at(at);
        let after = &reference[2..];
        if let Some(before) = before.strip_suffix('$') {
            done.push_str(before);
            done.push_str("${");
            rest = after;
            continue;
        }
        let (inside, after) = after.split_once('}').ok_or(Unresolved::Malformed)?;
        done.push_str(before);
        done.push_str(&value(inside, env)?);
        rest = after;
    }
    done.push_str(rest);
    Ok(done.into())
}

/// Returns the value of the reference with this text between its braces.
fn value(inside: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, Unresolved> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    // A default with a reference would end at the wrong brace.
    if !is_name(name) || default.is_some_and(|default| default.contains("${")) {
        return Err(Unresolved::Malformed);
    }
    match (env(name), default) {
        (Some(value), None) => Ok(value),
        (Some(value), Some(_)) if !value.is_empty() => Ok(value),
        (_, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(Unresolved::Unset(name.to_owned())),
    }
}

/// A name of a variable (POSIX.1, Base Definitions §8.1), in either case.
fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn environment(name: &str) -> Option<String> {
        match name {
            "HOST" => Some("code.corp".to_owned()),
            "EMPTY" => Some(String::new()),
            "DOLLAR" => Some("${HOST}".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn references_are_replaced_and_other_dollars_are_not() {
        for (text, expected) in [
            ("https://${HOST}/${HOST}x", "https://code.corp/code.corpx"),
            ("${EMPTY}", ""),
            ("${EMPTY:-a:-b}", "a:-b"),
            ("${HOST:-other}", "code.corp"),
            ("${UNSET:-}", ""),
            ("${DOLLAR}", "${HOST}"),
            ("$${HOST}", "${HOST}"),
            ("$$${HOST}", "$${HOST}"),
            ("$HOST $ $$ {HOST} $", "$HOST $ $$ {HOST} $"),
        ] {
            assert_eq!(resolved(text, &environment).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_reference_without_a_value_is_named() {
        for (text, expected) in [
            ("a${UNSET}", Unresolved::Unset("UNSET".to_owned())),
            ("${}", Unresolved::Malformed),
            ("${HOST", Unresolved::Malformed),
            ("${1}", Unresolved::Malformed),
            ("${A B}", Unresolved::Malformed),
            ("${HOST:+x}", Unresolved::Malformed),
            ("${UNSET:-${HOST}}", Unresolved::Malformed),
        ] {
            assert_eq!(resolved(text, &environment), Err(expected), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[$\\{\\}A-C:-]{0,20}") {
            let _ = resolved(&text, &environment);
        }
    }
}
