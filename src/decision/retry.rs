//! The step after a failure of a request that was sent, or could not be sent (SPECIFICATION D7).
//!
//! One question decides: may the upstream have executed the request? A read may always be sent
//! again. A write is repeated only when it provably was not executed, or when it is idempotent;
//! else its outcome is unknown and stays so. Streamed bodies cannot be repeated and never come
//! here.

use std::num::NonZeroU32;
use std::time::Duration;

use http::Method;

use crate::clock::Timestamp;

/// Pauses of a request with a waiting client. Ours: the first is long enough for a new connection
/// and short for a client; the longest is a tenth of the default wait of 30 s.
const WAITING: Pauses =
    Pauses { first: Duration::from_millis(200), factor: 2, longest: Duration::from_secs(3) };
/// Pauses of a queued write. Ours: with the default of eight attempts, an outage of a quarter of an
/// hour loses no write at any jitter. The end of an outage is noticed within a quarter of an hour.
const QUEUED: Pauses =
    Pauses { first: Duration::from_secs(1), factor: 4, longest: Duration::from_secs(900) };
/// Retries of a read after a 5xx. Ours: one retry separates a passing fault from a lasting one;
/// each costs budget.
const READ_5XX_RETRIES: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Attempts in all, the first included.
    pub max_attempts: NonZeroU32,
    pub patience: Patience,
}

/// Kind of pauses between attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// For a client on its connection.
    Waiting,
    Queued,
}

struct Pauses {
    first: Duration,
    factor: u32,
    longest: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Provably not executed: no connection, or the upstream reported so (a refused stream, a
    /// GOAWAY below ours).
    Connect,
    /// Denied by an upstream limit, hence not executed.
    UpstreamLimit {
        /// End of the account's closure.
        until: Timestamp,
    },
    /// Sent, with an unknown outcome: reset, timeout, half an answer.
    Ambiguous,
    /// Answered with a status of 500 or above; still possibly executed (SPECIFICATION, "Limits in
    /// practice").
    Upstream5xx,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Sends the request again through admission, not before this time.
    Retry { not_before: Timestamp },
    /// Sends the request again at once. Admission chooses another account, because the limited one
    /// is closed.
    RetryElsewhere,
    /// Possibly executed: must not be repeated.
    Unknown,
    /// Not executed, and out of attempts: the gateway answers with its own error.
    Fail,
    /// Delivers the upstream's answer.
    Deliver,
}

impl Policy {
    /// Returns the step after a failure of attempt number `attempt`, counted from 1. `jitter` is a
    /// random number from 0 to 1.
    pub fn next(
        self,
        now: Timestamp,
        method: &Method,
        attempt: u32,
        failure: Failure,
        jitter: f64,
    ) -> Next {
        let repeat = Repeat::of(method);
        let may_be_repeated = match failure {
            Failure::Connect | Failure::UpstreamLimit { .. } => true,
            Failure::Ambiguous => repeat != Repeat::Never,
            Failure::Upstream5xx => {
                repeat == Repeat::Idempotent
                    || repeat == Repeat::Read && attempt <= READ_5XX_RETRIES
            }
        };
        if may_be_repeated && attempt < self.max_attempts.get() {
            return match (failure, repeat) {
                (Failure::UpstreamLimit { .. }, Repeat::Read) => Next::RetryElsewhere,
                (Failure::UpstreamLimit { until }, _) => Next::Retry { not_before: until.max(now) },
                _ => {
                    Next::Retry { not_before: now + self.patience.pauses().after(attempt, jitter) }
                }
            };
        }
        match (failure, repeat) {
            (Failure::Connect | Failure::UpstreamLimit { .. }, _)
            | (Failure::Ambiguous, Repeat::Read) => Next::Fail,
            (Failure::Upstream5xx, Repeat::Read) => Next::Deliver,
            (Failure::Ambiguous | Failure::Upstream5xx, Repeat::Idempotent | Repeat::Never) => {
                Next::Unknown
            }
        }
    }
}

impl Patience {
    const fn pauses(self) -> &'static Pauses {
        match self {
            Self::Waiting => &WAITING,
            Self::Queued => &QUEUED,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    Read,
    /// The effect of one execution.
    Idempotent,
    /// A second effect: must not be repeated.
    Never,
}

impl Repeat {
    /// RFC 9110 §9.2; an unknown method must not be repeated.
    fn of(method: &Method) -> Self {
        match *method {
            Method::GET | Method::HEAD | Method::OPTIONS => Self::Read,
            Method::PUT | Method::DELETE => Self::Idempotent,
            _ => Self::Never,
        }
    }
}

impl Pauses {
    /// Pause after this attempt. The random half spreads requests that failed together.
    fn after(&self, attempt: u32, jitter: f64) -> Duration {
        let grown = self
            .first
            .saturating_mul(self.factor.saturating_pow(attempt.saturating_sub(1).min(8)))
            .min(self.longest);
        grown.mul_f64(0.5 + 0.5 * crate::decision::quota::limits::cooldown::unit(jitter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn next(method: &Method, attempt: u32, failure: Failure) -> Next {
        Policy { max_attempts: NonZeroU32::new(8).unwrap(), patience: Patience::Waiting }
            .next(NOW, method, attempt, failure, 1.0)
    }

    fn in_millis(millis: u64) -> Next {
        Next::Retry { not_before: NOW + Duration::from_millis(millis) }
    }

    #[test]
    fn an_unexecuted_request_is_retried_until_the_last_attempt() {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            assert_eq!(next(&method, 1, Failure::Connect), in_millis(200));
            assert_eq!(next(&method, 2, Failure::Connect), in_millis(400));
            assert_eq!(next(&method, 7, Failure::Connect), in_millis(3_000));
            assert_eq!(next(&method, 8, Failure::Connect), Next::Fail);
        }
    }

    #[test]
    fn a_limited_read_moves_to_another_account_at_once() {
        let failure = Failure::UpstreamLimit { until: NOW + Duration::from_mins(1) };
        assert_eq!(next(&Method::GET, 1, failure), Next::RetryElsewhere);
        assert_eq!(next(&Method::HEAD, 7, failure), Next::RetryElsewhere);
        assert_eq!(next(&Method::GET, 8, failure), Next::Fail);
    }

    #[test]
    fn a_limited_write_waits_for_its_account() {
        let failure = Failure::UpstreamLimit { until: NOW + Duration::from_mins(1) };
        assert_eq!(next(&Method::POST, 1, failure), in_millis(60_000));
        assert_eq!(next(&Method::PUT, 8, failure), Next::Fail);
    }

    #[test]
    fn a_post_that_may_have_been_executed_is_never_sent_again() {
        for method in [Method::POST, Method::PATCH, Method::from_bytes(b"LOCK").unwrap()] {
            assert_eq!(next(&method, 1, Failure::Ambiguous), Next::Unknown);
            assert_eq!(next(&method, 1, Failure::Upstream5xx), Next::Unknown);
        }
    }

    #[test]
    fn a_put_or_delete_may_be_repeated() {
        for method in [Method::PUT, Method::DELETE] {
            assert_eq!(next(&method, 1, Failure::Ambiguous), in_millis(200));
            assert_eq!(next(&method, 3, Failure::Upstream5xx), in_millis(800));
            assert_eq!(next(&method, 8, Failure::Ambiguous), Next::Unknown);
            assert_eq!(next(&method, 8, Failure::Upstream5xx), Next::Unknown);
        }
    }

    #[test]
    fn a_5xx_to_a_read_is_retried_once_and_then_delivered() {
        assert_eq!(next(&Method::GET, 1, Failure::Upstream5xx), in_millis(200));
        assert_eq!(next(&Method::GET, 2, Failure::Upstream5xx), Next::Deliver);
    }

    #[test]
    fn jitter_shortens_a_pause_by_half_at_most() {
        assert_eq!(WAITING.after(1, 0.0), Duration::from_millis(100));
        assert_eq!(WAITING.after(1, 0.5), Duration::from_millis(150));
        assert_eq!(WAITING.after(u32::MAX, f64::NAN), Duration::from_millis(1_500));
    }

    #[test]
    fn a_queued_write_outlasts_a_quarter_of_an_hour() {
        let outage = |jitter| (1..8).map(|attempt| QUEUED.after(attempt, jitter)).sum::<Duration>();
        assert!(
            outage(0.0) > Duration::from_mins(15) && outage(1.0) < Duration::from_mins(40),
            "{:?} to {:?}",
            outage(0.0),
            outage(1.0)
        );
    }
}
