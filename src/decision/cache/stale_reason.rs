//! Stale answers in place of an unavailable one: by the operator (`stale_if_limited`,
//! `stale_if_error`), by the answer and by the client (`stale-if-error`, RFC 5861 §4).
//!
//! Each of the three suffices. An answer that forbids stale use (RFC 9111 §4.2.4) overrides the
//! latter two in both modes. Invalidated answers are never served so; the caller checks that.

use std::time::Duration;

use http::StatusCode;

use crate::clock::Timestamp;

use super::freshness::Mode;
use super::request_directives::RequestDirectives;
use super::validated::Validated;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleReason {
    /// A limit denies the request; no error.
    Limited,
    NoAnswer,
    Answered(StatusCode),
}

impl StaleReason {
    /// The errors of RFC 5861 §4: any of these statuses, given or implied.
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

    /// True when the operator's setting applies. A plain HTTP cache delivers any answer of the
    /// upstream.
    fn is_for_operator(self, mode: Mode) -> bool {
        match self {
            Self::Limited | Self::NoAnswer => true,
            Self::Answered(status) => status.is_server_error() && mode == Mode::Revalidate,
        }
    }
}

impl Validated<'_> {
    /// Returns true when this answer may replace an unavailable one for a client with these
    /// directives. `age_max` is the operator's bound for this reason; zero is none.
    pub fn may_serve_stale(
        self,
        reason: StaleReason,
        age_max: Duration,
        directives: &RequestDirectives,
        now: Timestamp,
        mode: Mode,
    ) -> bool {
        let stale_for = self.stale_for(now, mode);
        // `stale-if-error` overrides the client's other directives, which are about available
        // answers. It bounds the other permissions too.
        let by_client = directives.stale_if_error.filter(|_| reason.is_error());
        if !by_client.map_or_else(
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
            || reason.is_error() && !self.stored.forbids_stale && (by_answer || by_client.is_some())
    }

    /// Returns true when this answer may be served while it is revalidated, to a client with these
    /// directives (RFC 5861 §3). Only a plain HTTP cache does so.
    pub fn may_serve_while_revalidated(
        self,
        directives: &RequestDirectives,
        now: Timestamp,
        mode: Mode,
    ) -> bool {
        let over_max = Duration::from(self.stored.stale_while_revalidate);
        mode == Mode::Rfc9111
            && !over_max.is_zero()
            && !self.stored.forbids_stale
            && !directives.no_store
            && self.stale_for(now, mode) <= over_max
            && self.accepts_stale(directives, now, mode)
    }

    /// Staleness by its own lifetime or the operator's. In [`Mode::Revalidate`] too: an answer that
    /// bounds its staleness counts from the end of its own lifetime.
    fn stale_for(self, now: Timestamp, mode: Mode) -> Duration {
        let by_itself = self.age(now, Mode::Rfc9111).saturating_sub(self.stored.lifetime.into());
        self.stored.ttl.span().map_or(by_itself, |_| by_itself.min(self.over(now, mode)))
    }
}
