//! The numbered invariants of the quota ledger and the wait queue.
//!
//! A debug build stops at a broken invariant. A release build counts it
//! (`weir_invariant_broken_total`) and goes on, because every window errs on the side of denial.
//! Cheap checks run at every change. [`QuotaLedger::audit`](crate::decision::QuotaLedger::audit)
//! checks the sums, which simulations and tests call after every step.

use strum::{IntoStaticStr, VariantArray};

/// Invariants in the order of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Invariant {
    /// 1: no window has more units left than its limit.
    RemainingWithinLimit,
    /// 2: right after an admission, the remaining units cover leases and reserve, or the request is
    /// a probe, or the resource is unmetered.
    AdmittedWithinBudget,
    /// 3: no account exceeds its concurrency limit.
    ConcurrencyWithinLimit,
    /// 4: no window of a secondary limit exceeds its maximum.
    WindowsWithinLimits,
    /// 5: no two writes of one account with a distance between them are in flight together.
    OneWriteAtATime,
    /// 6: every window's leases and slots are the sums over the open leases.
    LeasesAddUp,
    /// 7: a ticket is decided once, or abandoned.
    TicketsDecidedOnce,
    /// 8: all indexes of the wait queue agree.
    #[strum(serialize = "line_adds_up")]
    QueueAddsUp,
}

impl Invariant {
    /// Number, from 1.
    pub const fn number(self) -> usize {
        self as usize + 1
    }

    /// Name in metrics.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

#[derive(Debug, Default)]
pub(in crate::decision) struct Broken([u64; Invariant::VARIANTS.len()]);

impl Broken {
    pub(in crate::decision) fn check(&mut self, invariant: Invariant, holds: bool) {
        debug_assert!(holds, "invariant {} is broken: {}", invariant.number(), invariant.name());
        if !holds {
            self.0[invariant as usize] += 1;
        }
    }

    pub(in crate::decision) fn counts(&self) -> impl Iterator<Item = (Invariant, u64)> + '_ {
        Invariant::VARIANTS.iter().copied().zip(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_invariant_has_its_own_number_and_name() {
        for (place, invariant) in Invariant::VARIANTS.iter().enumerate() {
            assert_eq!(invariant.number(), place + 1);
            assert!(
                Invariant::VARIANTS[..place].iter().all(|other| other.name() != invariant.name())
            );
        }
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "invariant 3"))]
    fn a_broken_invariant_stops_a_debug_build_or_is_counted() {
        let mut broken = Broken::default();
        broken.check(Invariant::ConcurrencyWithinLimit, false);
        assert_eq!(broken.counts().map(|(_, count)| count).sum::<u64>(), 1);
    }
}
