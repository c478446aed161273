//! What answers do not show yet, and what they show beyond our own requests: somebody else who
//! spends of the same budget.
//!
//! **Unseen.** A request that was lost, or whose answer named no count, may have been counted after
//! the counts that are known, so its units stay held. They are let go when an answer comes whose
//! request was sent after it was over: that count has it in it, or it was never executed. So what
//! is lost on the way costs nothing for long, and nothing is spent twice.
//!
//! **Others.** What is gone from a window and cannot have been ours, because we have not sent so
//! much, was spent by somebody else. That is certain, never a guess from answers that overtook each
//! other, so a gateway that has an account to itself holds nothing back. Who spent before will go
//! on: their rate over the window, or over the ones before it, times the age of the last news is
//! kept free, with twice its spread. In that way one who shares an account with somebody is refused
//! less often than once in five windows, at the price of a small_list units of each.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Timestamp;

/// How long after its loss a request may still be executed (UPSTREAM.md, Limits: the service ends a
/// request that it cannot answer in 10 s).
const EXECUTED_WITHIN: Duration = Duration::from_secs(10);
/// The shortest time over which a rate is measured. Ours: the first request of somebody else must
/// not count as a flood.
const RATE_OVER_MIN: Duration = Duration::from_secs(10);
/// The longest age of news that others' rate is extended over. Ours: after it there is little left
/// to be wrong about, or others have stopped.
const NEWS_AGE_MAX: Duration = Duration::from_secs(30);
/// Most entries of what is unseen. Ours: as many seconds as an answer takes that still comes,
/// several times over.
const UNSEEN_MAX: usize = 64;
/// Below this rate per second nobody is thought to share the account. Ours: ten requests an hour.
const RATE_MIN: f64 = 10.0 / 3_600.0;

/// What was known when a request was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::decision) struct Mark {
    /// Units of requests that had ended.
    ended: u64,
    at: Timestamp,
}

/// The running sums of one window.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// Units of all requests ever admitted, without those that proved free or unsent.
    charged: u64,
    /// Of these, the units of requests that have ended.
    ended: u64,
    /// Ended requests that no count is known to contain: when they are over for certain, how many
    /// units.
    unseen: VecDeque<(Timestamp, u32)>,
    unseen_units: u32,
    others: Others,
}

/// Somebody else's spending.
#[derive(Debug, Default)]
struct Others {
    /// When the window was first seen, and what was charged and used by then.
    since: Option<First>,
    /// Units that were certainly theirs since then.
    spent: u64,
    /// Their rate per second in the windows before.
    rate_before: f64,
    /// When the newest answer was admitted, and how long answers take.
    news_at: Timestamp,
    trip: Duration,
}

#[derive(Clone, Copy, Debug)]
struct First {
    at: Timestamp,
    ended: u64,
    used: u64,
}

/// An answer's count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Count {
    pub(super) limit: u32,
    pub(super) remaining: u32,
    /// Units that the answered request itself has cost.
    pub(super) cost: u32,
}

impl Evidence {
    /// A request is admitted.
    pub(super) fn admitted(&mut self, now: Timestamp, cost: u32) -> Mark {
        let mark = Mark { ended: self.ended, at: now };
        self.charged += u64::from(cost);
        mark
    }

    /// It was free, or never sent.
    pub(super) fn uncharged(&mut self, cost: u32) {
        self.charged = self.charged.saturating_sub(u64::from(cost));
    }

    /// It ended, and was counted; the count is known.
    pub(super) fn counted(&mut self, cost: u32) {
        self.ended += u64::from(cost);
    }

    /// It ended, and was counted; the count is not known.
    pub(super) fn counted_unseen(&mut self, now: Timestamp, cost: u32) {
        self.counted(cost);
        self.hold(now, cost);
    }

    /// It ended, and may have been counted, or may still be.
    pub(super) fn lost(&mut self, now: Timestamp, cost: u32) {
        self.counted(cost);
        self.hold(now + EXECUTED_WITHIN, cost);
    }

    fn hold(&mut self, over: Timestamp, cost: u32) {
        self.unseen_units = self.unseen_units.saturating_add(cost);
        match self.unseen.back_mut() {
            // Those of one second wait for the last of them: that bounds the list.
            Some((last, units)) if last.as_secs() == over.as_secs() => {
                (*last, *units) = (over.max(*last), units.saturating_add(cost))
            }
            _ => self.unseen.push_back((over, cost)),
        }
        if self.unseen.len() > UNSEEN_MAX
            && let Some((over, units)) = self.unseen.pop_front()
            && let Some((next, more)) = self.unseen.front_mut()
        {
            // No answer has come for long: the oldest wait for the next of them.
            (*next, *more) = (over.max(*next), units.saturating_add(*more));
        }
    }

    /// An answer of the current window shows its count; `mark` is from its request's admission.
    pub(super) fn shown(&mut self, now: Timestamp, mark: Mark, count: Count) {
        // In whatever order they were lost: each is looked at until the first that is not over,
        // which is soon.
        while let Some((_, units)) = self.unseen.pop_front_if(|(over, _)| *over <= mark.at) {
            self.unseen_units = self.unseen_units.saturating_sub(units);
        }
        self.others.shown(now, mark, count, self.charged);
    }

    /// A new window.
    pub(super) fn new_window(&mut self, now: Timestamp) {
        self.others.new_window(now);
    }

    /// Units that may have been counted and are in no count that is known.
    pub(super) fn unseen(&self) -> u32 {
        self.unseen_units
    }

    #[cfg(test)]
    pub(super) fn held_entries(&self) -> usize {
        self.unseen.len()
    }

    /// Units to leave to others until the next news. Changes by time only at whole seconds.
    pub(super) fn margin(&self, now: Timestamp) -> u32 {
        self.others.margin(Timestamp::from_secs(now.as_secs()))
    }
}

impl Others {
    fn shown(&mut self, now: Timestamp, mark: Mark, count: Count, charged: u64) {
        self.news_at = self.news_at.max(mark.at);
        let trip = now.since(mark.at).min(NEWS_AGE_MAX);
        // Who took no less than before need not be compared with what is left of that.
        self.trip = if trip >= self.trip { trip } else { trip.max(self.trip.mul_f64(0.9)) };
        let used = u64::from(count.limit.saturating_sub(count.remaining));
        let first = *self.since.get_or_insert(First {
            at: now,
            ended: mark.ended,
            used: used.saturating_sub(u64::from(count.cost)),
        });
        // All that may have been ours by now.
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

    /// Units per second in this window so far.
    fn rate(&self, now: Timestamp) -> f64 {
        let over =
            self.since.map_or(Duration::ZERO, |first| now.since(first.at)).max(RATE_OVER_MIN);
        // No window has so many units that this would not be exact.
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
