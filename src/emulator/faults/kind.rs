//! The kinds of faults and their effects on a request.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};

use super::wire::Framing;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Decides how the request ends; at most one applies.
    Ending(Ending),
    /// Falsifies the response; several can apply.
    Distortion(Distortion),
}

#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Ending {
    Status(Canned, Execution),
    /// Holds the response back; `None` for ever.
    Stall(Option<Duration>, Execution),
    ResetBefore,
    ResetAfter,
    HalfBody(Framing),
    /// Executes the request and closes the connection without a response.
    Lost,
    /// A secondary denial as an HTML page (SPECIFICATION, "Limits in practice").
    HtmlRefusal(StatusCode),
    /// A secondary denial, deserved or not.
    Secondary(LimitDenial),
    Revoke,
    /// Until `after` later ones of the same account have left, or until the time-out.
    Reorder {
        after: u32,
        timeout: Duration,
    },
}

/// Says if a request with a bad end was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    Executed,
    NotExecuted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Canned {
    pub status: StatusCode,
    pub content_type: &'static str,
    pub body: Bytes,
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// The content of a secondary denial (SPECIFICATION, "After a limit").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitDenial {
    pub status: StatusCode,
    pub retry_after_secs: Option<u64>,
    pub remaining: Remaining,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remaining {
    Truth,
    /// Some secondary denials carry remaining 0 (SPECIFICATION, "Limits in practice").
    Zero,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Distortion {
    /// By a second, within one window (SPECIFICATION, "Limits in practice").
    Wobble { seconds: u32, pattern: Pattern },
    /// The upstream's clock is wrong by this many seconds.
    ClockOffset { seconds: i64 },
    /// An untouched window while the real one is spent (SPECIFICATION, "Limits in practice").
    PristineRateLimit,
    /// Replicas lag (SPECIFICATION, "Conditional requests in practice").
    StaleRead(Lag),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Between minus and plus, by the seed.
    Random,
    /// Plus, minus, plus.
    Alternating,
}

/// The lag of a replica, from the first read that would have shown the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lag {
    Reads(u64),
    For(Duration),
}

impl Kind {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ending(ending) => ending.into(),
            Self::Distortion(distortion) => distortion.into(),
        }
    }
}

impl Ending {
    pub fn execution(&self) -> Execution {
        match self {
            Self::Status(_, execution) | Self::Stall(_, execution) => *execution,
            Self::ResetBefore | Self::HtmlRefusal(_) | Self::Secondary(_) => Execution::NotExecuted,
            Self::ResetAfter
            | Self::HalfBody(_)
            | Self::Lost
            | Self::Revoke
            | Self::Reorder { .. } => Execution::Executed,
        }
    }
}
