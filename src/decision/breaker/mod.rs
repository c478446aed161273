//! The circuit breaker of one upstream address (SPECIFICATION D22).
//!
//! Closed, requests are sent. Silence, or failures in a row, make it suspect an outage, and probes
//! of the gateway's own decide: clients alone cannot open it, whatever they ask for. One resource
//! may hang alone, so the state of the budgets and the root of the API are both asked.
//!
//! Open, nothing but probes is sent, one at a time. Any answer closes it; if the budgets were
//! answered all the time, they alone do not. Without an answer, requests are tried again at growing
//! distances.

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
/// The time without an answer to any attempt after which the free probe's answers prove too little.
/// Ours: the service ends each request after 10 s, so a slow answer comes before
/// (SPECIFICATION, "Limits in practice").
const UNHEARD: Duration = Duration::from_secs(15);
/// The time for which an answer to a probe of the root counts. Ours: seldom enough to cost little.
const ROOT_COUNTS: Duration = Duration::from_mins(5);
/// Probes of the root in an hour. Ours: the service allows 60 requests without a credential.
const ROOTS_MAX: u32 = 40;
const ROOTS_PERIOD: Duration = Duration::from_hours(1);
/// The time that probes without an answer keep a breaker open, at first: what they ask for may hang
/// alone, and then requests have to tell. Ours: long beside the silence that opens it again.
const OPEN: Duration = Duration::from_secs(30);
/// Times that it doubles, if requests are not answered either.
const DOUBLINGS_MAX: u32 = 3;

/// The resource that a probe asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// The state of the budgets, which costs nothing.
    #[default]
    Free,
    /// The root of the API: other parts of the service than the budgets may hang.
    Root,
}

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
    /// The same to a question about the budgets, which proves as much as a free probe's.
    BudgetsAnswer,
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
    Probe(Duration, Target),
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
    /// The time since which attempts wait in vain, whatever probes were answered.
    unheard_since: Option<Timestamp>,
    /// Attempts that ended in silence since the last answer to one, or to a probe of the root.
    unheard: u32,
    /// The end of the last attempt.
    ended_at: Timestamp,
    probed_at: Timestamp,
    target: Target,
    /// False while the budgets are answered and nothing else is.
    do_budgets_prove: bool,
    /// Time of the last answer to a probe of the root.
    root_at: Timestamp,
    /// Probes of the root, and the time of the first of them.
    roots: (u32, Timestamp),
    /// Outages that ended without an answer since the last one.
    lapses: u32,
    /// The kind of the last outage.
    outage: Outage,
    /// The length of the last answer to a probe of each target, and its end. A slow upstream is no
    /// outage: what is answered within the response timeout is answered.
    answered: [(Duration, Timestamp); 2],
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            state: State::Closed,
            waiting: 0,
            silent_since: None,
            failures: 0,
            unheard_since: None,
            unheard: 0,
            probed_at: Timestamp::EPOCH,
            target: Target::Free,
            do_budgets_prove: true,
            ended_at: Timestamp::EPOCH,
            root_at: Timestamp::EPOCH,
            roots: (0, Timestamp::EPOCH),
            lapses: 0,
            outage: Outage::Silent,
            answered: [(Duration::ZERO, Timestamp::EPOCH); 2],
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
        // Losses of long ago say nothing about today.
        if self.waiting == 0 && now >= self.ended_at + UNHEARD {
            (self.unheard, self.unheard_since) = (0, None);
        }
        self.waiting += 1;
        let begins = self.silent_since.is_none();
        self.silent_since.get_or_insert(now);
        self.unheard_since.get_or_insert(now);
        begins
    }

    /// An attempt has ended. Returns true if a probe may be due.
    pub fn ended(&mut self, now: Timestamp, heard: Heard) -> bool {
        self.waiting = self.waiting.saturating_sub(1);
        self.ended_at = now;
        match heard {
            Heard::Answer => {
                self.answered(now);
                self.heard(now);
            }
            Heard::BudgetsAnswer => self.budgets_answered(now),
            Heard::Nothing(outage) => {
                self.failures = self.failures.saturating_add(1);
                self.unheard = self.unheard.saturating_add((outage == Outage::Silent).into());
            }
            Heard::Neutral => {}
        }
        if self.waiting == 0 {
            self.silent_since = None;
            self.unheard_since.take_if(|_| self.unheard == 0);
        }
        self.failures >= FAILURES
    }

    /// The upstream lives: any answer proves it.
    fn answered(&mut self, now: Timestamp) {
        self.lapses = 0;
        self.close(now);
    }

    fn close(&mut self, now: Timestamp) {
        self.state = State::Closed;
        self.failures = 0;
        self.silent_since = (self.waiting > 0).then_some(now);
    }

    /// The budgets are answered, which proves nothing where they always were.
    fn budgets_answered(&mut self, now: Timestamp) {
        if self.state == State::Closed || self.do_budgets_prove {
            self.answered(now);
        }
    }

    fn open(&mut self, now: Timestamp, outage: Outage) {
        self.state = State::Open { since: now, outage };
        self.outage = outage;
        if self.do_budgets_prove {
            self.target = Target::Free;
        }
    }

    /// Ends an outage without an answer: requests are sent again.
    fn lapse(&mut self, now: Timestamp) {
        self.close(now);
        self.heard(now);
        self.lapses = self.lapses.saturating_add(1);
    }

    /// More than the free probe is answered.
    fn heard(&mut self, now: Timestamp) {
        self.unheard = 0;
        self.unheard_since = (self.waiting > 0).then_some(now);
    }

    /// The target of a probe that may open the breaker.
    fn target(&self, now: Timestamp) -> Target {
        let is_unheard = self.unheard_since.is_some_and(|since| now >= since + UNHEARD)
            && self.unheard.saturating_add(self.waiting) >= FAILURES
            && now >= self.root_at + ROOT_COUNTS
            && self.may_ask_root(now);
        if is_unheard { Target::Root } else { Target::Free }
    }

    fn may_ask_root(&self, now: Timestamp) -> bool {
        let (probes, since) = self.roots;
        probes < ROOTS_MAX || now >= since + ROOTS_PERIOD
    }

    fn ask_root(&mut self, now: Timestamp) {
        if self.roots.0 == 0 || now >= self.roots.1 + ROOTS_PERIOD {
            self.roots = (0, now);
        }
        self.roots.0 += 1;
    }

    /// The step that is due. Call it again after the step, and after [`Breaker::begun`] or
    /// [`Breaker::ended`] returned true.
    pub fn next(&mut self, now: Timestamp) -> Next {
        // Requests are not answered either.
        if self.state == State::Closed
            && self.has_lapsed()
            && (self.target == Target::Free || self.may_ask_root(now))
            && self.silent_since.is_some_and(|since| now >= since + SILENCE)
        {
            self.open(now, self.outage);
        }
        let patience = match (self.state, self.silent_since) {
            (State::Open { .. }, _) => QUICK,
            (State::Closed, Some(since)) if self.failures < FAILURES && now < since + SILENCE => {
                return Next::At(since + SILENCE);
            }
            (State::Closed, None) if self.failures < FAILURES => return Next::Idle,
            (State::Closed | State::Suspected, _) => CONFIRMATION,
        };
        if now < self.probed_at + DISTANCE {
            return Next::At(self.probed_at + DISTANCE);
        }
        if self.state == State::Closed {
            self.state = State::Suspected;
            self.target = self.target(now);
            self.do_budgets_prove = self.target == Target::Free;
        }
        if self.target == Target::Root {
            self.ask_root(now);
        }
        self.probed_at = now;
        let is_open = matches!(self.state, State::Open { .. });
        let usual = if is_open { Duration::ZERO } else { self.usual(now) };
        Next::Probe(patience.max(usual), self.target)
    }

    /// A probe of a target has ended after this time, or has no answer yet.
    pub fn probed(&mut self, now: Timestamp, target: Target, heard: Heard, took: Duration) {
        match (heard, self.state) {
            (Heard::Answer | Heard::BudgetsAnswer, _) => {
                self.answered[target as usize] = (took, now);
                match target {
                    Target::Free => self.budgets_answered(now),
                    Target::Root => {
                        self.root_at = now;
                        self.answered(now);
                        self.heard(now);
                    }
                }
            }
            (Heard::Nothing(Outage::Silent), State::Suspected)
                if target == Target::Free
                    && self.target == Target::Free
                    && self.may_ask_root(now) =>
            {
                self.target = Target::Root;
            }
            (Heard::Nothing(outage), State::Suspected) => self.open(now, outage),
            (Heard::Nothing(Outage::Silent), State::Open { since, .. })
                if now >= since + OPEN * 2_u32.pow(self.lapses.min(DOUBLINGS_MAX))
                    || self.target == Target::Root && !self.may_ask_root(now) =>
            {
                self.lapse(now);
            }
            (Heard::Nothing(outage), State::Open { since, .. }) => {
                self.state = State::Open { since, outage };
                self.outage = outage;
            }
            // An answer came meanwhile.
            _ => {}
        }
    }

    /// True if the last outage ended because probes could tell no more, not by an answer.
    pub fn has_lapsed(&self) -> bool {
        self.lapses > 0
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
        let (took, at) = self.answered[self.target as usize];
        if now.since(at) < REMEMBERED { took * 3 / 2 } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests;
