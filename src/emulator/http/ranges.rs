//! Ranges of numbers and days, as searches and filters write them.

use super::timestamps::parse_iso;
use crate::clock::Timestamp;

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

    pub fn of_numbers(text: &str) -> Option<Self> {
        let number =
            |text: &str| text.parse().ok().map(|number: u64| (number, number.saturating_add(1)));
        Self::read(text, number)
    }

    /// Of seconds since the epoch; a date stands for its whole day.
    pub fn of_days(text: &str) -> Option<Self> {
        const DAY_SECS: u64 = 24 * 3_600;
        let day = |text: &str| {
            let midnight = parse_iso(&format!("{text}T00:00:00Z")).map(Timestamp::as_secs);
            let moment = || parse_iso(&text.to_uppercase()).map(Timestamp::as_secs);
            let whole = midnight.map(|at| (at, at + DAY_SECS));
            whole.or_else(|| moment().map(|at| (at, at + 1)))
        };
        Self::read(text, day)
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

#[cfg(test)]
mod tests {
    use super::*;

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
            let range = Range::of_numbers(text).expect("a range");
            assert!(range.has(inside) && !range.has(outside), "{text}");
        }
        assert!(Range::of_numbers("many").is_none());
        let huge = Range::of_numbers(">18446744073709551615").expect("a range");
        assert!(!huge.has(5));
        let day = Range::of_days("2027-01-15").expect("a day");
        assert!(day.has(1_800_000_000) && !day.has(1_800_100_000));
    }
}
