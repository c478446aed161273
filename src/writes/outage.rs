//! A period in which a store has no room for new writes: one log line at its begin and one at its
//! end.
//!
//! Small writes may find room where large ones do not, so it ends when a write as large as the
//! smallest refused one is stored. Left out: the reason.

#[derive(Debug, Default)]
pub(super) struct Outage {
    refused: u64,
    smallest: usize,
}

impl Outage {
    /// Counts a refused write of this size, and returns true for the first.
    pub(super) fn refused(&mut self, size: usize) -> bool {
        let begins = self.refused == 0;
        self.smallest = if begins { size } else { self.smallest.min(size) };
        self.refused += 1;
        begins
    }

    /// Returns true if storing a write of this size ends the outage.
    pub(super) fn is_over_with(&self, size: usize) -> bool {
        self.refused > 0 && size >= self.smallest
    }

    /// Ends the outage and returns the number of refused writes.
    pub(super) fn end(&mut self) -> u64 {
        std::mem::take(self).refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_ends_when_a_refused_size_fits_again() {
        let mut outage = Outage::default();
        assert!(!outage.is_over_with(usize::MAX), "nothing has begun");
        assert_eq!([500, 200, 900].map(|size| outage.refused(size)), [true, false, false]);
        assert!(!outage.is_over_with(199), "a smaller one says nothing");
        assert!(outage.is_over_with(200));
        assert_eq!(outage.end(), 3);
        assert!(outage.refused(1), "the next one begins anew");
    }
}
