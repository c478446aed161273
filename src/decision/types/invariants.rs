//! What must always hold of the books and the waiting line, id_map.
//!
//! A broken invariant stops a debug build at once; a release build counts it
//! (`weir_invariant_broken_total`) and goes on, because every book errs on the side of refusing.
//! What is cheap is checked at every change, the sums by [`crate::decision::QuotaLedger::audit`], which simulations
//! and tests call after every step.

/// The invariants, in the order of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Invariant {
    /// 1: no window shows more left than it allows.
    RemainingWithinLimit,
    /// 2: right after an admission, leases and reserve are covered by what is left, or the request
    /// is a probe, or nothing is counted.
    AdmittedWithinBudget,
    /// 3: no account has more requests in flight than it may.
    ConcurrencyWithinLimit,
    /// 4: no window of a secondary limit holds more than it may.
    WindowsWithinLimits,
    /// 5: no two writes of one account are in flight together.
    OneWriteAtATime,
    /// 6: every book's leases and slots are the sums over the open leases.
    LeasesAddUp,
    /// 7: a ticket is decided once, or abandoned.
    TicketsDecidedOnce,
    /// 8: the waiting line's indexes all speak of the same waiting requests.
    QueueAddsUp,
}

impl Invariant {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::RemainingWithinLimit,
        Self::AdmittedWithinBudget,
        Self::ConcurrencyWithinLimit,
        Self::WindowsWithinLimits,
        Self::OneWriteAtATime,
        Self::LeasesAddUp,
        Self::TicketsDecidedOnce,
        Self::QueueAddsUp,
    ];

    /// Its number, from 1.
    pub const fn number(self) -> usize {
        self as usize + 1
    }

    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RemainingWithinLimit => "remaining_within_limit",
            Self::AdmittedWithinBudget => "admitted_within_budget",
            Self::ConcurrencyWithinLimit => "concurrency_within_limit",
            Self::WindowsWithinLimits => "windows_within_limits",
            Self::OneWriteAtATime => "one_write_at_a_time",
            Self::LeasesAddUp => "leases_add_up",
            Self::TicketsDecidedOnce => "tickets_decided_once",
            Self::QueueAddsUp => "line_adds_up",
        }
    }
}

/// How often each was found broken.
#[derive(Debug, Default)]
pub(in crate::decision) struct Broken([u64; Invariant::ALL.len()]);

impl Broken {
    /// Counts the invariant unless it holds.
    pub(in crate::decision) fn check(&mut self, invariant: Invariant, holds: bool) {
        debug_assert!(holds, "invariant {} is broken: {}", invariant.number(), invariant.name());
        if !holds {
            self.0[invariant as usize] += 1;
        }
    }

    /// Every invariant with its count.
    pub(in crate::decision) fn counts(&self) -> impl Iterator<Item = (Invariant, u64)> + '_ {
        Invariant::ALL.into_iter().zip(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_invariant_has_a_number_and_a_name_of_its_own() {
        for (place, invariant) in Invariant::ALL.into_iter().enumerate() {
            assert_eq!(invariant.number(), place + 1);
            assert!(Invariant::ALL[..place].iter().all(|other| other.name() != invariant.name()));
        }
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "invariant 3"))]
    fn a_broken_invariant_stops_a_debug_build_and_is_counted_otherwise() {
        let mut broken = Broken::default();
        broken.check(Invariant::ConcurrencyWithinLimit, false);
        assert_eq!(broken.counts().map(|(_, count)| count).sum::<u64>(), 1);
    }
}
