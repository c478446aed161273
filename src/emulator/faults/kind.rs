//! The kinds of faults, and what each of them does to a request.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};

use super::wire::Framing;

/// What a fault does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It decides how the request ends; a request has one end.
    Ending(Ending),
    /// It makes the answer say something untrue; one request can meet several.
    Distortion(Distortion),
}

/// How a request ends otherwise than it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Another answer than the one that is due.
    Status(Canned, Execution),
    /// The answer is held back, `None` for ever.
    Stall(Option<Duration>, Execution),
    /// The connection is reset before anything was done.
    ResetBefore,
    /// The connection is reset after everything was done.
    ResetAfter,
    /// The body ends in its middle.
    HalfBody(Framing),
    /// It was done, and the connection is closed without an answer.
    Lost,
    /// A secondary refusal as a page for people (UPSTREAM.md, Limits: "Some are HTML").
    HtmlRefusal(StatusCode),
    /// A secondary refusal, deserved or not.
    Secondary(LimitDenial),
    /// The credential of the request does not work any more.
    Revoke,
    /// The answer leaves after `after` later ones of the same account, or after the time-out.
    Reorder { after: u32, timeout: Duration },
}

/// Whether a request that ends badly was carried out before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    Executed,
    NotExecuted,
}

/// An answer from the fault itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Canned {
    pub status: StatusCode,
    pub content_type: &'static str,
    pub body: Bytes,
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// What a secondary refusal says (Document 1, Client behavior after a limit, rules 2 to 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitDenial {
    pub status: StatusCode,
    pub retry_after_secs: Option<u64>,
    pub remaining: Remaining,
}

/// What `x-ratelimit-remaining` says beside a secondary refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remaining {
    Truth,
    /// UPSTREAM.md, Limits: "some carry remaining 0: still secondary by message".
    Zero,
}

/// What an answer says that is not true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distortion {
    /// UPSTREAM.md, Limits: "`reset` wobbles by a second between answers of one window".
    Wobble { seconds: u32, pattern: Pattern },
    /// The upstream's clock runs wrong by so many seconds.
    ClockOffset { seconds: i64 },
    /// UPSTREAM.md, Limits: "`/rate_limit` can report a pristine window while the real one is
    /// nearly spent".
    PristineRateLimit,
    /// UPSTREAM.md, Conditional requests: "Replicas lag".
    StaleRead(Lag),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Anything from minus to plus, by the seed.
    Random,
    /// Plus, minus, plus.
    Alternating,
}

/// How long a replica shows what was before, from when the change would first have been seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lag {
    Reads(u32),
    For(Duration),
}

impl Kind {
    /// As the wire and the transcript write it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ending(ending) => match ending {
                Ending::Status(..) => "status",
                Ending::Stall(..) => "stall",
                Ending::ResetBefore => "reset_before",
                Ending::ResetAfter => "reset_after",
                Ending::HalfBody(_) => "half_body",
                Ending::Lost => "lost",
                Ending::HtmlRefusal(_) => "html_refusal",
                Ending::Secondary(_) => "secondary",
                Ending::Revoke => "revoke",
                Ending::Reorder { .. } => "reorder",
            },
            Self::Distortion(distortion) => match distortion {
                Distortion::Wobble { .. } => "wobble",
                Distortion::ClockOffset { .. } => "clock_offset",
                Distortion::PristineRateLimit => "pristine_rate_limit",
                Distortion::StaleRead(_) => "stale_read",
            },
        }
    }
}

impl Ending {
    /// Whether the request is carried out all the same.
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
