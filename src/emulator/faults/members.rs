//! A strict reader of JSON objects: it reports all unknown and invalid members at once, each with
//! the accepted values.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use http::Method;
use serde_json::{Map, Value};

/// The methods that a request of the API may have.
const METHODS: [Method; 7] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
];

/// A rejected member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongMember {
    /// Its full name, such as `match.nth`.
    pub member: String,
    /// The problem; lower case, without a full stop.
    pub problem: String,
    /// The accepted values.
    pub accepted: String,
}

/// The members of one object. `null` counts as absent.
#[derive(Debug, Default)]
pub struct Members<'a> {
    map: Option<&'a Map<String, Value>>,
    /// `match.` for the members of the object `match`.
    prefix: String,
    known: Vec<&'static str>,
    pub(super) wrong: Vec<WrongMember>,
}

impl<'a> Members<'a> {
    pub fn of(map: &'a Map<String, Value>) -> Self {
        Self { map: Some(map), ..Self::default() }
    }

    /// `None` when it is absent. Hand it back to [`Members::absorb`].
    pub fn inner(&mut self, name: &'static str) -> Members<'a> {
        let map = match self.value(name) {
            None => None,
            Some(Value::Object(map)) => Some(map),
            Some(_) => self.refuse(name, "wrong type", "an object"),
        };
        Members { map, prefix: format!("{}{name}.", self.prefix), ..Self::default() }
    }

    pub fn absorb(&mut self, inner: Members<'_>) {
        self.wrong.extend(inner.finish());
    }

    /// Marks the name as known.
    pub fn value(&mut self, name: &'static str) -> Option<&'a Value> {
        if !self.known.contains(&name) {
            self.known.push(name);
        }
        self.map?.get(name).filter(|value| !value.is_null())
    }

    pub fn text(&mut self, name: &'static str, bytes_max: usize) -> Option<&'a str> {
        let accepted = || format!("a string of 1 to {bytes_max} bytes");
        match self.value(name)? {
            Value::String(text) if (1..=bytes_max).contains(&text.len()) => Some(text),
            Value::String(_) => self.refuse(name, "empty or too long", accepted()),
            _ => self.refuse(name, "wrong type", accepted()),
        }
    }

    pub fn method(&mut self, name: &'static str) -> Option<Method> {
        let text = self.text(name, 32)?.to_ascii_uppercase();
        let known = METHODS.into_iter().find(|method| method.as_str() == text);
        known.or_else(|| self.refuse(name, "no method", "a method such as GET"))
    }

    /// Reads a path pattern; the default matches every path. A pattern that no request can match
    /// is refused.
    pub fn path(&mut self, name: &'static str) -> String {
        let accepted = "a path without base and query, such as /repos/*/issues";
        let pattern = self.text(name, 1_024).unwrap_or("*");
        let is_outside = ["/_emulator", "/api/v3/", "/api/uploads/"]
            .iter()
            .any(|prefix| pattern.starts_with(prefix));
        let is_illegal = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#');
        if is_outside || !pattern.starts_with(['/', '*']) || pattern.contains(is_illegal) {
            self.refuse::<()>(name, "no path", accepted);
        }
        pattern.to_owned()
    }

    pub fn flag(&mut self, name: &'static str) -> Option<bool> {
        let value = self.value(name)?;
        value.as_bool().or_else(|| self.refuse(name, "wrong type", "true or false"))
    }

    pub fn whole<T: TryFrom<u64> + PartialOrd + Display>(
        &mut self,
        name: &'static str,
        bounds: RangeInclusive<T>,
    ) -> Option<T> {
        let accepted = format!("a whole number from {} to {}", bounds.start(), bounds.end());
        self.number(name, bounds, |value| T::try_from(value.as_u64()?).ok(), accepted)
    }

    pub fn signed(&mut self, name: &'static str, bounds: RangeInclusive<i64>) -> Option<i64> {
        let accepted = format!("a whole number from {} to {}", bounds.start(), bounds.end());
        self.number(name, bounds, Value::as_i64, accepted)
    }

    /// Reads seconds, with fractions down to a millisecond.
    pub fn seconds(&mut self, name: &'static str, max: u32) -> Option<Duration> {
        let accepted = format!("a number of seconds from 0.001 to {max}");
        self.number(name, 0.001..=f64::from(max), Value::as_f64, accepted)
            .map(Duration::from_secs_f64)
    }

    fn number<T: PartialOrd>(
        &mut self,
        name: &'static str,
        bounds: RangeInclusive<T>,
        read: fn(&Value) -> Option<T>,
        accepted: String,
    ) -> Option<T> {
        let value = self.value(name)?;
        match read(value) {
            Some(number) if bounds.contains(&number) => Some(number),
            None if !value.is_number() => self.refuse(name, "wrong type", accepted),
            _ => self.refuse(name, "out of bounds", accepted),
        }
    }

    pub fn choice<T: Copy>(
        &mut self,
        name: &'static str,
        choices: &[(&'static str, T)],
    ) -> Option<T> {
        let value = self.value(name)?;
        let found = choices.iter().find(|(choice, _)| value.as_str() == Some(choice));
        found.map(|(_, meant)| *meant).or_else(|| {
            let names: Vec<&str> = choices.iter().map(|(choice, _)| *choice).collect();
            self.refuse(name, "unknown value", format!("one of {}", names.join(", ")))
        })
    }

    /// Records an invalid member; always returns `None`.
    pub fn refuse<T>(
        &mut self,
        name: &str,
        problem: &str,
        accepted: impl Into<String>,
    ) -> Option<T> {
        let (member, problem) = (format!("{}{name}", self.prefix), problem.to_owned());
        self.wrong.push(WrongMember { member, problem, accepted: accepted.into() });
        None
    }

    /// Returns all errors, unknown members included.
    pub fn finish(mut self) -> Vec<WrongMember> {
        let accepted = self.known.join(", ");
        for name in self.map.into_iter().flat_map(Map::keys) {
            if !self.known.contains(&name.as_str()) {
                let shown: String = name.chars().take(64).collect();
                self.refuse::<()>(&shown, "unknown member", format!("one of {accepted}"));
            }
        }
        self.wrong
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_invalid_members_are_reported_at_once() {
        let value = json!({ "nth": "x", "flag": 1, "seconds": -1, "which": "c", "inner": { "nth": 0, "other": 1 }, "empty": null });
        let mut members = Members::of(value.as_object().expect("an object"));
        assert_eq!(members.whole("nth", 1..=5), None);
        assert_eq!(members.flag("flag"), None);
        assert_eq!(members.seconds("seconds", 60), None);
        assert_eq!(members.choice("which", &[("a", 1), ("b", 2)]), None);
        assert_eq!(members.text("empty", 5), None);
        let mut inner = members.inner("inner");
        assert_eq!(inner.whole("nth", 1..=5), None);
        members.absorb(inner);
        let wrong: Vec<(String, String)> =
            members.finish().into_iter().map(|one| (one.member, one.accepted)).collect();
        let names: Vec<&str> = wrong.iter().map(|(member, _)| member.as_str()).collect();
        assert_eq!(names, ["nth", "flag", "seconds", "which", "inner.nth", "inner.other"]);
        assert_eq!(wrong[3].1, "one of a, b");
        assert_eq!(wrong[5].1, "one of nth");
    }
}
