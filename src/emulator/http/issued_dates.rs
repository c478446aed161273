//! Detects ambiguous `Last-Modified` dates, so that one date never stands for two states.
//!
//! A date has whole seconds, so a second change within one second gets the date of the first (RFC
//! 9110, section 8.8.2.2). This module records each response that carries the date of its own
//! second. A later change in that second makes the date unusable as a validator until another
//! change.

use std::collections::HashMap;

use crate::clock::Timestamp;

/// At this many addresses, further ones get no date for the rest of the second.
const ADDRESSES_MAX: usize = 20_000;

/// The time in milliseconds at which each address first showed a date within its own second.
#[derive(Debug, Default)]
pub struct IssuedDates(HashMap<String, u64>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DateValidity {
    /// The date stands for one state.
    Exact,
    /// The date stood for another state before.
    Ambiguous,
    /// No date: the millisecond of the change is not over, or the table is full.
    None,
}

impl IssuedDates {
    /// Assesses the date `changed_at` in a response for `address` that leaves now.
    pub fn check(&mut self, address: &str, changed_at: Timestamp, now: Timestamp) -> DateValidity {
        let same_second = |millis: u64| millis / 1_000 == changed_at.as_secs();
        let shown = self.0.get(address).copied().filter(|millis| same_second(*millis));
        if now.as_secs() == changed_at.as_secs() && shown.is_none() {
            // Within one millisecond the order of change and response is unknown.
            if now.as_millis() <= changed_at.as_millis()
                || (self.0.len() >= ADDRESSES_MAX && !self.0.contains_key(address))
            {
                return DateValidity::None;
            }
            self.0.insert(address.to_owned(), now.as_millis());
            return DateValidity::Exact;
        }
        match shown {
            Some(millis) if millis <= changed_at.as_millis() => DateValidity::Ambiguous,
            _ if now.as_millis() < changed_at.as_millis() => DateValidity::None,
            _ => DateValidity::Exact,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + millis)
    }

    #[test]
    fn a_date_is_given_as_soon_as_the_change_is_over() {
        let mut issued_dates = IssuedDates::default();
        assert_eq!(issued_dates.check("/a", at(300), at(300)), DateValidity::None);
        assert_eq!(issued_dates.check("/a", at(300), at(301)), DateValidity::Exact);
        assert_eq!(issued_dates.check("/a", at(300), at(5_000)), DateValidity::Exact);
    }

    #[test]
    fn a_second_change_within_a_second_makes_its_date_ambiguous() {
        let mut issued_dates = IssuedDates::default();
        assert_eq!(issued_dates.check("/a", at(300), at(400)), DateValidity::Exact);
        assert_eq!(issued_dates.check("/a", at(700), at(800)), DateValidity::Ambiguous);
        assert_eq!(issued_dates.check("/a", at(700), at(9_000)), DateValidity::Ambiguous);
        assert_eq!(
            issued_dates.check("/b", at(700), at(9_000)),
            DateValidity::Exact,
            "no request came in between"
        );
        assert_eq!(issued_dates.check("/a", at(9_500), at(9_600)), DateValidity::Exact);
    }

    #[test]
    fn the_number_of_tracked_addresses_is_bounded() {
        let mut issued_dates = IssuedDates::default();
        for index in 0..ADDRESSES_MAX {
            issued_dates.check(&index.to_string(), at(0), at(1));
        }
        assert_eq!(issued_dates.check("one more", at(0), at(1)), DateValidity::None);
        assert_eq!(issued_dates.check("one more", at(0), at(1_000)), DateValidity::Exact);
    }
}
