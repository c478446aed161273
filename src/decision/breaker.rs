//! The circuit breaker of one upstream address (SPECIFICATION D22).
//!
//! Closed, requests are sent. Silence, or failures in a row, make it suspect an outage, and a probe
//! of the gateway's own decides: clients alone cannot open it, whatever they ask for. Open, nothing
//! but probes is sent, one at a time. Any answer closes it.

use std::time::Duration;

use crate::clock::Timestamp;

/// The silence that makes an outage likely. Ours: few answers take longer, and then a free probe
/// tells a slow endpoint from an outage.
const SILENCE: Duration = Duration::from_secs(3);
/// The attempts without an answer, one after the other, that do so. Ours: more than one request
/// makes by itself.
const FAILURES: u32 = 5;
/// The least time of a probe that may open the breaker. Ours: as long as the silence before it.
const CONFIRMATION: Duration = Duration::from_secs(3);
/// The time for which the length of a slow answer is remembered. Ours: a slow upstream is probed
/// again at its next silence, long before.
const REMEMBERED: Duration = Duration::from_mins(10);
/// The distance of probes. With [`QUICK`] it bounds the time until a return is noticed to two
/// seconds.
const DISTANCE: Duration = Duration::from_secs(1);
/// The longest time of a usual answer. Ours: several times that of a free request.
const USUAL_ANSWER: Duration = Duration::from_secs(1);
/// The time of a probe of an open breaker.
const QUICK: Duration = Duration::from_millis(1_500);

/// The kind of an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// No connection.
    Unreachable,
    /// Connections, but no complete answers.
    Silent,
}

/// The state, without a probe's progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Requests are sent.
    Closed,
    /// Requests are sent, and a probe is on its way.
    Suspected,
    /// Only probes are sent.
    Open {
        /// The end of the probe that opened it.
        since: Timestamp,
        /// By the last probe.
        outage: Outage,
    },
}

/// The end of an attempt as far as it tells about the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A complete answer of any status.
    Answer,
    /// No answer, by the upstream's fault.
    Nothing(Outage),
    /// Neither an answer nor a failure, such as a wait that the gateway gave up.
    Neutral,
}

/// The next step of the prober.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing before an attempt begins.
    Idle,
    /// Nothing before this time.
    At(Timestamp),
    /// Probe now, and report after this time that there is no answer yet. A later answer counts
    /// too.
    Probe(Duration),
}

/// The breaker of one address.
#[derive(Clone, Debug)]
pub struct Breaker {
    state: State,
    /// Attempts that wait for an answer.
    waiting: u32,
    /// The time since which attempts wait, and no answer came.
    silent_since: Option<Timestamp>,
    /// Attempts without an answer since the last answer.
    failures: u32,
    probed_at: Timestamp,
    /// The length of the last probe's answer, and its end. A slow upstream is no outage: what is
    /// answered within the response timeout is answered.
    answered: (Duration, Timestamp),
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            state: State::Closed,
            waiting: 0,
            silent_since: None,
            failures: 0,
            probed_at: Timestamp::EPOCH,
            answered: (Duration::ZERO, Timestamp::EPOCH),
        }
    }
}

impl Breaker {
    /// Returns the state.
    pub fn state(&self) -> State {
        self.state
    }

    /// An attempt is sent. Returns true if the silence begins with it.
    pub fn begun(&mut self, now: Timestamp) -> bool {
        self.waiting += 1;
        let begins = self.silent_since.is_none();
        self.silent_since.get_or_insert(now);
        begins
    }

    /// An attempt has ended. Returns true if a probe may be due.
    pub fn ended(&mut self, now: Timestamp, heard: Heard) -> bool {
        self.waiting = self.waiting.saturating_sub(1);
        match heard {
            Heard::Answer => self.answered(now),
            Heard::Nothing(_) => self.failures = self.failures.saturating_add(1),
            Heard::Neutral => {}
        }
        if self.waiting == 0 {
            self.silent_since = None;
        }
        self.failures >= FAILURES
    }

    /// The upstream lives: any answer proves it.
    fn answered(&mut self, now: Timestamp) {
        self.state = State::Closed;
        self.failures = 0;
        self.silent_since = (self.waiting > 0).then_some(now);
    }

    /// The step that is due. Call it again after the step, and after [`Breaker::begun`] or
    /// [`Breaker::ended`] returned true.
    pub fn next(&mut self, now: Timestamp) -> Next {
        let patience = match (self.state, self.silent_since) {
            (State::Open { .. }, _) => QUICK,
            (State::Closed, Some(since)) if self.failures < FAILURES && now < since + SILENCE => {
                return Next::At(since + SILENCE);
            }
            (State::Closed, None) if self.failures < FAILURES => return Next::Idle,
            (State::Closed | State::Suspected, _) => CONFIRMATION.max(self.usual(now)),
        };
        if now < self.probed_at + DISTANCE {
            return Next::At(self.probed_at + DISTANCE);
        }
        if self.state == State::Closed {
            self.state = State::Suspected;
        }
        self.probed_at = now;
        Next::Probe(patience)
    }

    /// A probe has ended after this time, or has no answer yet.
    pub fn probed(&mut self, now: Timestamp, heard: Heard, took: Duration) {
        match (heard, self.state) {
            (Heard::Answer, _) => {
                self.answered = (took, now);
                self.answered(now);
            }
            (Heard::Nothing(outage), State::Suspected) => {
                self.state = State::Open { since: now, outage };
            }
            (Heard::Nothing(outage), State::Open { since, .. }) => {
                self.state = State::Open { since, outage };
            }
            // An answer came meanwhile.
            _ => {}
        }
    }

    /// True if an outage is likely: open, or a probe has had no answer for as long as an answer
    /// usually takes.
    pub fn is_probe_late(&self, now: Timestamp) -> bool {
        match self.state {
            State::Closed => false,
            State::Suspected => now >= self.probed_at + USUAL_ANSWER.max(self.usual(now)),
            State::Open { .. } => true,
        }
    }

    /// The time of an answer that is as slow as the last one, with half as much again to spare.
    fn usual(&self, now: Timestamp) -> Duration {
        let (took, at) = self.answered;
        if now.since(at) < REMEMBERED { took * 3 / 2 } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);
    const LOST: Heard = Heard::Nothing(Outage::Silent);

    fn after(millis: u64) -> Timestamp {
        NOW + Duration::from_millis(millis)
    }

    /// Silent for three seconds, with a probe on its way.
    fn suspecting() -> Breaker {
        let mut breaker = Breaker::default();
        assert!(breaker.begun(NOW));
        assert_eq!(breaker.next(NOW), Next::At(after(3_000)));
        assert_eq!(breaker.next(after(3_000)), Next::Probe(CONFIRMATION));
        breaker
    }

    fn is_open(breaker: &Breaker) -> bool {
        matches!(breaker.state(), State::Open { .. })
    }

    #[test]
    fn silence_and_an_unanswered_probe_open_it() {
        let mut breaker = suspecting();
        assert_eq!(breaker.state(), State::Suspected);
        assert!(!breaker.is_probe_late(after(3_999)) && breaker.is_probe_late(after(4_000)));
        breaker.probed(after(6_000), LOST, Duration::ZERO);
        let open = State::Open { since: after(6_000), outage: Outage::Silent };
        assert_eq!(breaker.state(), open);
    }

    #[test]
    fn failures_in_a_row_are_probed_at_once() {
        let mut breaker = Breaker::default();
        for attempt in 1..=5 {
            breaker.begun(NOW);
            let may_be_due = breaker.ended(NOW, Heard::Nothing(Outage::Unreachable));
            assert_eq!(may_be_due, attempt == 5);
        }
        assert_eq!(breaker.next(NOW), Next::Probe(CONFIRMATION));
        breaker.probed(NOW, Heard::Nothing(Outage::Unreachable), Duration::ZERO);
        assert!(is_open(&breaker));
    }

    #[test]
    fn an_answer_between_failures_starts_the_count_anew() {
        let mut breaker = Breaker::default();
        for _ in 0..3 {
            for heard in [LOST, LOST, LOST, LOST, Heard::Answer] {
                breaker.begun(NOW);
                assert!(!breaker.ended(NOW, heard));
            }
        }
        assert_eq!(breaker.next(NOW), Next::Idle);
    }

    #[test]
    fn a_path_that_always_hangs_never_opens_it() {
        let mut breaker = suspecting();
        breaker.probed(after(3_100), Heard::Answer, Duration::ZERO);
        for second in 4..100 {
            let now = after(second * 1_000);
            breaker.begun(now);
            assert!(!breaker.ended(now, Heard::Neutral));
            if let Next::Probe(_) = breaker.next(now) {
                breaker.probed(now, Heard::Answer, Duration::ZERO);
            }
            assert!(!is_open(&breaker));
        }
    }

    #[test]
    fn an_answer_of_another_request_outweighs_a_lost_probe() {
        let mut breaker = suspecting();
        breaker.begun(after(4_000));
        breaker.ended(after(4_100), Heard::Answer);
        breaker.probed(after(6_000), LOST, Duration::ZERO);
        assert_eq!(breaker.state(), State::Closed);
        assert_eq!(breaker.next(after(6_000)), Next::At(after(7_100)), "one still waits");
    }

    #[test]
    fn an_open_one_is_probed_each_second_until_an_answer() {
        let mut breaker = suspecting();
        breaker.probed(after(3_000), LOST, Duration::ZERO);
        assert_eq!(breaker.next(after(3_000)), Next::At(after(4_000)));
        assert_eq!(breaker.next(after(4_000)), Next::Probe(QUICK));
        breaker.probed(after(5_500), LOST, Duration::ZERO);
        assert_eq!(
            breaker.next(after(5_500)),
            Next::Probe(QUICK),
            "a late probe is followed at once"
        );
        breaker.probed(after(5_600), Heard::Answer, Duration::ZERO);
        assert_eq!(breaker.state(), State::Closed);
    }

    /// The breaker of an upstream whose first probe was answered after 6.5 s.
    fn slow() -> Breaker {
        let mut breaker = suspecting();
        breaker.probed(after(6_000), LOST, CONFIRMATION);
        assert!(is_open(&breaker));
        breaker.ended(after(6_000), Heard::Neutral);
        breaker.probed(after(9_500), Heard::Answer, Duration::from_millis(6_500));
        assert_eq!(breaker.state(), State::Closed);
        breaker
    }

    #[test]
    fn a_late_answer_to_a_probe_closes_it_for_good() {
        let mut breaker = slow();
        for round in 1..100 {
            let began = after(round * 10_000);
            breaker.begun(began);
            let Next::At(at) = breaker.next(began) else { panic!("{breaker:?}") };
            let Next::Probe(patience) = breaker.next(at) else { panic!("{breaker:?}") };
            assert!(patience > Duration::from_millis(6_500) && patience < CONFIRMATION * 4);
            assert!(!breaker.is_probe_late(at + Duration::from_millis(6_500)));
            breaker.ended(began + Duration::from_millis(6_500), Heard::Answer);
            let took = Duration::from_millis(6_500);
            breaker.probed(at + took, Heard::Answer, took);
            assert!(!is_open(&breaker));
        }
    }

    #[test]
    fn a_slow_upstream_that_hangs_opens_it() {
        let mut breaker = slow();
        breaker.begun(after(20_000));
        assert_eq!(breaker.next(after(20_000)), Next::At(after(23_000)));
        let Next::Probe(patience) = breaker.next(after(23_000)) else { panic!("{breaker:?}") };
        breaker.probed(after(23_000) + patience, LOST, patience);
        assert!(is_open(&breaker));
    }

    #[test]
    fn the_length_of_answers_is_forgotten() {
        let mut quick_again = slow();
        quick_again.begun(after(20_000));
        quick_again.next(after(23_000));
        quick_again.probed(after(23_100), Heard::Answer, Duration::from_millis(100));
        assert_eq!(quick_again.next(after(26_100)), Next::Probe(CONFIRMATION));
        let mut idle = slow();
        let later = after(9_500) + REMEMBERED;
        idle.begun(later);
        assert_eq!(idle.next(later + SILENCE), Next::Probe(CONFIRMATION));
    }

    #[test]
    fn probes_of_a_living_upstream_keep_their_distance() {
        let mut breaker = Breaker::default();
        let mut probes = 0;
        for millis in (0..10_000).step_by(10) {
            breaker.begun(after(millis));
            breaker.ended(after(millis), LOST);
            if let Next::Probe(_) = breaker.next(after(millis)) {
                probes += 1;
                breaker.probed(after(millis), Heard::Answer, Duration::ZERO);
            }
        }
        assert!(probes <= 10, "{probes} probes in ten seconds");
    }

    #[test]
    fn an_idle_gateway_probes_nothing() {
        let mut breaker = Breaker::default();
        breaker.begun(NOW);
        breaker.ended(NOW, Heard::Answer);
        assert_eq!(breaker.next(after(100_000)), Next::Idle);
        breaker.begun(NOW);
        breaker.ended(NOW, LOST);
        assert_eq!(breaker.next(after(100_000)), Next::Idle);
    }
}
