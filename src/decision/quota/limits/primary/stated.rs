//! The upstream's own statement about a window, by `GET /rate_limit`.
//!
//! It can show an untouched window while the real one is nearly spent (SPECIFICATION, "Limits in
//! practice"). So an untouched window is believed for a few requests only, and against the count
//! of a known window for one: its answer has the true count. Any other statement about a known
//! window is as good as a counted answer, and may also raise it. A refusal after a raise shows
//! that statements are wrong: for an hour they raise that window no more. An operator's question
//! frees one request all the same.
//!
//! A window that the upstream closed by a refusal is reopened by a later statement, as the upstream
//! knows of the refusal. Where it states an untouched window, one request goes, and the others wait
//! for its outcome.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Count, Mark, PrimaryWindow, Seen, Terms, WOBBLE, WindowState};
use crate::api::StatedBudget;
use crate::clock::Timestamp;

/// Distance of requests that try a window against the count, after one was refused. Ours: the
/// length of a window, so that a false statement costs a request in each.
const REFUSED_PAUSE: Duration = Duration::from_hours(1);
/// The same after one without an answer. Ours: the upstream has ended it by then.
const LOST_PAUSE: Duration = Duration::from_secs(10);

/// Reason of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The gateway asks by itself.
    Routinely,
    /// An operator has it asked.
    ByOperator,
}

/// Experience with statements that raised the current window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StatementTrust {
    /// None has raised it since the last counted answer.
    #[default]
    Open,
    /// One raised it at this time, and no counted answer has confirmed it.
    Raised(Timestamp),
    /// One freed a single unit at this time, and no counted answer has replaced it.
    Tried(Timestamp),
    /// The upstream refused a request after it, at this time.
    Wrong(Timestamp),
}

impl PrimaryWindow {
    /// Updates the window by a statement. `mark` is from the time of its request. Returns true if
    /// more may be admitted than before.
    pub fn stated(
        &mut self,
        now: Timestamp,
        mark: Mark,
        stated: StatedBudget,
        terms: Terms,
        asked: Asked,
    ) -> bool {
        let new = Seen {
            limit: stated.limit,
            remaining: stated.remaining.min(stated.limit),
            reset: stated.reset,
        };
        // A question that was sent before a refusal knows nothing of it.
        if new.reset <= now || now < self.closed_until && mark.at() < self.closed_at {
            return false;
        }
        let is_untouched = new.remaining == new.limit;
        let is_doubted = matches!(self.trust, StatementTrust::Wrong(_));
        if now < self.closed_until && (is_untouched || is_doubted && asked == Asked::ByOperator) {
            let old = if let WindowState::Seen(seen) = self.current(now) { seen } else { new };
            return self.try_one(now, old, new, terms, asked);
        }
        match self.current(now) {
            WindowState::Unknown | WindowState::Unmetered if is_untouched => {
                let units = self.leased_units().saturating_add(self.evidence.unseen_units);
                self.probes.allow_some(new.limit, units);
                true
            }
            WindowState::Seen(old) if is_untouched => self.try_one(now, old, new, terms, asked),
            WindowState::Seen(old) if is_same(old, new) => self.stated_again(now, mark, old, new),
            WindowState::Seen(_) if is_doubted => false,
            _ => self.stated_anew(now, mark, new),
        }
    }

    /// Takes a window over that was not known.
    fn stated_anew(&mut self, now: Timestamp, mark: Mark, new: Seen) -> bool {
        let remaining = new.remaining.saturating_sub(self.evidence.ended_since(mark));
        self.state = WindowState::Seen(Seen { remaining, ..new });
        self.probes.learned();
        self.evidence.new_window(now, self.leased_units());
        self.evidence.shown(now, mark, count_of(new));
        self.raised(now, remaining)
    }

    /// Merges a statement about the known window. The units that ended after its request may be
    /// missing in its count.
    fn stated_again(&mut self, now: Timestamp, mark: Mark, old: Seen, new: Seen) -> bool {
        let least = new.remaining.saturating_sub(self.evidence.ended_since(mark));
        let may_raise = !matches!(self.trust, StatementTrust::Wrong(_));
        let is_raised = may_raise && least > old.remaining;
        let remaining = if is_raised { least } else { old.remaining.min(new.remaining) };
        self.state = WindowState::Seen(Seen {
            limit: new.limit,
            remaining: remaining.min(new.limit),
            reset: old.reset.max(new.reset),
        });
        self.evidence.shown(now, mark, count_of(new));
        is_raised && self.raised(now, remaining)
    }

    /// Frees one unit of a used-up window: the answer of the next request replaces the count.
    fn try_one(
        &mut self,
        now: Timestamp,
        old: Seen,
        new: Seen,
        terms: Terms,
        asked: Asked,
    ) -> bool {
        let may_try = match self.trust {
            StatementTrust::Open => true,
            StatementTrust::Raised(at) | StatementTrust::Tried(at) => {
                self.leased == 0 && now >= at + LOST_PAUSE
            }
            StatementTrust::Wrong(at) => asked == Asked::ByOperator || now >= at + REFUSED_PAUSE,
        };
        if !may_try || !self.is_used_up(now, terms) {
            return false;
        }
        let taken = self.leased_units().saturating_add(self.evidence.unseen_units);
        let held = self.held_as_of(now, terms.reserve);
        let remaining = taken.saturating_add(held).saturating_add(1);
        let limit = new.limit.max(old.limit);
        if remaining > limit {
            return false;
        }
        self.state = WindowState::Seen(Seen { limit, remaining, ..old });
        self.trust = StatementTrust::Tried(now);
        self.closed_until = Timestamp::EPOCH;
        true
    }

    /// The time at which what is left to others was determined: the unit of a trial stays free.
    pub(super) fn held_at(&self, now: Timestamp) -> Timestamp {
        match self.trust {
            StatementTrust::Tried(at) => at.min(now),
            _ => now,
        }
    }

    fn raised(&mut self, now: Timestamp, remaining: u32) -> bool {
        if remaining > 0 {
            self.trust = StatementTrust::Raised(now);
            self.closed_until = Timestamp::EPOCH;
        }
        remaining > 0
    }

    /// Returns true if a counted answer replaces the count instead of lowering it: its request was
    /// admitted after a statement that raised the window.
    pub(super) fn confirms(&self, mark: Option<Mark>) -> bool {
        match (self.trust, mark) {
            (StatementTrust::Raised(at) | StatementTrust::Tried(at), Some(mark)) => mark.at() >= at,
            _ => false,
        }
    }

    /// Returns true if only the end of the window, or the upstream's change of mind, lets another
    /// request go.
    pub fn is_used_up(&self, now: Timestamp, terms: Terms) -> bool {
        if now < self.closed_until {
            return true;
        }
        match self.current(now) {
            WindowState::Seen(seen) => {
                let free = seen.remaining.saturating_sub(self.evidence.unseen_units);
                free <= terms.reserve
            }
            WindowState::Unknown | WindowState::Unmetered => false,
        }
    }

    pub fn mark(&self, now: Timestamp) -> Mark {
        self.evidence.mark(now)
    }

    /// Time since which requests wait for the answer that shows an unknown window.
    pub fn probed_since(&self, now: Timestamp) -> Option<Timestamp> {
        let is_unknown = self.current(now) == WindowState::Unknown;
        self.probes.waiting_since().filter(|_| is_unknown)
    }

    /// The state could not be asked. Returns true if more may be admitted than before.
    pub fn not_stated(&mut self, now: Timestamp) -> bool {
        let is_probed = self.probed_since(now).is_some();
        if is_probed {
            self.probes.allow_another();
        }
        is_probed
    }
}

fn is_same(old: Seen, new: Seen) -> bool {
    new.reset <= old.reset + WOBBLE && old.reset <= new.reset + WOBBLE
}

fn count_of(seen: Seen) -> Count {
    Count { limit: seen.limit, remaining: seen.remaining, cost: 0 }
}

#[cfg(test)]
mod tests {
    use super::super::{Charge, Headroom, ObservedAnswer, WindowDemand};
    use super::*;
    use crate::api::{RateHeaders, ResourceName};
    use crate::decision::types::{LeaseId, LimitKind, Pace, Priority, Until};
    use std::time::Duration;

    const NOW: Timestamp = Timestamp::from_secs(1_000);
    const RESET: Timestamp = Timestamp::from_secs(4_600);
    const TERMS: Terms = Terms { reserve: 0, batch_floor: 0, pace: Pace::Burst };

    fn headroom(window: &PrimaryWindow, now: Timestamp) -> Result<Headroom, LimitKind> {
        let wanted = WindowDemand { cost: 1, unproven: 0, priority: Priority::Normal };
        window.headroom(now, wanted, TERMS).map_err(|block| block.limit)
    }

    /// Sends as many requests as the window admits, and returns their number.
    fn admitted(window: &mut PrimaryWindow, now: Timestamp) -> u64 {
        let mut count = 0;
        while headroom(window, now).is_ok() {
            count += 1;
            window.lease(now, LeaseId(count), 1, TERMS);
        }
        count
    }

    fn answered(window: &mut PrimaryWindow, lease: u64, mark: Mark, remaining: u32) {
        let rate = RateHeaders { limit: 100, remaining, used: None, reset: RESET, resource: None };
        window.answered(LeaseId(lease), 1, 1);
        window.observe(NOW, ObservedAnswer { rate: &rate, cost: 1, mark: Some(mark) });
    }

    fn seen(remaining: u32) -> PrimaryWindow {
        let mut window = PrimaryWindow::new(&ResourceName::core());
        let mark = window.lease(NOW, LeaseId(0), 1, TERMS);
        answered(&mut window, 0, mark, remaining);
        window
    }

    /// A statement to a question of the gateway itself.
    fn state(window: &mut PrimaryWindow, mark: Mark, stated: StatedBudget) -> bool {
        window.stated(NOW, mark, stated, TERMS, Asked::Routinely)
    }

    fn stated(limit: u32, remaining: u32) -> StatedBudget {
        StatedBudget { limit, remaining, reset: RESET }
    }

    #[test]
    fn an_untouched_statement_lets_a_few_requests_go() {
        for (limit, expected) in [(5_000, 10), (60, 6), (10, 2)] {
            let mut window = PrimaryWindow::new(&ResourceName::core());
            let mark = window.mark(NOW);
            window.lease(NOW, LeaseId(0), 1, TERMS);
            assert!(state(&mut window, mark, stated(limit, limit)));
            assert_eq!(admitted(&mut window, NOW), expected - 1, "{limit}");
        }
    }

    #[test]
    fn requests_that_were_not_refused_hold_no_others() {
        let mut window = PrimaryWindow::new(&ResourceName::core());
        let mark = window.mark(NOW);
        assert!(state(&mut window, mark, stated(25, 25)));
        let mut sent = 0;
        for second in 0..100 {
            let now = NOW + Duration::from_secs(second);
            let before = sent;
            while headroom(&window, now).is_ok() {
                window.lease(now, LeaseId(sent), 1, TERMS);
                sent += 1;
            }
            assert!(sent - before <= 2, "{sent}");
            // Lost ones count too.
            if sent < 10 {
                window.charge(now, LeaseId(before), 1, Charge::Lost);
            }
        }
        assert_eq!(sent, 25, "no more than was stated");
    }

    #[test]
    fn a_refusal_ends_what_a_statement_allowed() {
        let mut window = PrimaryWindow::new(&ResourceName::core());
        let mark = window.mark(NOW);
        assert!(state(&mut window, mark, stated(5_000, 5_000)));
        assert_eq!(admitted(&mut window, NOW), 10);
        window.charge(NOW, LeaseId(1), 1, Charge::Free);
        window.close(NOW, Some(RESET), None);
        assert_eq!(admitted(&mut window, NOW + Duration::from_secs(5)), 0);
    }

    #[test]
    fn a_statement_opens_an_unknown_window_for_what_it_has() {
        let mut window = PrimaryWindow::new(&ResourceName::core());
        window.lease(NOW, LeaseId(0), 1, TERMS);
        let mark = window.mark(NOW);
        assert!(state(&mut window, mark, stated(100, 8)));
        assert_eq!(admitted(&mut window, NOW), 7, "the probe may not be counted yet");
    }

    #[test]
    fn a_slow_probe_lets_a_bounded_number_of_others_go() {
        let mut window = PrimaryWindow::new(&ResourceName::core());
        let mut sent = 0;
        for second in 0..60 {
            let now = NOW + Duration::from_secs(second);
            if headroom(&window, now).is_ok() {
                window.lease(now, LeaseId(second), 1, TERMS);
                sent += 1;
                assert_eq!(headroom(&window, now), Err(LimitKind::Probe), "one at a time");
            }
        }
        assert_eq!(sent, 4);
    }

    #[test]
    fn a_raise_is_seen_by_a_statement_in_the_same_window() {
        let mut window = seen(0);
        assert!(window.is_used_up(NOW, TERMS));
        let mark = window.mark(NOW);
        assert!(state(&mut window, mark, stated(200, 101)));
        assert_eq!(admitted(&mut window, NOW), 101);
    }

    #[test]
    fn units_that_ended_after_the_question_are_not_given_twice() {
        let mut window = seen(10);
        let mark = window.mark(NOW);
        for lease in 1..=10 {
            let own = window.lease(NOW, LeaseId(lease), 1, TERMS);
            answered(&mut window, lease, own, u32::try_from(10 - lease).unwrap());
        }
        assert!(!state(&mut window, mark, stated(100, 10)), "an older answer");
        assert!(window.is_used_up(NOW, TERMS));
    }

    #[test]
    fn an_untouched_statement_frees_one_unit_whose_answer_counts() {
        let mut window = seen(0);
        let mark = window.mark(NOW);
        assert!(state(&mut window, mark, stated(100, 100)));
        let own = window.lease(NOW, LeaseId(1), 1, TERMS);
        assert_eq!(headroom(&window, NOW), Err(LimitKind::Primary), "one alone");
        answered(&mut window, 1, own, 99);
        assert_eq!(admitted(&mut window, NOW), 99);
    }

    #[test]
    fn a_refusal_after_a_raise_ends_the_trust_in_statements() {
        for remaining in [50, 100] {
            let mut window = seen(0);
            let mark = window.mark(NOW);
            assert!(state(&mut window, mark, stated(100, remaining)));
            window.lease(NOW, LeaseId(1), 1, TERMS);
            window.charge(NOW, LeaseId(1), 1, Charge::Free);
            window.close(NOW, Some(RESET), None);
            let mark = window.mark(NOW);
            assert!(!state(&mut window, mark, stated(100, remaining)));
            assert!(headroom(&window, NOW).is_err());
        }
    }

    /// A window that the upstream closed although units were left.
    fn refused() -> PrimaryWindow {
        let mut window = seen(10);
        refuse(&mut window, NOW, 1);
        window
    }

    fn refuse(window: &mut PrimaryWindow, now: Timestamp, lease: u64) {
        window.lease(now, LeaseId(lease), 1, TERMS);
        window.charge(now, LeaseId(lease), 1, Charge::Free);
        window.close(now, Some(RESET), None);
    }

    #[test]
    fn an_untouched_statement_reopens_a_closed_window_for_one() {
        let mut window = refused();
        assert_eq!(headroom(&window, NOW), Err(LimitKind::Primary));
        let mark = window.mark(NOW);
        assert!(state(&mut window, mark, stated(100, 100)));
        let own = window.lease(NOW, LeaseId(2), 1, TERMS);
        assert_eq!(headroom(&window, NOW), Err(LimitKind::Primary), "one alone");
        let mark = window.mark(NOW);
        assert!(!state(&mut window, mark, stated(100, 100)), "one is on its way");
        answered(&mut window, 2, own, 99);
        assert_eq!(admitted(&mut window, NOW), 99);
    }

    #[test]
    fn a_statement_from_before_a_refusal_reopens_nothing() {
        let mut window = seen(10);
        let mark = window.mark(NOW - Duration::from_secs(1));
        refuse(&mut window, NOW, 1);
        for remaining in [40, 100] {
            assert!(!state(&mut window, mark, stated(100, remaining)));
        }
    }

    #[test]
    fn an_unknown_window_that_was_closed_is_tried_by_one() {
        let mut window = PrimaryWindow::new(&ResourceName::core());
        refuse(&mut window, NOW, 0);
        let mark = window.mark(NOW);
        assert!(state(&mut window, mark, stated(100, 100)));
        assert_eq!(admitted(&mut window, NOW), 1);
    }

    #[test]
    fn the_unit_of_a_trial_stays_free_although_others_spend() {
        let mut window = seen(90);
        let after = |seconds| NOW + Duration::from_secs(seconds);
        // Others spend nine units each second, and the upstream refuses.
        let mark = window.mark(after(10));
        window.stated(after(10), mark, stated(100, 0), TERMS, Asked::Routinely);
        window.close(after(10), Some(RESET), None);
        let mark = window.mark(after(11));
        assert!(window.stated(after(11), mark, stated(5_000, 5_000), TERMS, Asked::Routinely));
        for seconds in [11, 40, 300] {
            assert!(headroom(&window, after(seconds)).is_ok(), "after {seconds} s");
        }
        window.lease(after(300), LeaseId(1), 1, TERMS);
        let wanted = WindowDemand { cost: 1, unproven: 0, priority: Priority::Normal };
        let Err(block) = window.headroom(after(320), wanted, TERMS) else { panic!("two go") };
        assert_eq!(block.until, Until::Event, "the others wait for its outcome");
    }

    #[test]
    fn a_refused_trial_is_repeated_after_an_hour_or_by_order() {
        let reset = RESET + REFUSED_PAUSE * 2;
        let untouched = StatedBudget { reset, ..stated(100, 100) };
        let state = |window: &mut PrimaryWindow, now, asked| {
            let mark = window.mark(now);
            window.stated(now, mark, untouched, TERMS, asked)
        };
        let mut window = refused();
        window.close(NOW, Some(reset), None);
        let mut trials = 0;
        for minute in 0..=60 {
            let now = NOW + Duration::from_mins(minute);
            if state(&mut window, now, Asked::Routinely) {
                trials += 1;
                refuse(&mut window, now, minute);
                window.close(now, Some(reset), None);
            }
        }
        assert_eq!(trials, 2);
        let now = NOW + Duration::from_mins(61);
        assert!(!state(&mut window, now, Asked::Routinely));
        assert!(state(&mut window, now, Asked::ByOperator));
        assert_eq!(admitted(&mut window, now), 1);
    }

    #[test]
    fn a_trial_without_an_answer_is_repeated() {
        let mut window = refused();
        let mark = window.mark(NOW);
        assert!(state(&mut window, mark, stated(100, 100)));
        window.lease(NOW, LeaseId(2), 1, TERMS);
        window.charge(NOW, LeaseId(2), 1, Charge::Lost);
        assert_eq!(admitted(&mut window, NOW), 0);
        let later = NOW + Duration::from_secs(30);
        let mark = window.mark(later);
        assert!(window.stated(later, mark, stated(100, 100), TERMS, Asked::Routinely));
        assert_eq!(admitted(&mut window, later), 1);
    }

    #[test]
    fn a_lower_statement_lowers_and_an_old_one_does_nothing() {
        let mut window = seen(10);
        let mark = window.mark(NOW);
        assert!(!state(&mut window, mark, stated(100, 3)));
        let over = StatedBudget { reset: NOW, ..stated(100, 50) };
        assert!(!state(&mut window, mark, over));
        assert_eq!(admitted(&mut window, NOW), 2, "one stays for those who spent the others");
    }
}
