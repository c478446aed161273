//! The cause of a wait that ended without its turn: a limit, or requests that got no answer.
//!
//! An upstream that hangs holds slots, turns and budgets for as long as it likes. A client that
//! waited behind such a request was held by no limit (SPECIFICATION, "Waiting").

use std::time::Duration;

use crate::clock::Timestamp;

/// Wait without an answer that is not blamed on a limit. Ours: longer than most answers take.
const SILENCE: Duration = Duration::from_secs(1);

/// Stretches that are remembered. Ours: as many long timeouts fit into a wait.
const LOST_MAX: usize = 4;

/// The requests that share one limit, and the time in which none of them was answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silence {
    /// Requests without an end or the head of an answer.
    waiting: u32,
    /// The first of them was sent at this time.
    sent_at: Timestamp,
    /// Time of the last answer, or of the last piece of a body that the upstream took.
    answered_at: Timestamp,
    /// The last stretches that ended without an answer, the oldest first. They do not overlap.
    lost: [Stretch; LOST_MAX],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stretch {
    from: Timestamp,
    to: Timestamp,
}

impl Silence {
    /// A request is sent.
    pub fn sent(&mut self, now: Timestamp) {
        if self.waiting == 0 {
            self.sent_at = now;
        }
        self.waiting += 1;
    }

    /// A request was answered, or the upstream took a piece of its body.
    pub fn answered(&mut self, now: Timestamp) {
        self.answered_at = now;
    }

    /// A request that was sent at this time was given up without an answer.
    pub fn lost(&mut self, now: Timestamp, sent_at: Timestamp) {
        let mut stretch = Stretch { from: sent_at.max(self.answered_at), to: now };
        if stretch.length() < SILENCE {
            return;
        }
        // Requests that wait side by side are lost in one stretch.
        for lost in self.lost.iter_mut().rev().filter(|lost| **lost != Stretch::default()) {
            if lost.to >= stretch.from {
                stretch.from = stretch.from.min(lost.from);
                *lost = Stretch::default();
            }
        }
        self.lost.sort_by_key(|lost| lost.to);
        self.lost[0] = stretch;
        self.lost.rotate_left(1);
    }

    /// A request waits no longer, in any way.
    pub fn ended(&mut self) {
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// Time of the last answer, or of the last piece of a body that the upstream took.
    pub fn answered_at(&self) -> Timestamp {
        self.answered_at
    }

    /// Returns true if at least half of a wait since then passed behind requests that got no
    /// answer. A wait that has just begun counts by the request before it.
    pub fn is_unanswered(&self, now: Timestamp, since: Timestamp) -> bool {
        let current = self.current(now).filter(|current| current.length() >= SILENCE);
        let lost = self.lost.into_iter().filter(|lost| lost.to > since);
        let [.., newest] = self.lost;
        // Another request may have been lost beside those that wait.
        let current = current.map(|it| Stretch { from: it.from.max(newest.to), ..it });
        let mut stretches = lost.chain(current).peekable();
        let is_any = stretches.peek().is_some();
        let silence: Duration =
            stretches.map(|stretch| stretch.to.since(stretch.from.max(since))).sum();
        is_any && silence * 2 >= now.since(since)
    }

    /// The stretch without an answer that lasts until now.
    fn current(&self, now: Timestamp) -> Option<Stretch> {
        let from = self.sent_at.max(self.answered_at);
        (self.waiting > 0).then_some(Stretch { from, to: now })
    }
}

impl Stretch {
    fn length(self) -> Duration {
        self.to.since(self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_000);

    fn after(millis: u64) -> Timestamp {
        START + Duration::from_millis(millis)
    }

    /// One request, sent at the start.
    fn hanging() -> Silence {
        let mut silence = Silence::default();
        silence.sent(START);
        silence
    }

    /// A request that is sent and ends at these times.
    fn add(silence: &mut Silence, from: u64, to: u64, is_answered: bool) {
        silence.sent(after(from));
        if is_answered {
            silence.answered(after(to));
        } else {
            silence.lost(after(to), after(from));
        }
        silence.ended();
    }

    #[test]
    fn a_request_without_an_answer_is_silence_after_a_second() {
        let silence = hanging();
        for since in [START, after(500), after(999)] {
            assert!(!silence.is_unanswered(after(999), since));
        }
        for since in [START, after(500), after(1_000)] {
            assert!(silence.is_unanswered(after(1_000), since));
        }
    }

    #[test]
    fn losses_side_by_side_count_once() {
        let mut silence = Silence::default();
        for (from, to) in [(0, 5_000), (10_000, 12_000), (1_000, 20_000)] {
            add(&mut silence, from, to, false);
        }
        assert!(silence.is_unanswered(after(40_000), START));
        assert!(!silence.is_unanswered(after(40_001), START));
    }

    #[test]
    fn a_wait_behind_nothing_is_no_silence() {
        let mut silence = Silence::default();
        assert!(!silence.is_unanswered(after(10_000), START));
        add(&mut silence, 0, 300, true);
        assert!(!silence.is_unanswered(after(10_000), after(400)));
        add(&mut silence, 20_000, 25_000, false);
        assert!(!silence.is_unanswered(after(40_000), after(25_000)));
    }

    #[test]
    fn an_answer_ends_the_silence_before_it() {
        let mut silence = hanging();
        silence.answered(after(5_000));
        assert!(silence.is_unanswered(after(10_000), START));
        assert!(!silence.is_unanswered(after(11_000), after(4_000) - Duration::from_secs(8)));
        silence.answered(after(10_000));
        assert!(!silence.is_unanswered(after(10_500), START));
    }

    #[test]
    fn lost_time_counts_after_a_later_answer() {
        let mut silence = Silence::default();
        add(&mut silence, 0, 5_000, false);
        add(&mut silence, 5_000, 5_100, true);
        add(&mut silence, 6_000, 6_100, true);
        assert!(silence.is_unanswered(after(6_300), after(300)));
        assert!(silence.is_unanswered(after(10_000), START));
        assert!(!silence.is_unanswered(after(10_001), START));
        assert!(!silence.is_unanswered(after(6_300), after(4_500)));
    }

    #[test]
    fn losses_add_up_without_the_time_between_them() {
        let mut silence = Silence::default();
        for from in [0, 5_000, 20_000] {
            add(&mut silence, from, from + 2_000, false);
            add(&mut silence, from + 2_000, from + 2_100, true);
        }
        assert!(silence.is_unanswered(after(12_000), START));
        assert!(silence.is_unanswered(after(24_000), after(20_000)));
        assert!(!silence.is_unanswered(after(24_001), after(20_000)));
    }

    #[test]
    fn a_short_loss_erases_no_long_one() {
        let mut silence = Silence::default();
        add(&mut silence, 0, 20_000, false);
        add(&mut silence, 20_000, 20_100, true);
        add(&mut silence, 21_000, 22_500, false);
        assert!(silence.is_unanswered(after(40_000), START));
    }

    #[test]
    fn requests_side_by_side_count_once() {
        let mut silence = hanging();
        add(&mut silence, 1_000, 4_000, false);
        assert!(silence.is_unanswered(after(6_000), START));
        assert!(!silence.is_unanswered(after(6_000), START - Duration::from_millis(6_001)));
    }
}
