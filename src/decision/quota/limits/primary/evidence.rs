//! Units that answers do not show yet, and the spending of others on the same budget.
//!
//! **Unseen.** A lost request, or one whose answer named no count, may have been counted after the
//! last known count, so its units stay held. They are released by an answer whose request was sent
//! after the lost one was certainly over. Its count includes the lost request, or the request was
//! never executed. So a loss costs nothing for long, and nothing is spent twice.
//!
//! **Others.** Missing units beyond everything that we have sent were spent by another consumer.
//! This is certain even when answers overtake each other, so an account without other users holds
//! nothing back. Others are expected to go on: their rate, in this window or the earlier ones,
//! times the age of the last answer is kept free, plus twice its spread. A shared account is then
//! denied less than once in five windows, at the price of a few units in each.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Timestamp;

use super::measure::Alone;

/// Time after its loss in which a request may still be executed (SPECIFICATION, "Limits in
/// practice": the service ends a request after 10 s).
const EXECUTED_WITHIN: Duration = Duration::from_secs(10);
/// Shortest time over which a rate is measured. Ours: the first foreign request must not count as a
/// flood.
const RATE_OVER_MIN: Duration = Duration::from_secs(10);
/// Longest age to which the rate of others is extrapolated. Ours: beyond it little is left to
/// misjudge, or the others have stopped.
const NEWS_AGE_MAX: Duration = Duration::from_secs(30);
/// Most unseen entries. Ours: several times the seconds that an answer takes.
const UNSEEN_MAX: usize = 64;
/// Rate per second below which the account counts as unshared. Ours: ten requests an hour.
const RATE_MIN: f64 = 10.0 / 3_600.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    ended: u64,
    at: Timestamp,
    /// Set if the answer's count will show the price.
    pub(super) alone: Option<Alone>,
}

#[derive(Debug, Default)]
pub struct Evidence {
    /// Units of all admitted requests, except free and unsent ones.
    charged: u64,
    /// The part of them that belongs to earlier windows.
    charged_before: u64,
    /// Units of ended requests among them.
    ended: u64,
    /// Ended requests that no known count includes: the time when they are certainly over, and
    /// their units.
    unseen: VecDeque<(Timestamp, u32)>,
    /// Their sum: units that may have been counted and are in no known count.
    pub unseen_units: u32,
    others: Others,
}

#[derive(Debug, Default)]
struct Others {
    /// First sight of the window, with the units charged and used by then.
    since: Option<First>,
    /// Units that others certainly spent since then.
    spent: u64,
    /// Their rate per second in earlier windows.
    rate_before: f64,
    /// Admission of the newest answer, and the duration of answers.
    news_at: Timestamp,
    trip: Duration,
}

#[derive(Clone, Copy, Debug)]
struct First {
    at: Timestamp,
    ended: u64,
    used: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Count {
    pub limit: u32,
    pub remaining: u32,
    pub cost: u32,
}

impl Mark {
    /// The mark of a request that began before the window was used.
    pub fn before_all(at: Timestamp) -> Self {
        Self { ended: 0, at, alone: None }
    }

    pub(super) fn with(self, alone: Option<Alone>) -> Self {
        Self { alone, ..self }
    }

    pub fn at(self) -> Timestamp {
        self.at
    }
}

impl Evidence {
    pub fn mark(&self, now: Timestamp) -> Mark {
        Mark { ended: self.ended, at: now, alone: None }
    }

    /// Units that ended since the mark.
    pub fn ended_since(&self, mark: Mark) -> u32 {
        u32::try_from(self.ended.saturating_sub(mark.ended)).unwrap_or(u32::MAX)
    }

    pub fn admitted(&mut self, now: Timestamp, cost: u32) -> Mark {
        let mark = self.mark(now);
        self.charged += u64::from(cost);
        mark
    }

    pub fn uncharged(&mut self, cost: u32) {
        self.charged = self.charged.saturating_sub(u64::from(cost));
    }

    pub fn counted(&mut self, cost: u32) {
        self.ended += u64::from(cost);
    }

    pub fn counted_unseen(&mut self, now: Timestamp, cost: u32) {
        self.counted(cost);
        self.hold(now, cost);
    }

    /// Ends a request that may have been counted, or may still be.
    pub fn lost(&mut self, now: Timestamp, cost: u32) {
        self.counted(cost);
        self.hold(now + EXECUTED_WITHIN, cost);
    }

    fn hold(&mut self, over: Timestamp, cost: u32) {
        self.unseen_units = self.unseen_units.saturating_add(cost);
        match self.unseen.back_mut() {
            // Entries of one second share the later end, which bounds the list.
            Some((last, units)) if last.as_secs() == over.as_secs() => {
                (*last, *units) = (over.max(*last), units.saturating_add(cost));
            }
            _ => self.unseen.push_back((over, cost)),
        }
        if self.unseen.len() > UNSEEN_MAX
            && let Some((over, units)) = self.unseen.pop_front()
            && let Some((next, more)) = self.unseen.front_mut()
        {
            // No answer has come for long: the oldest entry joins the next.
            (*next, *more) = (over.max(*next), units.saturating_add(*more));
        }
    }

    /// Records the count of an answer for the current window; `mark` is from its request's
    /// admission.
    pub fn shown(&mut self, now: Timestamp, mark: Mark, count: Count) {
        // The entries are in order of loss. The loop stops at the first that is not over, which is
        // soon.
        while let Some((_, units)) = self.unseen.pop_front_if(|(over, _)| *over <= mark.at) {
            self.unseen_units = self.unseen_units.saturating_sub(units);
        }
        self.others.shown(now, mark, count, self.charged);
    }

    /// `in_flight`: units of requests that may be counted in the new window.
    pub fn new_window(&mut self, now: Timestamp, in_flight: u32) {
        self.charged_before = self.charged.saturating_sub(in_flight.into());
        self.others.new_window(now);
    }

    /// Units of this window's requests, those in flight included.
    pub fn charged(&self) -> u32 {
        let charged = self.charged.saturating_sub(self.charged_before);
        u32::try_from(charged).unwrap_or(u32::MAX)
    }

    /// The part that a file keeps: the unseen units, with those in flight, which end with the
    /// process.
    pub fn saved(&self, now: Timestamp, in_flight: u32) -> Vec<(Timestamp, u32)> {
        let lost = (in_flight > 0).then(|| (now + EXECUTED_WITHIN, in_flight));
        self.unseen.iter().copied().chain(lost).collect()
    }

    /// Units per second that others spend.
    pub fn rate_of_others(&self, now: Timestamp) -> f64 {
        self.others.rate(now.min(self.others.news_at)).max(self.others.rate_before)
    }

    /// Returns what a file kept. No request is over later than the longest one.
    pub fn restored(now: Timestamp, unseen: &[(Timestamp, u32)], rate_of_others: f64) -> Self {
        let mut evidence = Self::default();
        for (over, units) in unseen {
            evidence.charged += u64::from(*units);
            evidence.counted(*units);
            evidence.hold((*over).min(now + EXECUTED_WITHIN), *units);
        }
        evidence.others.rate_before = rate_of_others.max(0.0);
        evidence
    }

    #[cfg(test)]
    pub fn held_entries(&self) -> usize {
        self.unseen.len()
    }

    /// Units to leave to others until the next answer. Time alone changes it only at whole seconds.
    pub fn margin(&self, now: Timestamp) -> u32 {
        self.others.margin(Timestamp::from_secs(now.as_secs()))
    }
}

impl Others {
    fn shown(&mut self, now: Timestamp, mark: Mark, count: Count, charged: u64) {
        self.news_at = self.news_at.max(mark.at);
        let trip = now.since(mark.at).min(NEWS_AGE_MAX);
        // A longer trip needs no comparison with the decayed one.
        self.trip = if trip >= self.trip { trip } else { trip.max(self.trip.mul_f64(0.9)) };
        let used = u64::from(count.limit.saturating_sub(count.remaining));
        let first = *self.since.get_or_insert(First {
            at: now,
            ended: mark.ended,
            used: used.saturating_sub(u64::from(count.cost)),
        });
        // Everything that may have been ours by now.
        let ours = charged.saturating_sub(first.ended);
        self.spent = self.spent.max(used.saturating_sub(first.used).saturating_sub(ours));
    }

    fn new_window(&mut self, now: Timestamp) {
        if self.since.is_some() {
            self.rate_before = f64::midpoint(self.rate_before, self.rate(now.min(self.news_at)));
        }
        self.since = None;
        self.spent = 0;
    }

    fn rate(&self, now: Timestamp) -> f64 {
        let over =
            self.since.map_or(Duration::ZERO, |first| now.since(first.at)).max(RATE_OVER_MIN);
        // Windows have far fewer units than `u32` holds.
        f64::from(u32::try_from(self.spent).unwrap_or(u32::MAX)) / over.as_secs_f64()
    }

    fn margin(&self, now: Timestamp) -> u32 {
        if self.spent == 0 && self.rate_before < RATE_MIN {
            return 0;
        }
        let rate = self.rate(now).max(self.rate_before);
        if rate < RATE_MIN {
            return 0;
        }
        let age = now.since(self.news_at).min(NEWS_AGE_MAX) + self.trip;
        let expected = rate * age.as_secs_f64();
        let margin = (expected + 2.0 * expected.sqrt() + 1.0).ceil();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, and as a cast it saturates"
        )]
        let units = margin as u32;
        units
    }
}
