//! The course of a run: what was asked, spent and refused in each part of it.

use std::time::Duration;

use serde::Serialize;

/// Parts of a run: quarters of an hour of a day.
pub const PARTS: usize = 96;

/// Counts in equal parts of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Course {
    /// Seconds of a part.
    pub part_seconds: f64,
    /// Requests of clients.
    pub asked: Vec<u64>,
    /// Units of primary budgets that they spent.
    pub spent: Vec<u64>,
    /// Requests that we refused.
    pub refused: Vec<u64>,
}

impl Default for Course {
    fn default() -> Self {
        Self::of(Duration::ZERO)
    }
}

impl Course {
    /// An empty course of a run of this length.
    pub fn of(length: Duration) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "there are 96")]
        let part_seconds = length.as_secs_f64() / PARTS as f64;
        let none = vec![0; PARTS];
        Self { part_seconds, asked: none.clone(), spent: none.clone(), refused: none }
    }

    /// Counts a request of a client at this time since the beginning.
    pub fn was_asked(&mut self, since: Duration) {
        let part = self.part(since);
        self.asked[part] += 1;
    }

    /// Counts a request that we refused.
    pub fn was_refused(&mut self, since: Duration) {
        let part = self.part(since);
        self.refused[part] += 1;
    }

    /// Counts units that were spent.
    pub fn was_spent(&mut self, since: Duration, units: u64) {
        let part = self.part(since);
        self.spent[part] += units;
    }

    fn part(&self, since: Duration) -> usize {
        let part = since.as_secs_f64() / self.part_seconds.max(f64::MIN_POSITIVE);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
        let part = part as usize;
        part.min(PARTS - 1)
    }

    /// Adds another run of the same length.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in [
            (&mut self.asked, &other.asked),
            (&mut self.spent, &other.spent),
            (&mut self.refused, &other.refused),
        ] {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_quarters_of_hours() {
        let course = Course::of(Duration::from_hours(24));
        let minute = |minutes| course.part(Duration::from_mins(minutes));
        assert_eq!([minute(0), minute(14), minute(15), minute(1_439)], [0, 0, 1, 95]);
        assert_eq!(minute(5_000), 95, "answers after the end");
        assert_eq!(Course::of(Duration::ZERO).part(Duration::from_secs(1)), 95);
    }
}
