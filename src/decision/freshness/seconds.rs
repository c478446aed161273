//! A span of whole seconds in four bytes: what headers say of lifetimes is kept with every stored answer.

use std::cmp::Ordering;
use std::ops::Add;
use std::time::Duration;

/// Whole seconds, rounded down; more than 136 years count as so many (RFC 9111 §1.2.2 allows less).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seconds(u32);

impl From<Duration> for Seconds {
    fn from(span: Duration) -> Self {
        Self(u32::try_from(span.as_secs()).unwrap_or(u32::MAX))
    }
}

impl From<Seconds> for Duration {
    fn from(Seconds(seconds): Seconds) -> Self {
        Self::from_secs(seconds.into())
    }
}

impl Add<Duration> for Seconds {
    type Output = Duration;

    fn add(self, more: Duration) -> Duration {
        Duration::from(self) + more
    }
}

impl PartialEq<Seconds> for Duration {
    fn eq(&self, other: &Seconds) -> bool {
        *self == Self::from(*other)
    }
}

impl PartialOrd<Seconds> for Duration {
    fn partial_cmp(&self, other: &Seconds) -> Option<Ordering> {
        self.partial_cmp(&Self::from(*other))
    }
}
