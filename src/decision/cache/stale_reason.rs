//! Which stored answers stand in for one that cannot be had: by the operator's word
//! (`stale_if_limited`, `stale_if_error`), by the answer's own and by the client's
//! (`stale-if-error`, RFC 5861 §4).
//!
//! Each of the three may allow it by itself, and an answer that forbids it (RFC 9111 §4.2.4)
//! forbids it to the latter two in both modes. What a change has made doubtful stands in for
//! nothing; that is for the caller to see.

use std::time::Duration;

use http::StatusCode;

use crate::clock::Timestamp;

use super::freshness::{Mode, Validated};
use super::request_directives::RequestDirectives;

/// Why an answer cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleReason {
    /// A limit stands in the way, which is no error.
    Limited,
    /// The upstream gave no answer.
    NoAnswer,
    /// It answered so.
    Answered(StatusCode),
}

impl StaleReason {
    /// The errors of RFC 5861 §4: whatever is, or would become, one of these statuses.
    fn is_error(self) -> bool {
        use StatusCode as Is;
        let errors = [
            Is::INTERNAL_SERVER_ERROR,
            Is::BAD_GATEWAY,
            Is::SERVICE_UNAVAILABLE,
            Is::GATEWAY_TIMEOUT,
        ];
        match self {
            Self::Limited => false,
            Self::NoAnswer => true,
            Self::Answered(status) => errors.contains(&status),
        }
    }

    /// Whether the operator's word is about it. A plain HTTP cache delivers what was answered,
    /// whatever it is.
    fn is_for_operator(self, mode: Mode) -> bool {
        match self {
            Self::Limited | Self::NoAnswer => true,
            Self::Answered(status) => status.is_server_error() && mode == Mode::Revalidate,
        }
    }
}

impl Validated<'_> {
    /// Whether it stands in for an answer to a client that says this. `age_max` is the operator's
    /// bound for this reason; zero is none.
    pub fn may_serve_stale(
        self,
        reason: StaleReason,
        age_max: Duration,
        directives: &RequestDirectives,
        now: Timestamp,
        mode: Mode,
    ) -> bool {
        let stale_for = self.stale_for(now, mode);
        // What a client says of errors goes before all else that it says, which is of answers that
        // can be had; it is a bound for the others' words too.
        let asked_for = directives.stale_if_error.filter(|_| reason.is_error());
        if !asked_for.map_or_else(
            || self.accepts_stale(directives, now, mode),
            |over_max| stale_for <= over_max,
        ) {
            return false;
        }
        let by_operator = reason.is_for_operator(mode)
            && !age_max.is_zero()
            && self.age(now, mode) <= age_max
            && self.stored.permits_stale(mode);
        let over_max = Duration::from(self.stored.stale_if_error);
        let by_answer = !over_max.is_zero() && stale_for <= over_max;
        by_operator
            || reason.is_error() && !self.stored.forbids_stale && (by_answer || asked_for.is_some())
    }

    /// For how long it has not been fresh, by its own word or the operator's. Also where every hit
    /// is validated: an answer that says how stale it may be counts that from the end of its own
    /// lifetime.
    fn stale_for(self, now: Timestamp, mode: Mode) -> Duration {
        let by_itself = self.age(now, Mode::Rfc9111).saturating_sub(self.stored.lifetime.into());
        self.stored.ttl.span().map_or(by_itself, |_| by_itself.min(self.over(now, mode)))
    }
}
