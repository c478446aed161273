//! Compact durations: the lifetimes of headers and config, which every stored answer keeps.

use std::time::Duration;

/// Whole seconds, rounded down; at most 136 years (RFC 9111 §1.2.2 allows less).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::decision::cache) struct Seconds(u32);

/// Optional ttl of a rule of the config, in whole milliseconds. More than 49 days count as 49 days:
/// the answer is validated sooner than necessary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::decision::cache) struct Ttl {
    /// [`NO_TTL`] for none.
    millis: u32,
}

const NO_TTL: u32 = u32::MAX;

impl Ttl {
    pub(in crate::decision::cache) fn span(self) -> Option<Duration> {
        (self.millis != NO_TTL).then(|| Duration::from_millis(self.millis.into()))
    }
}

impl Default for Ttl {
    fn default() -> Self {
        Self { millis: NO_TTL }
    }
}

impl From<Option<Duration>> for Ttl {
    fn from(span: Option<Duration>) -> Self {
        let millis =
            |span: Duration| u32::try_from(span.as_millis()).unwrap_or(NO_TTL).min(NO_TTL - 1);
        Self { millis: span.map_or(NO_TTL, millis) }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_ttl_is_unpacked_unchanged() {
        for span in [
            None,
            Some(Duration::ZERO),
            Some(Duration::from_millis(1)),
            Some(Duration::from_hours(10)),
        ] {
            assert_eq!(Ttl::from(span).span(), span);
        }
        assert_eq!(Ttl::default().span(), None);
        assert!(Ttl::from(Some(Duration::MAX)).span() > Some(Duration::from_hours(49 * 24)));
    }
}
