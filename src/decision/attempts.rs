//! The attempts of one request: what follows each of them, until there is an answer to deliver or
//! an error to report.
//!
//! A state machine without I/O: each call takes the end of an attempt and the time, and returns the
//! next step. [`Policy`] decides the number and the times of repetitions; admission chooses the
//! account of the next attempt.

use std::time::Duration;

use http::Method;

use super::retry::{Failure, Next, Patience, Policy};
use crate::clock::Timestamp;

/// Rejected tokens that one request goes through. Ours: more than the tokens of an account that are
/// revoked at once.
const REJECTIONS_MAX: u32 = 20;
/// The longest pause that a queued write spends in dispatch. Ours: a longer one is spent in the
/// queue.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Upstream limits that a permission retry goes through. Ours: it costs budget and helps seldom.
const RETRY_LIMITS_MAX: u32 = 3;

/// Tokens that one attempt waits for because the accounts with a token are at their limits. Ours:
/// after so many, another one does not help.
const TOKEN_WAITS_MAX: u32 = 19;

/// The end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With an answer that is not the upstream's own failure, or that is delivered in any case.
    Answered,
    /// With a status of 500 or above.
    ServerError,
    /// The upstream rejected the token, which is benched or replaced.
    TokenRejected,
    /// The upstream rejected the token once, which stays in use.
    TokenCleared,
    /// The upstream wants another kind of credential.
    CredentialUnfit {
        /// Further credentials that may be tried.
        others: usize,
    },
    /// An upstream limit denied it.
    Limited {
        /// End of the account's closure.
        until: Timestamp,
    },
    /// An idle connection was closed by the upstream, most likely before the request.
    StaleConnection,
    /// No connection, hence not executed.
    NotSent,
    /// The answer was lost.
    Lost,
    /// No answer in time.
    TimedOut,
    /// With an answer that cannot be decoded.
    Undecodable,
    /// The upstream is down: the request was not sent, or a read was given up.
    UpstreamDown,
    /// The request was cancelled before anything was sent.
    Cancelled,
}

/// The decision after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The record that a kept write stores before the step.
    pub record: Option<Record>,
    pub step: Step,
}

/// The knowledge about a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The earliest time of the next attempt.
    pub not_before: Timestamp,
    /// True if the upstream may have executed it.
    pub may_have_run: bool,
}

/// The next action of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send it again; admission chooses the account.
    Send,
    /// Send it again at this time.
    Wait(Timestamp),
    /// Deliver the answer.
    Deliver,
    /// Report an error.
    Fail(Failed),
}

/// The error that ends a request without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// One token after the other was rejected.
    TokensRejected,
    /// No credential is of the kind that the upstream wants.
    Unfit,
    /// The upstream's limits.
    Limited,
    /// It was cancelled, or is to be sent by a later run.
    NotNow,
    /// No connection.
    Unreachable,
    /// The upstream is down, so nothing was sent.
    UpstreamDown,
    /// A write may have been executed or not.
    OutcomeUnknown,
    /// A read got no answer in time.
    TimedOut,
    /// The answer to a read was lost.
    Lost,
    /// The answer to a read cannot be decoded.
    Undecodable,
}

/// The end of all attempts together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// With an answer of 400 to 499.
    ClientError,
    /// With any other answer.
    Answered,
    /// Not for now: it may be sent later.
    NotNow,
    /// With an error.
    Failed,
}

/// The attempts of one request so far.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not one state")]
pub struct Attempts {
    policy: Policy,
    /// The method that counts for repetitions.
    method: Method,
    is_read: bool,
    /// A queue keeps the request and reports its outcome.
    is_kept: bool,
    candidates: usize,
    deadline: Timestamp,
    answer_by: Option<Timestamp>,
    attempt: u32,
    limited: usize,
    rejections: u32,
    unfit: usize,
    has_met_stale: bool,
    may_have_run: bool,
    /// The last failure to get an answer.
    failed: Option<Failed>,
}

/// A request as far as its attempts depend on it.
#[derive(Clone, Debug)]
pub struct Attempted {
    /// The number and the spacing of repetitions.
    pub policy: Policy,
    /// The method that counts for repetitions.
    pub method: Method,
    /// True if it changes nothing.
    pub is_read: bool,
    /// For a write kept by a queue: the attempts of earlier runs, and true if one of them may have
    /// been executed.
    pub kept: Option<(u32, bool)>,
    /// The number of accounts that may carry it.
    pub candidates: usize,
    /// The time until which a repetition may begin.
    pub deadline: Timestamp,
}

impl Attempts {
    /// Creates the state of a request before its first attempt in this run.
    pub fn new(request: Attempted) -> Self {
        let Attempted { policy, method, is_read, kept, candidates, deadline } = request;
        let (attempt, may_have_run) = kept.unwrap_or_default();
        Self {
            policy,
            method,
            is_read,
            is_kept: kept.is_some(),
            candidates,
            deadline,
            answer_by: None,
            attempt,
            limited: 0,
            rejections: 0,
            unfit: 0,
            has_met_stale: false,
            may_have_run,
            failed: None,
        }
    }

    /// True if it outlasts an outage of the upstream, however long.
    pub fn outlasts_outage(&self) -> bool {
        self.policy.patience == Patience::Queued
    }

    /// Sets the time from which nothing is sent again.
    pub fn set_answer_by(&mut self, answer_by: Option<Timestamp>) {
        self.answer_by = answer_by;
    }

    /// The error of a request whose next attempt a limit denies; `None`: the limit itself. A client
    /// must not take an upstream that does not answer for a limit.
    pub fn failed_before(&self) -> Option<Failed> {
        self.failed
    }

    /// Counts an attempt that begins. Returns whether it may use an idle connection: one that dies
    /// leaves it unclear whether the request was executed.
    pub fn begin(&mut self, now: Timestamp, jitter: f64) -> bool {
        self.attempt += 1;
        !self.has_met_stale
            && (self.is_read
                || matches!(self.next(now, Failure::Ambiguous, jitter), Next::Retry { .. }))
    }

    /// Decides what follows an attempt.
    pub fn ended(&mut self, now: Timestamp, ended: Ended, jitter: f64) -> Decided {
        let only = |step| Decided { record: None, step };
        match ended {
            Ended::Answered => only(Step::Deliver),
            Ended::ServerError => self.server_error(now, jitter),
            // Each rejection benches a token or replaces it; the bound is for an upstream that
            // rejects every new one.
            Ended::TokenRejected | Ended::TokenCleared => {
                self.attempt -= 1;
                self.rejections += 1;
                let record = Some(Record { not_before: now, may_have_run: false });
                let step = if self.rejections > REJECTIONS_MAX {
                    Step::Fail(Failed::TokensRejected)
                } else {
                    Step::Send
                };
                Decided { record, step }
            }
            // The denial is recorded, so another credential goes first.
            Ended::CredentialUnfit { others } if self.is_read && self.unfit < others => {
                self.attempt -= 1;
                self.unfit += 1;
                only(Step::Send)
            }
            Ended::CredentialUnfit { .. } => only(Step::Fail(Failed::Unfit)),
            Ended::Limited { until } => self.limited(now, until, jitter),
            // At once, on a new connection. An attempt is left for it.
            Ended::StaleConnection => {
                self.has_met_stale = true;
                self.may_have_run = true;
                let record = Some(Record { not_before: now, may_have_run: true });
                Decided { record, step: Step::Send }
            }
            Ended::UpstreamDown if self.outlasts_outage() => {
                self.attempt -= 1;
                only(Step::Send)
            }
            Ended::UpstreamDown => only(Step::Fail(Failed::UpstreamDown)),
            Ended::Cancelled => only(Step::Fail(Failed::NotNow)),
            Ended::NotSent => self.failed(now, Failure::Connect, Failed::Unreachable, jitter),
            Ended::Lost => self.failed(now, Failure::Ambiguous, Failed::Lost, jitter),
            Ended::TimedOut => self.failed(now, Failure::Ambiguous, Failed::TimedOut, jitter),
            // The upstream executed it, and would encode the next answer the same way.
            Ended::Undecodable => {
                self.may_have_run = true;
                let failed =
                    if self.is_read { Failed::Undecodable } else { Failed::OutcomeUnknown };
                only(Step::Fail(failed))
            }
        }
    }

    /// True if the client must learn that the outcome is unknown: an earlier attempt may have been
    /// executed.
    ///
    /// That includes a repetition that finds nothing to delete, or something in its way. The
    /// earlier attempt may be the cause.
    pub fn outcome_is_unknown(&self, finished: Finished) -> bool {
        self.may_have_run
            && !self.is_read
            && match finished {
                Finished::Answered => false,
                // A queue judges an answer by itself, and may send later what is not sent now.
                Finished::ClientError | Finished::NotNow => !self.is_kept,
                Finished::Failed => true,
            }
    }

    fn server_error(&mut self, now: Timestamp, jitter: f64) -> Decided {
        match self.next(now, Failure::Upstream5xx, jitter) {
            Next::Retry { not_before } if self.may_begin(not_before) => {
                self.may_have_run = true;
                self.pause(now, Record { not_before, may_have_run: true })
            }
            // A queue keeps the answer, as that of a write whose outcome is unknown.
            Next::Unknown | Next::Retry { .. } if !self.is_read && !self.is_kept => {
                Decided { record: None, step: Step::Fail(Failed::OutcomeUnknown) }
            }
            _ => Decided { record: None, step: Step::Deliver },
        }
    }

    fn limited(&mut self, now: Timestamp, until: Timestamp, jitter: f64) -> Decided {
        // Each limit closes an account or a budget, so that a read goes to the next one. The read
        // fails when all of them are limited.
        if self.is_read {
            self.attempt -= 1;
            self.limited += 1;
            let is_over = self.limited > self.candidates;
            let step = if is_over { Step::Fail(Failed::Limited) } else { Step::Send };
            return Decided { record: None, step };
        }
        // Admission knows the end of the limit. The record of a kept write states it too, because
        // this process may end before.
        match self.next(now, Failure::UpstreamLimit { until }, jitter) {
            Next::Retry { not_before } => {
                let record = Some(Record { not_before, may_have_run: false });
                Decided { record, step: Step::Send }
            }
            Next::RetryElsewhere => Decided { record: None, step: Step::Send },
            _ => Decided { record: None, step: Step::Fail(Failed::Limited) },
        }
    }

    fn failed(&mut self, now: Timestamp, failure: Failure, read: Failed, jitter: f64) -> Decided {
        let may_have_run = failure == Failure::Ambiguous;
        self.may_have_run |= may_have_run;
        self.failed = Some(read);
        match self.next(now, failure, jitter) {
            Next::Retry { not_before } if self.may_begin(not_before) => {
                self.pause(now, Record { not_before, may_have_run })
            }
            _ => {
                let is_unknown = may_have_run && !self.is_read;
                let failed = if is_unknown { Failed::OutcomeUnknown } else { read };
                Decided { record: None, step: Step::Fail(failed) }
            }
        }
    }

    fn may_begin(&self, at: Timestamp) -> bool {
        at <= self.deadline && self.answer_by.is_none_or(|answer_by| at < answer_by)
    }

    fn pause(&self, now: Timestamp, record: Record) -> Decided {
        let is_for_the_queue =
            self.policy.patience == Patience::Queued && record.not_before > now + PAUSE_MAX;
        let step = if is_for_the_queue {
            Step::Fail(Failed::NotNow)
        } else {
            Step::Wait(record.not_before)
        };
        Decided { record: Some(record), step }
    }

    fn next(&self, now: Timestamp, failure: Failure, jitter: f64) -> Next {
        self.policy.next(now, &self.method, self.attempt, failure, jitter)
    }
}

/// The attempts of a permission retry, which repeats little.
#[derive(Clone, Copy, Debug, Default)]
pub struct PermissionAttempts {
    limited: u32,
    has_met_stale: bool,
}

impl PermissionAttempts {
    /// True if an attempt may use an idle connection.
    pub fn may_reuse(self) -> bool {
        !self.has_met_stale
    }

    /// True if the request is sent again.
    pub fn is_sent_again(&mut self, ended: Ended) -> bool {
        match ended {
            Ended::StaleConnection => {
                self.has_met_stale = true;
                true
            }
            Ended::Limited { .. } if self.limited < RETRY_LIMITS_MAX => {
                self.limited += 1;
                true
            }
            _ => false,
        }
    }
}

/// The waits of one attempt for the tokens of further accounts.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenWaits(u32);

impl TokenWaits {
    /// Counts a wait; false if there were enough.
    pub fn begin(&mut self) -> bool {
        self.0 += 1;
        self.0 <= TOKEN_WAITS_MAX
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn of(method: Method, kept: Option<(u32, bool)>) -> Attempts {
        let patience = if kept.is_some() { Patience::Queued } else { Patience::Waiting };
        let max_attempts = NonZeroU32::new(3).unwrap();
        let is_read = method == Method::GET;
        Attempts::new(Attempted {
            policy: Policy { max_attempts, patience },
            method,
            is_read,
            kept,
            candidates: 2,
            deadline: NOW + Duration::from_secs(30),
        })
    }

    fn steps(attempts: &mut Attempts, ended: Ended, times: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        for _ in 0..times {
            attempts.begin(NOW, 0.0);
            steps.push(attempts.ended(NOW, ended, 0.0).step);
        }
        steps
    }

    #[test]
    fn a_lost_read_is_repeated_and_then_fails() {
        let steps = steps(&mut of(Method::GET, None), Ended::Lost, 3);
        assert!(matches!(steps[..2], [Step::Wait(_), Step::Wait(_)]), "{steps:?}");
        assert_eq!(steps[2], Step::Fail(Failed::Lost));
    }

    #[test]
    fn an_undecodable_answer_is_not_asked_for_again() {
        let read = steps(&mut of(Method::GET, None), Ended::Undecodable, 1);
        assert_eq!(read, [Step::Fail(Failed::Undecodable)]);
        let mut write = of(Method::PUT, None);
        let steps = steps(&mut write, Ended::Undecodable, 1);
        assert_eq!(steps, [Step::Fail(Failed::OutcomeUnknown)]);
        assert!(write.outcome_is_unknown(Finished::Failed));
    }

    #[test]
    fn a_lost_post_is_not_repeated() {
        let mut attempts = of(Method::POST, None);
        assert!(!attempts.begin(NOW, 0.0), "no idle connection is risked");
        let decided = attempts.ended(NOW, Ended::Lost, 0.0);
        assert_eq!(decided.step, Step::Fail(Failed::OutcomeUnknown));
        assert!(attempts.outcome_is_unknown(Finished::Failed));
    }

    #[test]
    fn a_client_error_on_a_repeated_write_leaves_it_unknown() {
        let mut attempts = of(Method::PUT, None);
        assert!(matches!(steps(&mut attempts, Ended::Lost, 1)[..], [Step::Wait(_)]));
        assert!(attempts.outcome_is_unknown(Finished::ClientError));
        assert!(!attempts.outcome_is_unknown(Finished::Answered));
    }

    #[test]
    fn an_unsent_write_is_repeated_with_a_known_outcome() {
        let mut attempts = of(Method::POST, None);
        assert!(matches!(steps(&mut attempts, Ended::NotSent, 1)[..], [Step::Wait(_)]));
        assert!(!attempts.outcome_is_unknown(Finished::Failed));
    }

    #[test]
    fn limits_and_rejections_cost_a_read_no_attempt() {
        let mut attempts = of(Method::GET, None);
        let limited = Ended::Limited { until: NOW };
        assert_eq!(steps(&mut attempts, limited, 2), [Step::Send; 2]);
        assert_eq!(steps(&mut attempts, Ended::TokenRejected, 2), [Step::Send; 2]);
        assert_eq!(steps(&mut attempts, limited, 1), [Step::Fail(Failed::Limited)]);
    }

    #[test]
    fn a_read_fails_at_the_21st_rejected_token() {
        let steps = steps(&mut of(Method::GET, None), Ended::TokenRejected, 21);
        assert_eq!(steps.last(), Some(&Step::Fail(Failed::TokensRejected)));
        assert_eq!(steps[..20], [Step::Send; 20]);
    }

    #[test]
    fn a_stale_connection_is_retried_on_a_new_connection() {
        let mut attempts = of(Method::GET, None);
        assert!(attempts.begin(NOW, 0.0));
        let decided = attempts.ended(NOW, Ended::StaleConnection, 0.0);
        assert_eq!(decided.step, Step::Send);
        assert_eq!(decided.record, Some(Record { not_before: NOW, may_have_run: true }));
        assert!(!attempts.begin(NOW, 0.0));
    }

    #[test]
    fn a_queued_write_spends_long_pauses_in_the_queue() {
        let mut attempts = of(Method::PUT, Some((1, false)));
        attempts.begin(NOW, 1.0);
        let decided = attempts.ended(NOW, Ended::ServerError, 1.0);
        assert_eq!(decided.step, Step::Fail(Failed::NotNow));
        assert!(decided.record.is_some_and(|record| record.may_have_run));
        assert!(!attempts.outcome_is_unknown(Finished::NotNow));
    }

    #[test]
    fn a_second_server_error_on_a_read_is_delivered() {
        let steps = steps(&mut of(Method::GET, None), Ended::ServerError, 2);
        assert!(matches!(steps[..], [Step::Wait(_), Step::Deliver]), "{steps:?}");
        let mut write = of(Method::POST, None);
        write.begin(NOW, 0.0);
        let decided = write.ended(NOW, Ended::ServerError, 0.0);
        assert_eq!(decided.step, Step::Fail(Failed::OutcomeUnknown));
    }

    #[test]
    fn a_permission_retry_survives_three_upstream_limits() {
        let mut attempts = PermissionAttempts::default();
        assert!(attempts.may_reuse() && attempts.is_sent_again(Ended::StaleConnection));
        assert!(!attempts.may_reuse());
        let limited = Ended::Limited { until: NOW };
        let again = [(); 4].map(|()| attempts.is_sent_again(limited));
        assert_eq!(again, [true, true, true, false]);
        assert!(!attempts.is_sent_again(Ended::Answered));
    }

    #[test]
    fn an_attempt_waits_for_at_most_19_tokens() {
        let mut waits = TokenWaits::default();
        assert!((0..19).all(|_| waits.begin()) && !waits.begin());
    }
}
