//! While a store has no room for new writes: what there is to say when it begins and when it ends,
//! however many are refused between.
//!
//! Small writes may find room where large ones do not: it is over when one is kept that is as large
//! as the smallest that was refused. Each refusal by itself is in the log line and the metrics of
//! its request. Left out: why there is no room.

/// Nothing was refused, or so many.
#[derive(Debug, Default)]
pub(super) struct Outage {
    refused: u64,
    smallest: usize,
}

impl Outage {
    /// One more new write of this size is refused; whether it is the first.
    pub(super) fn refused(&mut self, size: usize) -> bool {
        let begins = self.refused == 0;
        self.smallest = if begins { size } else { self.smallest.min(size) };
        self.refused += 1;
        begins
    }

    /// Whether it is over when one of this size is kept.
    pub(super) fn is_over_with(&self, size: usize) -> bool {
        self.refused > 0 && size >= self.smallest
    }

    /// It is over; how many were refused.
    pub(super) fn end(&mut self) -> u64 {
        std::mem::take(self).refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_once_and_ends_when_what_was_refused_would_be_kept() {
        let mut outage = Outage::default();
        assert!(!outage.is_over_with(usize::MAX), "nothing has begun");
        assert_eq!([500, 200, 900].map(|size| outage.refused(size)), [true, false, false]);
        assert!(!outage.is_over_with(199), "a smaller one says nothing");
        assert!(outage.is_over_with(200));
        assert_eq!(outage.end(), 3);
        assert!(outage.refused(1), "the next one begins anew");
    }
}
