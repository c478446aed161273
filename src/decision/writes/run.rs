//! The step after a run of a queued write: its next run, or its end (SPECIFICATION D7, D14).
//!
//! A run passes a write through dispatch once, with the retries of `attempts.rs`. Left out: the
//! record of the write and its reason, which `gateway/write/runner.rs` keeps.

use std::time::Duration;

use http::StatusCode;

use crate::clock::Timestamp;
use crate::decision::retry::Patience;

/// The shortest pause in the queue. Chosen here: it avoids constant retries.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The pause while no token can carry the write. Chosen here: a benched token is retried after
/// minutes, and a new one may come at any time.
const TOKEN_PAUSE: Duration = Duration::from_secs(30);

/// A write after a run.
#[derive(Clone, Copy, Debug)]
pub struct FinishedRun {
    pub patience: Patience,
    /// The deadline that this run had.
    pub tried_until: Timestamp,
    /// The deadline of the write, which a later request may have moved.
    pub deadline: Timestamp,
    /// The earliest next attempt, by the last failed one.
    pub not_before: Timestamp,
    /// True if this run sent it.
    pub was_sent: bool,
    /// True if any attempt, of this run or before, may have been executed.
    pub may_have_run: bool,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    Answered(StatusCode),
    /// Denied by a limit. `queue_full_until`: the requests that wait were too many until then.
    Limited {
        queue_full_until: Option<Timestamp>,
    },
    /// The upstream rejected every token.
    TokensRejected,
    /// No usable token, perhaps until this time.
    TokenUnavailable {
        until: Option<Timestamp>,
    },
    /// The upstream is down, and nothing was sent.
    UpstreamDown,
    /// An attempt failed and is due later, or its record could not be stored.
    NotNow,
    OutcomeUnknown,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Runs at once, with the new deadline of the write.
    RunAgain,
    /// Pauses and frees its slot until this time.
    Pause(Timestamp),
    Done,
    Failed,
    /// Possibly executed, and not to be repeated.
    Unknown,
}

impl FinishedRun {
    /// Decides the step after this result.
    pub fn next(&self, end: RunEnd, now: Timestamp) -> Next {
        if let RunEnd::Answered(status) = end {
            return self.answered(status);
        }
        if matches!(end, RunEnd::Limited { .. }) && self.deadline > self.tried_until {
            return Next::RunAgain;
        }
        let soon = now + PAUSE_MIN;
        let may_pause = self.patience == Patience::Queued && soon < self.deadline;
        let until = match end {
            // A full admission queue is no reason to drop an accepted write.
            RunEnd::Limited { queue_full_until } if may_pause => queue_full_until,
            // A token may come or recover.
            RunEnd::TokensRejected if may_pause && !self.was_sent => Some(now + TOKEN_PAUSE),
            RunEnd::TokenUnavailable { until } if may_pause => Some(until.unwrap_or(soon)),
            RunEnd::UpstreamDown if may_pause => Some(soon),
            RunEnd::NotNow => Some(self.not_before),
            _ => None,
        };
        match until {
            Some(until) => Next::Pause(until.max(soon)),
            None if self.may_have_run || end == RunEnd::OutcomeUnknown => Next::Unknown,
            None => Next::Failed,
        }
    }

    /// A 4xx to a repetition may be the effect of an earlier attempt.
    fn answered(&self, status: StatusCode) -> Next {
        if status.is_success() {
            Next::Done
        } else if status.is_server_error() || self.may_have_run {
            Next::Unknown
        } else {
            Next::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);
    const DEADLINE: Timestamp = Timestamp::from_secs(2_000);

    fn queued() -> FinishedRun {
        FinishedRun {
            patience: Patience::Queued,
            tried_until: DEADLINE,
            deadline: DEADLINE,
            not_before: NOW,
            was_sent: false,
            may_have_run: false,
        }
    }

    fn in_seconds(seconds: u64) -> Timestamp {
        NOW + Duration::from_secs(seconds)
    }

    #[test]
    fn a_4xx_means_failed_and_a_5xx_means_unknown() {
        let repeated = FinishedRun { may_have_run: true, ..queued() };
        for (status, first, repetition) in [
            (201, Next::Done, Next::Done),
            (302, Next::Failed, Next::Unknown),
            (404, Next::Failed, Next::Unknown),
            (502, Next::Unknown, Next::Unknown),
        ] {
            let end = RunEnd::Answered(StatusCode::from_u16(status).unwrap());
            assert_eq!((queued().next(end, NOW), repeated.next(end, NOW)), (first, repetition));
        }
    }

    #[test]
    fn a_full_wait_queue_pauses_a_queued_write() {
        let end = RunEnd::Limited { queue_full_until: Some(in_seconds(9)) };
        assert_eq!(queued().next(end, NOW), Next::Pause(in_seconds(9)));
        let waiting = FinishedRun { patience: Patience::Waiting, ..queued() };
        assert_eq!(waiting.next(end, NOW), Next::Failed);
        let at_its_deadline = FinishedRun { tried_until: NOW, deadline: NOW, ..queued() };
        assert_eq!(at_its_deadline.next(end, NOW), Next::Failed);
        assert_eq!(queued().next(RunEnd::Limited { queue_full_until: None }, NOW), Next::Failed);
    }

    #[test]
    fn a_later_deadline_runs_a_limited_write_again() {
        let adopted = FinishedRun { tried_until: NOW, ..queued() };
        assert_eq!(adopted.next(RunEnd::Limited { queue_full_until: None }, NOW), Next::RunAgain);
        assert_eq!(adopted.next(RunEnd::Failed, NOW), Next::Failed);
    }

    #[test]
    fn a_missing_token_pauses_an_unsent_write() {
        assert_eq!(queued().next(RunEnd::TokensRejected, NOW), Next::Pause(NOW + TOKEN_PAUSE));
        let sent = FinishedRun { was_sent: true, ..queued() };
        assert_eq!(sent.next(RunEnd::TokensRejected, NOW), Next::Failed);
        let lack = |until| RunEnd::TokenUnavailable { until };
        assert_eq!(queued().next(lack(None), NOW), Next::Pause(in_seconds(1)));
        assert_eq!(queued().next(lack(Some(in_seconds(7))), NOW), Next::Pause(in_seconds(7)));
    }

    #[test]
    fn an_outage_pauses_a_queued_write() {
        assert_eq!(queued().next(RunEnd::UpstreamDown, NOW), Next::Pause(in_seconds(1)));
        let waiting = FinishedRun { patience: Patience::Waiting, ..queued() };
        assert_eq!(waiting.next(RunEnd::UpstreamDown, NOW), Next::Failed);
    }

    #[test]
    fn a_failed_attempt_pauses_until_its_next_is_due() {
        let due = FinishedRun { not_before: in_seconds(60), may_have_run: true, ..queued() };
        assert_eq!(due.next(RunEnd::NotNow, NOW), Next::Pause(in_seconds(60)));
        assert_eq!(queued().next(RunEnd::NotNow, NOW), Next::Pause(in_seconds(1)));
    }

    #[test]
    fn a_write_that_may_have_run_ends_as_unknown() {
        assert_eq!(queued().next(RunEnd::OutcomeUnknown, NOW), Next::Unknown);
        assert_eq!(queued().next(RunEnd::Failed, NOW), Next::Failed);
        let repeated = FinishedRun { may_have_run: true, ..queued() };
        assert_eq!(repeated.next(RunEnd::Failed, NOW), Next::Unknown);
    }
}
